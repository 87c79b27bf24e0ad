"""DescribeConfigs, API key 32.

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
    read_compact_nullable_count,
    read_compact_nullable_string,
    read_compact_string,
    read_compact_strings,
    read_count,
    read_nullable_count,
    read_nullable_string,
    read_string,
    read_strings,
    skip_tags,
    unknown_field,
    write_compact_count,
    write_compact_nullable_count,
    write_compact_nullable_string,
    write_compact_string,
    write_compact_strings,
    write_count,
    write_nullable_count,
    write_nullable_string,
    write_string,
    write_strings,
)

_BOOL: Final = struct.Struct(">?")
_BOOLX2: Final = struct.Struct(">??")
_BOOLX2_TAGS: Final = struct.Struct(">??B")
_BOOL_INT8_BOOL: Final = struct.Struct(">?b?")
_INT8: Final = struct.Struct(">b")
_INT8_TAGS: Final = struct.Struct(">bB")
_INT8X2: Final = struct.Struct(">bb")
_INT8X2_TAGS: Final = struct.Struct(">bbB")
_INT8X3: Final = struct.Struct(">bbb")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


class DescribeConfigsRequestResource(msgspec.Struct, kw_only=True, gc=False):
    """The resources whose configurations we want to describe."""

    resource_type: int = 0
    """The resource type. (int8)"""
    resource_name: str = ""
    """The resource name. (string)"""
    configuration_keys: list[str] | None = []
    """The configuration keys to list, or null to list all configuration keys. (string)"""


class DescribeConfigsRequest(msgspec.Struct, kw_only=True, gc=False):
    """DescribeConfigsRequest, versions 1 to 4."""

    resources: list[DescribeConfigsRequestResource] = []
    """The resources whose configurations we want to describe."""
    include_synonyms: bool = False
    """True if we should include all synonyms. (bool)"""
    include_documentation: bool = False
    """True if we should include configuration documentation. (bool, versions 3 to 4)"""


_DESCRIBE_CONFIGS_REQUEST_CODES: Final = {"include_synonyms": "b", "include_documentation": "b"}
_DESCRIBE_CONFIGS_REQUEST_RESOURCE_CODES: Final = {"resource_type": "b"}


def _read_describe_configs_request_resource_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeConfigsRequestResource], int]:
    items: list[DescribeConfigsRequestResource] = []
    for _ in range(count):
        if end - at < 1:
            raise cut_short("DescribeConfigsRequestResource.resource_type", at, end, 1)
        (resource_type,) = _INT8.unpack_from(data, at)
        at += 1
        resource_name, at = read_string(data, at, end, "DescribeConfigsRequestResource.resource_name")
        number, at = read_nullable_count(data, at, end, 2, "DescribeConfigsRequestResource.configuration_keys")
        configuration_keys = None
        if number >= 0:
            configuration_keys, at = read_strings(
                data, at, end, number, "DescribeConfigsRequestResource.configuration_keys"
            )
        items.append(
            DescribeConfigsRequestResource(
                resource_type=resource_type, resource_name=resource_name, configuration_keys=configuration_keys
            )
        )
    return items, at


def _write_describe_configs_request_resource_v1(out: Parts, items: Sequence[DescribeConfigsRequestResource]) -> None:
    try:
        for item in items:
            out.append(_INT8.pack(item.resource_type))
            write_string(out, item.resource_name, "DescribeConfigsRequestResource.resource_name")
            write_strings(
                out,
                write_nullable_count(out, item.configuration_keys, "DescribeConfigsRequestResource.configuration_keys"),
                "DescribeConfigsRequestResource.configuration_keys",
            )
    except struct.error:
        raise misfit(items, _DESCRIBE_CONFIGS_REQUEST_RESOURCE_CODES) from None


def _read_describe_configs_request_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeConfigsRequest], int]:
    items: list[DescribeConfigsRequest] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 7, "DescribeConfigsRequest.resources")
        resources, at = _read_describe_configs_request_resource_v1(data, at, end, number)
        if end - at < 1:
            raise cut_short("DescribeConfigsRequest.include_synonyms", at, end, 1)
        (include_synonyms,) = _BOOL.unpack_from(data, at)
        at += 1
        items.append(DescribeConfigsRequest(resources=resources, include_synonyms=include_synonyms))
    return items, at


def _write_describe_configs_request_v1(out: Parts, items: Sequence[DescribeConfigsRequest]) -> None:
    try:
        for item in items:
            if item.include_documentation is not False:
                raise unknown_field("DescribeConfigsRequest.include_documentation", item.include_documentation)
            _write_describe_configs_request_resource_v1(
                out, write_count(out, item.resources, "DescribeConfigsRequest.resources")
            )
            out.append(_INT8.pack(item.include_synonyms))
    except struct.error:
        raise misfit(items, _DESCRIBE_CONFIGS_REQUEST_CODES) from None


def _read_describe_configs_request_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeConfigsRequest], int]:
    items: list[DescribeConfigsRequest] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 7, "DescribeConfigsRequest.resources")
        resources, at = _read_describe_configs_request_resource_v1(data, at, end, number)
        if end - at < 2:
            raise cut_short("DescribeConfigsRequest.include_synonyms to include_documentation", at, end, 2)
        include_synonyms, include_documentation = _BOOLX2.unpack_from(data, at)
        at += 2
        items.append(
            DescribeConfigsRequest(
                resources=resources, include_synonyms=include_synonyms, include_documentation=include_documentation
            )
        )
    return items, at


def _write_describe_configs_request_v3(out: Parts, items: Sequence[DescribeConfigsRequest]) -> None:
    try:
        for item in items:
            _write_describe_configs_request_resource_v1(
                out, write_count(out, item.resources, "DescribeConfigsRequest.resources")
            )
            out.append(_INT8X2.pack(item.include_synonyms, item.include_documentation))
    except struct.error:
        raise misfit(items, _DESCRIBE_CONFIGS_REQUEST_CODES) from None


def _read_describe_configs_request_resource_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeConfigsRequestResource], int]:
    items: list[DescribeConfigsRequestResource] = []
    for _ in range(count):
        if end - at < 1:
            raise cut_short("DescribeConfigsRequestResource.resource_type", at, end, 1)
        (resource_type,) = _INT8.unpack_from(data, at)
        at += 1
        resource_name, at = read_compact_string(data, at, end, "DescribeConfigsRequestResource.resource_name")
        number, at = read_compact_nullable_count(data, at, end, 1, "DescribeConfigsRequestResource.configuration_keys")
        configuration_keys = None
        if number >= 0:
            configuration_keys, at = read_compact_strings(
                data, at, end, number, "DescribeConfigsRequestResource.configuration_keys"
            )
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DescribeConfigsRequestResource")
        items.append(
            DescribeConfigsRequestResource(
                resource_type=resource_type, resource_name=resource_name, configuration_keys=configuration_keys
            )
        )
    return items, at


def _write_describe_configs_request_resource_v4(out: Parts, items: Sequence[DescribeConfigsRequestResource]) -> None:
    try:
        for item in items:
            out.append(_INT8.pack(item.resource_type))
            write_compact_string(out, item.resource_name, "DescribeConfigsRequestResource.resource_name")
            write_compact_strings(
                out,
                write_compact_nullable_count(
                    out, item.configuration_keys, "DescribeConfigsRequestResource.configuration_keys"
                ),
                "DescribeConfigsRequestResource.configuration_keys",
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DESCRIBE_CONFIGS_REQUEST_RESOURCE_CODES) from None


def _read_describe_configs_request_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeConfigsRequest], int]:
    items: list[DescribeConfigsRequest] = []
    for _ in range(count):
        number, at = read_compact_count(data, at, end, 4, "DescribeConfigsRequest.resources")
        resources, at = _read_describe_configs_request_resource_v4(data, at, end, number)
        if end - at < 3:
            raise cut_short("DescribeConfigsRequest.include_synonyms to include_documentation", at, end, 3)
        include_synonyms, include_documentation, tags = _BOOLX2_TAGS.unpack_from(data, at)
        at += 3
        if tags:
            at = skip_tags(data, at - 1, end, "DescribeConfigsRequest")
        items.append(
            DescribeConfigsRequest(
                resources=resources, include_synonyms=include_synonyms, include_documentation=include_documentation
            )
        )
    return items, at


def _write_describe_configs_request_v4(out: Parts, items: Sequence[DescribeConfigsRequest]) -> None:
    try:
        for item in items:
            _write_describe_configs_request_resource_v4(
                out, write_compact_count(out, item.resources, "DescribeConfigsRequest.resources")
            )
            out.append(_INT8X2_TAGS.pack(item.include_synonyms, item.include_documentation, 0))
    except struct.error:
        raise misfit(items, _DESCRIBE_CONFIGS_REQUEST_CODES) from None


REQUEST: Final = MessageCodec(
    DescribeConfigsRequest,
    {
        1: (_read_describe_configs_request_v1, _write_describe_configs_request_v1),
        2: (_read_describe_configs_request_v1, _write_describe_configs_request_v1),
        3: (_read_describe_configs_request_v3, _write_describe_configs_request_v3),
        4: (_read_describe_configs_request_v4, _write_describe_configs_request_v4),
    },
)


class DescribeConfigsResponseSynonym(msgspec.Struct, kw_only=True, gc=False):
    """The synonyms for this configuration key."""

    name: str = ""
    """The synonym name. (string)"""
    value: str | None = ""
    """The synonym value. (string)"""
    source: int = 0
    """The synonym source. (int8)"""


class DescribeConfigsResponseResourceResult(msgspec.Struct, kw_only=True, gc=False):
    """Each listed configuration."""

    name: str = ""
    """The configuration name. (string)"""
    value: str | None = ""
    """The configuration value. (string)"""
    read_only: bool = False
    """True if the configuration is read-only. (bool)"""
    config_source: int = -1
    """The configuration source. (int8)"""
    is_sensitive: bool = False
    """True if this configuration is sensitive. (bool)"""
    synonyms: list[DescribeConfigsResponseSynonym] = []
    """The synonyms for this configuration key."""
    config_type: int = 0
    """The configuration data type. Type can be one of the following values - BOOLEAN, STRING, INT, SHORT, LONG,
    DOUBLE, LIST, CLASS, PASSWORD. (int8, versions 3 to 4, ignorable)"""
    documentation: str | None = ""
    """The configuration documentation. (string, versions 3 to 4, ignorable)"""


class DescribeConfigsResponseResult(msgspec.Struct, kw_only=True, gc=False):
    """The results for each resource."""

    error_code: int = 0
    """The error code, or 0 if we were able to successfully describe the configurations. (int16)"""
    error_message: str | None = ""
    """The error message, or null if we were able to successfully describe the configurations. (string)"""
    resource_type: int = 0
    """The resource type. (int8)"""
    resource_name: str = ""
    """The resource name. (string)"""
    configs: list[DescribeConfigsResponseResourceResult] = []
    """Each listed configuration."""


class DescribeConfigsResponse(msgspec.Struct, kw_only=True, gc=False):
    """DescribeConfigsResponse, versions 1 to 4."""

    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32)"""
    results: list[DescribeConfigsResponseResult] = []
    """The results for each resource."""


_DESCRIBE_CONFIGS_RESPONSE_CODES: Final = {"throttle_time_ms": "i"}
_DESCRIBE_CONFIGS_RESPONSE_RESULT_CODES: Final = {"error_code": "h", "resource_type": "b"}
_DESCRIBE_CONFIGS_RESPONSE_RESOURCE_RESULT_CODES: Final = {
    "read_only": "b",
    "config_source": "b",
    "is_sensitive": "b",
    "config_type": "b",
}
_DESCRIBE_CONFIGS_RESPONSE_SYNONYM_CODES: Final = {"source": "b"}


def _read_describe_configs_response_synonym_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeConfigsResponseSynonym], int]:
    items: list[DescribeConfigsResponseSynonym] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "DescribeConfigsResponseSynonym.name")
        value, at = read_nullable_string(data, at, end, "DescribeConfigsResponseSynonym.value")
        if end - at < 1:
            raise cut_short("DescribeConfigsResponseSynonym.source", at, end, 1)
        (source,) = _INT8.unpack_from(data, at)
        at += 1
        items.append(DescribeConfigsResponseSynonym(name=name, value=value, source=source))
    return items, at


def _write_describe_configs_response_synonym_v1(out: Parts, items: Sequence[DescribeConfigsResponseSynonym]) -> None:
    try:
        for item in items:
            write_string(out, item.name, "DescribeConfigsResponseSynonym.name")
            write_nullable_string(out, item.value, "DescribeConfigsResponseSynonym.value")
            out.append(_INT8.pack(item.source))
    except struct.error:
        raise misfit(items, _DESCRIBE_CONFIGS_RESPONSE_SYNONYM_CODES) from None


def _read_describe_configs_response_resource_result_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeConfigsResponseResourceResult], int]:
    items: list[DescribeConfigsResponseResourceResult] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "DescribeConfigsResponseResourceResult.name")
        value, at = read_nullable_string(data, at, end, "DescribeConfigsResponseResourceResult.value")
        if end - at < 3:
            raise cut_short("DescribeConfigsResponseResourceResult.read_only to is_sensitive", at, end, 3)
        read_only, config_source, is_sensitive = _BOOL_INT8_BOOL.unpack_from(data, at)
        at += 3
        number, at = read_count(data, at, end, 5, "DescribeConfigsResponseResourceResult.synonyms")
        synonyms, at = _read_describe_configs_response_synonym_v1(data, at, end, number)
        items.append(
            DescribeConfigsResponseResourceResult(
                name=name,
                value=value,
                read_only=read_only,
                config_source=config_source,
                is_sensitive=is_sensitive,
                synonyms=synonyms,
            )
        )
    return items, at


def _write_describe_configs_response_resource_result_v1(
    out: Parts, items: Sequence[DescribeConfigsResponseResourceResult]
) -> None:
    try:
        for item in items:
            write_string(out, item.name, "DescribeConfigsResponseResourceResult.name")
            write_nullable_string(out, item.value, "DescribeConfigsResponseResourceResult.value")
            out.append(_INT8X3.pack(item.read_only, item.config_source, item.is_sensitive))
            _write_describe_configs_response_synonym_v1(
                out, write_count(out, item.synonyms, "DescribeConfigsResponseResourceResult.synonyms")
            )
    except struct.error:
        raise misfit(items, _DESCRIBE_CONFIGS_RESPONSE_RESOURCE_RESULT_CODES) from None


def _read_describe_configs_response_result_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeConfigsResponseResult], int]:
    items: list[DescribeConfigsResponseResult] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("DescribeConfigsResponseResult.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_nullable_string(data, at, end, "DescribeConfigsResponseResult.error_message")
        if end - at < 1:
            raise cut_short("DescribeConfigsResponseResult.resource_type", at, end, 1)
        (resource_type,) = _INT8.unpack_from(data, at)
        at += 1
        resource_name, at = read_string(data, at, end, "DescribeConfigsResponseResult.resource_name")
        number, at = read_count(data, at, end, 11, "DescribeConfigsResponseResult.configs")
        configs, at = _read_describe_configs_response_resource_result_v1(data, at, end, number)
        items.append(
            DescribeConfigsResponseResult(
                error_code=error_code,
                error_message=error_message,
                resource_type=resource_type,
                resource_name=resource_name,
                configs=configs,
            )
        )
    return items, at


def _write_describe_configs_response_result_v1(out: Parts, items: Sequence[DescribeConfigsResponseResult]) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            write_nullable_string(out, item.error_message, "DescribeConfigsResponseResult.error_message")
            out.append(_INT8.pack(item.resource_type))
            write_string(out, item.resource_name, "DescribeConfigsResponseResult.resource_name")
            _write_describe_configs_response_resource_result_v1(
                out, write_count(out, item.configs, "DescribeConfigsResponseResult.configs")
            )
    except struct.error:
        raise misfit(items, _DESCRIBE_CONFIGS_RESPONSE_RESULT_CODES) from None


def _read_describe_configs_response_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeConfigsResponse], int]:
    items: list[DescribeConfigsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("DescribeConfigsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 11, "DescribeConfigsResponse.results")
        results, at = _read_describe_configs_response_result_v1(data, at, end, number)
        items.append(DescribeConfigsResponse(throttle_time_ms=throttle_time_ms, results=results))
    return items, at


def _write_describe_configs_response_v1(out: Parts, items: Sequence[DescribeConfigsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_describe_configs_response_result_v1(
                out, write_count(out, item.results, "DescribeConfigsResponse.results")
            )
    except struct.error:
        raise misfit(items, _DESCRIBE_CONFIGS_RESPONSE_CODES) from None


def _read_describe_configs_response_resource_result_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeConfigsResponseResourceResult], int]:
    items: list[DescribeConfigsResponseResourceResult] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "DescribeConfigsResponseResourceResult.name")
        value, at = read_nullable_string(data, at, end, "DescribeConfigsResponseResourceResult.value")
        if end - at < 3:
            raise cut_short("DescribeConfigsResponseResourceResult.read_only to is_sensitive", at, end, 3)
        read_only, config_source, is_sensitive = _BOOL_INT8_BOOL.unpack_from(data, at)
        at += 3
        number, at = read_count(data, at, end, 5, "DescribeConfigsResponseResourceResult.synonyms")
        synonyms, at = _read_describe_configs_response_synonym_v1(data, at, end, number)
        if end - at < 1:
            raise cut_short("DescribeConfigsResponseResourceResult.config_type", at, end, 1)
        (config_type,) = _INT8.unpack_from(data, at)
        at += 1
        documentation, at = read_nullable_string(data, at, end, "DescribeConfigsResponseResourceResult.documentation")
        items.append(
            DescribeConfigsResponseResourceResult(
                name=name,
                value=value,
                read_only=read_only,
                config_source=config_source,
                is_sensitive=is_sensitive,
                synonyms=synonyms,
                config_type=config_type,
                documentation=documentation,
            )
        )
    return items, at


def _write_describe_configs_response_resource_result_v3(
    out: Parts, items: Sequence[DescribeConfigsResponseResourceResult]
) -> None:
    try:
        for item in items:
            write_string(out, item.name, "DescribeConfigsResponseResourceResult.name")
            write_nullable_string(out, item.value, "DescribeConfigsResponseResourceResult.value")
            out.append(_INT8X3.pack(item.read_only, item.config_source, item.is_sensitive))
            _write_describe_configs_response_synonym_v1(
                out, write_count(out, item.synonyms, "DescribeConfigsResponseResourceResult.synonyms")
            )
            out.append(_INT8.pack(item.config_type))
            write_nullable_string(out, item.documentation, "DescribeConfigsResponseResourceResult.documentation")
    except struct.error:
        raise misfit(items, _DESCRIBE_CONFIGS_RESPONSE_RESOURCE_RESULT_CODES) from None


def _read_describe_configs_response_result_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeConfigsResponseResult], int]:
    items: list[DescribeConfigsResponseResult] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("DescribeConfigsResponseResult.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_nullable_string(data, at, end, "DescribeConfigsResponseResult.error_message")
        if end - at < 1:
            raise cut_short("DescribeConfigsResponseResult.resource_type", at, end, 1)
        (resource_type,) = _INT8.unpack_from(data, at)
        at += 1
        resource_name, at = read_string(data, at, end, "DescribeConfigsResponseResult.resource_name")
        number, at = read_count(data, at, end, 14, "DescribeConfigsResponseResult.configs")
        configs, at = _read_describe_configs_response_resource_result_v3(data, at, end, number)
        items.append(
            DescribeConfigsResponseResult(
                error_code=error_code,
                error_message=error_message,
                resource_type=resource_type,
                resource_name=resource_name,
                configs=configs,
            )
        )
    return items, at


def _write_describe_configs_response_result_v3(out: Parts, items: Sequence[DescribeConfigsResponseResult]) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            write_nullable_string(out, item.error_message, "DescribeConfigsResponseResult.error_message")
            out.append(_INT8.pack(item.resource_type))
            write_string(out, item.resource_name, "DescribeConfigsResponseResult.resource_name")
            _write_describe_configs_response_resource_result_v3(
                out, write_count(out, item.configs, "DescribeConfigsResponseResult.configs")
            )
    except struct.error:
        raise misfit(items, _DESCRIBE_CONFIGS_RESPONSE_RESULT_CODES) from None


def _read_describe_configs_response_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeConfigsResponse], int]:
    items: list[DescribeConfigsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("DescribeConfigsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 11, "DescribeConfigsResponse.results")
        results, at = _read_describe_configs_response_result_v3(data, at, end, number)
        items.append(DescribeConfigsResponse(throttle_time_ms=throttle_time_ms, results=results))
    return items, at


def _write_describe_configs_response_v3(out: Parts, items: Sequence[DescribeConfigsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_describe_configs_response_result_v3(
                out, write_count(out, item.results, "DescribeConfigsResponse.results")
            )
    except struct.error:
        raise misfit(items, _DESCRIBE_CONFIGS_RESPONSE_CODES) from None


def _read_describe_configs_response_synonym_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeConfigsResponseSynonym], int]:
    items: list[DescribeConfigsResponseSynonym] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "DescribeConfigsResponseSynonym.name")
        value, at = read_compact_nullable_string(data, at, end, "DescribeConfigsResponseSynonym.value")
        if end - at < 2:
            raise cut_short("DescribeConfigsResponseSynonym.source", at, end, 2)
        source, tags = _INT8_TAGS.unpack_from(data, at)
        at += 2
        if tags:
            at = skip_tags(data, at - 1, end, "DescribeConfigsResponseSynonym")
        items.append(DescribeConfigsResponseSynonym(name=name, value=value, source=source))
    return items, at


def _write_describe_configs_response_synonym_v4(out: Parts, items: Sequence[DescribeConfigsResponseSynonym]) -> None:
    try:
        for item in items:
            write_compact_string(out, item.name, "DescribeConfigsResponseSynonym.name")
            write_compact_nullable_string(out, item.value, "DescribeConfigsResponseSynonym.value")
            out.append(_INT8_TAGS.pack(item.source, 0))
    except struct.error:
        raise misfit(items, _DESCRIBE_CONFIGS_RESPONSE_SYNONYM_CODES) from None


def _read_describe_configs_response_resource_result_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeConfigsResponseResourceResult], int]:
    items: list[DescribeConfigsResponseResourceResult] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "DescribeConfigsResponseResourceResult.name")
        value, at = read_compact_nullable_string(data, at, end, "DescribeConfigsResponseResourceResult.value")
        if end - at < 3:
            raise cut_short("DescribeConfigsResponseResourceResult.read_only to is_sensitive", at, end, 3)
        read_only, config_source, is_sensitive = _BOOL_INT8_BOOL.unpack_from(data, at)
        at += 3
        number, at = read_compact_count(data, at, end, 4, "DescribeConfigsResponseResourceResult.synonyms")
        synonyms, at = _read_describe_configs_response_synonym_v4(data, at, end, number)
        if end - at < 1:
            raise cut_short("DescribeConfigsResponseResourceResult.config_type", at, end, 1)
        (config_type,) = _INT8.unpack_from(data, at)
        at += 1
        documentation, at = read_compact_nullable_string(
            data, at, end, "DescribeConfigsResponseResourceResult.documentation"
        )
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DescribeConfigsResponseResourceResult")
        items.append(
            DescribeConfigsResponseResourceResult(
                name=name,
                value=value,
                read_only=read_only,
                config_source=config_source,
                is_sensitive=is_sensitive,
                synonyms=synonyms,
                config_type=config_type,
                documentation=documentation,
            )
        )
    return items, at


def _write_describe_configs_response_resource_result_v4(
    out: Parts, items: Sequence[DescribeConfigsResponseResourceResult]
) -> None:
    try:
        for item in items:
            write_compact_string(out, item.name, "DescribeConfigsResponseResourceResult.name")
            write_compact_nullable_string(out, item.value, "DescribeConfigsResponseResourceResult.value")
            out.append(_INT8X3.pack(item.read_only, item.config_source, item.is_sensitive))
            _write_describe_configs_response_synonym_v4(
                out, write_compact_count(out, item.synonyms, "DescribeConfigsResponseResourceResult.synonyms")
            )
            out.append(_INT8.pack(item.config_type))
            write_compact_nullable_string(
                out, item.documentation, "DescribeConfigsResponseResourceResult.documentation"
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DESCRIBE_CONFIGS_RESPONSE_RESOURCE_RESULT_CODES) from None


def _read_describe_configs_response_result_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeConfigsResponseResult], int]:
    items: list[DescribeConfigsResponseResult] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("DescribeConfigsResponseResult.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_compact_nullable_string(data, at, end, "DescribeConfigsResponseResult.error_message")
        if end - at < 1:
            raise cut_short("DescribeConfigsResponseResult.resource_type", at, end, 1)
        (resource_type,) = _INT8.unpack_from(data, at)
        at += 1
        resource_name, at = read_compact_string(data, at, end, "DescribeConfigsResponseResult.resource_name")
        number, at = read_compact_count(data, at, end, 9, "DescribeConfigsResponseResult.configs")
        configs, at = _read_describe_configs_response_resource_result_v4(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DescribeConfigsResponseResult")
        items.append(
            DescribeConfigsResponseResult(
                error_code=error_code,
                error_message=error_message,
                resource_type=resource_type,
                resource_name=resource_name,
                configs=configs,
            )
        )
    return items, at


def _write_describe_configs_response_result_v4(out: Parts, items: Sequence[DescribeConfigsResponseResult]) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            write_compact_nullable_string(out, item.error_message, "DescribeConfigsResponseResult.error_message")
            out.append(_INT8.pack(item.resource_type))
            write_compact_string(out, item.resource_name, "DescribeConfigsResponseResult.resource_name")
            _write_describe_configs_response_resource_result_v4(
                out, write_compact_count(out, item.configs, "DescribeConfigsResponseResult.configs")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DESCRIBE_CONFIGS_RESPONSE_RESULT_CODES) from None


def _read_describe_configs_response_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeConfigsResponse], int]:
    items: list[DescribeConfigsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("DescribeConfigsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 7, "DescribeConfigsResponse.results")
        results, at = _read_describe_configs_response_result_v4(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DescribeConfigsResponse")
        items.append(DescribeConfigsResponse(throttle_time_ms=throttle_time_ms, results=results))
    return items, at


def _write_describe_configs_response_v4(out: Parts, items: Sequence[DescribeConfigsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_describe_configs_response_result_v4(
                out, write_compact_count(out, item.results, "DescribeConfigsResponse.results")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DESCRIBE_CONFIGS_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    DescribeConfigsResponse,
    {
        1: (_read_describe_configs_response_v1, _write_describe_configs_response_v1),
        2: (_read_describe_configs_response_v1, _write_describe_configs_response_v1),
        3: (_read_describe_configs_response_v3, _write_describe_configs_response_v3),
        4: (_read_describe_configs_response_v4, _write_describe_configs_response_v4),
    },
)
