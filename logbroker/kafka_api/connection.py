"""One connection of a Kafka client: requests in, answers out, in the same order.

A request is a length (int32), a header and a message. Several requests are in flight at once. Each begins when its turn
comes, and then runs in a task of its own; its answer waits until all earlier ones are sent. The turn of a Produce comes
when the request before it is *placed*: from then on, nothing can overtake that request. So batches keep their order. A
Produce is placed when its append has begun; a Fetch, JoinGroup or SyncGroup, when it has begun; any other request, when
it is done. The turn of a request other than Produce comes when all earlier ones are answered. So it sees the effects of
all earlier ones, and a client that reads no answers costs the broker at most one large answer.

Reading pauses while
- the connection has MAX_REQUESTS requests in flight, or MAX_REQUEST_BYTES of them,
- there is no room for the next request in the memory that all connections share (`request_memory`), or
- the client does not read its answers. The answers count in the read budget until they are sent.

Data that is not a Kafka request ends the connection, with one line in the log. So does a client that stops in the
middle of a request, or reads none of its answers, for too long. A client that has closed its side for writing still
gets the answers to all whole requests, but none of them waits any more, because the client is most likely gone: a
connection that is kept until a wait is over takes one from another client. A Fetch answers with what it has. A
JoinGroup or SyncGroup is given up, and its member stays in the group until its session ends.

A request that gets no answer ends the connection: no later one is answered. When nothing can be answered any more, also
because the connection is lost, a Fetch, JoinGroup or SyncGroup stops waiting. A Produce that was taken off the wire,
and any other request that has begun, is carried out. All other requests are dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import Any, Final, Protocol, cast

from logbroker.address import Address
from logbroker.errors import quoted
from logbroker.kafka_api.call import Call, ConnectionEndError, Node, Served
from logbroker.kafka_api.dispatch import answer, begin
from logbroker.kafka_api.request_memory import SMALL_BYTES, RequestMemory
from logbroker.kafka_wire.primitives import Buffer, Parts, WireFormatError

_log = logging.getLogger(__name__)

MAX_REQUESTS: Final = 64
MAX_REQUEST_BYTES: Final = 8 * 1024 * 1024
"""At this many bytes of requests in flight, a connection reads no further request. A single one may be larger."""
WRITE_BUFFER_BYTES: Final = 256 * 1024
"""Bytes of answers that may wait for the client to read, before answers and reading pause."""
IDLE_SECONDS: Final = 600.0
"""How long a connection may have no request in flight, as in Kafka."""
FIRST_REQUEST_SECONDS: Final = 30.0
STALL_SECONDS: Final = 60.0
"""How long a client may read none of the answers that wait for it."""
REQUEST_SECONDS: Final = 30.0
HURRIED_SECONDS: Final = 5.0
"""The same, if others wait for the memory that was taken for the request."""
LEAST_BYTES_PER_SECOND: Final = 64 * 1024
"""A request may stop for REQUEST_SECONDS on its way, and must have n bytes after REQUEST_SECONDS +
n / LEAST_BYTES_PER_SECOND seconds."""
COPIED_BYTES: Final = 4096
TURN_BYTES: Final = 512
"""Memory that a small request takes beside its own bytes, while it waits for its turn. Measured: 390 bytes."""
_LENGTH_BYTES: Final = 4


class Listening(Protocol):
    """The parts of the listener that a connection needs."""

    node: Node
    memory: RequestMemory
    max_request_bytes: int

    def opened(self, connection: KafkaConnection) -> bool:
        """Note a new connection; return False if there are too many."""
        ...

    def closed(self, connection: KafkaConnection) -> None: ...

    def begun(self, task: asyncio.Task[None]) -> None:
        """Note a task that answers a request."""
        ...


class _Slot:
    """One request in flight, in the line of its connection."""

    __slots__ = ("call", "is_done", "is_failed", "is_placed", "is_running", "parts", "served", "size_bytes", "task")

    def __init__(self, call: Call, served: Served, size_bytes: int) -> None:
        self.call = call
        self.served = served
        self.size_bytes = size_bytes
        """Memory that is taken for the request."""
        self.is_placed = served.is_waiting
        """Whether no later request can overtake this one, once it has begun."""
        self.is_running = self.is_done = False
        self.is_failed = False
        """Whether it gets no answer although the client expects one."""
        self.parts: Parts | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def is_kept(self) -> bool:
        """Whether it is carried out although its connection has ended meanwhile: a producer that expects no answer may
        close its connection at once."""
        return self.served.is_appending


class KafkaConnection(asyncio.Protocol):
    """Takes requests off the wire, and answers them in their order."""

    def __init__(self, listening: Listening) -> None:
        self._listening = listening
        self._memory = listening.memory
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._peer: Any = None
        self._local = Address("", 0)
        self._chunks: list[Buffer] = []
        """Bytes that were received and do not belong to a request in flight."""
        self._chunk_bytes = 0
        self._wanted_bytes = _LENGTH_BYTES
        """How many of these bytes must be there before the next step of parsing."""
        self._taken_bytes = 0
        """Memory that was taken for the request that is being received."""
        self._asked_bytes = 0
        """Memory that the next request waits for."""
        self._begun: deque[_Slot] = deque()
        """Requests that have begun and are not answered yet."""
        self._queued: deque[_Slot] = deque()
        """Later requests, whose turn has not come."""
        self._request_bytes = 0
        self._unsent_bytes = 0
        """Bytes of the read budget for answers that the client has not read yet."""
        self._is_paused = False
        self._is_write_paused = False
        self._has_eof = False
        """Whether the client sends no more. It may still read answers."""
        self._is_ending = False
        """Whether no further request is taken."""
        self._is_cut = False
        """Whether nothing is answered any more: the connection is lost, or a request gets no answer."""
        self._has_asked = False
        self._active_at = self._begun_at = self._loop.time()
        self._stalled_at = 0.0
        self._stalled_bytes = 0

    # --- the transport -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._peer = transport.get_extra_info("peername")
        self._local = _local_address(transport.get_extra_info("sockname"))
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES, low=0)
        if not self._listening.opened(self):
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_ending = True
        self._listening.closed(self)
        self._memory.forget(self._granted)
        self._memory.release(self._taken_bytes)
        self._taken_bytes = 0
        self._chunks.clear()
        self._release_unsent()
        self._cut()

    def data_received(self, data: bytes) -> None:
        if self._is_ending:
            return
        self._active_at = self._loop.time()
        if not self._chunks:
            self._begun_at = self._active_at
        self._chunks.append(data)
        self._chunk_bytes += len(data)
        self._take_requests()

    def eof_received(self) -> bool:
        """Serve the whole requests that were received, and keep the transport open for their answers. None of them
        waits any more."""
        assert self._transport is not None
        self._has_eof = True
        if not self._is_ending:
            self._take_requests()
        for slot in self._begun:
            self._end_wait(slot)
        return not self._transport.is_closing()

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._stalled_at, self._stalled_bytes = self._loop.time(), 0
        self._pause()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._active_at = self._loop.time()
        self._release_unsent()
        self._send()

    # --- requests in -------------------------------------------------------------------------------------------------

    @property
    def _is_full(self) -> bool:
        return (
            self._is_write_paused
            or self._asked_bytes > 0
            or len(self._begun) + len(self._queued) >= MAX_REQUESTS
            or self._request_bytes >= MAX_REQUEST_BYTES
        )

    def _takes_more(self) -> bool:
        return not (self._is_full or self._is_ending)

    def _take_requests(self) -> None:
        """Begin the requests that are there, as far as there is room."""
        while self._chunk_bytes >= self._wanted_bytes and self._takes_more():
            data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
            at = 0
            try:
                while self._takes_more():
                    at, is_more = self._take_request(data, at)
                    if not is_more:
                        break
            except (WireFormatError, ConnectionEndError) as error:
                self._end_by(error)
                return
            self._chunk_bytes = len(data) - at
            # A long rest stays a view, so that it is not copied for each request. A short one is copied, to free the
            # buffer that it came from.
            rest = memoryview(data)[at:] if self._chunk_bytes > COPIED_BYTES else bytes(data[at:])
            self._chunks = [rest] if rest else []
            if at:
                self._begun_at = self._active_at
        if self._is_full:
            self._pause()
        elif self._has_eof and not self._is_ending:
            self._end()  # All that may be left is a part of a request.
        else:
            self._resume()

    def _take_request(self, data: Buffer, at: int) -> tuple[int, bool]:
        """Begin the request at a position; return the position after it, and whether there may be another. Set
        `_wanted_bytes` if the request is not whole, or has to wait for memory."""
        left = len(data) - at
        if left < _LENGTH_BYTES:
            self._wanted_bytes = _LENGTH_BYTES
            return at, False
        size_bytes = int.from_bytes(data[at : at + _LENGTH_BYTES], "big", signed=True)
        if not 0 < size_bytes <= self._listening.max_request_bytes:
            raise WireFormatError(
                f"the length of a request is {size_bytes}; it must be 1 to {self._listening.max_request_bytes}"
                f" (max_request_bytes); the request begins with {quoted(bytes(data[at : at + 8]))}"
            )
        memory_bytes = size_bytes + TURN_BYTES if size_bytes <= SMALL_BYTES else size_bytes
        is_free = size_bytes <= SMALL_BYTES and (not self._begun or self._memory.free_bytes > 0)
        if not is_free and not self._taken_bytes:
            if not self._memory.take(memory_bytes, self._granted):
                self._asked_bytes, self._wanted_bytes = memory_bytes, _LENGTH_BYTES
                return at, False
            self._taken_bytes = memory_bytes
        self._wanted_bytes = _LENGTH_BYTES + size_bytes
        if left < self._wanted_bytes:
            return at, False
        begin_at, end = at + _LENGTH_BYTES, at + self._wanted_bytes
        self._wanted_bytes = _LENGTH_BYTES
        if not self._taken_bytes:
            self._memory.hold(memory_bytes)
        self._taken_bytes = 0
        # A large request is not copied. A small one is copied, so that it does not keep the whole buffer in memory.
        frame = memoryview(data)[begin_at:end] if 2 * size_bytes > len(data) else bytes(data[begin_at:end])
        try:
            call, served = begin(self._listening.node, frame, self._local)
        except (WireFormatError, ConnectionEndError):
            self._memory.release(memory_bytes)
            raise
        self._has_asked = True
        self._queued.append(_Slot(call, served, memory_bytes))
        self._request_bytes += memory_bytes
        self._begin_next()
        return end, True

    def _granted(self) -> None:
        self._taken_bytes, self._asked_bytes = self._asked_bytes, 0
        self._begun_at = self._loop.time()
        self._loop.call_soon(self._take_requests)

    def _begin_next(self) -> None:
        """Begin the requests whose turn has come."""
        while self._queued and self._is_turn(self._queued[0]):
            slot = self._queued.popleft()
            self._begun.append(slot)
            slot.call.placed = partial(self._placed, slot)
            slot.call.let_go = partial(self._let_go, slot)
            slot.call.peer = str(self._peer[0]) if isinstance(self._peer, tuple) else ""
            if self._has_eof:
                self._end_wait(slot)
            slot.task = self._loop.create_task(self._answer(slot))
            self._listening.begun(slot.task)

    def _is_turn(self, slot: _Slot) -> bool:
        if slot.is_kept:
            return not self._begun or self._begun[-1].is_placed
        return not (self._begun or self._is_write_paused)

    def _placed(self, slot: _Slot) -> None:
        slot.is_placed = True
        self._begin_next()

    async def _answer(self, slot: _Slot) -> None:
        slot.is_running = True
        try:
            if self._is_to_wait_no_more(slot):
                slot.is_failed = True
            else:
                slot.parts = await answer(slot.call, slot.served)
        except (WireFormatError, ConnectionEndError) as error:
            slot.is_failed = True
            self._end_by(error)
        except asyncio.CancelledError:
            slot.is_failed = True
            if not self._is_to_wait_no_more(slot):
                raise
        except Exception:
            slot.is_failed = True
            _log.exception("a %s request of %s failed", slot.served.api.name, _text(self._peer))
            self._end()
        finally:
            slot.is_done = slot.is_placed = True
            self._let_go(slot)
            if self._is_cut:
                self._finish(slot)
                self._begin_next()
            else:
                self._send()

    def _is_to_wait_no_more(self, slot: _Slot) -> bool:
        """Return whether a request is to end without an answer, because it would wait for a client that is gone."""
        return slot.served.is_waiting and (self._is_cut or (self._has_eof and not slot.served.can_hurry))

    def _end_wait(self, slot: _Slot) -> None:
        """End the wait of a request, if it has any, because its client is most likely gone."""
        if slot.is_done or not slot.served.is_waiting:
            return
        slot.call.hurry()
        if slot.is_running and slot.task is not None and self._is_to_wait_no_more(slot):
            slot.task.cancel()

    # --- answers out -------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Pass on the answers whose turn it is, and go on reading."""
        assert self._transport is not None
        while self._begun and self._begun[0].is_done and not (self._is_write_paused or self._is_cut):
            slot = self._begun[0]
            if slot.is_failed:
                self._end()
                self._cut()
                break
            if slot.parts is not None:
                self._transport.writelines(slot.parts)
                self._unsent_bytes += slot.call.held_bytes
                slot.call.held_bytes = 0
                self._active_at = self._loop.time()
            self._finish(slot)
        if not self._is_write_paused:
            self._release_unsent()
        self._begin_next()
        if not self._is_ending:
            self._take_requests()
        elif self._is_cut or not (self._begun or self._queued):
            self._transport.close()

    def _cut(self) -> None:
        """Answer nothing any more: finish the requests that are kept or have begun, and drop the others."""
        self._is_cut = True
        for slot in self._queued:
            if not slot.is_kept:
                self._let_go(slot)
        self._queued = deque(slot for slot in self._queued if slot.is_kept)
        for slot in list(self._begun):
            if slot.is_done:
                self._finish(slot)
            else:
                self._end_wait(slot)
        self._begin_next()

    def _finish(self, slot: _Slot) -> None:
        """Forget a request that was answered, or whose client is gone."""
        self._begun.remove(slot)
        self._listening.node.broker.read_budget.release(slot.call.held_bytes)
        slot.call.held_bytes = 0
        slot.parts = None

    def _let_go(self, slot: _Slot) -> None:
        """Release the memory of a request that is not needed any more: it is done, or read and waits."""
        self._request_bytes -= slot.size_bytes
        self._memory.release(slot.size_bytes)
        slot.size_bytes = 0
        slot.call.data = b""

    def _release_unsent(self) -> None:
        if self._unsent_bytes:
            self._listening.node.broker.read_budget.release(self._unsent_bytes)
            self._unsent_bytes = 0

    # --- the end -----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Take no further request, and close when those in flight are answered."""
        self._end()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def check_time(self, now: float) -> None:
        """End the connection if it has been silent, or stalled, for too long."""
        if self._is_write_paused:
            assert self._transport is not None
            left_bytes = self._transport.get_write_buffer_size()
            if left_bytes != self._stalled_bytes:
                self._stalled_at, self._stalled_bytes = now, left_bytes
            elif now - self._stalled_at > STALL_SECONDS:
                _log.warning("%s has read no answer for %g s: closed", _text(self._peer), STALL_SECONDS)
                self.abort()
        elif self._is_full:
            return
        elif self._chunks:
            is_hurried = self._taken_bytes > 0 and self._memory.is_waited_for
            patience = HURRIED_SECONDS if is_hurried else REQUEST_SECONDS
            has_stopped = now - max(self._active_at, self._begun_at) > patience
            if has_stopped or now - self._begun_at > patience + self._chunk_bytes / LEAST_BYTES_PER_SECOND:
                _log.warning("%s has stopped in the middle of a request: closed", _text(self._peer))
                self.abort()
        elif not self._begun and now - self._active_at > (IDLE_SECONDS if self._has_asked else FIRST_REQUEST_SECONDS):
            _log.debug("%s is idle: closed", _text(self._peer))
            self.abort()

    def _end_by(self, error: Exception) -> None:
        if not self._is_ending:
            _log.warning("the connection of %s is closed: %s", _text(self._peer), error)
        self._end()

    def _end(self) -> None:
        self._is_ending = True
        self._chunks.clear()
        self._chunk_bytes = 0
        self._memory.forget(self._granted)
        self._memory.release(self._taken_bytes)
        self._taken_bytes = 0
        if self._transport is not None:
            self._pause()
            if not (self._begun or self._queued):
                self._transport.close()

    def _pause(self) -> None:
        if not (self._is_paused or self._has_eof or self._transport is None or self._transport.is_closing()):
            self._is_paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._is_paused and not (self._is_ending or self._has_eof) and self._transport is not None:
            self._is_paused = False
            self._begun_at = self._loop.time()
            self._transport.resume_reading()


def _local_address(name: Any) -> Address:
    """Return the broker's own address of this connection, to which clients can connect; empty if it is not TCP."""
    if not isinstance(name, tuple):
        return Address("", 0)
    host = str(name[0]).partition("%")[0].removeprefix("::ffff:")
    return Address(host, int(name[1]))


def _text(peer: Any) -> str:
    return str(Address(str(peer[0]), int(peer[1]))) if isinstance(peer, tuple) else "a client"
