"""The state machine of one classic group: decides which members belong to which generation.

It does no I/O and reads no clock; `classic_coordinator` passes the inputs and carries out the outputs. A generation is
a set of members with a leader. The leader assigns the partitions, and the state machine passes the assignment on
without reading it.

state        meaning                                          left when
EMPTY        no members                                       a member joins
PREPARING    a new generation waits for all to join           all have joined, or the rebalance timeout is over
COMPLETING   a generation waits for its leader's assignment   it comes, a member is lost, or a new one joins
STABLE       all members may have their assignment            a member is lost, a new one joins, or one joins again
                                                              that is the leader or has other protocols

When a member joins an empty group, the generation begins after a delay. It is prolonged while further members join, so
that members that start together make one generation.

Why two members that follow the protocol never read the same partition, and an old one commits nothing:

1. A generation begins when each of its members has joined, and so has given up the partitions that it must, or is
   static and keeps its place. A member that has not joined in time, and is not static, does not belong to it.
2. Commits, heartbeats and assignments name their generation and member. They are refused if the generation is not the
   present one, or if the group has no such member. The numbers of generations only grow.
3. Answers are given only after the rows of their step are durable. A generation is stored as a whole when it begins,
   and when it is assigned. So after a restart the group is in the last generation that any member knows, with all its
   members. Those that were lost before are removed once more, after their session timeout.

Why no request waits forever: a join waits for the rebalance timeout at most. A sync waits until the leader sends its
assignments, or until the next rebalance. That begins at the latest when the session of the leader has timed out, or
when the leader has sent no sync for the rebalance timeout.

`now` is in monotonic seconds. A ticket is the coordinator's number for a request that gets its answer later.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from logbroker.consumer_groups.classic.errors import (
    FencedInstanceIdError,
    GroupFullError,
    IllegalGenerationError,
    InconsistentProtocolError,
    MemberIdRequiredError,
    RebalanceInProgressError,
)
from logbroker.consumer_groups.classic.member import (
    ClassicMember,
    MemberBudget,
    PendingMember,
    loaded_member,
    size_bytes,
)
from logbroker.consumer_groups.classic.messages import (
    ClassicAnswer,
    ClassicJoin,
    ClassicJoined,
    ClassicOutputs,
    ClassicSynced,
)
from logbroker.consumer_groups.classic.rows import (
    ClassicGroupRow,
    ClassicMemberRow,
    classic_group_row,
    decode_classic,
)
from logbroker.consumer_groups.messages import MIN_TIMEOUT_MS
from logbroker.consumer_groups.rows import HEADER_ROW, encode_row, member_key
from logbroker.engine import StateEvent
from logbroker.errors import CorruptLogError, GroupNotEmptyError, UnknownMemberError, quoted
from logbroker.group_runtime.deadline_heap import NEVER, DeadlineHeap


class ClassicState(enum.Enum):
    """The state of a group. The values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class ClassicGroup:
    """The state machine of one group. Errors are raised before anything is changed."""

    def __init__(
        self,
        group_id: str,
        *,
        initial_delay_seconds: float,
        max_members: int,
        budget: MemberBudget | None = None,
    ) -> None:
        self.group_id = group_id
        self.state = ClassicState.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol = ""
        """Name of the protocol of the present generation."""
        self.leader_id = ""
        self.empty_since_ms = -1
        """Wall clock time (ms) since which the group has no members; -1: it has members, or never had any."""
        self._initial_delay_seconds = initial_delay_seconds
        self._max_members = max_members
        self._budget = budget or MemberBudget()
        self._used_bytes = 0
        self._members: dict[str, ClassicMember] = {}
        self._statics: dict[str, ClassicMember] = {}
        """Members by their instance ids."""
        self._pending: dict[str, PendingMember] = {}
        """Clients that were given a member id, and have not joined yet, by these ids."""
        self._supporters: Counter[str] = Counter()
        """Number of members that have each protocol."""
        self._unsynced: set[str] = set()
        """Members of the generation that have not asked for their assignment yet."""
        self._joins_end_at = self._syncs_end_at = NEVER
        self._is_initial = False
        """Whether the group was empty, and now waits for further members even if all have joined."""
        self._has_newcomer = False
        """Whether a member has come since this wait began."""
        self._initial_left_seconds = 0.0
        self._deadlines: DeadlineHeap[ClassicMember | PendingMember] = DeadlineHeap(lambda item: item.deadline())
        self._stored_ids: set[str] = set()
        self._rows: dict[bytes, ClassicGroupRow | ClassicMemberRow | None] = {}
        """Rows to store, by their keys."""
        self._answers: list[tuple[int, ClassicAnswer]] = []

    def load(self, rows: Mapping[bytes, bytes], now: float) -> None:
        """Load stored rows into a new state machine. The sessions of the members begin `now`.

        Raises CorruptLogError.
        """
        header, members = decode_classic(rows)
        if header is None:
            return
        self.generation, self.protocol_type, self.protocol = header.generation, header.protocol_type, header.protocol
        self.leader_id, self.empty_since_ms = header.leader_id, header.empty_since_ms
        for member_id, row in members.items():
            if row.instance_id in self._statics:
                raise CorruptLogError(
                    f"group {self.group_id}: two members have the instance id {quoted(row.instance_id)}"
                )
            self._add(loaded_member(member_id, header.protocol_type, row, now))
        if self.leader_id not in (members or ("",)):
            raise CorruptLogError(f"group {self.group_id}: its leader {quoted(self.leader_id)} is no member")
        self._stored_ids = set(members)
        if members and header.is_assigned:
            self.state = ClassicState.STABLE
        elif members:
            self._await_syncs(now)

    # --- queries -----------------------------------------------------------------------------------------------------

    def members(self) -> Iterable[ClassicMember]:
        """Return all members. Read-only."""
        return self._members.values()

    def __len__(self) -> int:
        return len(self._members)

    @property
    def has_pending(self) -> bool:
        """Whether a client was given an id, and is about to join."""
        return bool(self._pending)

    def deadline(self) -> float:
        """Return the latest time for the next `tick`; NEVER: none is needed. May be too early."""
        return min(self._deadlines.next_at, self._joins_end_at, self._syncs_end_at)

    def is_due(self, now: float) -> bool:
        """Return whether `tick` has anything to do by now. If not, `deadline` is later than `now`."""
        return self._deadlines.is_due(now) or min(self._joins_end_at, self._syncs_end_at) <= now

    def check_commit(self, member_id: str, instance_id: str, generation: int, now: float) -> None:
        """Check a commit, and note that its member was heard from. A program that is not a member names no generation
        (-1).

        Raises IllegalGenerationError, UnknownMemberError, FencedInstanceIdError or RebalanceInProgressError if it may
        not commit.
        """
        if generation < 0 and not self._members:
            return
        if generation < 0 and not member_id and not instance_id:
            raise UnknownMemberError("the group has members: only they may commit")
        member = self._member(member_id, instance_id)
        self._check_generation(generation)
        if self.state is ClassicState.COMPLETING:
            raise RebalanceInProgressError("the assignment is not there yet: ask for it first")
        member.heard_at = now

    # --- inputs ------------------------------------------------------------------------------------------------------

    def join(self, join: ClassicJoin, ticket: int, now: float) -> None:
        """Admit a member to the next generation. The answer is ClassicJoined, or an error.

        Raises InvalidRequestError, InconsistentProtocolError, UnknownMemberError, FencedInstanceIdError or
        GroupFullError.
        """
        join.check()
        self._check_protocols(join)
        pending = self._pending.get(join.member_id) if join.member_id and not join.instance_id else None
        if pending is not None:
            self._check_growth(size_bytes(join, b""))
            del self._pending[pending.member_id]
            self._deadlines.disarm(pending)
            self._admit(pending.member_id, join, ticket, now)
        elif join.member_id:
            self._join_again(self._member(join.member_id, join.instance_id), join, ticket, now)
        elif join.instance_id in self._statics:
            self._replace(self._statics[join.instance_id], join, ticket, now)
        else:
            if len(self._members) + len(self._pending) >= self._max_members:
                raise GroupFullError(
                    f"the group is full (max_group_members is {self._max_members}): raise that setting, or start"
                    " another group"
                )
            self._check_growth(size_bytes(join, b""))
            if join.requires_known_id and not join.instance_id:
                pending = PendingMember(join.new_member_id, now + join.session_timeout_ms / 1000)
                self._pending[pending.member_id] = pending
                self._deadlines.arm(pending, pending.expires_at)
                self._answers.append((ticket, MemberIdRequiredError(pending.member_id)))
            else:
                self._admit(join.new_member_id, join, ticket, now)

    def sync(
        self,
        member_id: str,
        instance_id: str,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
        assignments: Mapping[str, bytes],
        ticket: int,
        now: float,
    ) -> None:
        """Give a member its assignment; the leader sends those of all. The answer is ClassicSynced, or an error.

        Raises IllegalGenerationError, UnknownMemberError, FencedInstanceIdError, InconsistentProtocolError,
        RebalanceInProgressError or GroupFullError.
        """
        member = self._member(member_id, instance_id)
        self._check_generation(generation)
        if protocol_type not in (None, self.protocol_type) or protocol not in (None, self.protocol):
            raise InconsistentProtocolError(
                f"the generation has the protocol {self.protocol} of type {self.protocol_type}: join again"
            )
        if self.state is ClassicState.PREPARING:
            raise RebalanceInProgressError("another generation begins: join again")
        if self.state is ClassicState.COMPLETING and member_id == self.leader_id:
            self._assign(assignments, now)
        member.heard_at = now
        self._unsynced.discard(member_id)
        if not self._unsynced:
            self._syncs_end_at = NEVER
        if self.state is ClassicState.STABLE:
            self._answers.append((ticket, self._synced(member)))
            self._deadlines.arm(member, member.deadline())
        else:
            self._refuse_sync(member, now)
            member.sync_ticket = ticket

    def heartbeat(self, member_id: str, instance_id: str, generation: int, now: float) -> None:
        """Note that a member was heard from.

        Raises IllegalGenerationError, UnknownMemberError, FencedInstanceIdError or RebalanceInProgressError.
        """
        member = self._member(member_id, instance_id)
        self._check_generation(generation)
        member.heard_at = now
        if self.state is ClassicState.PREPARING:
            raise RebalanceInProgressError("another generation begins: join again")

    def leave(self, member_id: str, instance_id: str, now: float) -> None:
        """Let a member leave. A static member may be named by its instance id alone.

        Raises UnknownMemberError or FencedInstanceIdError.
        """
        pending = self._pending.pop(member_id, None)
        if pending is not None:
            self._deadlines.disarm(pending)
            self._complete_if_all_joined(now)
            return
        if instance_id and not member_id:
            member = self._statics.get(instance_id)
            if member is None:
                raise UnknownMemberError(f"the group has no member of instance id {quoted(instance_id)}")
        else:
            member = self._member(member_id, instance_id)
        self._remove(member, now)

    def detached_change(self) -> None:
        """Note that a program that is not a member changes the group's offsets. Raises GroupNotEmptyError."""
        if self._members:
            raise GroupNotEmptyError(
                f"the group has members ({len(self._members)}): stop them, or wait until their sessions have timed out"
            )
        self._store()

    def tick(self, now: float) -> None:
        """Carry out what is due."""
        while (item := self._deadlines.pop(now)) is not None:
            if isinstance(item, ClassicMember):
                self._remove(item, now)
            else:
                del self._pending[item.member_id]
                self._complete_if_all_joined(now)
        if self._joins_end_at <= now:
            if self._is_initial and self._has_newcomer and self._initial_left_seconds > 0:
                self._wait_for_newcomers(now)
            else:
                self._complete(now)
        if self._syncs_end_at <= now:
            self._syncs_end_at = NEVER
            late = [self._members[member_id] for member_id in self._unsynced]
            for member in late:
                self._drop(member)
            if late:
                self._prepare(now)

    def take_outputs(self, wall_ms: int) -> ClassicOutputs:
        """Return the outputs since the last call. The events are one transaction, and the answers wait for it."""
        answers, self._answers = self._answers, []
        rows, self._rows = self._rows, {}
        header = rows.get(HEADER_ROW)
        if isinstance(header, ClassicGroupRow) and header.empty_since_ms >= 0:
            since_ms = wall_ms if self.empty_since_ms < 0 else self.empty_since_ms
            rows[HEADER_ROW] = msgspec.structs.replace(header, empty_since_ms=since_ms)
            if not self._members:
                self.empty_since_ms = since_ms
        events = [StateEvent(key, None if row is None else encode_row(row)) for key, row in rows.items()]
        return ClassicOutputs(events, answers)

    # --- joining -----------------------------------------------------------------------------------------------------

    def _admit(self, member_id: str, join: ClassicJoin, ticket: int, now: float) -> None:
        member = ClassicMember(member_id, join, now)
        member.join_ticket = ticket
        if self.state is ClassicState.EMPTY:
            self.protocol_type = join.protocol_type
        self._add(member)
        self._has_newcomer = True
        self._rebalance(now)

    def _join_again(self, member: ClassicMember, join: ClassicJoin, ticket: int, now: float) -> None:
        # A static member stays one, even if the request leaves out its instance id.
        join = msgspec.structs.replace(join, instance_id=member.join.instance_id)
        is_leader = member.member_id == self.leader_id
        changes = member.join.protocols != join.protocols
        if not changes and (
            self.state is ClassicState.COMPLETING or (self.state is ClassicState.STABLE and not is_leader)
        ):
            # The client may have missed the answer to its last join. The leader of an assigned generation has other
            # reasons, such as further partitions, and so begins another one.
            member.heard_at = now
            self._answers.append((ticket, self._joined(member, with_members=is_leader)))
            return
        self._check_growth(size_bytes(join, member.assignment) - member.size_bytes)
        self._refuse_join(member)
        self._forget(member)
        member.join, member.join_ticket, member.heard_at, member.is_dirty = join, ticket, now, True
        self._count(member)
        self._rebalance(now)

    def _replace(self, old: ClassicMember, join: ClassicJoin, ticket: int, now: float) -> None:
        """Give the place of a static member to the client that joins with its instance id. If that changes nothing for
        the others, the generation goes on."""
        self._check_growth(size_bytes(join, old.assignment) - old.size_bytes)
        fenced = FencedInstanceIdError(f"another member has the instance id {quoted(join.instance_id)} by now")
        for waiting in (old.join_ticket, old.sync_ticket):
            if waiting is not None:
                self._answers.append((waiting, fenced.anew()))
        old.join_ticket = old.sync_ticket = None
        leader_before = self.leader_id
        was_leader, was_unsynced = old.member_id == leader_before, old.member_id in self._unsynced
        self._drop(old)
        member = ClassicMember(join.new_member_id, join, now)
        member.assignment, member.is_new = old.assignment, old.is_new
        self._add(member)
        if was_leader:
            self.leader_id = member.member_id
        if was_unsynced:
            self._unsynced.add(member.member_id)
        if self.state is ClassicState.STABLE and self._chosen_protocol() == self.protocol:
            self._store()
            joined = self._joined(member, with_members=was_leader and join.may_skip_assignment)
            if not join.may_skip_assignment:
                # The client must not learn that it is the leader: it would assign a generation that is assigned
                # already.
                joined = msgspec.structs.replace(joined, leader_id=leader_before)
            elif was_leader:
                joined = msgspec.structs.replace(joined, skip_assignment=True)
            self._answers.append((ticket, joined))
        else:
            member.join_ticket = ticket
            self._rebalance(now)

    def _rebalance(self, now: float) -> None:
        """Begin to prepare a generation, or complete the one in preparation if all have joined."""
        if self.state is ClassicState.PREPARING:
            self._complete_if_all_joined(now)
        else:
            self._prepare(now)

    def _prepare(self, now: float) -> None:
        for member in self._members.values():
            self._refuse_sync(member, now)
            self._deadlines.arm(member, member.deadline())
        self._unsynced.clear()
        self._syncs_end_at = NEVER
        self._is_initial = self.state is ClassicState.EMPTY and self._initial_delay_seconds > 0
        self.state = ClassicState.PREPARING
        if self._is_initial:
            self._initial_left_seconds = self._rebalance_seconds()
            self._wait_for_newcomers(now)
        else:
            self._joins_end_at = now + self._rebalance_seconds()
            self._complete_if_all_joined(now)

    def _wait_for_newcomers(self, now: float) -> None:
        seconds = min(self._initial_delay_seconds, self._initial_left_seconds)
        self._initial_left_seconds -= seconds
        self._has_newcomer = False
        self._joins_end_at = now + seconds

    def _complete_if_all_joined(self, now: float) -> None:
        if self.state is not ClassicState.PREPARING or self._pending or (self._is_initial and self._members):
            return
        if all(member.join_ticket is not None for member in self._members.values()):
            self._complete(now)

    def _complete(self, now: float) -> None:
        """Begin the next generation with those that have joined, and the static members."""
        self._is_initial = False
        for member in list(self._members.values()):
            if member.join_ticket is None and not member.join.instance_id:
                self._drop(member)
        joined = [member for member in self._members.values() if member.join_ticket is not None]
        if self._members and not joined:
            self._joins_end_at = now + self._rebalance_seconds()  # Only static members are left, and all are away.
            return
        self._joins_end_at = NEVER
        self.generation += 1
        if not joined:
            self.state = ClassicState.EMPTY
            self.protocol = self.leader_id = ""
            self._store()
            return
        self.protocol = self._chosen_protocol()
        if self._members[self.leader_id].join_ticket is None:
            self.leader_id = joined[0].member_id
        self._await_syncs(now)
        self._unsynced = {member.member_id for member in joined}
        self._store()
        for member in joined:
            assert member.join_ticket is not None
            is_leader = member.member_id == self.leader_id
            self._answers.append((member.join_ticket, self._joined(member, with_members=is_leader)))
            member.join_ticket, member.is_new, member.heard_at = None, False, now
            self._deadlines.arm(member, member.deadline())

    def _await_syncs(self, now: float) -> None:
        self.state = ClassicState.COMPLETING
        self._unsynced = set(self._members)
        self._syncs_end_at = now + self._rebalance_seconds()

    def _assign(self, assignments: Mapping[str, bytes], now: float) -> None:
        """Take the leader's assignment. Raises GroupFullError."""
        found = [(member, assignments.get(member.member_id, b"")) for member in self._members.values()]
        growth_bytes = sum(len(assignment) - len(member.assignment) for member, assignment in found)
        self._check_growth(growth_bytes)
        self._charge(growth_bytes)
        self.state = ClassicState.STABLE
        for member, assignment in found:
            if assignment != member.assignment:
                member.assignment, member.is_dirty = assignment, True
            if member.sync_ticket is not None:
                self._answers.append((member.sync_ticket, self._synced(member)))
                member.sync_ticket, member.heard_at = None, now
                self._deadlines.arm(member, member.deadline())
        self._store()

    # --- members -----------------------------------------------------------------------------------------------------

    def _member(self, member_id: str, instance_id: str) -> ClassicMember:
        """Return the member that a request names. Raises UnknownMemberError or FencedInstanceIdError."""
        if instance_id:
            holder = self._statics.get(instance_id)
            if holder is None:
                raise UnknownMemberError(f"the group has no member of instance id {quoted(instance_id)}: join first")
            if holder.member_id != member_id:
                raise FencedInstanceIdError(f"another member has the instance id {quoted(instance_id)} by now")
        member = self._members.get(member_id)
        if member is None:
            raise UnknownMemberError(f"{quoted(member_id)} is no member of the group (any more): join first")
        return member

    def _remove(self, member: ClassicMember, now: float) -> None:
        self._drop(member)
        self._rebalance(now)

    def _drop(self, member: ClassicMember) -> None:
        unknown = UnknownMemberError(f"{quoted(member.member_id)} is no member of the group any more: join again")
        for ticket in (member.join_ticket, member.sync_ticket):
            if ticket is not None:
                self._answers.append((ticket, unknown.anew()))
        member.join_ticket = member.sync_ticket = None
        del self._members[member.member_id]
        if member.join.instance_id:
            del self._statics[member.join.instance_id]
        self._forget(member)
        self._unsynced.discard(member.member_id)
        self._deadlines.disarm(member)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self._members), "")

    def _add(self, member: ClassicMember) -> None:
        self._members[member.member_id] = member
        if member.join.instance_id:
            self._statics[member.join.instance_id] = member
        self._count(member)
        self._deadlines.arm(member, member.deadline())
        if not self.leader_id:
            self.leader_id = member.member_id
        self.empty_since_ms = -1

    def _count(self, member: ClassicMember) -> None:
        self._supporters.update(name for name, _ in member.join.protocols)
        self._charge(member.size_bytes)

    def _forget(self, member: ClassicMember) -> None:
        """Undo `_count`."""
        self._supporters.subtract(name for name, _ in member.join.protocols)
        self._supporters += Counter()  # Names that nobody has are removed.
        self._charge(-member.size_bytes)

    def leave_budget(self) -> None:
        """Give back everything that was taken of the budget."""
        self._budget.used_bytes -= self._used_bytes
        self._budget = MemberBudget()

    def _charge(self, growth_bytes: int) -> None:
        self._used_bytes += growth_bytes
        self._budget.used_bytes += growth_bytes

    def _check_growth(self, growth_bytes: int) -> None:
        self._budget.check(self._used_bytes, growth_bytes)

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise IllegalGenerationError(
                f"the request is of generation {generation}, the group has {self.generation}: join again"
            )

    def _check_protocols(self, join: ClassicJoin) -> None:
        if not self._members:
            return
        if join.protocol_type != self.protocol_type:
            raise InconsistentProtocolError(
                f"the members of the group have protocols of type {quoted(self.protocol_type)}, not"
                f" {quoted(join.protocol_type)}"
            )
        if all(self._supporters[name] < len(self._members) for name, _ in join.protocols):
            raise InconsistentProtocolError(
                "no protocol of the member is one that all members have: give all a common assignor"
            )

    def _chosen_protocol(self) -> str:
        """Return the protocol with the most votes. A member votes for the first of its protocols that all have."""
        everybody = len(self._members)
        votes = Counter(
            next(name for name, _ in member.join.protocols if self._supporters[name] == everybody)
            for member in self._members.values()
        )
        return max(votes, key=lambda name: votes[name])

    def _rebalance_seconds(self) -> float:
        """Return how long to wait for members: their longest rebalance timeout. Clients may send any number."""
        longest_ms = max((member.join.rebalance_timeout_ms for member in self._members.values()), default=0)
        return max(longest_ms, MIN_TIMEOUT_MS) / 1000

    # --- answers -----------------------------------------------------------------------------------------------------

    def _joined(self, member: ClassicMember, *, with_members: bool) -> ClassicJoined:
        listed = self._members.values() if with_members else ()
        return ClassicJoined(
            *(member.member_id, self.generation, self.protocol_type, self.protocol, self.leader_id),
            [(each.member_id, each.join.instance_id, each.metadata(self.protocol)) for each in listed],
        )

    def _synced(self, member: ClassicMember) -> ClassicSynced:
        return ClassicSynced(self.protocol_type, self.protocol, member.assignment)

    def _refuse_join(self, member: ClassicMember) -> None:
        """Answer an earlier join of a member, whose client has sent another one."""
        if member.join_ticket is not None:
            self._answers.append((member.join_ticket, RebalanceInProgressError("the member has joined once more")))
            member.join_ticket = None

    def _refuse_sync(self, member: ClassicMember, now: float) -> None:
        if member.sync_ticket is not None:
            self._answers.append((member.sync_ticket, RebalanceInProgressError("the group rebalances: join again")))
            member.sync_ticket, member.heard_at = None, now

    # --- rows --------------------------------------------------------------------------------------------------------

    def _store(self) -> None:
        """Put the rows of the group as it is now into the outputs."""
        self._rows[HEADER_ROW] = classic_group_row(
            generation=self.generation,
            protocol_type=self.protocol_type,
            empty_since_ms=-1 if self._members else 0,  # `take_outputs` knows the time.
            protocol=self.protocol,
            leader_id=self.leader_id,
            is_assigned=self.state is ClassicState.STABLE,
        )
        for member_id in self._stored_ids - self._members.keys():
            self._rows[member_key(member_id)] = None
        for member in self._members.values():
            if member.is_dirty:
                self._rows[member_key(member.member_id)] = member.to_row()
                member.is_dirty = False
        self._stored_ids = set(self._members)
