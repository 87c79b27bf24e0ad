"""A broker that is told to stop beside work under way: what was appended or stored is answered, all else refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import pytest

from logbroker.v1 import log_pb2
from tests.faults.serving import TOPIC, Served, in_directory
from tests.groups.members import Member
from tests.grpc_api.api import Api, batch_of
from tests.grpc_api.queue_workers import QueueGroup, receipts, refused_in
from tests.waiting import until

REQUESTS = 30
GATED = """
import os, pathlib, time
import logbroker.grpc_api.server, logbroker.cli.main
from logbroker.storage.metadata.metadata_store import MetadataStore
gate = pathlib.Path({gate!r})
logbroker.grpc_api.server.STOP_GRACE_SECONDS = 0.05
def gated(function):
    def wait(*arguments):
        while gate.exists():
            gate.with_suffix(".reached").touch()
            time.sleep(0.005)
        return function(*arguments)
    return wait
os.fdatasync = gated(os.fdatasync)
MetadataStore._store = gated(MetadataStore._store)
raise SystemExit(logbroker.cli.main.main())
"""
"""Syncs and commits take as long as a file is there, longer than the broker gives to calls that only wait."""


class Requests:
    """A stream of requests that a test writes one by one, and what came back on it."""

    def __init__(self, api: Api) -> None:
        self._queue: SimpleQueue[log_pb2.ProduceRequest | None] = SimpleQueue()
        self._call: Any = api.log.ProduceStream(iter(self._queue.get, None))
        self.answers: list[log_pb2.ProduceResponse] = []
        self.ended_with: grpc.StatusCode | None = None
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        self.sent = 0

    def send(self) -> None:
        self.sent += 1
        item = log_pb2.ProduceItem(topic=TOPIC, partition=0, batch=batch_of(b"x"))
        self._queue.put(log_pb2.ProduceRequest(correlation_id=self.sent, items=[item]))

    def _read(self) -> None:
        try:
            for answer in self._call:
                self.answers.append(answer)
        except grpc.RpcError as error:
            self.ended_with = error.code()

    @property
    def ended(self) -> bool:
        return not self._reading.is_alive()

    def read_to_end(self) -> None:
        self._reading.join(20)
        assert self.ended
        self._queue.put(None)

    @property
    def appended(self) -> list[int]:
        return [answer.results[0].base_offset for answer in self.answers if not answer.results[0].HasField("status")]

    @property
    def refusals(self) -> list[str]:
        return [answer.results[0].status.reason for answer in self.answers if answer.results[0].HasField("status")]


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "gate"


@pytest.fixture
def broker(tmp_path: Path, gate: Path) -> Iterator[Served]:
    launcher = ("-c", GATED.format(gate=str(gate)))
    with Served(in_directory(tmp_path), launcher=launcher) as broker:
        broker.create_topic()
        yield broker


def log_end(data_dir: Path) -> int:
    with Served(data_dir) as broker:
        return broker.api.fetch(TOPIC).high_watermark


@pytest.mark.prove
def test_what_was_appended_is_answered_and_the_rest_refused(tmp_path: Path, gate: Path, broker: Served) -> None:
    """However long the disk takes; also what one call appends."""
    stream, other = Requests(broker.api), Api(broker.address, ("grpc.use_local_subchannel_pool", 1))
    stream.send()
    until(lambda: stream.appended == [0])
    gate.touch()
    with ThreadPoolExecutor(1) as pool:
        unary = pool.submit(other.produce, TOPIC, batch_of(b"unary"))
        until(gate.with_suffix(".reached").exists)
        for _ in range(REQUESTS):
            stream.send()
        broker.process.terminate()

        def refused() -> bool:
            stream.send()
            return stream.ended or unary.done() or "UNAVAILABLE" in "".join(stream.refusals)

        until(refused)
        gate.unlink()
        stream.read_to_end()
        result = unary.result(20)
        assert not result.HasField("status"), result
    assert broker.exit_code() == 0
    other.channel.close()
    assert sorted([*stream.appended, result.base_offset]) == list(range(log_end(tmp_path / "data")))
    assert len(stream.appended) + len(stream.refusals) == stream.sent
    assert set(stream.refusals) == {"BROKER_UNAVAILABLE"}
    assert stream.ended_with is grpc.StatusCode.UNAVAILABLE


@pytest.mark.prove
def test_a_flood_at_the_stop_is_answered_to_its_end(tmp_path: Path) -> None:
    """The stream is not broken over answers that nobody has read yet, by what is still on its way."""
    data_dir = in_directory(tmp_path)
    with Served(data_dir) as broker:
        broker.create_topic()
        apis = [Api(broker.address, ("grpc.use_local_subchannel_pool", 1)) for _ in range(3)]
        streams = [Requests(api) for api in apis]
        for _ in range(100):
            for stream in streams:
                stream.send()
        until(lambda: all(stream.appended for stream in streams))
        broker.process.terminate()
        while broker.process.poll() is None:
            for stream in streams:
                if len(stream.answers) + 100 > stream.sent:
                    stream.send()
        for stream, api in zip(streams, apis, strict=True):
            stream.read_to_end()
            api.channel.close()
    answered = sorted(offset for stream in streams for offset in stream.appended)
    assert answered == list(range(log_end(data_dir)))
    assert {reason for stream in streams for reason in stream.refusals} <= {"BROKER_UNAVAILABLE"}


def test_a_commit_under_way_is_answered(gate: Path, broker: Served) -> None:
    broker.produce(b"x")
    member = Member(broker.api.channel, "readers", "m", [TOPIC])
    member.joined()
    member.holds({TOPIC: [0]})
    # A commit before it: what the join has left to be stored, is.
    member.send_commit(TOPIC, {0: 0})
    assert member.commit_refused() == {}
    gate.touch()
    member.send_commit(TOPIC, {0: 1})
    stop_when_it_waits(gate, broker)
    assert member.commit_refused() == {}
    assert broker.exit_code() == 0


def test_a_settlement_under_way_is_answered(gate: Path, broker: Served) -> None:
    group = QueueGroup(broker.api)
    broker.api.produce_values(group.topic, [b"x"])
    worker = group.worker()
    deliveries = worker.take()
    gate.touch()
    worker.send_settle(acks=receipts(deliveries))
    until(lambda: not group.describe().counts.in_flight)
    stop_when_it_waits(gate, broker)
    assert refused_in(worker.expect("settled")) == {}
    assert broker.exit_code() == 0


def stop_when_it_waits(gate: Path, broker: Served) -> None:
    """Tell the broker to stop while a commit of the store is under way, which goes on once nothing more is taken."""
    until(gate.with_suffix(".reached").exists)
    broker.process.terminate()
    until_refused(broker.address)
    gate.unlink()


def until_refused(address: str) -> None:
    def refused() -> bool:
        api = Api(address, ("grpc.use_local_subchannel_pool", 1))
        try:
            item = log_pb2.FetchItem(topic=TOPIC, partition=0, offset=0)
            api.log.Fetch(log_pb2.FetchRequest(items=[item]), 1.0)
        except grpc.RpcError as error:
            # A connection made just as the broker closes its listener is never answered: that is no refusal, and it
            # must not use up the deadline of the streams that wait.
            return error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
        finally:
            api.channel.close()
        return False

    until(refused)
