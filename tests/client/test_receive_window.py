"""The window of a worker: how much the broker may send ahead."""

from __future__ import annotations

import pytest

from logbroker.client.worker.receive_window import ReceiveWindow

LEASE_SECONDS = 30.0
PATIENCE_SECONDS = 2.5
MAX_BYTES = 16 * 1024 * 1024


def receive(
    window: ReceiveWindow, now: float, age_seconds: float, *, is_used: bool = True, asked_seconds: float = 0.0
) -> int:
    """Note deliveries of this age at most, beside a request that has waited so long for its answer. Return the window
    of each buffer."""
    window.received(
        heard_at=now - age_seconds,
        asked_at=now - asked_seconds,
        now=now,
        lease_seconds=LEASE_SECONDS,
        patience_seconds=PATIENCE_SECONDS,
        is_used=is_used,
    )
    return window.part_bytes


def test_it_doubles_up_to_its_bound_while_deliveries_come_early() -> None:
    window = ReceiveWindow(MAX_BYTES)
    first = window.part_bytes
    assert [receive(window, now, 0.1) for now in range(1, 9)] == [min(MAX_BYTES, first << each) for each in range(1, 9)]


def test_it_changes_once_in_each_round_trip() -> None:
    window = ReceiveWindow(MAX_BYTES)
    size = receive(window, 100.0, 0.5)
    assert receive(window, 100.3, 0.5) == size, "what was sent before is no answer to the change"
    assert receive(window, 100.6, 0.5) == 2 * size
    assert receive(window, 140.0, 29.0) == size
    assert receive(window, 150.0, 29.0) == size, "of the same window as those before"


def test_one_that_is_not_used_stays() -> None:
    window = ReceiveWindow(MAX_BYTES)
    first = window.part_bytes
    assert receive(window, 1.0, 0.1, is_used=False) == first
    assert receive(window, 100.0, 29.0, is_used=False) == first // 2, "what comes late is late"


@pytest.mark.parametrize(("age_seconds", "asked_seconds", "shrinks"), [(10.0, 0.0, False), (10.0, 1.5, True)])
def test_silence_is_none_where_nothing_was_asked(age_seconds: float, asked_seconds: float, shrinks: bool) -> None:
    """A worker that has nothing to say hears nothing for a third of a lease."""
    window = ReceiveWindow(MAX_BYTES)
    first = window.part_bytes
    assert receive(window, 100.0, age_seconds, asked_seconds=asked_seconds) == (first // 2 if shrinks else first)


@pytest.mark.parametrize("bytes_per_second", [10_000, 100_000, 1_000_000])
def test_a_slow_link_finds_its_window_and_keeps_it(bytes_per_second: int) -> None:
    """An answer never again takes more than half of the time for which it is waited, and the link is used."""
    window = ReceiveWindow(MAX_BYTES)
    now = 0.0
    waits = []
    for _ in range(50):
        waits.append(window.part_bytes / bytes_per_second)
        now += waits[-1] + 0.1
        receive(window, now, waits[-1] + 0.001, asked_seconds=waits[-1])
    late = [wait for wait in waits if wait > PATIENCE_SECONDS / 2]
    assert waits[: len(late)] == late, "only at first"
    assert len(late) == (5 if bytes_per_second == 10_000 else 2 if bytes_per_second == 100_000 else 0)
    assert min(waits[10:]) > PATIENCE_SECONDS / 8


def test_buffers_share_it_and_each_may_have_all_of_its_bound() -> None:
    window = ReceiveWindow(MAX_BYTES)
    first = window.part_bytes
    window.buffers = 8
    assert window.part_bytes == first // 8
    for now in range(1, 30):
        receive(window, now, 0.1)
    assert window.part_bytes == MAX_BYTES
    window.buffers = 1
    assert window.part_bytes == MAX_BYTES
    window.shrink()
    assert window.part_bytes == MAX_BYTES // 2


def test_it_is_never_empty_nor_beyond_its_bound() -> None:
    for bound in (1, 5000):
        window = ReceiveWindow(bound)
        assert window.part_bytes == bound
        for _ in range(40):
            window.shrink()
        assert 0 < window.part_bytes <= min(bound, 1024)
        window.begin_stream()
        assert 0 < window.part_bytes <= min(bound, 1024)
        window.buffers = 5000
        assert window.part_bytes == 1
