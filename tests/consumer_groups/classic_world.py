"""A classic group with clients that follow the protocol: a store that forgets nothing, a broker that may be killed."""

from __future__ import annotations

from itertools import count
from typing import Any

from logbroker.consumer_groups.classic.group import ClassicGroup, ClassicState
from logbroker.consumer_groups.classic.messages import (
    ClassicAnswer,
    ClassicJoin,
    ClassicJoined,
)
from logbroker.errors import LogbrokerError

PARTITIONS = 3
MAX_MEMBERS = 6
SESSION_SECONDS, REBALANCE_SECONDS = 10.0, 30.0
MEMBER_ID_REQUIRED = 79
REFUSALS = {16, 22, 23, 25, 27, 79, 81, 82}
"""Codes that a client which follows the protocol may get."""


class ClassicClient:
    """One consumer. It reads the partitions of its last assignment from then on until it joins again, finds out that it
    is no member, or its session is over."""

    def __init__(self, world: ClassicWorld, name: str, instance_id: str, protocols: tuple[str, ...]) -> None:
        self.world = world
        self.name = name
        self.instance_id = instance_id
        self.protocols = protocols
        self.metadata = b"0"
        self.member_id = ""
        self.generation = -1
        self.is_leader = False
        self.must_join = True
        self.must_sync = False
        self.reads: frozenset[int] = frozenset()
        self.ticket: int | None = None
        """Ticket of the request that it waits for."""
        self.leader_of: list[str] = []
        self.is_fatal = False
        self.is_stuck = False
        """Whether its program does not get to joining, while its library sends heartbeats."""

    @property
    def place(self) -> str:
        return self.instance_id or self.name

    def join(self) -> None:
        self.reads, self.must_join, self.must_sync = frozenset(), True, False
        self.ticket = self.world.request(
            lambda ticket: self.world.group.join(
                ClassicJoin(
                    member_id=self.member_id,
                    new_member_id=f"{self.place}-{next(self.world.numbers)}",
                    instance_id=self.instance_id,
                    protocol_type="consumer",
                    protocols=tuple((name, self.metadata) for name in self.protocols),
                    session_timeout_ms=int(SESSION_SECONDS * 1000),
                    rebalance_timeout_ms=int(REBALANCE_SECONDS * 1000),
                ),
                ticket,
                self.world.now,
            ),
            self,
        )

    def sync(self) -> None:
        assignments = {}
        if self.is_leader:
            members = self.leader_of
            assignments = {
                member: bytes(number for number in range(PARTITIONS) if number % len(members) == place)
                for place, member in enumerate(members)
            }
        self.ticket = self.world.request(
            lambda ticket: self.world.group.sync(
                *(self.member_id, self.instance_id, self.generation, None, None, assignments), ticket, self.world.now
            ),
            self,
        )

    def heartbeat(self) -> None:
        try:
            self.world.group.heartbeat(self.member_id, self.instance_id, self.generation, self.world.now)
        except LogbrokerError as error:
            self.refused(error)

    def hear(self, answer: ClassicAnswer) -> None:
        self.ticket = None
        if isinstance(answer, LogbrokerError):
            self.refused(answer)
            return
        if isinstance(answer, ClassicJoined):
            self.world.told_generation = max(self.world.told_generation, answer.generation)
            self.member_id, self.generation = answer.member_id, answer.generation
            assert answer.protocol in self.protocols
            self.is_leader = answer.leader_id == answer.member_id and not answer.skip_assignment
            self.leader_of = [member_id for member_id, _, _ in answer.members]
            assert bool(self.leader_of) == (answer.leader_id == answer.member_id)
            self.must_join, self.must_sync = False, True
        else:
            self.must_sync = False
            self.reads = frozenset(answer.assignment)

    def refused(self, error: LogbrokerError) -> None:
        code = error.kafka_code
        assert code in REFUSALS, error
        if code == MEMBER_ID_REQUIRED:
            self.member_id = error.member_id  # type: ignore[attr-defined]
        elif code == 25:
            self.member_id, self.generation = "", -1
        elif code == 82:
            self.is_fatal = True
        self.must_join, self.must_sync = True, False
        if code != 27:
            self.reads = frozenset()


class ClassicWorld:
    """The group, its store, and the clients."""

    group_class: type[ClassicGroup] = ClassicGroup
    answers_before_sync = False

    def __init__(self, initial_delay_seconds: float) -> None:
        self.initial_delay_seconds = initial_delay_seconds
        self.now = 100.0
        self.numbers = count()
        self.rows: dict[bytes, bytes] = {}
        self.clients: list[ClassicClient] = []
        self.waiting: dict[int, ClassicClient] = {}
        self.told_generation = -1
        """The last generation that a client knows."""
        self.group = self._new_group()

    def _new_group(self) -> ClassicGroup:
        group = self.group_class("g", initial_delay_seconds=self.initial_delay_seconds, max_members=MAX_MEMBERS)
        group.load(self.rows, self.now)
        return group

    def request(self, ask: Any, client: ClassicClient) -> int | None:
        ticket = next(self.numbers)
        try:
            ask(ticket)
        except LogbrokerError as error:
            client.refused(error)
            return None
        self.waiting[ticket] = client
        return ticket

    def step(self) -> None:
        """Store what has changed, then give the answers."""
        self.group.tick(self.now)
        outputs = self.group.take_outputs(int(self.now * 1000))
        for event in outputs.events:
            if event.value is None:
                self.rows.pop(event.key, None)
            else:
                self.rows[event.key] = event.value
        for ticket, answer in outputs.answers:
            self.give(ticket, answer)
        self.check()

    def give(self, ticket: int, answer: ClassicAnswer) -> None:
        client = self.waiting.pop(ticket, None)
        if client is not None and client.ticket == ticket:
            client.hear(answer)

    def lose_before_sync(self) -> None:
        """Kill the broker while a transaction runs: its rows are lost, and its answers are not given."""
        self.group.tick(self.now)
        outputs = self.group.take_outputs(int(self.now * 1000))
        if self.answers_before_sync:
            for ticket, answer in outputs.answers:
                self.give(ticket, answer)
        self.restart()

    def restart(self) -> None:
        for client in list(self.waiting.values()):
            client.ticket = None  # The connection is lost: it asks again.
        self.waiting.clear()
        self.group = self._new_group()

    def check(self) -> None:
        """No partition has two readers of one generation, and a generation never comes again."""
        assert self.group.generation >= self.told_generation, "a generation went back"
        owners: dict[int, ClassicClient] = {}
        for client in self.clients:
            if client.generation == self.group.generation and self.is_member(client):
                for partition in client.reads:
                    assert partition not in owners, "two owners"
                    owners[partition] = client
        if self.group.state is ClassicState.EMPTY:
            assert not len(self.group)
        waiting = {ticket for member in self.group.members() for ticket in (member.join_ticket, member.sync_ticket)}
        live = {client.ticket for client in self.clients if client.ticket is not None}
        assert live <= waiting, "a request was forgotten"
        assert self.group.deadline() < float("inf") or not live, "a request waits forever"

    def is_member(self, client: ClassicClient) -> bool:
        return any(each.member_id == client.member_id for each in self.group.members())

    def can_commit(self, client: ClassicClient) -> bool:
        try:
            self.group.check_commit(client.member_id, client.instance_id, client.generation, self.now)
        except LogbrokerError as error:
            if error.kafka_code not in REFUSALS:
                raise
            return False
        return True

    def act(self, client: ClassicClient) -> None:
        """Let a client do what it is due to do."""
        if client.ticket is not None or client.is_fatal:
            return
        if client.is_stuck:
            if client.member_id:
                client.heartbeat()
        elif client.must_join:
            client.join()
        elif client.must_sync:
            client.sync()
        else:
            client.heartbeat()

    def settle(self) -> None:
        """Let time pass while all clients do what they must: the group becomes stable, with all partitions read."""
        live = [client for client in self.clients if not client.is_fatal]
        able = [client for client in live if not client.is_stuck]
        self.pass_until_quiet(live, able)
        if able:
            assert self.group.state is ClassicState.STABLE, f"{self.group.state}, not stable"
        for client in live:
            client.is_stuck = False
        self.pass_until_quiet(live, live)
        if not live:
            assert self.group.state is ClassicState.EMPTY, f"{self.group.state} without clients"
            return
        assert self.group.state is ClassicState.STABLE, f"{self.group.state}, not stable"
        assert len(self.group) == len(live), "members that are no clients"
        read = sorted(partition for client in live for partition in client.reads)
        assert read == list(range(PARTITIONS)), "orphans, or two owners"

    def pass_until_quiet(self, live: list[ClassicClient], able: list[ClassicClient]) -> None:
        """Let time pass until there is nothing left to be done, or for longer than any timeout."""
        for _ in range(30):
            for client in live:
                self.act(client)
            self.step()
            if (
                self.group.state in (ClassicState.STABLE, ClassicState.EMPTY)
                and (len(self.group) == len(live) or len(able) < len(live))
                and all(
                    client.ticket is None
                    and not (client.must_join or client.must_sync)
                    and client.generation == self.group.generation
                    for client in able
                )
            ):
                return
            self.now += 2.5
