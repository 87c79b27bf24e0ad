"""FindCoordinator (key 10): the node of a group or a transactional id, which is always this one.

Transactions are not served yet: the requests that follow are refused. Other kinds of keys are refused
(INVALID_REQUEST).

v0: groups only. v1: the kind of key, and the throttle time. v3: flexible. v4: several keys. v5: errors of transactions.
"""

from __future__ import annotations

from logbroker.kafka_api.call import INVALID_REQUEST, NODE_ID, Call, served
from logbroker.kafka_wire.apis import FIND_COORDINATOR
from logbroker.kafka_wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)

GROUP, TRANSACTION = 0, 1
FIRST_WITH_LIST = 4


async def _handle(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if call.version >= FIRST_WITH_LIST else [request.key]
    call.check_item_count(len(keys))
    address = call.address
    found = []
    for key in keys:
        await call.step(2)
        one = FindCoordinatorResponseCoordinator(key=key, node_id=NODE_ID, host=address.host, port=address.port)
        one.error_message = None
        if request.key_type not in (GROUP, TRANSACTION):
            one = FindCoordinatorResponseCoordinator(
                key=key,
                node_id=-1,
                port=-1,
                error_code=INVALID_REQUEST,
                error_message=f"keys of type {request.key_type} have no coordinator here",
            )
        found.append(one)
    if call.version >= FIRST_WITH_LIST:
        return FindCoordinatorResponse(coordinators=found)
    [one] = found
    return FindCoordinatorResponse(
        error_code=one.error_code, error_message=one.error_message, node_id=one.node_id, host=one.host, port=one.port
    )


SERVED = served(FIND_COORDINATOR, 0, 5, _handle)
