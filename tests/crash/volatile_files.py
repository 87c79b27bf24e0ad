"""Files that forget: what was not synced is gone when the process is killed, as after a power cut.

Fault model. A write stays in the memory of the process until the file is synced; by chance the kernel may have written
all of it, its beginning, one 512-byte sector or all but one to the disk before. So after SIGKILL the disk holds
everything that was synced and any part of what was not, in any order. Every sync takes its time, as on a real disk.
Names and truncations reach the disk at once, as a file system is free to do; tests/storage lets them be lost.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Sequence
from typing import Final

from logbroker.storage.files import Buffer, Cut, RealFiles, cut_bytes

SECTOR_BYTES: Final = 512
_SYNC_SECONDS: Final = 0.006
_SLOW_SYNC_SECONDS: Final = 0.06


class VolatileFiles(RealFiles):
    def __init__(self) -> None:
        super().__init__()
        self._chance = random.Random(int(os.environ.get("LOGBROKER_CRASH_SEED", "0")))
        self._lock = threading.Lock()
        self._paths: dict[int, str] = {}
        self._unsynced: dict[str, list[tuple[int, bytes]]] = {}

    def open(self, path: str, *, create: bool = False) -> int:
        fd = super().open(path, create=create)
        with self._lock:
            self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        with self._lock:
            del self._paths[fd]
        super().close(fd)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        content = b"".join(buffers)
        with self._lock:
            self._unsynced.setdefault(self._paths[fd], []).append((position, content))
            chance = self._chance.random()
            first = self._chance.randrange(len(content)) if content else 0
        if chance < 0.1:
            os.pwrite(fd, content, position)
        elif chance < 0.2:
            os.pwrite(fd, content[:first], position)
        elif chance < 0.3:
            start = first // SECTOR_BYTES * SECTOR_BYTES
            os.pwrite(fd, content[start : start + SECTOR_BYTES], position + start)
        elif chance < 0.4:
            start = first // SECTOR_BYTES * SECTOR_BYTES
            os.pwrite(fd, content[:start], position)
            os.pwrite(fd, content[start + SECTOR_BYTES :], position + start + SECTOR_BYTES)
        return len(content)

    def fdatasync(self, fd: int) -> None:
        with self._lock:
            path = self._paths[fd]
            due = list(self._unsynced.get(path, ()))
            slow = self._chance.random() < 0.1
        # The bytes are safe only when the call returns, and nothing before may count on them.
        time.sleep(_SLOW_SYNC_SECONDS if slow else _SYNC_SECONDS)
        for position, content in due:
            os.pwrite(fd, content, position)
        with self._lock:
            if path in self._unsynced:
                del self._unsynced[path][: len(due)]

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        with self._lock:
            unsynced = list(self._unsynced.get(self._paths[fd], ()))
        found = bytearray(super().pread(fd, size_bytes, position))
        for start, content in unsynced:
            part = content[max(0, position - start) : max(0, position + size_bytes - start)]
            if part:
                at = max(0, start - position)
                found.extend(bytes(max(0, at - len(found))))
                found[at : at + len(part)] = part
        return bytes(found)

    def pread_cached(self, fd: int, size_bytes: int, position: int, cut: Cut | None = None) -> bytes:
        return cut_bytes(self.pread(fd, size_bytes, position), cut)

    def truncate(self, fd: int, size_bytes: int) -> None:
        super().truncate(fd, size_bytes)
        with self._lock:
            path = self._paths[fd]
            self._unsynced[path] = [
                (start, content[: size_bytes - start])
                for start, content in self._unsynced.get(path, ())
                if start < size_bytes
            ]

    def size_bytes(self, path: str) -> int:
        return self._size(path, super().size_bytes(path))

    def list_directory(self, path: str) -> dict[str, int]:
        return {name: self._size(f"{path}/{name}", size) for name, size in super().list_directory(path).items()}

    def _size(self, path: str, synced_bytes: int) -> int:
        with self._lock:
            ends = [start + len(content) for start, content in self._unsynced.get(path, ())]
        return max([synced_bytes, *ends])

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        with self._lock:
            # A directory takes its files along.
            for path in [path for path in self._unsynced if path == source or path.startswith(source + "/")]:
                self._unsynced[target + path[len(source) :]] = self._unsynced.pop(path)
            for fd, path in self._paths.items():
                if path == source or path.startswith(source + "/"):
                    self._paths[fd] = target + path[len(source) :]

    def unlink(self, path: str) -> None:
        super().unlink(path)
        with self._lock:
            self._unsynced.pop(path, None)
