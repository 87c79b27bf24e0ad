"""Requests to every API in every version, made from the wire codec: right in form, and mostly right in meaning.

The codec knows which fields a version has and how large they are; `shape` finds it out by trial. So whatever
a field can hold is sent in it, in depth, and a request whose bytes are damaged later was whole before.
"""

from __future__ import annotations

import functools
import random
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, get_args, get_type_hints

import msgspec

from logbroker.kafka_api.apis.table import TABLE
from logbroker.kafka_wire.apis import (
    APIS,
    FETCH,
    JOIN_GROUP,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
)
from logbroker.kafka_wire.codec import Api
from logbroker.kafka_wire.messages.consumer_protocol import SUBSCRIPTION, ConsumerProtocolSubscription
from logbroker.kafka_wire.primitives import NO_UUID, WireFormatError
from tests.hostile.batch_mutants import bomb, mutated_batch, sound_batch

PARTITIONS: Final = 4
LEDGERS: Final = ("ledger-0", "ledger-1")
"""Topics that no request alters or deletes: what is appended to them has to stay."""
VICTIMS: Final = ("victim-0", "victim-1", "victim-2", "victim-3")
CONFIGS: Final[Mapping[str, Sequence[str]]] = {
    "retention.ms": ("-1", "1", "604800000", str(2**63 - 1), "-2", "x"),
    "segment.bytes": ("256", "1024", "2147483647", "0"),
    "max.message.bytes": ("1", "1048588", "16777216", ""),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "durability": ("synced", "written", "never"),
    "priority.bands": ("", "hot=5-9:1,cold=0-4:3", "hot=10:1"),
    "cleanup.policy": ("delete", "compact"),
}
_TEXTS: Final = (
    "",
    "\0",
    "..",
    "a/b",
    "name\nwith a line",
    "ключ",
    "\U0001f4a3" * 20,
    "n" * 249,
    "n" * 250,
    "n" * 5000,
)
_EDGES: Final = (0, 1, -1, -2, 2**7 - 1, -(2**7), 2**15 - 1, -(2**15), 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
_SMALL: Final = (0, 0, 0, 1, 1, 2, 3, -1)
_WEIGHTS: Final = {PRODUCE.key: 8, FETCH.key: 5}
"""How often an API comes up; the others twice."""
_SUBSCRIPTION: Final = b"\0\1" + SUBSCRIPTION.write(ConsumerProtocolSubscription(topics=[*LEDGERS, VICTIMS[0]]), 1)
_EDGE_CHANCE: Final = 0.06
"""How often a value is one that nobody expects."""


class Member(msgspec.Struct, frozen=True):
    """A member of a group, as the broker has named it."""

    group: str
    member_id: str
    generation: int


class Known:
    """Names and ids that answers have told, so that later requests go on from it."""

    def __init__(self) -> None:
        self.topic_ids: dict[str, bytes] = {}
        self.members: deque[Member] = deque(maxlen=30)
        self.sessions: deque[tuple[int, int]] = deque(maxlen=20)
        """Ids of fetch sessions, with their next epochs."""
        self.producer_ids: deque[int] = deque([-1], maxlen=10)
        self.round = 0

    @property
    def groups(self) -> list[str]:
        """The present groups. New ones come in time, since those of before wait for members that are gone."""
        return [f"group-{self.round // 10}-{number}" for number in range(6)]

    def learn(self, api: Api, request: Any, answer: Any) -> None:
        """Keep what an answer tells."""
        if api is JOIN_GROUP and answer.member_id and len(answer.member_id) < 300:
            self.members.append(Member(request.group_id, answer.member_id, answer.generation_id))
        elif api is FETCH and answer.session_id:
            self.sessions.append((answer.session_id, max(request.session_epoch, 0) + 1))
        elif api.name == "InitProducerId" and answer.producer_id >= 0:
            self.producer_ids.append(answer.producer_id)


class Shape(msgspec.Struct):
    """The fields that one version of a structure has."""

    kind: type[msgspec.Struct]
    fields: list[_Field] = []


class _Field(msgspec.Struct):
    name: str
    sort: str
    bits: int = 0
    is_nullable: bool = False
    inner: Shape | None = None


@functools.cache
def shape(api: Api, version: int) -> Shape:
    """Return the shape of a request, found by writing each field with a value of its own."""
    return _shape(api.request.kind, lambda message: message, lambda message: _is_written(api, version, message))


def _is_written(api: Api, version: int, message: msgspec.Struct) -> bool:
    try:
        api.request.write(message, version)
    except WireFormatError:
        return False
    return True


def _shape(
    kind: type[msgspec.Struct], within: Callable[[Any], msgspec.Struct], is_written: Callable[[msgspec.Struct], bool]
) -> Shape:
    found = Shape(kind, [])
    for name, hint in get_type_hints(kind).items():

        def holding(value: object, name: str = name) -> msgspec.Struct:
            return within(kind(**{name: value}))

        is_list = "list[" in str(hint)
        # Records may be bytes or a view of them, or None.
        part = next(each for each in get_args(hint) if each is not type(None)) if "|" in str(hint) else hint
        field = _Field(name, "", is_nullable=is_written(holding(None)))
        base = get_args(part)[0] if is_list else bytes if part is memoryview else part
        if isinstance(base, type) and issubclass(base, msgspec.Struct):
            if not is_written(holding([base()] if is_list else base())):
                continue
            field.sort = "structures" if is_list else "structure"
            field.inner = _shape(base, functools.partial(_held, holding, is_list), is_written)
        elif base is int:
            field.bits = next(
                (bits for bits in (64, 32, 16, 8) if is_written(holding(_wrapped(2 ** (bits - 1) - 1, is_list)))), 0
            )
            if not field.bits:
                continue
            field.sort = "numbers" if is_list else "number"
        else:
            is_uuid = base is bytes and (is_list or getattr(kind(), name) == NO_UUID)
            sample: object = {str: "x", bytes: b"\1" * 16 if is_uuid else b"x", float: 1.0}.get(base)
            if base is bool:
                sample = not getattr(kind(), name)
            if not is_written(holding(_wrapped(sample, is_list))):
                continue
            field.sort = ("uuid" if is_uuid else base.__name__) + ("s" if is_list else "")
        found.fields.append(field)
    return found


def _held(holding: Callable[[object], msgspec.Struct], is_list: bool, item: object) -> msgspec.Struct:
    return holding(_wrapped(item, is_list))


def _wrapped(value: object, is_list: bool) -> object:
    return [value] if is_list else value


class Requests:
    """Makes requests from a random generator."""

    def __init__(self, rng: random.Random, known: Known, keys: Sequence[int] = ()) -> None:
        """`keys`: the APIs to ask; none: all that the codec knows."""
        self._rng = rng
        self._known = known
        self._keys = [key for key in keys or APIS for _ in range(_WEIGHTS.get(key, 2 if key in TABLE else 1))]
        self._topics: Sequence[str] = ()

    def make(self) -> tuple[Api, int, bytes]:
        """Return the body of a request, with its API and version."""
        rng = self._rng
        api = APIS[rng.choice(self._keys)]
        served = TABLE.get(api.key)
        version = rng.choice(api.versions if served is None or rng.random() < 0.02 else served.versions)
        # Only what reads and appends may name a ledger.
        reads = api in (PRODUCE, FETCH, LIST_OFFSETS, METADATA) or api.key in (8, 9, 23, 47)
        self._topics = (*LEDGERS, *LEDGERS, *VICTIMS) if reads else VICTIMS
        of = shape(api, version)
        message = self._structure(of)
        self._go_on(api, message, {field.name for field in of.fields})
        return api, version, api.request.write(message, version)

    def _structure(self, of: Shape) -> Any:
        values = {field.name: self._value(of, field) for field in of.fields}
        return of.kind(**values)

    def _value(self, of: Shape, field: _Field) -> Any:
        rng = self._rng
        if field.is_nullable and rng.random() < 0.25:
            return None
        match field.sort:
            case "structure" | "structures":
                assert field.inner is not None
                if field.sort == "structure":
                    return self._structure(field.inner)
                count = rng.choice((0, 1, 1, 1, 1, 2, 3)) if rng.random() < 0.99 else 300
                one = [self._structure(field.inner) for _ in range(min(count, 3))]
                return one * 100 if count == 300 else one
            case "number":
                return self._number(field)
            case "numbers":
                return [self._number(field) for _ in range(rng.choice((0, 1, 2, 5)))]
            case "str":
                return self._text(of, field.name)
            case "strs":
                return [self._text(of, field.name) for _ in range(rng.choice((0, 1, 2, 4)))]
            case "bool":
                return rng.random() < 0.5
            case "uuid":
                return self._uuid()
            case "uuids":
                return [self._uuid() for _ in range(rng.choice((0, 1, 2)))]
            case "bytes":
                return self._bytes(field.name)
            case _:
                return rng.random()

    def _number(self, field: _Field) -> int:
        rng = self._rng
        is_edge = rng.random() < _EDGE_CHANCE
        found: int = rng.choice(_EDGES if is_edge else _NUMBERS.get(field.name, _SMALL))
        high: int = 2 ** (field.bits - 1) - 1
        return min(max(found, -high - 1), high)

    def _text(self, of: Shape, name: str) -> str:
        rng = self._rng
        if rng.random() < _EDGE_CHANCE:
            return rng.choice(_TEXTS)
        if "Config" in of.kind.__name__ and name in ("name", "configuration_keys"):
            return rng.choice(list(CONFIGS))
        if name == "value":
            return rng.choice(rng.choice(list(CONFIGS.values())))
        if name in ("group_id", "groups", "groups_names", "key", "coordinator_keys", "group_ids"):
            return rng.choice(self._known.groups)
        if name == "member_id":
            return rng.choice(self._known.members).member_id if self._known.members and rng.random() < 0.7 else ""
        if name == "name" and "JoinGroup" in of.kind.__name__:
            return rng.choice(("range", "range", "roundrobin"))
        if name in _WORDS:
            return rng.choice(_WORDS[name])
        return rng.choice(self._topics)

    def _uuid(self) -> bytes:
        ids = [self._known.topic_ids.get(name, NO_UUID) for name in self._topics]
        return self._rng.choice(ids) if self._rng.random() < 0.9 else self._rng.randbytes(16)

    def _bytes(self, name: str) -> bytes:
        rng = self._rng
        if name == "records":
            return self._records()
        if name == "metadata" and rng.random() < 0.8:
            return _SUBSCRIPTION
        return rng.randbytes(rng.choice((0, 1, 10, 100)))

    def _records(self) -> bytes:
        rng = self._rng
        chance = rng.random()
        if chance < 0.03:
            return old_message_set(rng)
        if chance < 0.032:
            return bomb(rng)
        producer_id = rng.choice(self._known.producer_ids) if rng.random() < 0.3 else -1
        producer = (producer_id, 0, rng.choice((0, 0, 1, 5))) if producer_id >= 0 else (-1, -1, -1)
        batch = sound_batch(rng, producer=producer)
        return batch if chance < 0.6 else mutated_batch(rng, batch)

    def _go_on(self, api: Api, message: Any, names: set[str]) -> None:
        """Put values together that belong together. `names`: the fields that this version has."""
        rng = self._rng
        if api is FETCH and "session_id" in names:
            if rng.random() < 0.5 and self._known.sessions:
                message.session_id, message.session_epoch = rng.choice(self._known.sessions)
            elif rng.random() < 0.7:
                message.session_id, message.session_epoch = 0, rng.choice((0, -1))
        elif api is PRODUCE and rng.random() < 0.9:
            message.transactional_id = None
        elif self._known.members and "member_id" in names and rng.random() < 0.6:
            member = rng.choice(self._known.members)
            message.group_id, message.member_id = member.group, member.member_id
            for name in names & {"generation_id", "generation_id_or_member_epoch"}:
                setattr(message, name, member.generation)


_NUMBERS: Final[Mapping[str, Sequence[int]]] = {
    "acks": (-1, 1) * 9 + (0,),
    "timeout_ms": (0, 1000),
    "max_wait_ms": (0, 0, 0, 1, 5),
    "min_bytes": (0, 1, 1, 1000),
    "max_bytes": (1, 1000, 50_000),
    "partition_max_bytes": (0, 1, 1000, 50_000),
    "session_timeout_ms": (100, 200, 1000, 6000),
    "rebalance_timeout_ms": (1, 10, 100, 1000),
    "partition": (0, 1, 2, 3, 3, 4),
    "partition_index": (0, 1, 2, 3, 3, 4),
    "partitions": (0, 1, 2, 3, 3, 4),
    "partition_indexes": (0, 1, 2, 3, 3, 4),
    "index": (0, 1, 2, 3),
    "count": (1, 2, 4, 5),
    "num_partitions": (1, 2, 4, -1),
    "replication_factor": (1, 1, 1, -1, 3),
    "broker_ids": (1, 1, 1, 2),
    "resource_type": (2, 2, 4, 0),
    "config_operation": (0, 0, 1, 2),
    "fetch_offset": (0, 0, 1, 5, 20, 100),
    "offset": (0, -1, 5, 100),
    "committed_offset": (0, 0, 1, 5, -1),
    "timestamp": (-1, -2, -3, -4, 0, 1_700_000_000_000, 1_700_000_000_500),
    "current_leader_epoch": (-1, -1, 0, 1),
    "last_fetched_epoch": (-1, -1, 0, 1),
    "generation_id": (1, 2, 3, -1),
    "member_epoch": (0, 1, 2, -1, -2),
    "key_type": (0, 0, 1, 2),
    "producer_id": (-1, -1, 1, 2),
    "producer_epoch": (-1, -1, 0, 1),
    "response_partition_limit": (1, 2, 2000),
}
_WORDS: Final[Mapping[str, Sequence[str]]] = {
    "protocol_type": ("consumer", "consumer", "consumer", "connect"),
    "protocol_name": ("range", "roundrobin"),
    "group_instance_id": ("static-1", "static-2"),
    "instance_id": ("static-1", "static-2"),
    "resource_name": (*VICTIMS, "1", ""),
    "mechanism": ("PLAIN", "SCRAM-SHA-256"),
    "states_filter": ("Stable", "empty", "Dead"),
    "types_filter": ("classic", "consumer"),
    "reason": ("because",),
    "client_software_name": ("apache-kafka-java", "librdkafka"),
    "client_software_version": ("4.3.0", "2.16"),
    "committed_metadata": ("", "note", "m" * 100),
    "transactional_id": ("transaction",),
    "rack_id": ("", "rack"),
    "cluster_id": ("cluster",),
    "server_assignor": ("uniform", "range"),
    "subscribed_topic_regex": ("ledger-.*", "(", "(a*)*b"),
}


def old_message_set(rng: random.Random) -> bytes:
    """Return a message of the formats before Kafka 0.11 (magic 0 and 1), with any CRC."""
    magic, value = rng.choice((0, 1)), rng.randbytes(rng.randrange(60))
    body = bytes((magic, 0)) + (struct.pack(">q", 1) if magic else b"") + struct.pack(">i", -1)
    body += struct.pack(">i", len(value)) + value
    message = struct.pack(">I", rng.getrandbits(32)) + body
    return struct.pack(">qi", 0, len(message)) + message
