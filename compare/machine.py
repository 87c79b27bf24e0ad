"""The machine that figures come from, in words."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Final

IN_MEMORY: Final = ("tmpfs", "ramfs")
"""File systems where a sync costs nothing, because nothing lasts."""


def words(directory: Path) -> str:
    """Processors, memory, system, and the file system of the directory."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return (
        f"{os.cpu_count()} processors ({_processor()}), {memory_bytes / 2**30:.0f} GiB of memory, {platform.system()}"
        f" {platform.release()}, Python {platform.python_version()}, data on {file_system(directory)}"
    )


def file_system(directory: Path) -> str:
    """The kind of the file system that a directory lies on."""
    place, found = directory.resolve(), ("", "an unknown file system")
    for line in _lines(Path("/proc/self/mounts")):
        _, mounted, kind, *_ = line.split()
        if place.is_relative_to(mounted) and len(mounted) >= len(found[0]):
            found = (mounted, kind)
    return found[1]


def _processor() -> str:
    for line in _lines(Path("/proc/cpuinfo")):
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
