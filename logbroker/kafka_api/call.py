"""Common parts of the APIs: the request being answered, the node that answers it, and error codes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from logbroker.address import Address
from logbroker.broker.broker import Broker
from logbroker.broker.topics import MAX_ITEMS, check_not_internal
from logbroker.consumer_groups.groups import Groups
from logbroker.engine import Topic
from logbroker.errors import (
    InvalidRequestError,
    InvalidTopicNameError,
    LogbrokerError,
    OverloadedError,
    UnknownTopicError,
)
from logbroker.kafka_api.fetch_sessions import FetchSessions
from logbroker.kafka_wire.codec import Api
from logbroker.kafka_wire.messages.headers import REQUEST_HEADER
from logbroker.kafka_wire.primitives import Buffer, WireFormatError
from logbroker.pacing import Pace
from logbroker.types import TopicId, topic_id_text

NODE_ID: Final = 1
"""Id of the only broker of the cluster."""

# Error codes of the protocol that the APIs use by number.
REQUEST_TIMED_OUT: Final = 7
INVALID_TOPIC: Final = 17
INVALID_REQUIRED_ACKS: Final = 21
ILLEGAL_GENERATION: Final = 22
LEADER_NOT_AVAILABLE: Final = 5
UNSUPPORTED_SASL_MECHANISM: Final = 33
ILLEGAL_SASL_STATE: Final = 34
UNSUPPORTED_VERSION: Final = 35
INVALID_REPLICATION_FACTOR: Final = 38
INVALID_REPLICA_ASSIGNMENT: Final = 39
INVALID_REQUEST: Final = 42
TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Final = 53
FENCED_LEADER_EPOCH: Final = 74
UNKNOWN_LEADER_EPOCH: Final = 75
GROUP_MAX_SIZE_REACHED: Final = 81
GROUP_SUBSCRIBED_TO_TOPIC: Final = 86
UNKNOWN_TOPIC_ID: Final = 100
MISMATCHED_ENDPOINT_TYPE: Final = 114
UNSUPPORTED_ENDPOINT_TYPE: Final = 115


LONG_ANSWERS: Final = 8
"""Number of long answers that are made at a time. A short request may ask for an answer of megabytes, and in memory it
takes several times what is sent."""
SHORT_STEPS: Final = 400
"""Steps of a `Pace` up to which an answer is short."""


class ConnectionEndError(Exception):
    """The connection must end, because the protocol has no other answer. The message is for the log."""


class Node:
    """The broker as Kafka clients see it: a cluster of one node. Shared by all connections."""

    def __init__(self, broker: Broker, cluster_id: str, advertised: Address | None) -> None:
        self.broker = broker
        self.engine = broker.engine
        self.cluster_id = cluster_id
        self.advertised = advertised
        """The address that clients are told to connect to. None: they are told the one that they have connected to."""
        self.announced: Mapping[int, Served] = {}
        """The APIs, by their keys."""
        self.long_parse = asyncio.Semaphore(1)
        """Held while a large request is parsed in a thread: one at a time, because parsing may take many times its size
        in memory."""
        self.long_answers = asyncio.Semaphore(LONG_ANSWERS)
        """Held while a long answer is made."""
        self.log_dir = os.path.abspath(broker.config.data_dir)
        """The data directory. Made absolute at the start: the working directory may change later."""
        self.fetch_sessions = FetchSessions()
        self.is_stopping = False
        self._waiting: set[asyncio.Event] = set()

    def begin_stop(self) -> None:
        """End the waits of requests. A Fetch answers with what it has, and a request that waits for its group gets an
        error."""
        self.is_stopping = True
        for wake in self._waiting:
            wake.set()
        for home in self.broker.homes.all():
            home.groups.stop_waiting()

    def groups_of(self, group_id: str) -> Groups:
        """Return the groups that the id belongs to. Raises StaleOwnerError or InvalidGroupIdError."""
        return self.broker.homes.of(group_id).groups

    def waits(self, wake: asyncio.Event) -> None:
        """Set `wake` when the broker begins to stop."""
        self._waiting.add(wake)

    def waits_no_more(self, wake: asyncio.Event) -> None:
        self._waiting.discard(wake)


class Call:
    """One request that is being answered."""

    __slots__ = (
        *(
            "_is_long",
            "api",
            "body_at",
            "correlation_id",
            "data",
            "held_bytes",
            "is_hurried",
            "let_go",
            "local",
            "node",
        ),
        *("pace", "peer", "placed", "steps", "version", "waits_for_others", "wake"),
    )

    def __init__(
        self, node: Node, api: Api, version: int, correlation_id: int, data: Buffer, body_at: int, local: Address
    ) -> None:
        self.node = node
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.data = data
        """The request, with its header."""
        self.body_at = body_at
        """Where the message after the header begins."""
        self.local = local
        """The address that the client has connected to."""
        self.pace = Pace()
        self.steps = 0
        """Steps of a `Pace` that the call has taken. They tell how long the lists of the request and the answer are."""
        self.placed: Callable[[], None] = _nothing
        """Lets a Produce that follows this request begin. Called when nothing can overtake this request any more."""
        self.let_go: Callable[[], None] = _nothing
        """Releases the memory of the request. A handler calls it before a long wait, once the request is read."""
        self.peer = ""
        """The host that the client has connected from."""
        self.held_bytes = 0
        """Bytes of the answer that count in the read budget until they are sent."""
        self.waits_for_others = True
        """Whether it waits until few long answers are being made, if its own is long."""
        self._is_long = False
        self.is_hurried = False
        """Whether the request is to be answered at once, with what there is."""
        self.wake: Callable[[], None] = _nothing
        """Tells a handler that waits that `is_hurried` is set."""

    @property
    def address(self) -> Address:
        """The address under which the client reaches this node."""
        return self.node.advertised or self.local

    @property
    def client_id(self) -> str:
        """The name that the client gives itself."""
        header, _ = REQUEST_HEADER.read_part(self.data, 1)
        return header.client_id or ""

    def hurry(self) -> None:
        """Ask for an answer at once: the client sends no more, and is most likely gone."""
        self.is_hurried = True
        self.wake()

    async def step(self, steps: int = 1) -> None:
        """Note that this many steps were done, and give way if the turn is over."""
        self.steps += steps
        if self.steps > SHORT_STEPS and self.waits_for_others and not self._is_long:
            await self._become_long()
        await self.pace.step(steps)

    async def _become_long(self) -> None:
        await self.node.long_answers.acquire()
        self._is_long = True
        try:
            await self.node.broker.read_budget.wait()
        except OverloadedError as error:
            raise ConnectionEndError(error.message) from None

    def is_made(self) -> None:
        """Note that the answer is made, or will not be: another long one may be made."""
        if self._is_long:
            self._is_long = False
            self.waits_for_others = False
            self.node.long_answers.release()

    def check_item_count(self, count: int) -> None:
        """Raise WireFormatError if the request lists too many items."""
        if count > MAX_ITEMS:
            raise WireFormatError(f"the request lists {count} items; at most {MAX_ITEMS} are taken")


def _nothing() -> None:
    """Do nothing: nobody waits."""


Handler: TypeAlias = Callable[[Call, Any], Awaitable[Any]]
"""Answers a request with a response, or with None if the client expects none."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """One API as it is served here."""

    api: Api
    versions: range
    handle: Handler
    announced_from: int | None = None
    """First version to announce, if it is below those that are served."""
    is_appending: bool = False
    """Whether the API parses its request itself. Its request may begin before earlier requests of the connection are
    answered, once the one before it is `placed`."""
    is_waiting: bool = False
    """Whether its request may wait for long. Such a request is `placed` when it begins, and is cancelled when its
    connection is lost."""
    may_be_longer: bool = False
    """Whether bytes behind the request are ignored, as Kafka does for all requests."""
    can_hurry: bool = False
    """Whether its wait ends with an answer when the call is hurried. Other requests that wait are cancelled then."""

    @property
    def least_announced(self) -> int:
        return self.versions[0] if self.announced_from is None else self.announced_from


def served(api: Api, first: int, last: int, handle: Handler, **ways: Any) -> Served:
    """Register an API in the versions from `first` to `last`, both included."""
    return Served(api=api, versions=range(first, last + 1), handle=handle, **ways)


class _HasEpoch(Protocol):
    @property
    def leader_epoch(self) -> int: ...


def epoch_fault(facts: _HasEpoch, current_leader_epoch: int) -> int:
    """Return the error code for the present leader epoch as the client knows it; 0: it is right, or was not sent."""
    if current_leader_epoch in (-1, facts.leader_epoch):
        return 0
    return FENCED_LEADER_EPOCH if current_leader_epoch < facts.leader_epoch else UNKNOWN_LEADER_EPOCH


class Leader(NamedTuple):
    """The leader of a partition, which is this node, unless the partition is offline."""

    error_code: int
    node_id: int
    epoch: int
    in_sync: list[int]
    offline: list[int]


def leader_of(node: Node, topic_id: TopicId, partition: int) -> Leader:
    """Return the leader of an existing partition."""
    try:
        epoch = node.engine.partition_facts(topic_id, partition).leader_epoch
    except LogbrokerError:
        return Leader(LEADER_NOT_AVAILABLE, -1, -1, [], [NODE_ID])
    return Leader(0, NODE_ID, epoch, [NODE_ID], [])


def check_changeable(name: str) -> None:
    """Raise InvalidTopicNameError for an internal topic, which only the broker makes, changes and writes."""
    try:
        check_not_internal(name)
    except InvalidRequestError as error:
        raise InvalidTopicNameError(error.message) from None


def check_assignments(assignments: Iterable[Sequence[int]]) -> None:
    """Raise an error unless each partition is assigned to the one node."""
    if any(list(each) != [NODE_ID] for each in assignments):
        raise AssignmentError(f"assign each partition to node {NODE_ID} alone")


class AssignmentError(InvalidRequestError):
    """Partitions were assigned to nodes that do not exist, or other partitions than the new ones were assigned.

    Assign each partition to the one node, or give the number of partitions instead.
    """

    kafka_code = INVALID_REPLICA_ASSIGNMENT


def topic_of(node: Node, name: str, topic_id: bytes, *, by_id: bool) -> Topic:
    """Return a topic by its id or name. Raises UnknownTopicError."""
    if not by_id:
        return node.engine.topic(name)
    try:
        return node.engine.topic_by_id(TopicId(topic_id))
    except UnknownTopicError:
        raise _UnknownIdError(f"no topic has the id {topic_id_text(TopicId(topic_id))}") from None


class _UnknownIdError(UnknownTopicError):
    """No topic has this id.

    Ask for the metadata again: the topic was deleted.
    """

    kafka_code = UNKNOWN_TOPIC_ID


def code_of(error: LogbrokerError) -> int:
    """Return the error code of the protocol."""
    return error.kafka_code
