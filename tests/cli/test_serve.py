"""`logbroker serve` as a process: how it starts, stops and refuses."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from logbroker.broker.serving import serve
from logbroker.client.sync import Admin
from logbroker.config import BrokerConfig
from logbroker.errors import ListenError
from logbroker.grpc_api.server import GrpcListener
from tests.cli.command import ENVIRONMENT, LOGBROKER, failure_of, line_of, logbroker, output_of, unread_bytes

TIMEOUT_SECONDS = 30


@contextmanager
def serving(*arguments: str | Path, limit: int = 0) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A broker process, which may open `limit` files, and its address."""
    command = [*LOGBROKER, "serve", *map(str, arguments)]
    if limit:
        command = ["bash", "-c", f'ulimit -n {limit}; exec "$@"', "-", *command]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=ENVIRONMENT) as process:
        try:
            line = line_of(process).decode()
            assert line.startswith("ready grpc="), line
            yield process, line.strip().removeprefix("ready grpc=")
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with serving("--data-dir", tmp_path / "data", "--listen", "127.0.0.1:0") as (process, address):
        assert int(address.rpartition(":")[2]) > 0
        process.send_signal(number)
        out, err = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 0, err.decode()
    assert out == b""
    assert b"Traceback" not in err


def test_a_second_ctrl_c_shows_no_traceback(tmp_path: Path) -> None:
    with serving("--data-dir", tmp_path / "data", "--listen", "127.0.0.1:0") as (process, _):
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.001)  # So that they are two.
        _, err = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode in (0, -signal.SIGINT)
    assert b"Traceback" not in err
    assert b"ERROR" not in err


LONG_START = """
import sys, time
from logbroker.broker.local_engine import lifetime
from logbroker.__main__ import main

def load(*_):
    print("loading", flush=True)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        pass

lifetime._load_topics = load
sys.argv = ["logbroker", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_second_signal_ends_a_long_start(tmp_path: Path, number: signal.Signals) -> None:
    """A start that opens many partitions does not let the event loop run."""
    command = [
        sys.executable,
        "-c",
        LONG_START,
        "serve",
        "--data-dir",
        str(tmp_path / "data"),
        "--listen",
        "127.0.0.1:0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
        try:
            assert line_of(process) == b"loading\n"
            while process.poll() is None:
                process.send_signal(number)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.05)
            assert process.returncode == -number
        finally:
            process.kill()


def test_it_stops_when_standard_input_closes_where_asked_to(tmp_path: Path) -> None:
    with serving("--data-dir", tmp_path, "--listen", "127.0.0.1:0", "--stop-with-stdin") as (process, _):
        process.communicate(timeout=TIMEOUT_SECONDS)  # closes standard input
    assert process.returncode == 0


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = failure_of("serve", "--data-dir", tmp_path, "--listen", address)
    assert line == (
        f"logbroker: cannot listen on {address}: another program uses the port: end it, or give another port (0 picks a"
        " free one)"
    )


def test_the_log_says_when_it_started_and_that_it_stopped_cleanly(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with serving("--data-dir", data_dir, "--listen", "127.0.0.1:0") as (process, address):
        process.terminate()
        _, err = process.communicate(timeout=TIMEOUT_SECONDS)
    first, *_, last = err.decode().splitlines()
    assert re.search(
        rf"INFO .*: logbroker \S+ serves on {address}: data directory {data_dir}, process {process.pid}$", first
    )
    assert last.endswith(": stopped cleanly")


@pytest.mark.prove
def test_a_port_of_another_broker_is_refused(tmp_path: Path) -> None:
    with serving("--data-dir", tmp_path / "one", "--listen", "127.0.0.1:0") as (_, address):
        assert address in failure_of(
            "serve", "--data-dir", tmp_path / "two", "--listen", address, "--log-level", "error"
        )


async def test_a_port_that_only_privileged_programs_get_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_socket: socket.socket, _address: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    config = BrokerConfig(data_dir=str(tmp_path / "data"), listen="127.0.0.1:80")
    stop = asyncio.Event()
    with pytest.raises(ListenError, match="keeps this port for privileged programs: give a higher port, such as 9192"):
        await serve(config, [GrpcListener(config, stop)], on_ready=lambda _: None, stop=stop)
    assert not (tmp_path / "data").exists()


@pytest.mark.prove
@pytest.mark.parametrize(
    ("address", "advice"),
    [
        ("", "is empty: give HOST:PORT, such as 127.0.0.1:9192"),
        ("nonsense", "names no port: give HOST:PORT, such as nonsense:9192"),
        ("127.0.0.1:port", "has a port that is not a number from 0 to 65535"),
        ("127.0.0.1:65536", "has a port that is not a number from 0 to 65535"),
        (":9192", "names no host: give HOST:PORT, such as 127.0.0.1:9192"),
        ("*:9193", "has no address: for all addresses of this machine give 0.0.0.0:9193"),
        ("::1:9192", "is an IPv6 address without brackets: give [::1]:9192"),
        ("http://127.0.0.1:9192", "is a URL: give HOST:PORT without http://, such as 127.0.0.1:9192"),
        ("unix:/run/logbroker", "is a Unix socket, and only TCP is served: give HOST:PORT"),
    ],
)
def test_an_address_that_cannot_be_is_refused(tmp_path: Path, address: str, advice: str) -> None:
    line = failure_of("serve", "--data-dir", tmp_path, "--listen", address)
    assert line.startswith(f"logbroker: the address to listen on, {address!r}, {advice}")


def test_a_second_broker_on_the_same_data_is_refused_and_the_first_serves_on(tmp_path: Path) -> None:
    with serving("--data-dir", tmp_path, "--listen", "127.0.0.1:0") as (_, address):
        line = failure_of("serve", "--data-dir", tmp_path, "--listen", "127.0.0.1:0", "--log-level", "error")
        assert str(tmp_path) in line
        assert logbroker("topic", "list", "--broker", address).returncode == 0


@pytest.mark.prove
def test_a_data_directory_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        assert str(path) in failure_of("serve", "--data-dir", path, "--listen", "127.0.0.1:0", "--log-level", "error")


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("colour = 'red'", "colour"),
        ("sync_thread = 4", "there is no setting 'sync_thread'; use one of: sync_threads, "),
        ("data-dir = '/data'", "there is no setting 'data-dir'; use one of: data_dir, "),
        ("Max-Partitions = 1", "there is no setting 'Max-Partitions'; use one of: max_partitions, "),
        ("retention_ms = 1", "retention.ms is a topic config: put it into [topic_defaults], in quotes"),
        ("[disk]\nfree = 1", "there is no setting 'disk'; use one of: "),
        ("retention.ms = 5", "retention.ms is a topic config: put it into [topic_defaults], in quotes"),
        ("'durability' = 'written'", "durability is a topic config"),
        ("[topic_defaults]\nretention.ms = 5", 'write "retention.ms" in [topic_defaults] in quotes'),
        ("[topic_defaults]\n'retention.m' = 5", "there is no config 'retention.m'; use one of: retention.ms, "),
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
    path.write_text(
        f"data_dir = '{tmp_path}/unused'\nlisten = '127.0.0.1:1'\ndefault_partitions = 3\n", encoding="utf-8"
    )
    with serving("--config", path, "--data-dir", tmp_path / "data", "--listen", "127.0.0.1:0") as (_, address):
        assert logbroker("topic", "create", "t", "--broker", address).returncode == 0
        described = logbroker("topic", "list", "--json", "--broker", address).stdout
    assert b'"partitions": 3' in described
    assert not (tmp_path / "unused").exists()


def test_a_wrong_value_is_refused_where_an_option_wins_over_it_too(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    for wrong in ("5", "'http://x'", "'nonsense'"):
        path.write_text(f"listen = {wrong}\n", encoding="utf-8")
        line = failure_of("serve", "--config", path, "--listen", "127.0.0.1:0")
        assert "listen" in line
        assert str(path) in line


def test_a_host_without_an_address_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    line = failure_of(
        "serve", "--data-dir", tmp_path / "data", "--listen", "nosuchhost.invalid:0", "--log-level", "error"
    )
    assert "cannot listen on nosuchhost.invalid:0" in line
    assert "give 127.0.0.1, another address of this machine, or 0.0.0.0 for all of them" in line
    assert not (tmp_path / "data").exists()


def test_an_address_of_another_machine_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    line = failure_of("serve", "--data-dir", tmp_path / "data", "--listen", "192.0.2.1:0")
    assert line.startswith("logbroker: cannot listen on 192.0.2.1:0: the address is not this machine's: give 127.0.0.1")
    assert not (tmp_path / "data").exists()


def test_a_wrong_call_exits_with_2() -> None:
    result = logbroker("serve", "--frobnicate")
    assert result.returncode == 2
    assert b"--frobnicate" in result.stderr


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("descriptors", [20, 26, 40])
def test_too_few_descriptors_are_told_before_anything_is_opened(tmp_path: Path, descriptors: int) -> None:
    # Python itself needs some to begin; the shell's limit holds for what it runs.
    command = ["bash", "-c", f'ulimit -n {descriptors}; exec "$@"', "-", *LOGBROKER, "serve", "--data-dir"]
    done = subprocess.run(
        [*command, str(tmp_path / "data")], capture_output=True, env=ENVIRONMENT, timeout=TIMEOUT_SECONDS, check=False
    )
    assert done.returncode == 1, done
    [line] = done.stderr.decode().splitlines()
    assert f"the limit on open files is {descriptors}, and a broker needs at least" in line
    assert "ulimit -n" in line
    assert not (tmp_path / "data").exists()


FEW_THREADS = """
import itertools, sys, threading
from logbroker.cli.main import main

start = threading.Thread.start
left = itertools.count(int(sys.argv.pop(1)), -1)

def start_one(self):
    if next(left) <= 0:
        raise RuntimeError("can't start new thread")
    start(self)

threading.Thread.start = start_one
main()
"""


@pytest.mark.parametrize("threads", [0, 1, 20, 40])
def test_too_few_threads_are_told_before_anything_is_opened(tmp_path: Path, threads: int) -> None:
    """As under a limit on processes, of the user or the container, which does not hold for root."""
    command = [sys.executable, "-c", FEW_THREADS, str(threads), "serve", "--data-dir", str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, env=ENVIRONMENT, timeout=TIMEOUT_SECONDS, check=False)
    assert done.returncode == 1, done
    [line] = done.stderr.decode().splitlines()
    assert re.search(rf"a broker needs \d+ threads, and only {threads} can be started; raise the limit", line)
    assert "sync_threads" in line
    assert not (tmp_path / "data").exists()


@pytest.mark.prove
def test_the_fewest_descriptors_that_are_not_refused_are_enough(tmp_path: Path) -> None:
    command = ["bash", "-c", 'ulimit -n 20; exec "$@"', "-", *LOGBROKER, "serve"]
    refused = subprocess.run(command, capture_output=True, env=ENVIRONMENT, timeout=TIMEOUT_SECONDS, check=False)
    found = re.search(rb"at least (\d+): (\d+) are open already", refused.stderr)
    assert found, refused
    # One more is open there, and one less must do.
    fewest = int(found[1]) - int(found[2]) + 6
    with serving("--data-dir", tmp_path / "data", "--listen", "127.0.0.1:0", limit=fewest) as (_, address):
        for name in ("a", "b"):
            output_of("topic", "create", name, "--partitions", "16", "--broker", address)
            output_of("produce", name, "--broker", address, stdin=b"".join(b"%d\n" % n for n in range(200)))
            consumed = output_of("consume", name, "--from", "earliest", "--until-end", "--broker", address)
            assert len(consumed.splitlines()) == 200


def in_the_place(put: str, path: Path) -> None:
    path.unlink(missing_ok=True)
    if put == "a FIFO":
        os.mkfifo(path)
    elif put == "a directory":
        path.mkdir()
    else:
        path.symlink_to(path.name)


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("put", ["a directory", "a FIFO", "a loop"])
@pytest.mark.parametrize("name", ["lock", "issued-numbers", "meta/data.mdb", "meta/lock.mdb"])
def test_what_lies_in_the_place_of_a_file_is_named(used: Path, tmp_path: Path, put: str, name: str) -> None:
    data_dir = tmp_path / "data"
    shutil.copytree(used, data_dir)
    in_the_place(put, data_dir / name)
    line = failure_of("serve", "--data-dir", data_dir, "--listen", "127.0.0.1:0", "--log-level", "error")
    assert str(data_dir / Path(name).parent) in line
    assert Path(name).name in line or name == "meta/lock.mdb", line
    assert "Errno" not in line
    assert ";" in line, f"it does not say what to do: {line}"


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory of a broker that has stopped."""
    data_dir = tmp_path_factory.mktemp("used") / "data"
    with serving("--data-dir", data_dir, "--listen", "127.0.0.1:0") as (process, address):
        output_of("topic", "create", "t", "--broker", address)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_SECONDS)
    return data_dir


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize(
    "command",
    [
        ("segment", "list", "{missing}"),
        ("segment", "dump", "{missing}"),
        ("segment", "verify", "{missing}"),
        ("segment", "stats", "{missing}"),
        ("segment", "find", "{missing}", "--key", "k"),
        ("segment", "rebuild-index", "{missing}"),
        ("segment", "repair", "{missing}"),
        ("segment", "list", "{fifo}"),
        ("segment", "dump", "{fifo}"),
        ("segment", "stats", "{fifo}"),
        ("segment", "find", "{fifo}", "--key", "k"),
        ("segment", "rebuild-index", "{fifo}"),
        ("segment", "repair", "{fifo}"),
        ("meta", "backup", "--data-dir", "{missing}", "{tmp}/b.backup"),
        ("meta", "backup", "--data-dir", "{used}", "{missing}/b.backup"),
        ("meta", "restore", "--data-dir", "{used}", "{missing}"),
        ("meta", "restore", "--data-dir", "{used}", "{fifo}"),
        ("meta", "restore", "--data-dir", "{used}", "{tmp}"),
        ("serve", "--config", "{missing}"),
        ("serve", "--config", "{tmp}"),
    ],
    ids=" ".join,
)
def test_a_file_that_cannot_be_used_is_named(used: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    missing, fifo = tmp_path / "missing", tmp_path / f"{0:020d}.log"
    os.mkfifo(fifo)
    names = {"missing": missing, "fifo": fifo, "tmp": tmp_path, "used": used}
    arguments = [part.format(**names) for part in command]
    line = failure_of(*arguments)
    wanted = next(name for name in ("missing", "fifo", "tmp") if f"{{{name}}}" in " ".join(command))
    assert str(names[wanted]) in line, line
    assert "Errno" not in line
    assert ";" in line, f"it does not say what to do: {line}"


@pytest.mark.prove
def test_a_log_that_nobody_reads_holds_up_no_request(tmp_path: Path) -> None:
    with serving("--data-dir", tmp_path, "--listen", "127.0.0.1:0", "--log-level", "debug") as (process, address):
        assert process.stderr is not None
        fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 4096)
        with Admin(address) as admin:
            topics = 0
            while unread_bytes(process.stderr) < 4000 - 200 and topics < 1000:
                admin.create_topic(f"t{topics}", 1)
                topics += 1
            for number in range(topics, topics + 50):
                admin.create_topic(f"t{number}", 1)
            assert len(admin.list_topics()) == topics + 50
        assert unread_bytes(process.stderr) > 3000
        process.terminate()
        assert process.wait(TIMEOUT_SECONDS) == 0
