"""Thousands of hostile requests to a real broker, many at a time, beside one client that means well."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from logbroker.record.codec import NewRecord, check_crc, decode_batch, encode_batch, split_batches
from logbroker.v1 import log_pb2 as log
from logbroker.v1 import queues_pb2 as queues
from tests.hostile import queue_inputs
from tests.hostile.api import Api
from tests.hostile.broker import MIB, LimitedBroker
from tests.hostile.inputs import (
    PARTITIONS,
    PRODUCERS,
    STREAMS,
    Catalog,
    Input,
    Requests,
    path_of,
    request_class,
    response_class,
)
from tests.hostile.ledger import Ledger
from tests.hostile.statuses import check_call_error, check_response

MEMORY_BYTES: Final = 1024 * MIB
"""Memory that the kernel lets the broker allocate; it begins with 165 MiB (stacks and arenas, mostly untouched)."""
PEAK_BYTES: Final = 512 * MIB
"""Limit on its memory at any moment. Its parts, in MiB: 60 for itself; 64 that queue groups keep; 64 of requests and
responses (16 of each may be on their way, and gRPC holds them twice); 3 x 72 of batches being expanded, one each by the
decoder of queue groups, for a plain fetch and for a lookup by time (64, and an eighth that gzip's buffer is larger than
what it holds); 100 that malloc keeps in two arenas: buffers below 32 MiB, as larger ones go back to the kernel.
Measured: 196 to 335 MiB."""
SETTINGS: Final[dict[str, Any]] = {
    "max_request_bytes": 4 * MIB,
    "max_produce_bytes_in_flight": 16 * MIB,
    "max_fetch_bytes_in_flight": 16 * MIB,
    "max_partitions": 400,
    "max_partitions_per_topic": 40,
    "checkpoint_seconds": 0.5,
    "retention_check_seconds": 0.5,
    "min_free_disk_bytes": 0,
}
IN_FLIGHT: Final = 48
HEALTH_EVERY: Final = 250
"""Inputs between two rounds of the client that means well."""
HEALTH_SECONDS: Final = 20.0
"""A round takes no longer: that is some thousand times what it takes on a quiet machine."""
DEADLINE_SECONDS: Final = 30.0
WAIT_SECONDS: Final = 1.0
"""Given to a fetch that asks to wait."""
_MARKER: Final = 2**64 - 7
_STEADY: Final = "steady"
_ENDED_WHILE_SENDING: Final = "Internal error from Core"


def run(directory: Path, seed: int, inputs: int, *, methods: Sequence[str] = (), plant: str = "none") -> dict[str, int]:
    """Send the inputs of a seed to a broker below `directory`; returns figures, raises AssertionError with the input.

    Afterwards everything acknowledged is read back, the broker is stopped, and its data directory verified.
    """
    with LimitedBroker(directory, memory_bytes=MEMORY_BYTES, plant=plant, **SETTINGS) as broker:
        barrage = _Barrage(broker, seed, inputs, methods)
        asyncio.run(barrage.run())
        peak_bytes = broker.peak_bytes()
        assert peak_bytes <= PEAK_BYTES, f"seed {seed}: the broker took {peak_bytes / MIB:.0f} MiB"
    return {**barrage.figures}


class _Barrage:
    def __init__(self, broker: LimitedBroker, seed: int, inputs: int, methods: Sequence[str]) -> None:
        self.figures: Counter[str] = Counter()
        self._broker = broker
        self._seed = seed
        self._inputs = inputs
        self._methods = methods
        self._in_flight: dict[int, Input] = {}

    async def run(self) -> None:
        channel_options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        async with (
            grpc.aio.insecure_channel(self._broker.address, options=channel_options) as channel,
            grpc.aio.insecure_channel(self._broker.address, options=[("grpc.use_local_subchannel_pool", 1)]) as other,
        ):
            api = Api(channel)
            catalog = await _set_up(api)
            ledger = Ledger(catalog.ledgers)
            requests = Requests(self._seed, catalog, self._methods)
            steady = _SteadyClient(Api(other))
            numbers = itertools.count()
            async with asyncio.TaskGroup() as group:
                for _ in range(IN_FLIGHT):
                    group.create_task(self._work(channel, requests, numbers, ledger, steady))
            await steady.round()
            self.figures["acknowledged"] = ledger.acknowledged
            self.figures["health rounds"] = steady.rounds
            for topic in catalog.ledgers:
                for partition in range(PARTITIONS):
                    ledger.check(topic, partition, [chunk async for chunk in api.all_batches(topic, partition)])
            ledger.check_nothing_is_left()

    async def _work(
        self,
        channel: grpc.aio.Channel,
        requests: Requests,
        numbers: itertools.count[int],
        ledger: Ledger,
        steady: _SteadyClient,
    ) -> None:
        sent = 0
        while sent < self._inputs:
            asked = requests.input(next(numbers))
            # A stream's messages are an input each.
            sent = self.figures["inputs"] = self.figures["inputs"] + len(asked.messages)
            self._in_flight[asked.number] = asked
            try:
                if asked.method in STREAMS:
                    await self._send_stream(channel, asked, ledger)
                else:
                    await self._send(channel, asked, ledger)
            except AssertionError as error:
                error.add_note(self._told(asked))
                raise
            del self._in_flight[asked.number]
            if asked.number % HEALTH_EVERY == 0:
                await steady.round()

    async def _send(self, channel: grpc.aio.Channel, asked: Input, ledger: Ledger) -> None:
        [message] = asked.messages
        call: Any = channel.unary_unary(path_of(asked.method))
        waits = _asks_to_wait(asked.method, message)
        deadline = WAIT_SECONDS if waits else DEADLINE_SECONDS
        try:
            answer = await call(message, timeout=deadline)
        except grpc.aio.AioRpcError as error:
            if waits and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                self.figures["calls that waited"] += 1
                return
            self._check_error(error)
            return
        self._check_answer(asked.method, message, answer, ledger)

    async def _send_stream(self, channel: grpc.aio.Channel, asked: Input, ledger: Ledger) -> None:
        """Send all messages; ended by an error of the call, or else every message was heard."""
        messages = list(asked.messages)
        if asked.method == "FetchStream":
            # It would wait for records as long as it has credit. The last request is answered without any.
            marker = log.FetchStreamRequest(correlation_id=_MARKER, assign=[log.FetchItem(topic="nowhere")])
            messages.append(marker.SerializeToString())
        stream: Any = channel.stream_stream(path_of(asked.method))
        call = stream(iter(messages), timeout=DEADLINE_SECONDS)
        answers = 0
        try:
            async for answer in call:
                answers += 1
                if asked.method == "FetchStream":
                    response = log.FetchStreamResponse.FromString(answer)
                    check_response(response)
                    _check_batches(response.results)
                    if any(result.correlation_id == _MARKER for result in response.results):
                        call.cancel()
                        return
                elif asked.method == "Work":
                    _check_worker_response(answer)
                    self.figures["messages to workers"] += 1
                else:
                    self._check_answer(asked.method, _request_of(answer, messages), answer, ledger)
        except grpc.aio.AioRpcError as error:
            # grpc.aio met the end of the stream while it was sending, and forgets how it ended. The broker's log is
            # searched for errors in the end.
            if error.details() == _ENDED_WHILE_SENDING:
                self.figures["streams ended while sending"] += 1
            else:
                self._check_error(error)
            return
        if asked.method == "Work":
            return  # It has said goodbye, or all that it says.
        assert asked.method == "ProduceStream", "a fetch stream ended before its last request was answered"
        assert answers == len(messages), f"{len(messages)} requests, {answers} answers"

    def _check_error(self, error: grpc.aio.AioRpcError) -> None:
        check_call_error(error)
        self.figures[f"calls refused, {error.code().name}"] += 1

    def _check_answer(self, method: str, message: bytes | None, answer: bytes, ledger: Ledger) -> None:
        response: Any = response_class(method).FromString(answer)
        check_response(response)
        self.figures["calls answered"] += 1
        if method in ("Produce", "ProduceStream") and message is not None:
            ledger.note(message, response)
        elif method == "Fetch":
            _check_batches(response.results)
        elif method == "Receive":
            _check_batches(response.deliveries)
            self.figures["received"] += sum(delivered.count for delivered in response.deliveries)

    def _told(self, asked: Input) -> str:
        """Return what is needed to repeat a failure; where the broker died, any request on its way may have done it."""
        lines = [f"seed {self._seed}, input {asked.number}, {asked.method}:"]
        lines += [f"  {message.hex()[:2000]}" for message in asked.messages]
        if not self._broker.is_alive():
            lines += [f"the broker is dead; on their way: {sorted(self._in_flight)}", self._broker.last_words()]
        return "\n".join(lines)


class _SteadyClient:
    """Appends a batch and reads it back; nothing that others do may show."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._turn = asyncio.Lock()
        self.rounds = 0

    async def round(self) -> None:
        async with self._turn:
            started = time.monotonic()
            values = [b"%d of round %d" % (number, self.rounds) for number in range(3)]
            item = log.ProduceItem(topic=_STEADY, partition=0, batch=encode_batch(map(NewRecord, values)))
            [result] = (await self._api.call("Produce", log.ProduceRequest(items=[item]))).results
            assert not result.status.code, f"a sound append was refused: {result.status}"
            assert result.base_offset == 3 * self.rounds
            wanted = log.FetchItem(topic=_STEADY, partition=0, offset=result.base_offset)
            [found] = (await self._api.call("Fetch", log.FetchRequest(items=[wanted]))).results
            assert not found.status.code, f"a sound fetch was refused: {found.status}"
            assert [record.value for record in decode_batch(found.batches)] == values
            await self._work_off(values)
            seconds = time.monotonic() - started
            assert seconds < HEALTH_SECONDS, f"append, fetch and receiving took {seconds:.1f} s"
            self.rounds += 1

    async def _work_off(self, values: list[bytes]) -> None:
        """Receive what was appended, as records of a queue group, and acknowledge it."""
        found: list[bytes] = []
        while len(found) < len(values):
            request = queues.ReceiveRequest(group_id=_STEADY, max_records=3, max_wait_ms=10_000, plain_records=True)
            [message] = (await self._api.call("Receive", request)).deliveries
            assert not any(message.redelivered)
            found += [record.value for record in message.records]
            last = message.first_receipt + message.count - 1
            settle = queues.Settle(acks=queues.Receipts(firsts=[message.first_receipt], lasts=[last]))
            answer = (await self._api.call("Settle", queues.SettleRequest(group_id=_STEADY, settle=settle))).answer
            assert not answer.failures, answer
        assert found == values


async def _set_up(api: Api) -> Catalog:
    kept = {"retention.ms": "-1"}  # whatever their records are stamped with
    small = {"durability": "written", "segment.bytes": "100000"}
    ledgers = {
        "ledger-0": await api.create("ledger-0", PARTITIONS, kept),
        "ledger-1": await api.create("ledger-1", PARTITIONS, {**kept, **small}),
    }
    victims = {name: await api.create(name, PARTITIONS, {}) for name in ("victim-0", "victim-1", "victim-2")}
    await api.create(_STEADY, 1, kept)
    for _ in range(PRODUCERS):
        await api.call("InitProducerId", log.InitProducerIdRequest())
    for request in queue_inputs.set_up():
        await api.call("CreateQueue", request)
    await api.call("CreateQueue", queues.CreateQueueRequest(group_id=_STEADY, topic=_STEADY))
    return Catalog(ledgers, victims)


def _asks_to_wait(method: str, message: bytes) -> bool:
    """Whether a call asks for records that may not come, for longer than anybody here has time."""
    if method not in ("Fetch", "Receive"):
        return False
    try:
        request: Any = request_class(method).FromString(message)
        return bool(request.max_wait_ms > 100)
    except DecodeError:
        return False


def _request_of(answer: bytes, messages: Sequence[bytes]) -> bytes | None:
    """The request of a stream that an answer is to; None where several have its correlation id."""
    correlation_id = log.ProduceResponse.FromString(answer).correlation_id
    found = []
    for message in messages:
        try:
            if log.ProduceRequest.FromString(message).correlation_id == correlation_id:
                found.append(message)
        except DecodeError:
            continue
    assert found or not log.ProduceResponse.FromString(answer).results, "an answer to no request of the stream"
    return found[0] if len(found) == 1 else None


def _check_worker_response(answer: bytes) -> None:
    response = queues.WorkerResponse.FromString(answer)
    check_response(response)
    _check_batches([response.deliveries])


def _check_batches(results: Sequence[log.FetchResult | queues.Deliveries]) -> None:
    for result in results:
        for header, batch in split_batches(result.batches):
            check_crc(header, batch)
