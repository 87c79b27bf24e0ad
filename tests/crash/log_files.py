"""The partition directories of a broker as another implementation reads them: aiokafka's, none of the broker's code.

`LogFiles.read` is called while no broker runs, after every life. It goes through what is new since the last call and
says where each log ends and what a recovery has to cut off. Bytes that were good once must stay as they were, so they
are not read again; `read_all` does.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec
from aiokafka.errors import CorruptRecordException
from aiokafka.record.memory_records import MemoryRecords

from tests.crash.checker import FinalRead, Log

_HEADER_BYTES: Final = 61
_MAGIC_AT: Final = 16
_LENGTH_AT: Final = 8
_LENGTH_OVERHEAD_BYTES: Final = 12
_DIRECTORY = re.compile(r"(.+)-(\d+)")


class BrokenFilesError(AssertionError):
    """The files are not what any crash could have left."""


class TornTail(msgspec.Struct, frozen=True):
    """Bytes at the end of a log that are no whole good batch."""

    path: Path
    position: int
    content: bytes

    @property
    def side_path(self) -> Path:
        """Where a recovery must keep them."""
        return self.path.with_name(f"{self.path.name}.cut-{self.position}")

    def kept(self) -> list[bytes]:
        """Return the bytes that recoveries have cut off here so far."""
        later = self.path.parent.glob(f"{self.side_path.name}-*")
        return [path.read_bytes() for path in (self.side_path, *later) if path.exists()]


class LogOnDisk(msgspec.Struct):
    """Known state of one partition directory."""

    start_offset: int = -1
    end_offset: int = -1
    """-1: it has no records, or none yet."""
    values: dict[int, bytes] = {}
    torn: TornTail | None = None
    good_bytes: dict[str, tuple[int, int]] = {}
    """Per segment: how far it was read, and the offset there."""


class LogFiles:
    """All logs of one data directory."""

    def __init__(self, data_dir: Path, *, incarnated: frozenset[str] = frozenset()) -> None:
        """`incarnated`: the topics that are deleted and created again."""
        self._data_dir = data_dir
        self._incarnated = incarnated
        self.logs: dict[Log, LogOnDisk] = {}
        self.bytes_read = 0

    def read(self, *, power_cut: bool) -> None:
        """Read what is new. After a killed process only the end of a log may be torn, after a power cut all that
        follows a bad batch may be anything. Raises BrokenFilesError.
        """
        present = set()
        for directory in sorted(self._data_dir.iterdir()):
            log = self._log_of(directory)
            if log is not None:
                present.add(log)
                self._read_log(self.logs.setdefault(log, LogOnDisk()), directory, power_cut=power_cut)
        for log in self.logs.keys() - present:
            del self.logs[log]

    def final(self) -> dict[Log, FinalRead]:
        """Every log from its first record on."""
        return {log: FinalRead(found.start_offset, sorted(found.values.items())) for log, found in self.logs.items()}

    def _log_of(self, directory: Path) -> Log | None:
        match = _DIRECTORY.fullmatch(directory.name)
        metadata = directory / "partition.metadata"
        if match is None or not metadata.exists():
            return None
        fields = dict(line.partition(": ")[::2] for line in metadata.read_text(encoding="ascii").splitlines())
        topic_id = fields.get("topic_id", "")
        return Log(match[1], int(match[2]), topic_id if match[1] in self._incarnated else "")

    def _read_log(self, log: LogOnDisk, directory: Path, *, power_cut: bool) -> None:
        torn: TornTail | None = None
        segments = sorted(directory.glob("*.log"))
        # A segment is made before the records that come before it are written.
        while len(segments) > 1 and not segments[-1].stat().st_size:
            segments.pop()
        for gone in log.good_bytes.keys() - {path.name for path in segments}:
            del log.good_bytes[gone]
        expected = -1
        for index, path in enumerate(segments):
            base_offset = int(path.stem)
            if torn is not None or (expected >= 0 and base_offset != expected):
                if not power_cut:
                    raise BrokenFilesError(f"{path} follows offset {expected}, torn at {torn and torn.position}")
                break
            if index == 0:
                log.start_offset = base_offset
                log.values = {offset: value for offset, value in log.values.items() if offset >= base_offset}
            expected, torn = self._read_segment(log, path, base_offset)
        log.torn = torn
        log.end_offset = expected
        if torn is not None and not power_cut and (later := _good_batch_after(torn)) >= 0:
            raise BrokenFilesError(f"{torn.path}: a good batch at byte {later} behind the bad one")
        log.values = {offset: value for offset, value in log.values.items() if offset < expected}

    def _read_segment(self, log: LogOnDisk, path: Path, base_offset: int) -> tuple[int, TornTail | None]:
        """Take over the good batches; returns the offset behind them, and what follows."""
        position, offset = log.good_bytes.get(path.name, (0, base_offset))
        with path.open("rb") as file:
            file.seek(position)
            content = file.read()
        if path.stat().st_size < position:
            raise BrokenFilesError(f"{path} had {position} good bytes and has {path.stat().st_size} now")
        self.bytes_read += len(content)
        start = 0
        while size_bytes := _whole_batch(content, start):
            # One by one: MemoryRecords looks ahead, and what follows may be torn.
            batch = MemoryRecords(content[start : start + size_bytes]).next_batch()
            if not _is_good(batch) or batch.base_offset != offset:
                break
            for record in batch:
                if record.offset != offset:
                    raise BrokenFilesError(f"{path}: offset {record.offset} where {offset} should be")
                log.values[offset] = record.value
                offset += 1
            start += size_bytes
        log.good_bytes[path.name] = position + start, offset
        torn = TornTail(path, position + start, content[start:]) if start < len(content) else None
        return offset, torn


def _whole_batch(content: bytes, start: int) -> int:
    """The size of the batch at `start` if its bytes can be there; else 0."""
    if len(content) - start < _HEADER_BYTES or content[start + _MAGIC_AT] != 2:
        return 0
    length = int.from_bytes(content[start + _LENGTH_AT : start + _LENGTH_AT + 4], "big", signed=True)
    size_bytes = length + _LENGTH_OVERHEAD_BYTES
    return size_bytes if _HEADER_BYTES <= size_bytes <= len(content) - start else 0


def _is_good(batch: object) -> bool:
    try:
        return batch is not None and bool(batch.validate_crc())  # type: ignore[attr-defined]
    except CorruptRecordException:
        return False


def _good_batch_after(torn: TornTail) -> int:
    content = torn.content
    for start in range(1, len(content) - _HEADER_BYTES):
        size_bytes = _whole_batch(content, start)
        if size_bytes and _is_good(MemoryRecords(content[start : start + size_bytes]).next_batch()):
            return torn.position + start
    return -1
