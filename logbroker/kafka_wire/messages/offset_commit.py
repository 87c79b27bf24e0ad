"""OffsetCommit, API key 8.

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
    read_compact_nullable_string,
    read_compact_string,
    read_count,
    read_nullable_string,
    read_string,
    skip_tags,
    unknown_field,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
    write_count,
    write_nullable_string,
    write_string,
)

_UUID: Final = struct.Struct(">16s")
_INT32: Final = struct.Struct(">i")
_INT32_INT16: Final = struct.Struct(">ih")
_INT32_INT16_TAGS: Final = struct.Struct(">ihB")
_INT32_INT64: Final = struct.Struct(">iq")
_INT32_INT64_INT32: Final = struct.Struct(">iqi")
_INT64: Final = struct.Struct(">q")


class OffsetCommitRequestPartition(msgspec.Struct, kw_only=True, gc=False):
    """Each partition to commit offsets for."""

    partition_index: int = 0
    """The partition index. (int32)"""
    committed_offset: int = 0
    """The message offset to be committed. (int64)"""
    committed_leader_epoch: int = -1
    """The leader epoch of this partition. (int32, versions 6 to 10, ignorable)"""
    committed_metadata: str | None = ""
    """Any associated metadata the client wants to keep. (string)"""


class OffsetCommitRequestTopic(msgspec.Struct, kw_only=True, gc=False):
    """The topics to commit offsets for."""

    name: str = ""
    """The topic name. (string, versions 2 to 9, ignorable)"""
    topic_id: bytes = NO_UUID
    """The topic ID. (uuid, version 10, ignorable)"""
    partitions: list[OffsetCommitRequestPartition] = []
    """Each partition to commit offsets for."""


class OffsetCommitRequest(msgspec.Struct, kw_only=True, gc=False):
    """OffsetCommitRequest, versions 2 to 10."""

    group_id: str = ""
    """The unique group identifier. (string)"""
    generation_id_or_member_epoch: int = -1
    """The generation of the group if using the classic group protocol or the member epoch if using the consumer
    protocol. (int32)"""
    member_id: str = ""
    """The member ID assigned by the group coordinator. (string)"""
    group_instance_id: str | None = None
    """The unique identifier of the consumer instance provided by end user. (string, versions 7 to 10)"""
    retention_time_ms: int = -1
    """The time period in ms to retain the offset. (int64, versions 2 to 4, ignorable)"""
    topics: list[OffsetCommitRequestTopic] = []
    """The topics to commit offsets for."""


_OFFSET_COMMIT_REQUEST_CODES: Final = {"generation_id_or_member_epoch": "i", "retention_time_ms": "q"}
_OFFSET_COMMIT_REQUEST_TOPIC_CODES: Final = {"topic_id": "16s"}
_OFFSET_COMMIT_REQUEST_PARTITION_CODES: Final = {
    "partition_index": "i",
    "committed_offset": "q",
    "committed_leader_epoch": "i",
}


def _read_offset_commit_request_partition_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetCommitRequestPartition], int]:
    items: list[OffsetCommitRequestPartition] = []
    for _ in range(count):
        if end - at < 12:
            raise cut_short("OffsetCommitRequestPartition.partition_index to committed_offset", at, end, 12)
        partition_index, committed_offset = _INT32_INT64.unpack_from(data, at)
        at += 12
        committed_metadata, at = read_nullable_string(data, at, end, "OffsetCommitRequestPartition.committed_metadata")
        items.append(
            OffsetCommitRequestPartition(
                partition_index=partition_index,
                committed_offset=committed_offset,
                committed_metadata=committed_metadata,
            )
        )
    return items, at


def _write_offset_commit_request_partition_v2(out: Parts, items: Sequence[OffsetCommitRequestPartition]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT64.pack(item.partition_index, item.committed_offset))
            write_nullable_string(out, item.committed_metadata, "OffsetCommitRequestPartition.committed_metadata")
    except struct.error:
        raise misfit(items, _OFFSET_COMMIT_REQUEST_PARTITION_CODES) from None


def _read_offset_commit_request_topic_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetCommitRequestTopic], int]:
    items: list[OffsetCommitRequestTopic] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "OffsetCommitRequestTopic.name")
        number, at = read_count(data, at, end, 14, "OffsetCommitRequestTopic.partitions")
        partitions, at = _read_offset_commit_request_partition_v2(data, at, end, number)
        items.append(OffsetCommitRequestTopic(name=name, partitions=partitions))
    return items, at


def _write_offset_commit_request_topic_v2(out: Parts, items: Sequence[OffsetCommitRequestTopic]) -> None:
    for item in items:
        write_string(out, item.name, "OffsetCommitRequestTopic.name")
        _write_offset_commit_request_partition_v2(
            out, write_count(out, item.partitions, "OffsetCommitRequestTopic.partitions")
        )


def _read_offset_commit_request_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetCommitRequest], int]:
    items: list[OffsetCommitRequest] = []
    for _ in range(count):
        group_id, at = read_string(data, at, end, "OffsetCommitRequest.group_id")
        if end - at < 4:
            raise cut_short("OffsetCommitRequest.generation_id_or_member_epoch", at, end, 4)
        (generation_id_or_member_epoch,) = _INT32.unpack_from(data, at)
        at += 4
        member_id, at = read_string(data, at, end, "OffsetCommitRequest.member_id")
        if end - at < 8:
            raise cut_short("OffsetCommitRequest.retention_time_ms", at, end, 8)
        (retention_time_ms,) = _INT64.unpack_from(data, at)
        at += 8
        number, at = read_count(data, at, end, 6, "OffsetCommitRequest.topics")
        topics, at = _read_offset_commit_request_topic_v2(data, at, end, number)
        items.append(
            OffsetCommitRequest(
                group_id=group_id,
                generation_id_or_member_epoch=generation_id_or_member_epoch,
                member_id=member_id,
                retention_time_ms=retention_time_ms,
                topics=topics,
            )
        )
    return items, at


def _write_offset_commit_request_v2(out: Parts, items: Sequence[OffsetCommitRequest]) -> None:
    try:
        for item in items:
            if item.group_instance_id is not None:
                raise unknown_field("OffsetCommitRequest.group_instance_id", item.group_instance_id)
            write_string(out, item.group_id, "OffsetCommitRequest.group_id")
            out.append(_INT32.pack(item.generation_id_or_member_epoch))
            write_string(out, item.member_id, "OffsetCommitRequest.member_id")
            out.append(_INT64.pack(item.retention_time_ms))
            _write_offset_commit_request_topic_v2(out, write_count(out, item.topics, "OffsetCommitRequest.topics"))
    except struct.error:
        raise misfit(items, _OFFSET_COMMIT_REQUEST_CODES) from None


def _read_offset_commit_request_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetCommitRequest], int]:
    items: list[OffsetCommitRequest] = []
    for _ in range(count):
        group_id, at = read_string(data, at, end, "OffsetCommitRequest.group_id")
        if end - at < 4:
            raise cut_short("OffsetCommitRequest.generation_id_or_member_epoch", at, end, 4)
        (generation_id_or_member_epoch,) = _INT32.unpack_from(data, at)
        at += 4
        member_id, at = read_string(data, at, end, "OffsetCommitRequest.member_id")
        number, at = read_count(data, at, end, 6, "OffsetCommitRequest.topics")
        topics, at = _read_offset_commit_request_topic_v2(data, at, end, number)
        items.append(
            OffsetCommitRequest(
                group_id=group_id,
                generation_id_or_member_epoch=generation_id_or_member_epoch,
                member_id=member_id,
                topics=topics,
            )
        )
    return items, at


def _write_offset_commit_request_v5(out: Parts, items: Sequence[OffsetCommitRequest]) -> None:
    try:
        for item in items:
            if item.group_instance_id is not None:
                raise unknown_field("OffsetCommitRequest.group_instance_id", item.group_instance_id)
            write_string(out, item.group_id, "OffsetCommitRequest.group_id")
            out.append(_INT32.pack(item.generation_id_or_member_epoch))
            write_string(out, item.member_id, "OffsetCommitRequest.member_id")
            _write_offset_commit_request_topic_v2(out, write_count(out, item.topics, "OffsetCommitRequest.topics"))
    except struct.error:
        raise misfit(items, _OFFSET_COMMIT_REQUEST_CODES) from None


def _read_offset_commit_request_partition_v6(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetCommitRequestPartition], int]:
    items: list[OffsetCommitRequestPartition] = []
    for _ in range(count):
        if end - at < 16:
            raise cut_short("OffsetCommitRequestPartition.partition_index to committed_leader_epoch", at, end, 16)
        partition_index, committed_offset, committed_leader_epoch = _INT32_INT64_INT32.unpack_from(data, at)
        at += 16
        committed_metadata, at = read_nullable_string(data, at, end, "OffsetCommitRequestPartition.committed_metadata")
        items.append(
            OffsetCommitRequestPartition(
                partition_index=partition_index,
                committed_offset=committed_offset,
                committed_leader_epoch=committed_leader_epoch,
                committed_metadata=committed_metadata,
            )
        )
    return items, at


def _write_offset_commit_request_partition_v6(out: Parts, items: Sequence[OffsetCommitRequestPartition]) -> None:
    try:
        for item in items:
            out.append(
                _INT32_INT64_INT32.pack(item.partition_index, item.committed_offset, item.committed_leader_epoch)
            )
            write_nullable_string(out, item.committed_metadata, "OffsetCommitRequestPartition.committed_metadata")
    except struct.error:
        raise misfit(items, _OFFSET_COMMIT_REQUEST_PARTITION_CODES) from None


def _read_offset_commit_request_topic_v6(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetCommitRequestTopic], int]:
    items: list[OffsetCommitRequestTopic] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "OffsetCommitRequestTopic.name")
        number, at = read_count(data, at, end, 18, "OffsetCommitRequestTopic.partitions")
        partitions, at = _read_offset_commit_request_partition_v6(data, at, end, number)
        items.append(OffsetCommitRequestTopic(name=name, partitions=partitions))
    return items, at


def _write_offset_commit_request_topic_v6(out: Parts, items: Sequence[OffsetCommitRequestTopic]) -> None:
    for item in items:
        write_string(out, item.name, "OffsetCommitRequestTopic.name")
        _write_offset_commit_request_partition_v6(
            out, write_count(out, item.partitions, "OffsetCommitRequestTopic.partitions")
        )


def _read_offset_commit_request_v6(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetCommitRequest], int]:
    items: list[OffsetCommitRequest] = []
    for _ in range(count):
        group_id, at = read_string(data, at, end, "OffsetCommitRequest.group_id")
        if end - at < 4:
            raise cut_short("OffsetCommitRequest.generation_id_or_member_epoch", at, end, 4)
        (generation_id_or_member_epoch,) = _INT32.unpack_from(data, at)
        at += 4
        member_id, at = read_string(data, at, end, "OffsetCommitRequest.member_id")
        number, at = read_count(data, at, end, 6, "OffsetCommitRequest.topics")
        topics, at = _read_offset_commit_request_topic_v6(data, at, end, number)
        items.append(
            OffsetCommitRequest(
                group_id=group_id,
                generation_id_or_member_epoch=generation_id_or_member_epoch,
                member_id=member_id,
                topics=topics,
            )
        )
    return items, at


def _write_offset_commit_request_v6(out: Parts, items: Sequence[OffsetCommitRequest]) -> None:
    try:
        for item in items:
            if item.group_instance_id is not None:
                raise unknown_field("OffsetCommitRequest.group_instance_id", item.group_instance_id)
            write_string(out, item.group_id, "OffsetCommitRequest.group_id")
            out.append(_INT32.pack(item.generation_id_or_member_epoch))
            write_string(out, item.member_id, "OffsetCommitRequest.member_id")
            _write_offset_commit_request_topic_v6(out, write_count(out, item.topics, "OffsetCommitRequest.topics"))
    except struct.error:
        raise misfit(items, _OFFSET_COMMIT_REQUEST_CODES) from None


def _read_offset_commit_request_v7(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetCommitRequest], int]:
    items: list[OffsetCommitRequest] = []
    for _ in range(count):
        group_id, at = read_string(data, at, end, "OffsetCommitRequest.group_id")
        if end - at < 4:
            raise cut_short("OffsetCommitRequest.generation_id_or_member_epoch", at, end, 4)
        (generation_id_or_member_epoch,) = _INT32.unpack_from(data, at)
        at += 4
        member_id, at = read_string(data, at, end, "OffsetCommitRequest.member_id")
        group_instance_id, at = read_nullable_string(data, at, end, "OffsetCommitRequest.group_instance_id")
        number, at = read_count(data, at, end, 6, "OffsetCommitRequest.topics")
        topics, at = _read_offset_commit_request_topic_v6(data, at, end, number)
        items.append(
            OffsetCommitRequest(
                group_id=group_id,
                generation_id_or_member_epoch=generation_id_or_member_epoch,
                member_id=member_id,
                group_instance_id=group_instance_id,
                topics=topics,
            )
        )
    return items, at


def _write_offset_commit_request_v7(out: Parts, items: Sequence[OffsetCommitRequest]) -> None:
    try:
        for item in items:
            write_string(out, item.group_id, "OffsetCommitRequest.group_id")
            out.append(_INT32.pack(item.generation_id_or_member_epoch))
            write_string(out, item.member_id, "OffsetCommitRequest.member_id")
            write_nullable_string(out, item.group_instance_id, "OffsetCommitRequest.group_instance_id")
            _write_offset_commit_request_topic_v6(out, write_count(out, item.topics, "OffsetCommitRequest.topics"))
    except struct.error:
        raise misfit(items, _OFFSET_COMMIT_REQUEST_CODES) from None


def _read_offset_commit_request_partition_v8(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetCommitRequestPartition], int]:
    items: list[OffsetCommitRequestPartition] = []
    for _ in range(count):
        if end - at < 16:
            raise cut_short("OffsetCommitRequestPartition.partition_index to committed_leader_epoch", at, end, 16)
        partition_index, committed_offset, committed_leader_epoch = _INT32_INT64_INT32.unpack_from(data, at)
        at += 16
        committed_metadata, at = read_compact_nullable_string(
            data, at, end, "OffsetCommitRequestPartition.committed_metadata"
        )
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "OffsetCommitRequestPartition")
        items.append(
            OffsetCommitRequestPartition(
                partition_index=partition_index,
                committed_offset=committed_offset,
                committed_leader_epoch=committed_leader_epoch,
                committed_metadata=committed_metadata,
            )
        )
    return items, at


def _write_offset_commit_request_partition_v8(out: Parts, items: Sequence[OffsetCommitRequestPartition]) -> None:
    try:
        for item in items:
            out.append(
                _INT32_INT64_INT32.pack(item.partition_index, item.committed_offset, item.committed_leader_epoch)
            )
            write_compact_nullable_string(
                out, item.committed_metadata, "OffsetCommitRequestPartition.committed_metadata"
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _OFFSET_COMMIT_REQUEST_PARTITION_CODES) from None


def _read_offset_commit_request_topic_v8(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetCommitRequestTopic], int]:
    items: list[OffsetCommitRequestTopic] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "OffsetCommitRequestTopic.name")
        number, at = read_compact_count(data, at, end, 18, "OffsetCommitRequestTopic.partitions")
        partitions, at = _read_offset_commit_request_partition_v8(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "OffsetCommitRequestTopic")
        items.append(OffsetCommitRequestTopic(name=name, partitions=partitions))
    return items, at


def _write_offset_commit_request_topic_v8(out: Parts, items: Sequence[OffsetCommitRequestTopic]) -> None:
    for item in items:
        write_compact_string(out, item.name, "OffsetCommitRequestTopic.name")
        _write_offset_commit_request_partition_v8(
            out, write_compact_count(out, item.partitions, "OffsetCommitRequestTopic.partitions")
        )
        out.append(NO_TAGS)


def _read_offset_commit_request_v8(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetCommitRequest], int]:
    items: list[OffsetCommitRequest] = []
    for _ in range(count):
        group_id, at = read_compact_string(data, at, end, "OffsetCommitRequest.group_id")
        if end - at < 4:
            raise cut_short("OffsetCommitRequest.generation_id_or_member_epoch", at, end, 4)
        (generation_id_or_member_epoch,) = _INT32.unpack_from(data, at)
        at += 4
        member_id, at = read_compact_string(data, at, end, "OffsetCommitRequest.member_id")
        group_instance_id, at = read_compact_nullable_string(data, at, end, "OffsetCommitRequest.group_instance_id")
        number, at = read_compact_count(data, at, end, 3, "OffsetCommitRequest.topics")
        topics, at = _read_offset_commit_request_topic_v8(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "OffsetCommitRequest")
        items.append(
            OffsetCommitRequest(
                group_id=group_id,
                generation_id_or_member_epoch=generation_id_or_member_epoch,
                member_id=member_id,
                group_instance_id=group_instance_id,
                topics=topics,
            )
        )
    return items, at


def _write_offset_commit_request_v8(out: Parts, items: Sequence[OffsetCommitRequest]) -> None:
    try:
        for item in items:
            write_compact_string(out, item.group_id, "OffsetCommitRequest.group_id")
            out.append(_INT32.pack(item.generation_id_or_member_epoch))
            write_compact_string(out, item.member_id, "OffsetCommitRequest.member_id")
            write_compact_nullable_string(out, item.group_instance_id, "OffsetCommitRequest.group_instance_id")
            _write_offset_commit_request_topic_v8(
                out, write_compact_count(out, item.topics, "OffsetCommitRequest.topics")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _OFFSET_COMMIT_REQUEST_CODES) from None


def _read_offset_commit_request_topic_v10(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetCommitRequestTopic], int]:
    items: list[OffsetCommitRequestTopic] = []
    for _ in range(count):
        if end - at < 16:
            raise cut_short("OffsetCommitRequestTopic.topic_id", at, end, 16)
        (topic_id,) = _UUID.unpack_from(data, at)
        at += 16
        number, at = read_compact_count(data, at, end, 18, "OffsetCommitRequestTopic.partitions")
        partitions, at = _read_offset_commit_request_partition_v8(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "OffsetCommitRequestTopic")
        items.append(OffsetCommitRequestTopic(topic_id=topic_id, partitions=partitions))
    return items, at


def _write_offset_commit_request_topic_v10(out: Parts, items: Sequence[OffsetCommitRequestTopic]) -> None:
    try:
        for item in items:
            check_uuid(item.topic_id, "OffsetCommitRequestTopic.topic_id")
            out.append(_UUID.pack(item.topic_id))
            _write_offset_commit_request_partition_v8(
                out, write_compact_count(out, item.partitions, "OffsetCommitRequestTopic.partitions")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _OFFSET_COMMIT_REQUEST_TOPIC_CODES) from None


def _read_offset_commit_request_v10(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetCommitRequest], int]:
    items: list[OffsetCommitRequest] = []
    for _ in range(count):
        group_id, at = read_compact_string(data, at, end, "OffsetCommitRequest.group_id")
        if end - at < 4:
            raise cut_short("OffsetCommitRequest.generation_id_or_member_epoch", at, end, 4)
        (generation_id_or_member_epoch,) = _INT32.unpack_from(data, at)
        at += 4
        member_id, at = read_compact_string(data, at, end, "OffsetCommitRequest.member_id")
        group_instance_id, at = read_compact_nullable_string(data, at, end, "OffsetCommitRequest.group_instance_id")
        number, at = read_compact_count(data, at, end, 18, "OffsetCommitRequest.topics")
        topics, at = _read_offset_commit_request_topic_v10(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "OffsetCommitRequest")
        items.append(
            OffsetCommitRequest(
                group_id=group_id,
                generation_id_or_member_epoch=generation_id_or_member_epoch,
                member_id=member_id,
                group_instance_id=group_instance_id,
                topics=topics,
            )
        )
    return items, at


def _write_offset_commit_request_v10(out: Parts, items: Sequence[OffsetCommitRequest]) -> None:
    try:
        for item in items:
            write_compact_string(out, item.group_id, "OffsetCommitRequest.group_id")
            out.append(_INT32.pack(item.generation_id_or_member_epoch))
            write_compact_string(out, item.member_id, "OffsetCommitRequest.member_id")
            write_compact_nullable_string(out, item.group_instance_id, "OffsetCommitRequest.group_instance_id")
            _write_offset_commit_request_topic_v10(
                out, write_compact_count(out, item.topics, "OffsetCommitRequest.topics")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _OFFSET_COMMIT_REQUEST_CODES) from None


REQUEST: Final = MessageCodec(
    OffsetCommitRequest,
    {
        2: (_read_offset_commit_request_v2, _write_offset_commit_request_v2),
        3: (_read_offset_commit_request_v2, _write_offset_commit_request_v2),
        4: (_read_offset_commit_request_v2, _write_offset_commit_request_v2),
        5: (_read_offset_commit_request_v5, _write_offset_commit_request_v5),
        6: (_read_offset_commit_request_v6, _write_offset_commit_request_v6),
        7: (_read_offset_commit_request_v7, _write_offset_commit_request_v7),
        8: (_read_offset_commit_request_v8, _write_offset_commit_request_v8),
        9: (_read_offset_commit_request_v8, _write_offset_commit_request_v8),
        10: (_read_offset_commit_request_v10, _write_offset_commit_request_v10),
    },
)


class OffsetCommitResponsePartition(msgspec.Struct, kw_only=True, gc=False):
    """The responses for each partition in the topic."""

    partition_index: int = 0
    """The partition index. (int32)"""
    error_code: int = 0
    """The error code, or 0 if there was no error. (int16)"""


class OffsetCommitResponseTopic(msgspec.Struct, kw_only=True, gc=False):
    """The responses for each topic."""

    name: str = ""
    """The topic name. (string, versions 2 to 9, ignorable)"""
    topic_id: bytes = NO_UUID
    """The topic ID. (uuid, version 10, ignorable)"""
    partitions: list[OffsetCommitResponsePartition] = []
    """The responses for each partition in the topic."""


class OffsetCommitResponse(msgspec.Struct, kw_only=True, gc=False):
    """OffsetCommitResponse, versions 2 to 10."""

    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32, versions 3 to 10, ignorable)"""
    topics: list[OffsetCommitResponseTopic] = []
    """The responses for each topic."""


_OFFSET_COMMIT_RESPONSE_CODES: Final = {"throttle_time_ms": "i"}
_OFFSET_COMMIT_RESPONSE_TOPIC_CODES: Final = {"topic_id": "16s"}
_OFFSET_COMMIT_RESPONSE_PARTITION_CODES: Final = {"partition_index": "i", "error_code": "h"}


def _read_offset_commit_response_partition_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetCommitResponsePartition], int]:
    items: list[OffsetCommitResponsePartition] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("OffsetCommitResponsePartition.partition_index to error_code", at, end, 6)
        partition_index, error_code = _INT32_INT16.unpack_from(data, at)
        at += 6
        items.append(OffsetCommitResponsePartition(partition_index=partition_index, error_code=error_code))
    return items, at


def _write_offset_commit_response_partition_v2(out: Parts, items: Sequence[OffsetCommitResponsePartition]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT16.pack(item.partition_index, item.error_code))
    except struct.error:
        raise misfit(items, _OFFSET_COMMIT_RESPONSE_PARTITION_CODES) from None


def _read_offset_commit_response_topic_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetCommitResponseTopic], int]:
    items: list[OffsetCommitResponseTopic] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "OffsetCommitResponseTopic.name")
        number, at = read_count(data, at, end, 6, "OffsetCommitResponseTopic.partitions")
        partitions, at = _read_offset_commit_response_partition_v2(data, at, end, number)
        items.append(OffsetCommitResponseTopic(name=name, partitions=partitions))
    return items, at


def _write_offset_commit_response_topic_v2(out: Parts, items: Sequence[OffsetCommitResponseTopic]) -> None:
    for item in items:
        write_string(out, item.name, "OffsetCommitResponseTopic.name")
        _write_offset_commit_response_partition_v2(
            out, write_count(out, item.partitions, "OffsetCommitResponseTopic.partitions")
        )


def _read_offset_commit_response_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetCommitResponse], int]:
    items: list[OffsetCommitResponse] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 6, "OffsetCommitResponse.topics")
        topics, at = _read_offset_commit_response_topic_v2(data, at, end, number)
        items.append(OffsetCommitResponse(topics=topics))
    return items, at


def _write_offset_commit_response_v2(out: Parts, items: Sequence[OffsetCommitResponse]) -> None:
    for item in items:
        _write_offset_commit_response_topic_v2(out, write_count(out, item.topics, "OffsetCommitResponse.topics"))


def _read_offset_commit_response_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetCommitResponse], int]:
    items: list[OffsetCommitResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("OffsetCommitResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 6, "OffsetCommitResponse.topics")
        topics, at = _read_offset_commit_response_topic_v2(data, at, end, number)
        items.append(OffsetCommitResponse(throttle_time_ms=throttle_time_ms, topics=topics))
    return items, at


def _write_offset_commit_response_v3(out: Parts, items: Sequence[OffsetCommitResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_offset_commit_response_topic_v2(out, write_count(out, item.topics, "OffsetCommitResponse.topics"))
    except struct.error:
        raise misfit(items, _OFFSET_COMMIT_RESPONSE_CODES) from None


def _read_offset_commit_response_partition_v8(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetCommitResponsePartition], int]:
    items: list[OffsetCommitResponsePartition] = []
    for _ in range(count):
        if end - at < 7:
            raise cut_short("OffsetCommitResponsePartition.partition_index to error_code", at, end, 7)
        partition_index, error_code, tags = _INT32_INT16_TAGS.unpack_from(data, at)
        at += 7
        if tags:
            at = skip_tags(data, at - 1, end, "OffsetCommitResponsePartition")
        items.append(OffsetCommitResponsePartition(partition_index=partition_index, error_code=error_code))
    return items, at


def _write_offset_commit_response_partition_v8(out: Parts, items: Sequence[OffsetCommitResponsePartition]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT16_TAGS.pack(item.partition_index, item.error_code, 0))
    except struct.error:
        raise misfit(items, _OFFSET_COMMIT_RESPONSE_PARTITION_CODES) from None


def _read_offset_commit_response_topic_v8(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetCommitResponseTopic], int]:
    items: list[OffsetCommitResponseTopic] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "OffsetCommitResponseTopic.name")
        number, at = read_compact_count(data, at, end, 7, "OffsetCommitResponseTopic.partitions")
        partitions, at = _read_offset_commit_response_partition_v8(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "OffsetCommitResponseTopic")
        items.append(OffsetCommitResponseTopic(name=name, partitions=partitions))
    return items, at


def _write_offset_commit_response_topic_v8(out: Parts, items: Sequence[OffsetCommitResponseTopic]) -> None:
    for item in items:
        write_compact_string(out, item.name, "OffsetCommitResponseTopic.name")
        _write_offset_commit_response_partition_v8(
            out, write_compact_count(out, item.partitions, "OffsetCommitResponseTopic.partitions")
        )
        out.append(NO_TAGS)


def _read_offset_commit_response_v8(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetCommitResponse], int]:
    items: list[OffsetCommitResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("OffsetCommitResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 3, "OffsetCommitResponse.topics")
        topics, at = _read_offset_commit_response_topic_v8(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "OffsetCommitResponse")
        items.append(OffsetCommitResponse(throttle_time_ms=throttle_time_ms, topics=topics))
    return items, at


def _write_offset_commit_response_v8(out: Parts, items: Sequence[OffsetCommitResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_offset_commit_response_topic_v8(
                out, write_compact_count(out, item.topics, "OffsetCommitResponse.topics")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _OFFSET_COMMIT_RESPONSE_CODES) from None


def _read_offset_commit_response_topic_v10(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetCommitResponseTopic], int]:
    items: list[OffsetCommitResponseTopic] = []
    for _ in range(count):
        if end - at < 16:
            raise cut_short("OffsetCommitResponseTopic.topic_id", at, end, 16)
        (topic_id,) = _UUID.unpack_from(data, at)
        at += 16
        number, at = read_compact_count(data, at, end, 7, "OffsetCommitResponseTopic.partitions")
        partitions, at = _read_offset_commit_response_partition_v8(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "OffsetCommitResponseTopic")
        items.append(OffsetCommitResponseTopic(topic_id=topic_id, partitions=partitions))
    return items, at


def _write_offset_commit_response_topic_v10(out: Parts, items: Sequence[OffsetCommitResponseTopic]) -> None:
    try:
        for item in items:
            check_uuid(item.topic_id, "OffsetCommitResponseTopic.topic_id")
            out.append(_UUID.pack(item.topic_id))
            _write_offset_commit_response_partition_v8(
                out, write_compact_count(out, item.partitions, "OffsetCommitResponseTopic.partitions")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _OFFSET_COMMIT_RESPONSE_TOPIC_CODES) from None


def _read_offset_commit_response_v10(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetCommitResponse], int]:
    items: list[OffsetCommitResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("OffsetCommitResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 18, "OffsetCommitResponse.topics")
        topics, at = _read_offset_commit_response_topic_v10(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "OffsetCommitResponse")
        items.append(OffsetCommitResponse(throttle_time_ms=throttle_time_ms, topics=topics))
    return items, at


def _write_offset_commit_response_v10(out: Parts, items: Sequence[OffsetCommitResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_offset_commit_response_topic_v10(
                out, write_compact_count(out, item.topics, "OffsetCommitResponse.topics")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _OFFSET_COMMIT_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    OffsetCommitResponse,
    {
        2: (_read_offset_commit_response_v2, _write_offset_commit_response_v2),
        3: (_read_offset_commit_response_v3, _write_offset_commit_response_v3),
        4: (_read_offset_commit_response_v3, _write_offset_commit_response_v3),
        5: (_read_offset_commit_response_v3, _write_offset_commit_response_v3),
        6: (_read_offset_commit_response_v3, _write_offset_commit_response_v3),
        7: (_read_offset_commit_response_v3, _write_offset_commit_response_v3),
        8: (_read_offset_commit_response_v8, _write_offset_commit_response_v8),
        9: (_read_offset_commit_response_v8, _write_offset_commit_response_v8),
        10: (_read_offset_commit_response_v10, _write_offset_commit_response_v10),
    },
)
