"""The rules by which Hypothesis drives the simulation."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from logbroker.consumer_groups.assignors import ASSIGNORS
from logbroker.consumer_groups.group import Subscription
from logbroker.record.bands import parse_bands, partitions_of
from tests.consumer_groups.simulation import Client, World

SUBSCRIPTIONS = st.sampled_from(
    [
        Subscription(("a",)),
        Subscription(("a", "b")),
        Subscription((), "[ab]"),
        Subscription(("b",), "c.*"),
        Subscription(("a", "banded"), bands=("hot",)),
        Subscription(("banded",), bands=("cold", "no-such-band")),
        Subscription(("banded",)),
    ]
)
BANDS = parse_bands("hot=5-9:2,cold=0-4:3")
PICK = st.integers(0, 5)


class GroupMachine(RuleBasedStateMachine):
    """Rules do nothing where they do not apply, so that long runs stay likely."""

    world_class: type[World] = World

    @initialize(assignor=st.sampled_from(sorted(ASSIGNORS)), partitions=st.integers(1, 4))
    def begin(self, assignor: str, partitions: int) -> None:
        self.world = self.world_class(assignor)
        self.world.set_topic("a", partitions)

    def pick(self, number: int) -> Client | None:
        clients = self.world.clients
        return clients[number % len(clients)] if clients else None

    def remove(self, client: Client) -> None:
        self.world.break_stream(client)
        client.lose_stream()
        self.world.clients.remove(client)

    @precondition(lambda self: len(self.world.clients) < 5)
    @rule(number=PICK, static=st.booleans(), subscription=SUBSCRIPTIONS)
    def join(self, number: int, static: bool, subscription: Subscription) -> None:
        """Perhaps the next incarnation of one that was there, perhaps one too many of the same name."""
        world = self.world
        if static:
            client = Client(world, f"s{number}-{world.lives}", f"i{number}", subscription)
        else:
            client = Client(world, f"d{number}", "", subscription)
        client.connect()
        if client.connected:
            assert not any(client.same_place(other) and other.delivers for other in world.clients)
            for other in [other for other in world.clients if client.same_place(other)]:
                world.clients.remove(other)
            world.clients.append(client)

    @rule(number=PICK)
    def leave(self, number: int) -> None:
        client = self.pick(number)
        world = self.world
        if client is not None and client.connected and not client.frozen and not world.is_fenced(client):
            while client.sent:
                client.send()
            world.group.leave(client.member_id, world.now)
            del world.streams[client.member_id]
            client.lose_stream()
            world.clients.remove(client)

    @rule(number=PICK)
    def die(self, number: int) -> None:
        if (client := self.pick(number)) is not None:
            self.remove(client)

    @rule(number=PICK, frozen=st.booleans())
    def freeze_or_go_on(self, number: int, frozen: bool) -> None:
        client = self.pick(number)
        if client is None or client.frozen == frozen:
            return
        if frozen:
            client.frozen = True
            return
        if client.connected and client.held:
            client.sent.append(("commit", client.epoch, min(client.held)))
        while client.sent:
            client.send()  # a zombie's commit must be refused: `send` tells whether it may be accepted
        client.frozen = False
        while client.inbox:
            client.hear()

    @rule(number=PICK, noticed=st.booleans())
    def break_stream(self, number: int, noticed: bool) -> None:
        client = self.pick(number)
        if client is not None and client.connected and not client.frozen:
            if noticed:
                self.world.break_stream(client)
            client.lose_stream()

    @rule(number=PICK, drops=st.integers(0, 3))
    def come_back(self, number: int, drops: int) -> None:
        client = self.pick(number)
        if client is not None and not client.connected and not client.frozen:
            client.held = frozenset(sorted(client.held)[drops:]) if drops == 3 else client.held
            client.connect()

    @rule(number=PICK)
    def connect_twice(self, number: int) -> None:
        """The client is faster than the broker's notice of the break."""
        client = self.pick(number)
        if client is not None and client.connected and not client.frozen:
            client.connect()

    @rule(number=PICK, subscription=SUBSCRIPTIONS)
    def subscribe(self, number: int, subscription: Subscription) -> None:
        client = self.pick(number)
        if client is not None and client.connected and not client.frozen and not self.world.is_fenced(client):
            client.subscription = subscription
            self.world.group.subscribe(client.member_id, subscription, self.world.now)

    @rule(number=PICK)
    def hear(self, number: int) -> None:
        client = self.pick(number)
        if client is not None and client.inbox and not client.frozen:
            client.hear()

    @rule(number=PICK)
    def take(self, number: int) -> None:
        client = self.pick(number)
        if client is not None and client.to_take is not None and not client.frozen:
            client.take()

    @rule(number=PICK)
    def arrive(self, number: int) -> None:
        client = self.pick(number)
        if client is not None and client.sent and not client.frozen:
            client.send()

    @rule(number=PICK, old=st.booleans())
    def commit(self, number: int, old: bool) -> None:
        client = self.pick(number)
        if client is not None and client.joined and client.delivers:
            epoch = client.epoch - old
            client.sent.append(("commit of old epoch" if old else "commit", epoch, min(client.held)))

    @rule(name=st.sampled_from("abc"), partitions=st.integers(0, 5))
    def change_topic(self, name: str, partitions: int) -> None:
        known = self.world.topics.get(name)
        if known is None or partitions == 0 or partitions > known.partitions:
            self.world.set_topic(name, partitions)

    @rule(there=st.booleans())
    def make_or_delete_topic_with_bands(self, there: bool) -> None:
        if ("banded" in self.world.topics) != there:
            self.world.set_topic("banded", partitions_of(BANDS) if there else 0, BANDS)

    @rule(seconds=st.sampled_from([0.5, 1.5, 3.0, 7.0, 10.0]))
    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule()
    def step(self) -> None:
        self.world.step()

    @rule()
    def sync(self) -> None:
        self.world.step()
        if self.world.pending:
            self.world.sync()

    @rule()
    def restart(self) -> None:
        self.world.restart()

    @rule()
    def flush(self) -> None:
        self.world.flush()

    @rule()
    def settle(self) -> None:
        self.world.settle()

    @invariant()
    def one_owner(self) -> None:
        if hasattr(self, "world"):
            self.world.check_owners()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.settle()
