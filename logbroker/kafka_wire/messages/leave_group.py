"""LeaveGroup, API key 13.

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
    unknown_field,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
    write_count,
    write_nullable_string,
    write_string,
)

_INT16: Final = struct.Struct(">h")
_INT16_TAGS: Final = struct.Struct(">hB")
_INT32_INT16: Final = struct.Struct(">ih")


class LeaveGroupRequestMemberIdentity(msgspec.Struct, kw_only=True, gc=False):
    """List of leaving member identities."""

    member_id: str = ""
    """The member ID to remove from the group. (string, versions 3 to 5)"""
    group_instance_id: str | None = None
    """The group instance ID to remove from the group. (string, versions 3 to 5)"""
    reason: str | None = None
    """The reason why the member left the group. (string, version 5, ignorable)"""


class LeaveGroupRequest(msgspec.Struct, kw_only=True, gc=False):
    """LeaveGroupRequest, versions 0 to 5."""

    group_id: str = ""
    """The ID of the group to leave. (string)"""
    member_id: str = ""
    """The member ID to remove from the group. (string, versions 0 to 2)"""
    members: list[LeaveGroupRequestMemberIdentity] = []
    """List of leaving member identities. (versions 3 to 5)"""


def _read_leave_group_request_v0(data: Buffer, at: int, end: int, count: int) -> tuple[list[LeaveGroupRequest], int]:
    items: list[LeaveGroupRequest] = []
    for _ in range(count):
        group_id, at = read_string(data, at, end, "LeaveGroupRequest.group_id")
        member_id, at = read_string(data, at, end, "LeaveGroupRequest.member_id")
        items.append(LeaveGroupRequest(group_id=group_id, member_id=member_id))
    return items, at


def _write_leave_group_request_v0(out: Parts, items: Sequence[LeaveGroupRequest]) -> None:
    for item in items:
        if item.members != []:
            raise unknown_field("LeaveGroupRequest.members", item.members)
        write_string(out, item.group_id, "LeaveGroupRequest.group_id")
        write_string(out, item.member_id, "LeaveGroupRequest.member_id")


def _read_leave_group_request_member_identity_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[LeaveGroupRequestMemberIdentity], int]:
    items: list[LeaveGroupRequestMemberIdentity] = []
    for _ in range(count):
        member_id, at = read_string(data, at, end, "LeaveGroupRequestMemberIdentity.member_id")
        group_instance_id, at = read_nullable_string(data, at, end, "LeaveGroupRequestMemberIdentity.group_instance_id")
        items.append(LeaveGroupRequestMemberIdentity(member_id=member_id, group_instance_id=group_instance_id))
    return items, at


def _write_leave_group_request_member_identity_v3(out: Parts, items: Sequence[LeaveGroupRequestMemberIdentity]) -> None:
    for item in items:
        write_string(out, item.member_id, "LeaveGroupRequestMemberIdentity.member_id")
        write_nullable_string(out, item.group_instance_id, "LeaveGroupRequestMemberIdentity.group_instance_id")


def _read_leave_group_request_v3(data: Buffer, at: int, end: int, count: int) -> tuple[list[LeaveGroupRequest], int]:
    items: list[LeaveGroupRequest] = []
    for _ in range(count):
        group_id, at = read_string(data, at, end, "LeaveGroupRequest.group_id")
        number, at = read_count(data, at, end, 4, "LeaveGroupRequest.members")
        members, at = _read_leave_group_request_member_identity_v3(data, at, end, number)
        items.append(LeaveGroupRequest(group_id=group_id, members=members))
    return items, at


def _write_leave_group_request_v3(out: Parts, items: Sequence[LeaveGroupRequest]) -> None:
    for item in items:
        if item.member_id != "":
            raise unknown_field("LeaveGroupRequest.member_id", item.member_id)
        write_string(out, item.group_id, "LeaveGroupRequest.group_id")
        _write_leave_group_request_member_identity_v3(out, write_count(out, item.members, "LeaveGroupRequest.members"))


def _read_leave_group_request_member_identity_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[LeaveGroupRequestMemberIdentity], int]:
    items: list[LeaveGroupRequestMemberIdentity] = []
    for _ in range(count):
        member_id, at = read_compact_string(data, at, end, "LeaveGroupRequestMemberIdentity.member_id")
        group_instance_id, at = read_compact_nullable_string(
            data, at, end, "LeaveGroupRequestMemberIdentity.group_instance_id"
        )
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "LeaveGroupRequestMemberIdentity")
        items.append(LeaveGroupRequestMemberIdentity(member_id=member_id, group_instance_id=group_instance_id))
    return items, at


def _write_leave_group_request_member_identity_v4(out: Parts, items: Sequence[LeaveGroupRequestMemberIdentity]) -> None:
    for item in items:
        write_compact_string(out, item.member_id, "LeaveGroupRequestMemberIdentity.member_id")
        write_compact_nullable_string(out, item.group_instance_id, "LeaveGroupRequestMemberIdentity.group_instance_id")
        out.append(NO_TAGS)


def _read_leave_group_request_v4(data: Buffer, at: int, end: int, count: int) -> tuple[list[LeaveGroupRequest], int]:
    items: list[LeaveGroupRequest] = []
    for _ in range(count):
        group_id, at = read_compact_string(data, at, end, "LeaveGroupRequest.group_id")
        number, at = read_compact_count(data, at, end, 3, "LeaveGroupRequest.members")
        members, at = _read_leave_group_request_member_identity_v4(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "LeaveGroupRequest")
        items.append(LeaveGroupRequest(group_id=group_id, members=members))
    return items, at


def _write_leave_group_request_v4(out: Parts, items: Sequence[LeaveGroupRequest]) -> None:
    for item in items:
        if item.member_id != "":
            raise unknown_field("LeaveGroupRequest.member_id", item.member_id)
        write_compact_string(out, item.group_id, "LeaveGroupRequest.group_id")
        _write_leave_group_request_member_identity_v4(
            out, write_compact_count(out, item.members, "LeaveGroupRequest.members")
        )
        out.append(NO_TAGS)


def _read_leave_group_request_member_identity_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[LeaveGroupRequestMemberIdentity], int]:
    items: list[LeaveGroupRequestMemberIdentity] = []
    for _ in range(count):
        member_id, at = read_compact_string(data, at, end, "LeaveGroupRequestMemberIdentity.member_id")
        group_instance_id, at = read_compact_nullable_string(
            data, at, end, "LeaveGroupRequestMemberIdentity.group_instance_id"
        )
        reason, at = read_compact_nullable_string(data, at, end, "LeaveGroupRequestMemberIdentity.reason")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "LeaveGroupRequestMemberIdentity")
        items.append(
            LeaveGroupRequestMemberIdentity(member_id=member_id, group_instance_id=group_instance_id, reason=reason)
        )
    return items, at


def _write_leave_group_request_member_identity_v5(out: Parts, items: Sequence[LeaveGroupRequestMemberIdentity]) -> None:
    for item in items:
        write_compact_string(out, item.member_id, "LeaveGroupRequestMemberIdentity.member_id")
        write_compact_nullable_string(out, item.group_instance_id, "LeaveGroupRequestMemberIdentity.group_instance_id")
        write_compact_nullable_string(out, item.reason, "LeaveGroupRequestMemberIdentity.reason")
        out.append(NO_TAGS)


def _read_leave_group_request_v5(data: Buffer, at: int, end: int, count: int) -> tuple[list[LeaveGroupRequest], int]:
    items: list[LeaveGroupRequest] = []
    for _ in range(count):
        group_id, at = read_compact_string(data, at, end, "LeaveGroupRequest.group_id")
        number, at = read_compact_count(data, at, end, 4, "LeaveGroupRequest.members")
        members, at = _read_leave_group_request_member_identity_v5(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "LeaveGroupRequest")
        items.append(LeaveGroupRequest(group_id=group_id, members=members))
    return items, at


def _write_leave_group_request_v5(out: Parts, items: Sequence[LeaveGroupRequest]) -> None:
    for item in items:
        if item.member_id != "":
            raise unknown_field("LeaveGroupRequest.member_id", item.member_id)
        write_compact_string(out, item.group_id, "LeaveGroupRequest.group_id")
        _write_leave_group_request_member_identity_v5(
            out, write_compact_count(out, item.members, "LeaveGroupRequest.members")
        )
        out.append(NO_TAGS)


REQUEST: Final = MessageCodec(
    LeaveGroupRequest,
    {
        0: (_read_leave_group_request_v0, _write_leave_group_request_v0),
        1: (_read_leave_group_request_v0, _write_leave_group_request_v0),
        2: (_read_leave_group_request_v0, _write_leave_group_request_v0),
        3: (_read_leave_group_request_v3, _write_leave_group_request_v3),
        4: (_read_leave_group_request_v4, _write_leave_group_request_v4),
        5: (_read_leave_group_request_v5, _write_leave_group_request_v5),
    },
)


class LeaveGroupResponseMember(msgspec.Struct, kw_only=True, gc=False):
    """List of leaving member responses."""

    member_id: str = ""
    """The member ID to remove from the group. (string, versions 3 to 5)"""
    group_instance_id: str | None = ""
    """The group instance ID to remove from the group. (string, versions 3 to 5)"""
    error_code: int = 0
    """The error code, or 0 if there was no error. (int16, versions 3 to 5)"""


class LeaveGroupResponse(msgspec.Struct, kw_only=True, gc=False):
    """LeaveGroupResponse, versions 0 to 5."""

    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32, versions 1 to 5, ignorable)"""
    error_code: int = 0
    """The error code, or 0 if there was no error. (int16)"""
    members: list[LeaveGroupResponseMember] = []
    """List of leaving member responses. (versions 3 to 5)"""


_LEAVE_GROUP_RESPONSE_CODES: Final = {"throttle_time_ms": "i", "error_code": "h"}
_LEAVE_GROUP_RESPONSE_MEMBER_CODES: Final = {"error_code": "h"}


def _read_leave_group_response_v0(data: Buffer, at: int, end: int, count: int) -> tuple[list[LeaveGroupResponse], int]:
    items: list[LeaveGroupResponse] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("LeaveGroupResponse.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        items.append(LeaveGroupResponse(error_code=error_code))
    return items, at


def _write_leave_group_response_v0(out: Parts, items: Sequence[LeaveGroupResponse]) -> None:
    try:
        for item in items:
            if item.members != []:
                raise unknown_field("LeaveGroupResponse.members", item.members)
            out.append(_INT16.pack(item.error_code))
    except struct.error:
        raise misfit(items, _LEAVE_GROUP_RESPONSE_CODES) from None


def _read_leave_group_response_v1(data: Buffer, at: int, end: int, count: int) -> tuple[list[LeaveGroupResponse], int]:
    items: list[LeaveGroupResponse] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("LeaveGroupResponse.throttle_time_ms to error_code", at, end, 6)
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        items.append(LeaveGroupResponse(throttle_time_ms=throttle_time_ms, error_code=error_code))
    return items, at


def _write_leave_group_response_v1(out: Parts, items: Sequence[LeaveGroupResponse]) -> None:
    try:
        for item in items:
            if item.members != []:
                raise unknown_field("LeaveGroupResponse.members", item.members)
            out.append(_INT32_INT16.pack(item.throttle_time_ms, item.error_code))
    except struct.error:
        raise misfit(items, _LEAVE_GROUP_RESPONSE_CODES) from None


def _read_leave_group_response_member_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[LeaveGroupResponseMember], int]:
    items: list[LeaveGroupResponseMember] = []
    for _ in range(count):
        member_id, at = read_string(data, at, end, "LeaveGroupResponseMember.member_id")
        group_instance_id, at = read_nullable_string(data, at, end, "LeaveGroupResponseMember.group_instance_id")
        if end - at < 2:
            raise cut_short("LeaveGroupResponseMember.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        items.append(
            LeaveGroupResponseMember(member_id=member_id, group_instance_id=group_instance_id, error_code=error_code)
        )
    return items, at


def _write_leave_group_response_member_v3(out: Parts, items: Sequence[LeaveGroupResponseMember]) -> None:
    try:
        for item in items:
            write_string(out, item.member_id, "LeaveGroupResponseMember.member_id")
            write_nullable_string(out, item.group_instance_id, "LeaveGroupResponseMember.group_instance_id")
            out.append(_INT16.pack(item.error_code))
    except struct.error:
        raise misfit(items, _LEAVE_GROUP_RESPONSE_MEMBER_CODES) from None


def _read_leave_group_response_v3(data: Buffer, at: int, end: int, count: int) -> tuple[list[LeaveGroupResponse], int]:
    items: list[LeaveGroupResponse] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("LeaveGroupResponse.throttle_time_ms to error_code", at, end, 6)
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        number, at = read_count(data, at, end, 6, "LeaveGroupResponse.members")
        members, at = _read_leave_group_response_member_v3(data, at, end, number)
        items.append(LeaveGroupResponse(throttle_time_ms=throttle_time_ms, error_code=error_code, members=members))
    return items, at


def _write_leave_group_response_v3(out: Parts, items: Sequence[LeaveGroupResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT16.pack(item.throttle_time_ms, item.error_code))
            _write_leave_group_response_member_v3(out, write_count(out, item.members, "LeaveGroupResponse.members"))
    except struct.error:
        raise misfit(items, _LEAVE_GROUP_RESPONSE_CODES) from None


def _read_leave_group_response_member_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[LeaveGroupResponseMember], int]:
    items: list[LeaveGroupResponseMember] = []
    for _ in range(count):
        member_id, at = read_compact_string(data, at, end, "LeaveGroupResponseMember.member_id")
        group_instance_id, at = read_compact_nullable_string(
            data, at, end, "LeaveGroupResponseMember.group_instance_id"
        )
        if end - at < 3:
            raise cut_short("LeaveGroupResponseMember.error_code", at, end, 3)
        error_code, tags = _INT16_TAGS.unpack_from(data, at)
        at += 3
        if tags:
            at = skip_tags(data, at - 1, end, "LeaveGroupResponseMember")
        items.append(
            LeaveGroupResponseMember(member_id=member_id, group_instance_id=group_instance_id, error_code=error_code)
        )
    return items, at


def _write_leave_group_response_member_v4(out: Parts, items: Sequence[LeaveGroupResponseMember]) -> None:
    try:
        for item in items:
            write_compact_string(out, item.member_id, "LeaveGroupResponseMember.member_id")
            write_compact_nullable_string(out, item.group_instance_id, "LeaveGroupResponseMember.group_instance_id")
            out.append(_INT16_TAGS.pack(item.error_code, 0))
    except struct.error:
        raise misfit(items, _LEAVE_GROUP_RESPONSE_MEMBER_CODES) from None


def _read_leave_group_response_v4(data: Buffer, at: int, end: int, count: int) -> tuple[list[LeaveGroupResponse], int]:
    items: list[LeaveGroupResponse] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("LeaveGroupResponse.throttle_time_ms to error_code", at, end, 6)
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        number, at = read_compact_count(data, at, end, 5, "LeaveGroupResponse.members")
        members, at = _read_leave_group_response_member_v4(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "LeaveGroupResponse")
        items.append(LeaveGroupResponse(throttle_time_ms=throttle_time_ms, error_code=error_code, members=members))
    return items, at


def _write_leave_group_response_v4(out: Parts, items: Sequence[LeaveGroupResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT16.pack(item.throttle_time_ms, item.error_code))
            _write_leave_group_response_member_v4(
                out, write_compact_count(out, item.members, "LeaveGroupResponse.members")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _LEAVE_GROUP_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    LeaveGroupResponse,
    {
        0: (_read_leave_group_response_v0, _write_leave_group_response_v0),
        1: (_read_leave_group_response_v1, _write_leave_group_response_v1),
        2: (_read_leave_group_response_v1, _write_leave_group_response_v1),
        3: (_read_leave_group_response_v3, _write_leave_group_response_v3),
        4: (_read_leave_group_response_v4, _write_leave_group_response_v4),
        5: (_read_leave_group_response_v4, _write_leave_group_response_v4),
    },
)
