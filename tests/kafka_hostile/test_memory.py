"""Short requests that take much: answers of megabytes, and very many requests that wait."""

from __future__ import annotations

import asyncio
import struct
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from logbroker.broker.read_budget import ReadBudget
from logbroker.kafka_api.connection import MAX_REQUESTS
from logbroker.kafka_api.server import KafkaListener
from logbroker.kafka_wire.apis import API_VERSIONS, FETCH, METADATA
from logbroker.kafka_wire.messages.api_versions import ApiVersionsRequest
from logbroker.kafka_wire.messages.metadata import MetadataRequest
from tests.kafka_api.raw_client import frame
from tests.kafka_api.test_apis import fetch_request
from tests.kafka_api.test_order import listening

PARTITIONS = 500
CLIENTS = 100
REQUESTS = MAX_REQUESTS - 1
"""With one more, the broker would read no further, and not notice that the client is gone."""
SECONDS = 60
ALL_TOPICS = frame(METADATA, 12, MetadataRequest(topics=None))


@asynccontextmanager
async def broker_with_topic(
    directory: Path, partitions: int = PARTITIONS
) -> AsyncIterator[tuple[KafkaListener, str, int]]:
    async with listening(directory) as (listener, address), asyncio.timeout(SECONDS):
        await listener.node.engine.create_topic("t", partitions, {})
        host, _, port = address.rpartition(":")
        yield listener, host, int(port)


async def next_answer(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


@pytest.mark.prove
async def test_many_long_answers_are_not_made_at_the_same_time(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as (_, host, port):
        clients = [await asyncio.open_connection(host, port) for _ in range(CLIENTS)]
        clients[0][1].write(ALL_TOPICS)
        size = len(await next_answer(clients[0][0]))
        assert size > 20 * PARTITIONS
        tracemalloc.start()
        try:
            for _, writer in clients:
                writer.write(ALL_TOPICS)
            assert {len(await next_answer(reader)) for reader, _ in clients} == {size}
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # The client has the answers in its buffers, too.
        assert peak_bytes < 4 * CLIENTS * size
        for _, writer in clients:
            writer.close()


def free_share(budget: ReadBudget) -> int:
    return budget.allowance(1 << 60)


@pytest.mark.prove
async def test_answers_that_nobody_reads_count_in_the_memory_for_readers(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path) as (listener, host, port):
        budget = listener.node.broker.read_budget
        before = free_share(budget)
        reader, writer = await asyncio.open_connection(host, port, limit=1)
        writer.write(ALL_TOPICS * 2000)
        while free_share(budget) == before:
            await asyncio.sleep(0.01)
        del reader
        writer.transport.abort()
        while free_share(budget) != before:
            await asyncio.sleep(0.01)


async def test_requests_that_wait_count_with_what_they_take(tmp_path: Path) -> None:
    async with broker_with_topic(tmp_path, 1) as (listener, host, port):
        waiting = frame(FETCH, 12, fetch_request(12, "t", b"", 0, max_wait_ms=1000 * SECONDS))
        asked = frame(API_VERSIONS, 4, ApiVersionsRequest())
        before, clients = listener.memory.free_bytes, []
        for _ in range(10):
            _, writer = await asyncio.open_connection(host, port)
            writer.write(waiting)
            clients.append(writer)
        requests = len(clients) * (REQUESTS - 1)
        while listener.memory.free_bytes > before - len(clients) * 500:
            await asyncio.sleep(0.01)
        between = listener.memory.free_bytes
        tracemalloc.start()
        try:
            for writer in clients:
                writer.write(asked * (REQUESTS - 1))
            while listener.memory.free_bytes > between - requests * 500:
                await asyncio.sleep(0.01)
            taken_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert taken_bytes < between - listener.memory.free_bytes
        for writer in clients:
            writer.transport.abort()
        while listener.memory.free_bytes != before:
            await asyncio.sleep(0.01)
