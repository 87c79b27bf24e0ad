"""Commands whose reader goes away or takes its time, or whose output's disk is full."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from logbroker.client.sync import Admin, Producer, QueueAdmin, QueueCounts, TopicPartition, Worker
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import UnknownGroupError
from tests.cli.command import ENVIRONMENT, LOGBROKER, line_of, output_of, unread_bytes
from tests.waiting import until

COUNT = 2000
"""Records, of which a pipe holds most."""


@pytest.fixture(scope="module")
def full(logbroker_session_broker: EmbeddedBroker) -> str:
    """A topic of one partition with the numbers from 0 on."""
    address = logbroker_session_broker.address
    name = f"t-{uuid.uuid4()}"
    with Admin(address) as admin, Producer(address) as producer:
        admin.create_topic(name, 1)
        for number in range(COUNT):
            producer.send(name, b"%d" % number)
    return name


@pytest.fixture
def queue_group(address: str, full: str, name: str) -> str:
    with QueueAdmin(address) as queues:
        queues.create_queue(name, full)
    return name


def committed(address: str, group: str, topic: str) -> int:
    """0 as well where nothing was committed."""
    with Admin(address) as admin, suppress(UnknownGroupError):
        found = admin.fetch_offsets(group).get(TopicPartition(topic, 0))
        return 0 if found is None else found.offset
    return 0


def counts(address: str, group: str) -> QueueCounts:
    with QueueAdmin(address) as queues:
        return queues.describe_queue(group).counts


def head(address: str, lines: int, *arguments: str) -> list[bytes]:
    """Run a command behind `| head`, which must both end well and say nothing else."""
    command = [*LOGBROKER, *arguments, "--broker", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
        assert process.stderr is not None
        try:
            shown = subprocess.run(
                ["head", "-n", str(lines)], stdin=process.stdout, capture_output=True, check=True, timeout=60
            )
            assert process.stdout is not None
            process.stdout.close()
            assert process.wait(60) == 0, process.stderr.read()
            assert process.stderr.read() == b""
        finally:
            process.kill()
    return shown.stdout.splitlines()


@pytest.mark.prove
def test_a_group_goes_on_behind_what_the_reader_of_its_output_has_taken(address: str, full: str, name: str) -> None:
    """`head` takes a block at a time, so up to a sixteenth more may count than it shows; never what lay in the pipe."""
    for shown in (1, 1, 3, 20):
        before = committed(address, name, full)
        lines = head(address, shown, "consume", full, "--group", name)
        assert lines == [b"%d" % number for number in range(before, before + shown)]
        assert before + shown <= committed(address, name, full) <= before + shown + 2


def test_records_of_a_queue_group_are_acked_when_the_reader_has_taken_them(address: str, queue_group: str) -> None:
    shown = head(address, 3, "queue", "work", queue_group, "--print")
    assert [int(json.loads(line)["value"]) for line in shown] == [0, 1, 2]
    assert 3 <= counts(address, queue_group).acked <= 4
    assert counts(address, queue_group).nacked == 0


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("shown", [0, 1])
@pytest.mark.parametrize("command", ["consume", "consume --group", "work"])
def test_a_reader_that_goes_is_noticed_while_nothing_comes(address: str, name: str, command: str, shown: int) -> None:
    with Admin(address) as admin, Producer(address) as producer, QueueAdmin(address) as queues:
        admin.create_topic(name, 1)
        if shown:
            producer.send_and_wait(name, b"0")
        queues.create_queue(name, name)
    arguments = {
        "consume": ("consume", name),
        "consume --group": ("consume", name, "--group", f"{name}-g"),
        "work": ("queue", "work", name, "--print"),
    }
    assert len(head(address, shown, *arguments[command])) == shown
    if command == "work":
        assert counts(address, name).acked == shown
        assert workers(address, name) == 0
    elif command == "consume --group":
        assert committed(address, f"{name}-g", name) == shown


def test_another_pipe_that_loses_its_reader_ends_nothing(address: str, name: str) -> None:
    with Admin(address) as admin, Producer(address) as producer:
        admin.create_topic(name, 1)
        producer.send_and_wait(name, b"first")
        command = [*LOGBROKER, "consume", name, "--max-records", "2", "--broker", address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
            assert line_of(process) == b"first\n"
            process.send_signal(signal.SIGPIPE)
            producer.send_and_wait(name, b"second")
            assert line_of(process) == b"second\n"
            assert process.wait(30) == 0


@pytest.mark.prove
@pytest.mark.parametrize("way", ["group", "work"])
def test_a_slow_reader_is_waited_for(address: str, full: str, queue_group: str, way: str) -> None:
    """As a shell loop reads that works on each record. What it has not taken is not delivered, and the user is told."""
    arguments = {
        "group": ("consume", full, "--group", f"g-{queue_group}"),
        "work": ("queue", "work", queue_group, "--print"),
    }[way]
    command = [*LOGBROKER, *arguments, "--broker", address]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT, bufsize=0
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            while (read := process.stdout.read(1)) != b"\n":
                assert read
            assert select.select([process.stderr], [], [], 60)[0]
            assert b"waiting for the reader of standard output" in process.stderr.readline()
            process.stdout.close()
            assert process.wait(60) == 0
        finally:
            process.kill()
    delivered = committed(address, f"g-{queue_group}", full) if way == "group" else counts(address, queue_group).acked
    assert delivered == 1


def test_commands_do_not_fail_because_the_reader_of_their_output_is_gone(address: str, queue_group: str) -> None:
    """They would use up the attempts of every record."""
    assert head(address, 1, "queue", "work", queue_group, "--exec", "cat; echo") == [b"0"]
    assert counts(address, queue_group).nacked == 0
    assert counts(address, queue_group).in_flight == 0


def test_what_goes_into_a_file_is_committed(address: str, full: str, name: str, tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        command = [*LOGBROKER, "consume", full, "--group", name, "--max-records", "700", "--broker", address]
        subprocess.run(command, stdout=out, env=ENVIRONMENT, timeout=60, check=True)
    assert committed(address, name, full) == len((tmp_path / "out").read_bytes().splitlines()) == 700


STREAMS = [
    ("consume", "TOPIC", "--until-end"),
    ("consume", "TOPIC", "--until-end", "--json"),
    ("consume", "TOPIC", "--group", "GROUP", "--until-end"),
    ("queue", "work", "QUEUE", "--print"),
    ("topic", "list"),
    ("topic", "describe", "TOPIC", "--json"),
    ("group", "list"),
    ("queue", "describe", "QUEUE"),
    ("--help",),
    ("produce", "--help"),
]


def run_into(out: int, address: str, arguments: tuple[str, ...], **names: str) -> tuple[int, bytes]:
    named = [names.get(argument, argument) for argument in arguments]
    command = [*LOGBROKER, *named, *(() if "--help" in named else ("--broker", address))]
    result = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, env=ENVIRONMENT, timeout=60, check=False)
    return result.returncode, result.stderr


@pytest.mark.prove
@pytest.mark.parametrize("arguments", STREAMS)
def test_nobody_who_reads_is_no_failure(address: str, full: str, queue_group: str, arguments: tuple[str, ...]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        outcome = run_into(write_end, address, arguments, TOPIC=full, GROUP=f"g-{full}", QUEUE=queue_group)
    finally:
        os.close(write_end)
    assert outcome == (0, b"")
    assert committed(address, f"g-{full}", full) == 0
    assert counts(address, queue_group).acked == 0


@pytest.mark.prove(keep=1)
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has it")
@pytest.mark.parametrize("arguments", STREAMS)
def test_a_full_disk_is_one_line(address: str, full: str, queue_group: str, arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as out:
        code, said = run_into(out.fileno(), address, arguments, TOPIC=full, GROUP=f"f-{full}", QUEUE=queue_group)
    assert (code, said) == (1, b"logbroker: standard output cannot be written: No space left on device\n")
    assert committed(address, f"f-{full}", full) == 0
    assert counts(address, queue_group).acked == 0


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("arguments", STREAMS)
def test_without_standard_output_nothing_counts_as_delivered(
    address: str, full: str, queue_group: str, arguments: tuple[str, ...]
) -> None:
    """Records that nobody can have seen are neither committed nor acked, nor handed out at all."""
    names = {"TOPIC": full, "GROUP": f"w-{full}", "QUEUE": queue_group}
    named = [names.get(argument, argument) for argument in arguments]
    code, said = run_closed(">&-", *named, *(() if "--help" in named else ("--broker", address)))
    assert (code, said) == (1, b"logbroker: standard output is closed: let it go into a file, a pipe or /dev/null\n")
    assert committed(address, f"w-{full}", full) == 0
    done = counts(address, queue_group)
    assert (done.acked, done.delivered) == (0, 0)


CLOSED = (">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-")


def run_closed(redirected: str, *arguments: str) -> tuple[int, bytes]:
    command = ["sh", "-c", f'"$@" {redirected}', "sh", *LOGBROKER, *arguments]
    nothing, piped = subprocess.DEVNULL, subprocess.PIPE
    result = subprocess.run(
        command, stdin=nothing, stdout=nothing, stderr=piped, env=ENVIRONMENT, timeout=60, check=False
    )
    return result.returncode, result.stderr


@pytest.mark.prove
@pytest.mark.parametrize("redirected", CLOSED)
def test_what_is_done_is_done_without_streams(address: str, full: str, name: str, redirected: str) -> None:
    """A program that was started without them must not take what it opens next for them."""
    broker = ("--broker", address)
    for arguments in (
        ("topic", "create", name),
        ("produce", name),
        ("queue", "create", name, "--topic", full),
        ("queue", "work", name, "--exec", "cat && echo done", "--max-records", "2"),
        ("queue", "delete", name, "--yes"),
        ("topic", "delete", name, "--yes"),
    ):
        if arguments[1] == "delete" and arguments[0] == "queue":
            assert counts(address, name).acked == 2, "its commands have the streams, too"
        assert run_closed(redirected, *arguments, *broker) == (0, b""), arguments


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("redirected", CLOSED)
def test_a_broker_serves_without_streams(tmp_path: Path, redirected: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    serve = ["serve", "--data-dir", str(tmp_path / "data"), "--listen", address]
    command = ["sh", "-c", f'exec "$@" {redirected}', "sh", *LOGBROKER, *serve]
    nothing = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, env=ENVIRONMENT) as process:
        try:
            output_of("topic", "create", "t", "--wait", "30", "--broker", address)
            process.terminate()
            assert process.wait(30) == 0
        finally:
            process.kill()


@pytest.mark.prove
def test_a_worker_stops_at_the_end_where_it_is_told_to(address: str, queue_group: str) -> None:
    """With what is ready, and what is with other workers; what waits for a retry is left."""
    lines = output_of("queue", "work", queue_group, "--print", "--until-end", "--broker", address).splitlines()
    assert [int(json.loads(line)["value"]) for line in lines] == list(range(COUNT))
    assert output_of("queue", "work", queue_group, "--print", "--until-end", "--broker", address) == b""
    assert counts(address, queue_group).acked == COUNT


@pytest.mark.prove
def test_a_worker_that_stops_at_the_end_waits_for_what_others_hold(address: str, name: str) -> None:
    topic = f"t-{uuid.uuid4()}"
    with Admin(address) as admin, QueueAdmin(address) as queues, Producer(address) as producer:
        admin.create_topic(topic, 1)
        queues.create_queue(name, topic)
        producer.send(topic, b"1", b"k")
        producer.send(topic, b"2", b"k")
    with Worker(address, name) as other:
        held = next(iter(other))
        command = [*LOGBROKER, "queue", "work", name, "--print", "--until-end", "--broker", address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT) as process:
            try:
                deadline = time.monotonic() + 30
                while workers(address, name) < 2:
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
                held.ack()
                other.flush()
                assert json.loads(line_of(process))["value"] == "2"
                assert process.wait(30) == 0
            finally:
                process.kill()


def workers(address: str, group: str) -> int:
    with QueueAdmin(address) as queues:
        return len(queues.describe_queue(group).workers)


@pytest.mark.prove
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("way", ["plain", "group", "work"])
def test_a_stop_does_not_wait_for_a_reader_that_takes_nothing(
    address: str, full: str, queue_group: str, way: str, stop: signal.Signals
) -> None:
    """Output left in buffers when the command ends would be waited for until its pipe has room: for ever."""
    arguments = {
        "plain": ("consume", full, "--format", "json"),
        "group": ("consume", full, "--group", f"g-{queue_group}"),
        "work": ("queue", "work", queue_group, "--print"),
    }[way]
    process = subprocess.Popen(
        [*LOGBROKER, *arguments, "--broker", address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        pipesize=4096,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        pipe = process.stdout.fileno()
        try:
            until(lambda: unread_bytes(pipe) > (3000 if way == "plain" else 0))
            process.send_signal(stop)
            code = process.wait(20)
            error = process.stderr.read()
        finally:
            process.kill()
    if way == "work" or (way == "group" and stop is not signal.SIGINT):
        assert code == 0
    else:  # Without a group there is nothing to let go of.
        assert code == (130 if stop is signal.SIGINT else -stop)
    assert error.strip() == b""


WRITES_PIECES = """
from logbroker.cli.common.standard_output import end_standard_output, take_standard_streams
import sys
take_standard_streams()
try:
    for number in range(1 << 30):
        sys.stdout.buffer.write(b"%0107d\\n" % number * 60)
        sys.stdout.buffer.flush()
except KeyboardInterrupt:
    end_standard_output()
"""
"""A program whose output has each number sixty times."""


@pytest.mark.parametrize("taken", range(4))
def test_an_interrupt_in_the_middle_of_a_write_repeats_nothing(taken: int) -> None:
    """How much of it was written is not known, so it is the last: what the reader has is a beginning of the output."""
    with subprocess.Popen([sys.executable, "-c", WRITES_PIECES], stdout=subprocess.PIPE, env=ENVIRONMENT) as process:
        assert process.stdout is not None
        try:
            fd = process.stdout.fileno()
            got = b""
            for _ in range(taken + 1):
                until(lambda: unread_bytes(fd) > 40_000 and is_asleep(process.pid))
                got += os.read(fd, 4096)
            until(lambda: is_asleep(process.pid))
            process.send_signal(signal.SIGINT)
            until(lambda: not signal_is_pending(process.pid, signal.SIGINT))
            while more := os.read(fd, 65536):
                got += more
            assert process.wait(30) == 0
        finally:
            process.kill()
    whole = b"".join(b"%0107d\n" % number * 60 for number in range(len(got) // 6480 + 1))
    assert whole.startswith(got)


def is_asleep(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def signal_is_pending(pid: int, number: int) -> bool:
    [pending] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("ShdPnd")]
    return bool(int(pending.split()[1], 16) >> (number - 1) & 1)


@pytest.mark.prove
def test_the_last_words_of_a_command_do_not_wait_for_ever() -> None:
    """A broker whose storage has failed would look alive to those who would restart it."""
    reader, writer = os.pipe()
    try:
        os.set_blocking(writer, False)
        with suppress(BlockingIOError):
            while True:
                os.write(writer, bytes(4096))
        os.set_blocking(writer, True)
        with subprocess.Popen([*LOGBROKER, "topic", "list", "--broker", "nobody:1"], stderr=writer) as process:
            try:
                assert process.wait(60) == 1
            finally:
                process.kill()
    finally:
        os.close(reader)
        os.close(writer)
