"""Find what a history of sends and polls proves wrong about a log. Pure: no broker, no clock, no files.

After the kafka workload of Jepsen (jepsen.tests.kafka). Every value is sent once and is unlike any other, so what
happened can be told from the values alone: each acknowledgement and each polled record places a value at an offset of
a log. A send is `ok` (acknowledged, at a known offset), `failed` (certainly not appended) or `unknown` (it may be
there).

Two things are stronger here than in Jepsen: offsets have no gaps, so a skipped offset needs no witness; and the final
read covers each log from its start to its end, so a value that is not in it is gone.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from tests.anomalies import Anomaly


class Log(NamedTuple):
    """One partition. A topic that is deleted and created again is another one: `incarnation` tells them apart."""

    topic: str
    partition: int
    incarnation: str = ""

    def __str__(self) -> str:
        return f"{self.topic}{self.incarnation and '@'}{self.incarnation}-{self.partition}"


class Outcome(enum.Enum):
    """Outcome of a send, as its sender learned it. A send that never ended is unknown."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Send(msgspec.Struct, eq=False):
    """One value on its way. `log` and `offset` are those of the acknowledgement."""

    process: str
    value: bytes
    order: bytes = b""
    """The sends of a process with the same `order` lie in each log in the order in which they began."""
    outcome: Outcome = Outcome.UNKNOWN
    log: Log | None = None
    offset: int = -1


class LogRecordId(NamedTuple):
    """Where a record lies."""

    log: Log
    offset: int

    def __str__(self) -> str:
        return f"{self.log}:{self.offset}"


class Poll(msgspec.Struct, eq=False):
    """Records that a reader was given, in their order."""

    process: str
    records: list[tuple[LogRecordId, bytes]]


class Seek(msgspec.Struct, eq=False):
    """A reader goes to another place in a log: the next record that it is given must be the one at `offset`."""

    process: str
    log: Log
    offset: int


class FinalRead(msgspec.Struct):
    """One log at the end: from its start offset on, offset by offset."""

    start_offset: int
    records: list[tuple[int, bytes]]


class Kind(enum.Enum):
    """The anomalies. Each has a test that shows it in a small history."""

    LOST = "acknowledged or read, then gone"
    UNSEEN = "acknowledged, but no reader ever got so far"
    DUPLICATE = "one value at two offsets"
    CONFLICT = "one offset with two values"
    FAILED_READ = "a value that was refused, read"
    PHANTOM = "a value that nobody sent, read"
    SKIP = "a poll that leaves out a record"
    BACK = "a poll that goes back"
    REORDERED = "a sender's values in another order than it sent them"
    GAP = "an offset without a record"


Event = Send | Poll | Seek


def check(history: Iterable[Event], final: Mapping[Log, FinalRead]) -> list[Anomaly]:
    """Return all that is wrong with a history, given what each log that still exists held at the end.

    Events stand in the order in which they began; an outcome is filled in later. Logs that are not in `final` were
    deleted: nothing of them can be lost, everything else is checked of them too.
    """
    events = list(history)
    sends = [event for event in events if isinstance(event, Send)]
    placed = _RecordIds()
    for send in sends:
        if send.outcome is Outcome.OK:
            assert send.log is not None
            placed.add(send.value, LogRecordId(send.log, send.offset))
    for event in events:
        if isinstance(event, Poll):
            for record_id, value in event.records:
                placed.add(value, record_id, read=True)
    for log, end in final.items():
        for offset, value in end.records:
            placed.add(value, LogRecordId(log, offset), read=True)
    return [
        *_gaps(final),
        *placed.anomalies(),
        *_wrong_reads(sends, placed),
        *_losses(placed, final),
        *_poll_order(events, final),
        *_send_order(sends, placed),
    ]


class _RecordIds:
    """Every value and record id that any event tells of."""

    def __init__(self) -> None:
        self.of_value: defaultdict[bytes, set[LogRecordId]] = defaultdict(set)
        self.values: defaultdict[LogRecordId, set[bytes]] = defaultdict(set)
        self.read: set[bytes] = set()
        """Values that a reader was given, at the end or before."""
        self.last_read: dict[Log, int] = {}

    def add(self, value: bytes, record_id: LogRecordId, *, read: bool = False) -> None:
        self.of_value[value].add(record_id)
        self.values[record_id].add(value)
        if read:
            self.read.add(value)
            self.last_read[record_id.log] = max(record_id.offset, self.last_read.get(record_id.log, -1))

    def anomalies(self) -> Iterable[Anomaly]:
        for value, record_ids in self.of_value.items():
            if len(record_ids) > 1:
                yield Anomaly(Kind.DUPLICATE, f"{_short(value)} at {', '.join(map(str, sorted(record_ids)))}")
        for record_id, values in self.values.items():
            if len(values) > 1:
                yield Anomaly(Kind.CONFLICT, f"{record_id} is {' and '.join(map(_short, sorted(values)))}")


def _gaps(final: Mapping[Log, FinalRead]) -> Iterable[Anomaly]:
    for log, end in final.items():
        expected = end.start_offset
        for offset, _value in end.records:
            if offset != expected:
                yield Anomaly(Kind.GAP, f"{log} has offset {offset} where {expected} should be, in the final read")
            expected = offset + 1


def _wrong_reads(sends: Iterable[Send], placed: _RecordIds) -> Iterable[Anomaly]:
    sent = set()
    for send in sends:
        sent.add(send.value)
        if send.outcome is Outcome.FAILED and send.value in placed.read:
            yield Anomaly(Kind.FAILED_READ, f"{_short(send.value)} of {send.process}{_at(placed, send.value)}")
    for value in placed.read - sent:
        yield Anomaly(Kind.PHANTOM, f"{_short(value)}{_at(placed, value)}")


def _losses(placed: _RecordIds, final: Mapping[Log, FinalRead]) -> Iterable[Anomaly]:
    kept = {log: {value for _offset, value in end.records} for log, end in final.items()}
    for value, record_ids in placed.of_value.items():
        for record_id in record_ids:
            end = final.get(record_id.log)
            if end is None or record_id.offset < end.start_offset or value in kept[record_id.log]:
                continue
            if value in placed.read or record_id.offset < placed.last_read.get(record_id.log, -1):
                yield Anomaly(Kind.LOST, f"{_short(value)} was at {record_id}")
            else:
                yield Anomaly(Kind.UNSEEN, f"{_short(value)} was acknowledged at {record_id}")


def _poll_order(events: Iterable[Event], final: Mapping[Log, FinalRead]) -> Iterable[Anomaly]:
    """Between two seeks a reader gets offset after offset, but for those that retention may have taken meanwhile."""
    expected: dict[tuple[str, Log], int] = {}
    for event in events:
        if isinstance(event, Seek):
            expected[event.process, event.log] = event.offset
        elif isinstance(event, Poll):
            for (log, offset), value in event.records:
                reader = event.process, log
                wanted = expected.get(reader, offset)
                expected[reader] = offset + 1
                if offset == wanted:
                    continue
                what = f"{event.process} got {_short(value)} at {log}:{offset} where {wanted} was next"
                if offset < wanted:
                    yield Anomaly(Kind.BACK, what)
                elif log not in final or offset > final[log].start_offset:
                    yield Anomaly(Kind.SKIP, what)


def _send_order(sends: Iterable[Send], placed: _RecordIds) -> Iterable[Anomaly]:
    """Whatever the outcome of a send."""
    last: dict[tuple[str, bytes, Log], Send] = {}
    last_offset: dict[tuple[str, bytes, Log], int] = {}
    for send in sends:
        for log, offset in sorted(placed.of_value.get(send.value, ())):
            sender = send.process, send.order, log
            if offset < last_offset.get(sender, -1):
                earlier = f"{_short(last[sender].value)} at {log}:{last_offset[sender]}"
                yield Anomaly(Kind.REORDERED, f"{send.process} sent {earlier} before {_short(send.value)} at {offset}")
            else:
                last[sender], last_offset[sender] = send, offset


def _at(placed: _RecordIds, value: bytes) -> str:
    return f" at {', '.join(map(str, sorted(placed.of_value[value])))}"


def _short(value: bytes) -> str:
    """The unique beginning of a value: what follows the first space only fills it up."""
    return value.split(b" ", 1)[0][:40].decode("ascii", "backslashreplace")
