"""The bytes of a queue group's index cache: blocks of columns, and the checkpoint that lists them; see docs/FORMAT.md.

Both are wrapped alike: a magic, the length of what follows, its CRC-32C, and msgpack. What is damaged reads as None:
all of it is found in the log, too.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

import google_crc32c
import msgspec

from logbroker.queues.priority.levels import Head, counts_of, heads_of
from logbroker.queues.records.columns import Columns

VERSION: Final = 1

_MAGIC: Final = b"LBQX"
_HEAD: Final = struct.Struct(">4sII")
HEAD_BYTES: Final = _HEAD.size

T = TypeVar("T")


class StoredBlock(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive records of one partition, in columns."""

    partition: int
    first_offset: int
    next_offset: int
    offsets: bytes
    """Of 8 bytes each; empty: they are consecutive, from `first_offset` on."""
    priorities: bytes
    times: bytes
    """Of 8 bytes each, as the numbers of this machine."""
    keys: list[bytes]
    """Each once."""
    key_numbers: bytes
    """Per record, of 4 bytes: the place in `keys`, or their number where it has no key; empty: without keys."""
    not_before: list[tuple[int, int]]

    def is_of(self, summary: BlockSummary) -> bool:
        """Whether it is the block that a summary tells of."""
        return (self.partition, self.first_offset, self.next_offset, len(self.priorities)) == (
            summary.partition,
            summary.first_offset,
            summary.next_offset,
            sum(summary.counts),
        )

    def columns(self) -> Columns:
        offsets: Sequence[int] = range(self.first_offset, self.first_offset + len(self.priorities))
        if self.offsets:
            offsets = array("q", self.offsets)
        known = [*self.keys, None]
        keys = [known[number] for number in array("I", self.key_numbers)]
        times = array("q", self.times)
        return Columns(offsets, self.next_offset, keys, self.not_before, self.priorities, times, [])


class BlockSummary(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is to be known of a block before it is read, and where it is."""

    partition: int
    generation: int
    leader_epoch: int
    """Of the partition when the block was written: where its log was cut since, the block does not count."""
    first_offset: int
    next_offset: int
    counts: list[int]
    """Of records by priority, 0 to 9."""
    heads: list[Head]
    """By priority; anything where there is no record."""
    due_ms: int
    """The latest not-before time; 0: none."""
    file: int
    position: int
    size_bytes: int


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    """A part of the checkpoint: blocks that count, and what must be as it was for that."""

    version: int
    boot_id: str
    topic_id: bytes
    ordering: str
    key_header: str
    blocks: list[BlockSummary]


class GatheredBlock(msgspec.Struct):
    """Columns of consecutive records that become a block."""

    generation: int
    first_offset: int
    next_offset: int
    offsets: list[int]
    keys: list[bytes | None]
    priorities: bytearray
    times: array[int]
    not_before: list[tuple[int, int]]

    @classmethod
    def begin(cls, generation: int, position: int) -> GatheredBlock:
        return cls(generation, position, position, [], [], bytearray(), array("q"), [])

    def add(self, position: int, columns: Columns) -> None:
        """Append what follows: the records of `columns` from `position` on."""
        first = bisect_left(columns.offsets, position)
        self.offsets += columns.offsets[first:]
        self.keys += columns.keys[first:]
        self.priorities += columns.priorities[first:]
        self.times += columns.times[first:]
        self.not_before += [due for due in columns.not_before if due[0] >= position]
        self.next_offset = columns.next_offset

    def block(self, partition: int) -> StoredBlock:
        is_consecutive = len(self.offsets) == self.next_offset - self.first_offset
        keys = [key for key in dict.fromkeys(self.keys) if key is not None]
        numbers = {key: number for number, key in enumerate([*keys, None])}
        return StoredBlock(
            partition,
            self.first_offset,
            self.next_offset,
            b"" if is_consecutive else array("q", self.offsets).tobytes(),
            bytes(self.priorities),
            self.times.tobytes(),
            keys,
            array("I", map(numbers.__getitem__, self.keys)).tobytes(),
            self.not_before,
        )

    def summary(self, partition: int, leader_epoch: int, file: int, position: int, size_bytes: int) -> BlockSummary:
        return BlockSummary(
            partition,
            self.generation,
            leader_epoch,
            self.first_offset,
            self.next_offset,
            counts_of(self.priorities),
            heads_of(self.offsets, self.priorities, self.times),
            max((due_ms for _, due_ms in self.not_before), default=0),
            file,
            position,
            size_bytes,
        )


def encode(value: StoredBlock | Checkpoint) -> bytes:
    payload = msgspec.msgpack.encode(value)
    return _HEAD.pack(_MAGIC, len(payload), google_crc32c.value(payload)) + payload


def split(data: bytes) -> Iterator[bytes]:
    """Yield the parts of what was encoded one behind the other, as `decode` takes them; damaged ones as they are."""
    start = 0
    while start + HEAD_BYTES <= len(data):
        _, length, _ = _HEAD.unpack_from(data, start)
        end = start + HEAD_BYTES + length
        yield data[start:end]
        start = end


def decode(data: bytes, kind: type[T]) -> T | None:
    """Return what was encoded; None where it is not whole."""
    if len(data) < HEAD_BYTES:
        return None
    magic, length, crc = _HEAD.unpack_from(data)
    payload = data[HEAD_BYTES:]
    if magic != _MAGIC or length != len(payload) or google_crc32c.value(payload) != crc:
        return None
    try:
        return msgspec.msgpack.decode(payload, type=kind)
    except msgspec.MsgspecError:
        return None
