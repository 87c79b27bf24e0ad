"""The gRPC server of one broker: it listens, adds the services, and stops in order."""

from __future__ import annotations

import asyncio
import errno
import logging
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio as health_aio

from logbroker.address import Address
from logbroker.broker.broker import Broker
from logbroker.broker.listener import cannot_listen, checked_address
from logbroker.broker.process_tuning import max_connections
from logbroker.config import BrokerConfig
from logbroker.grpc_api.admin_service import AdminService
from logbroker.grpc_api.forwarding import Forwarding
from logbroker.grpc_api.groups.service import GroupsService
from logbroker.grpc_api.log.service import LogService
from logbroker.grpc_api.methods import method_table
from logbroker.grpc_api.queues.service import QueuesService
from logbroker.grpc_api.reflection import add_reflection
from logbroker.grpc_api.under_way import UnderWay
from logbroker.v1 import admin_pb2, common_pb2, groups_pb2, log_pb2, queues_pb2

_log = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 30.0
"""When the broker stops: time limit for calls in flight that change something. Whatever was appended or stored should
be answered, so the limit is long enough even for many appends on a slow disk. Streams end by themselves with
UNAVAILABLE."""
STOP_GRACE_SECONDS: Final = 2.0
"""Time limit for all other calls, which may wait for records, after the calls that change something have ended."""
HANDSHAKE_SECONDS: Final = 10
READ_AHEAD_BYTES: Final = 256 * 1024
"""Bytes of one stream that are read ahead, in addition to the message being read. A producer on a slow link gets a sign
of life after each part that is read. With more, the signs would come later, and the producer would take the silent
connection for dead."""
CONNECTION_SHARE: Final = 4
"""Divisor for the limit of one connection, which may have a fourth of the concurrent calls."""
_NAMES: Final = (
    log_pb2.DESCRIPTOR.services_by_name["Log"].full_name,
    admin_pb2.DESCRIPTOR.services_by_name["Admin"].full_name,
    groups_pb2.DESCRIPTOR.services_by_name["Groups"].full_name,
    queues_pb2.DESCRIPTOR.services_by_name["Queues"].full_name,
)


class GrpcListener:
    """The gRPC server of a broker."""

    name = "grpc"

    def __init__(self, config: BrokerConfig, stopping: asyncio.Event) -> None:
        """Make a listener. Set `stopping` when the broker begins to stop: streams end then."""
        self._config = config
        self._stopping = stopping
        self._address: Address | None = None
        self._server: grpc.aio.Server | None = None
        self._health = health_aio.HealthServicer()
        self._under_way = UnderWay()
        self._forwarding: Forwarding | None = None
        """None: the broker is not a gateway."""

    async def check(self) -> None:
        self._address = await checked_address(self._config.listen)

    async def start(self, broker: Broker) -> Address:
        assert self._address is not None
        logging.getLogger("grpc._cython.cygrpc").addFilter(_is_fault)
        server = grpc.aio.server(
            options=_options(self._config), maximum_concurrent_rpcs=self._config.max_concurrent_calls
        )
        if broker.gateways is not None:
            self._forwarding = Forwarding(
                broker.gateways, lambda: broker.homes.address, broker.read_budget, self._config.max_response_bytes
            )
        _add_services(server, broker, self._health, self._stopping, self._under_way, self._forwarding)
        address = _listen(server, self._address)
        await server.start()
        self._server = server
        for name in ("", *_NAMES):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return address

    async def stop(self, *, failed: bool) -> None:
        if self._server is None:
            return
        await self._health.enter_graceful_shutdown()
        if failed:
            await self._server.stop(0)
        else:
            await _stop(self._server, self._under_way)
        if self._forwarding is not None:
            await self._forwarding.close()


def _is_fault(record: logging.LogRecord) -> bool:
    """Return False for the traceback that gRPC logs if it cannot send an answer because the caller is gone.

    gRPC itself ignores the error if it has noticed the end of the call before, so the log would have it only now and
    then.
    """
    error = record.exc_info[1] if record.exc_info else None
    if not isinstance(error, grpc.aio.InternalError):
        return True
    _log.debug("the caller was gone before its answer was sent: %s", record.getMessage())
    return False


async def _stop(server: grpc.aio.Server, under_way: UnderWay) -> None:
    """Stop the server: refuse new calls, answer the calls that change something, and end waiting calls soon after
    that."""
    stopping = asyncio.create_task(server.stop(ANSWER_SECONDS))
    ended = asyncio.create_task(under_way.ended())
    await asyncio.wait([stopping, ended], return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    await server.stop(STOP_GRACE_SECONDS)
    await stopping


def _options(config: BrokerConfig) -> list[tuple[str, Any]]:
    return [
        ("grpc.max_receive_message_length", config.max_request_bytes),
        # One batch larger than the limit of a response is still sent.
        ("grpc.max_send_message_length", -1),
        # The read-ahead is fixed. Otherwise gRPC would answer each small heartbeat with a probe of the connection to
        # find out how far to read ahead: a third of the cost of an idle member.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", READ_AHEAD_BYTES),
        # A second broker on the port must fail, not share it.
        ("grpc.so_reuseport", 0),
        # Vanished clients are noticed within a minute.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        # gRPC 1.85 never starts the keepalive timeout; this timeout ends a dead connection.
        ("grpc.http2.ping_timeout_ms", 20_000),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        # A silent new connection is closed; gRPC's default would wait two minutes.
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1000),
        # Further connections are closed at once: descriptors must remain for files.
        ("grpc.max_allowed_incoming_connections", max_connections(config)),
        # One connection must not take all calls; its further calls wait in the client.
        ("grpc.max_concurrent_streams", max(1, config.max_concurrent_calls // CONNECTION_SHARE)),
    ]


def _add_services(
    server: grpc.aio.Server,
    broker: Broker,
    health: health_aio.HealthServicer,
    stop: asyncio.Event,
    under_way: UnderWay,
    forwarding: Forwarding | None,
) -> None:
    log = log_pb2.DESCRIPTOR.services_by_name["Log"]
    admin = admin_pb2.DESCRIPTOR.services_by_name["Admin"]
    groups = groups_pb2.DESCRIPTOR.services_by_name["Groups"]
    queues = queues_pb2.DESCRIPTOR.services_by_name["Queues"]
    budget = broker.read_budget
    server.add_generic_rpc_handlers(
        (
            method_table(
                log,
                LogService(broker, budget, stop),
                raw=("Produce", "ProduceStream"),
                under_way=under_way,
                waiting=("Fetch", "FetchStream"),
            ),
            method_table(admin, AdminService(broker), under_way=under_way, forwarding=forwarding),
            method_table(groups, GroupsService(broker, stop), under_way=under_way, forwarding=forwarding),
            method_table(
                queues,
                QueuesService(broker, budget, stop),
                writing=("Receive",),
                under_way=under_way,
                waiting=("Receive",),
                forwarding=forwarding,
            ),
            method_table(
                health_pb2.DESCRIPTOR.services_by_name["Health"],
                SimpleNamespace(check=health.Check, watch=health.Watch),
                only=("Check", "Watch"),
            ),
        )
    )
    files = (common_pb2, log_pb2, admin_pb2, groups_pb2, queues_pb2, health_pb2)
    add_reflection(server, [module.DESCRIPTOR for module in files])


def _listen(server: grpc.aio.Server, address: Address) -> Address:
    """Listen, and return the address with the bound port. Raises ListenError."""
    with suppress(RuntimeError):
        bound = server.add_insecure_port(str(address))
        if bound:
            return address._replace(port=bound)
    raise cannot_listen(address, errno.EADDRINUSE)  # It was free a moment ago.
