"""The simulation catches bugs of sessions and rewinds: each is planted, and must be found within some hundred runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from logbroker.queues.machine.lane_index import LaneIndex
from logbroker.queues.machine.leases import Deliveries
from logbroker.queues.machine.session_table import SessionTable
from logbroker.queues.machine.sessions import Sessions
from logbroker.queues.machine.settlement import Settling
from logbroker.queues.model.holders import WorkerSession
from logbroker.queues.model.lane import READY, Lane
from logbroker.queues.model.lost_receipts import Loss
from logbroker.queues.model.record_id import Moment
from logbroker.queues.model.settings import OnExhausted, Ordering
from logbroker.queues.state.change_set import ChangeSet
from logbroker.queues.state.completion import DoneRecords
from logbroker.queues.state.redelivery import Redelivery
from logbroker.queues.state.session_store import SessionStates
from tests.queues.session_stateful import SessionMachine
from tests.queues.test_planted_bugs import CALM, ONE_EPOCH, Plant, hunt, without


def a_held_session_is_opened_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sessions, "_check_free", lambda *_: None)


def a_lane_in_session_stays_in_the_line(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LaneIndex, "reserve", lambda *_: None)


def what_arrives_for_a_session_goes_to_the_line(patch: pytest.MonkeyPatch) -> None:
    def bug(self: LaneIndex, lane: Lane) -> None:
        lane.state = READY
        self.line.append(lane)

    patch.setattr(LaneIndex, "make_ready", bug)


def a_stale_token_is_accepted(patch: pytest.MonkeyPatch) -> None:
    own: Callable[..., WorkerSession] = Sessions._own

    def bug(self: Sessions, worker_id: str, key: bytes, token: int) -> WorkerSession:
        return self.get(key) or own(self, worker_id, key, token)

    patch.setattr(Sessions, "_own", bug)


def tokens_begin_anew_at_a_start(patch: pytest.MonkeyPatch) -> None:
    init: Callable[..., None] = SessionTable.__init__
    patch.setattr(
        SessionTable, "__init__", lambda self, group_epoch, sessions, changes: init(self, 1, sessions, changes)
    )


def sessions_forgotten_at_a_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SessionTable, "load", lambda *_: None)


def a_failure_returns_only_itself(patch: pytest.MonkeyPatch) -> None:
    lose_from: Callable[..., list[Lane]] = Deliveries.lose_from

    def bug(
        self: Deliveries, session: WorkerSession, why: Loss, receipt: int = 0, *, ended: bool = False
    ) -> list[Lane]:
        return lose_from(self, session, why, receipt, ended=ended) if ended else []

    patch.setattr(Deliveries, "lose_from", bug)


def all_in_flight_has_failed_when_a_lock_ends(patch: pytest.MonkeyPatch) -> None:
    put_back: Callable[..., None] = Sessions._put_back

    def bug(
        self: Sessions, key: bytes, records: list[Lane], reason: str | None, delay_seconds: float | None, now: Moment
    ) -> None:
        record_ids = [record.head for record in records]
        put_back(self, key, records, reason, delay_seconds, now)
        for record_id in record_ids[1:]:
            if reason is not None:
                self._stalled.note(key, record_id, reason, delay_seconds, now)

    patch.setattr(Sessions, "_put_back", bug)


def what_comes_back_is_in_another_order(patch: pytest.MonkeyPatch) -> None:
    put_back: Callable[..., Lane] = LaneIndex.put_back

    def bug(self: LaneIndex, key: bytes, records: Sequence[Lane]) -> Lane:
        return put_back(self, key, records[::-1])

    patch.setattr(LaneIndex, "put_back", bug)


def a_session_ends_with_what_it_had_in_flight(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sessions, "_put_back", lambda *_: None)


def a_failing_head_is_handed_out_at_once(patch: pytest.MonkeyPatch) -> None:
    def bug(self: Sessions, session: WorkerSession, now: Moment) -> None:
        lane = self._lanes.get(session.key)
        if lane is not None:
            self._stalled.attention.discard(lane.head)
            self._lanes.offered[session.key] = None

    patch.setattr(Sessions, "_go_on", bug)


def prefetch_is_not_a_bound(patch: pytest.MonkeyPatch) -> None:
    take: Callable[..., list[Any]] = Sessions.take

    def bug(self: Sessions, session: WorkerSession, now: Moment) -> list[Any]:
        session.prefetch += 1
        granted = take(self, session, now)
        session.prefetch -= 1
        return granted

    patch.setattr(Sessions, "take", bug)


def an_acknowledgement_makes_no_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sessions, "_go_on", lambda *_: None)


def a_state_is_written_without_its_acks(patch: pytest.MonkeyPatch) -> None:
    why_not: Callable[..., list[Any]] = Settling._why_not

    def bug(self: Settling, worker_id: str, settlement: Any) -> list[Any]:
        return [refusal for refusal in why_not(self, worker_id, settlement) if not refusal.last]

    patch.setattr(Settling, "_why_not", bug)


def states_are_never_written(patch: pytest.MonkeyPatch) -> None:
    init: Callable[..., None] = SessionStates.__init__

    def bug(self: SessionStates, changes: ChangeSet) -> None:
        init(self, changes)
        patch.setattr(self._rows, "take_rows", list)

    patch.setattr(SessionStates, "__init__", bug)


def locks_never_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SessionTable, "expired", lambda *_: [])


def a_goodbye_leaves_sessions_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sessions, "end", lambda self, session, why, now: self._deliveries.remove_session(session))


def a_rewind_drops_what_stands(patch: pytest.MonkeyPatch) -> None:
    rewind = DoneRecords.rewind
    patch.setattr(DoneRecords, "rewind", lambda self, targets, kept: rewind(self, targets, {}))


def a_rewind_forgets_nothing_that_is_done(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DoneRecords, "rewind", lambda *_: {})


def a_rewind_leaves_receipts_good(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Deliveries, "lose_everything", lambda *_: None)


def what_a_rewind_brings_back_is_not_marked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Redelivery, "mark_below", lambda *_: None)


_KEY = {"orderings": (Ordering.KEY,), "policies": (OnExhausted.BLOCK,)}
_ONE_EPOCH = {**_KEY, **ONE_EPOCH, **without("rewind", "reclaim_session", "end_reclaiming")}


@pytest.mark.parametrize(
    ("plant", "pins"),
    [
        (a_held_session_is_opened_again, _ONE_EPOCH),
        (a_lane_in_session_stays_in_the_line, _KEY),
        (what_arrives_for_a_session_goes_to_the_line, _KEY),
        (a_stale_token_is_accepted, {**_ONE_EPOCH, **without("settle", "work", "rewind")}),
        (tokens_begin_anew_at_a_start, _KEY),
        (sessions_forgotten_at_a_start, {**_KEY, **CALM, **without("rewind", "settle")}),
        (a_failure_returns_only_itself, {**_KEY, **ONE_EPOCH, **without("rewind")}),
        (all_in_flight_has_failed_when_a_lock_ends, _ONE_EPOCH),
        (what_comes_back_is_in_another_order, _KEY),
        (a_session_ends_with_what_it_had_in_flight, _KEY),
        (a_failing_head_is_handed_out_at_once, _ONE_EPOCH),
        (prefetch_is_not_a_bound, _KEY),
        (an_acknowledgement_makes_no_room, _KEY),
        (a_state_is_written_without_its_acks, _KEY),
        (states_are_never_written, _KEY),
        (locks_never_end, _ONE_EPOCH),
        (a_goodbye_leaves_sessions_open, _KEY),
        (a_rewind_forgets_nothing_that_is_done, {**_KEY, **ONE_EPOCH}),
        (a_rewind_drops_what_stands, {**_KEY, **ONE_EPOCH, "attempts": (1,)}),
        (a_rewind_leaves_receipts_good, {**_KEY, **ONE_EPOCH}),
        (what_a_rewind_brings_back_is_not_marked, _KEY),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.prove(keep=1)
def test_a_planted_bug_of_sessions_is_caught(
    plant: Plant, pins: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    hunt(type("Planted", (SessionMachine,), pins))
