"""`logbroker serve` as a process: how it starts, stops and refuses."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.command import ENVIRONMENT, LOGBROKER, failure_of, line_of, logbroker

TIMEOUT_SECONDS = 30


@contextmanager
def serving(*arguments: str | Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A broker process and its address."""
    command = [*LOGBROKER, "serve", *map(str, arguments)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=ENVIRONMENT) as process:
        try:
            line = line_of(process).decode()
            assert line.startswith("ready grpc="), line
            yield process, line.strip().removeprefix("ready grpc=")
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with serving("--data-dir", tmp_path / "data", "--listen", "127.0.0.1:0") as (process, address):
        assert int(address.rpartition(":")[2]) > 0
        process.send_signal(number)
        out, err = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 0, err.decode()
    assert out == b""
    assert b"Traceback" not in err


def test_it_stops_when_standard_input_closes_where_asked_to(tmp_path: Path) -> None:
    with serving("--data-dir", tmp_path, "--listen", "127.0.0.1:0", "--stop-with-stdin") as (process, _):
        process.communicate(timeout=TIMEOUT_SECONDS)  # closes standard input
    assert process.returncode == 0


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert address in failure_of("serve", "--data-dir", tmp_path, "--listen", address, "--log-level", "error")


def test_a_port_of_another_broker_is_refused(tmp_path: Path) -> None:
    with serving("--data-dir", tmp_path / "one", "--listen", "127.0.0.1:0") as (_, address):
        assert address in failure_of(
            "serve", "--data-dir", tmp_path / "two", "--listen", address, "--log-level", "error"
        )


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1", "127.0.0.1:port", "127.0.0.1:65536"])
def test_an_address_that_cannot_be_is_refused(tmp_path: Path, address: str) -> None:
    assert address in failure_of("serve", "--data-dir", tmp_path, "--listen", address, "--log-level", "error")


def test_a_second_broker_on_the_same_data_is_refused_and_the_first_serves_on(tmp_path: Path) -> None:
    with serving("--data-dir", tmp_path, "--listen", "127.0.0.1:0") as (_, address):
        line = failure_of("serve", "--data-dir", tmp_path, "--listen", "127.0.0.1:0", "--log-level", "error")
        assert str(tmp_path) in line
        assert logbroker("topic", "list", "--broker", address).returncode == 0


def test_a_data_directory_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        assert str(path) in failure_of("serve", "--data-dir", path, "--listen", "127.0.0.1:0", "--log-level", "error")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("colour = 'red'", "colour"),
        ("sync_threads = 'many'", "sync_threads"),
        ("max_partitions = 0", "max_partitions"),
        ("listen = ", "not valid TOML"),
        ("[topic_defaults]\n'retention.years' = 1", "retention.years"),
        ("[topic_defaults]\n'retention.ms' = 'long'", "retention.ms"),
        (None, "No such file"),
    ],
)
def test_a_faulty_configuration_file_is_named(tmp_path: Path, text: str | None, complaint: str) -> None:
    path = tmp_path / "broker.toml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    line = failure_of("serve", "--config", path)
    assert complaint in line
    assert str(path) in line


def test_options_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text(f"data_dir = '{tmp_path}/unused'\nlisten = 'nonsense'\ndefault_partitions = 3\n", encoding="utf-8")
    with serving("--config", path, "--data-dir", tmp_path / "data", "--listen", "127.0.0.1:0") as (_, address):
        assert logbroker("topic", "create", "t", "--broker", address).returncode == 0
        described = logbroker("topic", "list", "--json", "--broker", address).stdout
    assert b'"partitions": 3' in described
    assert not (tmp_path / "unused").exists()


def test_a_wrong_call_exits_with_2() -> None:
    result = logbroker("serve", "--frobnicate")
    assert result.returncode == 2
    assert b"--frobnicate" in result.stderr
