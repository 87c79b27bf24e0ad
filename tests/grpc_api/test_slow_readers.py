"""Readers that stop reading: they cost the broker a bounded amount, and nobody else notices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from logbroker.embedded_broker import EmbeddedBroker, embedded
from logbroker.v1 import log_pb2 as pb
from tests.grpc_api.api import Api
from tests.waiting import until

MIB = 1024 * 1024
STALLED = 40
GRANT = 2**40
FIXED_WINDOW = ("grpc.http2.bdp_probe", 0)
"""Else the client library guesses a larger window whenever data come fast, and takes in whole megabytes unread."""


def resident_bytes(pid: int) -> int:
    """Return the memory that the process holds now."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def open_stalled(address: str, topic: str) -> list[tuple[Api, Any]]:
    """Streams with endless credit that nobody reads from; a connection each, so that they share no window."""
    request = pb.FetchStreamRequest(assign=[pb.FetchItem(topic=topic)], add_credit_bytes=GRANT)
    readers = [Api(address, FIXED_WINDOW) for _ in range(STALLED)]
    return [(reader, reader.log.FetchStream(iter([request]))) for reader in readers]


def close(stalled: list[tuple[Api, Any]]) -> None:
    for reader, call in stalled:
        call.cancel()
        reader.channel.close()


@contextmanager
def filled(batches: int, value_bytes: int, **settings: Any) -> Iterator[tuple[EmbeddedBroker, Api]]:
    """A broker with 8 MiB for its readers, whose topic "t" has such batches of one record each."""
    with embedded(max_fetch_bytes_in_flight=8 * MIB, **settings) as broker:
        api = Api(broker.address)
        api.create("t", durability="written")
        for _ in range(batches):
            api.produce_values("t", [bytes(value_bytes)])
        yield broker, api
        api.channel.close()


@pytest.mark.prove
def test_stalled_readers_are_bounded_and_nobody_else_notices() -> None:
    with filled(500, 100_000) as (broker, api):
        assert len(api.values("t")) == 500
        before = resident_bytes(broker.pid)
        stalled = open_stalled(broker.address, "t")
        for _ in range(3):
            assert len(api.values("t")) == 500
        assert resident_bytes(broker.pid) - before < 64 * MIB
        close(stalled)


def test_where_large_batches_fill_the_memory_readers_are_told() -> None:
    with filled(20, MIB - 1000, fetch_memory_wait_seconds=0.3) as (broker, api):
        stalled = open_stalled(broker.address, "t")

        def refused() -> bool:
            try:
                api.fetch("t")
            except grpc.RpcError as error:
                return error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            return False

        until(refused)
        assert api.produce_values("t", [b"still taken"]).base_offset == 20
        close(stalled)
        until(lambda: not refused())
        assert len(api.values("t")) == 21


def test_an_answer_takes_its_share_of_the_memory_and_does_not_wait_for_more() -> None:
    """It ends before the call's deadline, which is long before the end of its wait."""
    with filled(50, 100_000) as (_, api):
        result = api.fetch("t", min_bytes=4 * MIB, max_wait_ms=300_000)
        assert 100_000 < len(result.batches) <= 8 * MIB // 32
        api.create("large", durability="written")
        api.produce_values("large", [bytes(300_000)])
        assert len(api.fetch("large", min_bytes=4 * MIB, max_wait_ms=300_000).batches) > 300_000
