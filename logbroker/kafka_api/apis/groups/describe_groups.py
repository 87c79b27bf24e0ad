"""DescribeGroups (key 15): classic groups with their members. Other groups count as unknown, as in Kafka: a group that
does not exist is Dead, from v6 on with GROUP_ID_NOT_FOUND.

Members have their metadata and assignments in a stable group only. An answer has at most 32 MiB of members
(GROUP_MAX_SIZE_REACHED for the groups beyond). Authorized operations are not told.

v1: adds the throttle time. v3: authorized operations. v4: static members. v5: flexible. v6: errors of unknown groups.
"""

from __future__ import annotations

from logbroker.consumer_groups.classic.group import ClassicState
from logbroker.errors import LogbrokerError, UnknownMemberError
from logbroker.kafka_api.call import GROUP_MAX_SIZE_REACHED, Call, code_of, served
from logbroker.kafka_wire.apis import DESCRIBE_GROUPS
from logbroker.kafka_wire.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseDescribedGroup,
    DescribeGroupsResponseDescribedGroupMember,
)

FIRST_WITH_ERRORS = 6
GROUP_ID_NOT_FOUND = 69
GROUP_STEPS = 10
MAX_BYTES = 32 * 1024 * 1024
DEAD = "Dead"


async def _handle(call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    call.check_item_count(len(request.groups))
    response = DescribeGroupsResponse(groups=[])
    left_bytes = MAX_BYTES
    for group_id in dict.fromkeys(request.groups):
        described = _described(call, group_id)
        size_bytes = sum(
            len(each.member_metadata) + len(each.member_assignment) + len(each.member_id) for each in described.members
        )
        if size_bytes > left_bytes:
            described = DescribeGroupsResponseDescribedGroup(
                group_id=group_id, error_code=GROUP_MAX_SIZE_REACHED, members=[]
            )
        else:
            left_bytes -= size_bytes
        response.groups.append(described)
        await call.step(GROUP_STEPS + len(described.members))
    return response


def _described(call: Call, group_id: str) -> DescribeGroupsResponseDescribedGroup:
    try:
        machine = call.node.groups_of(group_id).classic_group(group_id).machine
    except UnknownMemberError:
        result = DescribeGroupsResponseDescribedGroup(group_id=group_id, group_state=DEAD, members=[])
        if call.version >= FIRST_WITH_ERRORS:
            result.error_code = GROUP_ID_NOT_FOUND
            result.error_message = f"there is no classic group {group_id}"
        return result
    except LogbrokerError as error:
        return DescribeGroupsResponseDescribedGroup(group_id=group_id, error_code=code_of(error), members=[])
    is_stable = machine.state is ClassicState.STABLE
    return DescribeGroupsResponseDescribedGroup(
        group_id=group_id,
        group_state=machine.state.value,
        protocol_type=machine.protocol_type,
        protocol_data=machine.protocol if is_stable else "",
        members=[
            DescribeGroupsResponseDescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.join.instance_id or None,
                client_id=member.join.client_id,
                client_host=f"/{member.join.client_host}",  # As Java writes addresses.
                member_metadata=member.metadata(machine.protocol) if is_stable else b"",
                member_assignment=member.assignment if is_stable else b"",
            )
            for member in machine.members()
        ],
    )


SERVED = served(DESCRIBE_GROUPS, 0, 6, _handle)
