"""No text of a request, however long, holds the event loop or comes back in the answer: each is measured on the wire,
before it becomes an object that anybody could look at."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from logbroker.config import MIB
from logbroker.grpc_api.request_parsing import DATA, LONG_TEXTS, UNMEASURED, max_bytes_of
from tests.grpc_api.turns import CountingLoop, Served, all_methods, counting, served

MAX_LINES: Final = 2_000
"""Limit of the whole call: a refusal looks at fields, not at bytes."""
BATCH: Final = "logbroker.v1.ProduceItem.batch"
"""Is judged by the log."""

Way = tuple[FieldDescriptor, ...]


def _texts(descriptor: Descriptor, way: Way = ()) -> Iterator[Way]:
    """The ways to all texts and bytes in a message."""
    for field in descriptor.fields:
        if field.message_type is not None:
            yield from _texts(field.message_type, (*way, field))
        elif field.type in (field.TYPE_STRING, field.TYPE_BYTES):
            yield *way, field


def _varint(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80]) + _varint(number >> 7) if number > 0x7F else bytes([number])


def _message(way: Way, size_bytes: int) -> bytes:
    """Return a message with one text, of so many characters of a byte."""
    content = b"a" * size_bytes
    for field in reversed(way):
        content = _varint(field.number << 3 | 2) + _varint(len(content)) + content
    return content


class _Raw:
    """A request as bytes."""

    def __init__(self, message: bytes) -> None:
        self._message = message

    def SerializeToString(self) -> bytes:  # noqa: N802
        return self._message


CASES: Final = {
    f"{method.name}-{'.'.join(field.name for field in way)}": (method, way)
    for method in all_methods()
    for way in _texts(method.input_type)
}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, CountingLoop, Served]]:
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, CountingLoop)
        broker = served(tmp_path_factory.mktemp("broker"), checkpoint_seconds=3600, retention_check_seconds=3600)
        found = runner.run(broker.__aenter__())
        yield runner, loop, found
        runner.run(broker.__aexit__(None, None, None))


def test_every_bound_is_one_of_a_field() -> None:
    names = {way[-1].full_name for _, way in CASES.values()}
    assert names >= (DATA | LONG_TEXTS | UNMEASURED)
    assert len(CASES) > 80


@pytest.mark.parametrize("name", CASES)
def test_a_long_text_is_refused_unread_and_not_repeated(
    stage: tuple[asyncio.Runner, CountingLoop, Served], name: str
) -> None:
    runner, loop, broker = stage
    method, way = CASES[name]
    field = way[-1]
    bound = max_bytes_of(field)
    if field.full_name == BATCH or not bound:
        pytest.skip("bounded where it is stored")
    size_bytes = max(bound + 1, 2 * MIB)
    message = _Raw(_message(way, size_bytes))

    async def sent(_: Any) -> _Raw:
        return message

    async def call() -> Any:
        with counting(loop):
            await asyncio.sleep(0)
            return await broker.call(method, [sent if method.client_streaming else message], aborts=True)

    caller = runner.run(call())
    assert loop.total < MAX_LINES, loop.where
    assert caller.answers == []
    assert caller.status.code is grpc.StatusCode.INVALID_ARGUMENT
    assert (
        caller.status.details
        == f"{field.full_name.removeprefix('logbroker.v1.')} has {size_bytes} bytes; at most {bound} are taken"
    )
