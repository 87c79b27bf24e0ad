"""`logbroker experiment lanes`, a small one: who keeps order, who is idle, and what is shown of it."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from logbroker.cli.experiment.view import strips_text
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import LogbrokerError
from logbroker.tools.experiments.crew import Crew
from logbroker.tools.experiments.lane_strip import Strip
from logbroker.tools.experiments.lanes import HOT_KEY, MANY_KEYS, STRIPS, strip_plans
from logbroker.tools.experiments.metrics import Finish
from logbroker.tools.experiments.worker_process import WorkerJob
from tests.cli.command import LOGBROKER, failure_of, logbroker

RECORDS = 400
WORKERS = 4


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, str]:
    """Output of a small experiment: its metrics, its lines, its page."""
    html = tmp_path_factory.mktemp("lanes") / "lanes.html"
    sizes = ("--records", RECORDS, "--workers", WORKERS, "--work-ms", 5)
    result = logbroker("experiment", "lanes", *map(str, sizes), "--json", "--html", html)
    assert result.returncode == 0, result.stderr.decode()
    return json.loads(result.stdout), result.stderr.decode(), html.read_text(encoding="utf-8")


@pytest.mark.prove
def test_order_is_kept_where_it_is_promised_and_only_there(lanes: tuple[dict[str, Any], str, str]) -> None:
    none, *ordered = lanes[0]["strips"]
    for strip in ordered:
        assert (strip["violations"], strip["violated_keys"]) == (0, 0)
    assert none["violations"] > 0, "four workers, and no two records changed places"
    assert [strip["records"] for strip in (none, *ordered)] == [RECORDS] * STRIPS


@pytest.mark.prove
def test_one_line_keeps_the_other_workers_idle(lanes: tuple[dict[str, Any], str, str]) -> None:
    none, single, few, many, hot, split = lanes[0]["strips"]
    assert single["mean_busy_workers"] <= 1.0
    assert single["idle_share"] >= (WORKERS - 1) / WORKERS
    for strip in (none, few, many, split):
        assert strip["records_per_second"] > single["records_per_second"]
    assert split["records_per_second"] > hot["records_per_second"]
    for strip in (none, single, few, many, hot, split):
        assert 0 <= strip["wait_ms_p50"] <= strip["wait_ms_p99"] <= strip["finish_ms_p99"]
        assert strip["work_ms_mean"] >= 5


def test_without_a_terminal_there_are_plain_lines(lanes: tuple[dict[str, Any], str, str]) -> None:
    lines = lanes[1].splitlines()
    assert lines[0] == f"Starting {STRIPS * WORKERS} worker processes..."
    last = f"none: {RECORDS} of {RECORDS}; single: {RECORDS} of {RECORDS};"
    assert re.match(rf"\d+ s: {re.escape(last)}", lines[-1])
    assert "\x1b" not in lanes[1]


def test_the_page_loads_nothing_and_says_what_was_run(lanes: tuple[dict[str, Any], str, str]) -> None:
    html = lanes[2]
    assert re.search(r"(src|href)=|url\(|<script|<link", html) is None
    assert html.count("<svg") == 1 + 2 * STRIPS
    assert "split into 8: every second key in order" in html
    assert f"logbroker experiment lanes --work-ms 5 --records {RECORDS} --workers {WORKERS}" in html
    assert "{" not in re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL), "a placeholder was left"


async def test_a_worker_that_gives_up_ends_the_experiment_with_its_reason(logbroker_broker: EmbeddedBroker) -> None:
    job = WorkerJob(
        number=0, broker=logbroker_broker.address, group="absent", topic="absent", work_seconds=0.0, prefetch=1
    )
    async with Crew(lambda _: None) as crew, asyncio.timeout(30):
        crew.hire([job])
        with pytest.raises(LogbrokerError, match=r"a worker process ended: UnknownGroupError: .*absent"):
            await until_it_fails(crew)


async def until_it_fails(crew: Crew) -> None:
    while True:
        crew.check()
        await asyncio.sleep(0.02)


def test_more_records_than_there_are_flights_is_a_wrong_call(tmp_path: Path) -> None:
    result = logbroker("experiment", "lanes", "--records", "30000")
    assert result.returncode == 2
    assert "27,004 flights" in result.stderr.decode()


@pytest.mark.prove
def test_a_page_that_was_there_stays_until_another_one_is_written(tmp_path: Path) -> None:
    page, missing = tmp_path / "page.html", tmp_path / "missing" / "page.html"
    page.write_text("precious")
    for wrong in (["--workers", "0"], ["--records", "30000"], ["--html", str(missing)]):
        assert logbroker("experiment", "lanes", "--html", page, *wrong).returncode
        assert page.read_text() == "precious"
    logbroker("experiment", "lanes", "--html", tmp_path / "new.html", "--records", "30000")
    assert not (tmp_path / "new.html").exists()


def test_files_that_cannot_be_written_are_told_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "scaling.csv").mkdir()
    assert "scaling.csv: Is a directory" in failure_of("experiment", "scaling", "--quick", "--out", tmp_path)
    assert not (tmp_path / "scaling.json").exists()


def test_a_page_that_finds_no_room_is_told_before_anything_is_drained(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    call = shlex.join([*LOGBROKER, "experiment", "lanes", "--records", "20", "--workers", "1", "--html", str(page)])
    result = subprocess.run(
        ["sh", "-c", f"ulimit -f 2048 && exec {call}"], capture_output=True, timeout=60, check=False
    )
    said = result.stderr.decode()
    assert result.returncode == 1
    assert f"{tmp_path}: File too large" in said
    assert "Starting" not in said
    assert list(tmp_path.iterdir()) == []


def test_the_strips_of_the_hot_key_have_the_same_records_with_and_without_a_split() -> None:
    plans = strip_plans([(b"N%d" % number, b"") for number in range(10_000)], 8)
    *_, many, hot, split = plans
    assert len(plans) == STRIPS
    assert Counter(hot.record_keys)[HOT_KEY] == pytest.approx(8_000, rel=0.05)
    assert (hot.split_into, split.split_into) == (0, 8)
    assert split.record_keys == hot.record_keys == hot.keys
    assert split.keys == many.keys == many.record_keys, "order is checked within the second key"
    assert len(set(zip(split.keys, split.record_keys, strict=True))) == MANY_KEYS, "a second key has one key"


def test_strips_fit_a_terminal_of_80_columns_and_24_lines() -> None:
    rows = [(b"N%d" % number, b"") for number in range(10_000)]
    strips = [Strip(plan) for plan in strip_plans(rows, 8)]
    for strip in strips:
        strip.add([Finish(0, position, 0.0, 0.01 * position, position % 8) for position in range(0, 200, 2)])
        strip.look(100.0)
    lines = [line.plain for line in strips_text(strips, 2.0, 79).renderables]  # type: ignore[union-attr]
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 79
    assert lines[0].startswith("none")
    assert "100 of 10,000" in lines[0]
    assert lines[0].count("/s") == 1
    assert "busy" in lines[0], "it is not cut off"
    assert lines[-2].endswith("red: disorder")
    done = Strip(strip_plans(rows[:1], 8)[0])
    done.add([Finish(0, 0, 1.0, 2.5, 0)])
    done.look(100.0)
    [head, *_] = [line.plain for line in strips_text([done], 100.0, 79).renderables]  # type: ignore[union-attr]
    assert "1 of 1" in head
    assert "in 2.5 s" in head
