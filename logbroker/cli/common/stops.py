"""Signals that stop a command. SIGTERM of a service manager and SIGHUP of a closed terminal interrupt it like Ctrl-C,
so that it releases its resources. A stop can be delayed while something must not be left half done. A stop is raised
again if Python discards its exception, as it does in a `__del__`."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Final, NoReturn, TypeVar

from logbroker.cli.common.lines import warn
from logbroker.cli.common.standard_output import stop_waiting_for_readers

T = TypeVar("T")

_NAMES: Final = ("SIGINT", "SIGTERM", "SIGHUP")
_PUT_OFF_SECONDS: Final = 1.0
_AGAIN_SECONDS: Final = 0.001
_INTERVAL_SECONDS: Final = 0.05
CLEAN_UP_SECONDS: Final = 5.0
"""How long a command may take to end its broker and the other processes that it started, and to remove the broker's
directory."""
_HAS_ALARM: Final = hasattr(signal, "setitimer")
"""Windows has no alarm, so stops are neither delayed nor raised again there."""


class Stopped(KeyboardInterrupt):
    """A signal other than Ctrl-C told the command to stop."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number: Final = number


class Interrupter:
    """Raises the exceptions of stops in the main thread, and makes sure that each reaches the command.

    Python handles signals between any two instructions, even in code that cannot raise an exception, such as the
    callback of a weakref or a `__del__`. An exception raised there goes to `sys.unraisablehook` and is lost. The hook
    raises it again a moment later. Only lost exceptions reach the hook, so no stop is raised a second time during its
    own clean-up. After a stop was raised, further stops are ignored for `clean_up_seconds`.
    """

    def __init__(self, clean_up_seconds: float = 0.0) -> None:
        self._clean_up_seconds = clean_up_seconds
        self._cleans_up_until = 0.0
        self._is_put_off = False
        self._has_delayed = False
        self._on_delayed: Callable[[], object] | None = None
        """Called when a stop is delayed, in the signal handler."""
        self._is_finishing = False
        self.stops: list[int] = []
        """The signals of the stops that have arrived."""
        self._due: int | None = None
        """The signal whose exception will be raised by the alarm or, at the latest, at the end of `raising_again`."""
        self._next_hook = sys.unraisablehook

    @property
    def is_cleaning_up(self) -> bool:
        return time.monotonic() < self._cleans_up_until

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Raise the exception of a stop, now or later. A signal handler."""
        if self.is_cleaning_up:
            return
        self.stops.append(number)
        self._deliver(number, frame)

    def _deliver(self, number: int, frame: FrameType | None) -> None:
        if self._is_finishing and len(self.stops) == 1:
            self._due = number
        elif self._is_put_off and not self._has_delayed and _HAS_ALARM:
            self._has_delayed = True
            self._raise_in(_PUT_OFF_SECONDS, number)
            if self._on_delayed is not None:
                self._on_delayed()
        elif _HAS_ALARM and _is_in_hook(frame):
            self._raise_in(_AGAIN_SECONDS, number)
        else:
            self._take_due()
            self._raise(number)

    def put_off(self) -> _PutOff:
        """Delay the first stop until the end of the block. Use it for work that must not be left half done, for example
        writing a record and acking it. The delay is at most one second, because a pipe may be full or a broker away. A
        second stop is not delayed."""
        return _PutOff(self)

    def run(self, work: Coroutine[Any, Any, T], new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None) -> T:
        """Run `work` in an event loop of its own, made by `new_loop`, and return its result.

        The first stop cancels `work`, and is raised when that has ended: an exception in whatever task happens to run
        could leave a client half way through a step, so that its `close` would wait for ever. A stop during the start
        or the end of the event loop is raised after that: gRPC, which starts and ends with it, may crash the process
        when an exception interrupts it. The stop is raised at once if any of this takes a second, and so is a second
        stop before the clean-up begins.
        """
        cancelled_by: list[int] = []

        async def cancellable() -> T:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None

            def cancel() -> None:
                if (number := self._take_due()) is not None:
                    cancelled_by.append(number)
                    self._begin_clean_up()
                    task.cancel()

            self._on_delayed = lambda: loop.call_soon_threadsafe(cancel)
            try:
                return await work
            finally:
                self._on_delayed = self._begin_clean_up

        self._on_delayed = self._begin_clean_up
        try:
            with self.put_off(), asyncio.Runner(loop_factory=new_loop) as runner:
                return runner.run(cancellable())
        finally:
            self._on_delayed = None
            if cancelled_by:
                self._raise(cancelled_by[0])

    def finish_after(self, work: Callable[[], None]) -> KeyboardInterrupt | None:
        """Call `work`, and return the stop that ended it, or None.

        Call this within `raising_again`. What follows there finishes the work, for example by waiting for the broker's
        last answers, and must take a bounded time. A first stop does not interrupt it, because then nobody would learn
        whether it succeeds. That stop is raised at the end of `raising_again`, unless an error ends that block. A
        second stop is raised at once.
        """
        try:
            # `work` and the assignment are in one block, so that no stop falls in between.
            try:
                work()
            finally:
                self._is_finishing = True
        except KeyboardInterrupt as stop:
            return stop
        return None

    def begin_putting_off(self) -> None:
        self._is_put_off = True

    def end_putting_off(self, *, raises: bool) -> None:
        """Raise the delayed stop if there is one. If not `raises`, it is dropped: another exception ends the block."""
        self._is_put_off = False
        if self._due is not None and (due := self._take_due()) is not None and raises:
            self._raise(due)

    @contextmanager
    def raising_again(self) -> Iterator[None]:
        """Within the block, raise again any stop whose exception Python has discarded."""
        self._next_hook = before = sys.unraisablehook
        sys.unraisablehook = self._hook
        try:
            yield
        finally:
            sys.unraisablehook = before
            due = self._take_due()
        if due is not None:
            self._raise(due)

    def _hook(self, lost: sys.UnraisableHookArgs) -> None:
        stop = lost.exc_value
        if isinstance(stop, KeyboardInterrupt) and _HAS_ALARM:
            self._cleans_up_until = 0.0
            self._raise_in(_AGAIN_SECONDS, stop.number if isinstance(stop, Stopped) else signal.SIGINT)
        else:
            self._next_hook(lost)

    def _raise(self, number: int) -> NoReturn:
        self._begin_clean_up()
        raise _interrupt(number)

    def _begin_clean_up(self) -> None:
        self._cleans_up_until = time.monotonic() + self._clean_up_seconds

    def _raise_in(self, seconds: float, number: int) -> None:
        self._due = number
        signal.signal(signal.SIGALRM, self._alarm)
        # The alarm repeats, because a signal that arrives just before a wait does not end the wait.
        signal.setitimer(signal.ITIMER_REAL, seconds, _INTERVAL_SECONDS)

    def _alarm(self, number: int, frame: FrameType | None) -> None:
        due = self._take_due()
        if due is not None:
            self._deliver(due, frame)

    def _take_due(self) -> int | None:
        due, self._due = self._due, None
        if due is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return due


class _PutOff:
    """The block of `Interrupter.put_off`. It is no generator, because `produce` enters it for each record."""

    __slots__ = ("_interrupter",)

    def __init__(self, interrupter: Interrupter) -> None:
        self._interrupter = interrupter

    def __enter__(self) -> None:
        self._interrupter.begin_putting_off()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._interrupter.end_putting_off(raises=error is None)


def _interrupt(number: int) -> KeyboardInterrupt:
    stop_waiting_for_readers()
    return KeyboardInterrupt() if number == signal.SIGINT else Stopped(number)


def _is_in_hook(frame: FrameType | None) -> bool:
    """Whether the interrupted code runs within the hook, where an exception would be lost, too."""
    while frame is not None and frame.f_code is not Interrupter._hook.__code__:
        frame = frame.f_back
    return frame is not None


@contextmanager
def stops_are_interrupts(interrupter: Interrupter | None = None) -> Iterator[Interrupter]:
    """Raise Stopped in the main thread at SIGTERM and SIGHUP, and KeyboardInterrupt at SIGINT, unless the process
    ignores the signal. `interrupter` raises them, and may delay them. Yield it."""
    interrupter = interrupter or Interrupter()
    before = {}
    for name in _NAMES:
        number = getattr(signal, name, None)  # Windows has no SIGHUP.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, interrupter.interrupt)
    try:
        with interrupter.raising_again():
            yield interrupter
    finally:
        is_cleaning_up = interrupter.is_cleaning_up
        for number, handler in before.items():
            # A stop has ended the block, and the command is about to end. A further stop is ignored from here on,
            # because nothing would handle its exception.
            signal.signal(number, signal.SIG_IGN if is_cleaning_up else handler)


@contextmanager
def told_when_stopped(how_far: Callable[[], str]) -> Iterator[None]:
    """If a stop ends the block, say on standard error how far the command came. `how_far` must never report less than
    was done: it reports a step that the stop may have interrupted as one that may have been done."""
    try:
        yield
    except KeyboardInterrupt:
        warn(f"logbroker: stopped: {how_far()}")
        raise
