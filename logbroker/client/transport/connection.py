"""The channel to a broker: unary calls with retries, and streams."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from logbroker.client.runtime import forking, poller_noise
from logbroker.client.runtime.arguments import check_seconds
from logbroker.client.runtime.lifetime import OTHER_LOOP, Lifetime
from logbroker.client.runtime.tasks import end_tasks, let_go_of_error
from logbroker.client.transport.brokers import Brokers
from logbroker.client.transport.status import UNKNOWN_EFFECT, error_of_call, may_have_taken_effect
from logbroker.errors import BrokerUnavailableError, InvalidRequestError, LogbrokerError, StaleOwnerError, quoted
from logbroker.v1 import admin_pb2, groups_pb2, log_pb2, queues_pb2

_log = logging.getLogger(__name__)

CLOSED: Final = "this client is closed; open another one"
NO_ASYNCIO: Final = (
    "logbroker.client runs in asyncio only, and no event loop of asyncio runs here: use logbroker.client.sync"
    " (in trio through trio.to_thread.run_sync)"
)
MAX_RESPONSE_BYTES: Final = 64 * 1024 * 1024
"""Room for the largest batch that a topic may take, several times over."""
KEEPALIVE_SECONDS: Final = 6.5
KEEPALIVE_TIMEOUT_SECONDS: Final = 3.0
"""If nothing arrives on a connection for KEEPALIVE_SECONDS, it is sent a keepalive ping. If the ping is not answered
within KEEPALIVE_TIMEOUT_SECONDS, the connection counts as dead. So a caller notices when a device in between has
forgotten the connection or stopped serving it, and a call is repeated before its timeout (10 s by default) is over."""
MEMBER_KEEPALIVE_SECONDS: Final = 11.5
"""KEEPALIVE_SECONDS for the connections of a group member. Each ping costs the broker as much as a heartbeat, and most
members are idle. A member has two connections. Heartbeats watch one of them more closely; if the other is dead, records
arrive again within 15 s."""
_PATIENCE_FACTOR: Final = 4
_MAX_KEEPALIVE_TIMEOUT_SECONDS: Final = 48.0
"""On a slow link, keepalive pings wait behind the data that is being sent. If a connection ends for this reason, the
client multiplies its keepalive timeout by _PATIENCE_FACTOR, up to this maximum. It restores the first timeout once the
link is quick."""
READ_AHEAD_BYTES: Final = 4 * 1024 * 1024
"""Flow-control window of one stream. It allows 40 MB/s over a round trip of 100 ms."""
_FIRST_BACKOFF_SECONDS: Final = 0.05
_LAST_BACKOFF_SECONDS: Final = 1.0

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_RESPONSE_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    # Despite its name, this is the shortest timeout of one attempt to connect. It does not delay the next attempt.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # gRPC applies the keepalive timeout to every ping. On a slow link, the answer to a ping that measures bandwidth
    # waits behind the data. Without these pings, only idle connections are pinged.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", READ_AHEAD_BYTES),
    # Otherwise gRPC stops pinging while nothing is sent, and streams that only wait would never notice that they are
    # dead.
    ("grpc.http2.max_pings_without_data", 0),
    # Each client has a connection of its own, so that a stalled reader does not hold up a producer in the same process.
    ("grpc.use_local_subchannel_pool", 1),
    # A broker is named by its address. Proxies for web traffic do not apply.
    ("grpc.enable_http_proxy", 0),
)

Stream = grpc.aio.StreamStreamCall[Any, Any]

METHODS: Final = {
    method.name: method
    for service in (
        log_pb2.DESCRIPTOR.services_by_name["Log"],
        admin_pb2.DESCRIPTOR.services_by_name["Admin"],
        groups_pb2.DESCRIPTOR.services_by_name["Groups"],
        queues_pb2.DESCRIPTOR.services_by_name["Queues"],
    )
    for method in service.methods
}

_CHANGING: Final = frozenset(
    {
        "AlterQueue",
        "AlterTopics",
        "CommitOffsets",
        "CreateQueue",
        "CreateTopics",
        "DecideLanes",
        "DeleteGroups",
        "DeleteQueues",
        "DeleteRecords",
        "DeleteTopics",
        "Produce",
        "Receive",
        "Redrive",
        "Rewind",
        "Settle",
    }
)
"""The calls that change something visible. InitProducerId is not one of them: an id that nobody received changes
nothing."""


def backoff_seconds(attempt: int) -> float:
    """Return the wait after failed attempt 0, 1, ...: 50 ms, doubled up to 1 s, minus a random part of at most a
    fifth."""
    longest = min(_LAST_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * (1 << min(attempt, 10)))
    return longest * (1 - random.random() / 5)


class Connection:
    """The connection to one broker at a time, by its address "HOST:PORT" or by several with commas between them.

    Belongs to the event loop in which it is first used. gRPC connects by itself, and connects again after a restart of
    the broker. With several addresses, the connection goes on to the next one when it fails.
    """

    def __init__(
        self,
        broker: str,
        *,
        request_timeout_seconds: float,
        lifetime: Lifetime | None = None,
        is_of_member: bool = False,
    ) -> None:
        """`lifetime` is the client's. It is opened together with the first channel."""
        try:
            self._brokers = Brokers(broker)
        except ValueError as error:
            raise InvalidRequestError(f"the address of the broker, {quoted(broker)}, {error}") from None
        check_seconds(request_timeout_seconds=request_timeout_seconds)
        self.request_timeout_seconds = request_timeout_seconds
        self._is_of_member = is_of_member
        self._keepalive_timeout_seconds = KEEPALIVE_TIMEOUT_SECONDS
        self._channel: grpc.aio.Channel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop in which the channel was opened."""
        self._closed = False
        self._closings: set[asyncio.Task[None]] = set()
        """Tasks that close abandoned channels."""
        self._to_owners: set[Connection] = set()
        self._lifetime = lifetime
        self._is_forked = False
        forking.watch(self)

    @property
    def broker(self) -> str:
        """The address in use."""
        return self._brokers.current

    @property
    def brokers(self) -> str:
        """All addresses, to be given to another client."""
        return self._brokers.text

    def forked(self) -> None:
        """See `forking.Forked`."""
        if self._channel is not None:
            self._is_forked = True

    async def unary(self, method_name: str, request: Message, *, retry: bool = True, more_seconds: float = 0.0) -> Any:
        """Make a call. If the broker is away and the call may be repeated, repeat it until the request timeout plus
        `more_seconds` is over. A call that may not be repeated is tried at each address, as long as no broker can have
        received it.

        Raises the error that the broker reported; BrokerUnavailableError if the broker cannot be reached or the
        connection breaks; RequestTimeoutError if it does not answer. The message says so if a change may have been
        made.
        """
        method = METHODS[method_name]
        deadline = time.monotonic() + self.request_timeout_seconds + more_seconds
        attempt = 0
        changes = _changes(method_name, request)
        unknown = ""
        while True:
            if self._closed:
                raise BrokerUnavailableError(CLOSED + unknown)
            channel, broker = self._open_channel(), self.broker
            call = channel.unary_unary(
                _path(method),
                request_serializer=_input_class(method).SerializeToString,
                response_deserializer=_output_class(method).FromString,
            )
            error: LogbrokerError
            try:
                answer = await _answer(call(request, timeout=max(0.001, deadline - time.monotonic())))
            except grpc.aio.AioRpcError as failure:
                error = error_of_call(failure, broker)
                is_unknown = may_have_taken_effect(failure)
            else:
                if answer is not None:
                    return answer
                # `renew` or `close` closed the channel, or other code has cancelled the call with all tasks of the
                # loop.
                error = BrokerUnavailableError(f"the connection to the broker at {broker} was dead")
                is_unknown = True
            if changes and is_unknown:
                unknown = UNKNOWN_EFFECT
            if self._closed:
                raise BrokerUnavailableError(CLOSED + unknown)
            wait_seconds = self.backoff_seconds(attempt)
            is_unavailable = isinstance(error, BrokerUnavailableError)
            if is_unavailable:
                self.failed(broker)
            if retry:
                # StaleOwnerError: the gateway does not own the group, and did not reach the one that does.
                is_last = not (is_unavailable or isinstance(error, StaleOwnerError))
            else:
                is_last = not is_unavailable or is_unknown or attempt + 1 >= len(self._brokers)
            if is_last or time.monotonic() + wait_seconds > deadline:
                raise _with_note(error, unknown if is_unknown or error.retriable else "")
            _log.debug("%s: %s; trying again", method_name, error)
            attempt += 1
            await asyncio.sleep(wait_seconds)

    def stream(self, method_name: str) -> Stream:
        """Begin a stream. Its errors are raised when it is read."""
        method = METHODS[method_name]
        return self._open_channel().stream_stream(
            _path(method),
            request_serializer=_input_class(method).SerializeToString,
            response_deserializer=_output_class(method).FromString,
        )()

    @property
    def is_dropped(self) -> bool:
        """Whether the program has dropped the client, which then ends soon."""
        return self._lifetime is not None and self._lifetime.is_ending

    def backoff_seconds(self, attempt: int) -> float:
        """Return the wait after failed attempt 0, 1, ...: as the function, but each address is tried before the wait
        grows."""
        return backoff_seconds(attempt // len(self._brokers))

    def failed(self, broker: str) -> None:
        """Go on to the next address after the connection to this one has failed, unless that has been done."""
        if not self._closed and self._brokers.failed(broker):
            _log.info("the broker at %s does not answer: going on with %s", broker, self.broker)
            self._drop_channel()

    def to_owner(self, owner: str) -> Connection:
        """Return a connection to the gateway that owns a group. It ends with this one, unless it is left before."""
        connection = Connection(
            owner, request_timeout_seconds=self.request_timeout_seconds, is_of_member=self._is_of_member
        )
        self._to_owners.add(connection)
        return connection

    def leave_owner(self, connection: Connection) -> None:
        """Close a connection that `to_owner` has returned."""
        self._to_owners.discard(connection)
        self._let_end(connection.close())

    def renew(self) -> None:
        """Give up a silent connection. Its calls end; those that may be repeated are repeated on a new connection, to
        the next address if there are several.

        gRPC keeps a connection until it breaks, and a connection that a device in between stopped serving does not
        break.
        """
        is_open = self._channel is not None
        self._replace_channel("is silent")
        if is_open:
            self._brokers.failed(self.broker)

    def renew_with_patience(self) -> None:
        """Give up a connection that ended while much was being sent. Let the next connection wait longer for the answer
        to a keepalive ping, which on a slow link arrives behind the data."""
        longer_seconds = self._keepalive_timeout_seconds * _PATIENCE_FACTOR
        if longer_seconds <= _MAX_KEEPALIVE_TIMEOUT_SECONDS:
            self._keepalive_timeout_seconds = longer_seconds
            self._replace_channel("is too slow for what is being sent")

    @property
    def is_patient(self) -> bool:
        """Whether the connection waits longer for the answer to a keepalive ping than at first."""
        return self._keepalive_timeout_seconds > KEEPALIVE_TIMEOUT_SECONDS

    def renew_without_patience(self) -> None:
        """Open a new connection with the first keepalive timeout, because the link is no longer slow. gRPC cannot
        change the timeout of an open connection, so call this while nothing is in flight."""
        self._keepalive_timeout_seconds = KEEPALIVE_TIMEOUT_SECONDS
        self._replace_channel("has become quick")

    def _replace_channel(self, why: str) -> None:
        if self._channel is not None and not self._closed:
            _log.debug("the connection to %s %s: opening another one", self.broker, why)
            self._drop_channel()

    def _drop_channel(self) -> None:
        """Close the channel. The next call opens another one."""
        if self._channel is not None:
            channel, self._channel = self._channel, None
            self._let_end(_close(channel))

    def _let_end(self, closing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(closing)
        self._closings.add(task)
        task.add_done_callback(self._closings.discard)

    async def close(self) -> None:
        """Close the channel and every call on it."""
        self._closed = True
        channel, self._channel = self._channel, None
        if channel is not None:
            await _close(channel)
        while self._to_owners:
            await self._to_owners.pop().close()
        if self._closings:
            await asyncio.wait(self._closings)

    def _open_channel(self) -> grpc.aio.Channel:
        if self._closed:
            raise BrokerUnavailableError(CLOSED)
        if self._is_forked:
            raise forking.error()
        forking.check()
        loop = running_loop()
        if self._loop not in (None, loop):
            raise InvalidRequestError(OTHER_LOOP)
        if self._channel is None:
            self._loop = loop
            poller_noise.keep_out()
            keepalive_seconds = MEMBER_KEEPALIVE_SECONDS if self._is_of_member else KEEPALIVE_SECONDS
            timeout_ms = round(self._keepalive_timeout_seconds * 1000)
            options = (
                *_OPTIONS,
                ("grpc.keepalive_time_ms", round(keepalive_seconds * 1000)),
                ("grpc.keepalive_timeout_ms", timeout_ms),
                # gRPC (1.85) ignores the timeout above. Without this one, a dead connection ends only after a minute.
                ("grpc.http2.ping_timeout_ms", timeout_ms),
            )
            self._channel = grpc.aio.insecure_channel(_target(self.broker), options=options)
            forking.opened(self._channel)
            if self._lifetime is not None:
                self._lifetime.opened(self.close)
        return self._channel


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of the caller. Raises InvalidRequestError if the caller runs in no asyncio loop."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise InvalidRequestError(NO_ASYNCIO) from None


async def _close(channel: grpc.aio.Channel) -> None:
    await channel.close()
    # gRPC ends its threads only when nothing refers to the channel. Until then the process must not fork.
    forking.closed(channel)


async def _answer(call: Any) -> Any:
    """Await a call. Return None if other code has cancelled it.

    If a task is cancelled while it awaits a gRPC call, gRPC raises a CancelledError of its own in place of the
    original. Libraries such as anyio recognise their cancellations by the message of the original. So the caller awaits
    an asyncio task, and that task awaits the call.
    """
    task = asyncio.ensure_future(_of_grpc(call))
    task.add_done_callback(let_go_of_error)
    try:
        await asyncio.wait([task])
        return None if task.cancelled() else task.result()
    finally:
        task.cancel()
        # The task holds the error, whose traceback refers to this frame.
        del task


async def _of_grpc(call: Any) -> Any:
    return await call


async def run_stream(
    connection: Connection, stream: Stream, *sides: Callable[[Stream], Coroutine[Any, Any, None]]
) -> LogbrokerError:
    """Run the two sides of a stream until it breaks, and return the error. The sides never return by themselves."""
    broker = connection.broker
    tasks = [asyncio.create_task(side(stream)) for side in sides]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        stream.cancel()
        outcomes = await end_tasks(*tasks)
    for outcome in outcomes:
        if isinstance(outcome, grpc.aio.AioRpcError):
            error = error_of_call(outcome, broker)
            if isinstance(error, BrokerUnavailableError):
                connection.failed(broker)
            return error
        if isinstance(outcome, LogbrokerError):
            return outcome.as_value()
        if isinstance(outcome, Exception) and not isinstance(outcome, asyncio.InvalidStateError):
            # A fault of this client: log it, and go on as after any break.
            _log.error("the stream to %s failed", broker, exc_info=outcome)
    # gRPC raises InvalidStateError for a write to a stream that has ended.
    return BrokerUnavailableError(f"the broker at {broker} ended the stream")


def _changes(method_name: str, request: Any) -> bool:
    only_checks = getattr(request, "validate_only", False) or getattr(request, "dry_run", False)
    return method_name in _CHANGING and not only_checks


def _with_note(error: LogbrokerError, note: str) -> LogbrokerError:
    return type(error)(error.message + note) if note else error


def _target(broker: str) -> str:
    """Return an address in gRPC's form. gRPC would read a host such as `dns` or `unix` as a scheme."""
    return "dns:///" + broker.replace("%", "%25")


def _path(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def _input_class(method: MethodDescriptor) -> Any:
    return message_factory.GetMessageClass(method.input_type)


def _output_class(method: MethodDescriptor) -> Any:
    return message_factory.GetMessageClass(method.output_type)
