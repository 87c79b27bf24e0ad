"""Settings of the whole process that a broker needs. Only the server applies them; library calls never do."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import threading
from contextlib import suppress
from typing import Final

from logbroker.broker.broker import own_threads
from logbroker.config import LEAST_OPEN_SEGMENTS, MIB, BrokerConfig
from logbroker.errors import OverloadedError, TooManyOpenFilesError

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_OTHER_DESCRIPTORS: Final = 64
"""Number of descriptors for other uses than connections and segments: event loops, the metadata store, files that are
open for a moment."""
_OWN_DESCRIPTORS: Final = 24
"""Number of descriptors that an idle broker has open: event loops and their wake-ups, sockets, the lock, the metadata
store."""
_LEAST_CONNECTIONS: Final = 8
_OTHER_THREADS: Final = 16
"""Number of threads besides storage and the pools of gRPC and asyncio: decoders, the writer of log lines, libuv's
lookups of names, gRPC's timers and pollers, and some to spare."""
_GRPC_POOL_THREADS: Final = (4, 16)
"""Bounds of gRPC's pool, which has a thread for each core."""
_MACOS_DESCRIPTORS: Final = 10_240
"""OPEN_MAX of macOS."""
_STANDARD_STREAMS: Final = 3
_MANY_CONNECTIONS: Final = 1 << 20


def tune_process(thread_switch_interval_seconds: float) -> None:
    """Tune threads, memory and files for a server that moves large buffers.

    While the event loop is busy, the threads of the group commit wait one switch interval for the interpreter. Python's
    default of 5 ms would be most of the time of a synced append.
    """
    sys.setswitchinterval(thread_switch_interval_seconds)
    _keep_freed_memory()
    _raise_descriptor_limit()


def check_descriptors() -> None:
    """Raise TooManyOpenFilesError if the process may open fewer files than a broker needs.

    Call it before opening anything, the event loop included: gRPC and libuv end the process if they get no descriptor.
    """
    _raise_descriptor_limit()
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = _open_descriptors()
    needed = opened + _OWN_DESCRIPTORS + LEAST_OPEN_SEGMENTS + _LEAST_CONNECTIONS
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise TooManyOpenFilesError(
            f"the limit on open files is {limit}, and a broker needs at least {needed}: {opened} are open already, and "
            f"it needs {_OWN_DESCRIPTORS} for itself, {LEAST_OPEN_SEGMENTS} for segments and {_LEAST_CONNECTIONS} for "
            f"connections; raise the limit, best to some thousands (ulimit -n, or LimitNOFILE= of systemd)"
        )


def check_threads(config: BrokerConfig) -> None:
    """Raise OverloadedError if the process may start fewer threads than a broker needs.

    Call it before the event loop is made: gRPC and libuv end the process if they get no thread. The limits of the user,
    of the control group and of memory all apply, and none of them says how many threads are left. So this starts the
    threads to see whether it is possible, and ends them again.
    """
    _keep_freed_memory()
    cores = os.cpu_count() or 1
    least, most = _GRPC_POOL_THREADS
    default_pool = min(32, cores + 4)  # asyncio's default executor
    needed = own_threads(config) + default_pool + min(max(cores, least), most) + _OTHER_THREADS
    over = threading.Event()
    started: list[threading.Thread] = []
    try:
        for _ in range(needed):
            thread = threading.Thread(target=over.wait, name="logbroker-check", daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError:
        raise OverloadedError(
            f"a broker needs {needed} threads, and only {len(started)} can be started; raise the limit on processes "
            "(ulimit -u, TasksMax= of systemd, or the pids limit of the container), or lower sync_threads, which is "
            f"{config.sync_threads}"
        ) from None
    finally:
        over.set()
        for thread in started:
            thread.join()


def _raise_descriptor_limit() -> None:
    """Raise the soft limit on open files as far as allowed. By default it is low, for programs that use select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, _MACOS_DESCRIPTORS):
        if soft in (wanted, resource.RLIM_INFINITY):
            return
        # macOS reports no hard limit, but accepts at most OPEN_MAX.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return


def _open_descriptors() -> int:
    for directory in ("/proc/self/fd", "/dev/fd"):
        with suppress(OSError):
            return len(os.listdir(directory)) - 1  # without the descriptor of the listing itself
    return _STANDARD_STREAMS


def max_connections(config: BrokerConfig) -> int:
    """Return how many connections each listener may have: together about half of the descriptors of the process; the
    other half is for files.

    Each connection takes a descriptor. Without a limit, many connections would leave none for segments and syncs.
    """
    listeners = 2 if config.kafka_listen else 1
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return _MANY_CONNECTIONS
    return min(max(limit // 4, limit // 2 - _OTHER_DESCRIPTORS) // listeners, _MANY_CONNECTIONS)


def _keep_freed_memory() -> None:
    """Let malloc keep up to 64 MiB of freed memory in each of two arenas, for the next buffer.

    By default glibc returns large blocks to the kernel and gets new ones each time, and every new page costs a fault:
    0.5 ms for a copy of 1 MiB instead of 0.02 ms (docs/BENCHMARKS.md). See mallopt(3).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # glibc; elsewhere the allocator decides
        mallopt(_M_MMAP_THRESHOLD, 32 * MIB)
        mallopt(_M_TRIM_THRESHOLD, 64 * MIB)
        # Each arena keeps this much, and by default there are eight for every core.
        mallopt(_M_ARENA_MAX, 2)
