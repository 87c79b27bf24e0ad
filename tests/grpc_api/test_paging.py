"""Answers with an item for each of many that were named."""

from __future__ import annotations

from logbroker.errors import UnknownGroupError
from logbroker.grpc_api.paging import items_within
from logbroker.pacing import Pace
from logbroker.v1 import queues_pb2 as pb
from logbroker.v1.common_pb2 import Status

ROOM_BYTES = 2000


async def described(sizes: list[int]) -> list[pb.DescribedQueue]:
    """Describe queue groups of so many bytes; that of 0 is unknown."""

    async def item(named: tuple[int, int], pace: Pace) -> pb.DescribedQueue:
        _, size_bytes = named
        if not size_bytes:
            raise UnknownGroupError("it is not there")
        return pb.DescribedQueue(topic="t" * size_bytes)

    def refusal(status: Status, _: tuple[int, int]) -> pb.DescribedQueue:
        return pb.DescribedQueue(status=status)

    return await items_within(enumerate(sizes), item, refusal, ROOM_BYTES, lambda named: named)


async def reasons(sizes: list[int]) -> list[str]:
    return [queue.status.reason for queue in await described(sizes)]


async def test_each_has_an_item_or_a_reason() -> None:
    assert await reasons([700, 0, 700]) == ["", "UNKNOWN_GROUP", ""]


async def test_what_finds_no_room_is_left_to_another_call_with_all_that_follows() -> None:
    assert await reasons([700, 700, 700, 1]) == ["", "", "OVERLOADED", "OVERLOADED"]


async def test_an_answer_stays_in_its_bound_but_for_refusals() -> None:
    whole = await described([1500, 900])
    assert [bool(queue.topic) for queue in whole] == [True, False]
    assert pb.DescribeQueuesResponse(queues=whole).ByteSize() < ROOM_BYTES


async def test_the_first_is_sent_however_large_it_is() -> None:
    assert await reasons([9000, 1]) == ["", "OVERLOADED"]
