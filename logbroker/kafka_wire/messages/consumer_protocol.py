"""Subscriptions and assignments: what consumers of a classic group tell each other through the broker.

Generated from Apache Kafka's message definitions (proto/kafka) by `make kafka-wire`; do not edit.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from logbroker.kafka_wire.codec import MessageCodec
from logbroker.kafka_wire.primitives import (
    Buffer,
    Parts,
    cut_short,
    misfit,
    read_count,
    read_int32s,
    read_nullable_bytes,
    read_nullable_string,
    read_string,
    read_strings,
    write_count,
    write_int32s,
    write_nullable_bytes,
    write_nullable_string,
    write_string,
    write_strings,
)

_INT32: Final = struct.Struct(">i")


class ConsumerProtocolSubscriptionTopicPartition(msgspec.Struct, kw_only=True, gc=False):
    """The partitions that the member owns."""

    topic: str = ""
    """The topic name. (string, versions 1 to 3)"""
    partitions: list[int] = []
    """The partition ids. (int32, versions 1 to 3)"""


class ConsumerProtocolSubscription(msgspec.Struct, kw_only=True, gc=False):
    """ConsumerProtocolSubscription, versions 0 to 3."""

    topics: list[str] = []
    """The topics that the member wants to consume. (string)"""
    user_data: bytes | None = None
    """User data that will be passed back to the consumer. (bytes)"""
    owned_partitions: list[ConsumerProtocolSubscriptionTopicPartition] = []
    """The partitions that the member owns. (versions 1 to 3, ignorable)"""
    generation_id: int = -1
    """The generation id of the member. (int32, versions 2 to 3, ignorable)"""
    rack_id: str | None = None
    """The rack id of the member. (string, version 3, ignorable)"""


_CONSUMER_PROTOCOL_SUBSCRIPTION_CODES: Final = {"generation_id": "i"}


def _read_consumer_protocol_subscription_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ConsumerProtocolSubscription], int]:
    items: list[ConsumerProtocolSubscription] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 2, "ConsumerProtocolSubscription.topics")
        topics, at = read_strings(data, at, end, number, "ConsumerProtocolSubscription.topics")
        user_data, at = read_nullable_bytes(data, at, end, "ConsumerProtocolSubscription.user_data")
        items.append(ConsumerProtocolSubscription(topics=topics, user_data=user_data))
    return items, at


def _write_consumer_protocol_subscription_v0(out: Parts, items: Sequence[ConsumerProtocolSubscription]) -> None:
    for item in items:
        write_strings(
            out,
            write_count(out, item.topics, "ConsumerProtocolSubscription.topics"),
            "ConsumerProtocolSubscription.topics",
        )
        write_nullable_bytes(out, item.user_data, "ConsumerProtocolSubscription.user_data")


def _read_consumer_protocol_subscription_topic_partition_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ConsumerProtocolSubscriptionTopicPartition], int]:
    items: list[ConsumerProtocolSubscriptionTopicPartition] = []
    for _ in range(count):
        topic, at = read_string(data, at, end, "ConsumerProtocolSubscriptionTopicPartition.topic")
        number, at = read_count(data, at, end, 4, "ConsumerProtocolSubscriptionTopicPartition.partitions")
        partitions, at = read_int32s(data, at, number)
        items.append(ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=partitions))
    return items, at


def _write_consumer_protocol_subscription_topic_partition_v1(
    out: Parts, items: Sequence[ConsumerProtocolSubscriptionTopicPartition]
) -> None:
    for item in items:
        write_string(out, item.topic, "ConsumerProtocolSubscriptionTopicPartition.topic")
        write_int32s(
            out,
            write_count(out, item.partitions, "ConsumerProtocolSubscriptionTopicPartition.partitions"),
            "ConsumerProtocolSubscriptionTopicPartition.partitions",
        )


def _read_consumer_protocol_subscription_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ConsumerProtocolSubscription], int]:
    items: list[ConsumerProtocolSubscription] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 2, "ConsumerProtocolSubscription.topics")
        topics, at = read_strings(data, at, end, number, "ConsumerProtocolSubscription.topics")
        user_data, at = read_nullable_bytes(data, at, end, "ConsumerProtocolSubscription.user_data")
        number, at = read_count(data, at, end, 6, "ConsumerProtocolSubscription.owned_partitions")
        owned_partitions, at = _read_consumer_protocol_subscription_topic_partition_v1(data, at, end, number)
        items.append(
            ConsumerProtocolSubscription(topics=topics, user_data=user_data, owned_partitions=owned_partitions)
        )
    return items, at


def _write_consumer_protocol_subscription_v1(out: Parts, items: Sequence[ConsumerProtocolSubscription]) -> None:
    for item in items:
        write_strings(
            out,
            write_count(out, item.topics, "ConsumerProtocolSubscription.topics"),
            "ConsumerProtocolSubscription.topics",
        )
        write_nullable_bytes(out, item.user_data, "ConsumerProtocolSubscription.user_data")
        _write_consumer_protocol_subscription_topic_partition_v1(
            out, write_count(out, item.owned_partitions, "ConsumerProtocolSubscription.owned_partitions")
        )


def _read_consumer_protocol_subscription_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ConsumerProtocolSubscription], int]:
    items: list[ConsumerProtocolSubscription] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 2, "ConsumerProtocolSubscription.topics")
        topics, at = read_strings(data, at, end, number, "ConsumerProtocolSubscription.topics")
        user_data, at = read_nullable_bytes(data, at, end, "ConsumerProtocolSubscription.user_data")
        number, at = read_count(data, at, end, 6, "ConsumerProtocolSubscription.owned_partitions")
        owned_partitions, at = _read_consumer_protocol_subscription_topic_partition_v1(data, at, end, number)
        if end - at < 4:
            raise cut_short("ConsumerProtocolSubscription.generation_id", at, end, 4)
        (generation_id,) = _INT32.unpack_from(data, at)
        at += 4
        items.append(
            ConsumerProtocolSubscription(
                topics=topics, user_data=user_data, owned_partitions=owned_partitions, generation_id=generation_id
            )
        )
    return items, at


def _write_consumer_protocol_subscription_v2(out: Parts, items: Sequence[ConsumerProtocolSubscription]) -> None:
    try:
        for item in items:
            write_strings(
                out,
                write_count(out, item.topics, "ConsumerProtocolSubscription.topics"),
                "ConsumerProtocolSubscription.topics",
            )
            write_nullable_bytes(out, item.user_data, "ConsumerProtocolSubscription.user_data")
            _write_consumer_protocol_subscription_topic_partition_v1(
                out, write_count(out, item.owned_partitions, "ConsumerProtocolSubscription.owned_partitions")
            )
            out.append(_INT32.pack(item.generation_id))
    except struct.error:
        raise misfit(items, _CONSUMER_PROTOCOL_SUBSCRIPTION_CODES) from None


def _read_consumer_protocol_subscription_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ConsumerProtocolSubscription], int]:
    items: list[ConsumerProtocolSubscription] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 2, "ConsumerProtocolSubscription.topics")
        topics, at = read_strings(data, at, end, number, "ConsumerProtocolSubscription.topics")
        user_data, at = read_nullable_bytes(data, at, end, "ConsumerProtocolSubscription.user_data")
        number, at = read_count(data, at, end, 6, "ConsumerProtocolSubscription.owned_partitions")
        owned_partitions, at = _read_consumer_protocol_subscription_topic_partition_v1(data, at, end, number)
        if end - at < 4:
            raise cut_short("ConsumerProtocolSubscription.generation_id", at, end, 4)
        (generation_id,) = _INT32.unpack_from(data, at)
        at += 4
        rack_id, at = read_nullable_string(data, at, end, "ConsumerProtocolSubscription.rack_id")
        items.append(
            ConsumerProtocolSubscription(
                topics=topics,
                user_data=user_data,
                owned_partitions=owned_partitions,
                generation_id=generation_id,
                rack_id=rack_id,
            )
        )
    return items, at


def _write_consumer_protocol_subscription_v3(out: Parts, items: Sequence[ConsumerProtocolSubscription]) -> None:
    try:
        for item in items:
            write_strings(
                out,
                write_count(out, item.topics, "ConsumerProtocolSubscription.topics"),
                "ConsumerProtocolSubscription.topics",
            )
            write_nullable_bytes(out, item.user_data, "ConsumerProtocolSubscription.user_data")
            _write_consumer_protocol_subscription_topic_partition_v1(
                out, write_count(out, item.owned_partitions, "ConsumerProtocolSubscription.owned_partitions")
            )
            out.append(_INT32.pack(item.generation_id))
            write_nullable_string(out, item.rack_id, "ConsumerProtocolSubscription.rack_id")
    except struct.error:
        raise misfit(items, _CONSUMER_PROTOCOL_SUBSCRIPTION_CODES) from None


SUBSCRIPTION: Final = MessageCodec(
    ConsumerProtocolSubscription,
    {
        0: (_read_consumer_protocol_subscription_v0, _write_consumer_protocol_subscription_v0),
        1: (_read_consumer_protocol_subscription_v1, _write_consumer_protocol_subscription_v1),
        2: (_read_consumer_protocol_subscription_v2, _write_consumer_protocol_subscription_v2),
        3: (_read_consumer_protocol_subscription_v3, _write_consumer_protocol_subscription_v3),
    },
)


class ConsumerProtocolAssignmentTopicPartition(msgspec.Struct, kw_only=True, gc=False):
    """The list of topics and partitions assigned to this consumer."""

    topic: str = ""
    """The topic name. (string)"""
    partitions: list[int] = []
    """The list of partitions assigned to this consumer. (int32)"""


class ConsumerProtocolAssignment(msgspec.Struct, kw_only=True, gc=False):
    """ConsumerProtocolAssignment, versions 0 to 3."""

    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = []
    """The list of topics and partitions assigned to this consumer."""
    user_data: bytes | None = None
    """User data. (bytes)"""


def _read_consumer_protocol_assignment_topic_partition_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ConsumerProtocolAssignmentTopicPartition], int]:
    items: list[ConsumerProtocolAssignmentTopicPartition] = []
    for _ in range(count):
        topic, at = read_string(data, at, end, "ConsumerProtocolAssignmentTopicPartition.topic")
        number, at = read_count(data, at, end, 4, "ConsumerProtocolAssignmentTopicPartition.partitions")
        partitions, at = read_int32s(data, at, number)
        items.append(ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=partitions))
    return items, at


def _write_consumer_protocol_assignment_topic_partition_v0(
    out: Parts, items: Sequence[ConsumerProtocolAssignmentTopicPartition]
) -> None:
    for item in items:
        write_string(out, item.topic, "ConsumerProtocolAssignmentTopicPartition.topic")
        write_int32s(
            out,
            write_count(out, item.partitions, "ConsumerProtocolAssignmentTopicPartition.partitions"),
            "ConsumerProtocolAssignmentTopicPartition.partitions",
        )


def _read_consumer_protocol_assignment_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ConsumerProtocolAssignment], int]:
    items: list[ConsumerProtocolAssignment] = []
    for _ in range(count):
        number, at = read_count(data, at, end, 6, "ConsumerProtocolAssignment.assigned_partitions")
        assigned_partitions, at = _read_consumer_protocol_assignment_topic_partition_v0(data, at, end, number)
        user_data, at = read_nullable_bytes(data, at, end, "ConsumerProtocolAssignment.user_data")
        items.append(ConsumerProtocolAssignment(assigned_partitions=assigned_partitions, user_data=user_data))
    return items, at


def _write_consumer_protocol_assignment_v0(out: Parts, items: Sequence[ConsumerProtocolAssignment]) -> None:
    for item in items:
        _write_consumer_protocol_assignment_topic_partition_v0(
            out, write_count(out, item.assigned_partitions, "ConsumerProtocolAssignment.assigned_partitions")
        )
        write_nullable_bytes(out, item.user_data, "ConsumerProtocolAssignment.user_data")


ASSIGNMENT: Final = MessageCodec(
    ConsumerProtocolAssignment,
    {
        0: (_read_consumer_protocol_assignment_v0, _write_consumer_protocol_assignment_v0),
        1: (_read_consumer_protocol_assignment_v0, _write_consumer_protocol_assignment_v0),
        2: (_read_consumer_protocol_assignment_v0, _write_consumer_protocol_assignment_v0),
        3: (_read_consumer_protocol_assignment_v0, _write_consumer_protocol_assignment_v0),
    },
)
