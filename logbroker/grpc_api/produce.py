"""Produce requests into appends, and their outcomes into results."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from logbroker.engine import Append, Appended, Buffer, LogEngine, Topic
from logbroker.errors import InvalidRequestError, LogbrokerError, StaleGenerationError, UnknownTopicError
from logbroker.grpc_api.produce_wire import WireRequest
from logbroker.grpc_api.refs import find_changeable_topic
from logbroker.grpc_api.status import item_status
from logbroker.record.bands import band_of, one_band
from logbroker.record.codec import Headers, NewRecord, encode_batch
from logbroker.record.message_headers import check_priority, priority_of, with_priority
from logbroker.record.partitioner import partition_for_key
from logbroker.types import Durability
from logbroker.v1.common_pb2 import Record
from logbroker.v1.log_pb2 import (
    DURABILITY_SYNCED,
    DURABILITY_UNSPECIFIED,
    DURABILITY_WRITTEN,
    PlainRecords,
    ProduceResponse,
    ProduceResult,
    RecordPlacement,
)

_DURABILITIES: Final[dict[int, Durability | None]] = {
    DURABILITY_UNSPECIFIED: None,
    DURABILITY_WRITTEN: Durability.WRITTEN,
    DURABILITY_SYNCED: Durability.SYNCED,
}
INLINE_RECORDS: Final = 200
"""Up to so many plain records are encoded on the loop (about 2 us each); more go to a thread."""

GROWTH_POLL_SECONDS: Final = 0.005


class PreparedProduce:
    """A request whose plain records are batches now. Made by `prepare`, appended by `append`, once."""

    def __init__(self, engine: LogEngine, request: WireRequest) -> None:
        self._engine = engine
        self._request = request
        self._appends: list[Append] = []
        self._items: list[int | _RoutedItem | LogbrokerError] = []
        """Per item: the index of its append, what has several, or why there is none."""

    async def prepare(self) -> None:
        """Encode what has to be encoded. Raises InvalidRequestError for what concerns the whole request."""
        request = self._request
        if request.durability not in _DURABILITIES:
            raise InvalidRequestError(f"durability {request.durability} is unknown")
        for item in request.items:
            try:
                topic = find_changeable_topic(self._engine, item.topic, item.topic_id)
                if item.batch is None:
                    await self._prepare_records(topic, item.partition, item.records or PlainRecords(), item.generation)
                elif item.partition is None:
                    raise InvalidRequestError("a batch needs a partition; only plain records are routed here")
                else:
                    self._add(topic, item.partition, item.batch, item.generation)
            except LogbrokerError as error:
                self._items.append(error)

    async def append(self) -> ProduceResponse:
        """Append in the order of the items; the first step takes the offsets."""
        durability = _DURABILITIES[self._request.durability]
        outcomes = await self._engine.append(self._appends, durability)
        response = ProduceResponse(correlation_id=self._request.correlation_id)
        # Filled in place: a list of messages would be copied.
        results = response.results
        for asked, item in zip(self._request.items, self._items, strict=True):
            if isinstance(item, _RoutedItem):
                await item.route_again_where_stale(self._engine, outcomes, durability)
                item.fill(results.add(log_append_time_ms=-1), outcomes)
                continue
            outcome = outcomes[item] if isinstance(item, int) else item
            partition = asked.partition or 0
            if isinstance(outcome, LogbrokerError):
                results.add(status=item_status(outcome), partition=partition, base_offset=-1, log_append_time_ms=-1)
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

    async def _prepare_records(self, topic: Topic, partition: int | None, plain: PlainRecords, generation: int) -> None:
        if not plain.records:
            raise InvalidRequestError("the item holds neither a batch nor records")
        _check_priorities(plain.records)
        sequence = plain.sequence if plain.HasField("sequence") else None
        if partition is None:
            if sequence:
                raise InvalidRequestError("a producer sequence needs an explicit partition")
            self._items.append(await self._route(topic, plain.records))
        elif sequence is None:
            self._add(topic, partition, await _encoded(plain.records), generation)
        else:
            producer = sequence.producer_id, sequence.producer_epoch, sequence.base_sequence
            if min(producer) < 0 or sequence.producer_epoch >= 1 << 15:
                raise InvalidRequestError(
                    "a producer sequence takes an id and epoch of InitProducerId and counts from 0"
                )
            self._add(topic, partition, await _encoded(plain.records, *producer), generation)

    def _add(self, topic: Topic, partition: int, batch: Buffer, generation: int) -> None:
        self._items.append(len(self._appends))
        self._appends.append(Append(topic.id, partition, batch, generation))

    async def _route(self, topic: Topic, records: Sequence[Record]) -> _RoutedItem:
        routed = _RoutedItem(topic, records)
        appends: list[Append] = []
        for partition, positions in routed.route().items():
            batch = await _encoded([records[position] for position in positions])
            # Without a key any partition will do, so only keyed records are bound to the generation.
            generation = topic.generation if routed.is_keyed(positions) else 0
            routed.parts.append((partition, positions, len(self._appends) + len(appends)))
            appends.append(Append(topic.id, partition, batch, generation))
        # Only now: where one record cannot be encoded, none of the item is appended.
        self._appends += appends
        return routed


class _RoutedItem:
    """Plain records without an explicit partition: one append for each partition that they fall into."""

    def __init__(self, topic: Topic, records: Sequence[Record]) -> None:
        self.topic = topic
        self.records = records
        self.parts: list[tuple[int, list[int], int]] = []
        """Partition, positions of its records in the item, index of the append."""

    def route(self) -> dict[int, list[int]]:
        """Return the positions of the records by partition; those of a band without a key stay together."""
        bands = self.topic.routing_bands or (one_band(self.topic.partitions),)
        sticky = {band.name: random.choice(band.partition_range) for band in bands}
        by_partition: dict[int, list[int]] = {}
        for position, record in enumerate(self.records):
            band = bands[0] if len(bands) == 1 else band_of(bands, _priority(record))
            if record.HasField("key"):
                partition = band.first_partition + partition_for_key(record.key, band.partitions)
            else:
                partition = sticky[band.name]
            by_partition.setdefault(partition, []).append(position)
        return by_partition

    def is_keyed(self, positions: Sequence[int]) -> bool:
        return any(self.records[position].HasField("key") for position in positions)

    async def route_again_where_stale(
        self, engine: LogEngine, outcomes: list[Appended | LogbrokerError], durability: Durability | None
    ) -> None:
        """Append those records again whose topic grew between their routing and their append."""
        parts = self.parts
        while stale := [part for part in parts if isinstance(outcomes[part[2]], StaleGenerationError)]:
            try:
                topic = engine.topic_by_id(self.topic.id)
                if topic.generation == self.topic.generation:
                    await asyncio.sleep(GROWTH_POLL_SECONDS)  # The growth is not committed yet.
                    topic = engine.topic_by_id(self.topic.id)
            except UnknownTopicError as error:
                for part in stale:
                    outcomes[part[2]] = error
                return
            positions = sorted(position for part in stale for position in part[1])
            again = _RoutedItem(topic, [self.records[position] for position in positions])
            routed = again.route()
            appends = [
                Append(topic.id, partition, await _encoded([again.records[at] for at in local]), topic.generation)
                for partition, local in routed.items()
            ]
            first = len(outcomes)
            outcomes.extend(await engine.append(appends, durability))
            self.topic = topic
            self.parts = parts = [part for part in parts if part not in stale] + [
                (partition, [positions[at] for at in local], first + number)
                for number, (partition, local) in enumerate(routed.items())
            ]

    def fill(self, result: ProduceResult, outcomes: Sequence[Appended | LogbrokerError]) -> None:
        placements: list[RecordPlacement | None] = [None] * len(self.records)
        for partition, positions, index in self.parts:
            outcome = outcomes[index]
            for number, position in enumerate(positions):
                if isinstance(outcome, Appended):
                    placements[position] = RecordPlacement(partition=partition, offset=outcome.base_offset + number)
                else:
                    placements[position] = RecordPlacement(partition=partition, offset=-1, status=item_status(outcome))
            if isinstance(outcome, LogbrokerError) and not result.HasField("status"):
                result.status.CopyFrom(item_status(outcome))
        result.placements.extend(placement for placement in placements if placement is not None)


def _check_priorities(records: Sequence[Record]) -> None:
    for number, record in enumerate(records):
        if record.HasField("priority"):
            try:
                check_priority(record.priority)
            except InvalidRequestError as error:
                raise InvalidRequestError(f"record {number} of the item: {error}") from None


def _headers(record: Record) -> Headers:
    headers = [(header.key, header.value if header.HasField("value") else None) for header in record.headers]
    return with_priority(headers, record.priority) if record.HasField("priority") else headers


def _priority(record: Record) -> int:
    return record.priority if record.HasField("priority") else priority_of(_headers(record))


async def _encoded(
    records: Sequence[Record], producer_id: int = -1, producer_epoch: int = -1, base_sequence: int = -1
) -> bytes:
    def encode() -> bytes:
        return encode_batch(
            (
                NewRecord(
                    value=record.value if record.HasField("value") else None,
                    key=record.key if record.HasField("key") else None,
                    headers=_headers(record),
                    timestamp_ms=record.timestamp_ms if record.HasField("timestamp_ms") else None,
                )
                for record in records
            ),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )

    if len(records) <= INLINE_RECORDS:
        return encode()
    return await asyncio.to_thread(encode)
