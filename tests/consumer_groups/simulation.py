"""A group in a hostile world: clients that come, go, freeze and die, a store, and a broker that restarts.

What the world may do: break streams (noticed by both sides or, for a while, by the client only), lose what is on its
way on them, stop processes and let them go on, kill them, keep transactions from being synced and lose them in a
restart of the broker, and let any time pass. What it may not: change the order on a stream, or lose what is synced.

A client is honest: it delivers only what it took, only while its stream lives, and stops when it hears that it is
fenced. A frozen one delivers nothing; when it goes on, it hears first, after one commit of a zombie.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from logbroker.consumer_groups.assignors import AssignableTopic
from logbroker.consumer_groups.group import Assignment, Fenced, Group, Join, Joined, Message, Subscription
from logbroker.errors import (
    InstanceIdInUseError,
    MemberIdInUseError,
    MemberNotReleasedError,
    StaleMemberEpochError,
    UnknownMemberError,
)
from logbroker.record.bands import Band
from logbroker.types import PartitionKey, TopicId

GRACE_SECONDS: Final = 2.0
SESSION_MS: Final = 6_000
REBALANCE_MS: Final = 9_000
POLL_MS: Final = 20_000


class Client:
    """One incarnation of a member."""

    def __init__(self, world: World, member_id: str, instance_id: str, subscription: Subscription) -> None:
        self.world = world
        self.member_id = member_id
        self.instance_id = instance_id
        self.subscription = subscription
        world.lives += 1
        self.incarnation = world.lives
        self.inbox: deque[Message] = deque()
        self.sent: deque[tuple[str, int, PartitionKey | None]] = deque()
        self.stream = 0
        """The number of its stream: what is sent to one does not come out of the next."""
        self.connected = False
        self.joined = False
        self.frozen = False
        self.epoch = 0
        self.held: frozenset[PartitionKey] = frozenset()
        self.to_take: Assignment | None = None

    @property
    def delivers(self) -> frozenset[PartitionKey]:
        told = any(isinstance(message, Fenced) for message in self.inbox)
        return self.held if self.connected and self.joined and not self.frozen and not told else frozenset()

    def connect(self) -> None:
        self.lose_stream()
        join = Join(
            member_id=self.member_id,
            incarnation=self.incarnation,
            instance_id=self.instance_id,
            subscription=self.subscription,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            max_poll_interval_ms=POLL_MS,
            epoch=self.epoch,
            owned=self.held,
        )
        try:
            self.world.group.join(join, self.world.now)
        except (MemberIdInUseError, InstanceIdInUseError):
            others = [other for other in self.world.streams.values() if other is not self]
            assert any(self.same_place(other) for other in others), "refused, but nobody is there"
            return
        except MemberNotReleasedError:
            return
        before = self.world.streams.get(self.member_id)
        if before is not None and before is not self:
            before.lose_stream()  # the shell closes it
        self.world.streams[self.member_id] = self
        self.stream += 1
        self.connected = True

    def same_place(self, other: Client) -> bool:
        return self.member_id == other.member_id or self.instance_id == other.instance_id != ""

    def lose_stream(self) -> None:
        self.connected = self.joined = False
        self.to_take = None
        self.inbox.clear()
        self.sent.clear()

    def hear(self) -> None:
        """Handle one message; an assignment is taken later."""
        message = self.inbox.popleft()
        if isinstance(message, Joined):
            self.joined = True
            if not message.resumed:
                self.epoch, self.held = 0, frozenset()
            member = self.world.group.member(self.member_id)
            assert member is None or self.held <= member.held, "what a member keeps is not kept for it"
        elif isinstance(message, Fenced):
            self.lose_stream()
            self.epoch, self.held = 0, frozenset()
        else:
            assert self.joined, "an assignment came before Joined"
            assert self.to_take is None, "a second assignment came before the first was taken"
            assert message.epoch > self.epoch, "an epoch went back"
            assert message.granted == message.partitions - self.held, "granted is not what is new"
            self.to_take = message

    def take(self) -> None:
        assert self.to_take is not None
        self.epoch, self.held = self.to_take.epoch, self.to_take.partitions
        self.to_take = None
        self.sent.append(("taken", self.epoch, None))

    def send(self) -> None:
        """One of its messages arrives."""
        kind, epoch, partition = self.sent.popleft()
        world = self.world
        try:
            if kind == "taken":
                world.group.taken(self.member_id, epoch, world.now)
                return
            held = world.group.committable_partitions(self.member_id, epoch)
        except UnknownMemberError:
            assert world.is_fenced(self), "refused as no member, but it is one"
            return
        except StaleMemberEpochError:
            assert kind == "commit of old epoch", "an honest commit was refused"
            return
        assert kind == "commit", f"a {kind} was accepted"
        assert partition is not None
        assert partition in held, "an honest commit was refused"
        assert not [other for other in world.clients if other is not self and partition in other.delivers], (
            f"a commit was accepted of {self.member_id} while another one delivers"
        )


Sent = tuple[Client, int, Message]


class World:
    """The broker, its store and the clients."""

    group_class: type[Group] = Group
    sends_before_sync = False

    def __init__(self, assignor: str) -> None:
        self.now = 1000.0
        self.lives = 0
        self.assignor = assignor
        self.topics: dict[str, AssignableTopic] = {}
        self.rows: dict[bytes, bytes] = {}
        self.pending: deque[tuple[dict[bytes, bytes | None], list[Sent]]] = deque()
        self.clients: list[Client] = []
        self.streams: dict[str, Client] = {}
        self.epochs_seen: set[int] = set()
        self.created_topics = 0
        self.group = self._new_group()
        self.group.topics_changed(self.topics)
        self.group.assignor = assignor

    def _new_group(self) -> Group:
        return self.group_class("g", reconnect_grace_seconds=GRACE_SECONDS, max_members=100)

    def is_fenced(self, client: Client) -> bool:
        """The broker has said so, on a stream that lives: the message may still wait for its transaction."""
        waiting = [
            message
            for _, messages in self.pending
            for to, stream, message in messages
            if to is client and stream == client.stream
        ]
        return any(isinstance(message, Fenced) for message in [*client.inbox, *waiting, *self._not_taken(client)])

    def _not_taken(self, client: Client) -> list[Message]:
        return [message for to, message in self.group._outbox._messages if to == client.member_id]

    # --- the broker --------------------------------------------------------------------------------------------------

    def step(self) -> None:
        self.group.rebalance(self.now)
        outputs = self.group.take_outputs(wall_ms=0)
        if not outputs.events and not outputs.messages:
            return
        messages = [
            (client, client.stream, message)
            for to, message in outputs.messages
            if (client := self.streams.get(to)) is not None
        ]
        if self.sends_before_sync:
            self._tell(messages)
            messages = []
        self.pending.append(({event.key: event.value for event in outputs.events}, messages))

    def sync(self) -> None:
        events, messages = self.pending.popleft()
        for key, value in events.items():
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value
        self._tell(messages)

    def _tell(self, messages: list[Sent]) -> None:
        for client, stream, message in messages:
            if isinstance(message, Assignment):
                assert message.epoch not in self.epochs_seen, "an epoch was given twice"
                self.epochs_seen.add(message.epoch)
            if self.streams.get(client.member_id) is client and stream == client.stream:
                if client.connected:
                    client.inbox.append(message)
                if isinstance(message, Fenced):
                    del self.streams[client.member_id]

    def restart(self) -> None:
        self.pending.clear()
        self.streams.clear()
        for client in self.clients:
            client.lose_stream()
        self.group = self._new_group()
        self.group.load(dict(self.rows), self.topics, self.now)

    def break_stream(self, client: Client) -> None:
        """The broker notices."""
        if self.streams.get(client.member_id) is client:
            del self.streams[client.member_id]
            self.group.disconnected(client.member_id, self.now)

    def pass_time(self, seconds: float) -> None:
        """Let time pass: live clients send heartbeats, and those due to be fenced are."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 0.5)
            for client in self.clients:
                if client.connected and not client.frozen and not self.is_fenced(client):
                    self.group.heartbeat(client.member_id, self.now, polled=True)
            deadline = self.group.deadline()
            if deadline <= self.now:
                self.group.tick(self.now)

    def set_topic(self, name: str, partitions: int, bands: tuple[Band, ...] = ()) -> None:
        known = self.topics.get(name)
        topics = {key: each for key, each in self.topics.items() if key != name}
        if partitions:
            if known is None:
                self.created_topics += 1
            topic_id = known.topic_id if known else TopicId(self.created_topics.to_bytes(16, "big"))
            topics[name] = AssignableTopic(name, topic_id, partitions, bands)
        self.topics = topics
        self.group.topics_changed(topics)

    # --- what must hold ----------------------------------------------------------------------------------------------

    def check_owners(self) -> None:
        owners: dict[PartitionKey, Client] = {}
        for client in self.clients:
            for partition in client.delivers:
                other = owners.setdefault(partition, client)
                assert other is client, f"{partition} has two owners: {other.member_id} and {client.member_id}"

    def flush(self) -> None:
        """Everything arrives that is on its way, and is handled."""
        for _ in range(1000):
            self.step()
            while self.pending:
                self.sync()
                self.check_owners()
            busy = False
            for client in self.clients:
                while client.inbox and not client.frozen:
                    client.hear()
                    busy = True
                if client.to_take is not None and not client.frozen:
                    client.take()
                while client.sent and not client.frozen:
                    client.send()
                    busy = True
                self.check_owners()
            if not busy:
                return
        raise AssertionError("the group does not come to rest")

    def settle(self) -> None:
        """All clients live on, all dead ones are forgotten: then everything has an owner."""
        for client in self.clients:
            client.frozen = False
        self.flush()
        self.pass_time(2 * SESSION_MS / 1000)
        self.flush()
        for client in list(self.clients):
            if not client.connected:
                client.connect()
                self.flush()
        self.pass_time(2 * SESSION_MS / 1000)
        self.flush()
        expected = "stable" if self.streams else "empty"
        assert self.group.state == expected, f"{self.group.state}, not {expected}"
        live = [client for client in self.clients if client.connected]
        wanted = {partition for client in live for partition in self._wanted(client.subscription)}
        owned = [partition for client in live for partition in client.delivers]
        assert len(owned) == len(set(owned))
        assert set(owned) == wanted, "orphans"
        for client in live:
            assert client.delivers <= self._wanted(client.subscription), "a partition that it did not subscribe to"
            assert self.group.committable_partitions(client.member_id, client.epoch) == client.held
            client.sent.append(("commit of old epoch", client.epoch - 1, None))
            client.send()

    def _wanted(self, subscription: Subscription) -> set[PartitionKey]:
        """Return the partitions that a subscription asks for, found one by one."""
        wanted = set()
        for name in subscription.resolve(self.topics):
            topic = self.topics[name]
            for partition in range(topic.partitions):
                bands = [band.name for band in topic.bands if partition in band.partition_range]
                if not (bands and subscription.bands) or bands[0] in subscription.bands:
                    wanted.add(PartitionKey(topic.topic_id, partition))
        return wanted
