"""Heartbeat, API key 12.

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
    read_compact_nullable_string,
    read_compact_string,
    read_nullable_string,
    read_string,
    skip_tags,
    unknown_field,
    write_compact_nullable_string,
    write_compact_string,
    write_nullable_string,
    write_string,
)

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT32_INT16: Final = struct.Struct(">ih")
_INT32_INT16_TAGS: Final = struct.Struct(">ihB")


class HeartbeatRequest(msgspec.Struct, kw_only=True, gc=False):
    """HeartbeatRequest, versions 0 to 4."""

    group_id: str = ""
    """The group id. (string)"""
    generation_id: int = 0
    """The generation of the group. (int32)"""
    member_id: str = ""
    """The member ID. (string)"""
    group_instance_id: str | None = None
    """The unique identifier of the consumer instance provided by end user. (string, versions 3 to 4)"""


_HEARTBEAT_REQUEST_CODES: Final = {"generation_id": "i"}


def _read_heartbeat_request_v0(data: Buffer, at: int, end: int, count: int) -> tuple[list[HeartbeatRequest], int]:
    items: list[HeartbeatRequest] = []
    for _ in range(count):
        group_id, at = read_string(data, at, end, "HeartbeatRequest.group_id")
        if end - at < 4:
            raise cut_short("HeartbeatRequest.generation_id", at, end, 4)
        (generation_id,) = _INT32.unpack_from(data, at)
        at += 4
        member_id, at = read_string(data, at, end, "HeartbeatRequest.member_id")
        items.append(HeartbeatRequest(group_id=group_id, generation_id=generation_id, member_id=member_id))
    return items, at


def _write_heartbeat_request_v0(out: Parts, items: Sequence[HeartbeatRequest]) -> None:
    try:
        for item in items:
            if item.group_instance_id is not None:
                raise unknown_field("HeartbeatRequest.group_instance_id", item.group_instance_id)
            write_string(out, item.group_id, "HeartbeatRequest.group_id")
            out.append(_INT32.pack(item.generation_id))
            write_string(out, item.member_id, "HeartbeatRequest.member_id")
    except struct.error:
        raise misfit(items, _HEARTBEAT_REQUEST_CODES) from None


def _read_heartbeat_request_v3(data: Buffer, at: int, end: int, count: int) -> tuple[list[HeartbeatRequest], int]:
    items: list[HeartbeatRequest] = []
    for _ in range(count):
        group_id, at = read_string(data, at, end, "HeartbeatRequest.group_id")
        if end - at < 4:
            raise cut_short("HeartbeatRequest.generation_id", at, end, 4)
        (generation_id,) = _INT32.unpack_from(data, at)
        at += 4
        member_id, at = read_string(data, at, end, "HeartbeatRequest.member_id")
        group_instance_id, at = read_nullable_string(data, at, end, "HeartbeatRequest.group_instance_id")
        items.append(
            HeartbeatRequest(
                group_id=group_id, generation_id=generation_id, member_id=member_id, group_instance_id=group_instance_id
            )
        )
    return items, at


def _write_heartbeat_request_v3(out: Parts, items: Sequence[HeartbeatRequest]) -> None:
    try:
        for item in items:
            write_string(out, item.group_id, "HeartbeatRequest.group_id")
            out.append(_INT32.pack(item.generation_id))
            write_string(out, item.member_id, "HeartbeatRequest.member_id")
            write_nullable_string(out, item.group_instance_id, "HeartbeatRequest.group_instance_id")
    except struct.error:
        raise misfit(items, _HEARTBEAT_REQUEST_CODES) from None


def _read_heartbeat_request_v4(data: Buffer, at: int, end: int, count: int) -> tuple[list[HeartbeatRequest], int]:
    items: list[HeartbeatRequest] = []
    for _ in range(count):
        group_id, at = read_compact_string(data, at, end, "HeartbeatRequest.group_id")
        if end - at < 4:
            raise cut_short("HeartbeatRequest.generation_id", at, end, 4)
        (generation_id,) = _INT32.unpack_from(data, at)
        at += 4
        member_id, at = read_compact_string(data, at, end, "HeartbeatRequest.member_id")
        group_instance_id, at = read_compact_nullable_string(data, at, end, "HeartbeatRequest.group_instance_id")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "HeartbeatRequest")
        items.append(
            HeartbeatRequest(
                group_id=group_id, generation_id=generation_id, member_id=member_id, group_instance_id=group_instance_id
            )
        )
    return items, at


def _write_heartbeat_request_v4(out: Parts, items: Sequence[HeartbeatRequest]) -> None:
    try:
        for item in items:
            write_compact_string(out, item.group_id, "HeartbeatRequest.group_id")
            out.append(_INT32.pack(item.generation_id))
            write_compact_string(out, item.member_id, "HeartbeatRequest.member_id")
            write_compact_nullable_string(out, item.group_instance_id, "HeartbeatRequest.group_instance_id")
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _HEARTBEAT_REQUEST_CODES) from None


REQUEST: Final = MessageCodec(
    HeartbeatRequest,
    {
        0: (_read_heartbeat_request_v0, _write_heartbeat_request_v0),
        1: (_read_heartbeat_request_v0, _write_heartbeat_request_v0),
        2: (_read_heartbeat_request_v0, _write_heartbeat_request_v0),
        3: (_read_heartbeat_request_v3, _write_heartbeat_request_v3),
        4: (_read_heartbeat_request_v4, _write_heartbeat_request_v4),
    },
)


class HeartbeatResponse(msgspec.Struct, kw_only=True, gc=False):
    """HeartbeatResponse, versions 0 to 4."""

    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32, versions 1 to 4, ignorable)"""
    error_code: int = 0
    """The error code, or 0 if there was no error. (int16)"""


_HEARTBEAT_RESPONSE_CODES: Final = {"throttle_time_ms": "i", "error_code": "h"}


def _read_heartbeat_response_v0(data: Buffer, at: int, end: int, count: int) -> tuple[list[HeartbeatResponse], int]:
    items: list[HeartbeatResponse] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("HeartbeatResponse.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        items.append(HeartbeatResponse(error_code=error_code))
    return items, at


def _write_heartbeat_response_v0(out: Parts, items: Sequence[HeartbeatResponse]) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
    except struct.error:
        raise misfit(items, _HEARTBEAT_RESPONSE_CODES) from None


def _read_heartbeat_response_v1(data: Buffer, at: int, end: int, count: int) -> tuple[list[HeartbeatResponse], int]:
    items: list[HeartbeatResponse] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("HeartbeatResponse.throttle_time_ms to error_code", at, end, 6)
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        items.append(HeartbeatResponse(throttle_time_ms=throttle_time_ms, error_code=error_code))
    return items, at


def _write_heartbeat_response_v1(out: Parts, items: Sequence[HeartbeatResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT16.pack(item.throttle_time_ms, item.error_code))
    except struct.error:
        raise misfit(items, _HEARTBEAT_RESPONSE_CODES) from None


def _read_heartbeat_response_v4(data: Buffer, at: int, end: int, count: int) -> tuple[list[HeartbeatResponse], int]:
    items: list[HeartbeatResponse] = []
    for _ in range(count):
        if end - at < 7:
            raise cut_short("HeartbeatResponse.throttle_time_ms to error_code", at, end, 7)
        throttle_time_ms, error_code, tags = _INT32_INT16_TAGS.unpack_from(data, at)
        at += 7
        if tags:
            at = skip_tags(data, at - 1, end, "HeartbeatResponse")
        items.append(HeartbeatResponse(throttle_time_ms=throttle_time_ms, error_code=error_code))
    return items, at


def _write_heartbeat_response_v4(out: Parts, items: Sequence[HeartbeatResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT16_TAGS.pack(item.throttle_time_ms, item.error_code, 0))
    except struct.error:
        raise misfit(items, _HEARTBEAT_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    HeartbeatResponse,
    {
        0: (_read_heartbeat_response_v0, _write_heartbeat_response_v0),
        1: (_read_heartbeat_response_v1, _write_heartbeat_response_v1),
        2: (_read_heartbeat_response_v1, _write_heartbeat_response_v1),
        3: (_read_heartbeat_response_v1, _write_heartbeat_response_v1),
        4: (_read_heartbeat_response_v4, _write_heartbeat_response_v4),
    },
)
