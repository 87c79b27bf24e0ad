"""Members that send heartbeats: their heartbeats become inputs of the group's state machine, and what it tells them
becomes answers.

Such a member has a link to its group, as a stream has. The channel of the link sends nothing: it notes which assignment
is stored. Answers are as in Kafka:

- An assignment that takes nothing away is taken when a heartbeat comes. The answer has its epoch and all partitions.
- If partitions are taken away, the answer has the epoch from before, and the partitions that stay. Once the member has
  been told so, and a heartbeat lists what it owns without the others, the assignment is taken. Until then nobody else
  gets them, and the member may commit for them. Partitions that no answer has named need no such heartbeat.

A lost answer does no harm. Its member has the epoch before the present one, and lists only partitions that it holds: it
is told everything again. With any other epoch it is fenced, gives up everything, and joins again.

An answer with a new epoch waits until the group has stored that the assignment is taken. So a member that comes after a
restart of the broker has the stored epoch, unless the answer was lost. It then keeps everything that it may hold, and
nothing is assigned anew.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import msgspec

from logbroker.consumer_groups.classic.errors import FencedInstanceIdError, GroupFullError
from logbroker.consumer_groups.coordinator import Coordinator
from logbroker.consumer_groups.group_shell import in_turns
from logbroker.consumer_groups.heartbeats.errors import FencedMemberEpochError, InvalidRegularExpressionError
from logbroker.consumer_groups.heartbeats.messages import (
    ASSIGNORS,
    AWAY,
    JOINING,
    LEAVING,
    HeartbeatAnswer,
    HeartbeatTimes,
    MemberHeartbeat,
)
from logbroker.consumer_groups.member import Member
from logbroker.consumer_groups.membership import AssignedOffsets, MemberMessage
from logbroker.consumer_groups.messages import MAX_TIMEOUT_MS, MIN_TIMEOUT_MS, Join
from logbroker.consumer_groups.offsets import CommitOutcome, TopicCommit
from logbroker.consumer_groups.subscriptions import Subscription
from logbroker.errors import (
    AssignorMismatchError,
    InvalidRequestError,
    LogbrokerError,
    OverloadedError,
    StaleMemberEpochError,
    UnknownMemberError,
    quoted,
)

_INCARNATION_BITS: Final = 64


class HeartbeatMember:
    """A member that is heard from. It is the channel of its link."""

    def __init__(self, group: Coordinator, join: Join) -> None:
        """Join the group, or resume after a restart of the broker. Raises the errors of `Coordinator.join`."""
        self._group = group
        self._previous_epoch = 0
        """Epoch of the member before it took its last assignment; 0: not known."""
        self._stored_epoch = 0
        """Epoch of the last assignment that is stored."""
        self._told = join.owned
        """Partitions that the last answer named. At first, those that the broker may have named before it restarted."""
        self._has_answered = False
        self._may_own = join.owned
        """Partitions that the member may own: those of its last list, and those that it was told since."""
        self.link = group.join(join, self)

    def send(self, message: MemberMessage) -> None:
        if isinstance(message, AssignedOffsets):
            self._stored_epoch = message.epoch

    def accepts(self, beat: MemberHeartbeat, member: Member) -> bool:
        """Return whether the answer to the member's heartbeat before may have been lost."""
        return beat.epoch == self._previous_epoch and beat.owned is not None and beat.owned <= member.taken

    async def answer(self, beat: MemberHeartbeat) -> HeartbeatAnswer:
        """Return the answer when everything that it tells is stored.

        Raises UnknownMemberError, InvalidRequestError, InvalidRegularExpressionError or the error of the store.
        """
        is_repeated = beat.epoch != self._member().epoch
        self.link.heartbeat(polled=True)
        if self._subscribe(beat) or beat.epoch == JOINING:
            await self._group.synced()
        if beat.owned is not None:
            self._may_own = (beat.owned & self._member().taken) | self._told
        if self._take():
            await self._group.synced()
        member = self._member()
        partitions = member.taken
        if self._has_stored_assignment(member):
            assert member.assigned is not None
            partitions &= member.assigned
        is_told = is_repeated or beat.is_full or not self._has_answered or partitions != self._told
        self._told, self._has_answered = partitions, True
        self._may_own |= partitions
        return HeartbeatAnswer(member.member_id, member.epoch, partitions if is_told else None)

    def _member(self) -> Member:
        member = None if self.link.ended else self._group.machine.member(self.link.member_id)
        if member is None:
            raise UnknownMemberError(f"{quoted(self.link.member_id)} is no member of the group any more: join again")
        return member

    def _subscribe(self, beat: MemberHeartbeat) -> bool:
        """Change the subscription, if the heartbeat has another one."""
        before = self._member().subscription
        wanted = _subscription(beat, before)
        if wanted == before:
            return False
        self.link.subscribe(wanted)
        return True

    def _take(self) -> bool:
        """Take the outstanding assignment, if the member has given up the partitions that are taken away."""
        member = self._member()
        if not self._has_stored_assignment(member):
            return False
        assert member.assigned is not None
        if (member.taken - member.assigned) & self._may_own:
            return False
        self._previous_epoch = member.epoch
        self.link.taken(member.assigned_epoch)
        return True

    def _has_stored_assignment(self, member: Member) -> bool:
        return member.assigned is not None and member.assigned_epoch == self._stored_epoch


def join(group: Coordinator, beat: MemberHeartbeat, times: HeartbeatTimes) -> HeartbeatMember:
    """Let a member join, or join again with nothing.

    Raises InvalidRequestError, InvalidRegularExpressionError, GroupFullError, or an error if its id or instance id is
    in use.
    """
    known = group.machine.member(beat.member_id)
    is_back = known is not None and known.join.by_heartbeats
    assert beat.rebalance_timeout_ms is not None
    # The member hears of an assignment with its next heartbeat.
    rebalance_timeout_ms = beat.rebalance_timeout_ms + times.interval_ms
    wish = Join(
        member_id=beat.member_id,
        incarnation=known.join.incarnation if known is not None and is_back else _new_incarnation(),
        instance_id=beat.instance_id or "",
        subscription=_subscription(beat, Subscription()),
        assignor=ASSIGNORS[beat.assignor] if beat.assignor is not None else "",
        session_timeout_ms=times.session_timeout_ms,
        rebalance_timeout_ms=min(max(rebalance_timeout_ms, MIN_TIMEOUT_MS), MAX_TIMEOUT_MS),
        max_poll_interval_ms=MAX_TIMEOUT_MS,  # The client watches over its program.
        client_name=beat.client_id,
        client_host=beat.client_host,
        by_heartbeats=True,
    )
    try:
        try:
            return HeartbeatMember(group, wish)
        except AssignorMismatchError:
            # As in Kafka, a member only proposes an assignor.
            return HeartbeatMember(group, msgspec.structs.replace(wish, assignor=""))
    except OverloadedError as error:
        raise GroupFullError(error.message) from None


def heard(group: Coordinator, beat: MemberHeartbeat) -> HeartbeatMember:
    """Find the member of a heartbeat. Raises UnknownMemberError, FencedInstanceIdError or FencedMemberEpochError."""
    member = _known(group, beat.member_id, beat.instance_id)
    here = group.channel_of(beat.member_id)
    if beat.epoch != _epoch(member) and not (isinstance(here, HeartbeatMember) and here.accepts(beat, member)):
        raise FencedMemberEpochError(
            f"the heartbeat is of epoch {beat.epoch}, the member of epoch {_epoch(member)}: give up all partitions, and"
            " join again"
        )
    return _present(group, member)


async def leave(group: Coordinator, beat: MemberHeartbeat) -> HeartbeatAnswer:
    """Let a member leave, or be away for a while; returns when that is stored. Raises UnknownMemberError or
    FencedInstanceIdError."""
    member = _known(group, beat.member_id, beat.instance_id)
    _present(group, member).link.leave(for_good=beat.epoch == LEAVING)
    await group.synced()
    return HeartbeatAnswer(beat.member_id, beat.epoch)


async def commit(
    group: Coordinator, member_id: str, epoch: int, topics: Sequence[TopicCommit | LogbrokerError]
) -> list[CommitOutcome]:
    """Commit offsets for a member. They may go back, since members may seek. Returns when they are synced."""

    def stage(part: Sequence[TopicCommit | LogbrokerError]) -> list[CommitOutcome]:
        try:
            link = _present(group, check_epoch(group, member_id, epoch)).link
        except LogbrokerError as error:
            return [error.as_value()] * len(part)
        return group.stage_of_member(link, epoch, part, may_go_back=True)

    outcomes = await in_turns(topics, stage)
    await group.synced()
    return outcomes


def check_epoch(group: Coordinator, member_id: str, epoch: int) -> Member:
    """Return the member, if it has this epoch. Raises UnknownMemberError or StaleMemberEpochError."""
    member = _known(group, member_id, None)
    if epoch != _epoch(member):
        raise StaleMemberEpochError(
            f"the request is of epoch {epoch}, the member of epoch {_epoch(member)}: send a heartbeat first"
        )
    return member


def _known(group: Coordinator, member_id: str, instance_id: str | None) -> Member:
    machine = group.machine
    member = machine.static_member(instance_id) if instance_id else machine.member(member_id)
    if member is not None and member.member_id != member_id:
        raise FencedInstanceIdError(
            f"member {quoted(member.member_id)} has the instance id {quoted(instance_id)} by now: give each member an"
            " instance id of its own"
        )
    if member is None or not member.join.by_heartbeats:
        raise UnknownMemberError(
            f"the group has {len(machine)} members, and {quoted(member_id)} is not one of them: join it first"
        )
    return member


def _present(group: Coordinator, member: Member) -> HeartbeatMember:
    """Return a member as it is heard from. If it is away, since the broker has started, it resumes."""
    here = group.channel_of(member.member_id)
    if isinstance(here, HeartbeatMember):
        return here
    back = msgspec.structs.replace(
        member.join, subscription=member.subscription, epoch=member.epoch, owned=member.taken, assignor=""
    )
    return HeartbeatMember(group, back)


def _epoch(member: Member) -> int:
    return AWAY if member.left else member.epoch


def _subscription(beat: MemberHeartbeat, before: Subscription) -> Subscription:
    topics = before.topics if beat.topics is None else tuple(sorted(set(beat.topics)))
    pattern = before.topic_pattern if beat.topic_pattern is None else beat.topic_pattern
    try:
        Subscription(topic_pattern=pattern).check()
    except InvalidRequestError as error:
        raise InvalidRegularExpressionError(error.message) from None
    return Subscription(topics, pattern)


def _new_incarnation() -> int:
    return random.getrandbits(_INCARNATION_BITS) or 1
