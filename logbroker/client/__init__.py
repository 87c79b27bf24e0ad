"""The Python client, for asyncio. `logbroker.client.sync` has the same names for programs without an event loop."""

from __future__ import annotations

# First of all: it decides how gRPC is loaded.
from logbroker.client import forking as _forking  # noqa: F401

# isort: split
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
from logbroker.client.groups import (
    AwaitedPartition,
    GenerationDescription,
    GroupDescription,
    GroupInfo,
    MemberDescription,
    PartitionLag,
)
from logbroker.client.leased_record import WorkerDelivery
from logbroker.client.metadata import TopicInfo
from logbroker.client.offsets import ListedOffset
from logbroker.client.producer import Producer
from logbroker.client.queue_admin import QueueAdmin
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
from logbroker.client.worker import Session, Worker
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
