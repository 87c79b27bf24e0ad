"""The listener for Kafka clients of one broker: it listens, counts its connections, and stops in order."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from contextlib import suppress
from typing import Final

from logbroker.address import Address, parse_address
from logbroker.broker.broker import Broker
from logbroker.broker.listener import cannot_listen, checked_address, listening_sockets
from logbroker.broker.process_tuning import max_connections
from logbroker.config import BrokerConfig, wrong_kafka_address
from logbroker.engine import StateEvent
from logbroker.errors import ListenError, quoted
from logbroker.kafka_api.apis.table import TABLE
from logbroker.kafka_api.call import Node
from logbroker.kafka_api.connection import KafkaConnection
from logbroker.kafka_api.request_memory import RequestMemory
from logbroker.types import new_topic_id, topic_id_text

_log = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 30.0
"""When the broker stops: time limit for requests in flight."""
STOP_GRACE_SECONDS: Final = 2.0
"""Time limit for clients to read the last answers."""
CHECK_SECONDS: Final = 2.0
"""Time between two searches for silent connections."""
WARNING_SECONDS: Final = 60.0
"""Least time between two warnings about too many connections."""
BACKLOG: Final = 1024
"""Connections that the kernel completes before the broker takes them: after a restart, all clients come back at once.
To those beyond, it does not answer, and they try again after a second or more."""
_SCOPE: Final = "kafka"
_CLUSTER_ID: Final = b"cluster-id"


class KafkaListener:
    """The Kafka listener of a broker."""

    name = "kafka"

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self.max_request_bytes = config.max_request_bytes
        self.memory = RequestMemory(config.max_produce_bytes_in_flight)
        self._max_connections = 0
        self._connections: set[KafkaConnection] = set()
        self._all_closed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._address: Address | None = None
        self._advertised: Address | None = None
        self._servers: list[asyncio.Server] = []
        self._checks: asyncio.Task[None] | None = None
        self._warned_at = -WARNING_SECONDS
        self.node: Node

    async def check(self) -> None:
        if text := self._config.kafka_advertised:
            try:
                self._advertised = parse_address(text)
            except ValueError as error:
                raise ListenError(f"the advertised address, {quoted(text)}, {error}") from None
        self._address = await checked_address(self._config.kafka_listen, "the address to listen on for Kafka clients")
        if wrong := wrong_kafka_address(self._config):
            raise ListenError(wrong)

    async def start(self, broker: Broker) -> Address:
        assert self._address is not None
        self._max_connections = max_connections(self._config)
        self.node = Node(broker, await _cluster_id(broker), self._advertised)
        self.node.announced = TABLE
        try:
            sockets = await listening_sockets(self._address)
        except OSError as error:
            raise cannot_listen(self._address, error.errno or errno.EADDRINUSE) from None
        loop = asyncio.get_running_loop()
        self._servers = [
            await loop.create_server(lambda: KafkaConnection(self), sock=each, backlog=BACKLOG) for each in sockets
        ]
        self._checks = asyncio.create_task(self._check_connections())
        return self._address._replace(port=sockets[0].getsockname()[1])

    async def stop(self, *, failed: bool) -> None:
        if not self._servers:
            return
        for server in self._servers:
            server.close()
        assert self._checks is not None
        self._checks.cancel()
        self.node.begin_stop()
        for connection in list(self._connections):
            if failed:
                connection.abort()
            else:
                connection.stop()
        end = asyncio.get_running_loop().time() + ANSWER_SECONDS
        # Again and again, because a request begins when an earlier one is done.
        while self._tasks and not failed and (left := end - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(self._tasks, timeout=left)
        if self._connections and not failed:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), STOP_GRACE_SECONDS)
        for connection in list(self._connections):
            connection.abort()
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)

    # --- for connections ---------------------------------------------------------------------------------------------

    def opened(self, connection: KafkaConnection) -> bool:
        """Note a new connection; return False if there are too many."""
        if len(self._connections) >= self._max_connections:
            now = time.monotonic()
            if now - self._warned_at >= WARNING_SECONDS:
                self._warned_at = now
                _log.warning(
                    "%d Kafka clients are connected, and further ones are refused: raise the limit on open files",
                    len(self._connections),
                )
            return False
        self._connections.add(connection)
        self._all_closed.clear()
        return True

    def closed(self, connection: KafkaConnection) -> None:
        """Forget a connection."""
        self._connections.discard(connection)
        if not self._connections:
            self._all_closed.set()

    def begun(self, task: asyncio.Task[None]) -> None:
        """Note a task that answers a request."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _check_connections(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            now = asyncio.get_running_loop().time()
            for connection in list(self._connections):
                connection.check_time(now)


async def _cluster_id(broker: Broker) -> str:
    """Return the id of the cluster, which stays with the data directory; the first start makes it."""
    state = broker.state
    assert state is not None  # `wrong_kafka_address` refuses a gateway that listens for Kafka clients.
    found = (await state.load(_SCOPE)).get(_CLUSTER_ID)
    if found is None:
        found = topic_id_text(new_topic_id()).encode()
        await state.commit(_SCOPE, [StateEvent(_CLUSTER_ID, found)])
    return found.decode(errors="replace")
