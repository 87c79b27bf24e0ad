"""Gateways for tests: real services on a real port, over local storage, that take some names for another's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status as RpcStatus

from logbroker.broker.broker import open_broker
from logbroker.config import BrokerConfig
from logbroker.errors import StaleOwnerError
from logbroker.grpc_api.server import GrpcListener
from logbroker.v1 import admin_pb2, groups_pb2, log_pb2, queues_pb2

DEADLINE_SECONDS: Final = 20.0


class Elsewhere:
    """A part of a broker that refuses some names, because another gateway has them."""

    def __init__(self, part: object, owners: Mapping[str, str], method: str) -> None:
        """`method` takes the name as its first argument."""
        self._part = part
        self._owners = owners
        self._method = method

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if name != self._method:
            return found

        def checked(first: str, *rest: Any, **fields: Any) -> Any:
            if first in self._owners:
                raise StaleOwnerError(f"{first} is not here").owned_by(self._owners[first])
            return found(first, *rest, **fields)

        return checked


class Gateway:
    """A gateway, and what it believes."""

    def __init__(self) -> None:
        self.address = ""
        self.owners: dict[str, str] = {}
        """The addresses of the owners of names that are not its own."""
        self.others: list[str] = []
        """The addresses of the other gateways."""


@asynccontextmanager
async def gateway(directory: Path, **settings: Any) -> AsyncIterator[Gateway]:
    """A gateway in this event loop."""
    config = BrokerConfig(data_dir=str(directory), listen="127.0.0.1:0", **settings)
    found = Gateway()
    stopping = asyncio.Event()
    async with open_broker(config, asyncio.get_running_loop().create_future()) as broker:
        broker.gateways = lambda: found.others
        broker.homes = cast("Any", Elsewhere(broker.homes, found.owners, "of"))
        broker.engine = cast("Any", Elsewhere(broker.engine, found.owners, "create_topic"))
        listener = GrpcListener(config, stopping)
        await listener.check()
        try:
            found.address = str(await listener.start(broker))
            yield found
        finally:
            stopping.set()
            for home in broker.homes.all():
                home.freeze()
            await listener.stop(failed=False)


_METHODS: Final = {
    method.name: method
    for module, service in ((admin_pb2, "Admin"), (groups_pb2, "Groups"), (log_pb2, "Log"), (queues_pb2, "Queues"))
    for method in module.DESCRIPTOR.services_by_name[service].methods
}


class Caller:
    """A program that knows one gateway and the .proto files."""

    def __init__(self, address: str, *options: tuple[str, int]) -> None:
        unlimited = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
        self.channel = grpc.aio.insecure_channel(address, options=(*options, *unlimited))

    async def __aenter__(self) -> Caller:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()

    def call(self, name: str, request: Message | bytes, seconds: float | None = DEADLINE_SECONDS) -> Any:
        method = _METHODS[name]
        stub: Any = self.channel.unary_unary(
            f"/{method.containing_service.full_name}/{name}",
            request_serializer=None
            if isinstance(request, bytes)
            else GetMessageClass(method.input_type).SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        return stub(request, timeout=seconds)

    async def refusal(self, name: str, request: Message | bytes, seconds: float | None = DEADLINE_SECONDS) -> Refusal:
        """Make a call that fails, and return its status."""
        try:
            answer = await self.call(name, request, seconds)
        except grpc.aio.AioRpcError as error:
            return Refusal(error)
        raise AssertionError(answer)


class Refusal:
    """The status of a call that failed."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        self.code = error.code()
        self.message = error.details() or ""
        self.trailers = tuple(error.trailing_metadata() or ())
        self.reason = ""
        self.metadata: dict[str, str] = {}
        for key, value in self.trailers:
            if key == "grpc-status-details-bin" and isinstance(value, bytes):
                info = ErrorInfo()
                assert RpcStatus.FromString(value).details[0].Unpack(info)
                self.reason, self.metadata = info.reason, dict(info.metadata)
