"""DescribeCluster, API key 60.

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
    skip_tags,
    unknown_field,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
)

_BOOL_TAGS: Final = struct.Struct(">?B")
_BOOL_INT8_BOOL_TAGS: Final = struct.Struct(">?b?B")
_BOOL_INT8_TAGS: Final = struct.Struct(">?bB")
_INT8: Final = struct.Struct(">b")
_INT8_TAGS: Final = struct.Struct(">bB")
_INT8X2_TAGS: Final = struct.Struct(">bbB")
_INT8X3_TAGS: Final = struct.Struct(">bbbB")
_INT32: Final = struct.Struct(">i")
_INT32_TAGS: Final = struct.Struct(">iB")
_INT32_INT16: Final = struct.Struct(">ih")


class DescribeClusterRequest(msgspec.Struct, kw_only=True, gc=False):
    """DescribeClusterRequest, versions 0 to 2."""

    include_cluster_authorized_operations: bool = False
    """Whether to include cluster authorized operations. (bool)"""
    endpoint_type: int = 1
    """The endpoint type to describe. 1=brokers, 2=controllers. (int8, versions 1 to 2)"""
    include_fenced_brokers: bool = False
    """Whether to include fenced brokers when listing brokers. (bool, version 2)"""


_DESCRIBE_CLUSTER_REQUEST_CODES: Final = {
    "include_cluster_authorized_operations": "b",
    "endpoint_type": "b",
    "include_fenced_brokers": "b",
}


def _read_describe_cluster_request_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeClusterRequest], int]:
    items: list[DescribeClusterRequest] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("DescribeClusterRequest.include_cluster_authorized_operations", at, end, 2)
        include_cluster_authorized_operations, tags = _BOOL_TAGS.unpack_from(data, at)
        at += 2
        if tags:
            at = skip_tags(data, at - 1, end, "DescribeClusterRequest")
        items.append(
            DescribeClusterRequest(include_cluster_authorized_operations=include_cluster_authorized_operations)
        )
    return items, at


def _write_describe_cluster_request_v0(out: Parts, items: Sequence[DescribeClusterRequest]) -> None:
    try:
        for item in items:
            if item.endpoint_type != 1:
                raise unknown_field("DescribeClusterRequest.endpoint_type", item.endpoint_type)
            if item.include_fenced_brokers is not False:
                raise unknown_field("DescribeClusterRequest.include_fenced_brokers", item.include_fenced_brokers)
            out.append(_INT8_TAGS.pack(item.include_cluster_authorized_operations, 0))
    except struct.error:
        raise misfit(items, _DESCRIBE_CLUSTER_REQUEST_CODES) from None


def _read_describe_cluster_request_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeClusterRequest], int]:
    items: list[DescribeClusterRequest] = []
    for _ in range(count):
        if end - at < 3:
            raise cut_short("DescribeClusterRequest.include_cluster_authorized_operations to endpoint_type", at, end, 3)
        include_cluster_authorized_operations, endpoint_type, tags = _BOOL_INT8_TAGS.unpack_from(data, at)
        at += 3
        if tags:
            at = skip_tags(data, at - 1, end, "DescribeClusterRequest")
        items.append(
            DescribeClusterRequest(
                include_cluster_authorized_operations=include_cluster_authorized_operations, endpoint_type=endpoint_type
            )
        )
    return items, at


def _write_describe_cluster_request_v1(out: Parts, items: Sequence[DescribeClusterRequest]) -> None:
    try:
        for item in items:
            if item.include_fenced_brokers is not False:
                raise unknown_field("DescribeClusterRequest.include_fenced_brokers", item.include_fenced_brokers)
            out.append(_INT8X2_TAGS.pack(item.include_cluster_authorized_operations, item.endpoint_type, 0))
    except struct.error:
        raise misfit(items, _DESCRIBE_CLUSTER_REQUEST_CODES) from None


def _read_describe_cluster_request_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeClusterRequest], int]:
    items: list[DescribeClusterRequest] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short(
                "DescribeClusterRequest.include_cluster_authorized_operations to include_fenced_brokers", at, end, 4
            )
        include_cluster_authorized_operations, endpoint_type, include_fenced_brokers, tags = (
            _BOOL_INT8_BOOL_TAGS.unpack_from(data, at)
        )
        at += 4
        if tags:
            at = skip_tags(data, at - 1, end, "DescribeClusterRequest")
        items.append(
            DescribeClusterRequest(
                include_cluster_authorized_operations=include_cluster_authorized_operations,
                endpoint_type=endpoint_type,
                include_fenced_brokers=include_fenced_brokers,
            )
        )
    return items, at


def _write_describe_cluster_request_v2(out: Parts, items: Sequence[DescribeClusterRequest]) -> None:
    try:
        for item in items:
            out.append(
                _INT8X3_TAGS.pack(
                    item.include_cluster_authorized_operations, item.endpoint_type, item.include_fenced_brokers, 0
                )
            )
    except struct.error:
        raise misfit(items, _DESCRIBE_CLUSTER_REQUEST_CODES) from None


REQUEST: Final = MessageCodec(
    DescribeClusterRequest,
    {
        0: (_read_describe_cluster_request_v0, _write_describe_cluster_request_v0),
        1: (_read_describe_cluster_request_v1, _write_describe_cluster_request_v1),
        2: (_read_describe_cluster_request_v2, _write_describe_cluster_request_v2),
    },
)


class DescribeClusterResponseBroker(msgspec.Struct, kw_only=True, gc=False):
    """Each broker in the response."""

    broker_id: int = 0
    """The broker ID. (int32)"""
    host: str = ""
    """The broker hostname. (string)"""
    port: int = 0
    """The broker port. (int32)"""
    rack: str | None = None
    """The rack of the broker, or null if it has not been assigned to a rack. (string)"""
    is_fenced: bool = False
    """Whether the broker is fenced (bool, version 2)"""


class DescribeClusterResponse(msgspec.Struct, kw_only=True, gc=False):
    """DescribeClusterResponse, versions 0 to 2."""

    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32)"""
    error_code: int = 0
    """The top-level error code, or 0 if there was no error. (int16)"""
    error_message: str | None = None
    """The top-level error message, or null if there was no error. (string)"""
    endpoint_type: int = 1
    """The endpoint type that was described. 1=brokers, 2=controllers. (int8, versions 1 to 2)"""
    cluster_id: str = ""
    """The cluster ID that responding broker belongs to. (string)"""
    controller_id: int = -1
    """The ID of the controller. When handled by a controller, returns the current voter leader ID. When handled by a
    broker, returns a random alive broker ID as a fallback. (int32)"""
    brokers: list[DescribeClusterResponseBroker] = []
    """Each broker in the response."""
    cluster_authorized_operations: int = -2147483648
    """32-bit bitfield to represent authorized operations for this cluster. (int32)"""


_DESCRIBE_CLUSTER_RESPONSE_CODES: Final = {
    "throttle_time_ms": "i",
    "error_code": "h",
    "endpoint_type": "b",
    "controller_id": "i",
    "cluster_authorized_operations": "i",
}
_DESCRIBE_CLUSTER_RESPONSE_BROKER_CODES: Final = {"broker_id": "i", "port": "i", "is_fenced": "b"}


def _read_describe_cluster_response_broker_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeClusterResponseBroker], int]:
    items: list[DescribeClusterResponseBroker] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("DescribeClusterResponseBroker.broker_id", at, end, 4)
        (broker_id,) = _INT32.unpack_from(data, at)
        at += 4
        host, at = read_compact_string(data, at, end, "DescribeClusterResponseBroker.host")
        if end - at < 4:
            raise cut_short("DescribeClusterResponseBroker.port", at, end, 4)
        (port,) = _INT32.unpack_from(data, at)
        at += 4
        rack, at = read_compact_nullable_string(data, at, end, "DescribeClusterResponseBroker.rack")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DescribeClusterResponseBroker")
        items.append(DescribeClusterResponseBroker(broker_id=broker_id, host=host, port=port, rack=rack))
    return items, at


def _write_describe_cluster_response_broker_v0(out: Parts, items: Sequence[DescribeClusterResponseBroker]) -> None:
    try:
        for item in items:
            if item.is_fenced is not False:
                raise unknown_field("DescribeClusterResponseBroker.is_fenced", item.is_fenced)
            out.append(_INT32.pack(item.broker_id))
            write_compact_string(out, item.host, "DescribeClusterResponseBroker.host")
            out.append(_INT32.pack(item.port))
            write_compact_nullable_string(out, item.rack, "DescribeClusterResponseBroker.rack")
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DESCRIBE_CLUSTER_RESPONSE_BROKER_CODES) from None


def _read_describe_cluster_response_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeClusterResponse], int]:
    items: list[DescribeClusterResponse] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("DescribeClusterResponse.throttle_time_ms to error_code", at, end, 6)
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_compact_nullable_string(data, at, end, "DescribeClusterResponse.error_message")
        cluster_id, at = read_compact_string(data, at, end, "DescribeClusterResponse.cluster_id")
        if end - at < 4:
            raise cut_short("DescribeClusterResponse.controller_id", at, end, 4)
        (controller_id,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 11, "DescribeClusterResponse.brokers")
        brokers, at = _read_describe_cluster_response_broker_v0(data, at, end, number)
        if end - at < 5:
            raise cut_short("DescribeClusterResponse.cluster_authorized_operations", at, end, 5)
        cluster_authorized_operations, tags = _INT32_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "DescribeClusterResponse")
        items.append(
            DescribeClusterResponse(
                throttle_time_ms=throttle_time_ms,
                error_code=error_code,
                error_message=error_message,
                cluster_id=cluster_id,
                controller_id=controller_id,
                brokers=brokers,
                cluster_authorized_operations=cluster_authorized_operations,
            )
        )
    return items, at


def _write_describe_cluster_response_v0(out: Parts, items: Sequence[DescribeClusterResponse]) -> None:
    try:
        for item in items:
            if item.endpoint_type != 1:
                raise unknown_field("DescribeClusterResponse.endpoint_type", item.endpoint_type)
            out.append(_INT32_INT16.pack(item.throttle_time_ms, item.error_code))
            write_compact_nullable_string(out, item.error_message, "DescribeClusterResponse.error_message")
            write_compact_string(out, item.cluster_id, "DescribeClusterResponse.cluster_id")
            out.append(_INT32.pack(item.controller_id))
            _write_describe_cluster_response_broker_v0(
                out, write_compact_count(out, item.brokers, "DescribeClusterResponse.brokers")
            )
            out.append(_INT32_TAGS.pack(item.cluster_authorized_operations, 0))
    except struct.error:
        raise misfit(items, _DESCRIBE_CLUSTER_RESPONSE_CODES) from None


def _read_describe_cluster_response_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeClusterResponse], int]:
    items: list[DescribeClusterResponse] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("DescribeClusterResponse.throttle_time_ms to error_code", at, end, 6)
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_compact_nullable_string(data, at, end, "DescribeClusterResponse.error_message")
        if end - at < 1:
            raise cut_short("DescribeClusterResponse.endpoint_type", at, end, 1)
        (endpoint_type,) = _INT8.unpack_from(data, at)
        at += 1
        cluster_id, at = read_compact_string(data, at, end, "DescribeClusterResponse.cluster_id")
        if end - at < 4:
            raise cut_short("DescribeClusterResponse.controller_id", at, end, 4)
        (controller_id,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 11, "DescribeClusterResponse.brokers")
        brokers, at = _read_describe_cluster_response_broker_v0(data, at, end, number)
        if end - at < 5:
            raise cut_short("DescribeClusterResponse.cluster_authorized_operations", at, end, 5)
        cluster_authorized_operations, tags = _INT32_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "DescribeClusterResponse")
        items.append(
            DescribeClusterResponse(
                throttle_time_ms=throttle_time_ms,
                error_code=error_code,
                error_message=error_message,
                endpoint_type=endpoint_type,
                cluster_id=cluster_id,
                controller_id=controller_id,
                brokers=brokers,
                cluster_authorized_operations=cluster_authorized_operations,
            )
        )
    return items, at


def _write_describe_cluster_response_v1(out: Parts, items: Sequence[DescribeClusterResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT16.pack(item.throttle_time_ms, item.error_code))
            write_compact_nullable_string(out, item.error_message, "DescribeClusterResponse.error_message")
            out.append(_INT8.pack(item.endpoint_type))
            write_compact_string(out, item.cluster_id, "DescribeClusterResponse.cluster_id")
            out.append(_INT32.pack(item.controller_id))
            _write_describe_cluster_response_broker_v0(
                out, write_compact_count(out, item.brokers, "DescribeClusterResponse.brokers")
            )
            out.append(_INT32_TAGS.pack(item.cluster_authorized_operations, 0))
    except struct.error:
        raise misfit(items, _DESCRIBE_CLUSTER_RESPONSE_CODES) from None


def _read_describe_cluster_response_broker_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeClusterResponseBroker], int]:
    items: list[DescribeClusterResponseBroker] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("DescribeClusterResponseBroker.broker_id", at, end, 4)
        (broker_id,) = _INT32.unpack_from(data, at)
        at += 4
        host, at = read_compact_string(data, at, end, "DescribeClusterResponseBroker.host")
        if end - at < 4:
            raise cut_short("DescribeClusterResponseBroker.port", at, end, 4)
        (port,) = _INT32.unpack_from(data, at)
        at += 4
        rack, at = read_compact_nullable_string(data, at, end, "DescribeClusterResponseBroker.rack")
        if end - at < 2:
            raise cut_short("DescribeClusterResponseBroker.is_fenced", at, end, 2)
        is_fenced, tags = _BOOL_TAGS.unpack_from(data, at)
        at += 2
        if tags:
            at = skip_tags(data, at - 1, end, "DescribeClusterResponseBroker")
        items.append(
            DescribeClusterResponseBroker(broker_id=broker_id, host=host, port=port, rack=rack, is_fenced=is_fenced)
        )
    return items, at


def _write_describe_cluster_response_broker_v2(out: Parts, items: Sequence[DescribeClusterResponseBroker]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.broker_id))
            write_compact_string(out, item.host, "DescribeClusterResponseBroker.host")
            out.append(_INT32.pack(item.port))
            write_compact_nullable_string(out, item.rack, "DescribeClusterResponseBroker.rack")
            out.append(_INT8_TAGS.pack(item.is_fenced, 0))
    except struct.error:
        raise misfit(items, _DESCRIBE_CLUSTER_RESPONSE_BROKER_CODES) from None


def _read_describe_cluster_response_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeClusterResponse], int]:
    items: list[DescribeClusterResponse] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("DescribeClusterResponse.throttle_time_ms to error_code", at, end, 6)
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_compact_nullable_string(data, at, end, "DescribeClusterResponse.error_message")
        if end - at < 1:
            raise cut_short("DescribeClusterResponse.endpoint_type", at, end, 1)
        (endpoint_type,) = _INT8.unpack_from(data, at)
        at += 1
        cluster_id, at = read_compact_string(data, at, end, "DescribeClusterResponse.cluster_id")
        if end - at < 4:
            raise cut_short("DescribeClusterResponse.controller_id", at, end, 4)
        (controller_id,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 12, "DescribeClusterResponse.brokers")
        brokers, at = _read_describe_cluster_response_broker_v2(data, at, end, number)
        if end - at < 5:
            raise cut_short("DescribeClusterResponse.cluster_authorized_operations", at, end, 5)
        cluster_authorized_operations, tags = _INT32_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "DescribeClusterResponse")
        items.append(
            DescribeClusterResponse(
                throttle_time_ms=throttle_time_ms,
                error_code=error_code,
                error_message=error_message,
                endpoint_type=endpoint_type,
                cluster_id=cluster_id,
                controller_id=controller_id,
                brokers=brokers,
                cluster_authorized_operations=cluster_authorized_operations,
            )
        )
    return items, at


def _write_describe_cluster_response_v2(out: Parts, items: Sequence[DescribeClusterResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT16.pack(item.throttle_time_ms, item.error_code))
            write_compact_nullable_string(out, item.error_message, "DescribeClusterResponse.error_message")
            out.append(_INT8.pack(item.endpoint_type))
            write_compact_string(out, item.cluster_id, "DescribeClusterResponse.cluster_id")
            out.append(_INT32.pack(item.controller_id))
            _write_describe_cluster_response_broker_v2(
                out, write_compact_count(out, item.brokers, "DescribeClusterResponse.brokers")
            )
            out.append(_INT32_TAGS.pack(item.cluster_authorized_operations, 0))
    except struct.error:
        raise misfit(items, _DESCRIBE_CLUSTER_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    DescribeClusterResponse,
    {
        0: (_read_describe_cluster_response_v0, _write_describe_cluster_response_v0),
        1: (_read_describe_cluster_response_v1, _write_describe_cluster_response_v1),
        2: (_read_describe_cluster_response_v2, _write_describe_cluster_response_v2),
    },
)
