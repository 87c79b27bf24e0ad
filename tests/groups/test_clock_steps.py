"""Steps of the wall clock move no timeout: a real broker and real members run with a wall clock that is turned.

A preloaded library (clock_shift.c) adds to the wall clock of these processes what a file says. It is compiled here, so
the test needs a C compiler.
"""

from __future__ import annotations

import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec
import pytest

from logbroker.client.sync import Admin, Producer
from logbroker.embedded_broker import embedded
from logbroker.types import TopicPartition
from tests.groups.group_history import Assigned, Delivered, Event, Lost, Revoked, read_histories
from tests.groups.member_process import MemberSpec
from tests.waiting import until

HOUR: Final = 3600
DAY: Final = 24 * HOUR
SESSION_SECONDS: Final = 1.0
PARTITIONS: Final = {TopicPartition("orders", number) for number in range(4)}
DEADLINE_SECONDS: Final = 20

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


class ShiftedClock:
    """The wall clock of all processes that are started while it is preloaded."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        library = directory / "clock_shift.so"
        source = Path(__file__).with_name("clock_shift.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        self._path = directory / "shift"
        self.step(0)
        monkeypatch.setenv("LD_PRELOAD", str(library))
        monkeypatch.setenv("CLOCK_SHIFT_FILE", str(self._path))

    def step(self, seconds: int) -> None:
        """Turn the clocks, from one moment to the next, to so many seconds away from the true time."""
        if not self._path.exists():
            self._path.write_bytes(bytes(8))
        with self._path.open("r+b", buffering=0) as file:
            file.write(struct.pack("=q", seconds))


class MemberChild:
    """A member process, and what it has written down."""

    def __init__(self, name: str, broker: str, directory: Path) -> None:
        self.name = name
        self.path = directory / name
        spec = MemberSpec(
            name=name,
            broker=broker,
            group="clocks",
            topics=["orders"],
            history_path=str(self.path),
            session_timeout_seconds=SESSION_SECONDS,
        )
        command = [sys.executable, "-m", "tests.groups.member_process", msgspec.json.encode(spec).decode()]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=Path(__file__).parents[2])

    def events(self) -> list[Event]:
        return read_histories([self.path] if self.path.exists() else [])

    def held(self) -> set[TopicPartition]:
        held: set[TopicPartition] = set()
        for event in self.events():
            if isinstance(event, Assigned):
                held |= {partition for partition, _ in event.positions}
            elif isinstance(event, Revoked | Lost):
                held -= set(event.partitions)
        return held

    def changes(self) -> list[Event]:
        return [event for event in self.events() if isinstance(event, Assigned | Revoked | Lost)]

    def delivered(self) -> set[bytes]:
        return {value for event in self.events() if isinstance(event, Delivered) for _, _, value in event.records}

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


class Clocks:
    """A broker and two members under turned clocks, and a producer under the true one."""

    def __init__(self, stack: ExitStack, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ShiftedClock(directory, monkeypatch)
        broker = stack.enter_context(embedded())
        with Admin(broker.address) as admin:
            admin.create_topic("orders", len(PARTITIONS), {"message.timestamp.type": "LogAppendTime"})
        self.members = [MemberChild(name, broker.address, directory) for name in ("one", "two")]
        for member in self.members:
            stack.callback(member.end)
        self._producer = stack.enter_context(Producer(broker.address))
        self._sent: set[bytes] = set()
        until(lambda: all(len(member.held()) == 2 for member in self.members), DEADLINE_SECONDS)

    def send_for(self, seconds: float) -> int:
        """Send records for so long, one every 20 ms; returns by how many seconds the broker's clock is wrong."""
        until = time.monotonic() + seconds
        while True:
            value = b"%d" % len(self._sent)
            delivery = self._producer.send("orders", value, partition=len(self._sent) % len(PARTITIONS))
            self._sent.add(value)
            found = delivery.result(DEADLINE_SECONDS)
            if time.monotonic() > until:
                return round(found.timestamp_ms / 1000 - time.time())
            time.sleep(0.02)

    def all_is_delivered(self) -> None:
        until(
            lambda: set[bytes]().union(*(member.delivered() for member in self.members)) == self._sent, DEADLINE_SECONDS
        )


@pytest.fixture
def clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clocks]:
    with ExitStack() as stack:
        yield Clocks(stack, tmp_path, monkeypatch)


def test_steps_of_the_wall_clock_move_no_timeout(clocks: Clocks) -> None:
    before = [member.changes() for member in clocks.members]
    for seconds in (HOUR, -HOUR, DAY, -DAY):
        clocks.clock.step(seconds)
        assert abs(clocks.send_for(1.1 * SESSION_SECONDS) - seconds) <= 1
        clocks.all_is_delivered()
    assert [member.changes() for member in clocks.members] == before

    # Nor do they end one early, or keep one from ending.
    frozen, other = clocks.members
    at = time.monotonic()
    frozen.process.send_signal(signal.SIGSTOP)
    clocks.clock.step(DAY)
    until(lambda: other.held() == PARTITIONS, DEADLINE_SECONDS)
    assert other.changes()[-1].at - at > 0.4 * SESSION_SECONDS
