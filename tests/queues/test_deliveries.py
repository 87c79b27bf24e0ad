"""Receipts: whose they are, until when, and what is answered to those that are not."""

from __future__ import annotations

import pytest

from logbroker.errors import AlreadySettledError, LeaseLostError, LogbrokerError, NotHolderError, UnknownReceiptError
from logbroker.queues.machine.leases import COUNTER_BITS, Deliveries, merged
from logbroker.queues.model.lane import IN_FLIGHT, Lane
from logbroker.queues.model.lost_receipts import MAX_REMEMBERED
from logbroker.queues.model.messages import Refusal

FIRST = 3 << COUNTER_BITS


def close(deliveries: Deliveries, worker_id: str, first: int, last: int) -> tuple[list[int], list[Refusal]]:
    """Settle receipts; return the ids of the records that they stood for, and the refusals."""
    refusals: list[Refusal] = []
    record_ids: list[int] = []
    for grant, start, end in deliveries.select(worker_id, first, last, refusals):
        settled = deliveries.close(grant, start, end, refusals)
        record_ids += settled if isinstance(settled, range) else [lane.head for lane in settled]
    return record_ids, refusals


def errors(refusals: list[Refusal]) -> list[tuple[int, int, type[LogbrokerError]]]:
    return [(refusal.first - FIRST, refusal.last - FIRST, type(refusal.error)) for refusal in refusals]


def granted(kind: str, deliveries: Deliveries, worker_id: str, record_ids: range, deadline: float = 10.0) -> int:
    worker = deliveries.worker(worker_id)
    if kind == "run":
        return deliveries.grant(worker, None, record_ids, deadline)
    return deliveries.grant(worker, [Lane(None, record_id, IN_FLIGHT) for record_id in record_ids], None, deadline)


@pytest.fixture(params=["run", "lanes"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_range_settles_any_number_of_grants(kind: str) -> None:
    deliveries = Deliveries(FIRST)
    assert granted(kind, deliveries, "w", range(10, 15)) == FIRST
    assert granted(kind, deliveries, "w", range(40, 45)) == FIRST + 5
    assert close(deliveries, "w", FIRST, FIRST + 9) == ([*range(10, 15), *range(40, 45)], [])
    assert deliveries.in_flight == deliveries.worker("w").in_flight == 0


def test_parts_settle_in_any_order_and_only_once(kind: str) -> None:
    deliveries = Deliveries(FIRST)
    granted(kind, deliveries, "w", range(10, 20))
    assert close(deliveries, "w", FIRST + 4, FIRST + 5)[0] == [14, 15]
    assert close(deliveries, "w", FIRST + 9, FIRST + 9)[0] == [19]
    record_ids, refusals = close(deliveries, "w", FIRST, FIRST + 9)
    assert record_ids == [10, 11, 12, 13, 16, 17, 18]
    assert {(first, last) for first, last, _ in errors(refusals)} in ({(4, 5), (9, 9)}, {(4, 4), (5, 5), (9, 9)})
    assert {error for _, _, error in errors(refusals)} == {AlreadySettledError}
    assert deliveries.in_flight == 0


def test_a_receipt_of_another_worker_is_refused_and_stays_valid(kind: str) -> None:
    deliveries = Deliveries(FIRST)
    granted(kind, deliveries, "w", range(2))
    assert errors(close(deliveries, "v", FIRST, FIRST + 1)[1]) == [(0, 1, NotHolderError)]
    assert close(deliveries, "w", FIRST, FIRST + 1) == ([0, 1], [])


def test_a_receipt_is_void_when_its_lease_has_ended(kind: str) -> None:
    deliveries = Deliveries(FIRST)
    granted(kind, deliveries, "w", range(3))
    close(deliveries, "w", FIRST + 1, FIRST + 1)
    assert deliveries.pop_expired(9.9) == []
    lost = [
        record_id
        for _, held, _ in deliveries.pop_expired(10.0)
        for record_id in (held if isinstance(held, range) else [x.head for x in held])
    ]
    assert sorted(lost) == [0, 2]
    assert errors(close(deliveries, "w", FIRST, FIRST + 2)[1]) == [
        (0, 0, LeaseLostError),
        (1, 1, AlreadySettledError),
        (2, 2, LeaseLostError),
    ]


def test_a_part_can_be_extended_and_shortened(kind: str) -> None:
    deliveries = Deliveries(FIRST)
    granted(kind, deliveries, "w", range(10))
    refusals: list[Refusal] = []
    for grant, start, end in deliveries.select("w", FIRST + 3, FIRST + 5, refusals):
        deliveries.extend(grant, start, end, 50.0, refusals)
    for grant, start, end in deliveries.select("w", FIRST + 9, FIRST + 9, refusals):
        deliveries.extend(grant, start, end, 5.0, refusals)
    assert not refusals
    assert [len(held) for _, held, _ in deliveries.pop_expired(5.0)] == [1]
    assert sum(len(held) for _, held, _ in deliveries.pop_expired(10.0)) == 6
    assert close(deliveries, "w", FIRST + 3, FIRST + 5) == ([3, 4, 5], [])


@pytest.mark.parametrize(
    ("first", "last", "error"),
    [
        (-5, -1, UnknownReceiptError),
        (FIRST + 1, 1 << 63, UnknownReceiptError),
        (0, FIRST - 1, LeaseLostError),
        (FIRST - 1, FIRST - 1, LeaseLostError),
    ],
)
def test_receipts_that_were_never_given_out_are_refused_at_once(
    first: int, last: int, error: type[LogbrokerError]
) -> None:
    deliveries = Deliveries(FIRST)
    granted("run", deliveries, "w", range(1))
    _, refusals = close(deliveries, "w", first, last)
    assert [(refusal.first, refusal.last, type(refusal.error)) for refusal in refusals] == [(first, last, error)]


def test_a_range_from_before_all_receipts_to_after_them_settles_what_is_held() -> None:
    deliveries = Deliveries(FIRST)
    granted("lanes", deliveries, "w", range(4))
    record_ids, refusals = close(deliveries, "w", -1, 1 << 63)
    assert record_ids == [0, 1, 2, 3]
    assert [type(refusal.error) for refusal in refusals] == [UnknownReceiptError, LeaseLostError, UnknownReceiptError]


def test_so_many_lost_receipts_are_remembered_and_no_more() -> None:
    deliveries = Deliveries(FIRST)
    for number in range(MAX_REMEMBERED + 10):
        granted("run", deliveries, "w", range(number, number + 1))
    while deliveries.pop_expired(10.0):
        pass
    assert len(deliveries._lost._firsts) == len(deliveries._lost._ranges) == MAX_REMEMBERED
    assert errors(close(deliveries, "w", FIRST, FIRST)[1]) == [(0, 0, AlreadySettledError)]
    assert errors(close(deliveries, "w", FIRST + 10, FIRST + 10)[1]) == [(10, 10, LeaseLostError)]


def test_ranges_that_follow_each_other_are_one() -> None:
    assert merged([(5, 5), (3, 4), (9, 9), (6, 7)]) == [(3, 7), (9, 9)]
    assert merged([(1, 2), (2, 3)]) == [(1, 2), (2, 3)]
    assert merged([(1, 4), (5, 3)]) == [(1, 4), (5, 3)]
    assert merged([]) == []


def test_what_is_over_is_forgotten() -> None:
    deliveries = Deliveries(FIRST)
    kept = granted("run", deliveries, "w", range(1))
    for number in range(1000):
        receipt = granted("lanes", deliveries, "w", range(number, number + 3))
        close(deliveries, "w", receipt, receipt + 2)
    assert len(deliveries._grants) < 200
    assert len(deliveries.leases) < 200
    assert close(deliveries, "w", kept, kept) == ([0], [])
