"""The synchronous Consumer: reads ahead in the shared loop, decodes in the caller's thread."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from logbroker.client.consumer_core import DEFAULT_BUFFER_BYTES, ConsumerCore, Start, Step
from logbroker.client.cursor import Record
from logbroker.client.fetcher import OutOfRange
from logbroker.client.sync_loop import run, shared_loop
from logbroker.errors import LogbrokerError
from logbroker.record.header import MAX_EXPANDED_BYTES
from logbroker.types import TopicPartition


class Consumer:
    """`logbroker.client.Consumer` for programs without an event loop; each method is documented there.

    Belongs to one thread at a time.
    """

    def __init__(
        self,
        broker: str,
        *,
        on_out_of_range: OutOfRange = "error",
        buffer_bytes: int = DEFAULT_BUFFER_BYTES,
        max_expanded_bytes: int = MAX_EXPANDED_BYTES,
        request_timeout_seconds: float = 10.0,
    ) -> None:
        self._core = ConsumerCore(
            broker,
            on_out_of_range=on_out_of_range,
            buffer_bytes=buffer_bytes,
            max_expanded_bytes=max_expanded_bytes,
            request_timeout_seconds=request_timeout_seconds,
            call=shared_loop().call_soon_threadsafe,
        )

    def assign(self, topics: str | TopicPartition | Iterable[str | TopicPartition], start: Start = "earliest") -> None:
        run(self._core.assign(topics, start))

    def assignment(self) -> list[TopicPartition]:
        return self._core.assignment()

    def position(self, partition: TopicPartition) -> int:
        return self._core.position(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        run(self._core.seek(partition, offset))

    def seek_to_time(self, partition: TopicPartition, moment: int | datetime.datetime) -> None:
        run(self._core.seek_to_time(partition, moment))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        run(self._core.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        run(self._core.seek_to_end(*partitions))

    def pause(self, *partitions: TopicPartition) -> None:
        run(_call(self._core.pause, *partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        run(_call(self._core.resume, *partitions))

    def beginning_offsets(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        return run(self._core.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        return run(self._core.end_offsets(partitions))

    def __iter__(self) -> Iterator[Record]:
        self._core.begin()
        return self._records(None)

    def until_end(self) -> Iterator[Record]:
        self._core.begin()
        return self._records(run(self._core.ends()))

    def _records(self, ends: dict[TopicPartition, int] | None) -> Iterator[Record]:
        cursor = self._core.cursor
        while ends is None or ends:
            try:
                for record in cursor.records:
                    cursor.last = record
                    yield record
            except LogbrokerError as error:
                self._core.fail_open(error)
            self._advance(ends)

    def batches(self, *, until_end: bool = False) -> Iterator[list[Record]]:
        self._core.begin()
        ends = run(self._core.ends()) if until_end else None
        while ends is None or ends:
            records: list[Record] = []
            self._core.rest_of_batch(records, None)
            if records:
                yield records
            self._advance(ends)

    def poll(self, max_records: int = 500, timeout_seconds: float = 1.0) -> list[Record]:
        core = self._core
        core.begin()
        records: list[Record] = []
        while True:
            core.rest_of_batch(records, max_records - len(records))
            if len(records) == max_records:
                return records
            if core.open_next(None) is Step.OPENED:
                continue
            chunk = run(core.fetcher.ready_chunk() if records else core.fetcher.next_chunk(timeout_seconds))
            if chunk is None:
                return records
            core.cursor.take(chunk)

    def _advance(self, ends: dict[TopicPartition, int] | None) -> None:
        core = self._core
        while core.open_next(ends) is Step.NEEDS_CHUNK:
            chunk = run(core.fetcher.next_chunk(None))
            assert chunk is not None
            core.cursor.take(chunk)

    def close(self) -> None:
        run(self._core.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


async def _call(function: Callable[..., Any], *arguments: Any) -> None:
    function(*arguments)
