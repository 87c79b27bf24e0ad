"""AlterConfigs (key 33): replaces all configs of topics. What is not named goes back to its default.

The configs that decide in which partition a record lies cannot change. They stay if they are not named, and another
value for them is refused (POLICY_VIOLATION). The settings of the broker cannot be altered (INVALID_REQUEST).
IncrementalAlterConfigs is the better choice, since it leaves alone what it does not name.

v0: whether to check only. v1: as v0. v2: flexible.
"""

from __future__ import annotations

from logbroker.config import FIXED_CONFIGS, TOPIC_CONFIGS
from logbroker.errors import InvalidRequestError, quoted
from logbroker.kafka_api.call import Call, served
from logbroker.kafka_api.config_resources import ConfigChange, alter_resources
from logbroker.kafka_wire.apis import ALTER_CONFIGS
from logbroker.kafka_wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsRequestResource,
    AlterConfigsResponse,
    AlterConfigsResponseResource,
)


async def _handle(call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    call.check_item_count(sum(1 + len(resource.configs) for resource in request.resources))
    outcomes = await alter_resources(call, request.resources, _change, validate_only=request.validate_only)
    return AlterConfigsResponse(responses=[AlterConfigsResponseResource(**each._asdict()) for each in outcomes])


def _change(resource: AlterConfigsRequestResource) -> ConfigChange:
    values: dict[str, str] = {}
    for config in resource.configs:
        if config.name in values:
            raise InvalidRequestError(f"the request names {quoted(config.name)} twice")
        if config.value is None:
            raise InvalidRequestError(f"{quoted(config.name)} has no value")
        values[config.name] = config.value
    return ConfigChange(values, [name for name in TOPIC_CONFIGS if name not in values and name not in FIXED_CONFIGS])


SERVED = served(ALTER_CONFIGS, 0, 2, _handle)
