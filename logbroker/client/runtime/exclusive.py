"""Exclusive use of a consumer by one caller at a time. A second caller gets an error instead of a share of the
records."""

from __future__ import annotations

import io
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from logbroker.client.runtime import forking
from logbroker.errors import ConcurrentUseError

BESIDE: Final = (
    "another thread or task is in a call of this consumer: open a consumer for each thread or task, or"
    " guard this one with a lock of your own"
)
_WITHIN: Final = (
    "a callback (on_assigned, on_revoked, on_lost) asks for records of the consumer that calls it: let it return first;"
    " it may commit, seek, pause and close"
)


class Exclusive:
    """A lock that one thread or task holds at a time.

    A signal handler may raise an exception between any two steps of the holder, and the program may catch it and go on.
    So the hold is represented by an open buffer. The `with` statement closes the buffer in a single step, and no
    exception of a signal handler can come between.
    """

    def __init__(self, who: Callable[[], object]) -> None:
        """`who` returns the caller: its thread, or its task."""
        self._who = who
        self._lock = threading.RLock()
        """Reentrant: a signal handler may take this hold while its own thread is inside `with self._lock`."""
        self._hold: weakref.ref[io.BytesIO] | None = None
        self._holder: object = None

    def reading(self) -> AbstractContextManager[object]:
        """Hold the lock during a `with` block. Raises ConcurrentUseError if it is held, even by the caller."""
        forking.check()  # After a fork, a thread of the parent may seem to hold it.
        me, hold = self._who(), io.BytesIO()
        try:
            with self._lock:
                if self._is_held():
                    raise ConcurrentUseError(_WITHIN if self._holder == me else BESIDE)
                self._hold, self._holder = weakref.ref(hold), me
            return hold
        except BaseException:
            hold.close()
            raise

    def changing(self) -> AbstractContextManager[object]:
        """Hold the lock, or share the caller's own hold if called in a callback. Raises ConcurrentUseError."""
        if self._is_held() and self._holder == self._who():
            return nullcontext()
        return self.reading()

    def _is_held(self) -> bool:
        hold = None if self._hold is None else self._hold()
        return hold is not None and not hold.closed
