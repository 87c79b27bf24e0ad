"""The bookkeeping of a queue group: handing out records, and recording their outcomes.

Every record that stops being in flight, because it is done, has failed or was given back, comes through here. There is
one exception: `sessions` handles the failed and returned records of a session.
"""

from __future__ import annotations

from logbroker.errors import LogbrokerError
from logbroker.queues.machine.fifo import FifoLine
from logbroker.queues.machine.leases import Settled
from logbroker.queues.machine.parts import MachineParts
from logbroker.queues.model.holders import LeaseHolder, WorkerSession
from logbroker.queues.model.lane import IN_FLIGHT, Lane, Run
from logbroker.queues.model.messages import DeliveryCounts, Granted
from logbroker.queues.model.record_id import Moment


class Outcomes:
    """Moves records between the parts of a queue group."""

    def __init__(self, parts: MachineParts) -> None:
        self.open_records = 0
        """Number of records that are admitted and not done."""
        self.tally = DeliveryCounts()
        self._done = parts.done
        self._lanes = parts.lanes
        self._deliveries = parts.deliveries
        self._failures = parts.failures
        self._dead_letters = parts.dead_letters
        self._stalled = parts.stalled
        self._redelivery = parts.redelivery
        self._replacements = parts.replacements
        self._admission = parts.admission
        self._origins = parts.origins

    # --- handing out -------------------------------------------------------------------------------------------------

    def hand_out(
        self, worker: LeaseHolder, lanes: list[Lane], deadline: float, session: WorkerSession | None = None
    ) -> Granted:
        """Hand out the heads of lanes, which are in flight from then on."""
        heads = [lane.head for lane in lanes]
        attempts = [self._failures.count(head) + 1 for head in heads] if self._failures else []
        first = self._deliveries.grant(worker, lanes, None, deadline, session)
        return Granted(first, heads, attempts, self._redelivery.flags(heads, self._failures))

    def hand_out_run(self, worker: LeaseHolder, run: Run, deadline: float) -> Granted:
        record_ids = range(run.start, run.end)
        first = self._deliveries.grant(worker, None, record_ids, deadline, is_redelivered=run.redelivered)
        return Granted(first, record_ids, [], [True] * len(record_ids) if run.redelivered else [])

    # --- finishing ---------------------------------------------------------------------------------------------------

    def finish(self, settled: Settled, now: Moment) -> None:
        """Mark records as done and let their lanes go on. The records must no longer be ready, stalled or in flight."""
        if isinstance(settled, range):
            self.open_records -= len(settled)
            self._done.mark_range(settled.start, settled.stop)
            self._origins.forget_all(settled)
        else:
            self.forget([lane.head for lane in settled])
            self._lanes.advance(settled, self._stalled.attention, lambda lane: self._stalled.enter(lane, now))

    def finish_lane(self, lane: Lane) -> int:
        """Mark all records of a lane as done; return their number. The lane must be neither ready nor in flight. Takes
        long if there are millions of records."""
        emptied = self._lanes.empty(lane)
        record_ids = [record_id for record_id in emptied if record_id not in self._stalled.done_in_line]
        self.forget(record_ids)
        self._stalled.forget_heads(emptied)
        return len(record_ids)

    def finish_successors(self, lane: Lane, count: int) -> int:
        """Mark up to `count` records behind the head of a lane as done; return how many of them were not done
        before."""
        taken = self._lanes.drop_successors(lane, count)
        record_ids = [record_id for record_id in taken if record_id not in self._stalled.done_in_line]
        self.forget(record_ids)
        self._stalled.forget_heads(taken)
        return len(record_ids)

    def dead_lettered(self, record_id: int, now: Moment) -> None:
        """Mark the record of a synced dead letter as done. Raises KeyError for a record that was not on its way to the
        dead-letter topic."""
        lane = self._dead_letters.done(record_id)
        if lane is not None:
            self.finish([lane], now)
            return
        self._failures.forget(record_id)
        self._replacements.forget_all((record_id,))
        self._origins.forget_all((record_id,))
        if record_id in self._done:
            # A rewind counted the record as done before its letter was synced.
            self._stalled.attention.discard(record_id)
            return
        self._done.mark((record_id,))
        if self._admission.has_admitted(record_id):
            # The ordering was changed before the letter was synced, and the record is now a successor.
            self.open_records -= 1
            self._stalled.done_in_line.add(record_id)
            self._stalled.attention.add(record_id)
        else:
            self._stalled.attention.discard(record_id)

    def forget(self, record_ids: list[int]) -> None:
        """Mark records as done, and forget everything else about them."""
        self.open_records -= len(record_ids)
        self._done.mark(record_ids)
        # Most records have no other state, so skip each part that is empty.
        if self._failures.by_record_id:
            self._failures.forget_all(record_ids)
        if self._redelivery.returned:
            self._redelivery.forget_all(record_ids)
        if self._replacements.records:
            self._replacements.forget_all(record_ids)
        if self._origins.by_record_id:
            self._origins.forget_all(record_ids)
        if self._stalled.read_failures.by_partition:
            self._stalled.read_failures.forget_all(record_ids)

    # --- taking back -------------------------------------------------------------------------------------------------

    def fail(self, settled: Settled, reason: str, delay_seconds: float | None, now: Moment) -> None:
        """Record failed attempts. `delay_seconds` None: the backoff of the settings."""
        lanes = settled if isinstance(settled, list) else [Lane(None, record_id, IN_FLIGHT) for record_id in settled]
        self._lanes.take_back(lanes)
        for lane in lanes:
            self._stalled.fail(lane, reason, delay_seconds, now)

    def wait_until_readable(
        self, settled: Settled, error: LogbrokerError, now: Moment, *, is_redelivered: bool
    ) -> None:
        """Let records that cannot be read now wait. `is_redelivered`: whether they are marked as redelivered."""
        lanes = settled if isinstance(settled, list) else [Lane(None, record_id, IN_FLIGHT) for record_id in settled]
        if is_redelivered:
            self._redelivery.returned.update(lane.head for lane in lanes)
        self._lanes.take_back(lanes)
        for lane in lanes:
            self._stalled.note_unreadable(lane.head, error, now)
            self._stalled.enter(lane, now)

    def give_back(self, settled: Settled, *, is_redelivered: bool = True) -> None:
        """Put records that were not worked on back into the ready queue, at its front or at their rank.
        `is_redelivered`: whether they are marked as redelivered when they are handed out again."""
        if isinstance(settled, range):
            line = self._lanes.line
            assert isinstance(line, FifoLine)
            line.give_back_run(settled.start, settled.stop, redelivered=is_redelivered)
        else:
            if is_redelivered:
                self._redelivery.returned.update(lane.head for lane in settled)
            self._lanes.give_back(settled)

    def note_handed_out(self) -> None:
        """Note that each record that is in flight or came back was handed out. The index, which knows them, is about to
        be emptied."""
        redelivery = self._redelivery
        redelivery.note_returned()
        if isinstance(self._lanes.line, FifoLine):
            for run in self._lanes.line.runs():
                if run.redelivered:
                    redelivery.note(range(run.start, run.end))
        for record_ids in self._deliveries.record_ids():
            redelivery.note(record_ids if isinstance(record_ids, range) else (record_ids,))

    def mark_handed_out(self) -> None:
        """In each partition, mark all records up to the last one that is in flight or came back as handed out. The
        start after a clean stop needs this mark."""
        self._redelivery.mark_returned()
        if isinstance(self._lanes.line, FifoLine):
            self._redelivery.mark(run.end - 1 for run in self._lanes.line.runs() if run.redelivered)
        for record_ids in self._deliveries.record_ids():
            self._redelivery.mark(record_ids[-1:] if isinstance(record_ids, range) else (record_ids,))
