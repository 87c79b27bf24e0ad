"""ApiVersions (key 18): the APIs and versions that this broker answers. It is the first request of most clients.

Only what is implemented is announced. Produce is announced from version 0, although versions 0 to 2 are refused when
they are used: librdkafka before 2.11.1 sends uncompressed batches to brokers that announce a higher one (KAFKA-18659).

v0: the ranges. v1: adds the throttle time. v3: flexible; adds name and version of the client, and features, of which
there are none. v4: as v3. v5 would check the cluster and node ids; it is not announced. An unknown version is answered
in the encoding of v0, with UNSUPPORTED_VERSION and the range of this API. The client then repeats the request in a
version of this range.
"""

from __future__ import annotations

from logbroker.kafka_api.call import UNSUPPORTED_VERSION, Call, served
from logbroker.kafka_wire.apis import API_VERSIONS
from logbroker.kafka_wire.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseVersion,
)


async def _handle(call: Call, request: ApiVersionsRequest | None) -> ApiVersionsResponse:
    if request is None:
        return ApiVersionsResponse(error_code=UNSUPPORTED_VERSION, api_keys=_ranges(call, only=API_VERSIONS.key))
    return ApiVersionsResponse(api_keys=_ranges(call))


def _ranges(call: Call, only: int | None = None) -> list[ApiVersionsResponseVersion]:
    return [
        ApiVersionsResponseVersion(api_key=key, min_version=each.least_announced, max_version=each.versions[-1])
        for key, each in sorted(call.node.announced.items())
        if only in (None, key)
    ]


SERVED = served(API_VERSIONS, 0, 4, _handle)
