"""CreateTopics, API key 19.

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
    read_compact_nullable_string,
    read_compact_string,
    read_count,
    read_int32s,
    read_nullable_string,
    read_string,
    read_tag,
    read_uvarint,
    skip_tags,
    write_compact_count,
    write_compact_nullable_count,
    write_compact_nullable_string,
    write_compact_string,
    write_count,
    write_int32s,
    write_nullable_string,
    write_string,
    write_tags,
)

_UUID_INT16: Final = struct.Struct(">16sh")
_BOOL_INT8_BOOL_TAGS: Final = struct.Struct(">?b?B")
_INT8X3_TAGS: Final = struct.Struct(">bbbB")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT32_BOOL: Final = struct.Struct(">i?")
_INT32_BOOL_TAGS: Final = struct.Struct(">i?B")
_INT32_INT8: Final = struct.Struct(">ib")
_INT32_INT8_TAGS: Final = struct.Struct(">ibB")
_INT32_INT16: Final = struct.Struct(">ih")


class CreateTopicsRequestCreatableTopicConfig(msgspec.Struct, kw_only=True, gc=False):
    """The custom topic configurations to set."""

    name: str = ""
    """The configuration name. (string)"""
    value: str | None = ""
    """The configuration value. (string)"""


class CreateTopicsRequestCreatableReplicaAssignment(msgspec.Struct, kw_only=True, gc=False):
    """The manual partition assignment, or the empty array if we are using automatic assignment."""

    partition_index: int = 0
    """The partition index. (int32)"""
    broker_ids: list[int] = []
    """The brokers to place the partition on. (int32)"""


class CreateTopicsRequestCreatableTopic(msgspec.Struct, kw_only=True, gc=False):
    """The topics to create."""

    name: str = ""
    """The topic name. (string)"""
    num_partitions: int = 0
    """The number of partitions to create in the topic, or -1 if we are either specifying a manual partition
    assignment or using the default partitions. (int32)"""
    replication_factor: int = 0
    """The number of replicas to create for each partition in the topic, or -1 if we are either specifying a manual
    partition assignment or using the default replication factor. (int16)"""
    assignments: list[CreateTopicsRequestCreatableReplicaAssignment] = []
    """The manual partition assignment, or the empty array if we are using automatic assignment."""
    configs: list[CreateTopicsRequestCreatableTopicConfig] = []
    """The custom topic configurations to set."""


class CreateTopicsRequest(msgspec.Struct, kw_only=True, gc=False):
    """CreateTopicsRequest, versions 2 to 7."""

    topics: list[CreateTopicsRequestCreatableTopic] = []
    """The topics to create."""
    timeout_ms: int = 60000
    """How long to wait in milliseconds before timing out the request. (int32)"""
    validate_only: bool = False
    """If true, check that the topics can be created as specified, but don't create anything. (bool)"""


_CREATE_TOPICS_REQUEST_CODES: Final = {"timeout_ms": "i", "validate_only": "b"}
_CREATE_TOPICS_REQUEST_CREATABLE_TOPIC_CODES: Final = {"num_partitions": "i", "replication_factor": "h"}
_CREATE_TOPICS_REQUEST_CREATABLE_REPLICA_ASSIGNMENT_CODES: Final = {"partition_index": "i"}


def _read_create_topics_request_creatable_replica_assignment_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[CreateTopicsRequestCreatableReplicaAssignment], int]:
    items: list[CreateTopicsRequestCreatableReplicaAssignment] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("CreateTopicsRequestCreatableReplicaAssignment.partition_index", at, end, 4)
        (partition_index,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 4, "CreateTopicsRequestCreatableReplicaAssignment.broker_ids")
        broker_ids, at = read_int32s(data, at, number)
        items.append(
            CreateTopicsRequestCreatableReplicaAssignment(partition_index=partition_index, broker_ids=broker_ids)
        )
    return items, at


def _write_create_topics_request_creatable_replica_assignment_v2(
    out: Parts, items: Sequence[CreateTopicsRequestCreatableReplicaAssignment]
) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.partition_index))
            write_int32s(
                out,
                write_count(out, item.broker_ids, "CreateTopicsRequestCreatableReplicaAssignment.broker_ids"),
                "CreateTopicsRequestCreatableReplicaAssignment.broker_ids",
            )
    except struct.error:
        raise misfit(items, _CREATE_TOPICS_REQUEST_CREATABLE_REPLICA_ASSIGNMENT_CODES) from None


def _read_create_topics_request_creatable_topic_config_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[CreateTopicsRequestCreatableTopicConfig], int]:
    items: list[CreateTopicsRequestCreatableTopicConfig] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "CreateTopicsRequestCreatableTopicConfig.name")
        value, at = read_nullable_string(data, at, end, "CreateTopicsRequestCreatableTopicConfig.value")
        items.append(CreateTopicsRequestCreatableTopicConfig(name=name, value=value))
    return items, at


def _write_create_topics_request_creatable_topic_config_v2(
    out: Parts, items: Sequence[CreateTopicsRequestCreatableTopicConfig]
) -> None:
    for item in items:
        write_string(out, item.name, "CreateTopicsRequestCreatableTopicConfig.name")
        write_nullable_string(out, item.value, "CreateTopicsRequestCreatableTopicConfig.value")


def _read_create_topics_request_creatable_topic_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[CreateTopicsRequestCreatableTopic], int]:
    items: list[CreateTopicsRequestCreatableTopic] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "CreateTopicsRequestCreatableTopic.name")
        if end - at < 6:
            raise cut_short("CreateTopicsRequestCreatableTopic.num_partitions to replication_factor", at, end, 6)
        num_partitions, replication_factor = _INT32_INT16.unpack_from(data, at)
        at += 6
        number, at = read_count(data, at, end, 8, "CreateTopicsRequestCreatableTopic.assignments")
        assignments, at = _read_create_topics_request_creatable_replica_assignment_v2(data, at, end, number)
        number, at = read_count(data, at, end, 4, "CreateTopicsRequestCreatableTopic.configs")
        configs, at = _read_create_topics_request_creatable_topic_config_v2(data, at, end, number)
        items.append(
            CreateTopicsRequestCreatableTopic(
                name=name,
                num_partitions=num_partitions,
                replication_factor=replication_factor,
                assignments=assignments,
                configs=configs,
            )
        )
    return items, at


def _write_create_topics_request_creatable_topic_v2(
    out: Parts, items: Sequence[CreateTopicsRequestCreatableTopic]
) -> None:
    try:
        for item in items:
            write_string(out, item.name, "CreateTopicsRequestCreatableTopic.name")
            out.append(_INT32_INT16.pack(item.num_partitions, item.replication_factor))
            _write_create_topics_request_creatable_replica_assignment_v2(
                out, write_count(out, item.assignments, "CreateTopicsRequestCreatableTopic.assignments")
            )
            _write_create_topics_request_creatable_topic_config_v2(
                out, write_count(out, item.configs, "CreateTopicsRequestCreatableTopic.configs")
            )
    except struct.error:
        raise misfit(items, _CREATE_TOPICS_REQUEST_CREATABLE_TOPIC_CODES) from None


def _read_create_topics_request_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[CreateTopicsRequest], int]:
    items: list[CreateTopicsRequest] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 16, "CreateTopicsRequest.topics")
        topics, at = _read_create_topics_request_creatable_topic_v2(data, at, end, number)
        if end - at < 5:
            raise cut_short("CreateTopicsRequest.timeout_ms to validate_only", at, end, 5)
        timeout_ms, validate_only = _INT32_BOOL.unpack_from(data, at)
        at += 5
        items.append(CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only))
    return items, at


def _write_create_topics_request_v2(out: Parts, items: Sequence[CreateTopicsRequest]) -> None:
    try:
        for item in items:
            _write_create_topics_request_creatable_topic_v2(
                out, write_count(out, item.topics, "CreateTopicsRequest.topics")
            )
            out.append(_INT32_INT8.pack(item.timeout_ms, item.validate_only))
    except struct.error:
        raise misfit(items, _CREATE_TOPICS_REQUEST_CODES) from None


def _read_create_topics_request_creatable_replica_assignment_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[CreateTopicsRequestCreatableReplicaAssignment], int]:
    items: list[CreateTopicsRequestCreatableReplicaAssignment] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("CreateTopicsRequestCreatableReplicaAssignment.partition_index", at, end, 4)
        (partition_index,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 4, "CreateTopicsRequestCreatableReplicaAssignment.broker_ids")
        broker_ids, at = read_int32s(data, at, number)
        at = (
            at + 1
            if at < end and not data[at]
            else skip_tags(data, at, end, "CreateTopicsRequestCreatableReplicaAssignment")
        )
        items.append(
            CreateTopicsRequestCreatableReplicaAssignment(partition_index=partition_index, broker_ids=broker_ids)
        )
    return items, at


def _write_create_topics_request_creatable_replica_assignment_v5(
    out: Parts, items: Sequence[CreateTopicsRequestCreatableReplicaAssignment]
) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.partition_index))
            write_int32s(
                out,
                write_compact_count(out, item.broker_ids, "CreateTopicsRequestCreatableReplicaAssignment.broker_ids"),
                "CreateTopicsRequestCreatableReplicaAssignment.broker_ids",
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _CREATE_TOPICS_REQUEST_CREATABLE_REPLICA_ASSIGNMENT_CODES) from None


def _read_create_topics_request_creatable_topic_config_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[CreateTopicsRequestCreatableTopicConfig], int]:
    items: list[CreateTopicsRequestCreatableTopicConfig] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "CreateTopicsRequestCreatableTopicConfig.name")
        value, at = read_compact_nullable_string(data, at, end, "CreateTopicsRequestCreatableTopicConfig.value")
        at = (
            at + 1 if at < end and not data[at] else skip_tags(data, at, end, "CreateTopicsRequestCreatableTopicConfig")
        )
        items.append(CreateTopicsRequestCreatableTopicConfig(name=name, value=value))
    return items, at


def _write_create_topics_request_creatable_topic_config_v5(
    out: Parts, items: Sequence[CreateTopicsRequestCreatableTopicConfig]
) -> None:
    for item in items:
        write_compact_string(out, item.name, "CreateTopicsRequestCreatableTopicConfig.name")
        write_compact_nullable_string(out, item.value, "CreateTopicsRequestCreatableTopicConfig.value")
        out.append(NO_TAGS)


def _read_create_topics_request_creatable_topic_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[CreateTopicsRequestCreatableTopic], int]:
    items: list[CreateTopicsRequestCreatableTopic] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "CreateTopicsRequestCreatableTopic.name")
        if end - at < 6:
            raise cut_short("CreateTopicsRequestCreatableTopic.num_partitions to replication_factor", at, end, 6)
        num_partitions, replication_factor = _INT32_INT16.unpack_from(data, at)
        at += 6
        number, at = read_compact_count(data, at, end, 6, "CreateTopicsRequestCreatableTopic.assignments")
        assignments, at = _read_create_topics_request_creatable_replica_assignment_v5(data, at, end, number)
        number, at = read_compact_count(data, at, end, 3, "CreateTopicsRequestCreatableTopic.configs")
        configs, at = _read_create_topics_request_creatable_topic_config_v5(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "CreateTopicsRequestCreatableTopic")
        items.append(
            CreateTopicsRequestCreatableTopic(
                name=name,
                num_partitions=num_partitions,
                replication_factor=replication_factor,
                assignments=assignments,
                configs=configs,
            )
        )
    return items, at


def _write_create_topics_request_creatable_topic_v5(
    out: Parts, items: Sequence[CreateTopicsRequestCreatableTopic]
) -> None:
    try:
        for item in items:
            write_compact_string(out, item.name, "CreateTopicsRequestCreatableTopic.name")
            out.append(_INT32_INT16.pack(item.num_partitions, item.replication_factor))
            _write_create_topics_request_creatable_replica_assignment_v5(
                out, write_compact_count(out, item.assignments, "CreateTopicsRequestCreatableTopic.assignments")
            )
            _write_create_topics_request_creatable_topic_config_v5(
                out, write_compact_count(out, item.configs, "CreateTopicsRequestCreatableTopic.configs")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _CREATE_TOPICS_REQUEST_CREATABLE_TOPIC_CODES) from None


def _read_create_topics_request_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[CreateTopicsRequest], int]:
    items: list[CreateTopicsRequest] = []
    for _ in range(count):
        number, at = read_compact_count(data, at, end, 10, "CreateTopicsRequest.topics")
        topics, at = _read_create_topics_request_creatable_topic_v5(data, at, end, number)
        if end - at < 6:
            raise cut_short("CreateTopicsRequest.timeout_ms to validate_only", at, end, 6)
        timeout_ms, validate_only, tags = _INT32_BOOL_TAGS.unpack_from(data, at)
        at += 6
        if tags:
            at = skip_tags(data, at - 1, end, "CreateTopicsRequest")
        items.append(CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only))
    return items, at


def _write_create_topics_request_v5(out: Parts, items: Sequence[CreateTopicsRequest]) -> None:
    try:
        for item in items:
            _write_create_topics_request_creatable_topic_v5(
                out, write_compact_count(out, item.topics, "CreateTopicsRequest.topics")
            )
            out.append(_INT32_INT8_TAGS.pack(item.timeout_ms, item.validate_only, 0))
    except struct.error:
        raise misfit(items, _CREATE_TOPICS_REQUEST_CODES) from None


REQUEST: Final = MessageCodec(
    CreateTopicsRequest,
    {
        2: (_read_create_topics_request_v2, _write_create_topics_request_v2),
        3: (_read_create_topics_request_v2, _write_create_topics_request_v2),
        4: (_read_create_topics_request_v2, _write_create_topics_request_v2),
        5: (_read_create_topics_request_v5, _write_create_topics_request_v5),
        6: (_read_create_topics_request_v5, _write_create_topics_request_v5),
        7: (_read_create_topics_request_v5, _write_create_topics_request_v5),
    },
)


class CreateTopicsResponseCreatableTopicConfigs(msgspec.Struct, kw_only=True, gc=False):
    """Configuration of the topic."""

    name: str = ""
    """The configuration name. (string, versions 5 to 7)"""
    value: str | None = ""
    """The configuration value. (string, versions 5 to 7)"""
    read_only: bool = False
    """True if the configuration is read-only. (bool, versions 5 to 7)"""
    config_source: int = -1
    """The configuration source. (int8, versions 5 to 7, ignorable)"""
    is_sensitive: bool = False
    """True if this configuration is sensitive. (bool, versions 5 to 7)"""


class CreateTopicsResponseCreatableTopicResult(msgspec.Struct, kw_only=True, gc=False):
    """Results for each topic we tried to create."""

    name: str = ""
    """The topic name. (string)"""
    topic_id: bytes = NO_UUID
    """The unique topic ID. (uuid, version 7, ignorable)"""
    error_code: int = 0
    """The error code, or 0 if there was no error. (int16)"""
    error_message: str | None = ""
    """The error message, or null if there was no error. (string)"""
    topic_config_error_code: int = 0
    """Optional topic config error returned if configs are not returned in the response. (int16, versions 5 to 7,
    ignorable)"""
    num_partitions: int = -1
    """Number of partitions of the topic. (int32, versions 5 to 7, ignorable)"""
    replication_factor: int = -1
    """Replication factor of the topic. (int16, versions 5 to 7, ignorable)"""
    configs: list[CreateTopicsResponseCreatableTopicConfigs] | None = []
    """Configuration of the topic. (versions 5 to 7, ignorable)"""


class CreateTopicsResponse(msgspec.Struct, kw_only=True, gc=False):
    """CreateTopicsResponse, versions 2 to 7."""

    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32)"""
    topics: list[CreateTopicsResponseCreatableTopicResult] = []
    """Results for each topic we tried to create."""


_CREATE_TOPICS_RESPONSE_CODES: Final = {"throttle_time_ms": "i"}
_CREATE_TOPICS_RESPONSE_CREATABLE_TOPIC_RESULT_CODES: Final = {
    "topic_id": "16s",
    "error_code": "h",
    "topic_config_error_code": "h",
    "num_partitions": "i",
    "replication_factor": "h",
}
_CREATE_TOPICS_RESPONSE_CREATABLE_TOPIC_CONFIGS_CODES: Final = {
    "read_only": "b",
    "config_source": "b",
    "is_sensitive": "b",
}


def _read_create_topics_response_creatable_topic_result_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[CreateTopicsResponseCreatableTopicResult], int]:
    items: list[CreateTopicsResponseCreatableTopicResult] = []
    for _ in range(count):
        name, at = read_string(data, at, end, "CreateTopicsResponseCreatableTopicResult.name")
        if end - at < 2:
            raise cut_short("CreateTopicsResponseCreatableTopicResult.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_nullable_string(
            data, at, end, "CreateTopicsResponseCreatableTopicResult.error_message"
        )
        items.append(
            CreateTopicsResponseCreatableTopicResult(name=name, error_code=error_code, error_message=error_message)
        )
    return items, at


def _write_create_topics_response_creatable_topic_result_v2(
    out: Parts, items: Sequence[CreateTopicsResponseCreatableTopicResult]
) -> None:
    try:
        for item in items:
            write_string(out, item.name, "CreateTopicsResponseCreatableTopicResult.name")
            out.append(_INT16.pack(item.error_code))
            write_nullable_string(out, item.error_message, "CreateTopicsResponseCreatableTopicResult.error_message")
    except struct.error:
        raise misfit(items, _CREATE_TOPICS_RESPONSE_CREATABLE_TOPIC_RESULT_CODES) from None


def _read_create_topics_response_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[CreateTopicsResponse], int]:
    items: list[CreateTopicsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("CreateTopicsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_count(data, at, end, 6, "CreateTopicsResponse.topics")
        topics, at = _read_create_topics_response_creatable_topic_result_v2(data, at, end, number)
        items.append(CreateTopicsResponse(throttle_time_ms=throttle_time_ms, topics=topics))
    return items, at


def _write_create_topics_response_v2(out: Parts, items: Sequence[CreateTopicsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_create_topics_response_creatable_topic_result_v2(
                out, write_count(out, item.topics, "CreateTopicsResponse.topics")
            )
    except struct.error:
        raise misfit(items, _CREATE_TOPICS_RESPONSE_CODES) from None


def _read_create_topics_response_creatable_topic_configs_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[CreateTopicsResponseCreatableTopicConfigs], int]:
    items: list[CreateTopicsResponseCreatableTopicConfigs] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "CreateTopicsResponseCreatableTopicConfigs.name")
        value, at = read_compact_nullable_string(data, at, end, "CreateTopicsResponseCreatableTopicConfigs.value")
        if end - at < 4:
            raise cut_short("CreateTopicsResponseCreatableTopicConfigs.read_only to is_sensitive", at, end, 4)
        read_only, config_source, is_sensitive, tags = _BOOL_INT8_BOOL_TAGS.unpack_from(data, at)
        at += 4
        if tags:
            at = skip_tags(data, at - 1, end, "CreateTopicsResponseCreatableTopicConfigs")
        items.append(
            CreateTopicsResponseCreatableTopicConfigs(
                name=name, value=value, read_only=read_only, config_source=config_source, is_sensitive=is_sensitive
            )
        )
    return items, at


def _write_create_topics_response_creatable_topic_configs_v5(
    out: Parts, items: Sequence[CreateTopicsResponseCreatableTopicConfigs]
) -> None:
    try:
        for item in items:
            write_compact_string(out, item.name, "CreateTopicsResponseCreatableTopicConfigs.name")
            write_compact_nullable_string(out, item.value, "CreateTopicsResponseCreatableTopicConfigs.value")
            out.append(_INT8X3_TAGS.pack(item.read_only, item.config_source, item.is_sensitive, 0))
    except struct.error:
        raise misfit(items, _CREATE_TOPICS_RESPONSE_CREATABLE_TOPIC_CONFIGS_CODES) from None


def _read_create_topics_response_creatable_topic_result_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[CreateTopicsResponseCreatableTopicResult], int]:
    items: list[CreateTopicsResponseCreatableTopicResult] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "CreateTopicsResponseCreatableTopicResult.name")
        if end - at < 2:
            raise cut_short("CreateTopicsResponseCreatableTopicResult.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_compact_nullable_string(
            data, at, end, "CreateTopicsResponseCreatableTopicResult.error_message"
        )
        if end - at < 6:
            raise cut_short("CreateTopicsResponseCreatableTopicResult.num_partitions to replication_factor", at, end, 6)
        num_partitions, replication_factor = _INT32_INT16.unpack_from(data, at)
        at += 6
        number, at = read_compact_nullable_count(data, at, end, 6, "CreateTopicsResponseCreatableTopicResult.configs")
        configs = None
        if number >= 0:
            configs, at = _read_create_topics_response_creatable_topic_configs_v5(data, at, end, number)
        topic_config_error_code = 0
        tags, at = read_uvarint(data, at, end, "CreateTopicsResponseCreatableTopicResult")
        last = -1
        for _ in range(tags):
            last, at, stop = read_tag(data, at, end, last, "CreateTopicsResponseCreatableTopicResult")
            if last == 0:
                if stop - at < 2:
                    raise cut_short("CreateTopicsResponseCreatableTopicResult.topic_config_error_code", at, stop, 2)
                (topic_config_error_code,) = _INT16.unpack_from(data, at)
                at += 2
                check_tag_end(at, stop, "CreateTopicsResponseCreatableTopicResult.topic_config_error_code")
            at = stop
        items.append(
            CreateTopicsResponseCreatableTopicResult(
                name=name,
                error_code=error_code,
                error_message=error_message,
                num_partitions=num_partitions,
                replication_factor=replication_factor,
                configs=configs,
                topic_config_error_code=topic_config_error_code,
            )
        )
    return items, at


def _write_create_topics_response_creatable_topic_result_v5(
    out: Parts, items: Sequence[CreateTopicsResponseCreatableTopicResult]
) -> None:
    try:
        for item in items:
            write_compact_string(out, item.name, "CreateTopicsResponseCreatableTopicResult.name")
            out.append(_INT16.pack(item.error_code))
            write_compact_nullable_string(
                out, item.error_message, "CreateTopicsResponseCreatableTopicResult.error_message"
            )
            out.append(_INT32_INT16.pack(item.num_partitions, item.replication_factor))
            _write_create_topics_response_creatable_topic_configs_v5(
                out, write_compact_nullable_count(out, item.configs, "CreateTopicsResponseCreatableTopicResult.configs")
            )
            tagged: list[tuple[int, Parts]] = []
            if item.topic_config_error_code != 0:
                part: Parts = []
                part.append(_INT16.pack(item.topic_config_error_code))
                tagged.append((0, part))
            write_tags(out, tagged)
    except struct.error:
        raise misfit(items, _CREATE_TOPICS_RESPONSE_CREATABLE_TOPIC_RESULT_CODES) from None


def _read_create_topics_response_v5(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[CreateTopicsResponse], int]:
    items: list[CreateTopicsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("CreateTopicsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 12, "CreateTopicsResponse.topics")
        topics, at = _read_create_topics_response_creatable_topic_result_v5(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "CreateTopicsResponse")
        items.append(CreateTopicsResponse(throttle_time_ms=throttle_time_ms, topics=topics))
    return items, at


def _write_create_topics_response_v5(out: Parts, items: Sequence[CreateTopicsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_create_topics_response_creatable_topic_result_v5(
                out, write_compact_count(out, item.topics, "CreateTopicsResponse.topics")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _CREATE_TOPICS_RESPONSE_CODES) from None


def _read_create_topics_response_creatable_topic_result_v7(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[CreateTopicsResponseCreatableTopicResult], int]:
    items: list[CreateTopicsResponseCreatableTopicResult] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "CreateTopicsResponseCreatableTopicResult.name")
        if end - at < 18:
            raise cut_short("CreateTopicsResponseCreatableTopicResult.topic_id to error_code", at, end, 18)
        topic_id, error_code = _UUID_INT16.unpack_from(data, at)
        at += 18
        error_message, at = read_compact_nullable_string(
            data, at, end, "CreateTopicsResponseCreatableTopicResult.error_message"
        )
        if end - at < 6:
            raise cut_short("CreateTopicsResponseCreatableTopicResult.num_partitions to replication_factor", at, end, 6)
        num_partitions, replication_factor = _INT32_INT16.unpack_from(data, at)
        at += 6
        number, at = read_compact_nullable_count(data, at, end, 6, "CreateTopicsResponseCreatableTopicResult.configs")
        configs = None
        if number >= 0:
            configs, at = _read_create_topics_response_creatable_topic_configs_v5(data, at, end, number)
        topic_config_error_code = 0
        tags, at = read_uvarint(data, at, end, "CreateTopicsResponseCreatableTopicResult")
        last = -1
        for _ in range(tags):
            last, at, stop = read_tag(data, at, end, last, "CreateTopicsResponseCreatableTopicResult")
            if last == 0:
                if stop - at < 2:
                    raise cut_short("CreateTopicsResponseCreatableTopicResult.topic_config_error_code", at, stop, 2)
                (topic_config_error_code,) = _INT16.unpack_from(data, at)
                at += 2
                check_tag_end(at, stop, "CreateTopicsResponseCreatableTopicResult.topic_config_error_code")
            at = stop
        items.append(
            CreateTopicsResponseCreatableTopicResult(
                name=name,
                topic_id=topic_id,
                error_code=error_code,
                error_message=error_message,
                num_partitions=num_partitions,
                replication_factor=replication_factor,
                configs=configs,
                topic_config_error_code=topic_config_error_code,
            )
        )
    return items, at


def _write_create_topics_response_creatable_topic_result_v7(
    out: Parts, items: Sequence[CreateTopicsResponseCreatableTopicResult]
) -> None:
    try:
        for item in items:
            write_compact_string(out, item.name, "CreateTopicsResponseCreatableTopicResult.name")
            check_uuid(item.topic_id, "CreateTopicsResponseCreatableTopicResult.topic_id")
            out.append(_UUID_INT16.pack(item.topic_id, item.error_code))
            write_compact_nullable_string(
                out, item.error_message, "CreateTopicsResponseCreatableTopicResult.error_message"
            )
            out.append(_INT32_INT16.pack(item.num_partitions, item.replication_factor))
            _write_create_topics_response_creatable_topic_configs_v5(
                out, write_compact_nullable_count(out, item.configs, "CreateTopicsResponseCreatableTopicResult.configs")
            )
            tagged: list[tuple[int, Parts]] = []
            if item.topic_config_error_code != 0:
                part: Parts = []
                part.append(_INT16.pack(item.topic_config_error_code))
                tagged.append((0, part))
            write_tags(out, tagged)
    except struct.error:
        raise misfit(items, _CREATE_TOPICS_RESPONSE_CREATABLE_TOPIC_RESULT_CODES) from None


def _read_create_topics_response_v7(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[CreateTopicsResponse], int]:
    items: list[CreateTopicsResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("CreateTopicsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 28, "CreateTopicsResponse.topics")
        topics, at = _read_create_topics_response_creatable_topic_result_v7(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "CreateTopicsResponse")
        items.append(CreateTopicsResponse(throttle_time_ms=throttle_time_ms, topics=topics))
    return items, at


def _write_create_topics_response_v7(out: Parts, items: Sequence[CreateTopicsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_create_topics_response_creatable_topic_result_v7(
                out, write_compact_count(out, item.topics, "CreateTopicsResponse.topics")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _CREATE_TOPICS_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    CreateTopicsResponse,
    {
        2: (_read_create_topics_response_v2, _write_create_topics_response_v2),
        3: (_read_create_topics_response_v2, _write_create_topics_response_v2),
        4: (_read_create_topics_response_v2, _write_create_topics_response_v2),
        5: (_read_create_topics_response_v5, _write_create_topics_response_v5),
        6: (_read_create_topics_response_v5, _write_create_topics_response_v5),
        7: (_read_create_topics_response_v7, _write_create_topics_response_v7),
    },
)
