"""A queue group keeps its promises through a storm, and each planted bug is found by what it does.

Each run has a new seed, which is printed when it fails; STORM_SEED=<seed> sets it. `make torture` sends fifty times as
many records.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from tests.crash.torture import drawn_seed
from tests.queue_storm.queue_checker import Kind
from tests.queue_storm.queue_plants import PLANTS
from tests.queue_storm.storm import run
from tests.queue_storm.weather import Weather
from tests.speeds import examples
from tests.storm import hunt

TRIES: Final = 5

_SMALL: Final = Weather(
    records=600, keys=30, workers=3, session_workers=0, events=2, pause_seconds=0.5, grows=False, quiet_seconds=2
)
_FAILING: Final = {"nacks": 0.3, "poison": 0.0}

SHOWS: Final[dict[str, tuple[dict[str, object], Kind]]] = {
    "two_in_flight_in_a_lane": ({"events": 0, "keys": 10}, Kind.TWO_IN_FLIGHT),
    "late_settlements_accepted": ({"chances": {"freeze": 1.0}, "late": 0.05}, Kind.LATE_SETTLEMENT),
    "answered_before_synced": ({"chances": {"broker": 1.0}, "pause_seconds": 1.0, "records": 1000}, Kind.ACK_LOST),
    "attempts_forgotten_at_restart": (
        {"chances": {"broker": 1.0}, "pause_seconds": 1.0, "nacks": 0.6, "max_attempts": 1000},
        Kind.ATTEMPTS_FORGOTTEN,
    ),
    "backoffs_ignored": ({"chances": {"nap": 1.0}, **_FAILING}, Kind.TOO_EARLY),
    "parked_lanes_leak": (
        {"pause_seconds": 1.0, "keys": 10, "on_exhausted": "park", "poison": 0.1, "max_attempts": 2},
        Kind.LEAKED,
    ),
    "stale_tokens_accepted": (
        {
            "chances": {"freeze": 1.0},
            "events": 6,
            "workers": 0,
            "session_workers": 4,
            "keys": 8,
            "records": 4000,
        },
        Kind.STALE_TOKEN,
    ),
}
"""For each plant, settings of a small storm that show it, and the anomaly that it is found by."""


pytestmark = pytest.mark.usefixtures("quiet_clients")


@pytest.mark.twice
def test_a_queue_group_keeps_its_promises_through_a_storm(tmp_path: Path) -> None:
    usual = Weather()
    # In a short storm, more fails, and sooner for good.
    weather = Weather(
        records=examples(4_000, usual.records),
        events=examples(5, usual.events),
        max_attempts=examples(2, usual.max_attempts),
        poison=examples(20, 2) / 1000,
    )
    with drawn_seed("queue-storm", "STORM_SEED") as seed:
        figures = run(tmp_path, seed, weather)
    assert figures["records sent"] == weather.records
    assert figures["dead letters"] > 0
    assert figures["sessions opened"] > 0
    # A short storm may have none.
    assert figures["refused LEASE_LOST"] >= examples(0, 1)
    assert figures["stale words refused"] >= examples(0, 1)


def workflow(**fields: Any) -> Weather:
    """A storm on hot lanes that are split and joined, and whose acks send outputs."""
    return Weather(keys=20, parts=6, has_outputs=True, **fields)


@pytest.mark.prove
def test_lanes_that_are_split_and_joined_keep_their_promises_through_a_storm(tmp_path: Path) -> None:
    weather = workflow(records=2_000, events=8, max_attempts=3)
    with drawn_seed("workflow-storm", "STORM_SEED") as seed:
        figures = run(tmp_path, seed, weather)
    assert figures["lanes split"] > 0
    assert figures["lanes join"] > 0


@pytest.mark.prove
@pytest.mark.parametrize("on_exhausted", ["dead-letter", "park", "block"])
def test_lanes_that_are_split_and_joined_keep_their_promises_for_long(tmp_path: Path, on_exhausted: str) -> None:
    with drawn_seed("workflow-storm", "STORM_SEED") as seed:
        run(tmp_path, seed, workflow(records=7_000, events=25, on_exhausted=on_exhausted))


@pytest.mark.prove
def test_lanes_that_are_parked_stay_so_through_a_storm(tmp_path: Path) -> None:
    figures = run(tmp_path, 1, Weather(records=3000, keys=200, events=15, on_exhausted="park", max_attempts=2))
    assert figures["lanes resumed"] > 0


def test_every_plant_has_a_storm() -> None:
    assert SHOWS.keys() == PLANTS.keys()


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("plant", SHOWS)
def test_a_planted_bug_is_found(plant: str, tmp_path: Path) -> None:
    fields, kind = SHOWS[plant]
    weather = _SMALL.with_plant(plant, fields)
    hunt(lambda directory, seed: run(directory, seed, weather), kind, tmp_path, tries=TRIES)
