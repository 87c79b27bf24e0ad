"""The state machine of one queue group: decides which record goes to which worker.

It has no I/O and no clock. The runtime of the group (`logbroker.queues.group`) passes inputs to it and carries out its
outputs.

The runtime scans the topic and passes the columns of each batch (`admit`), takes records for workers that have credit
(`take`), passes on their settlements (`settle`), and calls `tick` at `deadline` at the latest. After any inputs it must
carry out what `take_outputs` returns: first commit the events in one transaction, then append the dead letters and the
new entries of the outbox, then answer the settlements. The first outputs contain the group epoch, which makes the
receipts unique: the runtime commits them before it hands anything out. The runtime also calls `sessions.take` for each
session in `sessions.ready`, and tells `lifecycle` of workers that come and go.

A lane in a session is not in the ready queue: see `sessions`.

Why at most one record of a lane is in flight, and in order: a lane has one state, and only a ready lane is in the queue
from which `take` removes lanes. The lane returns to the queue only after its delivery was settled, lost or given back,
and each of these steps first takes the receipt out of the grants. Only the head is handed out, and the next record
becomes the head only when the head is done. Successors lie in the order of admission, which is offset order within a
partition, and admission only goes forward.

Why nothing is lost: a record is done only by an ack, a synced dead letter or an operator's decision, or because it was
deleted from the log. All other records lie at or above the floor of their partition and are not marked as done, and a
start scans from the floors. A repeated delivery is marked as redelivered (see `redelivery`): the record has failures,
was given back, or may have been handed out before the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from operator import attrgetter
from typing import Any, Final

from logbroker.engine import StateEvent
from logbroker.errors import LogbrokerError
from logbroker.queues.machine.admission import Admission
from logbroker.queues.machine.alteration import Alteration
from logbroker.queues.machine.fifo import FifoLine
from logbroker.queues.machine.lane_index import LaneIndex
from logbroker.queues.machine.leases import FIRST_EPOCH, Deliveries
from logbroker.queues.machine.outcomes import Outcomes
from logbroker.queues.machine.parts import MachineParts
from logbroker.queues.machine.reconnect_grace import ReconnectGraces
from logbroker.queues.machine.reindex import Index
from logbroker.queues.machine.sessions import Sessions
from logbroker.queues.machine.settlement import Settling
from logbroker.queues.machine.splitting import Splitting
from logbroker.queues.machine.stalled_lanes import StalledLanes
from logbroker.queues.machine.successors import ChunkStore
from logbroker.queues.machine.worker_lifecycle import WorkerLifecycle
from logbroker.queues.model.lane import Lane, Run
from logbroker.queues.model.messages import DeliveryCounts, Granted, Outputs, PriorityCounts, Refusal, Settlement
from logbroker.queues.model.record_id import Moment, record_id_of
from logbroker.queues.model.settings import GROUP_TYPE, Ordering, QueueGroupSettings
from logbroker.queues.priority.policy import levels_of
from logbroker.queues.records.ages import Ages
from logbroker.queues.records.columns import Block
from logbroker.queues.state.change_set import ChangeSet
from logbroker.queues.state.completion import DoneRecords, RecordIds
from logbroker.queues.state.dead_letter_intents import DeadLetters, Route
from logbroker.queues.state.failures import Failures
from logbroker.queues.state.origins import Origins
from logbroker.queues.state.outbox import TransactionalOutbox
from logbroker.queues.state.redelivery import Redelivery
from logbroker.queues.state.replacements import Replacements
from logbroker.queues.state.rows import HEADER_ROW, VERSION, HeaderRow, upsert
from logbroker.queues.state.splits import Splits
from logbroker.record.bands import Band
from logbroker.record.message_headers import DEFAULT_PRIORITY

_head: Final = attrgetter("head")

LEASE_ENDED: Final = "the lease ended"


class Queue:
    """The state machine of one queue group. Its parts are public for `load` and for `Inspector`."""

    def __init__(
        self,
        topic_id: bytes,
        settings: QueueGroupSettings,
        *,
        random: Callable[[], float],
        route: Route,
        store: ChunkStore | None = None,
        group_epoch: int = FIRST_EPOCH,
    ) -> None:
        """Make a new group; `load.load_queue` loads an existing one. `random` draws from [0, 1), `route` chooses
        partitions of the dead-letter topic. `group_epoch` is above all numbers that a group of this name has ever given
        out: receipts and tokens begin there. Raises InvalidRequestError."""
        settings.check()
        self.topic_id = topic_id
        self.group_epoch = group_epoch
        self.previous_epoch = 0
        """The group epoch that ended with the last stop or crash of the broker; 0: none."""
        self.after_crash = False
        """Whether the earlier broker did not stop cleanly. In both cases, workers may for some time reclaim their
        sessions and deliveries, first with `sessions.reclaim`, then with `reclaim`. `sessions.forget_unclaimed` ends
        this grace."""
        self._changes = changes = ChangeSet()
        changes.events.append(upsert(HEADER_ROW, HeaderRow(VERSION, GROUP_TYPE, topic_id, group_epoch)))
        self.done = DoneRecords(changes)
        self.lanes = LaneIndex(changes, store)
        self._successors = self.lanes.successors
        self.deliveries = Deliveries(group_epoch)
        self.failures = Failures(changes)
        self.splits = Splits(changes)
        # All letters of a split key go to one partition, which keeps them in order.
        self.dead_letters = DeadLetters(lambda key: route(None if key is None else self.splits.lane_of(key)), changes)
        self.replacements = Replacements(changes)
        self.origins = Origins(changes)
        self.outbox = TransactionalOutbox(changes)
        self.stalled = StalledLanes(
            settings, self.lanes, self.failures, self.dead_letters, self.replacements, random, changes
        )
        self.redelivery = Redelivery()
        self.ages = Ages()
        self.admission = Admission(self.done, self.lanes, self.stalled, self.redelivery)
        parts = MachineParts(
            self.done,
            self.lanes,
            self.deliveries,
            self.failures,
            self.dead_letters,
            self.replacements,
            self.stalled,
            self.redelivery,
            self.admission,
            self.origins,
        )
        self.outcomes = Outcomes(parts)
        self._graces = ReconnectGraces()
        self.sessions = Sessions(
            group_epoch,
            self.lanes,
            self.deliveries,
            self.stalled,
            self.redelivery,
            self.outcomes,
            self._graces,
            self.splits,
            self.tick,
            changes,
        )
        self.splitting = Splitting(self.splits, parts, self.sessions, settings)
        self.lifecycle = WorkerLifecycle(
            self.deliveries, self.stalled, self.sessions, self.outcomes, self._graces, self.tick
        )
        self._index = Index(parts, self.outcomes, self.sessions, self.splitting, changes)
        self.alteration = Alteration(settings, parts, self._index, self.sessions, self.splitting, self.ages, changes)
        self._settling = Settling(self.deliveries, self.outcomes, self.sessions, self.stalled, self.outbox)

    @property
    def settings(self) -> QueueGroupSettings:
        """The settings in effect. Settings given to `alter` may have to wait."""
        return self.alteration.settings

    @property
    def next_number(self) -> int:
        """A number above all receipts and tokens that were given out."""
        return max(self.deliveries.next_receipt, self.sessions.last_token + 1)

    @property
    def open_records(self) -> int:
        """Number of records that are admitted and not done."""
        return self.outcomes.open_records

    @property
    def tally(self) -> DeliveryCounts:
        return self.outcomes.tally

    # --- the scan ----------------------------------------------------------------------------------------------------

    def open_partition(self, partition: int, start_offset: int) -> None:
        """Serve a partition from an offset on, unless it is served already."""
        self.admission.open(partition, start_offset)

    def position(self, partition: int) -> int:
        """Return the offset to scan the partition from. Skips pages (aligned ranges of offsets) in which all records
        are done."""
        return self.admission.position(partition)

    @property
    def wants_more(self) -> bool:
        """Whether the scan may go on. It pauses while enough records are ready, while `is_held_up`, while settings
        wait, and while a split is being finished. In a group with priorities it does not pause for ready records,
        because the most urgent record is known only when all waiting records are known."""
        settings = self.settings
        has_room = settings.has_priorities or self.lanes.ready_records < settings.max_ready_records
        is_splitting = self.splitting.is_changing and self.splitting.is_finishing
        return not self.draining and has_room and not self.is_held_up and not is_splitting

    @property
    def is_held_up(self) -> bool:
        """Whether so many lanes are stalled, or so many records are delayed, that the scan waits for some of them. It
        does not wait for records that wait for the scan."""
        settings, stalled = self.settings, self.stalled
        delayed = len(stalled.not_before)
        if delayed >= settings.max_delayed_records:
            delayed -= self.splitting.awaited_records
        return stalled.count >= settings.max_held_lanes or delayed >= settings.max_delayed_records

    def begin_generation(self, generation: int, start_offsets: Sequence[int]) -> None:
        """Go on with the records of a later generation of the topic; see `LogGeneration`.

        Raises ValueError while a record of the previous generation is not admitted.
        """
        self.admission.begin_generation(generation, start_offsets)

    def admit(
        self,
        partition: int,
        generation: int,
        offsets: Sequence[int],
        next_offset: int,
        keys: Sequence[bytes | None],
        not_before: Iterable[tuple[int, int]],
        now: Moment,
        timestamp_ms: int = -1,
        priorities: bytes = b"",
        times: Sequence[int] = (),
    ) -> None:
        """Admit the next records of a partition: ascending `offsets` below `next_offset`, where the next batch begins.
        `keys`: the key of each record's lane or sub-lane if the group has ordering `key`, or `single` with a split;
        otherwise empty. `not_before`: offsets and wall clock times (ms). `timestamp_ms`: time of the first record, -1
        if unknown. Alarms compute ages from it. `priorities`, `times`: for each record, as in `Columns`; without them,
        a group with priorities uses the default priority and `timestamp_ms`. Records that are done or lie below the
        position are skipped. Raises ValueError if the scan goes back.
        """
        if timestamp_ms >= 0:
            self.ages.admit(record_id_of(partition, self.admission.position(partition)), timestamp_ms)
        if self.settings.has_priorities:
            priorities = priorities or bytes((DEFAULT_PRIORITY,)) * len(offsets)
            times = times or [timestamp_ms] * len(offsets)
        self.outcomes.open_records += self.admission.admit(
            self.settings, partition, generation, offsets, next_offset, keys, not_before, now, priorities, times
        )

    def admit_block(self, partition: int, generation: int, block: Block, now: Moment) -> bool:
        """Admit a block of the next records of a partition, in a group with priorities and without ordering. The block
        is read at once if it has gaps, done records, records with stored state, or not-before times in the future.
        Otherwise the records of a priority are read when the first of them is the next to be handed out.

        Return False if the records cannot be read now: the caller must scan them. If they prove unreadable later, all
        partitions are scanned again as soon as all deliveries in flight are settled. Raises ValueError as `admit` does.
        """
        ranking = self.lanes.ranking
        assert ranking is not None
        assert self.settings.ordering is Ordering.NONE
        start = record_id_of(partition, self.admission.position(partition))
        admitted = self.admission.admit_block(ranking, self.settings, partition, generation, block, now)
        if admitted is None:
            return False
        self.ages.admit(start, min(compress(block.heads, block.counts))[0])
        self.outcomes.open_records += admitted
        return True

    # --- deliveries --------------------------------------------------------------------------------------------------

    def take(self, worker_id: str, credit: int, now: Moment, band: Band | None = None) -> list[Granted]:
        """Hand out up to `credit` records to a worker, as far as they are ready and the worker may hold them. With
        priorities they are in order of urgency, and only from `band` if one is given."""
        self.tick(now)
        if self.draining or worker_id in self._graces:
            return []
        worker = self.deliveries.worker(worker_id)
        credit = min(credit, self.settings.max_in_flight - worker.in_flight)
        if credit <= 0:
            return []
        taken = self.lanes.take(credit, levels_of(band))
        if self.admission.is_broken:
            # The records that cannot be read may be more urgent than these.
            for piece in taken:
                if not isinstance(piece, Run):
                    self.lanes.give_back(piece)
            self.alteration.rebuild_if_drained()
            return []
        deadline = now.seconds + self.settings.lease_seconds
        granted: list[Granted] = []
        for piece in taken:
            if isinstance(piece, Run):
                granted.append(self.outcomes.hand_out_run(worker, piece, deadline))
            else:
                if self.lanes.ranking is None:
                    # In log order, records are fetched and marked at a fraction of the cost.
                    piece.sort(key=_head)
                granted.append(self.outcomes.hand_out(worker, piece, deadline))
        return granted

    def ready_records(self, band: Band | None = None) -> int:
        """Return the number of records that could be handed out at once; with priorities, of a band."""
        line = self.lanes.line
        return line.records if isinstance(line, FifoLine) else line.ready(levels_of(band))

    def reclaim(
        self, worker_id: str, record_ids: Sequence[int], now: Moment, found: Sequence[Lane] | None = None
    ) -> list[Granted]:
        """Hand out again to a worker the records that it held when the broker ended, as far as they are ready. Call
        it in the grace after the start, while the runtime takes records for no worker. `found`: the result of
        `LaneIndex.find_heads` for the records; without it, this scans everything that is ready."""
        self.tick(now)
        if self.draining:
            return []
        worker = self.deliveries.worker(worker_id)
        room = max(0, self.settings.max_in_flight - worker.in_flight)
        lanes = self.lanes.take_these(sorted(set(record_ids))[:room], found)
        return [self.outcomes.hand_out(worker, lanes, now.seconds + self.settings.lease_seconds)] if lanes else []

    def settle(self, worker_id: str, settlement: Settlement, now: Moment) -> list[Refusal]:
        """Carry out a worker's settlement; return the refusals. The caller answers when the events are synced.

        If the settlement has states of sessions or outputs, and a state or an ack is refused, the whole settlement is
        refused. The first refusal then has receipts 0 to 0.
        """
        self.tick(now)
        refusals = self._settling.settle(worker_id, settlement, now)
        if self.draining or self.admission.is_broken or self._successors.is_broken:
            self.alteration.rebuild_if_drained()
        return refusals

    def expire(self, worker_id: str, receipt: int, now: Moment) -> None:
        """Finish a record that was handed out and is gone from the log. It counts as expired, not as acked."""
        if not self.settle(worker_id, Settlement(acks=[(receipt, receipt)]), now):
            self.tally.acked -= 1
            self.tally.expired += 1

    def wait_until_readable(
        self, worker_id: str, receipts: tuple[int, int], error: LogbrokerError, now: Moment
    ) -> None:
        """Let records that were handed out, and cannot be read now, wait until they can be. No attempt is counted: they
        never left the broker. They are tried again after growing pauses."""
        self.tick(now)
        self._settling.wait_until_readable(worker_id, receipts, error, now)
        if self.draining or self.admission.is_broken or self._successors.is_broken:
            self.alteration.rebuild_if_drained()

    def count_expired(self, partition: int, end: int, left: Sequence[int] = ()) -> None:
        """Count the unscanned records below offset `end` that were deleted. `left`: the offsets that still exist."""
        base = record_id_of(partition, 0)
        start = self.position(partition)
        if start < end:
            there = sum(start <= offset < end and base | offset not in self.done for offset in left)
            self.tally.expired += self.done.count_not_done(base | start, base | end) - there

    def excuse(self, worker_id: str, receipts: Sequence[tuple[int, int]]) -> None:
        """Let a worker keep deliveries that it may never have seen, until their lease or lock ends. If the lease or
        lock ends, or the worker is lost, no attempt is counted."""
        for first, last in receipts:
            self.deliveries.excuse(worker_id, first, last)

    def dead_lettered(self, record_id: int, now: Moment) -> None:
        """Mark the record of a synced dead letter as done. Raises KeyError for a record that was not on its way to the
        dead-letter topic."""
        self.outcomes.dead_lettered(record_id, now)

    # --- time --------------------------------------------------------------------------------------------------------

    def tick(self, now: Moment) -> None:
        """Carry out what is due: end leases, graces, backoffs and delays. If much is due, the rest is left to the next
        tick, which is due at once. Settlements of lost deliveries are refused even before that tick."""
        if now.seconds >= self.deadline() or self.draining:
            self._tick(now)
        if self.splitting.is_changing:
            self.splitting.step(now)

    def _tick(self, now: Moment) -> None:
        for worker, settled, excused in self.deliveries.pop_expired(now.seconds):
            if excused:
                self.outcomes.give_back(settled)
                continue
            self.outcomes.tally.leases_lost += len(settled)
            self.outcomes.fail(settled, worker.reason(LEASE_ENDED), None, now)
        self.lifecycle.end_graces(now)
        self.sessions.expire(now)
        self.stalled.tick(now.seconds)
        self.alteration.rebuild_if_drained()

    def deadline(self) -> float:
        """Return the latest monotonic time for the next `tick`; NEVER: none is needed. May be too early."""
        if self.lifecycle.going or ((self.admission.is_broken or self._successors.is_broken) and not self.draining):
            return 0.0
        return min(
            self.deliveries.leases.next_at,
            self.stalled.delays.deadlines.next_at,
            self.sessions.locks.next_at,
            self._graces.next_at,
        )

    @property
    def draining(self) -> bool:
        """Whether settings wait until all deliveries in flight are settled."""
        return self.alteration.next is not None

    @property
    def latest_settings(self) -> QueueGroupSettings:
        """The settings that were given last, even if they have not taken effect."""
        return self.alteration.next or self.settings

    # --- changes while it runs ---------------------------------------------------------------------------------------

    def alter(self, settings: QueueGroupSettings) -> None:
        """Change the settings. If they change the ordering or the ranking of lanes, nothing is handed out until all
        deliveries in flight are settled. Then the settings are stored, and the index is rebuilt by another scan. Raises
        InvalidRequestError."""
        self.alteration.alter(settings)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight, no session is open, and no settings wait."""
        return not (self.deliveries.in_flight or self.lanes.sessions or self.sessions.have_unclaimed or self.draining)

    def rebuild_index(self) -> None:
        """Empty the index of a queue that `is_idle`. It is rebuilt by another scan."""
        self.alteration.rebuild()

    def rewind(
        self,
        targets: Mapping[int, int],
        now: Moment,
        *,
        include_parked: bool = False,
        kept: Mapping[int, RecordIds] | None = None,
    ) -> None:
        """Begin some partitions at other offsets. Records below these offsets count as done. Records from these offsets
        on count as not done, and their failures are forgotten. The index is rebuilt by another scan.

        `kept`, by partition, are the records of blocked and parked lanes below the offset, which stay as they are (see
        `stalled_records.StalledRecords.below`). None: these records count as done, too, and lanes parked for one of
        them are no longer parked.

        All receipts and sessions become void, including those of other partitions, whose records are delivered again
        without a counted attempt. States of sessions stay. Parked lanes stay parked, now with the earlier records of
        their keys in front. With `include_parked`, the parked lanes of these partitions go on. Records that are on
        their way to the dead-letter topic still go there. Raises KeyError for a partition that is not open.
        """
        self.tick(now)
        self._index.rewind(targets, include_parked=include_parked, kept=kept)
        self.lifecycle.forget_going()
        self.ages.clear()
        self.alteration.rebuild_if_drained()

    @property
    def rescan_due(self) -> bool:
        """Whether the index was emptied, and the next outputs ask for another scan."""
        return self._changes.rescan

    # --- reports -----------------------------------------------------------------------------------------------------

    def priority_counts(self) -> list[PriorityCounts]:
        """Return the records by priority, the most urgent first. Only priorities that have occurred are included."""
        return [] if self.lanes.ranking is None else self.lanes.ranking.told()

    # --- outputs -----------------------------------------------------------------------------------------------------

    def take_outputs(self) -> Outputs:
        """Return the outputs for the runtime, and forget them."""
        outputs = self._changes.take()
        if self.redelivery.marks or self.redelivery.noted.pages:
            self.redelivery.drop_a_mark(self.done)
        if self._changes.unsent_letters:
            outputs.dead_letters = self.dead_letters.take(self.failures)
        return outputs

    def clear(self) -> list[Any]:
        """Forget all lanes, because the group is deleted; return the containers, for `pacing.let_go`."""
        self.lanes.clear()
        return self._changes.take().discarded

    def stop_events(self) -> list[StateEvent]:
        """Return the last events of a clean stop. They tell the next start which records were handed out."""
        events = self.take_outputs().events
        self.outcomes.mark_handed_out()
        return [*events, self.redelivery.stop_row(self.group_epoch)]
