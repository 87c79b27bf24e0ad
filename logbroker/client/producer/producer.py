"""The producer: sends records and returns their offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from logbroker.client.producer.accumulator import Accumulator
from logbroker.client.producer.delivery import Batch, Delivery, RecordMetadata
from logbroker.client.producer.partition_queue import MAX_IN_FLIGHT
from logbroker.client.producer.sender import Sender
from logbroker.client.runtime import forking
from logbroker.client.runtime.arguments import (
    LONGEST_SECONDS,
    MAX_INT,
    check_bounds,
    check_seconds,
    checks_arguments,
    header_list,
    record_parts,
    sub_stream,
)
from logbroker.client.runtime.lifetime import LAST_SECONDS, Droppable, Lifetime
from logbroker.client.runtime.tasks import waiter
from logbroker.client.transport.connection import Connection, running_loop
from logbroker.config import MAX_BATCH_BYTES
from logbroker.errors import BrokerUnavailableError
from logbroker.record.codec import NO_HEADERS, Headers
from logbroker.record.compression import codec_named
from logbroker.record.message_headers import with_priority
from logbroker.record.serializers import Serializer, serializer
from logbroker.types import Durability
from logbroker.v1 import log_pb2

Handle = TypeVar("Handle")

MIB: Final = 1024 * 1024
DEFAULT_BATCH_BYTES: Final = 256 * 1024

_DURABILITIES: Final = {
    None: log_pb2.DURABILITY_UNSPECIFIED,
    Durability.WRITTEN: log_pb2.DURABILITY_WRITTEN,
    Durability.SYNCED: log_pb2.DURABILITY_SYNCED,
}


def new_accumulator(
    handle: Callable[[Batch, Any], Handle],
    *,
    compression: str,
    batch_bytes: int,
    linger_ms: float,
    max_buffered_bytes: int,
    delivery_timeout_seconds: float,
    wake: Callable[[], None],
) -> Accumulator[Handle]:
    """Return the accumulator for either kind of producer. Raises InvalidRequestError for invalid settings."""
    check_bounds(1, MAX_INT, batch_bytes=batch_bytes, max_buffered_bytes=max_buffered_bytes)
    check_bounds(0, LONGEST_SECONDS * 1000, linger_ms=linger_ms)
    check_seconds(delivery_timeout_seconds=delivery_timeout_seconds)
    return Accumulator(
        handle,
        codec=codec_named(compression),
        batch_bytes=min(batch_bytes, MAX_BATCH_BYTES),
        linger_seconds=linger_ms / 1000,
        max_buffered_bytes=max_buffered_bytes,
        delivery_timeout_seconds=delivery_timeout_seconds,
        wake=wake,
    )


def sender_options(*, durability: Durability | None, idempotent: bool, max_requests_in_flight: int) -> dict[str, Any]:
    """Return the checked settings of the sender."""
    check_bounds(1, MAX_INT, max_requests_in_flight=max_requests_in_flight)
    return {
        "durability": _DURABILITIES[durability],
        "idempotent": idempotent,
        "max_requests_in_flight": max_requests_in_flight,
    }


def producer_lifetime(broker: str, last_flush_seconds: float) -> Lifetime:
    """Return the lifetime for either kind of producer. Raises InvalidRequestError."""
    check_seconds(shortest=0, last_flush_seconds=last_flush_seconds)
    return Lifetime("Producer", broker, seconds=last_flush_seconds)


def follow(lifetime: Lifetime, sender: Sender, accumulator: Accumulator[Any]) -> None:
    """Let the lifetime send the remaining records at the end, and count lost records."""

    async def finish() -> None:
        sender.shut()
        await sender.drain()

    lifetime.finish = finish
    lifetime.take_lost = accumulator.take_lost
    sender.on_cancelled = lambda: lifetime.say_lost("the producer's event loop ended, or its tasks were cancelled")


async def end_producer(sender: Sender, connection: Connection, lifetime: Lifetime) -> None:
    """Fail undelivered records and release all resources, however often the call is cancelled."""
    try:
        await sender.close()
    finally:
        try:
            await connection.close()
        finally:
            lifetime.say_lost("the producer was closed without waiting for them")
            lifetime.closed()


@checks_arguments("send", "send_and_wait")
class Producer(Droppable):
    """Sends records to a broker, in batches, over one stream.

    async with Producer("127.0.0.1:9192") as producer:
        delivery = await producer.send("orders", b"value", b"key")
        print((await delivery).offset)

    A record goes to the partition that Kafka's clients choose for its key. Records without a key fill the batch of one
    partition after another. In a topic that routes by priority, the choice is among the partitions of the priority's
    band. Each partition keeps the order of `send`; if a topic grows while records wait, each key keeps its order. By
    default the producer is idempotent: no acknowledged record is lost or duplicated when the broker restarts or the
    connection breaks. Use it in one event loop.
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
        `last_flush_seconds` bounds the last flush of a producer whose block was cancelled or interrupted, or that was
        dropped without `close`. Records that are not delivered by then, or when the loop ends, are lost, and their
        number is written to standard error.

        `value_serializer` and `key_serializer` turn the arguments of `send` into bytes: str, json, msgpack, or a
        function. None stays None; str and json refuse bytes. Without a serializer, values and keys are bytes. If a
        serializer fails, `send` raises SerializationError and sends nothing. A `sub_key` and an `ordering_key` are
        always bytes.
        """
        self._lifetime = lifetime = producer_lifetime(broker, last_flush_seconds)
        self._connection = Connection(broker, request_timeout_seconds=request_timeout_seconds, lifetime=lifetime)
        self._accumulator: Accumulator[Delivery] = new_accumulator(
            Delivery,
            compression=compression,
            batch_bytes=batch_bytes,
            linger_ms=linger_ms,
            max_buffered_bytes=max_buffered_bytes,
            delivery_timeout_seconds=delivery_timeout_seconds,
            wake=lambda: sender.wake(),
        )
        self._accumulator.check_loop = lifetime.check_loop_runs
        options = sender_options(
            durability=durability, idempotent=idempotent, max_requests_in_flight=max_requests_in_flight
        )
        # The event loop keeps no reference to the producer itself, so a dropped producer is collected.
        self._sender = sender = Sender(self._connection, self._accumulator, **options)
        follow(lifetime, sender, self._accumulator)
        self._closed = False
        self._try_append = self._accumulator.try_append
        self._serialize_key = serializer(key_serializer, "key_serializer")
        self._serialize_value = serializer(value_serializer, "value_serializer")
        self._serializes = self._serialize_key is not None or self._serialize_value is not None

    async def send(
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
    ) -> Delivery:
        """Put a record into its batch. Wait only while the buffer is full or the topic is looked up.

        With a `sub_key`, the record belongs to a sub-stream of its key, which has its own order within one partition:
        its key is `key + b"#" + sub_key`, and two headers hold the parts. An empty sub-key is a sub-key. `partition`
        overrules the key; `timestamp_ms` None means now. `ordering_key` chooses the partition in place of the key; if a
        queue group orders by a header, give the value of that header. `priority` is 0 to 9, where 9 is the most urgent;
        None counts as 4. It is stored as a header and, in a topic that routes by priority, chooses the band first.
        Awaiting the returned delivery waits for the broker's answer. Raises UnknownTopicError, UnknownPartitionError,
        RecordTooLargeError, InvalidTimestampError, InvalidRequestError for a priority out of range or a sub-key without
        a key, BrokerUnavailableError if the topic cannot be looked up, or TypeError.
        """
        self._lifetime.check_loop()
        if self._serializes:
            value, key = self._serialized(value, key)
        if headers is not NO_HEADERS:
            headers = header_list(headers)
        if sub_key is not None:
            key, headers = sub_stream(key, sub_key, headers)
        if priority is not None:
            headers = with_priority(headers, priority)
        delivery = self._try_append(topic, value, key, headers, partition, timestamp_ms, ordering_key)
        if delivery is not None:
            return delivery
        # From here on, about once per batch, and for arguments that are not of the exact types.
        value, key, headers, ordering_key = record_parts(
            topic, value, key, headers, partition, timestamp_ms, ordering_key
        )
        sender = self._started()
        accumulator = self._accumulator
        route = accumulator.routes.get(topic) or await sender.route(topic)
        if partition is not None and partition >= route.partitions:
            await sender.refresh(route)
        while not accumulator.has_room():
            told, tell = waiter()
            accumulator.when_room(tell)
            await told
            sender.check()
        route = accumulator.routes.get(topic) or await sender.route(topic)
        closed_before = accumulator.closed_batches
        delivery = accumulator.append(route, value, key, headers, partition, timestamp_ms, ordering_key)
        if accumulator.closed_batches != closed_before:
            # Give the sender a chance to send the full batch. A loop of sends would never yield to it otherwise.
            await asyncio.sleep(0)
        return delivery

    async def send_and_wait(
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
        """Send one record and wait for the broker's answer."""
        delivery = await self.send(
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
        return await delivery

    async def flush(self) -> None:
        """Wait until every record sent so far is done. Raises the first unreported failure."""
        self._lifetime.check()
        self._lifetime.check_loop()
        await self._sender.flush()

    async def close(self) -> None:
        """Flush and close the connection. Raises the error of `flush`, after closing.

        If the call is cancelled, it stops waiting for the broker. Records that are not delivered by then fail, and the
        producer is still closed.
        """
        await self._close(None)

    async def _close(self, flush_seconds: float | None) -> None:
        if self._closed or not self._lifetime.may_close():
            return
        self._closed = True
        self._sender.shut()
        if not self._lifetime.is_open:
            return  # It was never used, so there is nothing to do, and perhaps no event loop.
        try:
            async with asyncio.timeout(flush_seconds):
                await self.flush()
        finally:
            await end_producer(self._sender, self._connection, self._lifetime)

    async def __aenter__(self) -> Self:
        self._started()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            # After an interrupt, or at the end of the program, do not wait for ever for a broker that may be away.
            interrupted = error is not None and not isinstance(error, Exception)
            await self._close(self._lifetime.seconds if interrupted else None)
        except Exception:
            # An exception of the body takes precedence.
            if error is None:
                raise

    def _started(self) -> Sender:
        if self._closed:
            raise BrokerUnavailableError("this producer is closed; open another one")
        running_loop()
        forking.check()
        self._lifetime.check_loop()
        self._sender.check()
        self._sender.start()
        self._lifetime.opened(self._connection.close, self._sender.close)
        return self._sender

    def _serialized(self, value: Any, key: Any) -> tuple[Any, Any]:
        if self._serialize_value is not None:
            value = self._serialize_value(value)
        if self._serialize_key is not None:
            key = self._serialize_key(key)
        return value, key
