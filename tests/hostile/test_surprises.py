"""Events that should not happen, and do no more harm than they must where they happen."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
from pathlib import Path
from typing import Any

import grpc
import pytest

from logbroker.broker.process_tuning import max_connections
from logbroker.broker.read_budget import ReadBudget
from logbroker.clock import SystemClock
from logbroker.config import BrokerConfig
from logbroker.errors import InvalidRequestError, OverloadedError
from logbroker.grpc_api.log.fetch_stream import FetchStream
from logbroker.grpc_api.log.produce_stream import ProduceStream
from logbroker.storage.metadata.metadata_store import MetadataStore
from logbroker.v1 import log_pb2 as log
from tests.broker.conftest import OpenEngine, open_at
from tests.hostile.api import Api
from tests.hostile.broker import LimitedBroker
from tests.hostile.inputs import path_of

__all__ = ["open_at"]


class _TwoRequests:
    """A client of a produce stream."""

    def __init__(self) -> None:
        self._requests = [log.ProduceRequest(correlation_id=number).SerializeToString() for number in (1, 2)]
        self.answers: list[log.ProduceResponse] = []

    async def read(self) -> Any:
        return self._requests.pop(0) if self._requests else grpc.aio.EOF

    async def write(self, response: log.ProduceResponse) -> None:
        self.answers.append(response)


class _FailsOnce:
    """An engine whose first append raises what no append should."""

    def __init__(self) -> None:
        self._appends = 0

    async def append(self, _appends: object, _durability: object) -> list[object]:
        self._appends += 1
        if self._appends == 1:
            raise RuntimeError("a bug")
        return []


async def test_a_request_is_answered_where_its_append_fails_unexpectedly(caplog: pytest.LogCaptureFixture) -> None:
    engine: Any = _FailsOnce()
    client: Any = _TwoRequests()
    with caplog.at_level(logging.CRITICAL + 1):
        await asyncio.wait_for(ProduceStream(engine, SystemClock(), client, asyncio.Event()).run(), 5)
    assert [answer.correlation_id for answer in client.answers] == [1, 2]


class _EndsWhileItIsAnswered:
    """A client of a fetch stream whose second request is malformed, and comes while the first answer is on its way."""

    def __init__(self) -> None:
        self._requests = [log.FetchStreamRequest(assign=[log.FetchItem(topic="t")])]
        self.writing = asyncio.Event()
        self.taken = asyncio.Event()
        self.cancelled = False

    async def read(self) -> Any:
        if self._requests:
            return self._requests.pop()
        await self.writing.wait()
        raise InvalidRequestError("malformed")

    async def write(self, _response: bytes) -> None:
        self.writing.set()
        try:
            await self.taken.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


async def test_a_fetch_stream_ends_when_its_answer_has_gone_out(open_at: OpenEngine) -> None:
    """gRPC sends no status while a message is on its way; if the write is given up, the status is lost."""
    client: Any = _EndsWhileItIsAnswered()
    async with open_at() as opened:
        await opened.engine.create_topic("t", 1, {})
        stream = FetchStream(opened.engine, client, ReadBudget(1 << 20, 1.0), 1 << 20, asyncio.Event())
        running = asyncio.create_task(stream.run())
        async with asyncio.timeout(25):
            await client.writing.wait()
            await asyncio.sleep(0.05)  # what would end it by now had its time
            assert not running.done()
            client.taken.set()
            with pytest.raises(InvalidRequestError):
                await running
        assert not client.cancelled


class _Vanishes:
    """A client whose connection breaks while it is answered; gRPC ends the call, and then the write."""

    def __init__(self, request: Any) -> None:
        self._requests = [request]
        self.writing = asyncio.Event()

    async def read(self) -> Any:
        if self._requests:
            return self._requests.pop()
        return await asyncio.Event().wait()

    async def write(self, _response: Any) -> None:
        self.writing.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise grpc.aio.InternalError("the connection broke") from None


@pytest.mark.parametrize("kind", ["fetch", "produce"])
async def test_a_stream_whose_connection_breaks_leaves_no_error_behind(open_at: OpenEngine, kind: str) -> None:
    lost: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))
    async with open_at() as opened:
        await opened.engine.create_topic("t", 1, {})
        if kind == "fetch":
            client: Any = _Vanishes(log.FetchStreamRequest(assign=[log.FetchItem(topic="t")]))
            run = FetchStream(opened.engine, client, ReadBudget(1 << 20, 1.0), 1 << 20, asyncio.Event()).run()
        else:
            client = _Vanishes(log.ProduceRequest(items=[log.ProduceItem(topic="unknown")]).SerializeToString())
            run = ProduceStream(opened.engine, SystemClock(), client, asyncio.Event()).run()
        running = asyncio.create_task(run)
        del run
        async with asyncio.timeout(25):
            await client.writing.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        del running, client
        gc.collect()
        await asyncio.sleep(0)
    assert not lost


async def test_recovery_points_wait_for_an_overloaded_metadata_store(
    open_at: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = asyncio.Event()
    stored = asyncio.Event()
    submit = MetadataStore.submit

    def overloaded_once(self: MetadataStore, writes: Any) -> Any:
        if not refused.is_set():
            refused.set()
            raise OverloadedError("too many wait")
        stored.set()
        return submit(self, writes)

    async with open_at(checkpoint_seconds=0.05) as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        monkeypatch.setattr(MetadataStore, "submit", overloaded_once)
        await opened.append(topic.id, b"value")
        async with asyncio.timeout(25):
            await refused.wait()
            await stored.wait()
        assert opened.failures == []
        assert await opened.append(topic.id, b"next") == 1


async def test_one_connection_cannot_take_all_calls(tmp_path: Path) -> None:
    own = [("grpc.use_local_subchannel_pool", 1)]
    with LimitedBroker(tmp_path, max_concurrent_calls=40, min_free_disk_bytes=0) as broker:
        async with (
            grpc.aio.insecure_channel(broker.address, options=own) as greedy,
            grpc.aio.insecure_channel(broker.address, options=own) as other,
        ):
            await Api(greedy).create("t", 1, {})
            waiting = log.FetchRequest(items=[log.FetchItem(topic="t")], max_wait_ms=300_000).SerializeToString()
            stub: Any = greedy.unary_unary(path_of("Fetch"))
            calls = [stub(waiting) for _ in range(200)]
            for _ in range(20):
                request = log.ListOffsetsRequest(items=[log.ListOffsetsItem(topic="t", spec="OFFSET_SPEC_LATEST")])
                [found] = (await Api(other).call("ListOffsets", request)).results
                assert not found.status.code
            assert not any(call.done() for call in calls)
            for call in calls:
                call.cancel()


@pytest.mark.parametrize(
    ("descriptors", "connections"), [(64, 16), (256, 64), (1024, 448), (1 << 20, (1 << 19) - 64), (-1, 1 << 20)]
)
def test_files_keep_their_share_of_descriptors(
    descriptors: int, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (descriptors, descriptors))
    assert max_connections(BrokerConfig()) == connections
