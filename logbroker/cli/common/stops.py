"""Signals that tell a command to stop: a service manager's SIGTERM and a closed terminal's SIGHUP interrupt it as
Ctrl-C does, so that it lets go of what it holds. They may be put off while something must not be left half done."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from logbroker.cli.common.standard_output import stop_waiting_for_readers

_NAMES: Final = ("SIGTERM", "SIGHUP")
_PUT_OFF_SECONDS: Final = 1.0


class Stopped(KeyboardInterrupt):
    """A signal other than Ctrl-C told the command to stop."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number: Final = number


class PutOff:
    """Delays the first stop until work that must not be left half done has ended, such as a record that is written and
    not acked yet. The delay is at most a second, as a pipe may be full, or a broker away. The second stop waits for
    nothing."""

    def __init__(self) -> None:
        self._is_on = False
        self._stop: int | None = None
        """The signal."""

    def takes(self, number: int) -> bool:
        """Whether the stop is delayed; if not, the caller raises it now. For signal handlers."""
        if not self._is_on or self._stop is not None or not hasattr(signal, "setitimer"):
            return False
        self._stop = number
        signal.signal(signal.SIGALRM, self._end)
        signal.setitimer(signal.ITIMER_REAL, _PUT_OFF_SECONDS)
        return True

    @contextmanager
    def meanwhile(self) -> Iterator[None]:
        """Delay stops within the block. A stop that came is raised at the end."""
        self._is_on = True
        try:
            yield
        finally:
            self._is_on = False
            if self._stop is not None:
                signal.setitimer(signal.ITIMER_REAL, 0)
        if self._stop is not None:
            raise _interrupt(self._stop)

    def _end(self, number: int, frame: FrameType | None) -> None:
        if self._is_on and self._stop is not None:
            raise _interrupt(self._stop)


def _interrupt(number: int) -> KeyboardInterrupt:
    stop_waiting_for_readers()
    return KeyboardInterrupt() if number == signal.SIGINT else Stopped(number)


@contextmanager
def stops_are_interrupts(put_off: PutOff | None = None) -> Iterator[None]:
    """Raise Stopped in the main thread at those of these that are not ignored. `put_off`: for them, and for Ctrl-C."""

    def stop(number: int, frame: FrameType | None) -> None:
        if put_off is None or not put_off.takes(number):
            raise _interrupt(number)

    before = {}
    for name in _NAMES if put_off is None else ("SIGINT", *_NAMES):
        number = getattr(signal, name, None)  # Windows has no SIGHUP.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
