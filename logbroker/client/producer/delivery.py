"""The handle that `send` returns. It represents one record, and gives its offset once the broker has answered."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Generator
from typing import Any, Final, Self

import msgspec

from logbroker.client.runtime.arguments import check_wait
from logbroker.client.runtime.handlers import call_plain, check_plain
from logbroker.client.runtime.sync_loop import Latch, wait_for
from logbroker.client.runtime.tasks import waiter
from logbroker.errors import LogbrokerError, RequestTimeoutError, quoted
from logbroker.record.codec import BatchBuilder
from logbroker.record.header import HEADER_BYTES

_log = logging.getLogger(__name__)


NO_RECORD: Final = -1


def _check_nothing() -> None:
    pass


class RecordMetadata(msgspec.Struct, frozen=True, gc=False):
    """The position of a record in the log. `timestamp_ms` is the time by the producer's clock, or by the broker's clock
    with LogAppendTime."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Batch:
    """Records of one partition that travel together, from the first `send` to the broker's answer.

    A delivery refers to its batch, but a batch does not refer to its deliveries, so a record costs no more than its
    handle.
    """

    __slots__ = (
        "append",
        "appending",
        "base_offset",
        "base_sequence",
        "builder",
        "by_hand",
        "check_loop",
        "count",
        "deadline",
        "done",
        "error",
        "last_error",
        "log_append_time_ms",
        "moved",
        "number",
        "ordering_keys",
        "part",
        "partition",
        "payload",
        "ready_at",
        "record_bytes",
        "sent_as",
        "told",
        "topic",
        "uncertain",
        "waiters",
        "was_uncertain",
    )

    def __init__(self, *, number: int, topic: str, partition: int, by_hand: bool, builder: BatchBuilder) -> None:
        self.number = number
        """Position among the producer's batches: a lower number is sent first."""
        self.part: tuple[int, ...] = ()
        """Empty unless the batch is a part of a split batch. Then, for each split, the index of the part's first record
        in the batch that was split. A part keeps the number of the split batch."""
        self.topic = topic
        self.partition = partition
        self.by_hand = by_hand
        """Whether the caller chose the partition. If so, the records stay there when the topic grows."""
        self.builder: BatchBuilder | None = builder
        self.append = builder.append
        self.check_loop: Callable[[], None] = _check_nothing
        """Raises an error if the event loop of an asynchronous producer does not run, because a wait would never
        end."""
        self.appending = False
        """Whether a record is being appended, or such an append was cut short by an exception from a signal handler. In
        that case the record may be in the builder without being counted, and no other record may follow it."""
        self.count = 0
        self.ordering_keys: dict[int, bytes] = {}
        """Ordering keys by the index of the record, for the records that were sent with an ordering key."""
        self.record_bytes = 0
        """The bytes of the records, before compression."""
        self.ready_at = 0.0
        self.deadline = 0.0
        """`ready_at`: when the batch may be sent although it is not full. `deadline`: when it fails. Both in monotonic
        seconds."""

        self.payload = b""
        """The encoded batch, once it has a sequence."""
        self.base_sequence = -1
        self.sent_as = 0
        """Number of batches sent to the partition before the latest sending of this one."""
        self.uncertain = False
        """Whether the batch was sent and the broker may have appended it."""
        self.was_uncertain = False
        self.last_error: LogbrokerError | None = None

        self.done = False
        self.error: LogbrokerError | None = None
        self.told: set[int] = set()
        """The indexes of the records whose `error` was reported."""
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.moved: list[tuple[Batch, Any]] | None = None
        """If the topic grew or the batch was split: the new batch of each record, and the result of `append` there."""
        self.waiters: dict[Callable[[], None], int] = {}
        """Callbacks to run when the batch is done, each with the index of its record or NO_RECORD."""

    def look_what_was_appended(self) -> None:
        """Note whether the record may be in the builder after `append` raised an error. The codec adds nothing if it
        raises an error itself, but a signal handler may have raised this one."""
        assert self.builder is not None
        self.appending = self.builder.size_bytes() - HEADER_BYTES != self.record_bytes

    @property
    def rank(self) -> tuple[int, tuple[int, ...]]:
        """The rank of the batch: batches of lower rank are sent first. The parts of a split batch rank before the
        batches behind it."""
        return self.number, self.part

    def finish(
        self, *, base_offset: int = -1, log_append_time_ms: int = -1, error: LogbrokerError | None = None
    ) -> None:
        """Set the outcome, release the bytes, and wake the waiters."""
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.error = error
        self._finish()

    def count_untold(self) -> int:
        """Return the number of records that failed or have no outcome and were not reported."""
        return self.count - len(self.told)

    def tell_all(self) -> None:
        """Count all records as reported."""
        self.told.update(range(self.count))

    def when_done(self, tell: Callable[[], None], index: int) -> None:
        """Call `tell` when the batch is done or its records moved to other batches. May be called from any thread. The
        caller will report the outcome of the record with this index. With NO_RECORD it reports no outcome."""
        self.waiters[tell] = index
        # The batch may have been finished after the caller looked and before the callback was added.
        if self.done:
            tell()

    def wait_no_longer(self, tell: Callable[[], None], index: int) -> None:
        """Withdraw a `tell`. If it was called already, the record counts as unreported again. May be called from any
        thread."""
        if self.waiters.pop(tell, None) is None:
            self.told.discard(index)

    def finish_moved(self, moved: list[tuple[Batch, Any]]) -> None:
        """Note the new batches of these records."""
        self.moved = moved
        self._finish()

    def _finish(self) -> None:
        self.done = True
        self.payload = b""
        self.builder = None
        del self.append
        waiters, self.waiters = self.waiters, {}
        if self.error is not None:
            self.told.update(waiters.values())
            self.told.discard(NO_RECORD)
        for tell in list(waiters):  # Other threads may add callbacks.
            tell()


class _Handle(msgspec.Struct, gc=False, eq=False):
    """One record of a batch. A future is made only when a caller waits.

    `batch` and `place` are private to the client.
    """

    batch: Batch
    place: Any
    """The result of the builder's `append`: the index in the batch, and the time."""

    @property
    def topic(self) -> str:
        """The topic that the record was sent to."""
        return self.batch.topic

    def done(self) -> bool:
        """Whether the broker has answered or the record has failed."""
        return self._settle().done

    def _settle(self) -> Batch:
        """Follow the record into the batch that it is in now."""
        while self.batch.moved is not None:
            self.batch, self.place = self.batch.moved[self.place.offset]
        return self.batch

    def add_done_callback(self, function: Callable[[Self], object]) -> None:
        """Call `function` with this delivery once the broker has answered or the record has failed. If that has
        happened already, call it at once.

        The function is called in the event loop of the producer, or in the background thread of a synchronous producer,
        so it must not block or be async. Its errors are logged. In it, `result()` returns at once, and `send` may be
        called if the buffer has room.
        """
        if not callable(function):
            raise TypeError(f"add_done_callback(): function must be a function, not {quoted(function)}")
        check_plain("the callback of a delivery", function)
        batch, once = self._settle(), _Once(self, function)
        if batch.done:
            once.call()
        else:
            batch.when_done(once, self.place.offset)

    def _outcome(self, batch: Batch) -> RecordMetadata:
        if batch.error is not None:
            batch.told.add(self.place.offset)
            # Raise a new error each time: each raise adds its traceback to the error.
            raise type(batch.error)(batch.error.message)
        timestamp_ms = batch.log_append_time_ms if batch.log_append_time_ms >= 0 else self.place.timestamp
        return RecordMetadata(batch.topic, batch.partition, batch.base_offset + self.place.offset, timestamp_ms)


class _Once:
    """Calls a function once, when the record is done."""

    __slots__ = ("_function", "_handle", "_lock")

    def __init__(self, handle: Any, function: Callable[[Any], object]) -> None:
        self._handle = handle
        self._function = function
        self._lock = threading.Lock()

    def __call__(self) -> None:
        if self._handle.batch.moved is not None:
            # The record moved to another batch.
            batch = self._handle._settle()
            batch.when_done(self, self._handle.place.offset)
        elif self._lock.acquire(blocking=False):
            # The lock is never released, because the batch may call twice.
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                self.call()
            else:
                loop.call_soon(self.call)  # The caller holds the producer's lock, and the function may call `send`.

    def call(self) -> None:
        """Call the function now."""
        try:
            call_plain("the callback of a delivery", self._function, self._handle)
        except Exception:
            _log.exception("a callback of a delivery failed")


class Delivery(_Handle):
    """The handle of the asynchronous producer. `await delivery` waits until the record has the requested durability. It
    may be awaited again.

    Raises the error with which the record failed, such as RequestTimeoutError.
    """

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return self._wait().__await__()

    async def _wait(self) -> RecordMetadata:
        while not (batch := self._settle()).done:
            batch.check_loop()
            # Each waiter has its own future, because cancelling one must not cancel the others.
            told, tell = waiter()
            batch.when_done(tell, self.place.offset)
            try:
                await told
            except BaseException:
                batch.wait_no_longer(tell, self.place.offset)
                raise
        return self._outcome(batch)

    def result(self) -> RecordMetadata:
        """Return the outcome of a delivery that is done. Raises asyncio.InvalidStateError before that; to wait, use
        `await delivery` or `await asyncio.wait_for(delivery, seconds)`."""
        batch = self._settle()
        if not batch.done:
            raise asyncio.InvalidStateError("the broker has not answered yet; await the delivery")
        return self._outcome(batch)


class SyncDelivery(_Handle):
    """The handle of the synchronous producer."""

    def result(self, timeout_seconds: float | None = None, *, timeout: float | None = None) -> RecordMetadata:
        """Wait until the record has the requested durability. `timeout` is another name of `timeout_seconds`, as in
        other libraries' futures.

        Raises the error with which the record failed, or RequestTimeoutError if there is no outcome within
        `timeout_seconds`.
        """
        timeout_seconds = timeout if timeout_seconds is None else timeout_seconds
        check_wait(timeout_seconds)
        while not (batch := self._settle()).done:
            told = Latch()
            batch.when_done(told.set, self.place.offset)
            try:
                if not wait_for(told, timeout_seconds):
                    raise RequestTimeoutError(f"no answer for the record within {timeout_seconds} s; it may still come")
            except BaseException:
                batch.wait_no_longer(told.set, self.place.offset)
                raise
        return self._outcome(batch)
