"""Load on one server: requests are sent as fast as they are answered, in the same way for a broker and for the bare
server."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import grpc
import msgspec

from logbroker.errors import from_status
from logbroker.record.codec import BatchBuilder
from logbroker.v1.common_pb2 import Status
from logbroker.v1.log_pb2 import (
    FetchItem,
    FetchStreamRequest,
    FetchStreamResponse,
    FetchStreamSettings,
    ProduceItem,
    ProduceRequest,
    ProduceResponse,
)

VALUE_BYTES: Final = 100
REQUEST_BYTES: Final = 1 << 20
GRANT_BYTES: Final = 2**40
"""Credit that never runs out within a measurement."""

Channel = grpc.aio.Channel


class Rate(msgspec.Struct, frozen=True):
    """The calls and bytes that went through, and the time they took."""

    calls: int
    size_bytes: int
    seconds: float

    @property
    def megabytes_per_second(self) -> float:
        return self.size_bytes / self.seconds / 1e6


def open_channel(address: str) -> Channel:
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    return grpc.aio.insecure_channel(address, options=options)


def batch_of(batch_bytes: int) -> bytes:
    """Return the largest batch of records with random 100-byte values that fits into `batch_bytes`. It has at least one
    record."""
    builder = BatchBuilder(batch_bytes)
    count = 0
    while builder.append(count, None, None, os.urandom(VALUE_BYTES), []) is not None:
        count += 1
    return builder.build()


def produce_requests(topic: str, partitions: int, batch: bytes) -> list[bytes]:
    """Return one serialized request for each partition. All have the same batch."""
    return [
        ProduceRequest(items=[ProduceItem(topic=topic, partition=number, batch=batch)]).SerializeToString()
        for number in range(partitions)
    ]


def spread_requests(topic: str, partitions: int, batch: bytes, total_bytes: int) -> Iterator[bytes]:
    """Yield serialized requests of at most about 1 MiB that append about `total_bytes` to a topic, spread evenly over
    its partitions."""
    per_request = max(1, REQUEST_BYTES // len(batch))
    count = round(total_bytes / len(batch))
    for first in range(0, count, per_request):
        numbers = range(first, min(first + per_request, count))
        items = [ProduceItem(topic=topic, partition=number % partitions, batch=batch) for number in numbers]
        yield ProduceRequest(items=items).SerializeToString()


async def fill(address: str, method: str, requests: Iterator[bytes], check: Callable[[bytes], None]) -> None:
    """Send requests, a few at a time. `check` raises the error of a refusal."""
    async with open_channel(address) as channel:
        call: Any = channel.unary_unary(method)

        async def sender() -> None:
            for request in requests:
                check(await call(request))

        await asyncio.gather(*(sender() for _ in range(4)))


async def append_load(
    channel: Channel,
    method: str,
    requests: Sequence[bytes],
    payload_bytes: int,
    *,
    in_flight: int,
    seconds: float,
    check: Callable[[bytes], None],
) -> Rate:
    """Send the requests in turn, `in_flight` at a time, for `seconds`. `check` raises the error of a refusal."""
    call: Any = channel.unary_unary(method)
    end = time.perf_counter() + seconds
    calls = 0

    async def sender() -> None:
        nonlocal calls
        while time.perf_counter() < end:
            request = requests[calls % len(requests)]
            calls += 1
            check(await call(request))

    start = time.perf_counter()
    await asyncio.gather(*(sender() for _ in range(in_flight)))
    return Rate(calls, calls * payload_bytes, time.perf_counter() - start)


async def append_latencies(
    channel: Channel, method: str, request: bytes, *, count: int, check: Callable[[bytes], None]
) -> list[float]:
    """Return the seconds that each of `count` appends took, one at a time. A tenth as many appends precede them and are
    not measured."""
    call: Any = channel.unary_unary(method)
    latencies: list[float] = []
    for number in range(-count // 10, count):
        start = time.perf_counter()
        check(await call(request))
        if number >= 0:
            latencies.append(time.perf_counter() - start)
    return latencies


def check_produced(response: bytes) -> None:
    """Raise the error of the first item that failed."""
    for result in ProduceResponse.FromString(response).results:
        _check_status(result.status)


def check_bare(response: bytes) -> None:
    """Do nothing, because the bare server never refuses."""


async def fetch_stream_load(
    channel: Channel, topic: str, partitions: int, *, response_bytes: int, total_bytes: int
) -> Rate:
    """Read `total_bytes` of a topic from its beginning, through one fetch stream.

    Only the first response and those near the end are decoded, because decoding is a cost of the client and not of the
    server.
    """
    call: Any = channel.stream_stream(
        "/logbroker.v1.Log/FetchStream", request_serializer=FetchStreamRequest.SerializeToString
    )()
    request = FetchStreamRequest(
        settings=FetchStreamSettings(max_response_bytes=response_bytes),
        assign=[FetchItem(topic=topic, partition=number) for number in range(partitions)],
        add_credit_bytes=GRANT_BYTES,
    )
    start = time.perf_counter()
    await call.write(request)
    calls = size_bytes = 0
    unread = set(range(partitions))
    while unread:
        response = await call.read()
        size_bytes += len(response)
        calls += 1
        if calls == 1 or size_bytes >= total_bytes * 0.99 - partitions * response_bytes:
            for result in FetchStreamResponse.FromString(response).results:
                _check_status(result.status)
                if result.next_offset == result.high_watermark:
                    unread.discard(result.partition)
    rate = Rate(calls, total_bytes, time.perf_counter() - start)
    call.cancel()
    return rate


async def bare_stream_load(channel: Channel, *, chunk_bytes: int, total_bytes: int) -> Rate:
    """Read `total_bytes` from the bare server, in chunks of one size."""
    call: Any = channel.unary_stream("/bare.Log/ReadStream")
    start = time.perf_counter()
    calls = size_bytes = 0
    async for chunk in call(f"{chunk_bytes} {total_bytes}".encode()):
        size_bytes += len(chunk)
        calls += 1
    return Rate(calls, size_bytes, time.perf_counter() - start)


def _check_status(status: Status) -> None:
    if status.code:
        raise from_status(status.code, status.reason, status.message)
