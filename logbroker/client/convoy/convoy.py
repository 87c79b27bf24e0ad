"""The asynchronous convoy: calls the program's function for many keys at once, in order per key."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable
from contextlib import AsyncExitStack, suppress
from time import monotonic
from typing import Any, Final

from logbroker.client.consumer.consumer import Consumer
from logbroker.client.convoy.convoy_core import (
    ACK_OR_NACK,
    ALL,
    DEFAULT_CONCURRENCY,
    DEFAULT_DRAIN_SECONDS,
    DEFAULT_MAX_BYTES,
    DEFAULT_MAX_RECORDS,
    HANDLER,
    LETTER_FUNCTION,
    PULL_SECONDS,
    RUNS_ALREADY,
    STILL_RUN,
    BlockedKey,
    ConvoyCore,
    ConvoyCounts,
    DeadLetter,
    Key,
    OnExhausted,
)
from logbroker.client.convoy.feeds import ConsumerFeed, ConvoySource, Feed, StreamFeed, WorkerFeed
from logbroker.client.convoy.handler_threads import HandlerThreads
from logbroker.client.convoy.track import Entry, RecordState, Track
from logbroker.client.producer.producer import Producer
from logbroker.client.runtime.arguments import checks_arguments
from logbroker.client.runtime.handlers import Slots, call, check_no_generator
from logbroker.client.runtime.lifetime import Uncopied
from logbroker.client.runtime.tasks import end_tasks
from logbroker.client.transport.connection import backoff_seconds
from logbroker.client.worker.worker import Worker
from logbroker.errors import InvalidRequestError, LogbrokerError
from logbroker.types import TopicPartition

_log = logging.getLogger(__name__)

Handler = Callable[[Any], Awaitable[object] | object]

_HELD_UP_SECONDS: Final = 0.01
"""If all handlers together have held up the event loop for this long, it gets a turn, in which heartbeats are sent and
records arrive."""
_ABANDON_SECONDS: Final = 2.0
"""How long handlers that were interrupted may take to end before their partition is given away."""


@checks_arguments("run")
class Convoy(Uncopied):
    """Calls a function with records of many keys at once, and with those of a key one at a time and in order.

    async with Consumer("127.0.0.1:9192", group="billing") as consumer:
        await consumer.subscribe("orders")
        await Convoy(consumer, concurrency=100).run(charge)

    The queues, one per key, are in the memory of this program. The source is a `Consumer` of a group, a `Worker`, or
    any asynchronous iterator of (key, item, ack, nack): see `ConvoySource`.

    With a consumer, the convoy commits for each partition the offset of the first record that is not done and, beside
    it, a list of the later records that are done. So after a crash, handlers are called again only for records that
    were not done at the last commit (`auto_commit_interval_seconds` of the consumer). The room for this list is
    limited: the convoy does not start a record that lies too far ahead for it. A consumer without a convoy may take
    over at any time: it begins at the committed offset. Before a partition is given away, its running handlers get
    `drain_seconds` to end; then asynchronous handlers are cancelled. A handler in a thread cannot be cancelled: it may
    still run when the next owner of the partition begins.

    Records without a key have no order. A failed record is tried again after a backoff, and its key waits meanwhile.
    """

    def __init__(
        self,
        source: Consumer | Worker | ConvoySource,
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        key: Key | None = None,
        max_attempts: int = 5,
        backoff_initial_seconds: float = 1.0,
        backoff_factor: float = 2.0,
        backoff_cap_seconds: float = 300.0,
        backoff_jitter: float = 0.2,
        on_exhausted: OnExhausted = "block",
        dead_letter: str | DeadLetter | None = None,
        max_records: int = DEFAULT_MAX_RECORDS,
        max_bytes: int = DEFAULT_MAX_BYTES,
        drain_seconds: float = DEFAULT_DRAIN_SECONDS,
    ) -> None:
        """`concurrency` is the number of handlers that run at once. `key` is a function that returns the ordering key
        of a record; without it, the key is the record's key or the first item of the tuple. If the function fails, the
        record has no order, and each attempt begins with another call of the function. Records of one key in two
        partitions run side by side, so producers must route by that key. `max_records` and `max_bytes`
        bound the records in memory, those that wait behind others included. Near a limit, the convoy asks the source
        for no more.

        `max_attempts` and the backoff mean the same as in a queue group, but attempts are counted in memory only.
        `on_exhausted` decides what happens after the last attempt. With "block", the key is blocked until `resume` or
        `skip`, or until the program starts again. With "dead-letter", the record goes to `dead_letter`, and the key
        goes on. `dead_letter` is a topic (with a consumer or a worker), or a function of the record and its last error,
        which may be async. If it cannot be sent for a reason that does not pass by itself, such as a missing topic, the
        key is blocked, too. With "skip", the record counts as done. While a key is blocked and a topic grows, a
        consumer group waits before the records that came after the growth, also those of other keys, unless it has
        growth_order="none". `drain_seconds` bounds the wait for running handlers at `stop` and when partitions are
        revoked; at a revocation, so does half of the rebalance timeout. Raises InvalidRequestError for invalid
        settings.
        """
        self._core = ConvoyCore(
            concurrency=concurrency,
            key=key,
            max_attempts=max_attempts,
            backoff_initial_seconds=backoff_initial_seconds,
            backoff_factor=backoff_factor,
            backoff_cap_seconds=backoff_cap_seconds,
            backoff_jitter=backoff_jitter,
            on_exhausted=on_exhausted,
            dead_letter=dead_letter,
            max_records=max_records,
            max_bytes=max_bytes,
            drain_seconds=drain_seconds,
        )
        self._lanes = self._core.lanes
        self._feed = self._feed_of(source)
        self._idle: deque[asyncio.Future[None]] = deque()
        """The tasks that wait for a record to run."""
        self._handled = asyncio.Event()
        """Set when a handler has ended."""
        self._watchers = 0
        """Number of tasks that wait for `_handled`."""
        self._abandoned: set[Entry] = set()
        """Records whose handlers were interrupted and have not ended."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turned_at = 0.0
        """When the event loop last had a turn, as far as the tasks know."""
        self._is_turning = False
        self._timer: asyncio.TimerHandle | None = None
        self._threads: HandlerThreads | None = None
        """The threads of a handler that is not async."""
        self._producer: Producer | None = None

    def _feed_of(self, source: Consumer | Worker | ConvoySource) -> Feed:
        to_topic = isinstance(self._core.dead_letter, str)
        if isinstance(source, Consumer):
            return ConsumerFeed(source, self._core, self._drain)
        if isinstance(source, Worker):
            return WorkerFeed(source, self._core)
        if self._core.key is not None:
            raise InvalidRequestError("the tuples of this source name the keys: leave out key")
        if to_topic:
            raise InvalidRequestError(
                "a dead-letter topic needs a consumer or a worker: give a function as dead_letter"
            )
        return StreamFeed(source, self._core)

    async def run(self, handler: Handler) -> None:
        """Call `handler` with each record, until `stop`, the end of the source, or cancellation.

        A coroutine function runs in tasks, and any other function in threads. A record is done when its handler
        returns; an exception is logged and counts as a failed attempt. If the call is cancelled, asynchronous handlers
        are cancelled, too. At the end, done records are committed or acked, and the others are given back: a consumer
        is moved back to them. The program may go on with the source. Raises the error that ended the source, and
        InvalidRequestError for a handler that contains `yield` or a consumer that is not ready for a convoy.
        """
        check_no_generator(HANDLER, handler)
        core = self._core
        if core.has_begun:
            raise InvalidRequestError(RUNS_ALREADY)
        called = self._called(handler)
        await self._feed.open()
        core.has_begun = True
        self._loop = asyncio.get_running_loop()
        slots = Slots()
        pulling = asyncio.ensure_future(self._pull_on_and_on())
        running = asyncio.ensure_future(slots.run(core.concurrency, lambda: self._handle(called, slots)))
        try:
            await asyncio.wait([pulling, running], return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                # Let running handlers end, also after an error of the source.
                self.stop()
                await self._wait_until(lambda: not self._lanes.running, core.drain_left_seconds)
        finally:
            core.stop()
            slots.are_over = True
            try:
                outcomes = await end_tasks(pulling, running)
            finally:
                await self._end()
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
                raise outcome

    def _called(self, handler: Handler) -> Handler:
        """Return the function that a task calls with a record."""
        if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            inspect.getattr_static(type(handler), "__call__", None)
        ):
            return handler
        self._threads = HandlerThreads(HANDLER, handler, "logbroker-convoy")
        return self._threads.call

    def stop(self) -> None:
        """Let `run` return when the running handlers have returned, at most `drain_seconds` from now. Records that wait
        are given back. A stop is final. May be called in any thread, and in a signal handler."""
        self._core.stop()
        if self._loop is not None:
            with suppress(RuntimeError):  # The loop has ended.
                self._loop.call_soon_threadsafe(self._wake_all)

    # --- what comes in ----------------------------------------------------------------------------------------------

    async def _pull_on_and_on(self) -> None:
        core, lanes, feed = self._core, self._lanes, self._feed
        attempt = 0
        while not (core.stopping or (feed.is_over and not lanes.records)):
            records, size_bytes = lanes.room
            try:
                if lanes.has_much_room and not feed.is_over:
                    await feed.pull(records, size_bytes)
                else:
                    await feed.idle()
                    await self._wait_for_room()
            except LogbrokerError as error:
                if not error.retriable or feed.is_closed:
                    raise
                _log.warning("the convoy goes on after: %s", error)
                await asyncio.sleep(backoff_seconds(attempt))
                attempt += 1
            else:
                attempt = 0
            self._wake()
        while lanes.running and core.drain_left_seconds:
            # Partitions may be revoked during this wait.
            with suppress(LogbrokerError):
                await feed.idle()
            await self._wait_until(lambda: not lanes.running, min(PULL_SECONDS, core.drain_left_seconds))

    async def _wait_for_room(self) -> None:
        lanes = self._lanes
        await self._wait_until(
            lambda: self._core.stopping or (not lanes.records if self._feed.is_over else lanes.has_much_room),
            PULL_SECONDS,
        )

    async def _wait_until(self, holds: Callable[[], bool], seconds: float) -> None:
        """Wait until `holds` returns true, or the time is over. It is called after the end of each handler."""
        self._watchers += 1
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    self._handled.clear()
                    await self._handled.wait()
        except TimeoutError:
            pass
        finally:
            self._watchers -= 1

    def _wake(self) -> None:
        """Wake one task if there is work. This task wakes the next one."""
        if self._lanes.has_ready:
            while self._idle:
                told = self._idle.popleft()
                if not told.done():
                    told.set_result(None)
                    return

    def _wake_all(self) -> None:
        self._handled.set()
        while self._idle:
            told = self._idle.popleft()
            if not told.done():
                told.set_result(None)

    # --- what runs --------------------------------------------------------------------------------------------------

    async def _handle(self, called: Handler, slots: Slots) -> None:
        core, lanes, feed = self._core, self._lanes, self._feed
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        while not (core.stopping or slots.are_over):
            if monotonic() - self._turned_at > _HELD_UP_SECONDS:
                await self._give_turn(loop)
                continue
            entry = lanes.start() if feed.may_start() else None
            if entry is None:
                await self._wait_for_work(loop)
                continue
            if self._idle and lanes.has_ready:
                self._wake()
            failure: Exception | None = None
            if not feed.begins(entry.item):
                core.lose(entry)
            elif core.is_used_up(entry):
                failure = entry.error
            elif not entry.lacks_key or (failure := core.key_failure(entry)) is None:
                if self._threads is None:
                    entry.abandon = task.cancel
                failure = await slots.attempt(HANDLER, called, entry.item)
                entry.abandon = None
            if failure is None and entry.settlement is None:
                lanes.done(entry)
            else:
                await self._settle(entry, failure, slots)
            if entry.state is RecordState.GONE:
                self._abandoned.discard(entry)
            if self._watchers:
                self._handled.set()
            if not lanes.running:
                feed.progressed()
            if task.cancelling():
                await slots.outlive_handler()

    async def _give_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give the event loop a turn. Until it has had this turn, the other tasks wait for it, too."""
        if not self._is_turning:
            self._is_turning = True
            loop.call_soon(self._turned)
        await asyncio.sleep(0)

    def _turned(self) -> None:
        self._is_turning = False
        self._turned_at = monotonic()

    async def _wait_for_work(self, loop: asyncio.AbstractEventLoop) -> None:
        told = loop.create_future()
        self._idle.append(told)
        try:
            await told
        except asyncio.CancelledError:
            if told.done() and not told.cancelled():
                self._wake()
            raise

    async def _settle(self, entry: Entry, failure: Exception | None, slots: Slots) -> None:
        """Handle the end of a handler: ack the record, try it again later, or give it up."""
        await slots.outlive_handler()
        if entry.state is not RecordState.RUNNING:
            return  # Its partition was given away or lost.
        if failure is None or self._core.has_settled(entry, failure) or await self._is_given_up(entry, failure, slots):
            if await self._ack(entry):
                self._lanes.done(entry)
            else:
                self._core.ack_refused(entry)

    async def _is_given_up(self, entry: Entry, failure: Exception, slots: Slots) -> bool:
        """Handle a failed attempt. Return whether the record is given up, so that it counts as done."""
        core = self._core
        is_used_up = core.failed(entry, failure)
        self._set_timer()
        if not is_used_up:
            return False
        if core.dead_letter is None:
            core.skip(entry)
        elif (refusal := await slots.attempt(LETTER_FUNCTION, self._send_letter, entry, failure)) is None:
            core.sent_letter()
        else:
            core.refused_letter(entry, refusal)
            self._set_timer()
            return False
        return entry.state is RecordState.RUNNING

    def _send_letter(self, entry: Entry, failure: Exception) -> Awaitable[object] | object:
        """Send the dead letter of a record. The letter is stored once the result was awaited."""
        to, feed = self._core.dead_letter, self._feed
        if not isinstance(to, str):
            assert to is not None
            return to(entry.item, failure)
        assert isinstance(feed, ConsumerFeed | WorkerFeed)
        if self._producer is None:
            self._producer = Producer(feed.broker)
        value, key, headers = self._core.letter(entry, feed.group_id)
        return self._producer.send_and_wait(to, value, key, headers=headers)

    async def _ack(self, entry: Entry) -> bool:
        return entry.settlement is None or await self._tell(entry, entry.settlement[0])

    async def _tell(self, entry: Entry, settle: Callable[..., Any], *arguments: Any) -> bool:
        """Ack or nack a record. Return whether the source took this."""
        try:
            await call(ACK_OR_NACK, settle, *arguments)
        except Exception as error:
            self._core.not_settled(entry, error)
            return False
        return True

    def _set_timer(self) -> None:
        """Wake up when the next record is to be tried again."""
        due_at = self._lanes.next_due
        if due_at is not None and not self._core.stopping:
            if self._timer is not None:
                self._timer.cancel()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, due_at - monotonic()), self._tick)

    def _tick(self) -> None:
        self._lanes.tick(monotonic())
        self._wake()
        self._set_timer()

    # --- the end ----------------------------------------------------------------------------------------------------

    async def _drain(self, tracks: Iterable[Track], seconds: float) -> None:
        """Wait until no record of these held tracks runs. When the time is over, interrupt the handlers that still
        run."""
        tracks = list(tracks)
        await self._wait_until(lambda: not any(track.running for track in tracks), seconds)
        ran = self._core.drop(tracks)
        interrupted = {entry for entry in ran if entry.abandon is not None}
        if interrupted:
            _log.warning("%d handlers are interrupted, because their partitions are given away", len(interrupted))
            self._abandoned |= interrupted
            await self._wait_until(lambda: not (self._abandoned & interrupted), _ABANDON_SECONDS)
        elif ran:
            _log.warning(STILL_RUN, len(ran))

    async def _end(self) -> None:
        """Give back the records that are not done, and end all parts. All steps are taken, however often the call is
        cancelled."""
        core = self._core
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._close_producer)
            stack.push_async_callback(self._give_back)
            stack.push_async_callback(self._feed.close)
            if self._timer is not None:
                self._timer.cancel()
            if self._threads is not None:
                self._threads.close()
            core.drop(core.tracks.values())

    async def _close_producer(self) -> None:
        if self._producer is not None:
            await self._producer.close()

    async def _give_back(self) -> None:
        """Nack those records of a source without partitions that are not done."""
        left = self._core.give_back()
        async with AsyncExitStack() as stack:
            for entry, nack, error in reversed(left):
                stack.push_async_callback(self._tell, entry, nack, error)

    # --- what an operator asks --------------------------------------------------------------------------------------

    def counts(self) -> ConvoyCounts:
        """Return the numbers of records in memory, and of those that were done."""
        return self._core.counts()

    def blocked(self) -> list[BlockedKey]:
        """Return the blocked keys. The attempts of their first records are used up."""
        return self._core.blocked()

    def resume(self, key: Hashable = ALL, partition: TopicPartition | None = None) -> int:
        """Try the first record of a blocked key again, with new attempts. Without `key`, do this for all blocked keys;
        with `partition`, only for those in this partition. If `key` is an element of `blocked()`, only this record is
        tried again. None stands for all blocked records without a key. Return how many keys go on."""
        resumed = self._core.resume(key, partition)
        self._wake()
        return resumed

    async def skip(self, key: Hashable = ALL, partition: TopicPartition | None = None) -> int:
        """Count the first record of a blocked key as done. The arguments are those of `resume`. Return how many records
        were skipped."""
        entries = self._core.take_blocked(key, partition)
        try:
            for entry in entries:
                await self._ack(entry)
                self._lanes.done(entry)
        finally:
            self._wake()
            skipped = self._core.skipped_by_hand(entries)
        return skipped
