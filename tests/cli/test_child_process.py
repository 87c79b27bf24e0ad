"""The commands of `queue work --exec`, as processes that do whatever they like."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pytest

from logbroker.cli.common import error_writer
from logbroker.cli.common.child_process import CommandOutcome, CommandRunner
from tests.waiting import until

WHOLE_SECONDS = 60
"""Timeout that no test waits for."""


@contextmanager
def runner(script: str, timeout_seconds: float | None = WHOLE_SECONDS) -> Iterator[CommandRunner]:
    with CommandRunner(script, timeout_seconds) as commands:
        yield commands


def run(script: str, value: bytes = b"", timeout_seconds: float | None = WHOLE_SECONDS) -> CommandOutcome:
    with runner(script, timeout_seconds) as commands:
        return commands.run(value, os.environb, lambda: True)


def lives(pid: int) -> bool:
    """Whether a process runs; nobody may have taken note of its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def pid_in(path: Path) -> int:
    until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.fixture(params=[True, False], ids=["pidfd", "polled"])
def either_wait(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system tells of the end of a process, and where it does not."""
    if not request.param:
        monkeypatch.delattr(os, "pidfd_open", raising=False)


@pytest.mark.usefixtures("either_wait")
@pytest.mark.parametrize(
    ("script", "status", "last_line"),
    [
        ("cat >/dev/null", 0, ""),
        ("echo first >&2; echo; printf '\\n last \\n\\n' >&2; exit 3", 3, "last"),
        ("printf 'no end of line' >&2; exit 255", 255, "no end of line"),
        ("printf '\\377\\n' >&2; kill -9 $$", -signal.SIGKILL, "\ufffd"),
        ("exec 2>&-; exit 4", 4, ""),
        ("exec 2>&- 0<&-; sleep 0.05; exit 5", 5, ""),
        ("no-such-command-at-all", 127, "not found"),
    ],
)
def test_how_it_ended(script: str, status: int, last_line: str, capfd: pytest.CaptureFixture[str]) -> None:
    ended = run(script, b"x" * 1_000_000)
    assert (ended.status, ended.killed_by) == (status, None)
    assert last_line in ended.last_line


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize(
    "script", ["exit 0", "exec <&-; exit 0", "head -c 5 >/dev/null", "read line; exit 0", "cat >/dev/null"]
)
def test_what_it_does_not_read_is_its_own_affair(script: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(script, b"x" * 5_000_000) == CommandOutcome(0, None, "")


def test_it_gets_the_whole_value(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("test $(wc -c) = 5000000", b"x" * 5_000_000) == CommandOutcome(0, None, "")


@pytest.mark.usefixtures("either_wait")
def test_it_is_over_though_a_background_child_holds_its_standard_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with runner(f"sleep {WHOLE_SECONDS} & echo $! > {tmp_path}/pid; echo told >&2") as commands:
        assert commands.run(b"", os.environb, lambda: True) == CommandOutcome(0, None, "told")
        pid = pid_in(tmp_path / "pid")
        assert lives(pid)
        os.kill(pid, signal.SIGKILL)


def test_a_background_child_may_go_on_writing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It would be killed by SIGPIPE, unseen, if nobody held the pipe any more."""
    go, done = tmp_path / "go", tmp_path / "done"
    script = f"(while ! test -e {go}; do sleep 0.01; done; echo late >&2; touch {done}) & exit 0"
    with runner(script) as commands:
        assert commands.run(b"", os.environb, lambda: True) == CommandOutcome(0, None, "")
        go.touch()
        until(done.exists)
        heard = ""

        def is_heard() -> bool:
            nonlocal heard
            heard += capfd.readouterr().err
            return "late" in heard

        until(is_heard)


ESCAPES = {
    "child": "sleep {0} & echo $! > {1}; wait",
    "grandchild": "(sleep {0} & echo $! > {1}; wait); true",
    "group of its own": "set -m; sleep {0} & echo $! > {1}; set +m; wait",
    "timeout": "timeout {0} sh -c 'echo $$ > {1}; sleep {0}; true'; true",
    "stopped": "echo $$ > {1}; kill -STOP $$",
    "deaf": "trap '' TERM INT HUP; echo $$ > {1}; sleep {0}; true",
}


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize(
    ("how", "script"), [("timeout", "group of its own"), *((how, name) for how in ("stop", "loss") for name in ESCAPES)]
)
@pytest.mark.usefixtures("either_wait")
def test_what_is_killed_is_killed_with_all_its_children(
    script: str, how: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pid"
    # The timeout begins with the command, which has to come as far as to tell its number.
    with (
        runner(ESCAPES[script].format(WHOLE_SECONDS, path), 1.5 if how == "timeout" else None) as commands,
        ThreadPoolExecutor(1) as pool,
    ):
        wanted = threading.Event()
        wanted.set()
        running = pool.submit(commands.run, b"", os.environb, wanted.is_set)
        pid = pid_in(path)
        if how == "stop":
            commands.kill_all()
        elif how == "loss":
            wanted.clear()
        ended = running.result(WHOLE_SECONDS / 2)
    assert (ended.status, ended.killed_by) == (-signal.SIGKILL, how)
    until(lambda: not lives(pid))


@pytest.mark.parametrize("how", ["timeout", "stop"])
def test_who_has_left_the_session_holds_up_nothing(how: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pid"
    script = f"setsid sh -c 'echo $$ > {path}; exec sleep {WHOLE_SECONDS}' & sleep {WHOLE_SECONDS}"
    with runner(script, 1.5 if how == "timeout" else None) as commands, ThreadPoolExecutor(1) as pool:
        running = pool.submit(commands.run, b"", os.environb, lambda: True)
        pid = pid_in(path)
        if how == "stop":
            commands.kill_all()
        assert running.result(WHOLE_SECONDS / 2).killed_by == how
        assert lives(pid)
        os.kill(pid, signal.SIGKILL)


def test_nothing_is_begun_after_a_stop(capfd: pytest.CaptureFixture[str]) -> None:
    with runner(f"sleep {WHOLE_SECONDS}", None) as commands:
        commands.kill_all()
        commands.kill_all()
        assert commands.run(b"", os.environb, lambda: True).killed_by == "stop"


def test_many_at_once_are_each_their_own(capfd: pytest.CaptureFixture[str]) -> None:
    with runner("read n; echo line $n >&2; exit $n") as commands, ThreadPoolExecutor(8) as pool:
        ended = list(pool.map(lambda n: commands.run(b"%d\n" % n, os.environb, lambda: True), range(40)))
    assert ended == [CommandOutcome(n, None, f"line {n}") for n in range(40)]
    assert sorted(capfd.readouterr().err.splitlines()) == sorted(f"line {n}" for n in range(40))


def test_of_what_it_writes_only_the_end_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull, "wb") as nothing:
        monkeypatch.setattr(error_writer, "raw_errors", lambda: nothing)
        script = "head -c 50000000 /dev/zero | tr '\\0' x >&2; yes | head -c 9000000 >&2; echo end >&2; exit 1"
        tracemalloc.start()
        try:
            ended = run(script)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert ended == CommandOutcome(1, None, "end")
    assert peak < 8 * 1024 * 1024


class Pipe(NamedTuple):
    reader: BinaryIO
    writer: BinaryIO


@pytest.fixture
def blocked_errors(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    """Standard error into a pipe that nobody reads but the test."""
    read_fd, write_fd = os.pipe()
    with open(read_fd, "rb", buffering=0) as reader, open(write_fd, "wb", buffering=0) as writer:
        os.set_blocking(read_fd, False)
        monkeypatch.setattr(error_writer, "raw_errors", lambda: writer)
        yield Pipe(reader, writer)
        # Before the descriptor is another file's.
        until(lambda: reader.read(65536) is None and not any(map(is_writer, threading.enumerate())))


def is_writer(thread: threading.Thread) -> bool:
    return thread.name == "logbroker-stderr"


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("how", ["timeout", "stop"])
def test_where_nobody_reads_standard_error_it_is_killed_all_the_same(
    how: str, blocked_errors: Pipe, tmp_path: Path
) -> None:
    path = tmp_path / "pid"
    script = f"echo $$ > {path}; exec yes >&2"
    with runner(script, 1.5 if how == "timeout" else None) as commands, ThreadPoolExecutor(1) as pool:
        running = pool.submit(commands.run, b"", os.environb, lambda: True)
        pid = pid_in(path)
        until(lambda: not commands.errors.offer(b""))  # It is full: the command waits.
        if how == "stop":
            commands.kill_all()
        until(lambda: not lives(pid))
        assert running.result(WHOLE_SECONDS / 2).killed_by == how


@pytest.mark.prove
def test_what_is_dropped_where_nobody_reads_is_counted_and_told(blocked_errors: Pipe) -> None:
    """Commands that have ended leave nothing in memory but what there was room for."""
    received = bytearray()

    def has_received(end: bytes) -> bool:
        received.extend(blocked_errors.reader.read(65536) or b"")
        return received.endswith(end)

    with runner("yes | head -c 600000 >&2") as commands:
        commands.errors.is_stopping = True
        for _ in range(20):
            assert commands.run(b"", os.environb, lambda: True) == CommandOutcome(0, None, "y")
        until(lambda: has_received(b" bytes of standard error were dropped: nobody read them\n"))
    ours = received.index(b"logbroker: ")
    dropped = int(received[ours:].split()[1].replace(b",", b""))
    assert ours + dropped == 20 * 600_000
    assert ours < 2 * 1024 * 1024
    assert received[:ours] == b"y\n" * (ours // 2)


@pytest.mark.prove
@pytest.mark.parametrize(("is_blocking", "pause_seconds"), [(True, 0.08), (False, 0.001)])
def test_a_slow_reader_gets_every_byte(
    is_blocking: bool, pause_seconds: float, blocked_errors: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what waits for room longer than a reader may stand still, and what is left at the end."""
    monkeypatch.setattr(error_writer, "PATIENCE_SECONDS", 0.8)
    monkeypatch.setattr(error_writer, "_BEHIND_BYTES", 16 * 1024)
    os.set_blocking(blocked_errors.writer.fileno(), is_blocking)
    count, lines = 5, 7500
    received = bytearray()

    def read_slowly() -> None:
        while len(received) < count * lines * 8:
            received.extend(blocked_errors.reader.read(4096) or b"")
            time.sleep(pause_seconds)

    reader = threading.Thread(target=read_slowly, daemon=True)
    with runner(f"read n; seq -f $n%06.0f {lines} >&2; exit $n") as commands, ThreadPoolExecutor(count) as pool:
        running = [pool.submit(commands.run, b"%d\n" % n, os.environb, lambda: True) for n in range(count)]
        until(lambda: not commands.errors.offer(b""))
        reader.start()
        assert [each.result(WHOLE_SECONDS) for each in running] == [
            CommandOutcome(n, None, f"{n}007500") for n in range(count)
        ]
    assert not any(map(is_writer, threading.enumerate()))  # All is written.
    reader.join(WHOLE_SECONDS / 2)
    assert sorted(received.decode().splitlines()) == [f"{n}{line:06}" for n in range(count) for line in range(1, 7501)]


def test_an_environment_that_is_too_large_is_an_error_of_its_own() -> None:
    with runner("true") as commands:
        with pytest.raises(OSError, match=os.strerror(errno.E2BIG)) as caught:
            commands.run(b"", {b"A%d" % n: b"x" * 100_000 for n in range(100)}, lambda: True)
        assert caught.value.errno == errno.E2BIG
        assert commands.run(b"", os.environb, lambda: True) == CommandOutcome(0, None, "")


def test_nothing_is_left_open(capfd: pytest.CaptureFixture[str]) -> None:
    run("true")  # What is loaded once.
    before = sorted(os.listdir("/proc/self/fd"))
    run("sleep 0.01 & echo told >&2")
    with runner("true") as commands:
        for _ in range(20):
            commands.run(b"value", os.environb, lambda: True)
    until(lambda: sorted(os.listdir("/proc/self/fd")) == before)


GUARDED = """
import os, sys
from logbroker.cli.common.child_process import CommandRunner
with CommandRunner(sys.argv[1], None) as commands:
    commands.run(b"", os.environb, lambda: True)
    commands.run(b"", os.environb, lambda: True)
"""


def test_who_is_killed_takes_its_commands_along(tmp_path: Path) -> None:
    """But not those that have ended, nor what they left in the background."""
    first, left, second = (tmp_path / name for name in ("first", "left", "second"))
    script = (
        f"if test -e {first}; then echo $$ > {second}; sleep {WHOLE_SECONDS}; fi; "
        f"echo $$ > {first}; sleep {WHOLE_SECONDS} & echo $! > {left}"
    )
    with subprocess.Popen([sys.executable, "-c", GUARDED, script]) as process:
        pid, background = pid_in(second), pid_in(left)
        assert lives(pid)
        process.kill()
    until(lambda: not lives(pid))
    assert lives(background)
    os.kill(background, signal.SIGKILL)


KILLED_EARLY = """
import os, signal, sys
from logbroker.cli.common import child_process
def killed(guard, pid):
    with open(sys.argv[2], "w") as file:
        print(pid, file=file)
    os.kill(os.getpid(), signal.SIGKILL)
child_process._Guard.started = killed
with child_process.CommandRunner(sys.argv[1], None) as commands:
    commands.run(b"", os.environb, lambda: True)
"""


def test_a_command_that_the_guard_does_not_know_has_not_begun(tmp_path: Path) -> None:
    begun, started = tmp_path / "begun", tmp_path / "started"
    subprocess.run([sys.executable, "-c", KILLED_EARLY, f"touch {begun}; sleep 60", str(started)], check=False)
    until(lambda: not lives(pid_in(started)))
    assert not begun.exists()
