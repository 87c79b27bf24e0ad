"""A failed write, sync, rename or commit ends a real broker process: nothing more is acknowledged, nothing is lost."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.serving import Served, in_directory

LAUNCHER = ("-m", "tests.faults.failing_broker")


def fails_and_loses_nothing(broker: Served, reason: str) -> list[bytes]:
    """Use a broker until it fails; returns what it acknowledged."""
    acknowledged = broker.produce_until_gone()
    assert broker.exit_code() == 1
    [line] = broker.error_lines()
    assert line.startswith("logbroker: the broker stopped because its storage failed: cannot ")
    assert reason in line
    assert not broker.clean_stop_is_marked()
    return acknowledged


def serves_again(data_dir: Path, acknowledged: list[bytes]) -> None:
    with Served(data_dir) as broker:
        values = broker.values()
        assert values[: len(acknowledged)] == acknowledged
        assert len(values) <= len(acknowledged) + 1  # one was under way
        broker.produce(b"again")
        assert broker.values() == [*values, b"again"]


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize(
    ("operation", "number", "nth", "suffix", "acknowledged"),
    [
        ("fdatasync", errno.EIO, 5, ".log", 4),
        ("pwritev", errno.EIO, 5, ".log", 4),
        ("pwritev", errno.ENOSPC, 5, ".log", 4),
        ("fdatasync", errno.EIO, 1, "leader-epoch-checkpoint.tmp", 0),
        ("rename", errno.EIO, 1, "leader-epoch-checkpoint", 0),
        ("fsync", errno.EIO, 1, "/t-0", 0),
        ("fsync", errno.EIO, 2, "/data", 0),  # the first is that of a new metadata store
    ],
)
def test_a_failed_call_is_the_end(
    tmp_path: Path, operation: str, number: int, nth: int, suffix: str, acknowledged: int
) -> None:
    data_dir = in_directory(tmp_path)
    launcher = (*LAUNCHER, operation, str(number), str(nth), suffix)
    reason = "Input/output error" if number == errno.EIO else "No space left on device"
    with Served(data_dir, launcher=launcher) as broker:
        broker.create_topic()
        found = fails_and_loses_nothing(broker, reason)
    assert len(found) == acknowledged
    serves_again(data_dir, found)


def test_a_failed_commit_is_the_end(tmp_path: Path) -> None:
    data_dir = in_directory(tmp_path)
    # The start and the topic take the first two.
    with Served(data_dir, launcher=(*LAUNCHER, "commit", "0", "3", ""), checkpoint_seconds=0.3) as broker:
        broker.create_topic()
        acknowledged = fails_and_loses_nothing(broker, "Input/output error")
    serves_again(data_dir, acknowledged)


def test_a_failed_sync_at_the_stop_leaves_no_clean_mark(tmp_path: Path) -> None:
    data_dir = in_directory(tmp_path)
    launcher = (*LAUNCHER, "fdatasync", str(errno.EIO), "1", ".log")
    with Served(data_dir, launcher=launcher, checkpoint_seconds=3600) as broker:
        broker.create_topic(durability="written")
        broker.produce(b"a")
        broker.process.terminate()
        assert broker.exit_code() == 1
        [line] = broker.error_lines()
        assert "Input/output error" in line
        assert not broker.clean_stop_is_marked()
    serves_again(data_dir, [b"a"])


def strace(*injections: str) -> tuple[str, ...]:
    """The command that runs another with failing system calls."""
    path = shutil.which("strace")
    if path is None:
        pytest.skip("strace is not installed; the same faults are tested from within the process")
    tried = subprocess.run(
        [path, "-f", "-qq", "-o", "/dev/null", sys.executable, "-c", ""], capture_output=True, check=False
    )
    if tried.returncode:
        pytest.skip("strace may not trace here; the same faults are tested from within the process")
    options = [f"--inject={injection}" for injection in injections]
    return (path, "-D", "-f", "-qq", "-o", "/dev/null", "--trace=fdatasync,pwritev,pwritev2", *options)


@pytest.mark.prove
@pytest.mark.parametrize(
    ("injection", "reason"),
    [
        ("fdatasync:error=EIO:when=6", "Input/output error"),
        ("pwritev,pwritev2:error=ENOSPC:when=6+", "No space left on device"),
    ],
)
def test_the_kernels_word_is_the_end_of_an_unmodified_broker(tmp_path: Path, injection: str, reason: str) -> None:
    data_dir = in_directory(tmp_path)
    command = strace(injection)
    with Served(data_dir) as broker:
        broker.create_topic()
    # strace counts the calls of each thread for itself: one thread, and a start that writes next to nothing.
    with Served(data_dir, wrapper=command, sync_threads=1) as broker:
        acknowledged = fails_and_loses_nothing(broker, reason)
    assert acknowledged
    serves_again(data_dir, acknowledged)


def test_a_store_that_cannot_be_made_is_told_in_a_line(tmp_path: Path) -> None:
    data_dir = in_directory(tmp_path)
    broker = Served(data_dir, launcher=(*LAUNCHER, "commit", "0", "1", ""))
    assert broker.exit_code() == 1
    [line] = broker.error_lines()
    assert "Input/output error" in line
    broker.end()
