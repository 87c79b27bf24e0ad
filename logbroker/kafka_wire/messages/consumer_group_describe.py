"""ConsumerGroupDescribe, API key 69.

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
    read_int32s,
    required,
    skip_tags,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
    write_compact_strings,
    write_int32s,
)

_UUID: Final = struct.Struct(">16s")
_BOOL_TAGS: Final = struct.Struct(">?B")
_INT8_TAGS: Final = struct.Struct(">bB")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT32_TAGS: Final = struct.Struct(">iB")
_INT32X2: Final = struct.Struct(">ii")


class ConsumerGroupDescribeRequest(msgspec.Struct, kw_only=True, gc=False):
    """ConsumerGroupDescribeRequest, versions 0 to 1."""

    group_ids: list[str] = []
    """The ids of the groups to describe. (string)"""
    include_authorized_operations: bool = False
    """Whether to include authorized operations. (bool)"""


_CONSUMER_GROUP_DESCRIBE_REQUEST_CODES: Final = {"include_authorized_operations": "b"}


def _read_consumer_group_describe_request_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ConsumerGroupDescribeRequest], int]:
    items: list[ConsumerGroupDescribeRequest] = []
    for _ in range(count):
        number, at = read_compact_count(data, at, end, 1, "ConsumerGroupDescribeRequest.group_ids")
        group_ids, at = read_compact_strings(data, at, end, number, "ConsumerGroupDescribeRequest.group_ids")
        if end - at < 2:
            raise cut_short("ConsumerGroupDescribeRequest.include_authorized_operations", at, end, 2)
        include_authorized_operations, tags = _BOOL_TAGS.unpack_from(data, at)
        at += 2
        if tags:
            at = skip_tags(data, at - 1, end, "ConsumerGroupDescribeRequest")
        items.append(
            ConsumerGroupDescribeRequest(
                group_ids=group_ids, include_authorized_operations=include_authorized_operations
            )
        )
    return items, at


def _write_consumer_group_describe_request_v0(out: Parts, items: Sequence[ConsumerGroupDescribeRequest]) -> None:
    try:
        for item in items:
            write_compact_strings(
                out,
                write_compact_count(out, item.group_ids, "ConsumerGroupDescribeRequest.group_ids"),
                "ConsumerGroupDescribeRequest.group_ids",
            )
            out.append(_INT8_TAGS.pack(item.include_authorized_operations, 0))
    except struct.error:
        raise misfit(items, _CONSUMER_GROUP_DESCRIBE_REQUEST_CODES) from None


REQUEST: Final = MessageCodec(
    ConsumerGroupDescribeRequest,
    {
        0: (_read_consumer_group_describe_request_v0, _write_consumer_group_describe_request_v0),
        1: (_read_consumer_group_describe_request_v0, _write_consumer_group_describe_request_v0),
    },
)


class ConsumerGroupDescribeResponseAssignment(msgspec.Struct, kw_only=True, gc=False):
    topic_partitions: list[ConsumerGroupDescribeResponseTopicPartitions] = []
    """The assigned topic-partitions to the member."""


class ConsumerGroupDescribeResponseTopicPartitions(msgspec.Struct, kw_only=True, gc=False):
    topic_id: bytes = NO_UUID
    """The topic ID. (uuid)"""
    topic_name: str = ""
    """The topic name. (string)"""
    partitions: list[int] = []
    """The partitions. (int32)"""


class ConsumerGroupDescribeResponseMember(msgspec.Struct, kw_only=True, gc=False):
    """The members."""

    member_id: str = ""
    """The member ID. (string)"""
    instance_id: str | None = None
    """The member instance ID. (string)"""
    rack_id: str | None = None
    """The member rack ID. (string)"""
    member_epoch: int = 0
    """The current member epoch. (int32)"""
    client_id: str = ""
    """The client ID. (string)"""
    client_host: str = ""
    """The client host. (string)"""
    subscribed_topic_names: list[str] = []
    """The subscribed topic names. (string)"""
    subscribed_topic_regex: str | None = None
    """The subscribed topic regex otherwise or null of not provided. (string)"""
    assignment: ConsumerGroupDescribeResponseAssignment = msgspec.field(
        default_factory=ConsumerGroupDescribeResponseAssignment
    )
    """The current assignment."""
    target_assignment: ConsumerGroupDescribeResponseAssignment = msgspec.field(
        default_factory=ConsumerGroupDescribeResponseAssignment
    )
    """The target assignment."""
    member_type: int = -1
    """-1 for unknown. 0 for classic member. +1 for consumer member. (int8, version 1, ignorable)"""


class ConsumerGroupDescribeResponseDescribedGroup(msgspec.Struct, kw_only=True, gc=False):
    """Each described group."""

    error_code: int = 0
    """The describe error, or 0 if there was no error. (int16)"""
    error_message: str | None = None
    """The top-level error message, or null if there was no error. (string)"""
    group_id: str = ""
    """The group ID string. (string)"""
    group_state: str = ""
    """The group state string, or the empty string. (string)"""
    group_epoch: int = 0
    """The group epoch. (int32)"""
    assignment_epoch: int = 0
    """The assignment epoch. (int32)"""
    assignor_name: str = ""
    """The selected assignor. (string)"""
    members: list[ConsumerGroupDescribeResponseMember] = []
    """The members."""
    authorized_operations: int = -2147483648
    """32-bit bitfield to represent authorized operations for this group. (int32)"""


class ConsumerGroupDescribeResponse(msgspec.Struct, kw_only=True, gc=False):
    """ConsumerGroupDescribeResponse, versions 0 to 1."""

    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32)"""
    groups: list[ConsumerGroupDescribeResponseDescribedGroup] = []
    """Each described group."""


_CONSUMER_GROUP_DESCRIBE_RESPONSE_CODES: Final = {"throttle_time_ms": "i"}
_CONSUMER_GROUP_DESCRIBE_RESPONSE_DESCRIBED_GROUP_CODES: Final = {
    "error_code": "h",
    "group_epoch": "i",
    "assignment_epoch": "i",
    "authorized_operations": "i",
}
_CONSUMER_GROUP_DESCRIBE_RESPONSE_MEMBER_CODES: Final = {"member_epoch": "i", "member_type": "b"}
_CONSUMER_GROUP_DESCRIBE_RESPONSE_TOPIC_PARTITIONS_CODES: Final = {"topic_id": "16s"}


def _read_consumer_group_describe_response_topic_partitions_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ConsumerGroupDescribeResponseTopicPartitions], int]:
    items: list[ConsumerGroupDescribeResponseTopicPartitions] = []
    for _ in range(count):
        if end - at < 16:
            raise cut_short("ConsumerGroupDescribeResponseTopicPartitions.topic_id", at, end, 16)
        (topic_id,) = _UUID.unpack_from(data, at)
        at += 16
        topic_name, at = read_compact_string(data, at, end, "ConsumerGroupDescribeResponseTopicPartitions.topic_name")
        number, at = read_compact_count(data, at, end, 4, "ConsumerGroupDescribeResponseTopicPartitions.partitions")
        partitions, at = read_int32s(data, at, number)
        at = (
            at + 1
            if at < end and not data[at]
            else skip_tags(data, at, end, "ConsumerGroupDescribeResponseTopicPartitions")
        )
        items.append(
            ConsumerGroupDescribeResponseTopicPartitions(
                topic_id=topic_id, topic_name=topic_name, partitions=partitions
            )
        )
    return items, at


def _write_consumer_group_describe_response_topic_partitions_v0(
    out: Parts, items: Sequence[ConsumerGroupDescribeResponseTopicPartitions]
) -> None:
    try:
        for item in items:
            check_uuid(item.topic_id, "ConsumerGroupDescribeResponseTopicPartitions.topic_id")
            out.append(_UUID.pack(item.topic_id))
            write_compact_string(out, item.topic_name, "ConsumerGroupDescribeResponseTopicPartitions.topic_name")
            write_int32s(
                out,
                write_compact_count(out, item.partitions, "ConsumerGroupDescribeResponseTopicPartitions.partitions"),
                "ConsumerGroupDescribeResponseTopicPartitions.partitions",
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _CONSUMER_GROUP_DESCRIBE_RESPONSE_TOPIC_PARTITIONS_CODES) from None


def _read_consumer_group_describe_response_assignment_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ConsumerGroupDescribeResponseAssignment], int]:
    items: list[ConsumerGroupDescribeResponseAssignment] = []
    for _ in range(count):
        number, at = read_compact_count(data, at, end, 19, "ConsumerGroupDescribeResponseAssignment.topic_partitions")
        topic_partitions, at = _read_consumer_group_describe_response_topic_partitions_v0(data, at, end, number)
        at = (
            at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ConsumerGroupDescribeResponseAssignment")
        )
        items.append(ConsumerGroupDescribeResponseAssignment(topic_partitions=topic_partitions))
    return items, at


def _write_consumer_group_describe_response_assignment_v0(
    out: Parts, items: Sequence[ConsumerGroupDescribeResponseAssignment]
) -> None:
    for item in items:
        _write_consumer_group_describe_response_topic_partitions_v0(
            out,
            write_compact_count(out, item.topic_partitions, "ConsumerGroupDescribeResponseAssignment.topic_partitions"),
        )
        out.append(NO_TAGS)


def _read_consumer_group_describe_response_member_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ConsumerGroupDescribeResponseMember], int]:
    items: list[ConsumerGroupDescribeResponseMember] = []
    for _ in range(count):
        member_id, at = read_compact_string(data, at, end, "ConsumerGroupDescribeResponseMember.member_id")
        instance_id, at = read_compact_nullable_string(data, at, end, "ConsumerGroupDescribeResponseMember.instance_id")
        rack_id, at = read_compact_nullable_string(data, at, end, "ConsumerGroupDescribeResponseMember.rack_id")
        if end - at < 4:
            raise cut_short("ConsumerGroupDescribeResponseMember.member_epoch", at, end, 4)
        (member_epoch,) = _INT32.unpack_from(data, at)
        at += 4
        client_id, at = read_compact_string(data, at, end, "ConsumerGroupDescribeResponseMember.client_id")
        client_host, at = read_compact_string(data, at, end, "ConsumerGroupDescribeResponseMember.client_host")
        number, at = read_compact_count(data, at, end, 1, "ConsumerGroupDescribeResponseMember.subscribed_topic_names")
        subscribed_topic_names, at = read_compact_strings(
            data, at, end, number, "ConsumerGroupDescribeResponseMember.subscribed_topic_names"
        )
        subscribed_topic_regex, at = read_compact_nullable_string(
            data, at, end, "ConsumerGroupDescribeResponseMember.subscribed_topic_regex"
        )
        [assignment], at = _read_consumer_group_describe_response_assignment_v0(data, at, end, 1)
        [target_assignment], at = _read_consumer_group_describe_response_assignment_v0(data, at, end, 1)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ConsumerGroupDescribeResponseMember")
        items.append(
            ConsumerGroupDescribeResponseMember(
                member_id=member_id,
                instance_id=instance_id,
                rack_id=rack_id,
                member_epoch=member_epoch,
                client_id=client_id,
                client_host=client_host,
                subscribed_topic_names=subscribed_topic_names,
                subscribed_topic_regex=subscribed_topic_regex,
                assignment=assignment,
                target_assignment=target_assignment,
            )
        )
    return items, at


def _write_consumer_group_describe_response_member_v0(
    out: Parts, items: Sequence[ConsumerGroupDescribeResponseMember]
) -> None:
    try:
        for item in items:
            write_compact_string(out, item.member_id, "ConsumerGroupDescribeResponseMember.member_id")
            write_compact_nullable_string(out, item.instance_id, "ConsumerGroupDescribeResponseMember.instance_id")
            write_compact_nullable_string(out, item.rack_id, "ConsumerGroupDescribeResponseMember.rack_id")
            out.append(_INT32.pack(item.member_epoch))
            write_compact_string(out, item.client_id, "ConsumerGroupDescribeResponseMember.client_id")
            write_compact_string(out, item.client_host, "ConsumerGroupDescribeResponseMember.client_host")
            write_compact_strings(
                out,
                write_compact_count(
                    out, item.subscribed_topic_names, "ConsumerGroupDescribeResponseMember.subscribed_topic_names"
                ),
                "ConsumerGroupDescribeResponseMember.subscribed_topic_names",
            )
            write_compact_nullable_string(
                out, item.subscribed_topic_regex, "ConsumerGroupDescribeResponseMember.subscribed_topic_regex"
            )
            _write_consumer_group_describe_response_assignment_v0(
                out, required(item.assignment, "ConsumerGroupDescribeResponseMember.assignment")
            )
            _write_consumer_group_describe_response_assignment_v0(
                out, required(item.target_assignment, "ConsumerGroupDescribeResponseMember.target_assignment")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _CONSUMER_GROUP_DESCRIBE_RESPONSE_MEMBER_CODES) from None


def _read_consumer_group_describe_response_described_group_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ConsumerGroupDescribeResponseDescribedGroup], int]:
    items: list[ConsumerGroupDescribeResponseDescribedGroup] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("ConsumerGroupDescribeResponseDescribedGroup.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_compact_nullable_string(
            data, at, end, "ConsumerGroupDescribeResponseDescribedGroup.error_message"
        )
        group_id, at = read_compact_string(data, at, end, "ConsumerGroupDescribeResponseDescribedGroup.group_id")
        group_state, at = read_compact_string(data, at, end, "ConsumerGroupDescribeResponseDescribedGroup.group_state")
        if end - at < 8:
            raise cut_short("ConsumerGroupDescribeResponseDescribedGroup.group_epoch to assignment_epoch", at, end, 8)
        group_epoch, assignment_epoch = _INT32X2.unpack_from(data, at)
        at += 8
        assignor_name, at = read_compact_string(
            data, at, end, "ConsumerGroupDescribeResponseDescribedGroup.assignor_name"
        )
        number, at = read_compact_count(data, at, end, 16, "ConsumerGroupDescribeResponseDescribedGroup.members")
        members, at = _read_consumer_group_describe_response_member_v0(data, at, end, number)
        if end - at < 5:
            raise cut_short("ConsumerGroupDescribeResponseDescribedGroup.authorized_operations", at, end, 5)
        authorized_operations, tags = _INT32_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "ConsumerGroupDescribeResponseDescribedGroup")
        items.append(
            ConsumerGroupDescribeResponseDescribedGroup(
                error_code=error_code,
                error_message=error_message,
                group_id=group_id,
                group_state=group_state,
                group_epoch=group_epoch,
                assignment_epoch=assignment_epoch,
                assignor_name=assignor_name,
                members=members,
                authorized_operations=authorized_operations,
            )
        )
    return items, at


def _write_consumer_group_describe_response_described_group_v0(
    out: Parts, items: Sequence[ConsumerGroupDescribeResponseDescribedGroup]
) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            write_compact_nullable_string(
                out, item.error_message, "ConsumerGroupDescribeResponseDescribedGroup.error_message"
            )
            write_compact_string(out, item.group_id, "ConsumerGroupDescribeResponseDescribedGroup.group_id")
            write_compact_string(out, item.group_state, "ConsumerGroupDescribeResponseDescribedGroup.group_state")
            out.append(_INT32X2.pack(item.group_epoch, item.assignment_epoch))
            write_compact_string(out, item.assignor_name, "ConsumerGroupDescribeResponseDescribedGroup.assignor_name")
            _write_consumer_group_describe_response_member_v0(
                out, write_compact_count(out, item.members, "ConsumerGroupDescribeResponseDescribedGroup.members")
            )
            out.append(_INT32_TAGS.pack(item.authorized_operations, 0))
    except struct.error:
        raise misfit(items, _CONSUMER_GROUP_DESCRIBE_RESPONSE_DESCRIBED_GROUP_CODES) from None


def _read_consumer_group_describe_response_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ConsumerGroupDescribeResponse], int]:
    items: list[ConsumerGroupDescribeResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("ConsumerGroupDescribeResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 20, "ConsumerGroupDescribeResponse.groups")
        groups, at = _read_consumer_group_describe_response_described_group_v0(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ConsumerGroupDescribeResponse")
        items.append(ConsumerGroupDescribeResponse(throttle_time_ms=throttle_time_ms, groups=groups))
    return items, at


def _write_consumer_group_describe_response_v0(out: Parts, items: Sequence[ConsumerGroupDescribeResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_consumer_group_describe_response_described_group_v0(
                out, write_compact_count(out, item.groups, "ConsumerGroupDescribeResponse.groups")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _CONSUMER_GROUP_DESCRIBE_RESPONSE_CODES) from None


def _read_consumer_group_describe_response_member_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ConsumerGroupDescribeResponseMember], int]:
    items: list[ConsumerGroupDescribeResponseMember] = []
    for _ in range(count):
        member_id, at = read_compact_string(data, at, end, "ConsumerGroupDescribeResponseMember.member_id")
        instance_id, at = read_compact_nullable_string(data, at, end, "ConsumerGroupDescribeResponseMember.instance_id")
        rack_id, at = read_compact_nullable_string(data, at, end, "ConsumerGroupDescribeResponseMember.rack_id")
        if end - at < 4:
            raise cut_short("ConsumerGroupDescribeResponseMember.member_epoch", at, end, 4)
        (member_epoch,) = _INT32.unpack_from(data, at)
        at += 4
        client_id, at = read_compact_string(data, at, end, "ConsumerGroupDescribeResponseMember.client_id")
        client_host, at = read_compact_string(data, at, end, "ConsumerGroupDescribeResponseMember.client_host")
        number, at = read_compact_count(data, at, end, 1, "ConsumerGroupDescribeResponseMember.subscribed_topic_names")
        subscribed_topic_names, at = read_compact_strings(
            data, at, end, number, "ConsumerGroupDescribeResponseMember.subscribed_topic_names"
        )
        subscribed_topic_regex, at = read_compact_nullable_string(
            data, at, end, "ConsumerGroupDescribeResponseMember.subscribed_topic_regex"
        )
        [assignment], at = _read_consumer_group_describe_response_assignment_v0(data, at, end, 1)
        [target_assignment], at = _read_consumer_group_describe_response_assignment_v0(data, at, end, 1)
        if end - at < 2:
            raise cut_short("ConsumerGroupDescribeResponseMember.member_type", at, end, 2)
        member_type, tags = _INT8_TAGS.unpack_from(data, at)
        at += 2
        if tags:
            at = skip_tags(data, at - 1, end, "ConsumerGroupDescribeResponseMember")
        items.append(
            ConsumerGroupDescribeResponseMember(
                member_id=member_id,
                instance_id=instance_id,
                rack_id=rack_id,
                member_epoch=member_epoch,
                client_id=client_id,
                client_host=client_host,
                subscribed_topic_names=subscribed_topic_names,
                subscribed_topic_regex=subscribed_topic_regex,
                assignment=assignment,
                target_assignment=target_assignment,
                member_type=member_type,
            )
        )
    return items, at


def _write_consumer_group_describe_response_member_v1(
    out: Parts, items: Sequence[ConsumerGroupDescribeResponseMember]
) -> None:
    try:
        for item in items:
            write_compact_string(out, item.member_id, "ConsumerGroupDescribeResponseMember.member_id")
            write_compact_nullable_string(out, item.instance_id, "ConsumerGroupDescribeResponseMember.instance_id")
            write_compact_nullable_string(out, item.rack_id, "ConsumerGroupDescribeResponseMember.rack_id")
            out.append(_INT32.pack(item.member_epoch))
            write_compact_string(out, item.client_id, "ConsumerGroupDescribeResponseMember.client_id")
            write_compact_string(out, item.client_host, "ConsumerGroupDescribeResponseMember.client_host")
            write_compact_strings(
                out,
                write_compact_count(
                    out, item.subscribed_topic_names, "ConsumerGroupDescribeResponseMember.subscribed_topic_names"
                ),
                "ConsumerGroupDescribeResponseMember.subscribed_topic_names",
            )
            write_compact_nullable_string(
                out, item.subscribed_topic_regex, "ConsumerGroupDescribeResponseMember.subscribed_topic_regex"
            )
            _write_consumer_group_describe_response_assignment_v0(
                out, required(item.assignment, "ConsumerGroupDescribeResponseMember.assignment")
            )
            _write_consumer_group_describe_response_assignment_v0(
                out, required(item.target_assignment, "ConsumerGroupDescribeResponseMember.target_assignment")
            )
            out.append(_INT8_TAGS.pack(item.member_type, 0))
    except struct.error:
        raise misfit(items, _CONSUMER_GROUP_DESCRIBE_RESPONSE_MEMBER_CODES) from None


def _read_consumer_group_describe_response_described_group_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ConsumerGroupDescribeResponseDescribedGroup], int]:
    items: list[ConsumerGroupDescribeResponseDescribedGroup] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("ConsumerGroupDescribeResponseDescribedGroup.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_compact_nullable_string(
            data, at, end, "ConsumerGroupDescribeResponseDescribedGroup.error_message"
        )
        group_id, at = read_compact_string(data, at, end, "ConsumerGroupDescribeResponseDescribedGroup.group_id")
        group_state, at = read_compact_string(data, at, end, "ConsumerGroupDescribeResponseDescribedGroup.group_state")
        if end - at < 8:
            raise cut_short("ConsumerGroupDescribeResponseDescribedGroup.group_epoch to assignment_epoch", at, end, 8)
        group_epoch, assignment_epoch = _INT32X2.unpack_from(data, at)
        at += 8
        assignor_name, at = read_compact_string(
            data, at, end, "ConsumerGroupDescribeResponseDescribedGroup.assignor_name"
        )
        number, at = read_compact_count(data, at, end, 17, "ConsumerGroupDescribeResponseDescribedGroup.members")
        members, at = _read_consumer_group_describe_response_member_v1(data, at, end, number)
        if end - at < 5:
            raise cut_short("ConsumerGroupDescribeResponseDescribedGroup.authorized_operations", at, end, 5)
        authorized_operations, tags = _INT32_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "ConsumerGroupDescribeResponseDescribedGroup")
        items.append(
            ConsumerGroupDescribeResponseDescribedGroup(
                error_code=error_code,
                error_message=error_message,
                group_id=group_id,
                group_state=group_state,
                group_epoch=group_epoch,
                assignment_epoch=assignment_epoch,
                assignor_name=assignor_name,
                members=members,
                authorized_operations=authorized_operations,
            )
        )
    return items, at


def _write_consumer_group_describe_response_described_group_v1(
    out: Parts, items: Sequence[ConsumerGroupDescribeResponseDescribedGroup]
) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            write_compact_nullable_string(
                out, item.error_message, "ConsumerGroupDescribeResponseDescribedGroup.error_message"
            )
            write_compact_string(out, item.group_id, "ConsumerGroupDescribeResponseDescribedGroup.group_id")
            write_compact_string(out, item.group_state, "ConsumerGroupDescribeResponseDescribedGroup.group_state")
            out.append(_INT32X2.pack(item.group_epoch, item.assignment_epoch))
            write_compact_string(out, item.assignor_name, "ConsumerGroupDescribeResponseDescribedGroup.assignor_name")
            _write_consumer_group_describe_response_member_v1(
                out, write_compact_count(out, item.members, "ConsumerGroupDescribeResponseDescribedGroup.members")
            )
            out.append(_INT32_TAGS.pack(item.authorized_operations, 0))
    except struct.error:
        raise misfit(items, _CONSUMER_GROUP_DESCRIBE_RESPONSE_DESCRIBED_GROUP_CODES) from None


def _read_consumer_group_describe_response_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ConsumerGroupDescribeResponse], int]:
    items: list[ConsumerGroupDescribeResponse] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("ConsumerGroupDescribeResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        number, at = read_compact_count(data, at, end, 20, "ConsumerGroupDescribeResponse.groups")
        groups, at = _read_consumer_group_describe_response_described_group_v1(data, at, end, number)
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ConsumerGroupDescribeResponse")
        items.append(ConsumerGroupDescribeResponse(throttle_time_ms=throttle_time_ms, groups=groups))
    return items, at


def _write_consumer_group_describe_response_v1(out: Parts, items: Sequence[ConsumerGroupDescribeResponse]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.throttle_time_ms))
            _write_consumer_group_describe_response_described_group_v1(
                out, write_compact_count(out, item.groups, "ConsumerGroupDescribeResponse.groups")
            )
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _CONSUMER_GROUP_DESCRIBE_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    ConsumerGroupDescribeResponse,
    {
        0: (_read_consumer_group_describe_response_v0, _write_consumer_group_describe_response_v0),
        1: (_read_consumer_group_describe_response_v1, _write_consumer_group_describe_response_v1),
    },
)
