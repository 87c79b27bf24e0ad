"""JoinGroup, API key 11.

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

_BOOL: Final = struct.Struct(">?")
_INT8: Final = struct.Struct(">b")
_INT16_INT32: Final = struct.Struct(">hi")
_INT32: Final = struct.Struct(">i")
_INT32_INT16_INT32: Final = struct.Struct(">ihi")
_INT32X2: Final = struct.Struct(">ii")


class JoinGroupRequestProtocol(msgspec.Struct, kw_only=True, gc=False):
    """The list of protocols that the member supports."""

    name: str = ""
    """The protocol name. (string)"""
    metadata: bytes = b""
    """The protocol metadata. (bytes)"""


class JoinGroupRequest(msgspec.Struct, kw_only=True, gc=False):
    """JoinGroupRequest, versions 0 to 9."""

    group_id: str = ""
    """The group identifier. (string)"""
    session_timeout_ms: int = 0
    """The coordinator considers the consumer dead if it receives no heartbeat after this timeout in milliseconds.
    (int32)"""
    rebalance_timeout_ms: int = -1
    """The maximum time in milliseconds that the coordinator will wait for each member to rejoin when rebalancing the
    group. (int32, versions 1 to 9, ignorable)"""
    member_id: str = ""
    """The member id assigned by the group coordinator. (string)"""
    group_instance_id: str | None = None
    """The unique identifier of the consumer instance provided by end user. (string, versions 5 to 9)"""
    protocol_type: str = ""
    """The unique name the for class of protocols implemented by the group we want to join. (string)"""
    protocols: list[JoinGroupRequestProtocol] = []
    """The list of protocols that the member supports."""
    reason: str | None = None
    """The reason why the member (re-)joins the group. (string, versions 8 to 9, ignorable)"""


_JOIN_GROUP_REQUEST_CODES: Final = {"session_timeout_ms": "i", "rebalance_timeout_ms": "i"}


def _read_join_group_request_protocol_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[JoinGroupRequestProtocol], int]:
    items: list[JoinGroupRequestProtocol] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "JoinGroupRequestProtocol.name")
        metadata, at = read_bytes(data, at, end, "JoinGroupRequestProtocol.metadata")
        items.append(JoinGroupRequestProtocol(name=name, metadata=metadata))
    return items, at


def _write_join_group_request_protocol_v0(out: Parts, items: Sequence[JoinGroupRequestProtocol]) -> None:
    for item in items:
        write_string(out, item.name, "JoinGroupRequestProtocol.name")
        write_bytes(out, item.metadata, "JoinGroupRequestProtocol.metadata")


def _read_join_group_request_v0(data: Buffer, at: int, end: int, count: int) -> tuple[list[JoinGroupRequest], int]:
    items: list[JoinGroupRequest] = []
    for _ in range(count):
        group_id, at = read_string(data, at, end, "JoinGroupRequest.group_id")
        if end - at < 4:
            raise cut_short("JoinGroupRequest.session_timeout_ms", at, end, 4)
        (session_timeout_ms,) = _INT32.unpack_from(data, at)
        at += 4
        member_id, at = read_string(data, at, end, "JoinGroupRequest.member_id")
        protocol_type, at = read_string(data, at, end, "JoinGroupRequest.protocol_type")
        number, at = read_count(data, at, end, 6, "JoinGroupRequest.protocols")
        protocols, at = _read_join_group_request_protocol_v0(data, at, end, number)
        items.append(
            JoinGroupRequest(
                group_id=group_id,
                session_timeout_ms=session_timeout_ms,
                member_id=member_id,
                protocol_type=protocol_type,
                protocols=protocols,
            )
        )
    return items, at


def _write_join_group_request_v0(out: Parts, items: Sequence[JoinGroupRequest]) -> None:
    try:
        for item in items:
            if item.group_instance_id is not None:
                raise unknown_field("JoinGroupRequest.group_instance_id", item.group_instance_id)
            write_string(out, item.group_id, "JoinGroupRequest.group_id")
            out.append(_INT32.pack(item.session_timeout_ms))
            write_string(out, item.member_id, "JoinGroupRequest.member_id")
            write_string(out, item.protocol_type, "JoinGroupRequest.protocol_type")
            _write_join_group_request_protocol_v0(out, write_count(out, item.protocols, "JoinGroupRequest.protocols"))
    except struct.error:
        raise misfit(items, _JOIN_GROUP_REQUEST_CODES) from None


def _read_join_group_request_v1(data: Buffer, at: int, end: int, count: int) -> tuple[list[JoinGroupRequest], int]:
    items: list[JoinGroupRequest] = []
    for _ in range(count):
        group_id, at = read_string(data, at, end, "JoinGroupRequest.group_id")
        if end - at < 8:
            raise cut_short("JoinGroupRequest.session_timeout_ms to rebalance_timeout_ms", at, end, 8)
        session_timeout_ms, rebalance_timeout_ms = _INT32X2.unpack_from(data, at)
        at += 8
        member_id, at = read_string(data, at, end, "JoinGroupRequest.member_id")
        protocol_type, at = read_string(data, at, end, "JoinGroupRequest.protocol_type")
        number, at = read_count(data, at, end, 6, "JoinGroupRequest.protocols")
        protocols, at = _read_join_group_request_protocol_v0(data, at, end, number)
        items.append(
            JoinGroupRequest(
                group_id=group_id,
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms,
                member_id=member_id,
                protocol_type=protocol_type,
                protocols=protocols,
            )
        )
    return items, at


def _write_join_group_request_v1(out: Parts, items: Sequence[JoinGroupRequest]) -> None:
    try:
        for item in items:
            if item.group_instance_id is not None:
                raise unknown_field("JoinGroupRequest.group_instance_id", item.group_instance_id)
            write_string(out, item.group_id, "JoinGroupRequest.group_id")
            out.append(_INT32X2.pack(item.session_timeout_ms, item.rebalance_timeout_ms))
            write_string(out, item.member_id, "JoinGroupRequest.member_id")
            write_string(out, item.protocol_type, "JoinGroupRequest.protocol_type")
            _write_join_group_request_protocol_v0(out, write_count(out, item.protocols, "JoinGroupRequest.protocols"))
    except struct.error:
        raise misfit(items, _JOIN_GROUP_REQUEST_CODES) from None


def _read_join_group_request_v5(data: Buffer, at: int, end: int, count: int) -> tuple[list[JoinGroupRequest], int]:
    items: list[JoinGroupRequest] = []
    for _ in range(count):
        group_id, at = read_string(data, at, end, "JoinGroupRequest.group_id")
        if end - at < 8:
            raise cut_short("JoinGroupRequest.session_timeout_ms to rebalance_timeout_ms", at, end, 8)
        session_timeout_ms, rebalance_timeout_ms = _INT32X2.unpack_from(data, at)
        at += 8
        member_id, at = read_string(data, at, end, "JoinGroupRequest.member_id")
        group_instance_id, at = read_nullable_string(data, at, end, "JoinGroupRequest.group_instance_id")
        protocol_type, at = read_string(data, at, end, "JoinGroupRequest.protocol_type")
        number, at = read_count(data, at, end, 6, "JoinGroupRequest.protocols")
        protocols, at = _read_join_group_request_protocol_v0(data, at, end, number)
        items.append(
            JoinGroupRequest(
                group_id=group_id,
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms,
                member_id=member_id,
                group_instance_id=group_instance_id,
                protocol_type=protocol_type,
                protocols=protocols,
            )
        )
    return items, at


def _write_join_group_request_v5(out: Parts, items: Sequence[JoinGroupRequest]) -> None:
    try:
        for item in items:
            write_string(out, item.group_id, "JoinGroupRequest.group_id")
            out.append(_INT32X2.pack(item.session_timeout_ms, item.rebalance_timeout_ms))
            write_string(out, item.member_id, "JoinGroupRequest.member_id")
            write_nullable_string(out, item.group_instance_id, "JoinGroupRequest.group_instance_id")
            write_string(out, item.protocol_type, "JoinGroupRequest.protocol_type")
            _write_join_group_request_protocol_v0(out, write_count(out, item.protocols, "JoinGroupRequest.protocols"))
    except struct.error:
        raise misfit(items, _JOIN_GROUP_REQUEST_CODES) from None


def _read_join_group_request_protocol_v6(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[JoinGroupRequestProtocol], int]:
    items: list[JoinGroupRequestProtocol] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "JoinGroupRequestProtocol.name")
        metadata, at = read_compact_bytes(data, at, end, "JoinGroupRequestProtocol.metadata")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "JoinGroupRequestProtocol")
        items.append(JoinGroupRequestProtocol(name=name, metadata=metadata))
    return items, at


def _write_join_group_request_protocol_v6(out: Parts, items: Sequence[JoinGroupRequestProtocol]) -> None:
    for item in items:
        write_compact_string(out, item.name, "JoinGroupRequestProtocol.name")
        write_compact_bytes(out, item.metadata, "JoinGroupRequestProtocol.metadata")
        out.append(NO_TAGS)


def _read_join_group_request_v6(data: Buffer, at: int, end: int, count: int) -> tuple[list[JoinGroupRequest], int]:
    items: list[JoinGroupRequest] = []
    for _ in range(count):
        group_id, at = read_compact_string(data, at, end, "JoinGroupRequest.group_id")
        if end - at < 8:
            raise cut_short("JoinGroupRequest.session_timeout_ms to rebalance_timeout_ms", at, end, 8)
        session_timeout_ms, rebalance_timeout_ms = _INT32X2.unpack_from(data, at)
        at += 8
        member_id, at = read_compact_string(data, at, end, "JoinGroupRequest.member_id")
        group_instance_id, at = read_compact_nullable_string(data, at, end, "JoinGroupRequest.group_instance_id")
        protocol_type, at = read_compact_string(data, at, end, "JoinGroupRequest.protocol_type")
        number, at = read_compact_count(data, at, end, 3, "JoinGroupRequest.protocols")
        protocols, at = _read_join_group_request_protocol_v6(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "JoinGroupRequest")
        items.append(
            JoinGroupRequest(
                group_id=group_id,
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms,
                member_id=member_id,
                group_instance_id=group_instance_id,
                protocol_type=protocol_type,
                protocols=protocols,
            )
        )
    return items, at


def _write_join_group_request_v6(out: Parts, items: Sequence[JoinGroupRequest]) -> None:
    try:
        for item in items:
            write_compact_string(out, item.group_id, "JoinGroupRequest.group_id")
            out.append(_INT32X2.pack(item.session_timeout_ms, item.rebalance_timeout_ms))
            write_compact_string(out, item.member_id, "JoinGroupRequest.member_id")
            write_compact_nullable_string(out, item.group_instance_id, "JoinGroupRequest.group_instance_id")
            write_compact_string(out, item.protocol_type, "JoinGroupRequest.protocol_type")
            _write_join_group_request_protocol_v6(
                out, write_compact_count(out, item.protocols, "JoinGroupRequest.protocols")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _JOIN_GROUP_REQUEST_CODES) from None


def _read_join_group_request_v8(data: Buffer, at: int, end: int, count: int) -> tuple[list[JoinGroupRequest], int]:
    items: list[JoinGroupRequest] = []
    for _ in range(count):
        group_id, at = read_compact_string(data, at, end, "JoinGroupRequest.group_id")
        if end - at < 8:
            raise cut_short("JoinGroupRequest.session_timeout_ms to rebalance_timeout_ms", at, end, 8)
        session_timeout_ms, rebalance_timeout_ms = _INT32X2.unpack_from(data, at)
        at += 8
        member_id, at = read_compact_string(data, at, end, "JoinGroupRequest.member_id")
        group_instance_id, at = read_compact_nullable_string(data, at, end, "JoinGroupRequest.group_instance_id")
        protocol_type, at = read_compact_string(data, at, end, "JoinGroupRequest.protocol_type")
        number, at = read_compact_count(data, at, end, 3, "JoinGroupRequest.protocols")
        protocols, at = _read_join_group_request_protocol_v6(data, at, end, number)
        reason, at = read_compact_nullable_string(data, at, end, "JoinGroupRequest.reason")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "JoinGroupRequest")
        items.append(
            JoinGroupRequest(
                group_id=group_id,
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms,
                member_id=member_id,
                group_instance_id=group_instance_id,
                protocol_type=protocol_type,
                protocols=protocols,
                reason=reason,
            )
        )
    return items, at


def _write_join_group_request_v8(out: Parts, items: Sequence[JoinGroupRequest]) -> None:
    try:
        for item in items:
            write_compact_string(out, item.group_id, "JoinGroupRequest.group_id")
            out.append(_INT32X2.pack(item.session_timeout_ms, item.rebalance_timeout_ms))
            write_compact_string(out, item.member_id, "JoinGroupRequest.member_id")
            write_compact_nullable_string(out, item.group_instance_id, "JoinGroupRequest.group_instance_id")
            write_compact_string(out, item.protocol_type, "JoinGroupRequest.protocol_type")
            _write_join_group_request_protocol_v6(
                out, write_compact_count(out, item.protocols, "JoinGroupRequest.protocols")
            )
            write_compact_nullable_string(out, item.reason, "JoinGroupRequest.reason")
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _JOIN_GROUP_REQUEST_CODES) from None


REQUEST: Final = MessageCodec(
    JoinGroupRequest,
    {
        0: (_read_join_group_request_v0, _write_join_group_request_v0),
        1: (_read_join_group_request_v1, _write_join_group_request_v1),
        2: (_read_join_group_request_v1, _write_join_group_request_v1),
        3: (_read_join_group_request_v1, _write_join_group_request_v1),
        4: (_read_join_group_request_v1, _write_join_group_request_v1),
        5: (_read_join_group_request_v5, _write_join_group_request_v5),
        6: (_read_join_group_request_v6, _write_join_group_request_v6),
        7: (_read_join_group_request_v6, _write_join_group_request_v6),
        8: (_read_join_group_request_v8, _write_join_group_request_v8),
        9: (_read_join_group_request_v8, _write_join_group_request_v8),
    },
)


class JoinGroupResponseMember(msgspec.Struct, kw_only=True, gc=False):
    """The group members."""

    member_id: str = ""
    """The group member ID. (string)"""
    group_instance_id: str | None = None
    """The unique identifier of the consumer instance provided by end user. (string, versions 5 to 9, ignorable)"""
    metadata: bytes = b""
    """The group member metadata. (bytes)"""


class JoinGroupResponse(msgspec.Struct, kw_only=True, gc=False):
    """JoinGroupResponse, versions 0 to 9."""

    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32, versions 2 to 9, ignorable)"""
    error_code: int = 0
    """The error code, or 0 if there was no error. (int16)"""
    generation_id: int = -1
    """The generation ID of the group. (int32)"""
    protocol_type: str | None = None
    """The group protocol name. (string, versions 7 to 9, ignorable)"""
    protocol_name: str | None = ""
    """The group protocol selected by the coordinator. (string)"""
    leader: str = ""
    """The leader of the group. (string)"""
    skip_assignment: bool = False
    """True if the leader must skip running the assignment. (bool, version 9)"""
    member_id: str = ""
    """The member ID assigned by the group coordinator. (string)"""
    members: list[JoinGroupResponseMember] = []
    """The group members."""


_JOIN_GROUP_RESPONSE_CODES: Final = {
    "throttle_time_ms": "i",
    "error_code": "h",
    "generation_id": "i",
    "skip_assignment": "b",
}


def _read_join_group_response_member_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[JoinGroupResponseMember], int]:
    items: list[JoinGroupResponseMember] = []
    for _ in range(count):
        member_id, at = read_string(data, at, end, "JoinGroupResponseMember.member_id")
        metadata, at = read_bytes(data, at, end, "JoinGroupResponseMember.metadata")
        items.append(JoinGroupResponseMember(member_id=member_id, metadata=metadata))
    return items, at


def _write_join_group_response_member_v0(out: Parts, items: Sequence[JoinGroupResponseMember]) -> None:
    for item in items:
        write_string(out, item.member_id, "JoinGroupResponseMember.member_id")
        write_bytes(out, item.metadata, "JoinGroupResponseMember.metadata")


def _read_join_group_response_v0(data: Buffer, at: int, end: int, count: int) -> tuple[list[JoinGroupResponse], int]:
    items: list[JoinGroupResponse] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("JoinGroupResponse.error_code to generation_id", at, end, 6)
        error_code, generation_id = _INT16_INT32.unpack_from(data, at)
        at += 6
        protocol_name, at = read_string(data, at, end, "JoinGroupResponse.protocol_name")
        leader, at = read_string(data, at, end, "JoinGroupResponse.leader")
        member_id, at = read_string(data, at, end, "JoinGroupResponse.member_id")
        number, at = read_count(data, at, end, 6, "JoinGroupResponse.members")
        members, at = _read_join_group_response_member_v0(data, at, end, number)
        items.append(
            JoinGroupResponse(
                error_code=error_code,
                generation_id=generation_id,
                protocol_name=protocol_name,
                leader=leader,
                member_id=member_id,
                members=members,
            )
        )
    return items, at


def _write_join_group_response_v0(out: Parts, items: Sequence[JoinGroupResponse]) -> None:
    try:
        for item in items:
            if item.skip_assignment is not False:
                raise unknown_field("JoinGroupResponse.skip_assignment", item.skip_assignment)
            out.append(_INT16_INT32.pack(item.error_code, item.generation_id))
            write_string(out, item.protocol_name, "JoinGroupResponse.protocol_name")
            write_string(out, item.leader, "JoinGroupResponse.leader")
            write_string(out, item.member_id, "JoinGroupResponse.member_id")
            _write_join_group_response_member_v0(out, write_count(out, item.members, "JoinGroupResponse.members"))
    except struct.error:
        raise misfit(items, _JOIN_GROUP_RESPONSE_CODES) from None


def _read_join_group_response_v2(data: Buffer, at: int, end: int, count: int) -> tuple[list[JoinGroupResponse], int]:
    items: list[JoinGroupResponse] = []
    for _ in range(count):
        if end - at < 10:
            raise cut_short("JoinGroupResponse.throttle_time_ms to generation_id", at, end, 10)
        throttle_time_ms, error_code, generation_id = _INT32_INT16_INT32.unpack_from(data, at)
        at += 10
        protocol_name, at = read_string(data, at, end, "JoinGroupResponse.protocol_name")
        leader, at = read_string(data, at, end, "JoinGroupResponse.leader")
        member_id, at = read_string(data, at, end, "JoinGroupResponse.member_id")
        number, at = read_count(data, at, end, 6, "JoinGroupResponse.members")
        members, at = _read_join_group_response_member_v0(data, at, end, number)
        items.append(
            JoinGroupResponse(
                throttle_time_ms=throttle_time_ms,
                error_code=error_code,
                generation_id=generation_id,
                protocol_name=protocol_name,
                leader=leader,
                member_id=member_id,
                members=members,
            )
        )
    return items, at


def _write_join_group_response_v2(out: Parts, items: Sequence[JoinGroupResponse]) -> None:
    try:
        for item in items:
            if item.skip_assignment is not False:
                raise unknown_field("JoinGroupResponse.skip_assignment", item.skip_assignment)
            out.append(_INT32_INT16_INT32.pack(item.throttle_time_ms, item.error_code, item.generation_id))
            write_string(out, item.protocol_name, "JoinGroupResponse.protocol_name")
            write_string(out, item.leader, "JoinGroupResponse.leader")
            write_string(out, item.member_id, "JoinGroupResponse.member_id")
            _write_join_group_response_member_v0(out, write_count(out, item.members, "JoinGroupResponse.members"))
    except struct.error:
        raise misfit(items, _JOIN_GROUP_RESPONSE_CODES) from None


def _read_join_group_response_member_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[JoinGroupResponseMember], int]:
    items: list[JoinGroupResponseMember] = []
    for _ in range(count):
        member_id, at = read_string(data, at, end, "JoinGroupResponseMember.member_id")
        group_instance_id, at = read_nullable_string(data, at, end, "JoinGroupResponseMember.group_instance_id")
        metadata, at = read_bytes(data, at, end, "JoinGroupResponseMember.metadata")
        items.append(
            JoinGroupResponseMember(member_id=member_id, group_instance_id=group_instance_id, metadata=metadata)
        )
    return items, at


def _write_join_group_response_member_v5(out: Parts, items: Sequence[JoinGroupResponseMember]) -> None:
    for item in items:
        write_string(out, item.member_id, "JoinGroupResponseMember.member_id")
        write_nullable_string(out, item.group_instance_id, "JoinGroupResponseMember.group_instance_id")
        write_bytes(out, item.metadata, "JoinGroupResponseMember.metadata")


def _read_join_group_response_v5(data: Buffer, at: int, end: int, count: int) -> tuple[list[JoinGroupResponse], int]:
    items: list[JoinGroupResponse] = []
    for _ in range(count):
        if end - at < 10:
            raise cut_short("JoinGroupResponse.throttle_time_ms to generation_id", at, end, 10)
        throttle_time_ms, error_code, generation_id = _INT32_INT16_INT32.unpack_from(data, at)
        at += 10
        protocol_name, at = read_string(data, at, end, "JoinGroupResponse.protocol_name")
        leader, at = read_string(data, at, end, "JoinGroupResponse.leader")
        member_id, at = read_string(data, at, end, "JoinGroupResponse.member_id")
        number, at = read_count(data, at, end, 8, "JoinGroupResponse.members")
        members, at = _read_join_group_response_member_v5(data, at, end, number)
        items.append(
            JoinGroupResponse(
                throttle_time_ms=throttle_time_ms,
                error_code=error_code,
                generation_id=generation_id,
                protocol_name=protocol_name,
                leader=leader,
                member_id=member_id,
                members=members,
            )
        )
    return items, at


def _write_join_group_response_v5(out: Parts, items: Sequence[JoinGroupResponse]) -> None:
    try:
        for item in items:
            if item.skip_assignment is not False:
                raise unknown_field("JoinGroupResponse.skip_assignment", item.skip_assignment)
            out.append(_INT32_INT16_INT32.pack(item.throttle_time_ms, item.error_code, item.generation_id))
            write_string(out, item.protocol_name, "JoinGroupResponse.protocol_name")
            write_string(out, item.leader, "JoinGroupResponse.leader")
            write_string(out, item.member_id, "JoinGroupResponse.member_id")
            _write_join_group_response_member_v5(out, write_count(out, item.members, "JoinGroupResponse.members"))
    except struct.error:
        raise misfit(items, _JOIN_GROUP_RESPONSE_CODES) from None


def _read_join_group_response_member_v6(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[JoinGroupResponseMember], int]:
    items: list[JoinGroupResponseMember] = []
    for _ in range(count):
        member_id, at = read_compact_string(data, at, end, "JoinGroupResponseMember.member_id")
        group_instance_id, at = read_compact_nullable_string(data, at, end, "JoinGroupResponseMember.group_instance_id")
        metadata, at = read_compact_bytes(data, at, end, "JoinGroupResponseMember.metadata")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "JoinGroupResponseMember")
        items.append(
            JoinGroupResponseMember(member_id=member_id, group_instance_id=group_instance_id, metadata=metadata)
        )
    return items, at


def _write_join_group_response_member_v6(out: Parts, items: Sequence[JoinGroupResponseMember]) -> None:
    for item in items:
        write_compact_string(out, item.member_id, "JoinGroupResponseMember.member_id")
        write_compact_nullable_string(out, item.group_instance_id, "JoinGroupResponseMember.group_instance_id")
        write_compact_bytes(out, item.metadata, "JoinGroupResponseMember.metadata")
        out.append(NO_TAGS)


def _read_join_group_response_v6(data: Buffer, at: int, end: int, count: int) -> tuple[list[JoinGroupResponse], int]:
    items: list[JoinGroupResponse] = []
    for _ in range(count):
        if end - at < 10:
            raise cut_short("JoinGroupResponse.throttle_time_ms to generation_id", at, end, 10)
        throttle_time_ms, error_code, generation_id = _INT32_INT16_INT32.unpack_from(data, at)
        at += 10
        protocol_name, at = read_compact_string(data, at, end, "JoinGroupResponse.protocol_name")
        leader, at = read_compact_string(data, at, end, "JoinGroupResponse.leader")
        member_id, at = read_compact_string(data, at, end, "JoinGroupResponse.member_id")
        number, at = read_compact_count(data, at, end, 4, "JoinGroupResponse.members")
        members, at = _read_join_group_response_member_v6(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "JoinGroupResponse")
        items.append(
            JoinGroupResponse(
                throttle_time_ms=throttle_time_ms,
                error_code=error_code,
                generation_id=generation_id,
                protocol_name=protocol_name,
                leader=leader,
                member_id=member_id,
                members=members,
            )
        )
    return items, at


def _write_join_group_response_v6(out: Parts, items: Sequence[JoinGroupResponse]) -> None:
    try:
        for item in items:
            if item.skip_assignment is not False:
                raise unknown_field("JoinGroupResponse.skip_assignment", item.skip_assignment)
            out.append(_INT32_INT16_INT32.pack(item.throttle_time_ms, item.error_code, item.generation_id))
            write_compact_string(out, item.protocol_name, "JoinGroupResponse.protocol_name")
            write_compact_string(out, item.leader, "JoinGroupResponse.leader")
            write_compact_string(out, item.member_id, "JoinGroupResponse.member_id")
            _write_join_group_response_member_v6(
                out, write_compact_count(out, item.members, "JoinGroupResponse.members")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _JOIN_GROUP_RESPONSE_CODES) from None


def _read_join_group_response_v7(data: Buffer, at: int, end: int, count: int) -> tuple[list[JoinGroupResponse], int]:
    items: list[JoinGroupResponse] = []
    for _ in range(count):
        if end - at < 10:
            raise cut_short("JoinGroupResponse.throttle_time_ms to generation_id", at, end, 10)
        throttle_time_ms, error_code, generation_id = _INT32_INT16_INT32.unpack_from(data, at)
        at += 10
        protocol_type, at = read_compact_nullable_string(data, at, end, "JoinGroupResponse.protocol_type")
        protocol_name, at = read_compact_nullable_string(data, at, end, "JoinGroupResponse.protocol_name")
        leader, at = read_compact_string(data, at, end, "JoinGroupResponse.leader")
        member_id, at = read_compact_string(data, at, end, "JoinGroupResponse.member_id")
        number, at = read_compact_count(data, at, end, 4, "JoinGroupResponse.members")
        members, at = _read_join_group_response_member_v6(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "JoinGroupResponse")
        items.append(
            JoinGroupResponse(
                throttle_time_ms=throttle_time_ms,
                error_code=error_code,
                generation_id=generation_id,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
                leader=leader,
                member_id=member_id,
                members=members,
            )
        )
    return items, at


def _write_join_group_response_v7(out: Parts, items: Sequence[JoinGroupResponse]) -> None:
    try:
        for item in items:
            if item.skip_assignment is not False:
                raise unknown_field("JoinGroupResponse.skip_assignment", item.skip_assignment)
            out.append(_INT32_INT16_INT32.pack(item.throttle_time_ms, item.error_code, item.generation_id))
            write_compact_nullable_string(out, item.protocol_type, "JoinGroupResponse.protocol_type")
            write_compact_nullable_string(out, item.protocol_name, "JoinGroupResponse.protocol_name")
            write_compact_string(out, item.leader, "JoinGroupResponse.leader")
            write_compact_string(out, item.member_id, "JoinGroupResponse.member_id")
            _write_join_group_response_member_v6(
                out, write_compact_count(out, item.members, "JoinGroupResponse.members")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _JOIN_GROUP_RESPONSE_CODES) from None


def _read_join_group_response_v9(data: Buffer, at: int, end: int, count: int) -> tuple[list[JoinGroupResponse], int]:
    items: list[JoinGroupResponse] = []
    for _ in range(count):
        if end - at < 10:
            raise cut_short("JoinGroupResponse.throttle_time_ms to generation_id", at, end, 10)
        throttle_time_ms, error_code, generation_id = _INT32_INT16_INT32.unpack_from(data, at)
        at += 10
        protocol_type, at = read_compact_nullable_string(data, at, end, "JoinGroupResponse.protocol_type")
        protocol_name, at = read_compact_nullable_string(data, at, end, "JoinGroupResponse.protocol_name")
        leader, at = read_compact_string(data, at, end, "JoinGroupResponse.leader")
        if end - at < 1:
            raise cut_short("JoinGroupResponse.skip_assignment", at, end, 1)
        (skip_assignment,) = _BOOL.unpack_from(data, at)
        at += 1
        member_id, at = read_compact_string(data, at, end, "JoinGroupResponse.member_id")
        number, at = read_compact_count(data, at, end, 4, "JoinGroupResponse.members")
        members, at = _read_join_group_response_member_v6(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "JoinGroupResponse")
        items.append(
            JoinGroupResponse(
                throttle_time_ms=throttle_time_ms,
                error_code=error_code,
                generation_id=generation_id,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
                leader=leader,
                skip_assignment=skip_assignment,
                member_id=member_id,
                members=members,
            )
        )
    return items, at


def _write_join_group_response_v9(out: Parts, items: Sequence[JoinGroupResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT16_INT32.pack(item.throttle_time_ms, item.error_code, item.generation_id))
            write_compact_nullable_string(out, item.protocol_type, "JoinGroupResponse.protocol_type")
            write_compact_nullable_string(out, item.protocol_name, "JoinGroupResponse.protocol_name")
            write_compact_string(out, item.leader, "JoinGroupResponse.leader")
            out.append(_INT8.pack(item.skip_assignment))
            write_compact_string(out, item.member_id, "JoinGroupResponse.member_id")
            _write_join_group_response_member_v6(
                out, write_compact_count(out, item.members, "JoinGroupResponse.members")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _JOIN_GROUP_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    JoinGroupResponse,
    {
        0: (_read_join_group_response_v0, _write_join_group_response_v0),
        1: (_read_join_group_response_v0, _write_join_group_response_v0),
        2: (_read_join_group_response_v2, _write_join_group_response_v2),
        3: (_read_join_group_response_v2, _write_join_group_response_v2),
        4: (_read_join_group_response_v2, _write_join_group_response_v2),
        5: (_read_join_group_response_v5, _write_join_group_response_v5),
        6: (_read_join_group_response_v6, _write_join_group_response_v6),
        7: (_read_join_group_response_v7, _write_join_group_response_v7),
        8: (_read_join_group_response_v7, _write_join_group_response_v7),
        9: (_read_join_group_response_v9, _write_join_group_response_v9),
    },
)
