"""The records that wait to be sent. Each is encoded at once into the open batch of its partition.

This module does no I/O and knows no event loop. `try_append` runs for every record, everything else once per batch. One
lock guards all of it, because a synchronous producer appends in its callers' threads while the event loop sends.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from logbroker.client.producer.delivery import Batch
from logbroker.client.producer.partition_queue import PartitionQueue, ProducerIdentity
from logbroker.client.producer.topic_route import TopicRoute
from logbroker.client.runtime.thread_locks import ThreadLock
from logbroker.client.transport.metadata import UNUSED_SECONDS, TopicInfo
from logbroker.config import MAX_BATCH_BYTES
from logbroker.errors import (
    InvalidTimestampError,
    LogbrokerError,
    RecordTooLargeError,
    RequestTimeoutError,
    UnknownPartitionError,
)
from logbroker.record.codec import MAX_STAMP_MS, NO_HEADERS, BatchBuilder, Headers, decode_batch
from logbroker.record.compression import Codec
from logbroker.record.header import HEADER_BYTES, MAX_EXPANDED_BYTES, parse_header
from logbroker.record.windows import MAX_HEADERS

Handle = TypeVar("Handle")

_NONE_LISTED: Final[list[tuple[str, bytes | None]]] = []
_MAX_UNSEEN_FAILURES: Final = 1000
_MAX_OPEN_SECONDS: Final = 1.0
_OPEN_SHARE: Final = 0.1
"""While nothing can be sent, a batch that is due takes more records for this long, or for this share of the delivery
timeout."""


class Accumulator(Generic[Handle]):
    """All unfinished records of one producer. `Handle` is the type that `send` returns for each record."""

    def __init__(
        self,
        handle: Callable[[Batch, Any], Handle],
        *,
        codec: Codec,
        batch_bytes: int,
        linger_seconds: float,
        max_buffered_bytes: int,
        delivery_timeout_seconds: float,
        wake: Callable[[], None],
    ) -> None:
        self.lock = ThreadLock()
        self.routes: dict[str, TopicRoute] = {}
        self.buffered_bytes = 0
        """Bytes of the unfinished records, before compression."""
        self.unfinished: dict[Batch, None] = {}
        self.closed_batches = 0
        self.check_loop: Callable[[], None] | None = None
        """See `Batch.check_loop`."""
        self.max_request_batch_bytes = MAX_BATCH_BYTES
        """The largest batch that a request to the broker can carry."""
        self._handle = handle
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._linger_seconds = linger_seconds
        self._max_buffered_bytes = max_buffered_bytes
        self.delivery_timeout_seconds = delivery_timeout_seconds
        self._wake = wake
        self._number = 0
        self._looked_for_unused_at = -math.inf
        self._active: dict[tuple[TopicRoute, int], None] = {}
        """Partitions with records to send or batches in flight. The partitions served most recently come last."""
        self._room_waiters: list[Callable[[], None]] = []
        self._unseen_failures: list[Batch] = []

    # --- records in -------------------------------------------------------------------------------------------------

    def try_append(
        self,
        topic: Any,
        value: Any,
        key: Any,
        headers: Headers,
        partition: Any,
        timestamp_ms: Any,
        ordering_key: Any = None,
    ) -> Handle | None:
        """Append if a batch is open and has room, and all arguments are of the usual types. Otherwise return None; the
        caller then checks the arguments, finds out why, and calls `append`.

        Whether a batch is open is chance. So this method takes no argument that `record_parts` would refuse, although
        the codec would take some, such as an array as value. `headers` are `NO_HEADERS` or come from `header_list`.
        """
        if type(topic) is not str and not isinstance(topic, str):
            return None
        route = self.routes.get(topic)
        if (
            route is None
            or self.buffered_bytes >= self._max_buffered_bytes
            or (type(value) is not bytes and value is not None and type(value) is not bytearray)
            or (type(key) is not bytes and key is not None)
            or (ordering_key is not None and type(ordering_key) is not bytes)
            or (timestamp_ms is not None and (type(timestamp_ms) is not int or not 0 <= timestamp_ms <= MAX_STAMP_MS))
        ):
            return None
        way = route.way
        if headers is NO_HEADERS:
            headers = _NONE_LISTED
        else:
            headers = list(headers)
            if len(headers) > MAX_HEADERS:
                return None
            if route.has_bands:
                way = route.way_of(headers)
        if partition is None:
            routed_by = key if ordering_key is None else ordering_key
            batch = route.open[way.sticky if routed_by is None else way.partition_of[routed_by]]
            if batch is None or batch.by_hand or batch.appending:
                return None
        else:
            if type(partition) is not int or not 0 <= partition < route.partitions:
                return None
            batch = route.open[partition]
            if batch is None or not batch.by_hand or batch.appending:
                return None
        count = batch.count
        batch.appending = True
        try:
            place = batch.append(count, timestamp_ms, key, value, headers)
        except BaseException:
            batch.look_what_was_appended()
            raise
        if place is None:
            batch.appending = False
            return None
        if ordering_key is not None:
            batch.ordering_keys[count] = ordering_key
        batch.count = count + 1
        batch.record_bytes += place.size
        batch.appending = False
        self.buffered_bytes += place.size
        return self._handle(batch, place)

    def append(
        self,
        route: TopicRoute,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int | None,
        ordering_key: bytes | None = None,
    ) -> Handle:
        """Append a record of checked parts, and close and open batches as needed.

        Raises UnknownPartitionError or RecordTooLargeError.
        """
        if len(value or b"") + len(key or b"") > MAX_BATCH_BYTES:
            raise RecordTooLargeError(
                f"the key and the value of the record have {len(key or b'') + len(value or b'')} bytes; no topic takes"
                f" more than {MAX_BATCH_BYTES}"
            )
        by_hand = partition is not None
        routed_by = key if ordering_key is None else ordering_key
        way = route.way_of(headers)
        if partition is None:
            partition = way.sticky if routed_by is None else way.partition_of[routed_by]
        elif not 0 <= partition < route.partitions:
            raise UnknownPartitionError(
                f"topic {route.name!r} has no partition {partition}; it has {route.partitions}, counted from 0"
            )
        arguments = (timestamp_ms, key, value, list(headers))
        batch = route.open[partition]
        if batch is not None and batch.by_hand == by_hand and not batch.appending:
            handle = self._append(batch, arguments, ordering_key)
            if handle is not None:
                return handle
        if batch is not None:
            self._close(route, partition)
            if routed_by is None and not by_hand:
                partition = way.sticky
                if route.open[partition] is not None:
                    self._close(route, partition)
        builder = BatchBuilder(self._bound(route), self._codec)
        place = builder.append(0, *arguments)
        batch = self._open(route, partition, by_hand, builder, place.size, ordering_key)
        return self._handle(batch, place)

    def _append(self, batch: Batch, arguments: tuple[Any, ...], ordering_key: bytes | None) -> Handle | None:
        """Append as `try_append` does, without its fast path."""
        count = batch.count
        batch.appending = True
        try:
            place = batch.append(count, *arguments)
        except BaseException:
            batch.look_what_was_appended()
            raise
        if place is None:
            batch.appending = False
            return None
        if ordering_key is not None:
            batch.ordering_keys[count] = ordering_key
        batch.count = count + 1
        batch.record_bytes += place.size
        batch.appending = False
        self.buffered_bytes += place.size
        return self._handle(batch, place)

    def _open(
        self,
        route: TopicRoute,
        partition: int,
        by_hand: bool,
        builder: BatchBuilder,
        size_bytes: int,
        ordering_key: bytes | None,
    ) -> Batch:
        """Open a batch with the first record of its builder."""
        batch = Batch(number=self._number, topic=route.name, partition=partition, by_hand=by_hand, builder=builder)
        self._number += 1
        if self.check_loop is not None:
            batch.check_loop = self.check_loop
        now = time.monotonic()
        batch.ready_at = now + self._linger_seconds
        batch.deadline = now + self.delivery_timeout_seconds
        batch.count, batch.record_bytes = 1, size_bytes
        if ordering_key is not None:
            batch.ordering_keys[0] = ordering_key
        # The lines below, and the lines in `_close` that move a batch, run completely or not at all. A signal handler
        # may raise an exception, but Python runs handlers only at calls and jumps, and there is none between these
        # lines.
        self.buffered_bytes += size_bytes
        route.open[partition] = batch
        route.used_at = now
        self.unfinished[batch] = None
        self._active[route, partition] = None
        self._wake()
        return batch

    def _close(self, route: TopicRoute, partition: int) -> None:
        batch = route.open[partition]
        assert batch is not None
        waiting = route.queues[partition].waiting
        self.closed_batches += 1
        route.open[partition] = None
        waiting.append(batch)
        route.batch_closed(partition)
        self._wake()

    def _bound(self, route: TopicRoute) -> int:
        """The size limit of a batch of several records."""
        return min(self._batch_bytes, route.max_batch_bytes, self.max_request_batch_bytes)

    def has_room(self) -> bool:
        return self.buffered_bytes < self._max_buffered_bytes

    def when_room(self, tell: Callable[[], None]) -> None:
        """Call `tell` once, when there is room again or the accumulator is shut."""
        if not self._max_buffered_bytes:
            tell()
            return
        self._room_waiters.append(tell)
        # The buffer is full now, so batches may be sent before their linger time is over.
        self._wake()

    def close_open_batches(self) -> None:
        """Close all open batches, so that they are sent without waiting for more records."""
        for route, partition in self._active:
            if route.open[partition] is not None:
                self._close(route, partition)

    # --- batches out ------------------------------------------------------------------------------------------------

    def take(
        self, now: float, identity: ProducerIdentity, max_bytes: int
    ) -> list[tuple[TopicRoute, PartitionQueue, Batch]]:
        """Return the batches of the next request, at most one per partition. Partitions that have waited longest come
        first."""
        request: list[tuple[TopicRoute, PartitionQueue, Batch]] = []
        size_bytes = 0
        full = not self.has_room()
        for active in list(self._active):
            route, partition = active
            queue = route.queues[partition]
            open_batch = route.open[partition]
            if open_batch is None and queue.idle():
                del self._active[active]
                continue
            due = open_batch is not None and (full or open_batch.ready_at <= now) and not route.stale
            if due and queue.idle_but_for_flight() and queue.can_take(now, identity):
                # Close it only if it can be sent now. Otherwise it stays open for more records.
                self._close(route, partition)
            batch = queue.take(now, identity, new=not route.stale)
            if batch is None:
                continue
            del self._active[active]
            self._active[active] = None
            request.append((route, queue, batch))
            size_bytes += len(batch.payload)
            if size_bytes >= max_bytes:
                break
        return request

    def next_due_seconds(self, now: float) -> float:
        """Return the number of seconds after which to call `take` again, at most 1. Answers of the broker are not
        considered."""
        due = now + 1.0
        for route, partition in self._active:
            queue, open_batch = route.queues[partition], route.open[partition]
            if open_batch is not None and open_batch.ready_at > now:
                due = min(due, open_batch.ready_at)
            if queue.resume_at > now:
                due = min(due, queue.resume_at)
        return due - now

    def queues(self) -> Sequence[PartitionQueue]:
        """The queues of the partitions with records to send or batches in flight."""
        return [route.queues[partition] for route, partition in self._active]

    def expire(self, now: float, last_failure: LogbrokerError | None) -> bool:
        """Fail the overdue batches that are not in flight. Return whether an overdue batch is in flight: it can fail
        only when the broker has answered, or when the stream breaks. Call it several times a second.

        `last_failure` is the error of the connection. It is reported for batches that have no error of their own.
        """
        overdue = False
        # A batch fails when the time of its first record is over. So records that come long after that one need another
        # batch.
        open_seconds = min(_MAX_OPEN_SECONDS, self.delivery_timeout_seconds * _OPEN_SHARE)
        for route, partition in list(self._active):
            queue, open_batch = route.queues[partition], route.open[partition]
            if open_batch is not None and min(open_batch.deadline, open_batch.ready_at + open_seconds) <= now:
                self._close(route, partition)
            for batch in queue.expired(now):
                known = "" if not batch.uncertain else "; whether it was written is not known"
                failure = batch.last_error or last_failure
                why = "" if failure is None else f"; the last failure: {failure}"
                message = f"not delivered within {self.delivery_timeout_seconds:g} s{known}{why}"
                self.finish(batch, error=RequestTimeoutError(message))
            overdue = overdue or any(batch.deadline <= now for batch in queue.in_flight)
        return overdue

    def finish(
        self,
        batch: Batch,
        *,
        base_offset: int = -1,
        log_append_time_ms: int = -1,
        error: LogbrokerError | None = None,
    ) -> None:
        """Give a batch its outcome."""
        self._release(batch)
        if error is not None:
            self._unseen_failures = [failed for failed in self._unseen_failures if failed.count_untold()]
            if len(self._unseen_failures) < _MAX_UNSEEN_FAILURES:
                self._unseen_failures.append(batch)
        batch.finish(base_offset=base_offset, log_append_time_ms=log_append_time_ms, error=error)

    def split(self, route: TopicRoute, queue: PartitionQueue, batch: Batch, error: LogbrokerError) -> None:
        """Split a batch that was refused because of some of its records. It must have left its queue.

        Records that are known to be at fault fail. The others take the place of the batch, in their order, in smaller
        batches. Each part has fewer records than the batch, so in the end a record at fault fails alone.
        """
        header = parse_header(batch.payload)
        records = list(decode_batch(batch.payload, max_expanded_bytes=2 * MAX_BATCH_BYTES + batch.record_bytes))
        limit = self._bound(route)
        latest_ms = error.max_timestamp_ms if isinstance(error, InvalidTimestampError) else 0
        late = [bool(latest_ms) and record.timestamp_ms > latest_ms for record in records]
        # Split in halves if no record is known to be at fault. The exception is a batch that was refused as too large
        # and is over the limit known now: that limit alone makes its parts smaller.
        halves = not any(late) and (not isinstance(error, RecordTooLargeError) or header.size_bytes <= limit)
        moved: list[tuple[Batch, Any]] = []
        parts: list[Batch] = []
        failed: list[Batch] = []
        part: Batch | None = None
        for index, record in enumerate(records):
            arguments = (record.timestamp_ms, record.key, record.value, list(record.headers))
            place = None
            if part is not None and not late[index] and not (halves and index == len(records) // 2):
                place = part.append(part.count, *arguments)
            if place is None:
                builder = BatchBuilder(limit, self._codec)
                place = builder.append(0, *arguments)
                new = self._part_of(batch, index, builder)
                if late[index]:
                    failed.append(new)
                else:
                    part = new
                    parts.append(part)
                holder = new
            else:
                assert part is not None
                holder = part
            if index in batch.ordering_keys:
                holder.ordering_keys[holder.count] = batch.ordering_keys[index]
            holder.count += 1
            moved.append((holder, place))
        for each in (*parts, *failed):
            assert each.builder is not None
            each.record_bytes = each.builder.size_bytes() - HEADER_BYTES
            self.buffered_bytes += each.record_bytes
            # The parts get their own sequence numbers once every batch in flight is answered.
            each.base_sequence = batch.base_sequence
            each.payload = each.builder.build(header.producer_id, header.producer_epoch, header.base_sequence)
            each.builder = None
            self.unfinished[each] = None
        self._release(batch)
        batch.finish_moved(moved)
        queue.put_parts(parts)
        self._active[route, queue.partition] = None
        for each in failed:
            stamp = next(decode_batch(each.payload, max_expanded_bytes=MAX_EXPANDED_BYTES)).timestamp_ms
            message = (
                f"the record is stamped {stamp}, the topic takes up to {latest_ms} by the broker's clock"
                " (message.timestamp.after.max.ms)"
            )
            self.finish(each, error=InvalidTimestampError(message))
        self._wake()

    def _part_of(self, batch: Batch, index: int, builder: BatchBuilder) -> Batch:
        """Return a new part of a batch, which begins with the record of this index. The record is in the builder
        already."""
        part = Batch(
            number=batch.number, topic=batch.topic, partition=batch.partition, by_hand=batch.by_hand, builder=builder
        )
        part.part = (*batch.part, index)
        part.deadline = batch.deadline
        part.check_loop = batch.check_loop
        return part

    def take_unseen_failure(self) -> LogbrokerError | None:
        """Return the first unreported failure, and count all failures as reported."""
        unseen = [batch for batch in self._unseen_failures if batch.count_untold()]
        self._unseen_failures.clear()
        for batch in unseen:
            batch.tell_all()
        return unseen[0].error if unseen else None

    def shut(self) -> None:
        """Take no more records from the program. From now on `try_append` finds no room, and callers that wait for room
        check again."""
        self._max_buffered_bytes = 0
        waiters, self._room_waiters = self._room_waiters, []
        for tell in waiters:
            tell()

    def take_lost(self) -> tuple[int, LogbrokerError | None]:
        """Return the number of unreported records that failed or have no outcome, and their first error. Count them as
        reported."""
        with self.lock.free():
            untold = [batch for batch in (*self._unseen_failures, *self.unfinished) if batch.count_untold()]
            self._unseen_failures.clear()
            count = sum(batch.count_untold() for batch in untold)
            for batch in untold:
                batch.tell_all()
            return count, next((batch.error for batch in untold if batch.error), None)

    def give_up(self, error: LogbrokerError) -> None:
        """Fail all records in the child process after a fork, because the parent delivers them. Nobody is woken, since
        the waiters are threads of the parent."""
        for batch in list(self.unfinished):
            batch.waiters.clear()
            batch.finish(error=error)
        self.unfinished.clear()
        self.routes.clear()
        self._active.clear()
        self._room_waiters.clear()
        self._unseen_failures.clear()
        self.buffered_bytes = 0

    def _release(self, batch: Batch) -> None:
        del self.unfinished[batch]
        self.buffered_bytes -= batch.record_bytes
        if self._room_waiters and self.has_room():
            waiters, self._room_waiters = self._room_waiters, []
            for tell in waiters:
                tell()

    # --- topics that change -----------------------------------------------------------------------------------------

    def stale_routes(self) -> list[TopicRoute]:
        """Return the stale routes that can be looked up and routed again now. A route has to wait while the outcome of
        any of its batches is unknown."""
        stale = [route for route in self.routes.values() if route.stale]
        return [route for route in stale if not any(queue.has_unknown() for queue in route.queues)]

    def reroute(self, route: TopicRoute, info: TopicInfo) -> None:
        """Route the unsent records again by the topic's new generation. The records of each old partition, and so of
        each key, keep their order."""
        pending: list[Batch] = []
        for partition, queue in enumerate(route.queues):
            if route.open[partition] is not None:
                self._close(route, partition)
            pending += queue.take_routed()
        route.grow(info)
        for batch in pending:
            builder = batch.builder
            payload = batch.payload if builder is None else builder.build()
            moved = []
            records = decode_batch(payload, max_expanded_bytes=2 * MAX_BATCH_BYTES + batch.record_bytes)
            for index, record in enumerate(records):
                ordering_key = batch.ordering_keys.get(index)
                handle: Any = self.append(
                    route, record.value, record.key, record.headers, None, record.timestamp_ms, ordering_key
                )
                handle.batch.deadline = min(handle.batch.deadline, batch.deadline)
                moved.append((handle.batch, handle.place))
            self._release(batch)
            batch.finish_moved(moved)

    def forget_unused(self, now: float) -> bool:
        """Forget the routes that were not used for UNUSED_SECONDS. Return whether there were any. Call it when a topic
        was looked up.

        A route is looked for only so often, too: after routes were forgotten, the next new route costs the producer a
        new epoch.
        """
        since = now - UNUSED_SECONDS
        if self._looked_for_unused_at > since:
            return False
        self._looked_for_unused_at = now
        unused = [route for route in self.routes.values() if route.is_unused(since)]
        for route in unused:
            del self.routes[route.name]
        return bool(unused)

    def drop(self, route: TopicRoute, error: LogbrokerError) -> None:
        """Forget a deleted topic and fail its records. Batches in flight get their own answers."""
        if self.routes.get(route.name) is route:
            del self.routes[route.name]
        for partition, queue in enumerate(route.queues):
            if route.open[partition] is not None:
                self._close(route, partition)
            for batch in queue.take_all():
                self.finish(batch, error=error)
        route.refreshed()
