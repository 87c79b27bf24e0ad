"""One round of the comparison: a server is started, loaded in every way, and stopped."""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from compare.child import Await, Create, Latencies, Prepare, Publish, Replay, Work
from compare.clients import ChildClient
from compare.load import Job, Kind, Load, Published, Worked
from compare.peers.peer import Peer, Server
from compare.tally import Tally
from logbroker.errors import LogbrokerError
from logbroker.types import Durability

VALUE_BYTES: Final = (100, 1000)
PER_SECOND: Final = 1000.0
SHARDS: Final = 8
WORKERS: Final = 2
WARM_RECORDS: Final = 100_000
WARM_SHARE: Final = 1 / 3
"""The share of the timed records that is sent before them, at the same pace, and does not count."""
RESTART_VALUE_BYTES: Final = 32 * 1024
_JOBS: Final[Mapping[Kind, str]] = {
    "work": "take and ack, any order",
    "ordered": "take and ack, in order by key",
    "group": "read and commit, in order by partition",
}
_SETTLE_SECONDS: Final = 1.0

Report = Callable[["Figure"], None]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a comparison: what is measured, how large, how often."""

    workloads: Collection[str]
    rounds: int
    records: int
    seconds: float
    """The longest time of one publish."""
    restart_bytes: int
    directory: Path | None = None
    """Where the servers keep their data; None: the temporary directory. The disk under it is measured."""


class Side(msgspec.Struct, frozen=True):
    """A peer at one durability."""

    peer: Peer
    durability: Durability

    @property
    def is_first(self) -> bool:
        """Whether it is the peer's first: what hardly depends on durability is measured there only."""
        return self.durability is next(iter(self.peer.promises))


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one round of one side."""

    workload: str
    measured: str
    peer: str
    durability: Durability
    value: float
    unit: str
    lower_is_better: bool = False


def measure(side: Side, plan: Plan, report: Report) -> None:
    """Run one round of all workloads but the restart; raises LogbrokerError."""
    _Round(side, plan, report).run()


def measure_restart(side: Side, plan: Plan, report: Report) -> None:
    """Fill a server once, then kill and start it as often as there are rounds."""
    with _directory(plan) as directory:
        server = side.peer.server(directory, side.durability)
        try:
            _restart(side, plan, server, report)
        finally:
            server.kill()


@contextmanager
def _directory(plan: Plan) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(
        prefix="logbroker-compare-", dir=plan.directory, ignore_cleanup_errors=True
    ) as directory:
        yield Path(directory)


class _Round:
    def __init__(self, side: Side, plan: Plan, report: Report) -> None:
        self._side = side
        self._plan = plan
        self._report = report

    def run(self) -> None:
        """Start, measure, stop."""
        with _directory(self._plan) as directory:
            self._directory = directory
            server = self._side.peer.server(directory, self._side.durability)
            try:
                self._load(server)
            finally:
                server.kill()

    def _wants(self, workload: str, *, first_only: bool = False) -> bool:
        if workload not in self._plan.workloads or workload in self._side.peer.cannot:
            return False
        return self._side.is_first or not first_only

    def _found(self, workload: str, measured: str, value: float, unit: str, *, lower_is_better: bool = False) -> None:
        self._report(
            Figure(
                workload=workload,
                measured=measured,
                peer=self._side.peer.name,
                durability=self._side.durability,
                value=value,
                unit=unit,
                lower_is_better=lower_is_better,
            )
        )

    def _load(self, server: Server) -> None:
        with ChildClient(self._side.peer.name, server.address) as client:
            client.begin(Await("cold", 1, 1, self._side.durability, create=True))
            begun = time.monotonic()
            server.start()
            seconds = client.result(float) - begun
            if self._wants("start", first_only=True):
                self._found("start", "exec to the first acknowledged record", seconds, "s", lower_is_better=True)
            wants_memory = self._wants("memory", first_only=True)
            if wants_memory:
                time.sleep(_SETTLE_SECONDS)
                self._memory(server, "resident, idle")
            self._publish(client, "warm", WARM_RECORDS, 100)
            for value_bytes in VALUE_BYTES:
                self._publish_and_replay(client, value_bytes)
            if self._wants("latency"):
                self._latency(client)
            for kind in _JOBS:
                if self._wants(kind):
                    self._work(client, server, kind)
            if wants_memory:
                self._memory(server, "resident, after the load")

    def _memory(self, server: Server, measured: str) -> None:
        self._found("memory", measured, server.resident_bytes() / 2**20, "MiB", lower_is_better=True)

    def _publish(
        self, client: ChildClient, topic: str, records: int, value_bytes: int, *, shards: int = 1, keyed: bool = False
    ) -> Published:
        client.call(Create(topic, shards, self._side.durability), Any)
        load = Load(topic, records, value_bytes, shards, keyed, self._plan.seconds)
        return client.call(Publish(load), Published)

    def _publish_and_replay(self, client: ChildClient, value_bytes: int) -> None:
        wants_replay = self._wants("replay", first_only=True)
        if not (self._wants("publish") or wants_replay):
            return
        size = "100 B" if value_bytes == 100 else "1 KB"
        topic = f"values-{value_bytes}"
        published = self._publish(client, topic, self._plan.records, value_bytes)
        if self._wants("publish"):
            self._found("publish", f"publish, {size}", published.records / published.seconds, "records/s")
        if wants_replay:
            seconds = client.call(Replay(topic, published.records), float)
            self._found("replay", f"replay, {size}", published.records / seconds, "records/s")

    def _latency(self, client: ChildClient) -> None:
        records = round(PER_SECOND * min(3.0, self._plan.seconds))
        client.call(Create("latency", 1, self._side.durability), Any)
        call = Latencies("latency", round(WARM_SHARE * records), records, PER_SECOND)
        ranks = statistics.quantiles(client.call(call, list[float]), n=100)
        for rank in (50, 99):
            measured = f"send to receipt at {PER_SECOND:,.0f} records/s, p{rank}"
            self._found("latency", measured, ranks[rank - 1] * 1e3, "ms", lower_is_better=True)

    def _work(self, client: ChildClient, server: Server, kind: Kind) -> None:
        name = self._side.peer.name
        shards = 1 if kind == "work" else SHARDS
        published = self._publish(client, kind, self._plan.records, 100, shards=shards, keyed=True)
        tally_path = self._directory / f"{kind}.tally"
        Tally.create(tally_path, workers=WORKERS, records=published.records)
        jobs = [
            Job(kind, kind, shards, published.records, WORKERS, worker, str(tally_path)) for worker in range(WORKERS)
        ]
        client.call(Prepare(jobs[0]), Any)
        with ExitStack() as stack:
            workers = [stack.enter_context(ChildClient(name, server.address)) for _ in jobs]
            for worker, job in zip(workers, jobs, strict=True):
                worker.begin(Work(job))
            done = [worker.result(Worked) for worker in workers]
        check_worked(kind, published.records, done)
        seconds = max(each.last for each in done) - min(each.first for each in done if each.first is not None)
        self._found(kind, f"{WORKERS} workers {_JOBS[kind]}", published.records / seconds, "records/s")


def check_worked(kind: Kind, records: int, done: Sequence[Worked]) -> None:
    """Raise LogbrokerError where records were lost, came twice, or came out of order."""
    delivered, repeated = sum(each.records for each in done), sum(each.repeated for each in done)
    if delivered != records or repeated:
        raise LogbrokerError(f"{delivered:,} deliveries of {records:,} records in {kind!r}, {repeated:,} of them again")
    if kind != "work" and (disordered := sum(each.disordered for each in done)):
        raise LogbrokerError(f"{disordered:,} records of {kind!r} out of order")


def _restart(side: Side, plan: Plan, server: Server, report: Report) -> None:
    durability, topic = side.durability, "restart"
    server.start()
    with ChildClient(side.peer.name, server.address) as client:
        client.call(Await("warm", 1, 1, durability, create=True), float)
        client.call(Create(topic, 1, durability), Any)
        records = _fill(client, topic, math.ceil(plan.restart_bytes / RESTART_VALUE_BYTES))
        for _ in range(plan.rounds):
            # What was written last is what a crash leaves to look through.
            records += _fill(client, topic, max(1, records // 20))
            server.kill()
            client.begin(Await(topic, 1, records, durability))
            begun = time.monotonic()
            server.start()
            seconds = client.result(float) - begun
            report(
                Figure(
                    workload="restart",
                    measured=f"exec after a SIGKILL to all records, {plan.restart_bytes / 1e9:g} GB",
                    peer=side.peer.name,
                    durability=durability,
                    value=seconds,
                    unit="s",
                    lower_is_better=True,
                )
            )


def _fill(client: ChildClient, topic: str, records: int) -> int:
    return client.call(Publish(Load(topic, records, RESTART_VALUE_BYTES)), Published).records
