"""Sessions and rewinds in the simulation, beside what the model says of them."""

from __future__ import annotations

import pytest

from logbroker.errors import InvalidRequestError, LogbrokerError, OverloadedError, SessionHeldError, StaleSessionError
from logbroker.queues.model.holders import WorkerSession
from logbroker.queues.model.settings import Ordering
from logbroker.queues.state.completion import RecordIds
from tests.queues.lasting import Hold
from tests.queues.simulation import World


class SessionWorld(World):
    """A world whose workers hold sessions, and whose operators rewind."""

    # --- sessions ----------------------------------------------------------------------------------------------------

    def open_session(self, worker: str, key: bytes | None, prefetch: int) -> None:
        self.expire()
        refusal = self.why_not(worker, key, prefetch)
        waits = self.altered is not None or worker in self.gone
        keys = {
            unit for unit, record_id in self.heads().items() if record_id in self.ready() and isinstance(unit, bytes)
        }
        if refusal is not None:
            with pytest.raises(refusal):
                self.queue.sessions.open(worker, key, prefetch, self.now)
            return
        session = self.queue.sessions.open(worker, key, prefetch, self.now)
        if waits or (key is None and not keys):
            assert session is None
            return
        assert session is not None
        assert session.key in keys if key is None else session.key == key
        if key is None and self.knows_ranks:
            keyed = {record_id for record_id in self.ready() if isinstance(self.unit(record_id), bytes)}
            assert session.key == self.unit(self.in_line(keyed)[0]), "not the most urgent lane that has a key"
        assert session.token > max(self.tokens, default=0), "a fencing token that does not grow"
        assert self.queue.sessions.state(session.key) == self.state.states.get(session.key, b"")
        self.unclaimed.pop(session.key, None)
        self.hold(session)

    def why_not(self, worker: str, key: bytes | None, prefetch: int) -> type[LogbrokerError] | None:
        """Return the error that an open must meet, if any."""
        if self.settings.ordering is not Ordering.KEY:
            return InvalidRequestError
        if sum(hold.prefetch for hold in self.holds.values() if hold.worker == worker) + prefetch > 8:
            return OverloadedError
        if self.altered is not None or worker in self.gone or key is None:
            return None
        taken = any(self.unit(record_id) == key for record_id, _, _ in self.in_flight.values())
        return SessionHeldError if taken or key in self.holds else None

    def hold(self, session: WorkerSession) -> None:
        self.holds[session.key] = Hold(
            session.token, session.worker.id, session.prefetch, self.seconds + self.settings.lease_seconds
        )
        self.tokens[session.token] = session.worker.id, session.key

    def reclaim_session(self, token: int) -> None:
        self.expire()
        worker, key = self.tokens[token]
        if self.altered is not None or worker in self.gone:
            return
        refusal = StaleSessionError if self.unclaimed.get(key) != token else self.why_not(worker, key, 1)
        if refusal is not None:
            with pytest.raises(refusal):
                self.queue.sessions.reclaim(worker, key, token, 1, self.now)
            return
        session = self.queue.sessions.reclaim(worker, key, token, 1, self.now)
        assert session.token == token
        del self.unclaimed[key]
        self.hold(session)

    def with_token(self, how: str, token: int) -> None:
        """Renew or close a session, as who got the token would do, however long ago."""
        self.expire()
        worker, key = self.tokens[token]
        hold = self.holds.get(key)
        act = self.queue.sessions.renew if how == "renew" else self.queue.sessions.close
        try:
            act(worker, key, token, self.now)
        except StaleSessionError:
            assert hold is None or hold.token != token
            return
        assert hold is not None, "a late holder is heard"
        assert hold.token == token, "a late holder is heard"
        if how == "renew":
            self.prolong(key)
        else:
            self.end_session(key, failed=False)

    def take_sessions(self) -> None:
        """As the shell does, at once."""
        self.expire()
        self.queue.tick(self.now)
        for session in self.queue.sessions.ready():
            hold = self.holds[session.key]
            least, most = self.bounds(session.key)
            granted = self.queue.sessions.take(session, self.now)
            record_ids = [record_id for piece in granted for record_id in piece.record_ids]
            assert least <= len(record_ids) <= len(most), "more or less than a session may have"
            assert record_ids == most[: len(record_ids)], "not in order, or not the next"
            self.check_granted(hold.worker, granted, hold)
        assert self.queue.sessions.ready() == []

    def bounds(self, key: bytes) -> tuple[int, list[int]]:
        """How many records a session must have now at least, and those that it may have at most.

        A record of which something is stored may end a run, and ends it where it is held.
        """
        hold = self.holds[key]
        if self.altered is not None or hold.worker in self.gone or key in self.state.parked:
            return 0, []
        undone = [
            record_id
            for record_id in self.order
            if record_id in self.admitted - self.state.done and self.unit(record_id) == key
        ]
        busy = len(hold.receipts)
        in_flight = [self.in_flight[receipt][0] for receipt in hold.receipts]
        assert in_flight == undone[:busy], "what is in flight is not the next in order"
        most: list[int] = []
        least = 0
        stopped = False
        for number, record_id in enumerate(undone[busy : hold.prefetch], busy):
            if record_id in self.state.stands or self.waits_for(record_id):
                break
            touched = record_id in self.state.failures or record_id in self.not_before or record_id in self.touched
            stopped = stopped or (touched and number > 0)
            most.append(record_id)
            least += not stopped
        return least, most

    def waits_for(self, record_id: int) -> bool:
        known = self.waits.get(record_id)
        waits = self.due(record_id) > self.seconds
        if known is None:
            del self.waits[record_id]  # It may be no head yet.
        return waits

    def check_sessions(self) -> None:
        """No session waits for what it could have."""
        self.expire()
        self.queue.tick(self.now)
        self.park_heads()
        offered = {session.key for session in self.queue.sessions.ready()}
        for key in self.holds:
            assert key in offered or not self.bounds(key)[0], "a session waits for what it could have"
        assert {session.key for session in self.queue.sessions.held_by("v") + self.queue.sessions.held_by("w")} == set(
            self.holds
        )

    # --- rewinds -----------------------------------------------------------------------------------------------------

    def rewind(self, partition: int, records: int, *, include_parked: bool, drop_standing: bool) -> None:
        partition %= len(self.ends)
        self.expire()
        self.queue.tick(self.now)
        self.park_heads()
        state = self.state
        if "dead-letter" in state.stands.values():
            return  # Those with an intent are done in the end.
        target = min(records, self.ends[partition])
        kept = set() if drop_standing else self.standing_below(partition, target)
        record_ids = RecordIds()
        record_ids.add(kept)
        self.queue.rewind(
            {partition: target},
            self.now,
            include_parked=include_parked,
            kept=None if drop_standing else {partition: record_ids},
        )
        self.holds.clear()
        self.unclaimed.clear()
        self.in_flight_is_lost()
        here = [record_id for record_id in self.order if record_id >> 48 == partition]
        for record_id in here:
            state.done.discard(record_id)
            self.dead_topic.there.discard(record_id)
            if record_id & 0xFFFF_FFFF_FFFF < target and record_id not in kept:
                state.done.add(record_id)
        parked = set(state.parked.values())
        for key, failed in list(state.parked.items()):
            if failed in state.done or (include_parked and failed >> 48 == partition):
                del state.parked[key]
        for record_id in here:
            is_parked = record_id in parked or state.stands.get(record_id) == "park"
            stays = not include_parked if is_parked else record_id in kept
            if record_id in state.done or not stays:
                self.forget(record_id)
        self.rescanned = True
        self.commit()

    def standing_below(self, partition: int, target: int) -> set[int]:
        """The records of blocked and parked lanes below an offset, scanned or not."""
        state = self.state
        units = {
            *state.parked,
            *(self.unit(record_id) for record_id, how in state.stands.items() if how in ("block", "park")),
        }
        return {
            record_id
            for record_id in self.order
            if record_id >> 48 == partition
            and record_id & 0xFFFF_FFFF_FFFF < target
            and record_id not in state.done
            and self.unit(record_id) in units
        }

    def in_flight_is_lost(self) -> None:
        for receipt, (_, _, deadline) in self.in_flight.items():
            (self.stale if deadline == float("inf") else self.lost).add(receipt)
        self.in_flight.clear()
