"""The list of peers that take part."""

from __future__ import annotations

from typing import Final

from compare.peers import cluster as peer_cluster
from compare.peers import kafka_aiokafka as peer_kafka_aiokafka
from compare.peers import kafka_confluent as peer_kafka_confluent
from compare.peers import logbroker as peer_logbroker
from compare.peers import logbroker_kafka as peer_logbroker_kafka
from compare.peers import nats as peer_nats
from compare.peers import rabbitmq_quorum as peer_rabbitmq_quorum
from compare.peers import rabbitmq_streams as peer_rabbitmq_streams
from compare.peers import redis as peer_redis
from compare.peers.peer import Peer

PEERS: Final[dict[str, Peer]] = {
    peer.name: peer
    for peer in (
        peer_logbroker.PEER,
        peer_logbroker_kafka.PEER,
        peer_kafka_confluent.PEER,
        peer_kafka_aiokafka.PEER,
        peer_redis.PEER,
        peer_nats.PEER,
        peer_rabbitmq_streams.PEER,
        peer_rabbitmq_quorum.PEER,
        peer_cluster.GATEWAY,
        peer_cluster.GATEWAYS,
        peer_cluster.DIRECT,
    )
}
CLUSTERS: Final = (peer_cluster.GATEWAY.name, peer_cluster.GATEWAYS.name, peer_cluster.DIRECT.name)
"""Peers of three nodes, which take part only if they are named."""
