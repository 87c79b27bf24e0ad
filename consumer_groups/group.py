"""The machine of one consumer group: who holds which partition. No I/O, no clock; a shell feeds it and obeys it.

Two maps. The *target* says who shall hold a partition: an assignor computes it from subscriptions and topics. The
*holders* say who may hold it now. The machine moves the holders towards the target, and each member hears of it in
assignments: whole sets, each with an epoch of its own.

Why a partition has one owner:

1. A partition gets a holder only when it has none, and in the same step as the assignment that names it is made.
   `_holders` has one value per key, so two members are never named at once.
2. A holder is cleared only when its member confirmed (`taken`) a later assignment without the partition, came back
   without it, left, was fenced, or is replaced by a new incarnation of it, once it surely delivers nothing any more.
   Until then, whatever the target says, nobody else is named.
3. A member delivers only what its last assignment named, from the moment it took it, and stops at once when its stream
   breaks. So it delivers only what it holds, as long as its stream lives; a frozen one that wakes after it was fenced
   may still deliver what it had fetched, but can commit nothing, as it is no member.
4. Messages leave only after the rows of their step are durable, and a step is one transaction. A restart finds holders
   that are at least those that any member knows of, and loads all members as away, holding all of it: who comes back in
   time keeps what it lists, and what it does not list is free.

Epochs. The group has one counter, raised by every assignment; a member's epoch is that of the assignment it took last.
Both only grow. At most one assignment per member is outstanding, so the epoch of a member that comes back is one of
two; by any other, it owns nothing. Commits travel in order with `taken` on the same stream, so the epoch of a commit
equals the member's, or is refused.

Why none stays an orphan: what is free is granted as soon as the member that the target names is connected and has
nothing outstanding. Every outstanding assignment is taken, or its member is fenced after the rebalance timeout; who is
away comes back, or is fenced. A member within its grace keeps its place in the target.

The shell calls any number of inputs, then `rebalance` once, which costs O(members + partitions) if something has
changed and next to nothing otherwise, then `take_outputs`. `now` is in monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from logbroker.consumer_groups.admission import check_room, check_settings, replaced_by
from logbroker.consumer_groups.assignors import DEFAULT_ASSIGNOR, AssignableTopic
from logbroker.consumer_groups.member import Input, Member, State, loaded_member, slot_of
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
    """One group. Errors are raised before anything is changed."""

    def __init__(self, group_id: str, *, reconnect_grace_seconds: float, max_members: int) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.assignor = DEFAULT_ASSIGNOR
        self.growth_order = KEY_ORDER
        self.empty_since_ms = -1
        """Wall clock; -1: it has members."""
        self._grace_seconds = reconnect_grace_seconds
        self._max_members = max_members
        self._members: dict[str, Member] = {}
        self._slots: dict[str, Member] = {}
        self._holders: dict[PartitionKey, Member] = {}
        self._topics: Mapping[str, AssignableTopic] = {}
        self._target = TargetTable()
        self._target_is_stale = False
        self._unsettled: dict[str, None] = {}
        """Slots, in order, whose member may be due an assignment."""
        self._deadlines = DeadlineHeap(Member.deadline)
        self._outbox = Outbox()

    def load(self, rows: Mapping[bytes, bytes], topics: Mapping[str, AssignableTopic], now: float) -> None:
        """Take over, into a new machine, what a broker before stored. All members are away, from `now` on.

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

    # --- what is asked -----------------------------------------------------------------------------------------------

    def members(self) -> Iterable[Member]:
        """All of them, in the order in which they came. To be read only."""
        return self._members.values()

    def member(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def __len__(self) -> int:
        return len(self._members)

    def target(self, member: Member) -> frozenset[PartitionKey]:
        return self._target.of(member.slot)

    @property
    def state(self) -> str:
        """empty, rebalancing (somebody does not hold what it shall) or stable."""
        if not self._members:
            return "empty"
        settled = not self._target_is_stale and all(
            member.assigned is None and not member.needs_assignment and member.taken == self.target(member)
            for member in self._members.values()
        )
        return "stable" if settled else "rebalancing"

    def deadline(self) -> float:
        """When `tick` is to be called, at the latest; NEVER: not at all. May be early."""
        return self._deadlines.next_at

    def is_due(self, now: float) -> bool:
        """Whether `tick` has anything to do by now; if not, `deadline` is a later one."""
        return self._deadlines.is_due(now)

    def committable_partitions(self, member_id: str, epoch: int) -> frozenset[PartitionKey]:
        """What a member may commit for at this epoch. Raises UnknownMemberError or StaleMemberEpochError."""
        member = self._connected(member_id)
        if epoch != member.epoch:
            raise StaleMemberEpochError(
                f"the commit is of epoch {epoch}, the member's assignment of epoch {member.epoch}: what was read before"
                " the last assignment was taken must be committed before it is taken"
            )
        return member.taken

    # --- inputs ------------------------------------------------------------------------------------------------------

    def join(self, join: Join, now: float) -> None:
        """Take a member in, or back; answered by Joined. Its stream before, if there is one, is over without an input.

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
        """Something was heard of a member: a heartbeat, a commit (counts as polled). Raises UnknownMemberError."""
        member = self._connected(member_id)
        member.heard_at = now
        if polled:
            member.polled_at = now

    def taken(self, member_id: str, epoch: int, now: float) -> None:
        """A member confirms an assignment. Those of another epoch than the outstanding one are passed over: a member
        that came back may confirm one that is void. Raises UnknownMemberError."""
        member = self._connected(member_id)
        member.heard_at = now
        if member.assigned is None or epoch != member.assigned_epoch:
            return
        released = member.taken - member.assigned
        member.move(Input.TAKEN)
        member.taken, member.assigned, member.epoch = member.assigned, None, epoch
        self._free(released, member)
        self._unsettled[member.slot] = None  # what became due meanwhile had to wait for this
        self._outbox.touch(member)

    def subscribe(self, member_id: str, subscription: Subscription, now: float) -> None:
        """A member wants to read other topics. Raises UnknownMemberError or InvalidRequestError."""
        member = self._connected(member_id)
        subscription.check()
        member.heard_at = now
        if subscription != member.subscription:
            member.subscription = subscription
            self._target_is_stale = True
            self._outbox.touch(member)

    def leave(self, member_id: str, now: float) -> None:
        """A member says goodbye and holds nothing any more; a static one keeps its place for its session timeout.
        Raises UnknownMemberError."""
        member = self._connected(member_id)
        member.heard_at = now
        if member.join.instance_id:
            member.left = True
            self._lose(member, now)
        else:
            self._remove(member, Input.LEFT)

    def disconnected(self, member_id: str, now: float) -> None:
        """A member's present stream broke: it keeps what it holds for the grace."""
        member = self._members.get(member_id)
        if member is not None and member.connected:
            self._lose(member, now)

    def topics_changed(self, topics: Mapping[str, AssignableTopic]) -> None:
        """These are all topics, by name. The map is kept, not copied; it may be shared by all groups."""
        self._topics = topics
        self._target_is_stale = True

    def detached_change(self) -> None:
        """The group's offsets are changed by a program that is no member. Raises GroupNotEmptyError."""
        if self._members:
            raise GroupNotEmptyError(
                f"the group has members ({len(self._members)}): stop them, or wait until their time is over"
            )
        self.epoch += 1
        self._outbox.header_changed = True

    def tick(self, now: float) -> None:
        """Fence those whose time is over."""
        while (member := self._deadlines.pop(now)) is not None:
            if member.connected:
                self._outbox.send(member, Fenced(member.overdue(now)))
            self._remove(member, Input.FENCED)

    def rebalance(self, now: float) -> None:
        """Make the assignments that the inputs before led to."""
        if self._target_is_stale:
            self._target_is_stale = False
            subscriptions = [(slot, member.subscription) for slot, member in self._slots.items()]
            if self._target.compute(self.assignor, subscriptions, self._topics):
                self._unsettled = dict.fromkeys(self._slots)
        for slot in self._unsettled:
            member = self._slots.get(slot)
            if member is not None and member.state is State.STABLE:
                self._assign(member, now)
        self._unsettled.clear()

    def take_outputs(self, wall_ms: int) -> GroupOutputs:
        """Return what followed since the last call. The events are one transaction, the messages wait for it."""
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
        """The same incarnation is back: it keeps what it lists of what it may hold."""
        resumed = join.epoch in (member.epoch, member.assigned_epoch)
        held = member.held
        kept = held & join.owned if resumed and join.epoch else _NOTHING
        # An assignment that was on its way is void, and the member may know of it: tell it anew.
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
        del self._members[member.member_id], self._slots[member.slot]
        self._free(held, member)
        self._target_is_stale = True
        self._outbox.touch(member)

    def _lose(self, member: Member, now: float) -> None:
        """A member has no stream any more."""
        member.taken, member.assigned = member.held, None
        member.move(Input.DISCONNECTED)
        self._expect_back(member, now)
        if member.expires_at <= now:
            self._remove(member, Input.FENCED)

    def _expect_back(self, member: Member, now: float) -> None:
        member.expires_at = now + self._grace_seconds
        if member.join.instance_id:
            member.expires_at = max(member.expires_at, member.heard_at + member.join.session_timeout_ms / 1000)
        self._deadlines.arm(member, member.deadline())

    def _free(self, partitions: Iterable[PartitionKey], holder: Member) -> None:
        for partition in partitions:
            if self._holders.get(partition) is holder:
                del self._holders[partition]
                slot = self._target.slot_of(partition)
                if slot is not None:
                    self._unsettled[slot] = None

    def _assign(self, member: Member, now: float) -> None:
        """Push what a member shall hold and may, if it is anything else than what it has."""
        holders = self._holders
        partitions = frozenset(
            partition for partition in self.target(member) if holders.get(partition, member) is member
        )
        if partitions == member.taken and not member.needs_assignment:
            return
        self.epoch += 1
        self._outbox.header_changed = True
        if not member.taken:
            member.polled_at = now  # it could not poll what it did not have
        granted = partitions - member.taken
        for partition in granted:
            holders[partition] = member
        member.move(Input.ASSIGNED)
        member.assigned, member.assigned_epoch, member.pushed_at = partitions, self.epoch, now
        member.needs_assignment = False
        self._deadlines.arm(member, member.deadline())
        self._outbox.send(member, Assignment(self.epoch, partitions, granted))
        self._outbox.touch(member)
