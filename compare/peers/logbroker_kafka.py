"""logbroker's Kafka listener, by confluent-kafka (librdkafka)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from compare.peers import kafka_confluent, logbroker
from compare.peers.peer import Peer
from compare.peers.server import HOST, ServerProcess, free_port
from logbroker.types import Durability


class ListenerClient(kafka_confluent.ConfluentClient):
    """The same client as at Kafka. Only the topic is made in another way: its durability is a config."""

    def create(self, topic: str, shards: int, durability: Durability) -> None:
        config = {"durability": durability.value, "retention.ms": "-1"}
        admin = self._admin()  # held until it has answered: it ends with its last reference
        [created] = admin.create_topics([self._kafka.admin.NewTopic(topic, shards, 1, config=config)]).values()
        created.result(30)


def server(directory: Path, durability: Durability) -> ServerProcess:
    """A broker with a Kafka listener, whose address is the server's. Each topic has a durability of its own."""
    address = f"{HOST}:{free_port()}"
    command = [sys.executable, "-m", "logbroker", "serve", "--data-dir", str(directory / "data")]
    listeners = ["--listen", f"{HOST}:{free_port()}", "--kafka-listen", address]
    return ServerProcess([*command, *listeners], address=address, directory=directory)


PEER: Final = Peer(
    name="logbroker-confluent",
    title="logbroker, confluent-kafka",
    promises=logbroker.PEER.promises,
    client_settings=kafka_confluent.PEER.client_settings,
    notes={"group": "8 partitions, a synchronous commit for each poll, answered when it is synced"},
    cannot=dict.fromkeys(("work", "ordered"), "the Kafka listener has no share groups: take a Worker"),
    modules=("confluent_kafka",),
    install="make peers, in a checkout, which is where to run this",
    version=logbroker.PEER.version,
    server=server,
    client=ListenerClient,
)
