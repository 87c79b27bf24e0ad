"""Columns that the scan of a queue group takes from the log: offsets, ordering keys, not-before times and priorities.

A queue admits a piece in one step, which blocks the event loop. So small batches are joined into one piece, and large
ones are cut.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import msgspec

from logbroker.errors import LogbrokerError
from logbroker.queues.model.lane import MAX_KEY_BYTES, lane_key
from logbroker.queues.model.settings import Ordering, QueueGroupSettings
from logbroker.queues.model.splits import Keying, Split
from logbroker.queues.priority.levels import Head
from logbroker.record.codec import Headers, LogRecord
from logbroker.record.message_headers import DEFAULT_PRIORITY, NOT_BEFORE, PRIORITY, not_before_ms, priority_of
from logbroker.record.stored_batch import StoredBatch

MAX_RECORDS: Final = 4096
"""Maximum number of records of one piece, which is admitted in 1 to 4 ms."""
MAX_BATCHES: Final = 512
"""Maximum number of batches of one piece. Decoding and keeping a batch takes some microseconds, even if it is small."""

MAX_BYTES: Final = 4 * 1024 * 1024
"""Size of the batches of one piece, expanded ones included, from which no more are added."""

NOT_BEFORE_BYTES: Final = NOT_BEFORE.encode()
_PRIORITY_BYTES: Final = PRIORITY.encode()


class Columns(msgspec.Struct):
    """Consecutive records of one partition."""

    offsets: Sequence[int]
    """Offsets; a range if they are consecutive."""
    next_offset: int
    """Offset after these columns: every record below it is in these columns or in earlier ones."""
    keys: list[bytes | None]
    """Key of each record's lane or sub-lane; empty with ordering `none`, and with `single` unless a lane is split."""
    not_before: list[tuple[int, int]]
    """Offsets and not-before times (wall clock, ms)."""
    priorities: bytes
    """Priority of each record, a byte of 0 to 9; empty in a group without priorities, like `times`."""
    times: array[int]
    """Timestamps (ms); -1: none."""
    batches: list[StoredBatch]
    """Batches that end in these columns."""
    size_bytes: int = 0
    """Approximate size of the batches in memory."""

    def has_room_for(self, more: Columns) -> bool:
        """Return whether these columns and the following ones may be one piece."""
        return (
            len(self.offsets) + len(more.offsets) <= MAX_RECORDS
            and len(self.batches) < MAX_BATCHES
            and self.size_bytes < MAX_BYTES
        )

    def add(self, more: Columns) -> None:
        """Append the columns that follow."""
        if not self.offsets:
            self.offsets = more.offsets
        elif _follows(more.offsets, self.offsets):
            self.offsets = range(self.offsets[0], more.offsets[-1] + 1)
        elif isinstance(self.offsets, list):
            self.offsets += more.offsets
        else:
            self.offsets = [*self.offsets, *more.offsets]
        self.next_offset = more.next_offset
        self.keys += more.keys
        self.not_before += more.not_before
        self.priorities += more.priorities
        self.times += more.times
        self.batches += more.batches
        self.size_bytes += more.size_bytes


class Block(msgspec.Struct):
    """A block of consecutive records of one partition from an earlier scan: the facts that are needed before it is
    read."""

    first_offset: int
    next_offset: int
    """End of the block: every record from `first_offset` to before it is in the block."""
    counts: Sequence[int]
    """Number of records of each priority, 0 to 9."""
    heads: Sequence[Head]
    """Head of each priority; undefined for a priority without records."""
    due_ms: int
    """Latest not-before time (ms); 0: none."""
    load: Callable[[], Columns | None]
    """Returns the columns of the block, or None if it cannot be read; cheap enough to call repeatedly."""
    is_last: bool = False
    """Whether no readable record follows the block."""


class Undecodable(msgspec.Struct):
    """A batch that cannot be decoded."""

    batch: StoredBatch
    error: LogbrokerError


def columns_of(
    batches: Iterable[StoredBatch],
    position: int,
    settings: QueueGroupSettings,
    keying: Keying | None = None,
    partition: int = 0,
) -> Iterator[Columns | Undecodable]:
    """Yield the columns of batches of one partition, from offset `position` on. `keying`: the splits in force; None: no
    lane is split.

    Batches are decoded one by one, when the caller asks for more columns. Raises an error of the iteration over
    `batches` after yielding everything before it.
    """
    gathered: Columns | None = None
    broken: LogbrokerError | None = None
    rest = iter(batches)
    while broken is None:
        try:
            batch = next(rest, None)
        except LogbrokerError as error:
            broken = error.as_value()
            continue
        if batch is None:
            break
        if batch.header.next_offset <= position:
            continue
        try:
            columns = _columns(batch, settings, keying, partition)
        except LogbrokerError as error:
            batch.let_go()
            undecodable = Undecodable(batch, error.as_value())
            if gathered is not None:
                yield gathered
                gathered = None
            yield undecodable
            continue
        for piece in _cut(columns, position):
            if gathered is None:
                gathered = piece
            elif gathered.has_room_for(piece):
                gathered.add(piece)
            else:
                yield gathered
                gathered = piece
    if gathered is not None:
        yield gathered
    if broken is not None:
        raise broken


def _columns(batch: StoredBatch, settings: QueueGroupSettings, keying: Keying | None, partition: int) -> Columns:
    """Decode a batch into columns. Raises the errors of `StoredBatch`."""
    header = batch.header
    if header.is_control:
        return Columns((), header.next_offset, [], [], b"", array("q"), [])
    # Most batches have none of these headers. Then only a search in their bytes is needed.
    plain = batch.plain()
    has_not_before = NOT_BEFORE_BYTES in plain
    has_priority = settings.has_priorities and _PRIORITY_BYTES in plain
    has_split = keying is not None and bool(keying.splits) and keying.may_split(plain)
    fields = [
        field
        for field, is_needed in (
            ("key", has_split or (settings.ordering is Ordering.KEY and not settings.key_header)),
            ("headers", settings.key_header or has_not_before or has_priority or has_split),
            ("timestamp", settings.has_priorities),
        )
        if is_needed
    ]
    offsets, values = _decoded(batch, fields)
    record_keys: list[bytes | None] = values.get("key", [])
    headers: list[Headers] = values.get("headers", [])
    keys = record_keys if settings.ordering is Ordering.KEY else []
    if settings.key_header:
        keys = [_value_of(settings.key_header, each) for each in headers]
    if any(key is not None and len(key) > MAX_KEY_BYTES for key in keys):
        keys = [None if key is None else lane_key(key) for key in keys]
    if keying is not None and keying.splits and settings.ordering is Ordering.SINGLE:
        keys = [b""] * len(offsets)
    if has_split and keying is not None:
        keys = _split(keys, keying.splits, partition, offsets, record_keys, headers)
    not_before: list[tuple[int, int]] = []
    if has_not_before:
        due = map(not_before_ms, headers)
        not_before = [(offset, due_ms) for offset, due_ms in zip(offsets, due, strict=True) if due_ms is not None]
    priorities, times = b"", array("q")
    if settings.has_priorities:
        priorities = bytes(map(priority_of, headers)) if has_priority else bytes((DEFAULT_PRIORITY,)) * len(offsets)
        try:
            times.extend(values["timestamp"])
        except TypeError:
            times = array("q", [-1 if stamp is None else stamp for stamp in values["timestamp"]])
    batch.let_go()
    return Columns(offsets, header.next_offset, keys, not_before, priorities, times, [batch], batch.size_bytes)


def _split(
    keys: list[bytes | None],
    splits: Mapping[bytes, Split],
    partition: int,
    offsets: Sequence[int],
    record_keys: Sequence[bytes | None],
    headers: Sequence[Headers],
) -> list[bytes | None]:
    """Return lane keys, with the keys of sub-lanes in the place of the keys of split lanes."""
    split: list[bytes | None] = []
    for key, offset, record_key, each in zip(keys, offsets, record_keys, headers, strict=True):
        rule = None if key is None else splits.get(key)
        if rule is not None and rule.holds(partition, offset):
            split.append(rule.sub_lane(rule.number_of(offset, record_key, each)))
        else:
            split.append(key)
    return split


def _decoded(batch: StoredBatch, fields: list[str]) -> tuple[Sequence[int], dict[str, list[Any]]]:
    """Return the offsets and fields of all records, decoded in one pass."""
    offsets, values = batch.column(*(fields or ["offset"]))
    if len(fields) < 2:
        return offsets, dict.fromkeys(fields, values)
    return offsets, {field: list(map(itemgetter(at), values)) for at, field in enumerate(fields)}


def lane_key_of(
    record: LogRecord, settings: QueueGroupSettings, keying: Keying | None = None, partition: int = 0
) -> bytes | None:
    """Return the key of the lane or sub-lane of a record of a partition; None: it has no ordering key. Without
    `keying`, no lane is split."""
    if settings.ordering is not Ordering.KEY:
        key = b"" if settings.ordering is Ordering.SINGLE else None
    else:
        key = _value_of(settings.key_header, record.headers) if settings.key_header else record.key
    if key is None:
        return None
    key = lane_key(key)
    split = None if keying is None else keying.splits.get(key)
    if split is None or not split.holds(partition, record.offset):
        return key
    return split.sub_lane(split.number_of(record.offset, record.key, record.headers))


def _cut(columns: Columns, position: int) -> Iterator[Columns]:
    offsets = columns.offsets
    if len(offsets) <= MAX_RECORDS:
        yield columns
        return
    for start in range(0, len(offsets), MAX_RECORDS):
        end = start + MAX_RECORDS
        is_last = end >= len(offsets)
        next_offset = columns.next_offset if is_last else offsets[end]
        if next_offset > position:
            due = columns.not_before
            not_before = due[bisect_left(due, (offsets[start],)) : bisect_left(due, (next_offset,))]
            batches, size_bytes = (columns.batches, columns.size_bytes) if is_last else ([], 0)
            yield Columns(
                offsets[start:end],
                next_offset,
                columns.keys[start:end],
                not_before,
                columns.priorities[start:end],
                columns.times[start:end],
                batches,
                size_bytes,
            )


def _value_of(name: str, headers: Headers) -> bytes | None:
    """Return the last value of a header, as Kafka's clients read it."""
    return next((value for each, value in reversed(headers) if each == name), None)


def _follows(later: Sequence[int], earlier: Sequence[int]) -> bool:
    return isinstance(earlier, range) and isinstance(later, range) and earlier.stop == later.start
