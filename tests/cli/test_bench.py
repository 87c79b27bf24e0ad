"""The benchmarks run and report, small ones at least; what they find is for docs/BENCHMARKS.md."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from logbroker.errors import DiskFullError, LogbrokerError
from logbroker.tools.bench.harness.measure import Row, Setup, batch_size_text
from logbroker.tools.bench.queues import measurements, priority, urgent
from tests.cli.command import failure_of, output_of


@pytest.mark.prove
@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        (["produce", "--batch-bytes", "4096", "--seconds", "0.1", "--ceiling"], 1),
        (["produce", "--batch-bytes", "4096", "--seconds", "0.1", "--durability", "synced", "--partitions", "5"], 1),
        (["produce", "--records", "2000"], 1),
        (["consume", "--batch-bytes", "4096", "--batch-bytes", "8192", "--megabytes", "1", "--ceiling"], 2),
        (["consume", "--records", "2000"], 1),
        (["consume", "--records", "2000", "--partitions", "3", "--merged"], 1),
        (["latency", "--count", "20", "--ceiling"], 1),
        (["startup", "--partitions", "10"], 6),
        (["stall", "--batch-bytes", "4096", "--seconds", "0.2"], 3),
        (["seek", "--gigabytes", "0.01", "--count", "10"], 2),
        (["recovery", "--gigabytes", "0.01", "--partitions", "5", "--above-megabytes", "1", "--cold"], 2),
        (["verify", "--gigabytes", "0.01"], 1),
        (["groups", "--only", "settle", "--members", "2", "--partitions", "4"], 3),
        (["groups", "--only", "crowd", "--only", "commits", "--streams", "8", "--seconds", "0.2"], 12),
        (["groups", "--only", "disturbance", "--seconds", "0.5", "--changes", "2"], 2),
        (["queue", "--only", "backlog", "--only", "restart", "--waiting", "1000"], 3),
    ],
)
def test_a_small_benchmark_reports(arguments: list[str], rows: int) -> None:
    found = json.loads(output_of("bench", *arguments, "--rounds", "1", "--json"))
    assert len(found) == rows
    for row in found:
        assert row["median"] > 0 or "less its" in row["name"] or "less the" in row["name"]
        assert (row["ratio"] is not None) == bool({"--ceiling", "--merged"} & set(arguments))


@pytest.mark.prove
def test_a_small_benchmark_of_convoys_reports() -> None:
    sizes = ["--keys", "10", "--handlers", "5", "--records", "200", "--work-ms", "1"]
    found = json.loads(output_of("bench", "convoy", *sizes, "--rounds", "1", "--json"))
    assert [row["unit"] for row in found] == ["records/s", "records/s", "us", "us", "us"]
    assert all(row["median"] > 0 for row in found)


@pytest.mark.prove
def test_a_small_benchmark_of_priorities_reports() -> None:
    sizes = ["--partitions", "1", "--partitions", "3", "--records", "1000", "--waiting", "10000", "--urgent", "100"]
    found = json.loads(output_of("bench", "priority", *sizes, "--workers", "1", "--rounds", "1", "--json"))
    assert [row["unit"] for row in found] == [*["records/s", "us"] * 3, "ms", "records/s", *["ms"] * 8, *["us"] * 4]
    # So few records may take less CPU time than the kernel counts.
    assert all(row["median"] > 0 for row in found if row["unit"] != "us")


@pytest.mark.parametrize(
    "arguments",
    [
        ["seek", "--gigabytes", "1000000"],
        ["recovery", "--gigabytes", "0.01", "--gigabytes", "1000000"],
        ["verify", "--gigabytes", "1000000"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_benchmark_for_which_there_is_no_room_does_not_begin(tmp_path: Path, arguments: list[str]) -> None:
    failure = failure_of("bench", *arguments, "--directory", tmp_path)
    assert "MB free" in failure
    assert str(tmp_path) in failure
    assert not list(tmp_path.iterdir())


@pytest.mark.prove
async def test_a_restart_is_measured_with_few_records_and_keys(tmp_path: Path) -> None:
    setup = Setup(rounds=2, seconds=1, ceiling=False, directory=tmp_path)
    async with asyncio.timeout(60):
        rows = await measurements.restart(setup, records=100, keys=1, acked=1_000)
    assert [len(row.rounds) for row in rows] == [2, 2]


MANY = 10**13


@pytest.mark.parametrize(
    "measure",
    [
        lambda setup: measurements.drain(setup, ordering="key", keys=1, records=MANY, workers=1),
        lambda setup: measurements.pipeline(setup, ordering="key", keys=1, records=MANY, workers=1),
        lambda setup: measurements.backlog(setup, sizes=[MANY], keys=1, deliveries=1),
        lambda setup: measurements.blocked(setup, waiting=MANY, keys=1, records_per_second=1),
        lambda setup: measurements.restart(setup, records=MANY, keys=1, acked=1),
        lambda setup: priority.rebuild(setup, partitions=1, waiting=MANY),
    ],
    ids=["drain", "pipeline", "backlog", "blocked", "restart", "rebuild"],
)
async def test_nor_does_one_of_queue_groups(
    tmp_path: Path, measure: Callable[[Setup], Awaitable[Row | list[Row]]]
) -> None:
    with pytest.raises(DiskFullError, match="choose another"):
        await measure(Setup(rounds=1, seconds=1, ceiling=False, directory=tmp_path))


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(100, "100 B"), (1000, "1000 B"), (1024, "1 KiB"), (1500, "1500 B"), (16384, "16 KiB"), (1 << 20, "1 MiB")],
)
def test_two_sizes_of_batches_have_two_names(size_bytes: int, text: str) -> None:
    assert batch_size_text(size_bytes) == text


async def test_a_measurement_ends_if_a_late_worker_finds_nothing_to_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urgent, "_LOOK_SECONDS", 0.01)
    killed = threading.Event()

    class Late:
        def result(self) -> None:
            killed.wait(60)

    class NoneLeft:
        async def describe_queue(self, group: str) -> Any:
            return SimpleNamespace(counts=SimpleNamespace(open=0))

    children: Any = [Late()]
    admin: Any = NoneLeft()
    try:
        with pytest.raises(LogbrokerError, match="none of the records waits any more"):
            await urgent._all_begun(children, admin)
    finally:
        killed.set()


def test_a_row_that_would_divide_by_nothing_has_no_ratio() -> None:
    """A small benchmark may measure times of 0."""
    fields: dict[str, Any] = {"name": "wait", "durability": "written", "unit": "ms"}
    assert Row(**fields, rounds=[2.0], ceiling_rounds=[0.0], lower_is_better=True).ratio is None
    assert Row(**fields, rounds=[0.0], ceiling_rounds=[2.0]).ratio is None
    assert Row(**fields, rounds=[2.0], ceiling_rounds=[4.0]).ratio == 2.0
