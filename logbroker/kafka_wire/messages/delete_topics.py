"""DeleteTopics, API key 20.

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
    read_compact_strings,
    read_count,
    read_string,
    read_strings,
    skip_tags,
    unknown_field,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
    write_compact_strings,
    write_count,
    write_string,
    write_strings,
)

_UUID_TAGS: Final = struct.Struct(">16sB")
_UUID_INT16: Final = struct.Struct(">16sh")
_INT16: Final = struct.Struct(">h")
_INT16_TAGS: Final = struct.Struct(">hB")
_INT32: Final = struct.Struct(">i")
_INT32_TAGS: Final = struct.Struct(">iB")


class DeleteTopicsRequestTopicState(msgspec.Struct, kw_only=True, gc=False):
    """The name or topic ID of the topic."""

    name: str | None = None
    """The topic name. (string, version 6)"""
    topic_id: bytes = NO_UUID
    """The unique topic ID. (uuid, version 6)"""


class DeleteTopicsRequest(msgspec.Struct, kw_only=True, gc=False):
    """DeleteTopicsRequest, versions 1 to 6."""

    topics: list[DeleteTopicsRequestTopicState] = []
    """The name or topic ID of the topic. (version 6)"""
    topic_names: list[str] = []
    """The names of the topics to delete. (string, versions 1 to 5, ignorable)"""
    timeout_ms: int = 0
    """The length of time in milliseconds to wait for the deletions to complete. (int32)"""


_DELETE_TOPICS_REQUEST_CODES: Final = {"timeout_ms": "i"}
_DELETE_TOPICS_REQUEST_TOPIC_STATE_CODES: Final = {"topic_id": "16s"}


def _read_delete_topics_request_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteTopicsRequest], int]:
    items: list[DeleteTopicsRequest] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 2, "DeleteTopicsRequest.topic_names")
        topic_names, at = read_strings(data, at, end, number, "DeleteTopicsRequest.topic_names")
        if end - at < 4:
            raise cut_short("DeleteTopicsRequest.timeout_ms", at, end, 4)
        (timeout_ms,) = _INT32.unpack_from(data, at)
        at += 4
        items.append(DeleteTopicsRequest(topic_names=topic_names, timeout_ms=timeout_ms))
    return items, at


def _write_delete_topics_request_v1(out: Parts, items: Sequence[DeleteTopicsRequest]) -> None:
    try:
        for item in items:
            if item.topics != []:
                raise unknown_field("DeleteTopicsRequest.topics", item.topics)
            write_strings(
                out,
                write_count(out, item.topic_names, "DeleteTopicsRequest.topic_names"),
                "DeleteTopicsRequest.topic_names",
            )
            out.append(_INT32.pack(item.timeout_ms))
    except struct.error:
        raise misfit(items, _DELETE_TOPICS_REQUEST_CODES) from None


def _read_delete_topics_request_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteTopicsRequest], int]:
    items: list[DeleteTopicsRequest] = []
    for _ in range(count):
        number, at = read_compact_count(data, at, end, 1, "DeleteTopicsRequest.topic_names")
        topic_names, at = read_compact_strings(data, at, end, number, "DeleteTopicsRequest.topic_names")
        if end - at < 5:
            raise cut_short("DeleteTopicsRequest.timeout_ms", at, end, 5)
        timeout_ms, tags = _INT32_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "DeleteTopicsRequest")
        items.append(DeleteTopicsRequest(topic_names=topic_names, timeout_ms=timeout_ms))
    return items, at


def _write_delete_topics_request_v4(out: Parts, items: Sequence[DeleteTopicsRequest]) -> None:
    try:
        for item in items:
            if item.topics != []:
                raise unknown_field("DeleteTopicsRequest.topics", item.topics)
            write_compact_strings(
                out,
                write_compact_count(out, item.topic_names, "DeleteTopicsRequest.topic_names"),
                "DeleteTopicsRequest.topic_names",
            )
            out.append(_INT32_TAGS.pack(item.timeout_ms, 0))
    except struct.error:
        raise misfit(items, _DELETE_TOPICS_REQUEST_CODES) from None


def _read_delete_topics_request_topic_state_v6(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteTopicsRequestTopicState], int]:
    items: list[DeleteTopicsRequestTopicState] = []
    for _ in range(count):
        name, at = read_compact_nullable_string(data, at, end, "DeleteTopicsRequestTopicState.name")
        if end - at < 17:
            raise cut_short("DeleteTopicsRequestTopicState.topic_id", at, end, 17)
        topic_id, tags = _UUID_TAGS.unpack_from(data, at)
        at += 17
        if tags:
            at = skip_tags(data, at - 1, end, "DeleteTopicsRequestTopicState")
        items.append(DeleteTopicsRequestTopicState(name=name, topic_id=topic_id))
    return items, at


def _write_delete_topics_request_topic_state_v6(out: Parts, items: Sequence[DeleteTopicsRequestTopicState]) -> None:
    try:
        for item in items:
            write_compact_nullable_string(out, item.name, "DeleteTopicsRequestTopicState.name")
            check_uuid(item.topic_id, "DeleteTopicsRequestTopicState.topic_id")
            out.append(_UUID_TAGS.pack(item.topic_id, 0))
    except struct.error:
        raise misfit(items, _DELETE_TOPICS_REQUEST_TOPIC_STATE_CODES) from None


def _read_delete_topics_request_v6(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteTopicsRequest], int]:
    items: list[DeleteTopicsRequest] = []
    for _ in range(count):
        number, at = read_compact_count(data, at, end, 18, "DeleteTopicsRequest.topics")
        topics, at = _read_delete_topics_request_topic_state_v6(data, at, end, number)
        if end - at < 5:
            raise cut_short("DeleteTopicsRequest.timeout_ms", at, end, 5)
        timeout_ms, tags = _INT32_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "DeleteTopicsRequest")
        items.append(DeleteTopicsRequest(topics=topics, timeout_ms=timeout_ms))
    return items, at


def _write_delete_topics_request_v6(out: Parts, items: Sequence[DeleteTopicsRequest]) -> None:
    try:
        for item in items:
            _write_delete_topics_request_topic_state_v6(
                out, write_compact_count(out, item.topics, "DeleteTopicsRequest.topics")
            )
            out.append(_INT32_TAGS.pack(item.timeout_ms, 0))
    except struct.error:
        raise misfit(items, _DELETE_TOPICS_REQUEST_CODES) from None


REQUEST: Final = MessageCodec(
    DeleteTopicsRequest,
    {
        1: (_read_delete_topics_request_v1, _write_delete_topics_request_v1),
        2: (_read_delete_topics_request_v1, _write_delete_topics_request_v1),
        3: (_read_delete_topics_request_v1, _write_delete_topics_request_v1),
        4: (_read_delete_topics_request_v4, _write_delete_topics_request_v4),
        5: (_read_delete_topics_request_v4, _write_delete_topics_request_v4),
        6: (_read_delete_topics_request_v6, _write_delete_topics_request_v6),
    },
)


class DeleteTopicsResponseDeletableTopicResult(msgspec.Struct, kw_only=True, gc=False):
    """The results for each topic we tried to delete."""

    name: str | None = ""
    """The topic name. (string)"""
    topic_id: bytes = NO_UUID
    """The unique topic ID. (uuid, version 6, ignorable)"""
    error_code: int = 0
    """The deletion error, or 0 if the deletion succeeded. (int16)"""
    error_message: str | None = None
    """The error message, or null if there was no error. (string, versions 5 to 6, ignorable)"""


class DeleteTopicsResponse(msgspec.Struct, kw_only=True, gc=False):
    """DeleteTopicsResponse, versions 1 to 6."""

    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32)"""
    responses: list[DeleteTopicsResponseDeletableTopicResult] = []
    """The results for each topic we tried to delete."""


_DELETE_TOPICS_RESPONSE_CODES: Final = {"throttle_time_ms": "i"}
_DELETE_TOPICS_RESPONSE_DELETABLE_TOPIC_RESULT_CODES: Final = {"topic_id": "16s", "error_code": "h"}


def _read_delete_topics_response_deletable_topic_result_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteTopicsResponseDeletableTopicResult], int]:
    items: list[DeleteTopicsResponseDeletableTopicResult] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "DeleteTopicsResponseDeletableTopicResult.name")
        if end - at < 2:
            raise cut_short("DeleteTopicsResponseDeletableTopicResult.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        items.append(DeleteTopicsResponseDeletableTopicResult(name=name, error_code=error_code))
    return items, at


def _write_delete_topics_response_deletable_topic_result_v1(
    out: Parts, items: Sequence[DeleteTopicsResponseDeletableTopicResult]
) -> None:
    try:
        for item in items:
            write_string(out, item.name, "DeleteTopicsResponseDeletableTopicResult.name")
            out.append(_INT16.pack(item.error_code))
    except struct.error:
        raise misfit(items, _DELETE_TOPICS_RESPONSE_DELETABLE_TOPIC_RESULT_CODES) from None


def _read_delete_topics_response_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteTopicsResponse], int]:
    items: list[DeleteTopicsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("DeleteTopicsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 4, "DeleteTopicsResponse.responses")
        responses, at = _read_delete_topics_response_deletable_topic_result_v1(data, at, end, number)
        items.append(DeleteTopicsResponse(throttle_time_ms=throttle_time_ms, responses=responses))
    return items, at


def _write_delete_topics_response_v1(out: Parts, items: Sequence[DeleteTopicsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_delete_topics_response_deletable_topic_result_v1(
                out, write_count(out, item.responses, "DeleteTopicsResponse.responses")
            )
    except struct.error:
        raise misfit(items, _DELETE_TOPICS_RESPONSE_CODES) from None


def _read_delete_topics_response_deletable_topic_result_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteTopicsResponseDeletableTopicResult], int]:
    items: list[DeleteTopicsResponseDeletableTopicResult] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "DeleteTopicsResponseDeletableTopicResult.name")
        if end - at < 3:
            raise cut_short("DeleteTopicsResponseDeletableTopicResult.error_code", at, end, 3)
        error_code, tags = _INT16_TAGS.unpack_from(data, at)
        at += 3
        if tags:
            at = skip_tags(data, at - 1, end, "DeleteTopicsResponseDeletableTopicResult")
        items.append(DeleteTopicsResponseDeletableTopicResult(name=name, error_code=error_code))
    return items, at


def _write_delete_topics_response_deletable_topic_result_v4(
    out: Parts, items: Sequence[DeleteTopicsResponseDeletableTopicResult]
) -> None:
    try:
        for item in items:
            write_compact_string(out, item.name, "DeleteTopicsResponseDeletableTopicResult.name")
            out.append(_INT16_TAGS.pack(item.error_code, 0))
    except struct.error:
        raise misfit(items, _DELETE_TOPICS_RESPONSE_DELETABLE_TOPIC_RESULT_CODES) from None


def _read_delete_topics_response_v4(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteTopicsResponse], int]:
    items: list[DeleteTopicsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("DeleteTopicsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 4, "DeleteTopicsResponse.responses")
        responses, at = _read_delete_topics_response_deletable_topic_result_v4(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DeleteTopicsResponse")
        items.append(DeleteTopicsResponse(throttle_time_ms=throttle_time_ms, responses=responses))
    return items, at


def _write_delete_topics_response_v4(out: Parts, items: Sequence[DeleteTopicsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_delete_topics_response_deletable_topic_result_v4(
                out, write_compact_count(out, item.responses, "DeleteTopicsResponse.responses")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DELETE_TOPICS_RESPONSE_CODES) from None


def _read_delete_topics_response_deletable_topic_result_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteTopicsResponseDeletableTopicResult], int]:
    items: list[DeleteTopicsResponseDeletableTopicResult] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "DeleteTopicsResponseDeletableTopicResult.name")
        if end - at < 2:
            raise cut_short("DeleteTopicsResponseDeletableTopicResult.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_compact_nullable_string(
            data, at, end, "DeleteTopicsResponseDeletableTopicResult.error_message"
        )
        at = (
            at + 1
            if at < end and not data[at]
            else skip_tags(data, at, end, "DeleteTopicsResponseDeletableTopicResult")
        )
        items.append(
            DeleteTopicsResponseDeletableTopicResult(name=name, error_code=error_code, error_message=error_message)
        )
    return items, at


def _write_delete_topics_response_deletable_topic_result_v5(
    out: Parts, items: Sequence[DeleteTopicsResponseDeletableTopicResult]
) -> None:
    try:
        for item in items:
            write_compact_string(out, item.name, "DeleteTopicsResponseDeletableTopicResult.name")
            out.append(_INT16.pack(item.error_code))
            write_compact_nullable_string(
                out, item.error_message, "DeleteTopicsResponseDeletableTopicResult.error_message"
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DELETE_TOPICS_RESPONSE_DELETABLE_TOPIC_RESULT_CODES) from None


def _read_delete_topics_response_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteTopicsResponse], int]:
    items: list[DeleteTopicsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("DeleteTopicsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 5, "DeleteTopicsResponse.responses")
        responses, at = _read_delete_topics_response_deletable_topic_result_v5(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DeleteTopicsResponse")
        items.append(DeleteTopicsResponse(throttle_time_ms=throttle_time_ms, responses=responses))
    return items, at


def _write_delete_topics_response_v5(out: Parts, items: Sequence[DeleteTopicsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_delete_topics_response_deletable_topic_result_v5(
                out, write_compact_count(out, item.responses, "DeleteTopicsResponse.responses")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DELETE_TOPICS_RESPONSE_CODES) from None


def _read_delete_topics_response_deletable_topic_result_v6(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteTopicsResponseDeletableTopicResult], int]:
    items: list[DeleteTopicsResponseDeletableTopicResult] = []
    for _ in range(count):
        name, at = read_compact_nullable_string(data, at, end, "DeleteTopicsResponseDeletableTopicResult.name")
        if end - at < 18:
            raise cut_short("DeleteTopicsResponseDeletableTopicResult.topic_id to error_code", at, end, 18)
        topic_id, error_code = _UUID_INT16.unpack_from(data, at)
        at += 18
        error_message, at = read_compact_nullable_string(
            data, at, end, "DeleteTopicsResponseDeletableTopicResult.error_message"
        )
        at = (
            at + 1
            if at < end and not data[at]
            else skip_tags(data, at, end, "DeleteTopicsResponseDeletableTopicResult")
        )
        items.append(
            DeleteTopicsResponseDeletableTopicResult(
                name=name, topic_id=topic_id, error_code=error_code, error_message=error_message
            )
        )
    return items, at


def _write_delete_topics_response_deletable_topic_result_v6(
    out: Parts, items: Sequence[DeleteTopicsResponseDeletableTopicResult]
) -> None:
    try:
        for item in items:
            write_compact_nullable_string(out, item.name, "DeleteTopicsResponseDeletableTopicResult.name")
            check_uuid(item.topic_id, "DeleteTopicsResponseDeletableTopicResult.topic_id")
            out.append(_UUID_INT16.pack(item.topic_id, item.error_code))
            write_compact_nullable_string(
                out, item.error_message, "DeleteTopicsResponseDeletableTopicResult.error_message"
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DELETE_TOPICS_RESPONSE_DELETABLE_TOPIC_RESULT_CODES) from None


def _read_delete_topics_response_v6(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[DeleteTopicsResponse], int]:
    items: list[DeleteTopicsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("DeleteTopicsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 21, "DeleteTopicsResponse.responses")
        responses, at = _read_delete_topics_response_deletable_topic_result_v6(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "DeleteTopicsResponse")
        items.append(DeleteTopicsResponse(throttle_time_ms=throttle_time_ms, responses=responses))
    return items, at


def _write_delete_topics_response_v6(out: Parts, items: Sequence[DeleteTopicsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_delete_topics_response_deletable_topic_result_v6(
                out, write_compact_count(out, item.responses, "DeleteTopicsResponse.responses")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _DELETE_TOPICS_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    DeleteTopicsResponse,
    {
        1: (_read_delete_topics_response_v1, _write_delete_topics_response_v1),
        2: (_read_delete_topics_response_v1, _write_delete_topics_response_v1),
        3: (_read_delete_topics_response_v1, _write_delete_topics_response_v1),
        4: (_read_delete_topics_response_v4, _write_delete_topics_response_v4),
        5: (_read_delete_topics_response_v5, _write_delete_topics_response_v5),
        6: (_read_delete_topics_response_v6, _write_delete_topics_response_v6),
    },
)
