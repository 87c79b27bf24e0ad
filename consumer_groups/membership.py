"""A member's stream, from both sides: its requests to the group, and the messages to the member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from logbroker.consumer_groups.generations import ToldPosition
from logbroker.consumer_groups.messages import Joined
from logbroker.consumer_groups.offsets import CommitOutcome, Committed, TopicCommit
from logbroker.consumer_groups.subscriptions import Subscription
from logbroker.errors import LogbrokerError
from logbroker.types import PartitionKey, TopicId


class AssignedOffsets(msgspec.Struct, gc=False):
    """An assignment, with the committed offsets of its partitions."""

    epoch: int
    partitions: list[tuple[PartitionKey, Committed | None]]
    generations: dict[TopicId, int]
    """Generation to read, by topic: see `generations`."""


class GenerationsToRead(msgspec.Struct, gc=False):
    """Generations of some topics to read from now on."""

    topics: dict[TopicId, int]


class CommitDone(msgspec.Struct, gc=False):
    """A commit is synced, except for the refused partitions. There is one outcome per topic, in the order of the
    request."""

    correlation_id: int
    outcomes: Sequence[CommitOutcome]


class SubscriptionDone(msgspec.Struct, gc=False):
    """A subscription is changed, or refused."""

    correlation_id: int
    error: LogbrokerError | None = None


class Ended(msgspec.Struct, gc=False):
    """The last message to a member, which was fenced or, without an error, has left. Any other error ends the stream,
    and the member may come back on another one."""

    error: LogbrokerError | None


MemberMessage = Joined | AssignedOffsets | GenerationsToRead | CommitDone | SubscriptionDone | Ended


class Channel(Protocol):
    """Sends messages to a member."""

    def send(self, message: MemberMessage) -> None:
        """Queue a message; never blocks."""
        ...


class MemberHost(Protocol):
    """The methods of a group that a member's stream calls."""

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
    def leave(self, link: MemberLink, *, for_good: bool = False) -> None: ...
    def disconnected(self, link: MemberLink) -> None: ...


class MemberLink:
    """The link of one stream to its group. After its end it changes nothing any more, and its commits are refused."""

    def __init__(self, group: MemberHost, member_id: str, channel: Channel) -> None:
        self._group = group
        self.member_id = member_id
        self.channel = channel
        self.ended = False

    def heartbeat(self, *, polled: bool) -> bool:
        """Return whether to answer the heartbeat. The answer confirms the membership, so there is no answer after the
        end of the link."""
        if not self.ended:
            self._group.heartbeat(self, polled=polled)
        return not self.ended

    def tell(self, positions: Sequence[ToldPosition]) -> None:
        """Note the positions of the member: see `generations`."""
        if not self.ended:
            self._group.tell(self, positions)

    def taken(self, epoch: int) -> None:
        if not self.ended:
            self._group.taken(self, epoch)

    def subscribe(self, subscription: Subscription) -> None:
        """Change the subscription. Raises InvalidRequestError."""
        if not self.ended:
            self._group.subscribe(self, subscription)

    def commit(self, correlation_id: int, epoch: int, topics: Sequence[TopicCommit | LogbrokerError]) -> None:
        """Commit offsets. Answered by a CommitDone when they are synced."""
        self._group.commit(self, correlation_id, epoch, topics)

    async def commit_in_turns(
        self, correlation_id: int, epoch: int, topics: Sequence[TopicCommit | LogbrokerError]
    ) -> None:
        """Run `commit`, for any number of partitions; returns when its answer is on its way."""
        await self._group.commit_in_turns(self, correlation_id, epoch, topics)

    def leave(self, *, for_good: bool = False) -> None:
        """Leave the group; see `Group.leave`. Answered by Ended when the change is synced."""
        if not self.ended:
            self._group.leave(self, for_good=for_good)

    def disconnected(self) -> None:
        """Note that the stream broke or ended."""
        if not self.ended:
            self._group.disconnected(self)
