"""Callers that are gone before their answer is sent: the broker's log has no traceback of them."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from time import monotonic
from typing import Any

import grpc
import pytest

from logbroker.embedded_broker import EmbeddedBroker, embedded
from logbroker.grpc_api.status import answers
from logbroker.v1 import log_pb2 as pb
from tests.grpc_api.api import Api

CALLS = 600
AT_ONCE = 6


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """A broker of its own, whose log has nothing of others, with 3 MB in topic "t"."""
    with embedded() as broker:
        api = Api(broker.address)
        api.create("t", durability="written")
        for _ in range(4):
            api.produce_values("t", [bytes(750_000)])
        api.channel.close()
        yield broker


def complaints(broker: EmbeddedBroker) -> list[str]:
    lines = broker.log_path.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if " ERROR " in line or "Traceback" in line]


@pytest.mark.prove
async def test_deadlines_that_pass_while_an_answer_is_written_leave_the_log_alone(broker: EmbeddedBroker) -> None:
    async with grpc.aio.insecure_channel(broker.address) as channel:
        fetch: Any = channel.unary_unary(
            "/logbroker.v1.Log/Fetch", request_serializer=pb.FetchRequest.SerializeToString
        )
        request = pb.FetchRequest(items=[pb.FetchItem(topic="t")])
        outcomes: list[grpc.StatusCode] = []

        async def call(seconds: float) -> None:
            try:
                await fetch(request, timeout=seconds)
            except grpc.aio.AioRpcError as error:
                outcomes.append(error.code())

        began = monotonic()
        await asyncio.gather(*(call(20) for _ in range(AT_ONCE)))
        usual_seconds = monotonic() - began
        for _ in range(CALLS // AT_ONCE):
            await asyncio.gather(*(call(random.uniform(0.001, 2 * usual_seconds)) for _ in range(AT_ONCE)))
    assert set(outcomes) == {grpc.StatusCode.DEADLINE_EXCEEDED}
    assert not complaints(broker)


@pytest.mark.prove
async def test_streams_that_are_cancelled_midway_leave_the_log_alone(broker: EmbeddedBroker) -> None:
    async with grpc.aio.insecure_channel(broker.address) as channel:
        fetch = channel.stream_stream(
            "/logbroker.v1.Log/FetchStream",
            request_serializer=pb.FetchStreamRequest.SerializeToString,
            response_deserializer=pb.FetchStreamResponse.FromString,
        )

        async def stream(messages: int) -> None:
            call: Any = fetch()
            await call.write(pb.FetchStreamRequest(assign=[pb.FetchItem(topic="t")], add_credit_bytes=1 << 30))
            for _ in range(messages):
                assert (await call.read()).results
            if not messages:
                await asyncio.sleep(random.uniform(0, 0.03))  # The first write has begun, or has not.
            call.cancel()

        for _ in range(CALLS // AT_ONCE):
            await asyncio.gather(*(stream(random.randint(0, 3)) for _ in range(AT_ONCE)))
    assert not complaints(broker)


async def test_a_write_that_fails_ends_the_call_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    @answers
    async def write(service: object, request: object, context: object) -> None:
        raise grpc.aio.InternalError("no batch")

    with caplog.at_level(logging.INFO), pytest.raises(asyncio.CancelledError):
        await write(object(), object(), None)  # type: ignore[arg-type]
    assert not caplog.records
