"""The storm of a queue group on a Kafka cluster: its workers and its gateways are killed and frozen, and the nodes of
the cluster are killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, cast

import msgspec

from compare.peers.kafka_cluster import KafkaCluster
from tests.crash.broker_process import BrokerProcess
from tests.queue_storm.storm import QueueStorm, broker_of
from tests.queue_storm.weather import Weather

NODES: Final = 3
CHANCES: Final = {
    "kill": 30.0,
    "freeze": 30.0,
    "nap": 15.0,
    "leave": 15.0,
    "broker": 10.0,
    "gateway sleeps": 5.0,
    "node": 4.0,
}
_SLEEP_SECONDS: Final = 5.0
"""Longest freeze of a gateway. After two seconds the others take it for dead."""


def run(directory: Path, seed: int, weather: Weather, cluster: KafkaCluster, gateways: int = 1) -> Counter[str]:
    """Return figures of one history on a cluster that runs and is empty; raises as `queue_storm.storm.run`."""
    limit_seconds = 300 + 10 * weather.events + weather.records / 50
    return asyncio.run(_ClusterStorm(directory, seed, weather, cluster, gateways).run(limit_seconds))


class _Gateways:
    """Several gateways in the place of one broker: each event hits one of them, drawn by lot."""

    def __init__(self, brokers: Sequence[BrokerProcess], rng: random.Random) -> None:
        self._brokers = brokers
        self._rng = rng
        self.address = ",".join(each.address for each in brokers)

    def _down(self) -> list[BrokerProcess]:
        return [each for each in self._brokers if not each.is_alive]

    async def spawn(self) -> None:
        for each in self._down():
            await each.spawn()

    async def wait_ready(self) -> None:
        """Raises BrokerFailedError."""
        for each in self._brokers:
            if not each.is_ready:
                await each.wait_ready()

    async def kill(self) -> None:
        await self._rng.choice(self._brokers).kill()

    async def sleep(self, seconds: float) -> None:
        """Freeze one for a while."""
        pid = self._rng.choice(self._brokers).pid
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)

    async def stop(self) -> None:
        for each in self._brokers:
            await each.stop()

    async def end(self) -> None:
        for each in self._brokers:
            await each.end()


class _ClusterStorm(QueueStorm):
    def __init__(self, directory: Path, seed: int, weather: Weather, cluster: KafkaCluster, gateways: int) -> None:
        weather = msgspec.structs.replace(weather, settings=f'cluster = "{cluster.addresses}"\n')
        super().__init__(directory, seed, weather)
        brokers = [self._broker]
        for number in range(1, gateways):
            home = directory / f"gateway {number}"
            home.mkdir()
            brokers.append(broker_of(home, seed + number, weather))
        self._gateways = _Gateways(brokers, self._rng)
        self._broker = cast("BrokerProcess", self._gateways)
        self._cluster = cluster

    def _doings(self) -> dict[str, Callable[[], Awaitable[None]]]:
        return {**super()._doings(), "node": self._kill_node, "gateway sleeps": self._freeze_gateway}

    async def _freeze_gateway(self) -> None:
        await self._gateways.sleep(self._rng.uniform(0, _SLEEP_SECONDS))

    async def _kill_node(self) -> None:
        """The others go on: two of three replicas are enough."""
        number = self._rng.randrange(NODES)
        await asyncio.to_thread(self._cluster.kill, number)
        await asyncio.sleep(self._rng.uniform(0, 3))
        await self._cluster.start_again(number)
