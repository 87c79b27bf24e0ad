"""The scaling experiment, a small one with real consumers: order, counts, who holds what, and what is written of it."""

from __future__ import annotations

import asyncio
import csv
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from logbroker.cli.main import run as run_command
from logbroker.embedded_broker import embedded
from logbroker.tools.experiments.capacity import GROUP, QUEUE
from logbroker.tools.experiments.scaling import scale
from logbroker.tools.experiments.scaling_pictures import draw
from logbroker.tools.experiments.scaling_run import Cell, Scaling

SEED = 3
WORK_MS = 5.0
GRID = [
    Cell(mode=GROUP, partitions=4, consumers=4, skew="uniform", work_ms=WORK_MS),
    Cell(mode=GROUP, partitions=4, consumers=3, skew="hot", work_ms=WORK_MS),
    Cell(mode=QUEUE, partitions=2, consumers=4, skew="uniform", work_ms=WORK_MS),
    Cell(mode=QUEUE, partitions=2, consumers=4, skew="hot", work_ms=WORK_MS),
    Cell(mode=QUEUE, partitions=2, consumers=4, skew="hot", work_ms=WORK_MS, split_into=8),
]


@pytest.fixture(scope="module")
def found() -> Scaling:
    with embedded() as broker:
        return asyncio.run(scale(broker.address, GRID, seconds=0.3, seed=SEED, done=lambda _: None))


@pytest.mark.prove
def test_order_is_kept_in_both_kinds_of_groups(found: Scaling) -> None:
    assert [run.violations for run in found.runs] == [0] * len(found.runs)
    for run in found.runs:
        assert sum(run.key_counts) == run.records
        assert 0 <= run.idle_share < 1
        assert run.p50_ms <= run.p99_ms
        assert run.p50_ms >= WORK_MS
    *_, hot, split = found.runs
    assert hot.handover_ms is not None
    assert split.handover_ms is None, "several records of the key are worked on at once"
    shares = [run.rebalance_ms for run in found.runs if run.mode == GROUP]
    assert all(took is not None and took > 0 for took in shares)
    for run in found.runs:
        partitions = sorted(partition for held in run.held for partition in held)
        assert partitions == (list(range(run.partitions)) if run.mode == GROUP else [])


@pytest.mark.prove
def test_pictures_are_drawn(found: Scaling) -> None:
    pictures = draw(found)
    assert list(pictures) == ["throughput", "latency", "idle", "model"]
    for picture in pictures.values():
        assert ElementTree.fromstring(picture.svg).tag.endswith("svg")
        assert picture.png.startswith(b"\x89PNG")
    assert b"one key has 80 %" in pictures["throughput"].svg
    assert b"queue group of 4, split into 8" in pictures["throughput"].svg


@pytest.mark.prove
@pytest.mark.parametrize("draws", [True, False])
def test_the_command_writes_metrics_and_a_report(
    draws: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = [Cell(mode=mode, partitions=1, consumers=2, skew="uniform", work_ms=5.0) for mode in (GROUP, QUEUE)]
    monkeypatch.setattr("logbroker.cli.experiment.commands.quick_grid", lambda: grid)
    monkeypatch.setattr("logbroker.cli.experiment.commands.QUICK_SECONDS", 0.2)
    monkeypatch.setattr("logbroker.cli.experiment.commands.can_draw", lambda: draws)
    out = tmp_path / "new" / "scaling"
    assert run_command(["experiment", "scaling", "--quick", "--out", str(out), "--seed", "8"]) == 0
    said = capsys.readouterr()
    assert "Order: in 2 runs 0 records" in said.out
    assert "keys by seed 8" in said.out
    assert ("pip install 'logbroker[experiments]'" in said.err) == (not draws)
    found = msgspec.json.decode((out / "scaling.json").read_bytes(), type=Scaling)
    with (out / "scaling.csv").open(encoding="utf-8", newline="") as rows:
        assert [row["mode"] for row in csv.DictReader(rows)] == [run.mode for run in found.runs] == [GROUP, QUEUE]
    report = (out / "report.html").read_text(encoding="utf-8")
    assert report.count("<img") == (4 if draws else 0)
    assert (out / "throughput.png").exists() == draws
    assert run_command(["plan", "--from", str(out / "scaling.json"), "--mode", "queue"]) == 0
    assert "Measured: " in capsys.readouterr().out
