"""Convoys keep the promises of a group, and the order of each key, through kills and rebalances; and each planted bug
is found by what it does.

Each run has a new seed, which is printed when it fails; STORM_SEED=<seed> sets it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.crash.torture import drawn_seed
from tests.groups.group_checker import Kind
from tests.groups.group_plants import CONVOY_PLANTS
from tests.groups.storm import CONVOYS, run
from tests.storm import hunt

TRIES: Final = 16
SHOWS: Final[dict[str, tuple[dict[str, object], Kind]]] = {
    "convoy_commits_ahead": ({"chances": {"kill": 1.0}, "events": 3, "members": 3}, Kind.COMMIT_AHEAD),
    "convoy_text_cut_off": ({"chances": {"kill": 1.0}, "events": 3, "members": 3}, Kind.FORGOTTEN),
    "convoy_forgets_at_revocation": ({"chances": {"join": 2.0, "leave": 1.0}, "events": 8}, Kind.NOT_HELD),
}
"""For each plant, settings of a small storm that show it, and the anomaly that it is found by."""

pytestmark = pytest.mark.usefixtures("quiet_clients")


@pytest.mark.prove
def test_convoys_keep_their_promises_through_a_storm(tmp_path: Path) -> None:
    with drawn_seed("convoy-storm", "STORM_SEED") as seed:
        figures = run(tmp_path, seed, CONVOYS.with_plant("", {"events": 15}))
    assert figures["records delivered"] > 150


@pytest.mark.prove
@pytest.mark.parametrize("part", range(4))
def test_convoys_keep_their_promises_through_100_kills_and_100_rebalances(part: int, tmp_path: Path) -> None:
    chances = {"kill": 45.0, "freeze": 6.0, "leave": 24.0, "join": 22.0, "broker": 3.0}
    with drawn_seed("convoy-storm", "STORM_SEED") as seed:
        figures = run(tmp_path, seed, CONVOYS.with_plant("", {"events": 100, "chances": chances}))
    # A quarter of each. Whoever leaves or joins moves partitions, and so does each kill.
    assert figures["events kill"] >= 25
    assert figures["events leave"] + figures["events join"] >= 25


def test_every_plant_has_a_storm() -> None:
    assert SHOWS.keys() == CONVOY_PLANTS.keys()


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("plant", SHOWS)
def test_a_planted_bug_is_found(plant: str, tmp_path: Path) -> None:
    fields, kind = SHOWS[plant]
    # A fast machine would leave no record that waits in a convoy, for any of the bugs to show at.
    weather = CONVOYS.with_plant(plant, {"topics": {"few": 4}, "members": 4, "handle_seconds": 0.5, **fields})
    hunt(lambda directory, seed: run(directory, seed, weather), kind, tmp_path, tries=TRIES)
