"""The service logbroker.v1.Groups."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from logbroker.broker.broker import Broker
from logbroker.consumer_groups.classic.classic_coordinator import ClassicCoordinator
from logbroker.consumer_groups.classic.group import ClassicState
from logbroker.consumer_groups.classic.rows import CLASSIC_TYPE
from logbroker.consumer_groups.coordinator import Coordinator
from logbroker.consumer_groups.generations import Wait
from logbroker.consumer_groups.groups import AnyGroup
from logbroker.consumer_groups.offsets import Committed
from logbroker.consumer_groups.rows import GROUP_TYPE
from logbroker.engine import LogEngine, Topic
from logbroker.errors import LogbrokerError, OverloadedError
from logbroker.grpc_api.groups.member_stream import MemberStream
from logbroker.grpc_api.groups.messages import partition_lists, topic_name
from logbroker.grpc_api.groups.offsets import commit_results, read_commits
from logbroker.grpc_api.paging import FRAME_BYTES, ITEM_STEPS, items_within, outcomes_within, page_of
from logbroker.grpc_api.refs import check_item_count, echoed_id, echoed_name, topic_of
from logbroker.grpc_api.status import Context, answers
from logbroker.pacing import Pace, Steps, in_large_steps, in_turns
from logbroker.queues.model.settings import GROUP_TYPE as QUEUE_GROUP_TYPE
from logbroker.types import TopicId
from logbroker.v1 import groups_pb2 as pb
from logbroker.v1.common_pb2 import Status

COMMITTED_BYTES: Final = 40
"""Maximum bytes of one partition in an answer, without its metadata."""


class GroupsService:
    """Consumer groups. Each method is one call of the API, documented in proto/logbroker/v1/groups.proto."""

    def __init__(self, broker: Broker, stopping: asyncio.Event) -> None:
        self._homes = broker.homes
        self._engine = broker.engine
        self._max_response_bytes = broker.config.max_response_bytes
        self._stopping = stopping

    def _group(self, group_id: str) -> AnyGroup:
        """Return a group. Raises UnknownGroupError, WrongGroupTypeError, InvalidGroupIdError or StaleOwnerError."""
        return self._homes.of(group_id).groups.group(group_id)

    @answers
    async def member(self, _: object, context: Context) -> None:
        await MemberStream(self._homes, self._engine, context, self._stopping).run()

    @answers
    async def commit_offsets(self, request: pb.CommitOffsetsRequest, context: Context) -> pb.CommitOffsetsResponse:
        topics = await read_commits(self._engine, request.topics)
        outcomes = await self._homes.of(request.group_id).groups.commit_offsets(request.group_id, topics)
        return pb.CommitOffsetsResponse(topics=await commit_results(outcomes))

    @answers
    async def fetch_offsets(self, request: pb.FetchOffsetsRequest, context: Context) -> pb.FetchOffsetsResponse:
        check_item_count(sum(len(item.partitions) + 1 for item in request.topics))
        group = self._group(request.group_id)
        if request.topics:
            topics = await items_within(
                request.topics,
                lambda item, pace: self._committed(group, topic_of(self._engine, item).id, item.partitions, pace),
                _not_committed,
                self._max_response_bytes,
                # An item that names partitions may come twice: `check_item_count` has limited their number.
                lambda item: object() if item.partitions else topic_of(self._engine, item).id,
            )
        else:
            topics = await items_within(
                sorted(group.offsets.topic_ids()),
                lambda topic_id, pace: self._committed(group, topic_id, (), pace),
                lambda status, topic_id: pb.CommittedTopic(
                    topic=topic_name(self._engine, topic_id), topic_id=topic_id, status=status
                ),
                self._max_response_bytes,
                lambda topic_id: topic_id,
            )
        return pb.FetchOffsetsResponse(topics=topics)

    @answers
    async def list_groups(self, request: pb.ListGroupsRequest, context: Context) -> pb.ListGroupsResponse:
        await self._homes.settled()
        ids = sorted(each for home in self._homes.all() for each in (*home.groups.ids(), *home.queues.ids()))
        groups, next_page_token = await page_of(
            request, ids, self._listed, self._max_response_bytes, self._listing_steps
        )
        return pb.ListGroupsResponse(groups=groups, next_page_token=next_page_token)

    @answers
    async def describe_groups(self, request: pb.DescribeGroupsRequest, context: Context) -> pb.DescribeGroupsResponse:
        check_item_count(len(request.group_ids))
        groups = await items_within(
            request.group_ids,
            lambda group_id, pace: self._described(self._group(group_id), request.members_after, pace),
            lambda status, _: pb.DescribedGroup(status=status),
            self._max_response_bytes,
            lambda group_id: group_id,
        )
        return pb.DescribeGroupsResponse(groups=groups)

    @answers
    async def delete_groups(self, request: pb.DeleteGroupsRequest, context: Context) -> pb.DeleteGroupsResponse:
        check_item_count(len(request.group_ids))

        async def delete(group_id: str) -> Status:
            await self._homes.of(group_id).groups.delete(group_id)
            return Status()

        results = await outcomes_within(request.group_ids, delete, lambda status: status, self._max_response_bytes)
        return pb.DeleteGroupsResponse(results=results)

    def _listed(self, group_id: str) -> pb.ListedGroup:
        home = self._homes.of(group_id)
        if not home.queues.has(group_id):
            return _listed(home.groups.group(group_id))
        group = home.queues.group(group_id)
        connected = sum(link.connected for link in group.links.values())
        return pb.ListedGroup(group_id=group_id, type=QUEUE_GROUP_TYPE, state=group.state(), members=connected)

    def _listing_steps(self, group_id: str) -> int:
        """Return how many steps of a `Pace` it takes to find the state of a group."""
        for home in self._homes.all():
            if home.queues.has(group_id):
                group = home.queues.group(group_id)
                return len(group.links) + group.state_steps
            if home.groups.has(group_id):
                return len(home.groups.group(group_id).machine)
        return 0

    async def _committed(
        self, group: AnyGroup, topic_id: TopicId, numbers: Sequence[int], pace: Pace
    ) -> pb.CommittedTopic:
        """Return the committed offsets of some partitions, or of all partitions if none is named. Raises
        OverloadedError if the offsets do not fit into an answer."""
        result = pb.CommittedTopic(topic=topic_name(self._engine, topic_id), topic_id=topic_id)
        # A snapshot, because the report takes several turns of the event loop.
        of_topic = dict(group.offsets.of_topic(topic_id))
        room_bytes = self._max_response_bytes
        for number in numbers or sorted(of_topic):
            found = of_topic.get(number) or _NONE
            room_bytes -= len(found.metadata) + COMMITTED_BYTES
            if room_bytes < 0:
                raise OverloadedError(
                    "the offsets of the topic do not fit into one answer: ask for some of its partitions at a time"
                )
            result.partitions.append(number)
            result.offsets.append(found.offset)
            result.leader_epochs.append(found.leader_epoch)
            result.metadata.append(found.metadata)
            result.commit_times_ms.append(found.commit_time_ms)
            await pace.step(2)
        return result

    async def _described(self, group: AnyGroup, members_after: str, pace: Pace) -> pb.DescribedGroup:
        if isinstance(group, ClassicCoordinator):
            return await self._described_classic(group, members_after, pace)
        return await self._described_consumers(group, members_after, pace)

    async def _described_classic(self, group: ClassicCoordinator, members_after: str, pace: Pace) -> pb.DescribedGroup:
        """Describe a group of Kafka clients, as far as they are consumers, with as many members as fit."""
        # Loaded here, since it knows the Kafka protocol, which a broker without such clients does not load.
        from logbroker.consumer_groups.classic.consumer_protocol import assigned_partitions, subscribed_topics

        machine = group.machine
        result = pb.DescribedGroup(group=_listed(group), assignor=machine.protocol, epoch=machine.generation)
        members = sorted(machine.members(), key=lambda member: member.member_id)
        room_bytes = self._max_response_bytes - result.ByteSize()
        for member in [member for member in members if member.member_id > members_after]:
            topics = subscribed_topics(machine, member)
            partitions = assigned_partitions(machine, member)
            owned = [
                pb.TopicPartitions(topic=name, topic_id=topic.id, partitions=sorted(numbers))
                for name, numbers in partitions.items()
                if (topic := _existing(self._engine, name)) is not None
            ]
            join = member.join
            described = pb.DescribedMember(
                member_id=member.member_id,
                instance_id=join.instance_id,
                client_name=f"{join.client_id} ({join.client_host})" if join.client_host else join.client_id,
                epoch=machine.generation,
                subscription=pb.Subscription(topics=topics),
                owned=owned,
                target=owned,
                connected=True,
            )
            room_bytes -= described.ByteSize() + FRAME_BYTES
            if room_bytes < 0 and result.members:
                result.next_members_after = result.members[-1].member_id
                break
            result.members.append(described)
            await pace.step(ITEM_STEPS + (len(member.assignment) + sum(len(data) for _, data in join.protocols)) // 16)
        return result

    async def _described_consumers(self, group: Coordinator, members_after: str, pace: Pace) -> pb.DescribedGroup:
        """Describe a group with as many of its members as fit into an answer, at least one.

        The assignment is a snapshot: otherwise a partition that moves meanwhile could be listed with two owners.
        """
        generations = await in_turns(in_large_steps(_describe_generations(group)), pace)
        machine = group.machine
        held = [
            (member.join, member.epoch, member.subscription, member.held, machine.target(member), member.connected)
            for member in sorted(machine.members(), key=lambda member: member.member_id)
            if member.member_id > members_after
        ]
        result = pb.DescribedGroup(
            group=_listed(group),
            assignor=machine.assignor,
            epoch=machine.epoch,
            growth_order=machine.growth_order,
            generations=generations,
        )
        await pace.step(ITEM_STEPS + len(machine))
        room_bytes = self._max_response_bytes - result.ByteSize()
        for join, epoch, subscription, owned, target, connected in held:
            described = pb.DescribedMember(
                member_id=join.member_id,
                instance_id=join.instance_id,
                client_name=f"{join.client_name} ({join.client_host})" if join.client_host else join.client_name,
                epoch=epoch,
                subscription=pb.Subscription(
                    topics=subscription.topics, topic_pattern=subscription.topic_pattern, bands=subscription.bands
                ),
                owned=await partition_lists(self._engine, owned, pace),
                target=await partition_lists(self._engine, target, pace),
                connected=connected,
            )
            room_bytes -= described.ByteSize() + FRAME_BYTES
            if room_bytes < 0 and result.members:
                result.next_members_after = result.members[-1].member_id
                break
            result.members.append(described)
            await pace.step(ITEM_STEPS + len(subscription.topics) // 8)
        return result


MAX_NAMED_WAITS: Final = 100
"""Maximum number of partitions that an answer names, of all those that a generation waits for."""
_NONE: Final = Committed(-1, -1, "", -1)


def _describe_generations(group: Coordinator) -> Steps[list[pb.DescribedGeneration]]:
    """Describe the generations of grown topics that the group reads now, each with what it waits for. Each topic is
    looked up again, because its next generation may have begun meanwhile."""
    now = asyncio.get_running_loop().time()
    described: list[pb.DescribedGeneration] = []
    for topic_id in [topic.id for topic, _ in group.generations.grown()]:
        found = group.generations.grown_topic(topic_id)
        if found is not None:
            described.append(_described_generation(*found, group.generations.waits(topic_id, now)))
            yield ITEM_STEPS + found[0].partitions // 2
    return described


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


def _not_committed(status: Status, item: pb.TopicPartitions) -> pb.CommittedTopic:
    if not status.message:
        return pb.CommittedTopic(status=status)
    return pb.CommittedTopic(status=status, topic=echoed_name(item.topic), topic_id=echoed_id(item.topic_id))


def _existing(engine: LogEngine, name: str) -> Topic | None:
    try:
        return engine.topic(name)
    except LogbrokerError:
        return None


_CLASSIC_STATES: Final = {ClassicState.EMPTY: "empty", ClassicState.STABLE: "stable"}


def _listed(group: AnyGroup) -> pb.ListedGroup:
    machine = group.machine
    if isinstance(group, ClassicCoordinator):
        kind, state = CLASSIC_TYPE, _CLASSIC_STATES.get(group.machine.state, "rebalancing")
    else:
        kind, state = GROUP_TYPE, group.machine.state
    return pb.ListedGroup(group_id=group.group_id, type=kind, state=state, members=len(machine))
