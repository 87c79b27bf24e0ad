"""The service logbroker.v1.Admin."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from logbroker import __version__
from logbroker.broker.broker import Broker
from logbroker.broker.topics import check_not_internal
from logbroker.config import TOPIC_CONFIGS, check_given, config_text
from logbroker.engine import UP_TO_HIGH_WATERMARK, Topic, TopicPlan
from logbroker.errors import CorruptLogError, InvalidRequestError, LogbrokerError
from logbroker.grpc_api.paging import TWICE, items_within, outcomes_within, page_of
from logbroker.grpc_api.refs import check_item_count, find_changeable_topic, find_topic
from logbroker.grpc_api.status import Context, Statuses, answers
from logbroker.pacing import Pace
from logbroker.types import PriorityRouting
from logbroker.v1 import admin_pb2 as pb

# Steps of a `Pace`:
CONFIG_STEPS: Final = 50
"""Cost of describing all configs of a topic."""
PARTITION_STEPS: Final = 4
NUMBERS_PER_STEP: Final = 32
"""Numbers copied into a packed column in one step."""

_Named = TypeVar("_Named")


class AdminService:
    """Topics and their configuration. Each method is one call, documented in proto/logbroker/v1/admin.proto."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._engine = broker.engine

    @answers
    async def create_topics(self, request: pb.CreateTopicsRequest, context: Context) -> pb.CreateTopicsResponse:
        check_item_count(len(request.topics))
        plan = TopicPlan() if request.validate_only else None
        return pb.CreateTopicsResponse(
            results=await self._outcomes(request.topics, lambda topic: self._create(topic, plan))
        )

    @answers
    async def list_topics(self, request: pb.ListTopicsRequest, context: Context) -> pb.ListTopicsResponse:
        topics, next_page_token = await page_of(
            request,
            [topic.name for topic in self._engine.topics()],
            lambda name: _topic(self._engine.topic(name)),
            self._broker.config.max_response_bytes,
        )
        return pb.ListTopicsResponse(topics=topics, next_page_token=next_page_token)

    @answers
    async def describe_topics(self, request: pb.DescribeTopicsRequest, context: Context) -> pb.DescribeTopicsResponse:
        check_item_count(len(request.topics))
        results = await items_within(
            request.topics,
            lambda ref, pace: self._description(
                find_topic(self._engine, ref.name, ref.id), pace, with_partitions=request.include_partitions
            ),
            lambda status, _: pb.DescribeTopicsResult(status=status),
            self._broker.config.max_response_bytes,
            lambda ref: find_topic(self._engine, ref.name, ref.id).id,
        )
        return pb.DescribeTopicsResponse(results=results, max_request_bytes=self._broker.config.max_request_bytes)

    @answers
    async def alter_topics(self, request: pb.AlterTopicsRequest, context: Context) -> pb.AlterTopicsResponse:
        check_item_count(len(request.topics))
        plan = TopicPlan() if request.validate_only else None
        altered: set[bytes] = set()
        return pb.AlterTopicsResponse(
            results=await self._outcomes(request.topics, lambda alteration: self._alter(alteration, plan, altered))
        )

    @answers
    async def delete_topics(self, request: pb.DeleteTopicsRequest, context: Context) -> pb.DeleteTopicsResponse:
        check_item_count(len(request.topics))
        return pb.DeleteTopicsResponse(results=await self._outcomes(request.topics, self._delete))

    @answers
    async def delete_records(self, request: pb.DeleteRecordsRequest, context: Context) -> pb.DeleteRecordsResponse:
        check_item_count(len(request.deletions))
        results = await outcomes_within(
            request.deletions,
            self._delete_records,
            lambda status: pb.DeleteRecordsResult(status=status),
            self._broker.config.max_response_bytes,
        )
        return pb.DeleteRecordsResponse(results=results)

    @answers
    async def describe_broker(self, request: pb.DescribeBrokerRequest, context: Context) -> pb.DescribeBrokerResponse:
        topics = self._engine.topics()
        return pb.DescribeBrokerResponse(
            version=__version__,
            started_at_ms=self._broker.started_at_ms,
            topics=len(topics),
            partitions=sum(topic.partitions for topic in topics),
            max_request_bytes=self._broker.config.max_request_bytes,
            max_response_bytes=self._broker.config.max_response_bytes,
        )

    async def _outcomes(
        self, named: Iterable[_Named], change: Callable[[_Named], Awaitable[Topic]]
    ) -> list[pb.TopicResult]:
        async def changed(each: _Named) -> pb.TopicResult:
            return pb.TopicResult(topic=_topic(await change(each)))

        room_bytes = self._broker.config.max_response_bytes
        return await outcomes_within(named, changed, lambda status: pb.TopicResult(status=status), room_bytes)

    async def _create(self, topic: pb.NewTopic, plan: TopicPlan | None) -> Topic:
        check_not_internal(topic.name)
        check_given(topic.configs)
        partitions = topic.partitions if topic.HasField("partitions") else None
        return await self._engine.create_topic(topic.name, partitions, dict(topic.configs), plan=plan)

    async def _alter(self, alteration: pb.TopicAlteration, plan: TopicPlan | None, altered: set[bytes]) -> Topic:
        """Alter a topic, and add its id to `altered`, the topics that the request has named so far."""
        topic = find_changeable_topic(self._engine, alteration.topic.name, alteration.topic.id)
        if topic.id in altered:
            raise TWICE.anew()
        altered.add(topic.id)
        check_given(alteration.set_configs)
        return await self._engine.alter_topic(
            topic.id,
            partitions=alteration.partitions if alteration.HasField("partitions") else None,
            set_configs=dict(alteration.set_configs),
            unset_configs=list(alteration.unset_configs),
            plan=plan,
        )

    async def _delete(self, ref: pb.TopicRef) -> Topic:
        return await self._engine.delete_topic(find_changeable_topic(self._engine, ref.name, ref.id).id)

    async def _delete_records(self, deletion: pb.RecordDeletion) -> pb.DeleteRecordsResult:
        topic = find_changeable_topic(self._engine, deletion.topic.name, deletion.topic.id)
        before_offset = deletion.before_offset if deletion.HasField("before_offset") else UP_TO_HIGH_WATERMARK
        if deletion.HasField("before_offset") and before_offset < 0:
            raise InvalidRequestError(
                f"before_offset must be at least 0, not {before_offset}; leave it out to delete all records"
            )
        start_offset = await self._engine.delete_records(topic.id, deletion.partition, before_offset)
        return pb.DeleteRecordsResult(log_start_offset=start_offset)

    async def _description(self, topic: Topic, pace: Pace, *, with_partitions: bool) -> pb.DescribeTopicsResult:
        result = pb.DescribeTopicsResult(
            topic=_topic(topic),
            configs=[
                pb.ConfigEntry(
                    name=name,
                    value=(name == "durability" and self._engine.durability) or config_text(topic.config, name),
                    is_default=name not in topic.overrides,
                    documentation=spec.documentation,
                )
                for name, spec in TOPIC_CONFIGS.items()
            ],
            created_at_ms=topic.created_at_ms,
        )
        await pace.step(CONFIG_STEPS)
        for generation in topic.generations:
            result.generations.add(
                generation=generation.generation,
                partitions=generation.partitions,
                start_offsets=generation.start_offsets,
            )
            await pace.step(1 + len(generation.start_offsets) // NUMBERS_PER_STEP)
        if with_partitions:
            await self._add_partitions(result, topic, pace)
        return result

    async def _add_partitions(self, result: pb.DescribeTopicsResult, topic: Topic, pace: Pace) -> None:
        statuses = Statuses()
        await self._engine.learn_ends(topic.id, range(topic.partitions))
        for number in range(topic.partitions):
            try:
                facts = self._engine.partition_facts(topic.id, number)
            except LogbrokerError as error:
                result.partitions.add(status=statuses.of(error), partition=number)
            else:
                result.partitions.add(
                    status=statuses.of(CorruptLogError(facts.damage)) if facts.damage else None,
                    partition=number,
                    log_start_offset=facts.log_start_offset,
                    high_watermark=facts.high_watermark,
                    log_end_offset=facts.log_end_offset,
                    leader_epoch=facts.leader_epoch,
                    size_bytes=facts.size_bytes,
                    segments=facts.segments,
                    cut_bytes=facts.cut_bytes,
                    cut_offset=facts.cut_offset,
                )
            await pace.step(PARTITION_STEPS)


def _topic(topic: Topic) -> pb.Topic:
    return pb.Topic(
        name=topic.name,
        id=topic.id,
        partitions=topic.partitions,
        generation=topic.generation,
        bands=[
            pb.Band(
                name=band.name,
                lowest_priority=band.lowest_priority,
                highest_priority=band.highest_priority,
                first_partition=band.first_partition,
                partitions=band.partitions,
            )
            for band in topic.config.priority_bands
        ],
        routes_by_key=topic.config.priority_routing is PriorityRouting.KEY,
        max_message_bytes=topic.config.max_message_bytes,
    )
