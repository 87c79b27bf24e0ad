"""OffsetFetch (key 9): the committed offsets of groups, whatever their type. A partition without one has -1.

Offsets are shown once they are stored, so no offset is unstable. The offsets of an answer may take as much memory as
those of one group (`max_group_offsets_bytes`); groups beyond are refused (THROTTLING_QUOTA_EXCEEDED).

v1: the first version. v2: all offsets of a group; an error for the whole. v3: the throttle time. v5: leader epochs.
v6: flexible. v7: stable offsets only, which makes no difference. v8: several groups. v9: id and epoch of a member,
which are checked in the consumer protocol. v10: topics by id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from logbroker.broker.topics import MAX_ITEMS
from logbroker.consumer_groups.coordinator import Coordinator
from logbroker.consumer_groups.heartbeats.member import check_epoch
from logbroker.consumer_groups.offsets import OFFSET_BYTES, Committed, stored_bytes
from logbroker.engine import Topic
from logbroker.errors import LogbrokerError, OverloadedError, UnknownTopicError
from logbroker.group_runtime.group_store import check_group_id
from logbroker.kafka_api.call import UNKNOWN_TOPIC_ID, Call, code_of, served
from logbroker.kafka_wire.apis import OFFSET_FETCH
from logbroker.kafka_wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from logbroker.types import TopicId

FIRST_WITH_GROUPS = 8
FIRST_WITH_IDS = 10
TOPIC_STEPS = 4
PARTITION_STEPS = 2
_NONE: Final = Committed(-1, -1, "", -1)


class _Room:
    """Memory that an answer may still take."""

    def __init__(self, left_bytes: int) -> None:
        self.left_bytes = left_bytes

    def take(self, metadata: str) -> None:
        """Raise OverloadedError if the answer would take too much memory with one more offset."""
        self.left_bytes -= stored_bytes(metadata)
        if self.left_bytes < 0:
            raise OverloadedError(
                "the offsets do not fit into one answer: ask for fewer groups or partitions at a time"
            )


async def _handle(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    groups = request.groups
    if call.version < FIRST_WITH_GROUPS:
        topics = request.topics
        wanted = None if topics is None else [_wish(topic.name, topic.partition_indexes) for topic in topics]
        groups = [OffsetFetchRequestGroup(group_id=request.group_id, topics=wanted)]
    call.check_item_count(
        sum(1 + sum(1 + len(topic.partition_indexes) for topic in group.topics or ()) for group in groups)
    )
    room = _Room(max(call.node.broker.config.max_group_offsets_bytes, MAX_ITEMS * OFFSET_BYTES))
    found = [await _of_group(call, group, room) for group in groups]
    if call.version >= FIRST_WITH_GROUPS:
        return OffsetFetchResponse(groups=found)
    [one] = found
    return OffsetFetchResponse(
        error_code=one.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in one.topics
        ],
    )


async def _of_group(call: Call, group: OffsetFetchRequestGroup, room: _Room) -> OffsetFetchResponseGroup:
    answer = OffsetFetchResponseGroup(group_id=group.group_id, topics=[])
    try:
        groups = call.node.groups_of(group.group_id)
        found = groups.group(group.group_id) if groups.has(group.group_id) else None
        offsets = None if found is None else found.offsets
        if found is None:
            check_group_id(group.group_id)
        elif isinstance(found, Coordinator) and (group.member_id or group.member_epoch >= 0):
            check_epoch(found, group.member_id or "", group.member_epoch)
        wanted = _all_of(call, [] if offsets is None else offsets.topic_ids()) if group.topics is None else group.topics
        for wish in wanted:
            await call.step(TOPIC_STEPS)
            topic = _topic(call, wish)
            result = OffsetFetchResponseTopics(name=wish.name, topic_id=wish.topic_id, partitions=[])
            answer.topics.append(result)
            of_topic = {} if offsets is None or topic is None else offsets.of_topic(topic.id)
            for number in sorted(of_topic) if group.topics is None else wish.partition_indexes:
                await call.step(PARTITION_STEPS)
                committed = of_topic.get(number) or _NONE
                room.take(committed.metadata)
                result.partitions.append(
                    OffsetFetchResponsePartitions(
                        partition_index=number,
                        committed_offset=committed.offset,
                        committed_leader_epoch=committed.leader_epoch,
                        metadata=committed.metadata,
                        error_code=UNKNOWN_TOPIC_ID if topic is None and call.version >= FIRST_WITH_IDS else 0,
                    )
                )
    except LogbrokerError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=code_of(error))
    return answer


def _all_of(call: Call, topic_ids: Iterable[TopicId]) -> list[OffsetFetchRequestTopics]:
    """Return a wish for all offsets of some topics."""
    wishes = []
    for topic_id in list(topic_ids):
        try:
            name = call.node.engine.topic_by_id(topic_id).name
        except UnknownTopicError:
            continue
        wishes.append(OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=[]))
    return wishes


def _wish(name: str, partitions: Sequence[int]) -> OffsetFetchRequestTopics:
    return OffsetFetchRequestTopics(name=name, partition_indexes=list(partitions))


def _topic(call: Call, wish: OffsetFetchRequestTopics) -> Topic | None:
    try:
        if call.version >= FIRST_WITH_IDS:
            return call.node.engine.topic_by_id(TopicId(wish.topic_id))
        return call.node.engine.topic(wish.name)
    except LogbrokerError:
        return None


SERVED = served(OFFSET_FETCH, 1, 10, _handle)
