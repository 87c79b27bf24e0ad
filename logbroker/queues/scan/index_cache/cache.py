"""The index cache of a queue group with priorities: it keeps the index on disk, so that a start need not scan the log
again.

The scan passes on all records that it admits (`gather`). They are written in blocks of some thousand records of a
partition. A checkpoint lists the blocks; it is written every few seconds and at a clean stop. No file of the cache is
synced, no produce request waits for the cache, and nothing depends on it. If a block is missing or damaged, or comes
from another boot of the computer, from other settings or from a log that was cut since, a scan of the log replaces it.

Writing is done in steps of a few milliseconds, however many blocks there are. Other tasks run between the steps.

A block only repeats the log, so it does not matter which group epoch wrote it, or which records are done since.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from logbroker.engine import LogEngine
from logbroker.errors import LogbrokerError
from logbroker.errors.system import system_error_text
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.settings import Ordering, QueueGroupSettings
from logbroker.queues.model.splits import Keying
from logbroker.queues.records.columns import Block, Columns
from logbroker.queues.scan.index_cache.blocks import Blocks
from logbroker.queues.scan.index_cache.files import IndexCacheFiles
from logbroker.queues.scan.index_cache.format import (
    VERSION,
    BlockSummary,
    Checkpoint,
    GatheredBlock,
    StoredBlock,
    decode,
    encode,
    split,
)
from logbroker.types import TopicId

_log = logging.getLogger(__name__)

BLOCK_RECORDS: Final = 4096
MIN_BLOCK_RECORDS: Final = 256
"""Minimum number of records for which a checkpoint writes a block. Fewer stay in memory, unless MAX_GATHERED_RECORDS is
reached."""
MAX_GATHERED_RECORDS: Final = 131_072
"""Maximum number of gathered records of all partitions that are not written yet: some MiB."""
MAX_BYTES: Final = 4 << 30
"""Maximum size of all blocks. Beyond it, the oldest blocks are removed."""
SLACK_BYTES: Final = 64 << 20
"""Blocks of done records may take as many bytes as all other blocks, plus this number."""
CHECKPOINT_SECONDS: Final = 5.0
PART_BLOCKS: Final = 512
"""Number of blocks of a checkpoint that are written in one step."""


class IndexCache:
    """The index cache of one queue group. Everything runs on the event loop, but blocks may be read in
    threads as well."""

    def __init__(self, group_id: str, queue: Queue, engine: LogEngine, data_dir: Path) -> None:
        self.group_id = group_id
        self._queue = queue
        self._engine = engine
        self._topic_id = TopicId(queue.topic_id)
        self._files = IndexCacheFiles(data_dir, group_id)
        self._settings: QueueGroupSettings | None = None
        """Settings at the last call of `_is_current`."""
        self._keying: Keying | None = None
        """Keying at the last call of `_is_current`."""
        self._keyed_by = ("", "")
        """Fingerprint of the keying of the blocks in this cache."""
        self._blocks = Blocks()
        self._lent = Blocks()
        """Blocks that the index may still read. Their files stay until the records of the blocks are done."""
        self._damaged: list[BlockSummary] = []
        """Damaged blocks that a thread has found and that are still in `_blocks`."""
        self._gathered: dict[int, GatheredBlock] = {}
        self._gathered_records = 0
        self._written = -1
        """Value of `Blocks.changes` at the last checkpoint."""
        self._is_loaded = False
        """Whether `load` has run; before that the files stay untouched."""
        self._is_off = False

    # --- blocks of an earlier scan -----------------------------------------------------------------------------------

    async def load(self) -> None:
        """Load the checkpoint, if it is valid for this group. Call it once, before any other method."""
        try:
            if self._is_current():
                for part in split(self._files.read_checkpoint()):
                    self._take_over(decode(part, Checkpoint))
                    await asyncio.sleep(0)
                self._remove_unused()
            else:
                self._files.remove()
        except OSError as error:
            self._give_up(error)
        self._is_loaded = True

    def _take_over(self, checkpoint: Checkpoint | None) -> None:
        # The keying may have changed since the last part, or the group may be deleted.
        if checkpoint is not None and self._is_current() and not self._is_off and self._fits(checkpoint):
            for block in checkpoint.blocks:
                self._blocks.put(block)

    def begin_index(self) -> None:
        """Note that the index was emptied."""
        self._lent.clear()

    def _fits(self, checkpoint: Checkpoint) -> bool:
        return bool(self._engine.boot_id) and (
            checkpoint.version,
            checkpoint.boot_id,
            checkpoint.topic_id,
            (checkpoint.ordering, checkpoint.key_header),
        ) == (VERSION, self._engine.boot_id, self._topic_id, self._keyed_by)

    def block_at(self, partition: int, generation: int, position: int) -> Block | None:
        """Return the valid block that covers a position of a partition; None: there is none."""
        # Called first, because it drops blocks with other keys.
        if not self._is_current():
            return None
        while self._damaged:
            self._blocks.drop(self._damaged.pop())
        summary = self._blocks.at(partition, position)
        if summary is None:
            return None
        try:
            facts = self._engine.partition_facts(self._topic_id, partition)
        except LogbrokerError:
            return None
        if (summary.generation, summary.leader_epoch) != (generation, facts.leader_epoch):
            return None
        if not facts.log_start_offset <= summary.first_offset <= summary.next_offset <= facts.high_watermark:
            return None  # Some of its records were deleted.
        if self._queue.settings.ordering is Ordering.NONE:
            self._lent.put(summary)
        return Block(
            summary.first_offset,
            summary.next_offset,
            summary.counts,
            summary.heads,
            summary.due_ms,
            partial(self._load, summary),
            summary.next_offset == facts.high_watermark,
        )

    def _load(self, summary: BlockSummary) -> Columns | None:
        """Read a block; None if it is damaged. For any thread."""
        try:
            stored = decode(self._files.read(summary.file, summary.position, summary.size_bytes), StoredBlock)
        except OSError:
            stored = None
        if stored is not None and stored.is_of(summary):
            return stored.columns()
        self._damaged.append(summary)
        _log.warning(
            "queue group %s: a stored part of the index of partition %d is damaged, and is rebuilt from the log",
            self.group_id,
            summary.partition,
        )
        return None

    # --- gathering ---------------------------------------------------------------------------------------------------

    def gather(self, partition: int, generation: int, position: int, columns: Columns) -> None:
        """Gather the admitted records of a partition from a position on."""
        if self._is_off or not self._is_current():
            return
        gathered = self._gathered.get(partition)
        if gathered is not None and (gathered.generation, gathered.next_offset) != (generation, position):
            self._seal(partition)
            gathered = None
        if gathered is None:
            gathered = self._gathered[partition] = GatheredBlock.begin(generation, position)
        before = len(gathered.times)
        gathered.add(position, columns)
        self._gathered_records += len(gathered.times) - before
        if len(gathered.times) >= BLOCK_RECORDS:
            self._seal(partition)
        while self._gathered_records >= MAX_GATHERED_RECORDS:
            self._seal(next(iter(self._gathered)))

    def _seal(self, partition: int) -> None:
        """Write the gathered records of a partition as a block, unless they are all done."""
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
        # After a rewind, the scan meets records again that are already in blocks here.
        self._blocks.put(gathered.summary(partition, leader_epoch, file, position, len(data)))

    # --- keeping -----------------------------------------------------------------------------------------------------

    async def keep(self) -> None:
        """Write checkpoints again and again, until cancelled."""
        while True:
            await asyncio.sleep(CHECKPOINT_SECONDS)
            for _ in self._steps(MIN_BLOCK_RECORDS):
                await asyncio.sleep(0)

    def close(self) -> None:
        """Write everything gathered and a checkpoint for the next start."""
        for _ in self._steps(1):
            pass
        self._files.close()

    def remove(self) -> None:
        """Remove the files of a deleted group."""
        self._is_off = True
        self._files.remove()

    def _steps(self, least_records: int) -> Iterator[None]:
        """Write the gathered records of each partition that has at least `least_records`, then a checkpoint."""
        if not self._is_loaded or not self._is_current():
            return
        for partition, gathered in list(self._gathered.items()):
            if len(gathered.times) >= least_records and self._gathered.get(partition) is gathered:
                self._seal(partition)
                yield
        try:
            for _ in self._checkpoint():
                yield
                if self._is_off:
                    return
        except OSError as error:
            self._give_up(error)

    def _checkpoint(self) -> Iterator[None]:
        """Write a checkpoint in steps, if the blocks have changed. Raises OSError."""
        if self._is_off:
            return
        self._remove_unused()
        changes = self._blocks.changes
        if changes == self._written:
            return
        blocks = list(self._blocks)
        checkpoint = Checkpoint(VERSION, self._engine.boot_id, self._topic_id, *self._keyed_by, [])
        yield from self._files.write_checkpoint(
            encode(msgspec.structs.replace(checkpoint, blocks=blocks[start : start + PART_BLOCKS]))
            for start in range(0, len(blocks), PART_BLOCKS)
        )
        self._written = changes

    def _remove_unused(self) -> None:
        """Forget blocks whose records are done, and the oldest blocks if the files take too many bytes. Raises OSError.

        The previous checkpoint may name files that are removed: a missing file does no harm.
        """
        done = self._queue.done
        for partition in done.partitions():
            floor = done.floor(partition)
            self._blocks.drop_below(partition, floor)
            self._lent.drop_below(partition, floor)
        used, lent = self._blocks.bytes_by_file, self._lent.bytes_by_file
        numbers = self._files.numbers()
        sizes = {number: self._files.size_bytes(number) for number in numbers}
        total, live = sum(sizes[number] for number in numbers if number in used), sum(used.values())
        too_many: set[int] = set()
        for number in numbers[:-1]:
            if total <= min(MAX_BYTES, SLACK_BYTES + 2 * live):
                break
            if number in used and number not in lent:
                total, live = total - sizes[number], live - used[number]
                too_many.add(number)
        if too_many:
            self._blocks.drop_files(too_many)
        self._files.keep({*used, *lent})

    def _is_current(self) -> bool:
        """Return whether the group keeps an index on disk. If the keys of the group have changed, forget the index
        first."""
        settings, keying = self._queue.settings, self._queue.splitting.scan_keying
        if settings is not self._settings or keying is not self._keying:
            self._settings, self._keying = settings, keying
            keyed_by = keying.fingerprint
            if settings.has_priorities and keyed_by != self._keyed_by:
                self._clear()
                self._keyed_by = keyed_by
        return settings.has_priorities

    def _clear(self) -> None:
        self._blocks.clear()
        self._gathered.clear()
        self._gathered_records = 0

    def _give_up(self, error: OSError) -> None:
        """Turn the cache off after an error such as a full disk: the group goes on without it."""
        self._is_off = True
        self._clear()
        self._files.remove(self._lent.bytes_by_file)
        _log.warning(
            "queue group %s: its index in %s is not kept on disk any more (%s): the next start scans the log",
            self.group_id,
            self._files.path,
            system_error_text(error),
        )
