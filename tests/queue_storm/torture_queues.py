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


COLUMNS: Final = [
    Column(
        name="queue-storm",
        about=f"{_RECORDS:,} records of 1,000 keys, 8 workers and the broker killed, frozen and sent away 150 times",
        seeds=range(25),
        run=_storm,
    ),
]
