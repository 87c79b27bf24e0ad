"""A broker's use of its data directory, and what the command says about who may get at the records."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from logbroker.broker import listener
from logbroker.broker.listener import error_of_listening, reachable_from_outside
from logbroker.broker.serving import serve
from logbroker.client.sync import Admin, Consumer, Producer, QueueAdmin, QueueSettings, Worker
from logbroker.config import BrokerConfig
from logbroker.errors import ListenError, LogbrokerError
from logbroker.grpc_api.server import GrpcListener
from tests.cli.command import ENVIRONMENT, LOGBROKER, failure_of, line_of, output_of

TIMEOUT_SECONDS = 30


@contextmanager
def serving(data_dir: Path, settings: str = "", *, umask: int = 0o022) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A broker process and its address."""
    config = data_dir.with_name("broker.toml")
    config.write_text(settings, encoding="utf-8")
    command = [*LOGBROKER, "serve", "--config", str(config), "--data-dir", str(data_dir), "--listen", "127.0.0.1:0"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=ENVIRONMENT, umask=umask) as process:
        try:
            yield process, line_of(process).decode().strip().removeprefix("ready grpc=")
        finally:
            process.kill()


def stopped(process: subprocess.Popen[bytes]) -> str:
    """Stop a broker; return what it wrote to standard error."""
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 0, err.decode()
    return err.decode()


def used(address: str) -> None:
    """Let a broker make files of all kinds."""
    with Admin(address) as admin, QueueAdmin(address) as queues, Producer(address) as producer:
        admin.create_topic("t", 2, {"segment.bytes": "1024"})
        queues.create_queue("work", "t", QueueSettings(priority="strict"))
        for number in range(150):
            producer.send("t", b"%0100d" % number, b"%d" % number)
            if number % 10 == 0:
                producer.flush()
        producer.flush()
        admin.create_topic("gone", 1)
        producer.send("gone", b"a")
        producer.flush()
    with Consumer(address, group="readers") as consumer:
        consumer.subscribe("t")
        assert sum(map(len, consumer.batches(until_end=True))) == 150
    with Worker(address, "work") as worker:
        for number, delivery in enumerate(worker):
            with delivery:
                pass
            if number == 20:
                break


def records_of(address: str) -> int:
    with Consumer(address) as consumer:
        consumer.assign("t", "earliest")
        return sum(map(len, consumer.batches(until_end=True)))


def readable_by_others(root: Path) -> list[str]:
    found = []
    for path in [root, *root.rglob("*")]:
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode & 0o077:
            found.append(f"{oct(mode)} {path}")
    return found


@pytest.mark.prove
@pytest.mark.parametrize("umask", [0, 0o077])
def test_all_that_is_made_is_for_its_user_alone(tmp_path: Path, umask: int) -> None:
    data_dir, backup = tmp_path / "data", tmp_path / "one.backup"
    with serving(data_dir, umask=umask) as (process, address):
        used(address)
        assert readable_by_others(data_dir) == []
        before = os.umask(umask)
        try:
            output_of("meta", "backup", "--data-dir", data_dir, backup)
        finally:
            os.umask(before)
        with Admin(address) as admin:
            admin.delete_topic("gone")
        err = stopped(process)
    assert "open to other users" not in err
    assert "whoever reaches it" not in err
    log = max(data_dir.glob("t-0/*.log"))
    log.write_bytes(log.read_bytes()[:-1])
    before = os.umask(umask)
    try:
        output_of("meta", "restore", "--data-dir", data_dir, backup, "--yes")
        output_of("segment", "rebuild-index", min(data_dir.glob("t-1/*.log")))
        output_of("segment", "repair", log, "--yes")
    finally:
        os.umask(before)
    assert list(data_dir.glob("t-0/*.cut-*"))
    assert {path.name for path in data_dir.iterdir()} >= {"meta", "lock", "issued-numbers", "queue-index"}
    assert readable_by_others(data_dir) == []
    assert readable_by_others(backup) == []


def test_a_directory_that_others_may_look_into_is_told_and_serves(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    data_dir.chmod(0o755)
    with serving(data_dir) as (process, address):
        with Admin(address) as admin:
            assert admin.list_topics() == []
        lines = [line for line in stopped(process).splitlines() if "open to other users" in line]
    assert len(lines) == 1
    assert str(data_dir) in lines[0]
    assert "chmod" in lines[0]
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o755


def test_a_second_broker_is_refused_without_the_lock_file_too(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with serving(data_dir) as (process, address):
        (data_dir / "lock").unlink()
        line = failure_of("serve", "--data-dir", data_dir, "--listen", "127.0.0.1:0", "--log-level", "error")
        assert f"{data_dir} is in use by another broker" in line
        with Admin(address) as admin:
            assert admin.list_topics() == []
        stopped(process)


@pytest.mark.prove
def test_a_broker_whose_directory_was_moved_away_ends(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with serving(data_dir, "checkpoint_seconds = 0.1\n") as (process, address):
        used(address)
        data_dir.rename(tmp_path / "elsewhere")
        data_dir.mkdir()
        _, err = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 1
    assert "was moved, removed or replaced while the broker ran" in err.decode().splitlines()[-1]
    assert {path.name for path in data_dir.iterdir()} <= {"queue-index"}  # which a start may lose
    shutil.rmtree(data_dir)
    (tmp_path / "elsewhere").rename(data_dir)
    with serving(data_dir) as (process, address):
        assert records_of(address) == 150
        stopped(process)


async def test_a_listener_that_others_may_reach_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def can_be_had(_host: str, _port: int) -> int:
        return 0

    monkeypatch.setattr(listener, "error_of_listening", can_be_had)
    # An address for documentation: no machine has it, so nothing listens in the end.
    config = BrokerConfig(data_dir=str(tmp_path / "data"), listen="192.0.2.1:0")
    stop = asyncio.Event()
    with pytest.raises(ListenError):
        await serve(config, [GrpcListener(config, stop)], on_ready=lambda _: None, stop=stop)
    lines = [line for line in caplog.messages if "whoever reaches it" in line]
    assert len(lines) == 1, caplog.text
    assert "192.0.2.1:0" in lines[0]
    assert "read, write and delete everything" in lines[0]


@pytest.mark.parametrize(
    ("host", "reachable"),
    [
        ("127.0.0.1", False),
        ("127.8.9.10", False),
        ("::1", False),
        ("::ffff:127.0.0.1", False),
        ("localhost", False),
        ("0.0.0.0", True),
        ("::", True),
        ("0", True),
        ("10.0.0.7", True),
        ("192.168.1.20", True),
        ("fe80::1", True),
        ("2001:db8::1", True),
        ("::ffff:10.0.0.7", True),
    ],
)
async def test_what_others_may_reach(host: str, reachable: bool) -> None:
    assert await reachable_from_outside(host) is reachable


@pytest.mark.parametrize(
    ("addresses", "taken", "free"),
    [
        (["127.0.0.1", "127.0.0.2"], None, True),
        (["127.0.0.1", "127.0.0.2"], "127.0.0.1", False),
        (["127.0.0.1", "127.0.0.2"], "127.0.0.2", False),
        (["127.0.0.1", "192.0.2.1"], None, True),
        (["127.0.0.1", "192.0.2.1"], "127.0.0.1", False),
        (["192.0.2.1"], None, False),
    ],
)
async def test_a_name_is_free_where_no_address_of_it_is_taken(
    addresses: list[str], taken: str | None, free: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address that this machine does not have counts for nothing."""
    with socket.socket() as other:
        other.bind((taken or "127.0.0.3", 0))
        other.listen()
        port = other.getsockname()[1]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_arguments, **_options: found)
        assert (await error_of_listening("broker.example", port) == 0) is free


@pytest.mark.prove
@pytest.mark.parametrize("partitions_in_use", [1, 4])
def test_what_is_acknowledged_is_in_the_directory_that_was_moved(tmp_path: Path, partitions_in_use: int) -> None:
    """Another one with the same files is in its place, and new segments and partitions not in use so far are opened."""
    data_dir = tmp_path / "data"
    acknowledged: set[tuple[int, int]] = set()
    with serving(data_dir, "checkpoint_seconds = 3600\n") as (process, address):
        with Admin(address) as admin:
            admin.create_topic("t", 4, {"segment.bytes": "10000"})
        with Producer(address, delivery_timeout_seconds=5, last_flush_seconds=0) as producer:
            for partition in range(partitions_in_use):
                producer.send_and_wait("t", b"first", partition=partition)
            data_dir.rename(tmp_path / "moved")
            shutil.copytree(tmp_path / "moved", data_dir)
            with suppress(LogbrokerError):
                for number in range(100):
                    sent = producer.send_and_wait("t", bytes(1000), partition=number % 4)
                    acknowledged.add((sent.partition, sent.offset))
        process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 1
    with serving(tmp_path / "moved") as (process, address), Consumer(address) as consumer:
        consumer.assign("t", start="earliest")
        assert acknowledged <= {(record.partition, record.offset) for record in consumer.until_end()}
