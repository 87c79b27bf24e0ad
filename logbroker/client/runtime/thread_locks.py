"""The locks that the program's threads share with the event loop of the clients.

A signal handler interrupts its thread, which continues only when the handler returns. If the thread holds such a lock,
a handler that waits for the lock would wait for ever. A handler that waits for the event loop might also wait for ever,
because the loop may wait for the lock. So both waits raise an error.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from logbroker.client.runtime import forking
from logbroker.errors import ConcurrentUseError

_WITHIN: Final = (
    "a signal handler or a finalizer uses a client while its thread is inside a call of a client: it may set a flag, or"
    " raise an exception that ends the program's block; use the client after that"
)


class ThreadLock:
    """A lock. Take it by `with lock.free():`.

    It is reentrant only because such a lock can tell whether the current thread has it. No thread takes it twice.
    """

    __slots__ = ("__weakref__", "is_mine", "lock")

    def __init__(self) -> None:
        self.renew()
        # Use a built-in function as the callback: an exception that a signal handler raises in a Python function would
        # be lost, because the callback runs while an object is finalized.
        _locks.add(weakref.ref(self, _locks.discard))

    def free(self) -> AbstractContextManager[object]:
        """Return the lock. Raises ConcurrentUseError if this thread has it."""
        if self.is_mine():
            raise taken_here()
        return self.lock

    def renew(self) -> None:
        """Replace the lock by a new one. In the child of a fork, a thread of the parent may hold the old one."""
        # The lock is used directly, without an `__enter__` in Python. If a signal handler raised an exception at the
        # end of such a method, the lock would stay taken.
        lock: Any = threading.RLock()
        self.lock: AbstractContextManager[object] = lock
        self.is_mine: Callable[[], bool] = lock._is_owned
        """Returns whether this thread has the lock. `threading.Condition` uses the same method."""

    def leave_to_parent(self) -> None:
        """Make the lock raise ForkedProcessError when it is taken in the child of a fork."""
        self.lock = forking.ForkedLock()
        self.is_mine = bool


def taken_here() -> ConcurrentUseError:
    """Return the error for a thread that takes a lock which it has already."""
    return ConcurrentUseError(_WITHIN)


_locks: set[weakref.ref[ThreadLock]] = set()


def check_has_none() -> None:
    """Raise ConcurrentUseError if this thread has any of these locks, because then it must not wait for the event
    loop."""
    for reference in list(_locks):
        lock = reference()
        if lock is not None and lock.is_mine():
            raise taken_here()
