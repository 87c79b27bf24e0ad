"""IncrementalAlterConfigs (key 44): sets configs of topics, or resets them to their defaults.

No config is a list, so nothing can be appended or subtracted (INVALID_CONFIG). The settings of the broker cannot be
altered (INVALID_REQUEST). The changes of one topic are made together, or none is.

v0: whether to check only. v1: flexible.
"""

from __future__ import annotations

from logbroker.errors import InvalidConfigError, InvalidRequestError, quoted
from logbroker.kafka_api.call import Call, served
from logbroker.kafka_api.config_resources import ConfigChange, alter_resources
from logbroker.kafka_wire.apis import INCREMENTAL_ALTER_CONFIGS
from logbroker.kafka_wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseAlterConfigsResource,
)

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


async def _handle(call: Call, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    call.check_item_count(sum(1 + len(resource.configs) for resource in request.resources))
    outcomes = await alter_resources(call, request.resources, _change, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[IncrementalAlterConfigsResponseAlterConfigsResource(**each._asdict()) for each in outcomes]
    )


def _change(resource: IncrementalAlterConfigsRequestAlterConfigsResource) -> ConfigChange:
    change = ConfigChange({}, [])
    for config in resource.configs:
        name, operation = config.name, config.config_operation
        if name in change.set or name in change.unset:
            raise InvalidRequestError(f"the request names {quoted(name)} twice")
        if operation == DELETE:
            change.unset.append(name)
        elif operation == SET and config.value is not None:
            change.set[name] = config.value
        elif operation == SET:
            raise InvalidRequestError(f"{quoted(name)} has no value")
        elif operation in (APPEND, SUBTRACT):
            raise InvalidConfigError(f"{quoted(name)} is no list: set it, or delete it")
        else:
            raise InvalidRequestError(f"{quoted(name)} has the operation {operation}; use 0 (set) or 1 (delete)")
    return change


SERVED = served(INCREMENTAL_ALTER_CONFIGS, 0, 1, _handle)
