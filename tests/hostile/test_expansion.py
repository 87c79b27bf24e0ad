"""Batches of some KiB that expand to tens of MiB: however many ask for them, they are there a few times."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from logbroker.record.codec import NewRecord, encode_batch
from logbroker.record.compression import Codec
from logbroker.record.header import MAX_EXPANDED_BYTES
from logbroker.v1 import log_pb2 as log
from logbroker.v1 import queues_pb2 as queues
from tests.hostile.api import Api
from tests.hostile.broker import MIB, LimitedBroker
from tests.hostile.inputs import path_of

VALUE_BYTES = 40 * MIB
AT_ONCE = 4
TOPIC = "large"
DECODED_BYTES = MAX_EXPANDED_BYTES + 2 * VALUE_BYTES + 64 * MIB
"""One decoded batch: the buffer that it expands into, its record, what is made of that; and what malloc keeps of
smaller buffers: 21 MiB in each of its two arenas, and more where something small came to lie between (seen: 12 MiB)."""
SENT_BYTES = 2 * VALUE_BYTES
"""One batch that is sent: gRPC holds it twice."""


def bounded(directory: Path, wait_seconds: float) -> LimitedBroker:
    return LimitedBroker(
        directory,
        min_free_disk_bytes=0,
        max_fetch_bytes_in_flight=16 * MIB,
        fetch_memory_wait_seconds=wait_seconds,
        queue_cache_bytes=16 * MIB,
    )


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LimitedBroker]:
    with bounded(tmp_path, wait_seconds=100.0) as running:
        yield running


async def peak_of(broker: LimitedBroker, ask: Any) -> int:
    """Let `ask` be sent by many at once to a broker with such a batch; return by how much it grew."""
    options = [("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(broker.address, options=options) as channel:
        api = Api(channel)
        await api.create(TOPIC, 1, {"retention.ms": "-1"})
        batch = encode_batch([NewRecord(bytes(VALUE_BYTES), timestamp_ms=1000)], codec=Codec.ZSTD)
        for _ in range(AT_ONCE):
            item = log.ProduceItem(topic=TOPIC, partition=0, batch=batch)
            [result] = (await api.call("Produce", log.ProduceRequest(items=[item]))).results
            assert not result.status.code
        before_bytes = broker.resident_bytes()
        await ask(api)
    return broker.peak_bytes() - before_bytes


async def all_at_once(calls: Iterator[Coroutine[Any, Any, Any]]) -> None:
    await asyncio.gather(*calls)


async def test_lookups_by_time(broker: LimitedBroker) -> None:
    async def look_up(api: Api) -> None:
        item = log.ListOffsetsItem(topic=TOPIC, partition=0, timestamp_ms=1000)
        [found] = (await api.call("ListOffsets", log.ListOffsetsRequest(items=[item]))).results
        assert found.offset == 0

    peak_bytes = await peak_of(broker, lambda api: all_at_once(look_up(api) for _ in range(AT_ONCE)))
    assert peak_bytes < DECODED_BYTES


@pytest.mark.prove
async def test_plain_fetches(broker: LimitedBroker) -> None:
    async def fetch(api: Api, offset: int) -> None:
        request = log.FetchRequest(items=[log.FetchItem(topic=TOPIC, partition=0, offset=offset)], plain_records=True)
        [found] = (await api.call("Fetch", request)).results
        assert [len(record.value) for record in found.records] == [VALUE_BYTES]

    peak_bytes = await peak_of(broker, lambda api: all_at_once(fetch(api, offset) for offset in range(AT_ONCE)))
    assert peak_bytes < DECODED_BYTES + SENT_BYTES


@pytest.mark.prove
async def test_plain_receives(broker: LimitedBroker) -> None:
    async def receive(api: Api) -> None:
        request = queues.ReceiveRequest(group_id="group", max_records=1, max_wait_ms=100_000, plain_records=True)
        [message] = (await api.call("Receive", request)).deliveries
        assert [len(record.value) for record in message.records] == [VALUE_BYTES]

    async def receive_all(api: Api) -> None:
        request = queues.CreateQueueRequest(group_id="group", topic=TOPIC)
        request.settings.ordering = "none"
        await api.call("CreateQueue", request)
        await all_at_once(receive(api) for _ in range(AT_ONCE))

    peak_bytes = await peak_of(broker, receive_all)
    assert peak_bytes < 2 * DECODED_BYTES + SENT_BYTES


@pytest.mark.prove
async def test_plain_records_for_clients_that_do_not_read(tmp_path: Path) -> None:
    own = [("grpc.use_local_subchannel_pool", 1)]
    settings = log.FetchStreamSettings(plain_records=True)
    assign = [log.FetchItem(topic=TOPIC)]
    request = log.FetchStreamRequest(settings=settings, assign=assign, add_credit_bytes=2**40).SerializeToString()

    async def stall(api: Api) -> None:
        async with contextlib.AsyncExitStack() as stack:
            streams: list[Any] = []
            for _ in range(AT_ONCE):
                channel = await stack.enter_async_context(grpc.aio.insecure_channel(impatient.address, options=own))
                stub: Any = channel.stream_stream(path_of("FetchStream"))
                streams.append(stub(iter([request])))
            codes = [asyncio.create_task(stream.code()) for stream in streams]
            for _, code in zip(range(AT_ONCE - 1), asyncio.as_completed(codes, timeout=60), strict=False):
                assert await code is grpc.StatusCode.RESOURCE_EXHAUSTED
            for stream in streams:
                stream.cancel()
            await asyncio.gather(*codes)

    with bounded(tmp_path, wait_seconds=0.5) as impatient:
        peak_bytes = await peak_of(impatient, stall)
    assert peak_bytes < DECODED_BYTES + SENT_BYTES
