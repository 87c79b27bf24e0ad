"""The client for programs without an event loop: the names of `logbroker.client`, with blocking methods.

All of them share one background thread with an event loop; records are encoded and decoded in the caller's thread.
"""

from __future__ import annotations

from logbroker.client.admin import (
    BrokerDescription,
    ConfigValue,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TopicGeneration,
)
from logbroker.client.cursor import Record
from logbroker.client.delivery import RecordMetadata
from logbroker.client.delivery import SyncDelivery as Delivery
from logbroker.client.group_offsets import CommittedOffset
from logbroker.client.groups import GroupDescription, GroupInfo, MemberDescription, PartitionLag
from logbroker.client.metadata import TopicInfo
from logbroker.client.offsets import ListedOffset
from logbroker.client.sync_admin import Admin
from logbroker.client.sync_consumer import Consumer
from logbroker.client.sync_producer import Producer
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
