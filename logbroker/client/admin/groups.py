"""Groups as an administrator sees them: their members and their lag."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from logbroker.client.consumer.group_offsets import CommittedOffset, fetch_offsets
from logbroker.client.transport.answers import items
from logbroker.client.transport.connection import Connection
from logbroker.client.transport.metadata import TopicInfo, look_for_topics
from logbroker.client.transport.offsets import ListedOffset, list_offsets
from logbroker.client.transport.status import error_of_item
from logbroker.errors import CorruptBatchError, LogbrokerError, UnknownTopicError
from logbroker.record.codec import LogRecord, decode_batch, split_batches
from logbroker.types import TopicPartition
from logbroker.v1 import groups_pb2, log_pb2

_FETCHES_AT_ONCE: Final = 16
_TOPIC_DELETED: Final = UnknownTopicError(
    "the topic was deleted; the member that holds the partition gives it up when it learns of this"
)


class GroupInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A group at one moment."""

    id: str
    type: str
    """consumer, classic (Kafka clients) or queue."""
    state: str
    """A consumer group is empty, rebalancing (at least one member has not taken its assignment yet) or stable. For the
    states of a queue group, see `QueueDescription`."""
    members: int


class MemberDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One member at one moment."""

    id: str
    instance_id: str
    """The instance id of a static member; empty for other members."""
    client_name: str
    epoch: int
    connected: bool
    topics: tuple[str, ...]
    topic_pattern: str
    bands: tuple[str, ...]
    """The bands that the member reads; empty if it reads all."""
    owned: tuple[TopicPartition, ...]
    """The partitions that the member holds."""
    target: tuple[TopicPartition, ...]
    """The partitions that the member is assigned. It holds them once their current owners have given them up."""


class AwaitedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that the group has not finished up to the end of the generation that the group reads."""

    partition: TopicPartition
    finished_offset: int | None
    """The committed offset or, if the group commits nothing in this topic, the offset that the member reported. None if
    there is neither."""
    end_offset: int
    """The end offset of the generation in this partition."""


class GenerationDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The generation of a grown topic that a group reads. The group begins the next generation when this one is
    finished."""

    topic: str
    generation: int
    last_generation: int
    """The newest generation of the topic."""
    waiting: int
    """The number of partitions that are not finished up to the end of the generation; 0 if it is the newest one."""
    waits_for: tuple[AwaitedPartition, ...]
    """The first 100 partitions that are not finished."""


class GroupDescription(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the broker reports about a group."""

    info: GroupInfo
    assignor: str
    epoch: int
    members: tuple[MemberDescription, ...]
    growth_order: str
    """key or none: whether the records of each key stay in order when partitions are added."""
    generations: tuple[GenerationDescription, ...]
    """One entry for each topic that members read and that has grown."""


class PartitionLag(msgspec.Struct, frozen=True, kw_only=True):
    """The position and the lag of a group in one partition."""

    partition: TopicPartition
    owner: str
    """The member that holds the partition; empty if no member does."""
    committed: CommittedOffset | None
    log_start_offset: int
    end_offset: int
    """The high watermark."""
    oldest_unread_ms: int | None
    """The timestamp of the first unfinished record, in ms since 1970. None if there is no such record, or nothing is
    committed."""
    error: LogbrokerError | None = None
    """Why the broker reports no offsets; the offsets are 0 then. It is an UnknownTopicError without the topic's name if
    the topic was deleted and the member has not learned of that yet."""

    @property
    def records(self) -> int | None:
        """The number of offsets between the group's position and the end, including those that are no longer in the
        log. None if it is unknown, because nothing is committed or because of `error`; but 0 if the partition has never
        had a record."""
        if self.error is not None:
            return None
        if self.committed is None:
            return None if self.end_offset else 0
        return max(0, self.end_offset - self.committed.offset)

    @property
    def removed(self) -> int | None:
        """The number of offsets that were deleted from the log before the group had finished them."""
        if self.committed is None or self.error is not None:
            return None
        return max(0, self.log_start_offset - self.committed.offset)


async def list_groups(connection: Connection) -> list[GroupInfo]:
    """Return all groups, sorted by id."""
    found: list[GroupInfo] = []
    page_token = ""
    while True:
        response = await connection.unary("ListGroups", groups_pb2.ListGroupsRequest(page_token=page_token))
        found += [_info(group) for group in response.groups]
        page_token = response.next_page_token
        if not page_token:
            return found


async def describe_groups(connection: Connection, ids: Sequence[str]) -> list[GroupDescription | LogbrokerError]:
    """Return each group with its members, or its error."""

    async def ask(some: list[str]) -> Sequence[groups_pb2.DescribedGroup]:
        response: groups_pb2.DescribeGroupsResponse = await connection.unary(
            "DescribeGroups", groups_pb2.DescribeGroupsRequest(group_ids=some)
        )
        return response.groups

    found: dict[str, GroupDescription | LogbrokerError] = {}
    async for group_id, group, error in items(ids, ask):
        while group.next_members_after and error is None:
            more = groups_pb2.DescribeGroupsRequest(group_ids=[group_id], members_after=group.next_members_after)
            (rest,) = (await connection.unary("DescribeGroups", more)).groups
            error = error_of_item(rest.status)
            group.members.extend(rest.members)
            group.next_members_after = rest.next_members_after
        found[group_id] = error or _description(group)
    return [found[group_id] for group_id in ids]


async def delete_groups(connection: Connection, ids: Sequence[str]) -> list[LogbrokerError | None]:
    """Delete groups and their offsets. Each result is the group's error or None."""
    request = groups_pb2.DeleteGroupsRequest(group_ids=ids)
    response = await connection.unary("DeleteGroups", request, retry=False)
    return [error_of_item(status) for status in response.results]


async def group_lag(connection: Connection, group: GroupDescription) -> list[PartitionLag]:
    """Return the position of a group in each of its partitions, sorted.

    These are the partitions that members hold or are assigned, and those with a committed offset. Of a topic in which
    offsets are committed but nothing is assigned, they are all partitions: some clients commit only where they have
    read, and the rest is unread, too.
    """
    owners = {partition: member.id for member in group.members for partition in member.owned}
    assigned = owners.keys() | {partition for member in group.members for partition in member.target}
    committed = await fetch_offsets(connection, group.info.id, None)
    unassigned = {partition.topic for partition in committed} - {partition.topic for partition in assigned}
    found = await look_for_topics(connection, (topic for topic in unassigned if topic))
    whole = [topic for topic in found.values() if isinstance(topic, TopicInfo)]  # Others were deleted just now.
    partitions = sorted(
        assigned
        | committed.keys()
        | {TopicPartition(topic.name, number) for topic in whole for number in range(topic.partitions)}
    )
    # A deleted topic has no name. A member holds its partitions until it learns of the deletion.
    there = [partition for partition in partitions if partition.topic]
    starts = dict(zip(there, await list_offsets(connection, [(p, "earliest") for p in there]), strict=True))
    ends = dict(zip(there, await list_offsets(connection, [(p, "latest") for p in there]), strict=True))
    unread: dict[TopicPartition, tuple[TopicPartition, int]] = {}
    for partition, offset in committed.items():
        start, end = starts.get(partition), ends.get(partition)
        if isinstance(start, ListedOffset) and isinstance(end, ListedOffset) and offset.offset < end.offset:
            unread[partition] = partition, max(offset.offset, start.offset)
    times = await first_timestamps(connection, unread.values())
    oldest = {partition: times[place] for partition, place in unread.items() if place in times}
    return [
        _lag(
            partition,
            owners.get(partition, ""),
            committed.get(partition),
            starts.get(partition, _TOPIC_DELETED),
            ends.get(partition, _TOPIC_DELETED),
            oldest,
        )
        for partition in partitions
    ]


def _lag(
    partition: TopicPartition,
    owner: str,
    committed: CommittedOffset | None,
    start: ListedOffset | LogbrokerError,
    end: ListedOffset | LogbrokerError,
    oldest: dict[TopicPartition, int],
) -> PartitionLag:
    return PartitionLag(
        partition=partition,
        owner=owner,
        committed=committed,
        log_start_offset=0 if isinstance(start, LogbrokerError) else start.offset,
        end_offset=0 if isinstance(end, LogbrokerError) else end.offset,
        oldest_unread_ms=oldest.get(partition),
        error=next((outcome for outcome in (start, end) if isinstance(outcome, LogbrokerError)), None),
    )


async def first_timestamps(
    connection: Connection, places: Iterable[tuple[TopicPartition, int]]
) -> dict[tuple[TopicPartition, int], int]:
    """Return the timestamp of the first record at or after each offset of a partition. Places without such a record, or
    where it cannot be read, are left out."""
    room = asyncio.Semaphore(_FETCHES_AT_ONCE)

    async def fetch(partition: TopicPartition, offset: int) -> int | None:
        item = log_pb2.FetchItem(topic=partition.topic, partition=partition.partition, offset=offset)
        async with room:
            # `max_bytes=1` requests one batch: the first batch of an answer is sent whole, however large it is.
            response = await connection.unary("Fetch", log_pb2.FetchRequest(items=[item], max_bytes=1))
        try:
            record = _first_record(response.results[0].batches, offset)
        except CorruptBatchError:
            return None
        return None if record is None else record.timestamp_ms

    asked = list(places)
    found = await asyncio.gather(*(fetch(*place) for place in asked))
    return {place: time_ms for place, time_ms in zip(asked, found, strict=True) if time_ms is not None}


def _first_record(batches: bytes, offset: int) -> LogRecord | None:
    for header, batch in split_batches(batches):
        if not header.is_control:
            for record in decode_batch(batch):
                if record.offset >= offset:
                    return record
    return None


def _info(group: groups_pb2.ListedGroup) -> GroupInfo:
    return GroupInfo(id=group.group_id, type=group.type, state=group.state, members=group.members)


def _description(group: groups_pb2.DescribedGroup) -> GroupDescription:
    return GroupDescription(
        info=_info(group.group),
        assignor=group.assignor,
        epoch=group.epoch,
        members=tuple(
            MemberDescription(
                id=member.member_id,
                instance_id=member.instance_id,
                client_name=member.client_name,
                epoch=member.epoch,
                connected=member.connected,
                topics=tuple(member.subscription.topics),
                topic_pattern=member.subscription.topic_pattern,
                bands=tuple(member.subscription.bands),
                owned=_partitions(member.owned),
                target=_partitions(member.target),
            )
            for member in group.members
        ),
        growth_order=group.growth_order,
        generations=tuple(_generation(each) for each in group.generations),
    )


def _generation(message: groups_pb2.DescribedGeneration) -> GenerationDescription:
    return GenerationDescription(
        topic=message.topic,
        generation=message.generation,
        last_generation=message.last_generation,
        waiting=message.waiting,
        waits_for=tuple(
            AwaitedPartition(
                partition=TopicPartition(message.topic, partition),
                finished_offset=finished if finished >= 0 else None,
                end_offset=end,
            )
            for partition, finished, end in zip(
                message.waits_for, message.finished_offsets, message.end_offsets, strict=True
            )
        ),
    )


def _partitions(topics: Iterable[groups_pb2.TopicPartitions]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic.topic, partition) for topic in topics for partition in topic.partitions)
