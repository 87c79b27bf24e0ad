"""ConsumerGroupHeartbeat (key 68): a member of the consumer protocol (KIP-848) joins, says that it lives, or leaves,
and hears which partitions it has.

Such members and those that use gRPC belong to the same groups. The session timeout and the interval are settings of the
broker: `group_session_timeout_seconds` and `group_heartbeat_interval_seconds`. The assignor `uniform` is logbroker's
`sticky`; a group keeps the assignor of its first member while it has members. A group of the classic protocol that has
members is refused (GROUP_ID_NOT_FOUND), as in Kafka without online migration; racks are ignored.

v0: a member without an id is given one. v1: the member brings its id; topics by a regular expression (RE2).
"""

from __future__ import annotations

import uuid

from logbroker.consumer_groups.heartbeats.errors import UnsupportedAssignorError
from logbroker.consumer_groups.heartbeats.messages import ASSIGNORS, AWAY, JOINING, LEAVING, MemberHeartbeat
from logbroker.consumer_groups.messages import MAX_CLIENT_NAME_CHARACTERS
from logbroker.consumer_groups.rows import by_topic
from logbroker.errors import InvalidRequestError, LogbrokerError, UnknownGroupError, WrongGroupTypeError, quoted
from logbroker.kafka_api.apis.groups.coordinator_errors import coordinator_code
from logbroker.kafka_api.call import Call, served
from logbroker.kafka_wire.apis import CONSUMER_GROUP_HEARTBEAT
from logbroker.kafka_wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from logbroker.types import PartitionKey, TopicId

FIRST_WITH_OWN_IDS = 1


async def _handle(call: Call, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    try:
        _check(request, call.version)
        groups = call.node.groups_of(request.group_id)
        answer = await groups.heartbeat(request.group_id, await _heartbeat(call, request))
    except LogbrokerError as error:
        return ConsumerGroupHeartbeatResponse(error_code=_code_of(error), error_message=error.message)
    if answer.epoch < 0:
        return ConsumerGroupHeartbeatResponse(member_id=answer.member_id, member_epoch=answer.epoch)
    assignment = None
    if answer.partitions is not None:
        await call.step(len(answer.partitions))
        assignment = ConsumerGroupHeartbeatResponseAssignment(
            topic_partitions=[
                ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=numbers)
                for topic_id, numbers in by_topic(answer.partitions)
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=groups.heartbeat_times.interval_ms,
        assignment=assignment,
    )


def _check(request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    """Raise InvalidRequestError or UnsupportedAssignorError."""
    epoch = request.member_epoch
    if version >= FIRST_WITH_OWN_IDS or epoch > JOINING or epoch == LEAVING:
        _check_text("member id", request.member_id)
    _check_text("group id", request.group_id)
    _check_text("instance id", request.instance_id)
    _check_text("rack id", request.rack_id)
    if epoch == JOINING:
        if request.rebalance_timeout_ms == -1:
            raise InvalidRequestError("a member that joins names its rebalance timeout")
        if request.topic_partitions is None or request.topic_partitions:
            raise InvalidRequestError("a member that joins owns no partitions, and says so")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise InvalidRequestError("a member that joins names topics or a regular expression, perhaps empty ones")
    elif epoch == AWAY and request.instance_id is None:
        raise InvalidRequestError("only a static member leaves for a while: name its instance id")
    elif epoch < AWAY:
        raise InvalidRequestError(f"{epoch} is no member epoch")
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        raise UnsupportedAssignorError(
            f"there is no assignor {quoted(request.server_assignor)}; there are: {', '.join(ASSIGNORS)}"
        )


def _check_text(name: str, text: str | None) -> None:
    if text is not None and not text.strip():
        raise InvalidRequestError(f"the {name} is empty")


async def _heartbeat(call: Call, request: ConsumerGroupHeartbeatRequest) -> MemberHeartbeat:
    topics, listed = request.subscribed_topic_names, request.topic_partitions
    call.check_item_count(len(topics or ()) + sum(1 + len(each.partitions) for each in listed or ()))
    owned = None
    if listed is not None:
        await call.step(sum(1 + len(each.partitions) for each in listed))
        owned = frozenset(PartitionKey(TopicId(each.topic_id), number) for each in listed for number in each.partitions)
    return MemberHeartbeat(
        member_id=request.member_id or str(uuid.uuid4()),
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rebalance_timeout_ms=None if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
        topics=None if topics is None else tuple(topics),
        topic_pattern=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=owned,
        client_id=call.client_id[:MAX_CLIENT_NAME_CHARACTERS],
        client_host=call.peer,
    )


def _code_of(error: LogbrokerError) -> int:
    return UnknownGroupError.kafka_code if isinstance(error, WrongGroupTypeError) else coordinator_code(error)


SERVED = served(CONSUMER_GROUP_HEARTBEAT, 0, 1, _handle)
