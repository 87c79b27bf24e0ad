"""DeleteRecords, API key 21.

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
    read_count,
    read_string,
    skip_tags,
    write_compact_count,
    write_compact_string,
    write_count,
    write_string,
)

_INT32: Final = struct.Struct(">i")
_INT32_TAGS: Final = struct.Struct(">iB")
_INT32_INT64: Final = struct.Struct(">iq")
_INT32_INT64_TAGS: Final = struct.Struct(">iqB")
_INT32_INT64_INT16: Final = struct.Struct(">iqh")
_INT32_INT64_INT16_TAGS: Final = struct.Struct(">iqhB")


class DeleteRecordsRequestPartition(msgspec.Struct, kw_only=True, gc=False):
    """Each partition that we want to delete records from."""

    partition_index: int = 0
    """The partition index. (int32)"""
    offset: int = 0
    """The deletion offset. -1 means that records should be truncated to the high watermark. (int64)"""


class DeleteRecordsRequestTopic(msgspec.Struct, kw_only=True, gc=False):
    """Each topic that we want to delete records from."""

    name: str = ""
    """The topic name. (string)"""
    partitions: list[DeleteRecordsRequestPartition] = []
    """Each partition that we want to delete records from."""


class DeleteRecordsRequest(msgspec.Struct, kw_only=True, gc=False):
    """DeleteRecordsRequest, versions 0 to 2."""

    topics: list[DeleteRecordsRequestTopic] = []
    """Each topic that we want to delete records from."""
    timeout_ms: int = 0
    """How long to wait for the deletion to complete, in milliseconds. (int32)"""


_DELETE_RECORDS_REQUEST_CODES: Final = {"timeout_ms": "i"}
_DELETE_RECORDS_REQUEST_PARTITION_CODES: Final = {"partition_index": "i", "offset": "q"}


def _read_delete_records_request_partition_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteRecordsRequestPartition], int]:
    items: list[DeleteRecordsRequestPartition] = []
    for _ in range(count):
        if end - at < 12:
            raise cut_short("DeleteRecordsRequestPartition.partition_index to offset", at, end, 12)
        partition_index, offset = _INT32_INT64.unpack_from(data, at)
        at += 12
        items.append(DeleteRecordsRequestPartition(partition_index=partition_index, offset=offset))
    return items, at


def _write_delete_records_request_partition_v0(out: Parts, items: Sequence[DeleteRecordsRequestPartition]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT64.pack(item.partition_index, item.offset))
    except struct.error:
        raise misfit(items, _DELETE_RECORDS_REQUEST_PARTITION_CODES) from None


def _read_delete_records_request_topic_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteRecordsRequestTopic], int]:
    items: list[DeleteRecordsRequestTopic] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "DeleteRecordsRequestTopic.name")
        number, at = read_count(data, at, end, 12, "DeleteRecordsRequestTopic.partitions")
        partitions, at = _read_delete_records_request_partition_v0(data, at, end, number)
        items.append(DeleteRecordsRequestTopic(name=name, partitions=partitions))
    return items, at


def _write_delete_records_request_topic_v0(out: Parts, items: Sequence[DeleteRecordsRequestTopic]) -> None:
    for item in items:
        write_string(out, item.name, "DeleteRecordsRequestTopic.name")
        _write_delete_records_request_partition_v0(
            out, write_count(out, item.partitions, "DeleteRecordsRequestTopic.partitions")
        )


def _read_delete_records_request_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteRecordsRequest], int]:
    items: list[DeleteRecordsRequest] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 6, "DeleteRecordsRequest.topics")
        topics, at = _read_delete_records_request_topic_v0(data, at, end, number)
        if end - at < 4:
            raise cut_short("DeleteRecordsRequest.timeout_ms", at, end, 4)
        (timeout_ms,) = _INT32.unpack_from(data, at)
        at += 4
        items.append(DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms))
    return items, at


def _write_delete_records_request_v0(out: Parts, items: Sequence[DeleteRecordsRequest]) -> None:
    try:
        for item in items:
            _write_delete_records_request_topic_v0(out, write_count(out, item.topics, "DeleteRecordsRequest.topics"))
            out.append(_INT32.pack(item.timeout_ms))
    except struct.error:
        raise misfit(items, _DELETE_RECORDS_REQUEST_CODES) from None


def _read_delete_records_request_partition_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteRecordsRequestPartition], int]:
    items: list[DeleteRecordsRequestPartition] = []
    for _ in range(count):
        if end - at < 13:
            raise cut_short("DeleteRecordsRequestPartition.partition_index to offset", at, end, 13)
        partition_index, offset, tags = _INT32_INT64_TAGS.unpack_from(data, at)
        at += 13
        if tags:
            at = skip_tags(data, at - 1, end, "DeleteRecordsRequestPartition")
        items.append(DeleteRecordsRequestPartition(partition_index=partition_index, offset=offset))
    return items, at


def _write_delete_records_request_partition_v2(out: Parts, items: Sequence[DeleteRecordsRequestPartition]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT64_TAGS.pack(item.partition_index, item.offset, 0))
    except struct.error:
        raise misfit(items, _DELETE_RECORDS_REQUEST_PARTITION_CODES) from None


def _read_delete_records_request_topic_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteRecordsRequestTopic], int]:
    items: list[DeleteRecordsRequestTopic] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "DeleteRecordsRequestTopic.name")
        number, at = read_compact_count(data, at, end, 13, "DeleteRecordsRequestTopic.partitions")
        partitions, at = _read_delete_records_request_partition_v2(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DeleteRecordsRequestTopic")
        items.append(DeleteRecordsRequestTopic(name=name, partitions=partitions))
    return items, at


def _write_delete_records_request_topic_v2(out: Parts, items: Sequence[DeleteRecordsRequestTopic]) -> None:
    for item in items:
        write_compact_string(out, item.name, "DeleteRecordsRequestTopic.name")
        _write_delete_records_request_partition_v2(
            out, write_compact_count(out, item.partitions, "DeleteRecordsRequestTopic.partitions")
        )
        out.append(NO_TAGS)


def _read_delete_records_request_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteRecordsRequest], int]:
    items: list[DeleteRecordsRequest] = []
    for _ in range(count):
        number, at = read_compact_count(data, at, end, 3, "DeleteRecordsRequest.topics")
        topics, at = _read_delete_records_request_topic_v2(data, at, end, number)
        if end - at < 5:
            raise cut_short("DeleteRecordsRequest.timeout_ms", at, end, 5)
        timeout_ms, tags = _INT32_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "DeleteRecordsRequest")
        items.append(DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms))
    return items, at


def _write_delete_records_request_v2(out: Parts, items: Sequence[DeleteRecordsRequest]) -> None:
    try:
        for item in items:
            _write_delete_records_request_topic_v2(
                out, write_compact_count(out, item.topics, "DeleteRecordsRequest.topics")
            )
            out.append(_INT32_TAGS.pack(item.timeout_ms, 0))
    except struct.error:
        raise misfit(items, _DELETE_RECORDS_REQUEST_CODES) from None


REQUEST: Final = MessageCodec(
    DeleteRecordsRequest,
    {
        0: (_read_delete_records_request_v0, _write_delete_records_request_v0),
        1: (_read_delete_records_request_v0, _write_delete_records_request_v0),
        2: (_read_delete_records_request_v2, _write_delete_records_request_v2),
    },
)


class DeleteRecordsResponsePartitionResult(msgspec.Struct, kw_only=True, gc=False):
    """Each partition that we wanted to delete records from."""

    partition_index: int = 0
    """The partition index. (int32)"""
    low_watermark: int = 0
    """The partition low water mark. (int64)"""
    error_code: int = 0
    """The deletion error code, or 0 if the deletion succeeded. (int16)"""


class DeleteRecordsResponseTopicResult(msgspec.Struct, kw_only=True, gc=False):
    """Each topic that we wanted to delete records from."""

    name: str = ""
    """The topic name. (string)"""
    partitions: list[DeleteRecordsResponsePartitionResult] = []
    """Each partition that we wanted to delete records from."""


class DeleteRecordsResponse(msgspec.Struct, kw_only=True, gc=False):
    """DeleteRecordsResponse, versions 0 to 2."""

    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32)"""
    topics: list[DeleteRecordsResponseTopicResult] = []
    """Each topic that we wanted to delete records from."""


_DELETE_RECORDS_RESPONSE_CODES: Final = {"throttle_time_ms": "i"}
_DELETE_RECORDS_RESPONSE_PARTITION_RESULT_CODES: Final = {
    "partition_index": "i",
    "low_watermark": "q",
    "error_code": "h",
}


def _read_delete_records_response_partition_result_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteRecordsResponsePartitionResult], int]:
    items: list[DeleteRecordsResponsePartitionResult] = []
    for _ in range(count):
        if end - at < 14:
            raise cut_short("DeleteRecordsResponsePartitionResult.partition_index to error_code", at, end, 14)
        partition_index, low_watermark, error_code = _INT32_INT64_INT16.unpack_from(data, at)
        at += 14
        items.append(
            DeleteRecordsResponsePartitionResult(
                partition_index=partition_index, low_watermark=low_watermark, error_code=error_code
            )
        )
    return items, at


def _write_delete_records_response_partition_result_v0(
    out: Parts, items: Sequence[DeleteRecordsResponsePartitionResult]
) -> None:
    try:
        for item in items:
            out.append(_INT32_INT64_INT16.pack(item.partition_index, item.low_watermark, item.error_code))
    except struct.error:
        raise misfit(items, _DELETE_RECORDS_RESPONSE_PARTITION_RESULT_CODES) from None


def _read_delete_records_response_topic_result_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteRecordsResponseTopicResult], int]:
    items: list[DeleteRecordsResponseTopicResult] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "DeleteRecordsResponseTopicResult.name")
        number, at = read_count(data, at, end, 14, "DeleteRecordsResponseTopicResult.partitions")
        partitions, at = _read_delete_records_response_partition_result_v0(data, at, end, number)
        items.append(DeleteRecordsResponseTopicResult(name=name, partitions=partitions))
    return items, at


def _write_delete_records_response_topic_result_v0(
    out: Parts, items: Sequence[DeleteRecordsResponseTopicResult]
) -> None:
    for item in items:
        write_string(out, item.name, "DeleteRecordsResponseTopicResult.name")
        _write_delete_records_response_partition_result_v0(
            out, write_count(out, item.partitions, "DeleteRecordsResponseTopicResult.partitions")
        )


def _read_delete_records_response_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteRecordsResponse], int]:
    items: list[DeleteRecordsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("DeleteRecordsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 6, "DeleteRecordsResponse.topics")
        topics, at = _read_delete_records_response_topic_result_v0(data, at, end, number)
        items.append(DeleteRecordsResponse(throttle_time_ms=throttle_time_ms, topics=topics))
    return items, at


def _write_delete_records_response_v0(out: Parts, items: Sequence[DeleteRecordsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_delete_records_response_topic_result_v0(
                out, write_count(out, item.topics, "DeleteRecordsResponse.topics")
            )
    except struct.error:
        raise misfit(items, _DELETE_RECORDS_RESPONSE_CODES) from None


def _read_delete_records_response_partition_result_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteRecordsResponsePartitionResult], int]:
    items: list[DeleteRecordsResponsePartitionResult] = []
    for _ in range(count):
        if end - at < 15:
            raise cut_short("DeleteRecordsResponsePartitionResult.partition_index to error_code", at, end, 15)
        partition_index, low_watermark, error_code, tags = _INT32_INT64_INT16_TAGS.unpack_from(data, at)
        at += 15
        if tags:
            at = skip_tags(data, at - 1, end, "DeleteRecordsResponsePartitionResult")
        items.append(
            DeleteRecordsResponsePartitionResult(
                partition_index=partition_index, low_watermark=low_watermark, error_code=error_code
            )
        )
    return items, at


def _write_delete_records_response_partition_result_v2(
    out: Parts, items: Sequence[DeleteRecordsResponsePartitionResult]
) -> None:
    try:
        for item in items:
            out.append(_INT32_INT64_INT16_TAGS.pack(item.partition_index, item.low_watermark, item.error_code, 0))
    except struct.error:
        raise misfit(items, _DELETE_RECORDS_RESPONSE_PARTITION_RESULT_CODES) from None


def _read_delete_records_response_topic_result_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteRecordsResponseTopicResult], int]:
    items: list[DeleteRecordsResponseTopicResult] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "DeleteRecordsResponseTopicResult.name")
        number, at = read_compact_count(data, at, end, 15, "DeleteRecordsResponseTopicResult.partitions")
        partitions, at = _read_delete_records_response_partition_result_v2(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DeleteRecordsResponseTopicResult")
        items.append(DeleteRecordsResponseTopicResult(name=name, partitions=partitions))
    return items, at


def _write_delete_records_response_topic_result_v2(
    out: Parts, items: Sequence[DeleteRecordsResponseTopicResult]
) -> None:
    for item in items:
        write_compact_string(out, item.name, "DeleteRecordsResponseTopicResult.name")
        _write_delete_records_response_partition_result_v2(
            out, write_compact_count(out, item.partitions, "DeleteRecordsResponseTopicResult.partitions")
        )
        out.append(NO_TAGS)


def _read_delete_records_response_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteRecordsResponse], int]:
    items: list[DeleteRecordsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("DeleteRecordsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 3, "DeleteRecordsResponse.topics")
        topics, at = _read_delete_records_response_topic_result_v2(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DeleteRecordsResponse")
        items.append(DeleteRecordsResponse(throttle_time_ms=throttle_time_ms, topics=topics))
    return items, at


def _write_delete_records_response_v2(out: Parts, items: Sequence[DeleteRecordsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_delete_records_response_topic_result_v2(
                out, write_compact_count(out, item.topics, "DeleteRecordsResponse.topics")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DELETE_RECORDS_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    DeleteRecordsResponse,
    {
        0: (_read_delete_records_response_v0, _write_delete_records_response_v0),
        1: (_read_delete_records_response_v0, _write_delete_records_response_v0),
        2: (_read_delete_records_response_v2, _write_delete_records_response_v2),
    },
)
