"""The programs that docs/PRODUCTION.md gives to operators, in situations that the page itself does not come into."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import logbroker
from logbroker.client.sync import Admin, Consumer, Producer, QueueAdmin
from tests.docs.markdown import ROOT

PAGE = (ROOT / "docs" / "PRODUCTION.md").read_text(encoding="utf-8")
TIMEOUT_SECONDS = 60
MIN_FREE = "MIN_FREE_DISK_BYTES = 256 * 1024 * 1024"


def program(name: str) -> str:
    """Return the text that the page writes into a file."""
    found = re.search(rf"(?ms)^cat > {re.escape(name)} <<'(\w+)'\n(.*?)^\1$", PAGE)
    assert found is not None
    return found[2]


def changed(name: str, *changes: tuple[str, str]) -> str:
    """Return a program with other text in some places."""
    text = program(name)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def check(address: str, data_dir: Path, *options: str, changes: tuple[tuple[str, str], ...] = ()) -> list[str]:
    """Return the lines of check.py."""
    command = [sys.executable, "-c", changed("check.py", *changes), address, str(data_dir), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS).stdout.splitlines()


class Served(NamedTuple):
    address: str
    data_dir: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker with a consumer group and a queue group that nobody works on, three records each."""
    data_dir = tmp_path_factory.mktemp("served") / "data"
    with logbroker.embedded(data_dir) as broker:
        with Admin(broker.address) as admin, QueueAdmin(broker.address) as queues, Producer(broker.address) as producer:
            admin.create_topic("orders", 1)
            queues.create_queue("billing", "orders")
            for _ in range(4):
                producer.send("orders", b"order").result()
        with Consumer(broker.address, group="reports") as consumer:
            consumer.subscribe("orders")
            consumer.poll(max_records=1)
            consumer.commit()
        yield Served(broker.address, data_dir)


ANY_AGE = ("RECONNECT_SECONDS = 60", "RECONNECT_SECONDS = 0")
"""A change that lets check.py judge a broker that has just started."""


def test_check_tells_of_groups_that_nobody_works_on(served: Served) -> None:
    told = check(*served, changes=(ANY_AGE,))
    assert told == ["queue billing: no workers, 4 records wait", "group reports: no members, 3 records behind"]


def test_check_takes_groups_that_may_be_idle_as_they_are(served: Served) -> None:
    assert check(*served, "--idle", "billing,reports", changes=(ANY_AGE,)) == []


def test_check_gives_clients_time_to_connect_to_a_new_broker(served: Served) -> None:
    with Admin(served.address) as admin:
        age_seconds = time.time() - admin.describe_broker().started_at_ms / 1000
    longer = ("RECONNECT_SECONDS = 60", f"RECONNECT_SECONDS = {age_seconds + TIMEOUT_SECONDS}")
    assert check(*served, changes=(longer,)) == []


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize(
    ("share", "wanted"),
    [
        (0.6, r"disk of .*: \d+ MiB free; below \d+ MiB, writes are refused"),
        (1.5, r"disk of .*: \d+ MiB free: writes are refused"),
        (3.0, r"disk of .*: \d+ MiB free: writes are refused, and so are commits and acks"),
    ],
)
def test_check_tells_refused_writes_from_little_room(served: Served, share: float, wanted: str) -> None:
    """The setting `min_free_disk_bytes` is `share` of what is free."""
    disk = os.statvfs(served.data_dir)
    setting = (MIN_FREE, f"MIN_FREE_DISK_BYTES = {int(share * disk.f_bavail * disk.f_frsize)}")
    (told,) = check(*served, changes=(setting,))
    assert re.fullmatch(wanted, told)


def test_metrics_of_other_groups_are_written_if_the_letters_of_one_cannot_be_counted(
    served: Served, tmp_path: Path
) -> None:
    call = "queues.redrive(group, dry_run=True)"
    text = changed("metrics.py", (call, call.replace("group", '"gone"')))
    file = tmp_path / "logbroker.prom"
    subprocess.run([sys.executable, "-c", text, *map(str, served), str(file)], check=True, timeout=TIMEOUT_SECONDS)
    lines = file.read_text(encoding="utf-8").splitlines()
    assert 'logbroker_queue_open_letters{group="billing"} NaN' in lines
    assert 'logbroker_group_lag{group="reports"} 3' in lines


@pytest.mark.prove
def test_metrics_tell_how_many_partitions_of_a_queue_group_are_not_in_its_numbers(
    stopped: Path, tmp_path: Path
) -> None:
    with logbroker.embedded(stopped) as broker, QueueAdmin(broker.address) as queues:
        queues.create_queue("billing", "orders")
    os.truncate(stopped / "orders-0" / f"{0:020d}.log", 10)
    file = tmp_path / "logbroker.prom"
    with logbroker.embedded(stopped) as broker:
        command = [sys.executable, "-c", program("metrics.py"), broker.address, str(stopped), str(file)]
        subprocess.run(command, check=True, timeout=TIMEOUT_SECONDS)
    assert 'logbroker_queue_unknown_partitions{group="billing"} 1' in file.read_text(encoding="utf-8").splitlines()


class Backup(NamedTuple):
    ended: subprocess.CompletedProcess[str]
    made: Path
    """The directory of the backup, or of the attempt."""
    copies: int
    """The number of times that the records were copied."""


def back_up(
    data_dir: Path, folder: Path, *, before_verify: str = "", address: str = "127.0.0.1:1", working_dir: Path = ROOT
) -> Backup:
    """Run backup.sh; `before_verify` is a command that runs before each verification, with its arguments. Its paths are
    relative if they lie in `working_dir`."""
    programs, target, count = folder / "bin", folder / "backups", folder / "copies"
    programs.mkdir()
    target.mkdir()
    count.touch()
    script = f'#!/bin/sh\ncase "$1 $2" in "segment verify") {before_verify or ":"} ;; esac\n'
    (programs / "logbroker").write_text(f'{script}exec {sys.executable} -m logbroker "$@"\n', encoding="utf-8")
    # A copy is one call of cp: no queue group has copies of records, which a second call would copy.
    (programs / "cp").write_text(f'#!/bin/sh\necho >> {count}\nexec /bin/cp "$@"\n', encoding="utf-8")
    for each in programs.iterdir():
        each.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "LOGBROKER_BROKER": address,
        "PYTHONPATH": str(ROOT),
    }
    ended = subprocess.run(
        ["sh", "-c", program("backup.sh"), *("backup.sh", *(_from(working_dir, path) for path in (data_dir, target)))],
        cwd=working_dir,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    (made,) = target.iterdir()
    return Backup(ended, made, count.read_text(encoding="utf-8").count("\n"))


def _from(working_dir: Path, path: Path) -> str:
    return str(path.relative_to(working_dir) if path.is_relative_to(working_dir) else path)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a stopped broker, with some records."""
    data_dir = tmp_path_factory.mktemp("written") / "data"
    with (
        logbroker.embedded(data_dir) as broker,
        Admin(broker.address) as admin,
        Producer(broker.address) as producer,
    ):
        admin.create_topic("orders", 1)
        for _ in range(3):
            producer.send("orders", b"order").result()
    return data_dir


@pytest.fixture
def stopped(written: Path, tmp_path: Path) -> Path:
    """A copy of the directory for one test."""
    return Path(shutil.copytree(written, tmp_path / "data"))


@pytest.mark.prove
def test_a_backup_opens_the_records_to_nobody_else(stopped: Path, tmp_path: Path) -> None:
    backup = back_up(stopped, tmp_path)
    assert backup.ended.returncode == 0
    assert oct((backup.made / "records").stat().st_mode & 0o777) == "0o700"


@pytest.mark.prove
def test_a_backup_of_a_damaged_log_gives_up_after_one_copy(stopped: Path, tmp_path: Path) -> None:
    with (stopped / "orders-0" / f"{0:020d}.log").open("r+b") as file:
        file.seek(30)
        file.write(b"damage")
    backup = back_up(stopped, tmp_path)
    assert (backup.ended.returncode, backup.copies, backup.made.suffix) == (1, 1, ".part")
    assert f"{stopped}/orders-0" in backup.ended.stderr


@pytest.mark.prove
def test_a_backup_copies_again_what_was_copied_by_half(stopped: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn"
    cut = f'[ -e {torn} ] || {{ touch {torn}; truncate -s -10 "$3/orders-0/{0:020d}.log"; }}'
    backup = back_up(stopped, tmp_path, before_verify=cut)
    assert torn.exists()
    assert (backup.ended.returncode, backup.copies) == (0, 2)


@pytest.mark.prove
def test_a_backup_takes_relative_paths(stopped: Path, tmp_path: Path) -> None:
    backup = back_up(stopped, tmp_path, working_dir=tmp_path)
    assert (backup.ended.returncode, backup.ended.stderr.count("\n")) == (0, 1), backup.ended.stderr
    assert (backup.made / "records" / "orders-0").is_dir()


@pytest.mark.prove
def test_a_second_backup_leaves_the_first_alone(stopped: Path, tmp_path: Path) -> None:
    second, said = tmp_path / "backup.sh", tmp_path / "said"
    second.write_text(program("backup.sh"), encoding="utf-8")
    begin = f"sh {second} {stopped} {tmp_path / 'backups'} 2> {said} 9>&- || :"
    backup = back_up(stopped, tmp_path, before_verify=begin)
    assert backup.ended.returncode == 0
    assert said.read_text(encoding="utf-8") == f"another backup to {tmp_path / 'backups'} is running\n"
