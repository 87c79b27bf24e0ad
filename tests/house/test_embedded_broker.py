"""The broker for programs and tests: a child that starts fast, keeps its address, and never outlives its parent."""

from __future__ import annotations

import math
import os
import re
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import logbroker
from logbroker.client.sync import Admin, Consumer
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import BrokerUnavailableError, InvalidRequestError, LogbrokerError
from tests.waiting import until


def topic_names(broker: EmbeddedBroker) -> list[str]:
    with Admin(broker.address) as admin:
        return [topic.name for topic in admin.list_topics()]


def test_it_is_ready_when_it_is_entered_and_its_data_go_with_it() -> None:
    with logbroker.embedded() as broker:
        host, _, port = broker.address.rpartition(":")
        socket.create_connection((host, int(port)), timeout=30).close()
        data_dir = broker.data_dir
        assert data_dir.is_dir()
    assert not data_dir.exists()
    with pytest.raises(BrokerUnavailableError):
        _ = broker.pid
    with pytest.raises(InvalidRequestError, match="make another"):
        broker.start()


@pytest.mark.prove
def test_it_starts_in_a_program_with_many_open_files() -> None:
    """`select.select` takes no descriptor above 1,023."""
    program = (
        "import math, os, resource, logbroker\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (2_000, hard))\n"
        "files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]\n"
        "broker = logbroker.embedded()\n"
        "broker.start(timeout_seconds=math.inf)\n"
        "broker.stop()\n"
        "print('stopped')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("stopped\n", 0), done.stderr


def test_it_has_no_address_before_it_starts_and_takes_no_directory_without_a_name() -> None:
    broker = logbroker.embedded(kafka=True)
    for name in ("address", "kafka_address"):
        with pytest.raises(BrokerUnavailableError, match="was not started"):
            getattr(broker, name)
    with pytest.raises(InvalidRequestError, match="no name"):
        logbroker.embedded("")


@pytest.mark.prove
def test_restart_and_kill_keep_address_and_data(logbroker_broker: EmbeddedBroker) -> None:
    broker = logbroker_broker
    address, pid = broker.address, broker.pid
    with Admin(address) as admin:
        admin.create_topic("kept")
    broker.restart()
    assert broker.address == address
    assert broker.pid != pid
    assert topic_names(broker) == ["kept"]
    broker.kill()
    broker.kill()  # does nothing
    broker.start()
    assert broker.address == address
    assert topic_names(broker) == ["kept"]


@pytest.mark.prove
def test_a_given_directory_outlives_it_and_settings_reach_it(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"default_partitions": 5, "topic_defaults": {"retention.ms": 1000}}
    with logbroker.embedded(tmp_path / "data", **settings) as broker, Admin(broker.address) as admin:
        assert admin.create_topic("t").partitions == 5
    with logbroker.embedded(tmp_path / "data") as broker:
        assert topic_names(broker) == ["t"]


@pytest.mark.prove
def test_a_program_that_changes_its_directory_keeps_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with logbroker.embedded("data") as broker:
        with Admin(broker.address) as admin:
            admin.create_topic("t")
        monkeypatch.chdir(tmp_path / "elsewhere")
        broker.restart()
        assert topic_names(broker) == ["t"]
        broker.kill()
        broker.start()
        assert topic_names(broker) == ["t"]
    assert not list((tmp_path / "elsewhere").iterdir())


def test_what_it_refuses_is_said_in_its_own_words() -> None:
    with pytest.raises(LogbrokerError, match="colour"):
        logbroker.embedded(colour="red").__enter__()


@pytest.mark.parametrize("value", [None, b"4", {"retention.ms": None}, [object()]])
def test_a_value_that_no_setting_can_have_is_refused_by_the_name_of_the_setting(value: object) -> None:
    with pytest.raises(TypeError, match="topic_defaults cannot be"):
        logbroker.embedded(topic_defaults=value)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_without_sense_is_refused_by_the_name_of_the_setting(value: float) -> None:
    with pytest.raises(LogbrokerError, match="checkpoint_seconds"):
        logbroker.embedded(checkpoint_seconds=value).start()


def test_it_does_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    program = """
import logbroker, os
with logbroker.embedded() as broker:
    print(broker.pid, flush=True)
    os.kill(os.getpid(), 9)
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}  # what it leaves behind goes with the test
    parent = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment, check=False)
    assert parent.returncode == -9
    try:
        process = os.pidfd_open(int(parent.stdout))
    except ProcessLookupError:
        return
    try:
        gone, _, _ = select.select([process], [], [], 30)
    finally:
        os.close(process)
    assert gone


_INTERRUPTED = """
import sys
import logbroker
from logbroker.client.sync import Admin, Producer

with logbroker.embedded(sys.argv[1]) as broker, Producer(broker.address, linger_ms=3_600_000) as producer:
    with Admin(broker.address) as admin:
        admin.create_topic("t", 1)
    for number in range(1000):
        producer.send("t", b"%d" % number)
    print("sent", flush=True)
    sys.stdin.read()
"""


@pytest.mark.prove
def test_a_ctrl_c_at_the_terminal_ends_the_program_before_its_broker(tmp_path: Path) -> None:
    """It goes to the whole group of processes. What is flushed after it arrives."""
    with subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTED, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"sent\n"
        os.killpg(program.pid, signal.SIGINT)
        _, said = program.communicate(timeout=60)
    assert b"not confirmed" not in said, said
    assert program.returncode == -signal.SIGINT, said
    with logbroker.embedded(tmp_path) as broker, Consumer(broker.address) as consumer:
        consumer.assign("t")
        assert sum(1 for _ in consumer.until_end()) == 1000


_NOTHING_IS_CLOSED = """
broker = logbroker.embedded(*sys.argv[1:])
broker.start()
Admin(broker.address).create_topic("t", 1)
producer = Producer(broker.address, linger_ms=3_600_000)
for number in range(1000):
    producer.send("t", b"%d" % number)
"""


@pytest.mark.prove
@pytest.mark.parametrize("is_data_dir_given", [False, True])
@pytest.mark.parametrize("first", ["logbroker.client.sync", "logbroker.embedded_broker"])
def test_clients_flush_before_a_broker_that_is_left_open_goes(
    tmp_path: Path, first: str, is_data_dir_given: bool
) -> None:
    """In whichever order the program has imported them; and nothing is left behind."""
    imports = f"import sys, {first}, logbroker.embedded_broker\nfrom logbroker.client.sync import Admin, Producer\n"
    temporary, data_dir = tmp_path / "temporary", tmp_path / "data"
    temporary.mkdir()
    command = [sys.executable, "-c", imports + _NOTHING_IS_CLOSED, *([str(data_dir)] if is_data_dir_given else [])]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert not list(temporary.iterdir())
    if is_data_dir_given:
        with logbroker.embedded(data_dir) as broker, Consumer(broker.address) as consumer:
            consumer.assign("t")
            assert sum(1 for _ in consumer.until_end()) == 1000


def test_one_that_was_killed_from_outside_is_started_again(logbroker_broker: EmbeddedBroker) -> None:
    broker = logbroker_broker
    killed = os.pidfd_open(broker.pid)
    os.kill(broker.pid, signal.SIGKILL)
    assert select.select([killed], [], [], 30)[0]
    os.close(killed)
    with pytest.raises(BrokerUnavailableError, match="does not run"):
        _ = broker.pid
    broker.start()
    assert broker.pid
    assert topic_names(broker) == []


def test_the_session_fixture_serves(logbroker_session_broker: EmbeddedBroker) -> None:
    assert isinstance(topic_names(logbroker_session_broker), list)


PROGRAM = """
import os, signal, sys, time
from logbroker.embedded_broker import embedded
broker = embedded(sys.argv[1]).__enter__()
child = os.fork()
if child:
    print(broker.pid, child, flush=True)
signal.pause()
"""


@pytest.mark.prove
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_keep_the_broker_of_a_killed_program(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        broker, child = map(int, program.stdout.readline().split())
        try:
            program.kill()
            program.wait(30)
            until(lambda: not is_running(broker))
            assert is_running(child)
        finally:
            os.kill(child, signal.SIGKILL)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


FAILING_TESTS = """
import time
import pytest

def wait_for_log(broker, lives=1):
    deadline = time.monotonic() + 30
    while broker.log_path.read_text().count(" serves on ") < lives:
        assert time.monotonic() < deadline
        time.sleep(0.01)

@pytest.fixture
def broker(logbroker_broker):
    return logbroker_broker

@pytest.fixture
def topic(logbroker_broker):
    raise ValueError

@pytest.fixture
def logbroker_kafka_broker():
    return "of another kind"

def test_own(broker):
    wait_for_log(broker)
    broker.kill()
    broker.start()
    wait_for_log(broker, lives=2)
    assert False

def test_set_up(topic):
    pass

def test_shared(logbroker_session_broker):
    wait_for_log(logbroker_session_broker)
    assert False

def test_good(logbroker_session_broker):
    pass

def test_without():
    assert False

def test_another_kind(logbroker_kafka_broker):
    assert False
"""


def test_the_report_of_a_failed_test_shows_the_end_of_the_brokers_log(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FAILING_TESTS)
    options = ["--import-mode=importlib", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "4 failed, 1 passed, 1 error" in done.stdout
    shown = re.findall(r"end of the log of (\w+) -*\n((?:\d.*\n)*)", done.stdout)
    assert {name: log.count(" serves on ") for name, log in shown} == {
        "logbroker_broker": 2,
        "logbroker_session_broker": 1,
    }
    assert [name for name, _ in shown].count("logbroker_broker") == 2, "of the test, and of the set-up"
