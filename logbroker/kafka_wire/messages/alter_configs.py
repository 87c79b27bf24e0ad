"""AlterConfigs, API key 33.

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


class AlterConfigsRequestAlterableConfig(msgspec.Struct, kw_only=True, gc=False):
    """The configurations."""

    name: str = ""
    """The configuration key name. (string)"""
    value: str | None = ""
    """The value to set for the configuration key. (string)"""


class AlterConfigsRequestResource(msgspec.Struct, kw_only=True, gc=False):
    """The updates for each resource."""

    resource_type: int = 0
    """The resource type. (int8)"""
    resource_name: str = ""
    """The resource name. (string)"""
    configs: list[AlterConfigsRequestAlterableConfig] = []
    """The configurations."""


class AlterConfigsRequest(msgspec.Struct, kw_only=True, gc=False):
    """AlterConfigsRequest, versions 0 to 2."""

    resources: list[AlterConfigsRequestResource] = []
    """The updates for each resource."""
    validate_only: bool = False
    """True if we should validate the request, but not change the configurations. (bool)"""


_ALTER_CONFIGS_REQUEST_CODES: Final = {"validate_only": "b"}
_ALTER_CONFIGS_REQUEST_RESOURCE_CODES: Final = {"resource_type": "b"}


def _read_alter_configs_request_alterable_config_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[AlterConfigsRequestAlterableConfig], int]:
    items: list[AlterConfigsRequestAlterableConfig] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "AlterConfigsRequestAlterableConfig.name")
        value, at = read_nullable_string(data, at, end, "AlterConfigsRequestAlterableConfig.value")
        items.append(AlterConfigsRequestAlterableConfig(name=name, value=value))
    return items, at


def _write_alter_configs_request_alterable_config_v0(
    out: Parts, items: Sequence[AlterConfigsRequestAlterableConfig]
) -> None:
    for item in items:
        write_string(out, item.name, "AlterConfigsRequestAlterableConfig.name")
        write_nullable_string(out, item.value, "AlterConfigsRequestAlterableConfig.value")


def _read_alter_configs_request_resource_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[AlterConfigsRequestResource], int]:
    items: list[AlterConfigsRequestResource] = []
    for _ in range(count):
        if end - at < 1:
            raise cut_short("AlterConfigsRequestResource.resource_type", at, end, 1)
        (resource_type,) = _INT8.unpack_from(data, at)
        at += 1
        resource_name, at = read_string(data, at, end, "AlterConfigsRequestResource.resource_name")
        number, at = read_count(data, at, end, 4, "AlterConfigsRequestResource.configs")
        configs, at = _read_alter_configs_request_alterable_config_v0(data, at, end, number)
        items.append(
            AlterConfigsRequestResource(resource_type=resource_type, resource_name=resource_name, configs=configs)
        )
    return items, at


def _write_alter_configs_request_resource_v0(out: Parts, items: Sequence[AlterConfigsRequestResource]) -> None:
    try:
        for item in items:
            out.append(_INT8.pack(item.resource_type))
            write_string(out, item.resource_name, "AlterConfigsRequestResource.resource_name")
            _write_alter_configs_request_alterable_config_v0(
                out, write_count(out, item.configs, "AlterConfigsRequestResource.configs")
            )
    except struct.error:
        raise misfit(items, _ALTER_CONFIGS_REQUEST_RESOURCE_CODES) from None


def _read_alter_configs_request_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[AlterConfigsRequest], int]:
    items: list[AlterConfigsRequest] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 7, "AlterConfigsRequest.resources")
        resources, at = _read_alter_configs_request_resource_v0(data, at, end, number)
        if end - at < 1:
            raise cut_short("AlterConfigsRequest.validate_only", at, end, 1)
        (validate_only,) = _BOOL.unpack_from(data, at)
        at += 1
        items.append(AlterConfigsRequest(resources=resources, validate_only=validate_only))
    return items, at


def _write_alter_configs_request_v0(out: Parts, items: Sequence[AlterConfigsRequest]) -> None:
    try:
        for item in items:
            _write_alter_configs_request_resource_v0(
                out, write_count(out, item.resources, "AlterConfigsRequest.resources")
            )
            out.append(_INT8.pack(item.validate_only))
    except struct.error:
        raise misfit(items, _ALTER_CONFIGS_REQUEST_CODES) from None


def _read_alter_configs_request_alterable_config_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[AlterConfigsRequestAlterableConfig], int]:
    items: list[AlterConfigsRequestAlterableConfig] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "AlterConfigsRequestAlterableConfig.name")
        value, at = read_compact_nullable_string(data, at, end, "AlterConfigsRequestAlterableConfig.value")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "AlterConfigsRequestAlterableConfig")
        items.append(AlterConfigsRequestAlterableConfig(name=name, value=value))
    return items, at


def _write_alter_configs_request_alterable_config_v2(
    out: Parts, items: Sequence[AlterConfigsRequestAlterableConfig]
) -> None:
    for item in items:
        write_compact_string(out, item.name, "AlterConfigsRequestAlterableConfig.name")
        write_compact_nullable_string(out, item.value, "AlterConfigsRequestAlterableConfig.value")
        out.append(NO_TAGS)


def _read_alter_configs_request_resource_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[AlterConfigsRequestResource], int]:
    items: list[AlterConfigsRequestResource] = []
    for _ in range(count):
        if end - at < 1:
            raise cut_short("AlterConfigsRequestResource.resource_type", at, end, 1)
        (resource_type,) = _INT8.unpack_from(data, at)
        at += 1
        resource_name, at = read_compact_string(data, at, end, "AlterConfigsRequestResource.resource_name")
        number, at = read_compact_count(data, at, end, 3, "AlterConfigsRequestResource.configs")
        configs, at = _read_alter_configs_request_alterable_config_v2(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "AlterConfigsRequestResource")
        items.append(
            AlterConfigsRequestResource(resource_type=resource_type, resource_name=resource_name, configs=configs)
        )
    return items, at


def _write_alter_configs_request_resource_v2(out: Parts, items: Sequence[AlterConfigsRequestResource]) -> None:
    try:
        for item in items:
            out.append(_INT8.pack(item.resource_type))
            write_compact_string(out, item.resource_name, "AlterConfigsRequestResource.resource_name")
            _write_alter_configs_request_alterable_config_v2(
                out, write_compact_count(out, item.configs, "AlterConfigsRequestResource.configs")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _ALTER_CONFIGS_REQUEST_RESOURCE_CODES) from None


def _read_alter_configs_request_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[AlterConfigsRequest], int]:
    items: list[AlterConfigsRequest] = []
    for _ in range(count):
        number, at = read_compact_count(data, at, end, 4, "AlterConfigsRequest.resources")
        resources, at = _read_alter_configs_request_resource_v2(data, at, end, number)
        if end - at < 2:
            raise cut_short("AlterConfigsRequest.validate_only", at, end, 2)
        validate_only, tags = _BOOL_TAGS.unpack_from(data, at)
        at += 2
        if tags:
            at = skip_tags(data, at - 1, end, "AlterConfigsRequest")
        items.append(AlterConfigsRequest(resources=resources, validate_only=validate_only))
    return items, at


def _write_alter_configs_request_v2(out: Parts, items: Sequence[AlterConfigsRequest]) -> None:
    try:
        for item in items:
            _write_alter_configs_request_resource_v2(
                out, write_compact_count(out, item.resources, "AlterConfigsRequest.resources")
            )
            out.append(_INT8_TAGS.pack(item.validate_only, 0))
    except struct.error:
        raise misfit(items, _ALTER_CONFIGS_REQUEST_CODES) from None


REQUEST: Final = MessageCodec(
    AlterConfigsRequest,
    {
        0: (_read_alter_configs_request_v0, _write_alter_configs_request_v0),
        1: (_read_alter_configs_request_v0, _write_alter_configs_request_v0),
        2: (_read_alter_configs_request_v2, _write_alter_configs_request_v2),
    },
)


class AlterConfigsResponseResource(msgspec.Struct, kw_only=True, gc=False):
    """The responses for each resource."""

    error_code: int = 0
    """The resource error code. (int16)"""
    error_message: str | None = ""
    """The resource error message, or null if there was no error. (string)"""
    resource_type: int = 0
    """The resource type. (int8)"""
    resource_name: str = ""
    """The resource name. (string)"""


class AlterConfigsResponse(msgspec.Struct, kw_only=True, gc=False):
    """AlterConfigsResponse, versions 0 to 2."""

    throttle_time_ms: int = 0
    """Duration in milliseconds for which the request was throttled due to a quota violation, or zero if the request
    did not violate any quota. (int32)"""
    responses: list[AlterConfigsResponseResource] = []
    """The responses for each resource."""


_ALTER_CONFIGS_RESPONSE_CODES: Final = {"throttle_time_ms": "i"}
_ALTER_CONFIGS_RESPONSE_RESOURCE_CODES: Final = {"error_code": "h", "resource_type": "b"}


def _read_alter_configs_response_resource_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[AlterConfigsResponseResource], int]:
    items: list[AlterConfigsResponseResource] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("AlterConfigsResponseResource.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_nullable_string(data, at, end, "AlterConfigsResponseResource.error_message")
        if end - at < 1:
            raise cut_short("AlterConfigsResponseResource.resource_type", at, end, 1)
        (resource_type,) = _INT8.unpack_from(data, at)
        at += 1
        resource_name, at = read_string(data, at, end, "AlterConfigsResponseResource.resource_name")
        items.append(
            AlterConfigsResponseResource(
                error_code=error_code,
                error_message=error_message,
                resource_type=resource_type,
                resource_name=resource_name,
            )
        )
    return items, at


def _write_alter_configs_response_resource_v0(out: Parts, items: Sequence[AlterConfigsResponseResource]) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            write_nullable_string(out, item.error_message, "AlterConfigsResponseResource.error_message")
            out.append(_INT8.pack(item.resource_type))
            write_string(out, item.resource_name, "AlterConfigsResponseResource.resource_name")
    except struct.error:
        raise misfit(items, _ALTER_CONFIGS_RESPONSE_RESOURCE_CODES) from None


def _read_alter_configs_response_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[AlterConfigsResponse], int]:
    items: list[AlterConfigsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("AlterConfigsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 7, "AlterConfigsResponse.responses")
        responses, at = _read_alter_configs_response_resource_v0(data, at, end, number)
        items.append(AlterConfigsResponse(throttle_time_ms=throttle_time_ms, responses=responses))
    return items, at


def _write_alter_configs_response_v0(out: Parts, items: Sequence[AlterConfigsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_alter_configs_response_resource_v0(
                out, write_count(out, item.responses, "AlterConfigsResponse.responses")
            )
    except struct.error:
        raise misfit(items, _ALTER_CONFIGS_RESPONSE_CODES) from None


def _read_alter_configs_response_resource_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[AlterConfigsResponseResource], int]:
    items: list[AlterConfigsResponseResource] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("AlterConfigsResponseResource.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_compact_nullable_string(data, at, end, "AlterConfigsResponseResource.error_message")
        if end - at < 1:
            raise cut_short("AlterConfigsResponseResource.resource_type", at, end, 1)
        (resource_type,) = _INT8.unpack_from(data, at)
        at += 1
        resource_name, at = read_compact_string(data, at, end, "AlterConfigsResponseResource.resource_name")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "AlterConfigsResponseResource")
        items.append(
            AlterConfigsResponseResource(
                error_code=error_code,
                error_message=error_message,
                resource_type=resource_type,
                resource_name=resource_name,
            )
        )
    return items, at


def _write_alter_configs_response_resource_v2(out: Parts, items: Sequence[AlterConfigsResponseResource]) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            write_compact_nullable_string(out, item.error_message, "AlterConfigsResponseResource.error_message")
            out.append(_INT8.pack(item.resource_type))
            write_compact_string(out, item.resource_name, "AlterConfigsResponseResource.resource_name")
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _ALTER_CONFIGS_RESPONSE_RESOURCE_CODES) from None


def _read_alter_configs_response_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[AlterConfigsResponse], int]:
    items: list[AlterConfigsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("AlterConfigsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 6, "AlterConfigsResponse.responses")
        responses, at = _read_alter_configs_response_resource_v2(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "AlterConfigsResponse")
        items.append(AlterConfigsResponse(throttle_time_ms=throttle_time_ms, responses=responses))
    return items, at


def _write_alter_configs_response_v2(out: Parts, items: Sequence[AlterConfigsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_alter_configs_response_resource_v2(
                out, write_compact_count(out, item.responses, "AlterConfigsResponse.responses")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _ALTER_CONFIGS_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    AlterConfigsResponse,
    {
        0: (_read_alter_configs_response_v0, _write_alter_configs_response_v0),
        1: (_read_alter_configs_response_v0, _write_alter_configs_response_v0),
        2: (_read_alter_configs_response_v2, _write_alter_configs_response_v2),
    },
)
