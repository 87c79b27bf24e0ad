"""Forwards unary calls to the gateways that serve their groups.

Several gateways serve one cluster, and each group has one owner among them. A call comes to any of them. If a service
raises StaleOwnerError with the owner's address, the request is sent to the owner as it came, and the owner's answer or
status goes back to the caller. Such an error must mean that nothing took effect here. If only some items of a call
belong to others (`_ITEMS`), only these items are sent on. A list of all groups is joined from the lists of all
gateways.

A forwarded call carries FORWARDED_KEY, and is never forwarded again: a gateway that does not have the group either
answers with the owner that it knows, and the gateway that the caller asked goes on there, up to MAX_HOPS. So calls end
also while gateways disagree about an owner.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from time import monotonic
from typing import Any, Final, NoReturn, TypeVar, cast

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status as RpcStatus

from logbroker.broker.read_budget import ReadBudget
from logbroker.broker.topics import MAX_ITEMS
from logbroker.errors import BrokerUnavailableError, LogbrokerError, RequestTimeoutError, StaleOwnerError, from_status
from logbroker.grpc_api.paging import FRAME_BYTES, FULL, ITEM_STEPS
from logbroker.grpc_api.queues.receive import MIN_RETURN_SECONDS, return_seconds
from logbroker.grpc_api.status import ERROR_DOMAIN, OWNER_KEY, Context, ForwardableContext, Statuses, abort, answers
from logbroker.pacing import Pace
from logbroker.v1 import groups_pb2, queues_pb2
from logbroker.v1.common_pb2 import Status

_log = logging.getLogger(__name__)

FORWARDED_KEY: Final = "logbroker-forwarded"
"""Metadata of a forwarded call. The gateway that gets it answers for its own groups only."""
MAX_HOPS: Final = 3
"""Maximum number of gateways that one call is forwarded to, one after the other."""
IDLE_SECONDS: Final = 60.0
"""A connection to another gateway is closed when it was not used for so long."""
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of an answer of another gateway, as in the Python client."""
HAND_BACK_SECONDS: Final = 2.0
"""Time limit for handing back the deliveries of a Receive whose caller is gone."""
PATIENCE_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.1
_SPARE_SECONDS: Final = 1.0
"""Time that is left for the call itself."""
_MIN_SECONDS: Final = 0.001

_ITEMS: Final[Mapping[str, tuple[str, str]]] = {
    "CreateTopics": ("topics", "results"),
    "AlterTopics": ("topics", "results"),
    "DeleteTopics": ("topics", "results"),
    "DeleteRecords": ("deletions", "results"),
    "DescribeGroups": ("group_ids", "groups"),
    "DeleteGroups": ("group_ids", "results"),
    "DescribeQueues": ("group_ids", "queues"),
    "DeleteQueues": ("group_ids", "results"),
}
"""The calls whose items may belong to several gateways: the fields of the items in the request and in the response."""
_BOUNDED: Final = frozenset({"DescribeGroups", "DescribeQueues"})
"""Those whose answer must be cut when it is joined. The answers to changes are small."""

_DETAILS_KEY: Final = "grpc-status-details-bin"
_NEVER_SENT: Final = ("failed to connect to all addresses", "errors resolving ", "DNS resolution failed")
"""The beginnings of gRPC's messages for a call that found no connection."""

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 4 * 1024 * 1024),
    # A gateway that is frozen, or cut off, is noticed while calls wait for it.
    ("grpc.keepalive_time_ms", 6_500),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.http2.max_pings_without_data", 0),
    # Each channel has a connection of its own: see `_Peers`.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)

_Behaviour = Callable[[bytes, Context], Awaitable[Any]]
_T = TypeVar("_T")


class Forwarding:
    """The forwarding of one gateway. Its connections are shared by all calls."""

    def __init__(
        self,
        gateways: Callable[[], Sequence[str]],
        own_address: Callable[[], str],
        budget: ReadBudget,
        max_response_bytes: int,
    ) -> None:
        """`gateways` returns HOST:PORT of each other gateway, `own_address` that of this one."""
        self.gateways = gateways
        self._own_address = own_address
        self.budget = budget
        self.max_response_bytes = max_response_bytes
        self.peers = _Peers()
        self._background: set[asyncio.Task[None]] = set()

    def forwarded(self, method: MethodDescriptor, behaviour: _Behaviour) -> _Behaviour:
        """Return a unary method of a service, which takes bytes, with its forwarding."""
        if method.name == "Receive":
            call = _ForwardedReceive(self, method, behaviour).call
        elif method.name == "ListGroups":
            call = _JoinedList(self, method, behaviour).call
        elif method.name in _ITEMS:
            call = _ForwardedItems(self, method, behaviour).call
        else:
            call = _ForwardedCall(self, method, behaviour).call

        @functools.wraps(behaviour)
        async def serve(message: bytes, context: Context) -> Any:
            if any(key == FORWARDED_KEY for key, _ in context.invocation_metadata() or ()):
                return await behaviour(message, context)
            return await call(message, context)

        return serve

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def is_other(self, owner: str) -> bool:
        """Return whether another gateway is at an address, and not this one, which may be about to take a group
        over."""
        return owner not in ("", self._own_address())

    async def close(self) -> None:
        if self._background:
            await asyncio.wait(self._background)
        await self.peers.close()


class _Patience:
    """The time for which a call waits until a group has an owner: a gateway may just have died or joined."""

    def __init__(self, context: Context) -> None:
        left = _seconds_left(context)
        self._until = monotonic() + min(PATIENCE_SECONDS, PATIENCE_SECONDS if left is None else left - _SPARE_SECONDS)

    @property
    def is_over(self) -> bool:
        return monotonic() + _PAUSE_SECONDS > self._until

    async def pause(self) -> None:
        await asyncio.sleep(_PAUSE_SECONDS)


class _ForwardedCall:
    """A method whose calls name one group."""

    def __init__(self, forwarding: Forwarding, method: MethodDescriptor, behaviour: _Behaviour) -> None:
        self._forwarding = forwarding
        self._method = method
        self._behaviour = behaviour
        self._path = f"/{method.containing_service.full_name}/{method.name}"

    @answers
    async def call(self, message: bytes, context: Context) -> Any:
        patience = _Patience(context)
        while True:
            try:
                response = await self._behaviour(message, cast("Context", ForwardableContext(context)))
                return await self._completed(response, message, context)
            except StaleOwnerError as error:
                refusal = error.as_value()
            if self._forwarding.is_other(refusal.owner):
                answer, owner = await self._follow(refusal.owner, message, context)
                if not isinstance(answer, grpc.aio.AioRpcError):
                    return await self._handed_on(answer, owner, message, context)
                if not (_was_never_sent(answer) or _owner_in(answer)) or patience.is_over:
                    await _abort_as(context, answer, owner)
            elif not refusal.owner or patience.is_over:
                raise refusal.anew()
            await patience.pause()

    async def _completed(self, response: Any, message: bytes, context: Context) -> Any:
        """Return the answer of this gateway with what others add to it."""
        return response

    async def _handed_on(self, answer: bytes, owner: str, message: bytes, context: Context) -> bytes | None:
        """Return the answer of another gateway, or write it."""
        return answer

    async def _follow(self, owner: str, message: bytes, context: Context) -> tuple[bytes | grpc.aio.AioRpcError, str]:
        """Send a request to the owner of its group. Return the answer, or the last refusal, and who gave it."""
        hops = 0
        while True:
            try:
                return await self._ask(owner, message, context), owner
            except grpc.aio.AioRpcError as error:
                failure = error.with_traceback(None)  # It would keep the request in memory.
            hops += 1
            next_owner = _owner_in(failure)
            if not next_owner or hops == MAX_HOPS:
                return failure, owner
            owner = next_owner

    async def _ask(self, address: str, message: bytes, context: Context) -> bytes:
        """Raises grpc.aio.AioRpcError or BrokerUnavailableError."""
        return await self._forwarding.peers.call(address, self._path, message, _seconds_left(context))


class _ForwardedReceive(_ForwardedCall):
    """Receive, which writes its answer itself, to learn whether the transport took it.

    The way from here to the caller gets the care that `Receive` gives to its own: some time is reserved for it, and
    deliveries that do not reach the caller are handed back.
    """

    async def _follow(self, owner: str, message: bytes, context: Context) -> tuple[bytes | grpc.aio.AioRpcError, str]:
        await self._forwarding.budget.wait()
        return await super()._follow(owner, message, context)

    async def _ask(self, address: str, message: bytes, context: Context) -> bytes:
        seconds = _seconds_left(context)
        if seconds is not None:
            seconds = max(seconds - return_seconds(seconds), _MIN_SECONDS)
        return await self._forwarding.peers.call(address, self._path, message, seconds, waits=True)

    async def _handed_on(self, answer: bytes, owner: str, message: bytes, context: Context) -> None:
        self._forwarding.budget.hold(len(answer))
        is_out = False
        try:
            await context.write(answer)
            seconds = _seconds_left(context)
            if answer and seconds is not None and seconds < MIN_RETURN_SECONDS / 2:
                raise RequestTimeoutError("the answer came too late for the call; give the call a later deadline")
            is_out = True
        finally:
            self._forwarding.budget.release(len(answer))
            # A larger answer may be too large for the caller: its records keep their leases, as in `Receive`.
            if not is_out and len(answer) <= self._forwarding.max_response_bytes:
                self._forwarding.in_background(self._hand_back(owner, message, answer))

    async def _hand_back(self, owner: str, message: bytes, answer: bytes) -> None:
        """Release the deliveries of an answer that did not reach the caller."""
        received = queues_pb2.ReceiveResponse.FromString(answer).deliveries
        if not received:
            return
        request = queues_pb2.ReceiveRequest.FromString(message)
        settle = queues_pb2.SettleRequest(group_id=request.group_id, worker_id=request.worker_id)
        settle.settle.releases.firsts.extend(delivered.first_receipt for delivered in received)
        settle.settle.releases.lasts.extend(delivered.first_receipt + delivered.count - 1 for delivered in received)
        path = f"/{self._method.containing_service.full_name}/Settle"
        try:
            await self._forwarding.peers.call(owner, path, settle.SerializeToString(), HAND_BACK_SECONDS)
        except (grpc.aio.AioRpcError, BrokerUnavailableError) as error:
            _log.info("queue group %s: the deliveries of a vanished caller stay leased: %s", request.group_id, error)


class _ForwardedItems(_ForwardedCall):
    """A method whose items may belong to several gateways."""

    def __init__(self, forwarding: Forwarding, method: MethodDescriptor, behaviour: _Behaviour) -> None:
        super().__init__(forwarding, method, behaviour)
        self._asked, self._answered = _ITEMS[method.name]
        self._request_class: Any = GetMessageClass(method.input_type)
        self._response_class: Any = GetMessageClass(method.output_type)

    async def _completed(self, response: Any, message: bytes, context: Context) -> Any:
        request: Any = None
        pace, statuses, patience = Pace(), Statuses(), _Patience(context)
        for hops in itertools.count():
            results = getattr(response, self._answered)
            by_owner: dict[str, list[int]] = {}
            for index, result in enumerate(results):
                owner = _status_of(result).owner
                if owner:
                    by_owner.setdefault(owner, []).append(index)
                await pace.step()
            if not by_owner or (hops and patience.is_over):
                break
            if hops >= MAX_HOPS or not all(map(self._forwarding.is_other, by_owner)):
                await patience.pause()
            if request is None:
                request = self._request_class.FromString(message)
            parts = await _together(
                [self._ask_part(owner, request, indexes, context) for owner, indexes in by_owner.items()]
            )
            for indexes, part in zip(by_owner.values(), parts, strict=True):
                for place, index in enumerate(indexes):
                    if isinstance(part, LogbrokerError):
                        results[index].Clear()
                        _status_of(results[index]).CopyFrom(statuses.of(part))
                    else:
                        results[index].CopyFrom(part[place])
                    await pace.step(ITEM_STEPS)
        if request is not None and self._method.name in _BOUNDED:
            await self._cut(getattr(response, self._answered), statuses, pace)
        return response

    async def _ask_part(
        self, owner: str, request: Any, indexes: list[int], context: Context
    ) -> Sequence[Any] | LogbrokerError:
        """Send the items of one owner there. Return their results, or the error of them all."""
        part = self._request_class()
        for field, value in request.ListFields():
            if field.name == self._asked:
                getattr(part, self._asked).extend([value[index] for index in indexes])
            else:
                setattr(part, field.name, value)
        if not self._forwarding.is_other(owner):
            here = await self._behaviour(part.SerializeToString(), cast("Context", ForwardableContext(context)))
            return cast("Sequence[Any]", getattr(here, self._answered))
        try:
            answer = await self._ask(owner, part.SerializeToString(), context)
        except grpc.aio.AioRpcError as failure:
            if _was_never_sent(failure):
                return StaleOwnerError(_broken(failure, owner).message).owned_by(owner)
            return _error_of(failure, owner)
        except BrokerUnavailableError as error:
            return error.as_value()
        results: Sequence[Any] = getattr(self._response_class.FromString(answer), self._answered)
        return results

    async def _cut(self, results: Any, statuses: Statuses, pace: Pace) -> None:
        """Refuse the first item that no longer fits into the answer, and all after it, as `items_within` does."""
        room_bytes = self._forwarding.max_response_bytes
        is_full = False
        for index, result in enumerate(results):
            is_full = is_full or (index > 0 and result.ByteSize() > room_bytes)
            if is_full:
                result.Clear()
                result.status.CopyFrom(statuses.of(FULL))
            room_bytes -= result.ByteSize() + FRAME_BYTES
            await pace.step(ITEM_STEPS)


class _JoinedList(_ForwardedCall):
    """ListGroups: a page of the groups of all gateways."""

    async def _completed(self, response: Any, message: bytes, context: Context) -> Any:
        others = self._forwarding.gateways()
        if not others:
            return response
        request = groups_pb2.ListGroupsRequest.FromString(message)
        page_size = request.page_size if request.HasField("page_size") else MAX_ITEMS
        lists = [response, *await _together([self._ask_list(address, message, context) for address in others])]
        return await _joined(lists, page_size, self._forwarding.max_response_bytes)

    async def _ask_list(self, address: str, message: bytes, context: Context) -> groups_pb2.ListGroupsResponse:
        try:
            return groups_pb2.ListGroupsResponse.FromString(await self._ask(address, message, context))
        except grpc.aio.AioRpcError as failure:
            error = _error_of(failure, address)
        raise type(error)(f"the list would lack the groups of another gateway: {error.message}")


async def _joined(
    lists: Sequence[groups_pb2.ListGroupsResponse], page_size: int, room_bytes: int
) -> groups_pb2.ListGroupsResponse:
    """Join the pages of several gateways that begin at the same place.

    A page that is not the last one of its gateway says nothing about the ids after its end, so the joined page ends at
    the first such end.
    """
    pace = Pace()
    end = min((page.next_page_token for page in lists if page.next_page_token), default=None)
    # By id: a group that moves meanwhile may be in two lists.
    found = {group.group_id: group for page in lists for group in page.groups}
    await pace.step(sum(len(page.groups) for page in lists))
    ids = sorted(found)
    await pace.step(len(ids))
    joined = groups_pb2.ListGroupsResponse()
    for group_id in ids:
        if end is not None and group_id > end:
            break
        if len(joined.groups) >= page_size or room_bytes <= 0:
            end = joined.groups[-1].group_id
            break
        joined.groups.append(found[group_id])
        room_bytes -= found[group_id].ByteSize() + FRAME_BYTES
        await pace.step(ITEM_STEPS)
    joined.next_page_token = end or ""
    return joined


async def _together(calls: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Make calls at once, and return their results. The first error ends all of them."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _seconds_left(context: Context) -> float | None:
    # None if the call has no deadline, although the type stubs say float.
    seconds = cast("float | None", context.time_remaining())
    return None if seconds is None else max(seconds, _MIN_SECONDS)


def _status_of(result: Any) -> Any:
    return result if isinstance(result, Status) else result.status


# --- the errors of other gateways -------------------------------------------------------------------------------------


def _info_of(failure: grpc.aio.AioRpcError) -> ErrorInfo | None:
    """Return what a logbroker says about the error; None if the status comes from gRPC itself."""
    for key, value in failure.trailing_metadata() or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            for detail in RpcStatus.FromString(value).details:
                info = ErrorInfo()
                if detail.Unpack(info) and info.domain == ERROR_DOMAIN:
                    return info
    return None


def _owner_in(failure: grpc.aio.AioRpcError) -> str:
    """Return the owner that a gateway names in place of itself; "" for any other error."""
    info = _info_of(failure)
    return info.metadata.get(OWNER_KEY, "") if info is not None and info.reason == StaleOwnerError.reason else ""


def _is_broken(failure: grpc.aio.AioRpcError) -> bool:
    """Return whether a call failed because there was no connection, or because it broke."""
    # This gateway cancels no call that it awaits: CANCELLED comes from a connection that ended, or a gateway that
    # stops.
    gone = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    return failure.code() in gone and _info_of(failure) is None


def _was_never_sent(failure: grpc.aio.AioRpcError) -> bool:
    return failure.code() is grpc.StatusCode.UNAVAILABLE and (failure.details() or "").startswith(_NEVER_SENT)


def _broken(failure: grpc.aio.AioRpcError, address: str) -> BrokerUnavailableError:
    why = failure.details() or failure.code().name
    if _was_never_sent(failure):
        return BrokerUnavailableError(
            f"the gateway at {address}, which serves the group, cannot be reached: {why}; send the request again: "
            "another gateway takes the group over soon if that one is gone"
        )
    return BrokerUnavailableError(
        f"the connection to the gateway at {address}, which serves the group, broke before the answer: {why}; whether "
        "the request took effect is not known"
    )


def _error_of(failure: grpc.aio.AioRpcError, address: str) -> LogbrokerError:
    """Return the error of a failed call, for an item of an answer."""
    if _is_broken(failure):
        return _broken(failure, address)
    info = _info_of(failure)
    error = from_status(failure.code().value[0], info.reason if info else "", failure.details() or failure.code().name)
    return error.owned_by(info.metadata.get(OWNER_KEY, "")) if info and isinstance(error, StaleOwnerError) else error


async def _abort_as(context: Context, failure: grpc.aio.AioRpcError, address: str) -> NoReturn:
    """End the call with the status with which another gateway ended it."""
    if not _is_broken(failure):
        trailers = tuple((key, value) for key, value in failure.trailing_metadata() or ())
        await context.abort(failure.code(), failure.details() or "", trailers)
    error = _broken(failure, address)
    if _was_never_sent(failure):
        await abort(context, error)
    # Without a reason: so clients know that the request may have taken effect.
    await context.abort(grpc.StatusCode.UNAVAILABLE, error.message)
    raise AssertionError("abort returned")


# --- connections ------------------------------------------------------------------------------------------------------


class _Peer:
    """A channel to another gateway, and how many calls use it."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.aio.insecure_channel("dns:///" + address.replace("%", "%25"), options=_OPTIONS)
        self.calls = 0
        self.idle: asyncio.TimerHandle | None = None


class _Peers:
    """The channels to other gateways, by address.

    Calls that wait have a channel of their own: a gateway serves a limited number of calls of one connection, and
    settlements must not stand behind calls that wait for records.
    """

    def __init__(self) -> None:
        self._peers: dict[tuple[str, bool], _Peer] = {}
        self._closings: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def call(
        self, address: str, path: str, message: bytes, seconds: float | None, *, waits: bool = False
    ) -> bytes:
        """Make a forwarded call. Raises grpc.aio.AioRpcError, or BrokerUnavailableError when this gateway stops."""
        if self._is_closed:
            raise BrokerUnavailableError("the broker is stopping; clients can connect again once it is back")
        peer = self._peers.get((address, waits))
        if peer is None:
            peer = self._peers[address, waits] = _Peer(address)
        if peer.idle is not None:
            peer.idle.cancel()
            peer.idle = None
        peer.calls += 1
        try:
            call: Any = peer.channel.unary_unary(path)
            answer: bytes = await call(message, timeout=seconds, metadata=((FORWARDED_KEY, "1"),))
            return answer
        finally:
            peer.calls -= 1
            if not peer.calls and not self._is_closed:
                loop = asyncio.get_running_loop()
                peer.idle = loop.call_later(IDLE_SECONDS, self._drop, address, waits)

    def _drop(self, address: str, waits: bool) -> None:
        closing = asyncio.create_task(self._peers.pop((address, waits)).channel.close())
        self._closings.add(closing)
        closing.add_done_callback(self._closings.discard)

    async def close(self) -> None:
        """Close all channels, and end the calls on them."""
        self._is_closed = True
        for peer in self._peers.values():
            if peer.idle is not None:
                peer.idle.cancel()
            await peer.channel.close()
        self._peers.clear()
        if self._closings:
            await asyncio.wait(self._closings)
