"""The common parts of the measurements of queue groups: a broker, its topics, and worker processes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from logbroker.child_python import child_command
from logbroker.client import Admin
from logbroker.client.admin.queue_admin import QueueAdmin
from logbroker.client.admin.queue_descriptions import QueueDescription
from logbroker.embedded_broker import EmbeddedBroker, embedded
from logbroker.errors import LogbrokerError
from logbroker.tools.bench.harness.measure import Setup

VALUE: Final = b"." * 100
PREFETCH: Final = 2000
_RECORD_BYTES: Final = len(VALUE) + 20
"""The size of a record on disk, with its key and its part of a batch."""
_LOOK_SECONDS: Final = 0.02
_LOOK_SHARE: Final = 0.02
"""The share of the time that may be spent on `describe_queue`. With a thousand partitions, one call takes the broker
about 20 ms."""


@contextmanager
def running_broker(setup: Setup, records: int = 0) -> Iterator[EmbeddedBroker]:
    """Run a broker that is going to hold `records` records. Raises DiskFullError if there is no room for them."""
    setup.check_room(records * _RECORD_BYTES)
    with (
        tempfile.TemporaryDirectory(prefix="logbroker-bench-", dir=setup.directory) as directory,
        embedded(Path(directory, "broker")) as running,
    ):
        yield running


async def create_topic(address: str, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
    async with Admin(address) as admin:
        await admin.create_topic(name, partitions, configs={"retention.ms": "-1", **(configs or {})})


async def until(admin: QueueAdmin, group: str, reached: Callable[[QueueDescription], bool]) -> None:
    while True:
        begun = time.monotonic()
        if reached(await admin.describe_queue(group)):
            return
        await asyncio.sleep(max(_LOOK_SECONDS, (time.monotonic() - begun) / _LOOK_SHARE))


async def work_off(admin: QueueAdmin, address: str, group: str, *, workers: int, records: int, out: str = "") -> float:
    """Let worker processes take and acknowledge all records of a queue group. With `out`, each ack also sends the
    record to this topic. Return the seconds from the first delivery to the last sync. Raises LogbrokerError unless
    every record was delivered once."""
    kind = ("sender", address, group, PREFETCH, out) if out else ("worker", address, group, PREFETCH)
    with ExitStack() as stack:
        children = [stack.enter_context(start_child(*kind)) for _ in range(workers)]
        await until(admin, group, lambda queue: not (queue.counts.open or queue.counts.unscanned))
        said = [await asyncio.to_thread(child.end) for child in children]
    delivered = sum(each["records"] for each in said)
    if delivered != records:
        raise LogbrokerError(f"{delivered} deliveries of {records} records: a lease ended, or a record was lost")
    begun: float = min(each["first"] for each in said if each["records"])
    synced: float = max(each["synced"] for each in said)
    return synced - begun


class Child:
    """A process of `queue_child`."""

    def __init__(self, *arguments: str | float) -> None:
        command = child_command("logbroker.tools.bench.queues.queue_child", *map(str, arguments))
        # asyncio's subprocesses are not used, because they fork under uvloop, and gRPC must not be forked. The child
        # has a process group of its own, because Ctrl-C is meant for the program: the child must not end before the
        # program.
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)

    def ask(self) -> dict[str, Any]:
        """Send a line to the process, and return its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        return self.result()

    def result(self) -> dict[str, Any]:
        """Return the next line of the process, decoded."""
        assert self.process.stdout is not None
        said: dict[str, Any] = json.loads(self.process.stdout.readline())
        return said

    def end(self) -> dict[str, Any]:
        """Let the process end cleanly. Return its last line, decoded."""
        said, _ = self.process.communicate()
        last: dict[str, Any] = json.loads(said)
        return last


@contextmanager
def start_child(*arguments: str | float) -> Iterator[Child]:
    started = Child(*arguments)
    with started.process:  # This closes the pipes and waits.
        try:
            yield started
        finally:
            started.process.kill()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1000
