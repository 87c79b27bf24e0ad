"""DescribeLogDirs, API key 35.

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
    read_compact_nullable_count,
    read_compact_string,
    read_count,
    read_int32s,
    read_nullable_count,
    read_string,
    skip_tags,
    write_compact_count,
    write_compact_nullable_count,
    write_compact_string,
    write_count,
    write_int32s,
    write_nullable_count,
    write_string,
)

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT32_INT16: Final = struct.Struct(">ih")
_INT32_INT64X2_BOOL: Final = struct.Struct(">iqq?")
_INT32_INT64X2_BOOL_TAGS: Final = struct.Struct(">iqq?B")
_INT32_INT64X2_INT8: Final = struct.Struct(">iqqb")
_INT32_INT64X2_INT8_TAGS: Final = struct.Struct(">iqqbB")
_INT64X2_BOOL_TAGS: Final = struct.Struct(">qq?B")
_INT64X2_TAGS: Final = struct.Struct(">qqB")
_INT64X2_INT8_TAGS: Final = struct.Struct(">qqbB")


class DescribeLogDirsRequestDescribableLogDirTopic(msgspec.Struct, kw_only=True, gc=False):
    """Each topic that we want to describe log directories for, or null for all topics."""

    topic: str = ""
    """The topic name. (string)"""
    partitions: list[int] = []
    """The partition indexes. (int32)"""


class DescribeLogDirsRequest(msgspec.Struct, kw_only=True, gc=False):
    """DescribeLogDirsRequest, versions 1 to 5."""

    topics: list[DescribeLogDirsRequestDescribableLogDirTopic] | None = []
    """Each topic that we want to describe log directories for, or null for all topics."""


def _read_describe_log_dirs_request_describable_log_dir_topic_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeLogDirsRequestDescribableLogDirTopic], int]:
    items: list[DescribeLogDirsRequestDescribableLogDirTopic] = []
    for _ in range(count):
        topic, at = read_string(data, at, end, "DescribeLogDirsRequestDescribableLogDirTopic.topic")
        number, at = read_count(data, at, end, 4, "DescribeLogDirsRequestDescribableLogDirTopic.partitions")
        partitions, at = read_int32s(data, at, number)
        items.append(DescribeLogDirsRequestDescribableLogDirTopic(topic=topic, partitions=partitions))
    return items, at


def _write_describe_log_dirs_request_describable_log_dir_topic_v1(
    out: Parts, items: Sequence[DescribeLogDirsRequestDescribableLogDirTopic]
) -> None:
    for item in items:
        write_string(out, item.topic, "DescribeLogDirsRequestDescribableLogDirTopic.topic")
        write_int32s(
            out,
            write_count(out, item.partitions, "DescribeLogDirsRequestDescribableLogDirTopic.partitions"),
            "DescribeLogDirsRequestDescribableLogDirTopic.partitions",
        )


def _read_describe_log_dirs_request_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeLogDirsRequest], int]:
    items: list[DescribeLogDirsRequest] = []
    for _ in range(count):
        number, at = read_nullable_count(data, at, end, 6, "DescribeLogDirsRequest.topics")
        topics = None
        if number >= 0:
            topics, at = _read_describe_log_dirs_request_describable_log_dir_topic_v1(data, at, end, number)
        items.append(DescribeLogDirsRequest(topics=topics))
    return items, at


def _write_describe_log_dirs_request_v1(out: Parts, items: Sequence[DescribeLogDirsRequest]) -> None:
    for item in items:
        _write_describe_log_dirs_request_describable_log_dir_topic_v1(
            out, write_nullable_count(out, item.topics, "DescribeLogDirsRequest.topics")
        )


def _read_describe_log_dirs_request_describable_log_dir_topic_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeLogDirsRequestDescribableLogDirTopic], int]:
    items: list[DescribeLogDirsRequestDescribableLogDirTopic] = []
    for _ in range(count):
        topic, at = read_compact_string(data, at, end, "DescribeLogDirsRequestDescribableLogDirTopic.topic")
        number, at = read_compact_count(data, at, end, 4, "DescribeLogDirsRequestDescribableLogDirTopic.partitions")
        partitions, at = read_int32s(data, at, number)
        at = (
            at + 1
            if at < end and not data[at]
            else skip_tags(data, at, end, "DescribeLogDirsRequestDescribableLogDirTopic")
        )
        items.append(DescribeLogDirsRequestDescribableLogDirTopic(topic=topic, partitions=partitions))
    return items, at


def _write_describe_log_dirs_request_describable_log_dir_topic_v2(
    out: Parts, items: Sequence[DescribeLogDirsRequestDescribableLogDirTopic]
) -> None:
    for item in items:
        write_compact_string(out, item.topic, "DescribeLogDirsRequestDescribableLogDirTopic.topic")
        write_int32s(
            out,
            write_compact_count(out, item.partitions, "DescribeLogDirsRequestDescribableLogDirTopic.partitions"),
            "DescribeLogDirsRequestDescribableLogDirTopic.partitions",
        )
        out.append(NO_TAGS)


def _read_describe_log_dirs_request_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeLogDirsRequest], int]:
    items: list[DescribeLogDirsRequest] = []
    for _ in range(count):
        number, at = read_compact_nullable_count(data, at, end, 3, "DescribeLogDirsRequest.topics")
        topics = None
        if number >= 0:
            topics, at = _read_describe_log_dirs_request_describable_log_dir_topic_v2(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DescribeLogDirsRequest")
        items.append(DescribeLogDirsRequest(topics=topics))
    return items, at


def _write_describe_log_dirs_request_v2(out: Parts, items: Sequence[DescribeLogDirsRequest]) -> None:
    for item in items:
        _write_describe_log_dirs_request_describable_log_dir_topic_v2(
            out, write_compact_nullable_count(out, item.topics, "DescribeLogDirsRequest.topics")
        )
        out.append(NO_TAGS)


REQUEST: Final = MessageCodec(
    DescribeLogDirsRequest,
    {
        1: (_read_describe_log_dirs_request_v1, _write_describe_log_dirs_request_v1),
        2: (_read_describe_log_dirs_request_v2, _write_describe_log_dirs_request_v2),
        3: (_read_describe_log_dirs_request_v2, _write_describe_log_dirs_request_v2),
        4: (_read_describe_log_dirs_request_v2, _write_describe_log_dirs_request_v2),
        5: (_read_describe_log_dirs_request_v2, _write_describe_log_dirs_request_v2),
    },
)


class DescribeLogDirsResponsePartition(msgspec.Struct, kw_only=True, gc=False):
    """The partitions."""

    partition_index: int = 0
    """The partition index. (int32)"""
    partition_size: int = 0
    """The size of the log segments in this partition in bytes. (int64)"""
    offset_lag: int = 0
    """The lag of the log's LEO w.r.t. partition's HW (if it is the current log for the partition) or current
    replica's LEO (if it is the future log for the partition). (int64)"""
    is_future_key: bool = False
    """True if this log is created by AlterReplicaLogDirsRequest and will replace the current log of the replica in
    the future. (bool)"""


class DescribeLogDirsResponseTopic(msgspec.Struct, kw_only=True, gc=False):
    """The topics."""

    name: str = ""
    """The topic name. (string)"""
    partitions: list[DescribeLogDirsResponsePartition] = []
    """The partitions."""


class DescribeLogDirsResponseResult(msgspec.Struct, kw_only=True, gc=False):
    """The log directories."""

    error_code: int = 0
    """The error code, or 0 if there was no error. (int16)"""
    log_dir: str = ""
    """The absolute log directory path. (string)"""
    topics: list[DescribeLogDirsResponseTopic] = []
    """The topics."""
    total_bytes: int = -1
    """The total size in bytes of the volume the log directory is in. This value does not include the size of data
    stored in remote storage. (int64, versions 4 to 5, ignorable)"""
    usable_bytes: int = -1
    """The usable size in bytes of the volume the log directory is in. This value does not include the size of data
    stored in remote storage. (int64, versions 4 to 5, ignorable)"""
    is_cordoned: bool = False
    """True if this log directory is cordoned. (bool, version 5, ignorable)"""


class DescribeLogDirsResponse(msgspec.Struct, kw_only=True, gc=False):
    """DescribeLogDirsResponse, versions 1 to 5."""

    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32)"""
    error_code: int = 0
    """The error code, or 0 if there was no error. (int16, versions 3 to 5, ignorable)"""
    results: list[DescribeLogDirsResponseResult] = []
    """The log directories."""


_DESCRIBE_LOG_DIRS_RESPONSE_CODES: Final = {"throttle_time_ms": "i", "error_code": "h"}
_DESCRIBE_LOG_DIRS_RESPONSE_RESULT_CODES: Final = {
    "error_code": "h",
    "total_bytes": "q",
    "usable_bytes": "q",
    "is_cordoned": "b",
}
_DESCRIBE_LOG_DIRS_RESPONSE_PARTITION_CODES: Final = {
    "partition_index": "i",
    "partition_size": "q",
    "offset_lag": "q",
    "is_future_key": "b",
}


def _read_describe_log_dirs_response_partition_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeLogDirsResponsePartition], int]:
    items: list[DescribeLogDirsResponsePartition] = []
    for _ in range(count):
        if end - at < 21:
            raise cut_short("DescribeLogDirsResponsePartition.partition_index to is_future_key", at, end, 21)
        partition_index, partition_size, offset_lag, is_future_key = _INT32_INT64X2_BOOL.unpack_from(data, at)
        at += 21
        items.append(
            DescribeLogDirsResponsePartition(
                partition_index=partition_index,
                partition_size=partition_size,
                offset_lag=offset_lag,
                is_future_key=is_future_key,
            )
        )
    return items, at


def _write_describe_log_dirs_response_partition_v1(
    out: Parts, items: Sequence[DescribeLogDirsResponsePartition]
) -> None:
    try:
        for item in items:
            out.append(
                _INT32_INT64X2_INT8.pack(item.partition_index, item.partition_size, item.offset_lag, item.is_future_key)
            )
    except struct.error:
        raise misfit(items, _DESCRIBE_LOG_DIRS_RESPONSE_PARTITION_CODES) from None


def _read_describe_log_dirs_response_topic_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeLogDirsResponseTopic], int]:
    items: list[DescribeLogDirsResponseTopic] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "DescribeLogDirsResponseTopic.name")
        number, at = read_count(data, at, end, 21, "DescribeLogDirsResponseTopic.partitions")
        partitions, at = _read_describe_log_dirs_response_partition_v1(data, at, end, number)
        items.append(DescribeLogDirsResponseTopic(name=name, partitions=partitions))
    return items, at


def _write_describe_log_dirs_response_topic_v1(out: Parts, items: Sequence[DescribeLogDirsResponseTopic]) -> None:
    for item in items:
        write_string(out, item.name, "DescribeLogDirsResponseTopic.name")
        _write_describe_log_dirs_response_partition_v1(
            out, write_count(out, item.partitions, "DescribeLogDirsResponseTopic.partitions")
        )


def _read_describe_log_dirs_response_result_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeLogDirsResponseResult], int]:
    items: list[DescribeLogDirsResponseResult] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("DescribeLogDirsResponseResult.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        log_dir, at = read_string(data, at, end, "DescribeLogDirsResponseResult.log_dir")
        number, at = read_count(data, at, end, 6, "DescribeLogDirsResponseResult.topics")
        topics, at = _read_describe_log_dirs_response_topic_v1(data, at, end, number)
        items.append(DescribeLogDirsResponseResult(error_code=error_code, log_dir=log_dir, topics=topics))
    return items, at


def _write_describe_log_dirs_response_result_v1(out: Parts, items: Sequence[DescribeLogDirsResponseResult]) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            write_string(out, item.log_dir, "DescribeLogDirsResponseResult.log_dir")
            _write_describe_log_dirs_response_topic_v1(
                out, write_count(out, item.topics, "DescribeLogDirsResponseResult.topics")
            )
    except struct.error:
        raise misfit(items, _DESCRIBE_LOG_DIRS_RESPONSE_RESULT_CODES) from None


def _read_describe_log_dirs_response_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeLogDirsResponse], int]:
    items: list[DescribeLogDirsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("DescribeLogDirsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 8, "DescribeLogDirsResponse.results")
        results, at = _read_describe_log_dirs_response_result_v1(data, at, end, number)
        items.append(DescribeLogDirsResponse(throttle_time_ms=throttle_time_ms, results=results))
    return items, at


def _write_describe_log_dirs_response_v1(out: Parts, items: Sequence[DescribeLogDirsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_describe_log_dirs_response_result_v1(
                out, write_count(out, item.results, "DescribeLogDirsResponse.results")
            )
    except struct.error:
        raise misfit(items, _DESCRIBE_LOG_DIRS_RESPONSE_CODES) from None


def _read_describe_log_dirs_response_partition_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeLogDirsResponsePartition], int]:
    items: list[DescribeLogDirsResponsePartition] = []
    for _ in range(count):
        if end - at < 22:
            raise cut_short("DescribeLogDirsResponsePartition.partition_index to is_future_key", at, end, 22)
        partition_index, partition_size, offset_lag, is_future_key, tags = _INT32_INT64X2_BOOL_TAGS.unpack_from(
            data, at
        )
        at += 22
        if tags:
            at = skip_tags(data, at - 1, end, "DescribeLogDirsResponsePartition")
        items.append(
            DescribeLogDirsResponsePartition(
                partition_index=partition_index,
                partition_size=partition_size,
                offset_lag=offset_lag,
                is_future_key=is_future_key,
            )
        )
    return items, at


def _write_describe_log_dirs_response_partition_v2(
    out: Parts, items: Sequence[DescribeLogDirsResponsePartition]
) -> None:
    try:
        for item in items:
            out.append(
                _INT32_INT64X2_INT8_TAGS.pack(
                    item.partition_index, item.partition_size, item.offset_lag, item.is_future_key, 0
                )
            )
    except struct.error:
        raise misfit(items, _DESCRIBE_LOG_DIRS_RESPONSE_PARTITION_CODES) from None


def _read_describe_log_dirs_response_topic_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeLogDirsResponseTopic], int]:
    items: list[DescribeLogDirsResponseTopic] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "DescribeLogDirsResponseTopic.name")
        number, at = read_compact_count(data, at, end, 22, "DescribeLogDirsResponseTopic.partitions")
        partitions, at = _read_describe_log_dirs_response_partition_v2(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DescribeLogDirsResponseTopic")
        items.append(DescribeLogDirsResponseTopic(name=name, partitions=partitions))
    return items, at


def _write_describe_log_dirs_response_topic_v2(out: Parts, items: Sequence[DescribeLogDirsResponseTopic]) -> None:
    for item in items:
        write_compact_string(out, item.name, "DescribeLogDirsResponseTopic.name")
        _write_describe_log_dirs_response_partition_v2(
            out, write_compact_count(out, item.partitions, "DescribeLogDirsResponseTopic.partitions")
        )
        out.append(NO_TAGS)


def _read_describe_log_dirs_response_result_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeLogDirsResponseResult], int]:
    items: list[DescribeLogDirsResponseResult] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("DescribeLogDirsResponseResult.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        log_dir, at = read_compact_string(data, at, end, "DescribeLogDirsResponseResult.log_dir")
        number, at = read_compact_count(data, at, end, 3, "DescribeLogDirsResponseResult.topics")
        topics, at = _read_describe_log_dirs_response_topic_v2(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DescribeLogDirsResponseResult")
        items.append(DescribeLogDirsResponseResult(error_code=error_code, log_dir=log_dir, topics=topics))
    return items, at


def _write_describe_log_dirs_response_result_v2(out: Parts, items: Sequence[DescribeLogDirsResponseResult]) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            write_compact_string(out, item.log_dir, "DescribeLogDirsResponseResult.log_dir")
            _write_describe_log_dirs_response_topic_v2(
                out, write_compact_count(out, item.topics, "DescribeLogDirsResponseResult.topics")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DESCRIBE_LOG_DIRS_RESPONSE_RESULT_CODES) from None


def _read_describe_log_dirs_response_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeLogDirsResponse], int]:
    items: list[DescribeLogDirsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("DescribeLogDirsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 5, "DescribeLogDirsResponse.results")
        results, at = _read_describe_log_dirs_response_result_v2(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DescribeLogDirsResponse")
        items.append(DescribeLogDirsResponse(throttle_time_ms=throttle_time_ms, results=results))
    return items, at


def _write_describe_log_dirs_response_v2(out: Parts, items: Sequence[DescribeLogDirsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_describe_log_dirs_response_result_v2(
                out, write_compact_count(out, item.results, "DescribeLogDirsResponse.results")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DESCRIBE_LOG_DIRS_RESPONSE_CODES) from None


def _read_describe_log_dirs_response_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeLogDirsResponse], int]:
    items: list[DescribeLogDirsResponse] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("DescribeLogDirsResponse.throttle_time_ms to error_code", at, end, 6)
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        number, at = read_compact_count(data, at, end, 5, "DescribeLogDirsResponse.results")
        results, at = _read_describe_log_dirs_response_result_v2(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DescribeLogDirsResponse")
        items.append(DescribeLogDirsResponse(throttle_time_ms=throttle_time_ms, error_code=error_code, results=results))
    return items, at


def _write_describe_log_dirs_response_v3(out: Parts, items: Sequence[DescribeLogDirsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT16.pack(item.throttle_time_ms, item.error_code))
            _write_describe_log_dirs_response_result_v2(
                out, write_compact_count(out, item.results, "DescribeLogDirsResponse.results")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DESCRIBE_LOG_DIRS_RESPONSE_CODES) from None


def _read_describe_log_dirs_response_result_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeLogDirsResponseResult], int]:
    items: list[DescribeLogDirsResponseResult] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("DescribeLogDirsResponseResult.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        log_dir, at = read_compact_string(data, at, end, "DescribeLogDirsResponseResult.log_dir")
        number, at = read_compact_count(data, at, end, 3, "DescribeLogDirsResponseResult.topics")
        topics, at = _read_describe_log_dirs_response_topic_v2(data, at, end, number)
        if end - at < 17:
            raise cut_short("DescribeLogDirsResponseResult.total_bytes to usable_bytes", at, end, 17)
        total_bytes, usable_bytes, tags = _INT64X2_TAGS.unpack_from(data, at)
        at += 17
        if tags:
            at = skip_tags(data, at - 1, end, "DescribeLogDirsResponseResult")
        items.append(
            DescribeLogDirsResponseResult(
                error_code=error_code,
                log_dir=log_dir,
                topics=topics,
                total_bytes=total_bytes,
                usable_bytes=usable_bytes,
            )
        )
    return items, at


def _write_describe_log_dirs_response_result_v4(out: Parts, items: Sequence[DescribeLogDirsResponseResult]) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            write_compact_string(out, item.log_dir, "DescribeLogDirsResponseResult.log_dir")
            _write_describe_log_dirs_response_topic_v2(
                out, write_compact_count(out, item.topics, "DescribeLogDirsResponseResult.topics")
            )
            out.append(_INT64X2_TAGS.pack(item.total_bytes, item.usable_bytes, 0))
    except struct.error:
        raise misfit(items, _DESCRIBE_LOG_DIRS_RESPONSE_RESULT_CODES) from None


def _read_describe_log_dirs_response_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeLogDirsResponse], int]:
    items: list[DescribeLogDirsResponse] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("DescribeLogDirsResponse.throttle_time_ms to error_code", at, end, 6)
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        number, at = read_compact_count(data, at, end, 21, "DescribeLogDirsResponse.results")
        results, at = _read_describe_log_dirs_response_result_v4(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DescribeLogDirsResponse")
        items.append(DescribeLogDirsResponse(throttle_time_ms=throttle_time_ms, error_code=error_code, results=results))
    return items, at


def _write_describe_log_dirs_response_v4(out: Parts, items: Sequence[DescribeLogDirsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT16.pack(item.throttle_time_ms, item.error_code))
            _write_describe_log_dirs_response_result_v4(
                out, write_compact_count(out, item.results, "DescribeLogDirsResponse.results")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DESCRIBE_LOG_DIRS_RESPONSE_CODES) from None


def _read_describe_log_dirs_response_result_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeLogDirsResponseResult], int]:
    items: list[DescribeLogDirsResponseResult] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("DescribeLogDirsResponseResult.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        log_dir, at = read_compact_string(data, at, end, "DescribeLogDirsResponseResult.log_dir")
        number, at = read_compact_count(data, at, end, 3, "DescribeLogDirsResponseResult.topics")
        topics, at = _read_describe_log_dirs_response_topic_v2(data, at, end, number)
        if end - at < 18:
            raise cut_short("DescribeLogDirsResponseResult.total_bytes to is_cordoned", at, end, 18)
        total_bytes, usable_bytes, is_cordoned, tags = _INT64X2_BOOL_TAGS.unpack_from(data, at)
        at += 18
        if tags:
            at = skip_tags(data, at - 1, end, "DescribeLogDirsResponseResult")
        items.append(
            DescribeLogDirsResponseResult(
                error_code=error_code,
                log_dir=log_dir,
                topics=topics,
                total_bytes=total_bytes,
                usable_bytes=usable_bytes,
                is_cordoned=is_cordoned,
            )
        )
    return items, at


def _write_describe_log_dirs_response_result_v5(out: Parts, items: Sequence[DescribeLogDirsResponseResult]) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            write_compact_string(out, item.log_dir, "DescribeLogDirsResponseResult.log_dir")
            _write_describe_log_dirs_response_topic_v2(
                out, write_compact_count(out, item.topics, "DescribeLogDirsResponseResult.topics")
            )
            out.append(_INT64X2_INT8_TAGS.pack(item.total_bytes, item.usable_bytes, item.is_cordoned, 0))
    except struct.error:
        raise misfit(items, _DESCRIBE_LOG_DIRS_RESPONSE_RESULT_CODES) from None


def _read_describe_log_dirs_response_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeLogDirsResponse], int]:
    items: list[DescribeLogDirsResponse] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("DescribeLogDirsResponse.throttle_time_ms to error_code", at, end, 6)
        throttle_time_ms, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        number, at = read_compact_count(data, at, end, 22, "DescribeLogDirsResponse.results")
        results, at = _read_describe_log_dirs_response_result_v5(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DescribeLogDirsResponse")
        items.append(DescribeLogDirsResponse(throttle_time_ms=throttle_time_ms, error_code=error_code, results=results))
    return items, at


def _write_describe_log_dirs_response_v5(out: Parts, items: Sequence[DescribeLogDirsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT16.pack(item.throttle_time_ms, item.error_code))
            _write_describe_log_dirs_response_result_v5(
                out, write_compact_count(out, item.results, "DescribeLogDirsResponse.results")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DESCRIBE_LOG_DIRS_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    DescribeLogDirsResponse,
    {
        1: (_read_describe_log_dirs_response_v1, _write_describe_log_dirs_response_v1),
        2: (_read_describe_log_dirs_response_v2, _write_describe_log_dirs_response_v2),
        3: (_read_describe_log_dirs_response_v3, _write_describe_log_dirs_response_v3),
        4: (_read_describe_log_dirs_response_v4, _write_describe_log_dirs_response_v4),
        5: (_read_describe_log_dirs_response_v5, _write_describe_log_dirs_response_v5),
    },
)
