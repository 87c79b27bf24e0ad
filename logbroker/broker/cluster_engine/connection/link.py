"""The connections to a cluster: a request to one node, and who leads which partition.

aiokafka keeps the connections (bootstrap, TLS, SASL, the versions that a node knows); the messages are those of
`logbroker.kafka_wire`. Long fetches have connections of their own, because a node answers the requests of a connection
one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum
from functools import partial
from io import BytesIO
from time import monotonic
from typing import Any, Final, TypeVar

import msgspec
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, NodeNotReadyError, UnrecognizedBrokerVersion

from logbroker.broker.cluster_engine.connection.appends import Appends
from logbroker.broker.cluster_engine.connection.codes import NONE, PASSING
from logbroker.errors import BrokerUnavailableError, UnsupportedFeatureError
from logbroker.kafka_wire.apis import FIND_COORDINATOR, METADATA, PRODUCE
from logbroker.kafka_wire.codec import Api
from logbroker.kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from logbroker.kafka_wire.messages.headers import REQUEST_HEADER, RESPONSE_HEADER, RequestHeader, ResponseHeader
from logbroker.kafka_wire.messages.metadata import MetadataRequest
from logbroker.types import TopicId

REQUEST_SECONDS: Final = 10.0
"""The time that a node has for an answer, besides the time that the request itself lets it wait."""
_ANY_SECONDS: Final = 3.0
"""The time that a node has if another one can answer instead."""
_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 1.0
_MAX_REPLICAS: Final = 3
MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
"""The config that says how many replicas must have a record before it is acknowledged."""
_TRANSACTION: Final = 1
"""The kind of coordinator that keeps transactional ids."""
_OF_ONE_KEY: Final = 3
"""The last version of FindCoordinator that asks for one key."""

T = TypeVar("T")


class ClusterPartition(msgspec.Struct, frozen=True, gc=False):
    """The leader of one partition as the cluster last described it."""

    leader: int
    """Id of the node; -1: there is none now."""
    leader_epoch: int
    replicas: int = 1
    """Number of replicas, whether they are in sync or not."""


class ClusterTopic(msgspec.Struct, frozen=True):
    """One topic as the cluster last described it."""

    name: str
    id: TopicId
    partitions: tuple[ClusterPartition, ...]


class PassingError(Exception):
    """An answer or a failure after which the same request may succeed a little later."""


class Line(IntEnum):
    """The connections to one node. A node answers the requests of one connection in their order, so what must not wait
    for others has a connection of its own."""

    REQUESTS = 0
    FOLLOWING = 1
    """Fetches that wait at the node for new records."""
    SHARED = 2
    """The fetch that waits at the node for what gateways share."""
    HEARTBEATS = 3
    APPENDS = 4
    """Records, whose answers wait for other replicas."""
    COMMITS = 5
    """The state of groups; the same."""


class _Header:
    """The header of a request, in the shape that aiokafka takes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def encode(self) -> bytes:
        return self._data


class _Request:
    """One request in the shape that aiokafka's connections take: they choose the version, and frame the bytes."""

    def __init__(self, api: Api, message: Any, last_version: int) -> None:
        self._api = api
        self._message = message
        self._last_version = last_version
        self._version = -1

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> _Request:
        if not versions:
            raise NodeNotReadyError("it does not say yet what it knows")  # It has just been started.
        least, most = versions.get(self._api.key, (0, -1))
        version = min(most, self._last_version)
        if version < max(least, self._api.first_version):
            raise UnrecognizedBrokerVersion(f"{self._api.name} {least} to {most}")
        self._version = version
        return self

    def build_request_header(self, correlation_id: int, client_id: str) -> _Header:
        header = RequestHeader(
            request_api_key=self._api.key,
            request_api_version=self._version,
            correlation_id=correlation_id,
            client_id=client_id,
        )
        return _Header(REQUEST_HEADER.write(header, self._api.request_header_version(self._version)))

    def encode(self) -> bytes:
        return self._api.request.write(self._message, self._version)

    def parse_response_header(self, stream: BytesIO) -> ResponseHeader:
        data = stream.getvalue()
        header, at = RESPONSE_HEADER.read_part(data, self._api.response_header_version(self._version))
        stream.seek(at)
        return header

    @property
    def RESPONSE_TYPE(self) -> _Request:  # noqa: N802 (aiokafka's name)
        return self

    def decode(self, stream: BytesIO) -> Any:
        return self._api.response.read(stream.getvalue(), self._version, stream.tell())


class ClusterLink:
    """The connections to all nodes, and the cluster's topics."""

    def __init__(self, addresses: str) -> None:
        """`addresses` are HOST:PORT of some nodes, with commas between them."""
        self.addresses = addresses
        self.topics: dict[str, ClusterTopic] = {}
        """All topics by name, as of the last `refresh`."""
        self.controller = -1
        self.nodes: tuple[int, ...] = ()
        """Ids of the nodes that are up."""
        self._known_nodes: frozenset[int] = frozenset()
        """Ids of the nodes that are up or have replicas of a topic."""
        self._client: AIOKafkaClient | None = None
        self._turns = itertools.count()
        self._appends: dict[Line, Appends] = {}
        self._refreshing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect to the cluster. Raises BrokerUnavailableError."""
        client = AIOKafkaClient(
            bootstrap_servers=self.addresses,
            client_id="logbroker",
            request_timeout_ms=round(REQUEST_SECONDS * 2 * 1000),
        )
        try:
            await client.bootstrap()
        except (KafkaError, OSError) as error:
            await client.close()
            raise BrokerUnavailableError(
                f"the cluster at {self.addresses} cannot be reached: {error}; check the addresses (--cluster) and that"
                " its nodes run"
            ) from None
        self._client = client
        await self.persist(self.refresh, seconds=REQUEST_SECONDS)

    async def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
        if self._client is not None:
            with contextlib.suppress(RuntimeError):  # A connection was closed already.
                await self._client.close()

    async def ask(
        self, node: int, api: Api, message: Any, *, line: Line = Line.REQUESTS, last_version: int | None = None
    ) -> Any:
        """Send a request to a node, and return its answer, both of the latest version that both sides know, up to
        `last_version`.

        Requests of one line to one node arrive in the order in which the calls of this coroutine run their first step,
        and are answered in this order, as long as the connection lasts. Raises PassingError if the node cannot be
        reached or does not answer, UnsupportedFeatureError if it is too old.
        """
        client = self._client
        assert client is not None
        try:
            request = _Request(api, message, api.last_stable_version if last_version is None else last_version)
            return await client.send(node, request, group=line)
        except UnrecognizedBrokerVersion as error:
            raise UnsupportedFeatureError(f"the cluster does not know a request that is needed: {error}") from None
        except (KafkaError, OSError, RuntimeError) as error:  # uvloop raises RuntimeError for a closed connection.
            raise PassingError(f"node {node}: {type(error).__name__} {error}") from None

    def appends(self, line: Line) -> Appends:
        """Return what joins the appends on a line."""
        if line not in self._appends:
            self._appends[line] = Appends(partial(self.ask, api=PRODUCE, line=line), PassingError)
        return self._appends[line]

    async def ask_any(self, api: Api, message: Any, *, last_version: int | None = None) -> Any:
        """Send a request that any node can answer, to one after the other until one does. Raises as `ask` does."""
        assert self._client is not None
        nodes = list(self.nodes) or [int(broker.nodeId) for broker in self._client.cluster.brokers()]
        first = next(self._turns)
        error = PassingError("no node of the cluster is known")
        for place in range(len(nodes)):
            try:
                async with asyncio.timeout(_ANY_SECONDS):
                    return await self.ask(nodes[(first + place) % len(nodes)], api, message, last_version=last_version)
            except PassingError as failed:
                error = failed
            except TimeoutError:
                error = PassingError(f"no node has answered within {_ANY_SECONDS} s")
        raise error

    async def refresh(self) -> None:
        """Read all topics and their leaders anew. Callers at the same time share one request. Raises PassingError."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh())
        await asyncio.shield(self._refreshing)

    async def _refresh(self) -> None:
        answer = await self.ask_any(METADATA, MetadataRequest(topics=None, allow_auto_topic_creation=False))
        assert self._client is not None
        if not {broker.node_id for broker in answer.brokers} <= {
            broker.nodeId for broker in self._client.cluster.brokers()
        }:
            await self._learn_nodes(self._client)
        self.controller = answer.controller_id
        self.nodes = tuple(broker.node_id for broker in answer.brokers)
        with_replicas = (node for topic in answer.topics for part in topic.partitions for node in part.replica_nodes)
        self._known_nodes = frozenset((*self.nodes, *with_replicas))
        self.topics = {
            topic.name: ClusterTopic(
                topic.name,
                TopicId(topic.topic_id),
                tuple(
                    ClusterPartition(part.leader_id, part.leader_epoch, len(part.replica_nodes))
                    for part in sorted(topic.partitions, key=lambda part: part.partition_index)
                ),
            )
            for topic in answer.topics
            if topic.error_code == NONE
        }

    async def _learn_nodes(self, client: AIOKafkaClient) -> None:
        """Let the client learn where new nodes are."""
        try:
            async with asyncio.timeout(_ANY_SECONDS):
                await client.force_metadata_update()
        except (KafkaError, OSError, RuntimeError, TimeoutError) as error:
            raise PassingError(f"the nodes of the cluster are not known: {error!r}") from None

    def replication_factor(self) -> int:
        """Return the number of replicas of a new topic: three, or one for each node of a smaller cluster, whether the
        node is up or not."""
        return min(len(self._known_nodes), _MAX_REPLICAS)

    def safety_configs(self) -> dict[str, str]:
        """Return the configs by which a record of a new topic survives the loss of a node."""
        return {MIN_INSYNC_REPLICAS: "2"} if self.replication_factor() > 1 else {}

    def replicas(self, topic: str, partition: int) -> int:
        """Return the number of replicas of a partition; 0: not known."""
        found = self.topics.get(topic)
        return found.partitions[partition].replicas if found is not None and partition < len(found.partitions) else 0

    def leader(self, topic: str, partition: int) -> ClusterPartition:
        """Return the leader of a partition. Raises PassingError if it has none, or is not known."""
        found = self.topics.get(topic)
        if found is None or partition >= len(found.partitions):
            raise PassingError(f"{topic}-{partition} is not known")
        if found.partitions[partition].leader < 0:
            raise PassingError(f"{topic}-{partition} has no leader")
        return found.partitions[partition]

    async def transaction_coordinator(self, transactional_id: str) -> int:
        """Return the node that keeps a transactional id. Raises PassingError."""
        request = FindCoordinatorRequest(key=transactional_id, key_type=_TRANSACTION)
        # Later versions take several keys at once.
        answer = await self.ask_any(FIND_COORDINATOR, request, last_version=_OF_ONE_KEY)
        check(answer.error_code, "FindCoordinator")
        return int(answer.node_id)

    async def persist(self, attempt: Callable[[], Awaitable[T]], *, seconds: float) -> T:
        """Return the result of `attempt`. Repeat it after each PassingError, with fresh metadata.

        Raises BrokerUnavailableError when the time is over.
        """
        deadline = monotonic() + seconds
        pause = _PAUSE_SECONDS
        while True:
            try:
                return await attempt()
            except PassingError as error:
                if monotonic() + pause > deadline:
                    raise BrokerUnavailableError(f"the cluster at {self.addresses} does not answer: {error}") from None
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            try:
                await self.refresh()
            except PassingError:
                continue  # The attempt itself says what is wrong.


def check(code: int, what: str) -> None:
    """Raise PassingError for an error that may pass, and BrokerUnavailableError for any other."""
    if code in PASSING:
        raise PassingError(f"{what} was answered with error {code}")
    if code != NONE:
        raise BrokerUnavailableError(f"the cluster refused {what} with Kafka's error {code}")
