"""The requests for one partition: append a batch, and read batches."""

from __future__ import annotations

from typing import Any

from logbroker.broker.cluster_engine.connection.codes import DUPLICATE_SEQUENCE_NUMBER, NONE
from logbroker.broker.cluster_engine.connection.link import ClusterLink, Line, PassingError, check
from logbroker.engine import Buffer
from logbroker.kafka_wire.apis import DESCRIBE_PRODUCERS, FETCH
from logbroker.kafka_wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersRequestTopic
from logbroker.kafka_wire.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponsePartitionData,
)
from logbroker.kafka_wire.messages.produce import ProduceResponsePartitionProduce
from logbroker.record.header import LENGTH_OVERHEAD_BYTES


async def append(
    link: ClusterLink, topic: str, partition: int, batch: Buffer, line: Line = Line.APPENDS
) -> ProduceResponsePartitionProduce:
    """Append one batch with acks=all, and return the leader's answer. A repeat of a batch that is there already is
    answered like the first. Raises PassingError."""
    leader = link.leader(topic, partition)
    found = await link.appends(line).append(leader.leader, topic, link.topics[topic].id, partition, batch)
    if found.error_code == DUPLICATE_SEQUENCE_NUMBER:
        found.error_code = NONE
    return found


async def last_sequence(link: ClusterLink, topic: str, partition: int, producer_id: int) -> tuple[int, int] | None:
    """Return the epoch of an idempotent producer and its last sequence number in a partition, or None if the leader
    knows neither. Raises PassingError, or BrokerUnavailableError if the cluster refuses to tell."""
    wanted = DescribeProducersRequestTopic(name=topic, partition_indexes=[partition])
    leader = link.leader(topic, partition)
    answer = await link.ask(leader.leader, DESCRIBE_PRODUCERS, DescribeProducersRequest(topics=[wanted]))
    found = _only(answer.topics, "partitions")
    check(found.error_code, f"a look at the producers of {topic}-{partition}")
    for producer in found.active_producers:
        if producer.producer_id == producer_id:
            return producer.producer_epoch, producer.last_sequence
    return None


async def read(
    link: ClusterLink,
    topic: str,
    partition: int,
    offset: int,
    max_bytes: int,
    *,
    max_wait_ms: int = 0,
    line: Line = Line.REQUESTS,
) -> FetchResponsePartitionData:
    """Read batches from an offset on, as they are stored, aborted transactions and control batches included. At the
    end, the leader waits for more for `max_wait_ms`. Raises PassingError."""
    leader = link.leader(topic, partition)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[
            FetchRequestTopic(
                topic=topic,
                topic_id=link.topics[topic].id,
                partitions=[
                    FetchRequestPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
                ],
            )
        ],
    )
    answer = await link.ask(leader.leader, FETCH, request, line=line)
    found: FetchResponsePartitionData = _only(answer.responses, "partitions")
    return found


def whole_batches(data: bytes, max_bytes: int) -> tuple[int, int]:
    """Return the size of the whole batches at the beginning of an answer, which a node cuts off anywhere: of those that
    fit into `max_bytes`, but of one at least. Also return the size of the batch after them; 0: it is not known."""
    end = 0
    while end + LENGTH_OVERHEAD_BYTES <= len(data):
        size_bytes = LENGTH_OVERHEAD_BYTES + int.from_bytes(data[end + 8 : end + LENGTH_OVERHEAD_BYTES], "big")
        if end + size_bytes > len(data) or (end and end + size_bytes > max_bytes):
            return end, size_bytes
        end += size_bytes
    return end, 0


def _only(topics: Any, field: str) -> Any:
    """Return the answer for the one partition that was asked for."""
    if len(topics) != 1 or len(found := getattr(topics[0], field)) != 1:
        raise PassingError("the answer is not for the partition that was asked for")
    return found[0]
