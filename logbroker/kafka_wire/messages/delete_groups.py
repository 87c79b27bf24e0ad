"""DeleteGroups, API key 42.

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
    read_count,
    read_string,
    read_strings,
    skip_tags,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
    write_compact_strings,
    write_count,
    write_string,
    write_strings,
)

_INT16: Final = struct.Struct(">h")
_INT16_TAGS: Final = struct.Struct(">hB")
_INT32: Final = struct.Struct(">i")


class DeleteGroupsRequest(msgspec.Struct, kw_only=True, gc=False):
    """DeleteGroupsRequest, versions 0 to 3."""

    groups_names: list[str] = []
    """The group names to delete. (string)"""


def _read_delete_groups_request_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteGroupsRequest], int]:
    items: list[DeleteGroupsRequest] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 2, "DeleteGroupsRequest.groups_names")
        groups_names, at = read_strings(data, at, end, number, "DeleteGroupsRequest.groups_names")
        items.append(DeleteGroupsRequest(groups_names=groups_names))
    return items, at


def _write_delete_groups_request_v0(out: Parts, items: Sequence[DeleteGroupsRequest]) -> None:
    for item in items:
        write_strings(
            out,
            write_count(out, item.groups_names, "DeleteGroupsRequest.groups_names"),
            "DeleteGroupsRequest.groups_names",
        )


def _read_delete_groups_request_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteGroupsRequest], int]:
    items: list[DeleteGroupsRequest] = []
    for _ in range(count):
        number, at = read_compact_count(data, at, end, 1, "DeleteGroupsRequest.groups_names")
        groups_names, at = read_compact_strings(data, at, end, number, "DeleteGroupsRequest.groups_names")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DeleteGroupsRequest")
        items.append(DeleteGroupsRequest(groups_names=groups_names))
    return items, at


def _write_delete_groups_request_v2(out: Parts, items: Sequence[DeleteGroupsRequest]) -> None:
    for item in items:
        write_compact_strings(
            out,
            write_compact_count(out, item.groups_names, "DeleteGroupsRequest.groups_names"),
            "DeleteGroupsRequest.groups_names",
        )
        out.append(NO_TAGS)


REQUEST: Final = MessageCodec(
    DeleteGroupsRequest,
    {
        0: (_read_delete_groups_request_v0, _write_delete_groups_request_v0),
        1: (_read_delete_groups_request_v0, _write_delete_groups_request_v0),
        2: (_read_delete_groups_request_v2, _write_delete_groups_request_v2),
        3: (_read_delete_groups_request_v2, _write_delete_groups_request_v2),
    },
)


class DeleteGroupsResponseDeletableGroupResult(msgspec.Struct, kw_only=True, gc=False):
    """The deletion results."""

    group_id: str = ""
    """The group id. (string)"""
    error_code: int = 0
    """The deletion error, or 0 if the deletion succeeded. (int16)"""
    error_message: str | None = None
    """The error message, or null if there was no error. (string, version 3, ignorable)"""


class DeleteGroupsResponse(msgspec.Struct, kw_only=True, gc=False):
    """DeleteGroupsResponse, versions 0 to 3."""

    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32)"""
    results: list[DeleteGroupsResponseDeletableGroupResult] = []
    """The deletion results."""


_DELETE_GROUPS_RESPONSE_CODES: Final = {"throttle_time_ms": "i"}
_DELETE_GROUPS_RESPONSE_DELETABLE_GROUP_RESULT_CODES: Final = {"error_code": "h"}


def _read_delete_groups_response_deletable_group_result_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteGroupsResponseDeletableGroupResult], int]:
    items: list[DeleteGroupsResponseDeletableGroupResult] = []
    for _ in range(count):
        group_id, at = read_string(data, at, end, "DeleteGroupsResponseDeletableGroupResult.group_id")
        if end - at < 2:
            raise cut_short("DeleteGroupsResponseDeletableGroupResult.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        items.append(DeleteGroupsResponseDeletableGroupResult(group_id=group_id, error_code=error_code))
    return items, at


def _write_delete_groups_response_deletable_group_result_v0(
    out: Parts, items: Sequence[DeleteGroupsResponseDeletableGroupResult]
) -> None:
    try:
        for item in items:
            write_string(out, item.group_id, "DeleteGroupsResponseDeletableGroupResult.group_id")
            out.append(_INT16.pack(item.error_code))
    except struct.error:
        raise misfit(items, _DELETE_GROUPS_RESPONSE_DELETABLE_GROUP_RESULT_CODES) from None


def _read_delete_groups_response_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteGroupsResponse], int]:
    items: list[DeleteGroupsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("DeleteGroupsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 4, "DeleteGroupsResponse.results")
        results, at = _read_delete_groups_response_deletable_group_result_v0(data, at, end, number)
        items.append(DeleteGroupsResponse(throttle_time_ms=throttle_time_ms, results=results))
    return items, at


def _write_delete_groups_response_v0(out: Parts, items: Sequence[DeleteGroupsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_delete_groups_response_deletable_group_result_v0(
                out, write_count(out, item.results, "DeleteGroupsResponse.results")
            )
    except struct.error:
        raise misfit(items, _DELETE_GROUPS_RESPONSE_CODES) from None


def _read_delete_groups_response_deletable_group_result_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteGroupsResponseDeletableGroupResult], int]:
    items: list[DeleteGroupsResponseDeletableGroupResult] = []
    for _ in range(count):
        group_id, at = read_compact_string(data, at, end, "DeleteGroupsResponseDeletableGroupResult.group_id")
        if end - at < 3:
            raise cut_short("DeleteGroupsResponseDeletableGroupResult.error_code", at, end, 3)
        error_code, tags = _INT16_TAGS.unpack_from(data, at)
        at += 3
        if tags:
            at = skip_tags(data, at - 1, end, "DeleteGroupsResponseDeletableGroupResult")
        items.append(DeleteGroupsResponseDeletableGroupResult(group_id=group_id, error_code=error_code))
    return items, at


def _write_delete_groups_response_deletable_group_result_v2(
    out: Parts, items: Sequence[DeleteGroupsResponseDeletableGroupResult]
) -> None:
    try:
        for item in items:
            write_compact_string(out, item.group_id, "DeleteGroupsResponseDeletableGroupResult.group_id")
            out.append(_INT16_TAGS.pack(item.error_code, 0))
    except struct.error:
        raise misfit(items, _DELETE_GROUPS_RESPONSE_DELETABLE_GROUP_RESULT_CODES) from None


def _read_delete_groups_response_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteGroupsResponse], int]:
    items: list[DeleteGroupsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("DeleteGroupsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 4, "DeleteGroupsResponse.results")
        results, at = _read_delete_groups_response_deletable_group_result_v2(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DeleteGroupsResponse")
        items.append(DeleteGroupsResponse(throttle_time_ms=throttle_time_ms, results=results))
    return items, at


def _write_delete_groups_response_v2(out: Parts, items: Sequence[DeleteGroupsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_delete_groups_response_deletable_group_result_v2(
                out, write_compact_count(out, item.results, "DeleteGroupsResponse.results")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DELETE_GROUPS_RESPONSE_CODES) from None


def _read_delete_groups_response_deletable_group_result_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteGroupsResponseDeletableGroupResult], int]:
    items: list[DeleteGroupsResponseDeletableGroupResult] = []
    for _ in range(count):
        group_id, at = read_compact_string(data, at, end, "DeleteGroupsResponseDeletableGroupResult.group_id")
        if end - at < 2:
            raise cut_short("DeleteGroupsResponseDeletableGroupResult.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_compact_nullable_string(
            data, at, end, "DeleteGroupsResponseDeletableGroupResult.error_message"
        )
        at = (
            at + 1
            if at < end and not data[at]
            else skip_tags(data, at, end, "DeleteGroupsResponseDeletableGroupResult")
        )
        items.append(
            DeleteGroupsResponseDeletableGroupResult(
                group_id=group_id, error_code=error_code, error_message=error_message
            )
        )
    return items, at


def _write_delete_groups_response_deletable_group_result_v3(
    out: Parts, items: Sequence[DeleteGroupsResponseDeletableGroupResult]
) -> None:
    try:
        for item in items:
            write_compact_string(out, item.group_id, "DeleteGroupsResponseDeletableGroupResult.group_id")
            out.append(_INT16.pack(item.error_code))
            write_compact_nullable_string(
                out, item.error_message, "DeleteGroupsResponseDeletableGroupResult.error_message"
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DELETE_GROUPS_RESPONSE_DELETABLE_GROUP_RESULT_CODES) from None


def _read_delete_groups_response_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteGroupsResponse], int]:
    items: list[DeleteGroupsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("DeleteGroupsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 5, "DeleteGroupsResponse.results")
        results, at = _read_delete_groups_response_deletable_group_result_v3(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DeleteGroupsResponse")
        items.append(DeleteGroupsResponse(throttle_time_ms=throttle_time_ms, results=results))
    return items, at


def _write_delete_groups_response_v3(out: Parts, items: Sequence[DeleteGroupsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_delete_groups_response_deletable_group_result_v3(
                out, write_compact_count(out, item.results, "DeleteGroupsResponse.results")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DELETE_GROUPS_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    DeleteGroupsResponse,
    {
        0: (_read_delete_groups_response_v0, _write_delete_groups_response_v0),
        1: (_read_delete_groups_response_v0, _write_delete_groups_response_v0),
        2: (_read_delete_groups_response_v2, _write_delete_groups_response_v2),
        3: (_read_delete_groups_response_v3, _write_delete_groups_response_v3),
    },
)
