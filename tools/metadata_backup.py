"""Backups of the metadata store. Each is one file with a checksum over all of it, because LMDB's pages have none.

    0                      n              n + 8         n + 16               n + 24     n + 28
    +----------------------+--------------+-------------+--------------------+----------+
    | LMDB's data.mdb,     | "LBMETA1\\n" | n           | made at            | CRC-32C  |
    | compacted, n bytes   | 8 bytes      | uint64      | int64 ms           | uint32   |
    +----------------------+--------------+-------------+--------------------+----------+

The checksum covers everything before it. Integers are big-endian.
"""

from __future__ import annotations

import itertools
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

import google_crc32c
import msgspec

from logbroker.errors import CorruptLogError, DataDirError
from logbroker.private_files import private_opener
from logbroker.storage.data_dir import META_NAME
from logbroker.storage.files import RealFiles, named, open_regular
from logbroker.storage.metadata.metadata_store import DATA_NAME, TABLES, MetadataReader, copy_store
from logbroker.storage.system_calls import sync_all

_MAGIC: Final = b"LBMETA1\n"
_TRAILER: Final = struct.Struct(">8sQq")
_CRC: Final = struct.Struct(">I")
_TRAILER_BYTES: Final = _TRAILER.size + _CRC.size
_PART_BYTES: Final = 1 << 20


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    """A backup whose checksum is right."""

    path: str
    store_bytes: int
    created_at_ms: int


def back_up(data_dir: Path, target: Path) -> tuple[Backup, dict[str, int]]:
    """Copy the metadata store of a data directory to a new file, even while the broker runs.

    `target` is the file, or an existing directory for it. Nothing is overwritten. Returns the backup and the number of
    values in each table. All their checksums were right in the copy. Raises DataDirError, CorruptLogError if a value is
    damaged, and OSError. After an error there is no backup.
    """
    created_at_ms = time.time_ns() // 1_000_000
    if is_ours := target.is_dir():
        target = target / f"logbroker-meta-{utc_text(created_at_ms)}.backup"
    elif not os.path.lexists(target) and not target.suffix:
        # The user probably meant a directory for backups, and wants no file in its place.
        raise DataDirError(f"there is no directory {target}; create it, or name a file, such as {target}.backup")
    elif not target.parent.is_dir():
        raise DataDirError(f"there is no directory {target.parent}; create it, or name another file")
    elif os.path.lexists(target):
        raise _taken(target)
    with _temporary_for(target) as temporary:
        with named(temporary), temporary.open("r+b", buffering=0) as file:
            copy_store(data_dir / META_NAME, file.fileno())
        counts = count_values(temporary)
        with named(temporary), temporary.open("r+b") as file:
            crc = _crc_of(file, store_bytes := os.fstat(file.fileno()).st_size)
            trailer = _TRAILER.pack(_MAGIC, store_bytes, created_at_ms)
            file.write(trailer + _CRC.pack(google_crc32c.extend(crc, trailer)))
            file.flush()
            sync_all(file.fileno())
        target = _named(temporary, target, is_ours=is_ours)
    RealFiles().sync_directory(os.path.abspath(target.parent))
    return Backup(path=str(target), store_bytes=store_bytes, created_at_ms=created_at_ms), counts


def read_backup(path: Path) -> Backup:
    """Check a backup from the first byte to the last. A store that a restore has replaced, known by its name, counts as
    a backup of the time at which it was last written; its values have checksums of their own. Raises CorruptLogError
    and OSError."""
    with named(path), open(open_regular(path), "rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        store_bytes = size_bytes - _TRAILER_BYTES
        file.seek(max(0, store_bytes))
        content = file.read(_TRAILER_BYTES)
        if len(content) < _TRAILER_BYTES or not content.startswith(_MAGIC):
            if path.name.startswith(DATA_NAME):
                created_at_ms = int(os.fstat(file.fileno()).st_mtime * 1000)
                return Backup(path=str(path), store_bytes=size_bytes, created_at_ms=created_at_ms)
            raise CorruptLogError(f"{path} is no backup by `logbroker meta backup`, or its end is damaged or missing")
        trailer, (stored_crc,) = content[: _TRAILER.size], _CRC.unpack(content[_TRAILER.size :])
        _, told_bytes, created_at_ms = _TRAILER.unpack(trailer)
        file.seek(0)
        crc = google_crc32c.extend(_crc_of(file, store_bytes), trailer)
    if told_bytes != store_bytes or crc != stored_crc:
        raise CorruptLogError(f"{path} is damaged: its checksum does not match; use another backup")
    return Backup(path=str(path), store_bytes=store_bytes, created_at_ms=created_at_ms)


def extract(backup: Backup, directory: Path) -> None:
    """Write the store of a checked backup into an existing directory, in which it can be opened. Raises OSError."""
    target = directory / DATA_NAME
    with open(open_regular(backup.path), "rb") as source, open(target, "wb", opener=private_opener) as file:
        left = backup.store_bytes
        while True:
            with named(backup.path):
                part = source.read(min(left, _PART_BYTES))
            with named(target):
                file.write(part)
                left -= len(part)
                if not left or not part:
                    file.flush()
                    sync_all(file.fileno())
                    return


def count_values(store: Path) -> dict[str, int]:
    """Read all values of a store to which nobody writes. Return their number by table.

    Raises CorruptLogError if a checksum does not match, and DataDirError.
    """
    reader = MetadataReader.open(store)
    try:
        return {table: len(reader.scan(table)) for table in TABLES}
    finally:
        reader.close()


def utc_text(time_ms: int) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time_ms / 1000))


def free_path(path: Path) -> Path:
    """Return an unused name, which is this name or begins with it."""
    names = itertools.chain([path], (path.with_name(f"{path.name}-{number}") for number in itertools.count(2)))
    return next(name for name in names if not os.path.lexists(name))


def free_backup_path(target: Path) -> Path:
    """Return an unused name for a backup: `target`, or one for a further backup in the same second. Shells sort the
    names by the age of the backups, also in locales that ignore punctuation: "backup" comes before "number", and the
    numbers have the same length."""
    further = (target.with_name(f"{target.stem}.number-{number:02}{target.suffix}") for number in itertools.count(2))
    return next(name for name in itertools.chain([target], further) if not os.path.lexists(name))


@contextmanager
def _temporary_for(target: Path) -> Iterator[Path]:
    """Create a file beside `target`, and remove the file at the end if it still has its temporary name."""
    while True:
        temporary = free_path(target.with_name(f"{target.name}.tmp"))
        try:
            open(temporary, "xb", opener=private_opener).close()
        except FileExistsError:
            continue  # Another backup has just taken the name.
        break
    try:
        yield temporary
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def _named(temporary: Path, target: Path, *, is_ours: bool) -> Path:
    """Give a file its name, and return the name: `target`, or another one if `target` is used and the name is ours to
    choose."""
    while True:
        free = free_backup_path(target) if is_ours else target
        try:
            _give_name(temporary, free)
        except FileExistsError:
            if not is_ours:
                raise _taken(target) from None
            continue  # Another backup has just taken the name.
        return free


def _taken(target: Path) -> DataDirError:
    return DataDirError(f"{target} is there already; name a new file, or a directory")


def _give_name(temporary: Path, target: Path) -> None:
    """Move a file to an unused name. Raises FileExistsError if the name is used meanwhile."""
    try:
        os.link(temporary, target, follow_symlinks=False)
    except FileExistsError:
        raise
    except (OSError, NotImplementedError):  # A file system without hard links.
        if os.path.lexists(target):
            raise FileExistsError from None
        temporary.rename(target)


def _crc_of(file: BinaryIO, size_bytes: int) -> int:
    """Return the CRC-32C of the next bytes of a file."""
    crc = 0
    while part := file.read(min(size_bytes, _PART_BYTES)):
        crc = google_crc32c.extend(crc, part)
        size_bytes -= len(part)
    return crc
