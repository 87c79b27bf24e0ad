"""ListGroups, API key 16.

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
    read_compact_string,
    read_compact_strings,
    read_count,
    read_string,
    skip_tags,
    unknown_field,
    write_compact_count,
    write_compact_string,
    write_compact_strings,
    write_count,
    write_string,
)

_INT16: Final = struct.Struct(">h")
_INT32_INT16: Final = struct.Struct(">ih")


class ListGroupsRequest(msgspec.Struct, kw_only=True, gc=False):
    """ListGroupsRequest, versions 0 to 5."""

    states_filter: list[str] = []
    """The states of the groups we want to list. If empty, all groups are returned with their state. (string,
    versions 4 to 5)"""
    types_filter: list[str] = []
    """The types of the groups we want to list. If empty, all groups are returned with their type. (string, version
    5)"""


def _read_list_groups_request_v0(data: Buffer, at: int, end: int, count: int) -> tuple[list[ListGroupsRequest], int]:
    return [ListGroupsRequest() for _ in range(count)], at


def _write_list_groups_request_v0(out: Parts, items: Sequence[ListGroupsRequest]) -> None:
    for item in items:
        if item.states_filter != []:
            raise unknown_field("ListGroupsRequest.states_filter", item.states_filter)
        if item.types_filter != []:
            raise unknown_field("ListGroupsRequest.types_filter", item.types_filter)


def _read_list_groups_request_v3(data: Buffer, at: int, end: int, count: int) -> tuple[list[ListGroupsRequest], int]:
    items: list[ListGroupsRequest] = []
    for _ in range(count):
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ListGroupsRequest")
        items.append(ListGroupsRequest())
    return items, at


def _write_list_groups_request_v3(out: Parts, items: Sequence[ListGroupsRequest]) -> None:
    for item in items:
        if item.states_filter != []:
            raise unknown_field("ListGroupsRequest.states_filter", item.states_filter)
        if item.types_filter != []:
            raise unknown_field("ListGroupsRequest.types_filter", item.types_filter)
        out.append(NO_TAGS)


def _read_list_groups_request_v4(data: Buffer, at: int, end: int, count: int) -> tuple[list[ListGroupsRequest], int]:
    items: list[ListGroupsRequest] = []
    for _ in range(count):
        number, at = read_compact_count(data, at, end, 1, "ListGroupsRequest.states_filter")
        states_filter, at = read_compact_strings(data, at, end, number, "ListGroupsRequest.states_filter")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ListGroupsRequest")
        items.append(ListGroupsRequest(states_filter=states_filter))
    return items, at


def _write_list_groups_request_v4(out: Parts, items: Sequence[ListGroupsRequest]) -> None:
    for item in items:
        if item.types_filter != []:
            raise unknown_field("ListGroupsRequest.types_filter", item.types_filter)
        write_compact_strings(
            out,
            write_compact_count(out, item.states_filter, "ListGroupsRequest.states_filter"),
            "ListGroupsRequest.states_filter",
        )
        out.append(NO_TAGS)


def _read_list_groups_request_v5(data: Buffer, at: int, end: int, count: int) -> tuple[list[ListGroupsRequest], int]:
    items: list[ListGroupsRequest] = []
    for _ in range(count):
        number, at = read_compact_count(data, at, end, 1, "ListGroupsRequest.states_filter")
        states_filter, at = read_compact_strings(data, at, end, number, "ListGroupsRequest.states_filter")
        number, at = read_compact_count(data, at, end, 1, "ListGroupsRequest.types_filter")
        types_filter, at = read_compact_strings(data, at, end, number, "ListGroupsRequest.types_filter")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ListGroupsRequest")
        items.append(ListGroupsRequest(states_filter=states_filter, types_filter=types_filter))
    return items, at


def _write_list_groups_request_v5(out: Parts, items: Sequence[ListGroupsRequest]) -> None:
    for item in items:
        write_compact_strings(
            out,
            write_compact_count(out, item.states_filter, "ListGroupsRequest.states_filter"),
            "ListGroupsRequest.states_filter",
        )
        write_compact_strings(
            out,
            write_compact_count(out, item.types_filter, "ListGroupsRequest.types_filter"),
            "ListGroupsRequest.types_filter",
        )
        out.append(NO_TAGS)


REQUEST: Final = MessageCodec(
    ListGroupsRequest,
    {
        0: (_read_list_groups_request_v0, _write_list_groups_request_v0),
        1: (_read_list_groups_request_v0, _write_list_groups_request_v0),
        2: (_read_list_groups_request_v0, _write_list_groups_request_v0),
        3: (_read_list_groups_request_v3, _write_list_groups_request_v3),
        4: (_read_list_groups_request_v4, _write_list_groups_request_v4),
        5: (_read_list_groups_request_v5, _write_list_groups_request_v5),
    },
)


class ListGroupsResponseListedGroup(msgspec.Struct, kw_only=True, gc=False):
    """Each group in the response."""

    group_id: str = ""
    """The group ID. (string)"""
    protocol_type: str = ""
    """The group protocol type. (string)"""
    group_state: str = ""
    """The group state name. (string, versions 4 to 5, ignorable)"""
    group_type: str = ""
    """The group type name. (string, version 5, ignorable)"""


class ListGroupsResponse(msgspec.Struct, kw_only=True, gc=False):
    """ListGroupsResponse, versions 0 to 5."""

    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32, versions 1 to 5, ignorable)"""
    error_code: int = 0
    """The error code, or 0 if there was no error. (int16)"""
    groups: list[ListGroupsResponseListedGroup] = []
    """Each group in the response."""


_LIST_GROUPS_RESPONSE_CODES: Final = {"throttle_time_ms": "i", "error_code": "h"}


def _read_list_groups_response_listed_group_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ListGroupsResponseListedGroup], int]:
    items: list[ListGroupsResponseListedGroup] = []
    for _ in range(count):
        group_id, at = read_string(data, at, end, "ListGroupsResponseListedGroup.group_id")
        protocol_type, at = read_string(data, at, end, "ListGroupsResponseListedGroup.protocol_type")
        items.append(ListGroupsResponseListedGroup(group_id=group_id, protocol_type=protocol_type))
    return items, at


def _write_list_groups_response_listed_group_v0(out: Parts, items: Sequence[ListGroupsResponseListedGroup]) -> None:
    for item in items:
        write_string(out, item.group_id, "ListGroupsResponseListedGroup.group_id")
        write_string(out, item.protocol_type, "ListGroupsResponseListedGroup.protocol_type")


def _read_list_groups_response_v0(data: Buffer, at: int, end: int, count: int) -> tuple[list[ListGroupsResponse], int]:
    items: list[ListGroupsResponse] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("ListGroupsResponse.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        number, at = read_count(data, at, end, 4, "ListGroupsResponse.groups")
        groups, at = _read_list_groups_response_listed_group_v0(data, at, end, number)
        items.append(ListGroupsResponse(error_code=error_code, groups=groups))
    return items, at


def _write_list_groups_response_v0(out: Parts, items: Sequence[ListGroupsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            _write_list_groups_response_listed_group_v0(out, write_count(out, item.groups, "ListGroupsResponse.groups"))
    except struct.error:
        raise misfit(items, _LIST_GROUPS_RESPONSE_CODES) from None


def _read_list_groups_response_v1(data: Buffer, at: int, end: int, count: int) -> tuple[list[ListGroupsResponse], int]:
    items: list[ListGroupsResponse] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("ListGroupsResponse.throttle_time_ms to error_code", at, end, 6)
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        number, at = read_count(data, at, end, 4, "ListGroupsResponse.groups")
        groups, at = _read_list_groups_response_listed_group_v0(data, at, end, number)
        items.append(ListGroupsResponse(throttle_time_ms=throttle_time_ms, error_code=error_code, groups=groups))
    return items, at


def _write_list_groups_response_v1(out: Parts, items: Sequence[ListGroupsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT16.pack(item.throttle_time_ms, item.error_code))
            _write_list_groups_response_listed_group_v0(out, write_count(out, item.groups, "ListGroupsResponse.groups"))
    except struct.error:
        raise misfit(items, _LIST_GROUPS_RESPONSE_CODES) from None


def _read_list_groups_response_listed_group_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ListGroupsResponseListedGroup], int]:
    items: list[ListGroupsResponseListedGroup] = []
    for _ in range(count):
        group_id, at = read_compact_string(data, at, end, "ListGroupsResponseListedGroup.group_id")
        protocol_type, at = read_compact_string(data, at, end, "ListGroupsResponseListedGroup.protocol_type")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ListGroupsResponseListedGroup")
        items.append(ListGroupsResponseListedGroup(group_id=group_id, protocol_type=protocol_type))
    return items, at


def _write_list_groups_response_listed_group_v3(out: Parts, items: Sequence[ListGroupsResponseListedGroup]) -> None:
    for item in items:
        write_compact_string(out, item.group_id, "ListGroupsResponseListedGroup.group_id")
        write_compact_string(out, item.protocol_type, "ListGroupsResponseListedGroup.protocol_type")
        out.append(NO_TAGS)


def _read_list_groups_response_v3(data: Buffer, at: int, end: int, count: int) -> tuple[list[ListGroupsResponse], int]:
    items: list[ListGroupsResponse] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("ListGroupsResponse.throttle_time_ms to error_code", at, end, 6)
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        number, at = read_compact_count(data, at, end, 3, "ListGroupsResponse.groups")
        groups, at = _read_list_groups_response_listed_group_v3(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ListGroupsResponse")
        items.append(ListGroupsResponse(throttle_time_ms=throttle_time_ms, error_code=error_code, groups=groups))
    return items, at


def _write_list_groups_response_v3(out: Parts, items: Sequence[ListGroupsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT16.pack(item.throttle_time_ms, item.error_code))
            _write_list_groups_response_listed_group_v3(
                out, write_compact_count(out, item.groups, "ListGroupsResponse.groups")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _LIST_GROUPS_RESPONSE_CODES) from None


def _read_list_groups_response_listed_group_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ListGroupsResponseListedGroup], int]:
    items: list[ListGroupsResponseListedGroup] = []
    for _ in range(count):
        group_id, at = read_compact_string(data, at, end, "ListGroupsResponseListedGroup.group_id")
        protocol_type, at = read_compact_string(data, at, end, "ListGroupsResponseListedGroup.protocol_type")
        group_state, at = read_compact_string(data, at, end, "ListGroupsResponseListedGroup.group_state")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ListGroupsResponseListedGroup")
        items.append(
            ListGroupsResponseListedGroup(group_id=group_id, protocol_type=protocol_type, group_state=group_state)
        )
    return items, at


def _write_list_groups_response_listed_group_v4(out: Parts, items: Sequence[ListGroupsResponseListedGroup]) -> None:
    for item in items:
        write_compact_string(out, item.group_id, "ListGroupsResponseListedGroup.group_id")
        write_compact_string(out, item.protocol_type, "ListGroupsResponseListedGroup.protocol_type")
        write_compact_string(out, item.group_state, "ListGroupsResponseListedGroup.group_state")
        out.append(NO_TAGS)


def _read_list_groups_response_v4(data: Buffer, at: int, end: int, count: int) -> tuple[list[ListGroupsResponse], int]:
    items: list[ListGroupsResponse] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("ListGroupsResponse.throttle_time_ms to error_code", at, end, 6)
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        number, at = read_compact_count(data, at, end, 4, "ListGroupsResponse.groups")
        groups, at = _read_list_groups_response_listed_group_v4(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ListGroupsResponse")
        items.append(ListGroupsResponse(throttle_time_ms=throttle_time_ms, error_code=error_code, groups=groups))
    return items, at


def _write_list_groups_response_v4(out: Parts, items: Sequence[ListGroupsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT16.pack(item.throttle_time_ms, item.error_code))
            _write_list_groups_response_listed_group_v4(
                out, write_compact_count(out, item.groups, "ListGroupsResponse.groups")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _LIST_GROUPS_RESPONSE_CODES) from None


def _read_list_groups_response_listed_group_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ListGroupsResponseListedGroup], int]:
    items: list[ListGroupsResponseListedGroup] = []
    for _ in range(count):
        group_id, at = read_compact_string(data, at, end, "ListGroupsResponseListedGroup.group_id")
        protocol_type, at = read_compact_string(data, at, end, "ListGroupsResponseListedGroup.protocol_type")
        group_state, at = read_compact_string(data, at, end, "ListGroupsResponseListedGroup.group_state")
        group_type, at = read_compact_string(data, at, end, "ListGroupsResponseListedGroup.group_type")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ListGroupsResponseListedGroup")
        items.append(
            ListGroupsResponseListedGroup(
                group_id=group_id, protocol_type=protocol_type, group_state=group_state, group_type=group_type
            )
        )
    return items, at


def _write_list_groups_response_listed_group_v5(out: Parts, items: Sequence[ListGroupsResponseListedGroup]) -> None:
    for item in items:
        write_compact_string(out, item.group_id, "ListGroupsResponseListedGroup.group_id")
        write_compact_string(out, item.protocol_type, "ListGroupsResponseListedGroup.protocol_type")
        write_compact_string(out, item.group_state, "ListGroupsResponseListedGroup.group_state")
        write_compact_string(out, item.group_type, "ListGroupsResponseListedGroup.group_type")
        out.append(NO_TAGS)


def _read_list_groups_response_v5(data: Buffer, at: int, end: int, count: int) -> tuple[list[ListGroupsResponse], int]:
    items: list[ListGroupsResponse] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("ListGroupsResponse.throttle_time_ms to error_code", at, end, 6)
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        number, at = read_compact_count(data, at, end, 5, "ListGroupsResponse.groups")
        groups, at = _read_list_groups_response_listed_group_v5(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ListGroupsResponse")
        items.append(ListGroupsResponse(throttle_time_ms=throttle_time_ms, error_code=error_code, groups=groups))
    return items, at


def _write_list_groups_response_v5(out: Parts, items: Sequence[ListGroupsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT16.pack(item.throttle_time_ms, item.error_code))
            _write_list_groups_response_listed_group_v5(
                out, write_compact_count(out, item.groups, "ListGroupsResponse.groups")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _LIST_GROUPS_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    ListGroupsResponse,
    {
        0: (_read_list_groups_response_v0, _write_list_groups_response_v0),
        1: (_read_list_groups_response_v1, _write_list_groups_response_v1),
        2: (_read_list_groups_response_v1, _write_list_groups_response_v1),
        3: (_read_list_groups_response_v3, _write_list_groups_response_v3),
        4: (_read_list_groups_response_v4, _write_list_groups_response_v4),
        5: (_read_list_groups_response_v5, _write_list_groups_response_v5),
    },
)
