"""Faults of one line, put into the broker's process to see whether the barrage finds them."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from logbroker.kafka_api import produce_parser
from logbroker.kafka_api.apis.admin import describe_configs
from logbroker.kafka_api.apis.table import TABLE
from logbroker.kafka_api.call import Call, ConnectionEndError
from logbroker.kafka_wire import primitives


def _counts_trusted() -> None:
    """Memory for an array is taken before its count is compared with the bytes that are left."""
    checked = primitives.read_count

    def read_count(data: Any, at: int, end: int, min_bytes: int, name: str) -> tuple[int, int]:
        if end - at >= 4:
            (count,) = struct.unpack_from(">i", data, at)
            _ = [None] * count
        return checked(data, at, end, min_bytes, name)

    for name, module in list(sys.modules.items()):
        if name.startswith("logbroker.kafka_wire.messages.") and hasattr(module, "read_count"):
            setattr(module, "read_count", read_count)  # noqa: B010


def _errors_escape() -> None:
    """An error of one resource ends the connection."""
    handle = describe_configs._handle

    async def escaping(call: Call, request: Any) -> Any:
        if any(each.resource_type not in (2, 4) for each in request.resources):
            raise ConnectionEndError("no such kind of resource")
        return await handle(call, request)

    object.__setattr__(TABLE[32], "handle", escaping)


def _lengths_unchecked() -> None:
    """A batch ends where the request does, if it claims a length beyond that."""
    checked = primitives.read_nullable_records

    def read(data: Any, at: int, end: int, name: str) -> tuple[memoryview | None, int]:
        if end - at >= 4 and struct.unpack_from(">i", data, at)[0] > end - at - 4:
            return memoryview(data)[at + 4 : end], end
        return checked(data, at, end, name)

    setattr(produce_parser, "read_nullable_records", read)  # noqa: B010


def _answers_nothing() -> None:
    """A request that names no group gets no answer."""
    handle = TABLE[15].handle

    async def silent(call: Call, request: Any) -> Any:
        return await handle(call, request) if request.groups else None

    object.__setattr__(TABLE[15], "handle", silent)


KAFKA_PLANTS: Final[Mapping[str, Callable[[], None]]] = {
    "counts-trusted": _counts_trusted,
    "errors-escape": _errors_escape,
    "lengths-unchecked-in-produce": _lengths_unchecked,
    "answers-nothing": _answers_nothing,
}
