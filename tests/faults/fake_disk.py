"""A file system that says how much room it has, and is believed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

_BLOCK_BYTES = 4


class FakeDisk:
    def __init__(self, free_bytes: int, *, free_files: int = 1_000_000, files: int = 2_000_000) -> None:
        self.free_bytes = free_bytes
        self.free_files = free_files
        self.files = files
        self.calls = 0
        """How often it was asked."""

    def statvfs(self, _path: Any) -> Any:
        """Stands in for os.statvfs."""
        self.calls += 1
        return SimpleNamespace(
            f_bavail=self.free_bytes // _BLOCK_BYTES,
            f_frsize=_BLOCK_BYTES,
            f_files=self.files,
            f_favail=self.free_files,
        )

    async def measured_again(self) -> None:
        """Wait until somebody has asked."""
        calls = self.calls
        async with asyncio.timeout(20):
            while self.calls == calls:
                await asyncio.sleep(0.001)
