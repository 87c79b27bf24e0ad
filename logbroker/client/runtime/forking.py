"""Clients after a fork. A fork copies the process, but only one of its threads: the one that forked.

gRPC's threads do not exist in the child. If gRPC's asyncio part was running, nothing can start it again in the child,
and a call would wait for ever. Therefore, in the child:
- A client that was in use before the fork cannot be used: each call raises ForkedProcessError at once.
- A new client raises the same error if any client of the process was in use at the fork. Create clients after the fork,
  or start the child by spawn or exec.
- If no client was in use (never used, or all closed), clients work, including those made before the fork. gRPC's
  threads end a moment after the last `close`; a fork waits for that.

The parent is not affected: the child neither writes to its connections nor closes them, and does not flush its records.

This module is imported before the other modules of the client, because it decides how gRPC is loaded.
"""

from __future__ import annotations

import asyncio
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
"""The end of the name of the thread that runs gRPC's asyncio part."""
_NATIVE: Final = ("event_engine", "grpc_")
"""The beginnings of the names of gRPC's other threads."""
_ENDING_SECONDS: Final = 10.0
"""The time that gRPC may take to end its threads after the last close, on a busy machine."""
_FIRST_LOOK_SECONDS: Final = 0.002
_LAST_LOOK_SECONDS: Final = 0.1


def _load_grpc() -> Any:
    """Load gRPC without its own fork handlers, unless the environment asks for them.

    Those handlers start threads again in every child, and know nothing of asyncio. With asyncio one child in five
    crashes by a segmentation fault, even if it never uses gRPC. gRPC reads the setting only once, when it is loaded.
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
    """An object that cannot be used unchanged in the child of a fork."""

    def forked(self) -> None:
        """Make new locks, and give up the resources of the parent. Called in the child of a fork, before anything else.

        It must not wait, and must not touch an event loop, a channel or a file of the parent.
        """
        ...


class ForkedLock:
    """Replaces, in the child, a lock on something that the parent uses. Taking it raises ForkedProcessError."""

    def __enter__(self) -> None:
        raise error()

    def __exit__(self, *error: object) -> None:
        pass


_watched: weakref.WeakSet[Any] = weakref.WeakSet()
_channels: weakref.WeakSet[Any] = weakref.WeakSet()
"""The gRPC channels that clients of this process have open."""
_was_running = False
"""Whether gRPC was running at the last fork."""
_is_held = False
"""Whether the current fork keeps gRPC's asyncio part running until the fork is over."""
_closed_at = -math.inf
"""The time at which a client last closed its channel."""
_closed_by = 0
"""The thread that closed it."""
_others: set[int] = set()
"""gRPC threads that were still running after the wait for their end, because other code uses gRPC."""
_lock = threading.RLock()
"""Held throughout a fork. Several threads may fork at once, and the variables above describe one fork."""
_is_lost = False
"""Whether gRPC was running in the parent, or in an earlier ancestor, at its fork. If so, no client can work here."""
_left_alone: Final[list[Any]] = []
"""Objects that the parent still uses. Keeping a reference prevents them from being closed in this child."""
_keep_for_ever: Callable[[Any], object] = _left_alone.append


def watch(client: Forked) -> None:
    """Register a client, so that `client.forked()` is called in every child."""
    _watched.add(client)


def opened(channel: Any) -> None:
    """Note that a client has opened a channel."""
    _channels.add(channel)


def closed(channel: Any) -> None:
    """Note that a client has closed a channel."""
    global _closed_at, _closed_by
    _channels.discard(channel)
    _closed_at, _closed_by = monotonic(), threading.get_ident()


def leave_alone(thing: Any) -> None:
    """Keep an object of the parent alive for as long as this child lives, including its last moments."""
    _keep_for_ever(thing)


def is_lost() -> bool:
    """Whether no client can work in this process."""
    return _is_lost


def check() -> None:
    """Raise ForkedProcessError if no client can work in this process."""
    if _is_lost:
        raise error()


def error() -> ForkedProcessError:
    """Return the error for a process in which no client can work."""
    return ForkedProcessError(
        "this process was forked while its parent used logbroker clients (or gRPC for asyncio), and gRPC does not work"
        " in such a child: create clients only in the children (gunicorn: in post_fork, or without --preload), close"
        " the clients of the parent before it forks, or start children by multiprocessing's spawn or forkserver"
    )


def is_running() -> bool:
    """Whether gRPC's asyncio part is running in this process."""
    return bool(_pollers())


def _pollers() -> set[int]:
    return {thread.native_id or 0 for thread in threading.enumerate() if thread.name.endswith(_POLLER)}


def _before() -> None:
    global _was_running, _is_held, _keep_for_ever
    _lock.acquire()
    _is_held = False
    _was_running = bool(_channels) or not _has_ended()
    if _channels or is_running():
        with contextlib.suppress(ImportError):
            import ctypes

            _keep_for_ever = _leaked(ctypes)
        # Nobody undoes this in the child: gRPC would wait there for the end of a thread that does not exist.
        _hold()
        _is_held = True


def _has_ended() -> bool:
    """Return whether no thread runs gRPC any more. Waits for the end of threads that closed clients have left behind.

    gRPC's asyncio part runs until nothing refers to the last channel. A cancelled call refers to it until the event
    loop has handled the cancellation, and calls are part of reference cycles. After that, gRPC's native threads, which
    Python does not list, end as well, unless other code uses gRPC. In a child, locks of threads that were running at
    the fork would stay locked.
    """
    if _pollers():
        gc.collect()
    # While this function waits, nothing else runs in its thread. If the thread runs the event loop of the closed
    # clients, waiting is useless.
    is_in_their_loop = asyncio._get_running_loop() is not None and threading.get_ident() == _closed_by
    look_seconds = _FIRST_LOOK_SECONDS
    while running := (pollers := _pollers()) | _native_threads():
        is_in_vain = running <= _others or (pollers and is_in_their_loop)
        if is_in_vain or monotonic() > _closed_at + _ENDING_SECONDS:
            _others.clear()
            _others.update(running)
            return False
        sleep(look_seconds)
        look_seconds = min(2 * look_seconds, _LAST_LOOK_SECONDS)
        if pollers:
            gc.collect()
    return True


def _native_threads() -> set[int]:
    try:
        tasks = list(Path("/proc/self/task").iterdir())
    except OSError:
        return set()
    return {int(task.name) for task in tasks if _comm(task).startswith(_NATIVE)}


def _comm(task: Path) -> str:
    try:
        return (task / "comm").read_text()
    except OSError:  # The thread has ended.
        return ""


class _NoLoop:
    """The event loop that is shown to gRPC in a thread that may have none. gRPC uses it to watch its sockets."""

    def add_reader(self, *arguments: object) -> None:
        """Watch nothing. The event loops of gRPC's users watch the sockets."""

    def remove_reader(self, fd: object) -> bool:
        """Return True, although nothing is watched."""
        return True


_no_loop: Final[Any] = _NoLoop()


def _hold() -> None:
    """Register one more user of gRPC's asyncio part. gRPC requires a running event loop in this thread for that."""
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(_no_loop)
    try:
        grpc.aio.init_grpc_aio()
    finally:
        asyncio._set_running_loop(running)


def _leaked(ctypes: Any) -> Callable[[Any], object]:
    """Return a function that gives an object a permanent reference, which even the end of the interpreter does not
    remove."""
    return lambda thing: ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _in_parent() -> None:
    try:
        if _is_held:
            grpc.aio.shutdown_grpc_aio()
    finally:
        _lock.release()


def _in_child() -> None:
    global _is_lost, _lock
    _lock = threading.RLock()
    _others.clear()
    _is_lost = _is_lost or _was_running
    for channel in list(_channels):
        leave_alone(channel)
    for client in list(_watched):
        client.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
