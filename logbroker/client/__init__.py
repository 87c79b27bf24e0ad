"""The Python client, for asyncio. `logbroker.client.sync` has the same names for programs without an event loop."""

from __future__ import annotations

# Must be the first import, because it decides how gRPC is loaded.
from logbroker.client.runtime import forking as _forking  # noqa: F401

# isort: split
from logbroker.client.admin.admin import (
    Admin,
    BrokerDescription,
    ConfigValue,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TopicGeneration,
)
from logbroker.client.admin.dead_letters import LetterList
from logbroker.client.admin.groups import (
    AwaitedPartition,
    GenerationDescription,
    GroupDescription,
    GroupInfo,
    MemberDescription,
    PartitionLag,
)
from logbroker.client.admin.queue_admin import QueueAdmin
from logbroker.client.admin.queue_descriptions import (
    DecidedAll,
    LaneDescription,
    LaneList,
    LetterEnds,
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
from logbroker.client.consumer.consumer import Consumer
from logbroker.client.consumer.cursor import MergedRecord, Record
from logbroker.client.consumer.group_offsets import CommittedOffset
from logbroker.client.consumer.resequencer import Resequencer
from logbroker.client.convoy.convoy import Convoy
from logbroker.client.convoy.convoy_core import BlockedKey, ConvoyCounts
from logbroker.client.convoy.feeds import ConvoySource
from logbroker.client.producer.delivery import Delivery, RecordMetadata
from logbroker.client.producer.producer import Producer
from logbroker.client.transport.metadata import TopicInfo
from logbroker.client.transport.offsets import ListedOffset
from logbroker.client.worker.leased_record import WorkerDeliveries, WorkerDelivery
from logbroker.client.worker.worker import Session, Worker
from logbroker.types import Durability, TopicPartition

__all__ = [
    "Admin",
    "AwaitedPartition",
    "BlockedKey",
    "BrokerDescription",
    "CommittedOffset",
    "ConfigValue",
    "Consumer",
    "Convoy",
    "ConvoyCounts",
    "ConvoySource",
    "DecidedAll",
    "Delivery",
    "Durability",
    "GenerationDescription",
    "GroupDescription",
    "GroupInfo",
    "LaneDescription",
    "LaneList",
    "LetterEnds",
    "LetterList",
    "ListedOffset",
    "MemberDescription",
    "MergedRecord",
    "NewTopic",
    "PartitionDescription",
    "PartitionLag",
    "PriorityDescription",
    "Producer",
    "QueueAdmin",
    "QueueAlarm",
    "QueueCounts",
    "QueueDescription",
    "QueuePartition",
    "QueueSettings",
    "Record",
    "RecordMetadata",
    "Redriven",
    "Resequencer",
    "RewoundPartition",
    "Session",
    "TopicDescription",
    "TopicGeneration",
    "TopicInfo",
    "TopicPartition",
    "Worker",
    "WorkerDeliveries",
    "WorkerDelivery",
    "WorkerDescription",
]
