"""The column of `make torture` of this folder: a million damaged requests of Kafka clients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.crash.columns import Column
from tests.kafka_hostile import barrage

REQUESTS_PER_SEED: Final = 20_000


def _requests(seed: int, directory: Path) -> Mapping[str, int]:
    return barrage.run(directory, seed, REQUESTS_PER_SEED)


COLUMNS: Final = [
    Column(
        name="kafka-hostile-input",
        about=f"{REQUESTS_PER_SEED} damaged requests of Kafka clients to a broker under a memory cap",
        seeds=range(50),
        run=_requests,
    )
]
