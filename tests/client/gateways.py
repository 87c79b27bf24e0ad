"""Gateways of a cluster, played by a server that passes everything on to one broker."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final, Self

import grpc
from google.rpc import error_details_pb2, status_pb2

from logbroker.errors import StaleOwnerError

_OF_GROUPS: Final = ("/Member", "/Work")


class Gateway:
    """A gateway that does not own some groups at first: it ends the streams of groups with STALE_OWNER, once for each
    of `owners`. Later streams, and all other calls, it passes on to the broker."""

    def __init__(self, broker: str, owners: Iterable[str] = ()) -> None:
        self._broker = broker
        self.owners = deque(owners)
        """The addresses that it will name, one a stream."""
        self.served = 0
        """The number of streams of groups that it has passed on."""
        self.address = ""

    async def __aenter__(self) -> Self:
        self._channel = grpc.aio.insecure_channel(self._broker)
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((_Handlers(self),))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """End all connections, and accept no more."""
        await self._server.stop(None)
        await self._channel.close()

    async def answer(
        self, method: str, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> AsyncIterator[bytes]:
        if method.endswith(_OF_GROUPS):
            if self.owners:
                await _abort(context, self.owners.popleft())
            self.served += 1
        call: Any = self._channel.stream_stream(method)
        async for response in call(requests):
            yield response


class _Handlers(grpc.GenericRpcHandler):
    """Serves every method. Unary calls look like streams on the wire."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        method = handler_call_details.method

        async def answer(requests: Any, context: Any) -> AsyncIterator[bytes]:
            async for response in self._gateway.answer(method, requests, context):
                yield response

        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(answer)
        return handler


def stale_owner(owner: str) -> grpc.aio.Metadata:
    """Return the trailing metadata of the error of a gateway that does not own a group."""
    info = error_details_pb2.ErrorInfo(reason=StaleOwnerError.reason, domain="logbroker")
    if owner:
        info.metadata["owner"] = owner
    status = status_pb2.Status(code=grpc.StatusCode.UNAVAILABLE.value[0])
    status.details.add().Pack(info)
    return grpc.aio.Metadata(("grpc-status-details-bin", status.SerializeToString()))


async def _abort(context: grpc.aio.ServicerContext[bytes, bytes], owner: str) -> None:
    trailing: Any = tuple(stale_owner(owner))
    await context.abort(grpc.StatusCode.UNAVAILABLE, "another gateway serves the group", trailing)
