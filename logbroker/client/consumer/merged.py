"""Merged reading: all partitions of a topic, or one key's records in them, as one stream in order.

The reader takes the batches of a consumer as they come, and puts their records into a `Resequencer`, whose sources are
the partitions. It hands out the records that the resequencer releases, and reads on only when none can be released.

**Time.** The resequencer's clock is the last moment at which everything that had arrived was in the resequencer. So a
partition does not look silent because a slow program has not read its records yet. The arrival time of a record is the
time when the broker first reported a high watermark above it. So all records of a backlog count as arrived at once, and
do not wait one after the other for a partition without records. A partition may also look silent because the broker had
no credit to send its records, while the read-ahead was full of others. Before such a partition counts as silent, the
reader asks the broker for its end.

**Back-pressure.** When the resequencer has reached a bound, each partition that has its share of the records in it is
fetched no further until half of these records are released.

**Positions.** The positions of the consumer are ahead of the records that the program has received. `first` returns the
first record that the program has not received. When a partition is moved, paused or resumed, or something else asks the
consumer for records, it goes back to these records in all partitions (`ConsumerCore`), and the reader begins anew there
(`begin`). It keeps only what was handed out and when records arrived. `first` needs only the last record of each
partition that was handed out, because no partition is reordered. So it is right wherever an exception in a signal
handler ends the reader.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter
from math import inf
from time import monotonic
from typing import Any, Final

from logbroker.client.consumer.consumer_core import (
    DEFAULT_LIST_RECORDS,
    DEFAULT_POLL_BYTES,
    ConsumerCore,
    Room,
    Step,
)
from logbroker.client.consumer.cursor import MergedRecord
from logbroker.client.consumer.fetcher import Assigned, Chunk
from logbroker.client.consumer.generations import has_delivered
from logbroker.client.consumer.loop_ends import LoopEnds
from logbroker.client.consumer.resequencer import TIMESTAMP, Resequencer, SequenceOf
from logbroker.client.transport.offsets import ListedOffset, Start, list_offsets
from logbroker.errors import InvalidRequestError, LogbrokerError
from logbroker.types import TopicPartition

_STARVING_SHARE: Final = 2
"""If half of the read-ahead has arrived since the last wait, the broker may have run out of credit."""


class MergedReader:
    """One merged reading of a consumer that is in no group. It is used by one caller at a time."""

    def __init__(
        self,
        core: ConsumerCore,
        key: bytes | None,
        resequencer: Resequencer[MergedRecord],
        ends: LoopEnds | None,
        *,
        is_by_time: bool,
        max_wait_seconds: float,
    ) -> None:
        self.released: list[MergedRecord] = []
        """The records to hand out now. A new list means that no more records of the old one may be handed out."""
        self.taken = 0
        """How many records of `released` were handed out."""
        self._handed_out = 0
        """How many records of the last release were handed out before `released` became a new list."""
        self.is_in_doubt = False
        """Whether `confirm` is needed before a partition counts as silent."""
        self._core = core
        self._key = key
        self._resequencer = resequencer
        self._ends = ends
        self._is_by_time = is_by_time
        self._max_wait_seconds = max_wait_seconds
        self._assigned = core.assigned
        self._of: dict[int, Assigned] = {}
        """The partitions that are known to the resequencer, by number. All are of the same topic."""
        self._versions: dict[int, int] = {}
        """Their versions when the reader last began or they were added: see `fetcher`."""
        self._delivered: dict[int, int] = {}
        """For each partition with waiting records: the offset after the last record that was handed out. Records of
        `released` are not taken into account before `_count_handed_out`."""
        self._waiting: dict[int, int] = {}
        """The number of waiting records of each partition, including those in `released`."""
        self._reading: int | None = None
        """The partition whose records are on their way from the cursor to the resequencer."""
        self._known: dict[int, list[tuple[int, float]]] = {}
        """For each partition: high watermarks above the last record that was handed out, ascending, and when each was
        first known."""
        self._idle: set[int] = set()
        """The partitions that could bring nothing when they were last looked at."""
        self._full: dict[int, int] = {}
        """The partitions that are not fetched now. A partition is fetched again when at most this many of its records
        wait."""
        self._now = monotonic()
        """The last moment at which everything that had arrived was in the resequencer."""
        self._arrived_bytes = 0
        """The number of bytes that have arrived since `_now`."""
        self._has_fetched_again = False
        """Whether a partition was fetched again since then, so that its next records may be on their way."""
        self._may_tell = not core.fetcher.just_told
        """Whether to raise the error of a standing partition (see `fetcher`) before anything else is handed out."""

    # --- when the consumer is moved or read otherwise ---------------------------------------------------------------

    def first(self, partition: TopicPartition) -> int | None:
        """Return the offset of the first record of a partition that was read and not handed out, or None."""
        number = partition.partition
        if number != self._reading and not self._waiting.get(number):
            return None
        of_partition = (record.offset + 1 for record in self.released[: self.taken] if record.partition == number)
        return max(of_partition, default=self._delivered[number])

    def stop(self) -> None:
        """Hand out no more records."""
        self.released = self.released[: self.taken]

    def begin(self) -> None:
        """Begin at the positions of the consumer, without the records that were read and not handed out."""
        self._count_handed_out()
        self._resequencer.restart(self._handed_out)
        self._reading = None
        self._waiting, self._full = {}, {}
        for number, assigned in self._of.items():
            if assigned.version != self._versions[number]:
                # It goes on elsewhere, or has to bring its records again.
                self._resequencer.drop(number)
                self._resequencer.expect(number, monotonic())
                self._versions[number] = assigned.version

    def _count_handed_out(self) -> None:
        """Note which records of `released` were handed out. After a `stop`, or in `begin`, there are others: they are
        read again."""
        handed_out = self.released[: self.taken]
        last = {record.partition: record.offset for record in handed_out}
        delivered = self._delivered | {number: offset + 1 for number, offset in last.items()}
        waiting = self._waiting.copy()
        for number, count in Counter([record.partition for record in handed_out]).items():
            waiting[number] -= count
        count = self._handed_out + len(handed_out)
        # A signal handler can raise an exception only at calls and jumps, so all five are assigned or none.
        self._delivered, self._waiting, self.released, self.taken, self._handed_out = delivered, waiting, [], 0, count
        for number, offset in last.items():
            self._forget_known(number, offset)

    def _forget_known(self, number: int, offset: int) -> None:
        """Forget high watermarks up to a record that is not read again unless the program moves back."""
        known = self._known.get(number)
        if known:
            del known[: bisect_right(known, (offset, inf))]

    # --- from chunk to released record ------------------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """When to stop waiting for a chunk, in monotonic seconds."""
        return self._resequencer.deadline

    @property
    def tells(self) -> bool:
        """Whether a wait for a chunk may raise the error of a standing partition: the loop is not bounded, and no
        records wait, which would come first."""
        return self._ends is None and not len(self._resequencer)

    def step(self) -> Step:
        """Release records or, as long as none can be released, read what has arrived. OPENED means that `released` has
        records."""
        core = self._core
        if core.assigned is not self._assigned:
            raise InvalidRequestError("the consumer was assigned other partitions during the loop; call merged() again")
        self._ask()
        while True:
            if self._release():
                return Step.OPENED
            if self._read():
                if not core.is_read_by(self):
                    self._ask()  # The function that gives the sequences has used the consumer.
                # The program has not been given these records, so they do not count as unfinished in the cursor.
                # Otherwise the next generation of the topic would wait until the program asks again, even if none of
                # them has the wanted key.
                core.cursor.asked()
                continue
            step = core.open_next(self._ends)
            if self._ends is not None:
                self._wait_for_ends(self._ends)
            if step is Step.AT_END and self._release():
                return Step.OPENED
            if step is not Step.OPENED:
                return step

    def _ask(self) -> None:
        self._core.ask(self)
        self._count_handed_out()
        self._look_at_partitions()

    def got(self, chunk: Chunk | None) -> None:
        """Take the next chunk, or None if the wait ended without one."""
        if chunk is not None:
            self._arrived_bytes += len(chunk.batches)
            known = self._known.setdefault(chunk.assigned.partition.partition, [])
            if chunk.high_watermark > (known[-1][0] if known else 0):
                known.append((chunk.high_watermark, chunk.arrived_at))
            self._core.begin_chunk(chunk, self._ends)
            return
        now = monotonic()
        if not self._core.fetcher.has_chunk:
            self._now = now
            may_starve = self._arrived_bytes * _STARVING_SHARE >= self._core.buffer_bytes
            self.is_in_doubt = may_starve or self._has_fetched_again
            self._arrived_bytes, self._has_fetched_again = 0, False

    async def confirm(self) -> None:
        """Ask the broker for the ends of the partitions that brought no records, and go on waiting for those that have
        some."""
        self.is_in_doubt = False
        silent = [
            (number, assigned)
            for number, assigned in self._of.items()
            if assigned.wanted and not assigned.is_at_end and not self._waiting.get(number)
            if self._ends is None or assigned.partition in self._ends
        ]
        try:
            async with asyncio.timeout(self._max_wait_seconds):
                found = await list_offsets(self._core.connection, [(each.partition, "latest") for _, each in silent])
        except (TimeoutError, LogbrokerError):
            return
        for (number, assigned), outcome in zip(silent, found, strict=True):
            if isinstance(outcome, ListedOffset) and outcome.offset > assigned.position:
                self._resequencer.expect(number, self._now)

    def _look_at_partitions(self) -> None:
        """Wait for partitions that were added, and for none that can bring nothing: because an error has stopped it,
        because it is paused, or because its next generation waits until the other partitions are read up to there."""
        fetcher = self._core.fetcher
        if len(self._of) != len(self._assigned):
            for assigned in self._assigned.values():
                number = assigned.partition.partition
                if number not in self._of:
                    self._of[number], self._versions[number] = assigned, assigned.version
                    self._resequencer.expect(number, monotonic())
            if self._ends is not None:
                self._wait_for_ends(self._ends)
        for number, assigned in self._of.items():
            if assigned.paused or assigned.failed or has_delivered(assigned):
                self._idle.add(number)
                self._resequencer.idle(number)
            elif number in self._idle:
                self._idle.discard(number)
                if self._ends is None or assigned.partition in self._ends:
                    self._resequencer.expect(number, monotonic())
        # The records before an error come first.
        waits = (self._waiting.get(assigned.partition.partition) for assigned in list(fetcher.standing))
        if self._ends is None and self._may_tell and not all(waits):
            fetcher.tell()

    def _wait_for_ends(self, ends: LoopEnds) -> None:
        for number, assigned in self._of.items():
            if assigned.partition not in ends:
                self._resequencer.idle(number)

    def _release(self) -> bool:
        released, late = self._resequencer.release(self._now)
        if not released:
            self._handed_out = 0
            return False
        for index in late:
            released[index].late = True
        self.released, self.taken, self._handed_out, self._may_tell = released, 0, 0, True
        for number, most in list(self._full.items()):
            if self._resequencer.held(number) <= most:
                # Records that were appended while the partition was not fetched are on their way.
                self._resequencer.expect(number, monotonic())
                self._core.fetch_again(self._of[number])
                self._has_fetched_again = True
                del self._full[number]
        return True

    def _read(self) -> bool:
        """Move records of the open batch into the resequencer, as many as it takes. Return whether there were any."""
        core = self._core
        assigned = core.cursor.assigned
        if assigned is None:
            return False
        number = assigned.partition.partition
        if not self._waiting.get(number):
            core.cursor.settle()
            self._delivered[number] = assigned.position
        self._reading = number
        read: list[Any] = []
        max_records, max_bytes = self._resequencer.portion(len(self._of))
        max_bytes = min(max_bytes, DEFAULT_POLL_BYTES)
        room = Room(min(max_records, DEFAULT_LIST_RECORDS), max_bytes)
        core.rest_of_batch(read, room)
        key = self._key
        records = read if key is None else [record for record in read if record.main_key == key]
        if read:
            known, last = self._known.setdefault(number, []), read[-1].offset
            has_more = bool(known) and known[-1][0] > last + 1
            # The size is an upper bound.
            size_bytes = max_bytes - room.bytes
            arrived = self._known_since(known, last)
            self._resequencer.add_all(number, records, arrived, has_more=has_more, size_bytes=size_bytes)
            if not core.is_read_by(self):
                return True
            if waiting := self._waiting.get(number, 0) + len(records):
                self._waiting[number] = waiting
            else:
                self._forget_known(number, last)
        if self._is_by_time and read:
            # Records of other keys raise the watermark of the partition, too.
            self._resequencer.advance(number, max(record.timestamp_ms for record in read))
        self._reading = None
        if self._resequencer.is_full(number):
            self._full[number] = self._resequencer.held(number) // 2
            # Records may be appended that the broker does not report meanwhile.
            self._resequencer.add_all(number, [], self._now, has_more=True)
            core.hold_back(assigned)
        return bool(read)

    def _known_since(self, known: list[tuple[int, float]], offset: int) -> float:
        """Return the time at which the broker first reported a high watermark above this offset, or now if it has not
        done so."""
        index = bisect_right(known, (offset, inf))
        return known[index][1] if index < len(known) else monotonic()


def check_no_group(core: ConsumerCore) -> None:
    """Raise InvalidRequestError if the consumer is in a group."""
    if core.in_group:
        raise InvalidRequestError(
            "merged() needs all partitions of a topic, and a member of a group has its share of them only; call it on a"
            " consumer without a group"
        )


async def merged_reader(
    core: ConsumerCore,
    topic: str,
    key: bytes | None,
    *,
    start: Start | None,
    by: SequenceOf,
    max_wait_seconds: float,
    max_records: int,
    max_bytes: int,
    until_end: bool,
) -> MergedReader:
    """Begin with a merged reading: see `Consumer.merged`."""
    resequencer = Resequencer[MergedRecord](
        by, max_wait_seconds=max_wait_seconds, max_records=max_records, max_bytes=max_bytes
    )
    if start is not None or not core.reads_only(topic):
        await core.assign(topic, "earliest" if start is None else start)
    return MergedReader(
        core,
        key,
        resequencer,
        await core.ends() if until_end else None,
        is_by_time=by == TIMESTAMP,
        max_wait_seconds=max_wait_seconds,
    )
