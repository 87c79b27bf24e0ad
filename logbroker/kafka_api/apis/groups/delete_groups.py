"""DeleteGroups (key 42): deletes groups of consumers, those that use gRPC included, with their committed offsets. They
must have no members.

v1: adds the throttle time. v2: flexible.
"""

from __future__ import annotations

from logbroker.errors import LogbrokerError, UnknownGroupError, WrongGroupTypeError
from logbroker.kafka_api.call import Call, code_of, served
from logbroker.kafka_wire.apis import DELETE_GROUPS
from logbroker.kafka_wire.messages.delete_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteGroupsResponseDeletableGroupResult,
)

GROUP_STEPS = 50


async def _handle(call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    call.check_item_count(len(request.groups_names))
    response = DeleteGroupsResponse(results=[])
    for group_id in dict.fromkeys(request.groups_names):
        await call.step(GROUP_STEPS)
        result = DeleteGroupsResponseDeletableGroupResult(group_id=group_id)
        response.results.append(result)
        try:
            await call.node.groups_of(group_id).delete(group_id)
        except WrongGroupTypeError:
            result.error_code = UnknownGroupError.kafka_code
        except LogbrokerError as error:
            result.error_code = code_of(error)
    return response


SERVED = served(DELETE_GROUPS, 0, 2, _handle)
