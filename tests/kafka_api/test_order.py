"""Answers go out in the order of their requests, and batches get their offsets in it, whatever is done first."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import logbroker.kafka_api.apis.produce
import logbroker.kafka_api.server
from logbroker.broker.serving import serve
from logbroker.client.sync import Admin
from logbroker.config import BrokerConfig
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.engine import Append, Appended
from logbroker.errors import LogbrokerError
from logbroker.kafka_api.apis.produce import APPENDS_AT_ONCE
from logbroker.kafka_api.call import Call
from logbroker.kafka_api.connection import KafkaConnection
from logbroker.kafka_api.produce_parser import ProduceCall
from logbroker.kafka_api.server import KafkaListener
from logbroker.kafka_wire.apis import API_VERSIONS, INIT_PRODUCER_ID, METADATA, PRODUCE
from logbroker.kafka_wire.messages.api_versions import ApiVersionsRequest
from logbroker.kafka_wire.messages.init_producer_id import InitProducerIdRequest
from logbroker.kafka_wire.messages.metadata import MetadataRequest
from tests.kafka_api.raw_client import RawClient, batch_of, frame, produce_request


@asynccontextmanager
async def listening(directory: Path) -> AsyncIterator[tuple[KafkaListener, str]]:
    """Run a broker in this process, with nothing but a Kafka listener."""
    config = BrokerConfig(data_dir=str(directory / "data"), kafka_listen="127.0.0.1:0")
    listener, stop = KafkaListener(config), asyncio.Event()
    ready = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve(config, [listener], on_ready=lambda found: ready.set_result(found["kafka"]), stop=stop)
    )
    try:
        await asyncio.wait([serving, ready], return_when=asyncio.FIRST_COMPLETED)
        yield listener, await ready
    finally:
        stop.set()
        await serving


class Hasty(KafkaConnection):
    """Planted: answers are sent as soon as they are there."""

    def _send(self) -> None:
        self._begun = deque(sorted(self._begun, key=lambda slot: not slot.is_done))
        super()._send()


async def order_of_answers(directory: Path) -> list[int]:
    """Send two batches of which the second is done first; return the ids of the answers in their order."""
    async with listening(directory) as (listener, address):
        engine = listener.node.engine
        await engine.create_topic("t", 2, {})
        append, gate, second = engine.append, asyncio.Event(), asyncio.Event()

        async def gated(appends: Sequence[Append]) -> list[Appended | LogbrokerError]:
            outcomes = await append(appends)
            if appends[0].partition == 0:
                await gate.wait()
            else:
                second.set()
            return outcomes

        engine.append = gated  # type: ignore[method-assign, assignment]
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        for partition in (0, 1):
            writer.write(frame(PRODUCE, 9, produce_request("t", {partition: batch_of(b"a")}), partition))
        async with asyncio.timeout(20):
            await second.wait()
            for _ in range(10):
                await asyncio.sleep(0)  # The second answer is ready by then.
            gate.set()
            found = []
            for _ in range(2):
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                found.append(int.from_bytes((await reader.readexactly(size))[:4], "big"))
        writer.close()
        return found


async def test_answers_go_out_in_the_order_of_their_requests(tmp_path: Path) -> None:
    assert await order_of_answers(tmp_path) == [0, 1]


async def test_an_answer_out_of_order_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logbroker.kafka_api.server, "KafkaConnection", Hasty)
    assert await order_of_answers(tmp_path) == [1, 0]


async def is_answered_before_it_is_appended(directory: Path, acks: int) -> bool:
    """Send a batch whose append does not end, and return whether it is answered all the same."""
    async with listening(directory) as (listener, address), asyncio.timeout(20):
        engine = listener.node.engine
        await engine.create_topic("t", 1, {})
        append, gate, begun = engine.append, asyncio.Event(), asyncio.Event()

        async def gated(appends: Sequence[Append]) -> list[Appended | LogbrokerError]:
            begun.set()
            await gate.wait()
            return await append(appends)

        engine.append = gated  # type: ignore[method-assign, assignment]
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(frame(PRODUCE, 9, produce_request("t", {0: batch_of(b"a")}, acks=acks)))
        answer = asyncio.create_task(reader.readexactly(4))
        await begun.wait()
        other_reader, other = await asyncio.open_connection(host, int(port))
        for _ in range(3):  # What is ready has been sent by then.
            other.write(frame(API_VERSIONS, 0, ApiVersionsRequest()))
            (size,) = struct.unpack(">i", await other_reader.readexactly(4))
            await other_reader.readexactly(size)
        is_answered = answer.done()
        gate.set()
        await answer
        other.close()
        writer.close()
        return is_answered


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_batch_is_answered_when_it_is_appended(tmp_path: Path, acks: int) -> None:
    assert not await is_answered_before_it_is_appended(tmp_path, acks)


async def test_an_answer_before_the_append_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes, tasks = logbroker.kafka_api.apis.produce._outcomes, []

    async def hasty(call: Call, request: ProduceCall) -> Sequence[Appended | LogbrokerError]:
        """Planted: with acks=1, the answer does not wait for the append."""
        tasks.append(asyncio.create_task(outcomes(call, request)))
        return [Appended(0, -1, 0, 0, False)] if request.acks == 1 else await tasks[0]

    monkeypatch.setattr(logbroker.kafka_api.apis.produce, "_outcomes", hasty)
    assert await is_answered_before_it_is_appended(tmp_path, 1)


@pytest.mark.parametrize("fails_late", [False, True])
def test_nothing_is_answered_behind_a_request_that_gets_no_answer(broker: EmbeddedBroker, fails_late: bool) -> None:
    """Else the client would take the answer for that of another request."""
    asked, bad = frame(API_VERSIONS, 4, ApiVersionsRequest(), 7), frame(METADATA, 12, MetadataRequest(topics=None))
    bad = struct.pack(">i", len(bad) - 5) + bad[4:-1]
    if fails_late:
        bad = frame(PRODUCE, 9, produce_request("missing", {0: batch_of(b"a")}, acks=0))
    with RawClient(broker.kafka_address) as client:
        client.socket.sendall(asked + bad + asked * 3)
        assert client.receive(API_VERSIONS, 4)[0] == 7
        assert client.is_closed()


def test_batches_in_one_packet_get_their_offsets_in_order(broker: EmbeddedBroker, topic: str) -> None:
    """Idempotent, so that any other order would be refused."""
    count = 200
    with RawClient(broker.kafka_address) as client:
        producer = client.call(INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=None))
        client.socket.sendall(
            b"".join(
                frame(
                    PRODUCE,
                    9,
                    produce_request(
                        topic,
                        {0: batch_of(b"a", producer_id=producer.producer_id, producer_epoch=0, base_sequence=number)},
                    ),
                    number,
                )
                for number in range(count)
            )
        )
        answers = [client.receive(PRODUCE, 9) for _ in range(count)]
    found = [(sent, answer.responses[0].partition_responses[0]) for sent, answer in answers]
    assert [(sent, each.error_code, each.base_offset) for sent, each in found] == [(n, 0, n) for n in range(count)]


def test_no_batch_overtakes_one_that_an_earlier_request_appends_last(broker: EmbeddedBroker, topic: str) -> None:
    """A request of many batches gives way to others on its way."""
    partitions = 4 * APPENDS_AT_ONCE
    with Admin(broker.address) as admin:
        admin.alter_topic(topic, partitions=partitions)
    first = {number: batch_of(b"first") for number in reversed(range(partitions))}
    with RawClient(broker.kafka_address) as client:
        requests = [produce_request(topic, first), produce_request(topic, {0: batch_of(b"second")})]
        client.socket.sendall(b"".join(frame(PRODUCE, 9, request, number) for number, request in enumerate(requests)))
        answers = [client.receive(PRODUCE, 9) for _ in requests]
    offsets = [
        each.base_offset for _, answer in answers for each in answer.responses[0].partition_responses if not each.index
    ]
    assert offsets == [0, 1]
