"""Metadata, API key 3.

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
    read_count,
    read_int32s,
    read_nullable_count,
    read_nullable_string,
    read_string,
    skip_tags,
    unknown_field,
    write_compact_count,
    write_compact_nullable_count,
    write_compact_nullable_string,
    write_compact_string,
    write_count,
    write_int32s,
    write_nullable_count,
    write_nullable_string,
    write_string,
)

_UUID: Final = struct.Struct(">16s")
_UUID_BOOL: Final = struct.Struct(">16s?")
_UUID_INT8: Final = struct.Struct(">16sb")
_BOOL: Final = struct.Struct(">?")
_BOOLX3: Final = struct.Struct(">???")
_BOOLX3_TAGS: Final = struct.Struct(">???B")
_BOOLX2_TAGS: Final = struct.Struct(">??B")
_INT8: Final = struct.Struct(">b")
_INT8X2_TAGS: Final = struct.Struct(">bbB")
_INT8X3: Final = struct.Struct(">bbb")
_INT8X3_TAGS: Final = struct.Struct(">bbbB")
_INT16: Final = struct.Struct(">h")
_INT16_TAGS: Final = struct.Struct(">hB")
_INT16_INT32X2: Final = struct.Struct(">hii")
_INT16_INT32X3: Final = struct.Struct(">hiii")
_INT32: Final = struct.Struct(">i")
_INT32_TAGS: Final = struct.Struct(">iB")


class MetadataRequestTopic(msgspec.Struct, kw_only=True, gc=False):
    """The topics to fetch metadata for."""

    topic_id: bytes = NO_UUID
    """The topic id. (uuid, versions 10 to 13, ignorable)"""
    name: str | None = ""
    """The topic name. (string)"""


class MetadataRequest(msgspec.Struct, kw_only=True, gc=False):
    """MetadataRequest, versions 0 to 13."""

    topics: list[MetadataRequestTopic] | None = []
    """The topics to fetch metadata for."""
    allow_auto_topic_creation: bool = True
    """If this is true, the broker may auto-create topics that we requested which do not already exist, if it is
    configured to do so. (bool, versions 4 to 13)"""
    include_cluster_authorized_operations: bool = False
    """Whether to include cluster authorized operations. (bool, versions 8 to 10)"""
    include_topic_authorized_operations: bool = False
    """Whether to include topic authorized operations. (bool, versions 8 to 13)"""


_METADATA_REQUEST_CODES: Final = {
    "allow_auto_topic_creation": "b",
    "include_cluster_authorized_operations": "b",
    "include_topic_authorized_operations": "b",
}
_METADATA_REQUEST_TOPIC_CODES: Final = {"topic_id": "16s"}


def _read_metadata_request_topic_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[MetadataRequestTopic], int]:
    items: list[MetadataRequestTopic] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "MetadataRequestTopic.name")
        items.append(MetadataRequestTopic(name=name))
    return items, at


def _write_metadata_request_topic_v0(out: Parts, items: Sequence[MetadataRequestTopic]) -> None:
    for item in items:
        write_string(out, item.name, "MetadataRequestTopic.name")


def _read_metadata_request_v0(data: Buffer, at: int, end: int, count: int) -> tuple[list[MetadataRequest], int]:
    items: list[MetadataRequest] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 2, "MetadataRequest.topics")
        topics, at = _read_metadata_request_topic_v0(data, at, end, number)
        items.append(MetadataRequest(topics=topics))
    return items, at


def _write_metadata_request_v0(out: Parts, items: Sequence[MetadataRequest]) -> None:
    for item in items:
        if item.allow_auto_topic_creation is not True:
            raise unknown_field("MetadataRequest.allow_auto_topic_creation", item.allow_auto_topic_creation)
        if item.include_cluster_authorized_operations is not False:
            raise unknown_field(
                "MetadataRequest.include_cluster_authorized_operations", item.include_cluster_authorized_operations
            )
        if item.include_topic_authorized_operations is not False:
            raise unknown_field(
                "MetadataRequest.include_topic_authorized_operations", item.include_topic_authorized_operations
            )
        _write_metadata_request_topic_v0(out, write_count(out, item.topics, "MetadataRequest.topics"))


def _read_metadata_request_v1(data: Buffer, at: int, end: int, count: int) -> tuple[list[MetadataRequest], int]:
    items: list[MetadataRequest] = []
    for _ in range(count):
        number, at = read_nullable_count(data, at, end, 2, "MetadataRequest.topics")
        topics = None
        if number >= 0:
            topics, at = _read_metadata_request_topic_v0(data, at, end, number)
        items.append(MetadataRequest(topics=topics))
    return items, at


def _write_metadata_request_v1(out: Parts, items: Sequence[MetadataRequest]) -> None:
    for item in items:
        if item.allow_auto_topic_creation is not True:
            raise unknown_field("MetadataRequest.allow_auto_topic_creation", item.allow_auto_topic_creation)
        if item.include_cluster_authorized_operations is not False:
            raise unknown_field(
                "MetadataRequest.include_cluster_authorized_operations", item.include_cluster_authorized_operations
            )
        if item.include_topic_authorized_operations is not False:
            raise unknown_field(
                "MetadataRequest.include_topic_authorized_operations", item.include_topic_authorized_operations
            )
        _write_metadata_request_topic_v0(out, write_nullable_count(out, item.topics, "MetadataRequest.topics"))


def _read_metadata_request_v4(data: Buffer, at: int, end: int, count: int) -> tuple[list[MetadataRequest], int]:
    items: list[MetadataRequest] = []
    for _ in range(count):
        number, at = read_nullable_count(data, at, end, 2, "MetadataRequest.topics")
        topics = None
        if number >= 0:
            topics, at = _read_metadata_request_topic_v0(data, at, end, number)
        if end - at < 1:
            raise cut_short("MetadataRequest.allow_auto_topic_creation", at, end, 1)
        (allow_auto_topic_creation,) = _BOOL.unpack_from(data, at)
        at += 1
        items.append(MetadataRequest(topics=topics, allow_auto_topic_creation=allow_auto_topic_creation))
    return items, at


def _write_metadata_request_v4(out: Parts, items: Sequence[MetadataRequest]) -> None:
    try:
        for item in items:
            if item.include_cluster_authorized_operations is not False:
                raise unknown_field(
                    "MetadataRequest.include_cluster_authorized_operations", item.include_cluster_authorized_operations
                )
            if item.include_topic_authorized_operations is not False:
                raise unknown_field(
                    "MetadataRequest.include_topic_authorized_operations", item.include_topic_authorized_operations
                )
            _write_metadata_request_topic_v0(out, write_nullable_count(out, item.topics, "MetadataRequest.topics"))
            out.append(_INT8.pack(item.allow_auto_topic_creation))
    except struct.error:
        raise misfit(items, _METADATA_REQUEST_CODES) from None


def _read_metadata_request_v8(data: Buffer, at: int, end: int, count: int) -> tuple[list[MetadataRequest], int]:
    items: list[MetadataRequest] = []
    for _ in range(count):
        number, at = read_nullable_count(data, at, end, 2, "MetadataRequest.topics")
        topics = None
        if number >= 0:
            topics, at = _read_metadata_request_topic_v0(data, at, end, number)
        if end - at < 3:
            raise cut_short(
                "MetadataRequest.allow_auto_topic_creation to include_topic_authorized_operations", at, end, 3
            )
        allow_auto_topic_creation, include_cluster_authorized_operations, include_topic_authorized_operations = (
            _BOOLX3.unpack_from(data, at)
        )
        at += 3
        items.append(
            MetadataRequest(
                topics=topics,
                allow_auto_topic_creation=allow_auto_topic_creation,
                include_cluster_authorized_operations=include_cluster_authorized_operations,
                include_topic_authorized_operations=include_topic_authorized_operations,
            )
        )
    return items, at


def _write_metadata_request_v8(out: Parts, items: Sequence[MetadataRequest]) -> None:
    try:
        for item in items:
            _write_metadata_request_topic_v0(out, write_nullable_count(out, item.topics, "MetadataRequest.topics"))
            out.append(
                _INT8X3.pack(
                    item.allow_auto_topic_creation,
                    item.include_cluster_authorized_operations,
                    item.include_topic_authorized_operations,
                )
            )
    except struct.error:
        raise misfit(items, _METADATA_REQUEST_CODES) from None


def _read_metadata_request_topic_v9(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[MetadataRequestTopic], int]:
    items: list[MetadataRequestTopic] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "MetadataRequestTopic.name")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "MetadataRequestTopic")
        items.append(MetadataRequestTopic(name=name))
    return items, at


def _write_metadata_request_topic_v9(out: Parts, items: Sequence[MetadataRequestTopic]) -> None:
    for item in items:
        write_compact_string(out, item.name, "MetadataRequestTopic.name")
        out.append(NO_TAGS)


def _read_metadata_request_v9(data: Buffer, at: int, end: int, count: int) -> tuple[list[MetadataRequest], int]:
    items: list[MetadataRequest] = []
    for _ in range(count):
        number, at = read_compact_nullable_count(data, at, end, 2, "MetadataRequest.topics")
        topics = None
        if number >= 0:
            topics, at = _read_metadata_request_topic_v9(data, at, end, number)
        if end - at < 4:
            raise cut_short(
                "MetadataRequest.allow_auto_topic_creation to include_topic_authorized_operations", at, end, 4
            )
        allow_auto_topic_creation, include_cluster_authorized_operations, include_topic_authorized_operations, tags = (
            _BOOLX3_TAGS.unpack_from(data, at)
        )
        at += 4
        if tags:
            at = skip_tags(data, at - 1, end, "MetadataRequest")
        items.append(
            MetadataRequest(
                topics=topics,
                allow_auto_topic_creation=allow_auto_topic_creation,
                include_cluster_authorized_operations=include_cluster_authorized_operations,
                include_topic_authorized_operations=include_topic_authorized_operations,
            )
        )
    return items, at


def _write_metadata_request_v9(out: Parts, items: Sequence[MetadataRequest]) -> None:
    try:
        for item in items:
            _write_metadata_request_topic_v9(
                out, write_compact_nullable_count(out, item.topics, "MetadataRequest.topics")
            )
            out.append(
                _INT8X3_TAGS.pack(
                    item.allow_auto_topic_creation,
                    item.include_cluster_authorized_operations,
                    item.include_topic_authorized_operations,
                    0,
                )
            )
    except struct.error:
        raise misfit(items, _METADATA_REQUEST_CODES) from None


def _read_metadata_request_topic_v10(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[MetadataRequestTopic], int]:
    items: list[MetadataRequestTopic] = []
    for _ in range(count):
        if end - at < 16:
            raise cut_short("MetadataRequestTopic.topic_id", at, end, 16)
        (topic_id,) = _UUID.unpack_from(data, at)
        at += 16
        name, at = read_compact_nullable_string(data, at, end, "MetadataRequestTopic.name")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "MetadataRequestTopic")
        items.append(MetadataRequestTopic(topic_id=topic_id, name=name))
    return items, at


def _write_metadata_request_topic_v10(out: Parts, items: Sequence[MetadataRequestTopic]) -> None:
    try:
        for item in items:
            check_uuid(item.topic_id, "MetadataRequestTopic.topic_id")
            out.append(_UUID.pack(item.topic_id))
            write_compact_nullable_string(out, item.name, "MetadataRequestTopic.name")
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _METADATA_REQUEST_TOPIC_CODES) from None


def _read_metadata_request_v10(data: Buffer, at: int, end: int, count: int) -> tuple[list[MetadataRequest], int]:
    items: list[MetadataRequest] = []
    for _ in range(count):
        number, at = read_compact_nullable_count(data, at, end, 18, "MetadataRequest.topics")
        topics = None
        if number >= 0:
            topics, at = _read_metadata_request_topic_v10(data, at, end, number)
        if end - at < 4:
            raise cut_short(
                "MetadataRequest.allow_auto_topic_creation to include_topic_authorized_operations", at, end, 4
            )
        allow_auto_topic_creation, include_cluster_authorized_operations, include_topic_authorized_operations, tags = (
            _BOOLX3_TAGS.unpack_from(data, at)
        )
        at += 4
        if tags:
            at = skip_tags(data, at - 1, end, "MetadataRequest")
        items.append(
            MetadataRequest(
                topics=topics,
                allow_auto_topic_creation=allow_auto_topic_creation,
                include_cluster_authorized_operations=include_cluster_authorized_operations,
                include_topic_authorized_operations=include_topic_authorized_operations,
            )
        )
    return items, at


def _write_metadata_request_v10(out: Parts, items: Sequence[MetadataRequest]) -> None:
    try:
        for item in items:
            _write_metadata_request_topic_v10(
                out, write_compact_nullable_count(out, item.topics, "MetadataRequest.topics")
            )
            out.append(
                _INT8X3_TAGS.pack(
                    item.allow_auto_topic_creation,
                    item.include_cluster_authorized_operations,
                    item.include_topic_authorized_operations,
                    0,
                )
            )
    except struct.error:
        raise misfit(items, _METADATA_REQUEST_CODES) from None


def _read_metadata_request_v11(data: Buffer, at: int, end: int, count: int) -> tuple[list[MetadataRequest], int]:
    items: list[MetadataRequest] = []
    for _ in range(count):
        number, at = read_compact_nullable_count(data, at, end, 18, "MetadataRequest.topics")
        topics = None
        if number >= 0:
            topics, at = _read_metadata_request_topic_v10(data, at, end, number)
        if end - at < 3:
            raise cut_short(
                "MetadataRequest.allow_auto_topic_creation to include_topic_authorized_operations", at, end, 3
            )
        allow_auto_topic_creation, include_topic_authorized_operations, tags = _BOOLX2_TAGS.unpack_from(data, at)
        at += 3
        if tags:
            at = skip_tags(data, at - 1, end, "MetadataRequest")
        items.append(
            MetadataRequest(
                topics=topics,
                allow_auto_topic_creation=allow_auto_topic_creation,
                include_topic_authorized_operations=include_topic_authorized_operations,
            )
        )
    return items, at


def _write_metadata_request_v11(out: Parts, items: Sequence[MetadataRequest]) -> None:
    try:
        for item in items:
            if item.include_cluster_authorized_operations is not False:
                raise unknown_field(
                    "MetadataRequest.include_cluster_authorized_operations", item.include_cluster_authorized_operations
                )
            _write_metadata_request_topic_v10(
                out, write_compact_nullable_count(out, item.topics, "MetadataRequest.topics")
            )
            out.append(_INT8X2_TAGS.pack(item.allow_auto_topic_creation, item.include_topic_authorized_operations, 0))
    except struct.error:
        raise misfit(items, _METADATA_REQUEST_CODES) from None


REQUEST: Final = MessageCodec(
    MetadataRequest,
    {
        0: (_read_metadata_request_v0, _write_metadata_request_v0),
        1: (_read_metadata_request_v1, _write_metadata_request_v1),
        2: (_read_metadata_request_v1, _write_metadata_request_v1),
        3: (_read_metadata_request_v1, _write_metadata_request_v1),
        4: (_read_metadata_request_v4, _write_metadata_request_v4),
        5: (_read_metadata_request_v4, _write_metadata_request_v4),
        6: (_read_metadata_request_v4, _write_metadata_request_v4),
        7: (_read_metadata_request_v4, _write_metadata_request_v4),
        8: (_read_metadata_request_v8, _write_metadata_request_v8),
        9: (_read_metadata_request_v9, _write_metadata_request_v9),
        10: (_read_metadata_request_v10, _write_metadata_request_v10),
        11: (_read_metadata_request_v11, _write_metadata_request_v11),
        12: (_read_metadata_request_v11, _write_metadata_request_v11),
        13: (_read_metadata_request_v11, _write_metadata_request_v11),
    },
)


class MetadataResponsePartition(msgspec.Struct, kw_only=True, gc=False):
    """Each partition in the topic."""

    error_code: int = 0
    """The partition error, or 0 if there was no error. (int16)"""
    partition_index: int = 0
    """The partition index. (int32)"""
    leader_id: int = 0
    """The ID of the leader broker. (int32)"""
    leader_epoch: int = -1
    """The leader epoch of this partition. (int32, versions 7 to 13, ignorable)"""
    replica_nodes: list[int] = []
    """The set of all nodes that host this partition. (int32)"""
    isr_nodes: list[int] = []
    """The set of nodes that are in sync with the leader for this partition. (int32)"""
    offline_replicas: list[int] = []
    """The set of offline replicas of this partition. (int32, versions 5 to 13, ignorable)"""


class MetadataResponseTopic(msgspec.Struct, kw_only=True, gc=False):
    """Each topic in the response."""

    error_code: int = 0
    """The topic error, or 0 if there was no error. (int16)"""
    name: str | None = ""
    """The topic name. Null for non-existing topics queried by ID. This is never null when ErrorCode is zero. One of
    Name and TopicId is always populated. (string)"""
    topic_id: bytes = NO_UUID
    """The topic id. Zero for non-existing topics queried by name. This is never zero when ErrorCode is zero. One of
    Name and TopicId is always populated. (uuid, versions 10 to 13, ignorable)"""
    is_internal: bool = False
    """True if the topic is internal. (bool, versions 1 to 13, ignorable)"""
    partitions: list[MetadataResponsePartition] = []
    """Each partition in the topic."""
    topic_authorized_operations: int = -2147483648
    """32-bit bitfield to represent authorized operations for this topic. (int32, versions 8 to 13)"""


class MetadataResponseBroker(msgspec.Struct, kw_only=True, gc=False):
    """A list of brokers present in the cluster."""

    node_id: int = 0
    """The broker ID. (int32)"""
    host: str = ""
    """The broker hostname. (string)"""
    port: int = 0
    """The broker port. (int32)"""
    rack: str | None = None
    """The rack of the broker, or null if it has not been assigned to a rack. (string, versions 1 to 13, ignorable)"""


class MetadataResponse(msgspec.Struct, kw_only=True, gc=False):
    """MetadataResponse, versions 0 to 13."""

    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32, versions 3 to 13, ignorable)"""
    brokers: list[MetadataResponseBroker] = []
    """A list of brokers present in the cluster."""
    cluster_id: str | None = None
    """The cluster ID that responding broker belongs to. (string, versions 2 to 13, ignorable)"""
    controller_id: int = -1
    """The ID of the controller broker. (int32, versions 1 to 13, ignorable)"""
    topics: list[MetadataResponseTopic] = []
    """Each topic in the response."""
    cluster_authorized_operations: int = -2147483648
    """32-bit bitfield to represent authorized operations for this cluster. (int32, versions 8 to 10)"""
    error_code: int = 0
    """The top-level error code, or 0 if there was no error. (int16, version 13, ignorable)"""


_METADATA_RESPONSE_CODES: Final = {
    "throttle_time_ms": "i",
    "controller_id": "i",
    "cluster_authorized_operations": "i",
    "error_code": "h",
}
_METADATA_RESPONSE_BROKER_CODES: Final = {"node_id": "i", "port": "i"}
_METADATA_RESPONSE_TOPIC_CODES: Final = {
    "error_code": "h",
    "topic_id": "16s",
    "is_internal": "b",
    "topic_authorized_operations": "i",
}
_METADATA_RESPONSE_PARTITION_CODES: Final = {
    "error_code": "h",
    "partition_index": "i",
    "leader_id": "i",
    "leader_epoch": "i",
}


def _read_metadata_response_broker_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[MetadataResponseBroker], int]:
    items: list[MetadataResponseBroker] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("MetadataResponseBroker.node_id", at, end, 4)
        (node_id,) = _INT32.unpack_from(data, at)
        at += 4
        host, at = read_string(data, at, end, "MetadataResponseBroker.host")
        if end - at < 4:
            raise cut_short("MetadataResponseBroker.port", at, end, 4)
        (port,) = _INT32.unpack_from(data, at)
        at += 4
        items.append(MetadataResponseBroker(node_id=node_id, host=host, port=port))
    return items, at


def _write_metadata_response_broker_v0(out: Parts, items: Sequence[MetadataResponseBroker]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.node_id))
            write_string(out, item.host, "MetadataResponseBroker.host")
            out.append(_INT32.pack(item.port))
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_BROKER_CODES) from None


def _read_metadata_response_partition_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[MetadataResponsePartition], int]:
    items: list[MetadataResponsePartition] = []
    for _ in range(count):
        if end - at < 10:
            raise cut_short("MetadataResponsePartition.error_code to leader_id", at, end, 10)
        error_code, partition_index, leader_id = _INT16_INT32X2.unpack_from(data, at)
        at += 10
        number, at = read_count(data, at, end, 4, "MetadataResponsePartition.replica_nodes")
        replica_nodes, at = read_int32s(data, at, number)
        number, at = read_count(data, at, end, 4, "MetadataResponsePartition.isr_nodes")
        isr_nodes, at = read_int32s(data, at, number)
        items.append(
            MetadataResponsePartition(
                error_code=error_code,
                partition_index=partition_index,
                leader_id=leader_id,
                replica_nodes=replica_nodes,
                isr_nodes=isr_nodes,
            )
        )
    return items, at


def _write_metadata_response_partition_v0(out: Parts, items: Sequence[MetadataResponsePartition]) -> None:
    try:
        for item in items:
            out.append(_INT16_INT32X2.pack(item.error_code, item.partition_index, item.leader_id))
            write_int32s(
                out,
                write_count(out, item.replica_nodes, "MetadataResponsePartition.replica_nodes"),
                "MetadataResponsePartition.replica_nodes",
            )
            write_int32s(
                out,
                write_count(out, item.isr_nodes, "MetadataResponsePartition.isr_nodes"),
                "MetadataResponsePartition.isr_nodes",
            )
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_PARTITION_CODES) from None


def _read_metadata_response_topic_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[MetadataResponseTopic], int]:
    items: list[MetadataResponseTopic] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("MetadataResponseTopic.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        name, at = read_string(data, at, end, "MetadataResponseTopic.name")
        number, at = read_count(data, at, end, 18, "MetadataResponseTopic.partitions")
        partitions, at = _read_metadata_response_partition_v0(data, at, end, number)
        items.append(MetadataResponseTopic(error_code=error_code, name=name, partitions=partitions))
    return items, at


def _write_metadata_response_topic_v0(out: Parts, items: Sequence[MetadataResponseTopic]) -> None:
    try:
        for item in items:
            if item.topic_authorized_operations != -2147483648:
                raise unknown_field(
                    "MetadataResponseTopic.topic_authorized_operations", item.topic_authorized_operations
                )
            out.append(_INT16.pack(item.error_code))
            write_string(out, item.name, "MetadataResponseTopic.name")
            _write_metadata_response_partition_v0(
                out, write_count(out, item.partitions, "MetadataResponseTopic.partitions")
            )
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_TOPIC_CODES) from None


def _read_metadata_response_v0(data: Buffer, at: int, end: int, count: int) -> tuple[list[MetadataResponse], int]:
    items: list[MetadataResponse] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 10, "MetadataResponse.brokers")
        brokers, at = _read_metadata_response_broker_v0(data, at, end, number)
        number, at = read_count(data, at, end, 8, "MetadataResponse.topics")
        topics, at = _read_metadata_response_topic_v0(data, at, end, number)
        items.append(MetadataResponse(brokers=brokers, topics=topics))
    return items, at


def _write_metadata_response_v0(out: Parts, items: Sequence[MetadataResponse]) -> None:
    for item in items:
        if item.cluster_authorized_operations != -2147483648:
            raise unknown_field("MetadataResponse.cluster_authorized_operations", item.cluster_authorized_operations)
        _write_metadata_response_broker_v0(out, write_count(out, item.brokers, "MetadataResponse.brokers"))
        _write_metadata_response_topic_v0(out, write_count(out, item.topics, "MetadataResponse.topics"))


def _read_metadata_response_broker_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[MetadataResponseBroker], int]:
    items: list[MetadataResponseBroker] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("MetadataResponseBroker.node_id", at, end, 4)
        (node_id,) = _INT32.unpack_from(data, at)
        at += 4
        host, at = read_string(data, at, end, "MetadataResponseBroker.host")
        if end - at < 4:
            raise cut_short("MetadataResponseBroker.port", at, end, 4)
        (port,) = _INT32.unpack_from(data, at)
        at += 4
        rack, at = read_nullable_string(data, at, end, "MetadataResponseBroker.rack")
        items.append(MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack))
    return items, at


def _write_metadata_response_broker_v1(out: Parts, items: Sequence[MetadataResponseBroker]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.node_id))
            write_string(out, item.host, "MetadataResponseBroker.host")
            out.append(_INT32.pack(item.port))
            write_nullable_string(out, item.rack, "MetadataResponseBroker.rack")
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_BROKER_CODES) from None


def _read_metadata_response_topic_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[MetadataResponseTopic], int]:
    items: list[MetadataResponseTopic] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("MetadataResponseTopic.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        name, at = read_string(data, at, end, "MetadataResponseTopic.name")
        if end - at < 1:
            raise cut_short("MetadataResponseTopic.is_internal", at, end, 1)
        (is_internal,) = _BOOL.unpack_from(data, at)
        at += 1
        number, at = read_count(data, at, end, 18, "MetadataResponseTopic.partitions")
        partitions, at = _read_metadata_response_partition_v0(data, at, end, number)
        items.append(
            MetadataResponseTopic(error_code=error_code, name=name, is_internal=is_internal, partitions=partitions)
        )
    return items, at


def _write_metadata_response_topic_v1(out: Parts, items: Sequence[MetadataResponseTopic]) -> None:
    try:
        for item in items:
            if item.topic_authorized_operations != -2147483648:
                raise unknown_field(
                    "MetadataResponseTopic.topic_authorized_operations", item.topic_authorized_operations
                )
            out.append(_INT16.pack(item.error_code))
            write_string(out, item.name, "MetadataResponseTopic.name")
            out.append(_INT8.pack(item.is_internal))
            _write_metadata_response_partition_v0(
                out, write_count(out, item.partitions, "MetadataResponseTopic.partitions")
            )
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_TOPIC_CODES) from None


def _read_metadata_response_v1(data: Buffer, at: int, end: int, count: int) -> tuple[list[MetadataResponse], int]:
    items: list[MetadataResponse] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 12, "MetadataResponse.brokers")
        brokers, at = _read_metadata_response_broker_v1(data, at, end, number)
        if end - at < 4:
            raise cut_short("MetadataResponse.controller_id", at, end, 4)
        (controller_id,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 9, "MetadataResponse.topics")
        topics, at = _read_metadata_response_topic_v1(data, at, end, number)
        items.append(MetadataResponse(brokers=brokers, controller_id=controller_id, topics=topics))
    return items, at


def _write_metadata_response_v1(out: Parts, items: Sequence[MetadataResponse]) -> None:
    try:
        for item in items:
            if item.cluster_authorized_operations != -2147483648:
                raise unknown_field(
                    "MetadataResponse.cluster_authorized_operations", item.cluster_authorized_operations
                )
            _write_metadata_response_broker_v1(out, write_count(out, item.brokers, "MetadataResponse.brokers"))
            out.append(_INT32.pack(item.controller_id))
            _write_metadata_response_topic_v1(out, write_count(out, item.topics, "MetadataResponse.topics"))
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_CODES) from None


def _read_metadata_response_v2(data: Buffer, at: int, end: int, count: int) -> tuple[list[MetadataResponse], int]:
    items: list[MetadataResponse] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 12, "MetadataResponse.brokers")
        brokers, at = _read_metadata_response_broker_v1(data, at, end, number)
        cluster_id, at = read_nullable_string(data, at, end, "MetadataResponse.cluster_id")
        if end - at < 4:
            raise cut_short("MetadataResponse.controller_id", at, end, 4)
        (controller_id,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 9, "MetadataResponse.topics")
        topics, at = _read_metadata_response_topic_v1(data, at, end, number)
        items.append(
            MetadataResponse(brokers=brokers, cluster_id=cluster_id, controller_id=controller_id, topics=topics)
        )
    return items, at


def _write_metadata_response_v2(out: Parts, items: Sequence[MetadataResponse]) -> None:
    try:
        for item in items:
            if item.cluster_authorized_operations != -2147483648:
                raise unknown_field(
                    "MetadataResponse.cluster_authorized_operations", item.cluster_authorized_operations
                )
            _write_metadata_response_broker_v1(out, write_count(out, item.brokers, "MetadataResponse.brokers"))
            write_nullable_string(out, item.cluster_id, "MetadataResponse.cluster_id")
            out.append(_INT32.pack(item.controller_id))
            _write_metadata_response_topic_v1(out, write_count(out, item.topics, "MetadataResponse.topics"))
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_CODES) from None


def _read_metadata_response_v3(data: Buffer, at: int, end: int, count: int) -> tuple[list[MetadataResponse], int]:
    items: list[MetadataResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("MetadataResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 12, "MetadataResponse.brokers")
        brokers, at = _read_metadata_response_broker_v1(data, at, end, number)
        cluster_id, at = read_nullable_string(data, at, end, "MetadataResponse.cluster_id")
        if end - at < 4:
            raise cut_short("MetadataResponse.controller_id", at, end, 4)
        (controller_id,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 9, "MetadataResponse.topics")
        topics, at = _read_metadata_response_topic_v1(data, at, end, number)
        items.append(
            MetadataResponse(
                throttle_time_ms=throttle_time_ms,
                brokers=brokers,
                cluster_id=cluster_id,
                controller_id=controller_id,
                topics=topics,
            )
        )
    return items, at


def _write_metadata_response_v3(out: Parts, items: Sequence[MetadataResponse]) -> None:
    try:
        for item in items:
            if item.cluster_authorized_operations != -2147483648:
                raise unknown_field(
                    "MetadataResponse.cluster_authorized_operations", item.cluster_authorized_operations
                )
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_metadata_response_broker_v1(out, write_count(out, item.brokers, "MetadataResponse.brokers"))
            write_nullable_string(out, item.cluster_id, "MetadataResponse.cluster_id")
            out.append(_INT32.pack(item.controller_id))
            _write_metadata_response_topic_v1(out, write_count(out, item.topics, "MetadataResponse.topics"))
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_CODES) from None


def _read_metadata_response_partition_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[MetadataResponsePartition], int]:
    items: list[MetadataResponsePartition] = []
    for _ in range(count):
        if end - at < 10:
            raise cut_short("MetadataResponsePartition.error_code to leader_id", at, end, 10)
        error_code, partition_index, leader_id = _INT16_INT32X2.unpack_from(data, at)
        at += 10
        number, at = read_count(data, at, end, 4, "MetadataResponsePartition.replica_nodes")
        replica_nodes, at = read_int32s(data, at, number)
        number, at = read_count(data, at, end, 4, "MetadataResponsePartition.isr_nodes")
        isr_nodes, at = read_int32s(data, at, number)
        number, at = read_count(data, at, end, 4, "MetadataResponsePartition.offline_replicas")
        offline_replicas, at = read_int32s(data, at, number)
        items.append(
            MetadataResponsePartition(
                error_code=error_code,
                partition_index=partition_index,
                leader_id=leader_id,
                replica_nodes=replica_nodes,
                isr_nodes=isr_nodes,
                offline_replicas=offline_replicas,
            )
        )
    return items, at


def _write_metadata_response_partition_v5(out: Parts, items: Sequence[MetadataResponsePartition]) -> None:
    try:
        for item in items:
            out.append(_INT16_INT32X2.pack(item.error_code, item.partition_index, item.leader_id))
            write_int32s(
                out,
                write_count(out, item.replica_nodes, "MetadataResponsePartition.replica_nodes"),
                "MetadataResponsePartition.replica_nodes",
            )
            write_int32s(
                out,
                write_count(out, item.isr_nodes, "MetadataResponsePartition.isr_nodes"),
                "MetadataResponsePartition.isr_nodes",
            )
            write_int32s(
                out,
                write_count(out, item.offline_replicas, "MetadataResponsePartition.offline_replicas"),
                "MetadataResponsePartition.offline_replicas",
            )
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_PARTITION_CODES) from None


def _read_metadata_response_topic_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[MetadataResponseTopic], int]:
    items: list[MetadataResponseTopic] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("MetadataResponseTopic.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        name, at = read_string(data, at, end, "MetadataResponseTopic.name")
        if end - at < 1:
            raise cut_short("MetadataResponseTopic.is_internal", at, end, 1)
        (is_internal,) = _BOOL.unpack_from(data, at)
        at += 1
        number, at = read_count(data, at, end, 22, "MetadataResponseTopic.partitions")
        partitions, at = _read_metadata_response_partition_v5(data, at, end, number)
        items.append(
            MetadataResponseTopic(error_code=error_code, name=name, is_internal=is_internal, partitions=partitions)
        )
    return items, at


def _write_metadata_response_topic_v5(out: Parts, items: Sequence[MetadataResponseTopic]) -> None:
    try:
        for item in items:
            if item.topic_authorized_operations != -2147483648:
                raise unknown_field(
                    "MetadataResponseTopic.topic_authorized_operations", item.topic_authorized_operations
                )
            out.append(_INT16.pack(item.error_code))
            write_string(out, item.name, "MetadataResponseTopic.name")
            out.append(_INT8.pack(item.is_internal))
            _write_metadata_response_partition_v5(
                out, write_count(out, item.partitions, "MetadataResponseTopic.partitions")
            )
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_TOPIC_CODES) from None


def _read_metadata_response_v5(data: Buffer, at: int, end: int, count: int) -> tuple[list[MetadataResponse], int]:
    items: list[MetadataResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("MetadataResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 12, "MetadataResponse.brokers")
        brokers, at = _read_metadata_response_broker_v1(data, at, end, number)
        cluster_id, at = read_nullable_string(data, at, end, "MetadataResponse.cluster_id")
        if end - at < 4:
            raise cut_short("MetadataResponse.controller_id", at, end, 4)
        (controller_id,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 9, "MetadataResponse.topics")
        topics, at = _read_metadata_response_topic_v5(data, at, end, number)
        items.append(
            MetadataResponse(
                throttle_time_ms=throttle_time_ms,
                brokers=brokers,
                cluster_id=cluster_id,
                controller_id=controller_id,
                topics=topics,
            )
        )
    return items, at


def _write_metadata_response_v5(out: Parts, items: Sequence[MetadataResponse]) -> None:
    try:
        for item in items:
            if item.cluster_authorized_operations != -2147483648:
                raise unknown_field(
                    "MetadataResponse.cluster_authorized_operations", item.cluster_authorized_operations
                )
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_metadata_response_broker_v1(out, write_count(out, item.brokers, "MetadataResponse.brokers"))
            write_nullable_string(out, item.cluster_id, "MetadataResponse.cluster_id")
            out.append(_INT32.pack(item.controller_id))
            _write_metadata_response_topic_v5(out, write_count(out, item.topics, "MetadataResponse.topics"))
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_CODES) from None


def _read_metadata_response_partition_v7(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[MetadataResponsePartition], int]:
    items: list[MetadataResponsePartition] = []
    for _ in range(count):
        if end - at < 14:
            raise cut_short("MetadataResponsePartition.error_code to leader_epoch", at, end, 14)
        error_code, partition_index, leader_id, leader_epoch = _INT16_INT32X3.unpack_from(data, at)
        at += 14
        number, at = read_count(data, at, end, 4, "MetadataResponsePartition.replica_nodes")
        replica_nodes, at = read_int32s(data, at, number)
        number, at = read_count(data, at, end, 4, "MetadataResponsePartition.isr_nodes")
        isr_nodes, at = read_int32s(data, at, number)
        number, at = read_count(data, at, end, 4, "MetadataResponsePartition.offline_replicas")
        offline_replicas, at = read_int32s(data, at, number)
        items.append(
            MetadataResponsePartition(
                error_code=error_code,
                partition_index=partition_index,
                leader_id=leader_id,
                leader_epoch=leader_epoch,
                replica_nodes=replica_nodes,
                isr_nodes=isr_nodes,
                offline_replicas=offline_replicas,
            )
        )
    return items, at


def _write_metadata_response_partition_v7(out: Parts, items: Sequence[MetadataResponsePartition]) -> None:
    try:
        for item in items:
            out.append(_INT16_INT32X3.pack(item.error_code, item.partition_index, item.leader_id, item.leader_epoch))
            write_int32s(
                out,
                write_count(out, item.replica_nodes, "MetadataResponsePartition.replica_nodes"),
                "MetadataResponsePartition.replica_nodes",
            )
            write_int32s(
                out,
                write_count(out, item.isr_nodes, "MetadataResponsePartition.isr_nodes"),
                "MetadataResponsePartition.isr_nodes",
            )
            write_int32s(
                out,
                write_count(out, item.offline_replicas, "MetadataResponsePartition.offline_replicas"),
                "MetadataResponsePartition.offline_replicas",
            )
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_PARTITION_CODES) from None


def _read_metadata_response_topic_v7(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[MetadataResponseTopic], int]:
    items: list[MetadataResponseTopic] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("MetadataResponseTopic.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        name, at = read_string(data, at, end, "MetadataResponseTopic.name")
        if end - at < 1:
            raise cut_short("MetadataResponseTopic.is_internal", at, end, 1)
        (is_internal,) = _BOOL.unpack_from(data, at)
        at += 1
        number, at = read_count(data, at, end, 26, "MetadataResponseTopic.partitions")
        partitions, at = _read_metadata_response_partition_v7(data, at, end, number)
        items.append(
            MetadataResponseTopic(error_code=error_code, name=name, is_internal=is_internal, partitions=partitions)
        )
    return items, at


def _write_metadata_response_topic_v7(out: Parts, items: Sequence[MetadataResponseTopic]) -> None:
    try:
        for item in items:
            if item.topic_authorized_operations != -2147483648:
                raise unknown_field(
                    "MetadataResponseTopic.topic_authorized_operations", item.topic_authorized_operations
                )
            out.append(_INT16.pack(item.error_code))
            write_string(out, item.name, "MetadataResponseTopic.name")
            out.append(_INT8.pack(item.is_internal))
            _write_metadata_response_partition_v7(
                out, write_count(out, item.partitions, "MetadataResponseTopic.partitions")
            )
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_TOPIC_CODES) from None


def _read_metadata_response_v7(data: Buffer, at: int, end: int, count: int) -> tuple[list[MetadataResponse], int]:
    items: list[MetadataResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("MetadataResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 12, "MetadataResponse.brokers")
        brokers, at = _read_metadata_response_broker_v1(data, at, end, number)
        cluster_id, at = read_nullable_string(data, at, end, "MetadataResponse.cluster_id")
        if end - at < 4:
            raise cut_short("MetadataResponse.controller_id", at, end, 4)
        (controller_id,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 9, "MetadataResponse.topics")
        topics, at = _read_metadata_response_topic_v7(data, at, end, number)
        items.append(
            MetadataResponse(
                throttle_time_ms=throttle_time_ms,
                brokers=brokers,
                cluster_id=cluster_id,
                controller_id=controller_id,
                topics=topics,
            )
        )
    return items, at


def _write_metadata_response_v7(out: Parts, items: Sequence[MetadataResponse]) -> None:
    try:
        for item in items:
            if item.cluster_authorized_operations != -2147483648:
                raise unknown_field(
                    "MetadataResponse.cluster_authorized_operations", item.cluster_authorized_operations
                )
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_metadata_response_broker_v1(out, write_count(out, item.brokers, "MetadataResponse.brokers"))
            write_nullable_string(out, item.cluster_id, "MetadataResponse.cluster_id")
            out.append(_INT32.pack(item.controller_id))
            _write_metadata_response_topic_v7(out, write_count(out, item.topics, "MetadataResponse.topics"))
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_CODES) from None


def _read_metadata_response_topic_v8(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[MetadataResponseTopic], int]:
    items: list[MetadataResponseTopic] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("MetadataResponseTopic.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        name, at = read_string(data, at, end, "MetadataResponseTopic.name")
        if end - at < 1:
            raise cut_short("MetadataResponseTopic.is_internal", at, end, 1)
        (is_internal,) = _BOOL.unpack_from(data, at)
        at += 1
        number, at = read_count(data, at, end, 26, "MetadataResponseTopic.partitions")
        partitions, at = _read_metadata_response_partition_v7(data, at, end, number)
        if end - at < 4:
            raise cut_short("MetadataResponseTopic.topic_authorized_operations", at, end, 4)
        (topic_authorized_operations,) = _INT32.unpack_from(data, at)
        at += 4
        items.append(
            MetadataResponseTopic(
                error_code=error_code,
                name=name,
                is_internal=is_internal,
                partitions=partitions,
                topic_authorized_operations=topic_authorized_operations,
            )
        )
    return items, at


def _write_metadata_response_topic_v8(out: Parts, items: Sequence[MetadataResponseTopic]) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            write_string(out, item.name, "MetadataResponseTopic.name")
            out.append(_INT8.pack(item.is_internal))
            _write_metadata_response_partition_v7(
                out, write_count(out, item.partitions, "MetadataResponseTopic.partitions")
            )
            out.append(_INT32.pack(item.topic_authorized_operations))
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_TOPIC_CODES) from None


def _read_metadata_response_v8(data: Buffer, at: int, end: int, count: int) -> tuple[list[MetadataResponse], int]:
    items: list[MetadataResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("MetadataResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 12, "MetadataResponse.brokers")
        brokers, at = _read_metadata_response_broker_v1(data, at, end, number)
        cluster_id, at = read_nullable_string(data, at, end, "MetadataResponse.cluster_id")
        if end - at < 4:
            raise cut_short("MetadataResponse.controller_id", at, end, 4)
        (controller_id,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 13, "MetadataResponse.topics")
        topics, at = _read_metadata_response_topic_v8(data, at, end, number)
        if end - at < 4:
            raise cut_short("MetadataResponse.cluster_authorized_operations", at, end, 4)
        (cluster_authorized_operations,) = _INT32.unpack_from(data, at)
        at += 4
        items.append(
            MetadataResponse(
                throttle_time_ms=throttle_time_ms,
                brokers=brokers,
                cluster_id=cluster_id,
                controller_id=controller_id,
                topics=topics,
                cluster_authorized_operations=cluster_authorized_operations,
            )
        )
    return items, at


def _write_metadata_response_v8(out: Parts, items: Sequence[MetadataResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_metadata_response_broker_v1(out, write_count(out, item.brokers, "MetadataResponse.brokers"))
            write_nullable_string(out, item.cluster_id, "MetadataResponse.cluster_id")
            out.append(_INT32.pack(item.controller_id))
            _write_metadata_response_topic_v8(out, write_count(out, item.topics, "MetadataResponse.topics"))
            out.append(_INT32.pack(item.cluster_authorized_operations))
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_CODES) from None


def _read_metadata_response_broker_v9(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[MetadataResponseBroker], int]:
    items: list[MetadataResponseBroker] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("MetadataResponseBroker.node_id", at, end, 4)
        (node_id,) = _INT32.unpack_from(data, at)
        at += 4
        host, at = read_compact_string(data, at, end, "MetadataResponseBroker.host")
        if end - at < 4:
            raise cut_short("MetadataResponseBroker.port", at, end, 4)
        (port,) = _INT32.unpack_from(data, at)
        at += 4
        rack, at = read_compact_nullable_string(data, at, end, "MetadataResponseBroker.rack")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "MetadataResponseBroker")
        items.append(MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack))
    return items, at


def _write_metadata_response_broker_v9(out: Parts, items: Sequence[MetadataResponseBroker]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.node_id))
            write_compact_string(out, item.host, "MetadataResponseBroker.host")
            out.append(_INT32.pack(item.port))
            write_compact_nullable_string(out, item.rack, "MetadataResponseBroker.rack")
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_BROKER_CODES) from None


def _read_metadata_response_partition_v9(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[MetadataResponsePartition], int]:
    items: list[MetadataResponsePartition] = []
    for _ in range(count):
        if end - at < 14:
            raise cut_short("MetadataResponsePartition.error_code to leader_epoch", at, end, 14)
        error_code, partition_index, leader_id, leader_epoch = _INT16_INT32X3.unpack_from(data, at)
        at += 14
        number, at = read_compact_count(data, at, end, 4, "MetadataResponsePartition.replica_nodes")
        replica_nodes, at = read_int32s(data, at, number)
        number, at = read_compact_count(data, at, end, 4, "MetadataResponsePartition.isr_nodes")
        isr_nodes, at = read_int32s(data, at, number)
        number, at = read_compact_count(data, at, end, 4, "MetadataResponsePartition.offline_replicas")
        offline_replicas, at = read_int32s(data, at, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "MetadataResponsePartition")
        items.append(
            MetadataResponsePartition(
                error_code=error_code,
                partition_index=partition_index,
                leader_id=leader_id,
                leader_epoch=leader_epoch,
                replica_nodes=replica_nodes,
                isr_nodes=isr_nodes,
                offline_replicas=offline_replicas,
            )
        )
    return items, at


def _write_metadata_response_partition_v9(out: Parts, items: Sequence[MetadataResponsePartition]) -> None:
    try:
        for item in items:
            out.append(_INT16_INT32X3.pack(item.error_code, item.partition_index, item.leader_id, item.leader_epoch))
            write_int32s(
                out,
                write_compact_count(out, item.replica_nodes, "MetadataResponsePartition.replica_nodes"),
                "MetadataResponsePartition.replica_nodes",
            )
            write_int32s(
                out,
                write_compact_count(out, item.isr_nodes, "MetadataResponsePartition.isr_nodes"),
                "MetadataResponsePartition.isr_nodes",
            )
            write_int32s(
                out,
                write_compact_count(out, item.offline_replicas, "MetadataResponsePartition.offline_replicas"),
                "MetadataResponsePartition.offline_replicas",
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_PARTITION_CODES) from None


def _read_metadata_response_topic_v9(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[MetadataResponseTopic], int]:
    items: list[MetadataResponseTopic] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("MetadataResponseTopic.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        name, at = read_compact_string(data, at, end, "MetadataResponseTopic.name")
        if end - at < 1:
            raise cut_short("MetadataResponseTopic.is_internal", at, end, 1)
        (is_internal,) = _BOOL.unpack_from(data, at)
        at += 1
        number, at = read_compact_count(data, at, end, 18, "MetadataResponseTopic.partitions")
        partitions, at = _read_metadata_response_partition_v9(data, at, end, number)
        if end - at < 5:
            raise cut_short("MetadataResponseTopic.topic_authorized_operations", at, end, 5)
        topic_authorized_operations, tags = _INT32_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "MetadataResponseTopic")
        items.append(
            MetadataResponseTopic(
                error_code=error_code,
                name=name,
                is_internal=is_internal,
                partitions=partitions,
                topic_authorized_operations=topic_authorized_operations,
            )
        )
    return items, at


def _write_metadata_response_topic_v9(out: Parts, items: Sequence[MetadataResponseTopic]) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            write_compact_string(out, item.name, "MetadataResponseTopic.name")
            out.append(_INT8.pack(item.is_internal))
            _write_metadata_response_partition_v9(
                out, write_compact_count(out, item.partitions, "MetadataResponseTopic.partitions")
            )
            out.append(_INT32_TAGS.pack(item.topic_authorized_operations, 0))
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_TOPIC_CODES) from None


def _read_metadata_response_v9(data: Buffer, at: int, end: int, count: int) -> tuple[list[MetadataResponse], int]:
    items: list[MetadataResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("MetadataResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 11, "MetadataResponse.brokers")
        brokers, at = _read_metadata_response_broker_v9(data, at, end, number)
        cluster_id, at = read_compact_nullable_string(data, at, end, "MetadataResponse.cluster_id")
        if end - at < 4:
            raise cut_short("MetadataResponse.controller_id", at, end, 4)
        (controller_id,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 10, "MetadataResponse.topics")
        topics, at = _read_metadata_response_topic_v9(data, at, end, number)
        if end - at < 5:
            raise cut_short("MetadataResponse.cluster_authorized_operations", at, end, 5)
        cluster_authorized_operations, tags = _INT32_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "MetadataResponse")
        items.append(
            MetadataResponse(
                throttle_time_ms=throttle_time_ms,
                brokers=brokers,
                cluster_id=cluster_id,
                controller_id=controller_id,
                topics=topics,
                cluster_authorized_operations=cluster_authorized_operations,
            )
        )
    return items, at


def _write_metadata_response_v9(out: Parts, items: Sequence[MetadataResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_metadata_response_broker_v9(out, write_compact_count(out, item.brokers, "MetadataResponse.brokers"))
            write_compact_nullable_string(out, item.cluster_id, "MetadataResponse.cluster_id")
            out.append(_INT32.pack(item.controller_id))
            _write_metadata_response_topic_v9(out, write_compact_count(out, item.topics, "MetadataResponse.topics"))
            out.append(_INT32_TAGS.pack(item.cluster_authorized_operations, 0))
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_CODES) from None


def _read_metadata_response_topic_v10(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[MetadataResponseTopic], int]:
    items: list[MetadataResponseTopic] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("MetadataResponseTopic.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        name, at = read_compact_string(data, at, end, "MetadataResponseTopic.name")
        if end - at < 17:
            raise cut_short("MetadataResponseTopic.topic_id to is_internal", at, end, 17)
        topic_id, is_internal = _UUID_BOOL.unpack_from(data, at)
        at += 17
        number, at = read_compact_count(data, at, end, 18, "MetadataResponseTopic.partitions")
        partitions, at = _read_metadata_response_partition_v9(data, at, end, number)
        if end - at < 5:
            raise cut_short("MetadataResponseTopic.topic_authorized_operations", at, end, 5)
        topic_authorized_operations, tags = _INT32_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "MetadataResponseTopic")
        items.append(
            MetadataResponseTopic(
                error_code=error_code,
                name=name,
                topic_id=topic_id,
                is_internal=is_internal,
                partitions=partitions,
                topic_authorized_operations=topic_authorized_operations,
            )
        )
    return items, at


def _write_metadata_response_topic_v10(out: Parts, items: Sequence[MetadataResponseTopic]) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            write_compact_string(out, item.name, "MetadataResponseTopic.name")
            check_uuid(item.topic_id, "MetadataResponseTopic.topic_id")
            out.append(_UUID_INT8.pack(item.topic_id, item.is_internal))
            _write_metadata_response_partition_v9(
                out, write_compact_count(out, item.partitions, "MetadataResponseTopic.partitions")
            )
            out.append(_INT32_TAGS.pack(item.topic_authorized_operations, 0))
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_TOPIC_CODES) from None


def _read_metadata_response_v10(data: Buffer, at: int, end: int, count: int) -> tuple[list[MetadataResponse], int]:
    items: list[MetadataResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("MetadataResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 11, "MetadataResponse.brokers")
        brokers, at = _read_metadata_response_broker_v9(data, at, end, number)
        cluster_id, at = read_compact_nullable_string(data, at, end, "MetadataResponse.cluster_id")
        if end - at < 4:
            raise cut_short("MetadataResponse.controller_id", at, end, 4)
        (controller_id,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 26, "MetadataResponse.topics")
        topics, at = _read_metadata_response_topic_v10(data, at, end, number)
        if end - at < 5:
            raise cut_short("MetadataResponse.cluster_authorized_operations", at, end, 5)
        cluster_authorized_operations, tags = _INT32_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "MetadataResponse")
        items.append(
            MetadataResponse(
                throttle_time_ms=throttle_time_ms,
                brokers=brokers,
                cluster_id=cluster_id,
                controller_id=controller_id,
                topics=topics,
                cluster_authorized_operations=cluster_authorized_operations,
            )
        )
    return items, at


def _write_metadata_response_v10(out: Parts, items: Sequence[MetadataResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_metadata_response_broker_v9(out, write_compact_count(out, item.brokers, "MetadataResponse.brokers"))
            write_compact_nullable_string(out, item.cluster_id, "MetadataResponse.cluster_id")
            out.append(_INT32.pack(item.controller_id))
            _write_metadata_response_topic_v10(out, write_compact_count(out, item.topics, "MetadataResponse.topics"))
            out.append(_INT32_TAGS.pack(item.cluster_authorized_operations, 0))
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_CODES) from None


def _read_metadata_response_v11(data: Buffer, at: int, end: int, count: int) -> tuple[list[MetadataResponse], int]:
    items: list[MetadataResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("MetadataResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 11, "MetadataResponse.brokers")
        brokers, at = _read_metadata_response_broker_v9(data, at, end, number)
        cluster_id, at = read_compact_nullable_string(data, at, end, "MetadataResponse.cluster_id")
        if end - at < 4:
            raise cut_short("MetadataResponse.controller_id", at, end, 4)
        (controller_id,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 26, "MetadataResponse.topics")
        topics, at = _read_metadata_response_topic_v10(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "MetadataResponse")
        items.append(
            MetadataResponse(
                throttle_time_ms=throttle_time_ms,
                brokers=brokers,
                cluster_id=cluster_id,
                controller_id=controller_id,
                topics=topics,
            )
        )
    return items, at


def _write_metadata_response_v11(out: Parts, items: Sequence[MetadataResponse]) -> None:
    try:
        for item in items:
            if item.cluster_authorized_operations != -2147483648:
                raise unknown_field(
                    "MetadataResponse.cluster_authorized_operations", item.cluster_authorized_operations
                )
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_metadata_response_broker_v9(out, write_compact_count(out, item.brokers, "MetadataResponse.brokers"))
            write_compact_nullable_string(out, item.cluster_id, "MetadataResponse.cluster_id")
            out.append(_INT32.pack(item.controller_id))
            _write_metadata_response_topic_v10(out, write_compact_count(out, item.topics, "MetadataResponse.topics"))
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_CODES) from None


def _read_metadata_response_topic_v12(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[MetadataResponseTopic], int]:
    items: list[MetadataResponseTopic] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("MetadataResponseTopic.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        name, at = read_compact_nullable_string(data, at, end, "MetadataResponseTopic.name")
        if end - at < 17:
            raise cut_short("MetadataResponseTopic.topic_id to is_internal", at, end, 17)
        topic_id, is_internal = _UUID_BOOL.unpack_from(data, at)
        at += 17
        number, at = read_compact_count(data, at, end, 18, "MetadataResponseTopic.partitions")
        partitions, at = _read_metadata_response_partition_v9(data, at, end, number)
        if end - at < 5:
            raise cut_short("MetadataResponseTopic.topic_authorized_operations", at, end, 5)
        topic_authorized_operations, tags = _INT32_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "MetadataResponseTopic")
        items.append(
            MetadataResponseTopic(
                error_code=error_code,
                name=name,
                topic_id=topic_id,
                is_internal=is_internal,
                partitions=partitions,
                topic_authorized_operations=topic_authorized_operations,
            )
        )
    return items, at


def _write_metadata_response_topic_v12(out: Parts, items: Sequence[MetadataResponseTopic]) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            write_compact_nullable_string(out, item.name, "MetadataResponseTopic.name")
            check_uuid(item.topic_id, "MetadataResponseTopic.topic_id")
            out.append(_UUID_INT8.pack(item.topic_id, item.is_internal))
            _write_metadata_response_partition_v9(
                out, write_compact_count(out, item.partitions, "MetadataResponseTopic.partitions")
            )
            out.append(_INT32_TAGS.pack(item.topic_authorized_operations, 0))
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_TOPIC_CODES) from None


def _read_metadata_response_v12(data: Buffer, at: int, end: int, count: int) -> tuple[list[MetadataResponse], int]:
    items: list[MetadataResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("MetadataResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 11, "MetadataResponse.brokers")
        brokers, at = _read_metadata_response_broker_v9(data, at, end, number)
        cluster_id, at = read_compact_nullable_string(data, at, end, "MetadataResponse.cluster_id")
        if end - at < 4:
            raise cut_short("MetadataResponse.controller_id", at, end, 4)
        (controller_id,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 26, "MetadataResponse.topics")
        topics, at = _read_metadata_response_topic_v12(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "MetadataResponse")
        items.append(
            MetadataResponse(
                throttle_time_ms=throttle_time_ms,
                brokers=brokers,
                cluster_id=cluster_id,
                controller_id=controller_id,
                topics=topics,
            )
        )
    return items, at


def _write_metadata_response_v12(out: Parts, items: Sequence[MetadataResponse]) -> None:
    try:
        for item in items:
            if item.cluster_authorized_operations != -2147483648:
                raise unknown_field(
                    "MetadataResponse.cluster_authorized_operations", item.cluster_authorized_operations
                )
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_metadata_response_broker_v9(out, write_compact_count(out, item.brokers, "MetadataResponse.brokers"))
            write_compact_nullable_string(out, item.cluster_id, "MetadataResponse.cluster_id")
            out.append(_INT32.pack(item.controller_id))
            _write_metadata_response_topic_v12(out, write_compact_count(out, item.topics, "MetadataResponse.topics"))
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_CODES) from None


def _read_metadata_response_v13(data: Buffer, at: int, end: int, count: int) -> tuple[list[MetadataResponse], int]:
    items: list[MetadataResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("MetadataResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 11, "MetadataResponse.brokers")
        brokers, at = _read_metadata_response_broker_v9(data, at, end, number)
        cluster_id, at = read_compact_nullable_string(data, at, end, "MetadataResponse.cluster_id")
        if end - at < 4:
            raise cut_short("MetadataResponse.controller_id", at, end, 4)
        (controller_id,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 26, "MetadataResponse.topics")
        topics, at = _read_metadata_response_topic_v12(data, at, end, number)
        if end - at < 3:
            raise cut_short("MetadataResponse.error_code", at, end, 3)
        error_code, tags = _INT16_TAGS.unpack_from(data, at)
        at += 3
        if tags:
            at = skip_tags(data, at - 1, end, "MetadataResponse")
        items.append(
            MetadataResponse(
                throttle_time_ms=throttle_time_ms,
                brokers=brokers,
                cluster_id=cluster_id,
                controller_id=controller_id,
                topics=topics,
                error_code=error_code,
            )
        )
    return items, at


def _write_metadata_response_v13(out: Parts, items: Sequence[MetadataResponse]) -> None:
    try:
        for item in items:
            if item.cluster_authorized_operations != -2147483648:
                raise unknown_field(
                    "MetadataResponse.cluster_authorized_operations", item.cluster_authorized_operations
                )
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_metadata_response_broker_v9(out, write_compact_count(out, item.brokers, "MetadataResponse.brokers"))
            write_compact_nullable_string(out, item.cluster_id, "MetadataResponse.cluster_id")
            out.append(_INT32.pack(item.controller_id))
            _write_metadata_response_topic_v12(out, write_compact_count(out, item.topics, "MetadataResponse.topics"))
            out.append(_INT16_TAGS.pack(item.error_code, 0))
    except struct.error:
        raise misfit(items, _METADATA_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    MetadataResponse,
    {
        0: (_read_metadata_response_v0, _write_metadata_response_v0),
        1: (_read_metadata_response_v1, _write_metadata_response_v1),
        2: (_read_metadata_response_v2, _write_metadata_response_v2),
        3: (_read_metadata_response_v3, _write_metadata_response_v3),
        4: (_read_metadata_response_v3, _write_metadata_response_v3),
        5: (_read_metadata_response_v5, _write_metadata_response_v5),
        6: (_read_metadata_response_v5, _write_metadata_response_v5),
        7: (_read_metadata_response_v7, _write_metadata_response_v7),
        8: (_read_metadata_response_v8, _write_metadata_response_v8),
        9: (_read_metadata_response_v9, _write_metadata_response_v9),
        10: (_read_metadata_response_v10, _write_metadata_response_v10),
        11: (_read_metadata_response_v11, _write_metadata_response_v11),
        12: (_read_metadata_response_v12, _write_metadata_response_v12),
        13: (_read_metadata_response_v13, _write_metadata_response_v13),
    },
)
