"""The file `issued-numbers`: bounds above all numbers that were given out and must never be given out again.

It lies beside the metadata store, not in it, so that it is not reset when an older store is restored.

    version: 0
    receipts: 7291338260480
    producer-ids: 2001
    crc-32c: 37a4577a

All numbers below these bounds may have been given out. The checksum covers the lines before it.
"""

from __future__ import annotations

import errno
import logging
from functools import partial
from typing import Final

import google_crc32c
import msgspec

from logbroker.errors import CorruptLogError
from logbroker.storage.files import Files, creation_failed, read_file, storage_failed, what_is_at, write_all
from logbroker.storage.handles import HandleCache

ISSUED_NAME: Final = "issued-numbers"

_log = logging.getLogger(__name__)


class IssuedNumbers(msgspec.Struct, frozen=True):
    """Bounds above all numbers that may have been given out."""

    receipts: int = 0
    """Bound above all receipts, fencing tokens and group epochs of queue groups."""
    producer_ids: int = 0


def encode_issued(issued: IssuedNumbers) -> bytes:
    lines = f"version: 0\nreceipts: {issued.receipts}\nproducer-ids: {issued.producer_ids}\n".encode("ascii")
    return lines + b"crc-32c: %08x\n" % google_crc32c.value(lines)


def decode_issued(content: bytes) -> IssuedNumbers | None:
    """Return the numbers in a file, or None if it is damaged."""
    fields = dict(line.partition(": ")[::2] for line in content.decode("ascii", "replace").splitlines())
    try:
        issued = IssuedNumbers(int(fields["receipts"]), int(fields["producer-ids"]))
    except (KeyError, ValueError):
        return None
    return issued if encode_issued(issued) == content else None


def read_issued(directory: str, files: Files) -> IssuedNumbers | None:
    """Return the numbers in the file of a data directory, or None if there is no file or it is damaged. Raises
    OSError."""
    path = f"{directory}/{ISSUED_NAME}"
    try:
        issued = decode_issued(read_file(files, path))
    except FileNotFoundError:
        if what := what_is_at(path):
            # The target of the link may be on a disk that is not mounted: the numbers may exist there.
            raise OSError(errno.ENXIO, what, path) from None
        return None
    except CorruptLogError:
        issued = None
    if issued is None:
        _log.error("%s is damaged; new numbers begin above those in the metadata store and above the clock", path)
    return issued


def write_issued(directory: str, issued: IssuedNumbers, files: Files, handles: HandleCache) -> None:
    """Replace the file, durably. Raises StorageFailedError, DiskFullError or TooManyOpenFilesError."""
    path = f"{directory}/{ISSUED_NAME}"
    temporary = f"{path}.tmp"
    content = encode_issued(issued)
    try:
        fd = handles.with_room(partial(files.open, temporary, create=True))
    except OSError as error:
        raise creation_failed(temporary, error) from error
    try:
        try:
            write_all(files, fd, [content], 0)
            files.truncate(fd, len(content))
            files.fdatasync(fd)
        finally:
            files.close(fd)
        files.rename(temporary, path)
        handles.with_room(partial(files.sync_directory, directory))
    except OSError as error:
        raise storage_failed("write", path, error) from error
