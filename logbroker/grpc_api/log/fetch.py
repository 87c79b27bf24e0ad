"""Fetch: one answer over many partitions, with a long poll."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec

from logbroker.broker.read_budget import ReadBudget
from logbroker.engine import LogEngine, PartitionFacts, Read, ReadResult, Topic, damage_at
from logbroker.errors import (
    InvalidRequestError,
    LogbrokerError,
    LogTruncatedError,
    PartitionOfflineError,
    UnknownPartitionError,
    UnknownTopicError,
)
from logbroker.grpc_api.log.framing import FramedResponse
from logbroker.grpc_api.log.plain_records import INLINE_BYTES, plain_records
from logbroker.grpc_api.paging import FULL, ITEM_STEPS
from logbroker.grpc_api.refs import check_isolation, check_item_count, echoed_id, echoed_name, topic_of
from logbroker.grpc_api.status import Statuses, item_status
from logbroker.pacing import Pace
from logbroker.record.codec import split_batches
from logbroker.types import PartitionKey, TopicId
from logbroker.v1.common_pb2 import Status
from logbroker.v1.log_pb2 import FetchItem, FetchRequest, FetchResult

MAX_WAIT_MS: Final = 5 * 60 * 1000
ENVELOPE_BYTES: Final = 64 * 1024
"""Bytes that an answer may have in addition to its batches. If many items take more, less room is left for the
batches."""
READ_STEPS: Final = 15
"""Steps of a `Pace` that a read from the page cache takes."""
DECODED_PER_STEP: Final = 4
"""Bytes of batches that are decoded in one step of a `Pace`; large batches are decoded in a thread."""
FACTS_BYTES: Final = 64
"""Maximum bytes of the numbers in one result."""


class Position(msgspec.Struct, gc=False):
    """The position of a reader in one partition."""

    topic: Topic
    partition: int
    offset: int
    max_bytes: int
    last_leader_epoch: int
    generation: int = 0
    """Last topic generation to send; records of later generations are not sent. 0: all generations are sent."""

    @property
    def key(self) -> PartitionKey:
        return PartitionKey(self.topic.id, self.partition)

    def advance(self, next_offset: int) -> None:
        """Move to the offset after the records that were read, and forget the client's leader epoch. The client has
        read this log now, so the epoch need not be checked again: a log is cut only while the broker starts."""
        if next_offset != self.offset:
            self.offset = next_offset
            self.last_leader_epoch = -1


def position_of(engine: LogEngine, item: FetchItem, max_bytes_limit: int) -> Position:
    """Check one item of a fetch. Raises UnknownTopicError, UnknownPartitionError or InvalidRequestError."""
    topic = topic_of(engine, item)
    if not 0 <= item.partition < topic.partitions:
        raise UnknownPartitionError(
            f"topic {topic.name} has no partition {item.partition}; it has 0 to {topic.partitions - 1}"
        )
    max_bytes = checked_max_bytes(item.max_bytes, max_bytes_limit) if item.HasField("max_bytes") else max_bytes_limit
    if item.offset < 0:
        raise InvalidRequestError(f"offset {item.offset} is negative; ListOffsets finds earliest and latest")
    epoch = item.last_leader_epoch if item.HasField("last_leader_epoch") else -1
    return Position(topic, item.partition, item.offset, max_bytes, epoch, item.generation)


def generation_end(engine: LogEngine, position: Position) -> int | None:
    """Return the end offset of a position's generation, or None if the generation has no end yet. Raises
    UnknownTopicError.

    Call it after a read: the topic may have grown meanwhile, and records of a newer generation become readable only
    when the growth is known.
    """
    if not position.generation:
        return None
    return engine.topic_by_id(position.topic.id).end_of(position.generation, position.partition)


def read_up_to(outcome: ReadResult, end: int) -> ReadResult:
    """Return a read result without the batches from `end` on."""
    if outcome.next_offset <= end:
        return outcome
    size_bytes, next_offset = 0, end
    for header, batch in split_batches(outcome.batches):
        if header.base_offset >= end:
            break
        size_bytes += len(batch)
        next_offset = max(next_offset, header.next_offset)
    return msgspec.structs.replace(outcome, batches=outcome.batches[:size_bytes], next_offset=next_offset)


def facts_at_end(engine: LogEngine, position: Position) -> tuple[int, PartitionFacts] | None:
    """If the position has reached the end of the requested generation, return the end offset and the facts, else None.

    Also returns None if the log may not have the position: the read then reports the error. Raises UnknownTopicError or
    PartitionOfflineError.
    """
    end = generation_end(engine, position)
    if end is None or position.offset < end:
        return None
    facts = engine.partition_facts(position.topic.id, position.partition)
    if not facts.log_start_offset <= position.offset <= facts.high_watermark:
        return None
    return (end, facts) if position.last_leader_epoch in (-1, facts.leader_epoch) else None


def note_end(result: FetchResult, end: int, facts: PartitionFacts) -> None:
    """Set a result to report the end of a generation."""
    result.high_watermark = result.last_stable_offset = facts.high_watermark
    result.log_start_offset = facts.log_start_offset
    result.leader_epoch = facts.leader_epoch
    result.generation_end = end


def checked_max_bytes(max_bytes: int, limit: int) -> int:
    """Return `max_bytes`, at most the limit of the broker. Raises InvalidRequestError below 1."""
    if max_bytes < 1:
        raise InvalidRequestError(f"max_bytes must be at least 1, not {max_bytes}; leave it out for the broker's limit")
    return min(max_bytes, limit)


def fail_result(result: FetchResult, error: LogbrokerError, status: Status | None = None) -> None:
    """Set the error of a result. If `status` is given, it replaces the status of the error: it may be shorter, to fit
    into the answer."""
    result.status.CopyFrom(item_status(error) if status is None else status)
    if isinstance(error, LogTruncatedError) and error.cut_offset >= 0:
        result.cut_offset = error.cut_offset


async def name_damage(engine: LogEngine, result: FetchResult) -> None:
    """If a batch cannot be decoded because the stored bytes are damaged, report the file and the byte in the result."""
    damage = await damage_at(engine, TopicId(result.topic_id), result.partition, result.next_offset)
    if damage is not None:
        fail_result(result, damage)


class Fetch:
    """One unary fetch: reads what is readable, and waits for more until it has `min_bytes`."""

    def __init__(self, engine: LogEngine, budget: ReadBudget, request: FetchRequest, max_response_bytes: int) -> None:
        """Check the request. Raises InvalidRequestError for faults of the whole request."""
        check_item_count(len(request.items))
        check_isolation(request.isolation)
        self._engine = engine
        self._budget = budget
        self._plain = request.plain_records
        self._limit_bytes = limit = max_response_bytes
        self.max_bytes = checked_max_bytes(request.max_bytes, limit) if request.HasField("max_bytes") else limit
        self._min_bytes = min(request.min_bytes, self.max_bytes) if request.HasField("min_bytes") else 1
        if self._min_bytes < 0 or not 0 <= request.max_wait_ms <= MAX_WAIT_MS:
            raise InvalidRequestError(
                f"min_bytes must not be negative, and max_wait_ms must be from 0 to {MAX_WAIT_MS}"
            )
        self._max_wait_seconds = request.max_wait_ms / 1000
        self._items = request.items
        self._positions: list[Position | None] = []
        self._results: list[FetchResult] = []
        self._chunks: list[list[bytes]] = [[] for _ in request.items]
        self._size_bytes = 0
        self._full = False
        """Whether the answer is full: it is sent whatever `min_bytes` says."""
        self._failed = False
        self._pace = Pace()
        self._statuses = Statuses()

    async def run(self) -> bytes:
        """Return the serialized FetchResponse."""
        envelope_bytes = 0
        for item in self._items:
            result = FetchResult(
                topic=echoed_name(item.topic), topic_id=echoed_id(item.topic_id), partition=item.partition
            )
            self._results.append(result)
            try:
                if envelope_bytes > self._limit_bytes // 2:
                    raise FULL.anew()
                position = position_of(self._engine, item, self.max_bytes)
                self._positions.append(position)
                result.topic_id, result.topic, result.next_offset = position.topic.id, position.topic.name, item.offset
            except LogbrokerError as error:
                self._positions.append(None)
                self._fail(result, error)
            envelope_bytes += result.ByteSize() + FACTS_BYTES
            await self._pace.step(ITEM_STEPS)
        self.max_bytes = max(1, min(self.max_bytes, self._limit_bytes + ENVELOPE_BYTES - envelope_bytes))
        await self._read(range(len(self._positions)))
        if not self._is_enough and self._max_wait_seconds:
            await self._wait_for_more()
        response = FramedResponse()
        room = self.max_bytes
        for item, result, chunks in zip(self._items, self._results, self._chunks, strict=True):
            await self._pace.step(2)
            if not self._plain or not chunks:
                response.add(result, chunks)
            elif room > 0:
                held_bytes = self._size_bytes
                await self._pace.step(min(sum(map(len, chunks)), INLINE_BYTES) // DECODED_PER_STEP)
                records = await plain_records(result, b"".join(chunks), item.offset, room, self._budget, held_bytes)
                if result.HasField("status") and chunks:
                    await name_damage(self._engine, result)
                response.add(result, records=records)
                room -= sum(map(len, records))
                self._hold(sum(map(len, records)))
            else:
                result.next_offset = item.offset
                response.add(result)
        return response.serialized()

    def release(self) -> None:
        """Release the memory of the answer once it has left the broker."""
        self._budget.release(self._size_bytes)
        self._size_bytes = 0

    def _hold(self, size_bytes: int) -> None:
        self._budget.hold(size_bytes)
        self._size_bytes += size_bytes

    @property
    def _is_enough(self) -> bool:
        # A failure is answered at once: the caller has to act on it.
        return self._failed or self._full or self._size_bytes >= self._min_bytes

    async def _wait_for_more(self) -> None:
        wake = asyncio.Event()
        watch = self._engine.watch(wake.set)
        by_key: dict[PartitionKey, list[int]] = {}
        try:
            for index, position in enumerate(self._positions):
                if position is not None:
                    watch.add(position.key)
                    by_key.setdefault(position.key, []).append(index)
                await self._pace.step(2)
            # Read again: records that came between the first read and the watch do not wake this call.
            await self._read(range(len(self._positions)))
            async with asyncio.timeout(self._max_wait_seconds):
                while not self._is_enough:
                    await wake.wait()
                    wake.clear()
                    await self._read([index for key in watch.moved() for index in by_key[key]])
        except TimeoutError:
            pass
        except (UnknownTopicError, UnknownPartitionError, PartitionOfflineError):
            self._failed = True  # The partition was deleted or went offline after the read; the next call reports it.
        finally:
            watch.close()

    async def _read(self, indexes: Iterable[int]) -> None:
        # Computed once: a share for each read would add up to most of the free bytes.
        bound = self._budget.allowance(self.max_bytes)
        for index in indexes:
            # A read ends with its segment, so go on until nothing comes or nothing more fits.
            while (position := self._positions[index]) is not None:
                await self._pace.step(READ_STEPS)
                left = bound - self._size_bytes
                if left <= 0:
                    self._full = True
                    return
                room = min(position.max_bytes, left)
                if room <= 0 or self._is_at_end(index, position):
                    break
                wish = Read(position.topic.id, position.partition, position.offset, room, position.last_leader_epoch)
                [outcome] = await self._engine.read([wish])
                if isinstance(outcome, ReadResult) and len(outcome.batches) > room and not self._size_bytes:
                    # A batch larger than the room is sent whole if it is the first of the answer and memory is free.
                    if not self._budget.fits(len(outcome.batches)):
                        del outcome
                        await self._budget.wait()
                        continue
                    room = len(outcome.batches)
                elif isinstance(outcome, ReadResult) and len(outcome.batches) > left:
                    self._full = True
                if not self._take(index, position, outcome, room):
                    break

    def _is_at_end(self, index: int, position: Position) -> bool:
        """Return whether the position has reached the end of the requested generation, so that there is nothing to
        read."""
        try:
            found = facts_at_end(self._engine, position)
        except LogbrokerError as error:
            self._positions[index] = None
            self._fail(self._results[index], error)
            return True
        if found is not None:
            note_end(self._results[index], *found)
        return found is not None

    def _take(self, index: int, position: Position, outcome: ReadResult | LogbrokerError, room: int) -> bool:
        """Add a read result to the answer; return whether it moved the position."""
        result = self._results[index]
        if isinstance(outcome, ReadResult):
            try:
                end = generation_end(self._engine, position)
            except LogbrokerError as error:
                outcome = error.as_value()
            else:
                if end is not None:
                    result.generation_end = min(end, outcome.high_watermark)
                    outcome = read_up_to(outcome, end)
        if isinstance(outcome, LogbrokerError):
            self._positions[index] = None
            if self._chunks[index]:
                self._full = True  # The records before the error are good; the next fetch reports the error.
            else:
                self._fail(result, outcome)
            return False
        result.high_watermark = result.last_stable_offset = outcome.high_watermark
        result.log_start_offset = outcome.log_start_offset
        result.leader_epoch = outcome.leader_epoch
        result.gaps_below = outcome.gaps_below
        size_bytes = len(outcome.batches)
        if not size_bytes and outcome.next_offset > position.offset:
            # A gap extends to the end of the generation.
            position.advance(outcome.next_offset)
            result.next_offset = outcome.next_offset
            return True
        if not size_bytes or size_bytes > room:
            return False
        self._hold(size_bytes)
        self._chunks[index].append(outcome.batches)
        position.max_bytes -= size_bytes
        position.advance(outcome.next_offset)
        result.next_offset = outcome.next_offset
        return True

    def _fail(self, result: FetchResult, error: LogbrokerError) -> None:
        fail_result(result, error, self._statuses.of(error))
        if result.status.message:
            self._statuses.beside(len(result.topic) + len(result.topic_id))
        else:
            # The names would make the answer too large, and clients match items by their order.
            result.topic, result.topic_id = "", b""
        self._failed = True
