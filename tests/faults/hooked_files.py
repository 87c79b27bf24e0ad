"""The operating system's files, with somebody who is asked before each call that may change or open one."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from logbroker.broker.local_engine import lifetime
from logbroker.storage.files import Buffer, RealFiles
from logbroker.storage.metadata.metadata_store import MetadataStore, Write

SHORT: Final = -1
"""Instead of an errno: a write that takes half of its bytes."""


class Hook(Protocol):
    def before(self, call: str, path: str = "") -> None:
        """May raise OSError, or end the process. `call`: see HookedFiles and `hook_commits`."""
        ...

    def halves(self) -> bool:
        """Whether only half of the bytes of this write shall be written."""
        ...

    def halved(self) -> None:
        """Called when half of the bytes are written."""
        ...


class Kill:
    """SIGKILL before the Nth call that changes something; a write counts twice: before it, and in its middle."""

    def __init__(self, nth: int) -> None:
        self._left = nth

    def before(self, call: str, path: str = "") -> None:
        if call != "open" and self.halves():
            self.halved()

    def halves(self) -> bool:
        self._left -= 1
        return self._left == 0

    def halved(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Fail:
    """The Nth of some calls fails, once, and does nothing; or is a short write."""

    def __init__(self, calls: frozenset[str], error_number: int, nth: int) -> None:
        self._calls = calls
        self._error_number = error_number
        self._left = nth
        self.failed = False
        """Whether it came to that."""

    def before(self, call: str, path: str = "") -> None:
        if self._error_number != SHORT and call in self._calls and self._is_due():
            raise OSError(self._error_number, os.strerror(self._error_number), path)

    def halves(self) -> bool:
        return self._error_number == SHORT and self._is_due()

    def halved(self) -> None:
        pass

    def _is_due(self) -> bool:
        self._left -= 1
        self.failed |= self._left == 0
        return self._left == 0


class HookedFiles(RealFiles):
    """Names its calls: open, create, write, fdatasync, truncate, sync_directory, make, remove, rename and unlink."""

    def __init__(self, hook: Hook) -> None:
        super().__init__()
        self._hook = hook

    def open(self, path: str, *, create: bool = False) -> int:
        self._hook.before("create" if create else "open", path)
        return super().open(path, create=create)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        self._hook.before("write")
        whole = b"".join(buffers)
        if len(whole) > 1 and self._hook.halves():
            written = super().pwritev(fd, [whole[: len(whole) // 2]], position)
            self._hook.halved()
            return written
        return super().pwritev(fd, buffers, position)

    def fdatasync(self, fd: int) -> None:
        self._hook.before("fdatasync")
        super().fdatasync(fd)

    def truncate(self, fd: int, size_bytes: int) -> None:
        self._hook.before("truncate")
        super().truncate(fd, size_bytes)

    def sync_directory(self, path: str) -> None:
        self._hook.before("sync_directory", path)
        super().sync_directory(path)

    def make_directory(self, path: str) -> None:
        self._hook.before("make", path)
        super().make_directory(path)

    def remove_directory(self, path: str) -> None:
        self._hook.before("remove", path)
        super().remove_directory(path)

    def rename(self, source: str, target: str) -> None:
        self._hook.before("rename", source)
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._hook.before("unlink", path)
        super().unlink(path)


def install(hook: Hook) -> Callable[[], None]:
    """Let the engines that this process opens ask the hook, also around commits; returns what takes it away again."""
    commit = MetadataStore._store

    def hooked_commit(self: MetadataStore, writes: Sequence[Write]) -> None:
        hook.before("commit")
        commit(self, writes)
        hook.before("committed")

    def remove() -> None:
        vars(lifetime)["RealFiles"] = RealFiles
        MetadataStore._store = commit  # type: ignore[method-assign]

    vars(lifetime)["RealFiles"] = lambda: HookedFiles(hook)
    MetadataStore._store = hooked_commit  # type: ignore[method-assign]
    return remove


CALLS: Final = {
    "write": frozenset({"write"}),
    "sync": frozenset({"fdatasync", "sync_directory"}),
    "open": frozenset({"open", "create"}),
    "rename": frozenset({"rename"}),
    "truncate": frozenset({"truncate"}),
}
ERRORS: Final = (errno.EIO, errno.ENOSPC, errno.EMFILE, errno.EINTR)
PAIRS: Final = [*((call, number) for call in CALLS for number in ERRORS), ("write", SHORT)]
