"""The storm of a queue group on a Kafka cluster: its workers and its gateway are killed as in any storm, and so are the
nodes of the cluster."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from tests.cluster.kafka_cluster import KafkaCluster
from tests.queue_storm.storm import QueueStorm
from tests.queue_storm.weather import Weather

NODES: Final = 3
CHANCES: Final = {"kill": 30.0, "freeze": 30.0, "nap": 15.0, "leave": 15.0, "broker": 10.0, "node": 4.0}


def run(directory: Path, seed: int, weather: Weather, cluster: KafkaCluster) -> Counter[str]:
    """Return figures of one history on a cluster that runs and is empty; raises as `queue_storm.storm.run`."""
    limit_seconds = 300 + 10 * weather.events + weather.records / 50
    return asyncio.run(_ClusterStorm(directory, seed, weather, cluster).run(limit_seconds))


class _ClusterStorm(QueueStorm):
    def __init__(self, directory: Path, seed: int, weather: Weather, cluster: KafkaCluster) -> None:
        super().__init__(
            directory, seed, msgspec.structs.replace(weather, settings=f'cluster = "{cluster.addresses}"\n')
        )
        self._cluster = cluster

    def _doings(self) -> dict[str, Callable[[], Awaitable[None]]]:
        return {**super()._doings(), "node": self._kill_node}

    async def _kill_node(self) -> None:
        """The others go on: two of three replicas are enough."""
        number = self._rng.randrange(NODES)
        await asyncio.to_thread(self._cluster.kill, number)
        await asyncio.sleep(self._rng.uniform(0, 3))
        await self._cluster.start_again(number)
