"""A queue group that keeps the order perfectly, in memory: the checker must find nothing in what its workers note.

What happens and when it is noted are steps of their own, in any order that processes could bring about.
"""

from __future__ import annotations

import random
from collections import defaultdict

import msgspec

from tests.priority.priority_deliveries import Rules
from tests.priority.priority_history import Appended, Event, ReceiveBegun, Sent
from tests.queue_storm.queue_checker import EPOCH_BITS
from tests.queue_storm.queue_history import Delivery, How, RecordId, SettleBegun, SettleEnded, Taken

EPOCH = 1 << EPOCH_BITS
_WORKERS = 3
_KEYS = 4


class _Worker(msgspec.Struct):
    """One that asks, is handed out, notes, says what becomes of it, and is answered; each is a step."""

    name: str
    state: str = "idle"
    given: Delivery | None = None
    how: How = How.ACK
    carried_out: bool = False


class IdealGroup:
    """Runs by `step`; `events` is the history so far. With `blind`, it knows nothing of priorities."""

    def __init__(self, rng: random.Random, rules: Rules, *, blind: bool = False) -> None:
        self.events: list[Event] = []
        self._rng = rng
        self._rules = rules
        self._blind = blind
        self._now = 0.0
        self._ends = [0, 0]
        self._unanswered: list[tuple[float, Sent, bool]] = []
        """Sent at, and whether it is readable."""
        self._lanes: dict[object, list[Sent]] = defaultdict(list)
        """Waiting records by key, in the order of the log."""
        self._in_flight: dict[int, tuple[Sent, float]] = {}
        """Records in flight by receipt, with the end of the lease."""
        self._receipts = EPOCH - 1
        self._workers = [_Worker(f"w{number}") for number in range(_WORKERS)]

    def step(self) -> None:
        self._now += self._rng.random() / 10
        self._expire()
        self._rng.choice((self._send, self._become_readable, self._answer, self._work, self._work, self._work))()

    # --- records -----------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        rng = self._rng
        key = f"k{rng.randrange(_KEYS)}" if rng.random() < 0.8 else ""
        partition = int(key[1:]) % 2 if key else rng.randrange(2)
        sent = Sent(RecordId(partition, self._ends[partition]), key, rng.randrange(10), rng.randrange(20) * 100)
        self._ends[partition] += 1
        self._unanswered.append((self._now, sent, False))

    def _become_readable(self) -> None:
        for index, (at, sent, is_readable) in enumerate(self._unanswered):
            if not is_readable:
                self._unanswered[index] = (at, sent, True)
                self._lanes[self._lane_of(sent)].append(sent)
                return

    def _answer(self) -> None:
        if self._unanswered and self._unanswered[0][2]:
            begun_at, sent, _ = self._unanswered.pop(0)
            self.events.append(Appended(process="p", at=self._now, begun_at=begun_at, records=[sent]))

    def end(self) -> None:
        """All that was sent is answered, and all that was handed out is noted."""
        for worker in self._workers:
            if worker.state == "handed out":
                self._note(worker)
        while self._unanswered:
            self._become_readable()
            self._answer()

    def _lane_of(self, sent: Sent) -> object:
        return sent.key if self._rules.by_key and sent.key else sent.record_id

    # --- deliveries --------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        worker = self._rng.choice(self._workers)
        if self._rng.random() < 0.01 and worker.state != "idle":
            self._workers.remove(worker)
            self._workers.append(_Worker(f"{worker.name}'"))
            return
        {
            "idle": self._ask,
            "asked": self._hand_out,
            "handed out": self._note,
            "noted": self._settle,
            "settling": self._settled,
        }[worker.state](worker)

    def _ask(self, worker: _Worker) -> None:
        self.events.append(ReceiveBegun(process=worker.name, at=self._now))
        worker.state = "asked"

    def _hand_out(self, worker: _Worker) -> None:
        busy = {self._lane_of(sent) for sent, _ in self._in_flight.values()}
        ready = [lane for key, lane in self._lanes.items() if lane and key not in busy]
        if not ready:
            return
        lane = self._rng.choice(ready) if self._blind else min(ready, key=self._rank)
        self._receipts += 1
        self._in_flight[self._receipts] = (lane[0], self._now + self._rules.lease_seconds)
        worker.given = Delivery(self._receipts, lane[0].record_id, lane[0].key, 1, False)
        worker.state = "handed out"

    def _rank(self, lane: list[Sent]) -> tuple[float, ...]:
        level = max(sent.priority for sent in lane) if self._rules.rank_by_lane else lane[0].priority
        return self._rules.rank(level, lane[0])

    def _note(self, worker: _Worker) -> None:
        assert worker.given is not None
        if self._rng.random() < 0.02:
            worker.state = "idle"
            return
        self.events.append(Taken(process=worker.name, at=self._now, deliveries=[worker.given]))
        worker.state = "noted"

    def _settle(self, worker: _Worker) -> None:
        assert worker.given is not None
        receipt = worker.given.receipt
        worker.how = self._rng.choices((How.ACK, How.RELEASE), (5, 1))[0]
        self.events.append(
            SettleBegun(process=worker.name, at=self._now, number=receipt, how=worker.how, receipts=[receipt])
        )
        worker.state, worker.carried_out = "settling", False

    def _settled(self, worker: _Worker) -> None:
        """First it is carried out, then noted."""
        assert worker.given is not None
        receipt = worker.given.receipt
        if not worker.carried_out:
            worker.carried_out = True
            if receipt in self._in_flight:
                sent, _ = self._in_flight.pop(receipt)
                if worker.how is How.ACK:
                    self._lanes[self._lane_of(sent)].pop(0)
                return
        else:
            answered = self._rng.random() > 0.05
            self.events.append(
                SettleEnded(process=worker.name, at=self._now, number=receipt, answered=answered, refused={})
            )
            worker.state = "idle"
            return
        self.events.append(
            SettleEnded(process=worker.name, at=self._now, number=receipt, answered=True, refused={receipt: "LOST"})
        )
        worker.state = "idle"

    def _expire(self) -> None:
        self._in_flight = {
            receipt: (sent, ends_at) for receipt, (sent, ends_at) in self._in_flight.items() if ends_at > self._now
        }
