"""RabbitMQ's quorum queues, by pika."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from compare.load import (
    TICK_SECONDS,
    Job,
    Load,
    Published,
    Stopwatch,
    Worked,
    WorkLog,
    shard_names,
    shard_of,
)
from compare.peers import rabbitmq_server
from compare.peers.peer import Client, Peer
from compare.peers.rabbitmq_server import RabbitServer
from compare.tally import Tally
from logbroker.errors import LogbrokerError
from logbroker.types import Durability

IN_FLIGHT: Final = 5000
PREFETCH: Final = 2000
_LOOK_SECONDS: Final = 0.01
_STAND_BY_SECONDS: Final = 0.5
"""In which both workers have surely subscribed to their own queues."""
_QUORUM: Final = {"x-queue-type": "quorum"}


class PikaClient(Client):
    """SelectConnection with publisher confirms. A shard is a queue with a single active consumer."""

    def __init__(self, address: str) -> None:
        # Only the processes that use a client library import it.
        import pika

        host, _, port = address.rpartition(":")
        self._pika = pika
        self._parameters = pika.ConnectionParameters(host, int(port), connection_attempts=1)
        self._persistent = pika.BasicProperties(delivery_mode=2)

    def create(self, topic: str, shards: int, durability: Durability) -> None:
        arguments = {**_QUORUM, "x-single-active-consumer": True} if shards > 1 else _QUORUM
        with self._pika.BlockingConnection(self._parameters) as connection:
            channel = connection.channel()
            for name in shard_names(topic, shards):
                channel.queue_declare(name, durable=True, arguments=arguments)

    def count(self, topic: str, shards: int) -> int:
        with self._pika.BlockingConnection(self._parameters) as connection:
            channel = connection.channel()
            return sum(
                channel.queue_declare(name, passive=True).method.message_count for name in shard_names(topic, shards)
            )

    def _run(self, on_channel: Callable[[Any, Any], None]) -> None:
        """Run a connection until somebody stops its loop; `on_channel` gets connection and channel."""
        ended: list[Any] = []

        def on_end(closed: Any, error: Any) -> None:
            ended.append(error)
            closed.ioloop.stop()

        connection = self._pika.SelectConnection(
            self._parameters,
            on_open_callback=lambda opened: opened.channel(on_open_callback=partial(on_channel, opened)),
            on_open_error_callback=on_end,
            on_close_callback=on_end,
        )
        connection.ioloop.start()
        if ended:
            raise LogbrokerError(f"RabbitMQ closed the connection: {ended[0]}")
        connection.close()
        connection.ioloop.start()

    def publish(self, load: Load) -> Published:
        sender = _Sender(load, self._persistent)
        self._run(sender.begin)
        if sender.refused:
            raise LogbrokerError(f"RabbitMQ refused {sender.refused:,} confirms")
        return Published(sender.records, sender.seconds)

    def latencies(self, topic: str, records: int, per_second: float) -> list[float]:
        watch = Stopwatch(records)

        def on_channel(connection: Any, channel: Any) -> None:
            def on_message(_: Any, method: Any, _properties: Any, value: bytes) -> None:
                channel.basic_ack(method.delivery_tag)
                if watch.see(value):
                    connection.ioloop.stop()

            def tick(number: int, due: float, in_time: bool) -> None:
                sent = time.monotonic() if in_time else due
                end = min(records, number + max(1, round(per_second * TICK_SECONDS)))
                for each in range(number, end):
                    channel.basic_publish("", topic, watch.value(each, sent), self._persistent)
                if end < records:
                    next_due = begun + end / per_second
                    wait = next_due - time.monotonic()
                    connection.ioloop.call_later(max(0.0, wait), partial(tick, end, next_due, wait > 0))

            channel.confirm_delivery(lambda _: None)
            channel.basic_qos(prefetch_count=PREFETCH)
            channel.basic_consume(topic, on_message)
            begun = time.monotonic()
            tick(0, begun, True)

        self._run(on_channel)
        return watch.result()

    def prepare(self, job: Job) -> None:
        """A queue needs nothing."""

    def work(self, job: Job, tally: Tally) -> Worked:
        """The first one to subscribe to a queue with a single active consumer is the active one, so each worker first
        takes its own queues, and then stands by for the others."""
        seen = WorkLog(tally.handed)
        names = shard_names(job.topic, job.shards)
        own = [names[shard] for shard in job.own_shards] if job.shards > 1 else names
        others = [name for name in names if name not in own]

        def on_channel(connection: Any, channel: Any) -> None:
            counted = 0
            stand_by_at = time.monotonic() + _STAND_BY_SECONDS

            def on_message(_: Any, method: Any, _properties: Any, value: bytes) -> None:
                seen.see(value)
                channel.basic_ack(method.delivery_tag)

            def look() -> None:
                nonlocal counted
                if seen.records > counted:
                    seen.last = time.monotonic()
                    tally.add(seen.records - counted)
                    counted = seen.records
                if tally.done:
                    connection.ioloop.stop()
                    return
                while others and time.monotonic() >= stand_by_at:
                    channel.basic_consume(others.pop(), on_message)
                connection.ioloop.call_later(_LOOK_SECONDS, look)

            channel.basic_qos(prefetch_count=PREFETCH)
            for name in own:
                channel.basic_consume(name, on_message)
            look()

        self._run(on_channel)
        return seen.result()


class _Sender:
    """Sends a load with so many records unconfirmed."""

    def __init__(self, load: Load, properties: Any) -> None:
        self._load = load
        self._properties = properties
        self._names = shard_names(load.topic, load.shards)
        self._chunks = load.chunks()
        self._in_flight = max(16, min(IN_FLIGHT, 8 * 2**20 // max(1, load.value_bytes)))
        self._floor = 0
        self._above: set[int] = set()
        self._ended = False
        self._start = 0.0
        self.records = 0
        self.refused = 0
        self.seconds = 0.0

    def begin(self, connection: Any, channel: Any) -> None:
        """Start when the channel is open."""
        self._stop = connection.ioloop.stop
        self._publish = channel.basic_publish
        channel.confirm_delivery(self._on_confirm)
        self._start = time.perf_counter()
        self._send()

    def _send(self) -> None:
        """Send while there is room; more, by up to a chunk, is unconfirmed then."""
        while not self._ended and self.records - self._confirmed < self._in_flight:
            chunk = next(self._chunks, None)
            if chunk is None:
                self._ended = True
                break
            shards = self._load.shards
            for value in chunk:
                self._publish(
                    "",
                    self._names[shard_of(value, shards)] if self._load.keyed else self._load.topic,
                    value,
                    self._properties,
                )
            self.records += len(chunk)
        if self._ended and self._confirmed == self.records:
            self.seconds = time.perf_counter() - self._start
            self._stop()

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        if method.NAME != "Basic.Ack":
            self.refused += 1
        if method.multiple:
            self._floor = max(self._floor, method.delivery_tag)
            self._above = {tag for tag in self._above if tag > self._floor}
        else:
            self._above.add(method.delivery_tag)
        self._send()

    @property
    def _confirmed(self) -> int:
        return self._floor + len(self._above)


PEER: Final = Peer(
    name="rabbitmq-quorum",
    title="RabbitMQ quorum queue",
    promises={Durability.SYNCED: "the only way: confirmed after its log is synced (one node)"},
    client_settings=f"pika.SelectConnection, persistent messages, up to {IN_FLIGHT:,} unconfirmed, "
    f"prefetch {PREFETCH:,}",
    notes={
        "work": "basic_ack for each record; acknowledgements are not answered",
        "ordered": "8 queues by key with a single active consumer each; a worker is the active one of 4, and stands by "
        "for the others",
        "latency": "each record is acknowledged",
    },
    cannot={"replay": "a queue forgets what is acknowledged", "group": "a queue has no partitions"},
    modules=("pika",),
    install=rabbitmq_server.INSTALL,
    lacks=rabbitmq_server.lacks,
    version=rabbitmq_server.version,
    server=lambda directory, _: RabbitServer(directory, streams=False),
    client=PikaClient,
)
