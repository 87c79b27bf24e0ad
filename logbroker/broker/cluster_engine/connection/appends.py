"""Appends to the leaders of partitions: those that come while one request is under way share the next one.

A node answers the requests of a connection one after the other, and with acks=all each of them waits for the other
replicas. So what is appended to many partitions of one leader is sent in few requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from logbroker.engine import Buffer
from logbroker.kafka_wire.messages.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
    ProduceResponsePartitionProduce,
)
from logbroker.types import TopicId

JOINED_BYTES: Final = 4 * 1024 * 1024
"""A request is closed at this size. A single batch may be larger."""
_ALL_REPLICAS: Final = -1
_TIMEOUT_MS: Final = 10_000
"""The time that a leader waits for the other replicas."""


class _Append(msgspec.Struct, gc=False, eq=False):
    topic: str
    topic_id: TopicId
    partition: int
    batch: Buffer
    answer: asyncio.Future[ProduceResponsePartitionProduce]


class Appends:
    """The appends on one line to each node. Those to one partition are sent in their order."""

    def __init__(self, ask: Callable[..., Awaitable[Any]], missing: Callable[[str], Exception]) -> None:
        """`ask(node, message=...)` sends a request and returns its answer. `missing` makes the error for an append that
        the answer leaves out."""
        self._ask = ask
        self._missing = missing
        self._waiting: dict[int, deque[_Append]] = {}
        self._sending: dict[int, asyncio.Task[None]] = {}

    async def append(
        self, node: int, topic: str, topic_id: TopicId, partition: int, batch: Buffer
    ) -> ProduceResponsePartitionProduce:
        """Append one batch with acks=all, and return the leader's answer. Raises what `ask` raises."""
        append = _Append(topic, topic_id, partition, batch, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(node, deque()).append(append)
        if node not in self._sending:
            self._sending[node] = asyncio.create_task(self._send(node))
        return await append.answer

    async def _send(self, node: int) -> None:
        waiting = self._waiting[node]
        try:
            while waiting:
                sent = self._next(waiting)
                try:
                    answered = _by_partition(await self._ask(node, message=_request(sent)))
                except Exception as error:
                    for each in sent:
                        _fail(each, error)
                    continue
                for each in sent:
                    found = answered.get((each.topic_id, each.partition)) or answered.get((each.topic, each.partition))
                    if found is None:
                        _fail(each, self._missing(f"the answer says nothing of {each.topic}-{each.partition}"))
                    elif not each.answer.done():
                        each.answer.set_result(found)
        finally:
            del self._waiting[node], self._sending[node]

    def _next(self, waiting: deque[_Append]) -> list[_Append]:
        """Take the appends for one request, which may name a partition once."""
        sent: list[_Append] = []
        size_bytes, named = 0, set[tuple[TopicId, int]]()
        while waiting:
            following = waiting[0]
            partition = following.topic_id, following.partition
            size_bytes += len(following.batch)
            if sent and (size_bytes > JOINED_BYTES or partition in named):
                break
            named.add(partition)
            sent.append(waiting.popleft())
        return sent


def _request(sent: list[_Append]) -> ProduceRequest:
    topics: dict[TopicId, ProduceRequestTopicProduceData] = {}
    for each in sent:
        if each.topic_id not in topics:
            topics[each.topic_id] = ProduceRequestTopicProduceData(
                name=each.topic, topic_id=each.topic_id, partition_data=[]
            )
        data = ProduceRequestPartitionProduceData(index=each.partition, records=each.batch)
        topics[each.topic_id].partition_data.append(data)
    return ProduceRequest(acks=_ALL_REPLICAS, timeout_ms=_TIMEOUT_MS, topic_data=list(topics.values()))


def _by_partition(answer: ProduceResponse) -> dict[tuple[bytes | str, int], ProduceResponsePartitionProduce]:
    """Return the answers by topic and partition. Newer versions name a topic by its id only, older ones by its name."""
    return {
        (topic.name or topic.topic_id, found.index): found
        for topic in answer.responses
        for found in topic.partition_responses
    }


def _fail(append: _Append, error: Exception) -> None:
    if not append.answer.done():
        append.answer.set_exception(error)
