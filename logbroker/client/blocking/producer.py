"""The synchronous Producer. It appends in the caller's thread and sends in the shared loop."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Any, Self

from logbroker.client.producer.accumulator import Accumulator
from logbroker.client.producer.delivery import RecordMetadata, SyncDelivery
from logbroker.client.producer.partition_queue import MAX_IN_FLIGHT
from logbroker.client.producer.producer import (
    DEFAULT_BATCH_BYTES,
    MIB,
    end_producer,
    follow,
    new_accumulator,
    producer_lifetime,
    sender_options,
)
from logbroker.client.producer.sender import Sender
from logbroker.client.producer.topic_route import TopicRoute
from logbroker.client.runtime import forking
from logbroker.client.runtime.arguments import checks_arguments, header_list, record_parts, sub_stream
from logbroker.client.runtime.lifetime import LAST_SECONDS, Droppable
from logbroker.client.runtime.sync_loop import Latch, check_waits, run, shared_loop, wait_for
from logbroker.client.runtime.thread_locks import taken_here
from logbroker.client.transport.connection import Connection
from logbroker.errors import BrokerUnavailableError
from logbroker.record.codec import NO_HEADERS, Headers
from logbroker.record.message_headers import with_priority
from logbroker.record.serializers import Serializer, serializer
from logbroker.types import Durability


@checks_arguments("send", "send_and_wait")
class Producer(Droppable):
    """Sends records to a broker, in batches, over one stream: for programs without an event loop.

    with Producer("127.0.0.1:9192") as producer:
        delivery = producer.send("orders", b"value", b"key")
        print(delivery.result().offset)

    A record goes to the partition that Kafka's clients choose for its key. Records without a key fill the batch of one
    partition after another. In a topic that routes by priority, the choice is among the partitions of the priority's
    band. By default the producer is idempotent: no acknowledged record is lost or duplicated when the broker restarts
    or the connection breaks. May be used by many threads at once; the records of each thread keep their order.

    Close it, or use it in a `with` block. A producer that is dropped without `close`, or is open when the program ends,
    flushes for at most `last_flush_seconds`, and so does `close` after Ctrl-C. Records that are not delivered by then
    are lost, and their number is written to standard error.
    """

    def __init__(
        self,
        broker: str,
        *,
        compression: str = "none",
        batch_bytes: int = DEFAULT_BATCH_BYTES,
        linger_ms: float = 0,
        idempotent: bool = True,
        durability: Durability | None = None,
        max_buffered_bytes: int = 32 * MIB,
        max_requests_in_flight: int = MAX_IN_FLIGHT,
        delivery_timeout_seconds: float = 120.0,
        request_timeout_seconds: float = 10.0,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        last_flush_seconds: float = LAST_SECONDS,
    ) -> None:
        """`broker` is "HOST:PORT" or "HOST:PORT,HOST:PORT"; `compression` is none, gzip, snappy, lz4 or zstd.

        A batch is sent when it holds `batch_bytes`, or `linger_ms` after its first record, as soon as fewer than
        `max_requests_in_flight` requests are unanswered. Batches are no larger than their topic's max.message.bytes. A
        record that its topic refuses, because it is too large or its timestamp is too far ahead, fails alone: the other
        records of its batch are delivered in order. `durability` None takes the setting of each topic. `send` waits
        while `max_buffered_bytes` of records are unfinished. A record that is still unfinished
        `delivery_timeout_seconds` after `send` fails. `request_timeout_seconds` bounds the calls that look up a topic.
        `last_flush_seconds` bounds the flush of a producer that is dropped, interrupted, or open when the program ends.
        Raises InvalidRequestError for invalid settings, and BrokerUnavailableError if the clients' background thread
        cannot be started.

        `value_serializer` and `key_serializer` turn the arguments of `send` into bytes: str, json, msgpack, or a
        function. None stays None; str and json refuse bytes. Without a serializer, values and keys are bytes. If a
        serializer fails, `send` raises SerializationError and sends nothing. A `sub_key` and an `ordering_key` are
        always bytes.
        """
        self._lifetime = lifetime = producer_lifetime(broker, last_flush_seconds)
        options: dict[str, Any] = sender_options(
            durability=durability, idempotent=idempotent, max_requests_in_flight=max_requests_in_flight
        )
        self._accumulator: Accumulator[SyncDelivery] = new_accumulator(
            SyncDelivery,
            compression=compression,
            batch_bytes=batch_bytes,
            linger_ms=linger_ms,
            max_buffered_bytes=max_buffered_bytes,
            delivery_timeout_seconds=delivery_timeout_seconds,
            wake=lambda: sender.wake_soon(),
        )
        self._try_append = self._accumulator.try_append
        self._serialize_key = serializer(key_serializer, "key_serializer")
        self._serialize_value = serializer(value_serializer, "value_serializer")
        self._serializes = self._serialize_key is not None or self._serialize_value is not None
        self._connection = Connection(broker, request_timeout_seconds=request_timeout_seconds, lifetime=lifetime)
        # The event loop keeps no reference to the producer itself, so a dropped producer is collected.
        self._sender = sender = Sender(self._connection, self._accumulator, **options)
        follow(lifetime, sender, self._accumulator)
        self._closed = False
        self._has_ended = False
        """Whether there is nothing left to close."""
        # The thread is needed only from the first record on. Start it here, so that the program learns here if it
        # cannot be started.
        shared_loop()

    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        *,
        sub_key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        ordering_key: bytes | None = None,
        priority: int | None = None,
    ) -> SyncDelivery:
        """Put a record into its batch. Block only while the buffer is full or the topic is looked up.

        With a `sub_key`, the record belongs to a sub-stream of its key, which has its own order within one partition:
        its key is `key + b"#" + sub_key`, and two headers hold the parts. An empty sub-key is a sub-key. `partition`
        overrules the key; `timestamp_ms` (milliseconds since 1970) None means now. `ordering_key` chooses the partition
        in place of the key; if a queue group orders by a header, give the value of that header. `priority` is 0 to 9,
        where 9 is the most urgent; None counts as 4. It is stored as a header and, in a topic that routes by priority,
        chooses the band first. `delivery.result()` waits for the broker's answer. Raises UnknownTopicError,
        UnknownPartitionError, RecordTooLargeError, InvalidTimestampError, InvalidRequestError for a priority out of
        range or a sub-key without a key, BrokerUnavailableError if the topic cannot be looked up, ForkedProcessError,
        or TypeError.
        """
        if self._serializes:
            value, key = self._serialized(value, key)
        if headers is not NO_HEADERS:
            headers = header_list(headers)
        if sub_key is not None:
            key, headers = sub_stream(key, sub_key, headers)
        if priority is not None:
            headers = with_priority(headers, priority)
        lock = self._accumulator.lock
        if lock.is_mine():
            raise taken_here()
        with lock.lock:
            delivery = self._try_append(topic, value, key, headers, partition, timestamp_ms, ordering_key)
        if delivery is not None:
            return delivery
        # The code from here on runs about once per batch, and for arguments that are not of the exact types.
        value, key, headers, ordering_key = record_parts(
            topic, value, key, headers, partition, timestamp_ms, ordering_key
        )
        route = self._route(topic)
        if partition is not None and partition >= route.partitions:
            run(self._sender.refresh(route))
        while True:
            room = Latch()
            self._route(topic)
            with self._accumulator.lock.free():
                current = self._accumulator.routes.get(topic)
                if current is None:
                    continue  # The topic was deleted at this moment.
                if self._accumulator.has_room():
                    return self._accumulator.append(current, value, key, headers, partition, timestamp_ms, ordering_key)
                self._accumulator.when_room(room.set)
            wait_for(room, None)

    def _route(self, topic: str) -> TopicRoute:
        if self._closed:
            raise BrokerUnavailableError("this producer is closed; open another one")
        self._sender.check()
        return self._accumulator.routes.get(topic) or run(self._find_route(topic))

    async def _find_route(self, topic: str) -> TopicRoute:
        forking.check()
        self._sender.check()
        self._sender.start()
        self._lifetime.opened(self._connection.close, self._sender.close)
        return await self._sender.route(topic)

    def send_and_wait(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        *,
        sub_key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        ordering_key: bytes | None = None,
        priority: int | None = None,
    ) -> RecordMetadata:
        """Send one record and wait until it has the requested durability. Raises the errors of `send` and
        `delivery.result()`."""
        delivery = self.send(
            topic,
            value,
            key,
            sub_key=sub_key,
            headers=headers,
            partition=partition,
            timestamp_ms=timestamp_ms,
            ordering_key=ordering_key,
            priority=priority,
        )
        return delivery.result()

    def flush(self) -> None:
        """Wait until every record sent so far is done. Raises the first unreported failure.

        The wait lasts while the broker is away, but ends at most `delivery_timeout_seconds` after the last `send`.
        """
        self._lifetime.check()
        run(self._sender.flush())

    def close(self) -> None:
        """Flush and close the connection. Raises the error of `flush`, after closing.

        After Ctrl-C the flush takes at most `last_flush_seconds` more, and KeyboardInterrupt is raised after it. A
        second Ctrl-C ends the flush: records that are not delivered by then fail.
        """
        self._close(None)

    def _close(self, flush_seconds: float | None) -> None:
        if self._has_ended or self._lifetime.is_forked:
            return
        check_waits()
        try:
            self._flush_last(flush_seconds)
        except Exception:
            raise
        except BaseException:
            # This is the first interrupt, or the first exception that ends the program.
            if flush_seconds is None:
                with contextlib.suppress(Exception):
                    self._flush_last(self._lifetime.seconds)
            raise
        finally:
            # If a signal prevents this, the next call does it, or the end of the program.
            run(self._stop())

    def _flush_last(self, seconds: float | None) -> None:
        self._closed = True
        self._sender.shut()
        run(self._flush_within(seconds))

    async def _flush_within(self, seconds: float | None) -> None:
        async with asyncio.timeout(seconds):
            await self._sender.flush()

    async def _stop(self) -> None:
        try:
            await end_producer(self._sender, self._connection, self._lifetime)
        finally:
            self._has_ended = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            # After an interrupt, or at the end of the program, do not wait for ever for a broker that may be away.
            interrupted = error is not None and not isinstance(error, Exception)
            self._close(self._lifetime.seconds if interrupted else None)
        except Exception:
            # An exception of the body takes precedence.
            if error is None:
                raise

    def _serialized(self, value: Any, key: Any) -> tuple[Any, Any]:
        if self._serialize_value is not None:
            value = self._serialize_value(value)
        if self._serialize_key is not None:
            key = self._serialize_key(key)
        return value, key
