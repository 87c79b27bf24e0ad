"""The Python client, for asyncio. `logbroker.client.sync` has the same names for programs without an event loop."""

from __future__ import annotations

from logbroker.client.admin import (
    Admin,
    BrokerDescription,
    ConfigValue,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TopicGeneration,
)
from logbroker.client.consumer import Consumer
from logbroker.client.cursor import Record
from logbroker.client.delivery import Delivery, RecordMetadata
from logbroker.client.metadata import TopicInfo
from logbroker.client.offsets import ListedOffset
from logbroker.client.producer import Producer
from logbroker.types import Durability, TopicPartition

__all__ = [
    "Admin",
    "Consumer",
    "Producer",
    "BrokerDescription",
    "ConfigValue",
    "Delivery",
    "Durability",
    "ListedOffset",
    "NewTopic",
    "PartitionDescription",
    "Record",
    "RecordMetadata",
    "TopicDescription",
    "TopicGeneration",
    "TopicInfo",
    "TopicPartition",
]
