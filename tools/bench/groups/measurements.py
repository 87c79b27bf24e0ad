"""The costs of consumer groups: the time of rebalances, commits per second, and the effect of a rebalance on other
members."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from logbroker.child_python import child_command
from logbroker.client import Admin, Consumer, Producer
from logbroker.embedded_broker import embedded
from logbroker.tools.bench.groups.group_streams import Crowd
from logbroker.tools.bench.harness.measure import TOPIC, Row, Setup
from logbroker.types import TopicPartition

GRACE_SECONDS: Final = 2.0
SESSION_SECONDS: Final = 3.0
IN_FLIGHT: Final = 8
"""Commits that a member sends before the first is answered."""
OFFSETS_PER_REQUEST: Final = 50
LASTING_MEMBERS: Final = 4
RECORDS_PER_SECOND: Final = 5000
_SETTLE_SECONDS: Final = 1.0
"""The time between two checks whether records flow, before the measurement begins."""


@asynccontextmanager
async def _broker(setup: Setup, partitions: int) -> AsyncIterator[str]:
    """Run a broker with a topic of `partitions`. Yield its address."""
    with (
        tempfile.TemporaryDirectory(prefix="logbroker-bench-", dir=setup.directory) as directory,
        embedded(Path(directory, "broker"), reconnect_grace_seconds=GRACE_SECONDS) as broker,
    ):
        async with Admin(broker.address) as admin:
            await admin.create_topic(TOPIC, partitions, configs={"durability": "written"})
        yield broker.address


# --- a few members, through the Python client ------------------------------------------------------------------------


class _Readers:
    """Consumers of one group in this process."""

    def __init__(self, address: str, group: str) -> None:
        self.held: list[set[TopicPartition]] = []
        self.seen: set[int] = set()
        """Partitions of which a record was delivered since the set was cleared."""
        self._address = address
        self._group = group
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let one more consumer join. It reads until the end of the block."""
        mine: set[TopicPartition] = set()
        self.held.append(mine)

        def assigned(partitions: list[TopicPartition]) -> None:
            mine.update(partitions)
            self._changed.set()

        def released(partitions: list[TopicPartition]) -> None:
            mine.difference_update(partitions)
            self._changed.set()

        async def read() -> None:
            async for records in consumer.batches():
                self.seen.add(records[0].partition)
                self._changed.set()

        async with Consumer(self._address, group=self._group) as consumer:
            await consumer.subscribe(TOPIC, on_assigned=assigned, on_revoked=released, on_lost=released)
            reading = asyncio.create_task(read())
            try:
                yield
            finally:
                reading.cancel()
                await asyncio.wait([reading])

    async def hold(self, counts: list[int]) -> None:
        """Wait until the consumers hold these numbers of partitions, in any order."""
        while sorted(map(len, self.held)) != sorted(counts):
            self._changed.clear()
            await self._changed.wait()

    async def see(self, partitions: set[int]) -> None:
        while not partitions <= self.seen:
            self._changed.clear()
            await self._changed.wait()


def _shares(partitions: int, members: int) -> list[int]:
    return [(partitions + place) // members for place in range(members)]


async def join(setup: Setup, *, members: int, partitions: int) -> Row:
    """Measure the time from the join of the last member until every member holds its share, in ms."""
    rounds = []
    async with _broker(setup, partitions) as address:
        for number in range(setup.rounds):
            readers = _Readers(address, f"join-{number}")
            async with AsyncExitStack() as stack:
                for _ in range(members - 1):
                    await stack.enter_async_context(readers.running())
                await readers.hold(_shares(partitions, members - 1))
                start = time.perf_counter()
                await stack.enter_async_context(readers.running())
                await readers.hold(_shares(partitions, members))
                rounds.append(time.perf_counter() - start)
    return _times(f"{members} members, {partitions} partitions: the last joins, until stable", rounds)


async def takeover(setup: Setup, *, members: int, partitions: int, freeze: bool) -> Row:
    """Measure the time until all partitions of a member that was killed, or froze, are read again, in ms. The grace or
    the session timeout is subtracted."""
    rounds = []
    forgiven_seconds = SESSION_SECONDS if freeze else GRACE_SECONDS
    async with _broker(setup, partitions) as address, Producer(address) as producer:
        for number in range(setup.rounds):
            readers = _Readers(address, f"takeover-{number}")
            async with AsyncExitStack() as stack:
                for _ in range(members - 1):
                    await stack.enter_async_context(readers.running())
                victim = stack.enter_context(_child("member", address, f"takeover-{number}", TOPIC, SESSION_SECONDS))
                await victim.holds(1)
                await readers.hold(_shares(partitions, members)[: members - 1])
                held = {partition.partition for mine in readers.held for partition in mine}
                orphans = set(range(partitions)) - held
                victim.signal(signal.SIGSTOP if freeze else signal.SIGKILL)
                start = time.perf_counter()
                readers.seen.clear()
                for partition in orphans:
                    await producer.send(TOPIC, b"", partition=partition)
                await readers.see(orphans)
                rounds.append(time.perf_counter() - start - forgiven_seconds)
    how = "a frozen member, without its session timeout" if freeze else "a killed member, without the grace"
    return _times(f"{members} members, {partitions} partitions: takeover from {how}", rounds)


# --- a crowd, as streams ---------------------------------------------------------------------------------------------


async def crowd(setup: Setup, *, members: int, partitions: int) -> list[Row]:
    """Measure the time until the group is stable: after all members join at once, after one leaves, and after one
    joins, in ms. Half and a quarter of the members and partitions are measured, too."""
    sizes = [(members // part, partitions // part) for part in (4, 2, 1)]
    rows = []
    async with _broker(setup, 1) as address:
        async with Admin(address) as admin:
            for _, these in sizes:
                await admin.create_topic(f"{TOPIC}-{these}", these)
        for some, these in sizes:
            joins, leaves, returns = [], [], []
            for number in range(setup.rounds):
                group = Crowd(address, f"crowd-{these}-{number}", f"{TOPIC}-{these}", these)
                start = time.perf_counter()
                group.join(some)
                await group.settled()
                joins.append(time.perf_counter() - start)
                start = time.perf_counter()
                await group.leave_one()
                await group.settled()
                leaves.append(time.perf_counter() - start)
                start = time.perf_counter()
                group.join(1)
                await group.settled()
                returns.append(time.perf_counter() - start)
                await group.end()
            who = f"{some} streams, {these} partitions"
            rows += [
                _times(f"{who}: all join at once, until stable", joins),
                _times(f"{who}: one leaves, until stable", leaves),
                _times(f"{who}: one joins, until stable", returns),
            ]
    return rows


async def commits(setup: Setup, *, members: int, seconds: float) -> list[Row]:
    """Measure the synced commits per second of all members together, with one offset per request and with fifty."""
    partitions = members * OFFSETS_PER_REQUEST
    rates: dict[tuple[int, int], list[float]] = {(1, 1): [], (1, IN_FLIGHT): [], (OFFSETS_PER_REQUEST, IN_FLIGHT): []}
    async with _broker(setup, partitions) as address:
        async with Producer(address) as producer:
            for partition in range(partitions):
                await producer.send(TOPIC, b"", partition=partition)
        group = Crowd(address, "commits", TOPIC, partitions)
        group.join(members)
        await group.settled()
        for _ in range(setup.rounds):
            for (offsets, in_flight), found in rates.items():
                start = time.perf_counter()
                counts = await asyncio.gather(
                    *(member.commit_for(seconds, offsets=offsets, in_flight=in_flight) for member in group.members)
                )
                found.append(sum(counts) * offsets / (time.perf_counter() - start))
        await group.end()
    return [
        Row(
            name=f"{members} members commit, offsets per request: {offsets}, requests in flight each: {in_flight}",
            durability="synced",
            unit="requests/s" if offsets == 1 else "offsets/s",
            rounds=found,
            ceiling_rounds=[],
        )
        for (offsets, in_flight), found in rates.items()
    ]


# --- members that a rebalance does not concern -----------------------------------------------------------------------


async def disturbance(setup: Setup, *, partitions: int, changes: int) -> list[Row]:
    """Measure the longest wait for the next record of a partition that is not moved, in ms: without changes, then while
    one more member joins and leaves. Each measurement is one round of `setup.seconds`.
    """
    async with _broker(setup, partitions) as address:
        with ExitStack() as stack:

            def child(*arguments: str | float) -> _Child:
                return stack.enter_context(_child(*arguments))

            lasting = [child("member", address, "disturbed", TOPIC, SESSION_SECONDS) for _ in range(LASTING_MEMBERS)]
            for member in lasting:
                await member.holds(partitions // LASTING_MEMBERS)
            child("sender", address, TOPIC, partitions, RECORDS_PER_SECOND)
            await asyncio.sleep(_SETTLE_SECONDS)
            while not await _longest_wait(lasting):  # noqa: ASYNC110 (no record has come yet)
                await asyncio.sleep(_SETTLE_SECONDS)
            await asyncio.sleep(setup.seconds)
            undisturbed = await _longest_wait(lasting)
            guest = None
            for _ in range(changes):
                if guest is None:
                    guest = child("member", address, "disturbed", TOPIC, SESSION_SECONDS)
                else:
                    await guest.end()
                    guest = None
                await asyncio.sleep(setup.seconds / changes)
            disturbed = await _longest_wait(lasting)
    what = f"{RECORDS_PER_SECOND:,} records/s, {partitions} partitions: longest wait where nothing moves"
    return [
        _times(f"{what}, no changes", [undisturbed]),
        _times(f"{what}, {changes} joins and leaves", [disturbed]),
    ]


async def _longest_wait(members: list[_Child]) -> float:
    return max([await member.longest_wait() for member in members])


class _Child:
    """A process of `group_child`."""

    def __init__(self, *arguments: str | float) -> None:
        command = child_command("logbroker.tools.bench.groups.group_child", *map(str, arguments))
        # asyncio's subprocesses are not used, because they fork under uvloop, and gRPC must not be forked. The child
        # has a process group of its own, because Ctrl-C is meant for the program: the child must not end before the
        # program.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)

    async def holds(self, least: int) -> None:
        """Wait until the member reports at least `least` partitions."""
        assert self._process.stdout is not None
        while int(await asyncio.to_thread(self._process.stdout.readline)) < least:
            pass

    async def longest_wait(self) -> float:
        """Return the longest wait since the last call, in seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        while True:
            said = json.loads(await asyncio.to_thread(self._process.stdout.readline))
            if isinstance(said, dict):
                return float(said["longest"])

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def end(self) -> None:
        """Let the process end cleanly."""
        await asyncio.to_thread(self._process.communicate)

    def kill(self) -> None:
        with self._process:  # This closes the pipes and waits.
            self._process.kill()


@contextmanager
def _child(*arguments: str | float) -> Iterator[_Child]:
    child = _Child(*arguments)
    try:
        yield child
    finally:
        child.kill()


def _times(name: str, seconds: list[float]) -> Row:
    rounds = [each * 1e3 for each in seconds]
    return Row(name=name, durability="-", unit="ms", rounds=rounds, ceiling_rounds=[], lower_is_better=True)
