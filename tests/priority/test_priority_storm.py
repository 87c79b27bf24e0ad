"""Queue groups hand out the most urgent record first through a storm, and each planted bug is found by what it does.

Each run has a new seed, which is printed when it fails; STORM_SEED=<seed> sets it. `make torture` runs longer ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tests.anomalies import BrokenPromisesError
from tests.crash.torture import drawn_seed
from tests.priority.priority_checker import Kind
from tests.priority.priority_plants import PLANTS
from tests.priority.priority_storm import run
from tests.priority.priority_weather import Weather
from tests.priority.torture_priority import ANY, COLUMN, LANES, MANY_PARTITIONS, ONE_PARTITION
from tests.speeds import examples

TRIES: Final = 5
EXCUSED_SHARE: Final = 0.05
"""The largest share of what is checked: where the fate of more records is not known, the storm shows little."""

_CALM: Final = {"events": 0, "nacks": 0.0, "releases": 0.0, "late": 0.0}
_SMALL: Final = Weather(groups=(ANY,), partitions=4, records=200, keys=20, quiet_seconds=3)
_STREAMS: Final = msgspec.structs.replace(LANES, callers=0, streams=4)

SHOWS: Final[dict[str, dict[str, Any]]] = {
    "head_not_reread_after_pop": _CALM,
    "inheritance_dropped": {**_CALM, "groups": (LANES,)},
    "heap_rebuilt_without_leased_lanes": {
        "groups": (_STREAMS,),
        "chances": {"broker": 1.0},
        "events": 1,
        "pause_seconds": 1.0,
        "grace_seconds": 1.0,
        # Those that nobody sees anew excuse as many overtaken ones for a lease.
        "lease_seconds": 0.3,
        "records": 400,
        "handle_seconds": 0.02,
        "nacks": 0.3,
        "releases": 0.3,
    },
    "mark_not_awaited": {**_CALM, "partitions": 200, "keys": 200},
}
"""For each plant, settings of a small storm that show it."""


pytestmark = pytest.mark.usefixtures("quiet_clients")


@pytest.mark.twice
@pytest.mark.prove
@pytest.mark.parametrize("weather", [ONE_PARTITION, MANY_PARTITIONS], ids=["one partition", "1,000 partitions"])
def test_no_record_is_overtaken_by_a_less_urgent_one(weather: Weather, tmp_path: Path) -> None:
    # Each event excuses some records, whatever their number.
    weather = msgspec.structs.replace(
        weather,
        records=examples(weather.records // 5, weather.records),
        events=examples(weather.events // 3, weather.events),
    )
    with drawn_seed(COLUMN, "STORM_SEED") as seed:
        figures = run(tmp_path, seed, weather)
    assert figures["records checked"] > weather.records * len(weather.groups) / 2
    assert figures["records excused"] < figures["records checked"] * EXCUSED_SHARE


def test_every_plant_has_a_storm() -> None:
    assert SHOWS.keys() == PLANTS.keys()


@pytest.mark.prove
@pytest.mark.parametrize("plant", SHOWS)
def test_a_planted_bug_is_found(plant: str, tmp_path: Path) -> None:
    for seed in range(TRIES):
        directory = tmp_path / str(seed)
        directory.mkdir()
        kinds: set[object] = set()
        try:
            run(directory, seed, _SMALL.with_plant(plant, SHOWS[plant]))
        except BrokenPromisesError as error:
            kinds = {*error.kinds}
        if kinds:
            # Others only would mean that the plant itself is broken.
            assert Kind.INVERSION in kinds
            return
    pytest.fail(f"{plant} was not found in {TRIES} storms")
