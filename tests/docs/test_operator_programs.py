"""The programs that docs/PRODUCTION.md gives to operators, in situations that the page itself does not come into."""

from __future__ import annotations

import os
import re
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


def check(address: str, data_dir: Path, *options: str, changes: tuple[tuple[str, str], ...] = ()) -> list[str]:
    """Return the lines of check.py."""
    text = program("check.py")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    command = [sys.executable, "-c", text, address, str(data_dir), *options]
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
