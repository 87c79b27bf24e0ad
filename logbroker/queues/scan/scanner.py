"""The scan of a topic into a queue group's index. It reads ahead of the workers.

The scan takes the generations of the topic in order (`generations.py`). Within a generation, the partitions take turns,
with one read each.

The scan keeps no copy of the queue's state. It reads on from the queue's position. It notices by the queue's generation
that the index was emptied: the queue is then in no generation until the scan begins one. After each read or call in a
thread, it checks the queue's position and generation, and drops its results if one of them has changed.

A waiter takes a barrier (`barriers.py`) if it must not be served before everything readable now is scanned.

A partition that cannot be scanned is stopped, and no waiter waits for it. A partition whose log cannot be read is tried
again after pauses; a partition that was stopped for another reason, when the settings change.

Records that are removed from the log stay in the index until a worker comes to them. In a group without workers, the
next look empties the index instead, and the scan begins anew.

A *look* scans everything that is readable at the time. The scan of a group without workers and waiters rests before
each look (`rests.py`), also before the first look after a start. A caller that needs the results of the scan rouses it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from itertools import takewhile
from time import monotonic
from typing import Final, NamedTuple

from logbroker.engine import Read, ReadableLog, ReadResult, Watch, damage_at
from logbroker.errors import (
    CorruptLogError,
    LogbrokerError,
    OffsetOutOfRangeError,
    StorageFailedError,
    UnknownTopicError,
)
from logbroker.pacing import Pace, Steps, at_once, in_turns
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.record_id import Moment, offset_of, record_id_of
from logbroker.queues.records.columns import Undecodable, columns_of
from logbroker.queues.records.decoder import in_decoder_if, is_heavy
from logbroker.queues.records.fetch import MAX_READ_BYTES, Records
from logbroker.queues.records.read_failures import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS
from logbroker.queues.scan.admitter import Admitter
from logbroker.queues.scan.barriers import ScanBarriers
from logbroker.queues.scan.generations import GenerationScan
from logbroker.queues.scan.index_cache.cache import IndexCache
from logbroker.queues.scan.rests import Rests
from logbroker.record.stored_batch import stored_batches
from logbroker.types import PartitionKey, TopicId

RETRY_SECONDS: Final = 0.1
"""Pause between two attempts to read if the engine is overloaded."""
BARRIER_SECONDS: Final = 1.0
"""Default wait of `catch_up`, and the least time after which `reached` gives up. The scan is rarely farther behind."""

_BREATHE: Final = 64
"""Number of partitions that are taken from the index cache before other tasks run."""

_LEAST_READ_BYTES: Final = 16 * 1024
"""Read of a partition at least, however many are read along."""

_log = logging.getLogger(__name__)


def none_removed(partition: int) -> Steps[int]:
    """Return that no records were removed."""
    yield 0
    return 0


class _Retry(NamedTuple):
    """The next attempt to read a stopped partition."""

    pause_seconds: float
    timer: asyncio.TimerHandle


class Scanner:
    """Feeds one queue. Everything runs on the event loop, except decoding batches that are large or compressed."""

    def __init__(
        self,
        engine: ReadableLog,
        queue: Queue,
        records: Records,
        moment: Callable[[], Moment],
        changed: Callable[[], None],
        index_cache: IndexCache | None = None,
        rests: Rests | None = None,
        is_needed: Callable[[], bool] = lambda: True,
        count_removed: Callable[[int], Steps[int]] = none_removed,
    ) -> None:
        """`changed` is called after each step: more records may be ready, or a partition has stopped. `is_needed`
        returns whether any caller waits for the results. If none does, the scan rests, and a new caller must `rouse`
        it. `count_removed` counts the records of a partition that are neither done nor anywhere to be read."""
        self._engine = engine
        self._queue = queue
        self._admitter = Admitter(queue, records, index_cache, moment)
        self._moment = moment
        self._on_changed = changed
        self._rests = rests
        self._is_needed = is_needed
        self._count_removed = count_removed
        self._removed: set[int] = set()
        """Partitions of which records were removed. The index may still have these records."""
        self._turn: asyncio.Future[bool] | None = None
        """Future that completes when it is this scan's turn to look; None unless the scan rests."""
        self.looks = 0
        """Number of looks so far."""
        self._topic_id = TopicId(queue.topic_id)
        self._generations = GenerationScan(engine, queue)
        self._settings = queue.settings
        self._due: dict[int, None] = {}
        self._read_along: dict[int, tuple[int, ReadResult | LogbrokerError]] = {}
        """Partitions that were due and were read with another one: the position, and what was found there."""
        self._found: tuple[int, ReadResult | LogbrokerError] | None = None
        """The same of the partition that is scanned now."""
        """Partitions that may have more records, in the order of their turns."""
        self._watch: Watch | None = None
        self._watched: set[int] = set()
        self._barriers = ScanBarriers()
        self._rounds_told = self._barriers.rounds
        self._index_barrier = self._barriers.take()
        """Barrier for everything that was readable when the index was begun."""
        self._paused = False
        self._has_ended = False
        """Whether the scan is over: it was cancelled, its topic is deleted, or it has failed."""
        self._awake = asyncio.Event()
        self._progress = asyncio.Event()
        self.stopped: dict[int, LogbrokerError] = {}
        """Errors of the partitions that cannot be scanned any further. Read-only for other classes."""
        queue.splitting.stopped = self.stopped
        self._retries: dict[int, _Retry] = {}
        """When stopped partitions are tried again."""
        self._tried_again: list[int] = []
        """Stopped partitions whose pauses are over."""

    # --- interface ---------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Wake the scan after a possible change of something that it waits for: the room in the queue, the queue's
        settings or index, or the topic.

        Costs next to nothing if nothing has changed.
        """
        if self._is_stale:
            self._awake.set()
        if self._paused and not self._queue.wants_more:
            return
        has_news = self._has_news()
        if self._paused or has_news:
            self._awake.set()
        if has_news and self.looks:
            self.rouse()  # Before the first look, `_has_news` is always true.

    def note_removed(self, partition: int) -> None:
        """Note that records of a partition were removed from the log."""
        self._removed.add(partition)
        self._awake.set()

    def held_back(self, partition: int) -> LogbrokerError | None:
        """Return why a partition is not scanned any further although it can be read: a stopped partition has earlier
        records, from before a growth of the topic. None: this is not so."""
        if not self.stopped or self._queue.position(partition) < self._generations.end(partition):
            return None
        first, error = min(self.stopped.items())
        return type(error)(f"it waits for records of partition {first} from before the topic grew: {error.message}")

    def rouse(self) -> None:
        """Let a resting scan go on, because a caller needs its results."""
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(False)

    @property
    def is_resting(self) -> bool:
        """Whether the scan rests. There may then be more to scan that no caller has needed so far."""
        return self._turn is not None

    async def catch_up(self, wait_seconds: float = BARRIER_SECONDS) -> bool:
        """Wait up to `wait_seconds` until the scan has reached everything that is readable now, for callers that report
        on the group. Return whether the scan has reached it; `unscanned` counts what is left. If `wait_seconds` is 0,
        neither wait nor rouse a resting scan."""
        barrier = self.barrier()
        if wait_seconds > 0 and not self.may_serve(barrier):
            await self._passed(barrier, wait_seconds)
        return self.has_scanned(barrier) and not (self.stopped or self._has_ended)

    def barrier(self) -> int:
        """Return a barrier for everything that is readable now, for `may_serve`."""
        if self._watch is not None:
            self._note(self._watch)
        if self._has_news() or self._is_stale:
            self._barriers.is_behind = True
        return self._barriers.take()

    def may_serve(self, barrier: int) -> bool:
        """Return whether everything that was readable when the barrier was taken is scanned, or the scan pauses. A
        paused scan may go on only after records were handed out or settled, so waiting for it could last for ever."""
        return self.has_scanned(barrier) or not (self._queue.wants_more or self._is_stale)

    def has_scanned(self, barrier: int) -> bool:
        """Return whether everything that was readable when the barrier was taken is scanned."""
        return self._barriers.has_passed(barrier) and not self.is_indexing

    async def reached(self, barrier: int, wait_seconds: float, is_enough: Callable[[], bool] = lambda: False) -> float:
        """Wait until `may_serve` or `is_enough` returns true, at most for `wait_seconds` or BARRIER_SECONDS, whichever
        is longer. Return what is left of `wait_seconds`."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await self._passed(barrier, max(wait_seconds, BARRIER_SECONDS), is_enough)
        return max(0.0, wait_seconds - (loop.time() - begun))

    async def _passed(self, barrier: int, wait_seconds: float, is_enough: Callable[[], bool] = lambda: False) -> None:
        self.rouse()
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds):
                while not (self.may_serve(barrier) or self._has_ended or is_enough()):
                    self._progress.clear()
                    await self._progress.wait()

    @property
    def is_indexing(self) -> bool:
        """Whether the scan has not yet reached everything that was readable when the scan last began."""
        return not self._barriers.has_passed(self._index_barrier) or self._barriers.is_behind or self._has_news()

    def unscanned(self) -> int:
        """Return `count_unscanned` in one go."""
        return at_once(self.count_unscanned())

    def count_unscanned(self) -> Steps[int]:
        """Count the offsets that are readable and not scanned yet. Raises UnknownTopicError."""
        count = 0
        for partition in range(self._engine.topic_by_id(self._topic_id).partitions):
            yield 3
            try:
                facts = self._engine.partition_facts(self._topic_id, partition)
            except LogbrokerError:
                continue
            position = self._queue.position(partition) if self._queue.done.is_open(partition) else 0
            count += max(0, facts.high_watermark - max(position, facts.log_start_offset))
        return count

    # --- the scan ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Scan until cancelled, or until the topic is deleted."""
        try:
            self._admitter.begin_index()
            await self._admitter.load()
            watch = self._watch = self._engine.watch(self._awake.set)
            try:
                while True:
                    await self._look(watch)
                    await self._awake.wait()
            except UnknownTopicError:
                return
            finally:
                self._watch = None
                self._forget_retries()
                watch.close()
        finally:
            self._has_ended = True
            self._progress.set()

    async def _look(self, watch: Watch) -> None:
        """Scan everything readable. If no caller needs the results yet, wait for a turn first."""
        is_turn = False
        if self._rests is not None and not (self._is_needed() or (self.looks and self._has_news())):
            self._turn = self._rests.join()
            try:
                is_turn = await self._turn
            finally:
                self._turn = None
        begun = monotonic()
        self._awake.clear()
        self.looks += 1
        await self._scan(watch)
        if is_turn and self._rests is not None:
            self._rests.looked(monotonic() - begun)

    def _note(self, watch: Watch) -> None:
        for key in watch.moved():
            if key.partition not in self.stopped:
                self._due[key.partition] = None
                self._barriers.note(key.partition)

    async def _scan(self, watch: Watch) -> None:
        """Scan until everything is scanned, or the queue wants no more. Raises UnknownTopicError."""
        taken_up = 0
        while True:
            self._note(watch)
            await self._forget_removed()
            self._catch_up(watch)
            if self._rounds_told != self._barriers.rounds:
                self._rounds_told = self._barriers.rounds
                if not self.is_indexing:
                    self._admitter.index_is_made(len(self._watched))
                self._changed()
            self._paused = not self._queue.wants_more
            if self._paused:
                self._progress.set()  # Barriers count as passed while the scan pauses: see `may_serve`.
            if self._paused:
                self._due.update(dict.fromkeys(self._read_along))
                self._read_along.clear()
            if self._paused or not (self._due or self._read_along):
                return
            partition = self._next_due()
            try:
                while await self._take_up(partition):
                    taken_up += 1
                    if not (self._due or self._read_along) or taken_up % _BREATHE == 0:
                        break
                    partition = self._next_due()
                else:
                    await self._scan_some(partition)
                    self._goes_on(partition)
            except (UnknownTopicError, StorageFailedError):
                raise
            except LogbrokerError as error:
                if error.retriable:
                    # Records that cannot be read now do not count as readable: only later barriers wait for them.
                    self._barriers.drop(partition)
                    self._barriers.note(partition)
                    await asyncio.sleep(RETRY_SECONDS)
                    self._due[partition] = None
                else:
                    self._stop(partition, error)
            # Reads from the page cache do not let other tasks run.
            await asyncio.sleep(0)

    def _next_due(self) -> int:
        if not self._read_along:
            self._found = None
            return self._take_due()
        # Its barriers wait for that read already.
        partition = next(iter(self._read_along))
        self._found = self._read_along.pop(partition)
        return partition

    def _take_due(self) -> int:
        partition = next(iter(self._due))
        # Removed before the read: records that become readable from now on add the partition again.
        del self._due[partition]
        self._barriers.reading(partition)
        return partition

    def _changed(self) -> None:
        self._progress.set()
        self._on_changed()

    def _has_news(self) -> bool:
        return self._queue.alteration.settings is not self._settings or self._generations.have_news

    @property
    def _is_stale(self) -> bool:
        """Whether the index may have records that were removed, and can be emptied."""
        return bool(self._removed) and self._queue.is_idle and not self._is_needed()

    async def _forget_removed(self) -> None:
        """Empty the index if it has records that were removed, and no worker will come to them: the scan begins anew,
        and counts them as done."""
        while self._is_stale:
            partition = self._removed.pop()
            if await in_turns(self._count_removed(partition), Pace()):
                self._removed.add(partition)
                if self._is_stale:
                    self._removed.clear()
                    self._queue.rebuild_index()

    def _catch_up(self, watch: Watch) -> None:
        """Apply changes of topic and settings, and go to the next generation if this one is scanned."""
        generations = self._generations
        generations.look()
        if self._queue.settings is not self._settings:
            self._settings = self._queue.settings
            for partition in self.stopped:
                self._due[partition] = None
                self._barriers.begin(partition)
            self.stopped.clear()
            self._forget_retries()
        if generations.were_left:
            # The scan begins anew.
            generations.begin_anew()
            self._due.clear()
            self._read_along.clear()
            self.stopped.clear()
            self._forget_retries()
            self._barriers.drop_all()
            self._index_barrier = self._barriers.take()
            self._admitter.begin_index()
        while self._tried_again:
            self._due[self._tried_again.pop()] = None
        if not generations.are_all_begun and not (self._due or self._read_along):
            self._begin_next_generation(watch)
        # If nothing is due, a stopped partition holds back the next generation.
        self._barriers.is_behind = not generations.are_all_begun and bool(self._due or self._read_along)

    def _begin_next_generation(self, watch: Watch) -> None:
        """Begin the next generation, unless a stopped partition holds it back."""
        begun = self._generations.begin_next()
        for partition in range(begun.partitions if begun is not None else 0):
            if partition not in self._watched:
                try:
                    watch.add(PartitionKey(self._topic_id, partition))
                    self._watched.add(partition)
                except LogbrokerError as error:
                    self._stop(partition, error)
                    continue
            self._due[partition] = None
            self._barriers.begin(partition)

    async def _take_up(self, partition: int) -> bool:
        """Admit the blocks of an earlier scan of a partition; return whether the blocks reach the end of the
        partition."""
        if not await self._admitter.take_up(partition):
            return False
        self._barriers.scanned_all(partition)
        self._goes_on(partition)
        return True

    async def _scan_some(self, partition: int) -> None:
        """Read the next records of a partition, and admit them. Raises the error that prevents this."""
        position = self._queue.position(partition)
        if position >= self._generations.end(partition):
            self._barriers.scanned_all(partition)
            return
        result = await self._read(partition, position)
        # The topic may have grown during the read. Records of the next generation become readable only after
        # `GenerationScan.end` knows of the growth.
        end = self._generations.end(partition)
        if not self._is_at(partition, position):
            return
        if isinstance(result, OffsetOutOfRangeError):
            self._jump(partition, position)
        elif isinstance(result, LogbrokerError):
            if not (isinstance(result, CorruptLogError) and self._pass_over_done(partition, position, end)):
                raise result
        elif result.batches and position < end:
            self._barriers.has_end(partition, result.high_watermark)
            await self._admit_read(partition, position, result, end)
        else:
            self._barriers.scanned_all(partition)

    async def _read(self, partition: int, position: int) -> ReadResult | LogbrokerError:
        """Read a partition from a position on. Where each call takes a while, the next partitions that are due are read
        along, and scanned after this one."""
        if self._found is not None and self._found[0] == position:
            return self._found[1]
        wanted = {partition: position}
        while self._due and len(wanted) + len(self._read_along) < self._engine.partitions_per_read:
            following = self._take_due()
            wanted[following] = self._queue.position(following)
        max_bytes = max(MAX_READ_BYTES // len(wanted), _LEAST_READ_BYTES)
        reads = [Read(self._topic_id, number, at, max_bytes) for number, at in wanted.items()]
        result, *others = await self._engine.read(reads)
        following_ones = list(wanted.items())[1:]
        self._read_along.update(
            (number, (at, other)) for (number, at), other in zip(following_ones, others, strict=True)
        )
        return result

    def _is_at(self, partition: int, position: int) -> bool:
        """Return whether the queue still waits for what follows a position; else make sure that the partition is due
        again."""
        if self._generations.were_left:
            return False
        if self._queue.position(partition) != position:
            self._due[partition] = None
            return False
        return True

    def _jump(self, partition: int, position: int) -> None:
        """Jump to the log start offset, because the records below it were deleted."""
        start = self._engine.partition_facts(self._topic_id, partition).log_start_offset
        if position < start:
            self._queue.count_expired(partition, start)
            self._pass_over(partition, start)
            self._due[partition] = None
        else:
            self._barriers.scanned_all(partition)

    def _pass_over_done(self, partition: int, position: int, end: int) -> bool:
        """Move on from a position at which the log is damaged to the next record that is not done, at most to `end`.
        Return whether there are done records to pass over: nobody needs to know their keys."""
        following = min(offset_of(self._queue.done.skip_done(record_id_of(partition, position))), end)
        if following <= position:
            return False
        self._pass_over(partition, following)
        self._due[partition] = None
        return True

    def _pass_over(self, partition: int, offset: int) -> None:
        """Move the queue's position to an offset below which there are no more records to admit."""
        self._queue.admit(partition, self._generations.current, (), offset, (), (), self._moment())
        self._changed()

    async def _admit_read(self, partition: int, position: int, result: ReadResult, end: int) -> None:
        batches = takewhile(lambda batch: batch.header.base_offset < end, stored_batches(result.batches))
        keying = self._queue.splitting.scan_keying
        pieces = columns_of(batches, position, self._queue.settings, keying, partition)
        heavy = is_heavy(result.batches)
        while self._queue.wants_more:
            is_all = position >= result.next_offset
            piece = None if is_all else await in_decoder_if(heavy, lambda: next(pieces, None))
            if not self._is_at(partition, position):
                return
            if keying is not self._queue.splitting.scan_keying:
                break  # The piece has the keys of other splits: decode it again.
            if piece is None:
                if position < end < result.next_offset:
                    # A gap of offsets extends past the end of the generation, and no later read would close it.
                    self._pass_over(partition, end)
                if result.next_offset < result.high_watermark:
                    self._due[partition] = None
                else:
                    self._barriers.scanned_all(partition)
                return
            if isinstance(piece, Undecodable):
                damage = await damage_at(self._engine, self._topic_id, partition, piece.batch.header.base_offset)
                if not self._is_at(partition, position):
                    return
                if damage is not None:
                    if not self._pass_over_done(partition, position, end):
                        raise damage
                    return
                error = self._admitter.admit_undecodable(partition, piece)
                if error is not None:
                    name = self._name_of(partition)
                    _log.warning("a batch of %s goes to the dead-letter topic as it is: %s", name, error)
            elif piece.next_offset > position:
                if position < result.log_start_offset:
                    # The records are copies, or follow the last copy. All other records below the log start were
                    # deleted.
                    deleted_below = min(result.log_start_offset, piece.next_offset)
                    self._queue.count_expired(partition, deleted_below, piece.offsets)
                self._admitter.admit(partition, piece)
            position = self._queue.position(partition)
            self._barriers.scanned(partition, position)
            self._changed()
        self._due[partition] = None

    def _stop(self, partition: int, error: LogbrokerError) -> None:
        is_known = partition in self.stopped
        self.stopped[partition] = error.as_value()
        self._barriers.drop(partition)
        may_pass = isinstance(error, CorruptLogError) and partition in self._watched
        if may_pass:
            self._retry_later(partition)
        if not is_known:
            until = "until it can be read" if may_pass else "any more"
            _log.warning("%s is not served to a queue group %s: %s", self._name_of(partition), until, error)
            self._changed()

    def _retry_later(self, partition: int) -> None:
        """Try a stopped partition again after a pause, which grows from one attempt to the next."""
        last = self._retries.get(partition)
        pause_seconds = FIRST_PAUSE_SECONDS if last is None else min(2 * last.pause_seconds, LONGEST_PAUSE_SECONDS)
        timer = asyncio.get_running_loop().call_later(pause_seconds, self._try_again, partition)
        self._retries[partition] = _Retry(pause_seconds, timer)

    def _try_again(self, partition: int) -> None:
        self._tried_again.append(partition)
        self._awake.set()

    def _goes_on(self, partition: int) -> None:
        """Note that a partition was read. If it was stopped, it is served again, and waiters wait for it."""
        if self.stopped.pop(partition, None) is not None:
            self._retries.pop(partition, None)
            self._due[partition] = None
            self._barriers.begin(partition)
            _log.info("%s can be read again, and is served to a queue group", self._name_of(partition))
            self._changed()

    def _forget_retries(self) -> None:
        for retry in self._retries.values():
            retry.timer.cancel()
        self._retries.clear()
        self._tried_again.clear()

    def _name_of(self, partition: int) -> str:
        topic = self._generations.topic
        return f"partition {topic.name if topic else ''}-{partition}"
