"""Heartbeat (key 12): a member of a classic group says that it lives, and hears whether it must join again.

v1: adds the throttle time. v3: static members. v4: flexible.
"""

from __future__ import annotations

from logbroker.errors import LogbrokerError
from logbroker.kafka_api.call import Call, code_of, served
from logbroker.kafka_wire.apis import HEARTBEAT
from logbroker.kafka_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


async def _handle(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    try:
        call.node.groups_of(request.group_id).classic_group(request.group_id).heartbeat(
            request.member_id, request.group_instance_id or "", request.generation_id
        )
    except LogbrokerError as error:
        return HeartbeatResponse(error_code=code_of(error))
    return HeartbeatResponse()


SERVED = served(HEARTBEAT, 0, 4, _handle)
