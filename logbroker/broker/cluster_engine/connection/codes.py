"""Kafka's error codes that the gateway tells apart; their numbers stand in Kafka's `Errors.java`."""

from __future__ import annotations

from typing import Final

NONE: Final = 0
OFFSET_OUT_OF_RANGE: Final = 1
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
COORDINATOR_NOT_AVAILABLE: Final = 15
NOT_COORDINATOR: Final = 16
TOPIC_ALREADY_EXISTS: Final = 36
DUPLICATE_SEQUENCE_NUMBER: Final = 46
INVALID_PRODUCER_EPOCH: Final = 47
CONCURRENT_TRANSACTIONS: Final = 51
PRODUCER_FENCED: Final = 90
UNKNOWN_TOPIC_ID: Final = 100

INVALID_PARTITIONS: Final = 37
MISSING: Final = frozenset({UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID})
"""Errors that a node also gives for a topic so new that it has not heard of it."""
PASSING: Final = MISSING | frozenset(
    {
        5,  # LEADER_NOT_AVAILABLE
        6,  # NOT_LEADER_OR_FOLLOWER
        7,  # REQUEST_TIMED_OUT
        9,  # REPLICA_NOT_AVAILABLE
        13,  # NETWORK_EXCEPTION
        14,  # COORDINATOR_LOAD_IN_PROGRESS
        COORDINATOR_NOT_AVAILABLE,
        NOT_COORDINATOR,
        19,  # NOT_ENOUGH_REPLICAS
        20,  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
        41,  # NOT_CONTROLLER
        CONCURRENT_TRANSACTIONS,
        56,  # KAFKA_STORAGE_ERROR
        74,  # FENCED_LEADER_EPOCH
        75,  # UNKNOWN_LEADER_EPOCH
        89,  # THROTTLING_QUOTA_EXCEEDED
    }
)
"""Errors after which the same request may succeed a little later, perhaps at another node."""
FENCED: Final = frozenset({INVALID_PRODUCER_EPOCH, PRODUCER_FENCED})
"""Errors that say that another owner has claimed the partition."""
