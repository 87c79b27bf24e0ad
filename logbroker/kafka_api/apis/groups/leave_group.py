"""LeaveGroup (key 13): members leave a classic group, and the others join its next generation.

v1: adds the throttle time. v3: several members; static ones may be named by their instance ids alone. v4: flexible.
v5: reasons, which are ignored.
"""

from __future__ import annotations

from logbroker.errors import LogbrokerError
from logbroker.kafka_api.call import Call, code_of, served
from logbroker.kafka_wire.apis import LEAVE_GROUP
from logbroker.kafka_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, LeaveGroupResponseMember

FIRST_WITH_LIST = 3
MEMBER_STEPS = 2


async def _handle(call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse:
    if call.version < FIRST_WITH_LIST:
        named = [(request.member_id, "")]
    else:
        named = [(each.member_id, each.group_instance_id or "") for each in request.members]
    call.check_item_count(len(named))
    try:
        outcomes = await call.node.groups_of(request.group_id).classic_group(request.group_id).leave(named)
    except LogbrokerError as error:
        return LeaveGroupResponse(error_code=code_of(error), members=[])
    if call.version < FIRST_WITH_LIST:
        [outcome] = outcomes
        return LeaveGroupResponse(error_code=0 if outcome is None else code_of(outcome), members=[])
    members: list[LeaveGroupResponseMember] = []
    for (member_id, instance_id), outcome in zip(named, outcomes, strict=True):
        await call.step(MEMBER_STEPS)
        code = 0 if outcome is None else code_of(outcome)
        members.append(
            LeaveGroupResponseMember(member_id=member_id, group_instance_id=instance_id or None, error_code=code)
        )
    return LeaveGroupResponse(members=members)


SERVED = served(LEAVE_GROUP, 0, 5, _handle)
