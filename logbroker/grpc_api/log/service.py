"""The service logbroker.v1.Log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable

from logbroker.broker.broker import Broker
from logbroker.broker.read_budget import ReadBudget
from logbroker.engine import RoutingFence, Topic
from logbroker.errors import InvalidRequestError, LogbrokerError, UnsupportedFeatureError
from logbroker.grpc_api.log.fetch import Fetch
from logbroker.grpc_api.log.fetch_stream import FetchStream
from logbroker.grpc_api.log.produce import PreparedProduce
from logbroker.grpc_api.log.produce_stream import ProduceStream
from logbroker.grpc_api.log.produce_wire import read_produce
from logbroker.grpc_api.paging import ITEM_STEPS
from logbroker.grpc_api.refs import check_isolation, check_item_count, topic_of
from logbroker.grpc_api.status import Context, Statuses, answers
from logbroker.pacing import Pace
from logbroker.types import TopicId
from logbroker.v1.log_pb2 import (
    OFFSET_SPEC_EARLIEST,
    OFFSET_SPEC_LATEST,
    FetchRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsItem,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResult,
    ProduceResponse,
)


class LogService:
    """Append and read. Each method is one call of the API, documented in proto/logbroker/v1/log.proto."""

    def __init__(self, broker: Broker, budget: ReadBudget, stopping: asyncio.Event) -> None:
        self._engine = broker.engine
        self._clock = broker.clock
        self._config = broker.config
        self._stopping = stopping
        self._read_budget = budget

    @answers
    async def produce(self, message: bytes, context: Context) -> ProduceResponse:
        prepared = PreparedProduce(self._engine, self._clock, await read_produce(message), RoutingFence())
        try:
            await prepared.prepare()
            return await prepared.append()
        finally:
            prepared.release()

    @answers
    async def produce_stream(self, _: object, context: Context) -> None:
        await ProduceStream(self._engine, self._clock, context, self._stopping).run()

    @answers
    async def fetch(self, request: FetchRequest, context: Context) -> bytes:
        fetch = Fetch(self._engine, self._read_budget, request, self._config.max_response_bytes)
        # gRPC sends the answer after this coroutine has ended.
        context.add_done_callback(lambda *_: fetch.release())  # type: ignore[arg-type] # the stubs lack this signature
        return await fetch.run()

    @answers
    async def fetch_stream(self, _: object, context: Context) -> None:
        limit = self._config.max_response_bytes
        await FetchStream(self._engine, context, self._read_budget, limit, self._stopping).run()

    @answers
    async def list_offsets(self, request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
        check_item_count(len(request.items))
        check_isolation(request.isolation)
        pace, statuses = Pace(), Statuses()
        response = ListOffsetsResponse()
        unknown = {} if self._engine.is_sole_writer else await self._learn_ends(request.items)
        # Equal items are looked up once, because a lookup by time reads the log.
        found: dict[tuple[TopicId, int, int], ListOffsetsResult] = {}
        for item in request.items:
            try:
                topic = topic_of(self._engine, item)
                if item.WhichOneof("at") == "timestamp_ms":
                    wanted = topic.id, item.partition, item.timestamp_ms
                    if wanted not in found:
                        found[wanted] = await self._find_by_time(*wanted)
                    response.results.append(found[wanted])
                elif item.spec == OFFSET_SPEC_LATEST and (error := unknown.get((topic.id, item.partition))):
                    raise error
                else:
                    response.results.append(self._find_offset(topic, item))
            except LogbrokerError as error:
                response.results.add(status=statuses.of(error), offset=-1, timestamp_ms=-1)
            await pace.step(ITEM_STEPS)
        return response

    @answers
    async def init_producer_id(self, request: InitProducerIdRequest, context: Context) -> InitProducerIdResponse:
        if request.HasField("transactional_id"):
            raise UnsupportedFeatureError("transactions are not supported yet; leave transactional_id out")
        if request.HasField("producer_id") != request.HasField("producer_epoch"):
            raise InvalidRequestError("give producer_id and producer_epoch together, or neither")
        if request.HasField("producer_id"):
            found = await self._engine.init_producer_id(request.producer_id, request.producer_epoch)
        else:
            found = await self._engine.init_producer_id()
        return InitProducerIdResponse(producer_id=found[0], producer_epoch=found[1])

    async def _learn_ends(self, items: Iterable[ListOffsetsItem]) -> dict[tuple[TopicId, int], LogbrokerError]:
        """Learn the ends of these partitions anew. Return the errors of those of which nobody tells."""
        wanted: dict[TopicId, set[int]] = {}
        for item in items:
            with contextlib.suppress(LogbrokerError):
                wanted.setdefault(topic_of(self._engine, item).id, set()).add(item.partition)
        return {
            (topic_id, partition): error
            for topic_id, partitions in wanted.items()
            for partition, error in (await self._engine.learn_ends(topic_id, list(partitions))).items()
        }

    async def _find_by_time(self, topic_id: TopicId, partition: int, timestamp_ms: int) -> ListOffsetsResult:
        found = await self._engine.offset_for_time(topic_id, partition, timestamp_ms)
        return ListOffsetsResult(offset=found.offset, timestamp_ms=found.timestamp_ms, leader_epoch=found.leader_epoch)

    def _find_offset(self, topic: Topic, item: ListOffsetsItem) -> ListOffsetsResult:
        facts = self._engine.partition_facts(topic.id, item.partition)
        if item.spec == OFFSET_SPEC_EARLIEST:
            offset = facts.log_start_offset
        elif item.spec == OFFSET_SPEC_LATEST:
            offset = facts.high_watermark
        else:
            raise InvalidRequestError("the item does not say which offset it wants: set `spec` or `timestamp_ms`")
        return ListOffsetsResult(offset=offset, timestamp_ms=-1, leader_epoch=facts.leader_epoch)
