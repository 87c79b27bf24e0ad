"""Consumer: the records of partitions, from wherever one likes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from logbroker.client.consumer_core import DEFAULT_BUFFER_BYTES, ConsumerCore, Step
from logbroker.client.cursor import Record
from logbroker.client.fetcher import OutOfRange
from logbroker.errors import LogbrokerError
from logbroker.record.header import MAX_EXPANDED_BYTES
from logbroker.types import TopicPartition


class Consumer(ConsumerCore):
    """Reads partitions in the order of their offsets.

    async with Consumer("127.0.0.1:9192") as consumer:
        await consumer.assign("orders", start="earliest")
        async for record in consumer:
            print(record.offset, record.key, record.value)

    Reads ahead over one stream, and goes on at the right record when the broker was away. A loop over records may be
    left at any record; the next loop or `poll` goes on with the one after it. An error of one partition (such as
    OffsetOutOfRangeError) is raised once, after the records before it; the other partitions go on, and `seek` starts
    that one again. Use it in one event loop, and one loop over records at a time.
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
        """`broker` is "HOST:PORT".

        `on_out_of_range` says what to do where the log does not hold the position: raise, or go on at its earliest or
        latest offset. `buffer_bytes` bounds what is read ahead, `max_expanded_bytes` what one compressed batch may
        expand to.
        """
        super().__init__(
            broker,
            on_out_of_range=on_out_of_range,
            buffer_bytes=buffer_bytes,
            max_expanded_bytes=max_expanded_bytes,
            request_timeout_seconds=request_timeout_seconds,
            call=lambda function, *arguments: function(*arguments),
        )

    async def __aiter__(self) -> AsyncIterator[Record]:
        self.begin()
        cursor = self.cursor
        while True:
            try:
                for record in cursor.records:
                    cursor.last = record
                    yield record
            except LogbrokerError as error:
                self.fail_open(error)
            await self._advance(None)

    async def until_end(self) -> AsyncIterator[Record]:
        """Iterate up to what the high watermarks are now, and stop."""
        self.begin()
        ends = await self.ends()
        cursor = self.cursor
        while ends:
            try:
                for record in cursor.records:
                    cursor.last = record
                    yield record
            except LogbrokerError as error:
                self.fail_open(error)
            await self._advance(ends)

    async def batches(self, *, until_end: bool = False) -> AsyncIterator[list[Record]]:
        """Iterate over lists of records, each from one batch of one partition: the fast way.

        A list counts as delivered when it is handed out. With `until_end`, stop at what the high watermarks are now.
        """
        self.begin()
        ends = await self.ends() if until_end else None
        while ends is None or ends:
            records: list[Record] = []
            self.rest_of_batch(records, None)
            if records:
                yield records
            await self._advance(ends)

    async def poll(self, max_records: int = 500, timeout_seconds: float = 1.0) -> list[Record]:
        """Return up to `max_records`, as soon as there are any; none when the time is over."""
        self.begin()
        records: list[Record] = []
        while True:
            self.rest_of_batch(records, max_records - len(records))
            if len(records) == max_records:
                return records
            if self.open_next(None) is Step.OPENED:
                continue
            chunk = await (self.fetcher.ready_chunk() if records else self.fetcher.next_chunk(timeout_seconds))
            if chunk is None:
                return records
            self.cursor.take(chunk)

    async def _advance(self, ends: dict[TopicPartition, int] | None) -> None:
        """Open the next batch, waiting for it, unless all `ends` are reached."""
        while self.open_next(ends) is Step.NEEDS_CHUNK:
            chunk = await self.fetcher.next_chunk(None)
            assert chunk is not None
            self.cursor.take(chunk)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
