"""The data directory that is moved: what it holds, and the batches of its partitions. It is only read.

The last run must have stopped cleanly. So everything in the logs is synced, and each partition ends at its recovery
point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from logbroker.broker.local_engine.numbers import NEXT_RECEIPT_KEY
from logbroker.broker.local_engine.state_store import STATE, state_key
from logbroker.broker.local_engine.topic_rows import TOPICS, decode_topic, partition_row_key
from logbroker.config import TopicConfig
from logbroker.engine import Topic
from logbroker.errors import CorruptLogError, DataDirError
from logbroker.group_runtime.group_store import GROUP_SCOPE, GROUPS_SCOPE, listed_types
from logbroker.record.codec import NewRecord, decode_batch, encode_batch
from logbroker.record.compression import Codec
from logbroker.record.header import BatchHeader
from logbroker.storage.data_dir import META_NAME, DataDir
from logbroker.storage.files import RealFiles
from logbroker.storage.metadata.issued_numbers import IssuedNumbers, read_issued
from logbroker.storage.metadata.metadata_store import MetadataReader, is_missing
from logbroker.storage.partition_checkpoint import BROKER, CLEAN_STOP, PARTITIONS, decode_partition
from logbroker.tools.segments.locate import SegmentFile, segments_in
from logbroker.tools.segments.log_file import HEADERS_WINDOW_BYTES, SCAN_WINDOW_BYTES, LogFile
from logbroker.tools.segments.scan import LogScan
from logbroker.types import TopicId

Progress = Callable[[int], None]
"""Called with the number of bytes since its last call."""

_PROGRESS_BYTES: Final = 1 << 20


class LocalPartition:
    """The log of one partition, from its log start offset to its end."""

    def __init__(self, name: str, segments: tuple[SegmentFile, ...], start_offset: int, end_offset: int) -> None:
        self.name = name
        """Name of its directory, `<topic>-<partition>`."""
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.first_offset = end_offset
        """Base offset of the first batch that is moved. It may be below `start_offset`, which may lie in a batch."""
        self.size_bytes = 0
        self.largest_bytes = 0
        """Size of the largest batch."""
        self._segments = segments

    @property
    def records(self) -> int:
        return self.end_offset - self.start_offset

    def look_through(self, progress: Progress) -> None:
        """Read all headers, and set the sizes. Raises CorruptLogError for damage, and DataDirError for what cannot be
        moved."""
        for header, _ in self._walk(0, progress, whole=False):
            if header.is_control or header.is_transactional:
                raise DataDirError(
                    f"{self.name}: the batch at offset {header.base_offset} is of a transaction, which no producer can"
                    " append again; delete the topic, or the records up to there, before the move"
                )
            if not self.size_bytes:
                self.first_offset = header.base_offset
            self.size_bytes += header.size_bytes
            self.largest_bytes = max(self.largest_bytes, header.size_bytes)

    def batches(self, offset: int, progress: Progress) -> Iterator[tuple[BatchHeader, bytes]]:
        """Yield the batches that end above an offset, as they are appended to a cluster. Raises CorruptLogError."""
        for header, batch in self._walk(offset, progress, whole=True):
            yield header, _with_own_times(header, batch)

    def _walk(self, offset: int, progress: Progress, *, whole: bool) -> Iterator[tuple[BatchHeader, bytes]]:
        """Yield the headers, and with `whole` the batches, whose CRC is checked then."""
        below = max(offset, self.start_offset)
        expected = -1
        for index, segment in enumerate(self._segments):
            following = self._segments[index + 1 :]
            if following and following[0].base_offset <= below:
                continue
            wanted = min(below, segment.base_offset) if expected < 0 else expected
            if segment.base_offset != wanted:
                raise self._gap(wanted, segment.base_offset)
            with LogFile(segment.path, SCAN_WINDOW_BYTES if whole else HEADERS_WINDOW_BYTES) as log:
                scan, told = LogScan(log, segment.base_offset, gaps_allowed=False, check_crc=whole), 0
                for position, header in scan.batches():
                    if header.next_offset <= below:
                        continue
                    yield header, log.read(position, header.size_bytes) if whole else b""
                    if position - told >= _PROGRESS_BYTES:
                        progress(position - told)
                        told = position
                progress(log.size_bytes - told)
                if scan.faults:
                    fault = scan.faults[0]
                    raise CorruptLogError(
                        f"{segment.path}, byte {fault.position}, offset {fault.offset}: {fault.reason}; a partition"
                        " with missing or damaged records cannot be moved: see `logbroker segment verify`, or delete"
                        " the topic, or its records up to there (logbroker topic delete-records)"
                    )
            expected = scan.next_offset
        if expected not in (-1, self.end_offset) or (expected < 0 and self.records):
            raise CorruptLogError(
                f"{self.name} should end at offset {self.end_offset}, but its files end at {max(expected, 0)}: it was"
                " offline in the last run, or files were changed since; start the broker, which says what is wrong"
            )

    def _gap(self, expected: int, found: int) -> CorruptLogError:
        return CorruptLogError(
            f"{self.name}: offsets {expected} to {found - 1} are missing; a cluster has no place for a gap: delete the"
            f" topic, or its records below {found} (logbroker topic delete-records), before the move"
        )


class Source(msgspec.Struct, frozen=True):
    """The contents of a data directory."""

    topics: list[Topic]
    partitions: dict[TopicId, list[LocalPartition]]
    groups: dict[str, dict[bytes, bytes]]
    """The rows of each group, by its id."""
    listed: dict[str, bytes]
    """The row of each group in the list of groups."""
    next_receipt: int
    """Number above all receipts, fencing tokens and group epochs that were given out."""

    def all_partitions(self) -> list[LocalPartition]:
        return [each for of_topic in self.partitions.values() for each in of_topic]


@contextmanager
def open_source(data_dir: Path) -> Iterator[Source]:
    """Read what a data directory holds, and keep brokers out meanwhile.

    Raises DataDirError if a broker runs, the last one did not stop cleanly or there is no data directory, and
    CorruptLogError.
    """
    if is_missing(data_dir / META_NAME):
        raise DataDirError(f"there is no data directory of a broker at {data_dir}: name one (--data-dir)")
    held = DataDir.open(data_dir)
    try:
        reader = MetadataReader.open(held.meta_path)
        try:
            source = _read(reader, held.path)
        finally:
            reader.close()
        yield source
    finally:
        held.close()


def _read(reader: MetadataReader, path: Path) -> Source:
    if reader.get(BROKER, CLEAN_STOP) is None:
        raise DataDirError(
            f"the last broker on {path} did not stop cleanly: start it once more, so that it recovers its logs, and"
            " stop it (SIGTERM), then move the directory"
        )
    found = [decode_topic(TopicId(key), value, TopicConfig()) for key, value in reader.scan(TOPICS)]
    topics = sorted((topic for topic, is_deleted in found if not is_deleted), key=lambda topic: topic.name)
    rows = dict(reader.scan(PARTITIONS))
    state = dict(reader.scan(STATE))
    listed = {key.decode(): value for key, value in _rows_of(state, GROUPS_SCOPE).items()}
    listed_types({key.encode(): value for key, value in listed.items()})  # Raises CorruptLogError.
    issued = read_issued(str(path), RealFiles()) or IssuedNumbers()
    return Source(
        topics=topics,
        partitions={
            topic.id: [_partition(path, topic, number, rows) for number in range(topic.partitions)] for topic in topics
        },
        groups={group_id: _rows_of(state, GROUP_SCOPE + group_id) for group_id in listed},
        listed=listed,
        next_receipt=max(issued.receipts, int.from_bytes(reader.get(BROKER, NEXT_RECEIPT_KEY) or b"", "big")),
    )


def _partition(path: Path, topic: Topic, number: int, rows: Mapping[bytes, bytes]) -> LocalPartition:
    key = partition_row_key(topic.id, number)
    name = f"{topic.name}-{number}"
    start = end = 0
    if key in rows:
        checkpoint = decode_partition(key, rows[key])
        start, end = checkpoint.log_start_offset, checkpoint.recovery_point
    try:
        segments = segments_in(path / name)
    except FileNotFoundError:
        segments = ()
    return LocalPartition(name, segments, start, end)


def _rows_of(state: Mapping[bytes, bytes], scope: str) -> dict[bytes, bytes]:
    prefix = state_key(scope, b"")
    return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}


def _with_own_times(header: BatchHeader, batch: bytes) -> bytes:
    """Return a batch whose records carry the times that readers see. A broker that stamps batches (LogAppendTime) does
    so in the header alone, and a cluster takes no batch that is stamped already."""
    if not header.is_log_append_time:
        return batch
    records = [NewRecord(each.value, each.key, each.headers, each.timestamp_ms) for each in decode_batch(batch)]
    return encode_batch(records, codec=Codec(header.codec))
