"""The two small text files beside a partition's segments, in Kafka's formats.

`partition.metadata` says whose partition it is; `leader-epoch-checkpoint` says at which offset each leader epoch began.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from logbroker.errors import CorruptLogError
from logbroker.types import TopicId, parse_topic_id, topic_id_text

METADATA_NAME: Final = "partition.metadata"
EPOCHS_NAME: Final = "leader-epoch-checkpoint"


class EpochStart(NamedTuple):
    """A leader epoch and the first offset that was written in it."""

    epoch: int
    start_offset: int


def encode_metadata(topic_id: TopicId) -> bytes:
    return f"version: 0\ntopic_id: {topic_id_text(topic_id)}\n".encode("ascii")


def decode_metadata(path: str, content: bytes) -> TopicId:
    """Raises CorruptLogError."""
    fields = dict(line.partition(": ")[::2] for line in content.decode("ascii", "replace").splitlines())
    if fields.get("version") != "0":
        raise CorruptLogError(f"{path}: not a partition.metadata file of version 0")
    try:
        return parse_topic_id(fields.get("topic_id", ""))
    except ValueError as error:
        raise CorruptLogError(f"{path}: {error}") from None


def encode_epochs(epochs: list[EpochStart]) -> bytes:
    lines = ["0", str(len(epochs)), *(f"{entry.epoch} {entry.start_offset}" for entry in epochs)]
    return ("\n".join(lines) + "\n").encode("ascii")


def decode_epochs(path: str, content: bytes) -> list[EpochStart]:
    """Raises CorruptLogError."""
    try:
        version, count, *entries = content.decode("ascii").splitlines()
        epochs = [EpochStart(*map(int, entry.split())) for entry in entries]
    except (ValueError, TypeError):
        raise CorruptLogError(f"{path}: not a leader-epoch-checkpoint file") from None
    ascending = all(a.epoch < b.epoch and a.start_offset <= b.start_offset for a, b in zip(epochs, epochs[1:]))
    if version != "0" or count != str(len(epochs)) or not ascending:
        raise CorruptLogError(f"{path}: version, count or order of its epochs is wrong")
    return epochs
