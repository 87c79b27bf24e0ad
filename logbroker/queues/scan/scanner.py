"""The scan of a topic into a queue group's index: it reads ahead of the workers, and is the only one to read on.

Order: generation by generation of the topic (`generations.py`). Within one the partitions take turns, a read each.

Nothing is remembered here that the queue does not know: where to go on is its position, and whether its index was
emptied meanwhile shows in its generation, which only the scan sets. So a scan that comes back from a read or a thread
looks there, and drops what it has where the queue has moved on.

Who must not be served before all is scanned that is readable now takes a barrier (`barriers.py`).

A scan whose group has no workers, and nobody who waits, rests before each look (`rests.py`), the first one after a
start included. Whoever needs to know what is there rouses it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from itertools import takewhile
from time import monotonic
from typing import Final

from logbroker.engine import Read, ReadableLog, ReadResult, Watch, damage_at
from logbroker.errors import LogbrokerError, OffsetOutOfRangeError, StorageFailedError, UnknownTopicError
from logbroker.pacing import Steps, at_once
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.record_id import Moment
from logbroker.queues.records.columns import Undecodable, columns_of
from logbroker.queues.records.decoder import in_decoder_if, is_heavy
from logbroker.queues.records.fetch import MAX_READ_BYTES, Records
from logbroker.queues.scan.admitter import Admitter
from logbroker.queues.scan.barriers import ScanBarriers
from logbroker.queues.scan.generations import GenerationScan
from logbroker.queues.scan.index_cache.cache import IndexCache
from logbroker.queues.scan.rests import Rests
from logbroker.record.stored_batch import stored_batches
from logbroker.types import PartitionKey, TopicId

RETRY_SECONDS: Final = 0.1
"""Between two tries to read, where the engine has too much to do."""
BARRIER_SECONDS: Final = 1.0
"""Who would not wait at all waits so long for a barrier: the scan is rarely farther behind."""

_BREATHE: Final = 64
"""After so many partitions that the index cache has, others have their turn."""

_log = logging.getLogger(__name__)


class Scanner:
    """Feeds one queue. Everything runs on the event loop but the decoding of what is large or compressed."""

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
    ) -> None:
        """`changed` is called after each step: more may be ready, or a partition is not served any more. `is_needed`
        tells whether anybody waits for what the scan finds; where nobody does, it rests, and who comes has to `rouse`
        it."""
        self._engine = engine
        self._queue = queue
        self._admitter = Admitter(queue, records, index_cache, moment)
        self._moment = moment
        self._on_changed = changed
        self._rests = rests
        self._is_needed = is_needed
        self._turn: asyncio.Future[bool] | None = None
        """While it rests: ends with its turn to look."""
        self.looks = 0
        """How often it went to see what there is."""
        self._topic_id = TopicId(queue.topic_id)
        self._generations = GenerationScan(engine, queue)
        self._settings = queue.settings
        self._due: dict[int, None] = {}
        """Partitions that may have more, in the order of their turns."""
        self._watch: Watch | None = None
        self._watched: set[int] = set()
        self._barriers = ScanBarriers()
        self._rounds_told = self._barriers.rounds
        self._index_barrier = self._barriers.take()
        """Of all that was readable when the index was begun."""
        self._paused = False
        self._has_ended = False
        """It scans no more: it was cancelled, its topic is deleted, or it has failed."""
        self._awake = asyncio.Event()
        self._progress = asyncio.Event()
        self.stopped: dict[int, LogbrokerError] = {}
        """Partitions that cannot be scanned any further, and why. They are tried again when the settings change."""

    # --- what others see and say -------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Something may have changed that the scan waits for: room in the queue, its settings or its index, the topic.

        Costs next to nothing where nothing has.
        """
        if self._paused and not self._queue.wants_more:
            return
        has_news = self._has_news()
        if self._paused or has_news:
            self._awake.set()
        if has_news and self.looks:
            self.rouse()  # Before its first look all is news.

    def rouse(self) -> None:
        """Somebody needs what there is to scan: rest no longer."""
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(False)

    @property
    def is_resting(self) -> bool:
        """Whether there may be more to scan that nobody has needed so far."""
        return self._turn is not None

    async def catch_up(self, wait_seconds: float = BARRIER_SECONDS) -> bool:
        """Let the scan get to all that is readable now, whether it rests or is under way, if that takes no longer: for
        who only looks. Return whether it is there; what is left else, `unscanned` tells. With no time left nothing is
        waited for, nor is a scan that rests roused."""
        barrier = self.barrier()
        if wait_seconds > 0 and not self.may_serve(barrier):
            await self._passed(barrier, wait_seconds)
        return self._has_scanned(barrier) and not (self.stopped or self._has_ended)

    def barrier(self) -> int:
        """Return a barrier of all that is readable now, for `may_serve`."""
        if self._watch is not None:
            self._note(self._watch)
        if self._has_news():
            self._barriers.is_behind = True
        return self._barriers.take()

    def may_serve(self, barrier: int) -> bool:
        """Whether all is scanned that was readable when the barrier was taken. Also where the scan pauses: what it has
        not met waits for room, and who is served makes it."""
        return self._has_scanned(barrier) or not self._queue.wants_more

    def _has_scanned(self, barrier: int) -> bool:
        return self._barriers.has_passed(barrier) and not self.is_indexing

    async def reached(self, barrier: int, wait_seconds: float) -> float:
        """Wait for `may_serve`, and return what is left of a time to wait; waits for BARRIER_SECONDS, if that is
        more."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await self._passed(barrier, max(wait_seconds, BARRIER_SECONDS))
        return max(0.0, wait_seconds - (loop.time() - begun))

    async def _passed(self, barrier: int, wait_seconds: float) -> None:
        self.rouse()
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds):
                while not (self.may_serve(barrier) or self._has_ended):
                    self._progress.clear()
                    await self._progress.wait()

    @property
    def is_indexing(self) -> bool:
        """Whether the scan is still to go through what was readable when it began, or began anew."""
        return not self._barriers.has_passed(self._index_barrier) or self._barriers.is_behind or self._has_news()

    def unscanned(self) -> int:
        """As `count_unscanned`, at once."""
        return at_once(self.count_unscanned())

    def count_unscanned(self) -> Steps[int]:
        """How many offsets are readable and not scanned yet. Raises UnknownTopicError."""
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
                watch.close()
        finally:
            self._has_ended = True
            self._progress.set()

    async def _look(self, watch: Watch) -> None:
        """Scan what there is, in its turn if nobody needs it yet."""
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
        """Go on until all is scanned, or the queue wants no more. Raises UnknownTopicError."""
        taken_up = 0
        while True:
            self._note(watch)
            self._catch_up(watch)
            if self._rounds_told != self._barriers.rounds:
                self._rounds_told = self._barriers.rounds
                if not self.is_indexing:
                    self._admitter.index_is_made(len(self._watched))
                self._changed()
            self._paused = not self._queue.wants_more
            if self._paused:
                self._progress.set()  # Barriers are not waited for then: see `may_serve`.
            if self._paused or not self._due:
                return
            partition = self._next_due()
            try:
                while await self._take_up(partition):
                    taken_up += 1
                    if not self._due or taken_up % _BREATHE == 0:
                        break
                    partition = self._next_due()
                else:
                    await self._scan_some(partition)
            except (UnknownTopicError, StorageFailedError):
                raise
            except LogbrokerError as error:
                if error.retriable:
                    # What cannot be read now is not readable: only who comes later waits for it.
                    self._barriers.drop(partition)
                    self._barriers.note(partition)
                    await asyncio.sleep(RETRY_SECONDS)
                    self._due[partition] = None
                else:
                    self._stop(partition, error)
            # Reads from the page cache never wait.
            await asyncio.sleep(0)

    def _next_due(self) -> int:
        partition = next(iter(self._due))
        # Taken out before the read: what comes to be readable from now on puts it there again.
        del self._due[partition]
        self._barriers.reading(partition)
        return partition

    def _changed(self) -> None:
        self._progress.set()
        self._on_changed()

    def _has_news(self) -> bool:
        return self._queue.alteration.settings is not self._settings or self._generations.have_news

    def _catch_up(self, watch: Watch) -> None:
        """Take note of what changed, and go to the next generation where this one is all scanned."""
        generations = self._generations
        generations.look()
        if self._queue.settings is not self._settings:
            self._settings = self._queue.settings
            for partition in self.stopped:
                self._due[partition] = None
                self._barriers.begin(partition)
            self.stopped.clear()
        if generations.were_left:
            # All begins anew.
            generations.begin_anew()
            self._due.clear()
            self.stopped.clear()
            self._barriers.drop_all()
            self._index_barrier = self._barriers.take()
            self._admitter.begin_index()
        if not generations.are_all_begun and not self._due:
            self._begin_next_generation(watch)
        # Where nothing is due, a partition that is stopped holds the next generation back.
        self._barriers.is_behind = not generations.are_all_begun and bool(self._due)

    def _begin_next_generation(self, watch: Watch) -> None:
        """Begin the next generation, unless a partition that is stopped holds it back."""
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
        """Admit what an earlier scan left of a partition; return whether it has no more."""
        if not await self._admitter.take_up(partition):
            return False
        self._barriers.scanned_all(partition)
        return True

    async def _scan_some(self, partition: int) -> None:
        """Read on in a partition, and admit what comes. Raises what stands in the way."""
        position = self._queue.position(partition)
        if position >= self._generations.end(partition):
            self._barriers.scanned_all(partition)
            return
        [result] = await self._engine.read([Read(self._topic_id, partition, position, MAX_READ_BYTES)])
        # The topic may have grown meanwhile: what is of the next generation is readable only after that is known.
        end = self._generations.end(partition)
        if not self._is_at(partition, position):
            return
        if isinstance(result, OffsetOutOfRangeError):
            self._jump(partition, position)
        elif isinstance(result, LogbrokerError):
            raise result
        elif result.batches and position < end:
            self._barriers.has_end(partition, result.high_watermark)
            await self._admit_read(partition, position, result, end)
        else:
            self._barriers.scanned_all(partition)

    def _is_at(self, partition: int, position: int) -> bool:
        """Whether the queue still waits for what follows a position; else, see to it that it is asked again."""
        if self._generations.were_left:
            return False
        if self._queue.position(partition) != position:
            self._due[partition] = None
            return False
        return True

    def _jump(self, partition: int, position: int) -> None:
        """Retention took what lies below the log's start."""
        start = self._engine.partition_facts(self._topic_id, partition).log_start_offset
        if position < start:
            self._queue.count_expired(partition, start)
            self._pass_over(partition, start)
            self._due[partition] = None
        else:
            self._barriers.scanned_all(partition)

    def _pass_over(self, partition: int, offset: int) -> None:
        """There is no record below an offset that is not admitted."""
        self._queue.admit(partition, self._generations.current, (), offset, (), (), self._moment())
        self._changed()

    async def _admit_read(self, partition: int, position: int, result: ReadResult, end: int) -> None:
        batches = takewhile(lambda batch: batch.header.base_offset < end, stored_batches(result.batches))
        pieces = columns_of(batches, position, self._queue.settings)
        heavy = is_heavy(result.batches)
        while self._queue.wants_more:
            is_all = position >= result.next_offset
            piece = None if is_all else await in_decoder_if(heavy, lambda: next(pieces, None))
            if not self._is_at(partition, position):
                return
            if piece is None:
                if position < end < result.next_offset:
                    # A gap reaches over the growth, and nothing that is read from here on would close it.
                    self._pass_over(partition, end)
                if result.next_offset < result.high_watermark:
                    self._due[partition] = None
                else:
                    self._barriers.scanned_all(partition)
                return
            if isinstance(piece, Undecodable):
                damage = await damage_at(self._engine, self._topic_id, partition, piece.batch.header.base_offset)
                if damage is not None:
                    raise damage
                if not self._is_at(partition, position):
                    return
                error = self._admitter.admit_undecodable(partition, piece)
                if error is not None:
                    name = self._name_of(partition)
                    _log.warning("a batch of %s goes to the dead-letter topic as it is: %s", name, error)
            elif piece.next_offset > position:
                if position < result.log_start_offset:
                    # Copies, or what follows on the last one: all else went with retention.
                    end = min(result.log_start_offset, piece.next_offset)
                    self._queue.count_expired(partition, end, piece.offsets)
                self._admitter.admit(partition, piece)
            position = self._queue.position(partition)
            self._barriers.scanned(partition, position)
            self._changed()
        self._due[partition] = None

    def _stop(self, partition: int, error: LogbrokerError) -> None:
        self.stopped[partition] = error.as_value()
        self._barriers.drop(partition)
        _log.warning("%s is not served to a queue group any more: %s", self._name_of(partition), error)
        self._changed()

    def _name_of(self, partition: int) -> str:
        topic = self._generations.topic
        return f"partition {topic.name if topic else ''}-{partition}"
