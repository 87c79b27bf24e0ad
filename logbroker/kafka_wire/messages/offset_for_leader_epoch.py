"""OffsetForLeaderEpoch, API key 23.

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

_INT16_INT32X2_INT64: Final = struct.Struct(">hiiq")
_INT16_INT32X2_INT64_TAGS: Final = struct.Struct(">hiiqB")
_INT32: Final = struct.Struct(">i")
_INT32X3: Final = struct.Struct(">iii")
_INT32X3_TAGS: Final = struct.Struct(">iiiB")


class OffsetForLeaderEpochRequestPartition(msgspec.Struct, kw_only=True, gc=False):
    """Each partition to get offsets for."""

    partition: int = 0
    """The partition index. (int32)"""
    current_leader_epoch: int = -1
    """An epoch used to fence consumers/replicas with old metadata. If the epoch provided by the client is larger
    than the current epoch known to the broker, then the UNKNOWN_LEADER_EPOCH error code will be returned. If the
    provided epoch is smaller, then the FENCED_LEADER_EPOCH error code will be returned. (int32)"""
    leader_epoch: int = 0
    """The epoch to look up an offset for. (int32)"""


class OffsetForLeaderEpochRequestTopic(msgspec.Struct, kw_only=True, gc=False):
    """Each topic to get offsets for."""

    topic: str = ""
    """The topic name. (string)"""
    partitions: list[OffsetForLeaderEpochRequestPartition] = []
    """Each partition to get offsets for."""


class OffsetForLeaderEpochRequest(msgspec.Struct, kw_only=True, gc=False):
    """OffsetForLeaderEpochRequest, versions 2 to 4."""

    replica_id: int = -2
    """The broker ID of the follower, of -1 if this request is from a consumer. (int32, versions 3 to 4, ignorable)"""
    topics: list[OffsetForLeaderEpochRequestTopic] = []
    """Each topic to get offsets for."""


_OFFSET_FOR_LEADER_EPOCH_REQUEST_CODES: Final = {"replica_id": "i"}
_OFFSET_FOR_LEADER_EPOCH_REQUEST_PARTITION_CODES: Final = {
    "partition": "i",
    "current_leader_epoch": "i",
    "leader_epoch": "i",
}


def _read_offset_for_leader_epoch_request_partition_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetForLeaderEpochRequestPartition], int]:
    items: list[OffsetForLeaderEpochRequestPartition] = []
    for _ in range(count):
        if end - at < 12:
            raise cut_short("OffsetForLeaderEpochRequestPartition.partition to leader_epoch", at, end, 12)
        partition, current_leader_epoch, leader_epoch = _INT32X3.unpack_from(data, at)
        at += 12
        items.append(
            OffsetForLeaderEpochRequestPartition(
                partition=partition, current_leader_epoch=current_leader_epoch, leader_epoch=leader_epoch
            )
        )
    return items, at


def _write_offset_for_leader_epoch_request_partition_v2(
    out: Parts, items: Sequence[OffsetForLeaderEpochRequestPartition]
) -> None:
    try:
        for item in items:
            out.append(_INT32X3.pack(item.partition, item.current_leader_epoch, item.leader_epoch))
    except struct.error:
        raise misfit(items, _OFFSET_FOR_LEADER_EPOCH_REQUEST_PARTITION_CODES) from None


def _read_offset_for_leader_epoch_request_topic_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetForLeaderEpochRequestTopic], int]:
    items: list[OffsetForLeaderEpochRequestTopic] = []
    for _ in range(count):
        topic, at = read_string(data, at, end, "OffsetForLeaderEpochRequestTopic.topic")
        number, at = read_count(data, at, end, 12, "OffsetForLeaderEpochRequestTopic.partitions")
        partitions, at = _read_offset_for_leader_epoch_request_partition_v2(data, at, end, number)
        items.append(OffsetForLeaderEpochRequestTopic(topic=topic, partitions=partitions))
    return items, at


def _write_offset_for_leader_epoch_request_topic_v2(
    out: Parts, items: Sequence[OffsetForLeaderEpochRequestTopic]
) -> None:
    for item in items:
        write_string(out, item.topic, "OffsetForLeaderEpochRequestTopic.topic")
        _write_offset_for_leader_epoch_request_partition_v2(
            out, write_count(out, item.partitions, "OffsetForLeaderEpochRequestTopic.partitions")
        )


def _read_offset_for_leader_epoch_request_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetForLeaderEpochRequest], int]:
    items: list[OffsetForLeaderEpochRequest] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 6, "OffsetForLeaderEpochRequest.topics")
        topics, at = _read_offset_for_leader_epoch_request_topic_v2(data, at, end, number)
        items.append(OffsetForLeaderEpochRequest(topics=topics))
    return items, at


def _write_offset_for_leader_epoch_request_v2(out: Parts, items: Sequence[OffsetForLeaderEpochRequest]) -> None:
    for item in items:
        _write_offset_for_leader_epoch_request_topic_v2(
            out, write_count(out, item.topics, "OffsetForLeaderEpochRequest.topics")
        )


def _read_offset_for_leader_epoch_request_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetForLeaderEpochRequest], int]:
    items: list[OffsetForLeaderEpochRequest] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("OffsetForLeaderEpochRequest.replica_id", at, end, 4)
        (replica_id,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 6, "OffsetForLeaderEpochRequest.topics")
        topics, at = _read_offset_for_leader_epoch_request_topic_v2(data, at, end, number)
        items.append(OffsetForLeaderEpochRequest(replica_id=replica_id, topics=topics))
    return items, at


def _write_offset_for_leader_epoch_request_v3(out: Parts, items: Sequence[OffsetForLeaderEpochRequest]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.replica_id))
            _write_offset_for_leader_epoch_request_topic_v2(
                out, write_count(out, item.topics, "OffsetForLeaderEpochRequest.topics")
            )
    except struct.error:
        raise misfit(items, _OFFSET_FOR_LEADER_EPOCH_REQUEST_CODES) from None


def _read_offset_for_leader_epoch_request_partition_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetForLeaderEpochRequestPartition], int]:
    items: list[OffsetForLeaderEpochRequestPartition] = []
    for _ in range(count):
        if end - at < 13:
            raise cut_short("OffsetForLeaderEpochRequestPartition.partition to leader_epoch", at, end, 13)
        partition, current_leader_epoch, leader_epoch, tags = _INT32X3_TAGS.unpack_from(data, at)
        at += 13
        if tags:
            at = skip_tags(data, at - 1, end, "OffsetForLeaderEpochRequestPartition")
        items.append(
            OffsetForLeaderEpochRequestPartition(
                partition=partition, current_leader_epoch=current_leader_epoch, leader_epoch=leader_epoch
            )
        )
    return items, at


def _write_offset_for_leader_epoch_request_partition_v4(
    out: Parts, items: Sequence[OffsetForLeaderEpochRequestPartition]
) -> None:
    try:
        for item in items:
            out.append(_INT32X3_TAGS.pack(item.partition, item.current_leader_epoch, item.leader_epoch, 0))
    except struct.error:
        raise misfit(items, _OFFSET_FOR_LEADER_EPOCH_REQUEST_PARTITION_CODES) from None


def _read_offset_for_leader_epoch_request_topic_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetForLeaderEpochRequestTopic], int]:
    items: list[OffsetForLeaderEpochRequestTopic] = []
    for _ in range(count):
        topic, at = read_compact_string(data, at, end, "OffsetForLeaderEpochRequestTopic.topic")
        number, at = read_compact_count(data, at, end, 13, "OffsetForLeaderEpochRequestTopic.partitions")
        partitions, at = _read_offset_for_leader_epoch_request_partition_v4(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "OffsetForLeaderEpochRequestTopic")
        items.append(OffsetForLeaderEpochRequestTopic(topic=topic, partitions=partitions))
    return items, at


def _write_offset_for_leader_epoch_request_topic_v4(
    out: Parts, items: Sequence[OffsetForLeaderEpochRequestTopic]
) -> None:
    for item in items:
        write_compact_string(out, item.topic, "OffsetForLeaderEpochRequestTopic.topic")
        _write_offset_for_leader_epoch_request_partition_v4(
            out, write_compact_count(out, item.partitions, "OffsetForLeaderEpochRequestTopic.partitions")
        )
        out.append(NO_TAGS)


def _read_offset_for_leader_epoch_request_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetForLeaderEpochRequest], int]:
    items: list[OffsetForLeaderEpochRequest] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("OffsetForLeaderEpochRequest.replica_id", at, end, 4)
        (replica_id,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 3, "OffsetForLeaderEpochRequest.topics")
        topics, at = _read_offset_for_leader_epoch_request_topic_v4(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "OffsetForLeaderEpochRequest")
        items.append(OffsetForLeaderEpochRequest(replica_id=replica_id, topics=topics))
    return items, at


def _write_offset_for_leader_epoch_request_v4(out: Parts, items: Sequence[OffsetForLeaderEpochRequest]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.replica_id))
            _write_offset_for_leader_epoch_request_topic_v4(
                out, write_compact_count(out, item.topics, "OffsetForLeaderEpochRequest.topics")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _OFFSET_FOR_LEADER_EPOCH_REQUEST_CODES) from None


REQUEST: Final = MessageCodec(
    OffsetForLeaderEpochRequest,
    {
        2: (_read_offset_for_leader_epoch_request_v2, _write_offset_for_leader_epoch_request_v2),
        3: (_read_offset_for_leader_epoch_request_v3, _write_offset_for_leader_epoch_request_v3),
        4: (_read_offset_for_leader_epoch_request_v4, _write_offset_for_leader_epoch_request_v4),
    },
)


class OffsetForLeaderEpochResponseEpochEndOffset(msgspec.Struct, kw_only=True, gc=False):
    """Each partition in the topic we fetched offsets for."""

    error_code: int = 0
    """The error code 0, or if there was no error. (int16)"""
    partition: int = 0
    """The partition index. (int32)"""
    leader_epoch: int = -1
    """The leader epoch of the partition. (int32)"""
    end_offset: int = -1
    """The end offset of the epoch. (int64)"""


class OffsetForLeaderEpochResponseTopicResult(msgspec.Struct, kw_only=True, gc=False):
    """Each topic we fetched offsets for."""

    topic: str = ""
    """The topic name. (string)"""
    partitions: list[OffsetForLeaderEpochResponseEpochEndOffset] = []
    """Each partition in the topic we fetched offsets for."""


class OffsetForLeaderEpochResponse(msgspec.Struct, kw_only=True, gc=False):
    """OffsetForLeaderEpochResponse, versions 2 to 4."""

    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32)"""
    topics: list[OffsetForLeaderEpochResponseTopicResult] = []
    """Each topic we fetched offsets for."""


_OFFSET_FOR_LEADER_EPOCH_RESPONSE_CODES: Final = {"throttle_time_ms": "i"}
_OFFSET_FOR_LEADER_EPOCH_RESPONSE_EPOCH_END_OFFSET_CODES: Final = {
    "error_code": "h",
    "partition": "i",
    "leader_epoch": "i",
    "end_offset": "q",
}


def _read_offset_for_leader_epoch_response_epoch_end_offset_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetForLeaderEpochResponseEpochEndOffset], int]:
    items: list[OffsetForLeaderEpochResponseEpochEndOffset] = []
    for _ in range(count):
        if end - at < 18:
            raise cut_short("OffsetForLeaderEpochResponseEpochEndOffset.error_code to end_offset", at, end, 18)
        error_code, partition, leader_epoch, end_offset = _INT16_INT32X2_INT64.unpack_from(data, at)
        at += 18
        items.append(
            OffsetForLeaderEpochResponseEpochEndOffset(
                error_code=error_code, partition=partition, leader_epoch=leader_epoch, end_offset=end_offset
            )
        )
    return items, at


def _write_offset_for_leader_epoch_response_epoch_end_offset_v2(
    out: Parts, items: Sequence[OffsetForLeaderEpochResponseEpochEndOffset]
) -> None:
    try:
        for item in items:
            out.append(_INT16_INT32X2_INT64.pack(item.error_code, item.partition, item.leader_epoch, item.end_offset))
    except struct.error:
        raise misfit(items, _OFFSET_FOR_LEADER_EPOCH_RESPONSE_EPOCH_END_OFFSET_CODES) from None


def _read_offset_for_leader_epoch_response_topic_result_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetForLeaderEpochResponseTopicResult], int]:
    items: list[OffsetForLeaderEpochResponseTopicResult] = []
    for _ in range(count):
        topic, at = read_string(data, at, end, "OffsetForLeaderEpochResponseTopicResult.topic")
        number, at = read_count(data, at, end, 18, "OffsetForLeaderEpochResponseTopicResult.partitions")
        partitions, at = _read_offset_for_leader_epoch_response_epoch_end_offset_v2(data, at, end, number)
        items.append(OffsetForLeaderEpochResponseTopicResult(topic=topic, partitions=partitions))
    return items, at


def _write_offset_for_leader_epoch_response_topic_result_v2(
    out: Parts, items: Sequence[OffsetForLeaderEpochResponseTopicResult]
) -> None:
    for item in items:
        write_string(out, item.topic, "OffsetForLeaderEpochResponseTopicResult.topic")
        _write_offset_for_leader_epoch_response_epoch_end_offset_v2(
            out, write_count(out, item.partitions, "OffsetForLeaderEpochResponseTopicResult.partitions")
        )


def _read_offset_for_leader_epoch_response_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetForLeaderEpochResponse], int]:
    items: list[OffsetForLeaderEpochResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("OffsetForLeaderEpochResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 6, "OffsetForLeaderEpochResponse.topics")
        topics, at = _read_offset_for_leader_epoch_response_topic_result_v2(data, at, end, number)
        items.append(OffsetForLeaderEpochResponse(throttle_time_ms=throttle_time_ms, topics=topics))
    return items, at


def _write_offset_for_leader_epoch_response_v2(out: Parts, items: Sequence[OffsetForLeaderEpochResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_offset_for_leader_epoch_response_topic_result_v2(
                out, write_count(out, item.topics, "OffsetForLeaderEpochResponse.topics")
            )
    except struct.error:
        raise misfit(items, _OFFSET_FOR_LEADER_EPOCH_RESPONSE_CODES) from None


def _read_offset_for_leader_epoch_response_epoch_end_offset_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetForLeaderEpochResponseEpochEndOffset], int]:
    items: list[OffsetForLeaderEpochResponseEpochEndOffset] = []
    for _ in range(count):
        if end - at < 19:
            raise cut_short("OffsetForLeaderEpochResponseEpochEndOffset.error_code to end_offset", at, end, 19)
        error_code, partition, leader_epoch, end_offset, tags = _INT16_INT32X2_INT64_TAGS.unpack_from(data, at)
        at += 19
        if tags:
            at = skip_tags(data, at - 1, end, "OffsetForLeaderEpochResponseEpochEndOffset")
        items.append(
            OffsetForLeaderEpochResponseEpochEndOffset(
                error_code=error_code, partition=partition, leader_epoch=leader_epoch, end_offset=end_offset
            )
        )
    return items, at


def _write_offset_for_leader_epoch_response_epoch_end_offset_v4(
    out: Parts, items: Sequence[OffsetForLeaderEpochResponseEpochEndOffset]
) -> None:
    try:
        for item in items:
            out.append(
                _INT16_INT32X2_INT64_TAGS.pack(item.error_code, item.partition, item.leader_epoch, item.end_offset, 0)
            )
    except struct.error:
        raise misfit(items, _OFFSET_FOR_LEADER_EPOCH_RESPONSE_EPOCH_END_OFFSET_CODES) from None


def _read_offset_for_leader_epoch_response_topic_result_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetForLeaderEpochResponseTopicResult], int]:
    items: list[OffsetForLeaderEpochResponseTopicResult] = []
    for _ in range(count):
        topic, at = read_compact_string(data, at, end, "OffsetForLeaderEpochResponseTopicResult.topic")
        number, at = read_compact_count(data, at, end, 19, "OffsetForLeaderEpochResponseTopicResult.partitions")
        partitions, at = _read_offset_for_leader_epoch_response_epoch_end_offset_v4(data, at, end, number)
        at = (
            at + 1 if at < end and not data[at] else skip_tags(data, at, end, "OffsetForLeaderEpochResponseTopicResult")
        )
        items.append(OffsetForLeaderEpochResponseTopicResult(topic=topic, partitions=partitions))
    return items, at


def _write_offset_for_leader_epoch_response_topic_result_v4(
    out: Parts, items: Sequence[OffsetForLeaderEpochResponseTopicResult]
) -> None:
    for item in items:
        write_compact_string(out, item.topic, "OffsetForLeaderEpochResponseTopicResult.topic")
        _write_offset_for_leader_epoch_response_epoch_end_offset_v4(
            out, write_compact_count(out, item.partitions, "OffsetForLeaderEpochResponseTopicResult.partitions")
        )
        out.append(NO_TAGS)


def _read_offset_for_leader_epoch_response_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetForLeaderEpochResponse], int]:
    items: list[OffsetForLeaderEpochResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("OffsetForLeaderEpochResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 3, "OffsetForLeaderEpochResponse.topics")
        topics, at = _read_offset_for_leader_epoch_response_topic_result_v4(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "OffsetForLeaderEpochResponse")
        items.append(OffsetForLeaderEpochResponse(throttle_time_ms=throttle_time_ms, topics=topics))
    return items, at


def _write_offset_for_leader_epoch_response_v4(out: Parts, items: Sequence[OffsetForLeaderEpochResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_offset_for_leader_epoch_response_topic_result_v4(
                out, write_compact_count(out, item.topics, "OffsetForLeaderEpochResponse.topics")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _OFFSET_FOR_LEADER_EPOCH_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    OffsetForLeaderEpochResponse,
    {
        2: (_read_offset_for_leader_epoch_response_v2, _write_offset_for_leader_epoch_response_v2),
        3: (_read_offset_for_leader_epoch_response_v2, _write_offset_for_leader_epoch_response_v2),
        4: (_read_offset_for_leader_epoch_response_v4, _write_offset_for_leader_epoch_response_v4),
    },
)
