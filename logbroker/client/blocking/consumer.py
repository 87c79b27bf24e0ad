"""The synchronous Consumer. It reads ahead in the shared loop and decodes in the caller's thread."""

from __future__ import annotations

import asyncio
import datetime
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Any, Literal, Self

from logbroker.client.consumer.consumer_core import (
    DEFAULT_BUFFER_BYTES,
    DEFAULT_LIST_RECORDS,
    DEFAULT_POLL_BYTES,
    DEFAULT_POLL_RECORDS,
    ConsumerCore,
    Room,
    Step,
    concurrent_use,
)
from logbroker.client.consumer.cursor import MergedRecord, Record
from logbroker.client.consumer.group_reader import Callback, Calls
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
from logbroker.client.runtime.handlers import CALLBACK, call_plain, check_plain
from logbroker.client.runtime.lifetime import Uncopied
from logbroker.client.runtime.sync_loop import check_waits, run, shared_loop
from logbroker.client.runtime.tasks import end_tasks
from logbroker.client.transport.connection import CLOSED
from logbroker.client.transport.offsets import Start
from logbroker.errors import BrokerUnavailableError, LogbrokerError
from logbroker.record.header import MAX_EXPANDED_BYTES
from logbroker.types import TopicPartition


@checks_arguments()
class Consumer(Uncopied):
    """Reads partitions in the order of their offsets: for programs without an event loop.

    with Consumer("127.0.0.1:9192") as consumer:
        consumer.assign("orders", start="earliest")
        for record in consumer:
            print(record.offset, record.key, record.value)

    The consumer reads ahead over one stream, and continues at the right record after the broker was away. A loop over
    records may be left at any record; the next loop or `poll` continues with the record after it.

    If a partition cannot be read any further (OffsetOutOfRangeError, LogTruncatedError, CorruptLogError, a deleted
    topic), its error is raised after the records before it. It is raised again until the program seeks, pauses or
    unassigns that partition, or the group takes it away. The other partitions go on: a `poll` directly after the error
    returns the records that arrive from them within a tenth of a second, and a loop continues with their next batch.
    `error.partitions` names the partitions that the same kind of error stops, with their positions.

    In a group, the members share the partitions of their topics, and each begins at the group's committed offsets:

    with Consumer("127.0.0.1:9192", group="reports") as consumer:
        consumer.subscribe("orders")
        for record in consumer:
            ...

    A record counts as finished when the program asks for the next one (with lists: for the next list). Finished records
    are committed at intervals, before a partition is given away, and at the end. So a crash skips nothing: records that
    were not finished are delivered again. The record at which a loop is left is not finished; `commit()` marks it as
    finished.

    Close it, or use it in a `with` block. A consumer that is dropped without `close`, or is open when the program ends,
    commits finished records and leaves its group in the background, without calling its callbacks.

    One thread at a time may use a consumer, except that any thread may call `close` and `commit(offsets)`; `close`
    makes a caller that waits for records raise BrokerUnavailableError. `poll`, loops, and methods that change positions
    raise ConcurrentUseError while another thread uses the consumer. The callbacks of a group are called in the thread
    that asks for records, and may use the consumer; heartbeats and commits at intervals go on in the background.
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
        of one batch after decompression.

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
            call=shared_loop().call_soon_threadsafe,
            carry_out=lambda function, *arguments: run(_call(function, *arguments)),
            who=lambda _: threading.get_ident(),
        )
        self._closing = threading.RLock()
        self._is_closing = False
        self._is_in_close = False

    def subscribe(
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

        If a later call raises, the member keeps its subscription, its partitions and its callbacks.

        Raises InvalidRequestError (also for a pattern, and for callbacks that are async), InstanceIdInUseError,
        AssignorMismatchError, or BrokerUnavailableError.
        """
        for callback in (on_assigned, on_revoked, on_lost):
            if callback is not None:
                check_plain(CALLBACK, callback)
        with self._core.use.changing():
            run(
                self._core.subscribe(
                    *topics,
                    pattern=pattern,
                    bands=bands,
                    on_assigned=on_assigned,
                    on_revoked=on_revoked,
                    on_lost=on_lost,
                )
            )

    def commit(self, offsets: Mapping[TopicPartition, int] | Record | Sequence[Record] | None = None) -> None:
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
        if offsets is not None:
            run(self._core.commit(offsets))
            return
        with self._core.use.changing():
            run(self._core.commit())

    def committed(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int | None]:
        """Return the committed offset of each partition, or None if there is none. Without an argument, take all
        assigned partitions."""
        return run(self._core.committed(partitions))

    def assign(
        self,
        topics: str | TopicPartition | Iterable[str | TopicPartition],
        start: Start = "earliest",
        *,
        bands: str | Iterable[str] = (),
    ) -> None:
        """Read these topics and partitions from `start` on, and no others.

        A topic is read with all its partitions; partitions that are added later join the assignment, from their
        beginning, while the program waits for records. Records of a key stay in order when partitions are added to
        their topic: a record that was appended afterwards is delivered only when the program has finished all earlier
        records. See `growth_order`. With `bands`, a topic that has bands is read only in the partitions of these bands;
        each must be a band of one of the topics. Raises UnknownTopicError, UnknownPartitionError or
        InvalidRequestError, and then changes nothing.
        """
        with self._core.use.changing():
            run(self._core.assign(topics, start, bands=bands))

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are read."""
        return self._core.assignment()

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record to be delivered.

        Raises InvalidRequestError if the partition is not assigned, and NoCommittedOffsetError if no position is known
        yet.
        """
        with self._core.use.changing():
            return self._core.position(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at an offset. If an error has stopped the partition, the error is cleared and reading starts again.

        Raises InvalidRequestError for a negative offset, or a partition that is not assigned.
        """
        with self._core.use.changing():
            run(self._core.seek(partition, offset))

    def seek_to_time(self, partition: TopicPartition, moment: int | datetime.datetime) -> None:
        """Continue at the first record at or after a time (milliseconds since 1970, or a datetime), or at the end if
        there is none.

        Raises InvalidRequestError if the partition is not assigned, or BrokerUnavailableError.
        """
        with self._core.use.changing():
            run(self._core.seek_to_time(partition, moment))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go back to the log start offset of these partitions; without an argument, of all."""
        with self._core.use.changing():
            run(self._core.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue with records that arrive from now on, in these partitions; without an argument, in all."""
        with self._core.use.changing():
            run(self._core.seek_to_end(*partitions))

    def pause(self, *partitions: TopicPartition) -> None:
        """Deliver no record of these partitions until they are resumed. Their buffered records are dropped."""
        with self._core.use.changing():
            run(_call(self._core.pause, *partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Continue with paused partitions at their positions."""
        with self._core.use.changing():
            run(_call(self._core.resume, *partitions))

    def beginning_offsets(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """Return the log start offset of these partitions; with None, of all assigned partitions."""
        return run(self._core.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """Return the high watermark of these partitions, which is the offset of the next record; with None, of all
        assigned partitions."""
        return run(self._core.end_offsets(partitions))

    def __iter__(self) -> Iterator[Record]:
        self._core.check_open()
        return self._records(bounded=False)

    def until_end(self) -> Iterator[Record]:
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

    def _records(self, *, bounded: bool) -> Iterator[Record]:
        core, cursor, ownership, limited = self._core, self._core.cursor, self._core.ownership, self._core.in_group
        with _GoingBack(self, []):
            with core.use.reading():
                core.ask()
                if not ownership.lasts():
                    self._turn(None)
                ends = run(core.ends()) if bounded else None
            while ends is None or ends:
                interrupted = False
                try:
                    open_records = cursor.records
                    for record in open_records:
                        cursor.last = record
                        yield record
                        if cursor.records is not open_records or (limited and monotonic() > ownership.until):
                            interrupted = True
                            break
                except LogbrokerError as error:
                    core.fail_open(error)
                except ValueError as error:
                    raise concurrent_use(error) from None
                with core.use.reading():
                    core.ask()
                    if not interrupted:
                        self._advance(ends)
                    elif not ownership.lasts():
                        self._turn(ends)

    def batches(
        self,
        *,
        until_end: bool = False,
        max_records: int = DEFAULT_LIST_RECORDS,
        max_bytes: int = DEFAULT_POLL_BYTES,
    ) -> Iterator[list[Record]]:
        """Iterate over lists of records. Each list comes from one batch of one partition. This is the fastest way to
        read.

        A batch of more than `max_records`, or of more than `max_bytes` decoded, is returned as several lists; a single
        larger record is returned alone. After the loop is left, reading continues behind the last list that was handed
        out. With `until_end`, stop at the current high watermarks.
        """
        Room(max_records, max_bytes)
        records: list[Record] = []
        with _GoingBack(self, records):
            with self._core.use.reading():
                self._core.ask()
                if not self._core.ownership.lasts():
                    self._turn(None)
                ends = run(self._core.ends()) if until_end else None
            while ends is None or ends:
                room = Room(max_records, max_bytes)
                with self._core.use.reading():
                    self._core.rest_of_batch(records, room)
                open_records = self._core.cursor.records
                if records:
                    yield records.copy()
                    records.clear()
                with self._core.use.reading():
                    self._core.ask()
                    # The body of the loop may have opened another batch, whose records it has not all taken.
                    if room.is_left and self._core.cursor.records is open_records:
                        self._advance(ends)
                    elif not self._core.ownership.lasts():
                        self._turn(ends)

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
    ) -> Iterator[MergedRecord]:
        """Iterate over all partitions of a topic as one stream, in the order of the records' timestamps or of another
        sequence.

        With a `key`, only the records of this key are returned, with any sub-key or none. `by` gives the sequence:
        "timestamp", the name of a header that holds a number in ASCII decimal, or a function of the record that returns
        a number or None. A record without a sequence directly follows the record before it in its partition.

        A record is held back until no other partition can have a record that belongs before it. A partition that is
        silent holds it up for `max_wait_seconds` at most. If a record with a higher sequence was returned already, the
        record is returned at once, and its `late` is true. No record is left out. The records of a partition keep their
        order.

        The topic is assigned as by `assign`, from `start` on. If `start` is None, the loop goes on at the positions if
        exactly this topic is assigned already; otherwise it begins at the earliest records. Partitions that are added
        later join. With `until_end`, the loop stops at the current high watermarks. A loop may be left at any record;
        the next loop or `poll` goes on with the record after it in each partition. `max_records` and `max_bytes`
        (decoded) bound the records that are held back: a partition that is far ahead of the others is not fetched
        meanwhile.

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

    def _merged(self, begin: Callable[[], Coroutine[Any, Any, MergedReader]]) -> Iterator[MergedRecord]:
        core = self._core
        with _GoingBack(self, []):
            with core.use.reading():
                core.ask()
                reader = run(begin())
            while True:
                released = reader.released
                for record in released:
                    reader.taken += 1
                    yield record
                    if reader.released is not released:
                        break  # The body of the loop has moved a position, or read something else.
                with core.use.reading():
                    while (step := reader.step()) is Step.NEEDS_CHUNK:
                        waiting = core.fetcher.next_chunk(reader.deadline, core.ownership, tell_again=reader.tells)
                        reader.got(run(waiting))
                        if reader.is_in_doubt:
                            run(reader.confirm())
                    if step is Step.AT_END:
                        return

    def poll(
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
        deadline = monotonic() + timeout_seconds
        records: list[Record] = []
        with self._core.use.reading(), _GoingBack(self, records):
            self._core.ask()
            return self._fill(records, room, deadline)

    def _fill(self, records: list[Record], room: Room, deadline: float) -> list[Record]:
        core = self._core
        while True:
            if not records and core.must_turn:
                self._turn(None, deadline)
                if not core.ownership.lasts():
                    return records
            if not records:
                core.fetcher.tell_again()
            core.rest_of_batch(records, room)
            if not room.is_left:
                return records
            if core.open_next(None) is Step.OPENED:
                continue
            chunk = run(core.fetcher.ready_chunk() if records else core.fetcher.next_chunk(deadline, core.ownership))
            if chunk is not None:
                core.cursor.take(chunk)
            elif records or monotonic() >= deadline:
                return records

    def _advance(self, ends: LoopEnds | None) -> None:
        core = self._core
        if ends is not None and core.is_of_old_assignment(ends):
            run(core.renew(ends))
        while True:
            if not core.ownership.lasts() if ends is not None else core.must_turn:
                self._turn(ends)
            if ends is None:
                core.fetcher.tell_again()
            if core.open_next(ends) is not Step.NEEDS_CHUNK:
                core.fetcher.just_told = False
                return
            chunk = run(core.fetcher.next_chunk(None, core.ownership, tell_again=ends is None))
            if chunk is not None:
                core.begin_chunk(chunk, ends)

    def _go_back(self, records: list[Record]) -> None:
        """Go back to the first record that the program has not received. `records` are about to be handed out."""
        core = self._core
        core.cursor.drop()
        offsets = core.positions()
        for record in reversed(records):
            partition = TopicPartition(record.topic, record.partition)
            if partition in offsets:
                offsets[partition] = record.offset
        run(_call(core._move, offsets))

    def _turn(self, ends: LoopEnds | None, deadline: float | None = None) -> None:
        with closing(_steps(self._core.turn(ends, deadline))) as steps:
            for callback, partitions in steps:
                call_plain(CALLBACK, callback, partitions)
                if self._is_closing:
                    raise BrokerUnavailableError(CLOSED)

    def close(self) -> None:
        """Commit finished records, leave the group, stop reading, and close the connection.

        A caller that waits for records gets BrokerUnavailableError, and so does any later caller. If Ctrl-C ends the
        commit, the other steps are still taken, and records that were not committed are delivered again.
        """
        if self._core._lifetime.is_forked:
            return
        check_waits()
        # Two threads may close at once, and a callback may close a consumer that is being closed. If a signal ended a
        # call before everything was done, the next call does the rest.
        with self._closing:
            if self._is_in_close or self._core.has_ended:
                return
            failure: Exception | None = None
            try:
                self._is_in_close = self._is_closing = True
                failure = self._say_goodbye()
            finally:
                self._is_in_close = False
                run(self._core.close())
        if failure is not None:
            raise failure

    def _say_goodbye(self) -> Exception | None:
        """Call the callbacks and commit finished records. Return the first error that a callback raised."""
        failure: Exception | None = None
        if self._core.subscribed and not self._core.closed:
            with closing(_steps(self._core.goodbye())) as steps:
                for callback, partitions in steps:
                    try:
                        call_plain(CALLBACK, callback, partitions)
                    except Exception as error:
                        # Finished records are committed nevertheless.
                        failure = failure or error
        return failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _GoingBack:
    """If an exception of a signal handler, such as KeyboardInterrupt, or of a callback ends a wait or the decoding, go
    back to the first record that the program has not received.

    A function with `contextmanager` would set attributes of the exception, which its class may refuse.
    """

    __slots__ = ("_consumer", "_records")

    def __init__(self, consumer: Consumer, records: list[Record]) -> None:
        self._consumer = consumer
        self._records = records
        """The records that are about to be handed out."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, LogbrokerError | GeneratorExit):
            self._consumer._go_back(self._records)


async def _call(function: Callable[..., Any], *arguments: Any) -> None:
    function(*arguments)


def _steps(calls: Calls) -> Generator[tuple[Callback, list[TopicPartition]], None, None]:
    """Take the steps in the shared loop, and yield the callbacks that this thread has to call."""
    steps = _Steps(calls)
    try:
        while (call := run(steps.take())) is not None:
            yield call
    finally:
        run(steps.end())


class _Steps:
    """The steps of `GroupReader.turn` and `goodbye`, run in the shared loop."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._taking: asyncio.Task[Any] | None = None

    async def take(self) -> tuple[Callback, list[TopicPartition]] | None:
        """Continue to the next callback and return it, or None if there is none."""
        self._taking = asyncio.current_task()
        return await anext(self._calls, None)

    async def end(self) -> None:
        """Take no more steps. Signals may have ended the wait for a step and the wait for the end of that step."""
        if self._taking is not None:
            await end_tasks(self._taking)
        await self._calls.aclose()
