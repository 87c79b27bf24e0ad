"""The event loop behind the synchronous classes: one thread per process, for all clients and all threads.

Whoever comes first starts it, under a lock; a start that fails leaves nothing behind, and the next call tries again.
The thread outlives whatever is raised in it. Where it cannot run any more, at the end of the interpreter, calls raise
BrokerUnavailableError instead of waiting for ever.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401 - event loops load it late, and at the end of a program none can.
import contextlib
import logging
import sys
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from time import monotonic
from typing import Any, Final, Generic, TypeVar

from logbroker.client.runtime import forking, poller_noise, thread_locks
from logbroker.client.runtime.arguments import check_wait
from logbroker.errors import BrokerUnavailableError, InvalidRequestError

T = TypeVar("T")

_log = logging.getLogger(__name__)

_CHECK_SECONDS: Final = 0.2
"""The longest wait in one piece. A signal that comes just before the wait, or to another thread, does not end it;
Python handles the signal after the wait. Nor does the end of the loop's thread end it."""
_GIVING_UP_SECONDS: Final = 3.0
"""How long cancelled work may take to end: longer than the goodbyes of members and workers take. It is not enough only
if a callback of the program blocks the loop."""
_OVER: Final = "the program is ending, and the background thread of its clients has ended: close clients before"


class SharedLoop:
    """An event loop in a thread of its own, started by `__init__`."""

    def __init__(self) -> None:
        """Raises BrokerUnavailableError where no thread can be started."""
        self.loop = _new_loop()
        self._has_ended = False
        # A daemon, so that a client that nobody closed does not keep the process.
        self._thread = threading.Thread(target=self._run, name="logbroker-client", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self.loop.close()
            raise BrokerUnavailableError(f"the background thread of the clients cannot be started: {error}") from None
        except BaseException:
            # A signal, while the thread begins.
            self.discard()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether the loop will run work that it is given."""
        # The thread is not asked: an exception of a signal handler in `Thread.is_alive` marks one that runs as ended.
        return not (self._has_ended or sys.is_finalizing())

    def check(self) -> None:
        """Raise BrokerUnavailableError if the loop will run nothing any more."""
        if not self.is_alive:
            raise BrokerUnavailableError(_OVER)

    @property
    def is_current(self) -> bool:
        """Whether this is called in the loop's thread."""
        return threading.current_thread() is self._thread

    def check_waits(self) -> None:
        """Raise InvalidRequestError where the caller would wait for its own thread, as in a callback of a delivery, and
        ConcurrentUseError in a signal handler that keeps its thread from giving back what the loop may wait for."""
        thread_locks.check_has_none()
        if self.is_current:
            raise InvalidRequestError(
                "a callback runs in the clients' own background thread, where nothing may wait for the broker, or for"
                " room in the buffer: hand that on to a thread of the program"
            )

    def _run(self) -> None:
        try:
            while True:
                try:
                    self.loop.run_forever()
                except BaseException:
                    # What ends a loop, such as SystemExit from a handler of the log, ends no client: go on.
                    _log.exception("an exception in the background thread of the clients")
                else:
                    self.loop.close()
                    return
        finally:
            self._has_ended = True

    def discard(self) -> None:
        """End a loop that nobody has used."""
        self.loop.call_soon_threadsafe(self.loop.stop)


# Reentrant, as a signal handler may use a client for the first time while its thread does.
_lock = threading.RLock()
_shared: SharedLoop | None = None


class _Fork:
    """Replaces the shared loop in the child of a fork."""

    def forked(self) -> None:
        """Forget the loop, since its thread and descriptors are the parent's. The first call here starts another."""
        global _lock, _shared
        _lock = threading.RLock()
        if _shared is not None:
            forking.leave_alone(_shared)
            _shared = None


_fork: Final = _Fork()
forking.watch(_fork)


class Latch:
    """An event that happens once, and that one thread waits for: a `threading.Event` that signals may interrupt.

    What a signal handler raises ends the wait at any point of it. A plain lock is not left half taken by that, as the
    conditions of events and futures may be: whoever tells of what happened, the loop for one, would then stand still.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Note that it has happened. May be called from any thread, and more than once."""
        self._is_set = True
        with contextlib.suppress(RuntimeError):
            self._lock.release()

    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._is_set

    def wait(self, seconds: float) -> bool:
        """Wait for at most this time, and return whether it has happened. For the thread that waits for it."""
        return self._is_set or self._lock.acquire(timeout=max(0.0, seconds)) or self._is_set


class _Call(Generic[T]):
    """A coroutine that a thread has the loop run, and waits for.

    A signal may end the wait at any point of it. What the thread had just done is not known then, so whatever befalls
    the coroutine does so in the loop.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._task: asyncio.Task[T] | None = None
        self._is_given_up = False
        self.ended = Latch()

    def begin(self) -> None:
        """Run the coroutine. Must be called in the loop."""
        if not self._is_given_up:
            self._task = asyncio.get_running_loop().create_task(self._coroutine)
            self._task.add_done_callback(self._end)

    def give_up(self) -> None:
        """Cancel the coroutine or, if it has not begun, never let it begin. Must be called in the loop, if that still
        runs."""
        if self._task is not None:
            self._task.cancel()
        elif not self._is_given_up:
            self._is_given_up = True
            self._coroutine.close()
            self._end(None)

    def _end(self, task: asyncio.Task[T] | None) -> None:
        if task is not None and not task.cancelled():
            # Nobody may ask for it any more, and asyncio is not to log that.
            task.exception()
        self.ended.set()

    def outcome(self) -> T:
        """Return the coroutine's result, or raise its error, after its end."""
        if self._task is None or self._task.cancelled():
            raise CancelledError
        return self._task.result()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the shared loop and wait for it.

    What a signal raises here, Ctrl-C for one, cancels it, and goes on when it has ended: what its `finally` clauses do
    is done by then. The next one cancels it once more, and does not wait any longer.

    Raises BrokerUnavailableError where the interpreter is ending, ForkedProcessError in children where nothing works.
    """
    try:
        call = _Call(coroutine)
    except BaseException:
        coroutine.close()
        raise
    shared: SharedLoop | None = None
    try:
        shared = _started()
        shared.check_waits()
        shared.loop.call_soon_threadsafe(call.begin)
        while not call.ended.wait(_CHECK_SECONDS):
            shared.check()
        return call.outcome()
    except BaseException:
        if not call.ended.is_set():
            _give_up(call, shared)
        raise
    finally:
        # The traceback of what is raised refers to this frame.
        del call


def _give_up(call: _Call[Any], shared: SharedLoop | None) -> None:
    """Cancel work that nobody waits for any more, and give it a moment to end."""
    if shared is None or shared.is_current or not shared.is_alive:
        # It has not begun, or nothing will end it any more.
        call.give_up()
        return
    try:
        shared.loop.call_soon_threadsafe(call.give_up)
        call.ended.wait(_GIVING_UP_SECONDS)
    except BaseException:
        shared.loop.call_soon_threadsafe(call.give_up)
        raise


def wait_for(told: Latch, timeout_seconds: float | None) -> bool:
    """Wait for an event of the loop. Return False when the time is over.

    Raises BrokerUnavailableError where the interpreter is ending, and nobody will tell any more; InvalidRequestError in
    the loop's own thread; ForkedProcessError as `run` does; TypeError for a time that is no number.
    """
    check_wait(timeout_seconds)
    if not told.is_set():
        _started().check_waits()
    deadline = None if timeout_seconds is None else monotonic() + timeout_seconds
    while True:
        left = _CHECK_SECONDS if deadline is None else min(_CHECK_SECONDS, deadline - monotonic())
        if told.wait(left):
            return True
        if deadline is not None and monotonic() >= deadline:
            return False
        _started().check()


def check_waits() -> None:
    """Raise the errors of `SharedLoop.check_waits` where `run` would, before anything is changed."""
    if _shared is not None:
        _shared.check_waits()


def shared_loop() -> asyncio.AbstractEventLoop:
    """Return the loop, starting its thread at first use. The thread ends with the process.

    Raises BrokerUnavailableError where it cannot be started, ForkedProcessError in children where nothing works.
    """
    return _started().loop


def _started() -> SharedLoop:
    global _shared
    forking.check()
    shared = _shared
    if shared is None or not shared.is_alive:
        with _lock:
            # Another thread may have been first.
            if _shared is None or not _shared.is_alive:
                _shared = _start()
            shared = _shared
    return shared


def _start() -> SharedLoop:
    if sys.is_finalizing():
        raise BrokerUnavailableError(_OVER)
    poller_noise.keep_out()
    before = _shared
    shared = SharedLoop()
    if _shared is not before and _shared is not None:
        # A signal handler started one meanwhile, in this very thread.
        shared.discard()
        return _shared
    return shared


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        # Late, because the asynchronous classes do without it.
        import uvloop
    except ImportError:  # There is none for Windows.
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
