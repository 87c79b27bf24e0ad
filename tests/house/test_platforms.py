"""Platforms where this project cannot be run: shown by taking away what macOS and Windows lack."""

from __future__ import annotations

import ast
import errno
import fcntl
import importlib.util
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from logbroker.broker import process_tuning
from logbroker.client.sync import Admin, Consumer, Producer
from logbroker.embedded_broker import EmbeddedBroker, embedded
from logbroker.errors import UnsupportedPlatformError
from logbroker.platform_needs import check_broker_platform
from logbroker.storage import partition_checkpoint, system_calls
from logbroker.tools.segments.metadata import Knowledge
from tests.house.other_systems import MACOS, WINDOWS

ROOT = Path(__file__).parents[2]
_NEED_A_BROKER = (
    *("broker", "grpc_api", "kafka_api", "queues"),
    *("tools.bench", "tools.experiments", "tools.move", "cli.bench", "cli.experiment", "cli.move"),
)


def on_windows(program: str, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", WINDOWS + program, *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=100, check=False)


def command_on_windows(*arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return on_windows("from logbroker.cli.main import main; main()", *map(str, arguments), stdin=stdin)


def test_all_but_the_broker_can_be_imported_on_windows() -> None:
    program = """
import importlib, pkgutil, logbroker
for module in pkgutil.walk_packages(logbroker.__path__, "logbroker."):
    if module.name.endswith("__main__") or module.name.removeprefix("logbroker.").startswith(NEED_A_BROKER):
        continue
    if module.name != "logbroker.cli.serve":
        importlib.import_module(module.name)
print("all")
"""
    result = on_windows(f"NEED_A_BROKER = {_NEED_A_BROKER!r}\n{program}")
    assert (result.stdout, result.stderr) == (b"all\n", b"")


@pytest.mark.prove
def test_commands_talk_to_a_broker_from_windows(logbroker_session_broker: EmbeddedBroker) -> None:
    address = logbroker_session_broker.address
    for arguments, stdin, out in (
        (("topic", "create", "from-windows", "--wait", "5"), b"", b"from-windows"),
        (("produce", "from-windows", "--json"), b"1\n2\n", b'"records": 2'),
        (("consume", "from-windows", "--until-end"), b"", b"1\n2\n"),
        (("consume", "from-windows", "--until-end", "--group", "windows"), b"", b"1\n2\n"),
        (("queue", "create", "windows-queue", "--topic", "from-windows"), b"", b""),
        (("queue", "work", "windows-queue", "--print", "--until-end"), b"", b'"value":"2"'),
    ):
        result = command_on_windows(*arguments, "--broker", address, stdin=stdin)
        assert (result.returncode, result.stderr) == (0, b""), arguments
        assert out in result.stdout, arguments


@pytest.mark.prove
def test_segment_tools_and_backups_work_on_windows(tmp_path: Path) -> None:
    with embedded(tmp_path / "data") as broker, Admin(broker.address) as admin, Producer(broker.address) as producer:
        admin.create_topic("t", 1)
        for number in range(500):
            producer.send("t", b"%d" % number)
    log = tmp_path / "data" / "t-0" / f"{0:020}.log"
    log.with_suffix(".index").unlink()
    for arguments, out in (
        (("segment", "rebuild-index", log), b""),
        (("segment", "verify", tmp_path / "data"), b""),
        (("segment", "dump", log), b"records"),
        (("meta", "backup", "--data-dir", tmp_path / "data", tmp_path / "one.backup"), b"every checksum is right"),
        (("meta", "restore", "--yes", "--data-dir", tmp_path / "data", tmp_path / "one.backup"), b"restored"),
    ):
        result = command_on_windows(*arguments)
        assert (result.returncode, result.stderr) == (0, b""), arguments
        assert out in result.stdout, arguments


@pytest.mark.parametrize("command", ["serve", "demo", "bench"])
def test_what_needs_a_broker_says_on_windows_in_one_line_what_that_needs(command: str) -> None:
    result = command_on_windows(command)
    (line,) = result.stderr.decode().splitlines()
    assert result.returncode == 1
    assert line.startswith("logbroker: a broker needs Linux or macOS; this system (win32) lacks the module fcntl")
    assert "uvloop" in line


def test_an_embedded_broker_says_so_too() -> None:
    program = """
import logbroker, logbroker.errors
try:
    logbroker.embedded().start()
except logbroker.errors.UnsupportedPlatformError as error:
    print(error)
"""
    assert b"a broker needs Linux or macOS" in on_windows(program).stdout


def test_here_nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    check_broker_platform()
    monkeypatch.delattr(os, "statvfs")
    with pytest.raises(UnsupportedPlatformError, match=r"lacks os\.statvfs"):
        check_broker_platform()


@pytest.mark.prove
def test_a_broker_runs_without_what_macos_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(MACOS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    with embedded(tmp_path / "data") as broker, Admin(broker.address) as admin:
        admin.create_topic("t", 2)
        for end in (broker.kill, broker.stop):
            with Producer(broker.address) as producer:
                for number in range(300):
                    producer.send("t", b"%d" % number, b"%d" % (number % 7))
            end()
            broker.start()
        with Consumer(broker.address) as consumer:
            consumer.assign("t")
            assert len(list(consumer.until_end())) == 600
        assert "Traceback" not in broker.log_path.read_text()


@pytest.mark.prove
def test_the_demo_runs_without_what_macos_lacks(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(MACOS)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "logbroker", "demo"]
    result = subprocess.run(command, capture_output=True, env=environment, timeout=100, check=False)
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"27,004 flights" in result.stdout


def test_a_sync_reaches_the_medium(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS's fsync leaves what was written in the drive's cache. Where a file system does not know F_FULLFSYNC,
    fsync is all there is; where that fails, the sync has failed."""
    calls: list[str] = []
    refusal: list[int] = []

    def control(fd: int, command: int) -> int:
        assert command == 51
        calls.append("full")
        if refusal:
            raise OSError(refusal[0], os.strerror(refusal[0]))
        return 0

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", control)
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append("fsync"))
    monkeypatch.setattr(os, "fdatasync", lambda fd: calls.append("fdatasync"))
    with (tmp_path / "file").open("wb") as file:
        for sync in (system_calls.sync_data, system_calls.sync_all):
            sync(file.fileno())
        assert calls == ["full", "full"]
        refusal.append(errno.ENOTSUP)
        calls.clear()
        system_calls.sync_data(file.fileno())
        monkeypatch.delattr(os, "fdatasync")
        system_calls.sync_data(file.fileno())
        system_calls.sync_directory(str(tmp_path))
        assert calls == ["full", "fdatasync", "full", "fsync", "full", "fsync"]
        refusal[:] = [errno.EIO]
        with pytest.raises(OSError, match="Input/output error"):
            system_calls.sync_data(file.fileno())


def test_without_a_boot_id_every_crash_is_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_checkpoint, "_BOOT_ID_PATH", tmp_path / "none")
    monkeypatch.setattr(partition_checkpoint, "sysctl_text", lambda name: f"of {name}")
    partition_checkpoint.boot_id.cache_clear()
    try:
        assert partition_checkpoint.boot_id() == "of kern.bootsessionuuid"
        monkeypatch.setattr(partition_checkpoint, "sysctl_text", lambda name: "")
        partition_checkpoint.boot_id.cache_clear()
        assert partition_checkpoint.boot_id() == ""
        checkpoint = partition_checkpoint.PartitionCheckpoint(recovery_point=0, log_start_offset=0, segments=[])
        assert Knowledge(topic_id=None, checkpoint=checkpoint).power_cut
    finally:
        partition_checkpoint.boot_id.cache_clear()
    assert system_calls.sysctl_text("kern.no-such-name") == ""


def test_the_limit_on_descriptors_is_raised_as_far_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [256, resource.RLIM_INFINITY]

    def set_limit(what: int, wanted: tuple[int, int]) -> None:
        if not 0 <= wanted[0] <= 10_240:
            raise ValueError("current limit exceeds maximum limit")
        limits[:] = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda what: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    process_tuning._raise_descriptor_limit()
    assert limits[0] == 10_240
    process_tuning._raise_descriptor_limit()
    assert limits[0] == 10_240


_ONLY_SOMEWHERE = {
    "fdatasync", "preadv", "pwritev", "posix_fallocate", "posix_fadvise", "sync_file_range", "sched_getaffinity",
    "sched_setaffinity", "memfd_create", "copy_file_range", "eventfd", "register_at_fork", "O_DIRECT",
}  # fmt: skip


@pytest.mark.prove
def test_calls_that_not_every_system_has_are_made_in_one_place() -> None:
    """But for benchmarks, which are run where the broker is, and after a look whether the system has them."""
    found = []
    for folder in ("logbroker", "storage", "consumer_groups", "tools"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.is_symlink() or "bench" in path.parts or path.name == "system_calls.py":
                continue
            text = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)):
                if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os"):
                    continue
                if node.attr in _ONLY_SOMEWHERE and f'hasattr(os, "{node.attr}")' not in text:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}: os.{node.attr}")
    assert not found


def test_dependencies_that_windows_lacks_are_left_out_there() -> None:
    import tomllib

    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (uvloop,) = (text for text in project["dependencies"] if text.startswith("uvloop"))
    assert "Windows" in uvloop or "win32" in uvloop
    assert importlib.util.find_spec("uvloop") is not None
