"""The plain model of what a queue must do: sets and dicts of record ids, and nothing else.

It says which records must be ready now, what each settlement must be answered, and what a crash must have kept. It is
told only what happens, never what the queue thinks.
"""

from __future__ import annotations

from logbroker.errors import (
    AlreadySettledError,
    LeaseLostError,
    LogbrokerError,
    NotHolderError,
    StaleSessionError,
    UnknownReceiptError,
)
from logbroker.queues.machine.leases import COUNTER_BITS
from logbroker.queues.model.record_id import Moment
from logbroker.queues.model.settings import OnExhausted, Ordering, Priority, PriorityRank, QueueGroupSettings
from tests.queues.lasting import Durable, Hold, Log

WALL_MS = 1_000_000
Unit = bytes | int
"""Unit of ordering: an ordering key, or a record alone."""


class Model(Log):
    """Knowledge of all epochs of a queue, and of the present one."""

    def __init__(self, settings: QueueGroupSettings, partitions: int) -> None:
        super().__init__(partitions)
        self.settings = settings
        self.seconds = 0.0
        self.wall_offset_ms = WALL_MS
        self.epochs = 0
        self.rescanned = False
        """Set by a change of the ordering, after which the queue may mark needlessly."""
        self.durable = Durable()
        self.delivered: set[int] = set()
        self.touched: set[int] = set()
        """Records that failed, once at least."""
        self.begin_model()

    def begin_model(self) -> None:
        """Begin a group epoch with what the one before left durable."""
        self.epochs += 1
        self.state = self.durable.copy()
        self.in_flight: dict[int, tuple[int, str, float]] = {}
        """Record id, worker and deadline, by receipt."""
        self.issued: dict[int, str] = {}
        """Workers that records were handed to, by receipt."""
        self.lost: set[int] = set()
        self.settled: set[int] = set()
        self.holds: dict[bytes, Hold] = {}
        """Open sessions by key."""
        self.unclaimed = dict(self.state.held)
        """Tokens of sessions that were held when the broker crashed."""
        self.stale: set[int] = set()
        """Receipts whose session ended."""
        self.returned: set[int] = set()
        """Receipts that came back by the failure or release of one before them, or with one."""
        self.waits: dict[int, float] = {}
        self.gone: dict[str, float] = {}
        self.admitted: set[int] = set()
        self.altered: QueueGroupSettings | None = None

    @property
    def now(self) -> Moment:
        return Moment(self.seconds, self.wall_offset_ms + int(self.seconds * 1000))

    # --- what must be ------------------------------------------------------------------------------------------------

    def unit(self, record_id: int) -> Unit:
        if self.settings.ordering is Ordering.SINGLE:
            return b""
        key = self.keys[record_id]
        return record_id if key is None or self.settings.ordering is Ordering.NONE else key

    def heads(self) -> dict[Unit, int]:
        """The first record of each unit that is admitted and not done."""
        heads: dict[Unit, int] = {}
        for record_id in self.order:
            if record_id in self.admitted and record_id not in self.state.done:
                heads.setdefault(self.unit(record_id), record_id)
        return heads

    def ready(self) -> set[int]:
        if self.altered is not None:
            return set()
        self.park_heads()
        return {
            record_id
            for unit, record_id in self.heads().items()
            if not self.is_busy(record_id) and not self.stands(unit, record_id) and unit not in self.holds
        }

    def in_line(self, ready: set[int]) -> list[int]:
        """The records that are ready in the order of a group with priorities."""

        def key(record_id: int) -> tuple[float, int, int, int]:
            unit, (priority, timestamp_ms) = self.unit(record_id), self.ranks[record_id]
            if self.settings.priority_rank is PriorityRank.LANE:
                waiting = self.admitted - self.state.done
                priority = max(self.ranks[other][0] for other in waiting if self.unit(other) == unit)
            aged = 0.0
            if self.settings.priority is Priority.AGEING:
                aged = timestamp_ms - priority * self.settings.age_seconds * 1000
            return aged, -priority, timestamp_ms, record_id

        return sorted(ready, key=key)

    @property
    def knows_ranks(self) -> bool:
        """Whether the model knows the order of what is ready. Not where a record in a lane is done before those that
        lie before it: another ordering, while it was on its way to the dead-letter topic."""
        return self.settings.has_priorities and not (
            self.rescanned and self.settings.on_exhausted is OnExhausted.DEAD_LETTER
        )

    def is_busy(self, record_id: int) -> bool:
        return any(other == record_id for other, _, _ in self.in_flight.values())

    def stands(self, unit: Unit, record_id: int) -> bool:
        """Whether a head is held."""
        return unit in self.state.parked or record_id in self.state.stands or self.due(record_id) > self.seconds

    def park_heads(self) -> None:
        """A record that failed in a session, or before a start, parks its lane as soon as it is the head."""
        for unit, record_id in self.heads().items():
            if isinstance(unit, bytes) and self.state.stands.get(record_id) == "park" and not self.is_busy(record_id):
                del self.state.stands[record_id]
                self.state.parked[unit] = record_id

    def due(self, record_id: int) -> float:
        """The moment until which a head waits; where it was met for the first time in this group epoch, its stored
        delay."""
        if record_id not in self.waits:
            wall_ms = self.now.wall_ms
            delay_ms, due_ms = self.state.delays.get(record_id, (0, 0))
            wait_ms = max(min(delay_ms, due_ms - wall_ms), self.not_before.get(record_id, 0) - wall_ms)
            self.waits[record_id] = self.seconds + max(0, wait_ms) / 1000
        return self.waits[record_id]

    # --- what happens -------------------------------------------------------------------------------------------------

    def expire(self) -> None:
        """Leases and graces that are over count as failures."""
        for receipt, (_, _, deadline) in list(self.in_flight.items()):
            if deadline <= self.seconds:
                self.lose(receipt, failed=True)
        for key, hold in list(self.holds.items()):
            if hold.deadline <= self.seconds:
                self.end_session(key, failed=True)
        for worker, until in list(self.gone.items()):
            if until <= self.seconds:
                del self.gone[worker]
                self.lose_all(worker, failed=True)

    def lose(self, receipt: int, *, failed: bool) -> None:
        record_id, _, _ = self.in_flight.pop(receipt)
        self.lost.add(receipt)
        if failed:
            self.fail(record_id, None)

    def end_session(self, key: bytes, *, failed: bool) -> None:
        """End a session: records in flight come back, and only the first of them can have failed."""
        for number, receipt in enumerate(self.holds.pop(key).receipts):
            record_id, _, _ = self.in_flight.pop(receipt)
            self.stale.add(receipt)
            if failed and not number:
                self.fail(record_id, None)

    def lose_all(self, worker: str, *, failed: bool) -> None:
        for key, hold in list(self.holds.items()):
            if hold.worker == worker:
                self.end_session(key, failed=failed)
        for receipt, (_, holder, _) in list(self.in_flight.items()):
            if holder == worker:
                self.lose(receipt, failed=failed)

    def fail(self, record_id: int, delay_seconds: float | None) -> None:
        state, settings = self.state, self.settings
        self.touched.add(record_id)
        count = state.failures[record_id] = state.failures.get(record_id, 0) + 1
        unit = self.unit(record_id)
        if count < settings.max_attempts:
            if delay_seconds is None:
                growth = settings.backoff_factor ** (count - 1)
                delay_seconds = min(settings.backoff_cap_seconds, settings.backoff_initial_seconds * growth)
            self.waits[record_id] = self.seconds + delay_seconds
            state.delays[record_id] = int(delay_seconds * 1000), self.now.wall_ms + int(delay_seconds * 1000)
        elif settings.on_exhausted is OnExhausted.PARK and isinstance(unit, bytes) and unit not in self.holds:
            state.parked[unit] = record_id
        else:
            state.stands[record_id] = settings.on_exhausted.value

    def finish(self, record_id: int) -> None:
        self.state.done.add(record_id)
        self.forget(record_id)

    def forget(self, record_id: int) -> None:
        for kept in (self.state.failures, self.state.delays, self.state.stands):
            kept.pop(record_id, None)

    def settle_in_session(self, key: bytes, receipt: int, how: str, last: int, delay_seconds: float | None) -> None:
        hold = self.holds[key]
        self.prolong(key, 20.0 if how == "extend" else None)
        if how == "extend":
            return
        back = [later for later in hold.receipts if later >= receipt] if how in ("nack", "release") else [receipt]
        record_ids = [self.in_flight.pop(later)[0] for later in back]
        hold.receipts = [kept for kept in hold.receipts if kept not in back]
        if how == "ack":
            self.settled.add(receipt)
            self.finish(record_ids[0])
            return
        self.returned.update(later for later in back if later <= last)
        self.lost.update(later for later in back if later > last)
        if how == "nack":
            self.fail(record_ids[0], delay_seconds)

    def prolong(self, key: bytes, seconds: float | None = None) -> None:
        hold = self.holds[key]
        hold.deadline = max(hold.deadline, self.seconds + (seconds or self.settings.lease_seconds))

    # --- what is answered ---------------------------------------------------------------------------------------------

    @property
    def repeats_may_be_marked(self) -> bool:
        """Whether the queue may mark needlessly: only after a start, or another scan."""
        return self.epochs > 1 or self.rescanned

    def expected_errors(self, worker: str, receipt: int) -> tuple[type[LogbrokerError], ...]:
        if receipt in self.in_flight:
            return () if self.in_flight[receipt][1] == worker else (NotHolderError,)
        if receipt in self.stale:
            return (StaleSessionError,)
        if receipt in self.returned:
            return (LeaseLostError, AlreadySettledError, NotHolderError)
        if receipt >> COUNTER_BITS < self.epochs or receipt in self.lost:
            return (LeaseLostError,)
        if receipt not in self.settled:
            return (UnknownReceiptError,)
        # While the rest of what was handed out with it is in flight, another worker learns no more than that.
        return (AlreadySettledError,) if self.issued[receipt] == worker else (AlreadySettledError, NotHolderError)
