"""The part of a consumer that runs in the event loop: one fetch stream, its credit, and its recovery after a break.

Credit bounds the buffer: the broker may send `buffer_bytes`, and gets new credit for the bytes that the program takes.
Each move of a partition (assign, seek, resume) gives it a new version. Batches of an older version are dropped, so no
record from before a move is ever delivered after it.

A partition is *standing* when an error has stopped it that does not go away by itself. It is not read any further, and
its error is raised again and again (`next_chunk`, `tell`) until the partition is moved, paused or removed. On a new
connection the fetcher asks again for refused partitions, because a restart of the broker may have repaired them. It
does not ask again for a position that is not in the log: the log might have grown past it, and the records in between
would be skipped silently.
"""

from __future__ import annotations

import asyncio
import datetime
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Any, Final

import grpc
import msgspec

from logbroker.client.consumer.offset_reset import Policy, Reset, place_of
from logbroker.client.consumer.ownership_deadline import OwnershipDeadline
from logbroker.client.runtime.tasks import end_tasks
from logbroker.client.transport.background import Background
from logbroker.client.transport.connection import CLOSED, Connection, Stream, backoff_seconds, run_stream
from logbroker.client.transport.offsets import ListedOffset, find_offsets
from logbroker.client.transport.status import error_of_item
from logbroker.errors import (
    BrokerUnavailableError,
    CorruptLogError,
    LogbrokerError,
    LogTruncatedError,
    NoCommittedOffsetError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from logbroker.types import TopicId, TopicPartition
from logbroker.v1 import log_pb2

_log = logging.getLogger(__name__)

_GRANT_SHARE: Final = 4
"""The broker gets new credit when a quarter of the buffer is free. More frequent messages would cost more than the
delay."""
_MAX_CHUNK_BYTES: Final = 1024 * 1024
_SILENT_SECONDS: Final = 1.0
"""A stream on which a message arrived within this time counts as alive."""
_TELL_AGAIN_SECONDS: Final = 0.1
"""The wait for records of other partitions before the error of a standing partition is raised again."""


class Assigned(msgspec.Struct, eq=False):
    """One partition that is read."""

    partition: TopicPartition
    topic_id: TopicId
    """The topic's id. If the topic is deleted and created again, the new topic has another id, so its records are not
    mistaken for records of this one."""
    position: int
    """The next offset to deliver. If it is -1, the offset is unknown, and `start` says where to look for it."""
    fetched: int
    """The next offset to receive."""
    leader_epoch: int = -1
    """Leader epoch of the last received batch; -1 if none was received yet."""
    version: int = 0
    continued: int = -1
    """The version in which the next batch begins exactly at the position, because everything before it was received."""
    correlation_id: int = 0
    """Id of the request that positioned the partition in the current stream; 0 if there is none."""
    paused: bool = False
    held: bool = False
    """Whether a bounded loop leaves the partition out. It is read again by the next loop or `poll`."""
    full: bool = False
    """Whether the partition is not fetched because a reader ahead (`ReadAhead`) has enough of its records."""
    start: Policy | datetime.datetime = None
    """Where to begin while the position is unknown. None means that the program has to set a position."""
    cut_offset: int | None = None
    """The offset at which the log was cut below the position. No higher offset may be committed, because it belongs to
    other records now."""
    doubtful: bool = False
    """Whether the connection broke since the broker last confirmed the position. If so, the log may have been cut below
    it."""
    failed: bool = False
    """Whether an error stopped the partition. A move starts it again."""
    error: LogbrokerError | None = None
    """The error that stopped the partition; None if there is none to report."""
    told: int = 0
    """How many times this error was raised to the program."""
    may_mend: bool = False
    """Whether the broker may serve the partition again after a restart."""
    generation: int = 0
    """The generation of the topic that is being read, up to its end. If it is 0, all generations are read."""
    has_read: bool = False
    """Whether any batch of the partition was opened."""
    generation_end: int | None = None
    """The end offset of `generation` in this partition; None if no end is known."""

    @property
    def wanted(self) -> bool:
        return not (self.paused or self.held or self.full or self.failed)

    @property
    def is_at_end(self) -> bool:
        """Whether all records of the generation are received. They need not be delivered yet."""
        return self.generation_end is not None and self.fetched >= self.generation_end

    @property
    def unreadable(self) -> bool:
        """Whether the partition cannot be read from any position, so that no seek of the program helps."""
        return self.failed and not isinstance(
            self.error, OffsetOutOfRangeError | LogTruncatedError | NoCommittedOffsetError
        )

    @property
    def limit(self) -> int | None:
        """The offset up to which records can be delivered: the end of the generation, or the offset from which the
        partition cannot be read. None if no such limit is known."""
        return self.fetched if self.unreadable else self.generation_end


class Chunk(msgspec.Struct, eq=False):
    """Batches of one partition as they arrived, or the error that stopped it."""

    assigned: Assigned
    version: int
    batches: bytes
    next_offset: int
    error: LogbrokerError | None = None
    gaps_below: int | None = None
    """A batch below this offset may follow a gap. None if the client itself moved the position."""
    high_watermark: int = 0
    """The end of the partition when the broker sent the chunk."""
    arrived_at: float = 0.0


class Fetcher:
    """Keeps a stream open while partitions are assigned, and hands out chunks in the order of their arrival."""

    def __init__(
        self,
        connection: Connection,
        records: Connection,
        *,
        buffer_bytes: int,
        on_out_of_range: Policy,
        topics_may_go: bool,
    ) -> None:
        """`connection` is for calls, `records` for the stream.

        With `topics_may_go`, the deletion of a topic is no error; its partitions just have no more records.
        """
        self.on_cut: Callable[[Assigned, int], None] = lambda assigned, offset: None
        """Called with a partition and an offset when the log was cut at this offset, below the partition's position."""
        self.standing: dict[Assigned, None] = {}
        """Partitions whose error has to be raised to the program, and again by later calls."""
        self._refusal: LogbrokerError | None = None
        """The error with which the broker currently refuses every stream. Calls that find no records raise it."""
        self.just_told = False
        """Whether the error of a standing partition was raised and the program has received no record since then."""
        self._topics_may_go = topics_may_go
        self._connection = connection
        self._records = records
        self._buffer_bytes = buffer_bytes
        self._on_out_of_range = on_out_of_range
        self._assigned: dict[TopicPartition, Assigned] = {}
        self._chunks: deque[Chunk] = deque()
        self._buffered_bytes = 0
        self._arrived = asyncio.Event()
        self.waiting = False
        """Whether the program waits for records."""
        self._to_place: dict[Assigned, None] = {}
        self._to_remove: dict[TopicPartition, TopicId] = {}
        self._credit_bytes = 0
        self._work = asyncio.Event()
        self._correlation_id = 0
        self._heard_at = 0.0
        """The time when the last message of the stream arrived."""
        self._attempt = 0
        self._stream_work = Background(
            "the consumer's stream", connection, self._run, on_break=self._interrupted, on_over=self._cut_off
        )
        self._searching: dict[Assigned, asyncio.Task[None]] = {}
        """The searches for start positions."""
        self._closed = False
        self.boundary: Callable[[], bool] = lambda: False
        """Called while the program waits for records, if `at_boundary` or `has_news` is set. Returns True if the caller
        has to look again at what it waits for."""
        self.has_news = False
        self.at_boundary: dict[Assigned, None] = {}
        """Partitions at the end of their generation, or stopped by an error, which `boundary` has not dealt with
        yet."""

    # --- what is read -----------------------------------------------------------------------------------------------

    def assign(self, assigned: Iterable[Assigned]) -> None:
        """Read these partitions and no others."""
        for old in list(self._assigned.values()):
            self.remove(old)
        for new in assigned:
            self.add(new)

    def add(self, assigned: Assigned) -> None:
        """Read this partition too."""
        self._assigned[assigned.partition] = assigned
        self.move(assigned)
        if not self._stream_work.has_begun and not self._closed:
            self._stream_work.start()

    def remove(self, assigned: Assigned) -> None:
        """Stop reading this partition. Its received records are not handed out any more."""
        del self._assigned[assigned.partition]
        self._withdraw(assigned)
        self._clear(assigned)
        self.at_boundary.pop(assigned, None)

    def move(self, assigned: Assigned) -> None:
        """Continue at `position`, even after an error."""
        assigned.version += 1
        assigned.correlation_id = 0
        self._stop_search(assigned)
        if assigned.cut_offset is not None and self._on_out_of_range is not None:
            # The position was not moved to the cut yet.
            assigned.position, assigned.cut_offset = min(assigned.position, assigned.cut_offset), None
            assigned.leader_epoch = -1
        assigned.fetched = assigned.position
        self._clear(assigned)
        self._to_remove.pop(assigned.partition, None)
        if assigned.wanted:
            self._ask_for(assigned)

    def _ask_for(self, assigned: Assigned) -> None:
        if assigned.fetched >= 0:
            self._to_place[assigned] = None
            self._work.set()
        elif assigned.start is not None:
            self._search(assigned, assigned.start)
        else:
            self._fail(assigned, _nothing_committed(assigned.partition))

    def read_generation(self, assigned: Assigned, generation: int) -> None:
        """Read up to the end of another generation. If it is lower than before, the records that were read ahead are
        dropped."""
        before, assigned.generation = assigned.generation, generation
        if before == generation:
            return
        assigned.generation_end = None
        # Records that are on their way are bounded by the end of the previous generation.
        assigned.correlation_id = 0
        self._note_end(assigned)
        if assigned.failed:
            return
        if generation and (before > generation or not before):
            self.move(assigned)
        elif assigned.wanted:
            self._ask_for(assigned)

    def _note_end(self, assigned: Assigned) -> None:
        if assigned.is_at_end or assigned.failed:
            self.at_boundary[assigned] = None
            self._arrived.set()
        else:
            self.at_boundary.pop(assigned, None)

    def pause(self, assigned: Assigned) -> None:
        assigned.paused = True
        self._withdraw(assigned)
        self._clear(assigned)

    def hold(self, assigned: Assigned) -> None:
        assigned.held = True
        self._withdraw(assigned)

    def release(self, assigned: Assigned) -> None:
        if assigned.held:
            assigned.held = False
            self.move(assigned)

    def hold_back(self, assigned: Assigned) -> None:
        assigned.full = True
        self._withdraw(assigned)

    def fetch_again(self, assigned: Assigned) -> None:
        if assigned.full:
            assigned.full = False
            self.move(assigned)

    def release_held(self) -> None:
        for assigned in self._assigned.values():
            self.release(assigned)

    def fail(self, assigned: Assigned, error: LogbrokerError) -> None:
        """Stop a partition with an error, which is raised before any other record is handed out.

        If the log is damaged, the broker is asked first for its own finding, with the file and the byte.
        """
        self._withdraw(assigned)
        self._clear(assigned)
        assigned.failed = True
        assigned.fetched = assigned.position
        if isinstance(error, CorruptLogError) and not self._closed:
            self._searching[assigned] = task = asyncio.create_task(self._find_damage(assigned, error))
            task.add_done_callback(lambda task: self._search_ended(assigned, task, error))
        else:
            self._end_with(assigned, error)

    async def _find_damage(self, assigned: Assigned, error: LogbrokerError) -> None:
        version = assigned.version
        item = _fetch_item(assigned, assigned.position, max_bytes=1)
        # To send plain records, the broker decodes and checks the batch.
        request = log_pb2.FetchRequest(items=[item], plain_records=True)
        try:
            response = await self._connection.unary("Fetch", request, retry=False)
            found = _error_in(response.results[0])
        except LogbrokerError as failure:
            found = failure.as_value()
        if assigned.version == version:
            self._end_with(assigned, found if isinstance(found, CorruptLogError) else error)

    def _end_with(self, assigned: Assigned, error: LogbrokerError) -> None:
        assigned.error = error
        self._note_end(assigned)
        self._chunks.appendleft(Chunk(assigned, assigned.version, b"", assigned.position, error))
        self._arrived.set()

    def _fail(self, assigned: Assigned, error: LogbrokerError, *, may_mend: bool = False) -> None:
        """Stop a partition with an error of the broker. The error is raised after the records that were received before
        it."""
        if self._assigned.get(assigned.partition) is not assigned:
            return  # The partition was removed while the broker was asked.
        assigned.failed, assigned.may_mend = True, may_mend
        if assigned in self.standing:
            assigned.error = error
        else:
            self._put(Chunk(assigned, assigned.version, b"", assigned.fetched, error))
        self._note_end(assigned)

    def _clear(self, assigned: Assigned) -> None:
        """Clear the error of a partition."""
        assigned.failed = assigned.may_mend = False
        assigned.error, assigned.told = None, 0
        self.standing.pop(assigned, None)
        self._note_end(assigned)

    def _withdraw(self, assigned: Assigned) -> None:
        assigned.version += 1
        assigned.correlation_id = 0
        self._stop_search(assigned)
        self._to_place.pop(assigned, None)
        self._to_remove[assigned.partition] = assigned.topic_id
        self._work.set()

    # --- what has arrived -------------------------------------------------------------------------------------------

    async def next_chunk(
        self, deadline: float | None, ownership: OwnershipDeadline, *, tell_again: bool = True
    ) -> Chunk | None:
        """Return the next chunk, waiting for it. Return None when the deadline (monotonic seconds) is over, when there
        is a chunk but ownership has lapsed, or when the caller has to look again at what it waits for.

        With `tell_again`, raises the error that stopped a partition. An error that was raised before is raised again
        only after a short wait for records. Without `tell_again`, the caller has to raise these errors. Raises
        BrokerUnavailableError once the fetcher is closed.
        """
        refusal = self._refusal
        if (self.standing and tell_again) or refusal is not None:
            tell_again_at = monotonic() + _TELL_AGAIN_SECONDS
            deadline = tell_again_at if deadline is None else min(deadline, tell_again_at)
        self.waiting = True
        try:
            async with asyncio.timeout(None if deadline is None else max(0.0, deadline - monotonic())):
                while not self._closed and (ownership.lasts() or (ownership.lapsed() and not self.at_boundary)):
                    if (self.at_boundary or self.has_news) and self.boundary():
                        return None
                    if self._drop_old_chunks() or self._refusal is not refusal:
                        break
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            pass
        finally:
            self.waiting = False
        if self._closed:
            raise BrokerUnavailableError(CLOSED)
        if not ownership.lasts():
            return None
        if not self._drop_old_chunks():
            if tell_again:
                self.tell()
            if self._refusal is not None:
                raise type(self._refusal)(self._refusal.message)
            return None
        chunk = self._take_chunk()
        if chunk.error is not None:
            self.standing[chunk.assigned] = None
            if not tell_again:
                return None  # Records of other partitions come first.
            self.tell()
        return chunk

    def connection_is_silent(self) -> None:
        """Restart the stream, because another connection to the broker is dead and the stream may be on it."""
        if self._heard_at + _SILENT_SECONDS < monotonic():
            self._records.renew()

    @property
    def has_nothing(self) -> bool:
        """Whether no chunk has arrived and there is nothing to do or to raise."""
        return not (self._chunks or self.standing or self.at_boundary or self.has_news or self._refusal)

    @property
    def has_chunk(self) -> bool:
        """Whether a chunk has arrived."""
        return bool(self._chunks)

    def tell_again(self) -> None:
        """Raise the error of a standing partition, unless the program has received no record since it was last
        raised."""
        if self.standing and not self.just_told:
            self.tell()

    def tell(self) -> None:
        """Raise the error that was raised least often. It names all standing partitions that have an error of the same
        class.

        May be called in any thread. If it raises nothing, no partition is standing any more.
        """
        standing = [(assigned, error) for assigned in list(self.standing) if (error := assigned.error) is not None]
        if standing:
            of_first, first = min(standing, key=lambda item: item[0].told)
            others = [each for each, error in standing if type(error) is type(first) and each is not of_first]
            told = [of_first, *others]
            for assigned in told:
                assigned.told += 1
            self.just_told = True
            raise _error_of(told, first)

    def interrupt(self) -> None:
        """Wake the waiter, because the ownership deadline or `has_news` has changed."""
        self._arrived.set()

    async def ready_chunk(self) -> Chunk | None:
        """Return the chunk that has arrived already, unless it is an error."""
        return self._take_chunk() if self._drop_old_chunks() and self._chunks[0].error is None else None

    def _drop_old_chunks(self) -> bool:
        """Drop stale chunks at the front. Return whether any chunk is left."""
        while self._chunks and _is_old(self._chunks[0]):
            self._take_chunk()
        return bool(self._chunks)

    def _take_chunk(self) -> Chunk:
        chunk = self._chunks.popleft()
        self._give_credit(len(chunk.batches))
        return chunk

    def _give_credit(self, size_bytes: int) -> None:
        self._buffered_bytes -= size_bytes
        self._credit_bytes += size_bytes
        if self._credit_bytes >= self._buffer_bytes // _GRANT_SHARE:
            self._work.set()

    # --- the stream -------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._begin()
            stream = self._records.stream("FetchStream")
            error = await run_stream(self._records, stream, self._read, self._write)
            self._doubt_positions()
            self._refusal = None if error.retriable or type(error) is LogbrokerError else error
            self._arrived.set()
            level = logging.DEBUG if self._attempt else logging.WARNING
            _log.log(level, "consuming from %s: %s; reconnecting", self._connection.brokers, error)
            await asyncio.sleep(self._records.backoff_seconds(self._attempt))
            self._attempt += 1

    def _doubt_positions(self) -> None:
        for assigned in self._assigned.values():
            assigned.doubtful = assigned.leader_epoch >= 0

    def _interrupted(self, error: LogbrokerError, cancelled: bool) -> None:
        self._doubt_positions()

    def _cut_off(self) -> None:
        """Handle the end of the event loop, or the cancellation of all its tasks. No chunk will arrive any more."""
        self._closed = True
        self._arrived.set()

    def _begin(self) -> None:
        """Ask a new stream for all wanted partitions, from the offsets that the old stream had reached."""
        self._to_remove.clear()
        for assigned in self._assigned.values():
            assigned.correlation_id = 0
        self._to_place = {}
        for assigned in self._assigned.values():
            if (assigned.wanted or assigned.may_mend) and assigned not in self._searching:
                self._ask_for(assigned)
        self._credit_bytes = max(self._buffer_bytes - self._buffered_bytes, 1)

    async def _write(self, stream: Stream) -> None:
        settings: log_pb2.FetchStreamSettings | None = log_pb2.FetchStreamSettings(
            max_response_bytes=min(_MAX_CHUNK_BYTES, self._buffer_bytes)
        )
        while True:
            self._work.clear()
            self._correlation_id += 1
            request = log_pb2.FetchStreamRequest(
                correlation_id=self._correlation_id,
                settings=settings,
                remove=[
                    log_pb2.PartitionRef(topic=topic, topic_id=topic_id, partition=number)
                    for (topic, number), topic_id in self._to_remove.items()
                ],
                add_credit_bytes=self._credit_bytes,
            )
            settings = None
            for assigned in self._to_place:
                assigned.correlation_id = self._correlation_id
                request.assign.append(_fetch_item(assigned, assigned.fetched))
            self._to_place.clear()
            self._to_remove.clear()
            self._credit_bytes = 0
            await stream.write(request)
            await self._work.wait()

    async def _read(self, stream: Stream) -> None:
        while True:
            response: Any = await stream.read()
            if response is grpc.aio.EOF:
                raise BrokerUnavailableError("the broker ended the stream")
            self._heard_at = monotonic()
            if self._attempt:
                _log.warning("consuming from %s: connected again", self._connection.brokers)
            self._attempt = 0
            self._refusal = None
            for result in response.results:
                assigned = self._assigned.get(TopicPartition(result.topic, result.partition))
                if assigned is None or assigned.correlation_id != result.correlation_id:
                    # The broker sent this before the partition was moved or withdrawn.
                    self._buffered_bytes += len(result.batches)
                    self._give_credit(len(result.batches))
                elif (error := _error_in(result)) is not None:
                    self.refused(assigned, error)
                else:
                    assigned.doubtful = False
                    if assigned.failed:
                        self._clear(assigned)
                    if result.next_offset != assigned.fetched or result.batches:
                        self._take(assigned, result)
                    if result.HasField("generation_end"):
                        assigned.generation_end = result.generation_end
                        self._note_end(assigned)

    def _take(self, assigned: Assigned, result: log_pb2.FetchResult) -> None:
        assigned.fetched = result.next_offset
        assigned.leader_epoch = result.leader_epoch
        chunk = Chunk(
            assigned,
            assigned.version,
            result.batches,
            result.next_offset,
            gaps_below=result.gaps_below,
            high_watermark=result.high_watermark,
            arrived_at=self._heard_at,
        )
        self._put(chunk)

    def _put(self, chunk: Chunk) -> None:
        self._buffered_bytes += len(chunk.batches)
        if chunk.error is not None:
            chunk.assigned.error = chunk.error
        self._chunks.append(chunk)
        self._arrived.set()

    def refused(self, assigned: Assigned, error: LogbrokerError) -> None:
        """Handle the broker's refusal to read any further: try again, continue at another offset, or stop the
        partition."""
        assigned.correlation_id = 0
        policy = self._on_out_of_range
        if error.retriable:
            _log.info("%s: %s; trying again", assigned.partition, error)
            asyncio.get_running_loop().call_later(backoff_seconds(3), self._place_again, assigned, assigned.version)
        elif isinstance(error, LogTruncatedError) and error.cut_offset >= 0:
            self._cut(assigned, error)
            if policy is None:
                self._fail(assigned, error)
            else:
                _log.warning("%s: %s; going on there", assigned.partition, error)
                # Arrived records are dropped, unlike below, because the log does not have them any more.
                assigned.version += 1
                self._go_on_at(assigned, error.cut_offset)
        elif isinstance(error, OffsetOutOfRangeError | LogTruncatedError):
            if policy is None:
                self._fail(assigned, error)
            else:
                _log.warning("%s: %s; going on as the reset policy says: %s", assigned.partition, error, policy)
                self._search(assigned, policy)
        elif isinstance(error, UnknownTopicError) and self._topics_may_go:
            self._clear(assigned)
            assigned.failed = True
            self._note_end(assigned)
            _log.info("%s: %s", assigned.partition, error)
        else:
            self._fail(assigned, error, may_mend=True)

    def _cut(self, assigned: Assigned, error: LogTruncatedError) -> None:
        assigned.cut_offset, assigned.doubtful = error.cut_offset, False
        self.on_cut(assigned, error.cut_offset)

    async def confirm(self, partitions: Iterable[Assigned], *, retry: bool) -> None:
        """Ask the broker whether the logs of the doubtful partitions were cut below their positions.

        Raises BrokerUnavailableError; with retries, only after the request timeout.
        """
        doubtful = [assigned for assigned in partitions if assigned.doubtful]
        if not doubtful:
            return
        # With `max_bytes=1` the answer has one batch at most.
        items = [_fetch_item(assigned, assigned.position, max_bytes=1) for assigned in doubtful]
        response = await self._connection.unary("Fetch", log_pb2.FetchRequest(items=items), retry=retry)
        for assigned, item, result in zip(doubtful, items, response.results, strict=True):
            error = _error_in(result)
            if item.offset != assigned.position or not assigned.doubtful:
                continue
            if error is None:
                assigned.doubtful = False
            elif isinstance(error, LogTruncatedError) and assigned.wanted:
                self.refused(assigned, error)
            elif isinstance(error, LogTruncatedError):
                # The error is raised when the program reads the partition again.
                self._cut(assigned, error)

    async def bound(self, assigned: Assigned, end: ListedOffset | LogbrokerError) -> int | None:
        """Return the offset at which a bounded loop over a partition ends, or None if the loop need not wait for the
        partition: its position is at the end, and no error stops it.

        `end` is the broker's answer about the end. If it is an error, the returned offset is 0, and the loop waits for
        that error only. No chunk of the partition beyond its end may be open. Raises retriable errors.
        """
        if isinstance(end, LogbrokerError):
            if end.retriable:
                raise end
            if not assigned.failed:
                self.refused(assigned, end)
        elif end.offset < assigned.position and not assigned.failed:
            # The position is beyond the end of the log, so let the broker refuse it.
            await self._check(assigned)
        offset = 0 if isinstance(end, LogbrokerError) else end.offset
        return offset if assigned.position < offset or assigned.error is not None else None

    async def _check(self, assigned: Assigned) -> None:
        """Ask the broker whether it serves the position. Handle a refusal, unless the stream has already reported
        it."""
        version = assigned.version
        if not self._goes_on_elsewhere(assigned):
            item = _fetch_item(assigned, assigned.position, max_bytes=1)
            response = await self._connection.unary("Fetch", log_pb2.FetchRequest(items=[item]))
            error = _error_in(response.results[0])
            if error is None or assigned.version != version or not assigned.wanted:
                return
            if not self._goes_on_elsewhere(assigned):
                if error.retriable:
                    raise error
                self.refused(assigned, error)
        if assigned in self._searching:
            await asyncio.wait([self._searching[assigned]])
        place = self._place_to_follow(assigned)
        if not assigned.failed and place is not None:
            assigned.position = place
            self.move(assigned)

    def _goes_on_elsewhere(self, assigned: Assigned) -> bool:
        """Whether reading continues at another offset, to which `position` has not been moved yet."""
        return assigned in self._searching or self._place_to_follow(assigned) is not None

    def _place_to_follow(self, assigned: Assigned) -> int | None:
        """The offset at which reading of a partition continues, or None if that is its position."""
        places = (
            chunk.next_offset
            for chunk in reversed(self._chunks)
            if chunk.assigned is assigned and chunk.version == assigned.version
            if chunk.gaps_below is None and chunk.error is None
        )
        return next(places, None)

    def _search(self, assigned: Assigned, policy: Reset | datetime.datetime) -> None:
        """Find the offset that a policy names, and continue there."""
        self._stop_search(assigned)
        if self._closed:
            return
        self._searching[assigned] = task = asyncio.create_task(self._find_place(assigned, policy))
        task.add_done_callback(lambda task: self._search_ended(assigned, task))

    def _stop_search(self, assigned: Assigned) -> None:
        if (task := self._searching.pop(assigned, None)) is not None:
            task.cancel()

    def _search_ended(self, assigned: Assigned, task: asyncio.Task[None], damage: LogbrokerError | None = None) -> None:
        if self._searching.get(assigned) is task:
            del self._searching[assigned]
            if damage is not None and task.cancelled() and not self._closed:
                # Other code cancelled the task. A new stream repeats other searches, but not a search for damage.
                self._end_with(assigned, damage)

    async def _find_place(self, assigned: Assigned, policy: Reset | datetime.datetime) -> None:
        version, partition = assigned.version, assigned.partition
        for attempt in itertools.count():
            try:
                offset = (await find_offsets(self._connection, [partition], place_of(policy)))[partition]
            except LogbrokerError as error:
                if assigned.version != version:
                    return
                if not error.retriable:
                    self.refused(assigned, error.as_value())
                    return
                _log.info("%s: where to begin cannot be found: %s; trying again", partition, error)
                await asyncio.sleep(backoff_seconds(attempt))
            else:
                if assigned.version == version:
                    self._go_on_at(assigned, offset)
                return

    def _go_on_at(self, assigned: Assigned, offset: int) -> None:
        """Continue at another offset. Chunks that arrived before are still delivered; then the position changes."""
        self._clear(assigned)
        assigned.fetched = offset
        assigned.leader_epoch = -1
        self._put(Chunk(assigned, assigned.version, b"", offset))
        self._place_again(assigned, assigned.version)

    def _place_again(self, assigned: Assigned, version: int) -> None:
        if assigned.version == version and (assigned.wanted or assigned.may_mend):
            self._ask_for(assigned)

    async def close(self) -> None:
        """End the stream, and wake the waiter."""
        self._closed = True
        self._arrived.set()
        try:
            await self._stream_work.end()
        finally:
            await end_tasks(*self._searching.values())


def _fetch_item(assigned: Assigned, offset: int, *, max_bytes: int | None = None) -> log_pb2.FetchItem:
    return log_pb2.FetchItem(
        topic=assigned.partition.topic,
        topic_id=assigned.topic_id,
        partition=assigned.partition.partition,
        offset=offset,
        max_bytes=max_bytes,
        last_leader_epoch=assigned.leader_epoch if assigned.leader_epoch >= 0 else None,
        generation=assigned.generation or None,
    )


def _is_old(chunk: Chunk) -> bool:
    """Whether a chunk is stale: it is from before a move, or its error is over."""
    if chunk.version != chunk.assigned.version:
        return True
    return chunk.error is not None and chunk.error is not chunk.assigned.error


def _error_in(result: log_pb2.FetchResult) -> LogbrokerError | None:
    error = error_of_item(result.status)
    if isinstance(error, LogTruncatedError) and result.HasField("cut_offset"):
        error.cut_offset = result.cut_offset
    return error


def _error_of(told: Sequence[Assigned], first: LogbrokerError) -> LogbrokerError:
    """Return one error for several partitions that errors of the same class stopped. It has the message of the
    first."""
    message = first.message
    if str(told[0].partition) not in message:
        message = f"{told[0].partition}: {message}"
    if len(told) > 1:
        message += f" (and {len(told) - 1} more partitions)"
    # Raise a new error each time: each raise adds its traceback to the error.
    error = type(first)(message)
    error.partitions = {assigned.partition: assigned.position for assigned in told}
    if isinstance(error, LogTruncatedError):
        cuts = {assigned.partition: assigned.cut_offset for assigned in told}
        error.cut_offsets = {partition: offset for partition, offset in cuts.items() if offset is not None}
        error.cut_offset = error.cut_offsets.get(told[0].partition, -1)
    return error


def _nothing_committed(partition: TopicPartition) -> NoCommittedOffsetError:
    return NoCommittedOffsetError(
        f"the group has committed no offset in {partition}, and the reset policy is none: seek to an offset, set one "
        "with `logbroker group reset-offsets`, or give another policy"
    )
