"""What a fork does to clients: it copies the process, but of its threads only the one that forked.

gRPC's threads are not in the child, and where its asyncio part was running, nothing makes it run there again: a call
would wait for ever. So in the child
- a client that was in use before the fork is not usable, and raises ForkedProcessError at once, whatever is called;
- a new client raises it as well where, at the fork, any client of the process was in use: create clients after the
  fork, or start the child by spawn or exec;
- where none was in use (never used, or all closed), clients work, those too that were made before.
The parent notices nothing: the child neither writes to its connections nor closes them, and does not flush its records.

This module comes first of those of the client, as it decides how gRPC is loaded.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import math
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final, Protocol

from logbroker.errors import ForkedProcessError

_SETTING: Final = "GRPC_ENABLE_FORK_SUPPORT"
_POLLER: Final = "(_poll_wrapper)"
"""How the name of the thread ends that gRPC's asyncio part has while it runs, whoever uses it."""
_NATIVE: Final = ("event_engine", "grpc_")
"""How the names of its other threads begin."""
_ENDING_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.002


def _load_grpc() -> Any:
    """Load gRPC without its own handlers of forks, unless the environment asks for them.

    Those start threads again in every child, and with asyncio (of which they know nothing) these end one child in five
    by a segmentation fault, also one that never uses gRPC. gRPC reads the setting when it is loaded, and never again.
    """
    if _SETTING in os.environ:
        return importlib.import_module("grpc")
    os.environ[_SETTING] = "0"
    try:
        return importlib.import_module("grpc")
    finally:
        del os.environ[_SETTING]


grpc: Final = _load_grpc()


class Forked(Protocol):
    """What does not work in the child as it is."""

    def forked(self) -> None:
        """Called in the child of a fork, before anything else: make locks anew, and give up what only the parent has.

        It must not wait, and not touch an event loop, a channel or a file of the parent.
        """
        ...


class ForkedLock:
    """Stands where a lock was that guards what the parent works on: whoever takes it in the child hears why not."""

    def __enter__(self) -> None:
        raise error()

    def __exit__(self, *error: object) -> None:
        pass


_watched: weakref.WeakSet[Any] = weakref.WeakSet()
_channels: weakref.WeakSet[Any] = weakref.WeakSet()
"""Those of gRPC that clients of this process have open."""
_was_running = False
"""gRPC ran at the last fork."""
_is_held = False
"""Its asyncio part is kept from ending until that fork is over."""
_closed_at = -math.inf
"""When a client closed its channel last."""
_is_lost = False
"""This process is the child of one in which gRPC's asyncio part ran, and so it can never run here."""
_left_alone: Final[list[Any]] = []
"""What the parent still uses, and must not be closed here by the end of its last reference."""
_keep_for_ever: Callable[[Any], object] = _left_alone.append


def watch(client: Forked) -> None:
    """Have `client.forked()` called in children."""
    _watched.add(client)


def opened(channel: Any) -> None:
    """Note that a client has opened a channel."""
    _channels.add(channel)


def closed(channel: Any) -> None:
    """Note that it has closed it."""
    global _closed_at
    _channels.discard(channel)
    _closed_at = monotonic()


def leave_alone(thing: Any) -> None:
    """Keep what belongs to the parent for as long as this child lives, its last moments included."""
    _keep_for_ever(thing)


def is_lost() -> bool:
    """Whether no client can work in this process."""
    return _is_lost


def check() -> None:
    """Raise ForkedProcessError where no client can work in this process."""
    if _is_lost:
        raise error()


def error() -> ForkedProcessError:
    """Return what is raised where a client cannot work in this process."""
    return ForkedProcessError(
        "this process was forked while its parent used logbroker clients (or gRPC for asyncio), and gRPC does not work"
        " in such a child: create clients only in the children (gunicorn: in post_fork, or without --preload), close"
        " those of the parent before it forks, or start children by multiprocessing's spawn or forkserver"
    )


def is_running() -> bool:
    """Whether gRPC's asyncio part runs in this process, whoever uses it."""
    return any(thread.name.endswith(_POLLER) for thread in threading.enumerate())


def _before() -> None:
    global _was_running, _is_held, _keep_for_ever
    _is_held = False
    if not _channels and is_running():
        # It runs until nothing refers to the last channel any more; those of closed clients may lie in cycles.
        gc.collect()
    _was_running = bool(_channels) or is_running()
    if not _was_running:
        _was_running = _has_threads_left()
    else:
        # In the child, nobody takes this back: gRPC would wait there for the end of a thread that it has not.
        grpc.aio.init_grpc_aio()
        _is_held = True
        with contextlib.suppress(ImportError):
            import ctypes

            _keep_for_ever = _leaked(ctypes)


def _has_threads_left() -> bool:
    """Whether gRPC has threads that no Python code knows of: its last channel was closed at this moment, and they are
    about to end, or the program uses gRPC without asyncio. A fork takes them away with what they have locked."""
    while _has_native_threads():
        if monotonic() > _closed_at + _ENDING_SECONDS:
            return True
        sleep(_LOOK_SECONDS)
    return False


def _has_native_threads() -> bool:
    try:
        return any(task.read_text().startswith(_NATIVE) for task in Path("/proc/self/task").glob("*/comm"))
    except OSError:
        return False


def _leaked(ctypes: Any) -> Callable[[Any], object]:
    """Return what adds a reference that even the end of the interpreter does not take away."""
    return lambda thing: ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _in_parent() -> None:
    if _is_held:
        grpc.aio.shutdown_grpc_aio()


def _in_child() -> None:
    global _is_lost
    _is_lost = _is_lost or _was_running
    for channel in list(_channels):
        leave_alone(channel)
    for client in list(_watched):
        client.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
