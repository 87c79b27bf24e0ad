"""The synchronous convoy. The caller's thread asks the source for records, and other threads run the handlers."""

from __future__ import annotations

import logging
import threading
from asyncio import CancelledError
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import ExitStack, suppress
from queue import SimpleQueue
from time import monotonic
from typing import Any, Final, Protocol, runtime_checkable

from logbroker.client.blocking.consumer import Consumer
from logbroker.client.blocking.producer import Producer
from logbroker.client.blocking.worker import Worker, next_within
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
    SOURCE,
    STILL_RUN,
    BlockedKey,
    ConvoyCore,
    ConvoyCounts,
    Key,
    OnExhausted,
)
from logbroker.client.convoy.feeds import GroupHold, begins, item_of, prefetch_of
from logbroker.client.convoy.track import Entry, RecordState, Track
from logbroker.client.runtime.arguments import checks_arguments
from logbroker.client.runtime.handlers import call_plain, check_plain, let_out
from logbroker.client.runtime.lifetime import Uncopied
from logbroker.client.runtime.sync_loop import run
from logbroker.client.worker.leased_record import SyncWorkerDelivery
from logbroker.errors import InvalidRequestError, LogbrokerError
from logbroker.types import TopicPartition

_log = logging.getLogger(__name__)

Handler = Callable[[Any], object]
DeadLetter = Callable[[Any, Exception], object]
Ack = Callable[[], object]
Nack = Callable[[Exception | None], object]
SyncItem = tuple[Hashable | None, Any, Ack, Nack]

_LOOK: Final = object()
"""Tells a thread of a convoy to look for records to start."""
_MAX_PULLED: Final = 1_000
_NOTHING_SECONDS: Final = 0.02
"""The pause after a source had nothing."""
_FAILED_SECONDS: Final = 0.5
"""The pause after a temporary error of the source."""


@runtime_checkable
class ConvoySource(Protocol):
    """A source of records for a `Convoy`: an iterator of tuples of four.

    key      the ordering key: any hashable value. With None, the record is a lane of its own, without an order
    item     the argument of the handler
    ack      called without an argument when the item is done
    nack     called if the convoy ends before the item is done, with its last error, or None if it never failed. The
             source should deliver the item again

    The convoy takes one item at a time, in the thread that called `run`, as it has room for it. A source that has
    nothing now yields None after a moment instead of waiting for long. Then the convoy can notice a stop.
    """

    def __iter__(self) -> Iterator[tuple[Hashable | None, Any, Ack, Nack] | None]: ...


class _Feed(Protocol):
    is_over: bool

    @property
    def is_closed(self) -> bool: ...
    def open(self) -> None: ...
    def pull(self, records: int, size_bytes: int, seconds: float) -> None: ...
    def idle(self) -> None: ...
    def may_start(self) -> bool: ...
    def begins(self, item: Any) -> bool: ...
    def close(self) -> None: ...


@checks_arguments("run")
class Convoy(Uncopied):
    """Calls a function with records of many keys at once, and with those of a key one at a time and in order: for
    programs without an event loop.

    with Consumer("127.0.0.1:9192", group="billing") as consumer:
        consumer.subscribe("orders")
        Convoy(consumer, concurrency=100).run(charge)

    The queues, one per key, are in the memory of this program. The source is a `Consumer` of a group, a `Worker`, or
    any iterator of (key, item, ack, nack): see `ConvoySource`.

    With a consumer, the convoy commits for each partition the offset of the first record that is not done and, beside
    it, a list of the later records that are done. So after a crash, handlers are called again only for records that
    were not done at the last commit (`auto_commit_interval_seconds` of the consumer). The room for this list is
    limited: the convoy does not start a record that lies too far ahead for it. A consumer without a convoy may take
    over at any time: it begins at the committed offset. Before a partition is given away, its running handlers get
    `drain_seconds` to end. A handler that takes longer may still run when the next owner of the partition begins.

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
        """`concurrency` is the number of threads that run handlers. `key` is a function that returns the ordering key
        of a record; without it, the key is the record's key or the first item of the tuple. If the function fails, the
        record has no order, and each attempt begins with another call of the function. Records of one key in two
        partitions run side by side, so producers must route by that key. `max_records` and `max_bytes`
        bound the records in memory, those that wait behind others included. Near a limit, the convoy asks the source
        for no more.

        `max_attempts` and the backoff mean the same as in a queue group, but attempts are counted in memory only.
        `on_exhausted` decides what happens after the last attempt. With "block", the key is blocked until `resume` or
        `skip`, or until the program starts again. With "dead-letter", the record goes to `dead_letter`, and the key
        goes on. `dead_letter` is a topic (with a consumer or a worker), or a function of the record and its last error.
        If it cannot be sent for a reason that does not pass by itself, such as a missing topic, the key is blocked,
        too. With "skip", the record counts as done. While a key is blocked and a topic grows, a consumer group waits
        before the records that came after the growth, also those of other keys, unless it has growth_order="none".
        `drain_seconds` bounds the wait for running handlers at `stop` and when partitions are revoked; at a revocation,
        so does half of the rebalance timeout. Raises InvalidRequestError for invalid settings.
        """
        if dead_letter is not None and not isinstance(dead_letter, str):
            check_plain("dead_letter", dead_letter)
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
        self._handled = threading.Condition(self._core.lock)
        """Notified when a handler has ended."""
        self._ended = deque[Entry]()
        """Records whose handlers have returned, to be noted as done."""
        self._given = SimpleQueue[Any]()
        """Inputs that threads wait for: started records, `_LOOK`, or None at the end."""
        self._is_woken = False
        """Whether `_LOOK` is on its way to a thread."""
        self._looking = threading.Lock()
        """Held by the thread that notes the ends of handlers, and starts records."""
        self._settling = threading.Lock()
        """Held while it is decided whether a record is acked or given back."""
        self._watchers = 0
        """Number of threads that wait for the end of a handler."""
        self._feed = self._feed_of(source)
        self._failure: Future[None] = Future()
        """Fails with the first error that ended a thread."""
        self._producer: Producer | None = None

    def _feed_of(self, source: Consumer | Worker | ConvoySource) -> _Feed:
        if isinstance(source, Consumer):
            return _ConsumerFeed(source, self._core, self._drain)
        if isinstance(source, Worker):
            return _WorkerFeed(source, self._core)
        if self._core.key is not None:
            raise InvalidRequestError("the tuples of this source name the keys: leave out key")
        if isinstance(self._core.dead_letter, str):
            raise InvalidRequestError(
                "a dead-letter topic needs a consumer or a worker: give a function as dead_letter"
            )
        return _IteratorFeed(source, self._core)

    def run(self, handler: Handler) -> None:
        """Call `handler` with each record, until `stop`, the end of the source, or Ctrl-C.

        A record is done when its handler returns; an exception is logged and counts as a failed attempt. At the end,
        done records are committed or acked, and the others are given back: a consumer is moved back to them. The
        program may go on with the source. Raises the error that ended the source, and InvalidRequestError for a handler
        that is async or contains `yield`, or a consumer that is not ready for a convoy.
        """
        check_plain(HANDLER, handler)
        core = self._core
        if core.has_begun:
            raise InvalidRequestError(RUNS_ALREADY)
        with ExitStack() as stack:
            stack.callback(self._close_producer)
            stack.callback(self._give_back)
            # A signal handler may raise an exception while the source is opened.
            stack.callback(self._feed.close)
            self._feed.open()
            core.has_begun = True
            stack.callback(self._end_threads)
            for number in range(core.concurrency):
                # A daemon thread does not keep the program alive if its handler hangs for longer than `drain_seconds`.
                thread = threading.Thread(
                    target=self._work, args=(handler,), name=f"logbroker-convoy-{number}", daemon=True
                )
                thread.start()
            self._pull_on_and_on()
        if self._failure.done():
            self._failure.result()

    def stop(self) -> None:
        """Let `run` return when the running handlers have returned, at most `drain_seconds` from now. Records that wait
        are given back. A stop is final. May be called in any thread, and in a signal handler."""
        self._core.stop()

    # --- what comes in ----------------------------------------------------------------------------------------------

    def _pull_on_and_on(self) -> None:
        core, lanes, feed = self._core, self._lanes, self._feed
        while not (core.stopping or (feed.is_over and not lanes.records)):
            with core.lock:
                lanes.tick(monotonic())
                records, size_bytes = lanes.room
                due_at = lanes.next_due
            if lanes.has_ready:
                self._wake()
            seconds = PULL_SECONDS if due_at is None else max(0.0, min(PULL_SECONDS, due_at - monotonic()))
            try:
                # `room` again, and not only `has_much_room`: a handler may have ended since it was read.
                if records and size_bytes and lanes.has_much_room and not feed.is_over:
                    feed.pull(records, size_bytes, seconds)
                else:
                    feed.idle()
                    self._wait_until(self._has_room, seconds)
            except LogbrokerError as error:
                if not error.retriable or feed.is_closed:
                    raise
                _log.warning("the convoy goes on after: %s", error)
                self._wait_until(lambda: core.stopping, _FAILED_SECONDS)

    def _has_room(self) -> bool:
        lanes = self._lanes
        return self._core.stopping or (not lanes.records if self._feed.is_over else lanes.has_much_room)

    def _wait_until(self, holds: Callable[[], bool], seconds: float) -> None:
        with self._handled:
            self._watchers += 1
            try:
                self._handled.wait_for(holds, seconds)
            finally:
                self._watchers -= 1

    # --- what runs --------------------------------------------------------------------------------------------------

    def _work(self, handler: Handler) -> None:
        core = self._core
        entry: Entry | None = None
        try:
            while (entry := self._next()) is not None:
                if self._handle(handler, entry):
                    self._ended.append(entry)
                elif self._watchers:
                    with core.lock:
                        self._handled.notify_all()
        except BaseException as error:
            with core.lock:
                if entry is not None:
                    core.lanes.interrupted(entry)
                self._handled.notify_all()
            with suppress(InvalidStateError):  # Another thread was first.
                self._failure.set_exception(error)
            self.stop()

    def _next(self) -> Entry | None:
        """Wait for the next record to run, and return it; None if the convoy was stopped."""
        core = self._core
        while True:
            entry = self._look()
            if entry is None:
                given = self._given.get()
                if given is None:
                    return None
                if given is _LOOK:
                    self._is_woken = False
                    continue
                entry = given
            if not core.stopping and entry.state is RecordState.RUNNING and self._feed.may_start():
                return entry
            with core.lock:
                self._lanes.interrupted(entry)
                self._handled.notify_all()

    def _look(self) -> Entry | None:
        """Note which records are done, and start others, unless another thread does this now. Return the first record
        that was started; the others are given to threads that wait.

        The threads of handlers never wait for each other here. The one that looks does this for all of them, and looks
        again for those that came too late. If each waited for the lock instead, nearly every record would cost a switch
        between threads, because Python runs one at a time.
        """
        lanes, ended, given = self._lanes, self._ended, self._given
        mine: Entry | None = None
        while (ended or self._may_start()) and self._looking.acquire(blocking=False):
            try:
                with self._core.lock:
                    while ended:
                        lanes.done(ended.popleft())
                    if self._watchers:
                        self._handled.notify_all()
                    while self._may_start() and (entry := lanes.start()) is not None:
                        if mine is None:
                            mine = entry
                        else:
                            given.put(entry)
            finally:
                self._looking.release()
        return mine

    def _may_start(self) -> bool:
        """Whether some record may be ready, and a thread free to run it."""
        core, lanes = self._core, self._lanes
        return lanes.has_ready and lanes.running < core.concurrency and not core.stopping and self._feed.may_start()

    def _handle(self, handler: Handler, entry: Entry) -> bool:
        """Run the handler, and handle its outcome. Return whether the record is done."""
        core = self._core
        failure: Exception | None = None
        if not self._feed.begins(entry.item):
            with core.lock:
                core.lose(entry)
            return False
        if core.is_used_up(entry):
            failure = entry.error
        elif not entry.lacks_key or (failure := core.key_failure(entry)) is None:
            try:
                call_plain(HANDLER, handler, entry.item)
            except Exception as error:
                failure = error
        if failure is not None and not (core.has_settled(entry, failure) or self._is_given_up(entry, failure)):
            return False
        if self._ack(entry):
            return True
        with self._core.lock:
            self._core.ack_refused(entry)
        return False

    def _is_given_up(self, entry: Entry, failure: Exception) -> bool:
        """Handle a failed attempt. Return whether the record is given up, so that it counts as done."""
        core = self._core
        if not core.failed(entry, failure):
            return False
        if core.dead_letter is None:
            core.skip(entry)
        else:
            try:
                self._send_letter(entry, failure)
            except Exception as refusal:
                core.refused_letter(entry, refusal)
                return False
            core.sent_letter()
        return entry.state is RecordState.RUNNING

    def _send_letter(self, entry: Entry, failure: Exception) -> None:
        """Send the dead letter of a record, and wait until it is stored."""
        to, feed = self._core.dead_letter, self._feed
        if not isinstance(to, str):
            assert to is not None
            call_plain(LETTER_FUNCTION, to, entry.item, failure)
            return
        assert isinstance(feed, _ConsumerFeed | _WorkerFeed)
        with self._core.lock:
            if self._producer is None:
                self._producer = Producer(feed.broker)
            producer = self._producer
        value, key, headers = self._core.letter(entry, feed.group_id)
        producer.send_and_wait(to, value, key, headers=headers)

    def _ack(self, entry: Entry) -> bool:
        """Ack a record. Return whether it is done: not if it was given back meanwhile, or the source did not take the
        ack."""
        if entry.settlement is None:
            return True
        with self._settling:
            if entry.state is not RecordState.RUNNING:
                return False
            (ack, _), entry.settlement = entry.settlement, None
        return self._tell(entry, ack)

    def _tell(self, entry: Entry, settle: Callable[..., Any], *arguments: Any) -> bool:
        """Ack or nack a record. Return whether the source took this."""
        try:
            call_plain(ACK_OR_NACK, settle, *arguments)
        except Exception as error:
            self._core.not_settled(entry, error)
            return False
        return True

    # --- the end ----------------------------------------------------------------------------------------------------

    def _drain(self, tracks: Iterable[Track], seconds: float) -> None:
        """Wait until no record of these held tracks runs, or the time is over. Then forget all their records."""
        tracks = list(tracks)
        self._wait_until(lambda: not any(track.running for track in tracks), seconds)
        ran = self._core.drop(tracks)
        if ran:
            _log.warning(STILL_RUN, len(ran))

    def _end_threads(self) -> None:
        """Let the threads end, and wait for running handlers. Partitions may be revoked during this wait."""
        self.stop()
        core, lanes = self._core, self._lanes
        for _ in range(core.concurrency):
            self._given.put(None)
        try:
            while lanes.running and core.drain_left_seconds:
                with suppress(LogbrokerError):
                    self._feed.idle()
                self._wait_until(lambda: not lanes.running, min(PULL_SECONDS, core.drain_left_seconds))
        finally:
            core.drop(core.tracks.values())

    def _give_back(self) -> None:
        """Nack those records of a source without partitions that are not done."""
        with self._settling:
            left = self._core.give_back()
        with ExitStack() as stack:
            for entry, nack, error in reversed(left):
                stack.callback(self._tell, entry, nack, error)

    def _close_producer(self) -> None:
        if self._producer is not None:
            self._producer.close()

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

    def skip(self, key: Hashable = ALL, partition: TopicPartition | None = None) -> int:
        """Count the first record of a blocked key as done. The arguments are those of `resume`. Return how many records
        were skipped."""
        entries = self._core.take_blocked(key, partition)
        try:
            for entry in entries:
                self._ack(entry)
                with self._core.lock:
                    self._lanes.done(entry)
        finally:
            self._wake()
            skipped = self._core.skipped_by_hand(entries)
        return skipped

    def _wake(self) -> None:
        """Let a thread look for records to start. If none is free, none can be started."""
        if not self._is_woken:
            self._is_woken = True
            self._given.put(_LOOK)


class _ConsumerFeed:
    """See `logbroker.client.convoy.feeds.ConsumerFeed`."""

    is_over = False

    def __init__(self, consumer: Consumer, core: ConvoyCore, drain: Callable[[Iterable[Track], float], None]) -> None:
        self._consumer = consumer
        self._core = core
        self._drain = drain
        self._hold: GroupHold | None = None

    @property
    def hold(self) -> GroupHold:
        assert self._hold is not None
        return self._hold

    @property
    def is_closed(self) -> bool:
        return self.hold.consumer.closed

    @property
    def group_id(self) -> str:
        return self.hold.group.group_id

    @property
    def broker(self) -> str:
        return self._consumer._core.connection.brokers

    def open(self) -> None:
        core = self._consumer._core
        hold = GroupHold(core, self._core)
        with core.use.reading():
            partitions = core.assignment()
            committed = run(hold.committed(partitions)) if partitions else {}
            self._hold = hold
            core.on_records = self._core.take_records
            hold.group.follow(self)
            hold.open_tracks(partitions, committed)

    def pull(self, records: int, size_bytes: int, seconds: float) -> None:
        self._consumer.poll(records, seconds, max_bytes=size_bytes)

    def idle(self) -> None:
        core = self.hold.consumer
        with core.use.reading():
            core.ask()
            if not core.ownership.lasts():
                self._consumer._turn(None, monotonic() + PULL_SECONDS)

    def may_start(self) -> bool:
        return self.hold.may_start()

    def begins(self, item: Any) -> bool:
        return True

    def close(self) -> None:
        hold = self._hold
        if hold is None:
            return  # It was not opened.
        try:
            run(hold.group.commit_done())
        finally:
            # Nobody must commit the position of the consumer before it is moved back.
            try:
                for partition, offset in hold.begun().items():
                    self._consumer.seek(partition, offset)
            finally:
                hold.let_go()

    # --- the completion of the group reader -------------------------------------------------------------------------

    def floor(self, partition: TopicPartition, position: int) -> int:
        return self._core.floor(partition, position)

    def changes(self, partition: TopicPartition) -> int:
        return self._core.changes(partition)

    def text(self, partition: TopicPartition, offset: int) -> str:
        return self._core.text(partition, offset)

    def is_busy(self) -> bool:
        return self._core.is_busy()

    def forget(self, partition: TopicPartition) -> None:
        self._core.forget(partition)

    def assigned(self, partitions: list[TopicPartition]) -> None:
        hold = self.hold
        new = [each for each in partitions if each not in hold.kept(partitions)]
        committed = run(hold.committed(new)) if new else {}
        held = set(hold.consumer.assignment())
        for partition, offset in hold.open_tracks([each for each in partitions if each in held], committed).items():
            self._consumer.seek(partition, offset)

    def revoked(self, partitions: list[TopicPartition]) -> None:
        self._drain(self._core.hold(partitions), self.hold.drain_seconds())


def _ack(delivery: SyncWorkerDelivery) -> None:
    """Ack a delivery, and wait until its outputs are stored. See `_ack` of the asynchronous convoy."""
    if not delivery.settled:
        delivery.ack()
    if delivery.outputs:
        delivery.result()


class _WorkerFeed:
    """See `logbroker.client.convoy.feeds.WorkerFeed`."""

    def __init__(self, worker: Worker, core: ConvoyCore) -> None:
        self.is_over = False
        self._worker = worker._core
        self._core = core

    @property
    def is_closed(self) -> bool:
        return self._worker.closed

    @property
    def group_id(self) -> str:
        return self._worker.group

    @property
    def broker(self) -> str:
        return self._worker.connection.brokers

    def open(self) -> None:
        self._worker.has_handlers = True
        run(self._worker.start(prefetch_of(self._worker, self._core)))

    def pull(self, records: int, size_bytes: int, seconds: float) -> None:
        self._core.look_at_leases(monotonic())
        worker, buffer = self._worker, self._worker.in_flight.buffer
        first = next_within(worker, buffer, seconds)
        taken = 0
        while first is not None:
            with self._core.lock:
                self._core.take_item(item_of(first, _ack))
                buffer.on_the_way = []
                taken += 1
                has_room = taken < min(records, _MAX_PULLED) and self._core.lanes.room != (0, 0)
            first = worker.take(buffer, monotonic(), keeps=True) if has_room else None
        self.is_over = worker.stopping

    def idle(self) -> None:
        self._core.look_at_leases(monotonic())

    def may_start(self) -> bool:
        return True

    def begins(self, item: Any) -> bool:
        return begins(item)

    def close(self) -> None:
        # An exception of a signal handler may have come before a delivery was among the records of the convoy.
        self._worker.in_flight.take_back(self._worker.in_flight.buffer)
        self._worker.handlers_ended()


class _IteratorFeed:
    """Records of an iterator."""

    def __init__(self, source: ConvoySource, core: ConvoyCore) -> None:
        self.is_over = False
        self._source = source
        self._core = core
        self._items: Iterator[SyncItem | None] = iter(())

    @property
    def is_closed(self) -> bool:
        return True  # An error of the program's own source is never tried again.

    def open(self) -> None:
        self._items = iter(self._source)

    def pull(self, records: int, size_bytes: int, seconds: float) -> None:
        try:
            item = next(self._items)
        except StopIteration:
            self.is_over = True
            return
        except CancelledError as error:
            raise let_out(SOURCE, error) from error
        if item is None:
            threading.Event().wait(min(seconds, _NOTHING_SECONDS))
            return
        with self._core.lock:
            self._core.take_item(item)

    def idle(self) -> None:
        pass

    def may_start(self) -> bool:
        return True

    def begins(self, item: Any) -> bool:
        return True

    def close(self) -> None:
        close = getattr(self._items, "close", None)
        if close is not None and self._items is not self._source:
            close()
