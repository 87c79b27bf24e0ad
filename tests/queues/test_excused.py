"""Deliveries that their worker may never have seen: they come back as they were, and nothing is counted for them."""

from __future__ import annotations

import pytest

from logbroker.queues.model.settings import Ordering
from tests.queues.groups import admit, at, new_queue, receipts, record_ids
from tests.queues.sessions import opened, taken

COUNT = 3_500
AFTER_GRACE = 100.0


@pytest.mark.parametrize("size", [300, COUNT])
def test_what_a_lost_worker_is_excused_of_comes_back_in_its_order(size: int) -> None:
    queue = new_queue(ordering=Ordering.NONE, max_in_flight=100_000, lease_seconds=1_000.0)
    queue.admit(0, 1, range(COUNT), COUNT, [], (), at(0))
    while granted := queue.take("w", size, at(0)):
        queue.excuse("w", [(receipts(granted)[0], receipts(granted)[-1])])
    queue.lifecycle.gone("w", at(0))
    while queue.deliveries.in_flight:
        queue.tick(at(AFTER_GRACE))
    assert record_ids(queue.take("v", COUNT, at(AFTER_GRACE))) == list(range(COUNT))
    assert queue.tally.leases_lost == 0


@pytest.mark.parametrize(("excused", "lost"), [(True, 0), (False, 2)])
def test_a_session_that_is_excused_loses_no_lease(excused: bool, lost: int) -> None:
    queue = new_queue(lease_seconds=10.0)
    admit(queue, [b"k"] * 2)
    opened(queue)
    first, last = receipts(taken(queue))
    if excused:
        queue.excuse("w", [(first, last)])
    queue.tick(at(20))
    assert queue.tally.leases_lost == lost
    assert queue.failures.count(0) == (0 if excused else 1)
