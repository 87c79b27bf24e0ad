"""Records that a worker sends together with its acks. No I/O.

Once the worker has looked a topic up, it routes records and encodes them in batches itself, which costs the broker
less. Until then, it sends them as they are, and the broker routes them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from operator import attrgetter
from typing import Final

import msgspec

from logbroker.client.runtime.arguments import header_list, record_parts, sub_stream
from logbroker.client.transport.band_route import ways_of
from logbroker.client.transport.metadata import UNUSED_SECONDS, TopicInfo
from logbroker.errors import InvalidRecordError, RecordTooLargeError, UnknownPartitionError, UnknownTopicError, quoted
from logbroker.record.codec import NO_HEADERS, BatchBuilder, Headers
from logbroker.record.message_headers import DEFAULT_PRIORITY, priority_of, with_priority
from logbroker.types import MAX_TOPIC_CHARACTERS, is_topic_name
from logbroker.v1 import queues_pb2

MAX_OUTPUT_BYTES: Final = 1024 * 1024
MAX_OUTPUT_RECORDS: Final = 10_000
"""Maximum bytes and number of the records that are sent with one delivery."""
MAX_OUTPUT_HEADERS: Final = 50_000
"""Maximum number of headers of these records. The broker ends the stream of a worker that lists more than 100,000
elements in one message."""
MAX_RUNS: Final = 1_000
"""Maximum number of runs of records that one delivery sends. A run is a sequence of records of one topic with the same
partition, if the program chose it, and the same ordering key. The broker takes this many outputs."""
RECORDS_AT_ONCE: Final = 1_000
"""Maximum number of records that are sent with one settlement of several deliveries: the broker takes this many
batches."""
_MAX_PARTITION: Final = (1 << 31) - 1
_MAX_NAME_BYTES: Final = 64 * 1024
"""Longest name of a header: the broker ends a stream with a longer text."""
_STALE_SECONDS: Final = 30.0
"""The time after which a topic is looked up again. Records that are routed by an earlier generation of their topic are
routed anew by the broker."""


_numbers: Final = itertools.count()


class SentRecord(msgspec.Struct, gc=False):
    """A record for another topic, sent together with an ack."""

    topic: str
    partition: int | None
    value: bytes | None
    key: bytes | None
    headers: Headers
    timestamp_ms: int | None
    size_bytes: int
    number: int
    """It grows from call to call of `send`."""
    ordering_key: bytes | None = None
    """Chooses the partition in place of the key."""

    @property
    def place(self) -> tuple[str, int | None, bytes | None]:
        """The topic, and the partition and the ordering key that the program chose."""
        return self.topic, self.partition, self.ordering_key


def sent_record(
    topic: str,
    value: bytes | None,
    key: bytes | None,
    sub_key: bytes | None,
    headers: Headers,
    partition: int | None,
    timestamp_ms: int | None,
    ordering_key: bytes | None,
    priority: int | None,
) -> SentRecord:
    """Return a record to be sent. Raises InvalidRequestError for a priority out of range or a sub-key without a key,
    InvalidTimestampError, InvalidRecordError, UnknownTopicError, UnknownPartitionError or TypeError.

    All that is accepted here can be put into a message. Otherwise building the message would end the worker's stream,
    again and again.
    """
    if headers is not NO_HEADERS:
        headers = header_list(headers)
    if sub_key is not None:
        key, headers = sub_stream(key, sub_key, headers, by_producer=False)
    if priority is not None:
        headers = with_priority(headers, priority)
    # The full check takes ten times as long as all the rest.
    if not (
        type(value) is bytes
        and (key is None or type(key) is bytes)
        and headers == ()
        and partition is timestamp_ms is None
        and ordering_key is None
        and type(topic) is str
        and topic.isascii()
    ):
        value, key, headers, ordering_key = record_parts(
            topic, value, key, headers, partition, timestamp_ms, ordering_key, by_producer=False
        )
    if not is_topic_name(topic):
        raise UnknownTopicError(
            f"no topic {quoted(topic)}: a name has 1 to {MAX_TOPIC_CHARACTERS} of a-z, A-Z, 0-9, '.', '_' and '-'"
        )
    if partition is not None and not 0 <= partition <= _MAX_PARTITION:
        raise UnknownPartitionError(f"topic {topic!r} has no partition {partition}; they are counted from 0")
    size_bytes = len(value or b"") + len(key or b"") + len(ordering_key or b"")
    for name, content in headers:
        name_bytes = len(name.encode())
        if name_bytes > _MAX_NAME_BYTES:
            raise InvalidRecordError(f"a header's name has {name_bytes:,} bytes; at most {_MAX_NAME_BYTES:,} are sent")
        size_bytes += name_bytes + len(content or b"")
    return SentRecord(topic, partition, value, key, headers, timestamp_ms, size_bytes, next(_numbers), ordering_key)


class SentRecords(list[SentRecord]):
    """The records that one delivery sends."""

    __slots__ = ("_latest_places", "_runs", "headers", "max_bytes", "size_bytes")

    def __init__(self, max_bytes: int = MAX_OUTPUT_BYTES) -> None:
        super().__init__()
        self.max_bytes = max_bytes
        self.size_bytes = 0
        self.headers = 0
        """Number of headers of all records."""
        self._latest_places: dict[str, tuple[str, int | None, bytes | None]] = {}
        """The place of the last record of each topic; not known while the records are too few for MAX_RUNS."""
        self._runs = 0

    def add(self, *records: SentRecord) -> None:
        """Add records. Raises RecordTooLargeError, and adds none, if they would be too many for one delivery."""
        count = len(self) + len(records)
        size_bytes = self.size_bytes + sum(sent.size_bytes for sent in records)
        headers = self.headers + sum(len(sent.headers) for sent in records)
        if size_bytes > self.max_bytes or count > MAX_OUTPUT_RECORDS or headers > MAX_OUTPUT_HEADERS:
            limit = " (max_request_bytes of the broker)" if self.max_bytes < MAX_OUTPUT_BYTES else ""
            raise RecordTooLargeError(
                f"the outputs of the delivery would have {size_bytes:,} bytes in {count:,} records with {headers:,}"
                f" headers; it sends up to {self.max_bytes:,} bytes{limit} in {MAX_OUTPUT_RECORDS:,} records with"
                f" {MAX_OUTPUT_HEADERS:,} headers: send a reference to large values"
            )
        if count > MAX_RUNS:
            self._add_runs(records)
        self += records
        self.size_bytes = size_bytes
        self.headers = headers

    def _add_runs(self, records: Iterable[SentRecord]) -> None:
        runs, latest = self._runs, self._latest_places.copy()
        for sent in records if runs else (*self, *records):
            if latest.get(sent.topic) != sent.place:
                latest[sent.topic] = sent.place
                runs += 1
        if runs > MAX_RUNS:
            raise RecordTooLargeError(
                f"the outputs of the delivery would change their partition or ordering key {runs:,} times, and"
                f" {MAX_RUNS:,} times are possible: send the records of one ordering key one after the other, or let"
                " the key choose the partition"
            )
        self._runs, self._latest_places = runs, latest


def joined(*parts: SentRecords | None) -> SentRecords:
    """Return the records of all parts, in the order in which they were sent. Raises RecordTooLargeError."""
    whole = SentRecords(min(part.max_bytes for part in parts if part is not None))
    whole.add(*sorted((sent for part in parts for sent in part or ()), key=attrgetter("number")))
    return whole


class _Route:
    """The routing of one topic's records."""

    def __init__(self, info: TopicInfo) -> None:
        self.topic_id = info.id
        self.generation = info.generation
        self.max_batch_bytes = info.max_message_bytes
        self._ways = ways_of(info)
        self._has_bands = len(set(self._ways)) > 1

    def partition_of(self, sent: SentRecord) -> int:
        way = self._ways[priority_of(sent.headers) if self._has_bands else DEFAULT_PRIORITY]
        key = sent.key if sent.ordering_key is None else sent.ordering_key
        return way.sticky if key is None else way.partition_of[key]


class OutputRoutes:
    """The topics to which a worker sends."""

    def __init__(self) -> None:
        self._routes: dict[str, _Route] = {}
        self._tried_at: dict[str, float] = {}
        """The time of the last lookup of each topic, the oldest first. A topic in use is looked up again and again."""
        self._used: set[str] = set()

    def due(self, now: float) -> list[str]:
        """Return the used topics that are to be looked up at `now` (monotonic seconds), and note that they are tried
        now."""
        used, self._used = self._used, set()
        due = [name for name in used if now - self._tried_at.get(name, -_STALE_SECONDS) >= _STALE_SECONDS]
        for name in due:
            self._tried_at.pop(name, None)
            self._tried_at[name] = now
        if due:
            self._forget_unused(now)
        return due

    def _forget_unused(self, now: float) -> None:
        unused = itertools.takewhile(lambda name: self._tried_at[name] <= now - UNUSED_SECONDS, self._tried_at)
        for name in list(unused):
            del self._tried_at[name]
            self._routes.pop(name, None)

    def found(self, name: str, info: TopicInfo | None) -> None:
        """Note the answer to a lookup of a topic; None: there is no such topic, or the lookup failed."""
        if info is None:
            self._routes.pop(name, None)
        else:
            self._routes[name] = _Route(info)

    def forget(self, names: Iterable[str]) -> None:
        """Forget the facts about topics, because the broker refused records that were routed by them."""
        for name in names:
            self._routes.pop(name, None)

    def pack(self, records: Iterable[SentRecord]) -> tuple[list[queues_pb2.Output], bool]:
        """Return records as the outputs of a message, by topic, and whether the worker has routed any of them."""
        by_topic: dict[str, list[SentRecord]] = {}
        for sent in records:
            by_topic.setdefault(sent.topic, []).append(sent)
        outputs: list[queues_pb2.Output] = []
        is_routed = False
        for name, of_topic in by_topic.items():
            self._used.add(name)
            route = self._routes.get(name)
            outputs += _plain(name, of_topic) if route is None else _batches(name, route, of_topic)
            is_routed = is_routed or route is not None
        return outputs, is_routed


def _plain(topic: str, records: Iterable[SentRecord]) -> list[queues_pb2.Output]:
    # Places may be in one partition, so an output begins wherever the place changes. The records keep their order.
    outputs: list[queues_pb2.Output] = []
    place = None
    for sent in records:
        if not outputs or sent.place != place:
            place = sent.place
            outputs.append(queues_pb2.Output(topic=topic, partition=sent.partition, ordering_key=sent.ordering_key))
        record = outputs[-1].records.records.add(key=sent.key, value=sent.value, timestamp_ms=sent.timestamp_ms)
        for name, content in sent.headers:
            record.headers.add(key=name, value=content)
    return outputs


def _batches(topic: str, route: _Route, records: Iterable[SentRecord]) -> list[queues_pb2.Output]:
    parts: list[tuple[tuple[int, int, bytes | None], list[SentRecord]]] = []
    latest: dict[int, tuple[tuple[int, int, bytes | None], list[SentRecord]]] = {}
    """The last part of each partition. The next record goes on with it, or begins another one, so that the records of
    the partition keep their order."""
    for sent in records:
        # Generation 0: the broker does not route a record anew if the program chose its partition.
        if sent.partition is None:
            place = route.partition_of(sent), route.generation, sent.ordering_key
        else:
            place = sent.partition, 0, None
        part = latest.get(place[0])
        if part is None or part[0] != place:
            part = latest[place[0]] = place, []
            parts.append(part)
        part[1].append(sent)
    return [
        queues_pb2.Output(
            topic=topic,
            topic_id=route.topic_id,
            partition=partition,
            generation=generation,
            batch=batch,
            ordering_key=ordering_key,
        )
        for (partition, generation, ordering_key), part in parts
        for batch in _encoded(part, route.max_batch_bytes)
    ]


def _encoded(records: Iterable[SentRecord], max_bytes: int) -> Iterable[bytes]:
    builder, count = BatchBuilder(max_bytes), 0
    for sent in records:
        parts = sent.timestamp_ms, sent.key, sent.value, list(sent.headers)
        if builder.append(count, *parts) is None:
            yield builder.build()
            builder, count = BatchBuilder(max_bytes), 0
            builder.append(0, *parts)
        count += 1
    yield builder.build()
