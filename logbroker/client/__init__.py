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
from logbroker.client.group_offsets import CommittedOffset
from logbroker.client.groups import GroupDescription, GroupInfo, MemberDescription, PartitionLag
from logbroker.client.metadata import TopicInfo
from logbroker.client.offsets import ListedOffset
from logbroker.client.producer import Producer
from logbroker.types import Durability, TopicPartition

__all__ = [
    "Admin",
    "Consumer",
    "Producer",
    "BrokerDescription",
    "CommittedOffset",
    "ConfigValue",
    "Delivery",
    "Durability",
    "GroupDescription",
    "GroupInfo",
    "ListedOffset",
    "MemberDescription",
    "NewTopic",
    "PartitionDescription",
    "PartitionLag",
    "Record",
    "RecordMetadata",
    "TopicDescription",
    "TopicGeneration",
    "TopicInfo",
    "TopicPartition",
]
