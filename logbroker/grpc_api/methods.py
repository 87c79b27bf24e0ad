"""Method tables of the services, built from the descriptors that protoc wrote."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Collection
from typing import Any, cast

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message

from logbroker.errors import InvalidRequestError
from logbroker.grpc_api.forwarding import Forwarding
from logbroker.grpc_api.request_parsing import request_parser
from logbroker.grpc_api.status import Context, abort
from logbroker.grpc_api.under_way import UnderWay


def method_table(
    service: ServiceDescriptor | Any,
    implementation: object,
    raw: Collection[str] = (),
    writing: Collection[str] = (),
    under_way: UnderWay | None = None,
    waiting: Collection[str] = (),
    full_name: str = "",
    only: Collection[str] | None = None,
    forwarding: Forwarding | None = None,
) -> grpc.GenericRpcHandler:
    """Return a handler that serves every method of the service by the attribute of `implementation` with the same name
    in snake case.

    If an attribute is missing, this function raises AttributeError, instead of UNIMPLEMENTED at run time. Methods in
    `raw` get the bytes of their requests. Methods in `writing` write their one response to the context themselves, and
    so learn whether the transport took it; on the wire there is no difference. `under_way` counts the calls, except
    calls of the methods in `waiting`, which change nothing and may take as long as their client likes. `full_name` is
    the name under which the service is served, by default its own name. With `only`, all other methods are
    UNIMPLEMENTED: the service may come from another package, and its installed version may have more methods.
    `forwarding` sends unary calls on to the gateway that serves their group.
    """
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
    for method in service.methods:
        if only is not None and method.name not in only:
            continue
        make = _MAKERS[bool(method.client_streaming), bool(method.server_streaming) or method.name in writing]
        behaviour = getattr(implementation, _snake_case(method.name))
        parse = None if method.name in raw else request_parser(method.input_type)
        if parse is not None:
            # Not parsed by the transport: it would answer errors with UNKNOWN, and block the event loop for large
            # messages.
            behaviour = (_reading if method.client_streaming else _parsing)(behaviour, parse)
        if forwarding is not None and not (method.client_streaming or method.server_streaming):
            behaviour = forwarding.forwarded(method, behaviour)
        if under_way is not None and method.name not in waiting:
            behaviour = under_way.counted(behaviour)
        handlers[method.name] = make(behaviour, request_deserializer=None, response_serializer=_serialize)
    return grpc.method_handlers_generic_handler(full_name or service.full_name, handlers)


def _parsing(
    behaviour: Callable[[Any, Context], Awaitable[Any]], parse: Callable[[bytes], Awaitable[Message]]
) -> Callable[[bytes, Context], Awaitable[Any]]:
    @functools.wraps(behaviour)
    async def answer(message: bytes, context: Context) -> Any:
        request: Message | None = None
        refusal: InvalidRequestError | None = None
        try:
            request = await parse(message)
        except InvalidRequestError as error:
            refusal = error.as_value()
        del message  # The frame of an aborted call stays in memory until the garbage collector runs.
        if refusal is not None:
            await abort(context, refusal)
        return await behaviour(request, context)

    return answer


def _reading(
    behaviour: Callable[[Any, Context], Awaitable[Any]], parse: Callable[[bytes], Awaitable[Message]]
) -> Callable[[Any, Context], Awaitable[Any]]:
    @functools.wraps(behaviour)
    async def answer(requests: Any, context: Context) -> Any:
        return await behaviour(requests, cast("Context", _ReadingContext(context, parse)))

    return answer


class _ReadingContext:
    """The context of a stream whose requests are parsed as they are read. Reading raises InvalidRequestError."""

    def __init__(self, context: Context, parse: Callable[[bytes], Awaitable[Message]]) -> None:
        self._context = context
        self._parse = parse
        self.write = context.write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def read(self) -> Any:
        message = await self._context.read()
        return message if message is grpc.aio.EOF else await self._parse(message)


def _serialize(message: Any) -> bytes:
    """Serialize a response. A response that is bytes is already serialized."""
    return message if type(message) is bytes else message.SerializeToString()


def _snake_case(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


_MAKERS = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}
