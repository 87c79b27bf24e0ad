"""The synchronous Producer: appends in the caller's thread, sends in the shared loop."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Any, Self

from logbroker.client.accumulator import Accumulator
from logbroker.client.arguments import check_record, checks_arguments
from logbroker.client.connection import Connection
from logbroker.client.delivery import RecordMetadata, SyncDelivery
from logbroker.client.partition_queue import MAX_IN_FLIGHT
from logbroker.client.producer import DEFAULT_BATCH_BYTES, MIB, new_accumulator, sender_options
from logbroker.client.sender import Sender
from logbroker.client.sync_loop import run, shared_loop, wait_for
from logbroker.client.topic_route import TopicRoute
from logbroker.errors import BrokerUnavailableError
from logbroker.record.codec import Headers
from logbroker.record.message_headers import with_priority
from logbroker.record.serializers import Serializer, serializer
from logbroker.types import Durability


@checks_arguments("send", "send_and_wait")
class Producer:
    """`logbroker.client.Producer` for programs without an event loop; each method is documented there.

    May be used by many threads at once; the records of each thread keep their order.
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
    ) -> None:
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
            wake=self._wake,
        )
        self._lock = self._accumulator.lock
        self._try_append = self._accumulator.try_append
        self._serialize_key = serializer(key_serializer, "key_serializer")
        self._serialize_value = serializer(value_serializer, "value_serializer")
        self._serializes = self._serialize_key is not None or self._serialize_value is not None
        self._loop = shared_loop()
        self._connection = Connection(broker, request_timeout_seconds=request_timeout_seconds)
        self._sender = Sender(self._connection, self._accumulator, **options)
        self._closed = False
        self._closing = threading.Lock()
        try:
            run(self._start())
        except BaseException:
            # Nobody gets this object: what has begun must not go on without it.
            asyncio.run_coroutine_threadsafe(self._stop(), self._loop)
            raise

    async def _start(self) -> None:
        self._sender.start()

    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        ordering_key: bytes | None = None,
        priority: int | None = None,
    ) -> SyncDelivery:
        """Put a record into its batch; blocks only while the buffer is full or the topic is asked for.

        `delivery.result()` waits for the broker's answer. Raises as the asynchronous one does.
        """
        if self._serializes:
            value, key = self._serialized(value, key)
        if priority is not None:
            headers = with_priority(headers, priority)
        try:
            with self._lock:
                delivery = self._try_append(topic, value, key, headers, partition, timestamp_ms, ordering_key)
        except (TypeError, ValueError):
            check_record(topic, value, key, headers, partition, timestamp_ms, ordering_key)
            raise
        if delivery is not None:
            return delivery
        # Once a batch.
        check_record(topic, value, key, headers, partition, timestamp_ms, ordering_key)
        route = self._route(topic)
        if partition is not None and partition >= route.partitions:
            run(self._sender.refresh(route))
        while True:
            room = threading.Event()
            self._route(topic)
            with self._lock:
                current = self._accumulator.routes.get(topic)
                if current is None:
                    continue  # Deleted at this very moment.
                if self._accumulator.has_room():
                    return self._accumulator.append(current, value, key, headers, partition, timestamp_ms, ordering_key)
                self._accumulator.when_room(room.set)
            wait_for(room, None)

    def _route(self, topic: str) -> TopicRoute:
        if self._closed:
            raise BrokerUnavailableError("this producer is closed; open another one")
        return self._accumulator.routes.get(topic) or run(self._sender.route(topic))

    def send_and_wait(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        ordering_key: bytes | None = None,
        priority: int | None = None,
    ) -> RecordMetadata:
        delivery = self.send(
            topic,
            value,
            key,
            headers=headers,
            partition=partition,
            timestamp_ms=timestamp_ms,
            ordering_key=ordering_key,
            priority=priority,
        )
        return delivery.result()

    def flush(self) -> None:
        run(self._sender.flush())

    def close(self) -> None:
        self._close(flush=True)

    def _close(self, *, flush: bool) -> None:
        with self._closing:
            if self._closed:
                return
            self._closed = True
        try:
            if flush:
                self.flush()
        finally:
            run(self._stop())

    async def _stop(self) -> None:
        await self._sender.close()
        await self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            # Who interrupts does not wait for a broker that may be away.
            self._close(flush=error is None or isinstance(error, Exception))
        except Exception:
            # What the body raised comes first.
            if error is None:
                raise

    def _serialized(self, value: Any, key: Any) -> tuple[Any, Any]:
        if self._serialize_value is not None:
            value = self._serialize_value(value)
        if self._serialize_key is not None:
            key = self._serialize_key(key)
        return value, key

    def _wake(self) -> None:
        self._loop.call_soon_threadsafe(self._sender.wake)
