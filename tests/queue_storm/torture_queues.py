"""The queue storm's column of `make torture`: a million records, and workers that fail, die, freeze and come back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.crash.columns import Column
from tests.queue_storm.storm import run
from tests.queue_storm.weather import Weather

_RECORDS: Final = 40_000


def _storm(seed: int, directory: Path) -> Mapping[str, int]:
    on_exhausted = ("dead-letter", "park", "block")[seed % 3]
    return run(directory, seed, Weather(records=_RECORDS, events=150, on_exhausted=on_exhausted))


def _workflow_storm(seed: int, directory: Path) -> Mapping[str, int]:
    on_exhausted = ("dead-letter", "park", "block")[seed % 3]
    weather = Weather(records=20_000, events=60, keys=20, parts=6, has_outputs=True, on_exhausted=on_exhausted)
    return run(directory, seed, weather)


COLUMNS: Final = [
    Column(
        name="workflow-storm",
        about="20,000 records of 20 hot keys in such a storm; lanes are split and joined, and each ack has an output",
        seeds=range(10),
        run=_workflow_storm,
    ),
    Column(
        name="queue-storm",
        about=f"{_RECORDS:,} records of 1,000 keys, 8 workers and the broker killed, frozen and sent away 150 times",
        seeds=range(25),
        run=_storm,
    ),
]
