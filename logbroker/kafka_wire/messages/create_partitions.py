"""CreatePartitions, API key 37.

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
    read_compact_nullable_string,
    read_compact_string,
    read_count,
    read_int32s,
    read_nullable_count,
    read_nullable_string,
    read_string,
    skip_tags,
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

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT32_BOOL: Final = struct.Struct(">i?")
_INT32_BOOL_TAGS: Final = struct.Struct(">i?B")
_INT32_INT8: Final = struct.Struct(">ib")
_INT32_INT8_TAGS: Final = struct.Struct(">ibB")


class CreatePartitionsRequestAssignment(msgspec.Struct, kw_only=True, gc=False):
    """The new partition assignments."""

    broker_ids: list[int] = []
    """The assigned broker IDs. (int32)"""


class CreatePartitionsRequestTopic(msgspec.Struct, kw_only=True, gc=False):
    """Each topic that we want to create new partitions inside."""

    name: str = ""
    """The topic name. (string)"""
    count: int = 0
    """The new partition count. (int32)"""
    assignments: list[CreatePartitionsRequestAssignment] | None = []
    """The new partition assignments."""


class CreatePartitionsRequest(msgspec.Struct, kw_only=True, gc=False):
    """CreatePartitionsRequest, versions 0 to 3."""

    topics: list[CreatePartitionsRequestTopic] = []
    """Each topic that we want to create new partitions inside."""
    timeout_ms: int = 0
    """The time in ms to wait for the partitions to be created. (int32)"""
    validate_only: bool = False
    """If true, then validate the request, but don't actually increase the number of partitions. (bool)"""


_CREATE_PARTITIONS_REQUEST_CODES: Final = {"timeout_ms": "i", "validate_only": "b"}
_CREATE_PARTITIONS_REQUEST_TOPIC_CODES: Final = {"count": "i"}


def _read_create_partitions_request_assignment_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[CreatePartitionsRequestAssignment], int]:
    items: list[CreatePartitionsRequestAssignment] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 4, "CreatePartitionsRequestAssignment.broker_ids")
        broker_ids, at = read_int32s(data, at, number)
        items.append(CreatePartitionsRequestAssignment(broker_ids=broker_ids))
    return items, at


def _write_create_partitions_request_assignment_v0(
    out: Parts, items: Sequence[CreatePartitionsRequestAssignment]
) -> None:
    for item in items:
        write_int32s(
            out,
            write_count(out, item.broker_ids, "CreatePartitionsRequestAssignment.broker_ids"),
            "CreatePartitionsRequestAssignment.broker_ids",
        )


def _read_create_partitions_request_topic_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[CreatePartitionsRequestTopic], int]:
    items: list[CreatePartitionsRequestTopic] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "CreatePartitionsRequestTopic.name")
        if end - at < 4:
            raise cut_short("CreatePartitionsRequestTopic.count", at, end, 4)
        (count_,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_nullable_count(data, at, end, 4, "CreatePartitionsRequestTopic.assignments")
        assignments = None
        if number >= 0:
            assignments, at = _read_create_partitions_request_assignment_v0(data, at, end, number)
        items.append(CreatePartitionsRequestTopic(name=name, count=count_, assignments=assignments))
    return items, at


def _write_create_partitions_request_topic_v0(out: Parts, items: Sequence[CreatePartitionsRequestTopic]) -> None:
    try:
        for item in items:
            write_string(out, item.name, "CreatePartitionsRequestTopic.name")
            out.append(_INT32.pack(item.count))
            _write_create_partitions_request_assignment_v0(
                out, write_nullable_count(out, item.assignments, "CreatePartitionsRequestTopic.assignments")
            )
    except struct.error:
        raise misfit(items, _CREATE_PARTITIONS_REQUEST_TOPIC_CODES) from None


def _read_create_partitions_request_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[CreatePartitionsRequest], int]:
    items: list[CreatePartitionsRequest] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 10, "CreatePartitionsRequest.topics")
        topics, at = _read_create_partitions_request_topic_v0(data, at, end, number)
        if end - at < 5:
            raise cut_short("CreatePartitionsRequest.timeout_ms to validate_only", at, end, 5)
        timeout_ms, validate_only = _INT32_BOOL.unpack_from(data, at)
        at += 5
        items.append(CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only))
    return items, at


def _write_create_partitions_request_v0(out: Parts, items: Sequence[CreatePartitionsRequest]) -> None:
    try:
        for item in items:
            _write_create_partitions_request_topic_v0(
                out, write_count(out, item.topics, "CreatePartitionsRequest.topics")
            )
            out.append(_INT32_INT8.pack(item.timeout_ms, item.validate_only))
    except struct.error:
        raise misfit(items, _CREATE_PARTITIONS_REQUEST_CODES) from None


def _read_create_partitions_request_assignment_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[CreatePartitionsRequestAssignment], int]:
    items: list[CreatePartitionsRequestAssignment] = []
    for _ in range(count):
        number, at = read_compact_count(data, at, end, 4, "CreatePartitionsRequestAssignment.broker_ids")
        broker_ids, at = read_int32s(data, at, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "CreatePartitionsRequestAssignment")
        items.append(CreatePartitionsRequestAssignment(broker_ids=broker_ids))
    return items, at


def _write_create_partitions_request_assignment_v2(
    out: Parts, items: Sequence[CreatePartitionsRequestAssignment]
) -> None:
    for item in items:
        write_int32s(
            out,
            write_compact_count(out, item.broker_ids, "CreatePartitionsRequestAssignment.broker_ids"),
            "CreatePartitionsRequestAssignment.broker_ids",
        )
        out.append(NO_TAGS)


def _read_create_partitions_request_topic_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[CreatePartitionsRequestTopic], int]:
    items: list[CreatePartitionsRequestTopic] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "CreatePartitionsRequestTopic.name")
        if end - at < 4:
            raise cut_short("CreatePartitionsRequestTopic.count", at, end, 4)
        (count_,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_nullable_count(data, at, end, 2, "CreatePartitionsRequestTopic.assignments")
        assignments = None
        if number >= 0:
            assignments, at = _read_create_partitions_request_assignment_v2(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "CreatePartitionsRequestTopic")
        items.append(CreatePartitionsRequestTopic(name=name, count=count_, assignments=assignments))
    return items, at


def _write_create_partitions_request_topic_v2(out: Parts, items: Sequence[CreatePartitionsRequestTopic]) -> None:
    try:
        for item in items:
            write_compact_string(out, item.name, "CreatePartitionsRequestTopic.name")
            out.append(_INT32.pack(item.count))
            _write_create_partitions_request_assignment_v2(
                out, write_compact_nullable_count(out, item.assignments, "CreatePartitionsRequestTopic.assignments")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _CREATE_PARTITIONS_REQUEST_TOPIC_CODES) from None


def _read_create_partitions_request_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[CreatePartitionsRequest], int]:
    items: list[CreatePartitionsRequest] = []
    for _ in range(count):
        number, at = read_compact_count(data, at, end, 7, "CreatePartitionsRequest.topics")
        topics, at = _read_create_partitions_request_topic_v2(data, at, end, number)
        if end - at < 6:
            raise cut_short("CreatePartitionsRequest.timeout_ms to validate_only", at, end, 6)
        timeout_ms, validate_only, tags = _INT32_BOOL_TAGS.unpack_from(data, at)
        at += 6
        if tags:
            at = skip_tags(data, at - 1, end, "CreatePartitionsRequest")
        items.append(CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only))
    return items, at


def _write_create_partitions_request_v2(out: Parts, items: Sequence[CreatePartitionsRequest]) -> None:
    try:
        for item in items:
            _write_create_partitions_request_topic_v2(
                out, write_compact_count(out, item.topics, "CreatePartitionsRequest.topics")
            )
            out.append(_INT32_INT8_TAGS.pack(item.timeout_ms, item.validate_only, 0))
    except struct.error:
        raise misfit(items, _CREATE_PARTITIONS_REQUEST_CODES) from None


REQUEST: Final = MessageCodec(
    CreatePartitionsRequest,
    {
        0: (_read_create_partitions_request_v0, _write_create_partitions_request_v0),
        1: (_read_create_partitions_request_v0, _write_create_partitions_request_v0),
        2: (_read_create_partitions_request_v2, _write_create_partitions_request_v2),
        3: (_read_create_partitions_request_v2, _write_create_partitions_request_v2),
    },
)


class CreatePartitionsResponseTopicResult(msgspec.Struct, kw_only=True, gc=False):
    """The partition creation results for each topic."""

    name: str = ""
    """The topic name. (string)"""
    error_code: int = 0
    """The result error, or zero if there was no error. (int16)"""
    error_message: str | None = None
    """The result message, or null if there was no error. (string)"""


class CreatePartitionsResponse(msgspec.Struct, kw_only=True, gc=False):
    """CreatePartitionsResponse, versions 0 to 3."""

    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32)"""
    results: list[CreatePartitionsResponseTopicResult] = []
    """The partition creation results for each topic."""


_CREATE_PARTITIONS_RESPONSE_CODES: Final = {"throttle_time_ms": "i"}
_CREATE_PARTITIONS_RESPONSE_TOPIC_RESULT_CODES: Final = {"error_code": "h"}


def _read_create_partitions_response_topic_result_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[CreatePartitionsResponseTopicResult], int]:
    items: list[CreatePartitionsResponseTopicResult] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "CreatePartitionsResponseTopicResult.name")
        if end - at < 2:
            raise cut_short("CreatePartitionsResponseTopicResult.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_nullable_string(data, at, end, "CreatePartitionsResponseTopicResult.error_message")
        items.append(CreatePartitionsResponseTopicResult(name=name, error_code=error_code, error_message=error_message))
    return items, at


def _write_create_partitions_response_topic_result_v0(
    out: Parts, items: Sequence[CreatePartitionsResponseTopicResult]
) -> None:
    try:
        for item in items:
            write_string(out, item.name, "CreatePartitionsResponseTopicResult.name")
            out.append(_INT16.pack(item.error_code))
            write_nullable_string(out, item.error_message, "CreatePartitionsResponseTopicResult.error_message")
    except struct.error:
        raise misfit(items, _CREATE_PARTITIONS_RESPONSE_TOPIC_RESULT_CODES) from None


def _read_create_partitions_response_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[CreatePartitionsResponse], int]:
    items: list[CreatePartitionsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("CreatePartitionsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 6, "CreatePartitionsResponse.results")
        results, at = _read_create_partitions_response_topic_result_v0(data, at, end, number)
        items.append(CreatePartitionsResponse(throttle_time_ms=throttle_time_ms, results=results))
    return items, at


def _write_create_partitions_response_v0(out: Parts, items: Sequence[CreatePartitionsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_create_partitions_response_topic_result_v0(
                out, write_count(out, item.results, "CreatePartitionsResponse.results")
            )
    except struct.error:
        raise misfit(items, _CREATE_PARTITIONS_RESPONSE_CODES) from None


def _read_create_partitions_response_topic_result_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[CreatePartitionsResponseTopicResult], int]:
    items: list[CreatePartitionsResponseTopicResult] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "CreatePartitionsResponseTopicResult.name")
        if end - at < 2:
            raise cut_short("CreatePartitionsResponseTopicResult.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_compact_nullable_string(
            data, at, end, "CreatePartitionsResponseTopicResult.error_message"
        )
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "CreatePartitionsResponseTopicResult")
        items.append(CreatePartitionsResponseTopicResult(name=name, error_code=error_code, error_message=error_message))
    return items, at


def _write_create_partitions_response_topic_result_v2(
    out: Parts, items: Sequence[CreatePartitionsResponseTopicResult]
) -> None:
    try:
        for item in items:
            write_compact_string(out, item.name, "CreatePartitionsResponseTopicResult.name")
            out.append(_INT16.pack(item.error_code))
            write_compact_nullable_string(out, item.error_message, "CreatePartitionsResponseTopicResult.error_message")
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _CREATE_PARTITIONS_RESPONSE_TOPIC_RESULT_CODES) from None


def _read_create_partitions_response_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[CreatePartitionsResponse], int]:
    items: list[CreatePartitionsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("CreatePartitionsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 5, "CreatePartitionsResponse.results")
        results, at = _read_create_partitions_response_topic_result_v2(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "CreatePartitionsResponse")
        items.append(CreatePartitionsResponse(throttle_time_ms=throttle_time_ms, results=results))
    return items, at


def _write_create_partitions_response_v2(out: Parts, items: Sequence[CreatePartitionsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_create_partitions_response_topic_result_v2(
                out, write_compact_count(out, item.results, "CreatePartitionsResponse.results")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _CREATE_PARTITIONS_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    CreatePartitionsResponse,
    {
        0: (_read_create_partitions_response_v0, _write_create_partitions_response_v0),
        1: (_read_create_partitions_response_v0, _write_create_partitions_response_v0),
        2: (_read_create_partitions_response_v2, _write_create_partitions_response_v2),
        3: (_read_create_partitions_response_v2, _write_create_partitions_response_v2),
    },
)
