"""`make compare-takeover`: how long the groups of a killed gateway stand still, on a Kafka cluster of three nodes."""

from __future__ import annotations

import asyncio
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Final

import click
import msgspec
import uvloop

from compare import machine
from compare.peers.cluster import ClusterServer
from compare.peers.kafka_cluster import class_path
from compare.peers.server import ServerProcess
from logbroker.cli.common import terminal
from logbroker.cli.common.arguments import Whole
from logbroker.cli.common.lines import write_line
from logbroker.cli.common.options import json_option
from logbroker.cli.main import main
from logbroker.client import Admin, Producer, QueueAdmin, QueueSettings, Worker
from logbroker.errors import LogbrokerError

GATEWAYS: Final = 2
WORKERS: Final = 8
"""Groups that have a worker. Those of the killed gateway are measured."""
_BANDS: Final = "hot=7-9:100,warm=4-6:300,cold=0-3:600"
"""Bands of a topic with 1,000 partitions."""
_WARM_DELIVERIES: Final = 20
_LATER_SECONDS: Final = 5.0
"""Deliveries so long after the kill come from the other gateway."""
_GIVE_UP_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 0.05


class Takeover(msgspec.Struct, frozen=True):
    """One round: the seconds from the kill to the first delivery by the other gateway, of each measured group."""

    partitions: int
    groups: int
    records: int
    has_priorities: bool
    seconds: list[float]


async def _fill(addresses: str, topic: str, partitions: int, records: int, *, has_priorities: bool) -> None:
    configs = {"retention.ms": "-1", **({"priority.bands": _BANDS} if has_priorities else {})}
    async with Admin(addresses, request_timeout_seconds=120) as admin:
        await admin.create_topic(topic, partitions, configs=configs)
    async with Producer(addresses, batch_bytes=1_000_000) as producer:
        for number in range(records):
            priority = number % 10 if has_priorities else None
            await producer.send(topic, bytes(100), b"key-%d" % (number % 10_000), priority=priority)
        await producer.flush()


class _Worked:
    """A worker of one group, which notes when it gets deliveries."""

    def __init__(self, addresses: str, group: str) -> None:
        self._addresses = addresses
        self._group = group
        self.times: list[float] = []

    async def run(self) -> None:
        async with Worker(self._addresses, self._group, prefetch=4) as worker:
            async for delivery in worker:
                self.times.append(time.monotonic())
                # Slow enough that the group has records until the end.
                await asyncio.sleep(0.02)
                delivery.ack()


async def _measure(
    addresses: str, gateways: list[ServerProcess], partitions: int, groups: int, records: int, *, has_priorities: bool
) -> Takeover:
    topic = "takeover"
    await _fill(addresses, topic, partitions, records, has_priorities=has_priorities)
    settings = QueueSettings(priority="strict" if has_priorities else "none")
    async with QueueAdmin(addresses, request_timeout_seconds=120) as admin:
        for number in range(groups):
            await admin.create_queue(f"group-{number}", topic, settings)
    workers = [_Worked(addresses, f"group-{number}") for number in range(min(groups, WORKERS))]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        await _until(lambda: all(len(worker.times) >= _WARM_DELIVERIES for worker in workers))
        killed_at = time.monotonic()
        await asyncio.to_thread(gateways[0].kill)
        # Deliveries that the killed one has sent are worked off first; then its groups stand still until the other has
        # taken them over. Groups of the other gateway never stand still.
        await _until(lambda: all(worker.times[-1] > killed_at + _LATER_SECONDS for worker in workers))
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    gaps = [_first_after_the_longest_gap(worker.times, killed_at) for worker in workers]
    return Takeover(
        partitions, groups, records, has_priorities, [seconds - killed_at for seconds, gap in gaps if gap > 1.0]
    )


async def _until(is_so: Callable[[], bool]) -> None:
    """Raises LogbrokerError if it takes long."""
    for _ in range(round(_GIVE_UP_SECONDS / _LOOK_SECONDS)):
        if is_so():
            return
        await asyncio.sleep(_LOOK_SECONDS)
    raise LogbrokerError(f"not all groups get deliveries within {_GIVE_UP_SECONDS:g} s")


def _first_after_the_longest_gap(times: list[float], since: float) -> tuple[float, float]:
    """Return the time of the first delivery after the longest pause that ended after a moment, and that pause."""
    pairs = [(late, late - early) for early, late in pairwise(times) if late > since]
    return max(pairs, key=lambda pair: pair[1])


def measure(partitions: int, groups: int, records: int, *, has_priorities: bool) -> Takeover:
    """Start a cluster and gateways, kill one of these, and end all. Raises LogbrokerError."""
    with tempfile.TemporaryDirectory(prefix="logbroker-takeover-", ignore_cleanup_errors=True) as directory:
        server = ClusterServer(Path(directory), GATEWAYS)
        try:
            server.start()
            return uvloop.run(
                _measure(server.address, server.gateways, partitions, groups, records, has_priorities=has_priorities)
            )
        finally:
            server.kill()


@click.command("compare-takeover")
@click.option("--rounds", type=Whole(1), default=3, show_default=True, help="Rounds of each row.")
@click.option("--records", type=Whole(1000), default=1_000_000, show_default=True, help="Records that wait.")
@json_option
def takeover_command(rounds: int, records: int, as_json: bool) -> None:
    """Kill one of two gateways to a Kafka cluster, and measure when its groups go on at the other one.

    \b
    Examples:
      make compare-takeover
      make compare-takeover ARGS="--rounds 1 --records 100000"
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if missing := class_path()[1]:
        raise LogbrokerError(f"Kafka cannot be run: {missing}")
    found = [
        measure(partitions, groups, records if not has_priorities else records // 10, has_priorities=has_priorities)
        for _ in range(rounds)
        for partitions, groups, has_priorities in ((12, 100, False), (1000, 4, True))
    ]
    words = machine.words(Path(tempfile.gettempdir()))
    if as_json:
        terminal.write_json({"machine": words, "rounds": found})
        return
    table = terminal.table("waiting", "groups", "median", "range", numbers=("groups", "median"))
    for has_priorities in (False, True):
        rows = [each for each in found if each.has_priorities is has_priorities]
        seconds = [each for row in rows for each in row.seconds]
        what = f"{rows[0].records:,} records in {rows[0].partitions:,} partitions"
        what += " with priorities" if has_priorities else ""
        spread = f"{min(seconds):.2f} - {max(seconds):.2f} s"
        table.add_row(what, str(rows[0].groups), f"{statistics.median(seconds):.2f} s", spread)
    terminal.show(table)
    write_line("From the SIGKILL of the gateway that had the group to the first delivery by the other one.")
    write_line(f"Measured on: {words}")


if __name__ == "__main__":
    main(takeover_command, "compare-takeover")
