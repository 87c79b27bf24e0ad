"""The synchronous Consumer: reads ahead in the shared loop, decodes in the caller's thread."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from time import monotonic
from types import TracebackType
from typing import Any, Literal, Self

from logbroker.client.arguments import checks_arguments
from logbroker.client.connection import CLOSED
from logbroker.client.consumer_core import (
    DEFAULT_BUFFER_BYTES,
    DEFAULT_LIST_RECORDS,
    DEFAULT_POLL_BYTES,
    DEFAULT_POLL_RECORDS,
    ConsumerCore,
    Room,
    Step,
    concurrent_use,
)
from logbroker.client.cursor import Record
from logbroker.client.group_reader import Callback, Calls
from logbroker.client.group_settings import GrowthOrder, group_settings
from logbroker.client.offset_reset import OffsetReset, given_resets
from logbroker.client.offsets import Start
from logbroker.client.sync_loop import run, shared_loop
from logbroker.errors import BrokerUnavailableError, LogbrokerError
from logbroker.record.header import MAX_EXPANDED_BYTES
from logbroker.types import TopicPartition


@checks_arguments()
class Consumer:
    """`logbroker.client.Consumer` for programs without an event loop; each method is documented there.

    Belongs to one thread at a time, but for `close`, which any thread may call: who waits for records then gets
    BrokerUnavailableError. `poll`, loops, and what changes positions raise ConcurrentUseError beside another thread;
    `commit(offsets)` may be called by any. The callbacks of a group are called in the thread that asks for records, and
    may use the consumer; heartbeats and commits at intervals go on in the background.
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
            who=threading.get_ident,
        )
        self._closing = threading.RLock()
        self._is_closing = False

    def subscribe(
        self,
        *topics: str,
        pattern: str | None = None,
        bands: str | Iterable[str] = (),
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
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
        """Commit these offsets (the next to be read), the offsets behind these records or, without any, all records
        that were handed out so far. Returns when they are synced."""
        if offsets is not None:
            run(self._core.commit(offsets))
            return
        with self._core.use.changing():
            run(self._core.commit())

    def committed(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int | None]:
        return run(self._core.committed(partitions))

    def assign(
        self,
        topics: str | TopicPartition | Iterable[str | TopicPartition],
        start: Start = "earliest",
        *,
        bands: str | Iterable[str] = (),
    ) -> None:
        with self._core.use.changing():
            run(self._core.assign(topics, start, bands=bands))

    def assignment(self) -> list[TopicPartition]:
        return self._core.assignment()

    def position(self, partition: TopicPartition) -> int:
        with self._core.use.changing():
            return self._core.position(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        with self._core.use.changing():
            run(self._core.seek(partition, offset))

    def seek_to_time(self, partition: TopicPartition, moment: int | datetime.datetime) -> None:
        with self._core.use.changing():
            run(self._core.seek_to_time(partition, moment))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        with self._core.use.changing():
            run(self._core.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        with self._core.use.changing():
            run(self._core.seek_to_end(*partitions))

    def pause(self, *partitions: TopicPartition) -> None:
        with self._core.use.changing():
            run(_call(self._core.pause, *partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        with self._core.use.changing():
            run(_call(self._core.resume, *partitions))

    def beginning_offsets(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        return run(self._core.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        return run(self._core.end_offsets(partitions))

    def __iter__(self) -> Iterator[Record]:
        self._core.begin()
        return self._records(bounded=False)

    def until_end(self) -> Iterator[Record]:
        self._core.begin()
        return self._records(bounded=True)

    def _records(self, *, bounded: bool) -> Iterator[Record]:
        core, cursor, permit, limited = self._core, self._core.cursor, self._core.permit, self._core.in_group
        with self._going_back([]):
            with core.use.reading():
                if not permit.open():
                    self._turn(None)
                ends = run(core.ends()) if bounded else None
            while ends is None or ends:
                interrupted = False
                try:
                    open_records = cursor.records
                    for record in open_records:
                        cursor.last = record
                        yield record
                        if cursor.records is not open_records or (limited and monotonic() > permit.until):
                            interrupted = True
                            break
                except LogbrokerError as error:
                    core.fail_open(error)
                except ValueError as error:
                    raise concurrent_use(error) from None
                with core.use.reading():
                    if interrupted:
                        core.asked()
                        if not permit.open():
                            self._turn(ends)
                    else:
                        self._advance(ends)

    def batches(
        self,
        *,
        until_end: bool = False,
        max_records: int = DEFAULT_LIST_RECORDS,
        max_bytes: int = DEFAULT_POLL_BYTES,
    ) -> Iterator[list[Record]]:
        Room(max_records, max_bytes)
        self._core.begin()
        records: list[Record] = []
        with self._going_back(records):
            with self._core.use.reading():
                if not self._core.permit.open():
                    self._turn(None)
                ends = run(self._core.ends()) if until_end else None
            while ends is None or ends:
                room = Room(max_records, max_bytes)
                with self._core.use.reading():
                    self._core.rest_of_batch(records, room)
                if records:
                    yield records.copy()
                    records.clear()
                with self._core.use.reading():
                    if room.is_left:
                        self._advance(ends)
                    else:
                        self._core.asked()
                        if not self._core.permit.open():
                            self._turn(ends)

    def poll(
        self,
        max_records: int = DEFAULT_POLL_RECORDS,
        timeout_seconds: float = 1.0,
        *,
        max_bytes: int = DEFAULT_POLL_BYTES,
    ) -> list[Record]:
        room = Room(max_records, max_bytes)
        deadline = monotonic() + timeout_seconds
        records: list[Record] = []
        with self._core.use.reading(), self._going_back(records):
            self._core.begin()
            return self._fill(records, room, deadline)

    def _fill(self, records: list[Record], room: Room, deadline: float) -> list[Record]:
        core = self._core
        while True:
            if not (records or core.permit.open()):
                self._turn(None, deadline)
                if not core.permit.open():
                    return records
            if not records:
                core.fetcher.tell_again()
            core.rest_of_batch(records, room)
            if not room.is_left:
                return records
            if core.open_next(None) is Step.OPENED:
                continue
            chunk = run(core.fetcher.ready_chunk() if records else core.fetcher.next_chunk(deadline, core.permit))
            if chunk is not None:
                core.cursor.take(chunk)
            elif records or monotonic() >= deadline:
                return records

    def _advance(self, ends: dict[TopicPartition, int] | None) -> None:
        core = self._core
        core.asked()
        while True:
            if not core.permit.open():
                self._turn(ends)
            if ends is None:
                core.fetcher.tell_again()
            if core.open_next(ends) is not Step.NEEDS_CHUNK:
                core.fetcher.just_told = False
                return
            chunk = run(core.fetcher.next_chunk(None, core.permit, tell_again=ends is None))
            if chunk is not None:
                core.begin_chunk(chunk, ends)

    @contextmanager
    def _going_back(self, records: list[Record]) -> Iterator[None]:
        """Where a signal's exception, as of Ctrl-C, ends a wait or the decoding, let nothing be lost by that: go on at
        the first record that the program has not got. `records` are to be given to it."""
        try:
            yield
        except (LogbrokerError, GeneratorExit):
            raise
        except BaseException:
            core = self._core
            core.cursor.drop()
            offsets = core._positions()
            for record in reversed(records):
                partition = TopicPartition(record.topic, record.partition)
                if partition in offsets:
                    offsets[partition] = record.offset
            run(_call(core._move, offsets))
            raise

    def _turn(self, ends: dict[TopicPartition, int] | None, deadline: float | None = None) -> None:
        with closing(_steps(self._core.turn(ends, deadline))) as steps:
            for callback, partitions in steps:
                callback(partitions)
                if self._is_closing:
                    raise BrokerUnavailableError(CLOSED)

    def close(self) -> None:
        # Two threads may close at once; a callback may close what is being closed.
        with self._closing:
            if self._is_closing:
                return
            self._is_closing = True
            failure: Exception | None = None
            try:
                if self._core.subscribed:
                    with closing(_steps(self._core.goodbye())) as steps:
                        for callback, partitions in steps:
                            try:
                                callback(partitions)
                            except Exception as error:
                                # What is finished is committed all the same.
                                failure = failure or error
            finally:
                run(self._core.close())
        if failure is not None:
            raise failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


async def _call(function: Callable[..., Any], *arguments: Any) -> None:
    function(*arguments)


def _steps(calls: Calls) -> Generator[tuple[Callback, list[TopicPartition]], None, None]:
    """Take the steps in the shared loop, and yield the callbacks that are to be called in this thread."""
    try:
        while (call := run(_next(calls))) is not None:
            yield call
    finally:
        run(calls.aclose())


async def _next(calls: Calls) -> tuple[Callback, list[TopicPartition]] | None:
    return await anext(calls, None)
