"""Consumer: reads the records of partitions, from any position or as a member of a group."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Literal, Self

from logbroker.client.consumer.consumer_core import (
    DEFAULT_BUFFER_BYTES,
    DEFAULT_LIST_RECORDS,
    DEFAULT_POLL_BYTES,
    DEFAULT_POLL_RECORDS,
    ConsumerCore,
    Room,
    Step,
)
from logbroker.client.consumer.cursor import MergedRecord, Record
from logbroker.client.consumer.group_reader import Callback
from logbroker.client.consumer.group_settings import GrowthOrder, group_settings
from logbroker.client.consumer.loop_ends import LoopEnds
from logbroker.client.consumer.merged import MergedReader, check_no_group, merged_reader
from logbroker.client.consumer.offset_reset import OffsetReset, given_resets
from logbroker.client.consumer.resequencer import (
    DEFAULT_MAX_BYTES,
    DEFAULT_MAX_RECORDS,
    DEFAULT_MAX_WAIT_SECONDS,
    TIMESTAMP,
    SequenceOf,
)
from logbroker.client.runtime.arguments import checks_arguments
from logbroker.client.runtime.handlers import CALLBACK, call
from logbroker.client.runtime.lifetime import Lifetime, Uncopied
from logbroker.client.transport.connection import CLOSED, running_loop
from logbroker.client.transport.offsets import Start
from logbroker.errors import BrokerUnavailableError, LogbrokerError
from logbroker.record.header import MAX_EXPANDED_BYTES
from logbroker.types import TopicPartition


@checks_arguments()
class Consumer(Uncopied):
    """Reads partitions in the order of their offsets.

    async with Consumer("127.0.0.1:9192") as consumer:
        await consumer.assign("orders", start="earliest")
        async for record in consumer:
            print(record.offset, record.key, record.value)

    The consumer reads ahead over one stream, and continues at the right record after the broker was away. A loop over
    records may be left at any record; the next loop or `poll` continues with the record after it. Use it in one event
    loop, and by one task at a time: `poll` and loops raise ConcurrentUseError while another task uses the consumer.

    If a partition cannot be read any further (OffsetOutOfRangeError, LogTruncatedError, CorruptLogError, a deleted
    topic), its error is raised after the records before it. The error is raised again until the program seeks, pauses
    or unassigns that partition, or the group takes the partition away; a restart of the broker may also clear it. The
    other partitions go on: a `poll` directly after the error returns the records that arrive from them within a tenth
    of a second, and a loop continues with their next batch. The call after that raises the error again, so that no two
    calls in a row hide it; if no records come, every call raises it. `error.partitions` maps the partitions that the
    same kind of error stops to their positions. For a truncated log, `error.cut_offsets` says where to go on.

    In a group, the members share the partitions of their topics, and each begins at the group's committed offsets:

    async with Consumer("127.0.0.1:9192", group="reports") as consumer:
        await consumer.subscribe("orders")
        async for record in consumer:
            ...

    A record counts as finished when the program asks for the next one (with lists: for the next list). Finished records
    are committed at intervals, before a partition is given away, and at the end. So a crash skips nothing: records that
    were not finished are delivered again. The record at which a loop is left is not finished; `commit()` marks it as
    finished. When the connection breaks, or the broker is silent for the session timeout, nothing is delivered until
    the broker has confirmed that the partitions are still this member's.
    """

    def __init__(
        self,
        broker: str,
        *,
        group: str | None = None,
        start: OffsetReset | None = None,
        auto_commit: bool = True,
        auto_commit_interval_seconds: float = 1.0,
        instance_id: str | None = None,
        assignor: str | None = None,
        growth_order: GrowthOrder | None = None,
        session_timeout_seconds: float = 10.0,
        rebalance_timeout_seconds: float = 60.0,
        max_poll_interval_seconds: float = 300.0,
        auto_offset_reset: OffsetReset | None = None,
        on_out_of_range: OffsetReset | Literal["error"] | None = None,
        buffer_bytes: int = DEFAULT_BUFFER_BYTES,
        max_expanded_bytes: int = MAX_EXPANDED_BYTES,
        request_timeout_seconds: float = 10.0,
    ) -> None:
        """`broker` is "HOST:PORT" or "HOST:PORT,HOST:PORT".

        `auto_offset_reset` says where to begin if there is no valid position: earliest, latest, none (an error is
        raised), or a duration back from now, as a timedelta or Kafka's "by_duration:PT1H". It applies to partitions in
        which the group has committed nothing, and to positions that are not (or no longer) in the log. `start` sets
        only the first case (default: earliest), `on_out_of_range` only the second (default: error). If a power cut has
        cut the log below the position, every policy except none continues at the cut. No policy skips damaged records.
        `buffer_bytes` limits the bytes that are read ahead, before decompression. `max_expanded_bytes` limits the size
        of one batch after decompression; one batch at a time is decoded.

        `growth_order` concerns topics to which partitions are added, which moves keys to other partitions. With "key"
        (the default), a group, or a consumer that assigned a whole topic, finishes all records that were there before
        the addition, in all partitions, before it delivers any later record. So the records of a key stay in order.
        With "none", every record is delivered as soon as it is there. The members of a group that set it must all give
        the same value; the others follow the group. Partitions that are assigned one by one are not held back.

        With a `group`: `auto_commit` commits finished records every `auto_commit_interval_seconds`. An `instance_id`
        makes the member static: it keeps its partitions over a restart shorter than the session timeout. `assignor` is
        sticky (the broker's default), range or round_robin, and the same for all members. A member loses its partitions
        if the broker hears nothing from it for the session timeout, if it does not give up revoked partitions within
        the rebalance timeout, or if its program asks for no record for the poll interval. It joins again when the
        program asks for records.

        `request_timeout_seconds` bounds each call to the broker. Raises InvalidRequestError for invalid settings.
        """
        start, on_out_of_range = given_resets(
            start=start, on_out_of_range=on_out_of_range, auto_offset_reset=auto_offset_reset
        )
        self._core = ConsumerCore(
            broker,
            on_out_of_range=on_out_of_range,
            buffer_bytes=buffer_bytes,
            max_expanded_bytes=max_expanded_bytes,
            request_timeout_seconds=request_timeout_seconds,
            group=group_settings(
                group,
                start=start,
                auto_commit=auto_commit,
                auto_commit_interval_seconds=auto_commit_interval_seconds,
                instance_id=instance_id,
                assignor=assignor,
                growth_order=growth_order,
                session_timeout_seconds=session_timeout_seconds,
                rebalance_timeout_seconds=rebalance_timeout_seconds,
                max_poll_interval_seconds=max_poll_interval_seconds,
            ),
            growth_order=growth_order,
            call=lambda function, *arguments: function(*arguments),
            carry_out=lambda function, *arguments: function(*arguments),
            who=_task,
        )
        self._is_closing = False

    async def subscribe(
        self,
        *topics: str,
        pattern: str | None = None,
        bands: str | Iterable[str] = (),
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Join the group, to read partitions of these topics, and of all topics whose whole name matches `pattern`.

        `pattern` is in RE2 syntax. The topics need not exist yet. With `bands`, only the bands of these names are read,
        in topics that have bands; the bands need not exist yet, either. Other members may read other bands; a band to
        which no member subscribes stays unread. A later call replaces the whole subscription, but keeps the callbacks
        that it does not name. The call returns when the broker has accepted this member; the partitions are assigned
        later.

        Each callback gets a list of partitions. Callbacks are called while the program asks for records, when it has
        finished all records that it was given. `on_assigned` is called before the first record of the partitions, once
        they have positions. `on_revoked` is called first when partitions are revoked; then their finished records are
        committed, and the partitions are given away. `on_lost` is called if the group has already taken the partitions
        away, so that nothing can be committed any more. Callbacks may commit, seek, pause, subscribe and close, but not
        ask for records. An error in a callback is raised by the loop or `poll`. The next loop or `poll` calls
        `on_assigned` or `on_revoked` again before it delivers anything.

        If a later call of `subscribe` raises, the member keeps its subscription, its partitions and its callbacks.

        Raises InvalidRequestError (also for a pattern), InstanceIdInUseError, AssignorMismatchError, or
        BrokerUnavailableError.
        """
        await self._core.subscribe(
            *topics, pattern=pattern, bands=bands, on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost
        )

    async def commit(self, offsets: Mapping[TopicPartition, int] | Record | Sequence[Record] | None = None) -> None:
        """Commit these offsets (the next ones to read). Without an argument, commit all records that were handed out so
        far.

        With a record or a list of records, commit in each partition the offset after the last of them (its offset + 1).
        Returns when the offsets are synced. Raises the first refusal: NotOwnerError for a partition that this member
        does not hold (any more), StaleMemberEpochError, OffsetGoesBackError for an offset below one that the member
        committed since it got the partition, UnknownMemberError if the member has lost all its partitions, or
        UnknownTopicError for a record whose topic was deleted, even if there is a new topic of its name. While the
        broker is away, the commit is tried again for `request_timeout_seconds`, and then raises BrokerUnavailableError
        or RequestTimeoutError. With nothing to commit, it returns at once.
        """
        await self._core.commit(offsets)

    async def committed(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int | None]:
        """Return the committed offset of each partition, or None if there is none. Without an argument, return those of
        all assigned partitions."""
        return await self._core.committed(partitions)

    async def assign(
        self,
        topics: str | TopicPartition | Iterable[str | TopicPartition],
        start: Start = "earliest",
        *,
        bands: str | Iterable[str] = (),
    ) -> None:
        """Read these topics and partitions from `start` on, and no others.

        A topic is read with all its partitions. Partitions that are added later join the assignment, from their
        beginning, while the program waits for records. Records of a key stay in order when partitions are added to
        their topic: a record that was appended afterwards is delivered only when the program has finished all earlier
        records. See `growth_order`. With `bands`, a topic that has bands is read only in the partitions of these bands;
        each must be a band of one of the topics. Raises UnknownTopicError, UnknownPartitionError or
        InvalidRequestError, and then changes nothing. An offline partition raises its error later, while records are
        read.
        """
        await self._core.assign(topics, start, bands=bands)

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are read."""
        return self._core.assignment()

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record to be delivered.

        Raises InvalidRequestError if the partition is not assigned, and NoCommittedOffsetError if it has no position
        yet.
        """
        return self._core.position(partition)

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at an offset. If an error has stopped the partition, the error is cleared and reading starts again.

        Raises InvalidRequestError for a negative offset, or a partition that is not assigned.
        """
        await self._core.seek(partition, offset)

    async def seek_to_time(self, partition: TopicPartition, moment: int | datetime.datetime) -> None:
        """Continue at the first record at or after a time (milliseconds since 1970, or a datetime), or at the end if
        there is none.

        Raises InvalidRequestError if the partition is not assigned, or BrokerUnavailableError.
        """
        await self._core.seek_to_time(partition, moment)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go back to the log start offset of these partitions; without an argument, of all assigned partitions."""
        await self._core.seek_to_beginning(*partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue at the high watermark of these partitions; without an argument, of all assigned partitions."""
        await self._core.seek_to_end(*partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        """Deliver no records of these partitions until they are resumed. Their buffered records are dropped."""
        self._core.pause(*partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Continue with paused partitions at their positions."""
        self._core.resume(*partitions)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """Return the log start offset of these partitions; with None, of all assigned partitions."""
        return await self._core.beginning_offsets(partitions)

    async def end_offsets(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """Return the high watermark of these partitions, which is the offset of the next record; with None, of all
        assigned partitions."""
        return await self._core.end_offsets(partitions)

    def __aiter__(self) -> AsyncIterator[Record]:
        self._core.check_open()
        return self._records(bounded=False)

    def until_end(self) -> AsyncIterator[Record]:
        """Iterate up to the current high watermarks, and stop.

        Partitions that the body of the loop moves back are read again up to these ends. Paused partitions are left out
        until the body resumes them. An error that was raised before is raised again once the other partitions are at
        their ends. If the program has received no record since such an error was raised, the partitions of that error
        are left out of this loop. In a group, the loop covers the partitions that are assigned to this member when it
        begins, and those that are added while it runs. Another member that was killed or hangs keeps its partitions
        until the group removes it. Until then this loop ends without them, perhaps at once. If the body of the loop
        calls `assign`, the loop goes on to the current high watermarks of the new assignment.
        """
        self._core.check_open()
        return self._records(bounded=True)

    async def _records(self, *, bounded: bool) -> AsyncGenerator[Record, None]:
        core = self._core
        cursor, ownership, limited = core.cursor, core.ownership, core.in_group
        with core.use.reading():
            core.ask()
            if not ownership.lasts():
                await self._turn(None)
            ends = await core.ends() if bounded else None
        while ends is None or ends:
            interrupted = False
            try:
                records = cursor.records
                for record in records:
                    cursor.last = record
                    yield record
                    # The body of the loop may have moved the position, with `poll` or `seek`.
                    if cursor.records is not records or (limited and monotonic() > ownership.until):
                        interrupted = True
                        break
            except LogbrokerError as error:
                core.fail_open(error)
            with core.use.reading():
                core.ask()
                if not interrupted:
                    await self._advance(ends)
                elif not ownership.lasts():
                    await self._turn(ends)

    async def batches(
        self,
        *,
        until_end: bool = False,
        max_records: int = DEFAULT_LIST_RECORDS,
        max_bytes: int = DEFAULT_POLL_BYTES,
    ) -> AsyncIterator[list[Record]]:
        """Iterate over lists of records. Each list comes from one batch of one partition. This is the fastest way to
        read.

        A batch of more than `max_records`, or of more than `max_bytes` decoded, is returned as several lists; a single
        larger record is returned alone. A list counts as delivered when it is handed out. With `until_end`, stop at the
        current high watermarks.
        """
        Room(max_records, max_bytes)
        core = self._core
        with core.use.reading():
            core.ask()
            if not core.ownership.lasts():
                await self._turn(None)
            ends = await core.ends() if until_end else None
        while ends is None or ends:
            records: list[Record] = []
            room = Room(max_records, max_bytes)
            with core.use.reading():
                core.rest_of_batch(records, room)
            open_records = core.cursor.records
            if records:
                yield records
            with core.use.reading():
                core.ask()
                # The body of the loop may have opened another batch, whose records it has not all taken.
                if room.is_left and core.cursor.records is open_records:
                    await self._advance(ends)
                elif not core.ownership.lasts():
                    await self._turn(ends)

    def merged(
        self,
        topic: str,
        key: bytes | None = None,
        *,
        start: Start | None = None,
        by: SequenceOf = TIMESTAMP,
        max_wait_seconds: float = DEFAULT_MAX_WAIT_SECONDS,
        until_end: bool = False,
        max_records: int = DEFAULT_MAX_RECORDS,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> AsyncIterator[MergedRecord]:
        """Iterate over all partitions of a topic as one stream, in the order of the records' timestamps or of another
        sequence.

        With a `key`, only the records of this key are returned, with any sub-key or none. `by` gives the sequence:
        "timestamp", the name of a header that holds a number in ASCII decimal, or a function of the record that returns
        a number or None. A record without a sequence directly follows the record before it in its partition.

        A record waits until no other partition can have a record that belongs before it. A silent partition delays it
        for `max_wait_seconds` at most. A record that arrives when a record with a higher sequence was already returned
        is returned at once, with `late` true; no record is left out. The records of a partition keep their order.

        The topic is assigned as by `assign`, from `start` on. If `start` is None, the loop goes on at the positions if
        this topic and nothing else is assigned already, and otherwise begins at the earliest offsets. Partitions that
        are added later join. With `until_end`, the loop stops at the current high watermarks. A loop may be left at any
        record; the next reader goes on after the last returned record of each partition. `max_records` and `max_bytes`
        (decoded) bound the records that wait: a partition that is far ahead of the others is not fetched for a while.

        Raises InvalidRequestError in a consumer of a group, whose members have only their shares of the partitions, and
        in a loop whose body has called `assign`. Errors of partitions are raised as in other loops.
        """
        check_no_group(self._core)
        with_options = partial(
            merged_reader,
            self._core,
            topic,
            key,
            start=start,
            by=by,
            max_wait_seconds=max_wait_seconds,
            max_records=max_records,
            max_bytes=max_bytes,
            until_end=until_end,
        )
        return self._merged(with_options)

    async def _merged(self, begin: Callable[[], Awaitable[MergedReader]]) -> AsyncGenerator[MergedRecord, None]:
        core = self._core
        with core.use.reading():
            core.ask()
            reader = await begin()
        while True:
            released = reader.released
            for record in released:
                reader.taken += 1
                yield record
                if reader.released is not released:
                    break  # The body of the loop has moved a position, or read something else.
            with core.use.reading():
                while (step := reader.step()) is Step.NEEDS_CHUNK:
                    chunk = await core.fetcher.next_chunk(reader.deadline, core.ownership, tell_again=reader.tells)
                    reader.got(chunk)
                    if reader.is_in_doubt:
                        await reader.confirm()
                if step is Step.AT_END:
                    return

    async def poll(
        self,
        max_records: int = DEFAULT_POLL_RECORDS,
        timeout_seconds: float = 1.0,
        *,
        max_bytes: int = DEFAULT_POLL_BYTES,
    ) -> list[Record]:
        """Return up to `max_records` records as soon as there are any. Return an empty list when the time is over, even
        if the time was spent on rebalancing or reconnecting.

        The records together take up to `max_bytes`, decoded (keys, values and headers); a single larger record is
        returned alone. Raises the error of a partition that cannot be read any further: see the class.
        """
        room = Room(max_records, max_bytes)
        with self._core.use.reading():
            return await self._poll(room, monotonic() + timeout_seconds)

    async def _poll(self, room: Room, deadline: float) -> list[Record]:
        core = self._core
        core.ask()
        records: list[Record] = []
        while True:
            if not records and core.must_turn:
                await self._turn(None, deadline)
                if not core.ownership.lasts():
                    return records
            if not records:
                core.fetcher.tell_again()
            core.rest_of_batch(records, room)
            if not room.is_left:
                return records
            if core.open_next(None) is Step.OPENED:
                continue
            chunk = await (core.fetcher.ready_chunk() if records else core.fetcher.next_chunk(deadline, core.ownership))
            if chunk is not None:
                core.cursor.take(chunk)
            elif records or monotonic() >= deadline:
                return records

    async def _advance(self, ends: LoopEnds | None) -> None:
        """Wait for the next batch and open it, unless all `ends` are reached."""
        core = self._core
        if ends is not None and core.is_of_old_assignment(ends):
            await core.renew(ends)
        while True:
            if not core.ownership.lasts() if ends is not None else core.must_turn:
                await self._turn(ends)
            if ends is None:
                core.fetcher.tell_again()
            if core.open_next(ends) is not Step.NEEDS_CHUNK:
                core.fetcher.just_told = False
                return
            chunk = await core.fetcher.next_chunk(None, core.ownership, tell_again=ends is None)
            if chunk is not None:
                core.begin_chunk(chunk, ends)

    async def _turn(self, ends: LoopEnds | None, deadline: float | None = None) -> None:
        async with aclosing(self._core.turn(ends, deadline)) as calls:
            async for callback, partitions in calls:
                await call(CALLBACK, callback, partitions)
                if self._core.closed or self._is_closing:
                    raise BrokerUnavailableError(CLOSED)

    async def close(self) -> None:
        """Commit finished records, leave the group, stop reading, and close the connection.

        A caller that waits for records, or asks for them later, gets BrokerUnavailableError. If a callback calls
        `close`, its `poll` or loop gets that error, too. An error of `on_revoked` is raised after everything else is
        done. A second call returns at once, even in a callback that the first call runs.
        """
        if self._is_closing or not self._core._lifetime.may_close():
            return
        self._is_closing = True
        failure: Exception | None = None
        try:
            if self._core.subscribed:
                async with aclosing(self._core.goodbye()) as calls:
                    async for callback, partitions in calls:
                        try:
                            await call(CALLBACK, callback, partitions)
                        except Exception as error:
                            # Finished records are committed nevertheless.
                            failure = failure or error
        finally:
            await self._core.close()
        if failure is not None:
            raise failure

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def _task(lifetime: Lifetime) -> object:
    """Return the task that asks for records. Raises InvalidRequestError outside of the consumer's event loop."""
    lifetime.check_loop()
    return asyncio.current_task(running_loop())
