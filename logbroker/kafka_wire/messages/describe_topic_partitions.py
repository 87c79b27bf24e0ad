"""DescribeTopicPartitions, API key 75.

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
    NO_UUID,
    Buffer,
    Parts,
    check_uuid,
    cut_short,
    misfit,
    read_compact_count,
    read_compact_nullable_count,
    read_compact_nullable_string,
    read_compact_string,
    read_int32s,
    read_presence,
    skip_tags,
    write_compact_count,
    write_compact_nullable_count,
    write_compact_nullable_string,
    write_compact_string,
    write_int32s,
    write_presence,
)

_UUID_BOOL: Final = struct.Struct(">16s?")
_UUID_INT8: Final = struct.Struct(">16sb")
_INT16: Final = struct.Struct(">h")
_INT16_INT32X3: Final = struct.Struct(">hiii")
_INT32: Final = struct.Struct(">i")
_INT32_TAGS: Final = struct.Struct(">iB")


class DescribeTopicPartitionsRequestCursor(msgspec.Struct, kw_only=True, gc=False):
    """The first topic and partition index to fetch details for."""

    topic_name: str = ""
    """The name for the first topic to process. (string)"""
    partition_index: int = 0
    """The partition index to start with. (int32)"""


class DescribeTopicPartitionsRequestTopic(msgspec.Struct, kw_only=True, gc=False):
    """The topics to fetch details for."""

    name: str = ""
    """The topic name. (string)"""


class DescribeTopicPartitionsRequest(msgspec.Struct, kw_only=True, gc=False):
    """DescribeTopicPartitionsRequest, versions 0 to 0."""

    topics: list[DescribeTopicPartitionsRequestTopic] = []
    """The topics to fetch details for."""
    response_partition_limit: int = 2000
    """The maximum number of partitions included in the response. (int32)"""
    cursor: DescribeTopicPartitionsRequestCursor | None = None
    """The first topic and partition index to fetch details for."""


_DESCRIBE_TOPIC_PARTITIONS_REQUEST_CODES: Final = {"response_partition_limit": "i"}
_DESCRIBE_TOPIC_PARTITIONS_REQUEST_CURSOR_CODES: Final = {"partition_index": "i"}


def _read_describe_topic_partitions_request_topic_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeTopicPartitionsRequestTopic], int]:
    items: list[DescribeTopicPartitionsRequestTopic] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "DescribeTopicPartitionsRequestTopic.name")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DescribeTopicPartitionsRequestTopic")
        items.append(DescribeTopicPartitionsRequestTopic(name=name))
    return items, at


def _write_describe_topic_partitions_request_topic_v0(
    out: Parts, items: Sequence[DescribeTopicPartitionsRequestTopic]
) -> None:
    for item in items:
        write_compact_string(out, item.name, "DescribeTopicPartitionsRequestTopic.name")
        out.append(NO_TAGS)


def _read_describe_topic_partitions_request_cursor_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeTopicPartitionsRequestCursor], int]:
    items: list[DescribeTopicPartitionsRequestCursor] = []
    for _ in range(count):
        topic_name, at = read_compact_string(data, at, end, "DescribeTopicPartitionsRequestCursor.topic_name")
        if end - at < 5:
            raise cut_short("DescribeTopicPartitionsRequestCursor.partition_index", at, end, 5)
        partition_index, tags = _INT32_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "DescribeTopicPartitionsRequestCursor")
        items.append(DescribeTopicPartitionsRequestCursor(topic_name=topic_name, partition_index=partition_index))
    return items, at


def _write_describe_topic_partitions_request_cursor_v0(
    out: Parts, items: Sequence[DescribeTopicPartitionsRequestCursor]
) -> None:
    try:
        for item in items:
            write_compact_string(out, item.topic_name, "DescribeTopicPartitionsRequestCursor.topic_name")
            out.append(_INT32_TAGS.pack(item.partition_index, 0))
    except struct.error:
        raise misfit(items, _DESCRIBE_TOPIC_PARTITIONS_REQUEST_CURSOR_CODES) from None


def _read_describe_topic_partitions_request_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeTopicPartitionsRequest], int]:
    items: list[DescribeTopicPartitionsRequest] = []
    for _ in range(count):
        number, at = read_compact_count(data, at, end, 2, "DescribeTopicPartitionsRequest.topics")
        topics, at = _read_describe_topic_partitions_request_topic_v0(data, at, end, number)
        if end - at < 4:
            raise cut_short("DescribeTopicPartitionsRequest.response_partition_limit", at, end, 4)
        (response_partition_limit,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_presence(data, at, end, "DescribeTopicPartitionsRequest.cursor")
        found, at = _read_describe_topic_partitions_request_cursor_v0(data, at, end, number)
        cursor = found[0] if found else None
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DescribeTopicPartitionsRequest")
        items.append(
            DescribeTopicPartitionsRequest(
                topics=topics, response_partition_limit=response_partition_limit, cursor=cursor
            )
        )
    return items, at


def _write_describe_topic_partitions_request_v0(out: Parts, items: Sequence[DescribeTopicPartitionsRequest]) -> None:
    try:
        for item in items:
            _write_describe_topic_partitions_request_topic_v0(
                out, write_compact_count(out, item.topics, "DescribeTopicPartitionsRequest.topics")
            )
            out.append(_INT32.pack(item.response_partition_limit))
            _write_describe_topic_partitions_request_cursor_v0(out, write_presence(out, item.cursor))
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DESCRIBE_TOPIC_PARTITIONS_REQUEST_CODES) from None


REQUEST: Final = MessageCodec(
    DescribeTopicPartitionsRequest,
    {
        0: (_read_describe_topic_partitions_request_v0, _write_describe_topic_partitions_request_v0),
    },
)


class DescribeTopicPartitionsResponseCursor(msgspec.Struct, kw_only=True, gc=False):
    """The next topic and partition index to fetch details for."""

    topic_name: str = ""
    """The name for the first topic to process. (string)"""
    partition_index: int = 0
    """The partition index to start with. (int32)"""


class DescribeTopicPartitionsResponsePartition(msgspec.Struct, kw_only=True, gc=False):
    """Each partition in the topic."""

    error_code: int = 0
    """The partition error, or 0 if there was no error. (int16)"""
    partition_index: int = 0
    """The partition index. (int32)"""
    leader_id: int = 0
    """The ID of the leader broker. (int32)"""
    leader_epoch: int = -1
    """The leader epoch of this partition. (int32)"""
    replica_nodes: list[int] = []
    """The set of all nodes that host this partition. (int32)"""
    isr_nodes: list[int] = []
    """The set of nodes that are in sync with the leader for this partition. (int32)"""
    eligible_leader_replicas: list[int] | None = None
    """The new eligible leader replicas otherwise. (int32)"""
    last_known_elr: list[int] | None = None
    """The last known ELR. (int32)"""
    offline_replicas: list[int] = []
    """The set of offline replicas of this partition. (int32)"""


class DescribeTopicPartitionsResponseTopic(msgspec.Struct, kw_only=True, gc=False):
    """Each topic in the response."""

    error_code: int = 0
    """The topic error, or 0 if there was no error. (int16)"""
    name: str | None = ""
    """The topic name. (string)"""
    topic_id: bytes = NO_UUID
    """The topic id. (uuid)"""
    is_internal: bool = False
    """True if the topic is internal. (bool)"""
    partitions: list[DescribeTopicPartitionsResponsePartition] = []
    """Each partition in the topic."""
    topic_authorized_operations: int = -2147483648
    """32-bit bitfield to represent authorized operations for this topic. (int32)"""


class DescribeTopicPartitionsResponse(msgspec.Struct, kw_only=True, gc=False):
    """DescribeTopicPartitionsResponse, versions 0 to 0."""

    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32)"""
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    """Each topic in the response."""
    next_cursor: DescribeTopicPartitionsResponseCursor | None = None
    """The next topic and partition index to fetch details for."""


_DESCRIBE_TOPIC_PARTITIONS_RESPONSE_CODES: Final = {"throttle_time_ms": "i"}
_DESCRIBE_TOPIC_PARTITIONS_RESPONSE_TOPIC_CODES: Final = {
    "error_code": "h",
    "topic_id": "16s",
    "is_internal": "b",
    "topic_authorized_operations": "i",
}
_DESCRIBE_TOPIC_PARTITIONS_RESPONSE_PARTITION_CODES: Final = {
    "error_code": "h",
    "partition_index": "i",
    "leader_id": "i",
    "leader_epoch": "i",
}
_DESCRIBE_TOPIC_PARTITIONS_RESPONSE_CURSOR_CODES: Final = {"partition_index": "i"}


def _read_describe_topic_partitions_response_partition_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeTopicPartitionsResponsePartition], int]:
    items: list[DescribeTopicPartitionsResponsePartition] = []
    for _ in range(count):
        if end - at < 14:
            raise cut_short("DescribeTopicPartitionsResponsePartition.error_code to leader_epoch", at, end, 14)
        error_code, partition_index, leader_id, leader_epoch = _INT16_INT32X3.unpack_from(data, at)
        at += 14
        number, at = read_compact_count(data, at, end, 4, "DescribeTopicPartitionsResponsePartition.replica_nodes")
        replica_nodes, at = read_int32s(data, at, number)
        number, at = read_compact_count(data, at, end, 4, "DescribeTopicPartitionsResponsePartition.isr_nodes")
        isr_nodes, at = read_int32s(data, at, number)
        number, at = read_compact_nullable_count(
            data, at, end, 4, "DescribeTopicPartitionsResponsePartition.eligible_leader_replicas"
        )
        eligible_leader_replicas = None
        if number >= 0:
            eligible_leader_replicas, at = read_int32s(data, at, number)
        number, at = read_compact_nullable_count(
            data, at, end, 4, "DescribeTopicPartitionsResponsePartition.last_known_elr"
        )
        last_known_elr = None
        if number >= 0:
            last_known_elr, at = read_int32s(data, at, number)
        number, at = read_compact_count(data, at, end, 4, "DescribeTopicPartitionsResponsePartition.offline_replicas")
        offline_replicas, at = read_int32s(data, at, number)
        at = (
            at + 1
            if at < end and not data[at]
            else skip_tags(data, at, end, "DescribeTopicPartitionsResponsePartition")
        )
        items.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=error_code,
                partition_index=partition_index,
                leader_id=leader_id,
                leader_epoch=leader_epoch,
                replica_nodes=replica_nodes,
                isr_nodes=isr_nodes,
                eligible_leader_replicas=eligible_leader_replicas,
                last_known_elr=last_known_elr,
                offline_replicas=offline_replicas,
            )
        )
    return items, at


def _write_describe_topic_partitions_response_partition_v0(
    out: Parts, items: Sequence[DescribeTopicPartitionsResponsePartition]
) -> None:
    try:
        for item in items:
            out.append(_INT16_INT32X3.pack(item.error_code, item.partition_index, item.leader_id, item.leader_epoch))
            write_int32s(
                out,
                write_compact_count(out, item.replica_nodes, "DescribeTopicPartitionsResponsePartition.replica_nodes"),
                "DescribeTopicPartitionsResponsePartition.replica_nodes",
            )
            write_int32s(
                out,
                write_compact_count(out, item.isr_nodes, "DescribeTopicPartitionsResponsePartition.isr_nodes"),
                "DescribeTopicPartitionsResponsePartition.isr_nodes",
            )
            write_int32s(
                out,
                write_compact_nullable_count(
                    out,
                    item.eligible_leader_replicas,
                    "DescribeTopicPartitionsResponsePartition.eligible_leader_replicas",
                ),
                "DescribeTopicPartitionsResponsePartition.eligible_leader_replicas",
            )
            write_int32s(
                out,
                write_compact_nullable_count(
                    out, item.last_known_elr, "DescribeTopicPartitionsResponsePartition.last_known_elr"
                ),
                "DescribeTopicPartitionsResponsePartition.last_known_elr",
            )
            write_int32s(
                out,
                write_compact_count(
                    out, item.offline_replicas, "DescribeTopicPartitionsResponsePartition.offline_replicas"
                ),
                "DescribeTopicPartitionsResponsePartition.offline_replicas",
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DESCRIBE_TOPIC_PARTITIONS_RESPONSE_PARTITION_CODES) from None


def _read_describe_topic_partitions_response_topic_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeTopicPartitionsResponseTopic], int]:
    items: list[DescribeTopicPartitionsResponseTopic] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("DescribeTopicPartitionsResponseTopic.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        name, at = read_compact_nullable_string(data, at, end, "DescribeTopicPartitionsResponseTopic.name")
        if end - at < 17:
            raise cut_short("DescribeTopicPartitionsResponseTopic.topic_id to is_internal", at, end, 17)
        topic_id, is_internal = _UUID_BOOL.unpack_from(data, at)
        at += 17
        number, at = read_compact_count(data, at, end, 20, "DescribeTopicPartitionsResponseTopic.partitions")
        partitions, at = _read_describe_topic_partitions_response_partition_v0(data, at, end, number)
        if end - at < 5:
            raise cut_short("DescribeTopicPartitionsResponseTopic.topic_authorized_operations", at, end, 5)
        topic_authorized_operations, tags = _INT32_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "DescribeTopicPartitionsResponseTopic")
        items.append(
            DescribeTopicPartitionsResponseTopic(
                error_code=error_code,
                name=name,
                topic_id=topic_id,
                is_internal=is_internal,
                partitions=partitions,
                topic_authorized_operations=topic_authorized_operations,
            )
        )
    return items, at


def _write_describe_topic_partitions_response_topic_v0(
    out: Parts, items: Sequence[DescribeTopicPartitionsResponseTopic]
) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            write_compact_nullable_string(out, item.name, "DescribeTopicPartitionsResponseTopic.name")
            check_uuid(item.topic_id, "DescribeTopicPartitionsResponseTopic.topic_id")
            out.append(_UUID_INT8.pack(item.topic_id, item.is_internal))
            _write_describe_topic_partitions_response_partition_v0(
                out, write_compact_count(out, item.partitions, "DescribeTopicPartitionsResponseTopic.partitions")
            )
            out.append(_INT32_TAGS.pack(item.topic_authorized_operations, 0))
    except struct.error:
        raise misfit(items, _DESCRIBE_TOPIC_PARTITIONS_RESPONSE_TOPIC_CODES) from None


def _read_describe_topic_partitions_response_cursor_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeTopicPartitionsResponseCursor], int]:
    items: list[DescribeTopicPartitionsResponseCursor] = []
    for _ in range(count):
        topic_name, at = read_compact_string(data, at, end, "DescribeTopicPartitionsResponseCursor.topic_name")
        if end - at < 5:
            raise cut_short("DescribeTopicPartitionsResponseCursor.partition_index", at, end, 5)
        partition_index, tags = _INT32_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "DescribeTopicPartitionsResponseCursor")
        items.append(DescribeTopicPartitionsResponseCursor(topic_name=topic_name, partition_index=partition_index))
    return items, at


def _write_describe_topic_partitions_response_cursor_v0(
    out: Parts, items: Sequence[DescribeTopicPartitionsResponseCursor]
) -> None:
    try:
        for item in items:
            write_compact_string(out, item.topic_name, "DescribeTopicPartitionsResponseCursor.topic_name")
            out.append(_INT32_TAGS.pack(item.partition_index, 0))
    except struct.error:
        raise misfit(items, _DESCRIBE_TOPIC_PARTITIONS_RESPONSE_CURSOR_CODES) from None


def _read_describe_topic_partitions_response_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DescribeTopicPartitionsResponse], int]:
    items: list[DescribeTopicPartitionsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("DescribeTopicPartitionsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 26, "DescribeTopicPartitionsResponse.topics")
        topics, at = _read_describe_topic_partitions_response_topic_v0(data, at, end, number)
        number, at = read_presence(data, at, end, "DescribeTopicPartitionsResponse.next_cursor")
        found, at = _read_describe_topic_partitions_response_cursor_v0(data, at, end, number)
        next_cursor = found[0] if found else None
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DescribeTopicPartitionsResponse")
        items.append(
            DescribeTopicPartitionsResponse(throttle_time_ms=throttle_time_ms, topics=topics, next_cursor=next_cursor)
        )
    return items, at


def _write_describe_topic_partitions_response_v0(out: Parts, items: Sequence[DescribeTopicPartitionsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_describe_topic_partitions_response_topic_v0(
                out, write_compact_count(out, item.topics, "DescribeTopicPartitionsResponse.topics")
            )
            _write_describe_topic_partitions_response_cursor_v0(out, write_presence(out, item.next_cursor))
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DESCRIBE_TOPIC_PARTITIONS_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    DescribeTopicPartitionsResponse,
    {
        0: (_read_describe_topic_partitions_response_v0, _write_describe_topic_partitions_response_v0),
    },
)
