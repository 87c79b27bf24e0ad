"""How long a worker bears a silent broker."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from logbroker.client.worker.patience import Patience

STEPS = 100


def given_up_after(patience: Patience, hold_seconds: float, now: float) -> float:
    """Return how long the broker of one more connection may be silent, as a share of the lease."""
    shares = (step / STEPS for step in range(2 * STEPS))
    return next((share for share in shares if not patience.bears(share * hold_seconds, hold_seconds, now)), math.inf)


@pytest.mark.parametrize("hold_seconds", [0.4, 2.0, 10.0, 18.0])
def test_each_connection_that_is_given_up_makes_a_worker_more_patient(hold_seconds: float) -> None:
    patience = Patience()
    shares = [given_up_after(patience, hold_seconds, 0.0) for _ in range(6)]
    assert shares[0] <= 0.52
    assert all(then >= min(1.0, 1.9 * before) for before, then in pairwise(shares))
    assert 1.0 <= shares[-1] <= 1.02, "as long as the lease lasts, a message may come"


def test_a_link_that_was_slow_is_taken_as_slow_for_a_minute() -> None:
    patience = Patience()
    first = given_up_after(patience, 10.0, 0.0)
    assert patience.bears(4.0, 10.0, 5.0)
    assert patience.bears(0.0, 10.0, 6.0), "the message has arrived"
    assert patience.bears(4.0, 10.0, 65.0)
    assert patience.bears(0.0, 10.0, 66.0)
    assert patience.bears(0.0, 10.0, 127.0)
    assert given_up_after(patience, 10.0, 127.0) == first


def test_a_link_that_was_dead_is_forgotten_after_a_lease() -> None:
    patience = Patience()
    first = given_up_after(patience, 10.0, 0.0)
    assert patience.bears(0.0, 10.0, 1.0)
    assert patience.bears(0.0, 10.0, 11.0)
    assert given_up_after(patience, 10.0, 11.0) == first


def test_pings_are_soon_enough_for_long_leases() -> None:
    assert given_up_after(Patience(), 30.0, 0.0) == math.inf
