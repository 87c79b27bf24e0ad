"""Nothing is told before it is stored: one group's coordinator on a store that the test lets go on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from logbroker.clock import SystemClock
from logbroker.consumer_groups.assignors import AssignableTopic
from logbroker.consumer_groups.coordinator import Coordinator
from logbroker.consumer_groups.group import Group
from logbroker.consumer_groups.membership import AssignedOffsets, CommitDone, Ended, MemberLink, MemberMessage
from logbroker.consumer_groups.messages import Join, Joined
from logbroker.consumer_groups.offsets import OffsetTable, TopicCommit
from logbroker.consumer_groups.rows import GROUP_TYPE
from logbroker.consumer_groups.subscriptions import Subscription
from logbroker.engine import DiskUse, Numbers, PartitionFacts, StateEvent, Topic
from logbroker.errors import (
    OverloadedError,
    StaleMemberEpochError,
    StorageFailedError,
    UnknownMemberError,
    UnknownTopicError,
)
from logbroker.group_runtime.group_store import GroupStore
from logbroker.types import PartitionKey, TopicId

TOPIC = TopicId(b"t" * 16)
PARTITIONS = 4
END = 100


class HeldStore:
    """A StateStore whose commits wait until they are let go of."""

    numbers: Numbers

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.commits = 0
        self.waiting: list[asyncio.Future[None]] = []
        self.held = False
        self.refusals: list[Exception] = []

    async def load(self, scope: str) -> dict[bytes, bytes]:
        return dict(self.rows)

    def check_room(self, use: DiskUse = DiskUse.USES_RESERVE) -> None:
        pass

    async def commit(self, scope: str, events: Sequence[StateEvent]) -> None:
        if self.refusals:
            raise self.refusals.pop()
        if self.held:
            future = asyncio.get_running_loop().create_future()
            self.waiting.append(future)
            await future
        self.commits += 1
        for event in events:
            if event.value is None:
                self.rows.pop(event.key, None)
            else:
                self.rows[event.key] = event.value

    def let_go(self) -> None:
        self.held = False
        for future in self.waiting:
            future.set_result(None)
        self.waiting.clear()


class Inbox:
    """A member's end of its stream."""

    def __init__(self) -> None:
        self.messages: list[MemberMessage] = []

    def send(self, message: MemberMessage) -> None:
        self.messages.append(message)

    def take(self) -> list[MemberMessage]:
        found, self.messages = self.messages, []
        return found


class NoLogs:
    """Without topics."""

    def topic_by_id(self, topic_id: TopicId) -> Topic:
        raise UnknownTopicError("there are none")

    def partition_facts(self, topic_id: TopicId, partition: int) -> PartitionFacts:
        raise UnknownTopicError("there are none")


class Scene:
    """A group on a held store."""

    def __init__(self) -> None:
        self.store = HeldStore()
        self.group = self.started()

    def started(self) -> Coordinator:
        """The group as a broker has it that has just started on the store."""
        machine = Group("g", reconnect_grace_seconds=60.0, max_members=100)
        topics = {"t": AssignableTopic("t", TOPIC, PARTITIONS)}
        machine.load(self.store.rows, topics, asyncio.get_running_loop().time())
        store = GroupStore(self.store, "g", GROUP_TYPE, is_stored=True)
        return Coordinator("g", machine, OffsetTable(self.store.rows), store, SystemClock(), lambda *_: END, NoLogs())

    def join(self, member_id: str) -> tuple[MemberLink, Inbox]:
        inbox = Inbox()
        join = Join(member_id=member_id, incarnation=1, subscription=Subscription(("t",)))
        return self.group.join(join, inbox), inbox

    async def member(self, member_id: str) -> tuple[MemberLink, Inbox, int]:
        """A member that has taken its first assignment; and its epoch."""
        link, inbox = self.join(member_id)
        await self.group.settle()
        joined, assigned = inbox.take()
        assert isinstance(joined, Joined)
        epoch = cast(AssignedOffsets, assigned).epoch
        link.taken(epoch)
        await self.group.settle()
        return link, inbox, epoch


@pytest.fixture
async def scene() -> Scene:
    return Scene()


def commit_of(offset: int) -> list[TopicCommit]:
    return [TopicCommit(TOPIC, [0], [offset], [], [])]


async def test_no_assignment_leaves_before_it_is_stored(scene: Scene) -> None:
    scene.store.held = True
    _, inbox = scene.join("one")
    while not scene.store.waiting:
        await asyncio.sleep(0)
    assert inbox.take() == []
    scene.store.let_go()
    await scene.group.settle()
    assert [type(message) for message in inbox.take()] == [Joined, AssignedOffsets]


async def test_a_commit_is_answered_and_seen_only_when_it_is_stored(scene: Scene) -> None:
    link, inbox, epoch = await scene.member("one")
    scene.store.held = True
    link.commit(7, epoch, commit_of(5))
    while not scene.store.waiting:
        await asyncio.sleep(0)
    link.commit(8, epoch, commit_of(6))
    link.commit(9, epoch, commit_of(4))
    assert inbox.take() == []
    assert scene.group.offsets.get(TOPIC, 0) is None
    scene.store.let_go()
    await scene.group.settle()
    answers = cast(list[CommitDone], inbox.take())
    assert [
        (answer.correlation_id, [len(cast(list[object], each)) for each in answer.outcomes]) for answer in answers
    ] == [
        (7, [0]),
        (8, [0]),
        (9, [1]),
    ]
    committed = scene.started().offsets.get(TOPIC, 0)
    assert committed is not None
    assert committed.offset == 6


async def test_what_comes_while_a_transaction_is_under_way_shares_the_next(scene: Scene) -> None:
    link, _, epoch = await scene.member("one")
    scene.store.held = True
    scene.join("two")
    while not scene.store.waiting:
        await asyncio.sleep(0)
    before = scene.store.commits
    inboxes = [scene.join(f"late-{number}")[1] for number in range(10)]
    for number in range(10):
        link.commit(number, epoch, commit_of(number))
    scene.store.let_go()
    await scene.group.settle()
    assert scene.store.commits == before + 2
    assert all(sum(isinstance(message, AssignedOffsets) for message in inbox.take()) == 1 for inbox in inboxes)


async def test_the_next_owner_begins_where_the_last_commit_was(scene: Scene) -> None:
    link, inbox, epoch = await scene.member("one")
    _, other, _ = await scene.member("two")
    inbox.take()
    link.commit(1, epoch, commit_of(9))
    link.leave()
    await scene.group.settle()
    assert [type(message) for message in inbox.take()] == [CommitDone, Ended]
    partitions = dict(cast(AssignedOffsets, other.take()[-1]).partitions)
    assert len(partitions) == PARTITIONS
    committed = partitions[PartitionKey(TOPIC, 0)]
    assert committed is not None
    assert committed.offset == 9


async def test_a_commit_after_the_end_of_the_membership_is_refused(scene: Scene) -> None:
    link, inbox, epoch = await scene.member("one")
    link.leave()
    link.commit(1, epoch, commit_of(5))
    await scene.group.settle()
    done = next(message for message in inbox.take() if isinstance(message, CommitDone))
    assert [type(outcome) for outcome in done.outcomes] == [UnknownMemberError]
    assert scene.group.offsets.get(TOPIC, 0) is None


@pytest.mark.parametrize("offset", [5, END + 1])
async def test_only_an_accepted_commit_counts_as_a_poll(scene: Scene, offset: int) -> None:
    """A client repeats a refused commit by itself, also for a program that stands still."""
    link, inbox, epoch = await scene.member("one")
    member = scene.group.machine.member("one")
    assert member is not None
    member.polled_at = 0.0
    link.commit(1, epoch, commit_of(offset))
    await scene.group.settle()
    [answer] = inbox.take()
    assert isinstance(answer, CommitDone)
    is_refused = bool(answer.outcomes[0])
    assert is_refused == (offset > END)
    assert (member.polled_at == 0.0) == is_refused


async def test_a_commit_of_another_epoch_is_refused(scene: Scene) -> None:
    link, inbox, epoch = await scene.member("one")
    for other in (epoch - 1, epoch + 1, 0):
        link.commit(1, other, commit_of(5))
    await scene.group.settle()
    assert [type(message.outcomes[0]) for message in inbox.take() if isinstance(message, CommitDone)] == [
        StaleMemberEpochError
    ] * 3


async def test_a_busy_store_is_asked_again(scene: Scene) -> None:
    link, inbox, epoch = await scene.member("one")
    scene.store.refusals = [OverloadedError("busy"), OverloadedError("busy")]
    link.commit(1, epoch, commit_of(5))
    await scene.group.settle()
    assert len(inbox.take()) == 1
    assert scene.started().offsets.get(TOPIC, 0) is not None


async def test_after_a_failure_of_the_store_nothing_is_answered(scene: Scene) -> None:
    link, inbox, epoch = await scene.member("one")
    scene.store.refusals = [StorageFailedError("gone")]
    link.commit(1, epoch, commit_of(5))
    await scene.group.settle()
    assert inbox.take() == []
    link.leave()
    await scene.group.settle()
    scene.store.refusals = [StorageFailedError("gone")]
    with pytest.raises(StorageFailedError):
        await scene.group.commit_offsets(commit_of(1))


async def test_streams_that_break_while_the_broker_stops_cost_nobody_anything(scene: Scene) -> None:
    link, _, _ = await scene.member("one")
    scene.group.freeze()
    link.disconnected()
    await scene.group.settle()
    [member] = scene.started().machine.members()
    assert len(member.held) == PARTITIONS
