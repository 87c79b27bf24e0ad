"""A crowd before one broker: readers that stall, connections that come to nothing, and few descriptors.

Beside it one producer and one reader per partition go on; what they see is the measure: all records, in order, and no
pause longer than `PAUSE_SECONDS`.
"""

from __future__ import annotations

import asyncio
import random
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import grpc

from logbroker.record.codec import NewRecord, decode_batch, encode_batch, split_batches
from logbroker.v1 import log_pb2 as log
from tests.hostile.api import Api
from tests.hostile.broker import MIB, LimitedBroker
from tests.hostile.raw_connection import connected, is_closed, stalled_call, unfinished_words

STALLED: Final = 50
CONNECTIONS: Final = 1000
FEW_DESCRIPTORS: Final = 64
PAUSE_SECONDS: Final = 20.0
PEAK_BYTES: Final = 300 * MIB
"""Limit on the broker's memory at any moment: 50 MiB without anybody, twice what readers may hold (gRPC has it once
more), and some KiB for each connection."""
MEMORY_BYTES: Final = 640 * MIB
AFTERWARDS_BYTES: Final = 96 * MIB
"""Limit on its growth after the crowd has left: it keeps 64 MiB of freed memory for itself."""
LEAVE_SECONDS: Final = 20.0

_PARTITIONS: Final = 4
_BULK: Final = "bulk"
_STEADY: Final = "steady"
_CREDIT: Final = 2**40
_LEAST_RECORDS: Final = 500
_SETTINGS: Final[dict[str, Any]] = {
    "max_fetch_bytes_in_flight": 32 * MIB,
    "checkpoint_seconds": 0.5,
    "retention_check_seconds": 1,
    "min_free_disk_bytes": 0,
}


def run(directory: Path, *, seconds: float, descriptors: int = 0) -> dict[str, int]:
    """Let the crowd stand there for so long; `descriptors` is what the broker may have, 0 as many as it likes."""
    with (
        many_descriptors(),
        LimitedBroker(directory, memory_bytes=MEMORY_BYTES, descriptors=descriptors, **_SETTINGS) as broker,
    ):
        return asyncio.run(_run(broker, seconds, descriptors))


async def _run(broker: LimitedBroker, seconds: float, descriptors: int) -> dict[str, int]:
    async with AsyncExitStack() as well_meant:
        channel = await well_meant.enter_async_context(_channel(broker.address))
        api = Api(channel)
        await api.create(_STEADY, _PARTITIONS, {})
        bulk_id = await api.create(_BULK, 1, {"durability": "written"})
        for _ in range(200):
            await api.append(_BULK, 0, encode_batch([NewRecord(bytes(100_000))]))
        steady = [_SteadyPair(api, partition) for partition in range(_PARTITIONS)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work()) for pair in steady for work in (pair.produce, pair.read)]
            before_bytes, before_descriptors = broker.resident_bytes(), broker.descriptors()
            crowd = _Crowd(broker, bulk_id)
            started = time.monotonic()
            await crowd.gather()
            if descriptors:
                await _try_many_partitions(api)
            await asyncio.sleep(max(0.0, seconds - (time.monotonic() - started)))
            await _until(lambda: sum(pair.appended for pair in steady) > _LEAST_RECORDS, "hardly a record was appended")
            most_descriptors, refused = broker.descriptors(), crowd.refused()
            await crowd.leave()
            await _until(
                lambda: broker.descriptors() <= before_descriptors + 50, f"{broker.descriptors} descriptors are kept"
            )
            kept_bytes = broker.resident_bytes() - before_bytes
            for pair in steady:
                pair.stop()
            await asyncio.gather(*tasks)
    peak_bytes = broker.peak_bytes()
    assert peak_bytes <= PEAK_BYTES, f"the broker took {peak_bytes / MIB:.0f} MiB"
    assert kept_bytes <= AFTERWARDS_BYTES, f"the broker keeps {kept_bytes / MIB:.0f} MiB"
    if descriptors:
        assert most_descriptors <= descriptors
        assert refused > 0, "more connections were taken than there are descriptors"
    return {
        "records": sum(pair.appended for pair in steady),
        "connections closed by the broker": refused,
    }


class _SteadyPair:
    """One producer and one reader of a partition. Both fail where nothing happens for `PAUSE_SECONDS`."""

    def __init__(self, api: Api, partition: int) -> None:
        self._api = api
        self._partition = partition
        self._stopped = False
        self.appended = 0

    def stop(self) -> None:
        self._stopped = True

    async def produce(self) -> None:
        while not self._stopped:
            async with asyncio.timeout(PAUSE_SECONDS):
                batch = encode_batch([NewRecord(b"%d" % (self.appended + index)) for index in range(10)])
                assert await self._api.append(_STEADY, self._partition, batch) == self.appended
            self.appended += 10
            await asyncio.sleep(0.02)  # It shall go on, not load the machine.

    async def read(self) -> None:
        offset = 0
        while not self._stopped or offset < self.appended:
            item = log.FetchItem(topic=_STEADY, partition=self._partition, offset=offset)
            async with asyncio.timeout(PAUSE_SECONDS):
                request = log.FetchRequest(items=[item], max_wait_ms=1000)
                [result] = (await self._api.call("Fetch", request)).results
            assert not result.status.code, f"a sound fetch was refused: {result.status}"
            for _, batch in split_batches(result.batches):
                for record in decode_batch(batch):
                    assert (record.offset, record.value) == (offset, b"%d" % offset), "a record is missing"
                    offset += 1


class _Crowd:
    """Half of the stalled readers are gRPC's, which stop at their window; half stop reading their sockets."""

    def __init__(self, broker: LimitedBroker, bulk_id: bytes) -> None:
        self._broker = broker
        self._request = log.FetchStreamRequest(
            assign=[log.FetchItem(topic_id=bulk_id)], add_credit_bytes=_CREDIT
        ).SerializeToString()
        self._sockets: list[socket.socket] = []
        self._channels: list[grpc.aio.Channel] = []
        self._unread: list[Any] = []
        self._turned_away = 0

    async def gather(self) -> None:
        rng = random.Random(1)
        address = self._broker.host_and_port
        words = stalled_call("/logbroker.v1.Log/FetchStream", self._request, self._broker.address)
        for _ in range(STALLED // 2):
            self._channels.append(_channel(self._broker.address))
            open_stream: Any = self._channels[-1].stream_stream("/logbroker.v1.Log/FetchStream")
            self._unread.append(open_stream(iter([self._request])))
            await self._connect(address, words, receive_bytes=4096)
        for _ in range(CONNECTIONS):
            await self._connect(address, unfinished_words(rng))

    async def _connect(self, address: tuple[str, int], words: bytes, *, receive_bytes: int = 0) -> None:
        try:
            self._sockets.append(connected(address, words, receive_bytes=receive_bytes))
        except OSError:
            self._turned_away += 1
        await asyncio.sleep(0)

    def refused(self) -> int:
        """How many connections the broker did not take, or has closed."""
        return self._turned_away + sum(map(is_closed, self._sockets))

    async def leave(self) -> None:
        for connection in self._sockets:
            connection.close()
        for channel in self._channels:
            await channel.close()


async def _try_many_partitions(api: Api) -> None:
    """More partitions than descriptors: each append is taken, or refused in words that say why."""
    await api.create("many", 100, {})
    batch = encode_batch([NewRecord(b"x")])
    items = [log.ProduceItem(topic="many", partition=number, batch=batch) for number in range(100)]
    response = await api.call("Produce", log.ProduceRequest(items=items))
    for result in response.results:
        assert result.status.reason in ("", "TOO_MANY_OPEN_FILES"), result.status


async def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LEAVE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.05)


def _channel(address: str) -> grpc.aio.Channel:
    # A connection of its own.
    return grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])


@contextmanager
def many_descriptors() -> Iterator[None]:
    """Raise the limit of this process: the crowd needs more descriptors than a program is given at first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
