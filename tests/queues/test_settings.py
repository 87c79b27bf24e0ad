"""Settings that a queue group takes, and those that it refuses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from logbroker.errors import InvalidRequestError
from logbroker.queues.model.settings import (
    OnExhausted,
    Ordering,
    Priority,
    QueueGroupSettings,
    check_delay,
    check_lease,
)
from logbroker.queues.state.failures import Failure, backoff_seconds


@pytest.mark.parametrize(
    "settings",
    [
        {"lease_seconds": 0},
        {"lease_seconds": 366 * 86_400.0},
        {"lease_seconds": float("nan")},
        {"lease_seconds": float("inf")},
        {"max_attempts": 0},
        {"backoff_factor": 0.5},
        {"backoff_jitter": 1.1},
        {"backoff_initial_seconds": 10.0, "backoff_cap_seconds": 5.0},
        {"grace_seconds": -1.0},
        {"max_in_flight": 0},
        {"ordering": Ordering.NONE, "key_header": "customer"},
        {"key_header": "h" * 256},
        {"on_exhausted": OnExhausted.DEAD_LETTER},
        {"ordering": Ordering.SINGLE, "priority": Priority.STRICT},
        {"priority": Priority.AGEING, "age_seconds": 0.0},
        {"priority": Priority.AGEING, "age_seconds": float("nan")},
        {"weights": {"hot": 1}},
        {"priority": Priority.STRICT, "weights": {"hot": 1}},
        {"priority": Priority.WEIGHTED, "weights": {"hot": 0, "cold": 0}},
        {"priority": Priority.WEIGHTED, "weights": {"hot": 6, "cold": -1}},
        {"priority": Priority.WEIGHTED, "weights": {"hot": 1_000_001}},
    ],
    ids=str,
)
def test_bad_settings_are_refused_with_what_to_do(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        QueueGroupSettings(**settings).check()


def test_the_defaults_are_good_and_all_of_them_are_stored() -> None:
    QueueGroupSettings().check()
    assert msgspec.to_builtins(QueueGroupSettings()).keys() == set(QueueGroupSettings.__struct_fields__)


@pytest.mark.parametrize("priority", list(Priority))
@pytest.mark.parametrize("ordering", [Ordering.NONE, Ordering.KEY])
def test_priorities_go_with_key_order_and_without_any(priority: Priority, ordering: Ordering) -> None:
    settings = QueueGroupSettings(priority=priority, ordering=ordering)
    settings.check()
    assert settings.has_priorities == (priority is not Priority.NONE)


def test_settings_of_before_there_were_priorities_have_none() -> None:
    stored = msgspec.to_builtins(QueueGroupSettings(lease_seconds=7))
    for name in ("priority", "priority_rank", "age_seconds", "weights"):
        del stored[name]
    assert msgspec.convert(stored, QueueGroupSettings) == QueueGroupSettings(lease_seconds=7)


def test_leases_and_delays_have_bounds() -> None:
    check_lease(0.1)
    check_lease(43_200)
    check_delay(0)
    for seconds in (0.0, -1.0, 31_536_000.0, float("nan")):
        with pytest.raises(InvalidRequestError):
            check_lease(seconds)
    for seconds in (-0.1, 3_155_760_000.0, float("nan")):
        with pytest.raises(InvalidRequestError):
            check_delay(seconds)


def test_backoff_grows_to_its_cap_and_never_overflows() -> None:
    settings = QueueGroupSettings(
        backoff_initial_seconds=1, backoff_factor=2, backoff_cap_seconds=60, backoff_jitter=0.5
    )
    assert [backoff_seconds(settings, failures, lambda: 0.0) for failures in (1, 2, 3, 7)] == [1, 2, 4, 60]
    assert backoff_seconds(settings, 3, lambda: 0.999) == pytest.approx(2, rel=0.01)
    steep = QueueGroupSettings(backoff_factor=100, backoff_jitter=0)
    assert backoff_seconds(steep, 1_000, lambda: 0.0) == 300


@pytest.mark.parametrize(
    ("wall_ms", "seconds"),
    [(100_000, 10), (104_000, 6), (200_000, 0), (5_000, 10)],
    ids=["at once", "after a while", "too late", "the clock stepped back"],
)
def test_after_a_start_no_one_waits_longer_than_was_decided(wall_ms: int, seconds: float) -> None:
    failure = Failure(1, 0, 0, due_ms=110_000, delay_ms=10_000, state=0, reasons=())
    assert failure.wait_seconds(wall_ms) == seconds
