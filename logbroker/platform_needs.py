"""Checks the broker's requirements on the system. Clients, commands and the segment tools do not have these
requirements."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys

from logbroker.errors import UnsupportedPlatformError


def check_broker_platform() -> None:
    """Raise UnsupportedPlatformError, which says what is missing, if no broker can run on this system."""
    # On other systems, uvloop is installed with this package; a failed import of it says so.
    modules = ("fcntl", "resource", "uvloop") if sys.platform == "win32" else ("fcntl", "resource")
    missing = [f"the module {name}" for name in modules if not _has(name)]
    missing += [f"os.{name}" for name in ("pread", "pwrite", "statvfs", "O_DIRECTORY") if not hasattr(os, name)]
    if not hasattr(signal, "SIGKILL"):
        missing.append("SIGKILL")
    if missing:
        raise UnsupportedPlatformError(
            f"a broker needs Linux or macOS; this system ({sys.platform}) lacks {', '.join(missing)}. Run it in a "
            f"container, in WSL or on another machine; clients, commands and segment tools work here"
        )


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
