"""The machine of a queue group whose keys are split and joined at random, beside a plain model of what it must do."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any, NamedTuple

from logbroker.errors import InvalidRequestError, LogbrokerError
from logbroker.queues.machine.inspect import Inspector
from logbroker.queues.machine.load import load_queue
from logbroker.queues.machine.queue import Queue
from logbroker.queues.machine.splitting import Moved
from logbroker.queues.model.holders import WorkerSession
from logbroker.queues.model.messages import Nack, Settlement
from logbroker.queues.model.record_id import Moment, offset_of, partition_of, record_id_of
from logbroker.queues.model.second_key import SecondKey, SplitBy
from logbroker.queues.model.settings import OnExhausted, Priority, QueueGroupSettings
from logbroker.queues.model.splits import Keying, Split

HEADER = "part"
PARTITIONS = 2
KEYS = (b"a", b"b")
SECOND_KEYS = (b"", b"0", b"1", b"2", b"3", b"4")
WORKERS = ("w", "v")
LEASE_SECONDS = 50.0


class Held(NamedTuple):
    """A delivery that a worker holds."""

    record_id: int
    worker: str
    is_split: bool
    """Whether it was handed out from a sub-lane."""
    session: int


class SplitWorld:
    """The log, the workers, and the queue. Each step checks what the workers see."""

    def __init__(self, seed: int, **settings: Any) -> None:
        self.random = random.Random(seed)
        self.settings = QueueGroupSettings(
            max_attempts=3,
            backoff_initial_seconds=5.0,
            backoff_jitter=0.0,
            lease_seconds=LEASE_SECONDS,
            **{"on_exhausted": self.random.choice((OnExhausted.BLOCK, OnExhausted.PARK)), **settings},
        )
        self.log: list[list[tuple[bytes, bytes, int]]] = [[] for _ in range(PARTITIONS)]
        """Key, second key and not-before time of each record."""
        self.rows: dict[bytes, bytes] = {}
        self.seconds = 1_000.0
        self.done: set[int] = set()
        self.durable_done: set[int] = set()
        self.failures: dict[int, int] = {}
        self.held: dict[int, Held] = {}
        self.sessions: dict[int, WorkerSession] = {}
        self.before_split: dict[bytes, set[int]] = {}
        """Records of a key that were in flight when it was split."""
        self.joins: list[tuple[bytes, set[int]]] = []
        """Keys that were joined, with their records of before that are not done."""
        self.has_waited: dict[int, float] = {}
        """Time before which a record may not be handed out again."""
        self.queue = self._new()
        self._commit()

    def _new(self) -> Queue:
        queue = Queue(bytes(16), self.settings, random=lambda: 0.0, route=lambda key: 0)
        self._open(queue)
        return queue

    def _open(self, queue: Queue) -> None:
        for partition in range(PARTITIONS):
            queue.open_partition(partition, 0)
        queue.begin_generation(1, ())

    @property
    def now(self) -> Moment:
        return Moment(self.seconds, int(self.seconds * 1000))

    def _commit(self) -> None:
        outputs = self.queue.take_outputs()
        for event in outputs.events:
            if event.value is None:
                del self.rows[event.key]
            else:
                self.rows[event.key] = event.value
        self.durable_done = set(self.done)
        for session, _ in outputs.lost_sessions:
            self.sessions.pop(session.token, None)
            self._lose(lambda held, token=session.token: held.session == token)
        if outputs.rescan:
            self.queue.begin_generation(1, ())

    def _lose(self, which: Any) -> None:
        for receipt in [receipt for receipt, held in self.held.items() if which(held)]:
            del self.held[receipt]

    # --- steps -------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        steps = [
            (self.append, 6),
            (self.scan, 8),
            (self.take, 10),
            (self.settle, 12),
            (self.move, 6),
            (self.split, 2),
            (self.join, 2),
            (self.wait, 4),
            (self.decide, 3),
            (self.open_session, 2),
            (self.close_session, 2),
            (self.crash, 1),
            (self.rebuild, 1),
        ]
        do = self.random.choices([each for each, _ in steps], [weight for _, weight in steps])[0]
        do()
        self._expire()
        self._commit()
        self.check()

    def append(self) -> None:
        partition = self.random.randrange(PARTITIONS)
        for _ in range(self.random.randrange(1, 8)):
            key = KEYS[0] if self.random.random() < 0.8 else KEYS[1]
            due_ms = self.now.wall_ms + 20_000 if self.random.random() < 0.05 else 0
            self.log[partition].append((key, self.random.choice(SECOND_KEYS), due_ms))

    def scan(self) -> None:
        partition = self.random.randrange(PARTITIONS)
        position = self.queue.position(partition)
        end = min(len(self.log[partition]), position + self.random.randrange(1, 12))
        if position >= end or not self.queue.wants_more:
            return
        offsets = range(position, end)
        keying = self.queue.splitting.scan_keying
        keys = [self.lane_of(record_id_of(partition, offset), keying) for offset in offsets]
        not_before = [(offset, due) for offset in offsets if (due := self.log[partition][offset][2])]
        self.queue.admit(partition, 1, offsets, end, keys, not_before, self.now, 0, bytes(len(keys)), [0] * len(keys))

    def lane_of(self, record_id: int, keying: Keying) -> bytes:
        partition, offset = partition_of(record_id), offset_of(record_id)
        key, second, _ = self.log[partition][offset]
        split = keying.splits.get(key)
        if split is None or not split.holds(partition, offset):
            return key
        return split.sub_lanes()[split.number_of(offset, key, ((HEADER, second),))]

    def take(self) -> None:
        worker = self.random.choice(WORKERS)
        for granted in self.queue.take(worker, self.random.randrange(1, 6), self.now):
            self._granted(worker, granted, 0)
        for session in self.queue.sessions.ready():
            for granted in self.queue.sessions.take(session, self.now):
                self._granted(session.worker.id, granted, session.token)

    def _granted(self, worker: str, granted: Any, session: int) -> None:
        attempts = granted.attempts or [1] * len(granted.record_ids)
        for record_id, attempt, receipt in zip(granted.record_ids, attempts, granted.receipts(), strict=True):
            key, _, due_ms = self.log[partition_of(record_id)][offset_of(record_id)]
            assert record_id not in self.done, "a record that is done is handed out"
            assert attempt == self.failures.get(record_id, 0) + 1, "attempts changed"
            assert due_ms <= self.now.wall_ms, "handed out before its time"
            assert self.has_waited.get(record_id, 0.0) <= self.seconds, "handed out before its backoff is over"
            is_split = self.lane_of(record_id, self.queue.splitting.keying) != key
            self._check_order(record_id, key, session)
            self.held[receipt] = Held(record_id, worker, is_split, session)

    def _check_order(self, record_id: int, key: bytes, session: int) -> None:
        keying = self.queue.splitting.keying
        lane = self.lane_of(record_id, keying)
        partition = partition_of(record_id)
        for held in self.held.values():
            if session and held.session == session:
                continue
            other = self.log[partition_of(held.record_id)][offset_of(held.record_id)][0]
            assert other != key or self.lane_of(held.record_id, keying) != lane, "two of a lane are in flight"
        assert not self.before_split.get(key), "handed out before the flight of the lane was over"
        for joined, before in self.joins:
            if joined in self.queue.splits.by_key:
                assert joined != key or record_id in before or not before, "handed out before the sub-lanes were done"
        for offset in range(offset_of(record_id)):
            earlier = record_id_of(partition, offset)
            in_session = any(held.record_id == earlier and held.session == session for held in self.held.values())
            if earlier not in self.done and not (session and in_session):
                assert self.lane_of(earlier, keying) != lane, f"{offset_of(record_id)} overtakes {offset}"

    def settle(self) -> None:
        if not self.held:
            return
        receipt = self.random.choice(list(self.held))
        held = self.held[receipt]
        if held.session:
            # In order: a session may settle in any order, which the model of sessions tests.
            receipt = min(each for each, other in self.held.items() if other.session == held.session)
            held = self.held[receipt]
        how = self.random.choice(("ack", "ack", "ack", "nack", "release"))
        settlement = {
            "ack": Settlement(acks=[(receipt, receipt)]),
            "nack": Settlement(nacks=[Nack(receipt, receipt, "broken")]),
            "release": Settlement(releases=[(receipt, receipt)]),
        }[how]
        if how != "ack" and held.session:
            self._lose(lambda other: other.session == held.session)
        else:
            del self.held[receipt]
        if how == "ack":
            self._done(held.record_id)
        elif how == "nack":
            self._failed(held.record_id)
        refusals = self.queue.settle(held.worker, settlement, self.now)
        assert not refusals, refusals
        self._settled()

    def _done(self, record_id: int) -> None:
        self.done.add(record_id)
        self.failures.pop(record_id, None)
        self.has_waited.pop(record_id, None)
        for _, before in self.joins:
            before.discard(record_id)

    def _failed(self, record_id: int) -> None:
        count = self.failures[record_id] = self.failures.get(record_id, 0) + 1
        self.has_waited[record_id] = self.seconds + 5.0 * 2 ** (count - 1) - 0.01 if count < 3 else float("inf")

    def _settled(self) -> None:
        flying = {held.record_id for held in self.held.values()}
        for key, before in self.before_split.items():
            self.before_split[key] = before & flying

    def move(self) -> None:
        """As `Splitter` does."""
        splitting = self.queue.splitting
        splitting.step(self.now)
        key = splitting.next_key(self.now)
        if key is None:
            return
        split = self.queue.splits.by_key[key]
        record_ids = splitting.next_records(key, self.random.randrange(1, 10))
        moved = []
        for record_id in record_ids:
            lane = self.lane_of(record_id, splitting.keying)
            assert lane != key
            moved.append(Moved(record_id, lane, 0, 0))
        if self.random.random() < 0.1:
            self.scan()  # Something happens while the log is read.
        splitting.move(split, moved, self.now)

    def split(self) -> None:
        key = KEYS[0] if self.random.random() < 0.8 else KEYS[1]
        by = SecondKey(SplitBy.HEADER, HEADER) if self.random.random() < 0.8 else SecondKey(SplitBy.NONE)
        split = Split(key, by, self.random.choice((2, 3, 8)), 0)
        was_split = key in self.queue.splits.by_key
        try:
            self.queue.splitting.split(split, self.now)
        except InvalidRequestError:
            assert was_split or any(map(self.queue.sessions.get, split.sub_lanes()))
            return
        self.joins = [(joined, before) for joined, before in self.joins if joined != key]
        if not was_split:
            self.before_split[key] = {
                held.record_id
                for held in self.held.values()
                if self.log[partition_of(held.record_id)][offset_of(held.record_id)][0] == key
            }
        self._settled()

    def join(self) -> None:
        key = self.random.choice(KEYS)
        split = self.queue.splits.by_key.get(key)
        if split is None or split.ends is not None:
            return
        before = {
            record_id_of(partition, offset)
            for partition in range(PARTITIONS)
            for offset in range(self.queue.position(partition))
            if self.log[partition][offset][0] == key
        } - self.done
        self.before_split.pop(key, None)
        self.queue.splitting.join(key, self.now)
        self.joins.append((key, before))

    def wait(self) -> None:
        self.seconds += self.random.choice((0.5, 3.0, 12.0, LEASE_SECONDS + 1))
        self.queue.tick(self.now)

    def _expire(self) -> None:
        """Learn from the machine which deliveries are over: a lease ended, or a session."""
        flying: dict[int, int] = {}
        for worker in WORKERS:
            flying.update(self.queue.deliveries.held_by(worker))
        first_of_session: set[int] = set()
        for receipt, held in sorted(self.held.items()):
            if receipt not in flying:
                if not held.session or held.session not in first_of_session:
                    self._count_lost(held.record_id)
                first_of_session.add(held.session)
                del self.held[receipt]
        assert set(flying) == set(self.held)
        self._settled()

    def _count_lost(self, record_id: int) -> None:
        known = self.queue.failures.count(record_id)
        if known > self.failures.get(record_id, 0):
            assert known == self.failures.get(record_id, 0) + 1
            self._failed(record_id)

    def decide(self) -> None:
        inspector = Inspector(self.queue)
        lanes = inspector.held()
        if not lanes:
            return
        lane = self.random.choice(lanes)
        parked = self.queue.stalled.parked.get(lane.key or b"")
        head, causes = lane.head, [lane.head, *([] if parked is None else [parked.head])]
        try:
            if self.random.random() < 0.5:
                inspector.resume(lane)
            else:
                inspector.skip(lane, self.now)
                if head >= 0:
                    self._done(head)
        except LogbrokerError:
            return
        for record_id in causes:
            # Their attempts begin anew.
            self.failures.pop(record_id, None)
            self.has_waited.pop(record_id, None)

    def open_session(self) -> None:
        worker = self.random.choice(WORKERS)
        key = self.random.choice((None, None, *KEYS, b"a#1"))
        try:
            session = self.queue.sessions.open(worker, key, 3, self.now)
        except LogbrokerError:
            return
        if session is not None:
            self.sessions[session.token] = session

    def close_session(self) -> None:
        if not self.sessions:
            return
        token, session = self.random.choice(list(self.sessions.items()))
        del self.sessions[token]
        self._lose(lambda held: held.session == token)
        with suppress(LogbrokerError):
            self.queue.sessions.close(session.worker.id, session.key, token, self.now)
        self._settled()

    def crash(self) -> None:
        assert self.done == self.durable_done
        self.held.clear()
        self.sessions.clear()
        self.before_split.clear()
        ends = {partition: len(records) for partition, records in enumerate(self.log)}
        splits = self.queue.splits.by_key
        self.queue = load_queue(self.rows, ends, random=lambda: 0.0, route=lambda key: 0)
        assert self.queue.splits.by_key == splits, "a split is forgotten"
        self._open(self.queue)

    def rebuild(self) -> None:
        """As if a chunk of the index could not be read."""
        if self.queue.deliveries.in_flight or self.queue.draining:
            return
        self.queue.admission.is_broken = True
        self.queue.tick(self.now)
        self.sessions.clear()
        self.before_split.clear()

    # --- checks ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        admitted = sum(
            record_id_of(partition, offset) not in self.done
            for partition, records in enumerate(self.log)
            for offset in range(min(len(records), self.queue.position(partition)))
        )
        assert self.queue.open_records == admitted
        lanes = [lane for lane in self.queue.lanes if lane.head >= 0]
        in_sessions = sum(session.in_flight for session in self.queue.lanes.sessions.values())
        assert sum(map(len, lanes)) + in_sessions == admitted, "a record is in no lane, or in two"

    def finish(self) -> None:
        """Work everything off. Raises AssertionError if something is stuck."""
        for _ in range(20_000):
            if len(self.done) == sum(map(len, self.log)):
                return
            while self.sessions:
                self.close_session()
            for do in (self.scan, self.move, self.take, self.move):
                do()
                self._expire()
                self._commit()
            for receipt, held in list(self.held.items()):
                self._done(held.record_id)
                del self.held[receipt]
                assert not self.queue.settle(held.worker, Settlement(acks=[(receipt, receipt)]), self.now)
                self._settled()
                self._commit()
            for _ in Inspector(self.queue).held():
                self.decide()
            self.seconds += 5.0
            self.queue.tick(self.now)
            self._expire()
            self._commit()
            self.check()
        raise AssertionError("records are stuck")


def run(seed: int, steps: int = 250, **settings: Any) -> SplitWorld:
    """Run a world to its end. An error names the seed."""
    try:
        world = SplitWorld(seed, **settings)
        for _ in range(steps):
            world.step()
        world.finish()
    except Exception as error:
        error.add_note(f"seed {seed}, settings {settings}")
        raise
    return world


PRIORITIES: dict[str, Any] = {"priority": Priority.STRICT}
