"""`logbroker demo`: it works, and it would say so if it did not."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logbroker.cli.common.input_formats import InputRecord
from logbroker.cli.demo import check_order
from logbroker.client import Record
from logbroker.errors import LogbrokerError
from tests.cli.command import ENVIRONMENT, LOGBROKER, failure_of, logbroker, output_of


@pytest.mark.prove
def test_all_flights_come_back_and_a_table_tells_of_them() -> None:
    out = output_of("demo").decode()
    for words in ("27,004", "3,149 aircraft", "records/s", "partition"):
        assert words in out


@pytest.mark.prove
def test_programs_get_json() -> None:
    outcome = json.loads(output_of("demo", "--json"))
    assert outcome["records"] == sum(outcome["partition_records"]) == 27_004
    assert len(outcome["partition_bytes"]) == 8


def test_the_flights_are_written_as_csv(tmp_path: Path) -> None:
    output_of("demo", "--csv", tmp_path / "flights.csv")
    written = (tmp_path / "flights.csv").read_bytes()
    lines = written.splitlines()
    assert len(lines) == 27_005
    assert lines[0].startswith(b"year,month,day,")
    assert b",N14228," in lines[1]
    assert output_of("demo", "--csv", "-") == written


def test_a_csv_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    place = tmp_path / "missing" / "flights.csv"
    assert str(place) in failure_of("demo", "--csv", place)
    assert logbroker("demo", "--csv", "-", "--json").returncode == 2


def test_a_csv_file_that_was_not_written_to_its_end_is_none(tmp_path: Path) -> None:
    """A pipe whose reader has enough is no failure."""
    place, pipe = tmp_path / "flights.csv", tmp_path / "pipe"
    limited = ["bash", "-c", 'ulimit -f 100; exec "$@"', "-", *LOGBROKER, "demo", "--csv", str(place)]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=60, env=ENVIRONMENT, check=False)
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert not place.exists()
    os.mkfifo(pipe)
    with subprocess.Popen(["head", "-n", "2", str(pipe)], stdout=subprocess.PIPE, text=True) as reader:
        done = subprocess.run(
            [*LOGBROKER, "demo", "--csv", str(pipe)], capture_output=True, text=True, timeout=60, check=False
        )
        assert len(reader.communicate(timeout=60)[0].splitlines()) == 2
    assert (done.returncode, done.stderr) == (0, "")
    assert pipe.exists()


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_an_existing_file_is_not_overwritten(tmp_path: Path, more: tuple[str, ...]) -> None:
    place = tmp_path / "mine.csv"
    place.write_bytes(b"mine")
    result = logbroker("demo", "--csv", place, *more)
    assert result.returncode == (2 if more else 1)
    assert place.read_bytes() == b"mine"
    assert more or "exists; name another file" in result.stderr.decode()
    # What is no file takes bytes, as it does from any command.
    assert output_of("demo", "--csv", "/dev/null") == b""


def _runs(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False


OWN_BROKERS = pytest.mark.parametrize(
    "command",
    [("demo",), ("bench", "consume", "--records", "300000"), ("experiment", "lanes"), ("bench", "queue")],
    ids=" ".join,
)
"""Commands that start a broker of their own; two of them start further processes."""


@contextmanager
def with_own_broker(directory: Path, command: tuple[str, ...]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run a command in a process group of its own until its broker runs; yield both, the broker by its pid."""
    environment = ENVIRONMENT | {"TMPDIR": str(directory)}
    with subprocess.Popen(
        [*LOGBROKER, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, process_group=0
    ) as process:
        try:
            deadline = time.monotonic() + 60
            while not (locks := list(directory.rglob("lock"))) or not locks[0].read_text():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            yield process, int(locks[0].read_text())
        finally:
            process.kill()


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@OWN_BROKERS
def test_a_signal_leaves_neither_its_directory_nor_its_broker(
    tmp_path: Path, command: tuple[str, ...], number: signal.Signals
) -> None:
    with with_own_broker(tmp_path, command) as (process, broker):
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (128 + number, b"")
    assert err.strip() in (b"", b"Starting 48 worker processes...")
    assert list(tmp_path.iterdir()) == []
    assert not _runs(broker)


@pytest.mark.prove(keep=1)
@OWN_BROKERS
def test_ctrl_c_again_does_not_disturb_the_clean_up(tmp_path: Path, command: tuple[str, ...]) -> None:
    """A terminal sends Ctrl-C to all processes of the command."""
    gap_seconds = random.uniform(0.005, 0.1)
    sys.stdout.write(f"{gap_seconds=}\n")
    with with_own_broker(tmp_path, command) as (process, broker):
        time.sleep(random.uniform(0, 0.5))
        while process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(gap_seconds)
        _, err = process.communicate(timeout=60)
    # One more may come after the clean-up, and ends what is left of the command.
    assert process.returncode in (128 + signal.SIGINT, -signal.SIGINT), err
    assert err.strip() in (b"", b"Starting 48 worker processes...")
    assert list(tmp_path.iterdir()) == []
    assert not _runs(broker)


@pytest.mark.prove
@pytest.mark.parametrize("first", [1, 30])
def test_a_broker_that_ends_under_it_is_told_at_once(tmp_path: Path, first: int) -> None:
    """At a start, and later: its clients alone would try again for two minutes."""
    (tmp_path / "sitecustomize.py").write_text(
        "import itertools, os, sys\n"
        "if 'serve' in sys.orig_argv:\n"
        "    syncs, fdatasync = itertools.count(1), os.fdatasync\n"
        "    def fail(fd):\n"
        f"        if next(syncs) >= {first}:\n"
        "            os.write(2, b'the disk has gone\\n')\n"
        "            os._exit(3)\n"
        "        fdatasync(fd)\n"
        "    os.fdatasync = fail\n"
    )
    environment = ENVIRONMENT | {"PYTHONPATH": str(tmp_path)}
    result = subprocess.run([*LOGBROKER, "demo"], capture_output=True, env=environment, timeout=60, check=False)
    (line,) = result.stderr.decode().splitlines()[-1:]
    assert result.returncode == 1
    assert line.startswith("logbroker: the embedded broker")
    assert line.endswith(": the disk has gone")


def stored(key: bytes, value: bytes, partition: int = 0) -> Record:
    return Record("flights", partition, 0, 0, key, value, ())


SENT = [InputRecord(b"1", b"A"), InputRecord(b"2", b"B"), InputRecord(b"3", b"A")]


def test_the_order_between_aircraft_is_free() -> None:
    assert check_order(SENT, [stored(b"B", b"2", 1), stored(b"A", b"1"), stored(b"A", b"3")]) == 2


@pytest.mark.parametrize(
    ("received", "complaint"),
    [
        ([stored(b"A", b"1"), stored(b"B", b"2")], "aircraft A: 2 flights were sent, 1 came back"),
        ([stored(b"A", b"3"), stored(b"A", b"1"), stored(b"B", b"2")], "aircraft A came back in another order"),
        (
            [stored(b"A", b"1"), stored(b"A", b"x"), stored(b"B", b"2")],
            "aircraft A came back in another order or altered",
        ),
        ([stored(b"A", b"1"), stored(b"A", b"3", 1), stored(b"B", b"2")], "aircraft A lie in several partitions"),
        (
            [stored(b"C", b"9"), stored(b"A", b"1"), stored(b"A", b"3"), stored(b"B", b"2")],
            "aircraft C: 0 flights were sent, 1 came back",
        ),
    ],
)
def test_what_is_missing_altered_or_misplaced_is_found(received: list[Record], complaint: str) -> None:
    with pytest.raises(LogbrokerError, match=complaint):
        check_order(SENT, received)
