"""Find what the history of a group's members proves wrong about the group. Pure: no broker, no clock, no files.

A *span* is the time in which a member's program has a partition: from the moment it is told so, to the moment it is
told that the partition goes. What can be proved of other members' spans:

- A span that ended with `revoked` lasted until then: the broker may give the partition to nobody before.
- A span that ended otherwise (`lost`, a kill, nothing) ended at an unknown time, but not before the last record that
  was delivered in it. So does every span in which the process stood still, or the broker was killed and the member may
  not have come back in time: the partition may have been given away meanwhile.
- A beginning and a delivery count from the moment at which the client made sure of its right: what the program had in
  hand when its process was frozen, it does late, and nothing can call that back. (It cannot commit it.)

The offsets of records, and that each member gets offset after offset from its span's beginning on, are for the checker
of the crash tests: `polls` tells it what was delivered.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from logbroker.types import TopicPartition
from tests.anomalies import Anomaly
from tests.crash.checker import Log, LogRecordId, Poll, Seek
from tests.groups.group_history import (
    Assigned,
    BrokerBack,
    BrokerKilled,
    CommitBegun,
    CommitEnded,
    Delivered,
    Event,
    Frozen,
    Handled,
    LookBegun,
    LookEnded,
    Lost,
    Outage,
    Revoked,
    Stalled,
)

NOTHING: Final = -1
"""The committed offset where there is none."""


class Kind(enum.Enum):
    """The anomalies. Each has a test that shows it in a small history."""

    TWO_OWNERS = "one partition with two owners at once"
    NOT_HELD = "a record delivered to a member that does not hold its partition"
    WRONG_START = "a new owner that does not begin at the committed offset"
    COMMIT_AHEAD = "a commit of records that are not handled yet"
    STOLEN_COMMIT = "a commit accepted from a member that had lost the partition"
    WENT_BACK = "a committed offset that goes back"
    OUT_OF_ORDER = "a record of a key that began before an earlier one was handled"
    FORGOTTEN = "a commit that does not say that a record is done"
    REPEATED = "a record delivered again although a commit said that it is done"
    UNHANDLED = "a record that no member ever handled"
    MOVED = "a partition that moved though all members came back"


class _Span(msgspec.Struct, eq=False):
    process: str
    partition: TopicPartition
    since: float
    next_offset: int
    handled: int
    """All records of the span below this offset are handled."""
    until: float
    """It lasted at least until then."""
    done: set[int] = msgspec.field(default_factory=set)
    """Offsets of the records that were handled in the span."""
    open: bool = True
    uncertain: bool = False
    revoked: bool = False
    """The program was told to let go, and knows of no loss: the member may keep the partition after all."""


class _Commit(NamedTuple):
    begun_at: float
    offsets: list[tuple[TopicPartition, int]]
    done: list[tuple[TopicPartition, list[tuple[int, int]]]]
    spans: dict[TopicPartition, _Span]
    """In which the member committed, or the last it had."""
    stale: bool


def check(
    history: Iterable[Event],
    ends: Mapping[TopicPartition, int],
    keys: Mapping[tuple[TopicPartition, int], int] | None = None,
) -> list[Anomaly]:
    """Return all that is wrong with a history of events in the order of their times.

    Every partition begins at offset 0 and ends at last before the one in `ends`; at the end all was handled, and the
    members were given the time to do so. With the `keys` of all records, the members are convoys: they handle records
    in any order, but those of a key in order, and their commits say what is done out of order.
    """
    run = _Run(keys)
    for event in history:
        run.see(event)
    return [*run.anomalies, *_two_owners(run.spans), *_unhandled(run.handled, ends)]


def polls(history: Iterable[Event]) -> list[Poll | Seek]:
    """Return what was delivered in the words of the crash tests' checker: each span is a reader that seeks."""
    found: list[Poll | Seek] = []
    for event in history:
        if isinstance(event, Assigned):
            found += [Seek(event.process, Log(*partition), offset) for partition, offset in event.positions]
        elif isinstance(event, Delivered):
            records = [(LogRecordId(Log(*partition), offset), value) for partition, offset, value in event.records]
            found.append(Poll(event.process, records))
    return found


class _Run:
    """The history up to the present event."""

    def __init__(self, keys: Mapping[tuple[TopicPartition, int], int] | None) -> None:
        self._in_any_order = keys is not None
        self._before: dict[tuple[TopicPartition, int], int] = {}
        """For each record, the offset of the record before it of its key."""
        last: dict[tuple[TopicPartition, int], int] = {}
        for (partition, offset), key in sorted((keys or {}).items()):
            if (partition, key) in last:
                self._before[partition, offset] = last[partition, key]
            last[partition, key] = offset
        self._settled: defaultdict[TopicPartition, set[int]] = defaultdict(set)
        """Beyond the acknowledged offset, what an acknowledged commit says is done."""
        self.anomalies: list[Anomaly] = []
        self.spans: defaultdict[TopicPartition, list[_Span]] = defaultdict(list)
        self.handled: defaultdict[TopicPartition, set[int]] = defaultdict(set)
        self._of_process: defaultdict[str, dict[TopicPartition, _Span]] = defaultdict(dict)
        """The last span of each partition."""
        self._outages = 0
        """Kills of the broker after which it is not known yet who came back."""
        self._stalled_until: dict[str, float] = {}
        """Until then a process may have stood still, from an unknown moment on."""
        self._commits: dict[tuple[str, int], _Commit] = {}
        self._acknowledged: dict[TopicPartition, int] = {}
        self._tried: defaultdict[TopicPartition, set[int]] = defaultdict(set)
        self._look: dict[TopicPartition, int] = {}
        """Acknowledged offsets when the present look at the committed offsets began."""
        self._seen: dict[TopicPartition, int] = {}
        self._changes: list[tuple[float, str]] = []

    def see(self, event: Event) -> None:
        match event:
            case Assigned():
                for partition, offset in event.positions:
                    self._begin(event, partition, offset)
            case Revoked() | Lost():
                self._end(event)
            case Delivered():
                self._deliver(event)
            case Handled():
                self._handle(event)
            case CommitBegun():
                self._begin_commit(event)
            case CommitEnded():
                self._end_commit(event)
            case Frozen():
                self._doubt(self._of_process[event.process])
            case Stalled():
                self._stalled_until[event.process] = event.at + event.seconds
                self._doubt(self._of_process[event.process])
            case BrokerKilled():
                self._outages += 1
                for spans in self._of_process.values():
                    self._doubt(spans)
            case BrokerBack():
                self._outages -= 1
            case LookBegun():
                self._look = dict(self._acknowledged)
            case LookEnded():
                self._look_at(event)
            case Outage():
                self._changed_in(event)

    def _doubt(self, spans: Mapping[TopicPartition, _Span]) -> None:
        for span in spans.values():
            span.uncertain |= span.open

    def _wrong(self, kind: Kind, text: str) -> None:
        self.anomalies.append(Anomaly(kind, text))

    def _begin(self, event: Assigned, partition: TopicPartition, offset: int) -> None:
        self._changes.append((event.at, f"{event.process} was assigned {partition}"))
        mine = self._of_process[event.process]
        before = mine.get(partition)
        span = mine[partition] = _Span(event.process, partition, event.at, offset, handled=offset, until=event.at)
        span.uncertain = self._outages > 0 or event.at <= self._stalled_until.get(event.process, event.at - 1)
        all_spans = self.spans[partition]
        if before is None or before not in all_spans[-1:] or not self._goes_on(before, offset):
            self._check_start(event.process, partition, offset)
        all_spans.append(span)

    def _goes_on(self, before: _Span, offset: int) -> bool:
        """Whether a member goes on where it stopped: it was told to let go, and then kept the partition after all. Then
        it need not have committed. A convoy goes on at the first record that it has not done, whichever it was given
        last."""
        if not before.revoked:
            return False
        if not self._in_any_order:
            return offset == before.next_offset
        return max(0, self._acknowledged.get(before.partition, NOTHING)) <= offset <= self._handled_up_to(before)

    def _check_start(self, process: str, partition: TopicPartition, offset: int) -> None:
        committed = self._acknowledged.get(partition, NOTHING)
        if offset == max(committed, 0) or (offset > committed and offset in self._tried[partition]):
            return
        self._wrong(Kind.WRONG_START, f"{process} begins {partition} at {offset}, where {committed} is committed")

    def _end(self, event: Revoked | Lost) -> None:
        for partition in event.partitions:
            self._changes.append((event.at, f"{event.process} gave up {partition}"))
            span = self._of_process[event.process].get(partition)
            if span is None:
                continue
            span.revoked = isinstance(event, Revoked)
            if span.open:
                span.open = False
                if isinstance(event, Revoked) and not span.uncertain:
                    span.until = event.at

    def _deliver(self, event: Delivered) -> None:
        for partition, offset, _ in event.records:
            span = self._of_process[event.process].get(partition)
            if span is None or not span.open:
                self._wrong(Kind.NOT_HELD, f"{event.process} got {partition}:{offset}")
                continue
            span.until = event.at
            span.next_offset = offset + 1
            if not self._in_any_order:
                continue
            before = self._before.get((partition, offset))
            if before is not None and before not in self.handled[partition]:
                self._wrong(Kind.OUT_OF_ORDER, f"{event.process} got {partition}:{offset}, and {before} is not handled")
            if offset < self._acknowledged.get(partition, NOTHING) or offset in self._settled[partition]:
                self._wrong(Kind.REPEATED, f"{event.process} got {partition}:{offset}")

    def _handle(self, event: Handled) -> None:
        for partition, offset in event.records:
            self.handled[partition].add(offset)
            span = self._of_process[event.process].get(partition)
            if span is not None:
                span.done.add(offset)
                if offset == span.handled:
                    span.handled += 1

    def _begin_commit(self, event: CommitBegun) -> None:
        spans = dict(self._of_process[event.process])
        self._commits[event.process, event.number] = _Commit(event.at, event.offsets, event.done, spans, event.stale)
        for partition, offset in event.offsets:
            self._tried[partition].add(offset)
            span = spans.get(partition)
            if self._in_any_order and span is not None and not event.stale:
                self._check_done(event, span, offset)
            if span is None and self._is_no_progress(partition, offset):
                continue
            if not event.stale and (span is None or offset > span.handled):
                handled = NOTHING if span is None else span.handled
                self._wrong(
                    Kind.COMMIT_AHEAD, f"{event.process} commits {partition}:{offset} and has handled {handled}"
                )

    def _check_done(self, event: CommitBegun, span: _Span, offset: int) -> None:
        """Compare what a convoy's commit says is done with what is handled."""
        partition, handled = span.partition, self.handled[span.partition]
        self._handled_up_to(span)
        said = _said(event.done, partition)
        if not said <= handled:
            self._wrong(Kind.COMMIT_AHEAD, f"{event.process} says of {partition} that {min(said - handled)} is done")
        unsaid = {each for each in span.done if each >= offset} - said
        if unsaid:
            self._wrong(Kind.FORGOTTEN, f"{event.process} does not say of {partition} that {min(unsaid)} is done")

    def _handled_up_to(self, span: _Span) -> int:
        """Return the offset of the first record of a convoy's span that nobody has handled."""
        while span.handled in self.handled[span.partition]:
            span.handled += 1
        return span.handled

    def _end_commit(self, event: CommitEnded) -> None:
        commit = self._commits.pop((event.process, event.number))
        if not event.answered:
            return
        refused = {partition for partition, _ in event.refused}
        for partition, offset in commit.offsets:
            if partition in refused:
                continue
            if partition not in commit.spans and self._is_no_progress(partition, offset):
                continue
            if commit.stale or self._is_another_s(partition, event.process, commit):
                self._wrong(Kind.STOLEN_COMMIT, f"{event.process} committed {partition}:{offset}")
            self._acknowledged[partition] = max(offset, self._acknowledged.get(partition, NOTHING))
            self._settled[partition] |= _said(commit.done, partition)

    def _is_no_progress(self, partition: TopicPartition, offset: int) -> bool:
        """Whether a commit says what is committed anyway. A member may commit so the start of a partition that it got
        and lost again, of which its program was never told."""
        return offset <= max(0, self._acknowledged.get(partition, NOTHING))

    def _is_another_s(self, partition: TopicPartition, process: str, commit: _Commit) -> bool:
        """Whether somebody else had got the partition between the member's span and its commit."""
        span = commit.spans.get(partition)
        return span is None or any(
            other.process != process and span.since < other.since < commit.begun_at for other in self.spans[partition]
        )

    def _look_at(self, event: LookEnded) -> None:
        for partition, offset in event.offsets:
            known = max(self._look.get(partition, NOTHING), self._seen.get(partition, NOTHING))
            if offset < known:
                self._wrong(Kind.WENT_BACK, f"{partition} was committed at {known}, later at {offset}")
            self._seen[partition] = offset

    def _changed_in(self, outage: Outage) -> None:
        for at, what in self._changes:
            if at > outage.since:
                self._wrong(Kind.MOVED, f"{what} in an outage of the broker")


def _said(done: Sequence[tuple[TopicPartition, list[tuple[int, int]]]], partition: TopicPartition) -> set[int]:
    return {each for of, ranges in done if of == partition for first, end in ranges for each in range(first, end)}


def _two_owners(spans: Mapping[TopicPartition, Sequence[_Span]]) -> Iterable[Anomaly]:
    for partition, its_spans in spans.items():
        longest: dict[str, _Span] = {}
        for span in its_spans:
            for other in longest.values():
                if other.process != span.process and other.until > span.since:
                    yield Anomaly(
                        Kind.TWO_OWNERS,
                        f"{partition} was {span.process}'s at {span.since:.4f} and {other.process}'s from"
                        f" {other.since:.4f} to {other.until:.4f} at least",
                    )
            kept = longest.get(span.process)
            if kept is None or span.until > kept.until:
                longest[span.process] = span


def _unhandled(handled: Mapping[TopicPartition, set[int]], ends: Mapping[TopicPartition, int]) -> Iterable[Anomaly]:
    for partition, end in ends.items():
        missing = sorted(set(range(end)) - handled.get(partition, set()))
        if missing:
            yield Anomaly(Kind.UNHANDLED, f"{len(missing)} of {partition}, the first at offset {missing[0]}")
