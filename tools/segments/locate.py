"""The meaning of a path on the command line: a log file, a partition's directory, or a data directory."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from logbroker.errors import CorruptLogError, InvalidRequestError
from logbroker.storage.data_dir import LOCK_NAME, META_NAME
from logbroker.storage.files import what_is_at
from logbroker.storage.metadata.metadata_store import DATA_NAME
from logbroker.storage.partition_files import METADATA_NAME
from logbroker.storage.removal import is_set_aside
from logbroker.storage.segment import base_offset_of

LOG_SUFFIX: Final = ".log"
_PARTITION_NAME: Final = re.compile(r"(.+)-(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFile:
    """A log file, and the paths of its indexes."""

    path: str
    base_offset: int
    """-1 if the name does not show it, as for a side file of a repair."""

    @property
    def index_path(self) -> str:
        return self.path.removesuffix(LOG_SUFFIX) + ".index"

    @property
    def time_index_path(self) -> str:
        return self.path.removesuffix(LOG_SUFFIX) + ".timeindex"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFiles:
    """Segments of one partition directory."""

    directory: Path
    segments: tuple[SegmentFile, ...]
    """In the order of their offsets. If a file was named, only this file."""
    whole: bool
    """Whether `segments` holds all segments of the directory."""

    def listed(self) -> tuple[SegmentFile, ...]:
        """Return the segments; none if a running broker has removed the directory meanwhile. Raises OSError if the
        directory cannot be listed."""
        return self.segments or (_segments_left_in(self.directory) if self.whole else ())

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def topic_partition(self) -> tuple[str, int] | None:
        match = _PARTITION_NAME.fullmatch(self.name)
        return (match[1], int(match[2])) if match else None

    @property
    def parents(self) -> list[Path]:
        """The parent directory by its path, and the parent directories behind symbolic links of the directory or of a
        named log."""
        linked = [] if self.whole else [Path(os.path.realpath(segment.path)).parent for segment in self.segments]
        return list(dict.fromkeys(path.parent for path in (self.directory, self.directory.resolve(), *linked)))

    @property
    def data_dir(self) -> Path | None:
        """The data directory of logbroker that contains the partition, if any."""
        return next((path for path in self.parents if has_store(path) or os.path.lexists(path / LOCK_NAME)), None)

    def is_last(self, segment: SegmentFile) -> bool:
        """Whether no segment with content follows in the directory, even if only this one was named."""
        behind = self.segments if self.whole else _segments_left_in(self.directory)
        # The last one usually has content, so this looks at one file, however many there are.
        return not any(
            any(file_bytes([each]).values()) for each in reversed(behind) if each.base_offset > segment.base_offset
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """The partitions and data directories that paths name."""

    partitions: list[PartitionFiles]
    """Without duplicates, sorted by name within a data directory."""
    data_dirs: list[Path]
    """Data directories that were named as a whole."""


def check_not_special(path: Path) -> None:
    """Raise CorruptLogError for a path that exists and is neither a file nor a directory nor a link to one of these."""
    if os.path.lexists(path) and not (path.is_file() or path.is_dir()):
        raise CorruptLogError(
            f"{path}: {what_is_at(path)}; move it away, then name the partition's directory to see what is missing"
        )


def locate(paths: Iterable[Path]) -> Located:
    """Find the partitions that the paths name.

    Raises InvalidRequestError for a path that is neither a log file nor a partition's directory nor a data directory,
    and OSError.
    """
    found: dict[str, PartitionFiles] = {}
    absolute = [Path(os.path.abspath(path)) for path in paths]
    for path in absolute:
        for partition in _partitions(path):
            key = str(partition.directory) if partition.whole else partition.segments[0].path
            found.setdefault(key, partition)
    data_dirs = [path for path in absolute if has_store(path)]
    return Located(partitions=list(found.values()), data_dirs=data_dirs)


def _partitions(path: Path) -> list[PartitionFiles]:
    if not path.is_dir():
        if path.suffix in (".index", ".timeindex"):
            raise InvalidRequestError(f"{path} is an index; name its {LOG_SUFFIX} file")
        os.stat(path)
        return [PartitionFiles(directory=path.parent, segments=(segment_file(path),), whole=False)]
    if has_partition_files(path):
        return [_partition(path)]
    children = sorted((child for child in path.iterdir() if _is_partition(child)), key=_by_topic_and_number)
    if not children and not has_store(path):
        if not os.listdir(path):
            raise InvalidRequestError(f"{path} is empty: there is no partition in it")
        raise InvalidRequestError(f"{path} is neither a log file nor a partition's directory nor a data directory")
    return [_partition(child) for child in children]


def _is_partition(path: Path) -> bool:
    return (
        path.is_dir()
        and _PARTITION_NAME.fullmatch(path.name) is not None
        and not is_set_aside(path.name)
        and has_partition_files(path)
    )


def has_partition_files(directory: Path) -> bool:
    """Return whether a directory has partition.metadata or a segment, or cannot be read."""
    try:
        return any(name == METADATA_NAME or base_offset_of(name) is not None for name in os.listdir(directory))
    except OSError:
        return True  # The reader reports the error.


def has_store(directory: Path) -> bool:
    """Whether a directory has a metadata store, or something else in its place, or cannot be read."""
    try:
        os.lstat(directory / META_NAME / DATA_NAME)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _by_topic_and_number(path: Path) -> tuple[str, int]:
    topic, _, number = path.name.rpartition("-")
    return topic, int(number)


def _partition(directory: Path) -> PartitionFiles:
    try:
        segments = segments_in(directory)
    except OSError:
        segments = ()  # Whoever reads the partition reports the error: see `listed`.
    return PartitionFiles(directory=directory, segments=segments, whole=True)


def segments_in(directory: Path) -> tuple[SegmentFile, ...]:
    """Return all log files of a directory, in order. Raises OSError."""
    segments = (segment_file(directory / name) for name in sorted(os.listdir(directory)))
    return tuple(segment for segment in segments if segment.base_offset >= 0)


def _segments_left_in(directory: Path) -> tuple[SegmentFile, ...]:
    """Return all log files of a directory, in order; none if a running broker has removed it. Raises OSError."""
    try:
        return segments_in(directory)
    except FileNotFoundError:
        return ()


def segment_file(path: Path) -> SegmentFile:
    """Return a log file, with the base offset that its name shows."""
    base_offset = base_offset_of(path.name)
    return SegmentFile(path=str(path), base_offset=-1 if base_offset is None else base_offset)


def file_bytes(segments: Iterable[SegmentFile]) -> dict[int, int]:
    """Return the sizes of log files by their base offsets.

    Leaves out files that a running broker has removed meanwhile, and paths that are no files or cannot be read: the
    reader reports them.
    """
    sizes = {}
    for segment in segments:
        with suppress(OSError):
            found = os.stat(segment.path)
            if stat.S_ISREG(found.st_mode):
                sizes[segment.base_offset] = found.st_size
    return sizes
