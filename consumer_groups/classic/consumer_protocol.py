"""The data that consumers exchange through a classic group: topics and partitions. Connect's and other kinds of members
have data of their own. Reports and OffsetDelete read it; data that cannot be read counts as empty."""

from __future__ import annotations

from typing import Final, TypeVar

from logbroker.consumer_groups.classic.group import ClassicGroup
from logbroker.consumer_groups.classic.member import ClassicMember
from logbroker.kafka_wire.codec import MessageCodec
from logbroker.kafka_wire.messages.consumer_protocol import (
    ASSIGNMENT,
    SUBSCRIPTION,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from logbroker.kafka_wire.primitives import WireFormatError

PROTOCOL_TYPE: Final = "consumer"
_VERSION_BYTES: Final = 2
_M = TypeVar("_M", ConsumerProtocolSubscription, ConsumerProtocolAssignment)


def subscribed_topics(group: ClassicGroup, member: ClassicMember) -> list[str]:
    """Return the names of the topics that a member subscribes to."""
    if group.protocol_type != PROTOCOL_TYPE or not member.join.protocols:
        return []
    protocol = group.protocol or member.join.protocols[0][0]
    found = _read(SUBSCRIPTION, member.metadata(protocol))
    return [] if found is None else list(dict.fromkeys(found.topics))


def assigned_partitions(group: ClassicGroup, member: ClassicMember) -> dict[str, list[int]]:
    """Return the partitions of a member's last assignment, by the names of their topics."""
    if group.protocol_type != PROTOCOL_TYPE:
        return {}
    found = _read(ASSIGNMENT, member.assignment)
    return {} if found is None else {each.topic: each.partitions for each in found.assigned_partitions}


def _read(codec: MessageCodec[_M], data: bytes) -> _M | None:
    if len(data) < _VERSION_BYTES:
        return None
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    try:
        # A later version has the fields of the earlier ones first, and further ones behind.
        return codec.read_part(data, max(0, min(version, codec.versions[-1])), _VERSION_BYTES)[0]
    except WireFormatError:
        return None
