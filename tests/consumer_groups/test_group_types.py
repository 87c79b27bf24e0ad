"""Groups that change between members over gRPC and Kafka clients: rows, offsets and commits that are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logbroker.clock import SystemClock
from logbroker.config import BrokerConfig
from logbroker.consumer_groups.classic.classic_coordinator import ClassicCoordinator
from logbroker.consumer_groups.classic.errors import CoordinatorStoppingError, MemberIdRequiredError
from logbroker.consumer_groups.classic.messages import ClassicJoin, ClassicJoined
from logbroker.consumer_groups.coordinator import Coordinator
from logbroker.consumer_groups.group_shell import GroupShell
from logbroker.consumer_groups.groups import Groups
from logbroker.consumer_groups.heartbeats.messages import JOINING, MemberHeartbeat
from logbroker.consumer_groups.membership import MemberMessage
from logbroker.consumer_groups.messages import Join
from logbroker.consumer_groups.offsets import TopicCommit
from logbroker.engine import DiskUse, LogEngine, Numbers, StateEvent, Topic
from logbroker.errors import LogbrokerError, UnknownMemberError, WrongGroupTypeError
from logbroker.types import PartitionKey, TopicId

TOPIC = TopicId(b"t" * 16)
PARTITIONS = 50_000


class MemoryStore:
    """A state store that takes one turn of the loop for a commit."""

    numbers: Numbers

    def __init__(self) -> None:
        self.scopes: dict[str, dict[bytes, bytes]] = {}

    async def load(self, scope: str) -> dict[bytes, bytes]:
        return dict(self.scopes.get(scope, {}))

    def check_room(self, use: DiskUse = DiskUse.USES_RESERVE) -> None:
        pass

    async def commit(self, scope: str, events: Sequence[StateEvent]) -> None:
        await asyncio.sleep(0)
        rows = self.scopes.setdefault(scope, {})
        for event in events:
            if event.value is None:
                rows.pop(event.key, None)
            else:
                rows[event.key] = event.value


class OneTopic:
    """As much of a log engine as groups ask for."""

    is_sole_writer = True
    partitions_per_read = 1
    waits_for_holders = True
    durability = ""

    async def learn_ends(self, topic_id: object, partitions: object) -> dict[int, LogbrokerError]:
        return {}

    def topics(self) -> list[SimpleNamespace]:
        return [self.topic("t")]

    def topic(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(name="t", id=TOPIC, partitions=PARTITIONS, routing_bands=(), generation=1)

    def topic_by_id(self, topic_id: TopicId) -> SimpleNamespace:
        return self.topic("t")

    def on_topics_changed(self, listener: Callable[[Topic], None]) -> Callable[[], None]:
        return lambda: None

    def partition_facts(self, topic_id: TopicId, partition: int) -> SimpleNamespace:
        return SimpleNamespace(high_watermark=1_000, log_end_offset=1_000)


class Quiet:
    """A channel of a member that listens to nothing."""

    def send(self, message: MemberMessage) -> None:
        pass


async def opened(store: MemoryStore) -> Groups:
    config = BrokerConfig(group_initial_rebalance_delay_seconds=0)
    groups = Groups(config, SystemClock(), cast(LogEngine, OneTopic()), store)
    await groups.load()
    return groups


def classic_join(**fields: Any) -> ClassicJoin:
    settings: dict[str, Any] = {
        "new_member_id": "m",
        "protocol_type": "consumer",
        "protocols": (("range", b""),),
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "requires_known_id": False,
    }
    return ClassicJoin(**settings | fields)


async def started(groups: Groups) -> tuple[ClassicCoordinator, ClassicJoined]:
    """Begin and assign a generation of one."""
    joined = await groups.join_classic("g", classic_join())
    group = groups.classic_group("g")
    await group.sync(joined.member_id, "", joined.generation, None, None, {"m": b"all"})
    return group, joined


def commit(offset: int, *partitions: int) -> TopicCommit:
    return TopicCommit(TOPIC, list(partitions), [offset] * len(partitions), [], [])


def offset_of(groups: Groups, partition: int = 0) -> int | None:
    found = groups.group("g").offsets.get(TOPIC, partition)
    return None if found is None else found.offset


async def test_offsets_stay_over_all_changes_and_restarts() -> None:
    store = MemoryStore()
    groups = await opened(store)
    assert await groups.commit_offsets("g", [commit(1, 0)]) == [[]]
    for expected in (1, 2):
        group, joined = await started(groups)
        assert offset_of(groups) == expected
        assert await group.commit("m", "", joined.generation, [commit(expected + 1, 0)]) == [[]]
        groups = await opened(store)
        group = groups.classic_group("g")
        assert len(group.machine) == 1
        await group.leave([("m", "")])
        groups = await opened(store)
        assert isinstance(groups.group("g"), ClassicCoordinator)
        link = await groups.join("g", Join(member_id="grpc", incarnation=1), Quiet())
        await groups.settle()
        assert offset_of(groups) == expected + 1
        groups = await opened(store)
        assert isinstance(groups.group("g"), Coordinator)
        assert len(groups.group("g").machine) == 1
        link = await groups.join("g", Join(member_id="grpc", incarnation=1), Quiet())
        link.leave()
        await groups.settle()
        groups = await opened(store)
        assert isinstance(groups.group("g"), Coordinator)
        assert not len(groups.group("g").machine)
    assert {key[:1] for key in store.scopes["group:g"]} == {b"g", b"o"}
    await groups.delete("g")
    assert store.scopes["group:g"] == {}


async def test_the_age_of_a_group_stays_over_a_change() -> None:
    groups = await opened(MemoryStore())
    link = await groups.join("g", Join(member_id="grpc", incarnation=1), Quiet())
    link.leave()
    await groups.settle()
    since_ms = groups.group("g").machine.empty_since_ms
    assert since_ms > 0
    with pytest.raises(LogbrokerError):
        await groups.join_classic("g", classic_join(requires_known_id=True))
    assert isinstance(groups.group("g"), ClassicCoordinator)
    assert groups.group("g").machine.empty_since_ms == since_ms
    assert not groups.group("g").is_expired(60_000)


@pytest.mark.parametrize("is_classic", [False, True])
async def test_a_long_commit_of_a_stranger_ends_when_a_member_joins(is_classic: bool) -> None:
    """The commit takes several turns of the loop, between which the member comes."""
    groups = await opened(MemoryStore())
    numbers = list(range(PARTITIONS))
    stranger = asyncio.create_task(
        groups.commit_of_kafka("g", "", "", -1, [commit(5, *numbers)])
        if is_classic
        else groups.commit_offsets("g", [commit(5, *numbers)])
    )
    while not groups.has("g"):
        await asyncio.sleep(0)
    group, joined = await started(groups)
    assert await group.commit("m", "", joined.generation, [commit(7, numbers[-1])]) == [[]]
    assert not stranger.done()
    try:
        (outcome,) = await stranger
    except LogbrokerError as error:
        outcome = error
    if isinstance(outcome, LogbrokerError):
        assert isinstance(outcome, WrongGroupTypeError)
    else:
        assert isinstance(outcome[-1][1], UnknownMemberError)
    await group.commit("m", "", joined.generation, [commit(8, 0)])  # What was staged before comes with it.
    assert offset_of(groups, numbers[-1]) == 7, "nothing of the stranger came after"


async def test_deleted_offsets_are_gone_from_memory_and_store() -> None:
    store = MemoryStore()
    groups = await opened(store)
    assert await groups.commit_offsets("g", [commit(1, 0, 1)]) == [[]]
    used_bytes = groups.group("g").offsets.used_bytes
    await groups.group("g").delete_offsets([PartitionKey(TOPIC, 0), PartitionKey(TOPIC, 0), PartitionKey(TOPIC, 2)])
    assert (offset_of(groups), offset_of(groups, 1)) == (None, 1)
    assert groups.group("g").offsets.used_bytes == used_bytes / 2
    groups = await opened(store)
    assert (offset_of(groups), offset_of(groups, 1)) == (None, 1)
    assert groups.group("g").offsets.used_bytes == used_bytes / 2


async def test_nobody_waits_for_a_group_that_cannot_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = await opened(MemoryStore())
    group, _ = await started(groups)

    def broken(wall_ms: int) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(group.machine, "take_outputs", broken)
    for number in range(2):
        with pytest.raises(LogbrokerError, match="cannot go on"):
            await groups.join_classic("g", classic_join(new_member_id=f"n{number}"))


async def test_nobody_waits_for_a_broker_that_stops() -> None:
    groups = await opened(MemoryStore())
    waiting = asyncio.create_task(
        groups.join_classic("g", classic_join(requires_known_id=True, instance_id="i", rebalance_timeout_ms=60_000))
    )
    await waiting
    follower = asyncio.create_task(groups.join_classic("g", classic_join(new_member_id="n")))
    while len(groups.group("g").machine) < 2:
        await asyncio.sleep(0)
    groups.stop_waiting()
    with pytest.raises(CoordinatorStoppingError):
        await follower
    with pytest.raises(CoordinatorStoppingError):
        groups.classic_group("g").heartbeat("m", "i", 1)


@pytest.mark.parametrize(
    "fields",
    [{"session_timeout_ms": 1}, {"protocols": ()}, {"protocol_type": ""}, {"instance_id": "i" * 1000}],
)
async def test_a_join_that_is_refused_does_not_change_the_type(fields: dict[str, Any]) -> None:
    groups = await opened(MemoryStore())
    link = await groups.join("g", Join(member_id="grpc", incarnation=1), Quiet())
    link.leave()
    await groups.settle()
    with pytest.raises(LogbrokerError):
        await groups.join_classic("g", classic_join(**fields))
    assert isinstance(groups.group("g"), Coordinator)
    with pytest.raises(LogbrokerError):
        await groups.join_classic("new", classic_join(**fields))
    assert not groups.has("new")


@pytest.mark.parametrize("other", ["gRPC", "heartbeats"])
async def test_a_client_that_was_only_given_an_id_holds_up_nobody(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A classic client dies between its two joins, and a member of the other protocol comes."""
    settle, settled = GroupShell.settle, 0

    async def counted(self: GroupShell[Any]) -> None:
        nonlocal settled
        settled += 1
        assert settled < 100, "the group is asked again and again, and the event loop never gets a turn"
        await settle(self)

    monkeypatch.setattr(GroupShell, "settle", counted)
    groups = await opened(MemoryStore())
    with pytest.raises(MemberIdRequiredError) as given:
        await groups.join_classic("g", classic_join(requires_known_id=True))
    if other == "gRPC":
        await groups.join("g", Join(member_id="grpc", incarnation=1), Quiet())
    else:
        beat = MemberHeartbeat(
            member_id="beating", epoch=JOINING, rebalance_timeout_ms=1000, topics=("t",), owned=frozenset()
        )
        assert (await groups.heartbeat("g", beat)).epoch == 1
    assert isinstance(groups.group("g"), Coordinator)
    with pytest.raises(WrongGroupTypeError):
        await groups.join_classic("g", classic_join(member_id=given.value.member_id))
