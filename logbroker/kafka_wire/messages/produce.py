"""Produce, API key 0.

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
    read_compact_nullable_records,
    read_compact_nullable_string,
    read_compact_string,
    read_count,
    read_nullable_records,
    read_nullable_string,
    read_string,
    read_tag,
    read_uvarint,
    required,
    skip_tags,
    unknown_field,
    write_compact_count,
    write_compact_nullable_bytes,
    write_compact_nullable_string,
    write_compact_string,
    write_count,
    write_nullable_bytes,
    write_nullable_string,
    write_string,
    write_tags,
)

_UUID: Final = struct.Struct(">16s")
_INT16_INT32: Final = struct.Struct(">hi")
_INT32: Final = struct.Struct(">i")
_INT32_TAGS: Final = struct.Struct(">iB")
_INT32_INT16_INT64X2: Final = struct.Struct(">ihqq")
_INT32_INT16_INT64X3: Final = struct.Struct(">ihqqq")
_INT32X2_TAGS: Final = struct.Struct(">iiB")


class ProduceRequestPartitionProduceData(msgspec.Struct, kw_only=True, gc=False):
    """Each partition to produce to."""

    index: int = 0
    """The partition index. (int32)"""
    records: Buffer | None = None
    """The record data to be produced. (records)"""


class ProduceRequestTopicProduceData(msgspec.Struct, kw_only=True, gc=False):
    """Each topic to produce to."""

    name: str = ""
    """The topic name. (string, versions 3 to 12, ignorable)"""
    topic_id: bytes = NO_UUID
    """The unique topic ID (uuid, version 13, ignorable)"""
    partition_data: list[ProduceRequestPartitionProduceData] = []
    """Each partition to produce to."""


class ProduceRequest(msgspec.Struct, kw_only=True, gc=False):
    """ProduceRequest, versions 3 to 13."""

    transactional_id: str | None = None
    """The transactional ID, or null if the producer is not transactional. (string)"""
    acks: int = 0
    """The number of acknowledgments the producer requires the leader to have received before considering a request
    complete. Allowed values: 0 for no acknowledgments, 1 for only the leader and -1 for the full ISR. (int16)"""
    timeout_ms: int = 0
    """The timeout to await a response in milliseconds. (int32)"""
    topic_data: list[ProduceRequestTopicProduceData] = []
    """Each topic to produce to."""


_PRODUCE_REQUEST_CODES: Final = {"acks": "h", "timeout_ms": "i"}
_PRODUCE_REQUEST_TOPIC_PRODUCE_DATA_CODES: Final = {"topic_id": "16s"}
_PRODUCE_REQUEST_PARTITION_PRODUCE_DATA_CODES: Final = {"index": "i"}


def _read_produce_request_partition_produce_data_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ProduceRequestPartitionProduceData], int]:
    items: list[ProduceRequestPartitionProduceData] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("ProduceRequestPartitionProduceData.index", at, end, 4)
        (index,) = _INT32.unpack_from(data, at)
        at += 4
        records, at = read_nullable_records(data, at, end, "ProduceRequestPartitionProduceData.records")
        items.append(ProduceRequestPartitionProduceData(index=index, records=records))
    return items, at


def _write_produce_request_partition_produce_data_v3(
    out: Parts, items: Sequence[ProduceRequestPartitionProduceData]
) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.index))
            write_nullable_bytes(out, item.records, "ProduceRequestPartitionProduceData.records")
    except struct.error:
        raise misfit(items, _PRODUCE_REQUEST_PARTITION_PRODUCE_DATA_CODES) from None


def _read_produce_request_topic_produce_data_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ProduceRequestTopicProduceData], int]:
    items: list[ProduceRequestTopicProduceData] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "ProduceRequestTopicProduceData.name")
        number, at = read_count(data, at, end, 8, "ProduceRequestTopicProduceData.partition_data")
        partition_data, at = _read_produce_request_partition_produce_data_v3(data, at, end, number)
        items.append(ProduceRequestTopicProduceData(name=name, partition_data=partition_data))
    return items, at


def _write_produce_request_topic_produce_data_v3(out: Parts, items: Sequence[ProduceRequestTopicProduceData]) -> None:
    for item in items:
        write_string(out, item.name, "ProduceRequestTopicProduceData.name")
        _write_produce_request_partition_produce_data_v3(
            out, write_count(out, item.partition_data, "ProduceRequestTopicProduceData.partition_data")
        )


def _read_produce_request_v3(data: Buffer, at: int, end: int, count: int) -> tuple[list[ProduceRequest], int]:
    items: list[ProduceRequest] = []
    for _ in range(count):
        transactional_id, at = read_nullable_string(data, at, end, "ProduceRequest.transactional_id")
        if end - at < 6:
            raise cut_short("ProduceRequest.acks to timeout_ms", at, end, 6)
        acks, timeout_ms = _INT16_INT32.unpack_from(data, at)
        at += 6
        number, at = read_count(data, at, end, 6, "ProduceRequest.topic_data")
        topic_data, at = _read_produce_request_topic_produce_data_v3(data, at, end, number)
        items.append(
            ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=topic_data)
        )
    return items, at


def _write_produce_request_v3(out: Parts, items: Sequence[ProduceRequest]) -> None:
    try:
        for item in items:
            write_nullable_string(out, item.transactional_id, "ProduceRequest.transactional_id")
            out.append(_INT16_INT32.pack(item.acks, item.timeout_ms))
            _write_produce_request_topic_produce_data_v3(
                out, write_count(out, item.topic_data, "ProduceRequest.topic_data")
            )
    except struct.error:
        raise misfit(items, _PRODUCE_REQUEST_CODES) from None


def _read_produce_request_partition_produce_data_v9(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ProduceRequestPartitionProduceData], int]:
    items: list[ProduceRequestPartitionProduceData] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("ProduceRequestPartitionProduceData.index", at, end, 4)
        (index,) = _INT32.unpack_from(data, at)
        at += 4
        records, at = read_compact_nullable_records(data, at, end, "ProduceRequestPartitionProduceData.records")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ProduceRequestPartitionProduceData")
        items.append(ProduceRequestPartitionProduceData(index=index, records=records))
    return items, at


def _write_produce_request_partition_produce_data_v9(
    out: Parts, items: Sequence[ProduceRequestPartitionProduceData]
) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.index))
            write_compact_nullable_bytes(out, item.records, "ProduceRequestPartitionProduceData.records")
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _PRODUCE_REQUEST_PARTITION_PRODUCE_DATA_CODES) from None


def _read_produce_request_topic_produce_data_v9(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ProduceRequestTopicProduceData], int]:
    items: list[ProduceRequestTopicProduceData] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "ProduceRequestTopicProduceData.name")
        number, at = read_compact_count(data, at, end, 6, "ProduceRequestTopicProduceData.partition_data")
        partition_data, at = _read_produce_request_partition_produce_data_v9(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ProduceRequestTopicProduceData")
        items.append(ProduceRequestTopicProduceData(name=name, partition_data=partition_data))
    return items, at


def _write_produce_request_topic_produce_data_v9(out: Parts, items: Sequence[ProduceRequestTopicProduceData]) -> None:
    for item in items:
        write_compact_string(out, item.name, "ProduceRequestTopicProduceData.name")
        _write_produce_request_partition_produce_data_v9(
            out, write_compact_count(out, item.partition_data, "ProduceRequestTopicProduceData.partition_data")
        )
        out.append(NO_TAGS)


def _read_produce_request_v9(data: Buffer, at: int, end: int, count: int) -> tuple[list[ProduceRequest], int]:
    items: list[ProduceRequest] = []
    for _ in range(count):
        transactional_id, at = read_compact_nullable_string(data, at, end, "ProduceRequest.transactional_id")
        if end - at < 6:
            raise cut_short("ProduceRequest.acks to timeout_ms", at, end, 6)
        acks, timeout_ms = _INT16_INT32.unpack_from(data, at)
        at += 6
        number, at = read_compact_count(data, at, end, 3, "ProduceRequest.topic_data")
        topic_data, at = _read_produce_request_topic_produce_data_v9(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ProduceRequest")
        items.append(
            ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=topic_data)
        )
    return items, at


def _write_produce_request_v9(out: Parts, items: Sequence[ProduceRequest]) -> None:
    try:
        for item in items:
            write_compact_nullable_string(out, item.transactional_id, "ProduceRequest.transactional_id")
            out.append(_INT16_INT32.pack(item.acks, item.timeout_ms))
            _write_produce_request_topic_produce_data_v9(
                out, write_compact_count(out, item.topic_data, "ProduceRequest.topic_data")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _PRODUCE_REQUEST_CODES) from None


def _read_produce_request_topic_produce_data_v13(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ProduceRequestTopicProduceData], int]:
    items: list[ProduceRequestTopicProduceData] = []
    for _ in range(count):
        if end - at < 16:
            raise cut_short("ProduceRequestTopicProduceData.topic_id", at, end, 16)
        (topic_id,) = _UUID.unpack_from(data, at)
        at += 16
        number, at = read_compact_count(data, at, end, 6, "ProduceRequestTopicProduceData.partition_data")
        partition_data, at = _read_produce_request_partition_produce_data_v9(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ProduceRequestTopicProduceData")
        items.append(ProduceRequestTopicProduceData(topic_id=topic_id, partition_data=partition_data))
    return items, at


def _write_produce_request_topic_produce_data_v13(out: Parts, items: Sequence[ProduceRequestTopicProduceData]) -> None:
    try:
        for item in items:
            check_uuid(item.topic_id, "ProduceRequestTopicProduceData.topic_id")
            out.append(_UUID.pack(item.topic_id))
            _write_produce_request_partition_produce_data_v9(
                out, write_compact_count(out, item.partition_data, "ProduceRequestTopicProduceData.partition_data")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _PRODUCE_REQUEST_TOPIC_PRODUCE_DATA_CODES) from None


def _read_produce_request_v13(data: Buffer, at: int, end: int, count: int) -> tuple[list[ProduceRequest], int]:
    items: list[ProduceRequest] = []
    for _ in range(count):
        transactional_id, at = read_compact_nullable_string(data, at, end, "ProduceRequest.transactional_id")
        if end - at < 6:
            raise cut_short("ProduceRequest.acks to timeout_ms", at, end, 6)
        acks, timeout_ms = _INT16_INT32.unpack_from(data, at)
        at += 6
        number, at = read_compact_count(data, at, end, 18, "ProduceRequest.topic_data")
        topic_data, at = _read_produce_request_topic_produce_data_v13(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ProduceRequest")
        items.append(
            ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=topic_data)
        )
    return items, at


def _write_produce_request_v13(out: Parts, items: Sequence[ProduceRequest]) -> None:
    try:
        for item in items:
            write_compact_nullable_string(out, item.transactional_id, "ProduceRequest.transactional_id")
            out.append(_INT16_INT32.pack(item.acks, item.timeout_ms))
            _write_produce_request_topic_produce_data_v13(
                out, write_compact_count(out, item.topic_data, "ProduceRequest.topic_data")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _PRODUCE_REQUEST_CODES) from None


REQUEST: Final = MessageCodec(
    ProduceRequest,
    {
        3: (_read_produce_request_v3, _write_produce_request_v3),
        4: (_read_produce_request_v3, _write_produce_request_v3),
        5: (_read_produce_request_v3, _write_produce_request_v3),
        6: (_read_produce_request_v3, _write_produce_request_v3),
        7: (_read_produce_request_v3, _write_produce_request_v3),
        8: (_read_produce_request_v3, _write_produce_request_v3),
        9: (_read_produce_request_v9, _write_produce_request_v9),
        10: (_read_produce_request_v9, _write_produce_request_v9),
        11: (_read_produce_request_v9, _write_produce_request_v9),
        12: (_read_produce_request_v9, _write_produce_request_v9),
        13: (_read_produce_request_v13, _write_produce_request_v13),
    },
)


class ProduceResponseNodeEndpoint(msgspec.Struct, kw_only=True, gc=False):
    """Endpoints for all current-leaders enumerated in PartitionProduceResponses, with errors NOT_LEADER_OR_FOLLOWER."""

    node_id: int = 0
    """The ID of the associated node. (int32, versions 10 to 13)"""
    host: str = ""
    """The node's hostname. (string, versions 10 to 13)"""
    port: int = 0
    """The node's port. (int32, versions 10 to 13)"""
    rack: str | None = None
    """The rack of the node, or null if it has not been assigned to a rack. (string, versions 10 to 13)"""


class ProduceResponseLeaderIdAndEpoch(msgspec.Struct, kw_only=True, gc=False):
    """The leader broker that the producer should use for future requests."""

    leader_id: int = -1
    """The ID of the current leader or -1 if the leader is unknown. (int32, versions 10 to 13)"""
    leader_epoch: int = -1
    """The latest known leader epoch. (int32, versions 10 to 13)"""


class ProduceResponseBatchIndexAndErrorMessage(msgspec.Struct, kw_only=True, gc=False):
    """The batch indices of records that caused the batch to be dropped."""

    batch_index: int = 0
    """The batch index of the record that caused the batch to be dropped. (int32, versions 8 to 13)"""
    batch_index_error_message: str | None = None
    """The error message of the record that caused the batch to be dropped. (string, versions 8 to 13)"""


class ProduceResponsePartitionProduce(msgspec.Struct, kw_only=True, gc=False):
    """Each partition that we produced to within the topic."""

    index: int = 0
    """The partition index. (int32)"""
    error_code: int = 0
    """The error code, or 0 if there was no error. (int16)"""
    base_offset: int = 0
    """The base offset. (int64)"""
    log_append_time_ms: int = -1
    """The timestamp returned by broker after appending the messages. If CreateTime is used for the topic, the
    timestamp will be -1. If LogAppendTime is used for the topic, the timestamp will be the broker local time when
    the messages are appended. (int64)"""
    log_start_offset: int = -1
    """The log start offset. (int64, versions 5 to 13, ignorable)"""
    record_errors: list[ProduceResponseBatchIndexAndErrorMessage] = []
    """The batch indices of records that caused the batch to be dropped. (versions 8 to 13, ignorable)"""
    error_message: str | None = None
    """The global error message summarizing the common root cause of the records that caused the batch to be dropped.
    (string, versions 8 to 13, ignorable)"""
    current_leader: ProduceResponseLeaderIdAndEpoch | None = None
    """The leader broker that the producer should use for future requests. (versions 10 to 13)"""


class ProduceResponseTopicProduce(msgspec.Struct, kw_only=True, gc=False):
    """Each produce response."""

    name: str = ""
    """The topic name. (string, versions 3 to 12, ignorable)"""
    topic_id: bytes = NO_UUID
    """The unique topic ID (uuid, version 13, ignorable)"""
    partition_responses: list[ProduceResponsePartitionProduce] = []
    """Each partition that we produced to within the topic."""


class ProduceResponse(msgspec.Struct, kw_only=True, gc=False):
    """ProduceResponse, versions 3 to 13."""

    responses: list[ProduceResponseTopicProduce] = []
    """Each produce response."""
    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32)"""
    node_endpoints: list[ProduceResponseNodeEndpoint] = []
    """Endpoints for all current-leaders enumerated in PartitionProduceResponses, with errors NOT_LEADER_OR_FOLLOWER.
    (versions 10 to 13)"""


_PRODUCE_RESPONSE_CODES: Final = {"throttle_time_ms": "i"}
_PRODUCE_RESPONSE_TOPIC_PRODUCE_CODES: Final = {"topic_id": "16s"}
_PRODUCE_RESPONSE_PARTITION_PRODUCE_CODES: Final = {
    "index": "i",
    "error_code": "h",
    "base_offset": "q",
    "log_append_time_ms": "q",
    "log_start_offset": "q",
}
_PRODUCE_RESPONSE_BATCH_INDEX_AND_ERROR_MESSAGE_CODES: Final = {"batch_index": "i"}
_PRODUCE_RESPONSE_LEADER_ID_AND_EPOCH_CODES: Final = {"leader_id": "i", "leader_epoch": "i"}
_PRODUCE_RESPONSE_NODE_ENDPOINT_CODES: Final = {"node_id": "i", "port": "i"}


def _read_produce_response_partition_produce_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ProduceResponsePartitionProduce], int]:
    items: list[ProduceResponsePartitionProduce] = []
    for _ in range(count):
        if end - at < 22:
            raise cut_short("ProduceResponsePartitionProduce.index to log_append_time_ms", at, end, 22)
        index, error_code, base_offset, log_append_time_ms = _INT32_INT16_INT64X2.unpack_from(data, at)
        at += 22
        items.append(
            ProduceResponsePartitionProduce(
                index=index, error_code=error_code, base_offset=base_offset, log_append_time_ms=log_append_time_ms
            )
        )
    return items, at


def _write_produce_response_partition_produce_v3(out: Parts, items: Sequence[ProduceResponsePartitionProduce]) -> None:
    try:
        for item in items:
            if item.current_leader is not None and item.current_leader != type(item.current_leader)():
                raise unknown_field("ProduceResponsePartitionProduce.current_leader", item.current_leader)
            out.append(
                _INT32_INT16_INT64X2.pack(item.index, item.error_code, item.base_offset, item.log_append_time_ms)
            )
    except struct.error:
        raise misfit(items, _PRODUCE_RESPONSE_PARTITION_PRODUCE_CODES) from None


def _read_produce_response_topic_produce_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ProduceResponseTopicProduce], int]:
    items: list[ProduceResponseTopicProduce] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "ProduceResponseTopicProduce.name")
        number, at = read_count(data, at, end, 22, "ProduceResponseTopicProduce.partition_responses")
        partition_responses, at = _read_produce_response_partition_produce_v3(data, at, end, number)
        items.append(ProduceResponseTopicProduce(name=name, partition_responses=partition_responses))
    return items, at


def _write_produce_response_topic_produce_v3(out: Parts, items: Sequence[ProduceResponseTopicProduce]) -> None:
    for item in items:
        write_string(out, item.name, "ProduceResponseTopicProduce.name")
        _write_produce_response_partition_produce_v3(
            out, write_count(out, item.partition_responses, "ProduceResponseTopicProduce.partition_responses")
        )


def _read_produce_response_v3(data: Buffer, at: int, end: int, count: int) -> tuple[list[ProduceResponse], int]:
    items: list[ProduceResponse] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 6, "ProduceResponse.responses")
        responses, at = _read_produce_response_topic_produce_v3(data, at, end, number)
        if end - at < 4:
            raise cut_short("ProduceResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        items.append(ProduceResponse(responses=responses, throttle_time_ms=throttle_time_ms))
    return items, at


def _write_produce_response_v3(out: Parts, items: Sequence[ProduceResponse]) -> None:
    try:
        for item in items:
            if item.node_endpoints != []:
                raise unknown_field("ProduceResponse.node_endpoints", item.node_endpoints)
            _write_produce_response_topic_produce_v3(out, write_count(out, item.responses, "ProduceResponse.responses"))
            out.append(_INT32.pack(item.throttle_time_ms))
    except struct.error:
        raise misfit(items, _PRODUCE_RESPONSE_CODES) from None


def _read_produce_response_partition_produce_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ProduceResponsePartitionProduce], int]:
    items: list[ProduceResponsePartitionProduce] = []
    for _ in range(count):
        if end - at < 30:
            raise cut_short("ProduceResponsePartitionProduce.index to log_start_offset", at, end, 30)
        index, error_code, base_offset, log_append_time_ms, log_start_offset = _INT32_INT16_INT64X3.unpack_from(
            data, at
        )
        at += 30
        items.append(
            ProduceResponsePartitionProduce(
                index=index,
                error_code=error_code,
                base_offset=base_offset,
                log_append_time_ms=log_append_time_ms,
                log_start_offset=log_start_offset,
            )
        )
    return items, at


def _write_produce_response_partition_produce_v5(out: Parts, items: Sequence[ProduceResponsePartitionProduce]) -> None:
    try:
        for item in items:
            if item.current_leader is not None and item.current_leader != type(item.current_leader)():
                raise unknown_field("ProduceResponsePartitionProduce.current_leader", item.current_leader)
            out.append(
                _INT32_INT16_INT64X3.pack(
                    item.index, item.error_code, item.base_offset, item.log_append_time_ms, item.log_start_offset
                )
            )
    except struct.error:
        raise misfit(items, _PRODUCE_RESPONSE_PARTITION_PRODUCE_CODES) from None


def _read_produce_response_topic_produce_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ProduceResponseTopicProduce], int]:
    items: list[ProduceResponseTopicProduce] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "ProduceResponseTopicProduce.name")
        number, at = read_count(data, at, end, 30, "ProduceResponseTopicProduce.partition_responses")
        partition_responses, at = _read_produce_response_partition_produce_v5(data, at, end, number)
        items.append(ProduceResponseTopicProduce(name=name, partition_responses=partition_responses))
    return items, at


def _write_produce_response_topic_produce_v5(out: Parts, items: Sequence[ProduceResponseTopicProduce]) -> None:
    for item in items:
        write_string(out, item.name, "ProduceResponseTopicProduce.name")
        _write_produce_response_partition_produce_v5(
            out, write_count(out, item.partition_responses, "ProduceResponseTopicProduce.partition_responses")
        )


def _read_produce_response_v5(data: Buffer, at: int, end: int, count: int) -> tuple[list[ProduceResponse], int]:
    items: list[ProduceResponse] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 6, "ProduceResponse.responses")
        responses, at = _read_produce_response_topic_produce_v5(data, at, end, number)
        if end - at < 4:
            raise cut_short("ProduceResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        items.append(ProduceResponse(responses=responses, throttle_time_ms=throttle_time_ms))
    return items, at


def _write_produce_response_v5(out: Parts, items: Sequence[ProduceResponse]) -> None:
    try:
        for item in items:
            if item.node_endpoints != []:
                raise unknown_field("ProduceResponse.node_endpoints", item.node_endpoints)
            _write_produce_response_topic_produce_v5(out, write_count(out, item.responses, "ProduceResponse.responses"))
            out.append(_INT32.pack(item.throttle_time_ms))
    except struct.error:
        raise misfit(items, _PRODUCE_RESPONSE_CODES) from None


def _read_produce_response_batch_index_and_error_message_v8(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ProduceResponseBatchIndexAndErrorMessage], int]:
    items: list[ProduceResponseBatchIndexAndErrorMessage] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("ProduceResponseBatchIndexAndErrorMessage.batch_index", at, end, 4)
        (batch_index,) = _INT32.unpack_from(data, at)
        at += 4
        batch_index_error_message, at = read_nullable_string(
            data, at, end, "ProduceResponseBatchIndexAndErrorMessage.batch_index_error_message"
        )
        items.append(
            ProduceResponseBatchIndexAndErrorMessage(
                batch_index=batch_index, batch_index_error_message=batch_index_error_message
            )
        )
    return items, at


def _write_produce_response_batch_index_and_error_message_v8(
    out: Parts, items: Sequence[ProduceResponseBatchIndexAndErrorMessage]
) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.batch_index))
            write_nullable_string(
                out,
                item.batch_index_error_message,
                "ProduceResponseBatchIndexAndErrorMessage.batch_index_error_message",
            )
    except struct.error:
        raise misfit(items, _PRODUCE_RESPONSE_BATCH_INDEX_AND_ERROR_MESSAGE_CODES) from None


def _read_produce_response_partition_produce_v8(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ProduceResponsePartitionProduce], int]:
    items: list[ProduceResponsePartitionProduce] = []
    for _ in range(count):
        if end - at < 30:
            raise cut_short("ProduceResponsePartitionProduce.index to log_start_offset", at, end, 30)
        index, error_code, base_offset, log_append_time_ms, log_start_offset = _INT32_INT16_INT64X3.unpack_from(
            data, at
        )
        at += 30
        number, at = read_count(data, at, end, 6, "ProduceResponsePartitionProduce.record_errors")
        record_errors, at = _read_produce_response_batch_index_and_error_message_v8(data, at, end, number)
        error_message, at = read_nullable_string(data, at, end, "ProduceResponsePartitionProduce.error_message")
        items.append(
            ProduceResponsePartitionProduce(
                index=index,
                error_code=error_code,
                base_offset=base_offset,
                log_append_time_ms=log_append_time_ms,
                log_start_offset=log_start_offset,
                record_errors=record_errors,
                error_message=error_message,
            )
        )
    return items, at


def _write_produce_response_partition_produce_v8(out: Parts, items: Sequence[ProduceResponsePartitionProduce]) -> None:
    try:
        for item in items:
            if item.current_leader is not None and item.current_leader != type(item.current_leader)():
                raise unknown_field("ProduceResponsePartitionProduce.current_leader", item.current_leader)
            out.append(
                _INT32_INT16_INT64X3.pack(
                    item.index, item.error_code, item.base_offset, item.log_append_time_ms, item.log_start_offset
                )
            )
            _write_produce_response_batch_index_and_error_message_v8(
                out, write_count(out, item.record_errors, "ProduceResponsePartitionProduce.record_errors")
            )
            write_nullable_string(out, item.error_message, "ProduceResponsePartitionProduce.error_message")
    except struct.error:
        raise misfit(items, _PRODUCE_RESPONSE_PARTITION_PRODUCE_CODES) from None


def _read_produce_response_topic_produce_v8(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ProduceResponseTopicProduce], int]:
    items: list[ProduceResponseTopicProduce] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "ProduceResponseTopicProduce.name")
        number, at = read_count(data, at, end, 36, "ProduceResponseTopicProduce.partition_responses")
        partition_responses, at = _read_produce_response_partition_produce_v8(data, at, end, number)
        items.append(ProduceResponseTopicProduce(name=name, partition_responses=partition_responses))
    return items, at


def _write_produce_response_topic_produce_v8(out: Parts, items: Sequence[ProduceResponseTopicProduce]) -> None:
    for item in items:
        write_string(out, item.name, "ProduceResponseTopicProduce.name")
        _write_produce_response_partition_produce_v8(
            out, write_count(out, item.partition_responses, "ProduceResponseTopicProduce.partition_responses")
        )


def _read_produce_response_v8(data: Buffer, at: int, end: int, count: int) -> tuple[list[ProduceResponse], int]:
    items: list[ProduceResponse] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 6, "ProduceResponse.responses")
        responses, at = _read_produce_response_topic_produce_v8(data, at, end, number)
        if end - at < 4:
            raise cut_short("ProduceResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        items.append(ProduceResponse(responses=responses, throttle_time_ms=throttle_time_ms))
    return items, at


def _write_produce_response_v8(out: Parts, items: Sequence[ProduceResponse]) -> None:
    try:
        for item in items:
            if item.node_endpoints != []:
                raise unknown_field("ProduceResponse.node_endpoints", item.node_endpoints)
            _write_produce_response_topic_produce_v8(out, write_count(out, item.responses, "ProduceResponse.responses"))
            out.append(_INT32.pack(item.throttle_time_ms))
    except struct.error:
        raise misfit(items, _PRODUCE_RESPONSE_CODES) from None


def _read_produce_response_batch_index_and_error_message_v9(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ProduceResponseBatchIndexAndErrorMessage], int]:
    items: list[ProduceResponseBatchIndexAndErrorMessage] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("ProduceResponseBatchIndexAndErrorMessage.batch_index", at, end, 4)
        (batch_index,) = _INT32.unpack_from(data, at)
        at += 4
        batch_index_error_message, at = read_compact_nullable_string(
            data, at, end, "ProduceResponseBatchIndexAndErrorMessage.batch_index_error_message"
        )
        at = (
            at + 1
            if at < end and not data[at]
            else skip_tags(data, at, end, "ProduceResponseBatchIndexAndErrorMessage")
        )
        items.append(
            ProduceResponseBatchIndexAndErrorMessage(
                batch_index=batch_index, batch_index_error_message=batch_index_error_message
            )
        )
    return items, at


def _write_produce_response_batch_index_and_error_message_v9(
    out: Parts, items: Sequence[ProduceResponseBatchIndexAndErrorMessage]
) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.batch_index))
            write_compact_nullable_string(
                out,
                item.batch_index_error_message,
                "ProduceResponseBatchIndexAndErrorMessage.batch_index_error_message",
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _PRODUCE_RESPONSE_BATCH_INDEX_AND_ERROR_MESSAGE_CODES) from None


def _read_produce_response_partition_produce_v9(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ProduceResponsePartitionProduce], int]:
    items: list[ProduceResponsePartitionProduce] = []
    for _ in range(count):
        if end - at < 30:
            raise cut_short("ProduceResponsePartitionProduce.index to log_start_offset", at, end, 30)
        index, error_code, base_offset, log_append_time_ms, log_start_offset = _INT32_INT16_INT64X3.unpack_from(
            data, at
        )
        at += 30
        number, at = read_compact_count(data, at, end, 6, "ProduceResponsePartitionProduce.record_errors")
        record_errors, at = _read_produce_response_batch_index_and_error_message_v9(data, at, end, number)
        error_message, at = read_compact_nullable_string(data, at, end, "ProduceResponsePartitionProduce.error_message")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ProduceResponsePartitionProduce")
        items.append(
            ProduceResponsePartitionProduce(
                index=index,
                error_code=error_code,
                base_offset=base_offset,
                log_append_time_ms=log_append_time_ms,
                log_start_offset=log_start_offset,
                record_errors=record_errors,
                error_message=error_message,
            )
        )
    return items, at


def _write_produce_response_partition_produce_v9(out: Parts, items: Sequence[ProduceResponsePartitionProduce]) -> None:
    try:
        for item in items:
            if item.current_leader is not None and item.current_leader != type(item.current_leader)():
                raise unknown_field("ProduceResponsePartitionProduce.current_leader", item.current_leader)
            out.append(
                _INT32_INT16_INT64X3.pack(
                    item.index, item.error_code, item.base_offset, item.log_append_time_ms, item.log_start_offset
                )
            )
            _write_produce_response_batch_index_and_error_message_v9(
                out, write_compact_count(out, item.record_errors, "ProduceResponsePartitionProduce.record_errors")
            )
            write_compact_nullable_string(out, item.error_message, "ProduceResponsePartitionProduce.error_message")
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _PRODUCE_RESPONSE_PARTITION_PRODUCE_CODES) from None


def _read_produce_response_topic_produce_v9(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ProduceResponseTopicProduce], int]:
    items: list[ProduceResponseTopicProduce] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "ProduceResponseTopicProduce.name")
        number, at = read_compact_count(data, at, end, 33, "ProduceResponseTopicProduce.partition_responses")
        partition_responses, at = _read_produce_response_partition_produce_v9(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ProduceResponseTopicProduce")
        items.append(ProduceResponseTopicProduce(name=name, partition_responses=partition_responses))
    return items, at


def _write_produce_response_topic_produce_v9(out: Parts, items: Sequence[ProduceResponseTopicProduce]) -> None:
    for item in items:
        write_compact_string(out, item.name, "ProduceResponseTopicProduce.name")
        _write_produce_response_partition_produce_v9(
            out, write_compact_count(out, item.partition_responses, "ProduceResponseTopicProduce.partition_responses")
        )
        out.append(NO_TAGS)


def _read_produce_response_v9(data: Buffer, at: int, end: int, count: int) -> tuple[list[ProduceResponse], int]:
    items: list[ProduceResponse] = []
    for _ in range(count):
        number, at = read_compact_count(data, at, end, 3, "ProduceResponse.responses")
        responses, at = _read_produce_response_topic_produce_v9(data, at, end, number)
        if end - at < 5:
            raise cut_short("ProduceResponse.throttle_time_ms", at, end, 5)
        throttle_time_ms, tags = _INT32_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "ProduceResponse")
        items.append(ProduceResponse(responses=responses, throttle_time_ms=throttle_time_ms))
    return items, at


def _write_produce_response_v9(out: Parts, items: Sequence[ProduceResponse]) -> None:
    try:
        for item in items:
            if item.node_endpoints != []:
                raise unknown_field("ProduceResponse.node_endpoints", item.node_endpoints)
            _write_produce_response_topic_produce_v9(
                out, write_compact_count(out, item.responses, "ProduceResponse.responses")
            )
            out.append(_INT32_TAGS.pack(item.throttle_time_ms, 0))
    except struct.error:
        raise misfit(items, _PRODUCE_RESPONSE_CODES) from None


def _read_produce_response_leader_id_and_epoch_v10(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ProduceResponseLeaderIdAndEpoch], int]:
    items: list[ProduceResponseLeaderIdAndEpoch] = []
    for _ in range(count):
        if end - at < 9:
            raise cut_short("ProduceResponseLeaderIdAndEpoch.leader_id to leader_epoch", at, end, 9)
        leader_id, leader_epoch, tags = _INT32X2_TAGS.unpack_from(data, at)
        at += 9
        if tags:
            at = skip_tags(data, at - 1, end, "ProduceResponseLeaderIdAndEpoch")
        items.append(ProduceResponseLeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch))
    return items, at


def _write_produce_response_leader_id_and_epoch_v10(
    out: Parts, items: Sequence[ProduceResponseLeaderIdAndEpoch]
) -> None:
    try:
        for item in items:
            out.append(_INT32X2_TAGS.pack(item.leader_id, item.leader_epoch, 0))
    except struct.error:
        raise misfit(items, _PRODUCE_RESPONSE_LEADER_ID_AND_EPOCH_CODES) from None


def _read_produce_response_partition_produce_v10(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ProduceResponsePartitionProduce], int]:
    items: list[ProduceResponsePartitionProduce] = []
    for _ in range(count):
        if end - at < 30:
            raise cut_short("ProduceResponsePartitionProduce.index to log_start_offset", at, end, 30)
        index, error_code, base_offset, log_append_time_ms, log_start_offset = _INT32_INT16_INT64X3.unpack_from(
            data, at
        )
        at += 30
        number, at = read_compact_count(data, at, end, 6, "ProduceResponsePartitionProduce.record_errors")
        record_errors, at = _read_produce_response_batch_index_and_error_message_v9(data, at, end, number)
        error_message, at = read_compact_nullable_string(data, at, end, "ProduceResponsePartitionProduce.error_message")
        current_leader: ProduceResponseLeaderIdAndEpoch | None = None
        tags, at = read_uvarint(data, at, end, "ProduceResponsePartitionProduce")
        last = -1
        for _ in range(tags):
            last, at, stop = read_tag(data, at, end, last, "ProduceResponsePartitionProduce")
            if last == 0:
                [current_leader], at = _read_produce_response_leader_id_and_epoch_v10(data, at, stop, 1)
                check_tag_end(at, stop, "ProduceResponsePartitionProduce.current_leader")
            at = stop
        items.append(
            ProduceResponsePartitionProduce(
                index=index,
                error_code=error_code,
                base_offset=base_offset,
                log_append_time_ms=log_append_time_ms,
                log_start_offset=log_start_offset,
                record_errors=record_errors,
                error_message=error_message,
                current_leader=current_leader,
            )
        )
    return items, at


def _write_produce_response_partition_produce_v10(out: Parts, items: Sequence[ProduceResponsePartitionProduce]) -> None:
    try:
        for item in items:
            out.append(
                _INT32_INT16_INT64X3.pack(
                    item.index, item.error_code, item.base_offset, item.log_append_time_ms, item.log_start_offset
                )
            )
            _write_produce_response_batch_index_and_error_message_v9(
                out, write_compact_count(out, item.record_errors, "ProduceResponsePartitionProduce.record_errors")
            )
            write_compact_nullable_string(out, item.error_message, "ProduceResponsePartitionProduce.error_message")
            tagged: list[tuple[int, Parts]] = []
            if item.current_leader is not None and item.current_leader != type(item.current_leader)():
                part: Parts = []
                _write_produce_response_leader_id_and_epoch_v10(
                    part, required(item.current_leader, "ProduceResponsePartitionProduce.current_leader")
                )
                tagged.append((0, part))
            write_tags(out, tagged)
    except struct.error:
        raise misfit(items, _PRODUCE_RESPONSE_PARTITION_PRODUCE_CODES) from None


def _read_produce_response_topic_produce_v10(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ProduceResponseTopicProduce], int]:
    items: list[ProduceResponseTopicProduce] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "ProduceResponseTopicProduce.name")
        number, at = read_compact_count(data, at, end, 33, "ProduceResponseTopicProduce.partition_responses")
        partition_responses, at = _read_produce_response_partition_produce_v10(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ProduceResponseTopicProduce")
        items.append(ProduceResponseTopicProduce(name=name, partition_responses=partition_responses))
    return items, at


def _write_produce_response_topic_produce_v10(out: Parts, items: Sequence[ProduceResponseTopicProduce]) -> None:
    for item in items:
        write_compact_string(out, item.name, "ProduceResponseTopicProduce.name")
        _write_produce_response_partition_produce_v10(
            out, write_compact_count(out, item.partition_responses, "ProduceResponseTopicProduce.partition_responses")
        )
        out.append(NO_TAGS)


def _read_produce_response_node_endpoint_v10(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ProduceResponseNodeEndpoint], int]:
    items: list[ProduceResponseNodeEndpoint] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("ProduceResponseNodeEndpoint.node_id", at, end, 4)
        (node_id,) = _INT32.unpack_from(data, at)
        at += 4
        host, at = read_compact_string(data, at, end, "ProduceResponseNodeEndpoint.host")
        if end - at < 4:
            raise cut_short("ProduceResponseNodeEndpoint.port", at, end, 4)
        (port,) = _INT32.unpack_from(data, at)
        at += 4
        rack, at = read_compact_nullable_string(data, at, end, "ProduceResponseNodeEndpoint.rack")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ProduceResponseNodeEndpoint")
        items.append(ProduceResponseNodeEndpoint(node_id=node_id, host=host, port=port, rack=rack))
    return items, at


def _write_produce_response_node_endpoint_v10(out: Parts, items: Sequence[ProduceResponseNodeEndpoint]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.node_id))
            write_compact_string(out, item.host, "ProduceResponseNodeEndpoint.host")
            out.append(_INT32.pack(item.port))
            write_compact_nullable_string(out, item.rack, "ProduceResponseNodeEndpoint.rack")
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _PRODUCE_RESPONSE_NODE_ENDPOINT_CODES) from None


def _read_produce_response_v10(data: Buffer, at: int, end: int, count: int) -> tuple[list[ProduceResponse], int]:
    items: list[ProduceResponse] = []
    for _ in range(count):
        number, at = read_compact_count(data, at, end, 3, "ProduceResponse.responses")
        responses, at = _read_produce_response_topic_produce_v10(data, at, end, number)
        if end - at < 4:
            raise cut_short("ProduceResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        node_endpoints: list[ProduceResponseNodeEndpoint] = []
        tags, at = read_uvarint(data, at, end, "ProduceResponse")
        last = -1
        for _ in range(tags):
            last, at, stop = read_tag(data, at, end, last, "ProduceResponse")
            if last == 0:
                number, at = read_compact_count(data, at, stop, 11, "ProduceResponse.node_endpoints")
                node_endpoints, at = _read_produce_response_node_endpoint_v10(data, at, stop, number)
                check_tag_end(at, stop, "ProduceResponse.node_endpoints")
            at = stop
        items.append(
            ProduceResponse(responses=responses, throttle_time_ms=throttle_time_ms, node_endpoints=node_endpoints)
        )
    return items, at


def _write_produce_response_v10(out: Parts, items: Sequence[ProduceResponse]) -> None:
    try:
        for item in items:
            _write_produce_response_topic_produce_v10(
                out, write_compact_count(out, item.responses, "ProduceResponse.responses")
            )
            out.append(_INT32.pack(item.throttle_time_ms))
            tagged: list[tuple[int, Parts]] = []
            if item.node_endpoints != []:
                part: Parts = []
                _write_produce_response_node_endpoint_v10(
                    part, write_compact_count(part, item.node_endpoints, "ProduceResponse.node_endpoints")
                )
                tagged.append((0, part))
            write_tags(out, tagged)
    except struct.error:
        raise misfit(items, _PRODUCE_RESPONSE_CODES) from None


def _read_produce_response_topic_produce_v13(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ProduceResponseTopicProduce], int]:
    items: list[ProduceResponseTopicProduce] = []
    for _ in range(count):
        if end - at < 16:
            raise cut_short("ProduceResponseTopicProduce.topic_id", at, end, 16)
        (topic_id,) = _UUID.unpack_from(data, at)
        at += 16
        number, at = read_compact_count(data, at, end, 33, "ProduceResponseTopicProduce.partition_responses")
        partition_responses, at = _read_produce_response_partition_produce_v10(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ProduceResponseTopicProduce")
        items.append(ProduceResponseTopicProduce(topic_id=topic_id, partition_responses=partition_responses))
    return items, at


def _write_produce_response_topic_produce_v13(out: Parts, items: Sequence[ProduceResponseTopicProduce]) -> None:
    try:
        for item in items:
            check_uuid(item.topic_id, "ProduceResponseTopicProduce.topic_id")
            out.append(_UUID.pack(item.topic_id))
            _write_produce_response_partition_produce_v10(
                out,
                write_compact_count(out, item.partition_responses, "ProduceResponseTopicProduce.partition_responses"),
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _PRODUCE_RESPONSE_TOPIC_PRODUCE_CODES) from None


def _read_produce_response_v13(data: Buffer, at: int, end: int, count: int) -> tuple[list[ProduceResponse], int]:
    items: list[ProduceResponse] = []
    for _ in range(count):
        number, at = read_compact_count(data, at, end, 18, "ProduceResponse.responses")
        responses, at = _read_produce_response_topic_produce_v13(data, at, end, number)
        if end - at < 4:
            raise cut_short("ProduceResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        node_endpoints: list[ProduceResponseNodeEndpoint] = []
        tags, at = read_uvarint(data, at, end, "ProduceResponse")
        last = -1
        for _ in range(tags):
            last, at, stop = read_tag(data, at, end, last, "ProduceResponse")
            if last == 0:
                number, at = read_compact_count(data, at, stop, 11, "ProduceResponse.node_endpoints")
                node_endpoints, at = _read_produce_response_node_endpoint_v10(data, at, stop, number)
                check_tag_end(at, stop, "ProduceResponse.node_endpoints")
            at = stop
        items.append(
            ProduceResponse(responses=responses, throttle_time_ms=throttle_time_ms, node_endpoints=node_endpoints)
        )
    return items, at


def _write_produce_response_v13(out: Parts, items: Sequence[ProduceResponse]) -> None:
    try:
        for item in items:
            _write_produce_response_topic_produce_v13(
                out, write_compact_count(out, item.responses, "ProduceResponse.responses")
            )
            out.append(_INT32.pack(item.throttle_time_ms))
            tagged: list[tuple[int, Parts]] = []
            if item.node_endpoints != []:
                part: Parts = []
                _write_produce_response_node_endpoint_v10(
                    part, write_compact_count(part, item.node_endpoints, "ProduceResponse.node_endpoints")
                )
                tagged.append((0, part))
            write_tags(out, tagged)
    except struct.error:
        raise misfit(items, _PRODUCE_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    ProduceResponse,
    {
        3: (_read_produce_response_v3, _write_produce_response_v3),
        4: (_read_produce_response_v3, _write_produce_response_v3),
        5: (_read_produce_response_v5, _write_produce_response_v5),
        6: (_read_produce_response_v5, _write_produce_response_v5),
        7: (_read_produce_response_v5, _write_produce_response_v5),
        8: (_read_produce_response_v8, _write_produce_response_v8),
        9: (_read_produce_response_v9, _write_produce_response_v9),
        10: (_read_produce_response_v10, _write_produce_response_v10),
        11: (_read_produce_response_v10, _write_produce_response_v10),
        12: (_read_produce_response_v10, _write_produce_response_v10),
        13: (_read_produce_response_v13, _write_produce_response_v13),
    },
)
