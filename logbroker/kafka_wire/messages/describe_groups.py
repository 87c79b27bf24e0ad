"""DescribeGroups, API key 15.

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
    read_compact_strings,
    read_count,
    read_nullable_string,
    read_string,
    read_strings,
    skip_tags,
    unknown_field,
    write_bytes,
    write_compact_bytes,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
    write_compact_strings,
    write_count,
    write_nullable_string,
    write_string,
    write_strings,
)

_BOOL: Final = struct.Struct(">?")
_BOOL_TAGS: Final = struct.Struct(">?B")
_INT8: Final = struct.Struct(">b")
_INT8_TAGS: Final = struct.Struct(">bB")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT32_TAGS: Final = struct.Struct(">iB")


class DescribeGroupsRequest(msgspec.Struct, kw_only=True, gc=False):
    """DescribeGroupsRequest, versions 0 to 6."""

    groups: list[str] = []
    """The names of the groups to describe. (string)"""
    include_authorized_operations: bool = False
    """Whether to include authorized operations. (bool, versions 3 to 6)"""


_DESCRIBE_GROUPS_REQUEST_CODES: Final = {"include_authorized_operations": "b"}


def _read_describe_groups_request_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeGroupsRequest], int]:
    items: list[DescribeGroupsRequest] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 2, "DescribeGroupsRequest.groups")
        groups, at = read_strings(data, at, end, number, "DescribeGroupsRequest.groups")
        items.append(DescribeGroupsRequest(groups=groups))
    return items, at


def _write_describe_groups_request_v0(out: Parts, items: Sequence[DescribeGroupsRequest]) -> None:
    for item in items:
        if item.include_authorized_operations is not False:
            raise unknown_field(
                "DescribeGroupsRequest.include_authorized_operations", item.include_authorized_operations
            )
        write_strings(
            out, write_count(out, item.groups, "DescribeGroupsRequest.groups"), "DescribeGroupsRequest.groups"
        )


def _read_describe_groups_request_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeGroupsRequest], int]:
    items: list[DescribeGroupsRequest] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 2, "DescribeGroupsRequest.groups")
        groups, at = read_strings(data, at, end, number, "DescribeGroupsRequest.groups")
        if end - at < 1:
            raise cut_short("DescribeGroupsRequest.include_authorized_operations", at, end, 1)
        (include_authorized_operations,) = _BOOL.unpack_from(data, at)
        at += 1
        items.append(DescribeGroupsRequest(groups=groups, include_authorized_operations=include_authorized_operations))
    return items, at


def _write_describe_groups_request_v3(out: Parts, items: Sequence[DescribeGroupsRequest]) -> None:
    try:
        for item in items:
            write_strings(
                out, write_count(out, item.groups, "DescribeGroupsRequest.groups"), "DescribeGroupsRequest.groups"
            )
            out.append(_INT8.pack(item.include_authorized_operations))
    except struct.error:
        raise misfit(items, _DESCRIBE_GROUPS_REQUEST_CODES) from None


def _read_describe_groups_request_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeGroupsRequest], int]:
    items: list[DescribeGroupsRequest] = []
    for _ in range(count):
        number, at = read_compact_count(data, at, end, 1, "DescribeGroupsRequest.groups")
        groups, at = read_compact_strings(data, at, end, number, "DescribeGroupsRequest.groups")
        if end - at < 2:
            raise cut_short("DescribeGroupsRequest.include_authorized_operations", at, end, 2)
        include_authorized_operations, tags = _BOOL_TAGS.unpack_from(data, at)
        at += 2
        if tags:
            at = skip_tags(data, at - 1, end, "DescribeGroupsRequest")
        items.append(DescribeGroupsRequest(groups=groups, include_authorized_operations=include_authorized_operations))
    return items, at


def _write_describe_groups_request_v5(out: Parts, items: Sequence[DescribeGroupsRequest]) -> None:
    try:
        for item in items:
            write_compact_strings(
                out,
                write_compact_count(out, item.groups, "DescribeGroupsRequest.groups"),
                "DescribeGroupsRequest.groups",
            )
            out.append(_INT8_TAGS.pack(item.include_authorized_operations, 0))
    except struct.error:
        raise misfit(items, _DESCRIBE_GROUPS_REQUEST_CODES) from None


REQUEST: Final = MessageCodec(
    DescribeGroupsRequest,
    {
        0: (_read_describe_groups_request_v0, _write_describe_groups_request_v0),
        1: (_read_describe_groups_request_v0, _write_describe_groups_request_v0),
        2: (_read_describe_groups_request_v0, _write_describe_groups_request_v0),
        3: (_read_describe_groups_request_v3, _write_describe_groups_request_v3),
        4: (_read_describe_groups_request_v3, _write_describe_groups_request_v3),
        5: (_read_describe_groups_request_v5, _write_describe_groups_request_v5),
        6: (_read_describe_groups_request_v5, _write_describe_groups_request_v5),
    },
)


class DescribeGroupsResponseDescribedGroupMember(msgspec.Struct, kw_only=True, gc=False):
    """The group members."""

    member_id: str = ""
    """The member id. (string)"""
    group_instance_id: str | None = None
    """The unique identifier of the consumer instance provided by end user. (string, versions 4 to 6, ignorable)"""
    client_id: str = ""
    """The client ID used in the member's latest join group request. (string)"""
    client_host: str = ""
    """The client host. (string)"""
    member_metadata: bytes = b""
    """The metadata corresponding to the current group protocol in use. (bytes)"""
    member_assignment: bytes = b""
    """The current assignment provided by the group leader. (bytes)"""


class DescribeGroupsResponseDescribedGroup(msgspec.Struct, kw_only=True, gc=False):
    """Each described group."""

    error_code: int = 0
    """The describe error, or 0 if there was no error. (int16)"""
    error_message: str | None = None
    """The describe error message, or null if there was no error. (string, version 6)"""
    group_id: str = ""
    """The group ID string. (string)"""
    group_state: str = ""
    """The group state string, or the empty string. (string)"""
    protocol_type: str = ""
    """The group protocol type, or the empty string. (string)"""
    protocol_data: str = ""
    """The group protocol data, or the empty string. (string)"""
    members: list[DescribeGroupsResponseDescribedGroupMember] = []
    """The group members."""
    authorized_operations: int = -2147483648
    """32-bit bitfield to represent authorized operations for this group. (int32, versions 3 to 6)"""


class DescribeGroupsResponse(msgspec.Struct, kw_only=True, gc=False):
    """DescribeGroupsResponse, versions 0 to 6."""

    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32, versions 1 to 6, ignorable)"""
    groups: list[DescribeGroupsResponseDescribedGroup] = []
    """Each described group."""


_DESCRIBE_GROUPS_RESPONSE_CODES: Final = {"throttle_time_ms": "i"}
_DESCRIBE_GROUPS_RESPONSE_DESCRIBED_GROUP_CODES: Final = {"error_code": "h", "authorized_operations": "i"}


def _read_describe_groups_response_described_group_member_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeGroupsResponseDescribedGroupMember], int]:
    items: list[DescribeGroupsResponseDescribedGroupMember] = []
    for _ in range(count):
        member_id, at = read_string(data, at, end, "DescribeGroupsResponseDescribedGroupMember.member_id")
        client_id, at = read_string(data, at, end, "DescribeGroupsResponseDescribedGroupMember.client_id")
        client_host, at = read_string(data, at, end, "DescribeGroupsResponseDescribedGroupMember.client_host")
        member_metadata, at = read_bytes(data, at, end, "DescribeGroupsResponseDescribedGroupMember.member_metadata")
        member_assignment, at = read_bytes(
            data, at, end, "DescribeGroupsResponseDescribedGroupMember.member_assignment"
        )
        items.append(
            DescribeGroupsResponseDescribedGroupMember(
                member_id=member_id,
                client_id=client_id,
                client_host=client_host,
                member_metadata=member_metadata,
                member_assignment=member_assignment,
            )
        )
    return items, at


def _write_describe_groups_response_described_group_member_v0(
    out: Parts, items: Sequence[DescribeGroupsResponseDescribedGroupMember]
) -> None:
    for item in items:
        write_string(out, item.member_id, "DescribeGroupsResponseDescribedGroupMember.member_id")
        write_string(out, item.client_id, "DescribeGroupsResponseDescribedGroupMember.client_id")
        write_string(out, item.client_host, "DescribeGroupsResponseDescribedGroupMember.client_host")
        write_bytes(out, item.member_metadata, "DescribeGroupsResponseDescribedGroupMember.member_metadata")
        write_bytes(out, item.member_assignment, "DescribeGroupsResponseDescribedGroupMember.member_assignment")


def _read_describe_groups_response_described_group_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeGroupsResponseDescribedGroup], int]:
    items: list[DescribeGroupsResponseDescribedGroup] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("DescribeGroupsResponseDescribedGroup.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        group_id, at = read_string(data, at, end, "DescribeGroupsResponseDescribedGroup.group_id")
        group_state, at = read_string(data, at, end, "DescribeGroupsResponseDescribedGroup.group_state")
        protocol_type, at = read_string(data, at, end, "DescribeGroupsResponseDescribedGroup.protocol_type")
        protocol_data, at = read_string(data, at, end, "DescribeGroupsResponseDescribedGroup.protocol_data")
        number, at = read_count(data, at, end, 14, "DescribeGroupsResponseDescribedGroup.members")
        members, at = _read_describe_groups_response_described_group_member_v0(data, at, end, number)
        items.append(
            DescribeGroupsResponseDescribedGroup(
                error_code=error_code,
                group_id=group_id,
                group_state=group_state,
                protocol_type=protocol_type,
                protocol_data=protocol_data,
                members=members,
            )
        )
    return items, at


def _write_describe_groups_response_described_group_v0(
    out: Parts, items: Sequence[DescribeGroupsResponseDescribedGroup]
) -> None:
    try:
        for item in items:
            if item.error_message is not None:
                raise unknown_field("DescribeGroupsResponseDescribedGroup.error_message", item.error_message)
            if item.authorized_operations != -2147483648:
                raise unknown_field(
                    "DescribeGroupsResponseDescribedGroup.authorized_operations", item.authorized_operations
                )
            out.append(_INT16.pack(item.error_code))
            write_string(out, item.group_id, "DescribeGroupsResponseDescribedGroup.group_id")
            write_string(out, item.group_state, "DescribeGroupsResponseDescribedGroup.group_state")
            write_string(out, item.protocol_type, "DescribeGroupsResponseDescribedGroup.protocol_type")
            write_string(out, item.protocol_data, "DescribeGroupsResponseDescribedGroup.protocol_data")
            _write_describe_groups_response_described_group_member_v0(
                out, write_count(out, item.members, "DescribeGroupsResponseDescribedGroup.members")
            )
    except struct.error:
        raise misfit(items, _DESCRIBE_GROUPS_RESPONSE_DESCRIBED_GROUP_CODES) from None


def _read_describe_groups_response_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeGroupsResponse], int]:
    items: list[DescribeGroupsResponse] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 14, "DescribeGroupsResponse.groups")
        groups, at = _read_describe_groups_response_described_group_v0(data, at, end, number)
        items.append(DescribeGroupsResponse(groups=groups))
    return items, at


def _write_describe_groups_response_v0(out: Parts, items: Sequence[DescribeGroupsResponse]) -> None:
    for item in items:
        _write_describe_groups_response_described_group_v0(
            out, write_count(out, item.groups, "DescribeGroupsResponse.groups")
        )


def _read_describe_groups_response_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeGroupsResponse], int]:
    items: list[DescribeGroupsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("DescribeGroupsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 14, "DescribeGroupsResponse.groups")
        groups, at = _read_describe_groups_response_described_group_v0(data, at, end, number)
        items.append(DescribeGroupsResponse(throttle_time_ms=throttle_time_ms, groups=groups))
    return items, at


def _write_describe_groups_response_v1(out: Parts, items: Sequence[DescribeGroupsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_describe_groups_response_described_group_v0(
                out, write_count(out, item.groups, "DescribeGroupsResponse.groups")
            )
    except struct.error:
        raise misfit(items, _DESCRIBE_GROUPS_RESPONSE_CODES) from None


def _read_describe_groups_response_described_group_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeGroupsResponseDescribedGroup], int]:
    items: list[DescribeGroupsResponseDescribedGroup] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("DescribeGroupsResponseDescribedGroup.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        group_id, at = read_string(data, at, end, "DescribeGroupsResponseDescribedGroup.group_id")
        group_state, at = read_string(data, at, end, "DescribeGroupsResponseDescribedGroup.group_state")
        protocol_type, at = read_string(data, at, end, "DescribeGroupsResponseDescribedGroup.protocol_type")
        protocol_data, at = read_string(data, at, end, "DescribeGroupsResponseDescribedGroup.protocol_data")
        number, at = read_count(data, at, end, 14, "DescribeGroupsResponseDescribedGroup.members")
        members, at = _read_describe_groups_response_described_group_member_v0(data, at, end, number)
        if end - at < 4:
            raise cut_short("DescribeGroupsResponseDescribedGroup.authorized_operations", at, end, 4)
        (authorized_operations,) = _INT32.unpack_from(data, at)
        at += 4
        items.append(
            DescribeGroupsResponseDescribedGroup(
                error_code=error_code,
                group_id=group_id,
                group_state=group_state,
                protocol_type=protocol_type,
                protocol_data=protocol_data,
                members=members,
                authorized_operations=authorized_operations,
            )
        )
    return items, at


def _write_describe_groups_response_described_group_v3(
    out: Parts, items: Sequence[DescribeGroupsResponseDescribedGroup]
) -> None:
    try:
        for item in items:
            if item.error_message is not None:
                raise unknown_field("DescribeGroupsResponseDescribedGroup.error_message", item.error_message)
            out.append(_INT16.pack(item.error_code))
            write_string(out, item.group_id, "DescribeGroupsResponseDescribedGroup.group_id")
            write_string(out, item.group_state, "DescribeGroupsResponseDescribedGroup.group_state")
            write_string(out, item.protocol_type, "DescribeGroupsResponseDescribedGroup.protocol_type")
            write_string(out, item.protocol_data, "DescribeGroupsResponseDescribedGroup.protocol_data")
            _write_describe_groups_response_described_group_member_v0(
                out, write_count(out, item.members, "DescribeGroupsResponseDescribedGroup.members")
            )
            out.append(_INT32.pack(item.authorized_operations))
    except struct.error:
        raise misfit(items, _DESCRIBE_GROUPS_RESPONSE_DESCRIBED_GROUP_CODES) from None


def _read_describe_groups_response_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeGroupsResponse], int]:
    items: list[DescribeGroupsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("DescribeGroupsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 18, "DescribeGroupsResponse.groups")
        groups, at = _read_describe_groups_response_described_group_v3(data, at, end, number)
        items.append(DescribeGroupsResponse(throttle_time_ms=throttle_time_ms, groups=groups))
    return items, at


def _write_describe_groups_response_v3(out: Parts, items: Sequence[DescribeGroupsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_describe_groups_response_described_group_v3(
                out, write_count(out, item.groups, "DescribeGroupsResponse.groups")
            )
    except struct.error:
        raise misfit(items, _DESCRIBE_GROUPS_RESPONSE_CODES) from None


def _read_describe_groups_response_described_group_member_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeGroupsResponseDescribedGroupMember], int]:
    items: list[DescribeGroupsResponseDescribedGroupMember] = []
    for _ in range(count):
        member_id, at = read_string(data, at, end, "DescribeGroupsResponseDescribedGroupMember.member_id")
        group_instance_id, at = read_nullable_string(
            data, at, end, "DescribeGroupsResponseDescribedGroupMember.group_instance_id"
        )
        client_id, at = read_string(data, at, end, "DescribeGroupsResponseDescribedGroupMember.client_id")
        client_host, at = read_string(data, at, end, "DescribeGroupsResponseDescribedGroupMember.client_host")
        member_metadata, at = read_bytes(data, at, end, "DescribeGroupsResponseDescribedGroupMember.member_metadata")
        member_assignment, at = read_bytes(
            data, at, end, "DescribeGroupsResponseDescribedGroupMember.member_assignment"
        )
        items.append(
            DescribeGroupsResponseDescribedGroupMember(
                member_id=member_id,
                group_instance_id=group_instance_id,
                client_id=client_id,
                client_host=client_host,
                member_metadata=member_metadata,
                member_assignment=member_assignment,
            )
        )
    return items, at


def _write_describe_groups_response_described_group_member_v4(
    out: Parts, items: Sequence[DescribeGroupsResponseDescribedGroupMember]
) -> None:
    for item in items:
        write_string(out, item.member_id, "DescribeGroupsResponseDescribedGroupMember.member_id")
        write_nullable_string(
            out, item.group_instance_id, "DescribeGroupsResponseDescribedGroupMember.group_instance_id"
        )
        write_string(out, item.client_id, "DescribeGroupsResponseDescribedGroupMember.client_id")
        write_string(out, item.client_host, "DescribeGroupsResponseDescribedGroupMember.client_host")
        write_bytes(out, item.member_metadata, "DescribeGroupsResponseDescribedGroupMember.member_metadata")
        write_bytes(out, item.member_assignment, "DescribeGroupsResponseDescribedGroupMember.member_assignment")


def _read_describe_groups_response_described_group_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeGroupsResponseDescribedGroup], int]:
    items: list[DescribeGroupsResponseDescribedGroup] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("DescribeGroupsResponseDescribedGroup.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        group_id, at = read_string(data, at, end, "DescribeGroupsResponseDescribedGroup.group_id")
        group_state, at = read_string(data, at, end, "DescribeGroupsResponseDescribedGroup.group_state")
        protocol_type, at = read_string(data, at, end, "DescribeGroupsResponseDescribedGroup.protocol_type")
        protocol_data, at = read_string(data, at, end, "DescribeGroupsResponseDescribedGroup.protocol_data")
        number, at = read_count(data, at, end, 16, "DescribeGroupsResponseDescribedGroup.members")
        members, at = _read_describe_groups_response_described_group_member_v4(data, at, end, number)
        if end - at < 4:
            raise cut_short("DescribeGroupsResponseDescribedGroup.authorized_operations", at, end, 4)
        (authorized_operations,) = _INT32.unpack_from(data, at)
        at += 4
        items.append(
            DescribeGroupsResponseDescribedGroup(
                error_code=error_code,
                group_id=group_id,
                group_state=group_state,
                protocol_type=protocol_type,
                protocol_data=protocol_data,
                members=members,
                authorized_operations=authorized_operations,
            )
        )
    return items, at


def _write_describe_groups_response_described_group_v4(
    out: Parts, items: Sequence[DescribeGroupsResponseDescribedGroup]
) -> None:
    try:
        for item in items:
            if item.error_message is not None:
                raise unknown_field("DescribeGroupsResponseDescribedGroup.error_message", item.error_message)
            out.append(_INT16.pack(item.error_code))
            write_string(out, item.group_id, "DescribeGroupsResponseDescribedGroup.group_id")
            write_string(out, item.group_state, "DescribeGroupsResponseDescribedGroup.group_state")
            write_string(out, item.protocol_type, "DescribeGroupsResponseDescribedGroup.protocol_type")
            write_string(out, item.protocol_data, "DescribeGroupsResponseDescribedGroup.protocol_data")
            _write_describe_groups_response_described_group_member_v4(
                out, write_count(out, item.members, "DescribeGroupsResponseDescribedGroup.members")
            )
            out.append(_INT32.pack(item.authorized_operations))
    except struct.error:
        raise misfit(items, _DESCRIBE_GROUPS_RESPONSE_DESCRIBED_GROUP_CODES) from None


def _read_describe_groups_response_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeGroupsResponse], int]:
    items: list[DescribeGroupsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("DescribeGroupsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 18, "DescribeGroupsResponse.groups")
        groups, at = _read_describe_groups_response_described_group_v4(data, at, end, number)
        items.append(DescribeGroupsResponse(throttle_time_ms=throttle_time_ms, groups=groups))
    return items, at


def _write_describe_groups_response_v4(out: Parts, items: Sequence[DescribeGroupsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_describe_groups_response_described_group_v4(
                out, write_count(out, item.groups, "DescribeGroupsResponse.groups")
            )
    except struct.error:
        raise misfit(items, _DESCRIBE_GROUPS_RESPONSE_CODES) from None


def _read_describe_groups_response_described_group_member_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeGroupsResponseDescribedGroupMember], int]:
    items: list[DescribeGroupsResponseDescribedGroupMember] = []
    for _ in range(count):
        member_id, at = read_compact_string(data, at, end, "DescribeGroupsResponseDescribedGroupMember.member_id")
        group_instance_id, at = read_compact_nullable_string(
            data, at, end, "DescribeGroupsResponseDescribedGroupMember.group_instance_id"
        )
        client_id, at = read_compact_string(data, at, end, "DescribeGroupsResponseDescribedGroupMember.client_id")
        client_host, at = read_compact_string(data, at, end, "DescribeGroupsResponseDescribedGroupMember.client_host")
        member_metadata, at = read_compact_bytes(
            data, at, end, "DescribeGroupsResponseDescribedGroupMember.member_metadata"
        )
        member_assignment, at = read_compact_bytes(
            data, at, end, "DescribeGroupsResponseDescribedGroupMember.member_assignment"
        )
        at = (
            at + 1
            if at < end and not data[at]
            else skip_tags(data, at, end, "DescribeGroupsResponseDescribedGroupMember")
        )
        items.append(
            DescribeGroupsResponseDescribedGroupMember(
                member_id=member_id,
                group_instance_id=group_instance_id,
                client_id=client_id,
                client_host=client_host,
                member_metadata=member_metadata,
                member_assignment=member_assignment,
            )
        )
    return items, at


def _write_describe_groups_response_described_group_member_v5(
    out: Parts, items: Sequence[DescribeGroupsResponseDescribedGroupMember]
) -> None:
    for item in items:
        write_compact_string(out, item.member_id, "DescribeGroupsResponseDescribedGroupMember.member_id")
        write_compact_nullable_string(
            out, item.group_instance_id, "DescribeGroupsResponseDescribedGroupMember.group_instance_id"
        )
        write_compact_string(out, item.client_id, "DescribeGroupsResponseDescribedGroupMember.client_id")
        write_compact_string(out, item.client_host, "DescribeGroupsResponseDescribedGroupMember.client_host")
        write_compact_bytes(out, item.member_metadata, "DescribeGroupsResponseDescribedGroupMember.member_metadata")
        write_compact_bytes(out, item.member_assignment, "DescribeGroupsResponseDescribedGroupMember.member_assignment")
        out.append(NO_TAGS)


def _read_describe_groups_response_described_group_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeGroupsResponseDescribedGroup], int]:
    items: list[DescribeGroupsResponseDescribedGroup] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("DescribeGroupsResponseDescribedGroup.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        group_id, at = read_compact_string(data, at, end, "DescribeGroupsResponseDescribedGroup.group_id")
        group_state, at = read_compact_string(data, at, end, "DescribeGroupsResponseDescribedGroup.group_state")
        protocol_type, at = read_compact_string(data, at, end, "DescribeGroupsResponseDescribedGroup.protocol_type")
        protocol_data, at = read_compact_string(data, at, end, "DescribeGroupsResponseDescribedGroup.protocol_data")
        number, at = read_compact_count(data, at, end, 7, "DescribeGroupsResponseDescribedGroup.members")
        members, at = _read_describe_groups_response_described_group_member_v5(data, at, end, number)
        if end - at < 5:
            raise cut_short("DescribeGroupsResponseDescribedGroup.authorized_operations", at, end, 5)
        authorized_operations, tags = _INT32_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "DescribeGroupsResponseDescribedGroup")
        items.append(
            DescribeGroupsResponseDescribedGroup(
                error_code=error_code,
                group_id=group_id,
                group_state=group_state,
                protocol_type=protocol_type,
                protocol_data=protocol_data,
                members=members,
                authorized_operations=authorized_operations,
            )
        )
    return items, at


def _write_describe_groups_response_described_group_v5(
    out: Parts, items: Sequence[DescribeGroupsResponseDescribedGroup]
) -> None:
    try:
        for item in items:
            if item.error_message is not None:
                raise unknown_field("DescribeGroupsResponseDescribedGroup.error_message", item.error_message)
            out.append(_INT16.pack(item.error_code))
            write_compact_string(out, item.group_id, "DescribeGroupsResponseDescribedGroup.group_id")
            write_compact_string(out, item.group_state, "DescribeGroupsResponseDescribedGroup.group_state")
            write_compact_string(out, item.protocol_type, "DescribeGroupsResponseDescribedGroup.protocol_type")
            write_compact_string(out, item.protocol_data, "DescribeGroupsResponseDescribedGroup.protocol_data")
            _write_describe_groups_response_described_group_member_v5(
                out, write_compact_count(out, item.members, "DescribeGroupsResponseDescribedGroup.members")
            )
            out.append(_INT32_TAGS.pack(item.authorized_operations, 0))
    except struct.error:
        raise misfit(items, _DESCRIBE_GROUPS_RESPONSE_DESCRIBED_GROUP_CODES) from None


def _read_describe_groups_response_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeGroupsResponse], int]:
    items: list[DescribeGroupsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("DescribeGroupsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 12, "DescribeGroupsResponse.groups")
        groups, at = _read_describe_groups_response_described_group_v5(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DescribeGroupsResponse")
        items.append(DescribeGroupsResponse(throttle_time_ms=throttle_time_ms, groups=groups))
    return items, at


def _write_describe_groups_response_v5(out: Parts, items: Sequence[DescribeGroupsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_describe_groups_response_described_group_v5(
                out, write_compact_count(out, item.groups, "DescribeGroupsResponse.groups")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DESCRIBE_GROUPS_RESPONSE_CODES) from None


def _read_describe_groups_response_described_group_v6(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeGroupsResponseDescribedGroup], int]:
    items: list[DescribeGroupsResponseDescribedGroup] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("DescribeGroupsResponseDescribedGroup.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_compact_nullable_string(
            data, at, end, "DescribeGroupsResponseDescribedGroup.error_message"
        )
        group_id, at = read_compact_string(data, at, end, "DescribeGroupsResponseDescribedGroup.group_id")
        group_state, at = read_compact_string(data, at, end, "DescribeGroupsResponseDescribedGroup.group_state")
        protocol_type, at = read_compact_string(data, at, end, "DescribeGroupsResponseDescribedGroup.protocol_type")
        protocol_data, at = read_compact_string(data, at, end, "DescribeGroupsResponseDescribedGroup.protocol_data")
        number, at = read_compact_count(data, at, end, 7, "DescribeGroupsResponseDescribedGroup.members")
        members, at = _read_describe_groups_response_described_group_member_v5(data, at, end, number)
        if end - at < 5:
            raise cut_short("DescribeGroupsResponseDescribedGroup.authorized_operations", at, end, 5)
        authorized_operations, tags = _INT32_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "DescribeGroupsResponseDescribedGroup")
        items.append(
            DescribeGroupsResponseDescribedGroup(
                error_code=error_code,
                error_message=error_message,
                group_id=group_id,
                group_state=group_state,
                protocol_type=protocol_type,
                protocol_data=protocol_data,
                members=members,
                authorized_operations=authorized_operations,
            )
        )
    return items, at


def _write_describe_groups_response_described_group_v6(
    out: Parts, items: Sequence[DescribeGroupsResponseDescribedGroup]
) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            write_compact_nullable_string(out, item.error_message, "DescribeGroupsResponseDescribedGroup.error_message")
            write_compact_string(out, item.group_id, "DescribeGroupsResponseDescribedGroup.group_id")
            write_compact_string(out, item.group_state, "DescribeGroupsResponseDescribedGroup.group_state")
            write_compact_string(out, item.protocol_type, "DescribeGroupsResponseDescribedGroup.protocol_type")
            write_compact_string(out, item.protocol_data, "DescribeGroupsResponseDescribedGroup.protocol_data")
            _write_describe_groups_response_described_group_member_v5(
                out, write_compact_count(out, item.members, "DescribeGroupsResponseDescribedGroup.members")
            )
            out.append(_INT32_TAGS.pack(item.authorized_operations, 0))
    except struct.error:
        raise misfit(items, _DESCRIBE_GROUPS_RESPONSE_DESCRIBED_GROUP_CODES) from None


def _read_describe_groups_response_v6(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeGroupsResponse], int]:
    items: list[DescribeGroupsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("DescribeGroupsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 13, "DescribeGroupsResponse.groups")
        groups, at = _read_describe_groups_response_described_group_v6(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DescribeGroupsResponse")
        items.append(DescribeGroupsResponse(throttle_time_ms=throttle_time_ms, groups=groups))
    return items, at


def _write_describe_groups_response_v6(out: Parts, items: Sequence[DescribeGroupsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_describe_groups_response_described_group_v6(
                out, write_compact_count(out, item.groups, "DescribeGroupsResponse.groups")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DESCRIBE_GROUPS_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    DescribeGroupsResponse,
    {
        0: (_read_describe_groups_response_v0, _write_describe_groups_response_v0),
        1: (_read_describe_groups_response_v1, _write_describe_groups_response_v1),
        2: (_read_describe_groups_response_v1, _write_describe_groups_response_v1),
        3: (_read_describe_groups_response_v3, _write_describe_groups_response_v3),
        4: (_read_describe_groups_response_v4, _write_describe_groups_response_v4),
        5: (_read_describe_groups_response_v5, _write_describe_groups_response_v5),
        6: (_read_describe_groups_response_v6, _write_describe_groups_response_v6),
    },
)
