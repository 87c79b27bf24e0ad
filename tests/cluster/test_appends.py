"""Appends to the leaders of a cluster: which of them share a request, and who gets which answer."""

from __future__ import annotations

import asyncio

import pytest

from logbroker.broker.cluster_engine.connection.appends import JOINED_BYTES, Appends
from logbroker.kafka_wire.messages.produce import (
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartitionProduce,
    ProduceResponseTopicProduce,
)
from logbroker.types import TopicId

ONE, OTHER = TopicId(b"1" * 16), TopicId(b"2" * 16)


class Node:
    """A leader that answers a request when the test says so."""

    def __init__(self, *, by_name: bool = False) -> None:
        self.requests: list[ProduceRequest] = []
        self.may_answer = asyncio.Semaphore(0)
        self.error: Exception | None = None
        self.leaves_out: set[int] = set()
        self._by_name = by_name

    async def ask(self, node: int, *, message: ProduceRequest) -> ProduceResponse:
        self.requests.append(message)
        await self.may_answer.acquire()
        if self.error is not None:
            raise self.error
        return ProduceResponse(
            responses=[
                ProduceResponseTopicProduce(
                    name=topic.name if self._by_name else "",
                    topic_id=bytes(16) if self._by_name else topic.topic_id,
                    partition_responses=[
                        ProduceResponsePartitionProduce(index=data.index, base_offset=len(data.records or b""))
                        for data in topic.partition_data
                        if data.index not in self.leaves_out
                    ],
                )
                for topic in message.topic_data
            ]
        )

    def asked(self) -> list[list[tuple[str, int]]]:
        """Return the partitions of each request."""
        return [
            [(topic.name, data.index) for topic in request.topic_data for data in topic.partition_data]
            for request in self.requests
        ]


async def begin(
    appends: Appends, topic: str, topic_id: TopicId, partition: int, size_bytes: int = 1
) -> asyncio.Task[ProduceResponsePartitionProduce]:
    task = asyncio.create_task(appends.append(7, topic, topic_id, partition, bytes(size_bytes)))
    for _ in range(3):
        await asyncio.sleep(0)
    return task


@pytest.mark.parametrize("by_name", [False, True])
async def test_what_comes_while_a_request_is_under_way_shares_the_next_one(by_name: bool) -> None:
    node = Node(by_name=by_name)
    appends = Appends(node.ask, RuntimeError)
    tasks = [await begin(appends, "one", ONE, 0, 10)]
    for place, (topic, topic_id) in enumerate([("one", ONE), ("other", OTHER), ("one", ONE)], 1):
        tasks.append(await begin(appends, topic, topic_id, place, 10 + place))
    node.may_answer.release()
    node.may_answer.release()
    assert [(found.index, found.base_offset) for found in await asyncio.gather(*tasks)] == [
        (0, 10),
        (1, 11),
        (2, 12),
        (3, 13),
    ]
    assert node.asked() == [[("one", 0)], [("one", 1), ("one", 3), ("other", 2)]]
    # It begins anew after a pause.
    task = await begin(appends, "one", ONE, 0)
    node.may_answer.release()
    assert (await task).index == 0


async def test_a_request_is_bounded_but_for_a_single_batch() -> None:
    node = Node()
    appends = Appends(node.ask, RuntimeError)
    tasks = [await begin(appends, "one", ONE, 0)]
    for number, size_bytes in enumerate([JOINED_BYTES - 1, 1, 1, JOINED_BYTES + 1], 1):
        tasks.append(await begin(appends, "one", ONE, number, size_bytes))
    for _ in range(4):
        node.may_answer.release()
    await asyncio.gather(*tasks)
    assert [[index for _, index in request] for request in node.asked()] == [[0], [1, 2], [3], [4]]


async def test_a_partition_is_named_once_in_a_request() -> None:
    """Two owners of a home may race for it."""
    node = Node()
    appends = Appends(node.ask, RuntimeError)
    tasks = [await begin(appends, "one", ONE, number, 10 + place) for place, number in enumerate([0, 1, 2, 1, 2])]
    for _ in range(3):
        node.may_answer.release()
    assert [found.base_offset for found in await asyncio.gather(*tasks)] == [10, 11, 12, 13, 14]
    assert [[index for _, index in request] for request in node.asked()] == [[0], [1, 2], [1, 2]]


async def test_each_append_of_a_request_that_fails_fails_and_later_ones_are_sent() -> None:
    node = Node()
    appends = Appends(node.ask, RuntimeError)
    first = await begin(appends, "one", ONE, 0)
    failing = [await begin(appends, "one", ONE, number) for number in (1, 2)]
    node.may_answer.release()
    await first
    for _ in range(3):
        await asyncio.sleep(0)
    node.error = OSError("the node has died")
    node.may_answer.release()
    assert [type(outcome) for outcome in await asyncio.gather(*failing, return_exceptions=True)] == [OSError, OSError]
    node.error = None
    node.leaves_out.add(3)
    left_out = await begin(appends, "one", ONE, 3)
    node.may_answer.release()
    with pytest.raises(RuntimeError, match="says nothing of one-3"):
        await left_out


async def test_an_append_whose_caller_has_gone_disturbs_no_other() -> None:
    node = Node()
    appends = Appends(node.ask, RuntimeError)
    first = await begin(appends, "one", ONE, 0)
    gone, stays = await begin(appends, "one", ONE, 1), await begin(appends, "one", ONE, 2)
    gone.cancel()
    node.may_answer.release()
    node.may_answer.release()
    await first
    assert (await stays).index == 2
