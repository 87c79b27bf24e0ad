"""DescribeConfigs (key 32): the configs of topics, and the settings of the broker.

Sources: a topic's own config (1), the broker's file (4: `topic_defaults` for a topic), or the built-in default (5). The
settings of the broker, and the configs that decide in which partition a record lies, are read-only. Nothing is
sensitive. Other types of resources are refused (INVALID_REQUEST).

v1: sources and synonyms. v2: as v1. v3: types of values, and documentation. v4: flexible.
"""

from __future__ import annotations

from logbroker.errors import LogbrokerError
from logbroker.kafka_api.call import Call, code_of, served
from logbroker.kafka_api.config_resources import (
    BROKER,
    TOPIC,
    WantedConfigs,
    broker_entries,
    check_broker_name,
    topic_entries,
    topic_named,
    unknown_type,
)
from logbroker.kafka_wire.apis import DESCRIBE_CONFIGS
from logbroker.kafka_wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseResourceResult,
    DescribeConfigsResponseResult,
)

RESOURCE_STEPS = 60


async def _handle(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    call.check_item_count(sum(1 + len(resource.configuration_keys or ()) for resource in request.resources))
    results: dict[tuple[int, str], DescribeConfigsResponseResult] = {}
    for resource in request.resources:
        key = resource.resource_type, resource.resource_name
        if key in results:
            continue
        await call.step(RESOURCE_STEPS)
        result = DescribeConfigsResponseResult(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        results[key] = result
        try:
            result.configs = _entries(call, request, resource)
        except LogbrokerError as error:
            result.error_code, result.error_message = code_of(error), error.message
    return DescribeConfigsResponse(results=list(results.values()))


def _entries(
    call: Call, request: DescribeConfigsRequest, resource: DescribeConfigsRequestResource
) -> list[DescribeConfigsResponseResourceResult]:
    wanted = WantedConfigs(
        frozenset(resource.configuration_keys or ()), request.include_synonyms, request.include_documentation
    )
    config = call.node.broker.config
    if resource.resource_type == TOPIC:
        return topic_entries(topic_named(call, resource.resource_name), config, wanted)
    if resource.resource_type == BROKER:
        check_broker_name(resource.resource_name)
        # Without a name, the defaults of all brokers are wanted that were set while they run: there are none.
        return broker_entries(config, wanted) if resource.resource_name else []
    raise unknown_type(resource.resource_type)


SERVED = served(DESCRIBE_CONFIGS, 1, 4, _handle)
