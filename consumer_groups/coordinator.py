"""The code around the state machine of one group (`group`): it passes the requests of members to the state machine,
stores the results, and sends the messages.

Inputs are processed at once, in the order in which they arrive. Their results (changed rows, staged offsets, messages)
gather until the previous transaction is synced, and go into the next one together. So any number of joins at the same
time cost one assignment, and the commits of all members share a sync. Messages are sent in order, when the changes that
they report are synced.

Time is the event loop's monotonic clock; the state machine says when it needs a tick.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Final, NamedTuple

import msgspec

from logbroker.clock import Clock
from logbroker.consumer_groups.assignors import AssignableTopic
from logbroker.consumer_groups.generations import NO_BOUND, Generations, ToldPosition, TopicLogs
from logbroker.consumer_groups.group import Group
from logbroker.consumer_groups.group_shell import GroupShell, in_turns, is_small
from logbroker.consumer_groups.membership import (
    AssignedOffsets,
    Channel,
    CommitDone,
    Ended,
    GenerationsToRead,
    MemberLink,
    MemberMessage,
)
from logbroker.consumer_groups.messages import Assignment, Fenced, Join, Joined, Message
from logbroker.consumer_groups.offsets import (
    CommitOutcome,
    EndOffset,
    Floors,
    OffsetTable,
    StagedOffsets,
    TopicCommit,
)
from logbroker.consumer_groups.rows import KEY_ORDER
from logbroker.consumer_groups.subscriptions import Subscription
from logbroker.engine import DiskUse, StateEvent
from logbroker.errors import LogbrokerError, MemberReplacedError, UnknownMemberError
from logbroker.group_runtime.group_store import GroupStore
from logbroker.types import TopicId

LOOK_SECONDS: Final = 2.0
"""Interval at which partitions that a generation waits for are checked, because logs do not report their changes."""


class _ToRead(msgspec.Struct, gc=False):
    """A message to a member: the generations of these topics to read, computed when the message is sent."""

    topic_ids: Set[TopicId]


_Addressed = tuple[MemberLink, Message | CommitDone | Ended | _ToRead]


class _Step(NamedTuple):
    """Changes that take effect once they are stored."""

    staged: StagedOffsets
    messages: Sequence[_Addressed]


class Coordinator(GroupShell[Group]):
    """One group. It runs on the event loop, with one transaction at a time."""

    def __init__(
        self,
        group_id: str,
        machine: Group,
        offsets: OffsetTable,
        store: GroupStore,
        clock: Clock,
        end_offset: EndOffset,
        logs: TopicLogs,
        on_rebalanced: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """`on_rebalanced` is called with the time that a rebalance took."""
        super().__init__(group_id, machine, offsets, store, clock, end_offset)
        self._on_rebalanced = on_rebalanced
        self.generations = Generations(logs, offsets.of_topic)
        self._links: dict[str, MemberLink] = {}
        self._floors: dict[str, Floors] = {}
        self._events: list[StateEvent] = []
        self._messages: list[_Addressed] = []
        self._look: asyncio.TimerHandle | None = None
        """Timer of the next check of the partitions that generations wait for."""
        for member in machine.members():
            self._floors[member.member_id] = offsets.loaded_floors(member.taken)
        self._arm()

    # --- members ---

    def join(self, join: Join, channel: Channel) -> MemberLink:
        """Let a member join by a new stream, which replaces its earlier one. Raises InvalidRequestError,
        MemberIdInUseError, InstanceIdInUseError, ..."""
        self.machine.join(join, self._loop.time())
        member_id = join.member_id
        before = self._links.get(member_id)
        if before is not None:
            self._end(before)
            before.channel.send(Ended(MemberReplacedError("the member came back on another stream")))
        link = self._links[member_id] = MemberLink(self, member_id, channel)
        self._collect()
        self._refresh_floors(member_id)
        return link

    def heartbeat(self, link: MemberLink, *, polled: bool) -> None:
        self.machine.heartbeat(link.member_id, self._loop.time(), polled=polled)

    def tell(self, link: MemberLink, positions: Sequence[ToldPosition]) -> None:
        member = self.machine.member(link.member_id)
        assert member is not None
        now = self._loop.time()
        for position in positions:
            if position.partition in member.taken:
                self.generations.tell(member.member_id, position, now, member.join.max_poll_interval_ms / 1000)
        self._follow_generations()

    def taken(self, link: MemberLink, epoch: int) -> None:
        self.machine.taken(link.member_id, epoch, self._loop.time())
        self._collect()
        self._refresh_floors(link.member_id)

    def subscribe(self, link: MemberLink, subscription: Subscription) -> None:
        self.machine.subscribe(link.member_id, subscription, self._loop.time())
        self._collect()

    def leave(self, link: MemberLink, *, for_good: bool = False) -> None:
        self.machine.leave(link.member_id, self._loop.time(), for_good=for_good)
        self._end(link)
        self._collect()
        self._messages.append((link, Ended(None)))
        self._commits.request()

    def disconnected(self, link: MemberLink) -> None:
        if self._frozen:
            return  # The broker stops, and expects its members back.
        self.machine.disconnected(link.member_id, self._loop.time())
        self._end(link)
        self._collect()

    def channel_of(self, member_id: str) -> Channel | None:
        """Return the channel of a member that is connected."""
        link = self._links.get(member_id)
        return None if link is None else link.channel

    async def synced(self) -> None:
        """Wait until all changes up to now are synced, and the messages that tell of them are sent. Raises the error
        after which the group stores nothing more."""
        await self._commits.synced(None)

    def _end(self, link: MemberLink) -> None:
        link.ended = True
        del self._links[link.member_id]

    def _refresh_floors(self, member_id: str) -> None:
        member = self.machine.member(member_id)
        assert member is not None
        self._floors[member_id] = self.offsets.floors(member.taken, self._floors.get(member_id, {}))
        self.generations.forget(member_id, member.taken)

    # --- commits ---

    def commit(
        self, link: MemberLink, correlation_id: int, epoch: int, topics: Sequence[TopicCommit | LogbrokerError]
    ) -> None:
        self._answer_commit(link, correlation_id, self.stage_of_member(link, epoch, topics))

    async def commit_in_turns(
        self, link: MemberLink, correlation_id: int, epoch: int, topics: Sequence[TopicCommit | LogbrokerError]
    ) -> None:
        """Run `commit`, for a number of partitions that may be large. Other inputs may come in between; if they end the
        member, the rest of the commit is refused."""
        if is_small(topics):
            self.commit(link, correlation_id, epoch, topics)
            return
        outcomes = await in_turns(topics, lambda part: self.stage_of_member(link, epoch, part))
        self._answer_commit(link, correlation_id, outcomes)

    def stage_of_member(
        self,
        link: MemberLink,
        epoch: int,
        topics: Sequence[TopicCommit | LogbrokerError],
        *,
        may_go_back: bool = False,
    ) -> list[CommitOutcome]:
        """Stage a part of a commit. Its offsets are synced with the next transaction."""
        try:
            if link.ended:
                raise UnknownMemberError(f"{link.member_id} is no member of group {self.group_id} any more: join anew")
            self.machine.heartbeat(link.member_id, self._loop.time(), polled=False)
            self.machine.committable_partitions(link.member_id, epoch)
            self.store.check_room(DiskUse.USES_RESERVE)
        except LogbrokerError as error:
            return [error.as_value()] * len(topics)
        floors = self._floors[link.member_id]
        if may_go_back:
            _lower(floors, topics)
        outcomes = self._stage(topics, floors)
        if any(_took_some(topic, outcome) for topic, outcome in zip(topics, outcomes, strict=True)):
            # A refused commit does not show that the program is alive: clients repeat it by themselves.
            self.machine.heartbeat(link.member_id, self._loop.time(), polled=True)
        return outcomes

    def _answer_commit(self, link: MemberLink, correlation_id: int, outcomes: list[CommitOutcome]) -> None:
        done = CommitDone(correlation_id, outcomes)
        if self.offsets.has_staged or self._commits.is_running:  # Answer in the order of the commits.
            self._messages.append((link, done))
            self._commits.request()
        else:
            link.channel.send(done)

    # --- the group ---

    def topics_changed(self, topics: Mapping[str, AssignableTopic], topic_ids: Set[TopicId]) -> None:
        """Use the given topics and ids. No other topics exist."""
        self.machine.topics_changed(topics)
        self.generations.topics_changed()
        self.drop_topics(topic_ids)

    def freeze(self) -> None:
        """Stop timeouts, because the broker stops: members do not expire any more, and a broken stream is not their
        fault."""
        super().freeze()
        if self._look is not None:
            self._look.cancel()

    def end(self, error: LogbrokerError) -> None:
        super().end(error)
        for link in list(self._links.values()):
            self._end(link)
            link.channel.send(Ended(error))

    # --- steps ---

    def _collect(self) -> None:
        """Request a step after an input to the state machine."""
        self._take_outputs()
        self._commits.request()

    def _take_outputs(self) -> None:
        """Gather the outputs of the state machine. A message belongs to the current stream of its member."""
        outputs = self.machine.take_outputs(self._clock.wall_ms())
        self._events += outputs.events
        for member_id, message in outputs.messages:
            link = self._links.get(member_id)
            if link is not None:
                self._messages.append((link, message))
                if isinstance(message, Fenced):
                    self._end(link)

    def _step(self) -> tuple[Sequence[StateEvent], _Step]:
        """Make the decisions that are due, and return everything gathered."""
        now = self._loop.time()
        if self._is_time:
            self._is_time = False
            self.machine.tick(now)
        self._events += self._drop_topics_now()
        self.machine.rebalance(now)
        self._take_outputs()
        self._on_rebalanced(self._loop.time() - now)
        if len(self._floors) > len(self.machine):
            for member_id in [each for each in self._floors if self.machine.member(each) is None]:
                del self._floors[member_id]
                self.generations.forget(member_id)
        if not len(self.machine):
            self.generations.forget_all()
        staged = self.offsets.take_staged()
        events, self._events = self._events, []
        messages, self._messages = self._messages, []
        return [*events, *staged.events()], _Step(staged, messages)

    def _on_synced(self, step: _Step) -> None:
        self.offsets.apply(step.staged)
        for link, message in step.messages:
            link.channel.send(self._outgoing(link, message))
            if isinstance(message, Joined) and message.resumed and not self._sends_heartbeats(link):
                self._remind(link)
        self._follow_generations()
        self._arm()

    def _outgoing(self, link: MemberLink, message: Message | CommitDone | Ended | _ToRead) -> MemberMessage:
        if isinstance(message, Assignment):
            if self._sends_heartbeats(link):
                return AssignedOffsets(message.epoch, [], {})  # It asks for offsets, and reads all generations.
            get = self.offsets.get
            partitions = sorted(message.partitions)
            generations = self._generations_of({topic_id for topic_id, _ in partitions})
            return AssignedOffsets(message.epoch, [(key, get(*key)) for key in partitions], generations.topics)
        if isinstance(message, _ToRead):
            return self._generations_of(message.topic_ids)
        return Ended(message.error) if isinstance(message, Fenced) else message

    def _sends_heartbeats(self, link: MemberLink) -> bool:
        member = self.machine.member(link.member_id)
        return member is not None and member.join.by_heartbeats

    # --- generations of topics ---

    def _generations_of(self, topic_ids: Set[TopicId]) -> GenerationsToRead:
        """Return the generations to read now. A member uses the generations that it was sent last."""
        if self.machine.growth_order != KEY_ORDER:
            return GenerationsToRead(dict.fromkeys(topic_ids, NO_BOUND))
        now = self._loop.time()
        return GenerationsToRead({topic_id: self.generations.of(topic_id, now) for topic_id in topic_ids})

    def _remind(self, link: MemberLink) -> None:
        """Send the generations of grown topics to a member that came back. The broker may have sent it other
        generations before a restart, and perhaps no assignment follows."""
        told = self._generations_of(self._held_topics(link))
        grown = {topic.id for topic, _ in self.generations.grown()}
        if topics := {topic_id: each for topic_id, each in told.topics.items() if topic_id in grown}:
            link.channel.send(GenerationsToRead(topics))

    def _held_topics(self, link: MemberLink) -> set[TopicId]:
        member = self.machine.member(link.member_id)
        return set() if member is None else {topic_id for topic_id, _ in member.held}

    def _follow_generations(self) -> None:
        """Tell members when the generations to read change."""
        if changed := self.generations.advanced(self._loop.time()).keys():
            for link in self._links.values():
                if topic_ids := self._held_topics(link) & changed:
                    self._messages.append((link, _ToRead(topic_ids)))
            self._commits.request()
        if self._look is None and self.generations.are_waiting and not self._frozen:
            self._look = self._loop.call_later(LOOK_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._look = None
        self._follow_generations()


def _lower(floors: Floors, topics: Sequence[TopicCommit | LogbrokerError]) -> None:
    """Let a member commit any offsets in the partitions of a commit that it holds."""
    for topic in topics:
        if isinstance(topic, TopicCommit):
            held = floors.get(topic.topic_id, {})
            held.update((partition, -1) for partition in topic.partitions if partition in held)


def _took_some(topic: TopicCommit | LogbrokerError, outcome: CommitOutcome) -> bool:
    """Return whether the commit of some partition of the topic was accepted."""
    if isinstance(topic, LogbrokerError) or isinstance(outcome, LogbrokerError):
        return False
    return len(outcome) < len(topic.partitions)
