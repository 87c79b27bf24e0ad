"""The gRPC server of one broker: it listens, adds the services, and stops in order."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio as health_aio

from logbroker import __version__
from logbroker.address import USUAL_PORT, Address, parse_address
from logbroker.broker.broker import Broker, open_broker
from logbroker.config import BrokerConfig
from logbroker.errors import ListenError, StorageFailedError, quoted
from logbroker.errors.system import system_error_text
from logbroker.grpc_api.admin_service import AdminService
from logbroker.grpc_api.exposure import error_of_listening, reachable_from_outside
from logbroker.grpc_api.frozen_heap import FrozenHeap
from logbroker.grpc_api.groups.service import GroupsService
from logbroker.grpc_api.log.budget import ReadBudget
from logbroker.grpc_api.log.service import LogService
from logbroker.grpc_api.methods import method_table
from logbroker.grpc_api.process_tuning import max_connections, tune_process
from logbroker.grpc_api.queues.service import QueuesService
from logbroker.grpc_api.reflection import add_reflection
from logbroker.grpc_api.under_way import UnderWay
from logbroker.v1 import admin_pb2, common_pb2, groups_pb2, log_pb2, queues_pb2

_log = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 30.0
"""When the broker stops: time limit for calls in flight that change something. Whatever was appended or stored should
be answered, so it is long enough even for many appends on a slow disk. Streams end by themselves with UNAVAILABLE."""
STOP_GRACE_SECONDS: Final = 2.0
"""Time limit for all other calls, which may wait for records, after the calls that change something have ended."""
HANDSHAKE_SECONDS: Final = 10
READ_AHEAD_BYTES: Final = 256 * 1024
"""Bytes of one stream that are read ahead, in addition to the message being read. A producer on a slow link gets a sign
of life after each part that is read. With more, the signs would come later, and the producer would take the silent
connection for dead."""
CONNECTION_SHARE: Final = 4
"""Divisor of the concurrent calls for one connection: it may have a fourth of them."""
_FIRST_UNPRIVILEGED_PORT: Final = 1024
_GIVE_OWN: Final = "give 127.0.0.1, another address of this machine, or 0.0.0.0 for all of them"
_NAMES: Final = (
    log_pb2.DESCRIPTOR.services_by_name["Log"].full_name,
    admin_pb2.DESCRIPTOR.services_by_name["Admin"].full_name,
    groups_pb2.DESCRIPTOR.services_by_name["Groups"].full_name,
    queues_pb2.DESCRIPTOR.services_by_name["Queues"].full_name,
)


async def serve(config: BrokerConfig, *, on_ready: Callable[[str], None], stop: asyncio.Event) -> None:
    """Serve until `stop` is set; `on_ready` is called with HOST:PORT when the server answers calls.

    Raises ListenError, DataDirError or CorruptLogError at start. Raises StorageFailedError if storage fails later:
    nothing more is acknowledged then, and the process must end.
    """
    address = _address(config.listen)
    try:
        is_reachable = await reachable_from_outside(address.host)
    except OSError as error:
        raise ListenError(f"cannot listen on {address}: {system_error_text(error)}: {_GIVE_OWN}") from None
    # Before a data directory is made.
    if number := await error_of_listening(address.host, address.port):
        raise _cannot_listen(address, number)
    if is_reachable:
        _log.warning(
            "listening on %s, which other machines may reach: whoever reaches it may read, write and delete "
            "everything; listen on 127.0.0.1, or let a firewall decide who may connect",
            config.listen,
        )
    tune_process(config.thread_switch_interval_seconds)
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_fault)
    failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with open_broker(config, failure) as broker:
        server = grpc.aio.server(options=_options(config), maximum_concurrent_rpcs=config.max_concurrent_calls)
        health = health_aio.HealthServicer()
        under_way = UnderWay()
        _add_services(server, broker, health, stop, under_way)
        address = _listen(server, address)
        await server.start()
        for name in ("", *_NAMES):
            await health.set(name, health_pb2.HealthCheckResponse.SERVING)
        heap = FrozenHeap()
        heap.start()
        try:
            _log.info(
                "logbroker %s serves on %s: data directory %s, process %d",
                *(__version__, address, Path(config.data_dir).absolute(), os.getpid()),
            )
            on_ready(str(address))
            failure.add_done_callback(lambda _: stop.set())
            await stop.wait()
        finally:
            heap.stop()
            broker.groups.freeze()
            broker.queues.freeze()
            await health.enter_graceful_shutdown()
            if failure.done():
                await server.stop(0)
            else:
                await _stop(server, under_way)
    if failure.done():
        raise StorageFailedError(f"the broker stopped because its storage failed: {failure.exception()}")
    _log.info("stopped cleanly")


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
        ("grpc.max_allowed_incoming_connections", max_connections()),
        # One connection must not take all calls; its further calls wait in the client.
        ("grpc.max_concurrent_streams", max(1, config.max_concurrent_calls // CONNECTION_SHARE)),
    ]


def _add_services(
    server: grpc.aio.Server,
    broker: Broker,
    health: health_aio.HealthServicer,
    stop: asyncio.Event,
    under_way: UnderWay,
) -> None:
    log = log_pb2.DESCRIPTOR.services_by_name["Log"]
    admin = admin_pb2.DESCRIPTOR.services_by_name["Admin"]
    groups = groups_pb2.DESCRIPTOR.services_by_name["Groups"]
    queues = queues_pb2.DESCRIPTOR.services_by_name["Queues"]
    budget = ReadBudget(broker.config.max_fetch_bytes_in_flight, broker.config.fetch_memory_wait_seconds)
    server.add_generic_rpc_handlers(
        (
            method_table(
                log,
                LogService(broker, budget, stop),
                raw=("Produce", "ProduceStream"),
                under_way=under_way,
                waiting=("Fetch", "FetchStream"),
            ),
            method_table(admin, AdminService(broker), under_way=under_way),
            method_table(groups, GroupsService(broker, stop), under_way=under_way),
            method_table(
                queues,
                QueuesService(broker, budget, stop),
                writing=("Receive",),
                under_way=under_way,
                waiting=("Receive",),
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


def _address(listen: str) -> Address:
    try:
        return parse_address(listen, any_port=True)
    except ValueError as error:
        raise ListenError(f"the address to listen on, {quoted(listen)}, {error}") from None


def _listen(server: grpc.aio.Server, address: Address) -> Address:
    """Listen, and return the address with the bound port. Raises ListenError."""
    with suppress(RuntimeError):
        bound = server.add_insecure_port(str(address))
        if bound:
            return address._replace(port=bound)
    raise _cannot_listen(address, errno.EADDRINUSE)  # It was free a moment ago.


def _cannot_listen(address: Address, number: int) -> ListenError:
    """Return the error for the system's error number."""
    if number == errno.EADDRINUSE:
        reason = "another program uses the port: end it, or give another port (0 picks a free one)"
    elif number == errno.EADDRNOTAVAIL:
        reason = f"the address is not this machine's: {_GIVE_OWN}"
    elif number in (errno.EACCES, errno.EPERM) and address.port < _FIRST_UNPRIVILEGED_PORT:
        reason = f"the system keeps this port for privileged programs: give a higher port, such as {USUAL_PORT}"
    else:
        reason = os.strerror(number)
    return ListenError(f"cannot listen on {address}: {reason}")
