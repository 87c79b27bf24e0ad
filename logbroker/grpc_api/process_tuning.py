"""Settings of the whole process that a broker needs. Only the server sets them, never a library call."""

from __future__ import annotations

import ctypes
import resource
import sys
from typing import Final

from logbroker.config import MIB

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_OTHER_DESCRIPTORS: Final = 64
"""For what is neither a connection nor a segment: the event loops, the metadata store, files open for a moment."""
_MANY_CONNECTIONS: Final = 1 << 20


def tune_process(thread_switch_interval_seconds: float) -> None:
    """Make threads, memory and files fit a server that moves large buffers.

    The threads of the group commit wait one switch interval for the interpreter beside a busy loop; Python's default
    of 5 ms would be most of a synced append.
    """
    sys.setswitchinterval(thread_switch_interval_seconds)
    _keep_freed_memory()
    # As many files as allowed: the soft limit is low for the sake of programs that use select().
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def max_connections() -> int:
    """How many connections the process may hold: about half of its descriptors, the other half is for files.

    Connections take theirs unasked; without a bound a crowd of them would leave none for segments and syncs.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return _MANY_CONNECTIONS
    return min(max(limit // 4, limit // 2 - _OTHER_DESCRIPTORS), _MANY_CONNECTIONS)


def _keep_freed_memory() -> None:
    """Let malloc keep up to 64 MiB of what is freed, twice, for the next buffer.

    By default glibc gives large blocks back to the kernel and takes them anew each time, and every page of them costs
    a fault: 0.5 ms for a copy of 1 MiB instead of 0.02 ms (docs/BENCHMARKS.md). See mallopt(3).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # glibc; elsewhere the allocator decides
        mallopt(_M_MMAP_THRESHOLD, 32 * MIB)
        mallopt(_M_TRIM_THRESHOLD, 64 * MIB)
        # Each arena keeps as much, and by default there are eight for every core.
        mallopt(_M_ARENA_MAX, 2)
