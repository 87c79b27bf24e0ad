"""A broker whose disk fails: `python -m tests.faults.failing_broker OPERATION ERRNO NTH SUFFIX serve ...`.

The Nth call of the operation on a file whose path ends in SUFFIX fails, and that once: whoever tries again succeeds, as
a kernel lets a second fdatasync succeed. Every later call on that file is told on standard error.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import lmdb

from logbroker.cli.main import main
from logbroker.storage.metadata.metadata_store import MetadataStore


def path_of(target: Any) -> str:
    return os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else str(target)


def fail(call: Callable[..., Any], error: Exception, nth: int, suffix: str) -> Callable[..., Any]:
    """Wrap a call whose last path, or first descriptor, counts."""
    lock = threading.Lock()
    left = nth

    def failing(*arguments: Any, **fields: Any) -> Any:
        nonlocal left
        target = arguments[-1] if isinstance(arguments[0], str) else arguments[0]
        if path_of(target).endswith(suffix):
            with lock:
                left -= 1
                if left == 0:
                    raise error
                if left < 0:
                    os.write(2, b"logbroker: the failed call was tried again\n")
        return call(*arguments, **fields)

    return failing


def fail_commit(nth: int) -> None:
    real = MetadataStore._store
    left = nth

    def store(self: MetadataStore, writes: Any) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            raise lmdb.DiskError("mdb_txn_commit: Input/output error")
        real(self, writes)

    MetadataStore._store = store  # type: ignore[method-assign]


def run(operation: str, number: str, nth: str, suffix: str, *arguments: str) -> None:
    if operation == "commit":
        fail_commit(int(nth))
    else:
        error = OSError(int(number), os.strerror(int(number)))
        setattr(os, operation, fail(getattr(os, operation), error, int(nth), suffix))
    sys.argv[1:] = arguments
    main()


if __name__ == "__main__":
    run(*sys.argv[1:])
