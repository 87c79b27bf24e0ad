"""The service logbroker.v1.Groups."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from logbroker.broker.broker import Broker
from logbroker.consumer_groups.coordinator import Coordinator
from logbroker.consumer_groups.generations import Wait
from logbroker.consumer_groups.offsets import Committed
from logbroker.consumer_groups.rows import GROUP_TYPE
from logbroker.engine import Topic
from logbroker.errors import LogbrokerError, OverloadedError
from logbroker.grpc_api.group_messages import partition_lists, topic_name
from logbroker.grpc_api.group_offsets import commit_results, read_commits
from logbroker.grpc_api.member_stream import MemberStream
from logbroker.grpc_api.paging import FRAME_BYTES, items_within, page_of
from logbroker.grpc_api.queue_admin_messages import queue_state
from logbroker.grpc_api.refs import check_item_count, echoed_id, echoed_name, topic_of
from logbroker.grpc_api.status import Context, answers, item_status
from logbroker.queues.rows import GROUP_TYPE as QUEUE_GROUP_TYPE
from logbroker.types import TopicId
from logbroker.v1 import groups_pb2 as pb
from logbroker.v1.common_pb2 import Status


class GroupsService:
    """Consumer groups. Each method is one call of the API, documented in proto/logbroker/v1/groups.proto."""

    def __init__(self, broker: Broker, stopping: asyncio.Event) -> None:
        self._groups = broker.groups
        self._queues = broker.queues
        self._engine = broker.engine
        self._max_response_bytes = broker.config.max_response_bytes
        self._stopping = stopping

    @answers
    async def member(self, _: object, context: Context) -> None:
        await MemberStream(self._groups, self._engine, context, self._stopping).run()

    @answers
    async def commit_offsets(self, request: pb.CommitOffsetsRequest, context: Context) -> pb.CommitOffsetsResponse:
        topics = read_commits(self._engine, request.topics)
        outcomes = await self._groups.commit_offsets(request.group_id, topics)
        return pb.CommitOffsetsResponse(topics=commit_results(outcomes))

    @answers
    async def fetch_offsets(self, request: pb.FetchOffsetsRequest, context: Context) -> pb.FetchOffsetsResponse:
        check_item_count(sum(len(item.partitions) + 1 for item in request.topics))
        group = self._groups.group(request.group_id)
        found = self._asked_for(group, request.topics) if request.topics else self._all_committed(group)
        response = pb.FetchOffsetsResponse()
        room = self._max_response_bytes
        full = item_status(OverloadedError("the answer is full; ask for the rest of the topics by itself"))
        for topic in found:
            if topic.ByteSize() > room:
                topic = pb.CommittedTopic(topic=topic.topic, topic_id=topic.topic_id, status=full)
            room -= topic.ByteSize() + FRAME_BYTES
            response.topics.append(topic)
        return response

    @answers
    async def list_groups(self, request: pb.ListGroupsRequest, context: Context) -> pb.ListGroupsResponse:
        ids = sorted((*self._groups.ids(), *self._queues.ids()))
        groups, next_page_token = page_of(request, ids, self._listed, self._max_response_bytes)
        return pb.ListGroupsResponse(groups=groups, next_page_token=next_page_token)

    @answers
    async def describe_groups(self, request: pb.DescribeGroupsRequest, context: Context) -> pb.DescribeGroupsResponse:
        check_item_count(len(request.group_ids))
        groups = items_within(
            request.group_ids,
            lambda group_id: self._described(self._groups.group(group_id)),
            lambda error: pb.DescribedGroup(status=item_status(error)),
            self._max_response_bytes,
        )
        return pb.DescribeGroupsResponse(groups=groups)

    @answers
    async def delete_groups(self, request: pb.DeleteGroupsRequest, context: Context) -> pb.DeleteGroupsResponse:
        check_item_count(len(request.group_ids))
        response = pb.DeleteGroupsResponse()
        for group_id in request.group_ids:
            try:
                await self._groups.delete(group_id)
                response.results.append(Status())
            except LogbrokerError as error:
                response.results.append(item_status(error))
        return response

    def _listed(self, group_id: str) -> pb.ListedGroup:
        if not self._queues.has(group_id):
            return _listed(self._groups.group(group_id))
        group = self._queues.group(group_id)
        connected = sum(link.connected for link in group.links.values())
        return pb.ListedGroup(group_id=group_id, type=QUEUE_GROUP_TYPE, state=queue_state(group), members=connected)

    def _asked_for(self, group: Coordinator, items: Iterable[pb.TopicPartitions]) -> Iterable[pb.CommittedTopic]:
        for item in items:
            try:
                topic = topic_of(self._engine, item)
            except LogbrokerError as error:
                yield pb.CommittedTopic(
                    status=item_status(error), topic=echoed_name(item.topic), topic_id=echoed_id(item.topic_id)
                )
                continue
            of_topic = group.offsets.of_topic(topic.id)
            numbers = item.partitions or sorted(of_topic)
            yield self._committed(topic.id, [(number, of_topic.get(number)) for number in numbers])

    def _all_committed(self, group: Coordinator) -> Iterable[pb.CommittedTopic]:
        for topic_id in sorted(group.offsets.topic_ids()):
            yield self._committed(topic_id, sorted(group.offsets.of_topic(topic_id).items()))

    def _committed(self, topic_id: TopicId, rows: Iterable[tuple[int, Committed | None]]) -> pb.CommittedTopic:
        result = pb.CommittedTopic(topic=topic_name(self._engine, topic_id), topic_id=topic_id)
        for number, committed in rows:
            found = committed or _NONE
            result.partitions.append(number)
            result.offsets.append(found.offset)
            result.leader_epochs.append(found.leader_epoch)
            result.metadata.append(found.metadata)
            result.commit_times_ms.append(found.commit_time_ms)
        return result

    def _described(self, group: Coordinator) -> pb.DescribedGroup:
        machine = group.machine
        now = asyncio.get_running_loop().time()
        return pb.DescribedGroup(
            group=_listed(group),
            assignor=machine.assignor,
            epoch=machine.epoch,
            members=[
                pb.DescribedMember(
                    member_id=member.member_id,
                    instance_id=member.join.instance_id,
                    client_name=member.join.client_name,
                    epoch=member.epoch,
                    subscription=pb.Subscription(
                        topics=member.subscription.topics,
                        topic_pattern=member.subscription.topic_pattern,
                        bands=member.subscription.bands,
                    ),
                    owned=partition_lists(self._engine, member.held),
                    target=partition_lists(self._engine, machine.target(member)),
                    connected=member.connected,
                )
                for member in machine.members()
            ],
            growth_order=machine.growth_order,
            generations=[
                _described_generation(topic, generation, group.generations.waits(topic.id, now))
                for topic, generation in group.generations.grown()
            ],
        )


MAX_NAMED_WAITS: Final = 100
"""Of the partitions that a generation waits for, so many are named."""
_NONE: Final = Committed(-1, -1, "", -1)


def _described_generation(topic: Topic, generation: int, waits: Sequence[Wait]) -> pb.DescribedGeneration:
    named = waits[:MAX_NAMED_WAITS]
    return pb.DescribedGeneration(
        topic=topic.name,
        topic_id=topic.id,
        generation=generation,
        last_generation=topic.generation,
        waiting=len(waits),
        waits_for=[wait.partition for wait in named],
        end_offsets=[wait.end_offset for wait in named],
        finished_offsets=[wait.finished_offset for wait in named],
    )


def _listed(group: Coordinator) -> pb.ListedGroup:
    machine = group.machine
    return pb.ListedGroup(group_id=group.group_id, type=GROUP_TYPE, state=machine.state, members=len(machine))
