"""A member of a consumer group, as its client knows it: its partitions, its epoch and its ownership deadline.

A state machine without I/O. Its inputs are the messages on the member's stream and the calls of the program. Times are
monotonic seconds that callers pass in. (A dash: does not happen in this state, or changes nothing.)

    state      stream opens  Joined         Assignment   program took it  stream breaks  Fenced
    OUT        JOINING       -              -            -                -              -
    JOINING    -             MEMBER         -            -                OUT            OUT, lost
    MEMBER     -             -              outstanding  holds it         OUT            OUT, lost

Why a member delivers no record of a partition that it does not hold:
- The broker gives a partition to another member only after this member has taken an assignment without it, or was
  fenced. The program takes an assignment between two records. It has then finished all records that it was given, and
  gets no others of that partition.
- The broker fences a member from which it has heard nothing for the session timeout. It has certainly received the last
  heartbeat that it answered, and received it after that heartbeat was sent. So ownership ends one session timeout after
  the heartbeat was sent, by this computer's clock, even if the process was frozen in between. For the same reason
  ownership ends one poll interval after the last answered heartbeat that reported a poll.
- When the stream of a member breaks, the broker keeps its partitions for the grace. The stream was still alive when the
  broker got the heartbeat. The member may notice the break late, because its program blocks the event loop or the
  process is frozen while the broker is killed and started again. So ownership also ends one grace after the heartbeat
  was sent.
- The broker fences a member that does not take an assignment within the rebalance timeout. An assignment that was
  pushed before the answer to the heartbeat has arrived before that answer, and ends ownership itself. Any other
  assignment was pushed after the heartbeat was sent. So ownership also ends one rebalance timeout after that moment.
- Once ownership has ended, earlier messages of the broker may be outdated. A member that was frozen may read an
  assignment first, and the news that it was fenced afterwards. So it takes no assignment and sets no positions until it
  has heard from the broker again (`is_sure`).
- A lost partition stays lost. A member that was fenced, or let in as a new member, holds nothing until the program has
  been told (`forget`). Then it begins with its new assignment.
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
"""The session timeout divided by this number is the longest wait for an answer to a heartbeat.

A member that gives up a connection then has at least a sixth of the session timeout left to come back.
"""
_SHORTEST_SILENCE_SECONDS: Final = 0.2
_LONGEST_SILENCE_SECONDS: Final = 5.0
_STREAMS_AT_ONE_PACE: Final = 3
_ANSWERS: Final = 2
"""The wait for an answer is at least this many times as long as the latest answer took."""
_ANSWERS_ON_NEW_CONNECTION: Final = 4
"""The same for the first answer of a stream, before which a connection may have to be made."""
_SLOTS: Final = 20
"""Number of moments in one interval at which the members on a computer may send their heartbeats."""

LOST: Final = "the group has given this member's partitions away; go on reading to begin at the committed offsets"


class GrantedPartitions(msgspec.Struct, frozen=True):
    """One partition of an assignment."""

    topic_id: TopicId
    offset: int
    """The committed offset; -1: none."""


class AssignedPartitions(msgspec.Struct, frozen=True):
    """The partitions that the member has to hold, with the epoch of the assignment."""

    epoch: int
    partitions: Mapping[TopicPartition, GrantedPartitions]


class MembershipState(enum.Enum):
    """The state of the member. See the module's table."""

    OUT = enum.auto()
    JOINING = enum.auto()
    MEMBER = enum.auto()


def next_heartbeat(now: float, interval_seconds: float) -> float:
    """Return when the next heartbeat is due after a heartbeat that is sent now.

    All members on a computer send their heartbeats at the same few moments, since its processes have one clock. The
    loop then wakes up, sends and receives for many members at once. Wake-ups are most of the cost of an idle member.
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
        self.keeping = OwnershipDeadline(NOT_NOW)
        """The time until which the member surely holds the partitions that it had before an assignment that it has not
        taken yet. Until then, a convoy may start to process records that it has already received."""
        self.session_timeout_seconds = session_timeout_seconds
        """The requested session timeout and, once the broker has answered, the granted one."""
        self.epoch = 0
        """Epoch of the assignment taken last; 0 if none was taken since all partitions were lost."""
        self.owned: Mapping[TopicPartition, GrantedPartitions] = {}
        """The partitions of the assignment taken last."""
        self.outstanding: AssignedPartitions | None = None
        """The assignment that the broker pushed and that the member has not taken yet."""
        self.placed = False
        """Whether the program knows where to begin in all partitions that it holds."""
        self.lost = False
        """Whether the program has lost its partitions and was not told yet."""
        self.error: LogbrokerError | None = None
        """The error with which the broker keeps the member out. The program must be told before the member tries
        again."""
        self.sure_until = NOT_NOW
        """The time until which the member is surely in the group and holds its partitions. NOT_NOW means that the
        broker has to answer first."""
        self.losses = 0
        """The number of times that all partitions were lost."""
        self.lease_seconds = session_timeout_seconds
        """How long the broker surely keeps the partitions after it last heard from the member."""
        self._rebalance_timeout_seconds = rebalance_timeout_seconds
        self._max_poll_interval_seconds = max_poll_interval_seconds
        self._heard_at = 0.0
        """The time when the latest message that the broker has certainly received was sent."""
        self._polled_at = 0.0
        """Like `_heard_at`, but only for messages that count as a poll."""
        self._assigned_after = math.inf
        """The outstanding assignment was pushed after this time, and so was any that it has replaced."""
        self._heartbeats: deque[tuple[float, bool]] = deque()
        """Time of each unanswered heartbeat, and whether it reported a poll."""
        self._answer_seconds: float | None = None
        """How long the latest answer took; None if there was none yet."""

    def is_sure(self, now: float) -> bool:
        """Whether the member is surely still in the group, so that messages of the broker about it are valid."""
        return now <= self.sure_until

    def needs_heartbeat(self, now: float) -> bool:
        """Whether the answer to a new heartbeat would make `is_sure` true."""
        return NOT_NOW < self.sure_until < now and not self._heartbeats

    @property
    def may_join(self) -> bool:
        """Whether a new stream may be opened. The program must first be told of a loss or an error."""
        return self.state is MembershipState.OUT and not self.lost and self.error is None

    # --- what happens on the stream ---------------------------------------------------------------------------------

    def joining(self, now: float) -> None:
        """Note that a Join is sent now, which lists `owned` at `epoch`."""
        self.state = MembershipState.JOINING
        self._heard_at = self._polled_at = now
        self._heartbeats.clear()

    def joined(self, *, resumed: bool, session_timeout_seconds: float, reconnect_grace_seconds: float = 0.0) -> None:
        """Note that the broker let the member in: as the old member (`resumed`), or as a new one.

        A grace of 0 means that partitions are taken over as soon as a stream breaks. The deadline then ignores the
        grace.
        """
        self.state = MembershipState.MEMBER
        self.session_timeout_seconds = session_timeout_seconds
        self.lease_seconds = min(
            session_timeout_seconds, reconnect_grace_seconds or session_timeout_seconds, self._rebalance_timeout_seconds
        )
        if not resumed:
            self._lose()
        self._update()

    def heartbeat(self, now: float, *, polled: bool) -> None:
        """Note that a heartbeat is sent now."""
        self._heartbeats.append((now, polled))

    def answered(self, now: float) -> None:
        """Note that the oldest unanswered message is answered now. Called before the answer is applied."""
        if self.asked_at is not None:
            self._answer_seconds = now - self.asked_at

    def heartbeat_answered(self) -> None:
        if self._heartbeats:
            self._heard_at, polled = self._heartbeats.popleft()
            if polled:
                self._polled_at = self._heard_at
            self._update()

    def late_by(self, now: float) -> float:
        """Return how many seconds ago the deadline of the latest answer ended; 0 if it has not ended."""
        return max(0.0, now - self._heard_at - self.lease_seconds)

    @property
    def asked_at(self) -> float | None:
        """Return when the oldest unanswered message was sent; None if every message is answered."""
        if self.state is MembershipState.JOINING:
            return self._heard_at
        return self._heartbeats[0][0] if self._heartbeats else None

    def silent_since(self, now: float) -> float:
        """Return how long the oldest unanswered message has waited, in seconds."""
        return 0.0 if self.asked_at is None else now - self.asked_at

    def patience_seconds(self, streams: int) -> float:
        """Return how long to wait for an answer before the connection is given up.

        `streams` is the number of streams in a row that brought no answer. The wait grows with it, so that a slow
        broker does not get more and more requests. It grows with the time that the latest answer took, too, because
        another connection over a slow link is no faster. Before the first answer the link is unknown, and there is no
        session to lose.
        """
        seconds = min(
            max(self.session_timeout_seconds / _SILENCE_SHARE, _SHORTEST_SILENCE_SECONDS), _LONGEST_SILENCE_SECONDS
        )
        seconds *= 1 + streams // _STREAMS_AT_ONE_PACE
        is_joining = self.state is MembershipState.JOINING
        if self._answer_seconds is not None:
            answers = _ANSWERS_ON_NEW_CONNECTION if is_joining else _ANSWERS
            seconds = max(seconds, answers * self._answer_seconds)
        elif is_joining:
            seconds = max(seconds, _LONGEST_SILENCE_SECONDS)
        return min(seconds, 2 * _LONGEST_SILENCE_SECONDS)

    def assigned(self, assignment: AssignedPartitions) -> None:
        """Note that the broker pushed an assignment."""
        if self.outstanding is None:
            self._assigned_after = self._heard_at
        self.outstanding = assignment
        self._update()

    def fenced(self, error: LogbrokerError) -> None:
        """Note that the broker does not, or no longer, count this client as a member.

        After a retriable error, the member keeps its partitions and claims them on the next stream. A member that was
        fenced has lost them, and joins again when the program asks for records. Any other error is raised to the
        program first.
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
        """Handle the end of the stream. The member keeps its partitions and claims them on the next stream. Nothing is
        delivered before that."""
        self.state = MembershipState.OUT
        self.outstanding = None
        self._heartbeats.clear()
        self._update()

    # --- what the program does --------------------------------------------------------------------------------------

    def take(self, assignment: AssignedPartitions) -> bool:
        """Replace the held partitions by those of `assignment`. Return False if it is outdated."""
        if assignment is not self.outstanding:
            return False
        self.outstanding = None
        self.epoch = assignment.epoch
        self.owned = assignment.partitions
        self.placed = False
        self._update()
        return True

    def place(self) -> None:
        """Note that the program has a position in every held partition."""
        self.placed = self.epoch > 0
        self._update()

    def displace(self) -> None:
        """Note that the program was told to give up some partitions. It gets no records until it knows which partitions
        it keeps."""
        self.placed = False
        self._update()

    def forget(self) -> None:
        """Note that the program knows that it has lost everything."""
        self.lost = False
        self._update()

    def take_error(self) -> LogbrokerError | None:
        """Return the error that keeps the member out, and clear it: after that the member may try again."""
        error, self.error = self.error, None
        return error

    def check_commit(self, losses: int) -> None:
        """Raise an error if all partitions were lost since the number of losses was `losses`: records that were read
        before the loss cannot be committed."""
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
        self.keeping.until = self.sure_until
        if self.outstanding is not None:
            # It has to be taken within the rebalance timeout. See the docstring of the module.
            self.keeping.until = min(self.sure_until, self._assigned_after + self._rebalance_timeout_seconds)
