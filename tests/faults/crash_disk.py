"""A file system in memory that writes down what it is asked for, and what a crash may leave of that.

Fault model (ALICE's, Pillai et al., OSDI 2014). A process that is killed leaves everything that it did, but for the
rest of the write it was killed in. A power cut leaves everything that was synced before; of all else any part, in any
order: a file's bytes count as synced by its fdatasync, names by the sync of their directory, and neither brings the
other with it. A write can arrive in part, or as zeros where only the new size was recorded. A commit of the metadata
store is atomic and durable. What was synced does not change. A failed sync leaves pages that no later sync writes: the
kernel takes them for clean.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from logbroker.storage.files import Buffer, Cut, cut_bytes


class Op(NamedTuple):
    """One operation. `inode` is that of the file, `path` and `target` are names."""

    kind: str
    """create, write, truncate, fdatasync, failed_sync, rename, unlink, mkdir, rmdir, sync_directory or commit."""
    inode: int = -1
    path: str = ""
    target: str = ""
    position: int = 0
    content: bytes = b""


DATA = frozenset(("write", "truncate"))
NAMES = frozenset(("create", "rename", "unlink", "mkdir", "rmdir"))


class MemoryFiles:
    """Implements `logbroker.storage.files.Files`; for one thread."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.names: dict[str, int] = {}
        self.directories: set[str] = {"/data"}
        self.contents: dict[int, bytearray] = {}
        self._fds: dict[int, int] = {}
        self._next_fd = 0

    # --- the interface ---

    def open(self, path: str, *, create: bool = False) -> int:
        inode = self.names.get(path)
        if inode is None:
            if not create or os.path.dirname(path) not in self.directories:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            inode = len(self.contents)
            self._do(Op("create", inode, path))
        self._next_fd += 1
        self._fds[self._next_fd] = inode
        return self._next_fd

    def close(self, fd: int) -> None:
        del self._fds[fd]

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        return bytes(self.contents[self._fds[fd]][position : position + size_bytes])

    def pread_cached(self, fd: int, size_bytes: int, position: int, cut: Cut | None = None) -> bytes:
        return cut_bytes(self.pread(fd, size_bytes, position), cut)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        content = b"".join(buffers)
        self._do(Op("write", self._fds[fd], position=position, content=content))
        return len(content)

    def fdatasync(self, fd: int) -> None:
        self.ops.append(Op("fdatasync", self._fds[fd]))

    def truncate(self, fd: int, size_bytes: int) -> None:
        if len(self.contents[self._fds[fd]]) != size_bytes:
            self._do(Op("truncate", self._fds[fd], position=size_bytes))

    def sync_directory(self, path: str) -> None:
        self.ops.append(Op("sync_directory", path=path))

    def size_bytes(self, path: str) -> int:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return len(self.contents[self.names[path]])

    def modified_ms(self, path: str) -> int:
        raise NotImplementedError("the records of these tests are stamped by a sound clock")

    def set_modified(self, path: str, wall_ms: int) -> None:
        raise NotImplementedError

    def list_directory(self, path: str) -> dict[str, int]:
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        found = (name for name in self.names if os.path.dirname(name) == path)
        return {os.path.basename(name): self.size_bytes(name) for name in found}

    def list_directories(self, path: str) -> list[str]:
        return [os.path.basename(name) for name in self.directories if os.path.dirname(name) == path]

    def list_others(self, path: str) -> list[str]:
        return self.list_directories(path)

    def is_link(self, path: str) -> bool:
        return False

    def make_directory(self, path: str) -> None:
        if path in self.directories:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._do(Op("mkdir", path=path))

    def remove_directory(self, path: str) -> None:
        self._do(Op("rmdir", path=path))

    def rename(self, source: str, target: str) -> None:
        self._do(Op("rename", path=source, target=target))

    def unlink(self, path: str) -> None:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._do(Op("unlink", path=path))

    # --- what is asked for, carried out ---

    def _do(self, op: Op) -> None:
        self.ops.append(op)
        self.apply(op)

    def apply(self, op: Op) -> None:
        """Carry out an operation; one whose names a crash has taken does nothing."""
        if op.kind == "create":
            self.contents.setdefault(op.inode, bytearray())
            if os.path.dirname(op.path) in self.directories:
                self.names[op.path] = op.inode
        elif op.kind == "write":
            content = self.contents.setdefault(op.inode, bytearray())
            content.extend(bytes(max(0, op.position - len(content))))
            content[op.position : op.position + len(op.content)] = op.content
        elif op.kind == "truncate":
            content = self.contents.setdefault(op.inode, bytearray())
            content.extend(bytes(max(0, op.position - len(content))))
            del content[op.position :]
        elif op.kind == "rename":
            if op.path in self.names:
                self.names[op.target] = self.names.pop(op.path)
        elif op.kind == "unlink":
            self.names.pop(op.path, None)
        elif op.kind == "mkdir":
            self.directories.add(op.path)
        elif op.kind == "rmdir":
            self.directories.discard(op.path)


def disk_with(ops: Iterable[Op]) -> MemoryFiles:
    """Return the disk that these operations leave; its own record begins empty."""
    files = MemoryFiles()
    for op in ops:
        files.apply(op)
    # A file that somebody wrote, but whose creation is lost, keeps its number.
    for inode in range(max(files.contents, default=-1) + 1):
        files.contents.setdefault(inode, bytearray())
    return files


def unsynced(ops: Sequence[Op]) -> list[int]:
    """The indexes of the operations that a power cut after the last of `ops` may undo."""
    pending: list[int] = []
    dropped: set[int] = set()
    for index, op in enumerate(ops):
        if op.kind in DATA or op.kind in NAMES:
            pending.append(index)
        elif op.kind in ("fdatasync", "failed_sync"):
            due = {each for each in pending if ops[each].kind in DATA and ops[each].inode == op.inode}
            if op.kind == "failed_sync":
                dropped |= due
            else:
                pending = [each for each in pending if each not in due - dropped]
        elif op.kind == "sync_directory":
            pending = [
                each
                for each in pending
                if not (ops[each].kind in NAMES and os.path.dirname(ops[each].target or ops[each].path) == op.path)
            ]
    return pending


class CrashState(NamedTuple):
    """One state of a disk after a crash: the operations that it was left by."""

    about: str
    at: int
    """So many operations of the trace had ended."""
    rebooted: bool
    ops: list[Op]


def crash_states(ops: Sequence[Op], at: int, torn: Iterable[float]) -> Iterable[CrashState]:
    """The states of a crash at the end of the first `at` operations; `torn`: where in a write it may end, 0 to 1."""
    before = list(ops[:at])
    last = before[-1]
    yield CrashState("killed", at, False, before)
    pending = unsynced(before)
    writes = [index for index in pending if before[index].kind == "write"]
    fractions = list(torn)

    def changed(index: int, **fields: object) -> list[Op]:
        return [*before[:index], before[index]._replace(**fields), *before[index + 1 :]]  # type: ignore[arg-type]

    if last.kind == "write":
        for fraction in fractions:
            kept = int(len(last.content) * fraction)
            yield CrashState(f"killed at byte {kept}", at - 1, False, changed(at - 1, content=last.content[:kept]))
    if not pending:
        return
    lost = set(pending)
    kept_ops = [op for index, op in enumerate(before) if index not in lost]
    yield CrashState("power cut, all unsynced lost", at, True, kept_ops)
    yield CrashState("power cut, all unsynced kept", at, True, before)
    for index in pending:
        about = f"power cut, {before[index].kind} {index} lost"
        yield CrashState(about, at, True, [*before[:index], *before[index + 1 :]])
    names = [op for index, op in enumerate(before) if index not in lost or op.kind in NAMES]
    yield CrashState("power cut, names without content", at, True, names)
    data = [op for index, op in enumerate(before) if index not in lost or op.kind in DATA]
    yield CrashState("power cut, content without names", at, True, data)
    for index in writes[-1:]:
        content = before[index].content
        old_bytes = len(disk_with(before[:index]).contents.get(before[index].inode, b""))
        for fraction in fractions:
            kept = int(len(content) * fraction)
            yield CrashState(f"power cut, write torn at {kept}", at, True, changed(index, content=content[:kept]))
            # What lay there before is still there; only where the file grew there may be nothing.
            kept = max(kept, old_bytes - before[index].position)
            if kept >= len(content):
                continue
            zeros = content[:kept] + bytes(len(content) - kept)
            yield CrashState(f"power cut, zeros from {kept}", at, True, changed(index, content=zeros))
