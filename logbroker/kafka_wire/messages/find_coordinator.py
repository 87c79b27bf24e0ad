"""FindCoordinator, API key 10.

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
    read_compact_strings,
    read_nullable_string,
    read_string,
    skip_tags,
    unknown_field,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
    write_compact_strings,
    write_nullable_string,
    write_string,
)

_INT8: Final = struct.Struct(">b")
_INT8_TAGS: Final = struct.Struct(">bB")
_INT16_INT32: Final = struct.Struct(">hi")
_INT32: Final = struct.Struct(">i")
_INT32_TAGS: Final = struct.Struct(">iB")
_INT32_INT16: Final = struct.Struct(">ih")


class FindCoordinatorRequest(msgspec.Struct, kw_only=True, gc=False):
    """FindCoordinatorRequest, versions 0 to 6."""

    key: str = ""
    """The coordinator key. (string, versions 0 to 3)"""
    key_type: int = 0
    """The coordinator key type. (group, transaction, share). (int8, versions 1 to 6)"""
    coordinator_keys: list[str] = []
    """The coordinator keys. (string, versions 4 to 6)"""


_FIND_COORDINATOR_REQUEST_CODES: Final = {"key_type": "b"}


def _read_find_coordinator_request_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FindCoordinatorRequest], int]:
    items: list[FindCoordinatorRequest] = []
    for _ in range(count):
        key, at = read_string(data, at, end, "FindCoordinatorRequest.key")
        items.append(FindCoordinatorRequest(key=key))
    return items, at


def _write_find_coordinator_request_v0(out: Parts, items: Sequence[FindCoordinatorRequest]) -> None:
    for item in items:
        if item.key_type != 0:
            raise unknown_field("FindCoordinatorRequest.key_type", item.key_type)
        if item.coordinator_keys != []:
            raise unknown_field("FindCoordinatorRequest.coordinator_keys", item.coordinator_keys)
        write_string(out, item.key, "FindCoordinatorRequest.key")


def _read_find_coordinator_request_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FindCoordinatorRequest], int]:
    items: list[FindCoordinatorRequest] = []
    for _ in range(count):
        key, at = read_string(data, at, end, "FindCoordinatorRequest.key")
        if end - at < 1:
            raise cut_short("FindCoordinatorRequest.key_type", at, end, 1)
        (key_type,) = _INT8.unpack_from(data, at)
        at += 1
        items.append(FindCoordinatorRequest(key=key, key_type=key_type))
    return items, at


def _write_find_coordinator_request_v1(out: Parts, items: Sequence[FindCoordinatorRequest]) -> None:
    try:
        for item in items:
            if item.coordinator_keys != []:
                raise unknown_field("FindCoordinatorRequest.coordinator_keys", item.coordinator_keys)
            write_string(out, item.key, "FindCoordinatorRequest.key")
            out.append(_INT8.pack(item.key_type))
    except struct.error:
        raise misfit(items, _FIND_COORDINATOR_REQUEST_CODES) from None


def _read_find_coordinator_request_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FindCoordinatorRequest], int]:
    items: list[FindCoordinatorRequest] = []
    for _ in range(count):
        key, at = read_compact_string(data, at, end, "FindCoordinatorRequest.key")
        if end - at < 2:
            raise cut_short("FindCoordinatorRequest.key_type", at, end, 2)
        key_type, tags = _INT8_TAGS.unpack_from(data, at)
        at += 2
        if tags:
            at = skip_tags(data, at - 1, end, "FindCoordinatorRequest")
        items.append(FindCoordinatorRequest(key=key, key_type=key_type))
    return items, at


def _write_find_coordinator_request_v3(out: Parts, items: Sequence[FindCoordinatorRequest]) -> None:
    try:
        for item in items:
            if item.coordinator_keys != []:
                raise unknown_field("FindCoordinatorRequest.coordinator_keys", item.coordinator_keys)
            write_compact_string(out, item.key, "FindCoordinatorRequest.key")
            out.append(_INT8_TAGS.pack(item.key_type, 0))
    except struct.error:
        raise misfit(items, _FIND_COORDINATOR_REQUEST_CODES) from None


def _read_find_coordinator_request_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FindCoordinatorRequest], int]:
    items: list[FindCoordinatorRequest] = []
    for _ in range(count):
        if end - at < 1:
            raise cut_short("FindCoordinatorRequest.key_type", at, end, 1)
        (key_type,) = _INT8.unpack_from(data, at)
        at += 1
        number, at = read_compact_count(data, at, end, 1, "FindCoordinatorRequest.coordinator_keys")
        coordinator_keys, at = read_compact_strings(data, at, end, number, "FindCoordinatorRequest.coordinator_keys")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "FindCoordinatorRequest")
        items.append(FindCoordinatorRequest(key_type=key_type, coordinator_keys=coordinator_keys))
    return items, at


def _write_find_coordinator_request_v4(out: Parts, items: Sequence[FindCoordinatorRequest]) -> None:
    try:
        for item in items:
            if item.key != "":
                raise unknown_field("FindCoordinatorRequest.key", item.key)
            out.append(_INT8.pack(item.key_type))
            write_compact_strings(
                out,
                write_compact_count(out, item.coordinator_keys, "FindCoordinatorRequest.coordinator_keys"),
                "FindCoordinatorRequest.coordinator_keys",
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _FIND_COORDINATOR_REQUEST_CODES) from None


REQUEST: Final = MessageCodec(
    FindCoordinatorRequest,
    {
        0: (_read_find_coordinator_request_v0, _write_find_coordinator_request_v0),
        1: (_read_find_coordinator_request_v1, _write_find_coordinator_request_v1),
        2: (_read_find_coordinator_request_v1, _write_find_coordinator_request_v1),
        3: (_read_find_coordinator_request_v3, _write_find_coordinator_request_v3),
        4: (_read_find_coordinator_request_v4, _write_find_coordinator_request_v4),
        5: (_read_find_coordinator_request_v4, _write_find_coordinator_request_v4),
        6: (_read_find_coordinator_request_v4, _write_find_coordinator_request_v4),
    },
)


class FindCoordinatorResponseCoordinator(msgspec.Struct, kw_only=True, gc=False):
    """Each coordinator result in the response."""

    key: str = ""
    """The coordinator key. (string, versions 4 to 6)"""
    node_id: int = 0
    """The node id. (int32, versions 4 to 6)"""
    host: str = ""
    """The host name. (string, versions 4 to 6)"""
    port: int = 0
    """The port. (int32, versions 4 to 6)"""
    error_code: int = 0
    """The error code, or 0 if there was no error. (int16, versions 4 to 6)"""
    error_message: str | None = ""
    """The error message, or null if there was no error. (string, versions 4 to 6, ignorable)"""


class FindCoordinatorResponse(msgspec.Struct, kw_only=True, gc=False):
    """FindCoordinatorResponse, versions 0 to 6."""

    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32, versions 1 to 6, ignorable)"""
    error_code: int = 0
    """The error code, or 0 if there was no error. (int16, versions 0 to 3)"""
    error_message: str | None = ""
    """The error message, or null if there was no error. (string, versions 1 to 3, ignorable)"""
    node_id: int = 0
    """The node id. (int32, versions 0 to 3)"""
    host: str = ""
    """The host name. (string, versions 0 to 3)"""
    port: int = 0
    """The port. (int32, versions 0 to 3)"""
    coordinators: list[FindCoordinatorResponseCoordinator] = []
    """Each coordinator result in the response. (versions 4 to 6)"""


_FIND_COORDINATOR_RESPONSE_CODES: Final = {"throttle_time_ms": "i", "error_code": "h", "node_id": "i", "port": "i"}
_FIND_COORDINATOR_RESPONSE_COORDINATOR_CODES: Final = {"node_id": "i", "port": "i", "error_code": "h"}


def _read_find_coordinator_response_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FindCoordinatorResponse], int]:
    items: list[FindCoordinatorResponse] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("FindCoordinatorResponse.error_code to node_id", at, end, 6)
        error_code, node_id = _INT16_INT32.unpack_from(data, at)
        at += 6
        host, at = read_string(data, at, end, "FindCoordinatorResponse.host")
        if end - at < 4:
            raise cut_short("FindCoordinatorResponse.port", at, end, 4)
        (port,) = _INT32.unpack_from(data, at)
        at += 4
        items.append(FindCoordinatorResponse(error_code=error_code, node_id=node_id, host=host, port=port))
    return items, at


def _write_find_coordinator_response_v0(out: Parts, items: Sequence[FindCoordinatorResponse]) -> None:
    try:
        for item in items:
            if item.coordinators != []:
                raise unknown_field("FindCoordinatorResponse.coordinators", item.coordinators)
            out.append(_INT16_INT32.pack(item.error_code, item.node_id))
            write_string(out, item.host, "FindCoordinatorResponse.host")
            out.append(_INT32.pack(item.port))
    except struct.error:
        raise misfit(items, _FIND_COORDINATOR_RESPONSE_CODES) from None


def _read_find_coordinator_response_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FindCoordinatorResponse], int]:
    items: list[FindCoordinatorResponse] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("FindCoordinatorResponse.throttle_time_ms to error_code", at, end, 6)
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_nullable_string(data, at, end, "FindCoordinatorResponse.error_message")
        if end - at < 4:
            raise cut_short("FindCoordinatorResponse.node_id", at, end, 4)
        (node_id,) = _INT32.unpack_from(data, at)
        at += 4
        host, at = read_string(data, at, end, "FindCoordinatorResponse.host")
        if end - at < 4:
            raise cut_short("FindCoordinatorResponse.port", at, end, 4)
        (port,) = _INT32.unpack_from(data, at)
        at += 4
        items.append(
            FindCoordinatorResponse(
                throttle_time_ms=throttle_time_ms,
                error_code=error_code,
                error_message=error_message,
                node_id=node_id,
                host=host,
                port=port,
            )
        )
    return items, at


def _write_find_coordinator_response_v1(out: Parts, items: Sequence[FindCoordinatorResponse]) -> None:
    try:
        for item in items:
            if item.coordinators != []:
                raise unknown_field("FindCoordinatorResponse.coordinators", item.coordinators)
            out.append(_INT32_INT16.pack(item.throttle_time_ms, item.error_code))
            write_nullable_string(out, item.error_message, "FindCoordinatorResponse.error_message")
            out.append(_INT32.pack(item.node_id))
            write_string(out, item.host, "FindCoordinatorResponse.host")
            out.append(_INT32.pack(item.port))
    except struct.error:
        raise misfit(items, _FIND_COORDINATOR_RESPONSE_CODES) from None


def _read_find_coordinator_response_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FindCoordinatorResponse], int]:
    items: list[FindCoordinatorResponse] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("FindCoordinatorResponse.throttle_time_ms to error_code", at, end, 6)
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_compact_nullable_string(data, at, end, "FindCoordinatorResponse.error_message")
        if end - at < 4:
            raise cut_short("FindCoordinatorResponse.node_id", at, end, 4)
        (node_id,) = _INT32.unpack_from(data, at)
        at += 4
        host, at = read_compact_string(data, at, end, "FindCoordinatorResponse.host")
        if end - at < 5:
            raise cut_short("FindCoordinatorResponse.port", at, end, 5)
        port, tags = _INT32_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "FindCoordinatorResponse")
        items.append(
            FindCoordinatorResponse(
                throttle_time_ms=throttle_time_ms,
                error_code=error_code,
                error_message=error_message,
                node_id=node_id,
                host=host,
                port=port,
            )
        )
    return items, at


def _write_find_coordinator_response_v3(out: Parts, items: Sequence[FindCoordinatorResponse]) -> None:
    try:
        for item in items:
            if item.coordinators != []:
                raise unknown_field("FindCoordinatorResponse.coordinators", item.coordinators)
            out.append(_INT32_INT16.pack(item.throttle_time_ms, item.error_code))
            write_compact_nullable_string(out, item.error_message, "FindCoordinatorResponse.error_message")
            out.append(_INT32.pack(item.node_id))
            write_compact_string(out, item.host, "FindCoordinatorResponse.host")
            out.append(_INT32_TAGS.pack(item.port, 0))
    except struct.error:
        raise misfit(items, _FIND_COORDINATOR_RESPONSE_CODES) from None


def _read_find_coordinator_response_coordinator_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FindCoordinatorResponseCoordinator], int]:
    items: list[FindCoordinatorResponseCoordinator] = []
    for _ in range(count):
        key, at = read_compact_string(data, at, end, "FindCoordinatorResponseCoordinator.key")
        if end - at < 4:
            raise cut_short("FindCoordinatorResponseCoordinator.node_id", at, end, 4)
        (node_id,) = _INT32.unpack_from(data, at)
        at += 4
        host, at = read_compact_string(data, at, end, "FindCoordinatorResponseCoordinator.host")
        if end - at < 6:
            raise cut_short("FindCoordinatorResponseCoordinator.port to error_code", at, end, 6)
        port, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_compact_nullable_string(
            data, at, end, "FindCoordinatorResponseCoordinator.error_message"
        )
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "FindCoordinatorResponseCoordinator")
        items.append(
            FindCoordinatorResponseCoordinator(
                key=key, node_id=node_id, host=host, port=port, error_code=error_code, error_message=error_message
            )
        )
    return items, at


def _write_find_coordinator_response_coordinator_v4(
    out: Parts, items: Sequence[FindCoordinatorResponseCoordinator]
) -> None:
    try:
        for item in items:
            write_compact_string(out, item.key, "FindCoordinatorResponseCoordinator.key")
            out.append(_INT32.pack(item.node_id))
            write_compact_string(out, item.host, "FindCoordinatorResponseCoordinator.host")
            out.append(_INT32_INT16.pack(item.port, item.error_code))
            write_compact_nullable_string(out, item.error_message, "FindCoordinatorResponseCoordinator.error_message")
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _FIND_COORDINATOR_RESPONSE_COORDINATOR_CODES) from None


def _read_find_coordinator_response_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FindCoordinatorResponse], int]:
    items: list[FindCoordinatorResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("FindCoordinatorResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 14, "FindCoordinatorResponse.coordinators")
        coordinators, at = _read_find_coordinator_response_coordinator_v4(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "FindCoordinatorResponse")
        items.append(FindCoordinatorResponse(throttle_time_ms=throttle_time_ms, coordinators=coordinators))
    return items, at


def _write_find_coordinator_response_v4(out: Parts, items: Sequence[FindCoordinatorResponse]) -> None:
    try:
        for item in items:
            if item.error_code != 0:
                raise unknown_field("FindCoordinatorResponse.error_code", item.error_code)
            if item.node_id != 0:
                raise unknown_field("FindCoordinatorResponse.node_id", item.node_id)
            if item.host != "":
                raise unknown_field("FindCoordinatorResponse.host", item.host)
            if item.port != 0:
                raise unknown_field("FindCoordinatorResponse.port", item.port)
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_find_coordinator_response_coordinator_v4(
                out, write_compact_count(out, item.coordinators, "FindCoordinatorResponse.coordinators")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _FIND_COORDINATOR_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    FindCoordinatorResponse,
    {
        0: (_read_find_coordinator_response_v0, _write_find_coordinator_response_v0),
        1: (_read_find_coordinator_response_v1, _write_find_coordinator_response_v1),
        2: (_read_find_coordinator_response_v1, _write_find_coordinator_response_v1),
        3: (_read_find_coordinator_response_v3, _write_find_coordinator_response_v3),
        4: (_read_find_coordinator_response_v4, _write_find_coordinator_response_v4),
        5: (_read_find_coordinator_response_v4, _write_find_coordinator_response_v4),
        6: (_read_find_coordinator_response_v4, _write_find_coordinator_response_v4),
    },
)
