"""A file system that counts what it is asked for and fails where it is told to.

Fault model: a call fails once with the given errno and does nothing; a pwritev may also be cut short, as the kernel is
free to do. What a power cut loses is not modelled here: tests damage the files themselves.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

from logbroker.storage.files import Buffer, RealFiles


class FaultyFiles(RealFiles):
    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.journal: list[tuple[str, str]] = []
        """(operation, file name) of every call that makes something durable, or changes a name."""
        self.writes: list[tuple[str, int]] = []
        """(file name, position) of every pwritev."""
        self.bytes_read = 0
        self.failures: dict[str, list[int]] = {}
        """Per operation, the errnos that its next calls fail with; 0: the call succeeds."""
        self.max_write_bytes = 1 << 40
        self._paths: dict[int, str] = {}

    def fail(self, operation: str, error_number: int) -> None:
        self.failures.setdefault(operation, []).append(error_number)

    def _called(self, operation: str) -> None:
        self.calls[operation] += 1
        pending = self.failures.get(operation)
        if pending and (error_number := pending.pop(0)):
            raise OSError(error_number, os.strerror(error_number))

    def open(self, path: str, *, create: bool = False) -> int:
        self._called("open")
        fd = super().open(path, create=create)
        self._paths[fd] = os.path.basename(path)
        return fd

    def close(self, fd: int) -> None:
        self._called("close")
        super().close(fd)

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        self._called("pread")
        content = super().pread(fd, size_bytes, position)
        self.bytes_read += len(content)
        return content

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        self._called("pwritev")
        self.writes.append((self._paths[fd], position))
        assert len(buffers) <= os.sysconf("SC_IOV_MAX")
        whole = b"".join(buffers)[: self.max_write_bytes]
        return super().pwritev(fd, [whole], position)

    def fdatasync(self, fd: int) -> None:
        self._called("fdatasync")
        self.journal.append(("fdatasync", self._paths[fd]))
        super().fdatasync(fd)

    def truncate(self, fd: int, size_bytes: int) -> None:
        self._called("truncate")
        super().truncate(fd, size_bytes)

    def list_directory(self, path: str) -> dict[str, int]:
        self._called("list_directory")
        return super().list_directory(path)

    def list_directories(self, path: str) -> list[str]:
        self._called("list_directories")
        return super().list_directories(path)

    def list_others(self, path: str) -> list[str]:
        self._called("list_others")
        return super().list_others(path)

    def make_directory(self, path: str) -> None:
        self._called("make_directory")
        super().make_directory(path)

    def unlink(self, path: str) -> None:
        self._called("unlink")
        super().unlink(path)

    def sync_directory(self, path: str) -> None:
        self._called("sync_directory")
        self.journal.append(("sync_directory", os.path.basename(path)))
        super().sync_directory(path)

    def rename(self, source: str, target: str) -> None:
        self._called("rename")
        self.journal.append(("rename", os.path.basename(target)))
        super().rename(source, target)
