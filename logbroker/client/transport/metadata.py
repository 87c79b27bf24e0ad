"""The facts about a topic that a client needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from logbroker.client.transport.answers import items
from logbroker.client.transport.connection import Connection
from logbroker.config import MAX_BATCH_BYTES, BrokerConfig, TopicConfig
from logbroker.errors import InvalidRequestError, LogbrokerError, UnknownTopicError, quoted
from logbroker.record.bands import Band
from logbroker.types import TopicId
from logbroker.v1 import admin_pb2

DEFAULT_MAX_REQUEST_BYTES: Final = BrokerConfig().max_request_bytes

UNUSED_SECONDS: Final = 300.0
"""A client that sends forgets what it knows of a topic to which it has sent nothing for so long, when it looks another
topic up. Otherwise a program that sends to ever new topics would keep them all in memory."""


class TopicInfo(msgspec.Struct, frozen=True):
    """A topic at one moment. The first generation is 1, and each addition of partitions begins the next one."""

    name: str
    id: TopicId
    partitions: int
    generation: int
    bands: tuple[Band, ...] = ()
    """The bands of the topic, the most urgent first."""
    routes_by_key: bool = False
    """Whether all records of a key are in one partition whatever their priorities, because the bands have no partitions
    of their own."""
    max_message_bytes: int = TopicConfig().max_message_bytes
    """The largest batch that the topic takes."""
    max_request_bytes: int = DEFAULT_MAX_REQUEST_BYTES
    """The largest request that the topic's broker reads."""

    @property
    def routing_bands(self) -> tuple[Band, ...]:
        """The bands whose partitions hold only their own records. If empty, records are routed by their keys alone."""
        return () if self.routes_by_key else self.bands

    def partitions_of(self, bands: Collection[str]) -> Iterator[int]:
        """Yield the partitions of these bands. Yield all partitions if no band is named or the topic has no routing
        bands."""
        if not bands or not self.routing_bands:
            yield from range(self.partitions)
            return
        for band in self.routing_bands:
            if band.name in bands:
                yield from band.partition_range


def check_bands(topics: Collection[TopicInfo], bands: Iterable[str]) -> None:
    """Raise InvalidRequestError for a band that none of the topics has."""
    known = dict.fromkeys(band.name for topic in topics for band in topic.routing_bands)
    for name in bands:
        if name not in known:
            has = f"there are {', '.join(known)}" if known else "there are none with partitions of their own"
            where = ", ".join(topic.name for topic in topics) or (
                "a topic that is read as a whole, because only single partitions are assigned"
            )
            raise InvalidRequestError(f"{quoted(name)} is no band of {where}: {has}")


def topic_info(topic: admin_pb2.Topic, max_request_bytes: int = 0) -> TopicInfo:
    """Return the facts of a topic from the broker's answer. `max_request_bytes` is the broker's limit, 0 if it gave
    none."""
    bands = tuple(
        Band(band.name, band.lowest_priority, band.highest_priority, band.first_partition, band.partitions)
        for band in topic.bands
    )
    return TopicInfo(
        topic.name,
        TopicId(topic.id),
        topic.partitions,
        topic.generation,
        bands,
        routes_by_key=topic.routes_by_key,
        max_message_bytes=topic.max_message_bytes or MAX_BATCH_BYTES,
        max_request_bytes=max_request_bytes or DEFAULT_MAX_REQUEST_BYTES,
    )


async def find_topics(connection: Connection, names: Sequence[str]) -> list[TopicInfo]:
    """Look topics up at the broker. Raises UnknownTopicError for the first that does not exist."""
    found = await look_for_topics(connection, names)
    for answer in found.values():
        if isinstance(answer, LogbrokerError):
            raise answer
    return [answer for name in names if isinstance(answer := found[name], TopicInfo)]


async def look_for_topics(connection: Connection, names: Iterable[str]) -> dict[str, TopicInfo | LogbrokerError]:
    """Look topics up at the broker. Return for each name the facts of the topic or the error of that name."""
    max_request_bytes = 0

    async def ask(some: list[str]) -> Sequence[admin_pb2.DescribeTopicsResult]:
        nonlocal max_request_bytes
        response: admin_pb2.DescribeTopicsResponse = await connection.unary(
            "DescribeTopics", admin_pb2.DescribeTopicsRequest(topics=[admin_pb2.TopicRef(name=name) for name in some])
        )
        max_request_bytes = response.max_request_bytes
        return response.results

    found: dict[str, TopicInfo | LogbrokerError] = {}
    if "" in (names := list(names)):
        # In a message, an empty name is none.
        found[""] = UnknownTopicError("no topic '': the name is empty")
    async for name, result, error in items([name for name in names if name], ask):
        found[name] = error or topic_info(result.topic, max_request_bytes)
    return found


async def find_topic(connection: Connection, name: str) -> TopicInfo:
    """Look a topic up at the broker. Raises UnknownTopicError."""
    (info,) = await find_topics(connection, [name])
    return info
