"""What only one caller may do at a time: who comes beside another is told so, instead of sharing its records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from logbroker.client import forking
from logbroker.errors import ConcurrentUseError

BESIDE: Final = (
    "another thread or task is in a call of this consumer: use a consumer in one at a time, open another for each, or"
    " guard it with a lock of your own"
)
_WITHIN: Final = (
    "a callback (on_assigned, on_revoked, on_lost) asks for records of the consumer that calls it: let it return first;"
    " it may commit, seek, pause and close"
)


class Exclusive:
    """Held by one thread or task."""

    def __init__(self, who: Callable[[], object]) -> None:
        """`who` returns the caller: its thread, or its task."""
        self._who = who
        self._lock = threading.Lock()
        self._holder: object = None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold it; raises ConcurrentUseError where it is held, also by the caller."""
        me = self._who()
        if not self._lock.acquire(blocking=False):
            # In the child of a fork, a thread of the parent seems to hold it.
            forking.check()
            raise ConcurrentUseError(_WITHIN if self._holder == me else BESIDE)
        self._holder = me
        try:
            yield
        finally:
            self._holder = None
            self._lock.release()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold it, or go on in the hands of the caller, as a callback does; raises ConcurrentUseError."""
        if self._holder == self._who():
            yield
        else:
            with self.reading():
                yield
