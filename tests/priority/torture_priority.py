"""The column of `make torture` for priorities: the storms of `make test`, longer, over one partition and over 1,000."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from tests.crash.columns import Column
from tests.priority.priority_storm import run
from tests.priority.priority_weather import GroupPlan, Weather

COLUMN: Final = "priority-storm"
_TIMES: Final = 5
"""As many records and events as in `make test`."""

ANY: Final = GroupPlan(name="any")
LANES: Final = GroupPlan(name="lanes", ordering="key")
HEADS: Final = GroupPlan(name="heads", ordering="key", rank="head")
AGEING: Final = GroupPlan(name="ageing", priority="ageing")
BANDS: Final = GroupPlan(name="bands", ordering="key", bands=("hot", "", "cold"))

ONE_PARTITION: Final = Weather(groups=(ANY, LANES), records=800)
MANY_PARTITIONS: Final = Weather(groups=(ANY, HEADS, AGEING, BANDS), partitions=1000, records=600, keys=400)


def _storm(seed: int, directory: Path) -> Mapping[str, int]:
    short = (ONE_PARTITION, MANY_PARTITIONS)[seed % 2]
    weather = msgspec.structs.replace(short, records=_TIMES * short.records, events=_TIMES * short.events)
    return run(directory, seed, weather)


COLUMNS: Final = [
    Column(
        name=COLUMN,
        about="queue groups with priorities on one topic, workers and the broker killed, frozen and sent away 30 times",
        seeds=range(50),
        run=_storm,
    ),
]
