"""ConsumerGroupDescribe (key 69): groups of the consumer protocol, with all members, those that use gRPC included.
Other groups are unknown (GROUP_ID_NOT_FOUND), as in Kafka.

An answer has at most 200,000 partitions of members (GROUP_MAX_SIZE_REACHED for the groups beyond). Authorized
operations are not told.

v1: the type of each member, which is always `consumer`.
"""

from __future__ import annotations

from collections.abc import Iterable

from logbroker.consumer_groups.coordinator import Coordinator
from logbroker.consumer_groups.heartbeats.messages import ASSIGNORS
from logbroker.consumer_groups.member import Member
from logbroker.consumer_groups.rows import by_topic
from logbroker.errors import LogbrokerError, UnknownGroupError, UnknownTopicError, WrongGroupTypeError
from logbroker.kafka_api.apis.groups.list_groups import STATES
from logbroker.kafka_api.call import GROUP_MAX_SIZE_REACHED, Call, Node, code_of, served
from logbroker.kafka_wire.apis import CONSUMER_GROUP_DESCRIBE
from logbroker.kafka_wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponseAssignment,
    ConsumerGroupDescribeResponseDescribedGroup,
    ConsumerGroupDescribeResponseMember,
    ConsumerGroupDescribeResponseTopicPartitions,
)
from logbroker.types import PartitionKey, TopicId

CONSUMER_MEMBER = 1
GROUP_STEPS = 10
MEMBER_STEPS = 10
MAX_PARTITIONS = 200_000
KAFKA_NAMES = {own: name for name, own in ASSIGNORS.items()}


async def _handle(call: Call, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    call.check_item_count(len(request.group_ids))
    response = ConsumerGroupDescribeResponse(groups=[])
    left = MAX_PARTITIONS
    for group_id in dict.fromkeys(request.group_ids):
        await call.step(GROUP_STEPS)
        try:
            group = call.node.groups_of(group_id).group(group_id)
            if not isinstance(group, Coordinator):
                raise WrongGroupTypeError(f"group {group_id} uses the classic protocol")
        except LogbrokerError as error:
            code = UnknownGroupError.kafka_code if isinstance(error, WrongGroupTypeError) else code_of(error)
            described = ConsumerGroupDescribeResponseDescribedGroup(
                group_id=group_id, error_code=code, error_message=error.message, members=[]
            )
        else:
            members = list(group.machine.members())
            left -= sum(len(member.held) + len(group.machine.target(member)) for member in members)
            described = await _described(call, group, members if left >= 0 else None)
        response.groups.append(described)
    return response


async def _described(
    call: Call, group: Coordinator, members: list[Member] | None
) -> ConsumerGroupDescribeResponseDescribedGroup:
    """Describe a group; without members, as one that is too large."""
    machine = group.machine
    if members is None:
        return ConsumerGroupDescribeResponseDescribedGroup(
            group_id=group.group_id,
            error_code=GROUP_MAX_SIZE_REACHED,
            error_message="the members have too many partitions for one answer: ask for fewer groups",
            members=[],
        )
    # All members as they are now: otherwise a partition that moves meanwhile could be listed with two owners.
    found = [
        (member.join, member.epoch, member.subscription, member.held, machine.target(member)) for member in members
    ]
    described = ConsumerGroupDescribeResponseDescribedGroup(
        group_id=group.group_id,
        group_state=STATES[machine.state],
        group_epoch=machine.epoch,
        assignment_epoch=machine.epoch,
        assignor_name=KAFKA_NAMES.get(machine.assignor, machine.assignor),
        members=[],
    )
    for join, epoch, subscription, held, target in found:
        described.members.append(
            ConsumerGroupDescribeResponseMember(
                member_id=join.member_id,
                instance_id=join.instance_id or None,
                member_epoch=epoch,
                client_id=join.client_name,
                client_host=f"/{join.client_host}" if join.client_host else "",  # As Java writes addresses.
                subscribed_topic_names=list(subscription.topics),
                subscribed_topic_regex=subscription.topic_pattern or None,
                assignment=_assignment(call.node, held),
                target_assignment=_assignment(call.node, target),
                member_type=CONSUMER_MEMBER,
            )
        )
        await call.step(MEMBER_STEPS + len(subscription.topics) + 2 * (len(held) + len(target)))
    return described


def _assignment(node: Node, partitions: Iterable[PartitionKey]) -> ConsumerGroupDescribeResponseAssignment:
    listed = []
    for topic_id, numbers in by_topic(partitions):
        try:
            name = node.engine.topic_by_id(TopicId(topic_id)).name
        except UnknownTopicError:
            continue  # It was deleted just now.
        listed.append(
            ConsumerGroupDescribeResponseTopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers)
        )
    return ConsumerGroupDescribeResponseAssignment(topic_partitions=listed)


SERVED = served(CONSUMER_GROUP_DESCRIBE, 0, 1, _handle)
