"""The state machine of one consumer group: decides which member holds which partition.

It has no I/O and no clock: the group's coordinator (`coordinator`) passes inputs to it and carries out its outputs.

The state machine has two maps. The *target* says which member shall hold a partition: an assignor computes it from
subscriptions and topics. The *holders* say which member may hold it now. The state machine moves the holders towards
the target. It sends assignments to the members. An assignment has all partitions of a member, and an epoch of its own.

Why a partition has one owner:

1. A partition gets a holder only while it has none, and in the same step in which the assignment that names it is made.
   `_holders` has one value per key, so a partition is never in the assignments of two members at once.
2. A holder is cleared only when its member confirmed (`taken`) a later assignment without the partition, came back
   without it, left, was fenced, or is replaced by a new incarnation when it is certain not to deliver any more. Until
   then no other member gets the partition, whatever the target says.
3. A member delivers only records of the partitions in its last assignment, from the moment it took the assignment. It
   stops at once when its stream breaks. So it delivers only what it holds, as long as its stream lives. A frozen member
   that wakes after it was fenced may still deliver what it had fetched, but can commit nothing, because it is not a
   member any more.
4. Messages are sent only after the rows of their step are durable, and a step is one transaction. So after a restart
   the loaded holders include every partition that any member knows to be its own. All members are loaded as away, with
   all their partitions. A member that comes back in time keeps the partitions that it lists, and the rest is free.

Epochs. The group has one counter, which every assignment increments. A member's epoch is the epoch of the assignment
that it took last. Both only grow. At most one assignment per member is outstanding, so a member that comes back has one
of two epochs; with any other, it owns nothing. Commits and `taken` travel in order on the same stream, so the epoch of
a commit equals the member's, or the commit is refused.

Why no partition stays without an owner: a free partition is granted as soon as the member that the target names is
connected and has nothing outstanding. Every outstanding assignment is taken, or its member is fenced: after the
rebalance timeout while others wait for its partitions, and else after the max poll interval, even if it polls. A
member that is away comes back, or is fenced. A member within its grace keeps its place in the target.

The coordinator calls any number of inputs, then `rebalance` once, which costs O(members + partitions) if something has
changed and almost nothing otherwise, then `take_outputs`. `now` is in monotonic seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

from logbroker.consumer_groups.admission import check_room, check_settings, replaced_by
from logbroker.consumer_groups.assignors import DEFAULT_ASSIGNOR, AssignableTopic
from logbroker.consumer_groups.member import Input, Member, State, loaded_member, slot_of, static_slot
from logbroker.consumer_groups.messages import Assignment, Fenced, GroupOutputs, Join, Joined, Message
from logbroker.consumer_groups.outbox import Outbox
from logbroker.consumer_groups.rows import KEY_ORDER, decode_group, group_row
from logbroker.consumer_groups.subscriptions import Subscription
from logbroker.consumer_groups.target import TargetTable
from logbroker.errors import (
    CorruptLogError,
    GroupNotEmptyError,
    StaleMemberEpochError,
    UnknownMemberError,
    quoted,
)
from logbroker.group_runtime.deadline_heap import DeadlineHeap
from logbroker.types import PartitionKey

__all__ = [
    "Assignment",
    "Fenced",
    "Group",
    "GroupOutputs",
    "Join",
    "Joined",
    "Member",
    "Message",
    "State",
    "Subscription",
]

_NOTHING: Final[frozenset[PartitionKey]] = frozenset()


class Group:
    """The state machine of one group. Errors are raised before anything is changed."""

    def __init__(self, group_id: str, *, reconnect_grace_seconds: float, max_members: int) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.assignor = DEFAULT_ASSIGNOR
        self.growth_order = KEY_ORDER
        self.empty_since_ms = -1
        """Wall clock time (ms) since which the group has no members; -1: it has members."""
        self._grace_seconds = reconnect_grace_seconds
        self._max_members = max_members
        self._members: dict[str, Member] = {}
        self._slots: dict[str, Member] = {}
        self._holders: dict[PartitionKey, Member] = {}
        self._topics: Mapping[str, AssignableTopic] = {}
        self._target = TargetTable()
        self._target_is_stale = False
        self._unsettled: dict[str, None] = {}
        """Slots of members that may need an assignment, in order."""
        self._deadlines = DeadlineHeap(Member.deadline)
        self._outbox = Outbox()

    def load(self, rows: Mapping[bytes, bytes], topics: Mapping[str, AssignableTopic], now: float) -> None:
        """Load the rows that an earlier broker stored into a new state machine. All members are away, from `now` on.

        Raises CorruptLogError.
        """
        self.topics_changed(topics)
        header, members = decode_group(rows)
        if header is not None:
            self.epoch, self.assignor, self.empty_since_ms = header.epoch, header.assignor, header.empty_since_ms
            self.growth_order = header.growth_order
        for member_id, row in members.items():
            member = loaded_member(member_id, row, now)
            for partition in member.taken:
                other = self._holders.setdefault(partition, member)
                if other is not member:
                    raise CorruptLogError(f"group {self.group_id}: {partition} is stored with two holders")
            self._target.remember(member.slot, member.taken)
            self._add(member)
            self._expect_back(member, now)

    # --- queries -----------------------------------------------------------------------------------------------------

    def members(self) -> Iterable[Member]:
        """Return all members, in the order in which they came. Read-only."""
        return self._members.values()

    def member(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def static_member(self, instance_id: str) -> Member | None:
        """Return the member with this instance id."""
        return self._slots.get(static_slot(instance_id))

    def __len__(self) -> int:
        return len(self._members)

    def target(self, member: Member) -> frozenset[PartitionKey]:
        return self._target.of(member.slot)

    def subscribed_topics(self) -> frozenset[str]:
        """Return the names of the existing topics that members subscribe to."""
        subscriptions = {member.subscription for member in self._members.values()}
        return frozenset[str]().union(*(each.resolve(self._topics) for each in subscriptions))

    @property
    def state(self) -> str:
        """State of the group: empty, rebalancing (some member does not hold its target) or stable."""
        if not self._members:
            return "empty"
        settled = not self._target_is_stale and all(
            member.assigned is None and not member.needs_assignment and member.taken == self.target(member)
            for member in self._members.values()
        )
        return "stable" if settled else "rebalancing"

    def deadline(self) -> float:
        """Return the latest time for the next `tick`; NEVER: none is needed. May be too early."""
        return self._deadlines.next_at

    def is_due(self, now: float) -> bool:
        """Return whether `tick` has anything to do by now. If not, `deadline` is later than `now`."""
        return self._deadlines.is_due(now)

    def committable_partitions(self, member_id: str, epoch: int) -> frozenset[PartitionKey]:
        """Return the partitions for which a member may commit at this epoch. Raises UnknownMemberError or
        StaleMemberEpochError."""
        member = self._connected(member_id)
        if epoch != member.epoch:
            raise StaleMemberEpochError(
                f"the commit is of epoch {epoch}, the member's assignment of epoch {member.epoch}: what was read before"
                " the last assignment was taken must be committed before it is taken"
            )
        return member.taken

    # --- inputs ------------------------------------------------------------------------------------------------------

    def join(self, join: Join, now: float) -> None:
        """Admit a member, or resume one. The answer is Joined. This also ends an earlier stream of the member.

        Raises InvalidRequestError, MemberIdInUseError, InstanceIdInUseError, MemberNotReleasedError,
        AssignorMismatchError, GrowthOrderMismatchError or OverloadedError.
        """
        join.check()
        known = self._members.get(join.member_id)
        if known is not None and known.join.incarnation == join.incarnation and known.slot == slot_of(join):
            self._resume(known, join, now)
            return
        same_slot = self._slots.get(slot_of(join))
        replaced = replaced_by(join, known, same_slot, now=now, grace_seconds=self._grace_seconds)
        others = len(self._members) - len(replaced)
        check_room(others=others, max_members=self._max_members)
        if others:
            check_settings(join, assignor=self.assignor, growth_order=self.growth_order)
        for member in replaced:
            self._remove(member, Input.REPLACED)
        if not others:
            self.assignor = join.assignor or DEFAULT_ASSIGNOR
            self.growth_order = join.growth_order or KEY_ORDER
            self._outbox.header_changed = True
        member = Member(join, now)
        self._add(member)
        self._deadlines.arm(member, member.deadline())
        self._greet(member, resumed=False)

    def heartbeat(self, member_id: str, now: float, *, polled: bool) -> None:
        """Note that a member was heard from, by a heartbeat or a commit (which counts as a poll if it is accepted).
        Raises UnknownMemberError."""
        member = self._connected(member_id)
        member.heard_at = now
        if polled:
            member.polled_at = now

    def taken(self, member_id: str, epoch: int, now: float) -> None:
        """Confirm an assignment of a member. Epochs other than the outstanding one are ignored, because a member that
        came back may confirm an assignment that is void. Raises UnknownMemberError."""
        member = self._connected(member_id)
        member.heard_at = now
        if member.assigned is None or epoch != member.assigned_epoch:
            return
        released = member.taken - member.assigned
        member.move(Input.TAKEN)
        member.taken, member.assigned, member.epoch = member.assigned, None, epoch
        self._free(released, member)
        self._unsettled[member.slot] = None  # assignments that became due meanwhile had to wait for this
        self._outbox.touch(member)

    def subscribe(self, member_id: str, subscription: Subscription, now: float) -> None:
        """Change the subscription of a member. Raises UnknownMemberError or InvalidRequestError."""
        member = self._connected(member_id)
        subscription.check()
        member.heard_at = now
        if subscription != member.subscription:
            member.subscription = subscription
            self._target_is_stale = True
            self._outbox.touch(member)

    def leave(self, member_id: str, now: float, *, for_good: bool = False) -> None:
        """Let a member leave. It holds nothing any more. Unless it leaves for good, a static member keeps its place for
        its session timeout. Raises UnknownMemberError."""
        member = self._connected(member_id)
        member.heard_at = now
        if member.join.instance_id and not for_good:
            member.left = True
            self._outbox.touch(member)
            self._lose(member, now)
        else:
            self._remove(member, Input.LEFT)

    def disconnected(self, member_id: str, now: float) -> None:
        """Note that a member's current stream broke. It keeps its partitions for the grace."""
        member = self._members.get(member_id)
        if member is not None and member.connected:
            self._lose(member, now)

    def topics_changed(self, topics: Mapping[str, AssignableTopic]) -> None:
        """Use the given topics, by name. No other topics exist. The map is kept, not copied, and groups may share
        it."""
        self._topics = topics
        self._target_is_stale = True

    def detached_change(self) -> None:
        """Note that a program that is not a member changes the group's offsets. Raises GroupNotEmptyError."""
        if self._members:
            raise GroupNotEmptyError(
                f"the group has members ({len(self._members)}): stop them, or wait until their sessions have timed out"
            )
        self.epoch += 1
        self._outbox.header_changed = True

    def tick(self, now: float) -> None:
        """Fence members whose deadline has passed."""
        while (member := self._deadlines.pop(now)) is not None:
            if member.connected:
                self._outbox.send(member, Fenced(member.overdue(now)))
            self._remove(member, Input.FENCED)

    def rebalance(self, now: float) -> None:
        """Make the assignments that follow from the earlier inputs."""
        if self._target_is_stale:
            self._target_is_stale = False
            subscriptions = [(slot, member.subscription) for slot, member in self._slots.items()]
            if self._target.compute(self.assignor, subscriptions, self._topics):
                self._unsettled = dict.fromkeys(self._slots)
        for slot in self._unsettled:
            member = self._slots.get(slot)
            if member is None:
                continue
            if member.state is State.STABLE:
                self._assign(member, now)
            elif member.state is State.RECONCILING:
                if member.held <= self.target(member):
                    member.urged_at = math.inf
                else:
                    # Others wait for its partitions, and the next assignment has to wait for this one.
                    self._urge(member, now)
        self._unsettled.clear()

    def take_outputs(self, wall_ms: int) -> GroupOutputs:
        """Return the outputs since the last call. The events are one transaction, and the messages wait for it."""
        if not self._members and self.empty_since_ms < 0:
            self.empty_since_ms = wall_ms
            self._outbox.header_changed = True
        header = group_row(
            epoch=self.epoch,
            assignor=self.assignor,
            empty_since_ms=self.empty_since_ms,
            growth_order=self.growth_order,
        )
        return self._outbox.take(header, self._members)

    # --- steps -------------------------------------------------------------------------------------------------------

    def _connected(self, member_id: str) -> Member:
        member = self._members.get(member_id)
        if member is None or not member.connected:
            raise UnknownMemberError(f"{quoted(member_id)} is no member of the group (any more): join first")
        return member

    def _resume(self, member: Member, join: Join, now: float) -> None:
        """Resume the same incarnation of a member. It keeps the partitions that it may hold and lists."""
        resumed = join.epoch in (member.epoch, member.assigned_epoch)
        held = member.held
        kept = held & join.owned if resumed and join.epoch else _NOTHING
        # An assignment on its way is void, but the member may know it. So send a new one.
        member.needs_assignment = not resumed or join.epoch != member.assigned_epoch or not join.epoch
        member.move(Input.RESUMED)
        member.taken, member.assigned = kept, None
        member.epoch = member.assigned_epoch = join.epoch if resumed else 0
        self._free(held - kept, member)
        if join.subscription != member.subscription:
            member.subscription = join.subscription
            self._target_is_stale = True
        member.join = join
        member.left = False
        member.heard_at = member.polled_at = now
        self._deadlines.arm(member, member.deadline())
        self._greet(member, resumed=resumed)

    def _greet(self, member: Member, *, resumed: bool) -> None:
        self._outbox.drop_messages(member.member_id)
        grace_ms = round(self._grace_seconds * 1000)
        joined = Joined(self.assignor, member.join.session_timeout_ms, grace_ms, self.growth_order, resumed)
        self._outbox.send(member, joined)
        self._unsettled[member.slot] = None
        self._outbox.touch(member)

    def _add(self, member: Member) -> None:
        self._members[member.member_id] = member
        self._slots[member.slot] = member
        self._target_is_stale = True
        if self.empty_since_ms >= 0:
            self.empty_since_ms = -1
            self._outbox.header_changed = True

    def _remove(self, member: Member, cause: Input) -> None:
        held = member.held
        member.move(cause)
        self._deadlines.disarm(member)
        del self._members[member.member_id], self._slots[member.slot]
        self._free(held, member)
        self._target_is_stale = True
        self._outbox.touch(member)

    def _lose(self, member: Member, now: float) -> None:
        """Note that a member has no stream any more."""
        member.taken, member.assigned = member.held, None
        member.move(Input.DISCONNECTED)
        self._expect_back(member, now)
        if member.expires_at <= now:
            self._remove(member, Input.FENCED)

    def _expect_back(self, member: Member, now: float) -> None:
        member.expires_at = now + self._grace_seconds
        if member.join.instance_id or member.join.by_heartbeats:
            member.expires_at = max(member.expires_at, member.heard_at + member.join.session_timeout_ms / 1000)
        self._deadlines.arm(member, member.deadline())

    def _free(self, partitions: Iterable[PartitionKey], holder: Member) -> None:
        for partition in partitions:
            if self._holders.get(partition) is holder:
                del self._holders[partition]
                slot = self._target.slot_of(partition)
                if slot is not None:
                    self._unsettled[slot] = None

    def _urge(self, member: Member, now: float) -> None:
        """Begin the rebalance timeout of a member's outstanding assignment, unless it has begun."""
        member.urged_at = min(member.urged_at, now)
        self._deadlines.arm(member, member.deadline())

    def _assign(self, member: Member, now: float) -> None:
        """Push the part of a member's target that it may hold, if this differs from what it has."""
        holders = self._holders
        partitions = frozenset(
            partition for partition in self.target(member) if holders.get(partition, member) is member
        )
        if partitions == member.taken and not member.needs_assignment:
            return
        self.epoch += 1
        self._outbox.header_changed = True
        if not member.taken:
            member.polled_at = now  # Without partitions it had nothing to poll.
        granted = partitions - member.taken
        for partition in granted:
            holders[partition] = member
        member.move(Input.ASSIGNED)
        member.assigned, member.assigned_epoch = partitions, self.epoch
        # Partitions that it only gains have no other owner. They wait until its program asks for records.
        member.assigned_at, member.urged_at = now, math.inf
        if not member.taken <= partitions:
            self._urge(member, now)
        member.needs_assignment = False
        self._deadlines.arm(member, member.deadline())
        self._outbox.send(member, Assignment(self.epoch, partitions, granted))
        self._outbox.touch(member)
