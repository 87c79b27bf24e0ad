"""OffsetDelete, API key 47.

Generated from Apache Kafka's message definitions (proto/kafka) by `make kafka-wire`; do not edit.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from logbroker.kafka_wire.codec import MessageCodec
from logbroker.kafka_wire.primitives import (
    Buffer,
    Parts,
    cut_short,
    misfit,
    read_count,
    read_string,
    write_count,
    write_string,
)

_INT16_INT32: Final = struct.Struct(">hi")
_INT32: Final = struct.Struct(">i")
_INT32_INT16: Final = struct.Struct(">ih")


class OffsetDeleteRequestPartition(msgspec.Struct, kw_only=True, gc=False):
    """Each partition to delete offsets for."""

    partition_index: int = 0
    """The partition index. (int32)"""


class OffsetDeleteRequestTopic(msgspec.Struct, kw_only=True, gc=False):
    """The topics to delete offsets for."""

    name: str = ""
    """The topic name. (string)"""
    partitions: list[OffsetDeleteRequestPartition] = []
    """Each partition to delete offsets for."""


class OffsetDeleteRequest(msgspec.Struct, kw_only=True, gc=False):
    """OffsetDeleteRequest, versions 0 to 0."""

    group_id: str = ""
    """The unique group identifier. (string)"""
    topics: list[OffsetDeleteRequestTopic] = []
    """The topics to delete offsets for."""


_OFFSET_DELETE_REQUEST_PARTITION_CODES: Final = {"partition_index": "i"}


def _read_offset_delete_request_partition_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetDeleteRequestPartition], int]:
    items: list[OffsetDeleteRequestPartition] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("OffsetDeleteRequestPartition.partition_index", at, end, 4)
        (partition_index,) = _INT32.unpack_from(data, at)
        at += 4
        items.append(OffsetDeleteRequestPartition(partition_index=partition_index))
    return items, at


def _write_offset_delete_request_partition_v0(out: Parts, items: Sequence[OffsetDeleteRequestPartition]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.partition_index))
    except struct.error:
        raise misfit(items, _OFFSET_DELETE_REQUEST_PARTITION_CODES) from None


def _read_offset_delete_request_topic_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetDeleteRequestTopic], int]:
    items: list[OffsetDeleteRequestTopic] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "OffsetDeleteRequestTopic.name")
        number, at = read_count(data, at, end, 4, "OffsetDeleteRequestTopic.partitions")
        partitions, at = _read_offset_delete_request_partition_v0(data, at, end, number)
        items.append(OffsetDeleteRequestTopic(name=name, partitions=partitions))
    return items, at


def _write_offset_delete_request_topic_v0(out: Parts, items: Sequence[OffsetDeleteRequestTopic]) -> None:
    for item in items:
        write_string(out, item.name, "OffsetDeleteRequestTopic.name")
        _write_offset_delete_request_partition_v0(
            out, write_count(out, item.partitions, "OffsetDeleteRequestTopic.partitions")
        )


def _read_offset_delete_request_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetDeleteRequest], int]:
    items: list[OffsetDeleteRequest] = []
    for _ in range(count):
        group_id, at = read_string(data, at, end, "OffsetDeleteRequest.group_id")
        number, at = read_count(data, at, end, 6, "OffsetDeleteRequest.topics")
        topics, at = _read_offset_delete_request_topic_v0(data, at, end, number)
        items.append(OffsetDeleteRequest(group_id=group_id, topics=topics))
    return items, at


def _write_offset_delete_request_v0(out: Parts, items: Sequence[OffsetDeleteRequest]) -> None:
    for item in items:
        write_string(out, item.group_id, "OffsetDeleteRequest.group_id")
        _write_offset_delete_request_topic_v0(out, write_count(out, item.topics, "OffsetDeleteRequest.topics"))


REQUEST: Final = MessageCodec(
    OffsetDeleteRequest,
    {
        0: (_read_offset_delete_request_v0, _write_offset_delete_request_v0),
    },
)


class OffsetDeleteResponsePartition(msgspec.Struct, kw_only=True, gc=False):
    """The responses for each partition in the topic."""

    partition_index: int = 0
    """The partition index. (int32)"""
    error_code: int = 0
    """The error code, or 0 if there was no error. (int16)"""


class OffsetDeleteResponseTopic(msgspec.Struct, kw_only=True, gc=False):
    """The responses for each topic."""

    name: str = ""
    """The topic name. (string)"""
    partitions: list[OffsetDeleteResponsePartition] = []
    """The responses for each partition in the topic."""


class OffsetDeleteResponse(msgspec.Struct, kw_only=True, gc=False):
    """OffsetDeleteResponse, versions 0 to 0."""

    error_code: int = 0
    """The top-level error code, or 0 if there was no error. (int16)"""
    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32)"""
    topics: list[OffsetDeleteResponseTopic] = []
    """The responses for each topic."""


_OFFSET_DELETE_RESPONSE_CODES: Final = {"error_code": "h", "throttle_time_ms": "i"}
_OFFSET_DELETE_RESPONSE_PARTITION_CODES: Final = {"partition_index": "i", "error_code": "h"}


def _read_offset_delete_response_partition_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetDeleteResponsePartition], int]:
    items: list[OffsetDeleteResponsePartition] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("OffsetDeleteResponsePartition.partition_index to error_code", at, end, 6)
        partition_index, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        items.append(OffsetDeleteResponsePartition(partition_index=partition_index, error_code=error_code))
    return items, at


def _write_offset_delete_response_partition_v0(out: Parts, items: Sequence[OffsetDeleteResponsePartition]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT16.pack(item.partition_index, item.error_code))
    except struct.error:
        raise misfit(items, _OFFSET_DELETE_RESPONSE_PARTITION_CODES) from None


def _read_offset_delete_response_topic_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetDeleteResponseTopic], int]:
    items: list[OffsetDeleteResponseTopic] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "OffsetDeleteResponseTopic.name")
        number, at = read_count(data, at, end, 6, "OffsetDeleteResponseTopic.partitions")
        partitions, at = _read_offset_delete_response_partition_v0(data, at, end, number)
        items.append(OffsetDeleteResponseTopic(name=name, partitions=partitions))
    return items, at


def _write_offset_delete_response_topic_v0(out: Parts, items: Sequence[OffsetDeleteResponseTopic]) -> None:
    for item in items:
        write_string(out, item.name, "OffsetDeleteResponseTopic.name")
        _write_offset_delete_response_partition_v0(
            out, write_count(out, item.partitions, "OffsetDeleteResponseTopic.partitions")
        )


def _read_offset_delete_response_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetDeleteResponse], int]:
    items: list[OffsetDeleteResponse] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("OffsetDeleteResponse.error_code to throttle_time_ms", at, end, 6)
        error_code, throttle_time_ms = _INT16_INT32.unpack_from(data, at)
        at += 6
        number, at = read_count(data, at, end, 6, "OffsetDeleteResponse.topics")
        topics, at = _read_offset_delete_response_topic_v0(data, at, end, number)
        items.append(OffsetDeleteResponse(error_code=error_code, throttle_time_ms=throttle_time_ms, topics=topics))
    return items, at


def _write_offset_delete_response_v0(out: Parts, items: Sequence[OffsetDeleteResponse]) -> None:
    try:
        for item in items:
            out.append(_INT16_INT32.pack(item.error_code, item.throttle_time_ms))
            _write_offset_delete_response_topic_v0(out, write_count(out, item.topics, "OffsetDeleteResponse.topics"))
    except struct.error:
        raise misfit(items, _OFFSET_DELETE_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    OffsetDeleteResponse,
    {
        0: (_read_offset_delete_response_v0, _write_offset_delete_response_v0),
    },
)
