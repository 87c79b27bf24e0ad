"""What a queue group with priorities keeps of its index on disk, so that a start need not look through the log again.

The scan gives all that it admits (`gather`); of each partition it is written as blocks of some thousand records behind
the scan, and a checkpoint, now and then and at a clean stop, lists the blocks. Nothing of it is synced, nothing is in
the way of a produce request, and nothing depends on it: what is missing, damaged, of another boot of the machine, of
other settings or of a log that was cut since is scanned from the log.

A block says what the log says, so it does not matter which life of the group wrote it, or what was done since.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Final

from logbroker.engine import LogEngine
from logbroker.errors import LogbrokerError
from logbroker.queues.columns import Block, Columns
from logbroker.queues.queue import Queue
from logbroker.queues.settings import Ordering, QueueSettings
from logbroker.queues.sidecar_files import SidecarFiles
from logbroker.queues.sidecar_format import (
    VERSION,
    BlockSummary,
    Checkpoint,
    Gathered,
    StoredBlock,
    decode,
    encode,
)
from logbroker.types import TopicId

_log = logging.getLogger(__name__)

BLOCK_RECORDS: Final = 4096
MIN_BLOCK_RECORDS: Final = 256
"""Fewer are not written before a stop, or before too many are gathered."""
MAX_GATHERED_RECORDS: Final = 131_072
"""That are not written yet, in all partitions: some MiB."""
MAX_BYTES: Final = 4 << 30
"""Of all blocks. Beyond it, the oldest go."""
SLACK_BYTES: Final = 64 << 20
"""That blocks may take whose records are done, beside as much as the others take."""
CHECKPOINT_SECONDS: Final = 5.0

_first_offset: Final = attrgetter("first_offset")


class Sidecar:
    """Of one queue group. Everything runs on the event loop, but for reading blocks."""

    def __init__(self, group_id: str, queue: Queue, engine: LogEngine, data_dir: Path) -> None:
        self.group_id = group_id
        self._queue = queue
        self._engine = engine
        self._topic_id = TopicId(queue.topic_id)
        self._files = SidecarFiles(data_dir, group_id)
        self._settings: QueueSettings | None = None
        """As they were when they were last looked at."""
        self._keyed_by = ("", "")
        """Ordering and key header of what is here."""
        self._blocks: dict[int, list[BlockSummary]] = {}
        """By partition, in their order."""
        self._lent: dict[tuple[int, int], BlockSummary] = {}
        """By file and position, blocks that the index has not read: their files stay for as long as it may."""
        self._gathered: dict[int, Gathered] = {}
        self._gathered_records = 0
        self._changed = False
        self._is_open = False
        self._is_off = False

    # --- what an earlier scan left -----------------------------------------------------------------------------------

    def open(self) -> None:
        """The index is empty. Take over what is there and fits; once."""
        self._lent.clear()
        if self._is_open:
            return
        self._is_open = True
        if not self._is_current():
            self._files.remove()
            return
        try:
            checkpoint = decode(self._files.read_checkpoint(), Checkpoint)
            if checkpoint is not None and self._fits(checkpoint):
                for block in sorted(checkpoint.blocks, key=_first_offset):
                    self._blocks.setdefault(block.partition, []).append(block)
            self._remove_unused()
        except OSError as error:
            self._give_up(error)

    def _fits(self, checkpoint: Checkpoint) -> bool:
        return bool(self._engine.boot_id) and (
            checkpoint.version,
            checkpoint.boot_id,
            checkpoint.topic_id,
            (checkpoint.ordering, checkpoint.key_header),
        ) == (VERSION, self._engine.boot_id, self._topic_id, self._keyed_by)

    def block_at(self, partition: int, generation: int, position: int) -> Block | None:
        """The block in which a partition goes on at a position, if there is one and it can be trusted."""
        # First of all, as it drops what is of other keys.
        if not self._is_current():
            return None
        blocks = self._blocks.get(partition)
        if not blocks:
            return None
        index = bisect_right(blocks, position, key=_first_offset) - 1
        if index < 0 or position >= blocks[index].next_offset:
            return None
        summary = blocks[index]
        try:
            facts = self._engine.partition_facts(self._topic_id, partition)
        except LogbrokerError:
            return None
        if (summary.generation, summary.leader_epoch) != (generation, facts.leader_epoch):
            return None
        if not facts.log_start_offset <= summary.first_offset <= summary.next_offset <= facts.high_watermark:
            return None  # Retention has taken some of it.
        if self._queue.settings.ordering is Ordering.NONE:
            self._lent[summary.file, summary.position] = summary
        return Block(
            summary.first_offset,
            summary.next_offset,
            summary.counts,
            summary.heads,
            summary.due_ms,
            partial(self._load, summary),
        )

    def _load(self, summary: BlockSummary) -> Columns | None:
        """For any thread."""
        try:
            stored = decode(self._files.read(summary.file, summary.position, summary.size_bytes), StoredBlock)
        except OSError:
            stored = None
        if stored is not None and stored.is_of(summary):
            return stored.columns()
        blocks = self._blocks.get(summary.partition, [])
        if summary in blocks:
            blocks.remove(summary)
        _log.warning(
            "queue group %s: what it kept of the index of partition %d is damaged, and is made anew of the log",
            self.group_id,
            summary.partition,
        )
        return None

    # --- what the scan finds -----------------------------------------------------------------------------------------

    def gather(self, partition: int, generation: int, position: int, columns: Columns) -> None:
        """Keep what was admitted of a partition from a position on."""
        if self._is_off or not self._is_current():
            return
        gathered = self._gathered.get(partition)
        if gathered is not None and (gathered.generation, gathered.next_offset) != (generation, position):
            self._seal(partition)
            gathered = None
        if gathered is None:
            gathered = self._gathered[partition] = Gathered.begin(generation, position)
        before = len(gathered.times)
        gathered.add(position, columns)
        self._gathered_records += len(gathered.times) - before
        if len(gathered.times) >= BLOCK_RECORDS:
            self._seal(partition)
        elif self._gathered_records >= MAX_GATHERED_RECORDS:
            self._seal_all(1)

    def _seal_all(self, least_records: int) -> None:
        for partition, gathered in list(self._gathered.items()):
            if len(gathered.times) >= least_records:
                self._seal(partition)

    def _seal(self, partition: int) -> None:
        """Write what is gathered of a partition as a block, unless it is all done."""
        gathered = self._gathered.pop(partition)
        self._gathered_records -= len(gathered.times)
        if self._is_off or not gathered.times or gathered.next_offset <= self._queue.done.floor(partition):
            return
        try:
            leader_epoch = self._engine.partition_facts(self._topic_id, partition).leader_epoch
            data = encode(gathered.block(partition))
            file, position = self._files.append(data)
        except LogbrokerError:
            return
        except OSError as error:
            self._give_up(error)
            return
        summary = gathered.summary(partition, leader_epoch, file, position, len(data))
        blocks = self._blocks.setdefault(partition, [])
        # A rewind has the scan meet again what is here already.
        blocks[:] = [
            block
            for block in blocks
            if block.next_offset <= summary.first_offset or block.first_offset >= summary.next_offset
        ]
        blocks.insert(bisect_right(blocks, summary.first_offset, key=_first_offset), summary)
        self._changed = True

    # --- keeping -----------------------------------------------------------------------------------------------------

    async def keep(self) -> None:
        """Write checkpoints again and again, until cancelled."""
        while True:
            await asyncio.sleep(CHECKPOINT_SECONDS)
            if self._is_current():
                self._seal_all(MIN_BLOCK_RECORDS)
                self._checkpoint()

    def close(self) -> None:
        """Write what the next start is to find."""
        if self._is_current():
            self._seal_all(1)
            self._checkpoint()
        self._files.close()

    def remove(self) -> None:
        """The group is no more."""
        self._is_off = True
        self._files.remove()

    def _checkpoint(self) -> None:
        """Costs about a microsecond for each block."""
        if self._is_off:
            return
        try:
            self._remove_unused()
            if not self._changed:
                return
            blocks = [block for blocks in self._blocks.values() for block in blocks]
            checkpoint = Checkpoint(VERSION, self._engine.boot_id, self._topic_id, *self._keyed_by, blocks)
            self._files.write_checkpoint(encode(checkpoint))
            self._changed = False
        except OSError as error:
            self._give_up(error)

    def _remove_unused(self) -> None:
        """Forget blocks whose records are done, and the oldest where they take too much room. Raises OSError.

        The checkpoint of before may name files that go: what is missing counts for nothing.
        """
        done = self._queue.done
        floors = {partition: done.floor(partition) for partition in done.partitions()}
        self._forget(lambda block: block.next_offset <= floors.get(block.partition, 0))
        for place in [place for place, block in self._lent.items() if block.next_offset <= floors[block.partition]]:
            del self._lent[place]
        lent = self._lent_files()
        numbers = self._files.numbers()
        sizes = {number: self._files.size_bytes(number) for number in numbers}
        used: dict[int, int] = {}
        for blocks in self._blocks.values():
            for block in blocks:
                used[block.file] = used.get(block.file, 0) + block.size_bytes
        total, live = sum(sizes[number] for number in numbers if number in used), sum(used.values())
        for number in numbers[:-1]:
            if total <= min(MAX_BYTES, SLACK_BYTES + 2 * live):
                break
            if number in used and number not in lent:
                total, live = total - sizes[number], live - used.pop(number)
        self._forget(lambda block: block.file not in used)
        self._files.keep({*used, *lent})

    def _lent_files(self) -> set[int]:
        return {file for file, _ in self._lent}

    def _forget(self, which: Callable[[BlockSummary], bool]) -> None:
        for partition, blocks in list(self._blocks.items()):
            kept = [block for block in blocks if not which(block)]
            self._changed |= len(kept) < len(blocks)
            if kept:
                self._blocks[partition] = kept
            else:
                del self._blocks[partition]

    def _is_current(self) -> bool:
        """Whether anything is to be kept; where the group has other keys now, begin anew."""
        settings = self._queue.settings
        if settings is not self._settings:
            self._settings = settings
            keyed_by = (settings.ordering.value, settings.key_header)
            if settings.has_priorities and keyed_by != self._keyed_by:
                self._clear()
                self._keyed_by = keyed_by
                self._changed = True
        return settings.has_priorities

    def _clear(self) -> None:
        self._blocks.clear()
        self._gathered.clear()
        self._gathered_records = 0

    def _give_up(self, error: OSError) -> None:
        """The disk is full, for instance: the group goes on without."""
        self._is_off = True
        self._clear()
        self._files.remove(self._lent_files())
        _log.warning(
            "queue group %s: its index is not kept on disk any more (%s): the next start looks through the log",
            self.group_id,
            error.strerror or error,
        )
