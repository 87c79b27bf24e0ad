"""The cluster's column of `make torture`: a million records through a gateway whose cluster loses nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from compare.peers.kafka_cluster import KafkaCluster, class_path
from tests.cluster.cluster_storm import CHANCES, NODES, run
from tests.crash.columns import Column
from tests.queue_storm.weather import Weather

_RECORDS: Final = 20_000


def _storm(seed: int, directory: Path) -> Mapping[str, int]:
    _, missing = class_path()
    if missing:
        raise RuntimeError(f"Kafka cannot be run: {missing}")
    nodes = directory / "kafka"
    nodes.mkdir()
    cluster = KafkaCluster(nodes, NODES)
    try:
        asyncio.run(cluster.start())
        on_exhausted = ("dead-letter", "park", "block")[seed % 3]
        weather = Weather(records=_RECORDS, events=70, chances=CHANCES, on_exhausted=on_exhausted)
        return run(directory, seed, weather, cluster, gateways=1 + seed % 3)
    finally:
        cluster.end()


COLUMNS: Final = [
    Column(
        name="cluster-storm",
        about=f"{_RECORDS:,} records through 1 to 3 gateways; workers, gateways and nodes of the cluster are killed",
        seeds=range(50),
        run=_storm,
        timeout_seconds=1800.0,
    ),
]
