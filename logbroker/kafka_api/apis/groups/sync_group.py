"""SyncGroup (key 14): the leader of a generation gives all members their assignments; the others wait for theirs.

The assignment is stored before anybody gets it. A member that does not ask for its assignment within the rebalance
timeout is removed, as in Kafka.

v1: adds the throttle time. v3: static members. v4: flexible. v5: type and name of the protocol, checked and answered.
"""

from __future__ import annotations

from logbroker.errors import LogbrokerError
from logbroker.kafka_api.apis.groups.coordinator_errors import coordinator_code
from logbroker.kafka_api.call import Call, served
from logbroker.kafka_wire.apis import SYNC_GROUP
from logbroker.kafka_wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


async def _handle(call: Call, request: SyncGroupRequest) -> SyncGroupResponse:
    call.check_item_count(len(request.assignments))
    call.let_go()
    try:
        synced = (
            await call.node.groups_of(request.group_id)
            .classic_group(request.group_id)
            .sync(
                request.member_id,
                request.group_instance_id or "",
                request.generation_id,
                request.protocol_type,
                request.protocol_name,
                {each.member_id: each.assignment for each in request.assignments},
            )
        )
    except LogbrokerError as error:
        return SyncGroupResponse(error_code=coordinator_code(error))
    return SyncGroupResponse(
        protocol_type=synced.protocol_type, protocol_name=synced.protocol, assignment=synced.assignment
    )


SERVED = served(SYNC_GROUP, 0, 5, _handle, is_waiting=True)
