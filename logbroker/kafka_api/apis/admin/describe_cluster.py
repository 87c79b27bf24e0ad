"""DescribeCluster (key 60): the one node, which is the controller as well, and the id of the cluster.

v0: flexible from the start. v1: whether brokers or controllers are wanted; controllers are not served here
(MISMATCHED_ENDPOINT_TYPE). v2: brokers that are fenced, of which there are none.
"""

from __future__ import annotations

from logbroker.kafka_api.call import MISMATCHED_ENDPOINT_TYPE, NODE_ID, UNSUPPORTED_ENDPOINT_TYPE, Call, served
from logbroker.kafka_wire.apis import DESCRIBE_CLUSTER
from logbroker.kafka_wire.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeClusterResponseBroker,
)

BROKERS, CONTROLLERS = 1, 2


async def _handle(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        is_known = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            error_code=MISMATCHED_ENDPOINT_TYPE if is_known else UNSUPPORTED_ENDPOINT_TYPE,
            error_message="only brokers are described here",
        )
    address = call.address
    return DescribeClusterResponse(
        cluster_id=call.node.cluster_id,
        controller_id=NODE_ID,
        brokers=[DescribeClusterResponseBroker(broker_id=NODE_ID, host=address.host, port=address.port)],
    )


SERVED = served(DESCRIBE_CLUSTER, 0, 2, _handle)
