"""A group keeps its promises through a storm, and each planted bug is found by what it does.

Each run has a new seed, which is printed when it fails; STORM_SEED=<seed> sets it. `make torture` runs thirty times as
many events.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.crash.torture import drawn_seed
from tests.groups.group_checker import Kind
from tests.groups.group_plants import BROKER_PLANTS, CLIENT_PLANTS
from tests.groups.storm import Weather, run
from tests.speeds import examples
from tests.storm import hunt

TRIES: Final = 8

_SMALL: Final = Weather(topics={"few": 4}, members=4, grace_seconds=0.5)
_RESTLESS: Final = {"join": 2.0, "leave": 1.0, "kill": 1.0}
_SLEEPY: Final = {"freeze": 1.0}
_LONG_SECONDS: Final = 0.2
"""The longest time that a record is in hand, where a bug shows only while one is."""

SHOWS: Final[dict[str, tuple[dict[str, object], Kind]]] = {
    "given_before_released": ({"chances": _RESTLESS, "events": 8}, Kind.TWO_OWNERS),
    "old_epochs_accepted": ({"chances": _SLEEPY, "events": 6}, Kind.STOLEN_COMMIT),
    "assignments_lost_on_restart": (
        {"chances": {"outage": 1.0}, "events": 1, "members": 3, "grace_seconds": 15.0},
        Kind.MOVED,
    ),
    "committed_while_in_hand": (
        {"chances": {"kill": 1.0}, "events": 2, "members": 2, "handle_seconds": _LONG_SECONDS},
        Kind.COMMIT_AHEAD,
    ),
    "frozen_member_reads_on": (
        {"chances": _SLEEPY, "events": 8, "handle_seconds": _LONG_SECONDS},
        Kind.TWO_OWNERS,
    ),
}
"""For each plant, settings of a small storm that show it, and the anomaly that it is found by."""

pytestmark = pytest.mark.usefixtures("quiet_clients")


@pytest.mark.twice
def test_a_group_keeps_its_promises_through_a_storm(tmp_path: Path) -> None:
    weather = Weather(events=examples(15, 100))
    with drawn_seed("group-storm", "STORM_SEED") as seed:
        figures = run(tmp_path, seed, weather)
    assert sum(count for name, count in figures.items() if name.startswith("events ")) == weather.events
    assert figures["records delivered"] > 10 * weather.events
    # A short storm may have none.
    assert figures["zombie commits refused"] >= examples(0, 1)


@pytest.mark.prove
def test_no_partition_moves_when_the_broker_is_killed_and_all_come_back(tmp_path: Path) -> None:
    # A session that no busy machine ends: one that is over moves partitions, as it should.
    weather = Weather(members=6, session_timeout_seconds=3.0, grace_seconds=15, chances={"outage": 1.0}, events=2)
    figures = run(tmp_path, 1, weather)
    assert figures["events outage"] == 2
    assert figures["partitions lost"] == 0


def test_every_plant_has_a_storm() -> None:
    assert SHOWS.keys() == BROKER_PLANTS.keys() | CLIENT_PLANTS.keys()


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("plant", SHOWS)
def test_a_planted_bug_is_found(plant: str, tmp_path: Path) -> None:
    fields, kind = SHOWS[plant]
    weather = _SMALL.with_plant(plant, fields)
    hunt(lambda directory, seed: run(directory, seed, weather), kind, tmp_path, tries=TRIES)
