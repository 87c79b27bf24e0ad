"""A member of a consumer group as its client knows it: what it holds, under which epoch, until when it may deliver.

A state machine without I/O, driven by what goes over the member's stream and by what the program does. Times are
monotonic seconds that it is given. (A dash: does not happen in this state, or changes nothing.)

    state      stream opens  Joined         Assignment   program took it  stream breaks  Fenced
    OUT        JOINING       -              -            -                -              -
    JOINING    -             MEMBER         -            -                OUT            OUT, lost
    MEMBER     -             -              outstanding  holds it         OUT            OUT, lost

Why no record is delivered by a member that does not hold its partition:
- The broker grants nothing of what this member holds before the member took an assignment without it, or was fenced.
  The program takes an assignment between two records: all it was given is finished then, and nothing more follows.
- The broker fences a member that it has not heard of for the session timeout. The last thing it surely heard is the
  last heartbeat that it answered, and it heard that no earlier than it was sent. So ownership ends one session timeout
  after that sending, by this machine's clock, whether or not anything ran in between. In the same way it ends one poll
  interval after the last heartbeat that told of a poll.
- The broker keeps what a member holds for the grace after its stream broke, and the stream lived when it got that
  heartbeat. A member may hear of the break late: its program may not let the event loop run, or be frozen, while the
  broker is killed and started again. So ownership also ends one grace after that sending.
- The broker fences a member that does not take an assignment within the rebalance timeout. What it pushed before the
  answer to a heartbeat is here before that, and ends ownership; all else it pushed after that sending. So ownership
  also ends one rebalance timeout after it.
- After that moment nothing that the broker said before counts, either: a member that slept may find an assignment and,
  after it, that it was fenced. It takes and places nothing before it has heard of the broker again (`is_sure`).
- What was lost stays lost: a member that is fenced, or let in anew instead of back, holds nothing until the program has
  seen that (`forget`), and then begins with what it is assigned.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Mapping
from typing import Final

import msgspec

from logbroker.client.consumer.ownership_deadline import NOT_NOW, OwnershipDeadline
from logbroker.errors import LogbrokerError, MemberFencedError, UnknownMemberError
from logbroker.types import TopicId, TopicPartition

_SILENCE_SHARE: Final = 8
"""A heartbeat that is not answered for an eighth of the session leaves a sixth of it to come back, at least."""
_SHORTEST_SILENCE_SECONDS: Final = 0.2
_LONGEST_SILENCE_SECONDS: Final = 5.0
_STREAMS_AT_ONE_PACE: Final = 3
_SLOTS: Final = 20
"""In one interval of heartbeats."""

LOST: Final = "the group has given this member's partitions away; go on reading: it begins at the committed offsets"


class GrantedPartitions(msgspec.Struct, frozen=True):
    """One partition of an assignment."""

    topic_id: TopicId
    offset: int
    """The committed offset; -1: none."""


class AssignedPartitions(msgspec.Struct, frozen=True):
    """The partitions that the member is to hold, with the epoch of the assignment."""

    epoch: int
    partitions: Mapping[TopicPartition, GrantedPartitions]


class MembershipState(enum.Enum):
    """The state of the member. See the module's table."""

    OUT = enum.auto()
    JOINING = enum.auto()
    MEMBER = enum.auto()


def next_heartbeat(now: float, interval_seconds: float) -> float:
    """Return when a heartbeat is due after one that is sent now.

    All members of a machine (its processes have one clock) beat in the same few moments, so that many are woken, sent
    and received in one go: wake-ups are most of what one that does nothing costs.
    """
    slot_seconds = interval_seconds / _SLOTS
    return math.floor((now + interval_seconds) / slot_seconds) * slot_seconds


class Membership:
    """One member, over all its streams."""

    def __init__(
        self,
        *,
        session_timeout_seconds: float,
        max_poll_interval_seconds: float,
        rebalance_timeout_seconds: float = math.inf,
    ) -> None:
        self.state = MembershipState.OUT
        self.ownership = OwnershipDeadline(NOT_NOW)
        self.session_timeout_seconds = session_timeout_seconds
        """The session timeout that was asked for, and once the broker has answered, the one that it granted."""
        self.epoch = 0
        """Epoch of the assignment taken last; 0: none was taken since everything was lost."""
        self.owned: Mapping[TopicPartition, GrantedPartitions] = {}
        """The partitions of that assignment."""
        self.outstanding: AssignedPartitions | None = None
        """The assignment that the broker pushed and that is not taken yet."""
        self.placed = False
        """Whether the program knows where to begin in all partitions that it holds."""
        self.lost = False
        """Whether the program has lost its partitions without having been told yet."""
        self.error: LogbrokerError | None = None
        """The error with which the broker keeps the member out. The program must be told before the member tries
        again."""
        self.sure_until = NOT_NOW
        """Until when the member is surely in the group, and its partitions are its own. NOT_NOW: the broker has to be
        heard first."""
        self.losses = 0
        """Counts the times that everything was lost."""
        self.lease_seconds = session_timeout_seconds
        """How long the partitions are surely kept after the broker last heard of the member."""
        self._rebalance_timeout_seconds = rebalance_timeout_seconds
        self._max_poll_interval_seconds = max_poll_interval_seconds
        self._heard_at = 0.0
        """When the last message was sent that the broker surely got."""
        self._polled_at = 0.0
        """The same, of those that count as a poll."""
        self._heartbeats: deque[tuple[float, bool]] = deque()
        """When those were sent that are not answered yet, and whether they told of a poll."""

    def is_sure(self, now: float) -> bool:
        """Whether it is surely still a member, so that what the broker has said of it stands."""
        return now <= self.sure_until

    def needs_heartbeat(self, now: float) -> bool:
        """Whether the answer to a heartbeat, which is still to be sent, would make it sure."""
        return NOT_NOW < self.sure_until < now and not self._heartbeats

    @property
    def may_join(self) -> bool:
        """Whether a new stream is to be opened: not before the program has seen what happened."""
        return self.state is MembershipState.OUT and not self.lost and self.error is None

    # --- what happens on the stream ---------------------------------------------------------------------------------

    def joining(self, now: float) -> None:
        """A Join is about to be sent that lists `owned` at `epoch`."""
        self.state = MembershipState.JOINING
        self._heard_at = self._polled_at = now
        self._heartbeats.clear()

    def joined(self, *, resumed: bool, session_timeout_seconds: float, reconnect_grace_seconds: float = 0.0) -> None:
        """The broker let it in: back (`resumed`), or anew. A grace of 0: it wants takeovers at once, whatever comes."""
        self.state = MembershipState.MEMBER
        self.session_timeout_seconds = session_timeout_seconds
        self.lease_seconds = min(
            session_timeout_seconds, reconnect_grace_seconds or session_timeout_seconds, self._rebalance_timeout_seconds
        )
        if not resumed:
            self._lose()
        self._update()

    def heartbeat(self, now: float, *, polled: bool) -> None:
        """A heartbeat is about to be sent."""
        self._heartbeats.append((now, polled))

    def heartbeat_answered(self) -> None:
        if self._heartbeats:
            self._heard_at, polled = self._heartbeats.popleft()
            if polled:
                self._polled_at = self._heard_at
            self._update()

    def late_by(self, now: float) -> float:
        """Return how many seconds ago the deadline was that the answer heard last, just now, gives; 0: it is to
        come."""
        return max(0.0, now - self._heard_at - self.lease_seconds)

    @property
    def asked_at(self) -> float | None:
        """When the oldest message was sent that asks for an answer and has had none; None: there is none."""
        if self.state is MembershipState.JOINING:
            return self._heard_at
        return self._heartbeats[0][0] if self._heartbeats else None

    def silent_since(self, now: float) -> float:
        """Return for how many seconds the oldest message that asks for an answer has had none."""
        return 0.0 if self.asked_at is None else now - self.asked_at

    def patience_seconds(self, streams: int) -> float:
        """Return how long an answer may take, after so many streams in a row on which none came at all, before the
        connection is given up. It grows with them: a broker that is slow must not be asked by ever more of them."""
        seconds = min(
            max(self.session_timeout_seconds / _SILENCE_SHARE, _SHORTEST_SILENCE_SECONDS), _LONGEST_SILENCE_SECONDS
        )
        return min(seconds * (1 + streams // _STREAMS_AT_ONE_PACE), 2 * _LONGEST_SILENCE_SECONDS)

    def assigned(self, assignment: AssignedPartitions) -> None:
        """The broker pushed an assignment."""
        self.outstanding = assignment
        self._update()

    def fenced(self, error: LogbrokerError) -> None:
        """The broker does not count it as a member (any more).

        One that was fenced for its silence joins anew by itself, as soon as the program asks for records. Any other
        error is for the program to hear.
        """
        if error.retriable:
            self.broken()
            return
        if self.state is MembershipState.MEMBER and isinstance(error, MemberFencedError):
            self.lost = True
        else:
            self.error = error
        self._lose()
        self.broken()

    def broken(self) -> None:
        """Handle the end of the stream. The partitions are kept, to be claimed on the next stream; nothing is delivered
        before."""
        self.state = MembershipState.OUT
        self.outstanding = None
        self._heartbeats.clear()
        self._update()

    # --- what the program does --------------------------------------------------------------------------------------

    def take(self, assignment: AssignedPartitions) -> bool:
        """Hold what `assignment` names and nothing else; False where it does not stand any more."""
        if assignment is not self.outstanding:
            return False
        self.outstanding = None
        self.epoch = assignment.epoch
        self.owned = assignment.partitions
        self.placed = False
        self._update()
        return True

    def place(self) -> None:
        """Every partition that is held has its position."""
        self.placed = self.epoch > 0
        self._update()

    def displace(self) -> None:
        """The program was told that some of it goes, and is given nothing before it knows what it holds after all."""
        self.placed = False
        self._update()

    def forget(self) -> None:
        """The program knows that it has lost everything."""
        self.lost = False
        self._update()

    def take_error(self) -> LogbrokerError | None:
        """Return what keeps the member out, once; after that it may try again."""
        error, self.error = self.error, None
        return error

    def check_commit(self, losses: int) -> None:
        """Raise what stands against a commit of what was read after so many losses."""
        if self.lost or losses != self.losses:
            raise UnknownMemberError(LOST) if self.error is None else self.error.anew()

    def _lose(self) -> None:
        if self.epoch:
            self.lost = True
        self.losses += 1
        self.epoch = 0
        self.owned = {}
        self.placed = False

    def _update(self) -> None:
        heard_until = self._heard_at + self.lease_seconds
        polled_until = self._polled_at + self._max_poll_interval_seconds
        is_member = self.state is MembershipState.MEMBER and not self.lost
        self.sure_until = min(heard_until, polled_until) if is_member else NOT_NOW
        self.ownership.until = self.sure_until if self.placed and self.outstanding is None else NOT_NOW
