"""DescribeProducers, API key 61.

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
    read_int32s,
    skip_tags,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
    write_int32s,
)

_INT32: Final = struct.Struct(">i")
_INT32_INT16: Final = struct.Struct(">ih")
_INT64_INT32X2_INT64_INT32_INT64_TAGS: Final = struct.Struct(">qiiqiqB")


class DescribeProducersRequestTopic(msgspec.Struct, kw_only=True, gc=False):
    """The topics to list producers for."""

    name: str = ""
    """The topic name. (string)"""
    partition_indexes: list[int] = []
    """The indexes of the partitions to list producers for. (int32)"""


class DescribeProducersRequest(msgspec.Struct, kw_only=True, gc=False):
    """DescribeProducersRequest, versions 0 to 0."""

    topics: list[DescribeProducersRequestTopic] = []
    """The topics to list producers for."""


def _read_describe_producers_request_topic_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeProducersRequestTopic], int]:
    items: list[DescribeProducersRequestTopic] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "DescribeProducersRequestTopic.name")
        number, at = read_compact_count(data, at, end, 4, "DescribeProducersRequestTopic.partition_indexes")
        partition_indexes, at = read_int32s(data, at, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DescribeProducersRequestTopic")
        items.append(DescribeProducersRequestTopic(name=name, partition_indexes=partition_indexes))
    return items, at


def _write_describe_producers_request_topic_v0(out: Parts, items: Sequence[DescribeProducersRequestTopic]) -> None:
    for item in items:
        write_compact_string(out, item.name, "DescribeProducersRequestTopic.name")
        write_int32s(
            out,
            write_compact_count(out, item.partition_indexes, "DescribeProducersRequestTopic.partition_indexes"),
            "DescribeProducersRequestTopic.partition_indexes",
        )
        out.append(NO_TAGS)


def _read_describe_producers_request_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeProducersRequest], int]:
    items: list[DescribeProducersRequest] = []
    for _ in range(count):
        number, at = read_compact_count(data, at, end, 3, "DescribeProducersRequest.topics")
        topics, at = _read_describe_producers_request_topic_v0(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DescribeProducersRequest")
        items.append(DescribeProducersRequest(topics=topics))
    return items, at


def _write_describe_producers_request_v0(out: Parts, items: Sequence[DescribeProducersRequest]) -> None:
    for item in items:
        _write_describe_producers_request_topic_v0(
            out, write_compact_count(out, item.topics, "DescribeProducersRequest.topics")
        )
        out.append(NO_TAGS)


REQUEST: Final = MessageCodec(
    DescribeProducersRequest,
    {
        0: (_read_describe_producers_request_v0, _write_describe_producers_request_v0),
    },
)


class DescribeProducersResponseProducerState(msgspec.Struct, kw_only=True, gc=False):
    """The active producers for the partition."""

    producer_id: int = 0
    """The producer id. (int64)"""
    producer_epoch: int = 0
    """The producer epoch. (int32)"""
    last_sequence: int = -1
    """The last sequence number sent by the producer. (int32)"""
    last_timestamp: int = -1
    """The last timestamp sent by the producer. (int64)"""
    coordinator_epoch: int = 0
    """The current epoch of the producer group. (int32)"""
    current_txn_start_offset: int = -1
    """The current transaction start offset of the producer. (int64)"""


class DescribeProducersResponsePartition(msgspec.Struct, kw_only=True, gc=False):
    """Each partition in the response."""

    partition_index: int = 0
    """The partition index. (int32)"""
    error_code: int = 0
    """The partition error code, or 0 if there was no error. (int16)"""
    error_message: str | None = None
    """The partition error message, which may be null if no additional details are available. (string)"""
    active_producers: list[DescribeProducersResponseProducerState] = []
    """The active producers for the partition."""


class DescribeProducersResponseTopic(msgspec.Struct, kw_only=True, gc=False):
    """Each topic in the response."""

    name: str = ""
    """The topic name. (string)"""
    partitions: list[DescribeProducersResponsePartition] = []
    """Each partition in the response."""


class DescribeProducersResponse(msgspec.Struct, kw_only=True, gc=False):
    """DescribeProducersResponse, versions 0 to 0."""

    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32)"""
    topics: list[DescribeProducersResponseTopic] = []
    """Each topic in the response."""


_DESCRIBE_PRODUCERS_RESPONSE_CODES: Final = {"throttle_time_ms": "i"}
_DESCRIBE_PRODUCERS_RESPONSE_PARTITION_CODES: Final = {"partition_index": "i", "error_code": "h"}
_DESCRIBE_PRODUCERS_RESPONSE_PRODUCER_STATE_CODES: Final = {
    "producer_id": "q",
    "producer_epoch": "i",
    "last_sequence": "i",
    "last_timestamp": "q",
    "coordinator_epoch": "i",
    "current_txn_start_offset": "q",
}


def _read_describe_producers_response_producer_state_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeProducersResponseProducerState], int]:
    items: list[DescribeProducersResponseProducerState] = []
    for _ in range(count):
        if end - at < 37:
            raise cut_short(
                "DescribeProducersResponseProducerState.producer_id to current_txn_start_offset", at, end, 37
            )
        (
            producer_id,
            producer_epoch,
            last_sequence,
            last_timestamp,
            coordinator_epoch,
            current_txn_start_offset,
            tags,
        ) = _INT64_INT32X2_INT64_INT32_INT64_TAGS.unpack_from(data, at)
        at += 37
        if tags:
            at = skip_tags(data, at - 1, end, "DescribeProducersResponseProducerState")
        items.append(
            DescribeProducersResponseProducerState(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                last_sequence=last_sequence,
                last_timestamp=last_timestamp,
                coordinator_epoch=coordinator_epoch,
                current_txn_start_offset=current_txn_start_offset,
            )
        )
    return items, at


def _write_describe_producers_response_producer_state_v0(
    out: Parts, items: Sequence[DescribeProducersResponseProducerState]
) -> None:
    try:
        for item in items:
            out.append(
                _INT64_INT32X2_INT64_INT32_INT64_TAGS.pack(
                    item.producer_id,
                    item.producer_epoch,
                    item.last_sequence,
                    item.last_timestamp,
                    item.coordinator_epoch,
                    item.current_txn_start_offset,
                    0,
                )
            )
    except struct.error:
        raise misfit(items, _DESCRIBE_PRODUCERS_RESPONSE_PRODUCER_STATE_CODES) from None


def _read_describe_producers_response_partition_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeProducersResponsePartition], int]:
    items: list[DescribeProducersResponsePartition] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("DescribeProducersResponsePartition.partition_index to error_code", at, end, 6)
        partition_index, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        error_message, at = read_compact_nullable_string(
            data, at, end, "DescribeProducersResponsePartition.error_message"
        )
        number, at = read_compact_count(data, at, end, 37, "DescribeProducersResponsePartition.active_producers")
        active_producers, at = _read_describe_producers_response_producer_state_v0(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DescribeProducersResponsePartition")
        items.append(
            DescribeProducersResponsePartition(
                partition_index=partition_index,
                error_code=error_code,
                error_message=error_message,
                active_producers=active_producers,
            )
        )
    return items, at


def _write_describe_producers_response_partition_v0(
    out: Parts, items: Sequence[DescribeProducersResponsePartition]
) -> None:
    try:
        for item in items:
            out.append(_INT32_INT16.pack(item.partition_index, item.error_code))
            write_compact_nullable_string(out, item.error_message, "DescribeProducersResponsePartition.error_message")
            _write_describe_producers_response_producer_state_v0(
                out,
                write_compact_count(out, item.active_producers, "DescribeProducersResponsePartition.active_producers"),
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DESCRIBE_PRODUCERS_RESPONSE_PARTITION_CODES) from None


def _read_describe_producers_response_topic_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeProducersResponseTopic], int]:
    items: list[DescribeProducersResponseTopic] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "DescribeProducersResponseTopic.name")
        number, at = read_compact_count(data, at, end, 9, "DescribeProducersResponseTopic.partitions")
        partitions, at = _read_describe_producers_response_partition_v0(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DescribeProducersResponseTopic")
        items.append(DescribeProducersResponseTopic(name=name, partitions=partitions))
    return items, at


def _write_describe_producers_response_topic_v0(out: Parts, items: Sequence[DescribeProducersResponseTopic]) -> None:
    for item in items:
        write_compact_string(out, item.name, "DescribeProducersResponseTopic.name")
        _write_describe_producers_response_partition_v0(
            out, write_compact_count(out, item.partitions, "DescribeProducersResponseTopic.partitions")
        )
        out.append(NO_TAGS)


def _read_describe_producers_response_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeProducersResponse], int]:
    items: list[DescribeProducersResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("DescribeProducersResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 3, "DescribeProducersResponse.topics")
        topics, at = _read_describe_producers_response_topic_v0(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DescribeProducersResponse")
        items.append(DescribeProducersResponse(throttle_time_ms=throttle_time_ms, topics=topics))
    return items, at


def _write_describe_producers_response_v0(out: Parts, items: Sequence[DescribeProducersResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_describe_producers_response_topic_v0(
                out, write_compact_count(out, item.topics, "DescribeProducersResponse.topics")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DESCRIBE_PRODUCERS_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    DescribeProducersResponse,
    {
        0: (_read_describe_producers_response_v0, _write_describe_producers_response_v0),
    },
)
