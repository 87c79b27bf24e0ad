"""Requests of a hostile client to every method of Log, Admin and Queues: sound, nearly sound and not at all.

All of it follows from a seed and a number, so that one line repeats one input.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from logbroker.record.message_headers import PRIORITY
from logbroker.v1 import admin_pb2 as admin
from logbroker.v1 import log_pb2 as log
from logbroker.v1 import queues_pb2 as queues
from logbroker.v1.common_pb2 import Header, Record
from tests.hostile import queue_inputs
from tests.hostile.batch_mutants import NOW_MS, PRIORITY_BYTES, bomb, mutated_batch, sound_batch
from tests.hostile.wire_mutants import NUMBERS, mutated

METHODS: Final[Mapping[str, MethodDescriptor]] = {
    method.name: method
    for service in (
        log.DESCRIPTOR.services_by_name["Log"],
        admin.DESCRIPTOR.services_by_name["Admin"],
        queues.DESCRIPTOR.services_by_name["Queues"],
    )
    for method in service.methods
}
STREAMS: Final = ("ProduceStream", "FetchStream", "Work")
MESSAGES_PER_STREAM: Final = 4
PRODUCERS: Final = 3
"""Producer ids from 1 on that are handed out before."""
PARTITIONS: Final = 4

_CONFIGS: Final = {
    "retention.ms": ("-1", "0", "1", "604800000", str(2**63 - 1)),
    "retention.bytes": ("-1", "0", "1"),
    "segment.bytes": ("256", "1024", "2147483647"),
    "segment.ms": ("1", "604800000"),
    "max.message.bytes": ("1", "1048588", "16777216"),
    "index.interval.bytes": ("1", "4096"),
    "durability": ("synced", "written"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "message.timestamp.after.max.ms": ("0", "3600000"),
    "priority.bands": (
        "",
        "hot=5-9:1,cold=0-4:3",
        "hot=7-9:1,cold=0-5:3",
        "hot=5-9:1,cold=0-5:3",
        "hot=5-9:0,cold=0-4:4",
        "hot=10:1",
        ",".join(f"band-{number}=0-9:1" for number in range(1000)),
    ),
    "priority.routing": ("priority", "key", "band"),
}
_PRIORITIES: Final = (0, 4, 9, 9, -1, 10, 2**31 - 1)
_WEIGHTS: Final = {
    "Produce": 6,
    "ProduceStream": 4,
    "Fetch": 5,
    "FetchStream": 3,
    "CreateTopics": 2,
    "Work": 4,
    "Receive": 2,
}
"""How often a method comes up; the others once."""


class Input(msgspec.Struct, frozen=True):
    """One call: a message for a unary method, several for a stream."""

    number: int
    method: str
    messages: list[bytes]


class Catalog(msgspec.Struct, frozen=True):
    """The topics of the broker, by name, with their ids. What is appended to `ledgers` has to stay."""

    ledgers: dict[str, bytes]
    victims: dict[str, bytes]
    """These are altered and deleted."""


class Requests:
    """Makes the inputs of one seed."""

    def __init__(self, seed: int, catalog: Catalog, methods: Sequence[str] = ()) -> None:
        """`methods`: none means all."""
        self._seed = seed
        self._catalog = catalog
        names = list(methods or METHODS)
        self._methods = [name for name in names for _ in range(_WEIGHTS.get(name, 1))]
        topics = {**catalog.ledgers, **catalog.victims}
        self._log_names = [*map(str.encode, topics), *topics.values()]
        self._admin_names = [*map(str.encode, catalog.victims), *catalog.victims.values()]
        self._queue_names = list(map(str.encode, queue_inputs.VICTIMS))

    def input(self, number: int) -> Input:
        rng = random.Random(f"{self._seed}-{number}")
        method = rng.choice(self._methods)
        count = MESSAGES_PER_STREAM if method in STREAMS else 1
        return Input(number, method, [self._message(rng, method, index) for index in range(count)])

    def _message(self, rng: random.Random, method: str, index: int) -> bytes:
        begins = method == "Work" and not index
        request = queue_inputs.hello(rng) if begins else _MAKERS[method](rng, self._catalog)
        message = request.SerializeToString()
        # A stream ends with its first error: where all of its messages were mutated, hardly any would be heard.
        if rng.random() < (0.7 if method == "Work" else 0.15):
            return message
        # Splicing the name of a ledger into a request to delete would be no hostility, but a mistake of the test.
        service = METHODS[method].containing_service.name
        names = {"Admin": self._admin_names, "Queues": self._queue_names}.get(service, self._log_names)
        return mutated(rng, message, METHODS[method].input_type, names)


def response_class(method: str) -> type[Message]:
    return GetMessageClass(METHODS[method].output_type)


def request_class(method: str) -> type[Message]:
    return GetMessageClass(METHODS[method].input_type)


def path_of(method: str) -> str:
    return f"/{METHODS[method].containing_service.full_name}/{method}"


# --- sound requests ------------------------------------------------------------------------------------------------


def _topic(rng: random.Random, topics: Mapping[str, bytes]) -> dict[str, Any]:
    name = rng.choice(list(topics))
    return {"topic_id": topics[name]} if rng.random() < 0.3 else {"topic": name}


def _any_topic(rng: random.Random, catalog: Catalog) -> dict[str, Any]:
    return _topic(rng, catalog.ledgers if rng.random() < 0.8 else catalog.victims)


def _ref(rng: random.Random, topics: Mapping[str, bytes]) -> admin.TopicRef:
    name = rng.choice(list(topics))
    return admin.TopicRef(id=topics[name]) if rng.random() < 0.2 else admin.TopicRef(name=name)


def _batch(rng: random.Random) -> bytes:
    kind = rng.random()
    if kind < 0.01:
        return bomb(rng)
    producer = (rng.randint(1, PRODUCERS), 0, rng.choice((0, 0, rng.randrange(50)))) if kind < 0.3 else (-1, -1, -1)
    batch = sound_batch(rng, producer=producer)
    return mutated_batch(rng, batch) if rng.random() < 0.5 else batch


def _record(rng: random.Random) -> Record:
    record = Record(headers=[Header(key="h", value=b"v")] * rng.choice((0, 0, 1, 3)))
    if rng.random() < 0.7:
        record.key = b"key-%d" % rng.randrange(20)
    if rng.random() < 0.9:
        record.value = rng.randbytes(rng.randrange(50))
    if rng.random() < 0.5:
        record.timestamp_ms = rng.choice((NOW_MS, NOW_MS, *NUMBERS[:3]))
    if rng.random() < 0.3:
        record.priority = rng.choice(_PRIORITIES)
    if rng.random() < 0.3:
        record.headers.add(key=PRIORITY, value=rng.choice(PRIORITY_BYTES))
    return record


def _produce_item(rng: random.Random, catalog: Catalog) -> log.ProduceItem:
    item = log.ProduceItem(**_any_topic(rng, catalog), generation=rng.choice((0, 0, 1, 2)))
    if rng.random() < 0.7:
        item.partition = rng.randrange(PARTITIONS)
        item.batch = _batch(rng)
        return item
    item.records.records.extend(_record(rng) for _ in range(rng.choice((1, 2, 5))))
    if rng.random() < 0.5:
        item.partition = rng.randrange(PARTITIONS)
        if rng.random() < 0.3:
            item.records.sequence.producer_id = rng.randint(1, PRODUCERS)
            item.records.sequence.base_sequence = rng.randrange(50)
    return item


def _produce(rng: random.Random, catalog: Catalog) -> Message:
    items = [_produce_item(rng, catalog) for _ in range(rng.choice((1, 1, 2, 5)))]
    return log.ProduceRequest(
        correlation_id=rng.getrandbits(20), durability=rng.choice(log.Durability.keys()), items=items
    )


def _fetch_item(rng: random.Random, catalog: Catalog) -> log.FetchItem:
    item = log.FetchItem(**_any_topic(rng, catalog), partition=rng.randrange(PARTITIONS))
    item.offset = rng.choice((0, 0, 1, 5, rng.randrange(2000)))
    if rng.random() < 0.3:
        item.max_bytes = rng.choice((1, 100, 1 << 20))
    if rng.random() < 0.2:
        item.last_leader_epoch = rng.choice((0, 1))
    return item


def _fetch(rng: random.Random, catalog: Catalog) -> Message:
    request = log.FetchRequest(items=[_fetch_item(rng, catalog) for _ in range(rng.choice((1, 1, 3)))])
    request.isolation = rng.choice((log.ISOLATION_READ_UNCOMMITTED, log.ISOLATION_READ_COMMITTED))
    request.plain_records = rng.random() < 0.4
    request.max_bytes = rng.choice((1, 10_000, 1 << 20))
    request.max_wait_ms = rng.choice((0, 0, 0, 1, 20))
    return request


def _fetch_stream(rng: random.Random, catalog: Catalog) -> Message:
    request = log.FetchStreamRequest(correlation_id=rng.getrandbits(20))
    if rng.random() < 0.4:
        request.settings.plain_records = rng.random() < 0.5
        request.settings.max_response_bytes = rng.choice((1, 10_000, 1 << 20))
    request.assign.extend(_fetch_item(rng, catalog) for _ in range(rng.choice((0, 1, 3))))
    request.remove.extend(
        log.PartitionRef(**_any_topic(rng, catalog), partition=rng.randrange(PARTITIONS))
        for _ in range(rng.choice((0, 0, 1)))
    )
    request.add_credit_bytes = rng.choice((0, 1, 1000, 100_000))
    return request


def _list_offsets(rng: random.Random, catalog: Catalog) -> Message:
    items = []
    for _ in range(rng.choice((1, 2, 5))):
        item = log.ListOffsetsItem(**_any_topic(rng, catalog), partition=rng.randrange(PARTITIONS))
        if rng.random() < 0.5:
            item.spec = rng.choice((log.OFFSET_SPEC_EARLIEST, log.OFFSET_SPEC_LATEST))
        else:
            item.timestamp_ms = rng.choice((NOW_MS, NOW_MS + 500, 0, 2**62))
        items.append(item)
    return log.ListOffsetsRequest(items=items)


def _init_producer_id(rng: random.Random, _catalog: Catalog) -> Message:
    request = log.InitProducerIdRequest()
    if rng.random() < 0.5:
        request.producer_id, request.producer_epoch = rng.choice((1, 10**6)), rng.choice((0, 1, 32_767))
    if rng.random() < 0.2:
        request.transactional_id = "transaction"
    return request


def _some_configs(rng: random.Random) -> dict[str, str]:
    return {name: rng.choice(_CONFIGS[name]) for name in rng.sample(list(_CONFIGS), rng.choice((0, 1, 2)))}


def _create_topics(rng: random.Random, catalog: Catalog) -> Message:
    request = admin.CreateTopicsRequest(validate_only=rng.random() < 0.7)
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice((*catalog.victims, f"new-{rng.randrange(20)}", "n" * 249))
        topic = request.topics.add(name=name, configs=_some_configs(rng))
        if rng.random() < 0.8:
            topic.partitions = rng.choice((1, 2, PARTITIONS))
    return request


def _list_topics(rng: random.Random, _catalog: Catalog) -> Message:
    return admin.ListTopicsRequest(page_size=rng.choice((1, 2, 100)), page_token=rng.choice(("", "ledger-1")))


def _describe_topics(rng: random.Random, catalog: Catalog) -> Message:
    topics = {**catalog.ledgers, **catalog.victims}
    refs = [_ref(rng, topics) for _ in range(rng.choice((1, 3)))]
    return admin.DescribeTopicsRequest(topics=refs, include_partitions=rng.random() < 0.5)


def _alter_topics(rng: random.Random, catalog: Catalog) -> Message:
    request = admin.AlterTopicsRequest(validate_only=rng.random() < 0.5)
    for _ in range(rng.choice((1, 2))):
        change = request.topics.add(topic=_ref(rng, catalog.victims), set_configs=_some_configs(rng))
        change.unset_configs.extend(rng.sample(list(_CONFIGS), rng.choice((0, 1))))
        if rng.random() < 0.2:
            change.partitions = rng.choice((PARTITIONS, PARTITIONS + 1))
    return request


def _delete_topics(rng: random.Random, catalog: Catalog) -> Message:
    names = ["nowhere", *(f"new-{number}" for number in range(20))]
    names += catalog.victims if rng.random() < 0.1 else ()
    return admin.DeleteTopicsRequest(topics=[admin.TopicRef(name=rng.choice(names)) for _ in range(rng.choice((1, 2)))])


def _delete_records(rng: random.Random, catalog: Catalog) -> Message:
    request = admin.DeleteRecordsRequest()
    for _ in range(rng.choice((1, 2))):
        deletion = request.deletions.add(topic=_ref(rng, catalog.victims), partition=rng.choice((0, 1, PARTITIONS, -1)))
        if rng.random() < 0.9:
            deletion.before_offset = rng.choice((0, 1, 5, -1, -2, 2**63 - 1, -(2**63)))
    return request


def _of_queues(maker: Callable[[random.Random], Message]) -> Callable[[random.Random, Catalog], Message]:
    return lambda rng, _catalog: maker(rng)


_MAKERS: Final[Mapping[str, Callable[[random.Random, Catalog], Message]]] = {
    "Produce": _produce,
    "ProduceStream": _produce,
    "Fetch": _fetch,
    "FetchStream": _fetch_stream,
    "ListOffsets": _list_offsets,
    "InitProducerId": _init_producer_id,
    "CreateTopics": _create_topics,
    "ListTopics": _list_topics,
    "DescribeTopics": _describe_topics,
    "AlterTopics": _alter_topics,
    "DeleteTopics": _delete_topics,
    "DeleteRecords": _delete_records,
    "DescribeBroker": lambda _rng, _catalog: admin.DescribeBrokerRequest(),
    **{name: _of_queues(maker) for name, maker in queue_inputs.MAKERS.items()},
}
assert set(_MAKERS) == set(METHODS)
