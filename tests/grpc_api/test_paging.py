"""Answers with an item for each of many that were named."""

from __future__ import annotations

from logbroker.errors import LogbrokerError, UnknownGroupError
from logbroker.grpc_api.paging import items_within
from logbroker.grpc_api.status import item_status
from logbroker.v1 import queues_pb2 as pb

ROOM_BYTES = 2000


def described(sizes: list[int]) -> list[pb.DescribedQueue]:
    """Describe queue groups of so many bytes; that of 0 is unknown."""

    def item(size_bytes: int) -> pb.DescribedQueue:
        if not size_bytes:
            raise UnknownGroupError("it is not there")
        return pb.DescribedQueue(topic="t" * size_bytes)

    def refusal(error: LogbrokerError) -> pb.DescribedQueue:
        return pb.DescribedQueue(status=item_status(error))

    return items_within(sizes, item, refusal, ROOM_BYTES)


def reasons(sizes: list[int]) -> list[str]:
    return [queue.status.reason for queue in described(sizes)]


def test_each_has_an_item_or_a_reason() -> None:
    assert reasons([700, 0, 700]) == ["", "UNKNOWN_GROUP", ""]


def test_what_finds_no_room_is_left_to_another_call_with_all_that_follows() -> None:
    assert reasons([700, 700, 700, 1]) == ["", "", "OVERLOADED", "OVERLOADED"]


def test_an_answer_stays_in_its_bound_but_for_refusals() -> None:
    whole = described([1500, 900])
    assert [bool(queue.topic) for queue in whole] == [True, False]
    assert pb.DescribeQueuesResponse(queues=whole).ByteSize() < ROOM_BYTES


def test_the_first_is_sent_however_large_it_is() -> None:
    assert reasons([9000, 1]) == ["", "OVERLOADED"]
