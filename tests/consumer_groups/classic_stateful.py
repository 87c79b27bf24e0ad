"""The rules by which Hypothesis drives a classic group."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.consumer_groups.classic_world import MAX_MEMBERS, ClassicClient, ClassicWorld

PICK = st.integers(0, 5)
PROTOCOLS = st.sampled_from([("range", "sticky"), ("sticky", "range"), ("range",), ("sticky", "range", "other")])


class ClassicMachine(RuleBasedStateMachine):
    """Rules do nothing where they do not apply, so that long runs stay likely."""

    world_class: type[ClassicWorld] = ClassicWorld

    @initialize(delay=st.sampled_from([0.0, 2.0]))
    def begin(self, delay: float) -> None:
        self.world = self.world_class(delay)

    def pick(self, number: int) -> ClassicClient | None:
        clients = [client for client in self.world.clients if not client.is_fatal]
        return clients[number % len(clients)] if clients else None

    @precondition(lambda self: len(self.world.clients) < MAX_MEMBERS - 1)
    @rule(number=PICK, static=st.booleans(), protocols=PROTOCOLS)
    def start(self, number: int, static: bool, protocols: tuple[str, ...]) -> None:
        """Perhaps a static member that comes back, with which the one before is gone."""
        world = self.world
        client = ClassicClient(world, f"c{next(world.numbers)}", f"i{number % 3}" if static else "", protocols)
        if static:
            for other in [other for other in world.clients if other.instance_id == client.instance_id]:
                self.die_now(other)
        world.clients.append(client)
        client.join()

    @rule(number=PICK)
    def act(self, number: int) -> None:
        if (client := self.pick(number)) is not None:
            self.world.act(client)

    @rule(number=PICK)
    def die(self, number: int) -> None:
        if (client := self.pick(number)) is not None:
            self.die_now(client)

    def die_now(self, client: ClassicClient) -> None:
        self.world.clients.remove(client)
        client.is_fatal, client.ticket = True, None

    @rule(number=PICK)
    def leave(self, number: int) -> None:
        client = self.pick(number)
        if client is not None and client.member_id and self.world.is_member(client):
            self.world.group.leave(client.member_id, client.instance_id, self.world.now)
            self.die_now(client)

    @rule(number=PICK, stuck=st.booleans())
    def get_stuck_or_go_on(self, number: int, stuck: bool) -> None:
        if (client := self.pick(number)) is not None:
            client.is_stuck = stuck

    @rule(number=PICK, metadata=st.sampled_from([b"1", b"2"]))
    def subscribe(self, number: int, metadata: bytes) -> None:
        client = self.pick(number)
        if client is not None and client.ticket is None:
            client.metadata = metadata
            client.join()

    @rule(number=PICK)
    def repeat_the_join(self, number: int) -> None:
        """The connection broke; the broker may still hold the earlier request."""
        client = self.pick(number)
        if client is not None and client.ticket is not None:
            client.join()

    @rule(number=PICK, old=st.booleans())
    def commit(self, number: int, old: bool) -> None:
        client = self.pick(number)
        if client is None or client.generation < 0:
            return
        group = self.world.group
        generation = client.generation
        client.generation -= old
        accepted = self.world.can_commit(client)
        client.generation = generation
        if accepted:
            assert not old, "a commit of an old generation was accepted"
            assert self.world.is_member(client), "a commit of a removed member was accepted"
            assert generation == group.generation, "a commit of an old generation was accepted"

    @rule()
    def commit_without_membership(self) -> None:
        stranger = ClassicClient(self.world, "stranger", "", ())
        assert self.world.can_commit(stranger) == (not len(self.world.group)), "a commit beside members"

    @rule(seconds=st.sampled_from([0.5, 3.0, 9.0, 31.0]))
    def pass_time(self, seconds: float) -> None:
        self.world.now += seconds
        self.world.step()

    @rule()
    def step(self) -> None:
        self.world.step()

    @rule()
    def kill_the_broker(self) -> None:
        self.world.lose_before_sync()

    @rule()
    def restart_the_broker(self) -> None:
        self.world.step()
        self.world.restart()

    @rule()
    def settle(self) -> None:
        self.world.settle()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.settle()
