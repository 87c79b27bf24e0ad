"""The part of a group member that runs in the event loop: its stream, heartbeats and commits, and its recovery after a
break.

All requests go through one outbox, in order. So the broker gets a commit after the AssignmentTaken with the commit's
epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Final, Protocol

import grpc
import msgspec

from logbroker.client.consumer.group_messages import (
    Offsets,
    Positions,
    assignment_of,
    failures_of,
    generations_of,
    topic_offsets,
    topic_partitions,
    topic_positions,
)
from logbroker.client.consumer.membership import AssignedPartitions, Membership, MembershipState, next_heartbeat
from logbroker.client.consumer.ownership_deadline import NOT_NOW
from logbroker.client.runtime.identity import Identity
from logbroker.client.transport.background import Background
from logbroker.client.transport.connection import CLOSED, Connection, Stream, run_stream
from logbroker.client.transport.owner_route import OwnerRoute
from logbroker.client.transport.status import UNKNOWN_EFFECT, error_of_item
from logbroker.errors import BrokerUnavailableError, LogbrokerError, RequestTimeoutError
from logbroker.types import TopicId, TopicPartition
from logbroker.v1 import groups_pb2

_log = logging.getLogger(__name__)

_LAST_BACKOFF_SECONDS: Final = 0.25
"""Maximum pause before a new stream. It is short, because by default the broker waits only two seconds for a member to
come back."""
_GOODBYE_SECONDS: Final = 2.0
_LATE_ANSWERS: Final = 3
_LATE_SECONDS: Final = 0.05
_WARN_SECONDS: Final = 30.0
_TOO_LATE: Final = (
    "member of group %s: an answer of the broker takes %.1f s, but records may be delivered only within %g s after its"
    " request was sent, so none is delivered. This time is the shortest of the session timeout (%g s), the rebalance"
    " timeout (%g s) and the broker's reconnect_grace_seconds (%g s; 0: does not count): raise the one that is too"
    " short for the way to the broker, or let the event loop of this program run more often"
)


class MemberOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that a member sends when it joins. Times are in seconds. An empty text leaves the choice to the
    broker, or means that there is none."""

    group_id: str
    instance_id: str
    assignor: str
    growth_order: str
    session_timeout_seconds: float
    rebalance_timeout_seconds: float
    max_poll_interval_seconds: float


class Activity(msgspec.Struct, frozen=True):
    """The program's activity since the last call of `look_at_program`."""

    polls: bool
    """Whether the program asked for records."""
    delivers: bool
    """Whether the program was given records, or is working on some."""


class Reader(Protocol):
    """The part of the consumer that reads the member's partitions."""

    def joined(self) -> None:
        """Note that the broker has accepted the member on a new stream."""
        ...

    def silent(self) -> None:
        """Note that the broker does not answer. The member gives up its connection, and other connections may be dead,
        too."""
        ...

    def read_generations(self, generations: Mapping[TopicId, int]) -> None:
        """Note the generations of topics that the broker wants the member to read."""
        ...

    def new_positions(self) -> Positions:
        """Return the positions that the broker has to know and that were not reported on this stream yet."""
        ...


class GroupMember:
    """One incarnation of a member, over any number of streams. Belongs to one event loop."""

    def __init__(
        self,
        connection: Connection,
        options: MemberOptions,
        *,
        reader: Reader,
        look_at_program: Callable[[], Activity],
        on_change: Callable[[], None],
    ) -> None:
        """`look_at_program` returns the program's activity since its last call. `on_change` is called after each event
        that the program has to handle when it asks for records."""
        self.membership = Membership(
            session_timeout_seconds=options.session_timeout_seconds,
            max_poll_interval_seconds=options.max_poll_interval_seconds,
            rebalance_timeout_seconds=options.rebalance_timeout_seconds,
        )
        self._connection = connection
        self._route = OwnerRoute(connection)
        self._options = options
        self._reader = reader
        self._look_at_program = look_at_program
        self._on_change = on_change
        self._identity = Identity()
        self._subscription = groups_pb2.Subscription()
        self._busy_interval_seconds = self._idle_interval_seconds = (
            min(options.session_timeout_seconds, options.max_poll_interval_seconds) / 4
        )
        """The time between two heartbeats, while records are delivered and otherwise."""
        self._is_busy = False
        """Whether records are being delivered or will be soon. If so, heartbeats are frequent enough to extend the
        ownership deadline before it ends."""
        self._next_heartbeat_at = 0.0
        self._beat_anew = asyncio.Event()
        """Set when the next heartbeat has to come at another time than planned."""
        self._outbox: deque[groups_pb2.MemberRequest] = deque()
        self._to_send = asyncio.Event()
        self._changed = asyncio.Event()
        self._correlation_id = 0
        self._commits: dict[int, asyncio.Future[groups_pb2.CommitAnswer]] = {}
        self._changes: dict[int, asyncio.Future[groups_pb2.SubscriptionAnswer]] = {}
        """Changes of the subscription that wait for an answer, by correlation id."""
        self._attempt = 0
        """Number of streams since the last one on which the broker accepted the member."""
        self._was_let_in = False
        self._last_error: LogbrokerError | None = None
        """The error that ended the last stream."""
        self._grace_seconds = 0.0
        """The reconnect grace of the broker."""
        self._late_answers = 0
        """Number of successive answers that arrived after the ownership deadline that they give."""
        self._may_warn_at = NOT_NOW
        self.is_leaving = False
        """Whether the member is being closed, or is closed."""
        self._left = False
        self._returns = False
        """Whether other code ended the stream's task, as happens when the event loop ends, and a new task will open
        another stream. A caller that waits for the broker then keeps waiting and gets no error."""
        self._stream_work = Background(
            "the member's stream", connection, self._run, on_break=self._interrupted, on_over=self._cut_off
        )

    # --- what the program does --------------------------------------------------------------------------------------

    async def subscribe(self, topics: Sequence[str], pattern: str, bands: Sequence[str]) -> None:
        """Join the group with this subscription; later, change the subscription.

        The first call returns when the broker has accepted the member, a later one when it has accepted the change. If
        the broker refuses, its error is raised and the member stays unchanged.
        """
        if self.is_leaving:
            raise BrokerUnavailableError(CLOSED)
        subscription = groups_pb2.Subscription(topics=topics, topic_pattern=pattern, bands=bands)
        deadline = monotonic() + self._connection.request_timeout_seconds
        if self._was_let_in:
            await self._change_subscription(subscription, deadline)
            return
        self._subscription = subscription
        if not self._stream_work.has_begun:
            self._stream_work.start()
        elif self.membership.state is not MembershipState.OUT:
            self._send(subscription=self._subscription)
        while not self._was_let_in:
            self.go_on()
            if not await self.changed(deadline):
                raise BrokerUnavailableError(
                    f"the broker at {self._connection.brokers} did not let the member into group "
                    f"{self._options.group_id!r} within {self._connection.request_timeout_seconds:g} s: "
                    f"{self._last_error or 'it has not answered'}"
                )

    async def _change_subscription(self, subscription: groups_pb2.Subscription, deadline: float) -> None:
        while True:
            if self.membership.lost:
                # The member joins with the new subscription as soon as the program was told of the loss.
                self._subscription = subscription
                return
            self.go_on()
            error: LogbrokerError | None = None
            if self.membership.state is MembershipState.MEMBER:
                try:
                    await self._ask_to_change(subscription, deadline)
                except BrokerUnavailableError as failure:
                    error = failure.as_value()
                else:
                    self._subscription = subscription
                    return
            if self._left or not await self.changed(deadline):
                raise BrokerUnavailableError(
                    f"the broker at {self._connection.brokers} has not answered the change of the subscription within"
                    f" {self._connection.request_timeout_seconds:g} s: "
                    f"{error or self._last_error or 'it has not answered'}"
                )

    async def _ask_to_change(self, subscription: groups_pb2.Subscription, deadline: float) -> None:
        """Ask the broker to change the subscription. Raises its refusal, or BrokerUnavailableError if there is no
        answer on this stream."""
        self._correlation_id += 1
        answered: asyncio.Future[groups_pb2.SubscriptionAnswer] = asyncio.get_running_loop().create_future()
        correlation_id = self._correlation_id
        self._changes[correlation_id] = answered
        asked = groups_pb2.Subscription(correlation_id=correlation_id)
        asked.MergeFrom(subscription)
        self._send(subscription=asked)
        try:
            async with asyncio.timeout(max(0.0, deadline - monotonic())):
                answer = await answered
        except TimeoutError:
            raise BrokerUnavailableError("it has not answered") from None
        finally:
            self._changes.pop(correlation_id, None)
        error = error_of_item(answer.status)
        if error is not None:
            raise error

    def go_on(self) -> None:
        """Raise the error that keeps the member out of the group, once. Without an error, let the member join, or send
        a heartbeat that extends the ownership deadline."""
        if self.is_leaving:
            raise BrokerUnavailableError(CLOSED)
        error = self.membership.take_error()
        if error is not None:
            raise error
        if self.membership.may_join:
            self._changed_now()
        elif self.membership.needs_heartbeat(now := monotonic()):
            self._send_heartbeat(now, is_wanted=True)

    async def changed(self, deadline: float | None) -> bool:
        """Wait until something happens, and return True. Return False if the deadline (monotonic seconds) is over
        first."""
        self._changed.clear()
        try:
            async with asyncio.timeout(None if deadline is None else max(0.0, deadline - monotonic())):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def take(self, assignment: AssignedPartitions) -> bool:
        """Tell the broker that the program now holds exactly the partitions of `assignment`. Return False if the
        assignment is void."""
        if not self.membership.take(assignment):
            return False
        self._send(taken=groups_pb2.AssignmentTaken(epoch=assignment.epoch))
        return True

    async def commit(
        self, offsets: Offsets, deadline: float | None = None, texts: Mapping[TopicPartition, str] | None = None
    ) -> dict[TopicPartition, LogbrokerError]:
        """Commit offsets, with the texts to be stored beside them. Return the refused ones with their errors.

        If the stream breaks, the commit is repeated until the deadline; without a deadline, BrokerUnavailableError is
        raised. If the member loses all its partitions during the call, the error of this loss is raised.
        """
        losses = self.membership.losses
        while True:
            if self._left:
                raise BrokerUnavailableError(CLOSED)
            self.membership.check_commit(losses)
            if self.membership.state is MembershipState.MEMBER:
                try:
                    return failures_of(offsets, await self._commit_once(offsets, deadline, texts or {}))
                except BrokerUnavailableError:
                    if deadline is None and not self._returns:
                        raise
            elif deadline is None and not self._returns:
                raise BrokerUnavailableError("the member is not connected to its group at the moment")
            elif not await self.changed(deadline):
                raise RequestTimeoutError("the time for the commit is over; whether it took effect is not known")

    async def _commit_once(
        self, offsets: Offsets, deadline: float | None, texts: Mapping[TopicPartition, str]
    ) -> groups_pb2.CommitAnswer:
        self._correlation_id += 1
        answered: asyncio.Future[groups_pb2.CommitAnswer] = asyncio.get_running_loop().create_future()
        correlation_id = self._correlation_id
        self._commits[correlation_id] = answered
        self._send(
            commit=groups_pb2.Commit(
                correlation_id=correlation_id, epoch=self.membership.epoch, topics=topic_offsets(offsets, texts)
            )
        )
        try:
            async with asyncio.timeout(None if deadline is None else max(0.0, deadline - monotonic())):
                return await answered
        except TimeoutError:
            raise RequestTimeoutError("the broker has not answered the commit; it may still take effect") from None
        finally:
            self._commits.pop(correlation_id, None)

    def tell(self) -> None:
        """Report the reader's new positions to the broker at once, if there are any."""
        if self.membership.state is MembershipState.MEMBER:
            positions = self._reader.new_positions()
            if positions:
                self._send_heartbeat(monotonic(), positions)

    async def leave(self) -> None:
        """Say goodbye and end the stream. Other members then get the partitions at once."""
        self.is_leaving = True
        if not self._stream_work.has_begun:
            return
        try:
            if self.membership.state is not MembershipState.OUT:
                self._send(leave=groups_pb2.Leave())
            if self.membership.state is not MembershipState.OUT or self._returns:
                await self._stream_work.wait(_GOODBYE_SECONDS)
        finally:
            self._left = True
            try:
                await self._stream_work.end()
            finally:
                self._refuse_commits(CLOSED + UNKNOWN_EFFECT)
                self._changed_now()

    # --- the stream -------------------------------------------------------------------------------------------------

    def _send(self, **request: Any) -> None:
        self._outbox.append(groups_pb2.MemberRequest(**request))
        self._to_send.set()

    def _changed_now(self) -> None:
        self._changed.set()
        self._on_change()

    async def _run(self) -> None:
        while True:
            while not self.membership.may_join:
                if self.is_leaving:
                    return
                await self.changed(None)
            self._outbox.clear()
            self.membership.joining(monotonic())
            self._send(join=self._join())
            if self.is_leaving:
                # The goodbye may have been lost with an earlier stream: send it again. A second one does no harm.
                self._send(leave=groups_pb2.Leave())
            connection = self._route.connection
            stream = connection.stream("Member")
            error = await run_stream(connection, stream, self._read, self._write, self._beat)
            self._ended(error)
            if self.is_leaving:
                return
            if self._route.ended(error):
                owner = self._route.connection.broker
                _log.debug("member of group %s: %s; going on with %s", self._options.group_id, error, owner)
                continue
            level = logging.DEBUG if self._attempt else logging.WARNING
            _log.log(level, "member of group %s: %s; reconnecting", self._options.group_id, error)
            if self.membership.may_join:
                await asyncio.sleep(min(self._connection.backoff_seconds(self._attempt), _LAST_BACKOFF_SECONDS))
            self._attempt += 1

    def _interrupted(self, error: LogbrokerError, cancelled: bool) -> None:
        self._ended(error, returns=cancelled)

    def _cut_off(self) -> None:
        """End the member, because the event loop ends or cancels every task."""
        self._left = self.is_leaving = True
        self._refuse_commits(CLOSED + UNKNOWN_EFFECT)
        self._changed_now()

    def _ended(self, error: LogbrokerError, *, returns: bool = False) -> None:
        self._last_error = error
        self._returns = returns
        if self.membership.state is not MembershipState.OUT:
            if error.retriable or type(error) is LogbrokerError:
                self.membership.broken()
            else:
                self.membership.fenced(error)
        self._refuse_commits(f"the commit has no answer: {error}")
        self._changed_now()

    def _refuse_commits(self, message: str) -> None:
        waiting: list[asyncio.Future[Any]] = [*self._commits.values(), *self._changes.values()]
        for answered in waiting:
            if not answered.done():
                answered.set_exception(BrokerUnavailableError(message))

    def _join(self) -> groups_pb2.Join:
        options, membership = self._options, self.membership
        return groups_pb2.Join(
            group_id=options.group_id,
            member_id=self._identity.id,
            incarnation=self._identity.incarnation,
            instance_id=options.instance_id,
            subscription=self._subscription,
            assignor=options.assignor,
            growth_order=options.growth_order,
            session_timeout_ms=round(options.session_timeout_seconds * 1000),
            rebalance_timeout_ms=round(options.rebalance_timeout_seconds * 1000),
            max_poll_interval_ms=round(options.max_poll_interval_seconds * 1000),
            epoch=membership.epoch,
            owned=topic_partitions({partition: granted.topic_id for partition, granted in membership.owned.items()}),
            client_name=self._identity.client_name,
        )

    async def _write(self, stream: Stream) -> None:
        while True:
            while self._outbox:
                await stream.write(self._outbox.popleft())
            self._to_send.clear()
            await self._to_send.wait()

    async def _beat(self, stream: Stream) -> None:
        """Send heartbeats in time. Give up a connection on which they are not answered."""
        membership = self.membership
        self._set_next_heartbeat(monotonic())
        while True:
            patience_seconds = membership.patience_seconds(self._attempt)
            asked_at = membership.asked_at
            until = self._next_heartbeat_at if asked_at is None else asked_at + patience_seconds
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(until, self._next_heartbeat_at) - monotonic())):
                    await self._beat_anew.wait()
            self._beat_anew.clear()
            now, asked_at = monotonic(), membership.asked_at
            if asked_at is not None and now >= asked_at + patience_seconds:
                # If this process was frozen, the answer may be there and not read yet: let it be read first.
                await asyncio.sleep(_LATE_SECONDS)
                if membership.asked_at == asked_at:
                    self._route.connection.renew()
                    self._reader.silent()
                    raise BrokerUnavailableError(
                        f"the broker has not answered for {monotonic() - asked_at:.1f} s; trying another connection"
                    )
            if now >= self._next_heartbeat_at:
                if membership.state is MembershipState.MEMBER:
                    self._send_heartbeat(now)
                else:
                    self._set_next_heartbeat(now)
                self._beat_anew.clear()

    def _send_heartbeat(self, now: float, positions: Positions | None = None, *, is_wanted: bool = False) -> None:
        """Send a heartbeat. `is_wanted` says whether a caller waits for its answer."""
        program = self._look_at_program()
        self._is_busy = program.delivers or is_wanted
        self.membership.heartbeat(now, polled=program.polls)
        positions = self._reader.new_positions() if positions is None else positions
        self._send(heartbeat=groups_pb2.Heartbeat(polled=program.polls, positions=topic_positions(positions)))
        self._set_next_heartbeat(now)

    def _set_next_heartbeat(self, now: float) -> None:
        before = self._next_heartbeat_at
        interval_seconds = self._busy_interval_seconds if self._is_busy else self._idle_interval_seconds
        self._next_heartbeat_at = next_heartbeat(now, interval_seconds)
        if before != self._next_heartbeat_at:
            self._beat_anew.set()

    def _note_delay(self, now: float) -> None:
        """Warn if every answer arrives after the deadline that it gives. Without this warning, nothing would explain
        why no record is delivered."""
        late_seconds = self.membership.late_by(now)
        self._late_answers = self._late_answers + 1 if late_seconds else 0
        if late_seconds and not self._is_busy:
            self._is_busy = True
            self._set_next_heartbeat(now)
        if self._late_answers >= _LATE_ANSWERS and now >= self._may_warn_at:
            self._may_warn_at = now + _WARN_SECONDS
            _log.warning(
                _TOO_LATE,
                self._options.group_id,
                self.membership.lease_seconds + late_seconds,
                self.membership.lease_seconds,
                self.membership.session_timeout_seconds,
                self._options.rebalance_timeout_seconds,
                self._grace_seconds,
            )

    async def _read(self, stream: Stream) -> None:
        while True:
            response: Any = await stream.read()
            if response is grpc.aio.EOF:
                raise BrokerUnavailableError("the broker ended the stream")
            kind = response.WhichOneof("response")
            if kind in ("heartbeat", "joined"):
                self.membership.answered(monotonic())
            if kind == "heartbeat":
                self.membership.heartbeat_answered()
                self._note_delay(monotonic())
            elif kind == "commit":
                answered = self._commits.get(response.commit.correlation_id)
                if answered is not None and not answered.done():
                    answered.set_result(response.commit)
                continue
            elif kind == "subscribed":
                changed = self._changes.get(response.subscribed.correlation_id)
                if changed is not None and not changed.done():
                    changed.set_result(response.subscribed)
                continue
            elif kind == "assignment":
                self._reader.read_generations(generations_of(response.assignment.topics))
                self.membership.assigned(assignment_of(response.assignment))
            elif kind == "generations":
                self._reader.read_generations(generations_of(response.generations.topics))
            elif kind == "joined":
                joined: groups_pb2.Joined = response.joined
                if self._attempt:
                    _log.warning("member of group %s: connected again", self._options.group_id)
                self._attempt, self._was_let_in, self._returns = 0, True, False
                self._route.accepted()
                # Heartbeats also report polls.
                poll_interval_seconds = self._options.max_poll_interval_seconds / 4
                self._busy_interval_seconds = min(
                    joined.heartbeat_interval_ms / 1000,
                    poll_interval_seconds,
                    self._options.rebalance_timeout_seconds / 4,
                )
                idle_seconds = (joined.idle_heartbeat_interval_ms or joined.heartbeat_interval_ms) / 1000
                self._idle_interval_seconds = min(idle_seconds, poll_interval_seconds)
                self._grace_seconds = joined.reconnect_grace_ms / 1000
                self.membership.joined(
                    resumed=joined.resumed,
                    session_timeout_seconds=joined.session_timeout_ms / 1000,
                    reconnect_grace_seconds=self._grace_seconds,
                )
                self._reader.joined()
                self.tell()
            elif kind == "fenced":
                error = error_of_item(response.fenced.status) or LogbrokerError("fenced without a reason")
                self.membership.fenced(error)
                raise error
            self._changed_now()
