"""OffsetDelete (key 47): deletes committed offsets of a group, durably.

While a group has members, offsets of topics that one of them subscribes to stay (GROUP_SUBSCRIBED_TO_TOPIC). If it is
not known what the members subscribe to, since they are no consumers, all stay (NON_EMPTY_GROUP).

v0: the only version.
"""

from __future__ import annotations

from collections.abc import Set

from logbroker.consumer_groups.classic.classic_coordinator import ClassicCoordinator
from logbroker.consumer_groups.classic.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from logbroker.consumer_groups.groups import AnyGroup
from logbroker.errors import GroupNotEmptyError, LogbrokerError, UnknownPartitionError
from logbroker.kafka_api.call import GROUP_SUBSCRIBED_TO_TOPIC, Call, code_of, served
from logbroker.kafka_wire.apis import OFFSET_DELETE
from logbroker.kafka_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from logbroker.types import PartitionKey

ITEM_STEPS = 4
BYTES_PER_STEP = 16


async def _handle(call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    call.check_item_count(sum(1 + len(topic.partitions) for topic in request.topics))
    response = OffsetDeleteResponse(topics=[])
    try:
        group = call.node.groups_of(request.group_id).group(request.group_id)
        subscribed = await _subscribed(call, group)
        found: list[PartitionKey] = []
        for wish in request.topics:
            result = OffsetDeleteResponseTopic(name=wish.name, partitions=[])
            response.topics.append(result)
            for number in [each.partition_index for each in wish.partitions]:
                await call.step(ITEM_STEPS)
                code = 0
                try:
                    topic = call.node.engine.topic(wish.name)
                    if not 0 <= number < topic.partitions:
                        raise UnknownPartitionError(f"topic {topic.name} has no partition {number}")
                    if topic.name in subscribed:
                        code = GROUP_SUBSCRIBED_TO_TOPIC
                    else:
                        found.append(PartitionKey(topic.id, number))
                except LogbrokerError as error:
                    code = code_of(error)
                result.partitions.append(OffsetDeleteResponsePartition(partition_index=number, error_code=code))
        await group.delete_offsets(found)
    except LogbrokerError as error:
        return OffsetDeleteResponse(error_code=code_of(error), topics=[])
    return response


async def _subscribed(call: Call, group: AnyGroup) -> Set[str]:
    """Return the names of the topics that members subscribe to. Raises GroupNotEmptyError if that is not known."""
    if not len(group.machine):
        return set()
    if not isinstance(group, ClassicCoordinator):
        return group.machine.subscribed_topics()
    if group.machine.protocol_type != PROTOCOL_TYPE:
        raise GroupNotEmptyError("the group has members, and it is not known what they subscribe to: stop them first")
    names: set[str] = set()
    for member in list(group.machine.members()):
        names.update(subscribed_topics(group.machine, member))
        await call.step(ITEM_STEPS + member.size_bytes // BYTES_PER_STEP)
    return names


SERVED = served(OFFSET_DELETE, 0, 0, _handle)
