"""DescribeLogDirs (key 35): the data directory, with the size of each partition, and the space of its file system.

Null asks for all topics. Topics and partitions that do not exist, or are offline, are left out, as in Kafka. The size
is that of the segments' records, without indexes. No replica lags, and none is moved between directories.

v1: the sizes. v2: flexible. v3: an error for the whole, which is 0. v4: total and usable bytes. v5: whether the
directory takes no new partitions, which is never so.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable

from logbroker.engine import Topic
from logbroker.errors import LogbrokerError, UnknownTopicError
from logbroker.kafka_api.call import Call, served
from logbroker.kafka_wire.apis import DESCRIBE_LOG_DIRS
from logbroker.kafka_wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsRequestDescribableLogDirTopic,
    DescribeLogDirsResponse,
    DescribeLogDirsResponsePartition,
    DescribeLogDirsResponseResult,
    DescribeLogDirsResponseTopic,
)

TOPIC_STEPS = 2
PARTITION_STEPS = 3


async def _handle(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    path = call.node.log_dir
    result = DescribeLogDirsResponseResult(log_dir=path, topics=[])
    for topic, numbers in _wanted(call, request.topics):
        await call.step(TOPIC_STEPS)
        found = DescribeLogDirsResponseTopic(name=topic.name, partitions=[])
        for number in numbers:
            await call.step(PARTITION_STEPS)
            try:
                size_bytes = call.node.engine.partition_facts(topic.id, number).size_bytes
            except LogbrokerError:
                continue
            found.partitions.append(DescribeLogDirsResponsePartition(partition_index=number, partition_size=size_bytes))
        if found.partitions:
            result.topics.append(found)
    space = await asyncio.to_thread(shutil.disk_usage, path)
    result.total_bytes, result.usable_bytes = space.total, space.free
    return DescribeLogDirsResponse(results=[result])


def _wanted(
    call: Call, wanted: list[DescribeLogDirsRequestDescribableLogDirTopic] | None
) -> Iterable[tuple[Topic, Iterable[int]]]:
    if wanted is None:
        return [(topic, range(topic.partitions)) for topic in call.node.engine.topics()]
    call.check_item_count(sum(1 + len(each.partitions) for each in wanted))
    numbers: dict[str, dict[int, None]] = {}
    for each in wanted:
        numbers.setdefault(each.topic, {}).update(dict.fromkeys(each.partitions))
    found: list[tuple[Topic, Iterable[int]]] = []
    for name, asked in numbers.items():
        try:
            found.append((call.node.engine.topic(name), asked))
        except UnknownTopicError:
            continue
    return found


SERVED = served(DESCRIBE_LOG_DIRS, 1, 5, _handle)
