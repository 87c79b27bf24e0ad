"""The listener itself: off unless asked for, its address, and the memory that its connections share."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

import logbroker
from logbroker.address import Address
from logbroker.broker.listener import listening_sockets
from logbroker.config import load_broker_config
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import ConfigFileError, InvalidRequestError, LogbrokerError
from logbroker.kafka_api.apis.table import TABLE
from logbroker.kafka_api.request_memory import SMALL_BYTES, RequestMemory
from logbroker.kafka_wire.apis import METADATA
from logbroker.kafka_wire.messages.metadata import MetadataRequest
from tests.kafka_api.raw_client import RawClient


@pytest.mark.parametrize(
    ("options", "is_on"),
    [
        ([], False),
        (["--kafka-listen", "127.0.0.1:0"], True),
        (["--config", "kafka.toml"], True),
        (["--config", "kafka.toml", "--kafka-listen", ""], False),
    ],
)
def test_a_listener_that_is_off_is_not_imported(tmp_path: Path, options: list[str], is_on: bool) -> None:
    (tmp_path / "kafka.toml").write_text('kafka_listen = "127.0.0.1:0"\n')
    command = [sys.executable, "-X", "importtime", "-m", "logbroker", "serve", "--data-dir", str(tmp_path / "data")]
    command += ["--listen", "127.0.0.1:0", *options]
    with (
        open(tmp_path / "errors", "w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=tmp_path) as process,
    ):
        assert process.stdout is not None
        names = [word.partition("=")[0] for word in process.stdout.readline().split()]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert names == ["ready", "grpc", *(["kafka"] if is_on else [])]
    imported = (tmp_path / "errors").read_text()
    assert ("logbroker.kafka_api" in imported) == is_on
    assert ("logbroker.kafka_wire" in imported) == is_on
    assert "logbroker.grpc_api" in imported


def test_a_broker_without_it_says_so() -> None:
    with (
        logbroker.embedded() as broker,
        pytest.raises(InvalidRequestError, match="make it with kafka=True"),
    ):
        _ = broker.kafka_address


def test_the_fixtures_for_kafka_clients(
    logbroker_kafka_broker: EmbeddedBroker, logbroker_session_kafka_broker: EmbeddedBroker
) -> None:
    assert logbroker_kafka_broker.kafka_address != logbroker_session_kafka_broker.kafka_address
    for broker in (logbroker_kafka_broker, logbroker_session_kafka_broker):
        assert told(broker) == broker.kafka_address


def told(broker: EmbeddedBroker) -> str:
    with RawClient(broker.kafka_address) as client:
        [node] = client.call(METADATA, 12, MetadataRequest(topics=[])).brokers
    return f"{node.host}:{node.port}"


def test_clients_are_told_the_advertised_address() -> None:
    with logbroker.embedded(kafka=True, kafka_advertised="broker.example:9092") as broker:
        assert told(broker) == "broker.example:9092"


def test_without_one_they_are_told_the_address_that_they_have_connected_to() -> None:
    with logbroker.embedded(kafka_listen="0.0.0.0:0") as broker:
        port = broker.kafka_address.rpartition(":")[2]
        with RawClient(f"127.0.0.1:{port}") as client:
            [node] = client.call(METADATA, 12, MetadataRequest(topics=[])).brokers
        assert (node.host, node.port) == ("127.0.0.1", int(port))
        assert f"listening on 0.0.0.0:{0}, which other machines may reach" in broker.log_path.read_text()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"kafka_listen": "nonsense"}, "listen on for Kafka clients, 'nonsense', names no port"),
        ({"kafka_advertised": "h:0"}, "h:0"),
        ({"kafka_advertised": "0.0.0.0:9092"}, "stands for all addresses of a machine"),
        ({"listen": "127.0.0.1:19092", "kafka_listen": "localhost:19092"}, "have the same port, 19092"),
        ({"listen": "0.0.0.0:19092", "kafka_listen": "127.0.0.1:19092"}, "have the same port, 19092"),
    ],
)
def test_a_wrong_address_ends_the_start(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(LogbrokerError, match=reason):
        logbroker.embedded(**{"kafka_listen": "127.0.0.1:0"} | settings).start()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ('listen = "h:7"\nkafka_listen = "h:7"', "same port, 7"),
        ('kafka_listen = "h:7"\nkafka_advertised = "[::]:7"', "all addresses of a machine"),
    ],
)
def test_a_wrong_address_in_a_file_is_found_without_a_start(tmp_path: Path, wrong: str, reason: str) -> None:
    path = tmp_path / "broker.toml"
    path.write_text(wrong)
    with pytest.raises(ConfigFileError, match=reason):
        load_broker_config(path)


@pytest.mark.parametrize(
    ("addresses", "listening"),
    [
        (["127.0.0.1", "192.0.2.1"], ["127.0.0.1"]),
        (["192.0.2.1", "127.0.0.1"], ["127.0.0.1"]),
        (["127.0.0.1", "127.0.0.2"], ["127.0.0.1", "127.0.0.2"]),
        (["192.0.2.1"], None),
    ],
)
async def test_all_addresses_of_a_name_that_this_machine_has_get_the_same_port(
    addresses: list[str], listening: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_arguments, **_options: found)
    if listening is None:
        with pytest.raises(OSError, match="assign"):
            await listening_sockets(Address("broker.example", 0))
        return
    with ExitStack() as stack:
        opened = [stack.enter_context(each) for each in await listening_sockets(Address("broker.example", 0))]
        names = [each.getsockname() for each in opened]
        assert [name[0] for name in names] == listening
        [port] = {name[1] for name in names}
        with pytest.raises(OSError, match="in use"):
            await listening_sockets(Address("broker.example", port))


def test_the_docs_list_what_is_served() -> None:
    page = (Path(__file__).parents[2] / "docs" / "KAFKA.md").read_text()
    rows = re.findall(r"^\| (\w+) \| (\d+)-(\d+) \|", page, re.MULTILINE)
    served = {(each.api.name, str(each.versions[0]), str(each.versions[-1])) for each in TABLE.values()}
    assert set(rows) == served


# --- request memory ---


def test_memory_is_granted_in_order_and_as_a_whole() -> None:
    memory, granted = RequestMemory(100), list[str]()
    assert memory.take(60, lambda: granted.append("first"))
    assert not memory.take(50, lambda: granted.append("second"))
    assert not memory.take(10, lambda: granted.append("third")), "it would fit, but the second was there before"
    assert granted == []
    memory.release(60)
    assert granted == ["second", "third"]
    assert memory.free_bytes == 40


def test_a_request_that_is_larger_than_all_memory_gets_it_alone() -> None:
    memory, granted = RequestMemory(100), list[str]()
    assert memory.take(10, lambda: None)
    assert not memory.take(1000, lambda: granted.append("large"))
    memory.release(10)
    assert granted == ["large"]
    assert not memory.take(1, lambda: granted.append("small"))
    memory.release(1000)
    assert granted == ["large", "small"]


def test_whoever_waits_no_more_gets_nothing() -> None:
    memory, granted = RequestMemory(100), list[str]()

    def gone() -> None:
        granted.append("gone")

    assert memory.take(100, lambda: None)
    assert not memory.take(SMALL_BYTES, gone)
    assert not memory.take(20, lambda: granted.append("next"))
    memory.forget(gone)
    memory.release(100)
    assert granted == ["next"]
