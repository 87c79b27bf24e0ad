"""The client for programs without an event loop: the names of `logbroker.client`, with blocking methods.

All of them share one background thread with an event loop; records are encoded and decoded in the caller's thread.
"""

from __future__ import annotations

from logbroker.client.admin.admin import (
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
from logbroker.client.blocking.admin import Admin
from logbroker.client.blocking.consumer import Consumer
from logbroker.client.blocking.convoy import Convoy, ConvoySource
from logbroker.client.blocking.producer import Producer
from logbroker.client.blocking.queue_admin import QueueAdmin
from logbroker.client.blocking.worker import Session, Worker
from logbroker.client.consumer.cursor import MergedRecord, Record
from logbroker.client.consumer.group_offsets import CommittedOffset
from logbroker.client.consumer.resequencer import Resequencer
from logbroker.client.convoy.convoy_core import BlockedKey, ConvoyCounts
from logbroker.client.producer.delivery import RecordMetadata
from logbroker.client.producer.delivery import SyncDelivery as Delivery
from logbroker.client.transport.metadata import TopicInfo
from logbroker.client.transport.offsets import ListedOffset
from logbroker.client.worker.leased_record import SyncWorkerDeliveries as WorkerDeliveries
from logbroker.client.worker.leased_record import SyncWorkerDelivery as WorkerDelivery
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
