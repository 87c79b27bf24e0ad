"""A group that reads a topic while partitions are added: its real coordinator, on a log and members in memory.

What the world may do: let the topic grow, append, remove what is old, take partitions offline, let members come, leave,
die, lose their streams, pause, fail and seek back, hold up and lose transactions, restart the broker, reset the offsets
of a group without members, let time pass. Members are honest: they read up to the end of the generation that they were
told last, as a fetch does, and commit, or tell, what they have read.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from logbroker.clock import SystemClock
from logbroker.config import TopicConfig
from logbroker.consumer_groups.assignors import AssignableTopic
from logbroker.consumer_groups.coordinator import Coordinator
from logbroker.consumer_groups.generations import ReadingState, ToldPosition
from logbroker.consumer_groups.group import Group
from logbroker.consumer_groups.membership import (
    AssignedOffsets,
    CommitDone,
    Ended,
    GenerationsToRead,
    MemberLink,
    MemberMessage,
)
from logbroker.consumer_groups.messages import Join, Joined
from logbroker.consumer_groups.offsets import OffsetTable, TopicCommit
from logbroker.consumer_groups.rows import GROUP_TYPE
from logbroker.consumer_groups.subscriptions import Subscription
from logbroker.engine import DiskUse, LogGeneration, Numbers, PartitionFacts, StateEvent, Topic
from logbroker.errors import (
    GroupNotEmptyError,
    LogbrokerError,
    PartitionOfflineError,
    StorageFailedError,
    UnknownTopicError,
)
from logbroker.group_runtime.group_store import GroupStore
from logbroker.types import PartitionKey, TopicId

TOPIC: Final = TopicId(b"t" * 16)
KEYS: Final = 20
GRACE_SECONDS: Final = 2.0
POLL_SECONDS: Final = 50_000
"""Longer than any history: what is told late never counts, but in the tests of that."""


class ShiftedLoop(asyncio.SelectorEventLoop):
    """A loop whose time goes on at a word."""

    shift_seconds = 0.0

    def time(self) -> float:
        return super().time() + self.shift_seconds


class TopicLog:
    """A topic: for each partition the keys of its records, with the number that each record has among all."""

    is_sole_writer = True
    partitions_per_read = 1
    waits_for_holders = True
    durability = ""

    async def learn_ends(self, topic_id: object, partitions: object) -> dict[int, LogbrokerError]:
        return {}

    def __init__(self, partitions: int) -> None:
        self.records: list[list[tuple[int, int]]] = [[] for _ in range(partitions)]
        self.starts = [0] * partitions
        self.offline: set[int] = set()
        self.spans = [LogGeneration(1, partitions, ())]
        self.sent = 0
        self.topic = self._now()

    def _now(self) -> Topic:
        return Topic(
            name="t",
            id=TOPIC,
            partitions=len(self.records),
            config=TopicConfig(),
            overrides={},
            generations=tuple(self.spans),
            created_at_ms=0,
        )

    def append(self, key: int) -> None:
        # Any spread that depends on the count moves keys when it grows.
        self.records[key * 7919 % 1009 % len(self.records)].append((key, self.sent))
        self.sent += 1

    def grow(self, partitions: int) -> None:
        self.spans.append(LogGeneration(len(self.spans) + 1, partitions, tuple(map(len, self.records))))
        added = partitions - len(self.records)
        self.records += [[] for _ in range(added)]
        self.starts += [0] * added
        self.topic = self._now()

    def generation_of(self, partition: int, offset: int) -> int:
        return next(
            span.generation
            for span in self.spans
            if (end := self.topic.end_of(span.generation, partition)) is None or offset < end
        )

    def topic_by_id(self, topic_id: TopicId) -> Topic:
        if topic_id != TOPIC:
            raise UnknownTopicError("another one")
        return self.topic

    def partition_facts(self, topic_id: TopicId, partition: int) -> PartitionFacts:
        if partition in self.offline:
            raise PartitionOfflineError("corrupt")
        end = len(self.records[partition])
        return PartitionFacts(
            log_start_offset=self.starts[partition],
            high_watermark=end,
            log_end_offset=end,
            leader_epoch=0,
            size_bytes=0,
            segments=1,
        )


class Store:
    """A StateStore whose transactions may wait, and be lost."""

    numbers: Numbers

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.is_slow = False
        self._waiting: list[asyncio.Future[None]] = []

    async def load(self, scope: str) -> dict[bytes, bytes]:
        return dict(self.rows)

    def check_room(self, use: DiskUse = DiskUse.USES_RESERVE) -> None:
        pass

    async def commit(self, scope: str, events: Sequence[StateEvent]) -> None:
        if self.is_slow:
            self._waiting.append(asyncio.get_running_loop().create_future())
            await self._waiting[-1]
        for event in events:
            if event.value is None:
                self.rows.pop(event.key, None)
            else:
                self.rows[event.key] = event.value

    def sync(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            future.set_result(None)

    def lose(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            future.set_exception(StorageFailedError("killed"))


class Stream:
    """The channel to one incarnation of a member, while that has no other one."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def send(self, message: MemberMessage) -> None:
        if self._client.stream is self:
            self._client.inbox.append(message)


class Client:
    """One incarnation of a member."""

    def __init__(self, world: World, name: str, *, commits: bool, latest: bool) -> None:
        self.world = world
        self.name = name
        self.commits = commits
        self.latest = latest
        world.lives += 1
        self.incarnation = world.lives
        self.inbox: list[MemberMessage] = []
        self.link: MemberLink | None = None
        self.stream: Stream | None = None
        self.joined = False
        self.epoch = 0
        self.held: dict[int, int] = {}
        """Positions."""
        self.generation = 0
        self.told: dict[int, tuple[int, ReadingState]] = {}
        self.states: dict[int, ReadingState] = {}

    def connect(self) -> None:
        self.inbox.clear()
        self.told.clear()
        self.joined = False
        stream = self.stream = Stream(self)
        join = Join(
            member_id=self.name,
            incarnation=self.incarnation,
            subscription=Subscription(("t",)),
            session_timeout_ms=3_600_000,
            rebalance_timeout_ms=86_400_000,
            max_poll_interval_ms=POLL_SECONDS * 1000,
            epoch=self.epoch,
            owned=frozenset(PartitionKey(TOPIC, partition) for partition in self.held),
        )
        self.link = self.world.group.join(join, stream)

    def disconnect(self) -> None:
        if self.link is not None:
            self.link.disconnected()
        self.lose_stream()

    def lose_stream(self) -> None:
        self.link, self.stream, self.joined = None, None, False
        self.inbox.clear()

    def hear(self) -> None:
        message = self.inbox.pop(0)
        match message:
            case Joined():
                self.joined = True
                if not message.resumed:
                    self.epoch, self.held = 0, {}
            case Ended():
                self.joined, self.held, self.epoch, self.link = False, {}, 0, None
            case GenerationsToRead():
                self.generation = message.topics[TOPIC]
            case AssignedOffsets():
                self._take(message)
            case CommitDone():
                assert not any(message.outcomes), message.outcomes

    def _take(self, assignment: AssignedOffsets) -> None:
        assert self.link is not None
        self.generation = assignment.generations.get(TOPIC, 0)
        if self.commits:
            self.commit()
        held = self.held
        self.held = {}
        for (_, partition), committed in assignment.partitions:
            if partition in held:
                self.held[partition] = held[partition]
            elif committed is not None:
                self.held[partition] = committed.offset
            else:
                self.held[partition] = self.world.place_at_start(partition, latest=self.latest)
        kept = held.keys() & self.held.keys()
        self.told = {partition: told for partition, told in self.told.items() if partition in kept}
        self.states = {partition: state for partition, state in self.states.items() if partition in kept}
        self.epoch = assignment.epoch
        self.link.taken(self.epoch)
        if self.commits and self.latest:
            self.commit()

    @property
    def reads(self) -> bool:
        return self.joined and self.link is not None and not self.link.ended

    def read(self, partition: int, count: int) -> bool:
        """Deliver what a fetch brings; return whether that was anything."""
        log = self.world.log
        if not self.reads or partition in log.offline or self.states.get(partition, ReadingState.READING).value:
            return False
        position = self.held[partition] = max(self.held[partition], log.starts[partition])
        self.world.note_start(partition, position)
        end = log.topic.end_of(self.generation, partition)
        end = len(log.records[partition]) if end is None else end
        for offset in range(position, min(end, position + count)):
            self.world.delivered(self, partition, offset)
            self.held[partition] = offset + 1
        return self.held[partition] > position

    def commit(self) -> None:
        if not self.reads or self.link is None:
            return
        offsets = {partition: at for partition, at in self.held.items() if at <= len(self.world.log.records[partition])}
        if offsets and self.epoch:
            self.link.commit(1, self.epoch, [TopicCommit(TOPIC, [*offsets], [*offsets.values()], [], [])])

    def tell(self) -> None:
        """As the client does: what stands at the end of its generation, and what is void of what was told."""
        if not self.reads:
            return
        positions = []
        for partition, position in self.held.items():
            end = self.world.log.topic.end_of(self.generation, partition)
            state = self.states.get(partition, ReadingState.READING)
            before = self.told.get(partition)
            is_to_be_told = state.value or (end is not None and position >= end) or before is not None
            if is_to_be_told and before != (position, state):
                self.told[partition] = (position, state)
                positions.append(ToldPosition(PartitionKey(TOPIC, partition), position, state))
        if self.link is not None:
            self.link.tell(positions)


class World:
    """One history; `run` it in a ShiftedLoop."""

    coordinator_class: type[Coordinator] = Coordinator

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.commits = self.rng.random() < 0.6
        """Whether the members of the group do."""
        self.latest = self.rng.random() < 0.2
        self.log = TopicLog(self.rng.randint(1, 3))
        self.store = Store()
        self.clients: list[Client] = []
        self.lives = 0
        self.frontiers: dict[int, int] = {}
        """Up to where each partition was delivered, or passed over, since the last reset."""
        self.last_numbers: dict[int, int] = {}
        """Last number per key, of records delivered for the first time since then."""
        self.excused: set[int] = set()
        """Partitions that could not be read at some time."""
        self.group = self._started()

    def _started(self) -> Coordinator:
        machine = Group("g", reconnect_grace_seconds=GRACE_SECONDS, max_members=100)
        machine.load(self.store.rows, self._topics(), asyncio.get_running_loop().time())
        store = GroupStore(self.store, "g", GROUP_TYPE, is_stored=True)
        offsets = OffsetTable(self.store.rows)
        return self.coordinator_class(
            "g", machine, offsets, store, SystemClock(), lambda _, number: len(self.log.records[number]), self.log
        )

    def _topics(self) -> dict[str, AssignableTopic]:
        return {"t": AssignableTopic("t", TOPIC, self.log.topic.partitions)}

    # --- what is delivered -------------------------------------------------------------------------------------------

    def place_at_start(self, partition: int, *, latest: bool) -> int:
        start = len(self.log.records[partition]) if latest else self.log.starts[partition]
        self.note_start(partition, start)
        return start

    def note_start(self, partition: int, offset: int) -> None:
        """Records before `offset` are not to be delivered, or were."""
        self.frontiers[partition] = max(self.frontiers.get(partition, 0), offset)

    def delivered(self, client: Client, partition: int, offset: int) -> None:
        frontier = self.frontiers.get(partition, 0)
        where = f"offset {offset} of partition {partition} for {client.name}"
        assert offset <= frontier, f"{where} comes before what lies at {frontier}"
        generation = self.log.generation_of(partition, offset)
        committed = self.group.offsets.of_topic(TOPIC)
        for other in range(self.log.spans[max(generation - 2, 0)].partitions if generation > 1 else 0):
            end = self.log.topic.end_of(generation - 1, other) or 0
            if other in self.excused or self.log.starts[other] >= end:
                continue
            reached = self.frontiers.get(other, 0)
            assert reached >= end, f"{where} is of generation {generation}, and {other} has only come to {reached}"
            if self.commits:
                assert end == 0 or (other in committed and committed[other].offset >= end), f"{where}: {other} is late"
        if offset == frontier:
            key, number = self.log.records[partition][offset]
            if not self.excused:
                assert self.last_numbers.get(key, -1) < number, f"{where} is behind a later record of its key"
            self.last_numbers[key] = max(number, self.last_numbers.get(key, -1))
            self.frontiers[partition] = offset + 1

    # --- what happens ------------------------------------------------------------------------------------------------

    async def breathe(self) -> None:
        for _ in range(8):
            await asyncio.sleep(0)

    def pass_time(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ShiftedLoop)
        loop.shift_seconds += seconds

    def join(self) -> None:
        self.lives += 1
        client = Client(self, f"m{self.lives}", commits=self.commits, latest=self.latest)
        client.connect()
        self.clients.append(client)

    async def restart(self) -> None:
        self.group.freeze()
        # What the broker before still does is done to nothing.
        before, self.store = self.store, Store()
        self.store.rows = dict(before.rows)
        before.is_slow = False
        before.lose()
        for client in self.clients:
            client.lose_stream()
        await self.breathe()
        self.group = self._started()

    def grow(self) -> None:
        if len(self.log.spans) < 5:
            self.log.grow(len(self.log.records) + self.rng.randint(1, 4))
            if self.rng.random() < 0.3:
                # Before groups are told.
                self._append(30)
            self.group.topics_changed(self._topics(), {TOPIC})

    def _append(self, count: int) -> None:
        for _ in range(self.rng.randint(1, count)):
            self.log.append(self.rng.randrange(KEYS))

    async def reset(self) -> None:
        """All leave, the offsets are set, some come again."""
        if not self.commits:
            return
        self.store.is_slow = False
        self.store.sync()
        for client in self.clients:
            if client.link is not None:
                client.link.leave()
        self.clients.clear()
        self.pass_time(2 * GRACE_SECONDS)
        for _ in range(3):
            # A timer that is late waits a little for those who are late.
            self.pass_time(2 * GRACE_SECONDS)
            await self.breathe()
        offsets = {}
        for partition, records in enumerate(self.log.records):
            offsets[partition] = self.rng.randint(self.log.starts[partition], len(records))
        try:
            await self.group.commit_offsets([TopicCommit(TOPIC, [*offsets], [*offsets.values()], [], [])])
        except GroupNotEmptyError:
            return
        self.frontiers = offsets
        self.last_numbers.clear()
        for _ in range(self.rng.randint(1, 3)):
            self.join()

    async def step(self) -> None:
        rng, client = self.rng, self.rng.choice(self.clients) if self.clients else None
        held = list(client.held) if client is not None else []
        partition = rng.choice(held) if held else 0
        match rng.choices(
            ("append", "grow", "join", "leave", "die", "break", "back", "hear", "read", "commit", "tell", "slow",
             "sync", "restart", "reset", "retention", "offline", "state", "seek", "time"),
            (10, 3, 3, 1, 1, 2, 6, 40, 40, 16, 16, 3, 12, 1, 1, 2, 0.3, 1, 1, 4),
        )[0]:  # fmt: skip
            case "append":
                self._append(12)
            case "grow":
                self.grow()
            case "join" if len(self.clients) < 4:
                self.join()
            case "leave" if client is not None and client.link is not None:
                client.link.leave()
                self.clients.remove(client)
            case "die" if client is not None:
                client.disconnect()
                self.clients.remove(client)
            case "break" if client is not None:
                client.disconnect()
            case "back" if client is not None and client.link is None:
                client.connect()
            case "hear" if client is not None and client.inbox:
                client.hear()
            case "read" if held and client is not None:
                client.read(partition, rng.randint(1, 10))
            case "commit" if client is not None and client.commits and client.reads:
                client.commit()
            case "tell" if client is not None and client.reads and self._may_tell():
                client.tell()
            case "slow":
                self.store.is_slow = True
            case "sync":
                self.store.is_slow = False
                self.store.sync()
            case "restart":
                await self.restart()
            case "reset":
                await self.reset()
            case "retention":
                partition = rng.randrange(len(self.log.records))
                self.log.starts[partition] = rng.randint(self.log.starts[partition], len(self.log.records[partition]))
            case "offline":
                self.log.offline.add(rng.randrange(len(self.log.records)))
                self.excused |= self.log.offline
            case "state" if held and client is not None:
                client.states[partition] = rng.choice((ReadingState.READING, ReadingState.PAUSED, ReadingState.FAILED))
                if client.states[partition] is ReadingState.FAILED:
                    self.excused.add(partition)
            case "seek" if held and client is not None and not client.commits:
                client.held[partition] = rng.randint(0, client.held[partition])
            case "time":
                self.pass_time(rng.choice((0.5, 1.5, 3.0)))
        await self.breathe()

    def _may_tell(self) -> bool:
        # Who will commit and has not yet tells nothing, or the group believes that it never commits.
        return not self.commits or bool(self.group.offsets.of_topic(TOPIC))

    # --- the end -----------------------------------------------------------------------------------------------------

    async def calm_down(self) -> None:
        """Everybody works on; in the end everything that can be read is delivered."""
        self.store.is_slow = False
        self.store.sync()
        if not self.clients:
            self.join()
        for round_ in range(200):
            await self.breathe()
            for client in self.clients:
                client.states.clear()
                if client.link is None:
                    client.connect()
                while client.inbox:
                    client.hear()
                for partition in list(client.held):
                    client.read(partition, 1000)
                if client.commits:
                    client.commit()
                if self._may_tell():
                    client.tell()
            self.pass_time(1.0)
            if round_ > 3 and self._is_done():
                return
        waits = self.group.generations.waits(TOPIC, asyncio.get_running_loop().time())
        raise AssertionError(f"the group is stuck: it has come to {self.frontiers}, and waits for {waits}")

    def _is_done(self) -> bool:
        return all(
            partition in self.log.offline
            or max(self.frontiers.get(partition, 0), self.log.starts[partition]) >= len(records)
            for partition, records in enumerate(self.log.records)
        )


def run(seed: int, steps: int, world_class: type[World] = World) -> World:
    """Run one history; raises AssertionError where a record comes too early, or never."""

    async def history() -> World:
        world = world_class(seed)
        world.join()
        for _ in range(steps):
            await world.step()
        await world.calm_down()
        world.group.freeze()
        return world

    with asyncio.Runner(loop_factory=ShiftedLoop) as runner:
        try:
            return runner.run(history())
        except AssertionError as error:
            error.add_note(f"run(seed={seed}, steps={steps}) does it again")
            raise
