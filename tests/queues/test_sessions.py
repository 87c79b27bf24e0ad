"""Single stories of sessions; what must hold in all of them is in `test_queue_stateful`."""

from __future__ import annotations

import pytest

from logbroker.errors import (
    AlreadySettledError,
    InvalidRequestError,
    LeaseLostError,
    OverloadedError,
    SessionHeldError,
    StaleSessionError,
    StateTooLargeError,
)
from logbroker.queues.machine.inspect import Inspector
from logbroker.queues.model.messages import Nack, SessionWrite, Settlement
from logbroker.queues.model.settings import OnExhausted, Ordering
from logbroker.queues.state import session_store as session_states
from tests.queues.groups import ack, admit, at, commit, new_queue, receipts, record_ids, restart
from tests.queues.sessions import opened, settled, taken


def test_a_session_has_its_lane_alone_and_in_order() -> None:
    queue = new_queue()
    admit(queue, [b"k", b"other", b"k", b"k"])
    session = opened(queue)
    assert record_ids(queue.take("v", 10, at(0))) == [1]
    first = taken(queue)
    assert record_ids(first) == [0, 2]
    assert taken(queue) == []
    ack(queue, first)
    assert record_ids(taken(queue)) == [3]
    assert queue.sessions.take(session, at(0)) == []


def test_a_session_that_was_not_given_all_takes_its_turn_again() -> None:
    queue = new_queue()
    admit(queue, [b"a", b"b"] * 3)
    first, second = opened(queue, b"a", prefetch=3), opened(queue, b"b", prefetch=3)
    assert record_ids(queue.sessions.take(first, at(0), 2)) == [0, 2]
    assert queue.sessions.ready() == [second, first]
    assert record_ids(queue.sessions.take(first, at(0), 2)) == [4]
    assert record_ids(queue.sessions.take(second, at(0), 3)) == [1, 3, 5]
    assert queue.sessions.ready() == []


def test_acks_come_in_any_order_and_make_room() -> None:
    queue = new_queue()
    admit(queue, [b"k"] * 4)
    opened(queue)
    first, second = receipts(taken(queue))
    assert settled(queue, Settlement(acks=[(second, second)])) == []
    assert record_ids(taken(queue)) == [2]
    assert settled(queue, Settlement(acks=[(first, first)])) == []
    assert record_ids(taken(queue)) == [3]
    assert queue.done.floor(0) == 2


def test_a_nack_returns_all_later_ones_and_takes_effect_when_those_before_are_settled() -> None:
    queue = new_queue(backoff_initial_seconds=5.0)
    admit(queue, [b"k"] * 5)
    opened(queue, prefetch=4)
    first, second, third, fourth = receipts(taken(queue))
    assert settled(queue, Settlement(acks=[(third, third)], nacks=[Nack(second, second, "no")])) == []
    assert settled(queue, Settlement(acks=[(second, second)])) == [AlreadySettledError]
    assert settled(queue, Settlement(acks=[(fourth, fourth)])) == [LeaseLostError]
    assert taken(queue, 6) == []
    assert settled(queue, Settlement(acks=[(first, first)]), 2) == []
    assert taken(queue, 4) == []
    assert queue.take("v", 10, at(5)) == []
    (again,) = taken(queue, 5)
    assert (again.record_ids, again.attempts, again.redelivered) == ([1, 3, 4], [2, 1, 1], [True, True, False])


def test_a_nack_of_a_range_over_several_grants_fails_its_first_only() -> None:
    queue = new_queue(backoff_initial_seconds=0.0)
    admit(queue, [b"k"])
    opened(queue, prefetch=3)
    taken(queue)
    admit(queue, [b"k"] * 2, start=1)
    (last,) = receipts(taken(queue))[-1:]
    assert settled(queue, Settlement(nacks=[Nack(last - 2, last, "no")])) == []
    assert [(piece.record_ids, piece.attempts) for piece in taken(queue)] == [([0, 1, 2], [2, 1, 1])]


def test_a_record_that_failed_and_arrives_behind_what_is_in_flight_holds_nothing_yet() -> None:
    queue = new_queue(backoff_initial_seconds=5.0)
    admit(queue, [b"k"] * 2)
    opened(queue)
    (_, second) = receipts(taken(queue))
    assert settled(queue, Settlement(nacks=[Nack(second, second, "no")])) == []
    queue = restart(commit(queue, {}), 2)
    queue.sessions.forget_unclaimed()
    admit(queue, [b"k"])
    opened(queue)
    (first,) = receipts(taken(queue))
    admit(queue, [b"k"], start=1)
    assert queue.stalled.count == 0
    assert settled(queue, Settlement(nacks=[Nack(first, first, "no")])) == []
    assert taken(queue, 4) == []
    again = taken(queue, 5)
    assert record_ids(again) == [0]
    ack(queue, again, 5)
    assert record_ids(taken(queue, 5)) == [1]


def test_a_release_counts_no_attempt() -> None:
    queue = new_queue()
    admit(queue, [b"k"] * 2)
    opened(queue)
    first, _ = receipts(taken(queue))
    assert settled(queue, Settlement(releases=[(first, first)])) == []
    (again,) = taken(queue)
    assert (again.record_ids, again.attempts, again.redelivered) == ([0, 1], [], [True, True])


def test_what_arrives_for_an_idle_session_is_its_holders() -> None:
    queue = new_queue()
    opened(queue)
    assert queue.sessions.ready() == []
    admit(queue, [b"k", b"k"])
    assert queue.take("v", 10, at(0)) == []
    assert record_ids(taken(queue)) == [0, 1]


def test_the_next_free_session_is_that_of_the_first_lane_in_the_line() -> None:
    queue = new_queue()
    admit(queue, [None, b"a", b"b", b"a", b"b"])
    assert opened(queue, None).key == b"a"
    assert opened(queue, None).key == b"b"
    assert queue.sessions.open("w", None, 1, at(0)) is None
    assert record_ids(queue.take("v", 10, at(0))) == [0]


def test_a_freed_session_goes_to_the_end_of_the_line() -> None:
    queue = new_queue()
    admit(queue, [b"a", b"a", b"b"])
    session = opened(queue, None)
    assert record_ids(taken(queue)) == [0, 1]
    queue.sessions.close("w", session.key, session.token, at(0))
    assert [opened(queue, None).key for _ in range(2)] == [b"b", b"a"]
    (b, a) = taken(queue)
    assert (b.record_ids, a.record_ids, a.attempts, a.redelivered) == ([2], [0, 1], [], [True, True])


def test_who_holds_a_key_is_refused_to_all_others() -> None:
    queue = new_queue()
    admit(queue, [b"k", b"other"])
    session = opened(queue)
    for worker in ("v", "w"):
        with pytest.raises(SessionHeldError, match="again"):
            queue.sessions.open(worker, b"k", 1, at(0))
    plain = queue.take("v", 10, at(0))
    with pytest.raises(SessionHeldError):
        queue.sessions.open("w", b"other", 1, at(0))
    ack(queue, plain, worker_id="v")
    for worker, token in (("v", session.token), ("w", session.token - 1)):
        with pytest.raises(StaleSessionError):
            queue.sessions.renew(worker, b"k", token, at(0))
        with pytest.raises(StaleSessionError):
            queue.sessions.close(worker, b"k", token, at(0))


@pytest.mark.parametrize("policy", list(OnExhausted))
def test_a_head_that_is_exhausted_stands_and_the_session_stays(policy: OnExhausted) -> None:
    dead = "dead" if policy is OnExhausted.DEAD_LETTER else ""
    queue = new_queue(max_attempts=1, on_exhausted=policy, dead_letter_topic=dead)
    inspector = Inspector(queue)
    admit(queue, [b"k"] * 3)
    session = opened(queue)
    first, second = receipts(taken(queue))
    assert settled(queue, Settlement(nacks=[Nack(second, second, "no")])) == []
    assert queue.take_outputs().dead_letters == []
    assert settled(queue, Settlement(acks=[(first, first)])) == []
    assert taken(queue) == []
    facts = inspector.explain(inspector.lane(b"k"), at(0))
    assert (facts.worker_id, facts.session_token, facts.waiting) == ("w", session.token, 2)
    if policy is OnExhausted.DEAD_LETTER:
        (letter,) = queue.take_outputs().dead_letters
        queue.dead_lettered(letter.record_id, at(0))
    else:
        assert facts.state == ("blocked" if policy is OnExhausted.BLOCK else "parked")
        inspector.skip(inspector.lane(b"k"), at(0))
    assert record_ids(taken(queue)) == [2]


def test_an_operator_drops_a_lane_and_its_session_waits_for_more() -> None:
    queue = new_queue(max_attempts=1)
    inspector = Inspector(queue)
    admit(queue, [b"k"] * 3)
    opened(queue)
    assert inspector.explain(inspector.lane(b"k"), at(0)).state == "in session"
    (first, _) = receipts(taken(queue))
    assert inspector.explain(inspector.lane(b"k"), at(0)).waiting == 3
    assert settled(queue, Settlement(nacks=[Nack(first, first, "no")])) == []
    assert inspector.drop(inspector.lane(b"k")) == 3
    facts = inspector.explain(inspector.lane(b"k"), at(10))
    assert (facts.state, facts.waiting, facts.due_in_seconds) == ("in session", 0, 20.0)
    admit(queue, [b"k"], start=3)
    assert record_ids(taken(queue)) == [3]
    assert inspector.counts().sessions == 1


def test_a_state_moves_with_its_acks_or_not_at_all() -> None:
    rows: dict[bytes, bytes] = {}
    queue = new_queue()
    admit(queue, [b"k"] * 2)
    session = opened(queue)
    first, second = receipts(taken(queue))
    write = SessionWrite(b"k", session.token, b"one")
    assert settled(queue, Settlement(acks=[(first, first)], states=[write])) == []
    refusals = queue.settle(
        "w", Settlement(acks=[(first, second)], states=[SessionWrite(b"k", session.token, b"2")]), at(0)
    )
    assert [(refusal.first, refusal.last, type(refusal.error)) for refusal in refusals] == [
        (0, 0, AlreadySettledError),
        (first, first, AlreadySettledError),
    ]
    queue = restart(commit(queue, rows), 2)
    assert queue.sessions.state(b"k") == b"one"
    admit(queue, [b"k"] * 2)
    assert record_ids(queue.take("v", 10, at(0))) == [1]


def test_states_have_a_bound_and_are_deleted_by_empty_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: dict[bytes, bytes] = {}
    queue = new_queue()
    session = opened(queue)
    bounds = {"MAX_STATES": 1, "MAX_STATES_BYTES": 400_000}
    for name, bound in bounds.items():
        monkeypatch.setattr(session_states, name, bound)
    for length, errors in ((262_145, [StateTooLargeError]), (262_144, []), (262_144, [])):
        write = SessionWrite(b"k", session.token, bytes(length))
        assert settled(queue, Settlement(states=[write])) == errors
    other = opened(queue, b"other")
    assert settled(queue, Settlement(states=[SessionWrite(b"other", other.token, b"x")])) == [OverloadedError]
    commit(queue, rows)
    assert [key for key in rows if key.startswith(b"y")]
    assert settled(queue, Settlement(states=[SessionWrite(b"k", session.token, b"")])) == []
    assert settled(queue, Settlement(states=[SessionWrite(b"other", other.token, b"x" * 262_144)])) == []
    assert settled(queue, Settlement(states=[SessionWrite(b"other", other.token, b"")])) == []
    assert not [key for key in commit(queue, rows) if key.startswith(b"y")]


def test_without_an_ordering_key_there_are_no_sessions() -> None:
    for ordering in (Ordering.NONE, Ordering.SINGLE):
        with pytest.raises(InvalidRequestError, match="order by key"):
            new_queue(ordering=ordering).sessions.open("w", None, 1, at(0))
    queue = new_queue(max_in_flight=3)
    for prefetch in (0, -1, 1001):
        with pytest.raises(InvalidRequestError, match="1 to 1,000"):
            queue.sessions.open("w", b"k", prefetch, at(0))
    opened(queue)
    with pytest.raises(OverloadedError):
        queue.sessions.open("w", b"other", 2, at(0))


def test_a_long_lane_takes_back_what_a_session_had() -> None:
    queue = new_queue()
    for start in range(0, 3000, 500):
        admit(queue, [b"k"] * 500, start=start)
    session = opened(queue, prefetch=1000)
    assert record_ids(taken(queue)) == list(range(1000))
    queue.sessions.close("w", b"k", session.token, at(0))
    admit(queue, [b"k"] * 500, start=3000)
    seen = []
    opened(queue, prefetch=700)
    while granted := taken(queue):
        seen += record_ids(granted)
        ack(queue, granted)
    assert seen == list(range(3500))
