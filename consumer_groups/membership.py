"""A member's stream, seen from both sides: what it may do in its group, and what it is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from logbroker.consumer_groups.generations import ToldPosition
from logbroker.consumer_groups.messages import Joined
from logbroker.consumer_groups.offsets import CommitOutcome, Committed, TopicCommit
from logbroker.consumer_groups.subscriptions import Subscription
from logbroker.errors import LogbrokerError, MemberFencedError
from logbroker.types import PartitionKey, TopicId


class AssignedOffsets(msgspec.Struct, gc=False):
    """An assignment, with what is committed for its partitions."""

    epoch: int
    partitions: list[tuple[PartitionKey, Committed | None]]
    generations: dict[TopicId, int]
    """Which one of each of their topics is to be read: see `generations`."""


class GenerationsToRead(msgspec.Struct, gc=False):
    """Which generations of some topics are to be read from now on."""

    topics: dict[TopicId, int]


class CommitDone(msgspec.Struct, gc=False):
    """A commit is synced, but for what was refused: one outcome per topic, in the order of the request."""

    correlation_id: int
    outcomes: Sequence[CommitOutcome]


class SubscriptionDone(msgspec.Struct, gc=False):
    """A subscription is changed, or refused."""

    correlation_id: int
    error: LogbrokerError | None = None


class Ended(msgspec.Struct, gc=False):
    """The last message: the member was fenced or, without an error, left as it wished."""

    error: MemberFencedError | None


MemberMessage = Joined | AssignedOffsets | GenerationsToRead | CommitDone | SubscriptionDone | Ended


class Channel(Protocol):
    """The way to a member."""

    def send(self, message: MemberMessage) -> None:
        """Queue a message; never blocks."""
        ...


class MemberHost(Protocol):
    """What a member's stream asks of its group."""

    def heartbeat(self, link: MemberLink, *, polled: bool) -> None: ...
    def tell(self, link: MemberLink, positions: Sequence[ToldPosition]) -> None: ...
    def taken(self, link: MemberLink, epoch: int) -> None: ...
    def subscribe(self, link: MemberLink, subscription: Subscription) -> None: ...
    def commit(
        self, link: MemberLink, correlation_id: int, epoch: int, topics: Sequence[TopicCommit | LogbrokerError]
    ) -> None: ...
    async def commit_in_turns(
        self, link: MemberLink, correlation_id: int, epoch: int, topics: Sequence[TopicCommit | LogbrokerError]
    ) -> None: ...
    def leave(self, link: MemberLink) -> None: ...
    def disconnected(self, link: MemberLink) -> None: ...


class MemberLink:
    """One stream's place in its group. After its end it changes nothing any more, and its commits are refused."""

    def __init__(self, group: MemberHost, member_id: str, channel: Channel) -> None:
        self._group = group
        self.member_id = member_id
        self.channel = channel
        self.ended = False

    def heartbeat(self, *, polled: bool) -> bool:
        """Return whether it is to be answered: the answer says that the member is one, so none follows the end."""
        if not self.ended:
            self._group.heartbeat(self, polled=polled)
        return not self.ended

    def tell(self, positions: Sequence[ToldPosition]) -> None:
        """Note where the member stands: see `generations`."""
        if not self.ended:
            self._group.tell(self, positions)

    def taken(self, epoch: int) -> None:
        if not self.ended:
            self._group.taken(self, epoch)

    def subscribe(self, subscription: Subscription) -> None:
        """Raises InvalidRequestError."""
        if not self.ended:
            self._group.subscribe(self, subscription)

    def commit(self, correlation_id: int, epoch: int, topics: Sequence[TopicCommit | LogbrokerError]) -> None:
        """Answered by a CommitDone, as soon as what is committed is synced."""
        self._group.commit(self, correlation_id, epoch, topics)

    async def commit_in_turns(
        self, correlation_id: int, epoch: int, topics: Sequence[TopicCommit | LogbrokerError]
    ) -> None:
        """As `commit`, however much it is; returns when its answer is under way."""
        await self._group.commit_in_turns(self, correlation_id, epoch, topics)

    def leave(self) -> None:
        """Answered by Ended, as soon as that is synced."""
        if not self.ended:
            self._group.leave(self)

    def disconnected(self) -> None:
        """The stream broke, or is over."""
        if not self.ended:
            self._group.disconnected(self)
