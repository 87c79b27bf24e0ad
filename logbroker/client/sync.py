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
from logbroker.client.groups import (
    AwaitedPartition,
    GenerationDescription,
    GroupDescription,
    GroupInfo,
    MemberDescription,
    PartitionLag,
)
from logbroker.client.leased_record import SyncWorkerDelivery as WorkerDelivery
from logbroker.client.metadata import TopicInfo
from logbroker.client.offsets import ListedOffset
from logbroker.client.queue_descriptions import (
    DecidedAll,
    LaneDescription,
    LaneList,
    PriorityDescription,
    QueueAlarm,
    QueueCounts,
    QueueDescription,
    QueuePartition,
    QueueSettings,
    Redriven,
    RewoundPartition,
    WorkerDescription,
)
from logbroker.client.sync_admin import Admin
from logbroker.client.sync_consumer import Consumer
from logbroker.client.sync_producer import Producer
from logbroker.client.sync_queue_admin import QueueAdmin
from logbroker.client.sync_worker import Session, Worker
from logbroker.types import Durability, TopicPartition

__all__ = [
    "Admin",
    "Consumer",
    "Producer",
    "QueueAdmin",
    "Session",
    "Worker",
    "AwaitedPartition",
    "BrokerDescription",
    "CommittedOffset",
    "ConfigValue",
    "DecidedAll",
    "Delivery",
    "Durability",
    "GenerationDescription",
    "GroupDescription",
    "GroupInfo",
    "LaneDescription",
    "LaneList",
    "ListedOffset",
    "MemberDescription",
    "NewTopic",
    "PartitionDescription",
    "PartitionLag",
    "PriorityDescription",
    "QueueAlarm",
    "QueueCounts",
    "QueueDescription",
    "QueuePartition",
    "QueueSettings",
    "Record",
    "RecordMetadata",
    "Redriven",
    "RewoundPartition",
    "TopicDescription",
    "TopicGeneration",
    "TopicInfo",
    "TopicPartition",
    "WorkerDelivery",
    "WorkerDescription",
]
