"""The rules by which Hypothesis drives the simulation."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from logbroker.pacing import at_once
from logbroker.queues.machine.inspect import Inspector
from logbroker.queues.model.lane import DEAD_LETTERING
from logbroker.queues.model.settings import OnExhausted, Ordering, Priority, PriorityRank, QueueGroupSettings
from tests.queues.session_simulation import SessionWorld

WORKERS = st.sampled_from(["v", "w"])
KEYS = st.sampled_from([b"a", b"b", b"c", b"dd", None])


def settings_of(
    ordering: Ordering,
    on_exhausted: OnExhausted,
    max_attempts: int = 2,
    priority: Priority = Priority.NONE,
    priority_rank: PriorityRank = PriorityRank.LANE,
) -> QueueGroupSettings:
    return QueueGroupSettings(
        priority=priority,
        priority_rank=priority_rank,
        age_seconds=0.01,
        ordering=ordering,
        lease_seconds=10.0,
        max_attempts=max_attempts,
        backoff_initial_seconds=4.0,
        backoff_cap_seconds=6.0,
        backoff_jitter=0.0,
        on_exhausted=on_exhausted,
        dead_letter_topic="dead" if on_exhausted is OnExhausted.DEAD_LETTER else "",
        grace_seconds=2.0,
        max_in_flight=8,
    )


class QueueMachine(RuleBasedStateMachine):
    """Rules do nothing where they do not apply, so that long runs stay likely."""

    orderings: tuple[Ordering, ...] = tuple(Ordering)
    policies: tuple[OnExhausted, ...] = tuple(OnExhausted)

    attempts: tuple[int, ...] = (1, 2, 3)
    priorities: tuple[Priority, ...] = (Priority.NONE,)
    ranks: tuple[PriorityRank, ...] = tuple(PriorityRank)

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        ordering = data.draw(st.sampled_from(self.orderings))
        on_exhausted = data.draw(st.sampled_from(self.policies))
        attempts = data.draw(st.sampled_from(self.attempts))
        priority = data.draw(st.sampled_from(self.priorities)) if ordering is not Ordering.SINGLE else Priority.NONE
        rank = data.draw(st.sampled_from(self.ranks))
        partitions = 1 if ordering is Ordering.SINGLE else 2
        self.world = SessionWorld(settings_of(ordering, on_exhausted, attempts, priority, rank), partitions)

    # --- the log -----------------------------------------------------------------------------------------------------

    @rule(keys=st.lists(KEYS, min_size=1, max_size=6), gap=st.integers(0, 2))
    def append(self, keys: list[bytes | None], gap: int) -> None:
        for key in keys:
            self.world.append(key, gap, 0)
            gap = 0

    @rule(key=KEYS, ahead_seconds=st.integers(-1, 8))
    def append_delayed(self, key: bytes | None, ahead_seconds: int) -> None:
        self.world.append(key, 0, self.world.now.wall_ms + ahead_seconds * 1000)

    @precondition(lambda self: self.world.settings.ordering is not Ordering.SINGLE and len(self.world.ends) < 4)
    @rule()
    def grow(self) -> None:
        self.world.grow()
        self.world.open_partitions()

    @rule(partition=st.integers(0, 3), records=st.integers(1, 8))
    def scan(self, partition: int, records: int) -> None:
        self.world.scan(partition, records)

    @rule()
    def scan_all(self) -> None:
        for _ in range(len(self.world.ends)):
            for partition in range(len(self.world.ends)):
                self.world.scan(partition, 1000)

    # --- workers -----------------------------------------------------------------------------------------------------

    @rule(worker=WORKERS, credit=st.integers(-1, 8))
    def take(self, worker: str, credit: int) -> None:
        self.world.take(worker, credit)

    @rule(
        worker=WORKERS,
        how=st.sampled_from(["ack", "ack", "nack", "release", "extend"]),
        pick=st.integers(0, 20),
        length=st.integers(1, 5),
        delay_seconds=st.none() | st.integers(0, 5),
    )
    def settle(self, worker: str, how: str, pick: int, length: int, delay_seconds: float | None) -> None:
        """Rather what the worker holds, at times anything that was ever handed out, or never."""
        world = self.world
        held = [receipt for receipt, (_, holder, _) in world.in_flight.items() if holder == worker]
        known = [*held, *held, *sorted(world.issued), *sorted(world.old_receipts)[-2:]]
        if known:
            first = known[pick % len(known)]
            world.settle(worker, how, first, first + length - 1, delay_seconds)

    @rule(
        worker=WORKERS,
        keys=st.lists(KEYS, max_size=7),
        how=st.sampled_from(["ack", "nack", "nack all", "every other", "hold"]),
    )
    def work(self, worker: str, keys: list[bytes | None], how: str) -> None:
        """Run a sequence that the rules above seldom produce: records arrive, are taken and settled."""
        for key in keys:
            self.world.append(key, 0, 0)
        self.scan_all()
        granted = self.world.take(worker, 8)
        for number, receipt in enumerate(receipt for piece in granted for receipt in piece.receipts()):
            if how == "ack" or (how == "every other" and number % 2):
                self.world.settle(worker, "ack", receipt, receipt, None)
            elif how == "nack all" or (how == "nack" and not number):
                self.world.settle(worker, "nack", receipt, receipt, 0)

    def ack_all(self, worker: str) -> None:
        for receipt, (_, holder, _) in list(self.world.in_flight.items()):
            if holder == worker:
                self.world.settle(worker, "ack", receipt, receipt, None)

    @rule(worker=WORKERS)
    def break_stream(self, worker: str) -> None:
        world = self.world
        world.expire()
        world.queue.lifecycle.gone(worker, world.now)
        world.gone[worker] = world.seconds + world.settings.grace_seconds

    @rule(worker=WORKERS)
    def come_back(self, worker: str) -> None:
        world = self.world
        world.expire()
        assert world.queue.lifecycle.back(worker, world.now) == (world.gone.pop(worker, None) is not None)

    @rule(worker=WORKERS)
    def reclaim(self, worker: str) -> None:
        self.world.reclaim(worker)

    @rule(worker=WORKERS)
    def say_goodbye(self, worker: str) -> None:
        world = self.world
        world.expire()
        world.gone.pop(worker, None)
        world.queue.lifecycle.goodbye(worker, world.now)
        world.lose_all(worker, failed=False)

    # --- time --------------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0, 7.0, 12.0]))
    def wait(self, seconds: float) -> None:
        self.world.seconds += seconds

    # --- group epochs ------------------------------------------------------------------------------------------------

    @rule()
    def commit(self) -> None:
        self.world.commit()

    @rule(clean=st.booleans(), committed=st.booleans(), then_scan=st.booleans())
    def restart(self, clean: bool, committed: bool, then_scan: bool) -> None:
        if committed:
            self.world.commit()
        self.world.crash(clean=clean)
        if then_scan:
            self.scan_all()

    @rule(finish=st.booleans(), refused=st.frozensets(st.integers(0, 6)), unread=st.frozensets(st.integers(0, 6)))
    def dead_letters(self, finish: bool, refused: frozenset[int], unread: frozenset[int]) -> None:
        """Appended and done, but for some that are refused; or only appended, as before a crash."""
        if finish:
            self.world.finish_dead_letters(refused, unread)
        else:
            self.world.send_letters(refused, unread)

    @rule(pick=st.integers(0, 5), how=st.sampled_from(["resume", "skip", "drop"]))
    def operate(self, pick: int, how: str) -> None:
        heads = self.world.held_heads()
        if heads and self.world.altered is None:
            self.world.decide(heads[pick % len(heads)], how)

    @precondition(lambda self: self.world.settings.ordering is not Ordering.SINGLE and self.world.altered is None)
    @rule()
    def alter(self) -> None:
        """Another ordering, as soon as what is in flight is settled."""
        world = self.world
        world.expire()
        world.queue.tick(world.now)
        if world.state.parked or "park" in world.state.stands.values():
            return
        other = Ordering.NONE if world.settings.ordering is Ordering.KEY else Ordering.KEY
        settings = world.settings
        world.altered = settings_of(
            other, settings.on_exhausted, settings.max_attempts, settings.priority, settings.priority_rank
        )
        world.rescanned = True
        world.queue.alter(world.altered)

    # --- what always holds -------------------------------------------------------------------------------------------

    @invariant()
    def follow_the_alteration(self) -> None:
        """The shell scans again at once when the queue asks for it."""
        world = getattr(self, "world", None)
        if world is not None and world.altered is not None:
            world.expire()
            world.queue.tick(world.now)
            world.commit()

    @invariant()
    def counts_agree(self) -> None:
        world = getattr(self, "world", None)
        if world is not None and world.altered is None:
            world.expire()
            world.queue.tick(world.now)
            inspector = Inspector(world.queue)
            counts = inspector.counts()
            letters = [lane for lane in at_once(inspector.waiting_lanes()) if lane.state == DEAD_LETTERING]
            assert counts.moving_lanes or not letters
            assert counts.in_flight == len(world.in_flight)
            assert counts.ready == len(world.ready())
            assert counts.sessions == len(world.holds)
            world.check_sessions()
            world.check_parked()
            assert counts.open == len(world.admitted - world.state.done)
            for partition in range(len(world.ends)):
                floor = world.queue.done.floor(partition)
                undone = [
                    record_id
                    for record_id in world.order
                    if record_id not in world.state.done and record_id >> 48 == partition
                ]
                assert not undone or floor <= undone[0] & 0xFFFF_FFFF_FFFF, "the floor moved over an undone record"
            if world.knows_ranks:
                busy = {record_id for record_id, _, _ in world.in_flight.values()}
                waiting = [world.ranks[record_id][0] for record_id in world.admitted - world.state.done - busy]
                told = {each.priority: each.waiting for each in world.queue.priority_counts() if each.waiting}
                assert told == {priority: waiting.count(priority) for priority in set(waiting)}

    def teardown(self) -> None:
        """Everything that was appended is done in the end, or a dead letter."""
        world = getattr(self, "world", None)
        if world is None:
            return
        world.queue.sessions.forget_unclaimed()
        world.unclaimed.clear()
        self.say_goodbye("v")
        self.say_goodbye("w")
        for _ in range(3 * len(world.order) + 10):
            self.follow_the_alteration()
            self.scan_all()
            for record_id in world.held_heads():
                world.decide(record_id, "resume")
            self.take("v", 100)
            self.ack_all("v")
            world.finish_dead_letters()
            world.seconds += 10
            if len(world.state.done) == len(world.order):
                break
        world.commit()
        assert world.state.done == set(world.order), "lost"
        assert world.queue.open_records == 0
        assert not [key for key in world.rows if key[:1] in b"akdrz"], "rows of records that are done"
        ranking = world.queue.lanes.ranking
        if ranking is not None:
            assert (ranking.ranks.pages, sum(ranking.waiting)) == (0, 0), "ranks of records that are done"
