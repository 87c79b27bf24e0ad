"""Conversion of produce requests to appends, and of their outcomes to results.

Batches go to the log unchanged. Plain records are checked, routed and encoded in batches here; until they are appended,
their topic is pinned, so that neither its generation nor its configs change meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from logbroker.clock import Clock
from logbroker.engine import Append, Appended, Buffer, LogEngine, RoutingFence, Topic
from logbroker.errors import (
    InvalidRequestError,
    InvalidTimestampError,
    LogbrokerError,
    RecordTooLargeError,
)
from logbroker.grpc_api.log.produce_wire import WireItem, WireRequest
from logbroker.grpc_api.paging import ITEM_STEPS
from logbroker.grpc_api.refs import find_changeable_topic
from logbroker.grpc_api.status import Statuses
from logbroker.pacing import Pace
from logbroker.record.codec import MAX_LENGTH_BYTES, BatchBuilder, check_timestamp
from logbroker.record.message_headers import with_priority
from logbroker.record.partitioner import Router
from logbroker.types import Durability, TimestampType, TopicId
from logbroker.v1.common_pb2 import Record
from logbroker.v1.log_pb2 import (
    DURABILITY_SYNCED,
    DURABILITY_UNSPECIFIED,
    DURABILITY_WRITTEN,
    PlainRecords,
    ProduceResponse,
    ProduceResult,
    ProducerSequence,
    RecordPlacement,
)

_DURABILITIES: Final[dict[int, Durability | None]] = {
    DURABILITY_UNSPECIFIED: None,
    DURABILITY_WRITTEN: Durability.WRITTEN,
    DURABILITY_SYNCED: Durability.SYNCED,
}
APPENDS_AT_ONCE: Final = 64
"""Number of batches of one request that are appended at once: 20 us each, and more if a segment begins."""
APPEND_STEPS: Final = 15
"""Steps of a `Pace` that an append takes."""
INLINE_RECORDS: Final = 200
"""Maximum number of plain records that are encoded on the event loop (about 4 us each); more go to a thread."""
INLINE_BYTES: Final = 256 * 1024
"""Maximum bytes of records that are encoded on the event loop: hashing a key takes 0.1 us per byte."""


class PreparedProduce:
    """A request whose plain records are encoded in batches. Call `prepare`, then `append` once, then `release`.

    Create it when the request arrives: it asks the fence for the topics whose refusals the sender already knows.
    """

    def __init__(self, engine: LogEngine, clock: Clock, request: WireRequest, fence: RoutingFence) -> None:
        self._engine = engine
        self._clock = clock
        self._request = request
        self._fence = fence
        self._told = fence.told()
        self._appends: list[Append] = []
        self._items: list[int | _PlainItem | LogbrokerError] = []
        """For each item: the index of its append, its plain records, or its error."""
        self._pinned: dict[TopicId, Topic] = {}
        self._pace = Pace()
        self._statuses = Statuses()

    async def prepare(self) -> None:
        """Encode plain records in batches. Raises InvalidRequestError for faults of the whole request."""
        request = self._request
        if request.durability not in _DURABILITIES:
            raise InvalidRequestError(f"durability {request.durability} is unknown")
        for item in request.items:
            await self._pace.step(ITEM_STEPS)
            try:
                topic = find_changeable_topic(self._engine, item.topic, item.topic_id)
                if item.batch is None:
                    self._items.append(await self._prepare_records(await self._pin(topic.id), item))
                elif item.partition is None:
                    raise InvalidRequestError("a batch needs a partition; only plain records are routed here")
                else:
                    self._items.append(len(self._appends))
                    self._add(topic, item.partition, item.batch, item.generation, item.generation)
            except LogbrokerError as error:
                self._items.append(error.as_value())

    async def append(self) -> ProduceResponse:
        """Append in the order of the items. Unless the request `is_long`, the first step of this coroutine assigns the
        offsets."""
        durability = _DURABILITIES[self._request.durability]
        if self.is_long:
            outcomes = await self._append_in_turns(durability)
        else:
            outcomes = await self._engine.append(self._appends, durability)
        self.release()
        response = ProduceResponse(correlation_id=self._request.correlation_id)
        # Filled in place, because a list of messages would be copied.
        results = response.results
        for asked, item in zip(self._request.items, self._items, strict=True):
            await self._pace.step(2)
            if isinstance(item, _PlainItem):
                result = results.add(base_offset=-1, log_append_time_ms=-1)
                if item.record_count <= INLINE_RECORDS:
                    item.fill(result, outcomes, self._statuses)
                    await self._pace.step(2 * item.record_count)
                else:
                    await asyncio.to_thread(item.fill, result, outcomes, self._statuses)
                continue
            outcome = outcomes[item] if isinstance(item, int) else item
            partition = asked.partition or 0
            if isinstance(outcome, LogbrokerError):
                result = results.add(partition=partition, base_offset=-1, log_append_time_ms=-1)
                _refuse(result, outcome, self._statuses)
            else:
                results.add(
                    partition=partition,
                    base_offset=outcome.base_offset,
                    log_append_time_ms=outcome.log_append_time_ms,
                    log_start_offset=outcome.log_start_offset,
                    leader_epoch=outcome.leader_epoch,
                    duplicate=outcome.duplicate,
                )
        return response

    @property
    def is_long(self) -> bool:
        """Whether the request is appended in several steps. Later requests must wait for its end, so that they do not
        overtake it."""
        return len(self._appends) > APPENDS_AT_ONCE

    async def _append_in_turns(self, durability: Durability | None) -> list[Appended | LogbrokerError]:
        outcomes: list[Appended | LogbrokerError] = []
        while len(outcomes) < len(self._appends):
            end = min(len(outcomes) + APPENDS_AT_ONCE, len(self._appends))
            while end < len(self._appends) and not self._appends[end].room_bytes:
                end += 1  # The append before this one has checked the room for both.
            part = self._appends[len(outcomes) : end]
            outcomes += await self._engine.append(part, durability)
            await self._pace.step(APPEND_STEPS * len(part))
        return outcomes

    def answered(self) -> None:
        """Note that the sender gets the answer with the refusals."""
        for append in self._appends:
            if append.has_closed_fence:
                self._fence.answered(append.topic_id)

    def release(self) -> None:
        """Unpin the topics; may be called again."""
        for topic_id in self._pinned:
            self._engine.unpin(topic_id)
        self._pinned.clear()

    def _add(self, topic: Topic, partition: int, batch: Buffer, generation: int, known_generation: int) -> None:
        known = known_generation if topic.id in self._told else 0
        self._appends.append(Append(topic.id, partition, batch, generation, self._fence, known))

    async def _pin(self, topic_id: TopicId) -> Topic:
        """Pin the topic until the request is appended, and return it."""
        if topic_id not in self._pinned:
            self._pinned[topic_id] = await self._engine.pin(topic_id)
        return self._pinned[topic_id]

    async def _prepare_records(self, topic: Topic, item: WireItem) -> _PlainItem:
        plain = item.records or PlainRecords()
        if not plain.records:
            raise InvalidRequestError("the item holds neither a batch nor records")
        sequence = plain.sequence if plain.HasField("sequence") else None
        if sequence:
            _check_sequence(sequence, item.partition)
        batching = _Batching(topic, plain.records, item.partition, sequence, self._clock.wall_ms())
        # Meanwhile the topic stays pinned, and the next request of the stream waits.
        if len(plain.records) <= INLINE_RECORDS and sum(end - start for start, end in item.parts) <= INLINE_BYTES:
            batching.run()
            await self._pace.step(4 * len(plain.records))
        else:
            await asyncio.to_thread(batching.run)
        if item.partition is not None and batching.faults and not sequence:
            raise _named(batching.faults)
        # Without a partition, the broker has just routed the records itself, by the current generation.
        generation = topic.generation if item.partition is None else item.generation
        first = len(self._appends)
        for part in batching.parts:
            self._add(topic, part.partition, part.batch, generation, item.generation)
        if item.partition is not None and len(batching.parts) > 1:
            # Check the room for the whole item at its first batch: a sender that has to try again repeats the whole
            # item.
            for append in self._appends[first:]:
                append.room_bytes = 0
            self._appends[first].room_bytes = sum(len(part.batch) for part in batching.parts)
        return _PlainItem(len(plain.records), item.partition, batching.parts, first, batching.faults)


class _Part(msgspec.Struct):
    """One batch of an item's records."""

    partition: int
    positions: Sequence[int]
    """Positions of its records in the item."""
    batch: bytes


class _Batching:
    """Checks, routes and encodes the records of one item. Many records are encoded in a thread."""

    def __init__(
        self,
        topic: Topic,
        records: Sequence[Record],
        partition: int | None,
        sequence: ProducerSequence | None,
        now_ms: int,
    ) -> None:
        self._topic = topic
        self._records = records
        self._partition = partition
        self._sequence = sequence
        config = topic.config
        # With a sequence, do not split: a batch that is split differently would not be recognised as a repeat.
        self._max_bytes = MAX_LENGTH_BYTES if sequence else config.max_message_bytes
        self._latest_ms = (
            now_ms + config.message_timestamp_after_max_ms
            if config.message_timestamp_type is TimestampType.CREATE_TIME
            else None
        )
        self.parts: list[_Part] = []
        self.faults: dict[int, LogbrokerError] = {}
        """Errors of records that the topic does not take, by position in the item."""
        self._decoded: list[tuple[int | None, bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = []
        """Timestamp, key, value and headers of each record."""

    def run(self) -> None:
        """Check, route and encode the records. Raises InvalidRequestError for a record that no topic takes: then the
        whole item is refused."""
        for position, record in enumerate(self._records):
            timestamp_ms = None
            try:
                if record.HasField("timestamp_ms"):
                    timestamp_ms = record.timestamp_ms
                    check_timestamp(timestamp_ms)
                headers = headers_of(record)
            except InvalidRequestError as error:
                raise _named({position: error.as_value()}) from None
            if timestamp_ms is not None and self._latest_ms is not None and timestamp_ms > self._latest_ms:
                self.faults[position] = InvalidTimestampError(
                    f"the record is stamped {timestamp_ms}, the topic takes up to {self._latest_ms} by the broker's"
                    " clock (message.timestamp.after.max.ms)"
                ).with_bound(self._latest_ms)
            key = record.key if record.HasField("key") else None
            value = record.value if record.HasField("value") else None
            self._decoded.append((timestamp_ms, key, value, headers))
        for partition, positions in self._routed().items():
            self._encode(partition, positions)

    def _routed(self) -> Mapping[int, Sequence[int]]:
        """Return the positions of the records by partition. Records without a key share one partition of their band."""
        if self._partition is not None:
            return {self._partition: range(len(self._decoded))}
        router = Router(self._topic.routing_bands, self._topic.partitions)
        by_partition: dict[int, list[int]] = {}
        for position, (_, key, _, headers) in enumerate(self._decoded):
            by_partition.setdefault(router.partition(key, headers), []).append(position)
        return by_partition

    def _encode(self, partition: int, positions: Sequence[int]) -> None:
        """Add batches of these records, without the records in `faults`. With a sequence, records with a wrong
        timestamp are included: the log decides about them."""
        builder: BatchBuilder | None = None
        taken: list[int] = []
        for position in positions:
            if position in self.faults and not self._sequence:
                continue
            record = self._decoded[position]
            if builder is not None and builder.append(len(taken), *record) is not None:
                taken.append(position)
                continue
            alone = BatchBuilder(self._max_bytes)
            alone.append(0, *record)
            if alone.size_bytes() > self._max_bytes:
                self.faults[position] = self._too_large(alone.size_bytes())
                continue
            if builder is not None:
                self._build(partition, taken, builder)
            builder, taken = alone, [position]
        if builder is not None:
            self._build(partition, taken, builder)

    def _too_large(self, size_bytes: int) -> RecordTooLargeError:
        return RecordTooLargeError(
            f"the record makes a batch of {size_bytes} bytes; the topic takes {self._max_bytes} (max.message.bytes)"
        ).with_bound(self._max_bytes)

    def _build(self, partition: int, positions: list[int], builder: BatchBuilder) -> None:
        sequence = self._sequence
        if sequence is None:
            batch = builder.build()
        else:
            batch = builder.build(sequence.producer_id, sequence.producer_epoch, sequence.base_sequence)
        self.parts.append(_Part(partition, positions, batch))


class _PlainItem:
    """Plain records of an item, with one append for each of their batches."""

    def __init__(
        self,
        record_count: int,
        partition: int | None,
        parts: Sequence[_Part],
        first_append: int,
        faults: Mapping[int, LogbrokerError],
    ) -> None:
        self.record_count = record_count
        self._partition = partition
        self._parts = parts
        self._first_append = first_append
        self._faults = faults

    def fill(self, result: ProduceResult, outcomes: Sequence[Appended | LogbrokerError], statuses: Statuses) -> None:
        mine = outcomes[self._first_append : self._first_append + len(self._parts)]
        if self._partition is None:
            self._place(result, mine, statuses)
            return
        result.partition = self._partition
        first = mine[0]
        failed = next((outcome for outcome in mine if isinstance(outcome, LogbrokerError)), None)
        if failed is not None:
            # There are faults here only with a sequence. They name the record at fault.
            known = any(isinstance(fault, type(failed)) for fault in self._faults.values())
            _refuse(result, _named(self._faults) if known else failed, statuses)
            if isinstance(first, Appended):
                self._place(result, mine, statuses)
            return
        assert isinstance(first, Appended)
        result.base_offset = first.base_offset
        result.log_append_time_ms = first.log_append_time_ms
        result.log_start_offset = first.log_start_offset
        result.leader_epoch = first.leader_epoch
        result.duplicate = first.duplicate

    def _place(self, result: ProduceResult, outcomes: Sequence[Appended | LogbrokerError], statuses: Statuses) -> None:
        """Set the placement of each record: its partition and offset, or its error."""
        placements: list[RecordPlacement | None] = [None] * self.record_count
        for position, error in self._faults.items():
            placements[position] = RecordPlacement(offset=-1, status=statuses.of(error))
        for part, outcome in zip(self._parts, outcomes, strict=True):
            for number, position in enumerate(part.positions):
                if isinstance(outcome, Appended):
                    placement = RecordPlacement(partition=part.partition, offset=outcome.base_offset + number)
                else:
                    placement = RecordPlacement(partition=part.partition, offset=-1, status=statuses.of(outcome))
                placements[position] = placement
        result.placements.extend(placement for placement in placements if placement is not None)
        if not result.HasField("status"):
            first = next((placement for placement in result.placements if placement.HasField("status")), None)
            if first is not None:
                result.status.CopyFrom(first.status)


def _refuse(result: ProduceResult, error: LogbrokerError, statuses: Statuses) -> None:
    result.status.CopyFrom(statuses.of(error))
    if isinstance(error, RecordTooLargeError):
        result.max_message_bytes = error.max_message_bytes
    elif isinstance(error, InvalidTimestampError):
        result.max_timestamp_ms = error.max_timestamp_ms


def _named(faults: Mapping[int, LogbrokerError]) -> LogbrokerError:
    """Return the error of the first record at fault, for the item as a whole."""
    position, error = min(faults.items(), key=lambda fault: fault[0])
    others = f" ({len(faults) - 1} others are at fault, too)" if len(faults) > 1 else ""
    return type(error)(f"record {position} of the item: {error}{others}; nothing of the item was appended")


def _check_sequence(sequence: ProducerSequence, partition: int | None) -> None:
    if partition is None:
        raise InvalidRequestError("a producer sequence needs an explicit partition")
    numbers = sequence.producer_id, sequence.producer_epoch, sequence.base_sequence
    if min(numbers) < 0 or sequence.producer_epoch >= 1 << 15:
        raise InvalidRequestError("a producer sequence takes an id and epoch of InitProducerId and counts from 0")


def headers_of(record: Record) -> list[tuple[str, bytes | None]]:
    """Return the record's headers, with its priority as a header. Raises InvalidRequestError for an invalid
    priority."""
    headers = [(header.key, header.value if header.HasField("value") else None) for header in record.headers]
    return list(with_priority(headers, record.priority)) if record.HasField("priority") else headers
