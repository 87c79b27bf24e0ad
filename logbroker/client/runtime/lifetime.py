"""The end of clients that nobody closed: dropped while the program goes on, or open when it ends.

The `Lifetime` of a client can end it without the client object. It refers only to the client's parts, so that Python
can collect a client that the program has dropped.

A dropped client is ended in its event loop, as `close` would end it: it flushes its records, commits the offsets of
finished records and leaves its group. Its errors are lost, and it calls no callback of the program.

All clients that are still open when the program ends are ended in the same way, at the same time, each within a time
limit. The program ends when its main thread ends, by `sys.exit`, by an exception or by Ctrl-C; processes of
multiprocessing are included. This needs an event loop that still runs in another thread, like the loop of the
synchronous clients. Afterwards a message on standard error gives the number of records that were sent but not
confirmed; they may have arrived.

None of this happens if the program ends by `os._exit`, or is killed by a signal such as SIGTERM without a handler.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import sys
import threading
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from time import monotonic
from typing import Any, Final, NoReturn

from logbroker.client.runtime import forking
from logbroker.errors import BrokerUnavailableError, InvalidRequestError, LogbrokerError
from logbroker.program_end import end_clients_with
from logbroker.texts import shown

LAST_SECONDS: Final = 10.0
"""The time that ending an unclosed client may take, unless the client sets another."""
_SPARE_SECONDS: Final = 3.0
"""Additional time for leaving groups and closing connections."""
_CHECK_SECONDS: Final = 0.2
_HOW: Final = "close() it, or use it in a with block"
OTHER_LOOP: Final = "this client belongs to another event loop; open one in each"

_open: dict[Lifetime, None] = {}
"""All lifetimes of this process that hold resources. The references are strong, because the parts of these clients stay
in event loops anyway."""
_watched_process = 0
"""The id of the multiprocessing process in which `_at_exit` is registered."""


class Lifetime:
    """The lifetime of one client, from its first use of resources until they are released."""

    def __init__(self, what: str, broker: str, *, seconds: float = LAST_SECONDS) -> None:
        """`what` and `broker` name the client in messages."""
        self.what = what
        self.broker = broker
        self.seconds = seconds
        self.finish: Callable[[], Coroutine[Any, Any, None]] | None = None
        """Work to finish within `seconds` before the parts are closed. The parts are closed afterwards in any case."""
        self.take_lost: Callable[[], tuple[int, LogbrokerError | None]] | None = None
        """Returns the number of unreported records that were sent and not confirmed, and their first error. Counts them
        as reported."""
        self._has_warned = False
        self._closers: list[Callable[[], Awaitable[None]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._task: asyncio.Task[None] | None = None
        self._is_forked = False
        self._is_closed = False
        forking.watch(self)
        _watch_multiprocessing()

    def opened(self, *closers: Callable[[], Awaitable[None]]) -> None:
        """Register parts that are closed at the end, in reverse order. Must be called in the event loop. Raises
        InvalidRequestError in another loop than before."""
        self.check_loop()
        self._closers += [closer for closer in closers if closer not in self._closers]
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        for other in list(_open):
            # The other client was dropped so late that its event loop ended before the client did.
            if other._has_warned and other._loop is not None and other._loop.is_closed():
                other._loop_is_over()
        _open[self] = None
        _watch_multiprocessing()

    def ended(self, closer: Callable[[], Awaitable[None]]) -> None:
        """Note that this part needs no closing any more."""
        with contextlib.suppress(ValueError):
            self._closers.remove(closer)

    @property
    def is_open(self) -> bool:
        """Whether there are resources to release."""
        return self in _open

    @property
    def is_ending(self) -> bool:
        """Whether the client is being ended because it was dropped or was open at the end of the program."""
        return self._task is not None

    def closed(self) -> None:
        """Note that all resources are released."""
        self._is_closed = True
        _open.pop(self, None)
        self._closers.clear()

    @property
    def is_forked(self) -> bool:
        """Whether this process is the child of a fork and the parent used, or may have used, this client."""
        return self._is_forked or forking.is_lost()

    def check(self) -> None:
        """Raise ForkedProcessError in the child of a fork."""
        if self.is_forked:
            raise forking.error()

    def check_loop(self) -> None:
        """Raise InvalidRequestError outside the client's event loop, which is the loop of its first use, because
        answers arrive only there. Raises ForkedProcessError in the child of a fork."""
        if self._loop is not None and self._loop is not _running_loop():
            self.check()
            raise InvalidRequestError(OTHER_LOOP)

    def check_loop_runs(self) -> None:
        """Raise InvalidRequestError if the client's event loop does not run, because no answer would ever arrive.
        Raises ForkedProcessError in the child of a fork."""
        if self._loop is not None and not self._loop.is_running():
            self.check()
            raise InvalidRequestError(OTHER_LOOP)

    def may_close(self) -> bool:
        """Return whether the client has to be closed now. It is False if the client is closed already or belongs to the
        parent of a fork. Raises InvalidRequestError outside the client's event loop. If that loop has ended, this call
        itself marks the client as closed, because nothing else can be done."""
        if self._is_closed or self.is_forked:
            return False
        if self._loop is None or self._loop is _running_loop():
            return True
        if not self._loop.is_closed():
            raise InvalidRequestError(f"this {self.what} belongs to another event loop: close it there")
        self._loop_is_over()
        if self.finish is not None:
            raise InvalidRequestError(
                f"the event loop of this {self.what} ended before close(), and unfinished work is lost:"
                " close it in its event loop, as an async with block does"
            )
        return False

    def forked(self) -> None:
        """See `forking.Forked`. The parent ends its open clients itself."""
        if self in _open:
            del _open[self]
            self._is_forked = True
            forking.leave_alone((self._loop, self._closers, self._task))

    def dropped(self, client: object) -> None:
        """Begin to end the client, because the program has dropped its last reference. Called by `__del__`, so possibly
        in any thread and between any two steps of other code."""
        if self not in _open:
            return
        if sys.is_finalizing():
            self.say_lost(f"the program ended before the {self.what} was closed; {_HOW}")
            return
        try:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._begin)
        except RuntimeError:
            self._loop_is_over()
        self._has_warned = True
        warnings.warn(f"unclosed {self.what} of {self.broker}: {_HOW}", ResourceWarning, stacklevel=3, source=client)

    def say_lost(self, why: str) -> None:
        """Report on standard error how many records are not known to have arrived, if any."""
        if self.take_lost is None:
            return
        count, error = self.take_lost()
        if count:
            reason = why if error is None or isinstance(error, BrokerUnavailableError) else error
            records = (
                f"1 record sent to {self.broker} was" if count == 1 else f"{count} records sent to {self.broker} were"
            )
            _say(f"logbroker: {records} not confirmed: {reason}")

    def _begin(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self.end())
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Handle the end of the task. If the task was cancelled, its event loop ends, and nothing else can be done."""
        if task.cancelled():
            self._loop_is_over()

    def _loop_is_over(self) -> None:
        self.say_lost(f"its event loop ended before the {self.what} was closed; {_HOW}")
        self.closed()

    async def end(self) -> None:
        """Release all resources, without the client object."""
        async with contextlib.AsyncExitStack() as stack:
            # Close every part, even if this task is cancelled.
            for close in self._closers.copy():
                stack.push_async_callback(_quietly, close)
            if self.finish is not None:
                await _quietly(self.finish, self.seconds)
        self.say_lost(f"not done within {self.seconds:g} s after the last use of the {self.what}; {_HOW}")
        self.closed()

    def begin_last(self) -> concurrent.futures.Future[None] | None:
        """Begin to end the client, if its event loop runs in another thread."""
        loop = self._loop
        if loop is None or not self._has_loop_beside:
            return None
        try:
            return asyncio.run_coroutine_threadsafe(self._last(), loop)
        except RuntimeError:
            return None

    @property
    def _has_loop_beside(self) -> bool:
        # A program may end inside its running event loop, for example by a SystemExit that C code swallows. Nothing
        # runs in that loop any more.
        is_running = self._loop is not None and self._loop.is_running()
        return is_running and self._loop_thread != threading.get_ident()

    async def _last(self) -> None:
        self._begin()
        if self._task is not None:
            await asyncio.wait([self._task])

    def warn_last(self) -> None:
        """Warn that the program ends although the client is not closed."""
        if not self._has_warned:
            message = f"unclosed {self.what} of {self.broker} at the end of the program: {_HOW}"
            warnings.warn(message, ResourceWarning, stacklevel=1)

    def last_words(self, *, is_interrupted: bool) -> None:
        """Report lost records at the end of the program. `is_interrupted` says whether Ctrl-C ended the wait."""
        why = f"the program ended before the {self.what} was closed"
        if self._has_loop_beside and is_interrupted:
            why = f"Ctrl-C ended the last flush of the {self.what}, which the program had left open"
        elif self._has_loop_beside:
            why = f"not done within {self.seconds:g} s after the program ended"
        self.say_lost(f"{why}; {_HOW}")


async def _quietly(work: Callable[[], Awaitable[None]], seconds: float | None = None) -> None:
    """Do this work within `seconds`. Errors are ignored, because nobody can handle them."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(seconds):
            await work()


class Uncopied:
    """A client that cannot be copied."""

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be copied or pickled. Ending one copy would end both."""
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled: open another one")


class Droppable(Uncopied):
    """A client that is ended when the program drops its last reference."""

    _lifetime: Lifetime

    def __del__(self) -> None:
        # `__init__` may have raised an exception before it set this.
        lifetime = getattr(self, "_lifetime", None)
        if lifetime is not None:
            lifetime.dropped(self)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _at_exit() -> None:
    """End all open clients. Non-daemon threads have ended before."""
    if _open:
        threading.excepthook = _quiet(threading.excepthook)
    ends = {lifetime: lifetime.begin_last() for lifetime in list(_open)}
    deadlines = [monotonic() + lifetime.seconds + _SPARE_SECONDS for lifetime, end in ends.items() if end is not None]
    waited = [end for end in ends.values() if end is not None]
    is_interrupted = False
    try:
        while waited and monotonic() < max(deadlines):
            if not concurrent.futures.wait(waited, _CHECK_SECONDS).not_done:
                break
    except KeyboardInterrupt:  # It ends the wait.
        is_interrupted = True
    for lifetime in ends:
        lifetime.last_words(is_interrupted=is_interrupted)
    for lifetime in ends:
        lifetime.warn_last()


def _quiet(hook: Callable[[threading.ExceptHookArgs], Any]) -> Callable[[threading.ExceptHookArgs], Any]:
    """Return a hook that reports no error of a daemon thread whose client was ended here. The thread would end
    anyway."""

    def say(failed: threading.ExceptHookArgs) -> None:
        is_ours = issubclass(failed.exc_type, BrokerUnavailableError)
        if not (is_ours and failed.thread is not None and failed.thread.daemon):
            hook(failed)

    return say


end_clients_with(_at_exit)


def _watch_multiprocessing() -> None:
    """Register `_at_exit` in a multiprocessing process, which may end without calling the functions that atexit has
    registered."""
    global _watched_process
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None or _watched_process == os.getpid():
        return
    _watched_process = os.getpid()
    from multiprocessing import util

    if util.is_exiting():
        # Called in a thread, after the main function has returned.
        _begin_last_thread()
    else:
        util.Finalize(None, _begin_last_thread, exitpriority=100)


def _begin_last_thread() -> None:
    """Start a thread that calls `_at_exit` after the last other non-daemon thread. The end of the process waits for
    it."""
    threading.Thread(target=_end_after_threads, name="logbroker-at-exit", daemon=False).start()


def _end_after_threads() -> None:
    for thread in threading.enumerate():
        if not thread.daemon and thread not in (threading.main_thread(), threading.current_thread()):
            thread.join()
    _at_exit()


def _say(text: str) -> None:
    with contextlib.suppress(Exception):
        sys.stderr.write(f"{shown(text)}\n")
        sys.stderr.flush()
