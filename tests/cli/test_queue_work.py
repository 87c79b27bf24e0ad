"""`logbroker queue work`: records to a command, or to standard output. As processes, as a user runs it."""

from __future__ import annotations

import itertools
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logbroker.cli.common.error_writer import ErrorWriter
from logbroker.cli.common.standard_output import TakenOutput
from logbroker.cli.main import run
from logbroker.cli.queue.work import _Refusals, _stopped_at_end, record_variables
from logbroker.client.sync import Admin, LaneDescription, Producer, QueueAdmin, QueueCounts, QueueSettings, Worker
from logbroker.embedded_broker import EmbeddedBroker, embedded
from logbroker.errors import BrokerUnavailableError, LeaseLostError, LogbrokerError, UnknownGroupError
from tests.cli.command import ENVIRONMENT, LOGBROKER, line_of, logbroker, output_of, unread_bytes
from tests.cli.queues import Queue
from tests.waiting import until

WAITING = b"logbroker: waiting for the commands that run; Ctrl-C again kills them\n"


@pytest.fixture
def group(address: str) -> str:
    """A queue group on a topic of the same name, with the values 0 to 11 of 3 keys."""
    name = f"q-{uuid.uuid4()}"
    with Admin(address) as admin, QueueAdmin(address) as queues, Producer(address) as producer:
        admin.create_topic(name, 2)
        queues.create_queue(name, name, QueueSettings(max_attempts=2, backoff_initial_seconds=0.05))
        for number in range(12):
            producer.send(name, b"%d" % number, b"k%d" % (number % 3), headers=(("trace-id", b"x%d" % number),))
    return name


def counts(address: str, group: str) -> QueueCounts:
    with QueueAdmin(address) as queues:
        return queues.describe_queue(group).counts


def explain(address: str, group: str, key: bytes) -> LaneDescription:
    with QueueAdmin(address) as queues:
        return queues.explain_lane(group, key)


def wait_for_end(pid: int) -> None:
    """Wait until a process runs no more; nobody may have taken note of its end."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except FileNotFoundError:
            return
        time.sleep(0.02)
    raise TimeoutError(f"process {pid} lives on")


@pytest.mark.prove
def test_records_are_written_as_json_lines_and_acked(address: str, group: str) -> None:
    command = ("queue", "work", group, "--print", "--broker", address)
    lines = output_of(*command, "--max-records", "5").splitlines()
    lines += output_of(*command, "--max-records", "7").splitlines()
    records = [json.loads(line) for line in lines]
    assert sorted(int(record["value"]) for record in records) == list(range(12))
    for key in ("k0", "k1", "k2"):
        values = [int(record["value"]) for record in records if record["key"] == key]
        assert values == sorted(values)
    one = next(record for record in records if record["value"] == "4")
    assert (one["topic"], one["key"], one["attempt"]) == (group, "k1", 1)
    assert one["headers"] == [{"key": "trace-id", "value": "x4"}]
    assert set(one) == {
        "topic",
        "partition",
        "offset",
        "timestamp",
        "key",
        "value",
        "headers",
        "attempt",
        "redelivered",
    }
    assert counts(address, group).acked == 12


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("option", [("--timeout", "5"), ("--concurrency", "4"), ("--concurrency", "1")])
def test_what_is_about_commands_is_refused_without_one(address: str, group: str, option: tuple[str, str]) -> None:
    result = logbroker("queue", "work", group, "--print", *option, "--broker", address)
    assert result.returncode == 2
    assert f"{option[0]} is about commands" in result.stderr.decode()


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("command", ["", "  ", "\n", "#bill.sh", " # one\n\n# two"])
def test_an_empty_command_is_none(address: str, group: str, command: str) -> None:
    """A shell would run it, and every record would be acked: its variable is not set, most likely."""
    work = [*LOGBROKER, "queue", "work", group, "--exec", command, "--until-end", "--broker", address]
    done = subprocess.run(work, capture_output=True, text=True, timeout=60, env=ENVIRONMENT, check=False)
    assert done.returncode == 2
    assert "--exec needs a command" in done.stderr
    assert counts(address, group).acked == 0


@pytest.mark.parametrize("command", ["if", "echo 'never ends", "a | | b"])
def test_a_command_that_the_shell_cannot_read_is_none(address: str, group: str, command: str) -> None:
    """It would fail for every record, and use up their attempts."""
    done = logbroker("queue", "work", group, "--exec", command, "--broker", address)
    assert done.returncode == 2
    assert "--exec: the shell cannot read the command" in done.stderr.decode()
    assert counts(address, group).nacked == 0


def test_a_command_may_begin_with_a_minus(address: str, group: str, tmp_path: Path) -> None:
    (tmp_path / "-it").write_text("#!/bin/sh\ncat > /dev/null\n")
    (tmp_path / "-it").chmod(0o700)
    path = ENVIRONMENT | {"PATH": f"{tmp_path}:{ENVIRONMENT['PATH']}"}
    work = [*LOGBROKER, "queue", "work", group, "--exec", "-it", "--until-end", "--broker", address]
    done = subprocess.run(work, capture_output=True, text=True, timeout=60, env=path, check=False)
    assert done.returncode == 0, done.stderr
    assert counts(address, group).nacked == 0
    assert counts(address, group).acked > 0


@pytest.mark.prove
def test_a_command_gets_the_record_and_its_exit_settles_it(address: str, group: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = f"""
        read value
        echo "$value $LOGBROKER_TOPIC $LOGBROKER_KEY $LOGBROKER_KEY_BASE64 $LOGBROKER_ATTEMPT $LOGBROKER_REDELIVERED \
$LOGBROKER_HEADER_TRACE_ID $LOGBROKER_PARTITION $LOGBROKER_OFFSET $LOGBROKER_TIMESTAMP" >> {out}
        if test "$value" = 4 && test $LOGBROKER_ATTEMPT = 1; then echo starting >&2; echo "no good" >&2; exit 7; fi
    """
    result = logbroker("queue", "work", group, "--exec", script, "--max-records", "13", "--broker", address)
    assert result.returncode == 0, result.stderr
    assert result.stderr == b"starting\nno good\n"
    lines = [line.split() for line in out.read_text().splitlines()]
    assert sorted(int(line[0]) for line in lines) == sorted([*range(12), 4])
    for value, topic, key, key_base64, attempt, redelivered, trace, _, _, _ in lines:
        assert (topic, key, trace) == (group, f"k{int(value) % 3}", f"x{value}")
        assert key_base64 == {"k0": "azA=", "k1": "azE=", "k2": "azI="}[key]
        assert (attempt, redelivered) in ((("1", "0"), ("2", "1")) if value == "4" else (("1", "0"),))
    assert all(line[7].isdigit() and line[8].isdigit() and len(line[9]) == 13 for line in lines)
    done = counts(address, group)
    assert (done.acked, done.nacked, done.in_flight) == (12, 1, 0)


def test_a_command_that_fails_for_good_blocks_only_its_key(address: str, group: str) -> None:
    script = 'test $LOGBROKER_KEY != k1 || { echo "cannot bill" >&2; exit 3; }'
    result = logbroker(
        *("queue", "work", group, "--exec", script, "--concurrency", "3", "--max-records", "10", "--broker", address)
    )
    assert result.returncode == 0, result.stderr
    assert counts(address, group).acked == 8
    lane = explain(address, group, b"k1")
    assert (lane.state, lane.waiting, lane.reasons) == ("blocked", 4, ("exit 3: cannot bill",) * 2)


def test_a_command_that_takes_too_long_is_killed_with_its_children(address: str, group: str, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    result = logbroker(
        *("queue", "work", group, "--exec", f"sleep 60 & echo $! >> {pids}; wait", "--timeout", "0.3"),
        *("--max-records", "1", "--broker", address),
    )
    assert result.returncode == 0, result.stderr
    wait_for_end(int(pids.read_text()))
    assert counts(address, group).nacked == 1


@pytest.mark.prove
def test_what_no_environment_holds_fails_with_that_reason(address: str) -> None:
    """A key of 500 kB, or headers that are too much together; no command runs without them. A NUL comes in base64."""
    group = f"q-{uuid.uuid4()}"
    many = tuple((f"h{number}", b"x" * 60_000) for number in range(100))
    with Admin(address) as admin, QueueAdmin(address) as queues, Producer(address) as producer:
        admin.create_topic(group, 1, {"max.message.bytes": "8000000"})
        queues.create_queue(group, group, QueueSettings(max_attempts=1))
        for key in (b"a\0b", b"", None):
            producer.send(group, b"v", key, headers=(("nul", b"\0"), ("a\0=ä", b"odd")))
        producer.flush()
        producer.send(group, b"v", b"many", headers=many)
        producer.send(group, b"v", b"x" * 500_000)
    variables = ("KEY-none", "KEY_BASE64-none", "HEADER_NUL_BASE64", "HEADER_A___")
    script = f'echo "{" ".join(f"${{LOGBROKER_{name}}}" for name in variables)} $(cat)"'
    out = output_of("queue", "work", group, "--exec", script, "--max-records", "5", "--broker", address)
    assert sorted(out.splitlines()) == sorted([b"none YQBi AA== odd v", b"  AA== odd v", b"none none AA== odd v"])
    done = counts(address, group)
    assert (done.acked, done.nacked) == (3, 2)
    for key, name, size in ((b"many", "HEADER_H", "60,000"), (b"x" * 500_000, "KEY", "")):
        (reason,) = explain(address, group, key).reasons
        assert "key and headers are too large for the environment of a command" in reason
        assert f"of which 'LOGBROKER_{name}" in reason
        assert f"has {size}" in reason


def test_a_header_has_one_variable() -> None:
    """The last header of a name counts, whether or not it has a NUL byte."""
    delivery = SimpleNamespace(
        topic="t",
        partition=0,
        offset=0,
        timestamp_ms=0,
        priority=4,
        attempt=1,
        redelivered=False,
        key=None,
        headers=(("a", b"1"), ("A", b"\0"), ("b", b"\0"), ("b", b"1"), ("c", b"1"), ("c", None)),
    )
    variables = record_variables(cast(Any, delivery))
    headers = {name: value for name, value in variables.items() if name.startswith(b"LOGBROKER_HEADER_")}
    assert headers == {b"LOGBROKER_HEADER_A_BASE64": b"AA==", b"LOGBROKER_HEADER_B": b"1"}


@pytest.mark.prove
def test_nothing_of_another_record_is_in_the_environment(address: str, group: str, tmp_path: Path) -> None:
    """As where a command of one worker starts another."""
    out = tmp_path / "out"
    others = {"LOGBROKER_KEY": "another's", "LOGBROKER_HEADER_X": "another's", "LOGBROKER_BROKER": "127.0.0.1:1"}
    with Producer(address) as producer:
        producer.send(group, b"no key", None)
    command = [*LOGBROKER, "queue", "work", group, "--broker", address, "--max-records", "13"]
    command += ["--exec", f"env | grep ^LOGBROKER_ >> {out}"]
    subprocess.run(command, env=ENVIRONMENT | others, timeout=60, check=True)
    text = out.read_text()
    assert "another's" not in text
    assert text.count(f"LOGBROKER_BROKER={address}\n") == 13
    assert text.count("LOGBROKER_KEY=") == 12


@pytest.mark.prove
def test_a_command_is_done_when_it_ends_whatever_it_left_behind(address: str, group: str, tmp_path: Path) -> None:
    """All records are done while a child of the first holds its standard error."""
    pid = tmp_path / "pid"
    script = f"test -e {pid} || {{ sleep 60 & echo $! > {pid}; }}"
    result = logbroker_to_files("queue", "work", group, "--exec", script, "--max-records", "12", "--broker", address)
    assert result == 0
    assert counts(address, group).acked == 12
    os.kill(int(pid.read_text()), signal.SIGKILL)  # It lives.


def logbroker_to_files(*arguments: str) -> int:
    """Run a command whose standard output others may hold, too."""
    nothing = subprocess.DEVNULL
    return subprocess.run([*LOGBROKER, *arguments], stdout=nothing, stderr=nothing, timeout=50, check=False).returncode


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("command", ["no-such-command $LOGBROKER_KEY", "/dev/null"])
def test_a_command_that_is_not_there_ends_the_worker_and_no_attempt_is_used(
    address: str, group: str, command: str
) -> None:
    arguments = ("queue", "work", group, "--exec", command, "--broker", address)
    result = logbroker(*arguments, "--concurrency", "3")
    assert result.returncode == 1
    last = result.stderr.decode().splitlines()[-1]
    assert last.startswith("logbroker: the command cannot be run (exit 12")
    done = counts(address, group)
    assert (done.acked, done.nacked, done.in_flight) == (0, 0, 0)
    # Nor when it comes again.
    assert logbroker(*arguments).returncode == 1
    done = counts(address, group)
    assert (done.acked, done.nacked, done.in_flight) == (0, 0, 0)


@pytest.mark.prove
def test_a_command_that_goes_away_meanwhile_uses_no_attempt(address: str, group: str, tmp_path: Path) -> None:
    """As at a deployment: it is no record's fault, however many records it was run for."""
    script = tmp_path / "work"
    script.write_text('#!/bin/sh\ntest "$LOGBROKER_OFFSET" != 5 || rm "$0"\n')
    script.chmod(0o700)
    for acked in (6, 6, 6):
        result = logbroker("queue", "work", group, "--exec", str(script), "--broker", address)
        assert result.returncode == 1
        assert b"the command cannot be run (exit 127" in result.stderr.splitlines()[-1]
        done = counts(address, group)
        assert (done.acked, done.nacked, done.in_flight) == (acked, 0, 0)


@pytest.mark.prove
def test_a_record_that_makes_its_command_too_long_is_nacked(address: str, group: str) -> None:
    """A shell tells that by the exit code of commands that cannot be run; the worker goes on."""
    script = 'test "$LOGBROKER_KEY" != k1 || /bin/echo "$(head -c 4000000 /dev/zero | tr "\\0" x)"'
    result = logbroker("queue", "work", group, "--exec", script, "--broker", address, "--max-records", "10")
    assert result.returncode == 0, result.stderr
    assert "Argument list too long" in str(explain(address, group, b"k1").reasons)


@pytest.mark.prove
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_waits_for_the_command_and_gives_back_the_rest(
    address: str, group: str, tmp_path: Path, stop: signal.Signals
) -> None:
    go = tmp_path / "go"
    command = [*LOGBROKER, "queue", "work", group, "--broker", address]
    command += ["--exec", f"echo begun; while ! test -e {go}; do sleep 0.05; done; cat"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
        assert process.stderr is not None
        try:
            assert line_of(process) == b"begun\n"
            process.send_signal(stop)
            assert line_of(process, error=True) == WAITING
            assert process.poll() is None
            go.touch()
            assert process.wait(30) == 0
            assert process.stderr.read().strip() == b""
        finally:
            process.kill()
    done = counts(address, group)
    assert (done.acked, done.nacked, done.in_flight) == (1, 0, 0)


@pytest.mark.prove
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_second_stop_kills_the_command_and_gives_back_its_record(
    address: str, group: str, tmp_path: Path, stop: signal.Signals
) -> None:
    """Though a child that has left its session holds its standard error."""
    free, own = tmp_path / "free", tmp_path / "own"
    command = [*LOGBROKER, "queue", "work", group, "--broker", address, "--timeout", "50"]
    command += ["--exec", f"setsid sh -c 'echo $$ > {free}; exec sleep 60' & echo $$ > {own}; echo begun; sleep 60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
        try:
            assert line_of(process) == b"begun\n"
            until(lambda: free.exists() and free.read_text())
            process.send_signal(stop)
            assert line_of(process, error=True) == WAITING
            process.send_signal(stop)
            assert process.wait(30) == 128 + stop
        finally:
            process.kill()
            os.kill(int(free.read_text()), signal.SIGKILL)
    wait_for_end(int(own.read_text()))
    done = counts(address, group)
    assert (done.acked, done.nacked, done.in_flight) == (0, 0, 0)


@pytest.mark.prove
def test_a_second_stop_waits_for_no_broker(tmp_path: Path) -> None:
    own = tmp_path / "own"
    with embedded() as broker:
        with Admin(broker.address) as admin, QueueAdmin(broker.address) as queues, Producer(broker.address) as producer:
            admin.create_topic("t", 1)
            queues.create_queue("q", "t")
            producer.send("t", b"v")
        command = [*LOGBROKER, "queue", "work", "q", "--broker", broker.address]
        command += ["--exec", f"echo $$ > {own}; echo begun; sleep 60; true"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
            try:
                assert line_of(process) == b"begun\n"
                os.kill(broker.pid, signal.SIGSTOP)
                process.send_signal(signal.SIGTERM)
                assert line_of(process, error=True) == WAITING
                process.send_signal(signal.SIGTERM)
                assert process.wait(30) == 128 + signal.SIGTERM
            finally:
                process.kill()
                os.kill(broker.pid, signal.SIGCONT)
    wait_for_end(int(own.read_text()))


@pytest.mark.prove
def test_a_worker_that_is_killed_takes_its_command_along(address: str, group: str, tmp_path: Path) -> None:
    own = tmp_path / "own"
    command = [*LOGBROKER, "queue", "work", group, "--broker", address]
    command += ["--exec", f"echo $$ > {own}; echo begun; sleep 60; true"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT) as process:
        assert line_of(process) == b"begun\n"
        process.kill()
    wait_for_end(int(own.read_text()))


@pytest.mark.parametrize("form", [("--print",), ("--exec", "true")])
def test_a_stop_while_there_is_no_broker_is_no_failure(form: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [*LOGBROKER, "queue", "work", "q", *form, "--broker", address, "--wait", "60"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
            try:
                silent.settimeout(30)
                connection, _ = silent.accept()
                connection.close()
                process.send_signal(signal.SIGTERM)
                assert process.wait(30) == 0
                assert process.stderr is not None
                assert process.stderr.read() == b""
            finally:
                process.kill()


def test_a_command_whose_record_is_lost_is_killed(address: str, group: str, tmp_path: Path) -> None:
    """The record is lost by a rewind of the group: it comes again, to the same worker here."""
    own = tmp_path / "own"
    with QueueAdmin(address) as queues:
        queues.alter_queue(group, QueueSettings(lease_seconds=1.5))
    command = [*LOGBROKER, "queue", "work", group, "--broker", address]
    command += ["--exec", f"echo $$ >> {own}; echo begun; sleep 60; true"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
        try:
            assert line_of(process) == b"begun\n"
            with QueueAdmin(address) as queues:
                queues.rewind(group, "earliest")
            assert b"was lost, and its command was killed" in line_of(process, error=True)
            wait_for_end(int(own.read_text().split()[0]))
            assert line_of(process) == b"begun\n"
        finally:
            process.kill()
    assert counts(address, group).nacked == 0


@pytest.mark.prove
def test_a_record_of_a_deleted_group_is_not_said_to_come_again(address: str, group: str) -> None:
    command = [*LOGBROKER, "queue", "work", group, "--broker", address]
    command += ["--exec", "echo begun; sleep 60; true"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
        try:
            assert line_of(process) == b"begun\n"
            with QueueAdmin(address) as queues:
                queues.delete_queue(group)
            line = line_of(process, error=True)
            assert b"was lost, and its command was killed: queue group" in line
            assert b"was deleted" in line
            assert process.wait(30) == 1
        finally:
            process.kill()


@pytest.mark.prove
def test_a_command_is_killed_when_its_lease_is_over_though_no_broker_says_so(tmp_path: Path) -> None:
    own = tmp_path / "own"
    with embedded() as broker:
        with Admin(broker.address) as admin, QueueAdmin(broker.address) as queues, Producer(broker.address) as producer:
            admin.create_topic("t", 1)
            queues.create_queue("q", "t", QueueSettings(lease_seconds=1.5))
            producer.send("t", b"v")
        command = [*LOGBROKER, "queue", "work", "q", "--broker", broker.address]
        command += ["--exec", f"echo $$ >> {own}; echo begun; sleep 60; true"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
            try:
                assert line_of(process) == b"begun\n"
                os.kill(broker.pid, signal.SIGSTOP)
                wait_for_end(int(own.read_text()))
                os.kill(broker.pid, signal.SIGCONT)
                assert line_of(process) == b"begun\n"
                with QueueAdmin(broker.address) as queues:
                    assert queues.describe_queue("q").counts.nacked == 0
            finally:
                process.kill()
                os.kill(broker.pid, signal.SIGCONT)


@pytest.mark.prove
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_of_the_printer_is_no_failure(address: str, group: str, stop: signal.Signals) -> None:
    command = [*LOGBROKER, "queue", "work", group, "--print", "--broker", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
        try:
            assert process.stdout is not None
            for _ in range(12):
                assert process.stdout.readline()
            until(lambda: counts(address, group).acked == 12)
            process.send_signal(stop)
            assert process.wait(30) == 0
        finally:
            process.kill()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_the_printer_has_written_before_a_stop_is_acked(
    address: str, group: str, stop: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []

    def write(output: TakenOutput, data: bytes) -> None:
        written.append(data)
        if len(written) == 3:
            signal.raise_signal(stop)

    monkeypatch.setattr(TakenOutput, "write", write)
    assert run(["queue", "work", group, "--print", "--broker", address]) == 0
    assert len(written) == 3
    assert counts(address, group).acked == 3


@contextmanager
def held_up_printing(address: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A queue group, and a worker that prints a value for which the pipe has no room."""
    name = f"q-{uuid.uuid4()}"
    with Admin(address) as admin, QueueAdmin(address) as queues, Producer(address) as producer:
        admin.create_topic(name, 1)
        queues.create_queue(name, name)
        producer.send(name, bytes(500_000))
    command = [*LOGBROKER, "queue", "work", name, "--print", "--broker", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT) as process:
        try:
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], 30)[0]
            yield name, process
        finally:
            process.kill()


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_does_not_wait_for_a_reader_that_reads_no_more(address: str, stop: signal.Signals) -> None:
    with held_up_printing(address) as (name, process):
        process.send_signal(stop)
        assert process.wait(30) == 0
    assert counts(address, name).acked == 0


@pytest.mark.prove
def test_two_stops_while_a_reader_is_waited_for_end_with_their_number(address: str) -> None:
    with held_up_printing(address) as (_, process):
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGHUP)
        assert process.wait(30) in (128 + signal.SIGTERM, 128 + signal.SIGHUP)


@pytest.mark.prove
def test_a_reader_that_goes_away_is_no_error_to_speak_of(address: str, group: str) -> None:
    command = " ".join([*LOGBROKER, "queue", "work", group, "--print", "--broker", address])
    result = subprocess.run(
        ["/bin/bash", "-c", f"{command} | head -1"], capture_output=True, env=ENVIRONMENT, timeout=60, check=False
    )
    assert len(result.stdout.splitlines()) == 1
    assert result.stderr == b""


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_stop_while_the_end_begins_to_be_looked_for_ends_that(
    address: str, group: str, monkeypatch: pytest.MonkeyPatch, has_begun: bool
) -> None:
    """A thread that looks on, which is no daemon, would keep the process for as long as anything waits."""
    start = threading.Thread.start
    begun: list[threading.Thread] = []

    def interrupted(thread: threading.Thread) -> None:
        if has_begun or thread.name != "until-end":
            start(thread)
        if thread.name == "until-end":
            begun.append(thread)
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with (
        ErrorWriter() as errors,
        Worker(address, group) as worker,
        pytest.raises(KeyboardInterrupt),
        _stopped_at_end(cast(Any, worker), address, group, errors),
    ):
        raise AssertionError("it was interrupted")
    [thread] = begun
    until(lambda: not thread.is_alive())


@pytest.mark.prove
@pytest.mark.parametrize("how", ["--print", "--exec"])
def test_a_record_that_was_lost_to_others_does_not_fail_a_clean_stop(
    address: str, group: str, tmp_path: Path, how: str
) -> None:
    """The broker's refusal is told when it comes, and not at a stop, hours later, as its failure."""
    begun, go = tmp_path / "begun", tmp_path / "go"
    script = f"cat > /dev/null; echo >> {begun}; while [ ! -e {go} ]; do sleep 0.01; done"
    arguments = ("--exec", script) if how == "--exec" else ("--print",)
    read, write = os.pipe()
    work = [*LOGBROKER, "queue", "work", group, *arguments, "--broker", address]
    process = subprocess.Popen(work, stdout=write, stderr=subprocess.PIPE, env=ENVIRONMENT)
    os.close(write)
    with process, open(read, "rb") as shown:
        try:
            if how == "--exec":
                until(begun.exists)
            else:  # It waits for the reader before it acks.
                until(lambda: unread_bytes(shown))
            with QueueAdmin(address) as queues:
                queues.rewind(group, "latest")
            go.touch()
            if how == "--print":
                shown.readline()
            refusal = line_of(process, error=True)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0, process.stderr and process.stderr.read()
        finally:
            process.kill()
    assert b", offset 0 was refused: " in refusal


@pytest.mark.parametrize(
    ("error", "in_doubt", "line"),
    [
        (LeaseLostError("why"), False, "logbroker: the settlement of t-0, offset 7 was refused: why\n"),
        (LeaseLostError("why"), True, "logbroker: the broker did not confirm the settlement of t-0, offset 7: why\n"),
        (
            UnknownGroupError("why"),
            True,
            "logbroker: the broker did not confirm the settlement of t-0, offset 7: why\n",
        ),
        (BrokerUnavailableError("the worker is closed"), True, ""),
        (BrokerUnavailableError("the worker is closed"), False, ""),
    ],
)
def test_only_the_broker_refuses_a_settlement(
    error: LogbrokerError, in_doubt: bool, line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The close of a worker tells of settlements that are unanswered at its end."""

    def result() -> None:
        raise error

    delivery = SimpleNamespace(topic="t", partition=0, offset=7, in_doubt=in_doubt, result=result)
    with ErrorWriter() as errors, _Refusals(errors) as refusals:
        refusals.settle(cast(Any, delivery), lambda: None)
    assert capfd.readouterr().err == line


@pytest.mark.prove
def test_a_refusal_is_told_once_on_a_terminal(address: str, group: str, tmp_path: Path) -> None:
    """There, the client's own warnings are shown as well."""
    begun, go = tmp_path / "begun", tmp_path / "go"
    script = f"cat > /dev/null; echo >> {begun}; while [ ! -e {go} ]; do sleep 0.01; done"
    work = [*LOGBROKER, "queue", "work", group, "--exec", script, "--max-records", "1", "--broker", address]
    terminal, its_end = os.openpty()
    with subprocess.Popen(work, stderr=its_end, env=ENVIRONMENT) as process:
        os.close(its_end)
        try:
            until(begun.exists)
            with QueueAdmin(address) as queues:
                queues.rewind(group, "latest")
            go.touch()
            said = b""
            with suppress(OSError):  # The end of a terminal.
                while some := os.read(terminal, 4096):
                    said += some
            assert process.wait(30) == 0, said
        finally:
            os.close(terminal)
            process.kill()
    [line] = said.decode().splitlines()
    assert line.startswith("logbroker: the settlement of ")


@pytest.mark.prove
def test_a_lease_that_ended_while_the_worker_was_frozen_does_not_fail_a_clean_stop(tmp_path: Path) -> None:
    """Such as with a machine that sleeps: the worker, whose clock alone says so, gives back what is not its own any
    more, and is refused that later."""
    told = "logbroker: the lease of t-0, offset {} was lost, and its command was killed: the record comes again"
    begun = tmp_path / "begun"
    with embedded() as broker:
        with Admin(broker.address) as admin, QueueAdmin(broker.address) as queues, Producer(broker.address) as producer:
            admin.create_topic("t", 1)
            queues.create_queue("q", "t", QueueSettings(lease_seconds=1.5))
            for number in range(4):
                producer.send("t", b"v", b"k%d" % number)
        work = [*LOGBROKER, "queue", "work", "q", "--concurrency", "4", "--broker", broker.address]
        work += ["--exec", f"echo >> {begun}; sleep 60; true"]
        with subprocess.Popen(work, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
            assert process.stderr is not None
            pipe = process.stderr.fileno()
            try:
                until(lambda: begun.exists() and begun.read_text() == 4 * "\n")
                process.send_signal(signal.SIGSTOP)
                with Worker(broker.address, "q") as other:
                    for delivery in itertools.islice(other, 4):
                        delivery.ack()
                os.kill(broker.pid, signal.SIGSTOP)
                process.send_signal(signal.SIGCONT)
                until(lambda: unread_bytes(pipe) >= 4 * len(told))
                os.kill(broker.pid, signal.SIGCONT)
                process.send_signal(signal.SIGTERM)
                assert process.wait(30) == 0, process.stderr.read()
                lines = process.stderr.read().decode().splitlines()
            finally:
                process.kill()
                os.kill(broker.pid, signal.SIGCONT)
    assert sorted(lines) == [told.format(offset) for offset in range(4)]


@pytest.mark.prove
def test_a_refusal_that_comes_long_after_a_stop_does_not_fail_it(tmp_path: Path) -> None:
    """The disk of the broker may be slow just then."""
    begun, go = tmp_path / "begun", tmp_path / "go"
    with embedded() as broker:
        with Admin(broker.address) as admin, QueueAdmin(broker.address) as queues, Producer(broker.address) as producer:
            admin.create_topic("t", 1)
            queues.create_queue("q", "t")
            producer.send("t", b"v")
        work = [*LOGBROKER, "queue", "work", "q", "--broker", broker.address]
        work += ["--exec", f"touch {begun}; while ! test -e {go}; do sleep 0.01; done"]
        with subprocess.Popen(work, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
            assert process.stderr is not None
            try:
                until(begun.exists)
                with QueueAdmin(broker.address) as queues:
                    queues.rewind("q", "latest")
                os.kill(broker.pid, signal.SIGSTOP)
                process.send_signal(signal.SIGTERM)
                assert line_of(process, error=True) == WAITING
                go.touch()
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(3)
                os.kill(broker.pid, signal.SIGCONT)
                assert process.wait(30) == 0, process.stderr.read()
                assert b", offset 0 was refused: " in process.stderr.read()
            finally:
                process.kill()
                os.kill(broker.pid, signal.SIGCONT)


FLOOD = "head -c 3000000 /dev/zero | tr '\\0' x >&2"
"""More than the pipe and the worker hold."""
HELD_BYTES = 1024 * 1024
"""The worker holds at least these before commands wait."""


def work_unread(address: str, group: str, script: str, *options: str) -> subprocess.Popen[bytes]:
    """Start a worker whose standard error nobody reads."""
    work = [*LOGBROKER, "queue", "work", group, "--exec", script, *options, "--broker", address]
    return subprocess.Popen(work, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=ENVIRONMENT)


@pytest.mark.prove
def test_a_timeout_nacks_though_nobody_reads_standard_error(address: str, group: str) -> None:
    with work_unread(address, group, "exec yes >&2", "--timeout", "0.5") as process:
        try:
            until(lambda: counts(address, group).nacked >= 2)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()


@pytest.mark.prove
def test_a_command_that_has_ended_is_acked_beside_the_unread_flood_of_another(
    address: str, group: str, tmp_path: Path
) -> None:
    go, own = tmp_path / "go", tmp_path / "pid"
    script = f"""
        if test $LOGBROKER_KEY = k0; then echo $$ > {own}; exec yes >&2; fi
        while ! test -e {go}; do sleep 0.01; done
        echo done >&2
    """

    written_bytes = 0

    def is_full() -> bool:
        """The flood stands: how much is held above HELD_BYTES depends on how much was read at a time."""
        nonlocal written_bytes
        counted = Path(f"/proc/{int(own.read_text())}/io").read_text().split()
        before, written_bytes = written_bytes, int(counted[counted.index("wchar:") + 1])
        return before == written_bytes > HELD_BYTES

    with work_unread(address, group, script, "--concurrency", "2") as process:
        try:
            until(lambda: own.exists() and own.read_text())
            until(is_full, 60)
            go.touch()
            until(lambda: counts(address, group).acked == 8)
        finally:
            process.kill()


@pytest.mark.prove
def test_one_stop_is_enough_beside_a_full_pipe_of_errors(address: str, group: str) -> None:
    """The command, which waits for the reader, could not end before."""
    with work_unread(address, group, f"{FLOOD}; exit 0") as process:
        assert process.stderr is not None
        pipe = process.stderr.fileno()
        try:
            until(lambda: unread_bytes(pipe) >= 65_536)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
    done = counts(address, group)
    assert (done.acked, done.in_flight) == (1, 0)
    assert done.delivered <= 2, "the next one may have been on its way, and came back"


@pytest.mark.prove
def test_stops_beside_a_full_pipe_of_errors_take_nothing_more(address: str, group: str) -> None:
    """After the second stop the same records were handed out and released a thousand times."""
    with work_unread(address, group, f"{FLOOD}; sleep 60") as process:
        assert process.stderr is not None
        pipe = process.stderr.fileno()
        try:
            until(lambda: unread_bytes(pipe) >= 65_536)
            process.send_signal(signal.SIGTERM)
            for _ in range(4):  # The system may make one signal of two.
                process.send_signal(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(8)
                    break
            assert process.poll() == 128 + signal.SIGTERM
        finally:
            process.kill()
    assert counts(address, group).delivered <= 2


@pytest.mark.prove
def test_a_short_pause_of_the_scan_is_not_the_end(address: str, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The scan pauses while the few lanes that may be stalled wait for their retries, and goes on after them."""
    queue = Queue(address, capfd)
    with Admin(queue.address) as admin, Producer(queue.address) as producer:
        admin.create_topic(name, 1)
        for number in range(16):
            producer.send_and_wait(name, bytes(200_000), b"key %d" % number)
    stalls = ("--max-held-lanes", "3", "--max-ready", "1", "--backoff", "0.8,1,1", "--jitter", "0")
    queue("create", name, "--topic", name, *stalls)
    queue("work", name, "--exec", 'test "$LOGBROKER_ATTEMPT" = 2', "--until-end")
    done = queue.json("describe", name)["counts"]
    assert (done["nacked"], done["unscanned"]) == (16, 0), "all came, though the last retries are not waited for"


@pytest.mark.parametrize(
    ("option", "left"),
    [
        ("--max-attempts=1", "1 lane blocked or parked (`logbroker queue parked {}`)"),
        ("--backoff=600,1,600", "1 lane waiting for a retry, a time or the dead-letter topic"),
    ],
)
def test_who_works_up_to_the_end_is_told_what_stays(
    address: str, topic: str, name: str, capfd: pytest.CaptureFixture[str], option: str, left: str
) -> None:
    work = ["queue", "work", name, "--exec", 'test "$LOGBROKER_KEY" != c2', "--until-end", "--broker", address]
    assert run(["queue", "create", name, "--topic", topic, option, "--broker", address]) == 0
    assert run(work) == 0
    assert f"logbroker: 4 records of queue group {name} left: {left.format(name)}\n" in capfd.readouterr().err


@pytest.mark.prove
def test_the_end_is_behind_the_letters_that_are_under_way(address: str, name: str) -> None:
    """Each record fails and goes to the dead-letter topic. Until its letter is written, no record is ready."""
    with Admin(address) as admin, Producer(address) as producer, QueueAdmin(address) as queues:
        admin.create_topic(name, 1)
        for number in range(30):
            producer.send_and_wait(name, b"%d" % number, b"k")
        queues.create_queue(name, name, QueueSettings(max_attempts=1, on_exhausted="dead-letter"))
    work = ["queue", "work", name, "--exec", "exit 1", "--until-end", "--broker", address]
    assert run(work) == 0
    done = counts(address, name)
    assert (done.waiting, done.dead_lettered) == (0, 30)


@pytest.fixture(params=["a device", "a file"])
def full_file(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file that cannot be written because its disk is full."""
    if request.param == "a device":
        if not os.path.exists("/dev/full"):
            pytest.skip("Linux has it")
        yield Path("/dev/full")
        return
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "logbroker-test", str(tmp_path)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user cannot mount a tmpfs")
    with suppress(OSError):
        (tmp_path / "output").write_bytes(bytes(1 << 20))
    yield tmp_path / "output"
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_full_disk_behind_a_command_uses_up_no_attempts(address: str, group: str, full_file: Path) -> None:
    command = [*LOGBROKER, "queue", "work", group, "--exec", "cat", "--until-end", "--broker", address]
    with full_file.open("ab") as out:
        result = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, env=ENVIRONMENT, timeout=60, check=False)
    told = result.stderr.decode().splitlines()
    assert result.returncode == 1
    assert told[-1] == "logbroker: standard output cannot be written: No space left on device"
    assert all(line.startswith("cat: ") for line in told[:-1])
    done = counts(address, group)
    assert (done.acked, done.nacked, done.in_flight) == (0, 0, 0)
    assert explain(address, group, b"k0").attempt == 1


@pytest.mark.prove
def test_the_end_of_what_can_be_scanned_is_an_end(
    address: str, topic: str, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The scan pauses when many lanes are stalled. Whoever waits for the end is told what is left."""
    queue = Queue(address, capfd)
    with Producer(queue.address) as producer:
        for number in range(10):
            producer.send_and_wait(topic, b"value", b"key %d" % number, partition=0)
    queue("create", name, "--topic", topic, "--max-held-lanes", "3", "--max-ready", "1", "--max-attempts", "1")
    error = queue("work", name, "--exec", "exit 1", "--until-end", exit_code=1)
    assert "records not scanned: too many lanes are stalled" in error
    assert queue.json("describe", name)["state"] == "paused"
    assert "paused: too many lanes are stalled" in queue("describe", name)
    explained = [queue("explain", name, f"c{number}") for number in range(5)]
    assert any("because too many lanes are stalled" in text for text in explained)


@pytest.mark.prove
def test_a_damaged_partition_has_an_end(logbroker_broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    queue = Queue(logbroker_broker.address, capsys)
    with Admin(queue.address) as admin, Producer(queue.address) as producer:
        admin.create_topic("damaged", 2)
        for number in range(20):
            producer.send_and_wait("damaged", bytes(100), b"key %d" % number, partition=number % 2)
    logbroker_broker.stop()
    [log] = (logbroker_broker.data_dir / "damaged-0").glob("*.log")
    content = bytearray(log.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 20] = bytes(20)
    log.write_bytes(content)
    logbroker_broker.start()
    queue("create", "group", "--topic", "damaged")
    error = queue("work", "group", "--exec", "true", "--until-end", exit_code=1)
    assert "partition 0 is not served to its end: " in error
    assert queue.json("describe", "group")["counts"]["acked"] >= 10


def test_records_that_wait_for_damage_from_before_a_growth_are_an_end(
    logbroker_broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = Queue(logbroker_broker.address, capsys)
    with Admin(queue.address) as admin:
        admin.create_topic("grown", 2)
        for count in (2, 3):
            if count == 3:
                admin.alter_topic("grown", partitions=count)
            with Producer(queue.address) as producer:
                for number in range(count):
                    producer.send_and_wait("grown", bytes(100), b"key", partition=number)
    logbroker_broker.stop()
    [log] = (logbroker_broker.data_dir / "grown-1").glob("*.log")
    log.write_bytes(bytes(100) + log.read_bytes()[100:])
    logbroker_broker.start()
    queue("create", "group", "--topic", "grown")
    error = queue("work", "group", "--exec", "true", "--until-end", exit_code=1)
    assert "partition 0 is not served to its end: it waits for records of partition 1 from before the topic" in error
    assert str(log) in error
    described = queue.json("describe", "group")
    assert described["counts"]["acked"] == 1
    assert [bool(partition["error"]) for partition in described["partitions"]] == [True, True, True]
