"""The event loop's side of a consumer: one fetch stream, its credit, and how it goes on after it breaks.

Credit bounds what is buffered: the broker may send `buffer_bytes`, and gets back what was taken out. Every partition
that is moved (assigned, sought, resumed) gets a new version; what arrives for, or waits under, an older one is dropped,
so no record is ever delivered from before a move.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any, Final, Literal

import grpc
import msgspec

from logbroker.client.connection import CLOSED, Connection, Stream, backoff_seconds, run_stream
from logbroker.client.offsets import find_offsets
from logbroker.client.permit import Permit
from logbroker.client.status import error_of_item
from logbroker.errors import (
    BrokerUnavailableError,
    LogbrokerError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from logbroker.types import TopicId, TopicPartition
from logbroker.v1 import log_pb2

_log = logging.getLogger(__name__)

OutOfRange = Literal["error", "earliest", "latest"]

_GRANT_SHARE: Final = 4
"""Credit is given back when it is a quarter of the buffer: a message costs more than the delay."""
_MAX_CHUNK_BYTES: Final = 1024 * 1024


class Assigned(msgspec.Struct, eq=False):
    """One partition that is read."""

    partition: TopicPartition
    topic_id: TopicId
    """A topic that is deleted and created again is another one: its records are never taken for those of this."""
    position: int
    """The next offset to be delivered."""
    fetched: int
    """The next offset to be received."""
    leader_epoch: int = -1
    """Of what was received last; -1: nothing yet."""
    version: int = 0
    continued: int = -1
    """The version in which a batch that was received begins right at the position, as all before it was received."""
    correlation_id: int = 0
    """Of the request that positioned it in the current stream; 0: none did."""
    paused: bool = False
    held: bool = False
    """Not wanted until the consumer goes on reading without end."""
    failed: bool = False
    """An error ended it; a move starts it again."""
    told: bool = False
    """The program has heard of that error."""
    unreadable: bool = False
    """That error is not about the position: wherever it is moved, it may not be read."""
    generation: int = 0
    """Of its topic; nothing is read from behind its end. 0: all is read."""
    has_read: bool = False
    """Records of it were opened, at least."""
    generation_end: int | None = None
    """Where that ends in this partition; None: as far as is known it has not ended."""

    @property
    def wanted(self) -> bool:
        return not (self.paused or self.held or self.failed)

    @property
    def is_at_end(self) -> bool:
        """Whether all of its generation is received (not: delivered)."""
        return self.generation_end is not None and self.fetched >= self.generation_end

    @property
    def limit(self) -> int | None:
        """Up to where it can be delivered: to the end of its generation, or to where it cannot be read any further.

        None: as far as is known, nothing ends it.
        """
        return self.fetched if self.unreadable else self.generation_end


class Chunk(msgspec.Struct, eq=False):
    """Batches of one partition as they arrived, or the error that ended it."""

    assigned: Assigned
    version: int
    batches: bytes
    next_offset: int
    error: LogbrokerError | None = None
    gaps_below: int | None = None
    """Batches that begin below it may leave gaps before them; None: the position moves by our own will."""


class Fetcher:
    """Keeps a stream open while partitions are assigned, and hands out what arrives in its order."""

    def __init__(
        self, connection: Connection, *, buffer_bytes: int, on_out_of_range: OutOfRange, topics_may_go: bool
    ) -> None:
        """With `topics_may_go`, a partition whose topic was deleted is no error: there is nothing more to read."""
        self._topics_may_go = topics_may_go
        self._connection = connection
        self._buffer_bytes = buffer_bytes
        self._on_out_of_range = on_out_of_range
        self._assigned: dict[TopicPartition, Assigned] = {}
        self._chunks: deque[Chunk] = deque()
        self._buffered_bytes = 0
        self._arrived = asyncio.Event()
        self.waiting = False
        """The program waits for records."""
        self._to_place: dict[Assigned, None] = {}
        self._to_remove: dict[TopicPartition, TopicId] = {}
        self._credit_bytes = 0
        self._work = asyncio.Event()
        self._correlation_id = 0
        self._attempt = 0
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.boundary: Callable[[], bool] = lambda: False
        """Called while the program waits for records, if something is in `at_boundary`. True: who waits is to look
        again at what it waits for."""
        self.at_boundary: dict[Assigned, None] = {}
        """Partitions at the end of their generation, or ended by an error, which `boundary` has not dealt with."""

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
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def remove(self, assigned: Assigned) -> None:
        """Read this partition no more; nothing that has arrived of it is handed out."""
        del self._assigned[assigned.partition]
        self.at_boundary.pop(assigned, None)
        self._withdraw(assigned)

    def move(self, assigned: Assigned) -> None:
        """Go on at `position`, also after an error."""
        assigned.version += 1
        assigned.correlation_id = 0
        assigned.fetched = assigned.position
        assigned.failed = assigned.told = assigned.unreadable = False
        self._note_end(assigned)
        self._to_remove.pop(assigned.partition, None)
        if assigned.wanted:
            self._to_place[assigned] = None
            self._work.set()

    def read_generation(self, assigned: Assigned, generation: int) -> None:
        """Read up to the end of another generation. A lower one than before takes back what is read ahead."""
        before, assigned.generation = assigned.generation, generation
        if before == generation:
            return
        assigned.generation_end = None
        # What is on its way was read up to the end of the other one.
        assigned.correlation_id = 0
        self._note_end(assigned)
        if assigned.failed:
            return
        if generation and (before > generation or not before):
            self.move(assigned)
        elif assigned.wanted:
            self._to_place[assigned] = None
            self._work.set()

    def _note_failure(self, assigned: Assigned, error: LogbrokerError) -> None:
        assigned.failed = True
        assigned.unreadable = not isinstance(error, OffsetOutOfRangeError | LogTruncatedError)
        self._note_end(assigned)

    def _note_end(self, assigned: Assigned) -> None:
        if assigned.is_at_end or assigned.failed:
            self.at_boundary[assigned] = None
            self._arrived.set()
        else:
            self.at_boundary.pop(assigned, None)

    def pause(self, assigned: Assigned) -> None:
        assigned.paused = True
        self._withdraw(assigned)

    def hold(self, assigned: Assigned) -> None:
        assigned.held = True
        self._withdraw(assigned)

    def release_held(self) -> None:
        for assigned in self._assigned.values():
            if assigned.held:
                assigned.held = False
                self.move(assigned)

    def fail(self, assigned: Assigned, error: LogbrokerError) -> None:
        """End a partition with an error, which is raised before anything else is handed out."""
        self._withdraw(assigned)
        assigned.fetched = assigned.position
        self._note_failure(assigned, error)
        self._chunks.appendleft(Chunk(assigned, assigned.version, b"", assigned.position, error))
        self._arrived.set()

    def _withdraw(self, assigned: Assigned) -> None:
        assigned.version += 1
        assigned.correlation_id = 0
        self._to_place.pop(assigned, None)
        self._to_remove[assigned.partition] = assigned.topic_id
        self._work.set()

    # --- what has arrived -------------------------------------------------------------------------------------------

    async def next_chunk(self, deadline: float | None, permit: Permit) -> Chunk | None:
        """Return what comes next, waiting for it; None when the deadline (monotonic seconds) or the permit is over, or
        when it is time to look again at what is waited for.

        Raises what ended a partition, or BrokerUnavailableError once it is closed.
        """
        self.waiting = True
        try:
            async with asyncio.timeout(None if deadline is None else max(0.0, deadline - monotonic())):
                while not self._closed and permit.open():
                    if self.at_boundary and self.boundary():
                        return None
                    if self._drop_old_chunks():
                        break
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return None
        finally:
            self.waiting = False
        if self._closed:
            raise BrokerUnavailableError(CLOSED)
        if not permit.open():
            return None
        chunk = self._take_chunk()
        if chunk.error is not None:
            chunk.assigned.told = True
            raise chunk.error
        return chunk

    def interrupt(self) -> None:
        """Let one who waits look at the permit."""
        self._arrived.set()

    async def ready_chunk(self) -> Chunk | None:
        """Return what has arrived already, unless it is an error."""
        return self._take_chunk() if self._drop_old_chunks() and self._chunks[0].error is None else None

    def _drop_old_chunks(self) -> bool:
        """Drop what waits in front under an old version; returns whether anything is left."""
        while self._chunks and self._chunks[0].version != self._chunks[0].assigned.version:
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
            stream = self._connection.stream("FetchStream")
            error = await run_stream(self._connection, stream, self._read, self._write)
            level = logging.DEBUG if self._attempt else logging.WARNING
            _log.log(level, "consuming from %s: %s; reconnecting", self._connection.broker, error)
            await asyncio.sleep(backoff_seconds(self._attempt))
            self._attempt += 1

    def _begin(self) -> None:
        """Ask a new stream for all that is wanted, from where the old one was."""
        self._to_remove.clear()
        for assigned in self._assigned.values():
            assigned.correlation_id = 0
        self._to_place = {assigned: None for assigned in self._assigned.values() if assigned.wanted}
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
                request.assign.append(_fetch_item(assigned))
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
            self._attempt = 0
            for result in response.results:
                assigned = self._assigned.get(TopicPartition(result.topic, result.partition))
                if assigned is None or assigned.correlation_id != result.correlation_id:
                    # Sent before it was moved or withdrawn.
                    self._buffered_bytes += len(result.batches)
                    self._give_credit(len(result.batches))
                elif (error := error_of_item(result.status)) is not None:
                    await self._refused(assigned, error)
                else:
                    if result.next_offset != assigned.fetched or result.batches:
                        self._take(assigned, result)
                    if result.HasField("generation_end"):
                        assigned.generation_end = result.generation_end
                        self._note_end(assigned)

    def _take(self, assigned: Assigned, result: log_pb2.FetchResult) -> None:
        assigned.fetched = result.next_offset
        assigned.leader_epoch = result.leader_epoch
        chunk = Chunk(assigned, assigned.version, result.batches, result.next_offset, gaps_below=result.gaps_below)
        self._put(chunk)

    def _put(self, chunk: Chunk) -> None:
        self._buffered_bytes += len(chunk.batches)
        self._chunks.append(chunk)
        self._arrived.set()

    async def _refused(self, assigned: Assigned, error: LogbrokerError) -> None:
        assigned.correlation_id = 0
        if error.retriable:
            _log.info("%s: %s; trying again", assigned.partition, error)
            asyncio.get_running_loop().call_later(backoff_seconds(3), self._place_again, assigned, assigned.version)
        elif isinstance(error, OffsetOutOfRangeError) and self._on_out_of_range != "error":
            version = assigned.version
            offsets = await find_offsets(self._connection, [assigned.partition], self._on_out_of_range)
            if version == assigned.version:
                _log.warning("%s: %s; going on at the %s", assigned.partition, error, self._on_out_of_range)
                assigned.fetched = offsets[assigned.partition]
                assigned.leader_epoch = -1
                # What arrived before is still to be delivered; then the position follows.
                self._put(Chunk(assigned, version, b"", assigned.fetched))
                self._place_again(assigned, version)
        elif isinstance(error, UnknownTopicError) and self._topics_may_go:
            self._note_failure(assigned, error)
            _log.info("%s: %s", assigned.partition, error)
        else:
            self._note_failure(assigned, error)
            self._put(Chunk(assigned, assigned.version, b"", assigned.fetched, error))

    def _place_again(self, assigned: Assigned, version: int) -> None:
        if assigned.version == version and assigned.wanted:
            self._to_place[assigned] = None
            self._work.set()

    async def close(self) -> None:
        """End the stream, and the wait of one who waits."""
        self._closed = True
        self._arrived.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def _fetch_item(assigned: Assigned) -> log_pb2.FetchItem:
    return log_pb2.FetchItem(
        topic=assigned.partition.topic,
        topic_id=assigned.topic_id,
        partition=assigned.partition.partition,
        offset=assigned.fetched,
        last_leader_epoch=assigned.leader_epoch if assigned.leader_epoch >= 0 else None,
        generation=assigned.generation or None,
    )
