"""The event loop of the synchronous classes: one thread per process, for all clients and all threads.

The first caller starts it, under a lock. If the start fails, the next call tries again. No exception ends the thread.
If it cannot run any more, because the interpreter ends, calls raise BrokerUnavailableError instead of waiting for ever.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401 - event loops import it late, which fails while the program ends.
import contextlib
import logging
import os
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
"""The longest single wait. A signal that arrives just before the wait, or in another thread, does not end the wait;
Python handles it afterwards. The end of the loop's thread does not end the wait either."""
_GIVING_UP_SECONDS: Final = 3.0
"""The time that cancelled work may take to end. It is longer than members and workers need to leave. It is exceeded
only if a callback of the program blocks the loop."""
_OVER: Final = "the program is ending, and the background thread of its clients has ended: close clients earlier"


class SharedLoop:
    """An event loop in a thread of its own, started by `__init__`."""

    def __init__(self) -> None:
        """Raises BrokerUnavailableError if no thread can be started."""
        self.loop = _new_loop()
        self._pid = os.getpid()
        self._has_ended = False
        # A daemon thread, so that an unclosed client does not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="logbroker-client", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self.loop.close()
            raise BrokerUnavailableError(f"the background thread of the clients cannot be started: {error}") from None
        except BaseException:
            # A signal handler raised it while the thread was starting.
            self.discard()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether the loop still runs work."""
        # `Thread.is_alive` is not used: if a signal handler raises an exception in it, it may mark a running thread as
        # ended.
        return not (self._has_ended or sys.is_finalizing())

    def check(self) -> None:
        """Raise BrokerUnavailableError if the loop runs no work any more."""
        if not self.is_alive:
            raise BrokerUnavailableError(_OVER)

    @property
    def is_current(self) -> bool:
        """Whether this is called in the loop's thread."""
        return threading.current_thread() is self._thread

    def check_waits(self) -> None:
        """Raise an error if the caller must not wait. Raises InvalidRequestError in the loop's own thread, as in a
        callback of a delivery. Raises ConcurrentUseError in a signal handler if the interrupted code holds a lock for
        which the loop may wait."""
        thread_locks.check_has_none()
        if self.is_current:
            raise InvalidRequestError(
                "a callback runs in the clients' own background thread, where nothing may wait for the broker, or for"
                " room in the buffer: make such calls in a thread of the program"
            )

    def _run(self) -> None:
        try:
            # In a child that a callback has forked, an exception ends the thread.
            while os.getpid() == self._pid:
                try:
                    self.loop.run_forever()
                except BaseException:
                    self._report()
                else:
                    self.loop.close()
                    return
        finally:
            self._has_ended = True

    def _report(self) -> None:
        """Log the current exception, which has ended the event loop and must not end the clients."""
        # It may come from a logging handler, which raises it again here.
        with contextlib.suppress(BaseException):
            if os.getpid() == self._pid:
                _log.exception("an exception in the background thread of the clients")

    def discard(self) -> None:
        """End a loop that nobody uses."""
        self.loop.call_soon_threadsafe(self.loop.stop)


# Reentrant, because a signal handler may start the loop while the code that it interrupted is starting it.
_lock = threading.RLock()
_shared: SharedLoop | None = None


class _Fork:
    """Replaces the shared loop in the child of a fork."""

    def forked(self) -> None:
        """Forget the loop, because its thread and descriptors are the parent's. The first call in the child starts a
        new one."""
        global _lock, _shared
        _lock = threading.RLock()
        if _shared is not None:
            forking.leave_alone(_shared)
            _shared = None


_fork: Final = _Fork()
forking.watch(_fork)


class Latch:
    """An event that happens once and for which one thread waits, like a `threading.Event`, but safe against signals.

    A signal handler may raise an exception at any point of the wait. It could leave the condition of an event or a
    future half taken, and the thread that sets the event would hang. It cannot leave a plain lock half taken.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Note that the event has happened. May be called from any thread, and more than once."""
        self._is_set = True
        with contextlib.suppress(RuntimeError):
            self._lock.release()

    def is_set(self) -> bool:
        """Whether the event has happened."""
        return self._is_set

    def wait(self, seconds: float) -> bool:
        """Wait at most this time, and return whether the event has happened. Only one thread may wait."""
        return self._is_set or self._lock.acquire(timeout=max(0.0, seconds)) or self._is_set


class _Call(Generic[T]):
    """A coroutine that runs in the loop while a thread waits for it.

    A signal may end the wait at any point, so it is unknown which step of the thread was the last. Therefore the
    coroutine is started and ended only in the loop.
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
        """Cancel the coroutine; if it has not started, prevent its start. While the loop runs, this must be called in
        the loop."""
        if self._task is not None:
            self._task.cancel()
        elif not self._is_given_up:
            self._is_given_up = True
            self._coroutine.close()
            self._end(None)

    def _end(self, task: asyncio.Task[T] | None) -> None:
        if task is not None and not task.cancelled():
            # Fetch the error: if nobody fetched it, asyncio would log it.
            task.exception()
        self.ended.set()

    def outcome(self) -> T:
        """Return the coroutine's result, or raise its error, after its end."""
        if self._task is None or self._task.cancelled():
            raise CancelledError
        return self._task.result()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the shared loop and wait for it.

    If a signal handler raises an exception here, as Ctrl-C does, the coroutine is cancelled. The exception is raised
    once the coroutine has ended, with its `finally` clauses done, or after 3 s. A second exception cancels the
    coroutine again, and is raised at once.

    Raises BrokerUnavailableError if the interpreter is ending, and ForkedProcessError in a child in which no client can
    work.
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
        # The traceback of a raised error refers to this frame.
        del call


def _give_up(call: _Call[Any], shared: SharedLoop | None) -> None:
    """Cancel work for which nobody waits any more, and give it a moment to end."""
    if shared is None or shared.is_current or not shared.is_alive:
        # It has not started, or cannot end any more.
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

    Raises BrokerUnavailableError if the interpreter is ending and the event will never happen; InvalidRequestError in
    the loop's own thread; ForkedProcessError as `run` does; TypeError for a time that is not a number.
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
    """Raise the errors of `SharedLoop.check_waits` as `run` would, but before anything has changed."""
    if _shared is not None:
        _shared.check_waits()


def shared_loop() -> asyncio.AbstractEventLoop:
    """Return the loop, starting its thread at first use. The thread ends with the process.

    Raises BrokerUnavailableError if it cannot be started, and ForkedProcessError in a child in which no client can
    work.
    """
    return _started().loop


def _started() -> SharedLoop:
    global _shared
    forking.check()
    shared = _shared
    if shared is None or not shared.is_alive:
        with _lock:
            # Another thread may have started it first.
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
        # Meanwhile a signal handler in this thread has started a loop.
        shared.discard()
        return _shared
    return shared


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        # Imported late, because the asynchronous classes do not need it.
        import uvloop
    except ImportError:  # uvloop does not exist for Windows.
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
