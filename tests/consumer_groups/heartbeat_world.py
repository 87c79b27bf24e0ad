"""A group in a hostile world: Kafka clients that send heartbeats, members with streams, a store that is held up, and a
broker that restarts.

What the world may do: lose answers, let clients give up partitions late, freeze, kill and replace them, hold up
transactions and lose them in a restart of the broker. A client is honest: it reads what it was told to, and what it
has not given up yet. A frozen client reads nothing, and hears from the broker before it reads again; before that it may
still commit.

Time is the loop's own: `Loop.skip` lets it pass.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Final, cast

from logbroker.clock import SystemClock
from logbroker.config import BrokerConfig
from logbroker.consumer_groups.classic.errors import FencedInstanceIdError
from logbroker.consumer_groups.coordinator import Coordinator
from logbroker.consumer_groups.groups import Groups
from logbroker.consumer_groups.heartbeats.errors import FencedMemberEpochError
from logbroker.consumer_groups.heartbeats.messages import AWAY, JOINING, LEAVING, HeartbeatAnswer, MemberHeartbeat
from logbroker.consumer_groups.membership import AssignedOffsets, Ended, MemberLink, MemberMessage
from logbroker.consumer_groups.messages import Join, Joined
from logbroker.consumer_groups.offsets import TopicCommit
from logbroker.consumer_groups.subscriptions import Subscription
from logbroker.engine import DiskUse, LogEngine, Numbers, StateEvent, Topic
from logbroker.errors import (
    InstanceIdInUseError,
    LogbrokerError,
    MemberNotReleasedError,
    StorageFailedError,
    UnknownGroupError,
    UnknownMemberError,
    UnknownTopicError,
)
from logbroker.types import PartitionKey, TopicId

GROUP: Final = "g"
SESSION_SECONDS: Final = 10.0
REBALANCE_MS: Final = 60_000
ROUNDS: Final = 200


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose time can be set forward."""

    skipped = 0.0

    def time(self) -> float:
        return super().time() + self.skipped

    def skip(self, seconds: float) -> None:
        self.skipped += seconds


class Store:
    """A state store whose commits wait while it is held."""

    numbers: Numbers

    def __init__(self) -> None:
        self.scopes: dict[str, dict[bytes, bytes]] = {}
        self.free = asyncio.Event()
        self.free.set()
        self.is_gone = False

    async def load(self, scope: str) -> dict[bytes, bytes]:
        return dict(self.scopes.get(scope, {}))

    def check_room(self, use: DiskUse = DiskUse.USES_RESERVE) -> None:
        pass

    async def commit(self, scope: str, events: Sequence[StateEvent]) -> None:
        await asyncio.sleep(0)
        await self.free.wait()
        if self.is_gone:
            raise StorageFailedError("the broker was killed")
        rows = self.scopes.setdefault(scope, {})
        for event in events:
            if event.value is None:
                rows.pop(event.key, None)
            else:
                rows[event.key] = event.value


class Topics:
    """As much of a log engine as groups ask for."""

    is_sole_writer = True
    partitions_per_read = 1
    waits_for_holders = True
    durability = ""

    async def learn_ends(self, topic_id: object, partitions: object) -> dict[int, LogbrokerError]:
        return {}

    def __init__(self) -> None:
        self.partitions = {"a": 4, "b": 2}
        self.listeners: list[Callable[[Topic], None]] = []
        self._known: dict[str, SimpleNamespace] = {}

    def topics(self) -> list[SimpleNamespace]:
        return [self.topic(name) for name in self.partitions]

    def topic(self, name: str) -> SimpleNamespace:
        if name not in self.partitions:
            raise UnknownTopicError(name)
        known = self._known.get(name)
        if known is None or known.partitions != self.partitions[name]:
            known = self._known[name] = SimpleNamespace(
                name=name,
                id=id_of(name),
                partitions=self.partitions[name],
                routing_bands=(),
                generation=1,
                generations=(),
            )
        return known

    def topic_by_id(self, topic_id: TopicId) -> SimpleNamespace:
        return self.topic(topic_id[:1].decode())

    def on_topics_changed(self, listener: Callable[[Topic], None]) -> Callable[[], None]:
        self.listeners = [listener]
        return lambda: self.listeners.remove(listener)

    def partition_facts(self, topic_id: TopicId, partition: int) -> SimpleNamespace:
        return SimpleNamespace(high_watermark=1_000, log_end_offset=1_000, log_start_offset=0)


def id_of(name: str) -> TopicId:
    return TopicId(name.encode() * 16)


class KafkaClient:
    """A client that sends heartbeats, one at a time."""

    def __init__(self, world: World, member_id: str, instance_id: str | None, topics: tuple[str, ...]) -> None:
        self.world = world
        self.member_id = member_id
        self.instance_id = instance_id
        self.topics = topics
        self.epoch = 0
        self.owned: frozenset[PartitionKey] = frozenset()
        self.target: frozenset[PartitionKey] = frozenset()
        self.task: asyncio.Task[HeartbeatAnswer] | None = None
        self.is_frozen = False
        self.is_full = True
        """Whether the next heartbeat tells everything."""
        self.has_heard = False
        """Whether it has heard the last answer."""
        self.has_rival = False
        """Whether another client has the same instance id: after a restart of the broker, the first to come gets it."""
        self.has_news = False
        """Whether its topics or partitions differ from those that it has told."""

    @property
    def is_sure(self) -> bool:
        """Whether it must not be fenced."""
        return self.has_heard and not self.has_rival

    @property
    def reads(self) -> frozenset[PartitionKey]:
        return frozenset() if self.is_frozen else self.owned

    def beat(self) -> None:
        """Send a heartbeat, unless one is under way."""
        if self.task is not None:
            return
        tells = self.is_full or self.has_news or self.epoch == JOINING
        beat = MemberHeartbeat(
            member_id=self.member_id,
            epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if self.is_full or self.epoch == JOINING else None,
            topics=self.topics if tells else None,
            owned=self.owned if tells else None,
        )
        self.has_news = self.is_full = False
        self.task = asyncio.ensure_future(self.world.groups.heartbeat(GROUP, beat))

    def hear(self, *, is_lost: bool = False) -> bool:
        """Take the answer, if there is one."""
        if self.task is None or not self.task.done():
            return False
        task, self.task = self.task, None
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or is_lost or isinstance(error, StorageFailedError):
            self.lose_answer()
            return True
        if isinstance(error, MemberNotReleasedError | InstanceIdInUseError):
            assert self.epoch == JOINING
            return True
        if isinstance(error, FencedInstanceIdError):
            self.world.remove(self)
            return True
        if isinstance(error, UnknownMemberError | UnknownGroupError | FencedMemberEpochError):
            assert not self.is_sure, f"{self.member_id} was fenced although it did everything right: {error}"
            self.epoch, self.owned, self.target = JOINING, frozenset(), frozenset()
            self.is_frozen = False
            return True
        answer = task.result()
        assert answer.epoch > 0
        assert answer.epoch >= self.epoch, "an epoch went back"
        self.has_heard, self.is_frozen = True, False
        self.epoch = answer.epoch
        if answer.partitions is not None:
            self.target = answer.partitions
            self.has_news = True
        return True

    def reconcile(self) -> None:
        """Give up what was taken away, and begin to read what was given."""
        if self.owned != self.target:
            self.owned, self.has_news = self.target, True

    def lose_answer(self) -> None:
        """Tell everything with the next heartbeat. Before that, do what earlier answers have said."""
        self.reconcile()
        self.is_full, self.has_heard = True, False


class StreamMember:
    """A member with a stream, which takes each assignment at once."""

    def __init__(self, world: World, member_id: str, topics: tuple[str, ...]) -> None:
        self.world = world
        self.member_id = member_id
        self.topics = topics
        self.incarnation = random.getrandbits(62) + 1
        self.epoch = 0
        self.reads: frozenset[PartitionKey] = frozenset()
        self.link: MemberLink | None = None
        self.inbox: list[MemberMessage] = []

    def send(self, message: MemberMessage) -> None:
        self.inbox.append(message)

    async def connect(self) -> None:
        join = Join(
            member_id=self.member_id,
            incarnation=self.incarnation,
            subscription=Subscription(self.topics),
            epoch=self.epoch,
            owned=self.reads,
        )
        self.inbox.clear()
        try:
            self.link = await self.world.groups.join(GROUP, join, self)
        except MemberNotReleasedError:
            self.link = None

    def work(self) -> None:
        """Handle all messages, and send a heartbeat."""
        for message in self.inbox:
            if isinstance(message, Joined) and not message.resumed:
                self.epoch, self.reads = 0, frozenset()
            elif isinstance(message, AssignedOffsets):
                self.epoch = message.epoch
                self.reads = frozenset(partition for partition, _ in message.partitions)
                assert self.link is not None
                self.link.taken(self.epoch)
            elif isinstance(message, Ended):
                self.epoch, self.reads, self.link = 0, frozenset(), None
        self.inbox.clear()
        if self.link is not None:
            self.link.heartbeat(polled=True)


class World:
    """The broker, its store, and the members of one group."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.loop = cast(Loop, asyncio.get_running_loop())
        self.store = Store()
        self.topics = Topics()
        self.clients: list[KafkaClient] = []
        self.streams: list[StreamMember] = []
        self.lives = 0
        self.groups: Groups

    async def start(self) -> None:
        config = BrokerConfig(
            group_session_timeout_seconds=SESSION_SECONDS, group_heartbeat_interval_seconds=1, reconnect_grace_seconds=5
        )
        self.groups = Groups(config, SystemClock(), cast(LogEngine, self.topics), self.store)
        await self.groups.load()

    async def restart(self) -> None:
        """Kill the broker, and start it again."""
        before = self.store
        before.is_gone = True
        before.free.set()
        for group_id in self.groups.ids():
            self.groups.group(group_id).freeze()
        for client in self.clients:
            if client.task is not None:
                client.task.cancel()
                await asyncio.wait([client.task])
        for member in self.streams:
            member.link = None
            member.inbox.clear()
        self.store = Store()
        self.store.scopes = before.scopes
        await self.start()
        for member in self.streams:
            await member.connect()

    def remove(self, client: KafkaClient) -> None:
        self.clients.remove(client)
        if client.task is not None:
            client.task.cancel()

    def check_owners(self) -> None:
        readers: dict[PartitionKey, str] = {}
        for member in self.members():
            for partition in member.reads:
                other = readers.setdefault(partition, member.member_id)
                assert other == member.member_id, f"{partition} has two owners: {other} and {member.member_id}"

    def members(self) -> Iterable[KafkaClient | StreamMember]:
        return [*self.clients, *self.streams]

    async def turn(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            await asyncio.sleep(0)

    # --- what happens ---

    def pick(self) -> KafkaClient | None:
        return self.random.choice(self.clients) if self.clients else None

    async def act(self) -> None:
        """Let one thing happen."""
        actions = [
            *[self._beat] * 12,
            *[self._hear] * 12,
            *[self._reconcile] * 6,
            *[self._turn] * 10,
            *[self._commit] * 4,
            *[self._hold] * 2,
            *(self._come, self._come, self._leave, self._be_away, self._die, self._freeze, self._freeze, self._rejoin),
            *(self._subscribe, self._restart, self._grow, self._probe, self._probe),
            *(self._stream_comes, self._stream_works, self._stream_works, self._stream_breaks),
        ]
        await self.random.choice(actions)()
        self.check_owners()

    async def _turn(self) -> None:
        await self.turn(self.random.choice([1, 2, 5, 20]))

    async def _beat(self) -> None:
        client = self.pick()
        if client is not None and not client.is_frozen:
            client.beat()

    async def _hear(self) -> None:
        client = self.pick()
        if client is not None and not client.is_frozen:
            client.hear(is_lost=self.random.random() < 0.2)

    async def _reconcile(self) -> None:
        client = self.pick()
        if client is not None and not client.is_frozen:
            client.reconcile()

    async def _come(self) -> None:
        if len(self.clients) < 5:
            self.lives += 1
            instance_id = self.random.choice([None, None, "desk"])
            client = KafkaClient(self, f"client-{self.lives}", instance_id, self._topics())
            for other in self.clients:
                if instance_id is not None and other.instance_id == instance_id:
                    client.has_rival = other.has_rival = True
            self.clients.append(client)

    def _topics(self) -> tuple[str, ...]:
        return self.random.choice([("a",), ("a", "b"), ("b",)])

    async def _leave(self) -> None:
        await self._goodbye(LEAVING)

    async def _be_away(self) -> None:
        await self._goodbye(AWAY)

    async def _goodbye(self, epoch: int) -> None:
        client = self.pick()
        if client is None or client.is_frozen or client.task is not None or (epoch == AWAY and not client.instance_id):
            return
        self.clients.remove(client)
        beat = MemberHeartbeat(member_id=client.member_id, epoch=epoch, instance_id=client.instance_id)
        self.store.free.set()
        try:
            await self.groups.heartbeat(GROUP, beat)
        except LogbrokerError:
            assert not client.is_sure, "a goodbye was refused"

    async def _die(self) -> None:
        client = self.pick()
        if client is not None and self.random.random() < 0.5:
            self.remove(client)

    async def _freeze(self) -> None:
        """Freeze a client, for longer than its session in half of the cases, and let it go on."""
        client = self.pick()
        if client is None or client.is_frozen or client.task is not None:
            return
        client.is_frozen, client.has_heard = True, False
        if self.random.random() < 0.5:
            await self.pass_time(2 * SESSION_SECONDS)
        if client.owned:
            await self._commit_of(client, client.epoch, is_zombie=True)
        client.beat()
        self.store.free.set()
        while not client.hear():
            await self.turn()

    async def _rejoin(self) -> None:
        """Let a client give up everything by itself, and join again."""
        client = self.pick()
        if client is not None and not client.is_frozen and client.task is None:
            client.epoch, client.owned, client.target = JOINING, frozenset(), frozenset()

    async def _subscribe(self) -> None:
        client = self.pick()
        if client is not None and not client.is_frozen:
            client.topics, client.has_news = self._topics(), True

    async def _hold(self) -> None:
        if self.store.free.is_set():
            self.store.free.clear()
        else:
            self.store.free.set()

    async def _restart(self) -> None:
        if self.random.random() < 0.7:
            await self.restart()

    async def _grow(self) -> None:
        name = self.random.choice(sorted(self.topics.partitions))
        if self.topics.partitions[name] < 8:
            self.topics.partitions[name] += 1
            for listener in self.topics.listeners:
                listener(cast(Topic, self.topics.topic(name)))

    async def _commit(self) -> None:
        client = self.pick()
        if client is not None and client.owned and not client.is_frozen and client.task is None:
            await self._commit_of(client, client.epoch)

    async def _commit_of(self, client: KafkaClient, epoch: int, *, is_zombie: bool = False) -> None:
        partition = self.random.choice(sorted(client.owned))
        others = [each.member_id for each in self.members() if each is not client and partition in each.reads]
        error = await self.commit(client.member_id, epoch, partition)
        if is_zombie:
            group = cast(Coordinator, self.groups.group(GROUP))
            member = group.machine.member(client.member_id)
            if member is None:
                assert error is not None, "a commit of a fenced member was accepted"
            assert error is not None or not others, f"a commit was accepted while {others} read"
        elif client.is_sure:
            assert error is None, f"an honest commit was refused: {error}"

    async def commit(self, member_id: str, epoch: int, partition: PartitionKey) -> LogbrokerError | None:
        """Commit an offset, and return the error."""
        self.store.free.set()
        commit = TopicCommit(partition.topic_id, [partition.partition], [self.random.randrange(9)], [], [])
        [outcome] = await self.groups.commit_of_kafka(GROUP, member_id, "", epoch, [commit])
        if isinstance(outcome, LogbrokerError):
            return outcome
        return outcome[0][1] if outcome else None

    async def _probe(self) -> None:
        """Try what must be refused."""
        client = self.pick()
        if client is None or not client.owned or client.task is not None or not client.is_sure:
            return
        for wrong in (client.epoch - 1, client.epoch + 1):
            error = await self.commit(client.member_id, wrong, min(client.owned))
            assert error is not None, "a commit of another epoch was accepted"
            owned = None if self.random.random() < 0.5 else client.owned | {PartitionKey(id_of("c"), 0)}
            beat = MemberHeartbeat(member_id=client.member_id, epoch=wrong, instance_id=client.instance_id, owned=owned)
            if wrong > 0:
                try:
                    await self.groups.heartbeat(GROUP, beat)
                except FencedMemberEpochError:
                    continue
                raise AssertionError("a heartbeat of another epoch was accepted")

    async def _stream_comes(self) -> None:
        if len(self.streams) < 2:
            self.lives += 1
            member = StreamMember(self, f"stream-{self.lives}", self._topics())
            await member.connect()
            self.streams.append(member)

    async def _stream_works(self) -> None:
        for member in self.streams:
            member.work()

    async def _stream_breaks(self) -> None:
        if self.streams:
            member = self.streams.pop()
            if member.link is not None:
                member.link.disconnected()

    # --- rest ---

    async def pass_time(self, seconds: float) -> None:
        """Let time pass. All that are not frozen do their work meanwhile."""
        self.store.free.set()
        while seconds > 0:
            await self.work()
            self.loop.skip(1.0)
            seconds -= 1.0

    async def work(self) -> None:
        """Let everybody send a heartbeat, hear the answer and do what it says."""
        for client in self.clients:
            if not client.is_frozen:
                client.beat()
        for _ in range(ROUNDS):
            await self.turn()
            for client in list(self.clients):
                if not client.is_frozen and client.hear():
                    client.reconcile()
            for member in self.streams:
                member.work()
            self.check_owners()
            if all(client.task is None for client in self.clients if not client.is_frozen):
                break
        else:
            raise AssertionError("a heartbeat is not answered")

    async def settle(self) -> None:
        """Let all live on, until everything has an owner."""
        for member in self.streams:
            if member.link is None:
                await member.connect()
        await self.pass_time(3 * SESSION_SECONDS)
        for member in self.streams:
            if member.link is None:
                await member.connect()
        await self.pass_time(SESSION_SECONDS)
        wanted = {
            PartitionKey(id_of(name), number)
            for member in self.members()
            for name in member.topics
            for number in range(self.topics.partitions[name])
        }
        waiting = [client for client in self.clients if client.epoch == JOINING]
        read = [partition for member in self.members() for partition in member.reads]
        assert len(read) == len(set(read))
        if not waiting:  # Perhaps several clients want one instance id.
            assert set(read) == wanted, f"orphans: {wanted ^ set(read)}"
        if self.groups.has(GROUP):
            assert self.groups.group(GROUP).machine.state in ("stable", "empty")

    async def close(self) -> None:
        self.store.free.set()
        for client in list(self.clients):
            self.remove(client)
        self.groups.freeze()
        await self.groups.settle()


async def walk(seed: int, steps: int) -> None:
    world = World(seed)
    await world.start()
    try:
        for number in range(steps):
            await world.act()
            if number % 50 == 49:
                await world.settle()
        await world.settle()
    finally:
        await world.close()


def run_walks(seeds: Iterable[int], steps: int = 150) -> None:
    """Let things happen at random, one history for each seed."""
    for seed in seeds:
        try:
            with asyncio.Runner(loop_factory=Loop) as runner:
                runner.run(walk(seed, steps))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
