"""The file work of one partition's appends. It runs on any thread, but at most one thread writes and one thread syncs
at a time. It makes no decisions."""

from __future__ import annotations

from functools import partial

import msgspec

from logbroker.errors import TooManyOpenFilesError
from logbroker.storage.files import Files, replace_file, storage_failed, write_all
from logbroker.storage.handles import HandleCache
from logbroker.storage.partition_files import EPOCHS_NAME, METADATA_NAME, EpochStart, encode_epochs
from logbroker.storage.segment import Segment
from logbroker.storage.write_group import WriteGroup

_UNSAVED_INDEX_BYTES = 4096
"""Size of the unsaved index entries at which they are saved. This limits memory, and the part of the log that a
recovery has to walk."""


class SyncDue(msgspec.Struct, frozen=True):
    """The files that a sync has to cover: everything written since the previous sync."""

    segments: list[Segment]
    sealed: list[Segment]
    epochs: list[EpochStart] | None
    new_segment: bool
    new_directory: bool


class LogWriter:
    """Writes the write groups of a partition, and tracks which files a sync has to cover."""

    __slots__ = ("_directory", "_dirty", "_epochs", "_files", "_handles", "_new_directory", "_new_segment", "_sealed")

    def __init__(self, directory: str, files: Files, handles: HandleCache, *, new_directory: bool) -> None:
        self._directory = directory
        self._files = files
        self._handles = handles
        self._new_directory = new_directory
        """Whether the directory's name and its partition.metadata may be unsynced."""
        self._new_segment = False
        self._epochs: list[EpochStart] | None = None
        self._dirty: dict[Segment, None] = {}
        self._sealed: list[Segment] = []

    def write(self, group: WriteGroup) -> None:
        """See PartitionLog.write."""
        for segment, position, buffers in group.runs:
            path = segment.log_path
            self._dirty[segment] = None
            try:
                handle = self._handles.acquire(path)
                try:
                    handle.dirty = True
                    write_all(self._files, handle.fd, buffers, position)
                finally:
                    self._handles.release(handle)
            except OSError as error:
                raise storage_failed("write", path, error) from error
            except TooManyOpenFilesError as error:
                # The offsets are assigned, so it is too late for a refusal. `stage` had the file open a moment ago.
                raise storage_failed("write", path, OSError(error.message)) from error
        for segment in group.sealed:
            segment.save_indexes()
            self._sealed.append(segment)
        active = group.runs[-1][0]
        # While a segment takes appends, it gets time entries only together with offset entries.
        if active.offset_index.unsaved_bytes > _UNSAVED_INDEX_BYTES:
            active.save_indexes()
        self._new_segment |= group.created_segment
        if group.epochs is not None:
            self._epochs = group.epochs

    def begin_sync(self) -> SyncDue:
        """See PartitionLog.begin_sync."""
        due = SyncDue(
            segments=list(self._dirty),
            sealed=self._sealed,
            epochs=self._epochs,
            new_segment=self._new_segment,
            new_directory=self._new_directory and self._new_segment,
        )
        self._dirty = {}
        self._sealed = []
        self._epochs = None
        self._new_segment = False
        self._new_directory &= not due.new_directory
        return due

    def sync(self, due: SyncDue) -> None:
        """See PartitionLog.sync. Directories are synced last: a name on disk must lead to synced bytes."""
        path = self._directory
        try:
            if due.new_directory:
                path = f"{self._directory}/{METADATA_NAME}"
                with self._handles.pinned(path) as handle:
                    self._files.fdatasync(handle.fd)
                self._handles.forget(path)
            if due.epochs is not None:
                path = f"{self._directory}/{EPOCHS_NAME}"
                content = encode_epochs(due.epochs)
                self._handles.with_room(partial(replace_file, self._files, path, content))
            for segment in due.segments:
                path = segment.log_path
                self._sync_log(segment)
            for segment in due.sealed:
                if not segment.removed:
                    segment.sync_indexes()
            if due.new_segment or due.epochs is not None:
                path = self._directory
                self._handles.with_room(partial(self._files.sync_directory, path))
            if due.new_directory:
                path = self._directory.rpartition("/")[0]
                self._handles.with_room(partial(self._files.sync_directory, path))
        except OSError as error:
            raise storage_failed("sync", path, error) from error
        except TooManyOpenFilesError as error:
            raise storage_failed("sync", path, OSError(error.message)) from error

    def _sync_log(self, segment: Segment) -> None:
        try:
            handle = self._handles.acquire(segment.log_path)
        except FileNotFoundError:
            if segment.removed:  # by retention, before it was ever synced
                return
            raise
        try:
            # Reset before the sync: a write during the sync makes the file dirty again.
            handle.dirty = False
            self._files.fdatasync(handle.fd)
        finally:
            self._handles.release(handle)
