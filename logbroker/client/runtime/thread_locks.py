"""The locks that the program's threads share with the event loop of the clients.

A signal handler runs on top of whatever its thread does, and keeps that from going on. Where the thread has such a
lock, a handler that waits for the lock, or for the event loop, which may be waiting for it, would wait for ever. So
both are refused there.
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
    "a signal handler, or the finalizer of an object, uses a client while its thread is in the middle of a call of one:"
    " let it set a flag, or raise an exception that ends the program's block, and use the client after that"
)


class ThreadLock:
    """A lock, to be taken by `with lock.free():`.

    It is reentrant, so that a thread can be asked whether it has it; nothing takes it twice.
    """

    __slots__ = ("__weakref__", "is_mine", "lock")

    def __init__(self) -> None:
        self.renew()
        # No function of Python: what a signal handler raises in one that is called at the end of an object is lost.
        _locks.add(weakref.ref(self, _locks.discard))

    def free(self) -> AbstractContextManager[object]:
        """Return the lock. Raises ConcurrentUseError if this thread has it."""
        if self.is_mine():
            raise taken_here()
        return self.lock

    def renew(self) -> None:
        """Make the lock anew. In the child of a fork, a thread of the parent may hold it."""
        # It has no `__enter__` of its own: what a signal handler raises at the end of that would leave the lock taken.
        lock: Any = threading.RLock()
        self.lock: AbstractContextManager[object] = lock
        self.is_mine: Callable[[], bool] = lock._is_owned
        """Whether this thread has the lock, as `threading.Condition` asks."""

    def leave_to_parent(self) -> None:
        """In the child of a fork, make the lock raise the error that says why it cannot be taken."""
        self.lock = forking.ForkedLock()
        self.is_mine = bool


def taken_here() -> ConcurrentUseError:
    """Return the error for a thread that asks for a lock which it has."""
    return ConcurrentUseError(_WITHIN)


_locks: set[weakref.ref[ThreadLock]] = set()


def check_has_none() -> None:
    """Raise ConcurrentUseError if this thread has any of these locks: it must not wait for the event loop."""
    for reference in list(_locks):
        lock = reference()
        if lock is not None and lock.is_mine():
            raise taken_here()
