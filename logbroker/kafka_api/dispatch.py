"""Finds the API of a request, and turns the request into its answer.

A request of an API, or in a version, that is not served is answered with UNSUPPORTED_VERSION (`refusal`). The
connection ends if the bytes are not a request, or if there is no such answer: `kafka_wire` does not know the API, or
the request is a Produce.
"""

from __future__ import annotations

import asyncio
import struct
from functools import partial
from typing import Final

from logbroker.address import Address
from logbroker.kafka_api.apis.table import TABLE
from logbroker.kafka_api.call import Call, ConnectionEndError, Node, Served
from logbroker.kafka_api.produce_parser import past_tags
from logbroker.kafka_api.refusal import can_be_refused, refusal, refusal_version
from logbroker.kafka_wire.apis import API_VERSIONS, APIS
from logbroker.kafka_wire.messages.headers import REQUEST_HEADER
from logbroker.kafka_wire.primitives import NO_TAGS, Buffer, Parts, WireFormatError

MAX_OTHER_BYTES: Final = 1024 * 1024
"""Maximum size of a request that has no batches. It may take fifty times as much memory when it is parsed."""
INLINE_BYTES: Final = 16 * 1024
"""Maximum size of a request without batches that is parsed on the event loop, in about 5 ms at worst."""
LONG_STEPS: Final = 4_000
"""Steps above which a response is long, and is written in a thread."""
JOINED_BYTES: Final = 4096
_LEAST: Final = struct.Struct(">hhi")
_LENGTH_ID: Final = struct.Struct(">ii")


def begin(node: Node, data: Buffer, local: Address) -> tuple[Call, Served]:
    """Read the header of a request. Raises WireFormatError or ConnectionEndError."""
    if len(data) < _LEAST.size:
        raise WireFormatError(f"a request of {len(data)} bytes is shorter than its header")
    key, version, correlation_id = _LEAST.unpack_from(data)
    served = TABLE.get(key)
    if served is None or version not in served.versions:
        return _refused(node, key, version, correlation_id, local)
    api = served.api
    if not served.is_appending and len(data) > MAX_OTHER_BYTES:
        raise WireFormatError(f"{api.name} of {len(data)} bytes; at most {MAX_OTHER_BYTES} are taken")
    # Tagged fields are all that the second version of the header adds to the first.
    _, body_at = REQUEST_HEADER.read_part(data, 1)
    if api.request_header_version(version) > 1:
        body_at = past_tags(data, body_at, len(data))
    return Call(node, api, version, correlation_id, data, body_at, local), served


def _refused(node: Node, key: int, version: int, correlation_id: int, local: Address) -> tuple[Call, Served]:
    api = APIS.get(key)
    if api is None:
        raise ConnectionEndError(f"the API number {key} is not served")
    if version < 0 or not can_be_refused(api):
        raise ConnectionEndError(f"{api.name} is not served in version {version}")
    if api is API_VERSIONS:
        return Call(node, api, 0, correlation_id, b"", 0, local), TABLE[key]
    call = Call(node, api, refusal_version(api, version), correlation_id, b"", 0, local)
    return call, Served(api=api, versions=range(0), handle=_refuse)


async def _refuse(call: Call, _: None) -> object:
    return refusal(call.api, call.version)


async def answer(call: Call, served: Served) -> Parts | None:
    """Return the bytes of the answer, with their length in front; None: there is no answer.

    Raises WireFormatError or ConnectionEndError.
    """
    request = None if served.is_appending or not call.data else await _parsed(call, served)
    # The answers of these are as short as their requests, or their batches count by themselves.
    call.waits_for_others = not (served.is_appending or served.is_waiting)
    try:
        response = await served.handle(call, request)
        if response is None:
            return None
        parts = await _written(call, response)
    finally:
        call.is_made()
    tags = NO_TAGS if call.api.response_header_version(call.version) else b""
    size_bytes = _LENGTH_ID.size - 4 + len(tags) + sum(map(len, parts))
    if (uncounted_bytes := size_bytes - call.held_bytes) >= JOINED_BYTES:
        call.node.broker.read_budget.hold(uncounted_bytes)
        call.held_bytes = size_bytes
    head = _LENGTH_ID.pack(size_bytes, call.correlation_id) + tags
    return [b"".join((head, *parts))] if size_bytes < JOINED_BYTES else [head, *parts]


async def _written(call: Call, response: object) -> Parts:
    write = call.api.response.write_parts
    try:
        if call.steps > LONG_STEPS:
            return await asyncio.to_thread(write, response, call.version)
        return write(response, call.version)
    except WireFormatError as error:
        raise ValueError(f"the answer cannot be written: {error}") from None  # A fault of the broker.


async def _parsed(call: Call, served: Served) -> object:
    read = partial(call.api.request.read, may_be_longer=served.may_be_longer)
    if len(call.data) <= INLINE_BYTES:
        return read(call.data, call.version, call.body_at)
    async with call.node.long_parse:
        return await asyncio.to_thread(read, call.data, call.version, call.body_at)
