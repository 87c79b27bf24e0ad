"""The broker as a child of the crash loop: `python -m tests.crash.broker_child [--volatile] [--plant NAME] serve ...`.

With `--volatile` being killed is a power cut: unsynced bytes are gone, and each start is the first of a new boot.
"""

from __future__ import annotations

import sys
import tempfile
import uuid
from pathlib import Path

from logbroker.broker.local_engine import lifetime
from logbroker.cli.main import main
from logbroker.storage import files, partition_checkpoint
from logbroker.storage.metadata import metadata_store
from tests.crash.plants import PLANTS
from tests.crash.volatile_files import VolatileFiles


def forget_unsynced_bytes() -> None:
    for module in (files, lifetime, metadata_store):
        module.RealFiles = VolatileFiles  # type: ignore[attr-defined]
    boot_id = Path(tempfile.gettempdir(), f"logbroker-boot-{uuid.uuid4()}")
    boot_id.write_text(uuid.uuid4().hex, encoding="ascii")
    partition_checkpoint._BOOT_ID_PATH = boot_id  # type: ignore[misc]
    partition_checkpoint.boot_id()  # remembers it
    boot_id.unlink()


def run(arguments: list[str]) -> None:
    if arguments[:1] == ["--volatile"]:
        forget_unsynced_bytes()
        arguments = arguments[1:]
    if arguments[:1] == ["--plant"]:
        PLANTS[arguments[1]]()
        arguments = arguments[2:]
    sys.argv[1:] = arguments
    main()


if __name__ == "__main__":
    run(sys.argv[1:])
