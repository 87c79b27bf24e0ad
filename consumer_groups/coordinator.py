"""The shell around one group's machine: it is told what members say, stores what follows, and then tells them.

Inputs are carried out at once, in the order in which they come. What follows from them (changed rows, staged offsets,
messages) gathers until the transaction before is synced, and goes as one into the next: a crowd of joins costs one
assignment, and the commits of all members share a sync. Messages leave when what they speak of is synced, in order.

Time is the event loop's monotonic clock; the machine says when it wants to be told the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence, Set
from typing import Final

from logbroker.clock import Clock
from logbroker.consumer_groups.assignors import AssignableTopic
from logbroker.consumer_groups.group import Group
from logbroker.consumer_groups.membership import (
    AssignedOffsets,
    Channel,
    CommitDone,
    Ended,
    MemberMessage,
    Membership,
)
from logbroker.consumer_groups.messages import Assignment, Fenced, Join, Message
from logbroker.consumer_groups.offsets import CommitOutcome, EndOffset, Floors, OffsetTable, TopicCommit
from logbroker.consumer_groups.rows import HEADER_ROW
from logbroker.consumer_groups.subscriptions import Subscription
from logbroker.engine import StateEvent
from logbroker.errors import GroupNotEmptyError, LogbrokerError, MemberReplacedError, UnknownMemberError
from logbroker.group_store import GroupStore
from logbroker.types import TopicId

LATE_SECONDS: Final = 0.1
"""A timer that is later than this tells of a stalled process: members are heard before they are judged."""


class Coordinator:
    """One group. Everything runs on the event loop, and one transaction is under way at a time."""

    def __init__(
        self,
        group_id: str,
        machine: Group,
        offsets: OffsetTable,
        store: GroupStore,
        clock: Clock,
        end_offset: EndOffset,
    ) -> None:
        self.group_id = group_id
        self.machine = machine
        self.offsets = offsets
        self._store = store
        self._clock = clock
        self._end_offset = end_offset
        self._loop = asyncio.get_running_loop()
        self._links: dict[str, Membership] = {}
        self._floors: dict[str, Floors] = {}
        self._events: list[StateEvent] = []
        self._messages: list[tuple[Membership, Message | CommitDone | Ended]] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._stepping: asyncio.Task[None] | None = None
        self._dirty = False
        self._is_time = False
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = 0.0
        self._frozen = False
        self._topic_ids: Set[TopicId] | None = None
        """Given where offsets of other topics are to be dropped."""
        for member in machine.members():
            self._floors[member.member_id] = offsets.loaded_floors(member.taken)
        self._arm()

    # --- members ---

    def join(self, join: Join, channel: Channel) -> Membership:
        """Make a stream a member's; raises InvalidRequestError, MemberIdInUseError, InstanceIdInUseError, ..."""
        self.machine.join(join, self._loop.time())
        member_id = join.member_id
        before = self._links.get(member_id)
        if before is not None:
            self._end(before)
            before.channel.send(Ended(MemberReplacedError("the member came back on another stream")))
        link = self._links[member_id] = Membership(self, member_id, channel)
        self._collect()
        self._refresh_floors(member_id)
        return link

    def heartbeat(self, link: Membership, *, polled: bool) -> None:
        self.machine.heartbeat(link.member_id, self._loop.time(), polled=polled)

    def taken(self, link: Membership, epoch: int) -> None:
        self.machine.taken(link.member_id, epoch, self._loop.time())
        self._collect()
        self._refresh_floors(link.member_id)

    def subscribe(self, link: Membership, subscription: Subscription) -> None:
        self.machine.subscribe(link.member_id, subscription, self._loop.time())
        self._collect()

    def leave(self, link: Membership) -> None:
        self.machine.leave(link.member_id, self._loop.time())
        self._end(link)
        self._collect()
        self._messages.append((link, Ended(None)))
        self._kick()

    def disconnected(self, link: Membership) -> None:
        if self._frozen:
            return  # It is the broker that goes; its members are expected back.
        self.machine.disconnected(link.member_id, self._loop.time())
        self._end(link)
        self._collect()

    def _end(self, link: Membership) -> None:
        link.ended = True
        del self._links[link.member_id]

    def _refresh_floors(self, member_id: str) -> None:
        member = self.machine.member(member_id)
        assert member is not None
        self._floors[member_id] = self.offsets.floors(member.taken, self._floors.get(member_id, {}))

    # --- commits ---

    def commit(
        self, link: Membership, correlation_id: int, epoch: int, topics: Sequence[TopicCommit | LogbrokerError]
    ) -> None:
        outcomes: list[CommitOutcome]
        try:
            if link.ended:
                raise UnknownMemberError(f"{link.member_id} is no member of group {self.group_id} any more: join anew")
            self.machine.heartbeat(link.member_id, self._loop.time(), polled=True)
            self.machine.holdings(link.member_id, epoch)
        except LogbrokerError as error:
            outcomes = [error] * len(topics)
        else:
            outcomes = self._stage(topics, self._floors[link.member_id])
        done = CommitDone(correlation_id, outcomes)
        if self.offsets.has_staged or self._stepping is not None:  # Answers come in the order of the commits.
            self._messages.append((link, done))
            self._kick()
        else:
            link.channel.send(done)

    async def commit_offsets(self, topics: Sequence[TopicCommit | LogbrokerError]) -> list[CommitOutcome]:
        """Commit for a program that is no member, backwards too; returns once it is synced.

        Raises GroupNotEmptyError.
        """
        self.machine.detached_change()
        outcomes = self._stage(topics, None)
        await self._transaction()
        return outcomes

    def _stage(self, topics: Sequence[TopicCommit | LogbrokerError], floors: Floors | None) -> list[CommitOutcome]:
        now_ms = self._clock.wall_ms()
        stage, end_offset = self.offsets.stage, self._end_offset
        return [
            topic if isinstance(topic, LogbrokerError) else stage(topic, floors, end_offset, now_ms) for topic in topics
        ]

    # --- the group ---

    def topics_changed(self, topics: Mapping[str, AssignableTopic], topic_ids: Set[TopicId]) -> None:
        """These are all topics, and their ids."""
        self.machine.topics_changed(topics)
        if len(self.machine) or not self.offsets.topic_ids() <= topic_ids:
            self._topic_ids = topic_ids
            self._kick()

    def is_expired(self, retention_ms: int) -> bool:
        """Whether it has had no members and no commits for that long, by the wall clock."""
        if len(self.machine) or self._stepping is not None:
            return False
        last_used_ms = max(self.machine.empty_since_ms, self.offsets.last_commit_ms)
        return last_used_ms + retention_ms <= self._clock.wall_ms()

    async def delete(self) -> None:
        """Forget everything that is stored. Raises GroupNotEmptyError. Nobody may join meanwhile, or after."""
        if len(self.machine):
            raise GroupNotEmptyError(
                f"the group has members ({len(self.machine)}): stop them, or wait until their time is over"
            )
        await self.settle()
        await self._store.delete([StateEvent(HEADER_ROW, None), *self.offsets.drop_topics(lambda _: False)])

    def freeze(self) -> None:
        """The broker stops: from now on nobody's time is over, and streams that break are not their members' fault."""
        self._frozen = True
        if self._timer is not None:
            self._timer.cancel()

    async def settle(self) -> None:
        """Wait for the transactions under way."""
        while self._stepping is not None:
            await asyncio.wait([self._stepping])

    # --- steps ---

    def _collect(self) -> None:
        """An input was given to the machine: a step is due."""
        self._take_outputs()
        self._kick()

    def _take_outputs(self) -> None:
        """Gather what followed; messages belong to the stream that a member has at this moment."""
        outputs = self.machine.take_outputs(self._clock.wall_ms())
        self._events += outputs.events
        for member_id, message in outputs.messages:
            link = self._links.get(member_id)
            if link is not None:
                self._messages.append((link, message))
                if isinstance(message, Fenced):
                    self._end(link)

    def _kick(self) -> None:
        self._dirty = True
        if self._stepping is None:
            self._stepping = self._loop.create_task(self._steps(), name=f"group {self.group_id}")

    async def _transaction(self) -> None:
        """Wait until what has gathered is synced; raises StorageFailedError."""
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        self._kick()
        await waiter

    async def _steps(self) -> None:
        try:
            while self._dirty:
                self._dirty = False
                self._decide()
                await self._carry_out()
        finally:
            self._stepping = None
        self._arm()

    def _decide(self) -> None:
        now = self._loop.time()
        if self._is_time:
            self._is_time = False
            self.machine.tick(now)
        if self._topic_ids is not None:
            self._events += self.offsets.drop_topics(self._topic_ids.__contains__)
            self._topic_ids = None
        self.machine.rebalance(now)
        self._take_outputs()
        if len(self._floors) > len(self.machine):
            self._floors = {
                member_id: floors for member_id, floors in self._floors.items() if self.machine.member(member_id)
            }

    async def _carry_out(self) -> None:
        """Store what has gathered, then tell of it."""
        staged = self.offsets.take_staged()
        events, self._events = self._events, []
        messages, self._messages = self._messages, []
        waiters, self._waiters = self._waiters, []
        events += staged.events()
        try:
            if events:
                await self._store.commit(events)
        except LogbrokerError as error:
            # The broker ends by this. Nobody is told anything any more.
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(error)
            return
        self.offsets.apply(staged)
        for link, message in messages:
            link.channel.send(self._outgoing(message))
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _outgoing(self, message: Message | CommitDone | Ended) -> MemberMessage:
        if isinstance(message, Assignment):
            get = self.offsets.get
            return AssignedOffsets(message.epoch, [(key, get(*key)) for key in sorted(message.partitions)])
        return Ended(message.error) if isinstance(message, Fenced) else message

    # --- time ---

    def _arm(self) -> None:
        deadline = self.machine.deadline()
        if deadline is None or self._frozen:
            return
        if self._timer is not None:
            if self._armed_for <= deadline:
                return
            self._timer.cancel()
        self._armed_for = deadline
        self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        if self._loop.time() - self._armed_for > LATE_SECONDS:
            self._timer = self._loop.call_later(LATE_SECONDS, self._on_time)
        else:
            self._on_time()

    def _on_time(self) -> None:
        self._timer = None
        self._is_time = True
        self._kick()
