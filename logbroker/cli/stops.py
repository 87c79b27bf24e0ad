"""Signals that tell a command to stop: a service manager's SIGTERM and a closed terminal's SIGHUP interrupt it as
Ctrl-C does, so that it lets go of what it holds."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_NAMES: Final = ("SIGTERM", "SIGHUP")


class Stopped(KeyboardInterrupt):
    """A signal other than Ctrl-C told the command to stop."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number: Final = number


@contextmanager
def stops_are_interrupts() -> Iterator[None]:
    """Raise Stopped in the main thread at those of these signals that are not ignored."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped(number)

    before = {}
    for name in _NAMES:
        number = getattr(signal, name, None)  # Windows has no SIGHUP.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
