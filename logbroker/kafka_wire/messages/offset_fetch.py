"""OffsetFetch, API key 9.

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
_BOOL_TAGS: Final = struct.Struct(">?B")
_INT8_TAGS: Final = struct.Struct(">bB")
_INT16: Final = struct.Struct(">h")
_INT16_TAGS: Final = struct.Struct(">hB")
_INT32: Final = struct.Struct(">i")
_INT32_INT64: Final = struct.Struct(">iq")
_INT32_INT64_INT32: Final = struct.Struct(">iqi")


class OffsetFetchRequestTopics(msgspec.Struct, kw_only=True, gc=False):
    """Each topic we would like to fetch offsets for, or null to fetch offsets for all topics."""

    name: str = ""
    """The topic name. (string, versions 8 to 9, ignorable)"""
    topic_id: bytes = NO_UUID
    """The topic ID. (uuid, version 10, ignorable)"""
    partition_indexes: list[int] = []
    """The partition indexes we would like to fetch offsets for. (int32, versions 8 to 10)"""


class OffsetFetchRequestGroup(msgspec.Struct, kw_only=True, gc=False):
    """Each group we would like to fetch offsets for."""

    group_id: str = ""
    """The group ID. (string, versions 8 to 10)"""
    member_id: str | None = None
    """The member id. (string, versions 9 to 10, ignorable)"""
    member_epoch: int = -1
    """The member epoch if using the new consumer protocol (KIP-848). (int32, versions 9 to 10, ignorable)"""
    topics: list[OffsetFetchRequestTopics] | None = []
    """Each topic we would like to fetch offsets for, or null to fetch offsets for all topics. (versions 8 to 10)"""


class OffsetFetchRequestTopic(msgspec.Struct, kw_only=True, gc=False):
    """Each topic we would like to fetch offsets for, or null to fetch offsets for all topics."""

    name: str = ""
    """The topic name. (string, versions 1 to 7)"""
    partition_indexes: list[int] = []
    """The partition indexes we would like to fetch offsets for. (int32, versions 1 to 7)"""


class OffsetFetchRequest(msgspec.Struct, kw_only=True, gc=False):
    """OffsetFetchRequest, versions 1 to 10."""

    group_id: str = ""
    """The group to fetch offsets for. (string, versions 1 to 7)"""
    topics: list[OffsetFetchRequestTopic] | None = []
    """Each topic we would like to fetch offsets for, or null to fetch offsets for all topics. (versions 1 to 7)"""
    groups: list[OffsetFetchRequestGroup] = []
    """Each group we would like to fetch offsets for. (versions 8 to 10)"""
    require_stable: bool = False
    """Whether broker should hold on returning unstable offsets but set a retriable error code for the partitions.
    (bool, versions 7 to 10)"""


_OFFSET_FETCH_REQUEST_CODES: Final = {"require_stable": "b"}
_OFFSET_FETCH_REQUEST_GROUP_CODES: Final = {"member_epoch": "i"}
_OFFSET_FETCH_REQUEST_TOPICS_CODES: Final = {"topic_id": "16s"}


def _read_offset_fetch_request_topic_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetFetchRequestTopic], int]:
    items: list[OffsetFetchRequestTopic] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "OffsetFetchRequestTopic.name")
        number, at = read_count(data, at, end, 4, "OffsetFetchRequestTopic.partition_indexes")
        partition_indexes, at = read_int32s(data, at, number)
        items.append(OffsetFetchRequestTopic(name=name, partition_indexes=partition_indexes))
    return items, at


def _write_offset_fetch_request_topic_v1(out: Parts, items: Sequence[OffsetFetchRequestTopic]) -> None:
    for item in items:
        write_string(out, item.name, "OffsetFetchRequestTopic.name")
        write_int32s(
            out,
            write_count(out, item.partition_indexes, "OffsetFetchRequestTopic.partition_indexes"),
            "OffsetFetchRequestTopic.partition_indexes",
        )


def _read_offset_fetch_request_v1(data: Buffer, at: int, end: int, count: int) -> tuple[list[OffsetFetchRequest], int]:
    items: list[OffsetFetchRequest] = []
    for _ in range(count):
        group_id, at = read_string(data, at, end, "OffsetFetchRequest.group_id")
        number, at = read_count(data, at, end, 6, "OffsetFetchRequest.topics")
        topics, at = _read_offset_fetch_request_topic_v1(data, at, end, number)
        items.append(OffsetFetchRequest(group_id=group_id, topics=topics))
    return items, at


def _write_offset_fetch_request_v1(out: Parts, items: Sequence[OffsetFetchRequest]) -> None:
    for item in items:
        if item.groups != []:
            raise unknown_field("OffsetFetchRequest.groups", item.groups)
        if item.require_stable is not False:
            raise unknown_field("OffsetFetchRequest.require_stable", item.require_stable)
        write_string(out, item.group_id, "OffsetFetchRequest.group_id")
        _write_offset_fetch_request_topic_v1(out, write_count(out, item.topics, "OffsetFetchRequest.topics"))


def _read_offset_fetch_request_v2(data: Buffer, at: int, end: int, count: int) -> tuple[list[OffsetFetchRequest], int]:
    items: list[OffsetFetchRequest] = []
    for _ in range(count):
        group_id, at = read_string(data, at, end, "OffsetFetchRequest.group_id")
        number, at = read_nullable_count(data, at, end, 6, "OffsetFetchRequest.topics")
        topics = None
        if number >= 0:
            topics, at = _read_offset_fetch_request_topic_v1(data, at, end, number)
        items.append(OffsetFetchRequest(group_id=group_id, topics=topics))
    return items, at


def _write_offset_fetch_request_v2(out: Parts, items: Sequence[OffsetFetchRequest]) -> None:
    for item in items:
        if item.groups != []:
            raise unknown_field("OffsetFetchRequest.groups", item.groups)
        if item.require_stable is not False:
            raise unknown_field("OffsetFetchRequest.require_stable", item.require_stable)
        write_string(out, item.group_id, "OffsetFetchRequest.group_id")
        _write_offset_fetch_request_topic_v1(out, write_nullable_count(out, item.topics, "OffsetFetchRequest.topics"))


def _read_offset_fetch_request_topic_v6(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetFetchRequestTopic], int]:
    items: list[OffsetFetchRequestTopic] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "OffsetFetchRequestTopic.name")
        number, at = read_compact_count(data, at, end, 4, "OffsetFetchRequestTopic.partition_indexes")
        partition_indexes, at = read_int32s(data, at, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "OffsetFetchRequestTopic")
        items.append(OffsetFetchRequestTopic(name=name, partition_indexes=partition_indexes))
    return items, at


def _write_offset_fetch_request_topic_v6(out: Parts, items: Sequence[OffsetFetchRequestTopic]) -> None:
    for item in items:
        write_compact_string(out, item.name, "OffsetFetchRequestTopic.name")
        write_int32s(
            out,
            write_compact_count(out, item.partition_indexes, "OffsetFetchRequestTopic.partition_indexes"),
            "OffsetFetchRequestTopic.partition_indexes",
        )
        out.append(NO_TAGS)


def _read_offset_fetch_request_v6(data: Buffer, at: int, end: int, count: int) -> tuple[list[OffsetFetchRequest], int]:
    items: list[OffsetFetchRequest] = []
    for _ in range(count):
        group_id, at = read_compact_string(data, at, end, "OffsetFetchRequest.group_id")
        number, at = read_compact_nullable_count(data, at, end, 3, "OffsetFetchRequest.topics")
        topics = None
        if number >= 0:
            topics, at = _read_offset_fetch_request_topic_v6(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "OffsetFetchRequest")
        items.append(OffsetFetchRequest(group_id=group_id, topics=topics))
    return items, at


def _write_offset_fetch_request_v6(out: Parts, items: Sequence[OffsetFetchRequest]) -> None:
    for item in items:
        if item.groups != []:
            raise unknown_field("OffsetFetchRequest.groups", item.groups)
        if item.require_stable is not False:
            raise unknown_field("OffsetFetchRequest.require_stable", item.require_stable)
        write_compact_string(out, item.group_id, "OffsetFetchRequest.group_id")
        _write_offset_fetch_request_topic_v6(
            out, write_compact_nullable_count(out, item.topics, "OffsetFetchRequest.topics")
        )
        out.append(NO_TAGS)


def _read_offset_fetch_request_v7(data: Buffer, at: int, end: int, count: int) -> tuple[list[OffsetFetchRequest], int]:
    items: list[OffsetFetchRequest] = []
    for _ in range(count):
        group_id, at = read_compact_string(data, at, end, "OffsetFetchRequest.group_id")
        number, at = read_compact_nullable_count(data, at, end, 3, "OffsetFetchRequest.topics")
        topics = None
        if number >= 0:
            topics, at = _read_offset_fetch_request_topic_v6(data, at, end, number)
        if end - at < 2:
            raise cut_short("OffsetFetchRequest.require_stable", at, end, 2)
        require_stable, tags = _BOOL_TAGS.unpack_from(data, at)
        at += 2
        if tags:
            at = skip_tags(data, at - 1, end, "OffsetFetchRequest")
        items.append(OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=require_stable))
    return items, at


def _write_offset_fetch_request_v7(out: Parts, items: Sequence[OffsetFetchRequest]) -> None:
    try:
        for item in items:
            if item.groups != []:
                raise unknown_field("OffsetFetchRequest.groups", item.groups)
            write_compact_string(out, item.group_id, "OffsetFetchRequest.group_id")
            _write_offset_fetch_request_topic_v6(
                out, write_compact_nullable_count(out, item.topics, "OffsetFetchRequest.topics")
            )
            out.append(_INT8_TAGS.pack(item.require_stable, 0))
    except struct.error:
        raise misfit(items, _OFFSET_FETCH_REQUEST_CODES) from None


def _read_offset_fetch_request_topics_v8(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetFetchRequestTopics], int]:
    items: list[OffsetFetchRequestTopics] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "OffsetFetchRequestTopics.name")
        number, at = read_compact_count(data, at, end, 4, "OffsetFetchRequestTopics.partition_indexes")
        partition_indexes, at = read_int32s(data, at, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "OffsetFetchRequestTopics")
        items.append(OffsetFetchRequestTopics(name=name, partition_indexes=partition_indexes))
    return items, at


def _write_offset_fetch_request_topics_v8(out: Parts, items: Sequence[OffsetFetchRequestTopics]) -> None:
    for item in items:
        write_compact_string(out, item.name, "OffsetFetchRequestTopics.name")
        write_int32s(
            out,
            write_compact_count(out, item.partition_indexes, "OffsetFetchRequestTopics.partition_indexes"),
            "OffsetFetchRequestTopics.partition_indexes",
        )
        out.append(NO_TAGS)


def _read_offset_fetch_request_group_v8(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetFetchRequestGroup], int]:
    items: list[OffsetFetchRequestGroup] = []
    for _ in range(count):
        group_id, at = read_compact_string(data, at, end, "OffsetFetchRequestGroup.group_id")
        number, at = read_compact_nullable_count(data, at, end, 3, "OffsetFetchRequestGroup.topics")
        topics = None
        if number >= 0:
            topics, at = _read_offset_fetch_request_topics_v8(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "OffsetFetchRequestGroup")
        items.append(OffsetFetchRequestGroup(group_id=group_id, topics=topics))
    return items, at


def _write_offset_fetch_request_group_v8(out: Parts, items: Sequence[OffsetFetchRequestGroup]) -> None:
    for item in items:
        write_compact_string(out, item.group_id, "OffsetFetchRequestGroup.group_id")
        _write_offset_fetch_request_topics_v8(
            out, write_compact_nullable_count(out, item.topics, "OffsetFetchRequestGroup.topics")
        )
        out.append(NO_TAGS)


def _read_offset_fetch_request_v8(data: Buffer, at: int, end: int, count: int) -> tuple[list[OffsetFetchRequest], int]:
    items: list[OffsetFetchRequest] = []
    for _ in range(count):
        number, at = read_compact_count(data, at, end, 3, "OffsetFetchRequest.groups")
        groups, at = _read_offset_fetch_request_group_v8(data, at, end, number)
        if end - at < 2:
            raise cut_short("OffsetFetchRequest.require_stable", at, end, 2)
        require_stable, tags = _BOOL_TAGS.unpack_from(data, at)
        at += 2
        if tags:
            at = skip_tags(data, at - 1, end, "OffsetFetchRequest")
        items.append(OffsetFetchRequest(groups=groups, require_stable=require_stable))
    return items, at


def _write_offset_fetch_request_v8(out: Parts, items: Sequence[OffsetFetchRequest]) -> None:
    try:
        for item in items:
            if item.group_id != "":
                raise unknown_field("OffsetFetchRequest.group_id", item.group_id)
            if item.topics != []:
                raise unknown_field("OffsetFetchRequest.topics", item.topics)
            _write_offset_fetch_request_group_v8(
                out, write_compact_count(out, item.groups, "OffsetFetchRequest.groups")
            )
            out.append(_INT8_TAGS.pack(item.require_stable, 0))
    except struct.error:
        raise misfit(items, _OFFSET_FETCH_REQUEST_CODES) from None


def _read_offset_fetch_request_group_v9(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetFetchRequestGroup], int]:
    items: list[OffsetFetchRequestGroup] = []
    for _ in range(count):
        group_id, at = read_compact_string(data, at, end, "OffsetFetchRequestGroup.group_id")
        member_id, at = read_compact_nullable_string(data, at, end, "OffsetFetchRequestGroup.member_id")
        if end - at < 4:
            raise cut_short("OffsetFetchRequestGroup.member_epoch", at, end, 4)
        (member_epoch,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_nullable_count(data, at, end, 3, "OffsetFetchRequestGroup.topics")
        topics = None
        if number >= 0:
            topics, at = _read_offset_fetch_request_topics_v8(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "OffsetFetchRequestGroup")
        items.append(
            OffsetFetchRequestGroup(group_id=group_id, member_id=member_id, member_epoch=member_epoch, topics=topics)
        )
    return items, at


def _write_offset_fetch_request_group_v9(out: Parts, items: Sequence[OffsetFetchRequestGroup]) -> None:
    try:
        for item in items:
            write_compact_string(out, item.group_id, "OffsetFetchRequestGroup.group_id")
            write_compact_nullable_string(out, item.member_id, "OffsetFetchRequestGroup.member_id")
            out.append(_INT32.pack(item.member_epoch))
            _write_offset_fetch_request_topics_v8(
                out, write_compact_nullable_count(out, item.topics, "OffsetFetchRequestGroup.topics")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _OFFSET_FETCH_REQUEST_GROUP_CODES) from None


def _read_offset_fetch_request_v9(data: Buffer, at: int, end: int, count: int) -> tuple[list[OffsetFetchRequest], int]:
    items: list[OffsetFetchRequest] = []
    for _ in range(count):
        number, at = read_compact_count(data, at, end, 8, "OffsetFetchRequest.groups")
        groups, at = _read_offset_fetch_request_group_v9(data, at, end, number)
        if end - at < 2:
            raise cut_short("OffsetFetchRequest.require_stable", at, end, 2)
        require_stable, tags = _BOOL_TAGS.unpack_from(data, at)
        at += 2
        if tags:
            at = skip_tags(data, at - 1, end, "OffsetFetchRequest")
        items.append(OffsetFetchRequest(groups=groups, require_stable=require_stable))
    return items, at


def _write_offset_fetch_request_v9(out: Parts, items: Sequence[OffsetFetchRequest]) -> None:
    try:
        for item in items:
            if item.group_id != "":
                raise unknown_field("OffsetFetchRequest.group_id", item.group_id)
            if item.topics != []:
                raise unknown_field("OffsetFetchRequest.topics", item.topics)
            _write_offset_fetch_request_group_v9(
                out, write_compact_count(out, item.groups, "OffsetFetchRequest.groups")
            )
            out.append(_INT8_TAGS.pack(item.require_stable, 0))
    except struct.error:
        raise misfit(items, _OFFSET_FETCH_REQUEST_CODES) from None


def _read_offset_fetch_request_topics_v10(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetFetchRequestTopics], int]:
    items: list[OffsetFetchRequestTopics] = []
    for _ in range(count):
        if end - at < 16:
            raise cut_short("OffsetFetchRequestTopics.topic_id", at, end, 16)
        (topic_id,) = _UUID.unpack_from(data, at)
        at += 16
        number, at = read_compact_count(data, at, end, 4, "OffsetFetchRequestTopics.partition_indexes")
        partition_indexes, at = read_int32s(data, at, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "OffsetFetchRequestTopics")
        items.append(OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=partition_indexes))
    return items, at


def _write_offset_fetch_request_topics_v10(out: Parts, items: Sequence[OffsetFetchRequestTopics]) -> None:
    try:
        for item in items:
            check_uuid(item.topic_id, "OffsetFetchRequestTopics.topic_id")
            out.append(_UUID.pack(item.topic_id))
            write_int32s(
                out,
                write_compact_count(out, item.partition_indexes, "OffsetFetchRequestTopics.partition_indexes"),
                "OffsetFetchRequestTopics.partition_indexes",
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _OFFSET_FETCH_REQUEST_TOPICS_CODES) from None


def _read_offset_fetch_request_group_v10(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetFetchRequestGroup], int]:
    items: list[OffsetFetchRequestGroup] = []
    for _ in range(count):
        group_id, at = read_compact_string(data, at, end, "OffsetFetchRequestGroup.group_id")
        member_id, at = read_compact_nullable_string(data, at, end, "OffsetFetchRequestGroup.member_id")
        if end - at < 4:
            raise cut_short("OffsetFetchRequestGroup.member_epoch", at, end, 4)
        (member_epoch,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_nullable_count(data, at, end, 18, "OffsetFetchRequestGroup.topics")
        topics = None
        if number >= 0:
            topics, at = _read_offset_fetch_request_topics_v10(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "OffsetFetchRequestGroup")
        items.append(
            OffsetFetchRequestGroup(group_id=group_id, member_id=member_id, member_epoch=member_epoch, topics=topics)
        )
    return items, at


def _write_offset_fetch_request_group_v10(out: Parts, items: Sequence[OffsetFetchRequestGroup]) -> None:
    try:
        for item in items:
            write_compact_string(out, item.group_id, "OffsetFetchRequestGroup.group_id")
            write_compact_nullable_string(out, item.member_id, "OffsetFetchRequestGroup.member_id")
            out.append(_INT32.pack(item.member_epoch))
            _write_offset_fetch_request_topics_v10(
                out, write_compact_nullable_count(out, item.topics, "OffsetFetchRequestGroup.topics")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _OFFSET_FETCH_REQUEST_GROUP_CODES) from None


def _read_offset_fetch_request_v10(data: Buffer, at: int, end: int, count: int) -> tuple[list[OffsetFetchRequest], int]:
    items: list[OffsetFetchRequest] = []
    for _ in range(count):
        number, at = read_compact_count(data, at, end, 8, "OffsetFetchRequest.groups")
        groups, at = _read_offset_fetch_request_group_v10(data, at, end, number)
        if end - at < 2:
            raise cut_short("OffsetFetchRequest.require_stable", at, end, 2)
        require_stable, tags = _BOOL_TAGS.unpack_from(data, at)
        at += 2
        if tags:
            at = skip_tags(data, at - 1, end, "OffsetFetchRequest")
        items.append(OffsetFetchRequest(groups=groups, require_stable=require_stable))
    return items, at


def _write_offset_fetch_request_v10(out: Parts, items: Sequence[OffsetFetchRequest]) -> None:
    try:
        for item in items:
            if item.group_id != "":
                raise unknown_field("OffsetFetchRequest.group_id", item.group_id)
            if item.topics != []:
                raise unknown_field("OffsetFetchRequest.topics", item.topics)
            _write_offset_fetch_request_group_v10(
                out, write_compact_count(out, item.groups, "OffsetFetchRequest.groups")
            )
            out.append(_INT8_TAGS.pack(item.require_stable, 0))
    except struct.error:
        raise misfit(items, _OFFSET_FETCH_REQUEST_CODES) from None


REQUEST: Final = MessageCodec(
    OffsetFetchRequest,
    {
        1: (_read_offset_fetch_request_v1, _write_offset_fetch_request_v1),
        2: (_read_offset_fetch_request_v2, _write_offset_fetch_request_v2),
        3: (_read_offset_fetch_request_v2, _write_offset_fetch_request_v2),
        4: (_read_offset_fetch_request_v2, _write_offset_fetch_request_v2),
        5: (_read_offset_fetch_request_v2, _write_offset_fetch_request_v2),
        6: (_read_offset_fetch_request_v6, _write_offset_fetch_request_v6),
        7: (_read_offset_fetch_request_v7, _write_offset_fetch_request_v7),
        8: (_read_offset_fetch_request_v8, _write_offset_fetch_request_v8),
        9: (_read_offset_fetch_request_v9, _write_offset_fetch_request_v9),
        10: (_read_offset_fetch_request_v10, _write_offset_fetch_request_v10),
    },
)


class OffsetFetchResponsePartitions(msgspec.Struct, kw_only=True, gc=False):
    """The responses per partition."""

    partition_index: int = 0
    """The partition index. (int32, versions 8 to 10)"""
    committed_offset: int = 0
    """The committed message offset. (int64, versions 8 to 10)"""
    committed_leader_epoch: int = -1
    """The leader epoch. (int32, versions 8 to 10, ignorable)"""
    metadata: str | None = ""
    """The partition metadata. (string, versions 8 to 10)"""
    error_code: int = 0
    """The partition-level error code, or 0 if there was no error. (int16, versions 8 to 10)"""


class OffsetFetchResponseTopics(msgspec.Struct, kw_only=True, gc=False):
    """The responses per topic."""

    name: str = ""
    """The topic name. (string, versions 8 to 9, ignorable)"""
    topic_id: bytes = NO_UUID
    """The topic ID. (uuid, version 10, ignorable)"""
    partitions: list[OffsetFetchResponsePartitions] = []
    """The responses per partition. (versions 8 to 10)"""


class OffsetFetchResponseGroup(msgspec.Struct, kw_only=True, gc=False):
    """The responses per group id."""

    group_id: str = ""
    """The group ID. (string, versions 8 to 10)"""
    topics: list[OffsetFetchResponseTopics] = []
    """The responses per topic. (versions 8 to 10)"""
    error_code: int = 0
    """The group-level error code, or 0 if there was no error. (int16, versions 8 to 10)"""


class OffsetFetchResponsePartition(msgspec.Struct, kw_only=True, gc=False):
    """The responses per partition."""

    partition_index: int = 0
    """The partition index. (int32, versions 1 to 7)"""
    committed_offset: int = 0
    """The committed message offset. (int64, versions 1 to 7)"""
    committed_leader_epoch: int = -1
    """The leader epoch. (int32, versions 5 to 7, ignorable)"""
    metadata: str | None = ""
    """The partition metadata. (string, versions 1 to 7)"""
    error_code: int = 0
    """The error code, or 0 if there was no error. (int16, versions 1 to 7)"""


class OffsetFetchResponseTopic(msgspec.Struct, kw_only=True, gc=False):
    """The responses per topic."""

    name: str = ""
    """The topic name. (string, versions 1 to 7)"""
    partitions: list[OffsetFetchResponsePartition] = []
    """The responses per partition. (versions 1 to 7)"""


class OffsetFetchResponse(msgspec.Struct, kw_only=True, gc=False):
    """OffsetFetchResponse, versions 1 to 10."""

    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32, versions 3 to 10, ignorable)"""
    topics: list[OffsetFetchResponseTopic] = []
    """The responses per topic. (versions 1 to 7)"""
    error_code: int = 0
    """The top-level error code, or 0 if there was no error. (int16, versions 2 to 7, ignorable)"""
    groups: list[OffsetFetchResponseGroup] = []
    """The responses per group id. (versions 8 to 10)"""


_OFFSET_FETCH_RESPONSE_CODES: Final = {"throttle_time_ms": "i", "error_code": "h"}
_OFFSET_FETCH_RESPONSE_PARTITION_CODES: Final = {
    "partition_index": "i",
    "committed_offset": "q",
    "committed_leader_epoch": "i",
    "error_code": "h",
}
_OFFSET_FETCH_RESPONSE_GROUP_CODES: Final = {"error_code": "h"}
_OFFSET_FETCH_RESPONSE_TOPICS_CODES: Final = {"topic_id": "16s"}
_OFFSET_FETCH_RESPONSE_PARTITIONS_CODES: Final = {
    "partition_index": "i",
    "committed_offset": "q",
    "committed_leader_epoch": "i",
    "error_code": "h",
}


def _read_offset_fetch_response_partition_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetFetchResponsePartition], int]:
    items: list[OffsetFetchResponsePartition] = []
    for _ in range(count):
        if end - at < 12:
            raise cut_short("OffsetFetchResponsePartition.partition_index to committed_offset", at, end, 12)
        partition_index, committed_offset = _INT32_INT64.unpack_from(data, at)
        at += 12
        metadata, at = read_nullable_string(data, at, end, "OffsetFetchResponsePartition.metadata")
        if end - at < 2:
            raise cut_short("OffsetFetchResponsePartition.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        items.append(
            OffsetFetchResponsePartition(
                partition_index=partition_index,
                committed_offset=committed_offset,
                metadata=metadata,
                error_code=error_code,
            )
        )
    return items, at


def _write_offset_fetch_response_partition_v1(out: Parts, items: Sequence[OffsetFetchResponsePartition]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT64.pack(item.partition_index, item.committed_offset))
            write_nullable_string(out, item.metadata, "OffsetFetchResponsePartition.metadata")
            out.append(_INT16.pack(item.error_code))
    except struct.error:
        raise misfit(items, _OFFSET_FETCH_RESPONSE_PARTITION_CODES) from None


def _read_offset_fetch_response_topic_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetFetchResponseTopic], int]:
    items: list[OffsetFetchResponseTopic] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "OffsetFetchResponseTopic.name")
        number, at = read_count(data, at, end, 16, "OffsetFetchResponseTopic.partitions")
        partitions, at = _read_offset_fetch_response_partition_v1(data, at, end, number)
        items.append(OffsetFetchResponseTopic(name=name, partitions=partitions))
    return items, at


def _write_offset_fetch_response_topic_v1(out: Parts, items: Sequence[OffsetFetchResponseTopic]) -> None:
    for item in items:
        write_string(out, item.name, "OffsetFetchResponseTopic.name")
        _write_offset_fetch_response_partition_v1(
            out, write_count(out, item.partitions, "OffsetFetchResponseTopic.partitions")
        )


def _read_offset_fetch_response_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetFetchResponse], int]:
    items: list[OffsetFetchResponse] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 6, "OffsetFetchResponse.topics")
        topics, at = _read_offset_fetch_response_topic_v1(data, at, end, number)
        items.append(OffsetFetchResponse(topics=topics))
    return items, at


def _write_offset_fetch_response_v1(out: Parts, items: Sequence[OffsetFetchResponse]) -> None:
    for item in items:
        if item.groups != []:
            raise unknown_field("OffsetFetchResponse.groups", item.groups)
        _write_offset_fetch_response_topic_v1(out, write_count(out, item.topics, "OffsetFetchResponse.topics"))


def _read_offset_fetch_response_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetFetchResponse], int]:
    items: list[OffsetFetchResponse] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 6, "OffsetFetchResponse.topics")
        topics, at = _read_offset_fetch_response_topic_v1(data, at, end, number)
        if end - at < 2:
            raise cut_short("OffsetFetchResponse.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        items.append(OffsetFetchResponse(topics=topics, error_code=error_code))
    return items, at


def _write_offset_fetch_response_v2(out: Parts, items: Sequence[OffsetFetchResponse]) -> None:
    try:
        for item in items:
            if item.groups != []:
                raise unknown_field("OffsetFetchResponse.groups", item.groups)
            _write_offset_fetch_response_topic_v1(out, write_count(out, item.topics, "OffsetFetchResponse.topics"))
            out.append(_INT16.pack(item.error_code))
    except struct.error:
        raise misfit(items, _OFFSET_FETCH_RESPONSE_CODES) from None


def _read_offset_fetch_response_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetFetchResponse], int]:
    items: list[OffsetFetchResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("OffsetFetchResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 6, "OffsetFetchResponse.topics")
        topics, at = _read_offset_fetch_response_topic_v1(data, at, end, number)
        if end - at < 2:
            raise cut_short("OffsetFetchResponse.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        items.append(OffsetFetchResponse(throttle_time_ms=throttle_time_ms, topics=topics, error_code=error_code))
    return items, at


def _write_offset_fetch_response_v3(out: Parts, items: Sequence[OffsetFetchResponse]) -> None:
    try:
        for item in items:
            if item.groups != []:
                raise unknown_field("OffsetFetchResponse.groups", item.groups)
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_offset_fetch_response_topic_v1(out, write_count(out, item.topics, "OffsetFetchResponse.topics"))
            out.append(_INT16.pack(item.error_code))
    except struct.error:
        raise misfit(items, _OFFSET_FETCH_RESPONSE_CODES) from None


def _read_offset_fetch_response_partition_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetFetchResponsePartition], int]:
    items: list[OffsetFetchResponsePartition] = []
    for _ in range(count):
        if end - at < 16:
            raise cut_short("OffsetFetchResponsePartition.partition_index to committed_leader_epoch", at, end, 16)
        partition_index, committed_offset, committed_leader_epoch = _INT32_INT64_INT32.unpack_from(data, at)
        at += 16
        metadata, at = read_nullable_string(data, at, end, "OffsetFetchResponsePartition.metadata")
        if end - at < 2:
            raise cut_short("OffsetFetchResponsePartition.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        items.append(
            OffsetFetchResponsePartition(
                partition_index=partition_index,
                committed_offset=committed_offset,
                committed_leader_epoch=committed_leader_epoch,
                metadata=metadata,
                error_code=error_code,
            )
        )
    return items, at


def _write_offset_fetch_response_partition_v5(out: Parts, items: Sequence[OffsetFetchResponsePartition]) -> None:
    try:
        for item in items:
            out.append(
                _INT32_INT64_INT32.pack(item.partition_index, item.committed_offset, item.committed_leader_epoch)
            )
            write_nullable_string(out, item.metadata, "OffsetFetchResponsePartition.metadata")
            out.append(_INT16.pack(item.error_code))
    except struct.error:
        raise misfit(items, _OFFSET_FETCH_RESPONSE_PARTITION_CODES) from None


def _read_offset_fetch_response_topic_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetFetchResponseTopic], int]:
    items: list[OffsetFetchResponseTopic] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "OffsetFetchResponseTopic.name")
        number, at = read_count(data, at, end, 20, "OffsetFetchResponseTopic.partitions")
        partitions, at = _read_offset_fetch_response_partition_v5(data, at, end, number)
        items.append(OffsetFetchResponseTopic(name=name, partitions=partitions))
    return items, at


def _write_offset_fetch_response_topic_v5(out: Parts, items: Sequence[OffsetFetchResponseTopic]) -> None:
    for item in items:
        write_string(out, item.name, "OffsetFetchResponseTopic.name")
        _write_offset_fetch_response_partition_v5(
            out, write_count(out, item.partitions, "OffsetFetchResponseTopic.partitions")
        )


def _read_offset_fetch_response_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetFetchResponse], int]:
    items: list[OffsetFetchResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("OffsetFetchResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 6, "OffsetFetchResponse.topics")
        topics, at = _read_offset_fetch_response_topic_v5(data, at, end, number)
        if end - at < 2:
            raise cut_short("OffsetFetchResponse.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        items.append(OffsetFetchResponse(throttle_time_ms=throttle_time_ms, topics=topics, error_code=error_code))
    return items, at


def _write_offset_fetch_response_v5(out: Parts, items: Sequence[OffsetFetchResponse]) -> None:
    try:
        for item in items:
            if item.groups != []:
                raise unknown_field("OffsetFetchResponse.groups", item.groups)
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_offset_fetch_response_topic_v5(out, write_count(out, item.topics, "OffsetFetchResponse.topics"))
            out.append(_INT16.pack(item.error_code))
    except struct.error:
        raise misfit(items, _OFFSET_FETCH_RESPONSE_CODES) from None


def _read_offset_fetch_response_partition_v6(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetFetchResponsePartition], int]:
    items: list[OffsetFetchResponsePartition] = []
    for _ in range(count):
        if end - at < 16:
            raise cut_short("OffsetFetchResponsePartition.partition_index to committed_leader_epoch", at, end, 16)
        partition_index, committed_offset, committed_leader_epoch = _INT32_INT64_INT32.unpack_from(data, at)
        at += 16
        metadata, at = read_compact_nullable_string(data, at, end, "OffsetFetchResponsePartition.metadata")
        if end - at < 3:
            raise cut_short("OffsetFetchResponsePartition.error_code", at, end, 3)
        error_code, tags = _INT16_TAGS.unpack_from(data, at)
        at += 3
        if tags:
            at = skip_tags(data, at - 1, end, "OffsetFetchResponsePartition")
        items.append(
            OffsetFetchResponsePartition(
                partition_index=partition_index,
                committed_offset=committed_offset,
                committed_leader_epoch=committed_leader_epoch,
                metadata=metadata,
                error_code=error_code,
            )
        )
    return items, at


def _write_offset_fetch_response_partition_v6(out: Parts, items: Sequence[OffsetFetchResponsePartition]) -> None:
    try:
        for item in items:
            out.append(
                _INT32_INT64_INT32.pack(item.partition_index, item.committed_offset, item.committed_leader_epoch)
            )
            write_compact_nullable_string(out, item.metadata, "OffsetFetchResponsePartition.metadata")
            out.append(_INT16_TAGS.pack(item.error_code, 0))
    except struct.error:
        raise misfit(items, _OFFSET_FETCH_RESPONSE_PARTITION_CODES) from None


def _read_offset_fetch_response_topic_v6(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetFetchResponseTopic], int]:
    items: list[OffsetFetchResponseTopic] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "OffsetFetchResponseTopic.name")
        number, at = read_compact_count(data, at, end, 20, "OffsetFetchResponseTopic.partitions")
        partitions, at = _read_offset_fetch_response_partition_v6(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "OffsetFetchResponseTopic")
        items.append(OffsetFetchResponseTopic(name=name, partitions=partitions))
    return items, at


def _write_offset_fetch_response_topic_v6(out: Parts, items: Sequence[OffsetFetchResponseTopic]) -> None:
    for item in items:
        write_compact_string(out, item.name, "OffsetFetchResponseTopic.name")
        _write_offset_fetch_response_partition_v6(
            out, write_compact_count(out, item.partitions, "OffsetFetchResponseTopic.partitions")
        )
        out.append(NO_TAGS)


def _read_offset_fetch_response_v6(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetFetchResponse], int]:
    items: list[OffsetFetchResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("OffsetFetchResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 3, "OffsetFetchResponse.topics")
        topics, at = _read_offset_fetch_response_topic_v6(data, at, end, number)
        if end - at < 3:
            raise cut_short("OffsetFetchResponse.error_code", at, end, 3)
        error_code, tags = _INT16_TAGS.unpack_from(data, at)
        at += 3
        if tags:
            at = skip_tags(data, at - 1, end, "OffsetFetchResponse")
        items.append(OffsetFetchResponse(throttle_time_ms=throttle_time_ms, topics=topics, error_code=error_code))
    return items, at


def _write_offset_fetch_response_v6(out: Parts, items: Sequence[OffsetFetchResponse]) -> None:
    try:
        for item in items:
            if item.groups != []:
                raise unknown_field("OffsetFetchResponse.groups", item.groups)
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_offset_fetch_response_topic_v6(
                out, write_compact_count(out, item.topics, "OffsetFetchResponse.topics")
            )
            out.append(_INT16_TAGS.pack(item.error_code, 0))
    except struct.error:
        raise misfit(items, _OFFSET_FETCH_RESPONSE_CODES) from None


def _read_offset_fetch_response_partitions_v8(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetFetchResponsePartitions], int]:
    items: list[OffsetFetchResponsePartitions] = []
    for _ in range(count):
        if end - at < 16:
            raise cut_short("OffsetFetchResponsePartitions.partition_index to committed_leader_epoch", at, end, 16)
        partition_index, committed_offset, committed_leader_epoch = _INT32_INT64_INT32.unpack_from(data, at)
        at += 16
        metadata, at = read_compact_nullable_string(data, at, end, "OffsetFetchResponsePartitions.metadata")
        if end - at < 3:
            raise cut_short("OffsetFetchResponsePartitions.error_code", at, end, 3)
        error_code, tags = _INT16_TAGS.unpack_from(data, at)
        at += 3
        if tags:
            at = skip_tags(data, at - 1, end, "OffsetFetchResponsePartitions")
        items.append(
            OffsetFetchResponsePartitions(
                partition_index=partition_index,
                committed_offset=committed_offset,
                committed_leader_epoch=committed_leader_epoch,
                metadata=metadata,
                error_code=error_code,
            )
        )
    return items, at


def _write_offset_fetch_response_partitions_v8(out: Parts, items: Sequence[OffsetFetchResponsePartitions]) -> None:
    try:
        for item in items:
            out.append(
                _INT32_INT64_INT32.pack(item.partition_index, item.committed_offset, item.committed_leader_epoch)
            )
            write_compact_nullable_string(out, item.metadata, "OffsetFetchResponsePartitions.metadata")
            out.append(_INT16_TAGS.pack(item.error_code, 0))
    except struct.error:
        raise misfit(items, _OFFSET_FETCH_RESPONSE_PARTITIONS_CODES) from None


def _read_offset_fetch_response_topics_v8(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetFetchResponseTopics], int]:
    items: list[OffsetFetchResponseTopics] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "OffsetFetchResponseTopics.name")
        number, at = read_compact_count(data, at, end, 20, "OffsetFetchResponseTopics.partitions")
        partitions, at = _read_offset_fetch_response_partitions_v8(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "OffsetFetchResponseTopics")
        items.append(OffsetFetchResponseTopics(name=name, partitions=partitions))
    return items, at


def _write_offset_fetch_response_topics_v8(out: Parts, items: Sequence[OffsetFetchResponseTopics]) -> None:
    for item in items:
        write_compact_string(out, item.name, "OffsetFetchResponseTopics.name")
        _write_offset_fetch_response_partitions_v8(
            out, write_compact_count(out, item.partitions, "OffsetFetchResponseTopics.partitions")
        )
        out.append(NO_TAGS)


def _read_offset_fetch_response_group_v8(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetFetchResponseGroup], int]:
    items: list[OffsetFetchResponseGroup] = []
    for _ in range(count):
        group_id, at = read_compact_string(data, at, end, "OffsetFetchResponseGroup.group_id")
        number, at = read_compact_count(data, at, end, 3, "OffsetFetchResponseGroup.topics")
        topics, at = _read_offset_fetch_response_topics_v8(data, at, end, number)
        if end - at < 3:
            raise cut_short("OffsetFetchResponseGroup.error_code", at, end, 3)
        error_code, tags = _INT16_TAGS.unpack_from(data, at)
        at += 3
        if tags:
            at = skip_tags(data, at - 1, end, "OffsetFetchResponseGroup")
        items.append(OffsetFetchResponseGroup(group_id=group_id, topics=topics, error_code=error_code))
    return items, at


def _write_offset_fetch_response_group_v8(out: Parts, items: Sequence[OffsetFetchResponseGroup]) -> None:
    try:
        for item in items:
            write_compact_string(out, item.group_id, "OffsetFetchResponseGroup.group_id")
            _write_offset_fetch_response_topics_v8(
                out, write_compact_count(out, item.topics, "OffsetFetchResponseGroup.topics")
            )
            out.append(_INT16_TAGS.pack(item.error_code, 0))
    except struct.error:
        raise misfit(items, _OFFSET_FETCH_RESPONSE_GROUP_CODES) from None


def _read_offset_fetch_response_v8(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetFetchResponse], int]:
    items: list[OffsetFetchResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("OffsetFetchResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 5, "OffsetFetchResponse.groups")
        groups, at = _read_offset_fetch_response_group_v8(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "OffsetFetchResponse")
        items.append(OffsetFetchResponse(throttle_time_ms=throttle_time_ms, groups=groups))
    return items, at


def _write_offset_fetch_response_v8(out: Parts, items: Sequence[OffsetFetchResponse]) -> None:
    try:
        for item in items:
            if item.topics != []:
                raise unknown_field("OffsetFetchResponse.topics", item.topics)
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_offset_fetch_response_group_v8(
                out, write_compact_count(out, item.groups, "OffsetFetchResponse.groups")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _OFFSET_FETCH_RESPONSE_CODES) from None


def _read_offset_fetch_response_topics_v10(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetFetchResponseTopics], int]:
    items: list[OffsetFetchResponseTopics] = []
    for _ in range(count):
        if end - at < 16:
            raise cut_short("OffsetFetchResponseTopics.topic_id", at, end, 16)
        (topic_id,) = _UUID.unpack_from(data, at)
        at += 16
        number, at = read_compact_count(data, at, end, 20, "OffsetFetchResponseTopics.partitions")
        partitions, at = _read_offset_fetch_response_partitions_v8(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "OffsetFetchResponseTopics")
        items.append(OffsetFetchResponseTopics(topic_id=topic_id, partitions=partitions))
    return items, at


def _write_offset_fetch_response_topics_v10(out: Parts, items: Sequence[OffsetFetchResponseTopics]) -> None:
    try:
        for item in items:
            check_uuid(item.topic_id, "OffsetFetchResponseTopics.topic_id")
            out.append(_UUID.pack(item.topic_id))
            _write_offset_fetch_response_partitions_v8(
                out, write_compact_count(out, item.partitions, "OffsetFetchResponseTopics.partitions")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _OFFSET_FETCH_RESPONSE_TOPICS_CODES) from None


def _read_offset_fetch_response_group_v10(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetFetchResponseGroup], int]:
    items: list[OffsetFetchResponseGroup] = []
    for _ in range(count):
        group_id, at = read_compact_string(data, at, end, "OffsetFetchResponseGroup.group_id")
        number, at = read_compact_count(data, at, end, 18, "OffsetFetchResponseGroup.topics")
        topics, at = _read_offset_fetch_response_topics_v10(data, at, end, number)
        if end - at < 3:
            raise cut_short("OffsetFetchResponseGroup.error_code", at, end, 3)
        error_code, tags = _INT16_TAGS.unpack_from(data, at)
        at += 3
        if tags:
            at = skip_tags(data, at - 1, end, "OffsetFetchResponseGroup")
        items.append(OffsetFetchResponseGroup(group_id=group_id, topics=topics, error_code=error_code))
    return items, at


def _write_offset_fetch_response_group_v10(out: Parts, items: Sequence[OffsetFetchResponseGroup]) -> None:
    try:
        for item in items:
            write_compact_string(out, item.group_id, "OffsetFetchResponseGroup.group_id")
            _write_offset_fetch_response_topics_v10(
                out, write_compact_count(out, item.topics, "OffsetFetchResponseGroup.topics")
            )
            out.append(_INT16_TAGS.pack(item.error_code, 0))
    except struct.error:
        raise misfit(items, _OFFSET_FETCH_RESPONSE_GROUP_CODES) from None


def _read_offset_fetch_response_v10(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[OffsetFetchResponse], int]:
    items: list[OffsetFetchResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("OffsetFetchResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 5, "OffsetFetchResponse.groups")
        groups, at = _read_offset_fetch_response_group_v10(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "OffsetFetchResponse")
        items.append(OffsetFetchResponse(throttle_time_ms=throttle_time_ms, groups=groups))
    return items, at


def _write_offset_fetch_response_v10(out: Parts, items: Sequence[OffsetFetchResponse]) -> None:
    try:
        for item in items:
            if item.topics != []:
                raise unknown_field("OffsetFetchResponse.topics", item.topics)
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_offset_fetch_response_group_v10(
                out, write_compact_count(out, item.groups, "OffsetFetchResponse.groups")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _OFFSET_FETCH_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    OffsetFetchResponse,
    {
        1: (_read_offset_fetch_response_v1, _write_offset_fetch_response_v1),
        2: (_read_offset_fetch_response_v2, _write_offset_fetch_response_v2),
        3: (_read_offset_fetch_response_v3, _write_offset_fetch_response_v3),
        4: (_read_offset_fetch_response_v3, _write_offset_fetch_response_v3),
        5: (_read_offset_fetch_response_v5, _write_offset_fetch_response_v5),
        6: (_read_offset_fetch_response_v6, _write_offset_fetch_response_v6),
        7: (_read_offset_fetch_response_v6, _write_offset_fetch_response_v6),
        8: (_read_offset_fetch_response_v8, _write_offset_fetch_response_v8),
        9: (_read_offset_fetch_response_v8, _write_offset_fetch_response_v8),
        10: (_read_offset_fetch_response_v10, _write_offset_fetch_response_v10),
    },
)
