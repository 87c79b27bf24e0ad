"""A queue group, its log and workers, beside a plain model of what the queue must do: see `model`."""

from __future__ import annotations

import math

from logbroker.engine import StateEvent
from logbroker.errors import StaleSessionError
from logbroker.queues.machine.inspect import Inspector
from logbroker.queues.machine.load import load_queue
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.messages import (
    DeadLetter,
    Extension,
    Granted,
    LetterProducer,
    Nack,
    SessionWrite,
    Settlement,
)
from logbroker.queues.model.record_id import record_id_of
from logbroker.queues.model.settings import Ordering, QueueGroupSettings
from tests.queues.lasting import DeadTopic, Hold
from tests.queues.model import Model


class World(Model):
    """All that lasts, and the present epoch of the queue."""

    def __init__(self, settings: QueueGroupSettings, partitions: int) -> None:
        self.held_before_crash: dict[str, list[int]] = {}
        self.old_receipts: set[int] = set()
        self.rows: dict[bytes, bytes] = {}
        self.tokens: dict[int, tuple[str, bytes]] = {}
        """All fencing tokens that were ever given, and for what."""
        self.dead_topic = DeadTopic()
        self.letters: list[DeadLetter] = []
        """Yet to be sent, or refused."""
        self.producers: dict[int, LetterProducer] = {}
        """Producers of dead letters, by partition; those set apart have their own."""
        super().__init__(settings, partitions)
        self.queue = Queue(bytes(16), settings, random=lambda: 0.0, route=self.route)
        self.begin_queue()

    # --- group epochs ------------------------------------------------------------------------------------------------

    def begin_queue(self) -> None:
        self.letters = []
        self.open_partitions()
        self.begin_scan()
        self.commit()
        apart = {letter.producer.producer_id for letter in self.letters if letter.producer is not None}
        rows = self.dead_topic.rows.items()
        self.producers = {partition: each for partition, each in rows if each.producer_id not in apart}

    def begin_scan(self) -> None:
        self.admitted.clear()
        self.waits.clear()
        self.generation = 1
        self.queue.begin_generation(1, ())

    def open_partitions(self) -> None:
        for partition in range(len(self.ends)):
            self.queue.open_partition(partition, 0)

    def crash(self, *, clean: bool) -> None:
        if clean:
            self.expire()
            self.queue.tick(self.now)
            self.commit()
            self.apply(self.queue.stop_events())
        old_receipts = set(self.issued)
        self.held_before_crash.clear()
        for record_id, worker, _ in self.in_flight.values():
            self.held_before_crash.setdefault(worker, [record_id + 1]).append(record_id)
        self.queue = load_queue(self.rows, dict(enumerate(self.ends)), random=lambda: 0.0, route=self.route)
        assert self.queue.after_crash is not clean
        assert self.queue.settings == self.settings
        self.seconds += 1000.0  # Another monotonic clock: only differences count.
        self.wall_offset_ms -= 1_000_000
        self.begin_model()
        self.begin_queue()
        self.old_receipts |= old_receipts

    def route(self, key: bytes | None) -> int:
        return len(key or b"") % 2

    def apply(self, events: list[StateEvent]) -> None:
        for event in events:
            if event.value is None:
                assert event.key in self.rows, f"{event.key!r} is deleted, but was never there"
                del self.rows[event.key]
            else:
                self.rows[event.key] = event.value

    def commit(self) -> None:
        """Make durable what the queue owes: what was answered until now must survive."""
        outputs = self.queue.take_outputs()
        self.apply(outputs.events)
        if outputs.rescan and self.altered is not None and self.altered.ordering is not self.settings.ordering:
            # Parked while the rest drained: the records stay so.
            self.state.stands |= dict.fromkeys(self.state.parked.values(), "park")
            self.state.parked.clear()
        if outputs.rescan:
            self.holds.clear()
            self.unclaimed.clear()
        self.state.held = {**self.unclaimed, **{key: hold.token for key, hold in self.holds.items()}}
        assert sum(key[:1] == b"z" for key in self.rows) == len(self.state.held)
        assert sum(key[:1] == b"y" for key in self.rows) == len(self.state.states)
        self.durable = self.state.copy()
        self.letters += outputs.dead_letters
        if outputs.rescan:
            assert not self.in_flight
            if self.altered is not None:
                self.settings, self.altered = self.altered, None
            self.begin_scan()

    # --- the scan ----------------------------------------------------------------------------------------------------

    def scan(self, partition: int, records: int) -> None:
        """Admit a batch, of the present generation or, where all of that is admitted, of the next."""
        partition %= len(self.ends)
        limit = self.ends[partition]
        while self.generation < len(self.growths):
            starts = self.growths[self.generation]
            try:
                self.queue.begin_generation(self.generation + 1, starts)
                self.generation += 1
            except ValueError:
                limit = starts[partition] if partition < len(starts) else 0
                break
        start = self.queue.position(partition)
        end = min(start + records, limit)
        if end <= start:
            return
        low = max(0, start - 1)  # As a batch that began before the position is read again.
        offsets = [offset for offset in range(low, end) if record_id_of(partition, offset) in self.keys]
        record_ids = [record_id_of(partition, offset) for offset in offsets]
        delays = [
            (offset, self.not_before[record_id])
            for offset, record_id in zip(offsets, record_ids, strict=True)
            if record_id in self.not_before
        ]
        self.expire()
        self.queue.tick(self.now)
        columns = [self.keys[record_id] for record_id in record_ids] if self.settings.ordering is Ordering.KEY else []
        ranks = [self.ranks[record_id] for record_id in record_ids]
        priorities, times = bytes(priority for priority, _ in ranks), [time for _, time in ranks]
        self.queue.admit(partition, self.generation, offsets, end, columns, delays, self.now, -1, priorities, times)
        self.admitted.update(record_id for record_id in record_ids if record_id not in self.state.done)

    # --- workers -----------------------------------------------------------------------------------------------------

    def take(self, worker: str, credit: int) -> list[Granted]:
        self.expire()
        held = sum(holder == worker for _, holder, _ in self.in_flight.values())
        room = 0 if worker in self.gone else min(credit, self.settings.max_in_flight - held)
        ready = self.ready()
        granted = self.queue.take(worker, credit, self.now)
        record_ids = [record_id for piece in granted for record_id in piece.record_ids]
        assert len(record_ids) == len(set(record_ids))
        assert set(record_ids) <= ready, "handed out although it is done, held, in flight, or not the first of its lane"
        assert len(record_ids) == min(max(room, 0), len(ready)), "a record that is ready waits though there is credit"
        if self.knows_ranks:
            assert record_ids == self.in_line(ready)[: len(record_ids)], "not in the order of their ranks"
        self.check_granted(worker, granted)
        return granted

    def reclaim(self, worker: str) -> None:
        """As a worker does that comes back after a crash of the broker, with all that it held and some more."""
        self.expire()
        wanted = self.held_before_crash.pop(worker, [])
        room = self.settings.max_in_flight - sum(holder == worker for _, holder, _ in self.in_flight.values())
        ready = self.ready()
        granted = self.queue.reclaim(worker, wanted, self.now)
        record_ids = [record_id for piece in granted for record_id in piece.record_ids]
        assert sorted(record_ids) == [record_id for record_id in sorted(set(wanted))[:room] if record_id in ready]
        self.check_granted(worker, granted)

    def check_granted(self, worker: str, granted: list[Granted], hold: Hold | None = None) -> None:
        for piece in granted:
            attempts = piece.attempts or [1] * len(piece)
            repeats = piece.redelivered or [False] * len(piece)
            for receipt, record_id, attempt, repeat in zip(
                piece.receipts(), piece.record_ids, attempts, repeats, strict=True
            ):
                assert receipt not in self.issued
                assert receipt not in self.old_receipts
                assert attempt == self.state.failures.get(record_id, 0) + 1
                assert repeat or record_id not in self.delivered, "a repeat without a mark"
                assert not repeat or self.repeats_may_be_marked or record_id in self.delivered
                self.issued[receipt] = worker
                self.in_flight[receipt] = record_id, worker, self.seconds + self.settings.lease_seconds
                if hold is not None:
                    hold.receipts.append(receipt)
                    self.in_flight[receipt] = record_id, worker, math.inf
                self.delivered.add(record_id)

    def settle(
        self,
        worker: str,
        how: str,
        first: int,
        last: int,
        delay_seconds: float | None,
        write: SessionWrite | None = None,
    ) -> None:
        self.expire()
        expected = {receipt: self.expected_errors(worker, receipt) for receipt in range(first, last + 1)}
        settlement = {
            "ack": Settlement(acks=[(first, last)]),
            "nack": Settlement(nacks=[Nack(first, last, "no", delay_seconds)]),
            "release": Settlement(releases=[(first, last)]),
            "extend": Settlement(extensions=[Extension(first, last, 20.0)]),
        }[how]
        if write is not None:
            settlement.states = [write]
        refusals = self.queue.settle(worker, settlement, self.now)
        if write is not None:
            hold = self.holds.get(write.key)
            fits = hold is not None and (hold.token, hold.worker) == (write.token, worker)
            if not fits or (how == "ack" and any(expected.values())):
                assert (refusals[0].first, refusals[0].last) == (0, 0)
                assert fits or isinstance(refusals[0].error, StaleSessionError)
                return
            self.state.states.pop(write.key, None)
            if write.state:
                self.state.states[write.key] = write.state
            self.prolong(write.key)
        refused = {
            receipt: type(refusal.error) for refusal in refusals for receipt in range(refusal.first, refusal.last + 1)
        }
        assert refused.keys() == {receipt for receipt, errors in expected.items() if errors}
        for receipt, errors in expected.items():
            if errors:
                assert refused[receipt] in errors
                continue
            if receipt in self.returned:
                continue
            record_id, _, _ = self.in_flight[receipt]
            key = next((key for key, hold in self.holds.items() if receipt in hold.receipts), None)
            if key is not None:
                self.settle_in_session(key, receipt, how, last, delay_seconds)
                continue
            if how == "extend":
                self.in_flight[receipt] = record_id, worker, self.seconds + 20.0
                continue
            del self.in_flight[receipt]
            self.settled.add(receipt)
            if how == "ack":
                self.finish(record_id)
            elif how == "nack":
                self.fail(record_id, delay_seconds)

    # --- dead letters and operators ----------------------------------------------------------------------------------

    def send_letters(
        self, refused: frozenset[int] = frozenset(), unread: frozenset[int] = frozenset(), *, are_done: bool = False
    ) -> list[DeadLetter]:
        """Append what is to be sent, as `DeadLetterSender` does; return what is there. `refused` names letters by their
        turns, `unread` those whose records cannot be read. `are_done`: those that are there are done in the same
        step."""
        machine = self.queue.dead_letters
        self.commit()
        self.letters = [letter for letter in self.letters if machine.holds(letter)]
        there: list[DeadLetter] = []
        cut: set[int] = set()
        """Partitions whose remaining letters wait for another round."""
        for turn, letter in enumerate(list(self.letters)):
            is_apart = letter.producer is not None
            if not is_apart and letter.partition in cut:
                continue
            if turn in unread:
                if not is_apart:
                    cut.add(letter.partition)
                    if self.before(letter):
                        continue  # Those are sent first, under the same producer.
                    self.set_apart(letter)
                machine.refuse(letter, "its record cannot be read")
                continue
            producer = letter.producer or self.producers.get(letter.partition)
            if producer is None or producer.producer_id < 0 or producer.base > letter.sequence:
                producer = self.another_producer(letter)
            machine.sending([letter])
            if turn in refused:
                batches = self.dead_topic.batches[letter.partition, producer.producer_id]
                if (letter.record_id, letter.sequence) not in batches:
                    machine.not_there(letter)
                    if not is_apart:
                        cut.add(letter.partition)
                        if any(not (are_done and each in there) for each in self.before(letter)):
                            continue  # A letter is set apart when all before it are durably done.
                        self.set_apart(letter)
                    machine.refuse(letter, "too large")
                    continue
            if not self.dead_topic.append(letter, producer):
                machine.not_there(letter)
                producer = self.another_producer(letter)
                machine.sending([letter])
                assert self.dead_topic.append(letter, producer)
            there.append(letter)
        return there

    def before(self, letter: DeadLetter) -> list[DeadLetter]:
        """The earlier letters of a letter's partition that are not set apart."""
        return [
            each
            for each in self.letters
            if each.producer is None and each.partition == letter.partition and each.sequence < letter.sequence
        ]

    def another_producer(self, letter: DeadLetter) -> LetterProducer:
        """It is stored before it is used, with all that happened before."""
        producer = self.dead_topic.new_producer(letter)
        if letter.producer is not None:
            self.queue.dead_letters.set_apart(letter, producer)
            self.commit()
        else:
            self.commit()
            self.producers[letter.partition] = self.dead_topic.rows[letter.partition] = producer
        return producer

    def set_apart(self, letter: DeadLetter) -> None:
        """With those after it that may be there already."""
        machine = self.queue.dead_letters
        producer = self.producers.pop(letter.partition, LetterProducer(b"", -1, -1, letter.sequence))
        behind = [
            each
            for each in self.letters
            if each.producer is None and each.partition == letter.partition and each.sequence > letter.sequence
        ]
        machine.set_apart(letter, producer)
        for each in behind:
            if machine.may_return(each.record_id):
                break
            machine.set_apart(each, producer)

    def finish_dead_letters(self, refused: frozenset[int] = frozenset(), unread: frozenset[int] = frozenset()) -> None:
        there = self.send_letters(refused, unread, are_done=True)
        self.letters = [letter for letter in self.letters if letter not in there]
        self.expire()
        self.queue.tick(self.now)
        for letter in there:
            if self.queue.dead_letters.holds(letter):
                self.queue.dead_lettered(letter.record_id, self.now)
                self.finish(letter.record_id)

    def held_heads(self) -> list[int]:
        self.expire()
        self.queue.tick(self.now)
        self.park_heads()
        heads = self.heads().items()
        stands = self.state.stands
        return [
            record_id
            for unit, record_id in heads
            if not self.is_busy(record_id)
            and (unit in self.state.parked or stands.get(record_id) in ("block", "park") or self.is_refused(record_id))
        ]

    def check_parked(self) -> None:
        """Check that a parked lane is reported with what it was parked for, scanned or not."""
        inspector, heads = Inspector(self.queue), self.heads()
        for unit, failed in self.state.parked.items():
            facts = inspector.explain(inspector.lane(unit), self.now)
            head = heads.get(unit, failed)
            assert facts.state == "parked"
            assert facts.head == head, "another first record than it had"
            # A rewind may have put a record that has not failed before the one that the lane was parked for.
            assert facts.attempt == self.state.failures.get(head, 0) + 1, "attempts are forgotten"
            count = self.state.failures.get(head) or self.state.failures[failed]
            assert facts.failure is not None
            assert len(facts.failure.reasons) == count
            assert (head in self.queue.stalled.set_aside) == (unit in heads)

    def is_refused(self, record_id: int) -> bool:
        """Whether the letter of a record waits for better times, and an operator may decide about it."""
        machine = self.queue.dead_letters
        return (
            bool(machine.refusal(record_id)) and machine.may_return(record_id) and machine.find(record_id) is not None
        )

    def decide(self, record_id: int, how: str) -> None:
        """An operator moves a held lane."""
        inspector, unit = Inspector(self.queue), self.unit(record_id)
        lane = inspector.lane(unit) if isinstance(unit, bytes) else inspector.lane_of_record(record_id)
        if isinstance(unit, bytes) and unit in self.state.parked:
            self.forget(self.state.parked.pop(unit))
        self.forget(record_id)
        self.waits[record_id] = self.seconds
        if how == "resume":
            inspector.resume(lane)
        elif how == "skip":
            inspector.skip(lane, self.now)
            self.finish(record_id)
        else:
            dropped = [
                other for other in self.order if other in self.admitted - self.state.done if self.unit(other) == unit
            ]
            assert inspector.drop(lane) == len(dropped)
            for other in dropped:
                self.finish(other)
