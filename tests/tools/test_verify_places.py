"""`segment verify` where something else lies in a file's or directory's place: it says so and goes on with the rest."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from logbroker.storage.partition_files import EPOCHS_NAME, METADATA_NAME
from logbroker.tools.segments.findings import PartitionReport, Severity
from logbroker.tools.segments.locate import locate
from logbroker.tools.segments.verify import verify
from tests.cli.command import logbroker
from tests.tools.segment_files import StoppedPartition, report_of, wrong


def fifo(path: Path) -> None:
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.mkdir()


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


PLACES = pytest.mark.parametrize("put", [fifo, directory, loop, dangling])


def all_of(data_dir: Path) -> dict[str, PartitionReport]:
    return {Path(report.path).name: report for report in verify(locate([data_dir]), lambda _bytes: None)}


def errors_of(report: PartitionReport, name: str) -> list[str]:
    return [finding.message for finding in wrong(report) if finding.path.endswith(name)]


@pytest.mark.prove(keep=1)
@PLACES
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", EPOCHS_NAME, METADATA_NAME])
def test_something_else_in_the_place_of_a_file(
    stopped: StoppedPartition, put: Callable[[Path], None], suffix: str
) -> None:
    path = sorted(stopped.directory.glob(f"*{suffix}"))[0]
    path.unlink()
    put(path)
    before = len(stopped.logs())
    # As a process: what waits for ever must not hold up this one.
    done = logbroker("segment", "verify", stopped.data_dir)
    assert b"Traceback" not in done.stderr
    assert done.returncode == (0 if put is dangling and "index" in suffix else 1), done.stdout
    if done.returncode:
        assert done.stderr.count(b"\n") == 1, done.stderr
        report = report_of(stopped.directory)
        assert any("cannot be read" in message for message in errors_of(report, path.name)), report.findings
        assert len(report.segments) == before - (suffix == ".log")


@PLACES
def test_what_lies_in_the_place_of_a_log_is_not_called_missing(
    stopped: StoppedPartition, put: Callable[[Path], None]
) -> None:
    path = stopped.logs()[1]
    path.unlink()
    put(path)
    [message] = errors_of(report_of(stopped.directory), path.name)
    assert "cannot be read" in message
    assert str(path) in logbroker("segment", "verify", stopped.data_dir).stderr.decode()


def test_a_log_that_is_a_link_is_told_as_the_broker_does_not_follow_it(stopped: StoppedPartition) -> None:
    path = stopped.logs()[1]
    path.rename(stopped.data_dir / "moved.log")
    path.symlink_to(stopped.data_dir / "moved.log")
    [message] = errors_of(report_of(stopped.directory), path.name)
    assert "symbolic link" in message
    [finding] = wrong(report_of(path))
    assert "symbolic link" in finding.message


def test_a_socket_and_a_file_that_may_not_be_read_are_named(
    stopped: StoppedPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = stopped.logs()[:2]
    first.unlink()
    monkeypatch.chdir(first.parent)  # The path of a socket is short.
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(first.name)
        real = os.open

        def refuse(path: str, *arguments: int, **fields: int) -> int:
            if str(path) == str(second):
                raise PermissionError(13, "Permission denied", path)
            return real(path, *arguments, **fields)

        monkeypatch.setattr(os, "open", refuse)
        report = report_of(stopped.directory)
    assert errors_of(report, first.name) == ["it cannot be read: it is no file, but a socket"]
    assert "Permission denied" in " ".join(errors_of(report, second.name))


@PLACES
def test_something_else_in_the_place_of_a_partition(stopped: StoppedPartition, put: Callable[[Path], None]) -> None:
    stopped.directory.rename(stopped.data_dir / "others-0")
    put(stopped.directory)
    reports = all_of(stopped.data_dir)
    assert len(reports["others-0"].segments) == len(list((stopped.data_dir / "others-0").glob("*.log")))
    assert wrong(reports["flights-0"])


@PLACES
def test_something_else_in_the_place_of_the_metadata_store(
    stopped: StoppedPartition, put: Callable[[Path], None]
) -> None:
    store = stopped.data_dir / "meta" / "data.mdb"
    store.unlink()
    put(store)
    done = logbroker("segment", "verify", stopped.data_dir)
    assert done.returncode == 1, done.stdout
    [line] = done.stderr.decode().splitlines()
    assert str(store) in line
    assert len(all_of(stopped.data_dir)["flights-0"].segments) == len(stopped.logs())


def test_a_directory_that_cannot_be_listed(stopped: StoppedPartition, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.listdir

    def listdir(path: str | Path) -> list[str]:
        if Path(path) == stopped.directory:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    [finding] = wrong(report_of(stopped.directory))
    assert finding.message == "it cannot be read: Permission denied"


def test_a_metadata_store_that_nobody_may_look_at(stopped: StoppedPartition, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.lstat

    def lstat(path: str | Path) -> os.stat_result:
        if str(path).endswith("data.mdb"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "lstat", lstat)
    (stopped.data_dir / "meta" / "data.mdb").unlink()
    assert wrong(all_of(stopped.data_dir)["meta"])


def test_a_leader_epoch_checkpoint_that_is_gone(stopped: StoppedPartition) -> None:
    (stopped.directory / EPOCHS_NAME).unlink()
    [message] = errors_of(report_of(stopped.directory), EPOCHS_NAME)
    assert "there is no such file; restore it" in message


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("0\n2\n0 0\n1 10\n", "not known to the metadata store"),
        ("0\n2\n0 0\n7 119\n", "not known to the metadata store"),
        ("0\n3\n0 0\n1 10\n2 120\n", "not known to the metadata store"),
        ("0\n0\n", "epoch 0 of offset 0 is missing"),
        ("0\n1\n0 5\n", "begins at 5"),
        ("0\n2\n0 0\n1 500\n", "the log ends at 120"),
    ],
)
def test_a_leader_epoch_checkpoint_with_other_epochs(stopped: StoppedPartition, content: str, complaint: str) -> None:
    (stopped.directory / EPOCHS_NAME).write_text(content)
    messages = errors_of(report_of(stopped.directory), EPOCHS_NAME)
    assert any(complaint in message for message in messages), messages


def test_an_epoch_that_a_recovery_has_begun_is_sound(stopped: StoppedPartition) -> None:
    (stopped.directory / EPOCHS_NAME).write_text("0\n2\n0 0\n1 120\n")
    assert not wrong(report_of(stopped.directory))
    assert all(finding.severity is Severity.NOTE for finding in report_of(stopped.directory).findings)
