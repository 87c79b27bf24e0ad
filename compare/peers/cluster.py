"""A Kafka cluster of three nodes, by aiokafka and through gateways of logbroker."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

from compare.peers import kafka_aiokafka, kafka_server
from compare.peers import logbroker as peer_logbroker
from compare.peers.kafka_cluster import KafkaCluster, class_path
from compare.peers.peer import Peer
from compare.peers.server import HOST, ServerProcess, free_port
from logbroker import __version__
from logbroker.types import Durability

NODES: Final = 3
_PROMISES: Final = {
    Durability.WRITTEN: "acks=all, two of three replicas at least; the kernel of each machine syncs when it likes"
}
_MISSING: Final = "Java and Maven, which gets Kafka's jars"


class ClusterServer:
    """Three nodes, and gateways to them. The address is that of the nodes if there are no gateways."""

    def __init__(self, directory: Path, gateways: int) -> None:
        self._cluster = KafkaCluster(directory, NODES, kafka_server.JVM)
        self.gateways: list[ServerProcess] = []
        for number in range(gateways):
            home = directory / f"gateway-{number}"
            home.mkdir()
            address = f"{HOST}:{free_port()}"
            command = [sys.executable, "-m", "logbroker", "serve", "--cluster", self._cluster.addresses]
            self.gateways.append(ServerProcess([*command, "--listen", address], address=address, directory=home))
        self.address = ",".join(each.address for each in self.gateways) or self._cluster.addresses

    def start(self) -> None:
        """Start the cluster, then the gateways."""
        asyncio.run(self._cluster.start())
        for gateway in self.gateways:
            gateway.start()

    def stop(self) -> None:
        """Stop the gateways, then end the cluster."""
        for gateway in self.gateways:
            gateway.stop()
        self._cluster.end()

    def kill(self) -> None:
        for gateway in self.gateways:
            gateway.kill()
        self._cluster.end()

    def resident_bytes(self) -> int:
        return self._cluster.resident_bytes() + sum(gateway.resident_bytes() for gateway in self.gateways)


def _gateways(count: int) -> Peer:
    few = "one gateway" if count == 1 else f"{count} gateways"
    return Peer(
        name=f"gateway-{count}",
        title=f"Kafka cluster, {few} of logbroker",
        promises=_PROMISES,
        client_settings=peer_logbroker.PEER.client_settings,
        notes=peer_logbroker.PEER.notes,
        cannot={"restart": "a gateway keeps nothing", "start": "the cluster starts first"},
        binaries=("java", "mvn"),
        install=_MISSING,
        lacks=lambda: class_path()[1] or None,
        version=lambda: __version__,
        server=lambda directory, _: ClusterServer(directory, count),
        client=peer_logbroker.LogbrokerClient,
    )


GATEWAY: Final = _gateways(1)
GATEWAYS: Final = _gateways(2)
DIRECT: Final = Peer(
    name="kafka-cluster",
    title="Kafka cluster, aiokafka",
    promises=_PROMISES,
    client_settings=kafka_aiokafka.PEER.client_settings,
    notes=kafka_aiokafka.PEER.notes,
    cannot={
        **kafka_aiokafka.PEER.cannot,
        "restart": "it is compared as one node",
        "start": "it is compared as one node",
    },
    binaries=("java", "mvn"),
    modules=("aiokafka",),
    install=_MISSING,
    lacks=lambda: class_path()[1] or None,
    version=lambda: "4.3",
    server=lambda directory, _: ClusterServer(directory, 0),
    client=lambda address: kafka_aiokafka.AiokafkaClient(address, NODES),
)
