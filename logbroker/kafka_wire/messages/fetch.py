"""Fetch, API key 1.

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
    check_tag_end,
    check_uuid,
    cut_short,
    misfit,
    read_compact_count,
    read_compact_nullable_count,
    read_compact_nullable_records,
    read_compact_nullable_string,
    read_compact_string,
    read_count,
    read_int32s,
    read_nullable_count,
    read_nullable_records,
    read_string,
    read_tag,
    read_uvarint,
    required,
    skip_tags,
    unknown_field,
    write_compact_count,
    write_compact_nullable_bytes,
    write_compact_nullable_count,
    write_compact_nullable_string,
    write_compact_string,
    write_count,
    write_int32s,
    write_nullable_bytes,
    write_nullable_count,
    write_string,
    write_tags,
)

_UUID: Final = struct.Struct(">16s")
_INT32: Final = struct.Struct(">i")
_INT32_INT16_INT32: Final = struct.Struct(">ihi")
_INT32_INT16_INT64X2: Final = struct.Struct(">ihqq")
_INT32_INT16_INT64X3: Final = struct.Struct(">ihqqq")
_INT32X2_TAGS: Final = struct.Struct(">iiB")
_INT32X3_INT8_INT32X2: Final = struct.Struct(">iiibii")
_INT32X4_INT8: Final = struct.Struct(">iiiib")
_INT32X4_INT8_INT32X2: Final = struct.Struct(">iiiibii")
_INT32X2_INT64_INT32_INT64_INT32: Final = struct.Struct(">iiqiqi")
_INT32X2_INT64_INT32_INT64_INT32_TAGS: Final = struct.Struct(">iiqiqiB")
_INT32X2_INT64X2_INT32: Final = struct.Struct(">iiqqi")
_INT32_INT64_TAGS: Final = struct.Struct(">iqB")
_INT32_INT64_INT32: Final = struct.Struct(">iqi")
_INT32_INT64X2_INT32: Final = struct.Struct(">iqqi")
_INT64: Final = struct.Struct(">q")
_INT64_INT32_TAGS: Final = struct.Struct(">qiB")
_INT64X2: Final = struct.Struct(">qq")
_INT64X2_TAGS: Final = struct.Struct(">qqB")


class FetchRequestForgottenTopic(msgspec.Struct, kw_only=True, gc=False):
    """In an incremental fetch request, the partitions to remove."""

    topic: str = ""
    """The topic name. (string, versions 7 to 12, ignorable)"""
    topic_id: bytes = NO_UUID
    """The unique topic ID. (uuid, versions 13 to 18, ignorable)"""
    partitions: list[int] = []
    """The partitions indexes to forget. (int32, versions 7 to 18)"""


class FetchRequestPartition(msgspec.Struct, kw_only=True, gc=False):
    """The partitions to fetch."""

    partition: int = 0
    """The partition index. (int32)"""
    current_leader_epoch: int = -1
    """The current leader epoch of the partition. (int32, versions 9 to 18, ignorable)"""
    fetch_offset: int = 0
    """The message offset. (int64)"""
    last_fetched_epoch: int = -1
    """The epoch of the last fetched record or -1 if there is none. (int32, versions 12 to 18)"""
    log_start_offset: int = -1
    """The earliest available offset of the follower replica. The field is only used when the request is sent by the
    follower. (int64, versions 5 to 18, ignorable)"""
    partition_max_bytes: int = 0
    """The maximum bytes to fetch from this partition. See KIP-74 for cases where this limit may not be honored.
    (int32)"""
    replica_directory_id: bytes = NO_UUID
    """The directory id of the follower fetching. (uuid, versions 17 to 18, ignorable)"""
    high_watermark: int = 9223372036854775807
    """The high-watermark known by the replica. -1 if the high-watermark is not known and 9223372036854775807 if the
    feature is not supported. (int64, version 18, ignorable)"""


class FetchRequestTopic(msgspec.Struct, kw_only=True, gc=False):
    """The topics to fetch."""

    topic: str = ""
    """The name of the topic to fetch. (string, versions 4 to 12, ignorable)"""
    topic_id: bytes = NO_UUID
    """The unique topic ID. (uuid, versions 13 to 18, ignorable)"""
    partitions: list[FetchRequestPartition] = []
    """The partitions to fetch."""


class FetchRequestReplicaState(msgspec.Struct, kw_only=True, gc=False):
    """The state of the replica in the follower."""

    replica_id: int = -1
    """The replica ID of the follower, or -1 if this request is from a consumer. (int32, versions 15 to 18)"""
    replica_epoch: int = -1
    """The epoch of this follower, or -1 if not available. (int64, versions 15 to 18)"""


class FetchRequest(msgspec.Struct, kw_only=True, gc=False):
    """FetchRequest, versions 4 to 18."""

    cluster_id: str | None = None
    """The clusterId if known. This is used to validate metadata fetches prior to broker registration. (string,
    versions 12 to 18, ignorable)"""
    replica_id: int = -1
    """The broker ID of the follower, of -1 if this request is from a consumer. (int32, versions 4 to 14)"""
    replica_state: FetchRequestReplicaState | None = None
    """The state of the replica in the follower. (versions 15 to 18)"""
    max_wait_ms: int = 0
    """The maximum time in milliseconds to wait for the response. (int32)"""
    min_bytes: int = 0
    """The minimum bytes to accumulate in the response. (int32)"""
    max_bytes: int = 2147483647
    """The maximum bytes to fetch. See KIP-74 for cases where this limit may not be honored. (int32)"""
    isolation_level: int = 0
    """This setting controls the visibility of transactional records. Using READ_UNCOMMITTED (isolation_level = 0)
    makes all records visible. With READ_COMMITTED (isolation_level = 1), non-transactional and COMMITTED
    transactional records are visible. To be more concrete, READ_COMMITTED returns all data from offsets smaller
    than the current LSO (last stable offset), and enables the inclusion of the list of aborted transactions in
    the result, which allows consumers to discard ABORTED transactional records. (int8)"""
    session_id: int = 0
    """The fetch session ID. (int32, versions 7 to 18, ignorable)"""
    session_epoch: int = -1
    """The fetch session epoch, which is used for ordering requests in a session. (int32, versions 7 to 18,
    ignorable)"""
    topics: list[FetchRequestTopic] = []
    """The topics to fetch."""
    forgotten_topics_data: list[FetchRequestForgottenTopic] = []
    """In an incremental fetch request, the partitions to remove. (versions 7 to 18)"""
    rack_id: str = ""
    """Rack ID of the consumer making this request. (string, versions 11 to 18, ignorable)"""


_FETCH_REQUEST_CODES: Final = {
    "replica_id": "i",
    "max_wait_ms": "i",
    "min_bytes": "i",
    "max_bytes": "i",
    "isolation_level": "b",
    "session_id": "i",
    "session_epoch": "i",
}
_FETCH_REQUEST_REPLICA_STATE_CODES: Final = {"replica_id": "i", "replica_epoch": "q"}
_FETCH_REQUEST_TOPIC_CODES: Final = {"topic_id": "16s"}
_FETCH_REQUEST_PARTITION_CODES: Final = {
    "partition": "i",
    "current_leader_epoch": "i",
    "fetch_offset": "q",
    "last_fetched_epoch": "i",
    "log_start_offset": "q",
    "partition_max_bytes": "i",
    "replica_directory_id": "16s",
    "high_watermark": "q",
}
_FETCH_REQUEST_FORGOTTEN_TOPIC_CODES: Final = {"topic_id": "16s"}


def _read_fetch_request_partition_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FetchRequestPartition], int]:
    items: list[FetchRequestPartition] = []
    for _ in range(count):
        if end - at < 16:
            raise cut_short("FetchRequestPartition.partition to partition_max_bytes", at, end, 16)
        partition, fetch_offset, partition_max_bytes = _INT32_INT64_INT32.unpack_from(data, at)
        at += 16
        items.append(
            FetchRequestPartition(
                partition=partition, fetch_offset=fetch_offset, partition_max_bytes=partition_max_bytes
            )
        )
    return items, at


def _write_fetch_request_partition_v4(out: Parts, items: Sequence[FetchRequestPartition]) -> None:
    try:
        for item in items:
            if item.last_fetched_epoch != -1:
                raise unknown_field("FetchRequestPartition.last_fetched_epoch", item.last_fetched_epoch)
            out.append(_INT32_INT64_INT32.pack(item.partition, item.fetch_offset, item.partition_max_bytes))
    except struct.error:
        raise misfit(items, _FETCH_REQUEST_PARTITION_CODES) from None


def _read_fetch_request_topic_v4(data: Buffer, at: int, end: int, count: int) -> tuple[list[FetchRequestTopic], int]:
    items: list[FetchRequestTopic] = []
    for _ in range(count):
        topic, at = read_string(data, at, end, "FetchRequestTopic.topic")
        number, at = read_count(data, at, end, 16, "FetchRequestTopic.partitions")
        partitions, at = _read_fetch_request_partition_v4(data, at, end, number)
        items.append(FetchRequestTopic(topic=topic, partitions=partitions))
    return items, at


def _write_fetch_request_topic_v4(out: Parts, items: Sequence[FetchRequestTopic]) -> None:
    for item in items:
        write_string(out, item.topic, "FetchRequestTopic.topic")
        _write_fetch_request_partition_v4(out, write_count(out, item.partitions, "FetchRequestTopic.partitions"))


def _read_fetch_request_v4(data: Buffer, at: int, end: int, count: int) -> tuple[list[FetchRequest], int]:
    items: list[FetchRequest] = []
    for _ in range(count):
        if end - at < 17:
            raise cut_short("FetchRequest.replica_id to isolation_level", at, end, 17)
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level = _INT32X4_INT8.unpack_from(data, at)
        at += 17
        number, at = read_count(data, at, end, 6, "FetchRequest.topics")
        topics, at = _read_fetch_request_topic_v4(data, at, end, number)
        items.append(
            FetchRequest(
                replica_id=replica_id,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                isolation_level=isolation_level,
                topics=topics,
            )
        )
    return items, at


def _write_fetch_request_v4(out: Parts, items: Sequence[FetchRequest]) -> None:
    try:
        for item in items:
            if item.replica_state is not None and item.replica_state != type(item.replica_state)():
                raise unknown_field("FetchRequest.replica_state", item.replica_state)
            if item.forgotten_topics_data != []:
                raise unknown_field("FetchRequest.forgotten_topics_data", item.forgotten_topics_data)
            out.append(
                _INT32X4_INT8.pack(
                    item.replica_id, item.max_wait_ms, item.min_bytes, item.max_bytes, item.isolation_level
                )
            )
            _write_fetch_request_topic_v4(out, write_count(out, item.topics, "FetchRequest.topics"))
    except struct.error:
        raise misfit(items, _FETCH_REQUEST_CODES) from None


def _read_fetch_request_partition_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FetchRequestPartition], int]:
    items: list[FetchRequestPartition] = []
    for _ in range(count):
        if end - at < 24:
            raise cut_short("FetchRequestPartition.partition to partition_max_bytes", at, end, 24)
        partition, fetch_offset, log_start_offset, partition_max_bytes = _INT32_INT64X2_INT32.unpack_from(data, at)
        at += 24
        items.append(
            FetchRequestPartition(
                partition=partition,
                fetch_offset=fetch_offset,
                log_start_offset=log_start_offset,
                partition_max_bytes=partition_max_bytes,
            )
        )
    return items, at


def _write_fetch_request_partition_v5(out: Parts, items: Sequence[FetchRequestPartition]) -> None:
    try:
        for item in items:
            if item.last_fetched_epoch != -1:
                raise unknown_field("FetchRequestPartition.last_fetched_epoch", item.last_fetched_epoch)
            out.append(
                _INT32_INT64X2_INT32.pack(
                    item.partition, item.fetch_offset, item.log_start_offset, item.partition_max_bytes
                )
            )
    except struct.error:
        raise misfit(items, _FETCH_REQUEST_PARTITION_CODES) from None


def _read_fetch_request_topic_v5(data: Buffer, at: int, end: int, count: int) -> tuple[list[FetchRequestTopic], int]:
    items: list[FetchRequestTopic] = []
    for _ in range(count):
        topic, at = read_string(data, at, end, "FetchRequestTopic.topic")
        number, at = read_count(data, at, end, 24, "FetchRequestTopic.partitions")
        partitions, at = _read_fetch_request_partition_v5(data, at, end, number)
        items.append(FetchRequestTopic(topic=topic, partitions=partitions))
    return items, at


def _write_fetch_request_topic_v5(out: Parts, items: Sequence[FetchRequestTopic]) -> None:
    for item in items:
        write_string(out, item.topic, "FetchRequestTopic.topic")
        _write_fetch_request_partition_v5(out, write_count(out, item.partitions, "FetchRequestTopic.partitions"))


def _read_fetch_request_v5(data: Buffer, at: int, end: int, count: int) -> tuple[list[FetchRequest], int]:
    items: list[FetchRequest] = []
    for _ in range(count):
        if end - at < 17:
            raise cut_short("FetchRequest.replica_id to isolation_level", at, end, 17)
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level = _INT32X4_INT8.unpack_from(data, at)
        at += 17
        number, at = read_count(data, at, end, 6, "FetchRequest.topics")
        topics, at = _read_fetch_request_topic_v5(data, at, end, number)
        items.append(
            FetchRequest(
                replica_id=replica_id,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                isolation_level=isolation_level,
                topics=topics,
            )
        )
    return items, at


def _write_fetch_request_v5(out: Parts, items: Sequence[FetchRequest]) -> None:
    try:
        for item in items:
            if item.replica_state is not None and item.replica_state != type(item.replica_state)():
                raise unknown_field("FetchRequest.replica_state", item.replica_state)
            if item.forgotten_topics_data != []:
                raise unknown_field("FetchRequest.forgotten_topics_data", item.forgotten_topics_data)
            out.append(
                _INT32X4_INT8.pack(
                    item.replica_id, item.max_wait_ms, item.min_bytes, item.max_bytes, item.isolation_level
                )
            )
            _write_fetch_request_topic_v5(out, write_count(out, item.topics, "FetchRequest.topics"))
    except struct.error:
        raise misfit(items, _FETCH_REQUEST_CODES) from None


def _read_fetch_request_forgotten_topic_v7(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FetchRequestForgottenTopic], int]:
    items: list[FetchRequestForgottenTopic] = []
    for _ in range(count):
        topic, at = read_string(data, at, end, "FetchRequestForgottenTopic.topic")
        number, at = read_count(data, at, end, 4, "FetchRequestForgottenTopic.partitions")
        partitions, at = read_int32s(data, at, number)
        items.append(FetchRequestForgottenTopic(topic=topic, partitions=partitions))
    return items, at


def _write_fetch_request_forgotten_topic_v7(out: Parts, items: Sequence[FetchRequestForgottenTopic]) -> None:
    for item in items:
        write_string(out, item.topic, "FetchRequestForgottenTopic.topic")
        write_int32s(
            out,
            write_count(out, item.partitions, "FetchRequestForgottenTopic.partitions"),
            "FetchRequestForgottenTopic.partitions",
        )


def _read_fetch_request_v7(data: Buffer, at: int, end: int, count: int) -> tuple[list[FetchRequest], int]:
    items: list[FetchRequest] = []
    for _ in range(count):
        if end - at < 25:
            raise cut_short("FetchRequest.replica_id to session_epoch", at, end, 25)
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = (
            _INT32X4_INT8_INT32X2.unpack_from(data, at)
        )
        at += 25
        number, at = read_count(data, at, end, 6, "FetchRequest.topics")
        topics, at = _read_fetch_request_topic_v5(data, at, end, number)
        number, at = read_count(data, at, end, 6, "FetchRequest.forgotten_topics_data")
        forgotten_topics_data, at = _read_fetch_request_forgotten_topic_v7(data, at, end, number)
        items.append(
            FetchRequest(
                replica_id=replica_id,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                isolation_level=isolation_level,
                session_id=session_id,
                session_epoch=session_epoch,
                topics=topics,
                forgotten_topics_data=forgotten_topics_data,
            )
        )
    return items, at


def _write_fetch_request_v7(out: Parts, items: Sequence[FetchRequest]) -> None:
    try:
        for item in items:
            if item.replica_state is not None and item.replica_state != type(item.replica_state)():
                raise unknown_field("FetchRequest.replica_state", item.replica_state)
            out.append(
                _INT32X4_INT8_INT32X2.pack(
                    item.replica_id,
                    item.max_wait_ms,
                    item.min_bytes,
                    item.max_bytes,
                    item.isolation_level,
                    item.session_id,
                    item.session_epoch,
                )
            )
            _write_fetch_request_topic_v5(out, write_count(out, item.topics, "FetchRequest.topics"))
            _write_fetch_request_forgotten_topic_v7(
                out, write_count(out, item.forgotten_topics_data, "FetchRequest.forgotten_topics_data")
            )
    except struct.error:
        raise misfit(items, _FETCH_REQUEST_CODES) from None


def _read_fetch_request_partition_v9(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FetchRequestPartition], int]:
    items: list[FetchRequestPartition] = []
    for _ in range(count):
        if end - at < 28:
            raise cut_short("FetchRequestPartition.partition to partition_max_bytes", at, end, 28)
        partition, current_leader_epoch, fetch_offset, log_start_offset, partition_max_bytes = (
            _INT32X2_INT64X2_INT32.unpack_from(data, at)
        )
        at += 28
        items.append(
            FetchRequestPartition(
                partition=partition,
                current_leader_epoch=current_leader_epoch,
                fetch_offset=fetch_offset,
                log_start_offset=log_start_offset,
                partition_max_bytes=partition_max_bytes,
            )
        )
    return items, at


def _write_fetch_request_partition_v9(out: Parts, items: Sequence[FetchRequestPartition]) -> None:
    try:
        for item in items:
            if item.last_fetched_epoch != -1:
                raise unknown_field("FetchRequestPartition.last_fetched_epoch", item.last_fetched_epoch)
            out.append(
                _INT32X2_INT64X2_INT32.pack(
                    item.partition,
                    item.current_leader_epoch,
                    item.fetch_offset,
                    item.log_start_offset,
                    item.partition_max_bytes,
                )
            )
    except struct.error:
        raise misfit(items, _FETCH_REQUEST_PARTITION_CODES) from None


def _read_fetch_request_topic_v9(data: Buffer, at: int, end: int, count: int) -> tuple[list[FetchRequestTopic], int]:
    items: list[FetchRequestTopic] = []
    for _ in range(count):
        topic, at = read_string(data, at, end, "FetchRequestTopic.topic")
        number, at = read_count(data, at, end, 28, "FetchRequestTopic.partitions")
        partitions, at = _read_fetch_request_partition_v9(data, at, end, number)
        items.append(FetchRequestTopic(topic=topic, partitions=partitions))
    return items, at


def _write_fetch_request_topic_v9(out: Parts, items: Sequence[FetchRequestTopic]) -> None:
    for item in items:
        write_string(out, item.topic, "FetchRequestTopic.topic")
        _write_fetch_request_partition_v9(out, write_count(out, item.partitions, "FetchRequestTopic.partitions"))


def _read_fetch_request_v9(data: Buffer, at: int, end: int, count: int) -> tuple[list[FetchRequest], int]:
    items: list[FetchRequest] = []
    for _ in range(count):
        if end - at < 25:
            raise cut_short("FetchRequest.replica_id to session_epoch", at, end, 25)
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = (
            _INT32X4_INT8_INT32X2.unpack_from(data, at)
        )
        at += 25
        number, at = read_count(data, at, end, 6, "FetchRequest.topics")
        topics, at = _read_fetch_request_topic_v9(data, at, end, number)
        number, at = read_count(data, at, end, 6, "FetchRequest.forgotten_topics_data")
        forgotten_topics_data, at = _read_fetch_request_forgotten_topic_v7(data, at, end, number)
        items.append(
            FetchRequest(
                replica_id=replica_id,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                isolation_level=isolation_level,
                session_id=session_id,
                session_epoch=session_epoch,
                topics=topics,
                forgotten_topics_data=forgotten_topics_data,
            )
        )
    return items, at


def _write_fetch_request_v9(out: Parts, items: Sequence[FetchRequest]) -> None:
    try:
        for item in items:
            if item.replica_state is not None and item.replica_state != type(item.replica_state)():
                raise unknown_field("FetchRequest.replica_state", item.replica_state)
            out.append(
                _INT32X4_INT8_INT32X2.pack(
                    item.replica_id,
                    item.max_wait_ms,
                    item.min_bytes,
                    item.max_bytes,
                    item.isolation_level,
                    item.session_id,
                    item.session_epoch,
                )
            )
            _write_fetch_request_topic_v9(out, write_count(out, item.topics, "FetchRequest.topics"))
            _write_fetch_request_forgotten_topic_v7(
                out, write_count(out, item.forgotten_topics_data, "FetchRequest.forgotten_topics_data")
            )
    except struct.error:
        raise misfit(items, _FETCH_REQUEST_CODES) from None


def _read_fetch_request_v11(data: Buffer, at: int, end: int, count: int) -> tuple[list[FetchRequest], int]:
    items: list[FetchRequest] = []
    for _ in range(count):
        if end - at < 25:
            raise cut_short("FetchRequest.replica_id to session_epoch", at, end, 25)
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = (
            _INT32X4_INT8_INT32X2.unpack_from(data, at)
        )
        at += 25
        number, at = read_count(data, at, end, 6, "FetchRequest.topics")
        topics, at = _read_fetch_request_topic_v9(data, at, end, number)
        number, at = read_count(data, at, end, 6, "FetchRequest.forgotten_topics_data")
        forgotten_topics_data, at = _read_fetch_request_forgotten_topic_v7(data, at, end, number)
        rack_id, at = read_string(data, at, end, "FetchRequest.rack_id")
        items.append(
            FetchRequest(
                replica_id=replica_id,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                isolation_level=isolation_level,
                session_id=session_id,
                session_epoch=session_epoch,
                topics=topics,
                forgotten_topics_data=forgotten_topics_data,
                rack_id=rack_id,
            )
        )
    return items, at


def _write_fetch_request_v11(out: Parts, items: Sequence[FetchRequest]) -> None:
    try:
        for item in items:
            if item.replica_state is not None and item.replica_state != type(item.replica_state)():
                raise unknown_field("FetchRequest.replica_state", item.replica_state)
            out.append(
                _INT32X4_INT8_INT32X2.pack(
                    item.replica_id,
                    item.max_wait_ms,
                    item.min_bytes,
                    item.max_bytes,
                    item.isolation_level,
                    item.session_id,
                    item.session_epoch,
                )
            )
            _write_fetch_request_topic_v9(out, write_count(out, item.topics, "FetchRequest.topics"))
            _write_fetch_request_forgotten_topic_v7(
                out, write_count(out, item.forgotten_topics_data, "FetchRequest.forgotten_topics_data")
            )
            write_string(out, item.rack_id, "FetchRequest.rack_id")
    except struct.error:
        raise misfit(items, _FETCH_REQUEST_CODES) from None


def _read_fetch_request_partition_v12(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FetchRequestPartition], int]:
    items: list[FetchRequestPartition] = []
    for _ in range(count):
        if end - at < 33:
            raise cut_short("FetchRequestPartition.partition to partition_max_bytes", at, end, 33)
        (
            partition,
            current_leader_epoch,
            fetch_offset,
            last_fetched_epoch,
            log_start_offset,
            partition_max_bytes,
            tags,
        ) = _INT32X2_INT64_INT32_INT64_INT32_TAGS.unpack_from(data, at)
        at += 33
        if tags:
            at = skip_tags(data, at - 1, end, "FetchRequestPartition")
        items.append(
            FetchRequestPartition(
                partition=partition,
                current_leader_epoch=current_leader_epoch,
                fetch_offset=fetch_offset,
                last_fetched_epoch=last_fetched_epoch,
                log_start_offset=log_start_offset,
                partition_max_bytes=partition_max_bytes,
            )
        )
    return items, at


def _write_fetch_request_partition_v12(out: Parts, items: Sequence[FetchRequestPartition]) -> None:
    try:
        for item in items:
            out.append(
                _INT32X2_INT64_INT32_INT64_INT32_TAGS.pack(
                    item.partition,
                    item.current_leader_epoch,
                    item.fetch_offset,
                    item.last_fetched_epoch,
                    item.log_start_offset,
                    item.partition_max_bytes,
                    0,
                )
            )
    except struct.error:
        raise misfit(items, _FETCH_REQUEST_PARTITION_CODES) from None


def _read_fetch_request_topic_v12(data: Buffer, at: int, end: int, count: int) -> tuple[list[FetchRequestTopic], int]:
    items: list[FetchRequestTopic] = []
    for _ in range(count):
        topic, at = read_compact_string(data, at, end, "FetchRequestTopic.topic")
        number, at = read_compact_count(data, at, end, 33, "FetchRequestTopic.partitions")
        partitions, at = _read_fetch_request_partition_v12(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "FetchRequestTopic")
        items.append(FetchRequestTopic(topic=topic, partitions=partitions))
    return items, at


def _write_fetch_request_topic_v12(out: Parts, items: Sequence[FetchRequestTopic]) -> None:
    for item in items:
        write_compact_string(out, item.topic, "FetchRequestTopic.topic")
        _write_fetch_request_partition_v12(
            out, write_compact_count(out, item.partitions, "FetchRequestTopic.partitions")
        )
        out.append(NO_TAGS)


def _read_fetch_request_forgotten_topic_v12(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FetchRequestForgottenTopic], int]:
    items: list[FetchRequestForgottenTopic] = []
    for _ in range(count):
        topic, at = read_compact_string(data, at, end, "FetchRequestForgottenTopic.topic")
        number, at = read_compact_count(data, at, end, 4, "FetchRequestForgottenTopic.partitions")
        partitions, at = read_int32s(data, at, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "FetchRequestForgottenTopic")
        items.append(FetchRequestForgottenTopic(topic=topic, partitions=partitions))
    return items, at


def _write_fetch_request_forgotten_topic_v12(out: Parts, items: Sequence[FetchRequestForgottenTopic]) -> None:
    for item in items:
        write_compact_string(out, item.topic, "FetchRequestForgottenTopic.topic")
        write_int32s(
            out,
            write_compact_count(out, item.partitions, "FetchRequestForgottenTopic.partitions"),
            "FetchRequestForgottenTopic.partitions",
        )
        out.append(NO_TAGS)


def _read_fetch_request_v12(data: Buffer, at: int, end: int, count: int) -> tuple[list[FetchRequest], int]:
    items: list[FetchRequest] = []
    for _ in range(count):
        if end - at < 25:
            raise cut_short("FetchRequest.replica_id to session_epoch", at, end, 25)
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = (
            _INT32X4_INT8_INT32X2.unpack_from(data, at)
        )
        at += 25
        number, at = read_compact_count(data, at, end, 3, "FetchRequest.topics")
        topics, at = _read_fetch_request_topic_v12(data, at, end, number)
        number, at = read_compact_count(data, at, end, 3, "FetchRequest.forgotten_topics_data")
        forgotten_topics_data, at = _read_fetch_request_forgotten_topic_v12(data, at, end, number)
        rack_id, at = read_compact_string(data, at, end, "FetchRequest.rack_id")
        cluster_id: str | None = None
        tags, at = read_uvarint(data, at, end, "FetchRequest")
        last = -1
        for _ in range(tags):
            last, at, stop = read_tag(data, at, end, last, "FetchRequest")
            if last == 0:
                cluster_id, at = read_compact_nullable_string(data, at, stop, "FetchRequest.cluster_id")
                check_tag_end(at, stop, "FetchRequest.cluster_id")
            at = stop
        items.append(
            FetchRequest(
                replica_id=replica_id,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                isolation_level=isolation_level,
                session_id=session_id,
                session_epoch=session_epoch,
                topics=topics,
                forgotten_topics_data=forgotten_topics_data,
                rack_id=rack_id,
                cluster_id=cluster_id,
            )
        )
    return items, at


def _write_fetch_request_v12(out: Parts, items: Sequence[FetchRequest]) -> None:
    try:
        for item in items:
            if item.replica_state is not None and item.replica_state != type(item.replica_state)():
                raise unknown_field("FetchRequest.replica_state", item.replica_state)
            out.append(
                _INT32X4_INT8_INT32X2.pack(
                    item.replica_id,
                    item.max_wait_ms,
                    item.min_bytes,
                    item.max_bytes,
                    item.isolation_level,
                    item.session_id,
                    item.session_epoch,
                )
            )
            _write_fetch_request_topic_v12(out, write_compact_count(out, item.topics, "FetchRequest.topics"))
            _write_fetch_request_forgotten_topic_v12(
                out, write_compact_count(out, item.forgotten_topics_data, "FetchRequest.forgotten_topics_data")
            )
            write_compact_string(out, item.rack_id, "FetchRequest.rack_id")
            tagged: list[tuple[int, Parts]] = []
            if item.cluster_id is not None:
                part: Parts = []
                write_compact_nullable_string(part, item.cluster_id, "FetchRequest.cluster_id")
                tagged.append((0, part))
            write_tags(out, tagged)
    except struct.error:
        raise misfit(items, _FETCH_REQUEST_CODES) from None


def _read_fetch_request_topic_v13(data: Buffer, at: int, end: int, count: int) -> tuple[list[FetchRequestTopic], int]:
    items: list[FetchRequestTopic] = []
    for _ in range(count):
        if end - at < 16:
            raise cut_short("FetchRequestTopic.topic_id", at, end, 16)
        (topic_id,) = _UUID.unpack_from(data, at)
        at += 16
        number, at = read_compact_count(data, at, end, 33, "FetchRequestTopic.partitions")
        partitions, at = _read_fetch_request_partition_v12(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "FetchRequestTopic")
        items.append(FetchRequestTopic(topic_id=topic_id, partitions=partitions))
    return items, at


def _write_fetch_request_topic_v13(out: Parts, items: Sequence[FetchRequestTopic]) -> None:
    try:
        for item in items:
            check_uuid(item.topic_id, "FetchRequestTopic.topic_id")
            out.append(_UUID.pack(item.topic_id))
            _write_fetch_request_partition_v12(
                out, write_compact_count(out, item.partitions, "FetchRequestTopic.partitions")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _FETCH_REQUEST_TOPIC_CODES) from None


def _read_fetch_request_forgotten_topic_v13(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FetchRequestForgottenTopic], int]:
    items: list[FetchRequestForgottenTopic] = []
    for _ in range(count):
        if end - at < 16:
            raise cut_short("FetchRequestForgottenTopic.topic_id", at, end, 16)
        (topic_id,) = _UUID.unpack_from(data, at)
        at += 16
        number, at = read_compact_count(data, at, end, 4, "FetchRequestForgottenTopic.partitions")
        partitions, at = read_int32s(data, at, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "FetchRequestForgottenTopic")
        items.append(FetchRequestForgottenTopic(topic_id=topic_id, partitions=partitions))
    return items, at


def _write_fetch_request_forgotten_topic_v13(out: Parts, items: Sequence[FetchRequestForgottenTopic]) -> None:
    try:
        for item in items:
            check_uuid(item.topic_id, "FetchRequestForgottenTopic.topic_id")
            out.append(_UUID.pack(item.topic_id))
            write_int32s(
                out,
                write_compact_count(out, item.partitions, "FetchRequestForgottenTopic.partitions"),
                "FetchRequestForgottenTopic.partitions",
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _FETCH_REQUEST_FORGOTTEN_TOPIC_CODES) from None


def _read_fetch_request_v13(data: Buffer, at: int, end: int, count: int) -> tuple[list[FetchRequest], int]:
    items: list[FetchRequest] = []
    for _ in range(count):
        if end - at < 25:
            raise cut_short("FetchRequest.replica_id to session_epoch", at, end, 25)
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = (
            _INT32X4_INT8_INT32X2.unpack_from(data, at)
        )
        at += 25
        number, at = read_compact_count(data, at, end, 18, "FetchRequest.topics")
        topics, at = _read_fetch_request_topic_v13(data, at, end, number)
        number, at = read_compact_count(data, at, end, 18, "FetchRequest.forgotten_topics_data")
        forgotten_topics_data, at = _read_fetch_request_forgotten_topic_v13(data, at, end, number)
        rack_id, at = read_compact_string(data, at, end, "FetchRequest.rack_id")
        cluster_id: str | None = None
        tags, at = read_uvarint(data, at, end, "FetchRequest")
        last = -1
        for _ in range(tags):
            last, at, stop = read_tag(data, at, end, last, "FetchRequest")
            if last == 0:
                cluster_id, at = read_compact_nullable_string(data, at, stop, "FetchRequest.cluster_id")
                check_tag_end(at, stop, "FetchRequest.cluster_id")
            at = stop
        items.append(
            FetchRequest(
                replica_id=replica_id,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                isolation_level=isolation_level,
                session_id=session_id,
                session_epoch=session_epoch,
                topics=topics,
                forgotten_topics_data=forgotten_topics_data,
                rack_id=rack_id,
                cluster_id=cluster_id,
            )
        )
    return items, at


def _write_fetch_request_v13(out: Parts, items: Sequence[FetchRequest]) -> None:
    try:
        for item in items:
            if item.replica_state is not None and item.replica_state != type(item.replica_state)():
                raise unknown_field("FetchRequest.replica_state", item.replica_state)
            out.append(
                _INT32X4_INT8_INT32X2.pack(
                    item.replica_id,
                    item.max_wait_ms,
                    item.min_bytes,
                    item.max_bytes,
                    item.isolation_level,
                    item.session_id,
                    item.session_epoch,
                )
            )
            _write_fetch_request_topic_v13(out, write_compact_count(out, item.topics, "FetchRequest.topics"))
            _write_fetch_request_forgotten_topic_v13(
                out, write_compact_count(out, item.forgotten_topics_data, "FetchRequest.forgotten_topics_data")
            )
            write_compact_string(out, item.rack_id, "FetchRequest.rack_id")
            tagged: list[tuple[int, Parts]] = []
            if item.cluster_id is not None:
                part: Parts = []
                write_compact_nullable_string(part, item.cluster_id, "FetchRequest.cluster_id")
                tagged.append((0, part))
            write_tags(out, tagged)
    except struct.error:
        raise misfit(items, _FETCH_REQUEST_CODES) from None


def _read_fetch_request_replica_state_v15(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FetchRequestReplicaState], int]:
    items: list[FetchRequestReplicaState] = []
    for _ in range(count):
        if end - at < 13:
            raise cut_short("FetchRequestReplicaState.replica_id to replica_epoch", at, end, 13)
        replica_id, replica_epoch, tags = _INT32_INT64_TAGS.unpack_from(data, at)
        at += 13
        if tags:
            at = skip_tags(data, at - 1, end, "FetchRequestReplicaState")
        items.append(FetchRequestReplicaState(replica_id=replica_id, replica_epoch=replica_epoch))
    return items, at


def _write_fetch_request_replica_state_v15(out: Parts, items: Sequence[FetchRequestReplicaState]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT64_TAGS.pack(item.replica_id, item.replica_epoch, 0))
    except struct.error:
        raise misfit(items, _FETCH_REQUEST_REPLICA_STATE_CODES) from None


def _read_fetch_request_v15(data: Buffer, at: int, end: int, count: int) -> tuple[list[FetchRequest], int]:
    items: list[FetchRequest] = []
    for _ in range(count):
        if end - at < 21:
            raise cut_short("FetchRequest.max_wait_ms to session_epoch", at, end, 21)
        max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = (
            _INT32X3_INT8_INT32X2.unpack_from(data, at)
        )
        at += 21
        number, at = read_compact_count(data, at, end, 18, "FetchRequest.topics")
        topics, at = _read_fetch_request_topic_v13(data, at, end, number)
        number, at = read_compact_count(data, at, end, 18, "FetchRequest.forgotten_topics_data")
        forgotten_topics_data, at = _read_fetch_request_forgotten_topic_v13(data, at, end, number)
        rack_id, at = read_compact_string(data, at, end, "FetchRequest.rack_id")
        cluster_id: str | None = None
        replica_state: FetchRequestReplicaState | None = None
        tags, at = read_uvarint(data, at, end, "FetchRequest")
        last = -1
        for _ in range(tags):
            last, at, stop = read_tag(data, at, end, last, "FetchRequest")
            if last == 0:
                cluster_id, at = read_compact_nullable_string(data, at, stop, "FetchRequest.cluster_id")
                check_tag_end(at, stop, "FetchRequest.cluster_id")
            elif last == 1:
                [replica_state], at = _read_fetch_request_replica_state_v15(data, at, stop, 1)
                check_tag_end(at, stop, "FetchRequest.replica_state")
            at = stop
        items.append(
            FetchRequest(
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                isolation_level=isolation_level,
                session_id=session_id,
                session_epoch=session_epoch,
                topics=topics,
                forgotten_topics_data=forgotten_topics_data,
                rack_id=rack_id,
                cluster_id=cluster_id,
                replica_state=replica_state,
            )
        )
    return items, at


def _write_fetch_request_v15(out: Parts, items: Sequence[FetchRequest]) -> None:
    try:
        for item in items:
            if item.replica_id != -1:
                raise unknown_field("FetchRequest.replica_id", item.replica_id)
            out.append(
                _INT32X3_INT8_INT32X2.pack(
                    item.max_wait_ms,
                    item.min_bytes,
                    item.max_bytes,
                    item.isolation_level,
                    item.session_id,
                    item.session_epoch,
                )
            )
            _write_fetch_request_topic_v13(out, write_compact_count(out, item.topics, "FetchRequest.topics"))
            _write_fetch_request_forgotten_topic_v13(
                out, write_compact_count(out, item.forgotten_topics_data, "FetchRequest.forgotten_topics_data")
            )
            write_compact_string(out, item.rack_id, "FetchRequest.rack_id")
            tagged: list[tuple[int, Parts]] = []
            if item.cluster_id is not None:
                part: Parts = []
                write_compact_nullable_string(part, item.cluster_id, "FetchRequest.cluster_id")
                tagged.append((0, part))
            if item.replica_state is not None and item.replica_state != type(item.replica_state)():
                part = []
                _write_fetch_request_replica_state_v15(part, required(item.replica_state, "FetchRequest.replica_state"))
                tagged.append((1, part))
            write_tags(out, tagged)
    except struct.error:
        raise misfit(items, _FETCH_REQUEST_CODES) from None


def _read_fetch_request_partition_v17(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FetchRequestPartition], int]:
    items: list[FetchRequestPartition] = []
    for _ in range(count):
        if end - at < 32:
            raise cut_short("FetchRequestPartition.partition to partition_max_bytes", at, end, 32)
        partition, current_leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset, partition_max_bytes = (
            _INT32X2_INT64_INT32_INT64_INT32.unpack_from(data, at)
        )
        at += 32
        replica_directory_id = NO_UUID
        tags, at = read_uvarint(data, at, end, "FetchRequestPartition")
        last = -1
        for _ in range(tags):
            last, at, stop = read_tag(data, at, end, last, "FetchRequestPartition")
            if last == 0:
                if stop - at < 16:
                    raise cut_short("FetchRequestPartition.replica_directory_id", at, stop, 16)
                (replica_directory_id,) = _UUID.unpack_from(data, at)
                at += 16
                check_tag_end(at, stop, "FetchRequestPartition.replica_directory_id")
            at = stop
        items.append(
            FetchRequestPartition(
                partition=partition,
                current_leader_epoch=current_leader_epoch,
                fetch_offset=fetch_offset,
                last_fetched_epoch=last_fetched_epoch,
                log_start_offset=log_start_offset,
                partition_max_bytes=partition_max_bytes,
                replica_directory_id=replica_directory_id,
            )
        )
    return items, at


def _write_fetch_request_partition_v17(out: Parts, items: Sequence[FetchRequestPartition]) -> None:
    try:
        for item in items:
            out.append(
                _INT32X2_INT64_INT32_INT64_INT32.pack(
                    item.partition,
                    item.current_leader_epoch,
                    item.fetch_offset,
                    item.last_fetched_epoch,
                    item.log_start_offset,
                    item.partition_max_bytes,
                )
            )
            tagged: list[tuple[int, Parts]] = []
            if item.replica_directory_id != NO_UUID:
                part: Parts = []
                check_uuid(item.replica_directory_id, "FetchRequestPartition.replica_directory_id")
                part.append(_UUID.pack(item.replica_directory_id))
                tagged.append((0, part))
            write_tags(out, tagged)
    except struct.error:
        raise misfit(items, _FETCH_REQUEST_PARTITION_CODES) from None


def _read_fetch_request_topic_v17(data: Buffer, at: int, end: int, count: int) -> tuple[list[FetchRequestTopic], int]:
    items: list[FetchRequestTopic] = []
    for _ in range(count):
        if end - at < 16:
            raise cut_short("FetchRequestTopic.topic_id", at, end, 16)
        (topic_id,) = _UUID.unpack_from(data, at)
        at += 16
        number, at = read_compact_count(data, at, end, 33, "FetchRequestTopic.partitions")
        partitions, at = _read_fetch_request_partition_v17(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "FetchRequestTopic")
        items.append(FetchRequestTopic(topic_id=topic_id, partitions=partitions))
    return items, at


def _write_fetch_request_topic_v17(out: Parts, items: Sequence[FetchRequestTopic]) -> None:
    try:
        for item in items:
            check_uuid(item.topic_id, "FetchRequestTopic.topic_id")
            out.append(_UUID.pack(item.topic_id))
            _write_fetch_request_partition_v17(
                out, write_compact_count(out, item.partitions, "FetchRequestTopic.partitions")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _FETCH_REQUEST_TOPIC_CODES) from None


def _read_fetch_request_v17(data: Buffer, at: int, end: int, count: int) -> tuple[list[FetchRequest], int]:
    items: list[FetchRequest] = []
    for _ in range(count):
        if end - at < 21:
            raise cut_short("FetchRequest.max_wait_ms to session_epoch", at, end, 21)
        max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = (
            _INT32X3_INT8_INT32X2.unpack_from(data, at)
        )
        at += 21
        number, at = read_compact_count(data, at, end, 18, "FetchRequest.topics")
        topics, at = _read_fetch_request_topic_v17(data, at, end, number)
        number, at = read_compact_count(data, at, end, 18, "FetchRequest.forgotten_topics_data")
        forgotten_topics_data, at = _read_fetch_request_forgotten_topic_v13(data, at, end, number)
        rack_id, at = read_compact_string(data, at, end, "FetchRequest.rack_id")
        cluster_id: str | None = None
        replica_state: FetchRequestReplicaState | None = None
        tags, at = read_uvarint(data, at, end, "FetchRequest")
        last = -1
        for _ in range(tags):
            last, at, stop = read_tag(data, at, end, last, "FetchRequest")
            if last == 0:
                cluster_id, at = read_compact_nullable_string(data, at, stop, "FetchRequest.cluster_id")
                check_tag_end(at, stop, "FetchRequest.cluster_id")
            elif last == 1:
                [replica_state], at = _read_fetch_request_replica_state_v15(data, at, stop, 1)
                check_tag_end(at, stop, "FetchRequest.replica_state")
            at = stop
        items.append(
            FetchRequest(
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                isolation_level=isolation_level,
                session_id=session_id,
                session_epoch=session_epoch,
                topics=topics,
                forgotten_topics_data=forgotten_topics_data,
                rack_id=rack_id,
                cluster_id=cluster_id,
                replica_state=replica_state,
            )
        )
    return items, at


def _write_fetch_request_v17(out: Parts, items: Sequence[FetchRequest]) -> None:
    try:
        for item in items:
            if item.replica_id != -1:
                raise unknown_field("FetchRequest.replica_id", item.replica_id)
            out.append(
                _INT32X3_INT8_INT32X2.pack(
                    item.max_wait_ms,
                    item.min_bytes,
                    item.max_bytes,
                    item.isolation_level,
                    item.session_id,
                    item.session_epoch,
                )
            )
            _write_fetch_request_topic_v17(out, write_compact_count(out, item.topics, "FetchRequest.topics"))
            _write_fetch_request_forgotten_topic_v13(
                out, write_compact_count(out, item.forgotten_topics_data, "FetchRequest.forgotten_topics_data")
            )
            write_compact_string(out, item.rack_id, "FetchRequest.rack_id")
            tagged: list[tuple[int, Parts]] = []
            if item.cluster_id is not None:
                part: Parts = []
                write_compact_nullable_string(part, item.cluster_id, "FetchRequest.cluster_id")
                tagged.append((0, part))
            if item.replica_state is not None and item.replica_state != type(item.replica_state)():
                part = []
                _write_fetch_request_replica_state_v15(part, required(item.replica_state, "FetchRequest.replica_state"))
                tagged.append((1, part))
            write_tags(out, tagged)
    except struct.error:
        raise misfit(items, _FETCH_REQUEST_CODES) from None


def _read_fetch_request_partition_v18(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FetchRequestPartition], int]:
    items: list[FetchRequestPartition] = []
    for _ in range(count):
        if end - at < 32:
            raise cut_short("FetchRequestPartition.partition to partition_max_bytes", at, end, 32)
        partition, current_leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset, partition_max_bytes = (
            _INT32X2_INT64_INT32_INT64_INT32.unpack_from(data, at)
        )
        at += 32
        replica_directory_id = NO_UUID
        high_watermark = 9223372036854775807
        tags, at = read_uvarint(data, at, end, "FetchRequestPartition")
        last = -1
        for _ in range(tags):
            last, at, stop = read_tag(data, at, end, last, "FetchRequestPartition")
            if last == 0:
                if stop - at < 16:
                    raise cut_short("FetchRequestPartition.replica_directory_id", at, stop, 16)
                (replica_directory_id,) = _UUID.unpack_from(data, at)
                at += 16
                check_tag_end(at, stop, "FetchRequestPartition.replica_directory_id")
            elif last == 1:
                if stop - at < 8:
                    raise cut_short("FetchRequestPartition.high_watermark", at, stop, 8)
                (high_watermark,) = _INT64.unpack_from(data, at)
                at += 8
                check_tag_end(at, stop, "FetchRequestPartition.high_watermark")
            at = stop
        items.append(
            FetchRequestPartition(
                partition=partition,
                current_leader_epoch=current_leader_epoch,
                fetch_offset=fetch_offset,
                last_fetched_epoch=last_fetched_epoch,
                log_start_offset=log_start_offset,
                partition_max_bytes=partition_max_bytes,
                replica_directory_id=replica_directory_id,
                high_watermark=high_watermark,
            )
        )
    return items, at


def _write_fetch_request_partition_v18(out: Parts, items: Sequence[FetchRequestPartition]) -> None:
    try:
        for item in items:
            out.append(
                _INT32X2_INT64_INT32_INT64_INT32.pack(
                    item.partition,
                    item.current_leader_epoch,
                    item.fetch_offset,
                    item.last_fetched_epoch,
                    item.log_start_offset,
                    item.partition_max_bytes,
                )
            )
            tagged: list[tuple[int, Parts]] = []
            if item.replica_directory_id != NO_UUID:
                part: Parts = []
                check_uuid(item.replica_directory_id, "FetchRequestPartition.replica_directory_id")
                part.append(_UUID.pack(item.replica_directory_id))
                tagged.append((0, part))
            if item.high_watermark != 9223372036854775807:
                part = []
                part.append(_INT64.pack(item.high_watermark))
                tagged.append((1, part))
            write_tags(out, tagged)
    except struct.error:
        raise misfit(items, _FETCH_REQUEST_PARTITION_CODES) from None


def _read_fetch_request_topic_v18(data: Buffer, at: int, end: int, count: int) -> tuple[list[FetchRequestTopic], int]:
    items: list[FetchRequestTopic] = []
    for _ in range(count):
        if end - at < 16:
            raise cut_short("FetchRequestTopic.topic_id", at, end, 16)
        (topic_id,) = _UUID.unpack_from(data, at)
        at += 16
        number, at = read_compact_count(data, at, end, 33, "FetchRequestTopic.partitions")
        partitions, at = _read_fetch_request_partition_v18(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "FetchRequestTopic")
        items.append(FetchRequestTopic(topic_id=topic_id, partitions=partitions))
    return items, at


def _write_fetch_request_topic_v18(out: Parts, items: Sequence[FetchRequestTopic]) -> None:
    try:
        for item in items:
            check_uuid(item.topic_id, "FetchRequestTopic.topic_id")
            out.append(_UUID.pack(item.topic_id))
            _write_fetch_request_partition_v18(
                out, write_compact_count(out, item.partitions, "FetchRequestTopic.partitions")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _FETCH_REQUEST_TOPIC_CODES) from None


def _read_fetch_request_v18(data: Buffer, at: int, end: int, count: int) -> tuple[list[FetchRequest], int]:
    items: list[FetchRequest] = []
    for _ in range(count):
        if end - at < 21:
            raise cut_short("FetchRequest.max_wait_ms to session_epoch", at, end, 21)
        max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = (
            _INT32X3_INT8_INT32X2.unpack_from(data, at)
        )
        at += 21
        number, at = read_compact_count(data, at, end, 18, "FetchRequest.topics")
        topics, at = _read_fetch_request_topic_v18(data, at, end, number)
        number, at = read_compact_count(data, at, end, 18, "FetchRequest.forgotten_topics_data")
        forgotten_topics_data, at = _read_fetch_request_forgotten_topic_v13(data, at, end, number)
        rack_id, at = read_compact_string(data, at, end, "FetchRequest.rack_id")
        cluster_id: str | None = None
        replica_state: FetchRequestReplicaState | None = None
        tags, at = read_uvarint(data, at, end, "FetchRequest")
        last = -1
        for _ in range(tags):
            last, at, stop = read_tag(data, at, end, last, "FetchRequest")
            if last == 0:
                cluster_id, at = read_compact_nullable_string(data, at, stop, "FetchRequest.cluster_id")
                check_tag_end(at, stop, "FetchRequest.cluster_id")
            elif last == 1:
                [replica_state], at = _read_fetch_request_replica_state_v15(data, at, stop, 1)
                check_tag_end(at, stop, "FetchRequest.replica_state")
            at = stop
        items.append(
            FetchRequest(
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                isolation_level=isolation_level,
                session_id=session_id,
                session_epoch=session_epoch,
                topics=topics,
                forgotten_topics_data=forgotten_topics_data,
                rack_id=rack_id,
                cluster_id=cluster_id,
                replica_state=replica_state,
            )
        )
    return items, at


def _write_fetch_request_v18(out: Parts, items: Sequence[FetchRequest]) -> None:
    try:
        for item in items:
            if item.replica_id != -1:
                raise unknown_field("FetchRequest.replica_id", item.replica_id)
            out.append(
                _INT32X3_INT8_INT32X2.pack(
                    item.max_wait_ms,
                    item.min_bytes,
                    item.max_bytes,
                    item.isolation_level,
                    item.session_id,
                    item.session_epoch,
                )
            )
            _write_fetch_request_topic_v18(out, write_compact_count(out, item.topics, "FetchRequest.topics"))
            _write_fetch_request_forgotten_topic_v13(
                out, write_compact_count(out, item.forgotten_topics_data, "FetchRequest.forgotten_topics_data")
            )
            write_compact_string(out, item.rack_id, "FetchRequest.rack_id")
            tagged: list[tuple[int, Parts]] = []
            if item.cluster_id is not None:
                part: Parts = []
                write_compact_nullable_string(part, item.cluster_id, "FetchRequest.cluster_id")
                tagged.append((0, part))
            if item.replica_state is not None and item.replica_state != type(item.replica_state)():
                part = []
                _write_fetch_request_replica_state_v15(part, required(item.replica_state, "FetchRequest.replica_state"))
                tagged.append((1, part))
            write_tags(out, tagged)
    except struct.error:
        raise misfit(items, _FETCH_REQUEST_CODES) from None


REQUEST: Final = MessageCodec(
    FetchRequest,
    {
        4: (_read_fetch_request_v4, _write_fetch_request_v4),
        5: (_read_fetch_request_v5, _write_fetch_request_v5),
        6: (_read_fetch_request_v5, _write_fetch_request_v5),
        7: (_read_fetch_request_v7, _write_fetch_request_v7),
        8: (_read_fetch_request_v7, _write_fetch_request_v7),
        9: (_read_fetch_request_v9, _write_fetch_request_v9),
        10: (_read_fetch_request_v9, _write_fetch_request_v9),
        11: (_read_fetch_request_v11, _write_fetch_request_v11),
        12: (_read_fetch_request_v12, _write_fetch_request_v12),
        13: (_read_fetch_request_v13, _write_fetch_request_v13),
        14: (_read_fetch_request_v13, _write_fetch_request_v13),
        15: (_read_fetch_request_v15, _write_fetch_request_v15),
        16: (_read_fetch_request_v15, _write_fetch_request_v15),
        17: (_read_fetch_request_v17, _write_fetch_request_v17),
        18: (_read_fetch_request_v18, _write_fetch_request_v18),
    },
)


class FetchResponseNodeEndpoint(msgspec.Struct, kw_only=True, gc=False):
    """Endpoints for all current-leaders enumerated in PartitionData, with errors NOT_LEADER_OR_FOLLOWER &
    FENCED_LEADER_EPOCH."""

    node_id: int = 0
    """The ID of the associated node. (int32, versions 16 to 18)"""
    host: str = ""
    """The node's hostname. (string, versions 16 to 18)"""
    port: int = 0
    """The node's port. (int32, versions 16 to 18)"""
    rack: str | None = None
    """The rack of the node, or null if it has not been assigned to a rack. (string, versions 16 to 18)"""


class FetchResponseAbortedTransaction(msgspec.Struct, kw_only=True, gc=False):
    """The aborted transactions."""

    producer_id: int = 0
    """The producer id associated with the aborted transaction. (int64)"""
    first_offset: int = 0
    """The first offset in the aborted transaction. (int64)"""


class FetchResponseSnapshotId(msgspec.Struct, kw_only=True, gc=False):
    """In the case of fetching an offset less than the LogStartOffset, this is the end offset and epoch that should
    be used in the FetchSnapshot request."""

    end_offset: int = -1
    """The end offset of the epoch. (int64)"""
    epoch: int = -1
    """The largest epoch. (int32)"""


class FetchResponseLeaderIdAndEpoch(msgspec.Struct, kw_only=True, gc=False):
    """The current leader of the partition."""

    leader_id: int = -1
    """The ID of the current leader or -1 if the leader is unknown. (int32, versions 12 to 18)"""
    leader_epoch: int = -1
    """The latest known leader epoch. (int32, versions 12 to 18)"""


class FetchResponseEpochEndOffset(msgspec.Struct, kw_only=True, gc=False):
    """In case divergence is detected based on the `LastFetchedEpoch` and `FetchOffset` in the request, this field
    indicates the largest epoch and its end offset such that subsequent records are known to diverge."""

    epoch: int = -1
    """The largest epoch. (int32, versions 12 to 18)"""
    end_offset: int = -1
    """The end offset of the epoch. (int64, versions 12 to 18)"""


class FetchResponsePartitionData(msgspec.Struct, kw_only=True, gc=False):
    """The topic partitions."""

    partition_index: int = 0
    """The partition index. (int32)"""
    error_code: int = 0
    """The error code, or 0 if there was no fetch error. (int16)"""
    high_watermark: int = 0
    """The current high water mark. (int64)"""
    last_stable_offset: int = -1
    """The last stable offset (or LSO) of the partition. This is the last offset such that the state of all
    transactional records prior to this offset have been decided (ABORTED or COMMITTED). (int64)"""
    log_start_offset: int = -1
    """The current log start offset. (int64, versions 5 to 18, ignorable)"""
    diverging_epoch: FetchResponseEpochEndOffset | None = None
    """In case divergence is detected based on the `LastFetchedEpoch` and `FetchOffset` in the request, this field
    indicates the largest epoch and its end offset such that subsequent records are known to diverge. (versions 12
    to 18)"""
    current_leader: FetchResponseLeaderIdAndEpoch | None = None
    """The current leader of the partition. (versions 12 to 18)"""
    snapshot_id: FetchResponseSnapshotId | None = None
    """In the case of fetching an offset less than the LogStartOffset, this is the end offset and epoch that should
    be used in the FetchSnapshot request. (versions 12 to 18)"""
    aborted_transactions: list[FetchResponseAbortedTransaction] | None = []
    """The aborted transactions."""
    preferred_read_replica: int = -1
    """The preferred read replica for the consumer to use on its next fetch request. (int32, versions 11 to 18)"""
    records: Buffer | None = None
    """The record data. (records)"""


class FetchResponseFetchableTopic(msgspec.Struct, kw_only=True, gc=False):
    """The response topics."""

    topic: str = ""
    """The topic name. (string, versions 4 to 12, ignorable)"""
    topic_id: bytes = NO_UUID
    """The unique topic ID. (uuid, versions 13 to 18, ignorable)"""
    partitions: list[FetchResponsePartitionData] = []
    """The topic partitions."""


class FetchResponse(msgspec.Struct, kw_only=True, gc=False):
    """FetchResponse, versions 4 to 18."""

    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32)"""
    error_code: int = 0
    """The top level response error code. (int16, versions 7 to 18, ignorable)"""
    session_id: int = 0
    """The fetch session ID, or 0 if this is not part of a fetch session. (int32, versions 7 to 18)"""
    responses: list[FetchResponseFetchableTopic] = []
    """The response topics."""
    node_endpoints: list[FetchResponseNodeEndpoint] = []
    """Endpoints for all current-leaders enumerated in PartitionData, with errors NOT_LEADER_OR_FOLLOWER &
    FENCED_LEADER_EPOCH. (versions 16 to 18)"""


_FETCH_RESPONSE_CODES: Final = {"throttle_time_ms": "i", "error_code": "h", "session_id": "i"}
_FETCH_RESPONSE_FETCHABLE_TOPIC_CODES: Final = {"topic_id": "16s"}
_FETCH_RESPONSE_PARTITION_DATA_CODES: Final = {
    "partition_index": "i",
    "error_code": "h",
    "high_watermark": "q",
    "last_stable_offset": "q",
    "log_start_offset": "q",
    "preferred_read_replica": "i",
}
_FETCH_RESPONSE_EPOCH_END_OFFSET_CODES: Final = {"epoch": "i", "end_offset": "q"}
_FETCH_RESPONSE_LEADER_ID_AND_EPOCH_CODES: Final = {"leader_id": "i", "leader_epoch": "i"}
_FETCH_RESPONSE_SNAPSHOT_ID_CODES: Final = {"end_offset": "q", "epoch": "i"}
_FETCH_RESPONSE_ABORTED_TRANSACTION_CODES: Final = {"producer_id": "q", "first_offset": "q"}
_FETCH_RESPONSE_NODE_ENDPOINT_CODES: Final = {"node_id": "i", "port": "i"}


def _read_fetch_response_aborted_transaction_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FetchResponseAbortedTransaction], int]:
    items: list[FetchResponseAbortedTransaction] = []
    for _ in range(count):
        if end - at < 16:
            raise cut_short("FetchResponseAbortedTransaction.producer_id to first_offset", at, end, 16)
        producer_id, first_offset = _INT64X2.unpack_from(data, at)
        at += 16
        items.append(FetchResponseAbortedTransaction(producer_id=producer_id, first_offset=first_offset))
    return items, at


def _write_fetch_response_aborted_transaction_v4(out: Parts, items: Sequence[FetchResponseAbortedTransaction]) -> None:
    try:
        for item in items:
            out.append(_INT64X2.pack(item.producer_id, item.first_offset))
    except struct.error:
        raise misfit(items, _FETCH_RESPONSE_ABORTED_TRANSACTION_CODES) from None


def _read_fetch_response_partition_data_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FetchResponsePartitionData], int]:
    items: list[FetchResponsePartitionData] = []
    for _ in range(count):
        if end - at < 22:
            raise cut_short("FetchResponsePartitionData.partition_index to last_stable_offset", at, end, 22)
        partition_index, error_code, high_watermark, last_stable_offset = _INT32_INT16_INT64X2.unpack_from(data, at)
        at += 22
        number, at = read_nullable_count(data, at, end, 16, "FetchResponsePartitionData.aborted_transactions")
        aborted_transactions = None
        if number >= 0:
            aborted_transactions, at = _read_fetch_response_aborted_transaction_v4(data, at, end, number)
        records, at = read_nullable_records(data, at, end, "FetchResponsePartitionData.records")
        items.append(
            FetchResponsePartitionData(
                partition_index=partition_index,
                error_code=error_code,
                high_watermark=high_watermark,
                last_stable_offset=last_stable_offset,
                aborted_transactions=aborted_transactions,
                records=records,
            )
        )
    return items, at


def _write_fetch_response_partition_data_v4(out: Parts, items: Sequence[FetchResponsePartitionData]) -> None:
    try:
        for item in items:
            if item.diverging_epoch is not None and item.diverging_epoch != type(item.diverging_epoch)():
                raise unknown_field("FetchResponsePartitionData.diverging_epoch", item.diverging_epoch)
            if item.current_leader is not None and item.current_leader != type(item.current_leader)():
                raise unknown_field("FetchResponsePartitionData.current_leader", item.current_leader)
            if item.snapshot_id is not None and item.snapshot_id != type(item.snapshot_id)():
                raise unknown_field("FetchResponsePartitionData.snapshot_id", item.snapshot_id)
            if item.preferred_read_replica != -1:
                raise unknown_field("FetchResponsePartitionData.preferred_read_replica", item.preferred_read_replica)
            out.append(
                _INT32_INT16_INT64X2.pack(
                    item.partition_index, item.error_code, item.high_watermark, item.last_stable_offset
                )
            )
            _write_fetch_response_aborted_transaction_v4(
                out,
                write_nullable_count(out, item.aborted_transactions, "FetchResponsePartitionData.aborted_transactions"),
            )
            write_nullable_bytes(out, item.records, "FetchResponsePartitionData.records")
    except struct.error:
        raise misfit(items, _FETCH_RESPONSE_PARTITION_DATA_CODES) from None


def _read_fetch_response_fetchable_topic_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FetchResponseFetchableTopic], int]:
    items: list[FetchResponseFetchableTopic] = []
    for _ in range(count):
        topic, at = read_string(data, at, end, "FetchResponseFetchableTopic.topic")
        number, at = read_count(data, at, end, 30, "FetchResponseFetchableTopic.partitions")
        partitions, at = _read_fetch_response_partition_data_v4(data, at, end, number)
        items.append(FetchResponseFetchableTopic(topic=topic, partitions=partitions))
    return items, at


def _write_fetch_response_fetchable_topic_v4(out: Parts, items: Sequence[FetchResponseFetchableTopic]) -> None:
    for item in items:
        write_string(out, item.topic, "FetchResponseFetchableTopic.topic")
        _write_fetch_response_partition_data_v4(
            out, write_count(out, item.partitions, "FetchResponseFetchableTopic.partitions")
        )


def _read_fetch_response_v4(data: Buffer, at: int, end: int, count: int) -> tuple[list[FetchResponse], int]:
    items: list[FetchResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("FetchResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 6, "FetchResponse.responses")
        responses, at = _read_fetch_response_fetchable_topic_v4(data, at, end, number)
        items.append(FetchResponse(throttle_time_ms=throttle_time_ms, responses=responses))
    return items, at


def _write_fetch_response_v4(out: Parts, items: Sequence[FetchResponse]) -> None:
    try:
        for item in items:
            if item.session_id != 0:
                raise unknown_field("FetchResponse.session_id", item.session_id)
            if item.node_endpoints != []:
                raise unknown_field("FetchResponse.node_endpoints", item.node_endpoints)
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_fetch_response_fetchable_topic_v4(out, write_count(out, item.responses, "FetchResponse.responses"))
    except struct.error:
        raise misfit(items, _FETCH_RESPONSE_CODES) from None


def _read_fetch_response_partition_data_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FetchResponsePartitionData], int]:
    items: list[FetchResponsePartitionData] = []
    for _ in range(count):
        if end - at < 30:
            raise cut_short("FetchResponsePartitionData.partition_index to log_start_offset", at, end, 30)
        partition_index, error_code, high_watermark, last_stable_offset, log_start_offset = (
            _INT32_INT16_INT64X3.unpack_from(data, at)
        )
        at += 30
        number, at = read_nullable_count(data, at, end, 16, "FetchResponsePartitionData.aborted_transactions")
        aborted_transactions = None
        if number >= 0:
            aborted_transactions, at = _read_fetch_response_aborted_transaction_v4(data, at, end, number)
        records, at = read_nullable_records(data, at, end, "FetchResponsePartitionData.records")
        items.append(
            FetchResponsePartitionData(
                partition_index=partition_index,
                error_code=error_code,
                high_watermark=high_watermark,
                last_stable_offset=last_stable_offset,
                log_start_offset=log_start_offset,
                aborted_transactions=aborted_transactions,
                records=records,
            )
        )
    return items, at


def _write_fetch_response_partition_data_v5(out: Parts, items: Sequence[FetchResponsePartitionData]) -> None:
    try:
        for item in items:
            if item.diverging_epoch is not None and item.diverging_epoch != type(item.diverging_epoch)():
                raise unknown_field("FetchResponsePartitionData.diverging_epoch", item.diverging_epoch)
            if item.current_leader is not None and item.current_leader != type(item.current_leader)():
                raise unknown_field("FetchResponsePartitionData.current_leader", item.current_leader)
            if item.snapshot_id is not None and item.snapshot_id != type(item.snapshot_id)():
                raise unknown_field("FetchResponsePartitionData.snapshot_id", item.snapshot_id)
            if item.preferred_read_replica != -1:
                raise unknown_field("FetchResponsePartitionData.preferred_read_replica", item.preferred_read_replica)
            out.append(
                _INT32_INT16_INT64X3.pack(
                    item.partition_index,
                    item.error_code,
                    item.high_watermark,
                    item.last_stable_offset,
                    item.log_start_offset,
                )
            )
            _write_fetch_response_aborted_transaction_v4(
                out,
                write_nullable_count(out, item.aborted_transactions, "FetchResponsePartitionData.aborted_transactions"),
            )
            write_nullable_bytes(out, item.records, "FetchResponsePartitionData.records")
    except struct.error:
        raise misfit(items, _FETCH_RESPONSE_PARTITION_DATA_CODES) from None


def _read_fetch_response_fetchable_topic_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FetchResponseFetchableTopic], int]:
    items: list[FetchResponseFetchableTopic] = []
    for _ in range(count):
        topic, at = read_string(data, at, end, "FetchResponseFetchableTopic.topic")
        number, at = read_count(data, at, end, 38, "FetchResponseFetchableTopic.partitions")
        partitions, at = _read_fetch_response_partition_data_v5(data, at, end, number)
        items.append(FetchResponseFetchableTopic(topic=topic, partitions=partitions))
    return items, at


def _write_fetch_response_fetchable_topic_v5(out: Parts, items: Sequence[FetchResponseFetchableTopic]) -> None:
    for item in items:
        write_string(out, item.topic, "FetchResponseFetchableTopic.topic")
        _write_fetch_response_partition_data_v5(
            out, write_count(out, item.partitions, "FetchResponseFetchableTopic.partitions")
        )


def _read_fetch_response_v5(data: Buffer, at: int, end: int, count: int) -> tuple[list[FetchResponse], int]:
    items: list[FetchResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("FetchResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 6, "FetchResponse.responses")
        responses, at = _read_fetch_response_fetchable_topic_v5(data, at, end, number)
        items.append(FetchResponse(throttle_time_ms=throttle_time_ms, responses=responses))
    return items, at


def _write_fetch_response_v5(out: Parts, items: Sequence[FetchResponse]) -> None:
    try:
        for item in items:
            if item.session_id != 0:
                raise unknown_field("FetchResponse.session_id", item.session_id)
            if item.node_endpoints != []:
                raise unknown_field("FetchResponse.node_endpoints", item.node_endpoints)
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_fetch_response_fetchable_topic_v5(out, write_count(out, item.responses, "FetchResponse.responses"))
    except struct.error:
        raise misfit(items, _FETCH_RESPONSE_CODES) from None


def _read_fetch_response_v7(data: Buffer, at: int, end: int, count: int) -> tuple[list[FetchResponse], int]:
    items: list[FetchResponse] = []
    for _ in range(count):
        if end - at < 10:
            raise cut_short("FetchResponse.throttle_time_ms to session_id", at, end, 10)
        throttle_time_ms, error_code, session_id = _INT32_INT16_INT32.unpack_from(data, at)
        at += 10
        number, at = read_count(data, at, end, 6, "FetchResponse.responses")
        responses, at = _read_fetch_response_fetchable_topic_v5(data, at, end, number)
        items.append(
            FetchResponse(
                throttle_time_ms=throttle_time_ms, error_code=error_code, session_id=session_id, responses=responses
            )
        )
    return items, at


def _write_fetch_response_v7(out: Parts, items: Sequence[FetchResponse]) -> None:
    try:
        for item in items:
            if item.node_endpoints != []:
                raise unknown_field("FetchResponse.node_endpoints", item.node_endpoints)
            out.append(_INT32_INT16_INT32.pack(item.throttle_time_ms, item.error_code, item.session_id))
            _write_fetch_response_fetchable_topic_v5(out, write_count(out, item.responses, "FetchResponse.responses"))
    except struct.error:
        raise misfit(items, _FETCH_RESPONSE_CODES) from None


def _read_fetch_response_partition_data_v11(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FetchResponsePartitionData], int]:
    items: list[FetchResponsePartitionData] = []
    for _ in range(count):
        if end - at < 30:
            raise cut_short("FetchResponsePartitionData.partition_index to log_start_offset", at, end, 30)
        partition_index, error_code, high_watermark, last_stable_offset, log_start_offset = (
            _INT32_INT16_INT64X3.unpack_from(data, at)
        )
        at += 30
        number, at = read_nullable_count(data, at, end, 16, "FetchResponsePartitionData.aborted_transactions")
        aborted_transactions = None
        if number >= 0:
            aborted_transactions, at = _read_fetch_response_aborted_transaction_v4(data, at, end, number)
        if end - at < 4:
            raise cut_short("FetchResponsePartitionData.preferred_read_replica", at, end, 4)
        (preferred_read_replica,) = _INT32.unpack_from(data, at)
        at += 4
        records, at = read_nullable_records(data, at, end, "FetchResponsePartitionData.records")
        items.append(
            FetchResponsePartitionData(
                partition_index=partition_index,
                error_code=error_code,
                high_watermark=high_watermark,
                last_stable_offset=last_stable_offset,
                log_start_offset=log_start_offset,
                aborted_transactions=aborted_transactions,
                preferred_read_replica=preferred_read_replica,
                records=records,
            )
        )
    return items, at


def _write_fetch_response_partition_data_v11(out: Parts, items: Sequence[FetchResponsePartitionData]) -> None:
    try:
        for item in items:
            if item.diverging_epoch is not None and item.diverging_epoch != type(item.diverging_epoch)():
                raise unknown_field("FetchResponsePartitionData.diverging_epoch", item.diverging_epoch)
            if item.current_leader is not None and item.current_leader != type(item.current_leader)():
                raise unknown_field("FetchResponsePartitionData.current_leader", item.current_leader)
            if item.snapshot_id is not None and item.snapshot_id != type(item.snapshot_id)():
                raise unknown_field("FetchResponsePartitionData.snapshot_id", item.snapshot_id)
            out.append(
                _INT32_INT16_INT64X3.pack(
                    item.partition_index,
                    item.error_code,
                    item.high_watermark,
                    item.last_stable_offset,
                    item.log_start_offset,
                )
            )
            _write_fetch_response_aborted_transaction_v4(
                out,
                write_nullable_count(out, item.aborted_transactions, "FetchResponsePartitionData.aborted_transactions"),
            )
            out.append(_INT32.pack(item.preferred_read_replica))
            write_nullable_bytes(out, item.records, "FetchResponsePartitionData.records")
    except struct.error:
        raise misfit(items, _FETCH_RESPONSE_PARTITION_DATA_CODES) from None


def _read_fetch_response_fetchable_topic_v11(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FetchResponseFetchableTopic], int]:
    items: list[FetchResponseFetchableTopic] = []
    for _ in range(count):
        topic, at = read_string(data, at, end, "FetchResponseFetchableTopic.topic")
        number, at = read_count(data, at, end, 42, "FetchResponseFetchableTopic.partitions")
        partitions, at = _read_fetch_response_partition_data_v11(data, at, end, number)
        items.append(FetchResponseFetchableTopic(topic=topic, partitions=partitions))
    return items, at


def _write_fetch_response_fetchable_topic_v11(out: Parts, items: Sequence[FetchResponseFetchableTopic]) -> None:
    for item in items:
        write_string(out, item.topic, "FetchResponseFetchableTopic.topic")
        _write_fetch_response_partition_data_v11(
            out, write_count(out, item.partitions, "FetchResponseFetchableTopic.partitions")
        )


def _read_fetch_response_v11(data: Buffer, at: int, end: int, count: int) -> tuple[list[FetchResponse], int]:
    items: list[FetchResponse] = []
    for _ in range(count):
        if end - at < 10:
            raise cut_short("FetchResponse.throttle_time_ms to session_id", at, end, 10)
        throttle_time_ms, error_code, session_id = _INT32_INT16_INT32.unpack_from(data, at)
        at += 10
        number, at = read_count(data, at, end, 6, "FetchResponse.responses")
        responses, at = _read_fetch_response_fetchable_topic_v11(data, at, end, number)
        items.append(
            FetchResponse(
                throttle_time_ms=throttle_time_ms, error_code=error_code, session_id=session_id, responses=responses
            )
        )
    return items, at


def _write_fetch_response_v11(out: Parts, items: Sequence[FetchResponse]) -> None:
    try:
        for item in items:
            if item.node_endpoints != []:
                raise unknown_field("FetchResponse.node_endpoints", item.node_endpoints)
            out.append(_INT32_INT16_INT32.pack(item.throttle_time_ms, item.error_code, item.session_id))
            _write_fetch_response_fetchable_topic_v11(out, write_count(out, item.responses, "FetchResponse.responses"))
    except struct.error:
        raise misfit(items, _FETCH_RESPONSE_CODES) from None


def _read_fetch_response_aborted_transaction_v12(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FetchResponseAbortedTransaction], int]:
    items: list[FetchResponseAbortedTransaction] = []
    for _ in range(count):
        if end - at < 17:
            raise cut_short("FetchResponseAbortedTransaction.producer_id to first_offset", at, end, 17)
        producer_id, first_offset, tags = _INT64X2_TAGS.unpack_from(data, at)
        at += 17
        if tags:
            at = skip_tags(data, at - 1, end, "FetchResponseAbortedTransaction")
        items.append(FetchResponseAbortedTransaction(producer_id=producer_id, first_offset=first_offset))
    return items, at


def _write_fetch_response_aborted_transaction_v12(out: Parts, items: Sequence[FetchResponseAbortedTransaction]) -> None:
    try:
        for item in items:
            out.append(_INT64X2_TAGS.pack(item.producer_id, item.first_offset, 0))
    except struct.error:
        raise misfit(items, _FETCH_RESPONSE_ABORTED_TRANSACTION_CODES) from None


def _read_fetch_response_epoch_end_offset_v12(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FetchResponseEpochEndOffset], int]:
    items: list[FetchResponseEpochEndOffset] = []
    for _ in range(count):
        if end - at < 13:
            raise cut_short("FetchResponseEpochEndOffset.epoch to end_offset", at, end, 13)
        epoch, end_offset, tags = _INT32_INT64_TAGS.unpack_from(data, at)
        at += 13
        if tags:
            at = skip_tags(data, at - 1, end, "FetchResponseEpochEndOffset")
        items.append(FetchResponseEpochEndOffset(epoch=epoch, end_offset=end_offset))
    return items, at


def _write_fetch_response_epoch_end_offset_v12(out: Parts, items: Sequence[FetchResponseEpochEndOffset]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT64_TAGS.pack(item.epoch, item.end_offset, 0))
    except struct.error:
        raise misfit(items, _FETCH_RESPONSE_EPOCH_END_OFFSET_CODES) from None


def _read_fetch_response_leader_id_and_epoch_v12(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FetchResponseLeaderIdAndEpoch], int]:
    items: list[FetchResponseLeaderIdAndEpoch] = []
    for _ in range(count):
        if end - at < 9:
            raise cut_short("FetchResponseLeaderIdAndEpoch.leader_id to leader_epoch", at, end, 9)
        leader_id, leader_epoch, tags = _INT32X2_TAGS.unpack_from(data, at)
        at += 9
        if tags:
            at = skip_tags(data, at - 1, end, "FetchResponseLeaderIdAndEpoch")
        items.append(FetchResponseLeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch))
    return items, at


def _write_fetch_response_leader_id_and_epoch_v12(out: Parts, items: Sequence[FetchResponseLeaderIdAndEpoch]) -> None:
    try:
        for item in items:
            out.append(_INT32X2_TAGS.pack(item.leader_id, item.leader_epoch, 0))
    except struct.error:
        raise misfit(items, _FETCH_RESPONSE_LEADER_ID_AND_EPOCH_CODES) from None


def _read_fetch_response_snapshot_id_v12(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FetchResponseSnapshotId], int]:
    items: list[FetchResponseSnapshotId] = []
    for _ in range(count):
        if end - at < 13:
            raise cut_short("FetchResponseSnapshotId.end_offset to epoch", at, end, 13)
        end_offset, epoch, tags = _INT64_INT32_TAGS.unpack_from(data, at)
        at += 13
        if tags:
            at = skip_tags(data, at - 1, end, "FetchResponseSnapshotId")
        items.append(FetchResponseSnapshotId(end_offset=end_offset, epoch=epoch))
    return items, at


def _write_fetch_response_snapshot_id_v12(out: Parts, items: Sequence[FetchResponseSnapshotId]) -> None:
    try:
        for item in items:
            out.append(_INT64_INT32_TAGS.pack(item.end_offset, item.epoch, 0))
    except struct.error:
        raise misfit(items, _FETCH_RESPONSE_SNAPSHOT_ID_CODES) from None


def _read_fetch_response_partition_data_v12(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FetchResponsePartitionData], int]:
    items: list[FetchResponsePartitionData] = []
    for _ in range(count):
        if end - at < 30:
            raise cut_short("FetchResponsePartitionData.partition_index to log_start_offset", at, end, 30)
        partition_index, error_code, high_watermark, last_stable_offset, log_start_offset = (
            _INT32_INT16_INT64X3.unpack_from(data, at)
        )
        at += 30
        number, at = read_compact_nullable_count(data, at, end, 17, "FetchResponsePartitionData.aborted_transactions")
        aborted_transactions = None
        if number >= 0:
            aborted_transactions, at = _read_fetch_response_aborted_transaction_v12(data, at, end, number)
        if end - at < 4:
            raise cut_short("FetchResponsePartitionData.preferred_read_replica", at, end, 4)
        (preferred_read_replica,) = _INT32.unpack_from(data, at)
        at += 4
        records, at = read_compact_nullable_records(data, at, end, "FetchResponsePartitionData.records")
        diverging_epoch: FetchResponseEpochEndOffset | None = None
        current_leader: FetchResponseLeaderIdAndEpoch | None = None
        snapshot_id: FetchResponseSnapshotId | None = None
        tags, at = read_uvarint(data, at, end, "FetchResponsePartitionData")
        last = -1
        for _ in range(tags):
            last, at, stop = read_tag(data, at, end, last, "FetchResponsePartitionData")
            if last == 0:
                [diverging_epoch], at = _read_fetch_response_epoch_end_offset_v12(data, at, stop, 1)
                check_tag_end(at, stop, "FetchResponsePartitionData.diverging_epoch")
            elif last == 1:
                [current_leader], at = _read_fetch_response_leader_id_and_epoch_v12(data, at, stop, 1)
                check_tag_end(at, stop, "FetchResponsePartitionData.current_leader")
            elif last == 2:
                [snapshot_id], at = _read_fetch_response_snapshot_id_v12(data, at, stop, 1)
                check_tag_end(at, stop, "FetchResponsePartitionData.snapshot_id")
            at = stop
        items.append(
            FetchResponsePartitionData(
                partition_index=partition_index,
                error_code=error_code,
                high_watermark=high_watermark,
                last_stable_offset=last_stable_offset,
                log_start_offset=log_start_offset,
                aborted_transactions=aborted_transactions,
                preferred_read_replica=preferred_read_replica,
                records=records,
                diverging_epoch=diverging_epoch,
                current_leader=current_leader,
                snapshot_id=snapshot_id,
            )
        )
    return items, at


def _write_fetch_response_partition_data_v12(out: Parts, items: Sequence[FetchResponsePartitionData]) -> None:
    try:
        for item in items:
            out.append(
                _INT32_INT16_INT64X3.pack(
                    item.partition_index,
                    item.error_code,
                    item.high_watermark,
                    item.last_stable_offset,
                    item.log_start_offset,
                )
            )
            _write_fetch_response_aborted_transaction_v12(
                out,
                write_compact_nullable_count(
                    out, item.aborted_transactions, "FetchResponsePartitionData.aborted_transactions"
                ),
            )
            out.append(_INT32.pack(item.preferred_read_replica))
            write_compact_nullable_bytes(out, item.records, "FetchResponsePartitionData.records")
            tagged: list[tuple[int, Parts]] = []
            if item.diverging_epoch is not None and item.diverging_epoch != type(item.diverging_epoch)():
                part: Parts = []
                _write_fetch_response_epoch_end_offset_v12(
                    part, required(item.diverging_epoch, "FetchResponsePartitionData.diverging_epoch")
                )
                tagged.append((0, part))
            if item.current_leader is not None and item.current_leader != type(item.current_leader)():
                part = []
                _write_fetch_response_leader_id_and_epoch_v12(
                    part, required(item.current_leader, "FetchResponsePartitionData.current_leader")
                )
                tagged.append((1, part))
            if item.snapshot_id is not None and item.snapshot_id != type(item.snapshot_id)():
                part = []
                _write_fetch_response_snapshot_id_v12(
                    part, required(item.snapshot_id, "FetchResponsePartitionData.snapshot_id")
                )
                tagged.append((2, part))
            write_tags(out, tagged)
    except struct.error:
        raise misfit(items, _FETCH_RESPONSE_PARTITION_DATA_CODES) from None


def _read_fetch_response_fetchable_topic_v12(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FetchResponseFetchableTopic], int]:
    items: list[FetchResponseFetchableTopic] = []
    for _ in range(count):
        topic, at = read_compact_string(data, at, end, "FetchResponseFetchableTopic.topic")
        number, at = read_compact_count(data, at, end, 37, "FetchResponseFetchableTopic.partitions")
        partitions, at = _read_fetch_response_partition_data_v12(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "FetchResponseFetchableTopic")
        items.append(FetchResponseFetchableTopic(topic=topic, partitions=partitions))
    return items, at


def _write_fetch_response_fetchable_topic_v12(out: Parts, items: Sequence[FetchResponseFetchableTopic]) -> None:
    for item in items:
        write_compact_string(out, item.topic, "FetchResponseFetchableTopic.topic")
        _write_fetch_response_partition_data_v12(
            out, write_compact_count(out, item.partitions, "FetchResponseFetchableTopic.partitions")
        )
        out.append(NO_TAGS)


def _read_fetch_response_v12(data: Buffer, at: int, end: int, count: int) -> tuple[list[FetchResponse], int]:
    items: list[FetchResponse] = []
    for _ in range(count):
        if end - at < 10:
            raise cut_short("FetchResponse.throttle_time_ms to session_id", at, end, 10)
        throttle_time_ms, error_code, session_id = _INT32_INT16_INT32.unpack_from(data, at)
        at += 10
        number, at = read_compact_count(data, at, end, 3, "FetchResponse.responses")
        responses, at = _read_fetch_response_fetchable_topic_v12(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "FetchResponse")
        items.append(
            FetchResponse(
                throttle_time_ms=throttle_time_ms, error_code=error_code, session_id=session_id, responses=responses
            )
        )
    return items, at


def _write_fetch_response_v12(out: Parts, items: Sequence[FetchResponse]) -> None:
    try:
        for item in items:
            if item.node_endpoints != []:
                raise unknown_field("FetchResponse.node_endpoints", item.node_endpoints)
            out.append(_INT32_INT16_INT32.pack(item.throttle_time_ms, item.error_code, item.session_id))
            _write_fetch_response_fetchable_topic_v12(
                out, write_compact_count(out, item.responses, "FetchResponse.responses")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _FETCH_RESPONSE_CODES) from None


def _read_fetch_response_fetchable_topic_v13(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FetchResponseFetchableTopic], int]:
    items: list[FetchResponseFetchableTopic] = []
    for _ in range(count):
        if end - at < 16:
            raise cut_short("FetchResponseFetchableTopic.topic_id", at, end, 16)
        (topic_id,) = _UUID.unpack_from(data, at)
        at += 16
        number, at = read_compact_count(data, at, end, 37, "FetchResponseFetchableTopic.partitions")
        partitions, at = _read_fetch_response_partition_data_v12(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "FetchResponseFetchableTopic")
        items.append(FetchResponseFetchableTopic(topic_id=topic_id, partitions=partitions))
    return items, at


def _write_fetch_response_fetchable_topic_v13(out: Parts, items: Sequence[FetchResponseFetchableTopic]) -> None:
    try:
        for item in items:
            check_uuid(item.topic_id, "FetchResponseFetchableTopic.topic_id")
            out.append(_UUID.pack(item.topic_id))
            _write_fetch_response_partition_data_v12(
                out, write_compact_count(out, item.partitions, "FetchResponseFetchableTopic.partitions")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _FETCH_RESPONSE_FETCHABLE_TOPIC_CODES) from None


def _read_fetch_response_v13(data: Buffer, at: int, end: int, count: int) -> tuple[list[FetchResponse], int]:
    items: list[FetchResponse] = []
    for _ in range(count):
        if end - at < 10:
            raise cut_short("FetchResponse.throttle_time_ms to session_id", at, end, 10)
        throttle_time_ms, error_code, session_id = _INT32_INT16_INT32.unpack_from(data, at)
        at += 10
        number, at = read_compact_count(data, at, end, 18, "FetchResponse.responses")
        responses, at = _read_fetch_response_fetchable_topic_v13(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "FetchResponse")
        items.append(
            FetchResponse(
                throttle_time_ms=throttle_time_ms, error_code=error_code, session_id=session_id, responses=responses
            )
        )
    return items, at


def _write_fetch_response_v13(out: Parts, items: Sequence[FetchResponse]) -> None:
    try:
        for item in items:
            if item.node_endpoints != []:
                raise unknown_field("FetchResponse.node_endpoints", item.node_endpoints)
            out.append(_INT32_INT16_INT32.pack(item.throttle_time_ms, item.error_code, item.session_id))
            _write_fetch_response_fetchable_topic_v13(
                out, write_compact_count(out, item.responses, "FetchResponse.responses")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _FETCH_RESPONSE_CODES) from None


def _read_fetch_response_node_endpoint_v16(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[FetchResponseNodeEndpoint], int]:
    items: list[FetchResponseNodeEndpoint] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("FetchResponseNodeEndpoint.node_id", at, end, 4)
        (node_id,) = _INT32.unpack_from(data, at)
        at += 4
        host, at = read_compact_string(data, at, end, "FetchResponseNodeEndpoint.host")
        if end - at < 4:
            raise cut_short("FetchResponseNodeEndpoint.port", at, end, 4)
        (port,) = _INT32.unpack_from(data, at)
        at += 4
        rack, at = read_compact_nullable_string(data, at, end, "FetchResponseNodeEndpoint.rack")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "FetchResponseNodeEndpoint")
        items.append(FetchResponseNodeEndpoint(node_id=node_id, host=host, port=port, rack=rack))
    return items, at


def _write_fetch_response_node_endpoint_v16(out: Parts, items: Sequence[FetchResponseNodeEndpoint]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.node_id))
            write_compact_string(out, item.host, "FetchResponseNodeEndpoint.host")
            out.append(_INT32.pack(item.port))
            write_compact_nullable_string(out, item.rack, "FetchResponseNodeEndpoint.rack")
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _FETCH_RESPONSE_NODE_ENDPOINT_CODES) from None


def _read_fetch_response_v16(data: Buffer, at: int, end: int, count: int) -> tuple[list[FetchResponse], int]:
    items: list[FetchResponse] = []
    for _ in range(count):
        if end - at < 10:
            raise cut_short("FetchResponse.throttle_time_ms to session_id", at, end, 10)
        throttle_time_ms, error_code, session_id = _INT32_INT16_INT32.unpack_from(data, at)
        at += 10
        number, at = read_compact_count(data, at, end, 18, "FetchResponse.responses")
        responses, at = _read_fetch_response_fetchable_topic_v13(data, at, end, number)
        node_endpoints: list[FetchResponseNodeEndpoint] = []
        tags, at = read_uvarint(data, at, end, "FetchResponse")
        last = -1
        for _ in range(tags):
            last, at, stop = read_tag(data, at, end, last, "FetchResponse")
            if last == 0:
                number, at = read_compact_count(data, at, stop, 11, "FetchResponse.node_endpoints")
                node_endpoints, at = _read_fetch_response_node_endpoint_v16(data, at, stop, number)
                check_tag_end(at, stop, "FetchResponse.node_endpoints")
            at = stop
        items.append(
            FetchResponse(
                throttle_time_ms=throttle_time_ms,
                error_code=error_code,
                session_id=session_id,
                responses=responses,
                node_endpoints=node_endpoints,
            )
        )
    return items, at


def _write_fetch_response_v16(out: Parts, items: Sequence[FetchResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT16_INT32.pack(item.throttle_time_ms, item.error_code, item.session_id))
            _write_fetch_response_fetchable_topic_v13(
                out, write_compact_count(out, item.responses, "FetchResponse.responses")
            )
            tagged: list[tuple[int, Parts]] = []
            if item.node_endpoints != []:
                part: Parts = []
                _write_fetch_response_node_endpoint_v16(
                    part, write_compact_count(part, item.node_endpoints, "FetchResponse.node_endpoints")
                )
                tagged.append((0, part))
            write_tags(out, tagged)
    except struct.error:
        raise misfit(items, _FETCH_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    FetchResponse,
    {
        4: (_read_fetch_response_v4, _write_fetch_response_v4),
        5: (_read_fetch_response_v5, _write_fetch_response_v5),
        6: (_read_fetch_response_v5, _write_fetch_response_v5),
        7: (_read_fetch_response_v7, _write_fetch_response_v7),
        8: (_read_fetch_response_v7, _write_fetch_response_v7),
        9: (_read_fetch_response_v7, _write_fetch_response_v7),
        10: (_read_fetch_response_v7, _write_fetch_response_v7),
        11: (_read_fetch_response_v11, _write_fetch_response_v11),
        12: (_read_fetch_response_v12, _write_fetch_response_v12),
        13: (_read_fetch_response_v13, _write_fetch_response_v13),
        14: (_read_fetch_response_v13, _write_fetch_response_v13),
        15: (_read_fetch_response_v13, _write_fetch_response_v13),
        16: (_read_fetch_response_v16, _write_fetch_response_v16),
        17: (_read_fetch_response_v16, _write_fetch_response_v16),
        18: (_read_fetch_response_v16, _write_fetch_response_v16),
    },
)
