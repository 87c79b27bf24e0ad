"""The bytes of a queue group's index cache: blocks of columns, and the checkpoint that lists them; see docs/FORMAT.md.

Both have the same frame: a magic, the length of the payload, its CRC-32C, and the payload in msgpack. Damaged bytes are
decoded as None. Nothing is lost then: the log has the same data.
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
    """Offsets of 8 bytes each; empty: the offsets are consecutive from `first_offset` on."""
    priorities: bytes
    times: bytes
    """Timestamps of 8 bytes each, in this machine's byte order."""
    keys: list[bytes]
    """Distinct keys."""
    key_numbers: bytes
    """Index in `keys` per record, 4 bytes each, or `len(keys)` for a record without a key; empty: the group has no
    keys."""
    not_before: list[tuple[int, int]]

    def is_of(self, summary: BlockSummary) -> bool:
        """Return whether the summary describes this block."""
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
    """The summary of a block: its place in the files, and the facts that the index needs before the block is read."""

    partition: int
    generation: int
    leader_epoch: int
    """Leader epoch of the partition when the block was written. If the log was truncated since then, its leader epoch
    has changed, and the block is ignored."""
    first_offset: int
    next_offset: int
    counts: list[int]
    """Number of records of each priority, 0 to 9."""
    heads: list[Head]
    """Head of each priority; undefined for a priority without records."""
    due_ms: int
    """Latest not-before time (ms); 0: none."""
    file: int
    position: int
    size_bytes: int


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    """A part of the checkpoint: valid blocks, and the state under which they are valid."""

    version: int
    boot_id: str
    topic_id: bytes
    ordering: str
    key_header: str
    blocks: list[BlockSummary]


class GatheredBlock(msgspec.Struct):
    """Columns of consecutive records that will become a block."""

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
        """Append the records of `columns` from `position` on."""
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
    """Yield the encoded parts of a concatenation, for `decode`. Damaged parts are yielded as they are."""
    start = 0
    while start + HEAD_BYTES <= len(data):
        _, length, _ = _HEAD.unpack_from(data, start)
        end = start + HEAD_BYTES + length
        yield data[start:end]
        start = end


def decode(data: bytes, kind: type[T]) -> T | None:
    """Return the decoded value; None if it is damaged."""
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
