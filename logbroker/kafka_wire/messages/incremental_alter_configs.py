"""IncrementalAlterConfigs, API key 44.

Generated from Apache Kafka's message definitions (proto/kafka) by `make kafka-wire`; do not edit.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from logbroker.kafka_wire.codec import MessageCodec
from logbroker.kafka_wire.primitives import (
    NO_TAGS,
    Buffer,
    Parts,
    cut_short,
    misfit,
    read_compact_count,
    read_compact_nullable_string,
    read_compact_string,
    read_count,
    read_nullable_string,
    read_string,
    skip_tags,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
    write_count,
    write_nullable_string,
    write_string,
)

_BOOL: Final = struct.Struct(">?")
_BOOL_TAGS: Final = struct.Struct(">?B")
_INT8: Final = struct.Struct(">b")
_INT8_TAGS: Final = struct.Struct(">bB")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


class IncrementalAlterConfigsRequestAlterableConfig(msgspec.Struct, kw_only=True, gc=False):
    """The configurations."""

    name: str = ""
    """The configuration key name. (string)"""
    config_operation: int = 0
    """The type (Set, Delete, Append, Subtract) of operation. (int8)"""
    value: str | None = ""
    """The value to set for the configuration key. (string)"""


class IncrementalAlterConfigsRequestAlterConfigsResource(msgspec.Struct, kw_only=True, gc=False):
    """The incremental updates for each resource."""

    resource_type: int = 0
    """The resource type. (int8)"""
    resource_name: str = ""
    """The resource name. (string)"""
    configs: list[IncrementalAlterConfigsRequestAlterableConfig] = []
    """The configurations."""


class IncrementalAlterConfigsRequest(msgspec.Struct, kw_only=True, gc=False):
    """IncrementalAlterConfigsRequest, versions 0 to 1."""

    resources: list[IncrementalAlterConfigsRequestAlterConfigsResource] = []
    """The incremental updates for each resource."""
    validate_only: bool = False
    """True if we should validate the request, but not change the configurations. (bool)"""


_INCREMENTAL_ALTER_CONFIGS_REQUEST_CODES: Final = {"validate_only": "b"}
_INCREMENTAL_ALTER_CONFIGS_REQUEST_ALTER_CONFIGS_RESOURCE_CODES: Final = {"resource_type": "b"}
_INCREMENTAL_ALTER_CONFIGS_REQUEST_ALTERABLE_CONFIG_CODES: Final = {"config_operation": "b"}


def _read_incremental_alter_configs_request_alterable_config_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[IncrementalAlterConfigsRequestAlterableConfig], int]:
    items: list[IncrementalAlterConfigsRequestAlterableConfig] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "IncrementalAlterConfigsRequestAlterableConfig.name")
        if end - at < 1:
            raise cut_short("IncrementalAlterConfigsRequestAlterableConfig.config_operation", at, end, 1)
        (config_operation,) = _INT8.unpack_from(data, at)
        at += 1
        value, at = read_nullable_string(data, at, end, "IncrementalAlterConfigsRequestAlterableConfig.value")
        items.append(
            IncrementalAlterConfigsRequestAlterableConfig(name=name, config_operation=config_operation, value=value)
        )
    return items, at


def _write_incremental_alter_configs_request_alterable_config_v0(
    out: Parts, items: Sequence[IncrementalAlterConfigsRequestAlterableConfig]
) -> None:
    try:
        for item in items:
            write_string(out, item.name, "IncrementalAlterConfigsRequestAlterableConfig.name")
            out.append(_INT8.pack(item.config_operation))
            write_nullable_string(out, item.value, "IncrementalAlterConfigsRequestAlterableConfig.value")
    except struct.error:
        raise misfit(items, _INCREMENTAL_ALTER_CONFIGS_REQUEST_ALTERABLE_CONFIG_CODES) from None


def _read_incremental_alter_configs_request_alter_configs_resource_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[IncrementalAlterConfigsRequestAlterConfigsResource], int]:
    items: list[IncrementalAlterConfigsRequestAlterConfigsResource] = []
    for _ in range(count):
        if end - at < 1:
            raise cut_short("IncrementalAlterConfigsRequestAlterConfigsResource.resource_type", at, end, 1)
        (resource_type,) = _INT8.unpack_from(data, at)
        at += 1
        resource_name, at = read_string(
            data, at, end, "IncrementalAlterConfigsRequestAlterConfigsResource.resource_name"
        )
        number, at = read_count(data, at, end, 5, "IncrementalAlterConfigsRequestAlterConfigsResource.configs")
        configs, at = _read_incremental_alter_configs_request_alterable_config_v0(data, at, end, number)
        items.append(
            IncrementalAlterConfigsRequestAlterConfigsResource(
                resource_type=resource_type, resource_name=resource_name, configs=configs
            )
        )
    return items, at


def _write_incremental_alter_configs_request_alter_configs_resource_v0(
    out: Parts, items: Sequence[IncrementalAlterConfigsRequestAlterConfigsResource]
) -> None:
    try:
        for item in items:
            out.append(_INT8.pack(item.resource_type))
            write_string(out, item.resource_name, "IncrementalAlterConfigsRequestAlterConfigsResource.resource_name")
            _write_incremental_alter_configs_request_alterable_config_v0(
                out, write_count(out, item.configs, "IncrementalAlterConfigsRequestAlterConfigsResource.configs")
            )
    except struct.error:
        raise misfit(items, _INCREMENTAL_ALTER_CONFIGS_REQUEST_ALTER_CONFIGS_RESOURCE_CODES) from None


def _read_incremental_alter_configs_request_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[IncrementalAlterConfigsRequest], int]:
    items: list[IncrementalAlterConfigsRequest] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 7, "IncrementalAlterConfigsRequest.resources")
        resources, at = _read_incremental_alter_configs_request_alter_configs_resource_v0(data, at, end, number)
        if end - at < 1:
            raise cut_short("IncrementalAlterConfigsRequest.validate_only", at, end, 1)
        (validate_only,) = _BOOL.unpack_from(data, at)
        at += 1
        items.append(IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only))
    return items, at


def _write_incremental_alter_configs_request_v0(out: Parts, items: Sequence[IncrementalAlterConfigsRequest]) -> None:
    try:
        for item in items:
            _write_incremental_alter_configs_request_alter_configs_resource_v0(
                out, write_count(out, item.resources, "IncrementalAlterConfigsRequest.resources")
            )
            out.append(_INT8.pack(item.validate_only))
    except struct.error:
        raise misfit(items, _INCREMENTAL_ALTER_CONFIGS_REQUEST_CODES) from None


def _read_incremental_alter_configs_request_alterable_config_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[IncrementalAlterConfigsRequestAlterableConfig], int]:
    items: list[IncrementalAlterConfigsRequestAlterableConfig] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "IncrementalAlterConfigsRequestAlterableConfig.name")
        if end - at < 1:
            raise cut_short("IncrementalAlterConfigsRequestAlterableConfig.config_operation", at, end, 1)
        (config_operation,) = _INT8.unpack_from(data, at)
        at += 1
        value, at = read_compact_nullable_string(data, at, end, "IncrementalAlterConfigsRequestAlterableConfig.value")
        at = (
            at + 1
            if at < end and not data[at]
            else skip_tags(data, at, end, "IncrementalAlterConfigsRequestAlterableConfig")
        )
        items.append(
            IncrementalAlterConfigsRequestAlterableConfig(name=name, config_operation=config_operation, value=value)
        )
    return items, at


def _write_incremental_alter_configs_request_alterable_config_v1(
    out: Parts, items: Sequence[IncrementalAlterConfigsRequestAlterableConfig]
) -> None:
    try:
        for item in items:
            write_compact_string(out, item.name, "IncrementalAlterConfigsRequestAlterableConfig.name")
            out.append(_INT8.pack(item.config_operation))
            write_compact_nullable_string(out, item.value, "IncrementalAlterConfigsRequestAlterableConfig.value")
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _INCREMENTAL_ALTER_CONFIGS_REQUEST_ALTERABLE_CONFIG_CODES) from None


def _read_incremental_alter_configs_request_alter_configs_resource_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[IncrementalAlterConfigsRequestAlterConfigsResource], int]:
    items: list[IncrementalAlterConfigsRequestAlterConfigsResource] = []
    for _ in range(count):
        if end - at < 1:
            raise cut_short("IncrementalAlterConfigsRequestAlterConfigsResource.resource_type", at, end, 1)
        (resource_type,) = _INT8.unpack_from(data, at)
        at += 1
        resource_name, at = read_compact_string(
            data, at, end, "IncrementalAlterConfigsRequestAlterConfigsResource.resource_name"
        )
        number, at = read_compact_count(data, at, end, 4, "IncrementalAlterConfigsRequestAlterConfigsResource.configs")
        configs, at = _read_incremental_alter_configs_request_alterable_config_v1(data, at, end, number)
        at = (
            at + 1
            if at < end and not data[at]
            else skip_tags(data, at, end, "IncrementalAlterConfigsRequestAlterConfigsResource")
        )
        items.append(
            IncrementalAlterConfigsRequestAlterConfigsResource(
                resource_type=resource_type, resource_name=resource_name, configs=configs
            )
        )
    return items, at


def _write_incremental_alter_configs_request_alter_configs_resource_v1(
    out: Parts, items: Sequence[IncrementalAlterConfigsRequestAlterConfigsResource]
) -> None:
    try:
        for item in items:
            out.append(_INT8.pack(item.resource_type))
            write_compact_string(
                out, item.resource_name, "IncrementalAlterConfigsRequestAlterConfigsResource.resource_name"
            )
            _write_incremental_alter_configs_request_alterable_config_v1(
                out,
                write_compact_count(out, item.configs, "IncrementalAlterConfigsRequestAlterConfigsResource.configs"),
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _INCREMENTAL_ALTER_CONFIGS_REQUEST_ALTER_CONFIGS_RESOURCE_CODES) from None


def _read_incremental_alter_configs_request_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[IncrementalAlterConfigsRequest], int]:
    items: list[IncrementalAlterConfigsRequest] = []
    for _ in range(count):
        number, at = read_compact_count(data, at, end, 4, "IncrementalAlterConfigsRequest.resources")
        resources, at = _read_incremental_alter_configs_request_alter_configs_resource_v1(data, at, end, number)
        if end - at < 2:
            raise cut_short("IncrementalAlterConfigsRequest.validate_only", at, end, 2)
        validate_only, tags = _BOOL_TAGS.unpack_from(data, at)
        at += 2
        if tags:
            at = skip_tags(data, at - 1, end, "IncrementalAlterConfigsRequest")
        items.append(IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only))
    return items, at


def _write_incremental_alter_configs_request_v1(out: Parts, items: Sequence[IncrementalAlterConfigsRequest]) -> None:
    try:
        for item in items:
            _write_incremental_alter_configs_request_alter_configs_resource_v1(
                out, write_compact_count(out, item.resources, "IncrementalAlterConfigsRequest.resources")
            )
            out.append(_INT8_TAGS.pack(item.validate_only, 0))
    except struct.error:
        raise misfit(items, _INCREMENTAL_ALTER_CONFIGS_REQUEST_CODES) from None


REQUEST: Final = MessageCodec(
    IncrementalAlterConfigsRequest,
    {
        0: (_read_incremental_alter_configs_request_v0, _write_incremental_alter_configs_request_v0),
        1: (_read_incremental_alter_configs_request_v1, _write_incremental_alter_configs_request_v1),
    },
)


class IncrementalAlterConfigsResponseAlterConfigsResource(msgspec.Struct, kw_only=True, gc=False):
    """The responses for each resource."""

    error_code: int = 0
    """The resource error code. (int16)"""
    error_message: str | None = ""
    """The resource error message, or null if there was no error. (string)"""
    resource_type: int = 0
    """The resource type. (int8)"""
    resource_name: str = ""
    """The resource name. (string)"""


class IncrementalAlterConfigsResponse(msgspec.Struct, kw_only=True, gc=False):
    """IncrementalAlterConfigsResponse, versions 0 to 1."""

    throttle_time_ms: int = 0
    """Duration in milliseconds for which the request was throttled due to a quota violation, or zero if the request
    did not violate any quota. (int32)"""
    responses: list[IncrementalAlterConfigsResponseAlterConfigsResource] = []
    """The responses for each resource."""


_INCREMENTAL_ALTER_CONFIGS_RESPONSE_CODES: Final = {"throttle_time_ms": "i"}
_INCREMENTAL_ALTER_CONFIGS_RESPONSE_ALTER_CONFIGS_RESOURCE_CODES: Final = {"error_code": "h", "resource_type": "b"}


def _read_incremental_alter_configs_response_alter_configs_resource_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[IncrementalAlterConfigsResponseAlterConfigsResource], int]:
    items: list[IncrementalAlterConfigsResponseAlterConfigsResource] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("IncrementalAlterConfigsResponseAlterConfigsResource.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_nullable_string(
            data, at, end, "IncrementalAlterConfigsResponseAlterConfigsResource.error_message"
        )
        if end - at < 1:
            raise cut_short("IncrementalAlterConfigsResponseAlterConfigsResource.resource_type", at, end, 1)
        (resource_type,) = _INT8.unpack_from(data, at)
        at += 1
        resource_name, at = read_string(
            data, at, end, "IncrementalAlterConfigsResponseAlterConfigsResource.resource_name"
        )
        items.append(
            IncrementalAlterConfigsResponseAlterConfigsResource(
                error_code=error_code,
                error_message=error_message,
                resource_type=resource_type,
                resource_name=resource_name,
            )
        )
    return items, at


def _write_incremental_alter_configs_response_alter_configs_resource_v0(
    out: Parts, items: Sequence[IncrementalAlterConfigsResponseAlterConfigsResource]
) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            write_nullable_string(
                out, item.error_message, "IncrementalAlterConfigsResponseAlterConfigsResource.error_message"
            )
            out.append(_INT8.pack(item.resource_type))
            write_string(out, item.resource_name, "IncrementalAlterConfigsResponseAlterConfigsResource.resource_name")
    except struct.error:
        raise misfit(items, _INCREMENTAL_ALTER_CONFIGS_RESPONSE_ALTER_CONFIGS_RESOURCE_CODES) from None


def _read_incremental_alter_configs_response_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[IncrementalAlterConfigsResponse], int]:
    items: list[IncrementalAlterConfigsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("IncrementalAlterConfigsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 7, "IncrementalAlterConfigsResponse.responses")
        responses, at = _read_incremental_alter_configs_response_alter_configs_resource_v0(data, at, end, number)
        items.append(IncrementalAlterConfigsResponse(throttle_time_ms=throttle_time_ms, responses=responses))
    return items, at


def _write_incremental_alter_configs_response_v0(out: Parts, items: Sequence[IncrementalAlterConfigsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_incremental_alter_configs_response_alter_configs_resource_v0(
                out, write_count(out, item.responses, "IncrementalAlterConfigsResponse.responses")
            )
    except struct.error:
        raise misfit(items, _INCREMENTAL_ALTER_CONFIGS_RESPONSE_CODES) from None


def _read_incremental_alter_configs_response_alter_configs_resource_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[IncrementalAlterConfigsResponseAlterConfigsResource], int]:
    items: list[IncrementalAlterConfigsResponseAlterConfigsResource] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("IncrementalAlterConfigsResponseAlterConfigsResource.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_compact_nullable_string(
            data, at, end, "IncrementalAlterConfigsResponseAlterConfigsResource.error_message"
        )
        if end - at < 1:
            raise cut_short("IncrementalAlterConfigsResponseAlterConfigsResource.resource_type", at, end, 1)
        (resource_type,) = _INT8.unpack_from(data, at)
        at += 1
        resource_name, at = read_compact_string(
            data, at, end, "IncrementalAlterConfigsResponseAlterConfigsResource.resource_name"
        )
        at = (
            at + 1
            if at < end and not data[at]
            else skip_tags(data, at, end, "IncrementalAlterConfigsResponseAlterConfigsResource")
        )
        items.append(
            IncrementalAlterConfigsResponseAlterConfigsResource(
                error_code=error_code,
                error_message=error_message,
                resource_type=resource_type,
                resource_name=resource_name,
            )
        )
    return items, at


def _write_incremental_alter_configs_response_alter_configs_resource_v1(
    out: Parts, items: Sequence[IncrementalAlterConfigsResponseAlterConfigsResource]
) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            write_compact_nullable_string(
                out, item.error_message, "IncrementalAlterConfigsResponseAlterConfigsResource.error_message"
            )
            out.append(_INT8.pack(item.resource_type))
            write_compact_string(
                out, item.resource_name, "IncrementalAlterConfigsResponseAlterConfigsResource.resource_name"
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _INCREMENTAL_ALTER_CONFIGS_RESPONSE_ALTER_CONFIGS_RESOURCE_CODES) from None


def _read_incremental_alter_configs_response_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[IncrementalAlterConfigsResponse], int]:
    items: list[IncrementalAlterConfigsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("IncrementalAlterConfigsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 6, "IncrementalAlterConfigsResponse.responses")
        responses, at = _read_incremental_alter_configs_response_alter_configs_resource_v1(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "IncrementalAlterConfigsResponse")
        items.append(IncrementalAlterConfigsResponse(throttle_time_ms=throttle_time_ms, responses=responses))
    return items, at


def _write_incremental_alter_configs_response_v1(out: Parts, items: Sequence[IncrementalAlterConfigsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_incremental_alter_configs_response_alter_configs_resource_v1(
                out, write_compact_count(out, item.responses, "IncrementalAlterConfigsResponse.responses")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _INCREMENTAL_ALTER_CONFIGS_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    IncrementalAlterConfigsResponse,
    {
        0: (_read_incremental_alter_configs_response_v0, _write_incremental_alter_configs_response_v0),
        1: (_read_incremental_alter_configs_response_v1, _write_incremental_alter_configs_response_v1),
    },
)
