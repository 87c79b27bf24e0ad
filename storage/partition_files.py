"""The two small text files beside a partition's segments, in Kafka's formats.

`partition.metadata` names the owner of the partition; `leader-epoch-checkpoint` lists the first offset of each leader
epoch.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from logbroker.config import MAX_INT32, MAX_INT64
from logbroker.errors import CorruptLogError, InvalidTopicNameError, LogTruncatedError
from logbroker.storage.files import Files, creation_failed, reading, unusable, write_file
from logbroker.texts import whole_number
from logbroker.types import TopicId, parse_topic_id, topic_id_text

METADATA_NAME: Final = "partition.metadata"
EPOCHS_NAME: Final = "leader-epoch-checkpoint"
_LONGEST_FILE_NAME: Final = 80 * "0"
"""Longer than the name of any file in a partition's directory, also after the directory is renamed to be removed."""
LINKED_ADVICE: Final = "move the directory itself there, or mount the other disk at its place (mount --bind)"
"""Advice if a partition's directory is a symbolic link."""


class Owner(NamedTuple):
    """The topic and partition that a directory belongs to."""

    topic_id: TopicId
    partition: int
    """Partition number; -1 if the file does not have it (files of Kafka or of an older broker)."""


class EpochStart(NamedTuple):
    """A leader epoch and the first offset that was written in it."""

    epoch: int
    start_offset: int


def owner_of(directory: str, topic_id: TopicId) -> Owner:
    """Return the owner of a partition's directory by its name, `<topic>-<partition>`."""
    number = whole_number(directory.rpartition("/")[2].rpartition("-")[2])
    return Owner(topic_id, -1 if number is None else number)


def encode_metadata(owner: Owner) -> bytes:
    number = f"partition: {owner.partition}\n" if owner.partition >= 0 else ""
    return f"version: 0\ntopic_id: {topic_id_text(owner.topic_id)}\n{number}".encode("ascii")


def decode_metadata(path: str, content: bytes) -> Owner:
    """Parse partition.metadata. Raises CorruptLogError."""
    fields = dict(line.partition(": ")[::2] for line in content.decode("ascii", "replace").splitlines())
    if fields.get("version") != "0":
        raise CorruptLogError(f"{path}: not a partition.metadata file of version 0")
    number = fields.get("partition")
    partition = -1 if number is None else whole_number(number)
    if partition is None or (number is not None and partition < 0):
        raise CorruptLogError(f"{path}: {number!r} is no partition number")
    try:
        return Owner(parse_topic_id(fields.get("topic_id", "")), partition)
    except ValueError as error:
        raise CorruptLogError(f"{path}: {error}") from None


def encode_epochs(epochs: list[EpochStart]) -> bytes:
    lines = ["0", str(len(epochs)), *(f"{entry.epoch} {entry.start_offset}" for entry in epochs)]
    return ("\n".join(lines) + "\n").encode("ascii")


def decode_epochs(path: str, content: bytes) -> list[EpochStart]:
    """Parse leader-epoch-checkpoint. Raises CorruptLogError."""
    try:
        version, count, *entries = content.decode("ascii").splitlines()
        epochs = [EpochStart(*map(int, entry.split())) for entry in entries]
    except (ValueError, TypeError):
        raise CorruptLogError(f"{path}: not a leader-epoch-checkpoint file") from None
    ascending = all(a.epoch < b.epoch and a.start_offset <= b.start_offset for a, b in pairwise(epochs))
    # The highest leader epoch is never used, so that another one can always follow.
    possible = all(0 <= entry.epoch < MAX_INT32 and 0 <= entry.start_offset <= MAX_INT64 for entry in epochs)
    if version != "0" or count != str(len(epochs)) or not ascending or not possible:
        raise CorruptLogError(f"{path}: version, count, order or range of its epochs is wrong")
    return epochs


def epoch_beyond_end(epochs: Sequence[EpochStart], log_end_offset: int) -> str:
    """Return what is wrong with the last leader epoch of a log that ends at an offset, or "" if nothing is.

    A leader epoch begins at the end of the log, and everything below is durable by then. So no crash explains a log
    that ends below the beginning of an epoch.
    """
    if epochs and epochs[-1].start_offset > log_end_offset:
        last = epochs[-1]
        return f"leader epoch {last.epoch} begins at {last.start_offset}, but the log ends at {log_end_offset}"
    return ""


def check_epoch(
    epochs: list[EpochStart], last_epoch: int, offset: int, log_start_offset: int, log_end_offset: int
) -> None:
    """Raise LogTruncatedError if a reader has read records up to `offset` in `last_epoch` that were cut off since. With
    a `last_epoch` of -1, check nothing."""
    if last_epoch < 0:
        return
    later = (entry.start_offset for entry in epochs if entry.epoch > last_epoch)
    known = last_epoch <= (epochs[-1].epoch if epochs else 0)
    end_offset = next(later, log_end_offset) if known else log_start_offset
    if offset > end_offset:
        error = LogTruncatedError(
            f"the log was cut: leader epoch {last_epoch} ends at offset {end_offset}, before {offset}; what was read "
            f"from there on is gone, go on at {end_offset}"
        )
        error.cut_offset = end_offset
        raise error


def end_of_epoch(
    epochs: list[EpochStart], epoch: int, log_start_offset: int, log_end_offset: int
) -> tuple[int, int] | None:
    """Return the last leader epoch up to `epoch`, and the offset at which it ends; None if no such epoch is known.

    The meaning is that of Kafka's OffsetForLeaderEpoch: an epoch before the first known one ends where that begins.
    """
    if not 0 <= epoch <= (epochs[-1].epoch if epochs else 0):
        return None
    last = epoch
    for entry in epochs:
        if entry.epoch > epoch:
            return last, max(entry.start_offset, log_start_offset)
        last = entry.epoch
    return last, log_end_offset


def check_not_linked(directory: str, files: Files) -> None:
    """Raise CorruptLogError if a partition's directory is a symbolic link.

    Names are synced, renamed and removed in the data directory. With a link, files could stay after their name is gone,
    or a deletion could reach outside of the data directory.
    """
    if files.is_link(directory):
        raise CorruptLogError(
            f"cannot use {directory}: it is a symbolic link, which the broker does not follow; {LINKED_ADVICE}"
        )


def _check_name_fits(directory: str, files: Files) -> None:
    """Raise InvalidTopicNameError if the name of the directory, or the path of a file in it, is too long for the file
    system. If only the path of a file were too long, the topic could be made, but its first append would end the
    broker."""
    try:
        files.size_bytes(f"{directory}/{_LONGEST_FILE_NAME}")
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise _too_long(directory) from None


def _too_long(directory: str) -> InvalidTopicNameError:
    return InvalidTopicNameError(
        f"the file system does not take a path as long as that of {directory}; choose a shorter topic name, or a data "
        "directory with a shorter path"
    )


def create_partition(directory: str, topic_id: TopicId, files: Files) -> None:
    """Make a partition's directory, or reuse one that an earlier creation left.

    A new directory is not synced: this happens with its first segment.

    Raises StorageFailedError, DiskFullError, TooManyOpenFilesError, InvalidTopicNameError if the file system does not
    take so long a name, and CorruptLogError if there are segments already.
    """
    _check_name_fits(directory, files)
    path = directory
    try:
        is_left_over = False
        try:
            files.make_directory(directory)
        except FileExistsError:
            is_left_over = True
        check_not_linked(directory, files)
        with reading(directory):
            names = files.list_directory(directory)
        if any(name.endswith(".log") for name in names):
            raise CorruptLogError(
                f"{directory} holds segments of another topic already; move it out of the data directory"
            )
        path = f"{directory}/{METADATA_NAME}"
        # After a power cut the file may be missing, which recovery repairs. But a file that another topic left would
        # take the partition offline.
        write_file(files, path, encode_metadata(owner_of(directory, topic_id)), sync=is_left_over)
    except FileNotFoundError as error:
        raise unusable(path, error) from error  # The directory is gone, or was replaced meanwhile.
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # Some file systems say so only when the name is made.
            raise _too_long(directory) from None
        raise creation_failed(path, error) from error
