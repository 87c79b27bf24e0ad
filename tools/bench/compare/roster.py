"""Who takes part."""

from __future__ import annotations

from typing import Final

from logbroker.tools.bench.compare import (
    peer_kafka_aiokafka,
    peer_kafka_confluent,
    peer_logbroker,
    peer_nats,
    peer_rabbitmq_quorum,
    peer_rabbitmq_streams,
    peer_redis,
)
from logbroker.tools.bench.compare.peer import Peer

PEERS: Final[dict[str, Peer]] = {
    peer.name: peer
    for peer in (
        peer_logbroker.PEER,
        peer_kafka_confluent.PEER,
        peer_kafka_aiokafka.PEER,
        peer_redis.PEER,
        peer_nats.PEER,
        peer_rabbitmq_streams.PEER,
        peer_rabbitmq_quorum.PEER,
    )
}
