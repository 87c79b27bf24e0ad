"""JoinGroup (key 11): a member joins the next generation of a classic group, and waits until it begins.

A new group waits `group_initial_rebalance_delay_seconds` (0.5 s; Kafka: 3 s) for further members. A generation begins
when all members have joined, or when the longest of their rebalance timeouts is over; those that have not joined by
then are no members any more, unless they are static. Session timeouts may be from 0.1 s to 1 h. A join of a group whose
members use gRPC is refused (INCONSISTENT_GROUP_PROTOCOL); such a group without members becomes a classic group. When
the broker stops, joins that wait are answered with NOT_COORDINATOR.

v0: the session timeout is also the rebalance timeout. v1: a rebalance timeout. v2: the throttle time. v4: a member
without an id is given one (MEMBER_ID_REQUIRED), and joins with it. v5: static members. v6: flexible. v7: the type of
the protocol in the answer. v8: the reason for joining, which is ignored. v9: a static leader that comes back finds the
group assigned (`skip_assignment`).
"""

from __future__ import annotations

import uuid

from logbroker.consumer_groups.classic.errors import MemberIdRequiredError
from logbroker.consumer_groups.classic.messages import ClassicJoin, member_id_of
from logbroker.consumer_groups.messages import MAX_CLIENT_NAME_CHARACTERS
from logbroker.errors import LogbrokerError
from logbroker.kafka_api.apis.groups.coordinator_errors import coordinator_code
from logbroker.kafka_api.call import Call, served
from logbroker.kafka_wire.apis import JOIN_GROUP
from logbroker.kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

FIRST_WITH_IDS = 4
FIRST_WITH_PROTOCOL_TYPE = 7
FIRST_WITH_SKIP = 9


async def _handle(call: Call, request: JoinGroupRequest) -> JoinGroupResponse:
    call.check_item_count(len(request.protocols))
    client_id, instance_id = call.client_id, request.group_instance_id or ""
    join = ClassicJoin(
        member_id=request.member_id,
        new_member_id=member_id_of(instance_id or client_id, str(uuid.uuid4())),
        instance_id=instance_id,
        client_id=client_id[:MAX_CLIENT_NAME_CHARACTERS],
        client_host=call.peer,
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, each.metadata) for each in request.protocols),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if call.version else request.session_timeout_ms,
        requires_known_id=call.version >= FIRST_WITH_IDS,
        may_skip_assignment=call.version >= FIRST_WITH_SKIP,
    )
    call.let_go()
    try:
        joined = await call.node.groups_of(request.group_id).join_classic(request.group_id, join)
    except LogbrokerError as error:
        return JoinGroupResponse(
            error_code=coordinator_code(error),
            protocol_name=None if call.version >= FIRST_WITH_PROTOCOL_TYPE else "",
            member_id=error.member_id if isinstance(error, MemberIdRequiredError) else request.member_id,
            members=[],
        )
    await call.step(len(joined.members))
    return JoinGroupResponse(
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol,
        leader=joined.leader_id,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(member_id=member_id, group_instance_id=instance_id or None, metadata=metadata)
            for member_id, instance_id, metadata in joined.members
        ],
    )


SERVED = served(JOIN_GROUP, 0, 9, _handle, is_waiting=True)
