"""Producers whose partition, or whose broker, does not know them any more: nothing is lost or doubled in silence."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import logbroker
from logbroker.client import Admin, Producer
from logbroker.client.producer.partition_queue import ProducerIdentity
from logbroker.errors import ProducerForgottenError, RecordTooLargeError, UnknownTopicError
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.record.partitioner import partition_for_key
from logbroker.v1 import log_pb2
from tests.client.reading import read_all

MAX_PRODUCERS = 4
KEY = b"k"
PARTITION = partition_for_key(KEY, 2)


class Relay:
    """Stands between a producer and the broker; it can keep the answers for itself."""

    def __init__(self, broker: str) -> None:
        self._host, _, self._port = broker.rpartition(":")
        self._writers: list[asyncio.StreamWriter] = []
        self._pumps: list[asyncio.Task[None]] = []
        self.address = ""
        self.drops_answers = False

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection(self._host, int(self._port))
        self._writers += [writer, to_writer]
        self._pumps.append(asyncio.create_task(self._pump(reader, to_writer, answers=False)))
        self._pumps.append(asyncio.create_task(self._pump(to_reader, writer, answers=True)))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if not (answers and self.drops_answers):
                    writer.write(data)
        writer.close()

    def break_connections(self) -> None:
        self.drops_answers = False
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def stop(self) -> None:
        self.break_connections()
        await asyncio.gather(*self._pumps)


@asynccontextmanager
async def relayed(broker: str) -> AsyncIterator[Relay]:
    relay = Relay(broker)
    server = await asyncio.start_server(relay.connected, "127.0.0.1", 0)
    relay.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield relay
    finally:
        server.close()
        await relay.stop()


async def crowd_out(broker: str) -> None:
    """Let more other producers append to the partition than the broker remembers."""
    async with Admin(broker) as admin:
        for _ in range(2 * MAX_PRODUCERS):
            identity = await admin._connection.unary("InitProducerId", log_pb2.InitProducerIdRequest())
            other = encode_batch([NewRecord(b"o")], producer_id=identity.producer_id, producer_epoch=0, base_sequence=0)
            item = log_pb2.ProduceItem(topic="t", partition=PARTITION, batch=other)
            answer = await admin._connection.unary("Produce", log_pb2.ProduceRequest(items=[item]))
            assert not answer.results[0].status.code


async def values(broker: str) -> list[bytes | None]:
    return [record.value for record in await read_all(broker, "t") if record.value != b"o"]


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("then", ["", "grow", "lower the bound"])
@pytest.mark.parametrize("sent_before", [0, 1])
async def test_a_retry_to_a_partition_that_forgot_fails_and_what_was_never_sent_goes_on(
    sent_before: int, then: str
) -> None:
    """Its first batch, too; also where the topic would refuse the batch by now for another reason."""
    with logbroker.embedded(max_producers=MAX_PRODUCERS) as broker:
        async with Admin(broker.address) as admin, relayed(broker.address) as relay:
            await admin.create_topic("t", 2, {"durability": "written"})
            async with Producer(relay.address, max_requests_in_flight=1) as producer:
                await producer.send_and_wait("t", b"first", partition=1 - PARTITION)
                for _ in range(sent_before):
                    await producer.send_and_wait("t", b"before", KEY)
                relay.drops_answers = True
                unsure = await producer.send("t", b"unsure", KEY)
                while b"unsure" not in await values(broker.address):
                    await asyncio.sleep(0.01)
                never_sent = await producer.send("t", b"never sent", KEY)
                await crowd_out(broker.address)
                if then == "grow":
                    await admin.alter_topic("t", partitions=4)
                elif then:
                    await admin.alter_topic("t", set_configs={"max.message.bytes": "60"})
                relay.break_connections()
                with pytest.raises(ProducerForgottenError, match="whether the record was written is not known"):
                    await unsure
                if then == "lower the bound":
                    with pytest.raises(RecordTooLargeError):
                        await never_sent
                    await admin.alter_topic("t", set_configs={"max.message.bytes": "1000"})
                else:
                    await never_sent
                await producer.send_and_wait("t", b"after", KEY)
        found = await values(broker.address)
    went_on = [b"never sent"] if then != "lower the bound" else []
    assert sorted(str(value) for value in found) == sorted(
        str(value) for value in [b"first", *[b"before"] * sent_before, b"unsure", *went_on, b"after"]
    )


@pytest.mark.prove
async def test_producers_that_outlive_a_data_directory_put_back_lose_nothing(tmp_path: Path) -> None:
    """Their ids are never another's; and a topic that is back, with its records, remembers their sequence numbers."""
    data_dir, copy = tmp_path / "data", tmp_path / "copy"
    with logbroker.embedded(data_dir=data_dir) as broker:
        address = broker.address
        async with (
            Admin(address) as admin,
            Producer(address) as oldest,
            Producer(address) as old,
            Producer(address) as new,
        ):
            await admin.create_topic("s", 1)
            await admin.create_topic("t", 1)
            assert (await oldest.send_and_wait("t", b"0")).offset == 0
            await asyncio.to_thread(broker.stop)
            shutil.copytree(data_dir, copy)
            await asyncio.to_thread(broker.start)
            await old.send_and_wait("s", b"gone")
            await admin.delete_topic("t")
            with pytest.raises(UnknownTopicError):
                await oldest.send_and_wait("t", b"to nobody")
            await asyncio.to_thread(broker.kill)
            shutil.rmtree(data_dir)
            copy.rename(data_dir)
            await asyncio.to_thread(broker.start)
            turns = (new, oldest, old, new, oldest, old)
            sent = [await each.send_and_wait("t", b"%d" % number) for number, each in enumerate(turns, 1)]
        assert [each.offset for each in sent] == list(range(1, 7))
        assert await values(address) == [b"%d" % number for number in range(7)]


async def test_a_producer_whose_id_the_broker_never_handed_out_gets_another(address: str, topic: str) -> None:
    """As where its broker's data directory was put back, and the clock is behind."""
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic(topic, 1)
        for number in range(6):
            if number % 2:
                assert producer._sender is not None
                producer._sender._identity = ProducerIdentity(producer._sender._identity.id + 10**9, number)  # type: ignore[union-attr]
            assert (await producer.send_and_wait(topic, b"%d" % number)).offset == number
