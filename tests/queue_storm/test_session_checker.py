"""The checker of sessions finds what is wrong, and nothing that may be."""

from __future__ import annotations

import msgspec
import pytest

from tests.queue_storm.queue_checker import Kind
from tests.queue_storm.queue_history import Event, SessionBegun, SessionEnded, SessionOpened
from tests.queue_storm.session_checker import check

KEY = "k"


def opened(at: float, token: int, state: str) -> SessionOpened:
    return SessionOpened(process="w", at=at, key=KEY, token=token, state=state)


def write(
    number: int, token: int, begun_at: float, ended_at: float | None, *, answered: bool = True, refused: str = ""
) -> list[Event]:
    """A state that is its number; without `ended_at`, the worker was killed meanwhile."""
    begun = SessionBegun(process="w", at=begun_at, number=number, key=KEY, token=token, state=str(number))
    if ended_at is None:
        return [begun]
    return [begun, SessionEnded(process="w", at=ended_at, number=number, answered=answered, refused=refused)]


def kinds(*events: Event) -> list[Kind]:
    return [anomaly.kind for anomaly in check(sorted(events, key=lambda event: event.at))]  # type: ignore[misc]


@pytest.mark.parametrize(("found", "is_good"), [("2", True), ("1", False), ("", False)])
def test_the_last_of_two_states_is_found(found: str, is_good: bool) -> None:
    events = [opened(0, 1, ""), *write(1, 1, 1, 2), *write(2, 1, 3, 4), opened(9, 2, found)]
    assert kinds(*events) == ([] if is_good else [Kind.STATE_LOST])


@pytest.mark.parametrize("found", ["1", "2"])
def test_either_of_two_states_at_the_same_time_may_be_the_last(found: str) -> None:
    assert kinds(opened(0, 1, ""), *write(1, 1, 1, 3), *write(2, 1, 2, 4), opened(9, 2, found)) == []


@pytest.mark.parametrize(("found", "is_good"), [("1", True), ("2", True), ("3", False), ("", False)])
def test_a_state_without_an_answer_may_be_stored(found: str, is_good: bool) -> None:
    refused = write(3, 1, 5, 6, refused="STALE_SESSION")
    events = [opened(0, 1, ""), *write(1, 1, 1, 2), *write(2, 1, 3, None), *refused, opened(9, 2, found)]
    assert kinds(*events) == ([] if is_good else [Kind.STATE_LOST])


def test_a_state_without_an_answer_comes_before_an_answered_one() -> None:
    events = [opened(0, 1, ""), *write(1, 1, 1, 2, answered=False), *write(2, 1, 3, 4), opened(9, 2, "1")]
    assert kinds(*events) == [Kind.STATE_LOST]


def test_a_state_of_an_earlier_holder_is_lost_to_that_of_a_later_one() -> None:
    events = [opened(0, 1, ""), *write(1, 1, 1, None), opened(3, 2, "1"), *write(2, 2, 4, 5), opened(9, 3, "1")]
    assert kinds(*events) == [Kind.STATE_LOST]


def test_a_holder_that_was_replaced_must_be_refused() -> None:
    assert Kind.STALE_TOKEN in kinds(opened(0, 1, ""), opened(1, 2, ""), *write(1, 1, 2, 3))


def test_a_token_is_given_out_once() -> None:
    assert kinds(opened(0, 1, ""), opened(1, 1, "")) == [Kind.TOKEN_TWICE]


@pytest.mark.parametrize(("key", "found", "is_good"), [("k#1", "", True), ("k#1", "1", False), ("k", "", False)])
def test_the_state_of_a_sub_lane_may_have_ended_with_its_split(key: str, found: str, is_good: bool) -> None:
    events = [opened(0, 1, ""), *write(1, 1, 1, 2), *write(2, 1, 3, 4), opened(9, 2, found)]
    of_key: list[Event] = [
        msgspec.structs.replace(event, key=key) if isinstance(event, SessionOpened | SessionBegun) else event
        for event in events
    ]
    assert [each.kind for each in check(of_key)] == ([] if is_good else [Kind.STATE_LOST])
