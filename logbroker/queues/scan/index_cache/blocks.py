"""The list of blocks in a queue group's index cache, by partition, and the bytes that they take in each file."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator, Mapping
from operator import attrgetter
from typing import Final

from logbroker.queues.scan.index_cache.format import BlockSummary

_first_offset: Final = attrgetter("first_offset")
_next_offset: Final = attrgetter("next_offset")


class Blocks:
    """A set of blocks that do not overlap. Finding a block takes time in the logarithm of the number of blocks in its
    partition. Adding one at the end takes constant time. Adding one elsewhere, or dropping one, shifts the later blocks
    of the partition."""

    def __init__(self) -> None:
        self._blocks: dict[int, list[BlockSummary]] = {}
        """Blocks by partition, in offset order."""
        self._bytes: dict[int, int] = {}
        self.changes = 0
        """Number of changes so far."""

    @property
    def bytes_by_file(self) -> Mapping[int, int]:
        """Number of bytes of blocks in each file that has blocks. Read-only."""
        return self._bytes

    def __iter__(self) -> Iterator[BlockSummary]:
        return (block for blocks in self._blocks.values() for block in blocks)

    def at(self, partition: int, offset: int) -> BlockSummary | None:
        """Return the block that covers an offset."""
        blocks = self._blocks.get(partition, [])
        index = bisect_right(blocks, offset, key=_first_offset) - 1
        return blocks[index] if index >= 0 and offset < blocks[index].next_offset else None

    def put(self, block: BlockSummary) -> None:
        """Add a block, which replaces those that it overlaps."""
        blocks = self._blocks.setdefault(block.partition, [])
        if not blocks or blocks[-1].next_offset <= block.first_offset:
            blocks.append(block)
        else:
            start = bisect_right(blocks, block.first_offset, key=_next_offset)
            end = bisect_left(blocks, block.next_offset, key=_first_offset)
            self._uncount(blocks[start:end])
            blocks[start:end] = [block]
        self._bytes[block.file] = self._bytes.get(block.file, 0) + block.size_bytes
        self.changes += 1

    def drop(self, block: BlockSummary) -> None:
        """Drop a block, if it is still here."""
        if self.at(block.partition, block.first_offset) == block:
            blocks = self._blocks[block.partition]
            index = bisect_left(blocks, block.first_offset, key=_first_offset)
            self._cut(block.partition, index, index + 1)

    def drop_below(self, partition: int, offset: int) -> None:
        """Drop the blocks of a partition that end at or before an offset."""
        blocks = self._blocks.get(partition)
        if blocks and blocks[0].next_offset <= offset:
            self._cut(partition, 0, bisect_right(blocks, offset, key=_next_offset))

    def drop_files(self, numbers: Container[int]) -> None:
        """Drop the blocks that lie in some files. Examines all blocks."""
        for block in [block for block in self if block.file in numbers]:
            self.drop(block)

    def clear(self) -> None:
        self._blocks.clear()
        self._bytes.clear()
        self.changes += 1

    def _cut(self, partition: int, start: int, end: int) -> None:
        blocks = self._blocks[partition]
        self._uncount(blocks[start:end])
        del blocks[start:end]
        if not blocks:
            del self._blocks[partition]
        self.changes += 1

    def _uncount(self, gone: list[BlockSummary]) -> None:
        for block in gone:
            left = self._bytes[block.file] - block.size_bytes
            if left:
                self._bytes[block.file] = left
            else:
                del self._bytes[block.file]
