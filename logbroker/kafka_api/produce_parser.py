"""Parsing of Produce requests, by hand: batches stay views of the request, and partitions are counted as they are read.

The generated reader would make two objects for each partition before they could be counted: a request of empty
partitions would grow thirtyfold. Layout: proto/kafka/definitions/ProduceRequest.json.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from logbroker.broker.topics import MAX_ITEMS
from logbroker.kafka_wire.primitives import (
    UUID_BYTES,
    Buffer,
    WireFormatError,
    cut_short,
    read_compact_count,
    read_compact_nullable_records,
    read_compact_nullable_string,
    read_compact_string,
    read_count,
    read_nullable_records,
    read_nullable_string,
    read_string,
    skip_tags,
)
from logbroker.pacing import Steps

FIRST_FLEXIBLE: Final = 9
FIRST_WITH_IDS: Final = 13
MAX_TAGS_BYTES: Final = 16 * 1024
"""Maximum size of tagged fields in one place. No version defines one, and skipping many takes long."""
_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_INT32: Final = struct.Struct(">i")
_STEPS_AT_ONCE: Final = 64


class TopicBatches(msgspec.Struct):
    """The batches for one topic."""

    name: str
    topic_id: bytes
    batches: list[tuple[int, memoryview | None]]
    """Partition and batch."""


class ProduceCall(msgspec.Struct):
    """A Produce request."""

    transactional_id: str | None
    acks: int
    topics: list[TopicBatches]


def produce_steps(data: Buffer, version: int, at: int) -> Steps[ProduceCall]:
    """Parse the request that takes all bytes from `at` to the end, in steps. Raises WireFormatError."""
    end = len(data)
    flexible = version >= FIRST_FLEXIBLE
    read_id = read_compact_nullable_string if flexible else read_nullable_string
    read_array = read_compact_count if flexible else read_count
    read_batch = read_compact_nullable_records if flexible else read_nullable_records
    transactional_id, at = read_id(data, at, end, "transactional_id")
    if end - at < _ACKS_TIMEOUT.size:
        raise cut_short("acks and timeout_ms", at, end, _ACKS_TIMEOUT.size)
    acks, _ = _ACKS_TIMEOUT.unpack_from(data, at)
    at += _ACKS_TIMEOUT.size
    topics: list[TopicBatches] = []
    topic_count, at = read_array(data, at, end, 3, "topic_data")
    items = 0
    for _ in range(topic_count):
        topic = TopicBatches("", b"", [])
        if version >= FIRST_WITH_IDS:
            if end - at < UUID_BYTES:
                raise cut_short("topic_id", at, end, UUID_BYTES)
            topic.topic_id = bytes(data[at : at + UUID_BYTES])
            at += UUID_BYTES
        else:
            topic.name, at = (read_compact_string if flexible else read_string)(data, at, end, "name")
        topics.append(topic)
        count, at = read_array(data, at, end, 5, "partition_data")
        items += 1 + count
        if items > 2 * MAX_ITEMS:
            raise WireFormatError(f"the request lists more than {MAX_ITEMS} items")
        yield 2
        for number in range(count):
            if end - at < _INT32.size:
                raise cut_short("index", at, end, _INT32.size)
            (partition,) = _INT32.unpack_from(data, at)
            batch, at = read_batch(data, at + _INT32.size, end, "records")
            topic.batches.append((partition, batch))
            if flexible:
                at = past_tags(data, at, end)
            if number % _STEPS_AT_ONCE == _STEPS_AT_ONCE - 1:
                yield 2 * _STEPS_AT_ONCE
        if flexible:
            at = past_tags(data, at, end)
    if flexible:
        at = past_tags(data, at, end)
    if at != end:
        raise WireFormatError(f"{end - at} bytes follow the message")
    return ProduceCall(transactional_id, acks, topics)


def past_tags(data: Buffer, at: int, end: int) -> int:
    """Return the position after tagged fields, which are not read. Raises WireFormatError."""
    if at < end and not data[at]:
        return at + 1
    limit = min(end, at + MAX_TAGS_BYTES)
    return skip_tags(data, at, limit, "tags")
