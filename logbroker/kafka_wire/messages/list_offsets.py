"""ListOffsets, API key 2.

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
    unknown_field,
    write_compact_count,
    write_compact_string,
    write_count,
    write_string,
)

_INT32: Final = struct.Struct(">i")
_INT32_TAGS: Final = struct.Struct(">iB")
_INT32_INT8: Final = struct.Struct(">ib")
_INT32_INT16_INT64X2: Final = struct.Struct(">ihqq")
_INT32_INT16_INT64X2_INT32: Final = struct.Struct(">ihqqi")
_INT32_INT16_INT64X2_INT32_TAGS: Final = struct.Struct(">ihqqiB")
_INT32X2_INT64: Final = struct.Struct(">iiq")
_INT32X2_INT64_TAGS: Final = struct.Struct(">iiqB")
_INT32_INT64: Final = struct.Struct(">iq")


class ListOffsetsRequestPartition(msgspec.Struct, kw_only=True, gc=False):
    """Each partition in the request."""

    partition_index: int = 0
    """The partition index. (int32)"""
    current_leader_epoch: int = -1
    """The current leader epoch. (int32, versions 4 to 11, ignorable)"""
    timestamp: int = 0
    """The current timestamp. (int64)"""


class ListOffsetsRequestTopic(msgspec.Struct, kw_only=True, gc=False):
    """Each topic in the request."""

    name: str = ""
    """The topic name. (string)"""
    partitions: list[ListOffsetsRequestPartition] = []
    """Each partition in the request."""


class ListOffsetsRequest(msgspec.Struct, kw_only=True, gc=False):
    """ListOffsetsRequest, versions 1 to 11."""

    replica_id: int = 0
    """The broker ID of the requester, or -1 if this request is being made by a normal consumer. (int32)"""
    isolation_level: int = 0
    """This setting controls the visibility of transactional records. Using READ_UNCOMMITTED (isolation_level = 0)
    makes all records visible. With READ_COMMITTED (isolation_level = 1), non-transactional and COMMITTED
    transactional records are visible. To be more concrete, READ_COMMITTED returns all data from offsets smaller
    than the current LSO (last stable offset), and enables the inclusion of the list of aborted transactions in
    the result, which allows consumers to discard ABORTED transactional records. (int8, versions 2 to 11)"""
    topics: list[ListOffsetsRequestTopic] = []
    """Each topic in the request."""
    timeout_ms: int = 0
    """The timeout to await a response in milliseconds for requests that require reading from remote storage for
    topics enabled with tiered storage. (int32, versions 10 to 11, ignorable)"""


_LIST_OFFSETS_REQUEST_CODES: Final = {"replica_id": "i", "isolation_level": "b", "timeout_ms": "i"}
_LIST_OFFSETS_REQUEST_PARTITION_CODES: Final = {"partition_index": "i", "current_leader_epoch": "i", "timestamp": "q"}


def _read_list_offsets_request_partition_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ListOffsetsRequestPartition], int]:
    items: list[ListOffsetsRequestPartition] = []
    for _ in range(count):
        if end - at < 12:
            raise cut_short("ListOffsetsRequestPartition.partition_index to timestamp", at, end, 12)
        partition_index, timestamp = _INT32_INT64.unpack_from(data, at)
        at += 12
        items.append(ListOffsetsRequestPartition(partition_index=partition_index, timestamp=timestamp))
    return items, at


def _write_list_offsets_request_partition_v1(out: Parts, items: Sequence[ListOffsetsRequestPartition]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT64.pack(item.partition_index, item.timestamp))
    except struct.error:
        raise misfit(items, _LIST_OFFSETS_REQUEST_PARTITION_CODES) from None


def _read_list_offsets_request_topic_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ListOffsetsRequestTopic], int]:
    items: list[ListOffsetsRequestTopic] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "ListOffsetsRequestTopic.name")
        number, at = read_count(data, at, end, 12, "ListOffsetsRequestTopic.partitions")
        partitions, at = _read_list_offsets_request_partition_v1(data, at, end, number)
        items.append(ListOffsetsRequestTopic(name=name, partitions=partitions))
    return items, at


def _write_list_offsets_request_topic_v1(out: Parts, items: Sequence[ListOffsetsRequestTopic]) -> None:
    for item in items:
        write_string(out, item.name, "ListOffsetsRequestTopic.name")
        _write_list_offsets_request_partition_v1(
            out, write_count(out, item.partitions, "ListOffsetsRequestTopic.partitions")
        )


def _read_list_offsets_request_v1(data: Buffer, at: int, end: int, count: int) -> tuple[list[ListOffsetsRequest], int]:
    items: list[ListOffsetsRequest] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("ListOffsetsRequest.replica_id", at, end, 4)
        (replica_id,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 6, "ListOffsetsRequest.topics")
        topics, at = _read_list_offsets_request_topic_v1(data, at, end, number)
        items.append(ListOffsetsRequest(replica_id=replica_id, topics=topics))
    return items, at


def _write_list_offsets_request_v1(out: Parts, items: Sequence[ListOffsetsRequest]) -> None:
    try:
        for item in items:
            if item.isolation_level != 0:
                raise unknown_field("ListOffsetsRequest.isolation_level", item.isolation_level)
            out.append(_INT32.pack(item.replica_id))
            _write_list_offsets_request_topic_v1(out, write_count(out, item.topics, "ListOffsetsRequest.topics"))
    except struct.error:
        raise misfit(items, _LIST_OFFSETS_REQUEST_CODES) from None


def _read_list_offsets_request_v2(data: Buffer, at: int, end: int, count: int) -> tuple[list[ListOffsetsRequest], int]:
    items: list[ListOffsetsRequest] = []
    for _ in range(count):
        if end - at < 5:
            raise cut_short("ListOffsetsRequest.replica_id to isolation_level", at, end, 5)
        replica_id, isolation_level = _INT32_INT8.unpack_from(data, at)
        at += 5
        number, at = read_count(data, at, end, 6, "ListOffsetsRequest.topics")
        topics, at = _read_list_offsets_request_topic_v1(data, at, end, number)
        items.append(ListOffsetsRequest(replica_id=replica_id, isolation_level=isolation_level, topics=topics))
    return items, at


def _write_list_offsets_request_v2(out: Parts, items: Sequence[ListOffsetsRequest]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT8.pack(item.replica_id, item.isolation_level))
            _write_list_offsets_request_topic_v1(out, write_count(out, item.topics, "ListOffsetsRequest.topics"))
    except struct.error:
        raise misfit(items, _LIST_OFFSETS_REQUEST_CODES) from None


def _read_list_offsets_request_partition_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ListOffsetsRequestPartition], int]:
    items: list[ListOffsetsRequestPartition] = []
    for _ in range(count):
        if end - at < 16:
            raise cut_short("ListOffsetsRequestPartition.partition_index to timestamp", at, end, 16)
        partition_index, current_leader_epoch, timestamp = _INT32X2_INT64.unpack_from(data, at)
        at += 16
        items.append(
            ListOffsetsRequestPartition(
                partition_index=partition_index, current_leader_epoch=current_leader_epoch, timestamp=timestamp
            )
        )
    return items, at


def _write_list_offsets_request_partition_v4(out: Parts, items: Sequence[ListOffsetsRequestPartition]) -> None:
    try:
        for item in items:
            out.append(_INT32X2_INT64.pack(item.partition_index, item.current_leader_epoch, item.timestamp))
    except struct.error:
        raise misfit(items, _LIST_OFFSETS_REQUEST_PARTITION_CODES) from None


def _read_list_offsets_request_topic_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ListOffsetsRequestTopic], int]:
    items: list[ListOffsetsRequestTopic] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "ListOffsetsRequestTopic.name")
        number, at = read_count(data, at, end, 16, "ListOffsetsRequestTopic.partitions")
        partitions, at = _read_list_offsets_request_partition_v4(data, at, end, number)
        items.append(ListOffsetsRequestTopic(name=name, partitions=partitions))
    return items, at


def _write_list_offsets_request_topic_v4(out: Parts, items: Sequence[ListOffsetsRequestTopic]) -> None:
    for item in items:
        write_string(out, item.name, "ListOffsetsRequestTopic.name")
        _write_list_offsets_request_partition_v4(
            out, write_count(out, item.partitions, "ListOffsetsRequestTopic.partitions")
        )


def _read_list_offsets_request_v4(data: Buffer, at: int, end: int, count: int) -> tuple[list[ListOffsetsRequest], int]:
    items: list[ListOffsetsRequest] = []
    for _ in range(count):
        if end - at < 5:
            raise cut_short("ListOffsetsRequest.replica_id to isolation_level", at, end, 5)
        replica_id, isolation_level = _INT32_INT8.unpack_from(data, at)
        at += 5
        number, at = read_count(data, at, end, 6, "ListOffsetsRequest.topics")
        topics, at = _read_list_offsets_request_topic_v4(data, at, end, number)
        items.append(ListOffsetsRequest(replica_id=replica_id, isolation_level=isolation_level, topics=topics))
    return items, at


def _write_list_offsets_request_v4(out: Parts, items: Sequence[ListOffsetsRequest]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT8.pack(item.replica_id, item.isolation_level))
            _write_list_offsets_request_topic_v4(out, write_count(out, item.topics, "ListOffsetsRequest.topics"))
    except struct.error:
        raise misfit(items, _LIST_OFFSETS_REQUEST_CODES) from None


def _read_list_offsets_request_partition_v6(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ListOffsetsRequestPartition], int]:
    items: list[ListOffsetsRequestPartition] = []
    for _ in range(count):
        if end - at < 17:
            raise cut_short("ListOffsetsRequestPartition.partition_index to timestamp", at, end, 17)
        partition_index, current_leader_epoch, timestamp, tags = _INT32X2_INT64_TAGS.unpack_from(data, at)
        at += 17
        if tags:
            at = skip_tags(data, at - 1, end, "ListOffsetsRequestPartition")
        items.append(
            ListOffsetsRequestPartition(
                partition_index=partition_index, current_leader_epoch=current_leader_epoch, timestamp=timestamp
            )
        )
    return items, at


def _write_list_offsets_request_partition_v6(out: Parts, items: Sequence[ListOffsetsRequestPartition]) -> None:
    try:
        for item in items:
            out.append(_INT32X2_INT64_TAGS.pack(item.partition_index, item.current_leader_epoch, item.timestamp, 0))
    except struct.error:
        raise misfit(items, _LIST_OFFSETS_REQUEST_PARTITION_CODES) from None


def _read_list_offsets_request_topic_v6(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ListOffsetsRequestTopic], int]:
    items: list[ListOffsetsRequestTopic] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "ListOffsetsRequestTopic.name")
        number, at = read_compact_count(data, at, end, 17, "ListOffsetsRequestTopic.partitions")
        partitions, at = _read_list_offsets_request_partition_v6(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ListOffsetsRequestTopic")
        items.append(ListOffsetsRequestTopic(name=name, partitions=partitions))
    return items, at


def _write_list_offsets_request_topic_v6(out: Parts, items: Sequence[ListOffsetsRequestTopic]) -> None:
    for item in items:
        write_compact_string(out, item.name, "ListOffsetsRequestTopic.name")
        _write_list_offsets_request_partition_v6(
            out, write_compact_count(out, item.partitions, "ListOffsetsRequestTopic.partitions")
        )
        out.append(NO_TAGS)


def _read_list_offsets_request_v6(data: Buffer, at: int, end: int, count: int) -> tuple[list[ListOffsetsRequest], int]:
    items: list[ListOffsetsRequest] = []
    for _ in range(count):
        if end - at < 5:
            raise cut_short("ListOffsetsRequest.replica_id to isolation_level", at, end, 5)
        replica_id, isolation_level = _INT32_INT8.unpack_from(data, at)
        at += 5
        number, at = read_compact_count(data, at, end, 3, "ListOffsetsRequest.topics")
        topics, at = _read_list_offsets_request_topic_v6(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ListOffsetsRequest")
        items.append(ListOffsetsRequest(replica_id=replica_id, isolation_level=isolation_level, topics=topics))
    return items, at


def _write_list_offsets_request_v6(out: Parts, items: Sequence[ListOffsetsRequest]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT8.pack(item.replica_id, item.isolation_level))
            _write_list_offsets_request_topic_v6(
                out, write_compact_count(out, item.topics, "ListOffsetsRequest.topics")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _LIST_OFFSETS_REQUEST_CODES) from None


def _read_list_offsets_request_v10(data: Buffer, at: int, end: int, count: int) -> tuple[list[ListOffsetsRequest], int]:
    items: list[ListOffsetsRequest] = []
    for _ in range(count):
        if end - at < 5:
            raise cut_short("ListOffsetsRequest.replica_id to isolation_level", at, end, 5)
        replica_id, isolation_level = _INT32_INT8.unpack_from(data, at)
        at += 5
        number, at = read_compact_count(data, at, end, 3, "ListOffsetsRequest.topics")
        topics, at = _read_list_offsets_request_topic_v6(data, at, end, number)
        if end - at < 5:
            raise cut_short("ListOffsetsRequest.timeout_ms", at, end, 5)
        timeout_ms, tags = _INT32_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "ListOffsetsRequest")
        items.append(
            ListOffsetsRequest(
                replica_id=replica_id, isolation_level=isolation_level, topics=topics, timeout_ms=timeout_ms
            )
        )
    return items, at


def _write_list_offsets_request_v10(out: Parts, items: Sequence[ListOffsetsRequest]) -> None:
    try:
        for item in items:
            out.append(_INT32_INT8.pack(item.replica_id, item.isolation_level))
            _write_list_offsets_request_topic_v6(
                out, write_compact_count(out, item.topics, "ListOffsetsRequest.topics")
            )
            out.append(_INT32_TAGS.pack(item.timeout_ms, 0))
    except struct.error:
        raise misfit(items, _LIST_OFFSETS_REQUEST_CODES) from None


REQUEST: Final = MessageCodec(
    ListOffsetsRequest,
    {
        1: (_read_list_offsets_request_v1, _write_list_offsets_request_v1),
        2: (_read_list_offsets_request_v2, _write_list_offsets_request_v2),
        3: (_read_list_offsets_request_v2, _write_list_offsets_request_v2),
        4: (_read_list_offsets_request_v4, _write_list_offsets_request_v4),
        5: (_read_list_offsets_request_v4, _write_list_offsets_request_v4),
        6: (_read_list_offsets_request_v6, _write_list_offsets_request_v6),
        7: (_read_list_offsets_request_v6, _write_list_offsets_request_v6),
        8: (_read_list_offsets_request_v6, _write_list_offsets_request_v6),
        9: (_read_list_offsets_request_v6, _write_list_offsets_request_v6),
        10: (_read_list_offsets_request_v10, _write_list_offsets_request_v10),
        11: (_read_list_offsets_request_v10, _write_list_offsets_request_v10),
    },
)


class ListOffsetsResponsePartition(msgspec.Struct, kw_only=True, gc=False):
    """Each partition in the response."""

    partition_index: int = 0
    """The partition index. (int32)"""
    error_code: int = 0
    """The partition error code, or 0 if there was no error. (int16)"""
    timestamp: int = -1
    """The timestamp associated with the returned offset. (int64)"""
    offset: int = -1
    """The returned offset. (int64)"""
    leader_epoch: int = -1
    """The leader epoch associated with the returned offset. (int32, versions 4 to 11)"""


class ListOffsetsResponseTopic(msgspec.Struct, kw_only=True, gc=False):
    """Each topic in the response."""

    name: str = ""
    """The topic name. (string)"""
    partitions: list[ListOffsetsResponsePartition] = []
    """Each partition in the response."""


class ListOffsetsResponse(msgspec.Struct, kw_only=True, gc=False):
    """ListOffsetsResponse, versions 1 to 11."""

    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32, versions 2 to 11, ignorable)"""
    topics: list[ListOffsetsResponseTopic] = []
    """Each topic in the response."""


_LIST_OFFSETS_RESPONSE_CODES: Final = {"throttle_time_ms": "i"}
_LIST_OFFSETS_RESPONSE_PARTITION_CODES: Final = {
    "partition_index": "i",
    "error_code": "h",
    "timestamp": "q",
    "offset": "q",
    "leader_epoch": "i",
}


def _read_list_offsets_response_partition_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ListOffsetsResponsePartition], int]:
    items: list[ListOffsetsResponsePartition] = []
    for _ in range(count):
        if end - at < 22:
            raise cut_short("ListOffsetsResponsePartition.partition_index to offset", at, end, 22)
        partition_index, error_code, timestamp, offset = _INT32_INT16_INT64X2.unpack_from(data, at)
        at += 22
        items.append(
            ListOffsetsResponsePartition(
                partition_index=partition_index, error_code=error_code, timestamp=timestamp, offset=offset
            )
        )
    return items, at


def _write_list_offsets_response_partition_v1(out: Parts, items: Sequence[ListOffsetsResponsePartition]) -> None:
    try:
        for item in items:
            if item.leader_epoch != -1:
                raise unknown_field("ListOffsetsResponsePartition.leader_epoch", item.leader_epoch)
            out.append(_INT32_INT16_INT64X2.pack(item.partition_index, item.error_code, item.timestamp, item.offset))
    except struct.error:
        raise misfit(items, _LIST_OFFSETS_RESPONSE_PARTITION_CODES) from None


def _read_list_offsets_response_topic_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ListOffsetsResponseTopic], int]:
    items: list[ListOffsetsResponseTopic] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "ListOffsetsResponseTopic.name")
        number, at = read_count(data, at, end, 22, "ListOffsetsResponseTopic.partitions")
        partitions, at = _read_list_offsets_response_partition_v1(data, at, end, number)
        items.append(ListOffsetsResponseTopic(name=name, partitions=partitions))
    return items, at


def _write_list_offsets_response_topic_v1(out: Parts, items: Sequence[ListOffsetsResponseTopic]) -> None:
    for item in items:
        write_string(out, item.name, "ListOffsetsResponseTopic.name")
        _write_list_offsets_response_partition_v1(
            out, write_count(out, item.partitions, "ListOffsetsResponseTopic.partitions")
        )


def _read_list_offsets_response_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ListOffsetsResponse], int]:
    items: list[ListOffsetsResponse] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 6, "ListOffsetsResponse.topics")
        topics, at = _read_list_offsets_response_topic_v1(data, at, end, number)
        items.append(ListOffsetsResponse(topics=topics))
    return items, at


def _write_list_offsets_response_v1(out: Parts, items: Sequence[ListOffsetsResponse]) -> None:
    for item in items:
        _write_list_offsets_response_topic_v1(out, write_count(out, item.topics, "ListOffsetsResponse.topics"))


def _read_list_offsets_response_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ListOffsetsResponse], int]:
    items: list[ListOffsetsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("ListOffsetsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 6, "ListOffsetsResponse.topics")
        topics, at = _read_list_offsets_response_topic_v1(data, at, end, number)
        items.append(ListOffsetsResponse(throttle_time_ms=throttle_time_ms, topics=topics))
    return items, at


def _write_list_offsets_response_v2(out: Parts, items: Sequence[ListOffsetsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_list_offsets_response_topic_v1(out, write_count(out, item.topics, "ListOffsetsResponse.topics"))
    except struct.error:
        raise misfit(items, _LIST_OFFSETS_RESPONSE_CODES) from None


def _read_list_offsets_response_partition_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ListOffsetsResponsePartition], int]:
    items: list[ListOffsetsResponsePartition] = []
    for _ in range(count):
        if end - at < 26:
            raise cut_short("ListOffsetsResponsePartition.partition_index to leader_epoch", at, end, 26)
        partition_index, error_code, timestamp, offset, leader_epoch = _INT32_INT16_INT64X2_INT32.unpack_from(data, at)
        at += 26
        items.append(
            ListOffsetsResponsePartition(
                partition_index=partition_index,
                error_code=error_code,
                timestamp=timestamp,
                offset=offset,
                leader_epoch=leader_epoch,
            )
        )
    return items, at


def _write_list_offsets_response_partition_v4(out: Parts, items: Sequence[ListOffsetsResponsePartition]) -> None:
    try:
        for item in items:
            out.append(
                _INT32_INT16_INT64X2_INT32.pack(
                    item.partition_index, item.error_code, item.timestamp, item.offset, item.leader_epoch
                )
            )
    except struct.error:
        raise misfit(items, _LIST_OFFSETS_RESPONSE_PARTITION_CODES) from None


def _read_list_offsets_response_topic_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ListOffsetsResponseTopic], int]:
    items: list[ListOffsetsResponseTopic] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "ListOffsetsResponseTopic.name")
        number, at = read_count(data, at, end, 26, "ListOffsetsResponseTopic.partitions")
        partitions, at = _read_list_offsets_response_partition_v4(data, at, end, number)
        items.append(ListOffsetsResponseTopic(name=name, partitions=partitions))
    return items, at


def _write_list_offsets_response_topic_v4(out: Parts, items: Sequence[ListOffsetsResponseTopic]) -> None:
    for item in items:
        write_string(out, item.name, "ListOffsetsResponseTopic.name")
        _write_list_offsets_response_partition_v4(
            out, write_count(out, item.partitions, "ListOffsetsResponseTopic.partitions")
        )


def _read_list_offsets_response_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ListOffsetsResponse], int]:
    items: list[ListOffsetsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("ListOffsetsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 6, "ListOffsetsResponse.topics")
        topics, at = _read_list_offsets_response_topic_v4(data, at, end, number)
        items.append(ListOffsetsResponse(throttle_time_ms=throttle_time_ms, topics=topics))
    return items, at


def _write_list_offsets_response_v4(out: Parts, items: Sequence[ListOffsetsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_list_offsets_response_topic_v4(out, write_count(out, item.topics, "ListOffsetsResponse.topics"))
    except struct.error:
        raise misfit(items, _LIST_OFFSETS_RESPONSE_CODES) from None


def _read_list_offsets_response_partition_v6(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ListOffsetsResponsePartition], int]:
    items: list[ListOffsetsResponsePartition] = []
    for _ in range(count):
        if end - at < 27:
            raise cut_short("ListOffsetsResponsePartition.partition_index to leader_epoch", at, end, 27)
        partition_index, error_code, timestamp, offset, leader_epoch, tags = (
            _INT32_INT16_INT64X2_INT32_TAGS.unpack_from(data, at)
        )
        at += 27
        if tags:
            at = skip_tags(data, at - 1, end, "ListOffsetsResponsePartition")
        items.append(
            ListOffsetsResponsePartition(
                partition_index=partition_index,
                error_code=error_code,
                timestamp=timestamp,
                offset=offset,
                leader_epoch=leader_epoch,
            )
        )
    return items, at


def _write_list_offsets_response_partition_v6(out: Parts, items: Sequence[ListOffsetsResponsePartition]) -> None:
    try:
        for item in items:
            out.append(
                _INT32_INT16_INT64X2_INT32_TAGS.pack(
                    item.partition_index, item.error_code, item.timestamp, item.offset, item.leader_epoch, 0
                )
            )
    except struct.error:
        raise misfit(items, _LIST_OFFSETS_RESPONSE_PARTITION_CODES) from None


def _read_list_offsets_response_topic_v6(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ListOffsetsResponseTopic], int]:
    items: list[ListOffsetsResponseTopic] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "ListOffsetsResponseTopic.name")
        number, at = read_compact_count(data, at, end, 27, "ListOffsetsResponseTopic.partitions")
        partitions, at = _read_list_offsets_response_partition_v6(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ListOffsetsResponseTopic")
        items.append(ListOffsetsResponseTopic(name=name, partitions=partitions))
    return items, at


def _write_list_offsets_response_topic_v6(out: Parts, items: Sequence[ListOffsetsResponseTopic]) -> None:
    for item in items:
        write_compact_string(out, item.name, "ListOffsetsResponseTopic.name")
        _write_list_offsets_response_partition_v6(
            out, write_compact_count(out, item.partitions, "ListOffsetsResponseTopic.partitions")
        )
        out.append(NO_TAGS)


def _read_list_offsets_response_v6(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ListOffsetsResponse], int]:
    items: list[ListOffsetsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("ListOffsetsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 3, "ListOffsetsResponse.topics")
        topics, at = _read_list_offsets_response_topic_v6(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ListOffsetsResponse")
        items.append(ListOffsetsResponse(throttle_time_ms=throttle_time_ms, topics=topics))
    return items, at


def _write_list_offsets_response_v6(out: Parts, items: Sequence[ListOffsetsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_list_offsets_response_topic_v6(
                out, write_compact_count(out, item.topics, "ListOffsetsResponse.topics")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _LIST_OFFSETS_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    ListOffsetsResponse,
    {
        1: (_read_list_offsets_response_v1, _write_list_offsets_response_v1),
        2: (_read_list_offsets_response_v2, _write_list_offsets_response_v2),
        3: (_read_list_offsets_response_v2, _write_list_offsets_response_v2),
        4: (_read_list_offsets_response_v4, _write_list_offsets_response_v4),
        5: (_read_list_offsets_response_v4, _write_list_offsets_response_v4),
        6: (_read_list_offsets_response_v6, _write_list_offsets_response_v6),
        7: (_read_list_offsets_response_v6, _write_list_offsets_response_v6),
        8: (_read_list_offsets_response_v6, _write_list_offsets_response_v6),
        9: (_read_list_offsets_response_v6, _write_list_offsets_response_v6),
        10: (_read_list_offsets_response_v6, _write_list_offsets_response_v6),
        11: (_read_list_offsets_response_v6, _write_list_offsets_response_v6),
    },
)
