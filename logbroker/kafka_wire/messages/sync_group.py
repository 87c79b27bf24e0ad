"""SyncGroup, API key 14.

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
    read_bytes,
    read_compact_bytes,
    read_compact_count,
    read_compact_nullable_string,
    read_compact_string,
    read_count,
    read_nullable_string,
    read_string,
    skip_tags,
    unknown_field,
    write_bytes,
    write_compact_bytes,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
    write_count,
    write_nullable_string,
    write_string,
)

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT32_INT16: Final = struct.Struct(">ih")


class SyncGroupRequestAssignment(msgspec.Struct, kw_only=True, gc=False):
    """Each assignment."""

    member_id: str = ""
    """The ID of the member to assign. (string)"""
    assignment: bytes = b""
    """The member assignment. (bytes)"""


class SyncGroupRequest(msgspec.Struct, kw_only=True, gc=False):
    """SyncGroupRequest, versions 0 to 5."""

    group_id: str = ""
    """The unique group identifier. (string)"""
    generation_id: int = 0
    """The generation of the group. (int32)"""
    member_id: str = ""
    """The member ID assigned by the group. (string)"""
    group_instance_id: str | None = None
    """The unique identifier of the consumer instance provided by end user. (string, versions 3 to 5)"""
    protocol_type: str | None = None
    """The group protocol type. (string, version 5, ignorable)"""
    protocol_name: str | None = None
    """The group protocol name. (string, version 5, ignorable)"""
    assignments: list[SyncGroupRequestAssignment] = []
    """Each assignment."""


_SYNC_GROUP_REQUEST_CODES: Final = {"generation_id": "i"}


def _read_sync_group_request_assignment_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[SyncGroupRequestAssignment], int]:
    items: list[SyncGroupRequestAssignment] = []
    for _ in range(count):
        member_id, at = read_string(data, at, end, "SyncGroupRequestAssignment.member_id")
        assignment, at = read_bytes(data, at, end, "SyncGroupRequestAssignment.assignment")
        items.append(SyncGroupRequestAssignment(member_id=member_id, assignment=assignment))
    return items, at


def _write_sync_group_request_assignment_v0(out: Parts, items: Sequence[SyncGroupRequestAssignment]) -> None:
    for item in items:
        write_string(out, item.member_id, "SyncGroupRequestAssignment.member_id")
        write_bytes(out, item.assignment, "SyncGroupRequestAssignment.assignment")


def _read_sync_group_request_v0(data: Buffer, at: int, end: int, count: int) -> tuple[list[SyncGroupRequest], int]:
    items: list[SyncGroupRequest] = []
    for _ in range(count):
        group_id, at = read_string(data, at, end, "SyncGroupRequest.group_id")
        if end - at < 4:
            raise cut_short("SyncGroupRequest.generation_id", at, end, 4)
        (generation_id,) = _INT32.unpack_from(data, at)
        at += 4
        member_id, at = read_string(data, at, end, "SyncGroupRequest.member_id")
        number, at = read_count(data, at, end, 6, "SyncGroupRequest.assignments")
        assignments, at = _read_sync_group_request_assignment_v0(data, at, end, number)
        items.append(
            SyncGroupRequest(
                group_id=group_id, generation_id=generation_id, member_id=member_id, assignments=assignments
            )
        )
    return items, at


def _write_sync_group_request_v0(out: Parts, items: Sequence[SyncGroupRequest]) -> None:
    try:
        for item in items:
            if item.group_instance_id is not None:
                raise unknown_field("SyncGroupRequest.group_instance_id", item.group_instance_id)
            write_string(out, item.group_id, "SyncGroupRequest.group_id")
            out.append(_INT32.pack(item.generation_id))
            write_string(out, item.member_id, "SyncGroupRequest.member_id")
            _write_sync_group_request_assignment_v0(
                out, write_count(out, item.assignments, "SyncGroupRequest.assignments")
            )
    except struct.error:
        raise misfit(items, _SYNC_GROUP_REQUEST_CODES) from None


def _read_sync_group_request_v3(data: Buffer, at: int, end: int, count: int) -> tuple[list[SyncGroupRequest], int]:
    items: list[SyncGroupRequest] = []
    for _ in range(count):
        group_id, at = read_string(data, at, end, "SyncGroupRequest.group_id")
        if end - at < 4:
            raise cut_short("SyncGroupRequest.generation_id", at, end, 4)
        (generation_id,) = _INT32.unpack_from(data, at)
        at += 4
        member_id, at = read_string(data, at, end, "SyncGroupRequest.member_id")
        group_instance_id, at = read_nullable_string(data, at, end, "SyncGroupRequest.group_instance_id")
        number, at = read_count(data, at, end, 6, "SyncGroupRequest.assignments")
        assignments, at = _read_sync_group_request_assignment_v0(data, at, end, number)
        items.append(
            SyncGroupRequest(
                group_id=group_id,
                generation_id=generation_id,
                member_id=member_id,
                group_instance_id=group_instance_id,
                assignments=assignments,
            )
        )
    return items, at


def _write_sync_group_request_v3(out: Parts, items: Sequence[SyncGroupRequest]) -> None:
    try:
        for item in items:
            write_string(out, item.group_id, "SyncGroupRequest.group_id")
            out.append(_INT32.pack(item.generation_id))
            write_string(out, item.member_id, "SyncGroupRequest.member_id")
            write_nullable_string(out, item.group_instance_id, "SyncGroupRequest.group_instance_id")
            _write_sync_group_request_assignment_v0(
                out, write_count(out, item.assignments, "SyncGroupRequest.assignments")
            )
    except struct.error:
        raise misfit(items, _SYNC_GROUP_REQUEST_CODES) from None


def _read_sync_group_request_assignment_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[SyncGroupRequestAssignment], int]:
    items: list[SyncGroupRequestAssignment] = []
    for _ in range(count):
        member_id, at = read_compact_string(data, at, end, "SyncGroupRequestAssignment.member_id")
        assignment, at = read_compact_bytes(data, at, end, "SyncGroupRequestAssignment.assignment")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "SyncGroupRequestAssignment")
        items.append(SyncGroupRequestAssignment(member_id=member_id, assignment=assignment))
    return items, at


def _write_sync_group_request_assignment_v4(out: Parts, items: Sequence[SyncGroupRequestAssignment]) -> None:
    for item in items:
        write_compact_string(out, item.member_id, "SyncGroupRequestAssignment.member_id")
        write_compact_bytes(out, item.assignment, "SyncGroupRequestAssignment.assignment")
        out.append(NO_TAGS)


def _read_sync_group_request_v4(data: Buffer, at: int, end: int, count: int) -> tuple[list[SyncGroupRequest], int]:
    items: list[SyncGroupRequest] = []
    for _ in range(count):
        group_id, at = read_compact_string(data, at, end, "SyncGroupRequest.group_id")
        if end - at < 4:
            raise cut_short("SyncGroupRequest.generation_id", at, end, 4)
        (generation_id,) = _INT32.unpack_from(data, at)
        at += 4
        member_id, at = read_compact_string(data, at, end, "SyncGroupRequest.member_id")
        group_instance_id, at = read_compact_nullable_string(data, at, end, "SyncGroupRequest.group_instance_id")
        number, at = read_compact_count(data, at, end, 3, "SyncGroupRequest.assignments")
        assignments, at = _read_sync_group_request_assignment_v4(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "SyncGroupRequest")
        items.append(
            SyncGroupRequest(
                group_id=group_id,
                generation_id=generation_id,
                member_id=member_id,
                group_instance_id=group_instance_id,
                assignments=assignments,
            )
        )
    return items, at


def _write_sync_group_request_v4(out: Parts, items: Sequence[SyncGroupRequest]) -> None:
    try:
        for item in items:
            write_compact_string(out, item.group_id, "SyncGroupRequest.group_id")
            out.append(_INT32.pack(item.generation_id))
            write_compact_string(out, item.member_id, "SyncGroupRequest.member_id")
            write_compact_nullable_string(out, item.group_instance_id, "SyncGroupRequest.group_instance_id")
            _write_sync_group_request_assignment_v4(
                out, write_compact_count(out, item.assignments, "SyncGroupRequest.assignments")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _SYNC_GROUP_REQUEST_CODES) from None


def _read_sync_group_request_v5(data: Buffer, at: int, end: int, count: int) -> tuple[list[SyncGroupRequest], int]:
    items: list[SyncGroupRequest] = []
    for _ in range(count):
        group_id, at = read_compact_string(data, at, end, "SyncGroupRequest.group_id")
        if end - at < 4:
            raise cut_short("SyncGroupRequest.generation_id", at, end, 4)
        (generation_id,) = _INT32.unpack_from(data, at)
        at += 4
        member_id, at = read_compact_string(data, at, end, "SyncGroupRequest.member_id")
        group_instance_id, at = read_compact_nullable_string(data, at, end, "SyncGroupRequest.group_instance_id")
        protocol_type, at = read_compact_nullable_string(data, at, end, "SyncGroupRequest.protocol_type")
        protocol_name, at = read_compact_nullable_string(data, at, end, "SyncGroupRequest.protocol_name")
        number, at = read_compact_count(data, at, end, 3, "SyncGroupRequest.assignments")
        assignments, at = _read_sync_group_request_assignment_v4(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "SyncGroupRequest")
        items.append(
            SyncGroupRequest(
                group_id=group_id,
                generation_id=generation_id,
                member_id=member_id,
                group_instance_id=group_instance_id,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
                assignments=assignments,
            )
        )
    return items, at


def _write_sync_group_request_v5(out: Parts, items: Sequence[SyncGroupRequest]) -> None:
    try:
        for item in items:
            write_compact_string(out, item.group_id, "SyncGroupRequest.group_id")
            out.append(_INT32.pack(item.generation_id))
            write_compact_string(out, item.member_id, "SyncGroupRequest.member_id")
            write_compact_nullable_string(out, item.group_instance_id, "SyncGroupRequest.group_instance_id")
            write_compact_nullable_string(out, item.protocol_type, "SyncGroupRequest.protocol_type")
            write_compact_nullable_string(out, item.protocol_name, "SyncGroupRequest.protocol_name")
            _write_sync_group_request_assignment_v4(
                out, write_compact_count(out, item.assignments, "SyncGroupRequest.assignments")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _SYNC_GROUP_REQUEST_CODES) from None


REQUEST: Final = MessageCodec(
    SyncGroupRequest,
    {
        0: (_read_sync_group_request_v0, _write_sync_group_request_v0),
        1: (_read_sync_group_request_v0, _write_sync_group_request_v0),
        2: (_read_sync_group_request_v0, _write_sync_group_request_v0),
        3: (_read_sync_group_request_v3, _write_sync_group_request_v3),
        4: (_read_sync_group_request_v4, _write_sync_group_request_v4),
        5: (_read_sync_group_request_v5, _write_sync_group_request_v5),
    },
)


class SyncGroupResponse(msgspec.Struct, kw_only=True, gc=False):
    """SyncGroupResponse, versions 0 to 5."""

    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32, versions 1 to 5, ignorable)"""
    error_code: int = 0
    """The error code, or 0 if there was no error. (int16)"""
    protocol_type: str | None = None
    """The group protocol type. (string, version 5, ignorable)"""
    protocol_name: str | None = None
    """The group protocol name. (string, version 5, ignorable)"""
    assignment: bytes = b""
    """The member assignment. (bytes)"""


_SYNC_GROUP_RESPONSE_CODES: Final = {"throttle_time_ms": "i", "error_code": "h"}


def _read_sync_group_response_v0(data: Buffer, at: int, end: int, count: int) -> tuple[list[SyncGroupResponse], int]:
    items: list[SyncGroupResponse] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("SyncGroupResponse.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        assignment, at = read_bytes(data, at, end, "SyncGroupResponse.assignment")
        items.append(SyncGroupResponse(error_code=error_code, assignment=assignment))
    return items, at


def _write_sync_group_response_v0(out: Parts, items: Sequence[SyncGroupResponse]) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            write_bytes(out, item.assignment, "SyncGroupResponse.assignment")
    except struct.error:
        raise misfit(items, _SYNC_GROUP_RESPONSE_CODES) from None


def _read_sync_group_response_v1(data: Buffer, at: int, end: int, count: int) -> tuple[list[SyncGroupResponse], int]:
    items: list[SyncGroupResponse] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("SyncGroupResponse.throttle_time_ms to error_code", at, end, 6)
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        assignment, at = read_bytes(data, at, end, "SyncGroupResponse.assignment")
        items.append(SyncGroupResponse(throttle_time_ms=throttle_time_ms, error_code=error_code, assignment=assignment))
    return items, at


def _write_sync_group_response_v1(out: Parts, items: Sequence[SyncGroupResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT16.pack(item.throttle_time_ms, item.error_code))
            write_bytes(out, item.assignment, "SyncGroupResponse.assignment")
    except struct.error:
        raise misfit(items, _SYNC_GROUP_RESPONSE_CODES) from None


def _read_sync_group_response_v4(data: Buffer, at: int, end: int, count: int) -> tuple[list[SyncGroupResponse], int]:
    items: list[SyncGroupResponse] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("SyncGroupResponse.throttle_time_ms to error_code", at, end, 6)
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        assignment, at = read_compact_bytes(data, at, end, "SyncGroupResponse.assignment")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "SyncGroupResponse")
        items.append(SyncGroupResponse(throttle_time_ms=throttle_time_ms, error_code=error_code, assignment=assignment))
    return items, at


def _write_sync_group_response_v4(out: Parts, items: Sequence[SyncGroupResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT16.pack(item.throttle_time_ms, item.error_code))
            write_compact_bytes(out, item.assignment, "SyncGroupResponse.assignment")
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _SYNC_GROUP_RESPONSE_CODES) from None


def _read_sync_group_response_v5(data: Buffer, at: int, end: int, count: int) -> tuple[list[SyncGroupResponse], int]:
    items: list[SyncGroupResponse] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("SyncGroupResponse.throttle_time_ms to error_code", at, end, 6)
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        protocol_type, at = read_compact_nullable_string(data, at, end, "SyncGroupResponse.protocol_type")
        protocol_name, at = read_compact_nullable_string(data, at, end, "SyncGroupResponse.protocol_name")
        assignment, at = read_compact_bytes(data, at, end, "SyncGroupResponse.assignment")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "SyncGroupResponse")
        items.append(
            SyncGroupResponse(
                throttle_time_ms=throttle_time_ms,
                error_code=error_code,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
                assignment=assignment,
            )
        )
    return items, at


def _write_sync_group_response_v5(out: Parts, items: Sequence[SyncGroupResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT16.pack(item.throttle_time_ms, item.error_code))
            write_compact_nullable_string(out, item.protocol_type, "SyncGroupResponse.protocol_type")
            write_compact_nullable_string(out, item.protocol_name, "SyncGroupResponse.protocol_name")
            write_compact_bytes(out, item.assignment, "SyncGroupResponse.assignment")
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _SYNC_GROUP_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    SyncGroupResponse,
    {
        0: (_read_sync_group_response_v0, _write_sync_group_response_v0),
        1: (_read_sync_group_response_v1, _write_sync_group_response_v1),
        2: (_read_sync_group_response_v1, _write_sync_group_response_v1),
        3: (_read_sync_group_response_v1, _write_sync_group_response_v1),
        4: (_read_sync_group_response_v4, _write_sync_group_response_v4),
        5: (_read_sync_group_response_v5, _write_sync_group_response_v5),
    },
)
