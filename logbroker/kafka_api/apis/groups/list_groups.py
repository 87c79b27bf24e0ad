"""ListGroups (key 16): all groups of consumers, those that use gRPC included. Queue groups are not listed: no Kafka
client can use them.

v1: adds the throttle time. v3: flexible. v4: only groups in some states; the states in the answer. v5: only groups of
some types; the types in the answer. Filters ignore case.
"""

from __future__ import annotations

from logbroker.consumer_groups.classic.classic_coordinator import ClassicCoordinator
from logbroker.consumer_groups.classic.consumer_protocol import PROTOCOL_TYPE
from logbroker.consumer_groups.classic.rows import CLASSIC_TYPE
from logbroker.consumer_groups.groups import AnyGroup
from logbroker.consumer_groups.rows import GROUP_TYPE
from logbroker.errors import LogbrokerError
from logbroker.kafka_api.call import Call, served
from logbroker.kafka_wire.apis import LIST_GROUPS
from logbroker.kafka_wire.messages.list_groups import (
    ListGroupsRequest,
    ListGroupsResponse,
    ListGroupsResponseListedGroup,
)

GROUP_STEPS = 4
STATES = {"empty": "Empty", "stable": "Stable", "rebalancing": "Reconciling"}
"""Kafka's names for the states of groups that use gRPC."""


async def _handle(call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    call.check_item_count(len(request.states_filter) + len(request.types_filter))
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    response = ListGroupsResponse(groups=[])
    for group_id in sorted(each for home in call.node.broker.homes.all() for each in home.groups.ids()):
        try:
            group = call.node.groups_of(group_id).group(group_id)
        except LogbrokerError:
            continue  # It was deleted meanwhile, or moved.
        await call.step(GROUP_STEPS + (0 if isinstance(group, ClassicCoordinator) else len(group.machine)))
        listed = _listed(group)
        if (not states or listed.group_state.lower() in states) and (not types or listed.group_type in types):
            response.groups.append(listed)
    return response


def _listed(group: AnyGroup) -> ListGroupsResponseListedGroup:
    if isinstance(group, ClassicCoordinator):
        return ListGroupsResponseListedGroup(
            group_id=group.group_id,
            protocol_type=group.machine.protocol_type,
            group_state=group.machine.state.value,
            group_type=CLASSIC_TYPE,
        )
    return ListGroupsResponseListedGroup(
        group_id=group.group_id,
        protocol_type=PROTOCOL_TYPE,
        group_state=STATES[group.machine.state],
        group_type=GROUP_TYPE,
    )


SERVED = served(LIST_GROUPS, 0, 5, _handle)
