"""`logbroker queue work`: records to a command, or to standard output. As processes, as a user runs it."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import uuid
from pathlib import Path

import pytest

from logbroker.client.sync import Admin, LaneDescription, Producer, QueueAdmin, QueueCounts, QueueSettings
from tests.cli.command import ENVIRONMENT, LOGBROKER, line_of, logbroker, output_of

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


def test_what_no_environment_holds_is_left_out(address: str) -> None:
    """Keys with NULs or of a megabyte reach the command all the same, which reads the value."""
    group = f"q-{uuid.uuid4()}"
    with Admin(address) as admin, QueueAdmin(address) as queues, Producer(address) as producer:
        admin.create_topic(group, 1)
        queues.create_queue(group, group)
        for key in (b"a\0b", b"x" * 1_000_000, b"", None):
            producer.send(group, b"v", key, headers=(("nul", b"\0"),))
    out = output_of(
        *("queue", "work", group, "--exec", 'echo "${LOGBROKER_KEY-none} ${LOGBROKER_KEY_BASE64-none} $(cat)"'),
        *("--max-records", "4", "--broker", address),
    )
    assert sorted(out.splitlines()) == sorted([b"none YQBi v", b"none none v", b"  v", b"none none v"])
    assert counts(address, group).acked == 4


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
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
            assert process.wait(30) == 130
            assert process.stderr.read().strip() == b""
        finally:
            process.kill()
    done = counts(address, group)
    assert (done.acked, done.nacked, done.in_flight) == (1, 0, 0)


def test_a_second_stop_kills_the_command_and_gives_back_its_record(address: str, group: str, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = [*LOGBROKER, "queue", "work", group, "--broker", address]
    command += ["--exec", f"echo $$ > {pids}; echo begun; sleep 60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
        try:
            assert line_of(process) == b"begun\n"
            assert process.stderr is not None
            process.send_signal(signal.SIGINT)
            assert line_of(process, error=True) == WAITING
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
            assert process.stderr.read().strip() == b""
        finally:
            process.kill()
    wait_for_end(int(pids.read_text()))
    done = counts(address, group)
    assert (done.acked, done.nacked, done.in_flight) == (0, 0, 0)


def test_a_reader_that_goes_away_is_no_error_to_speak_of(address: str, group: str) -> None:
    command = " ".join([*LOGBROKER, "queue", "work", group, "--print", "--broker", address])
    result = subprocess.run(
        ["/bin/bash", "-c", f"{command} | head -1"], capture_output=True, env=ENVIRONMENT, timeout=60, check=False
    )
    assert len(result.stdout.splitlines()) == 1
    assert result.stderr == b""
