"""The window of a worker: how much the broker may send ahead."""

from __future__ import annotations

from logbroker.client.worker.receive_window import ReceiveWindow

LEASE_SECONDS = 30.0
MAX_BYTES = 16 * 1024 * 1024


def receive(window: ReceiveWindow, now: float, age_seconds: float, *, is_used: bool = True) -> int:
    window.received(now - age_seconds, LEASE_SECONDS, now, is_used=is_used)
    return window.size_bytes


def test_it_doubles_up_to_its_bound_while_deliveries_come_early() -> None:
    window = ReceiveWindow(MAX_BYTES)
    first = window.size_bytes
    assert [receive(window, now, 0.1) for now in range(1, 9)] == [min(MAX_BYTES, first << each) for each in range(1, 9)]


def test_it_changes_once_in_each_round_trip() -> None:
    window = ReceiveWindow(MAX_BYTES)
    size = receive(window, 100.0, 1.0)
    assert receive(window, 100.5, 1.0) == size, "what was sent before is no answer to the change"
    assert receive(window, 101.5, 1.0) == 2 * size
    assert receive(window, 140.0, 29.0) == size
    assert receive(window, 150.0, 29.0) == size, "of the same window as those before"


def test_one_that_is_not_used_stays() -> None:
    window = ReceiveWindow(MAX_BYTES)
    first = window.size_bytes
    assert receive(window, 1.0, 0.1, is_used=False) == first
    assert receive(window, 100.0, 29.0, is_used=False) == first // 2, "what comes late is late"


def test_a_slow_link_finds_its_window_and_keeps_it() -> None:
    """At 100 kB/s, each window takes its bytes' time, and no more than half a lease is ever used again."""
    window = ReceiveWindow(MAX_BYTES)
    window.size_bytes = MAX_BYTES
    now = 0.0
    ages = []
    for _ in range(50):
        ages.append(window.size_bytes / 100_000)
        now += ages[-1] + 0.1
        receive(window, now, ages[-1])
    late = [age for age in ages if age > LEASE_SECONDS / 2]
    assert ages[: len(late)] == late, "only at first"
    assert len(late) == 4
    assert min(ages[4:]) > LEASE_SECONDS / 8


def test_it_is_never_empty_nor_beyond_its_bound() -> None:
    for bound in (1, 5000):
        window = ReceiveWindow(bound)
        assert window.size_bytes == bound
        for _ in range(40):
            window.shrink()
        assert window.size_bytes == min(bound, 1024)
        window.begin_stream()
        assert window.size_bytes == min(bound, 1024)
