"""Offsets of the partitions: the sweep that keeps them fresh, look-ups by time, and the deletion of records."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import Final

from logbroker.broker.cluster_engine.connection.codes import NONE, PASSING
from logbroker.broker.cluster_engine.connection.link import ClusterLink, PassingError
from logbroker.broker.cluster_engine.connection.refusals import refusal
from logbroker.broker.cluster_engine.log.remote_partition import RemotePartition
from logbroker.engine import FoundOffset, Holder
from logbroker.kafka_wire.apis import DELETE_RECORDS, LIST_OFFSETS
from logbroker.kafka_wire.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)
from logbroker.kafka_wire.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponsePartition,
)
from logbroker.types import PartitionKey, TopicId

_log = logging.getLogger(__name__)

EARLIEST: Final = -2
LATEST: Final = -1
LATEST_TIME: Final = -3
"""Kafka's special times: the log start, the last stable offset, and the record with the largest timestamp."""
SWEEP_SECONDS: Final = 1.0
LEARN_PAUSE_SECONDS: Final = 0.1
LOOK_UP_SECONDS: Final = 15.0
_UNCOMMITTED: Final = 0
_COMMITTED: Final = 1
_TIMEOUT_MS: Final = 10_000
_CONSUMER: Final = -1
"""The replica id of a reader, who is told of what all replicas in sync have."""
_DEBUGGER: Final = -2
"""The replica id with which a leader tells where its own log ends (Kafka's DEBUGGING_REPLICA_ID)."""
_WITHOUT_TIMEOUT: Final = 9
"""The last version of ListOffsets that says nothing of remote storage."""


class Offsets:
    """The offsets of all partitions."""

    def __init__(self, link: ClusterLink, partitions: Callable[[], Iterable[RemotePartition]]) -> None:
        self._link = link
        self._partitions = partitions
        self.holders: dict[TopicId, set[Holder]] = {}
        self._learning = asyncio.Lock()

    def removed(self, key: PartitionKey) -> None:
        """Tell the holders of a topic that records of a partition were removed."""
        for holder in list(self.holders.get(key.topic_id, ())):
            holder.removed(key.partition)

    async def run(self) -> None:
        """Sweep on and on."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                await self.sweep(list(self._partitions()))
            except PassingError as error:
                _log.debug("the offsets of the cluster cannot be read: %s", error)

    async def sweep(self, partitions: Iterable[RemotePartition]) -> None:
        """Read where the partitions begin and end. Those without a leader stay as they are."""
        wanted, begun_at = list(partitions), monotonic()
        # The start comes last, so it may be beyond an end, but no end is taken for later than it is.
        stable = await list_offsets(self._link, dict.fromkeys(wanted, LATEST))
        ends = await list_offsets(self._link, dict.fromkeys(wanted, LATEST), isolation_level=_UNCOMMITTED)
        starts = await list_offsets(self._link, dict.fromkeys(wanted, EARLIEST))
        for partition in wanted:
            found = [each for each in (stable.get(partition), ends.get(partition), starts.get(partition)) if each]
            if len(found) < 3 or any(each.error_code != NONE for each in found):
                continue
            stable_offset, end, start = (each.offset for each in found)
            # What was appended between the two requests for the ends is no open transaction.
            if partition.has_open_transaction and stable_offset == end:
                partition.has_open_transaction = False
            partition.heard(start, stable_offset)
            partition.fresh_at = begun_at

    async def learn(self, partitions: Sequence[RemotePartition], *, seconds: float) -> None:
        """Return when the offsets of these partitions are as new as this call, or after so many seconds, for partitions
        without a leader. Callers at the same time share the requests."""
        since = monotonic()
        while True:
            async with self._learning:
                wanted = [each for each in partitions if each.fresh_at < since and not each.closed]
                if not wanted:
                    return
                with contextlib.suppress(PassingError):
                    await self.sweep(wanted)
            if all(each.fresh_at >= since for each in wanted) or monotonic() - since > seconds:
                return
            await asyncio.sleep(LEARN_PAUSE_SECONDS)
            with contextlib.suppress(PassingError):
                await self._link.refresh()

    async def committed_ends(self, partitions: Sequence[RemotePartition]) -> list[int]:
        """Return where the partitions end, open transactions included. Raises PassingError as long as a leader does not
        answer, or has something that not all replicas in sync have: that is not acknowledged yet, and will be."""
        wanted = dict.fromkeys(partitions, LATEST)
        logs = await list_offsets(self._link, wanted, replica_id=_DEBUGGER)
        # Later, so that everything which was in the logs counts.
        ends = await list_offsets(self._link, wanted, isolation_level=_UNCOMMITTED)
        for partition in partitions:
            log, end = logs.get(partition), ends.get(partition)
            if log is None or end is None or log.error_code != NONE or end.error_code != NONE:
                raise PassingError(f"{partition.name} has no leader that tells where it ends")
            if end.leader_epoch != log.leader_epoch or end.offset < log.offset:
                raise PassingError(f"{partition.name} ends in records that some of its replicas do not have yet")
        return [ends[partition].offset for partition in partitions]

    async def find(self, partition: RemotePartition, timestamp_ms: int) -> FoundOffset:
        """Find the first record at or after a time, or at a special time."""

        async def attempt() -> FoundOffset:
            found = (await list_offsets(self._link, {partition: timestamp_ms})).get(partition)
            if found is None or found.error_code in PASSING:
                raise PassingError(f"the offsets of {partition.name} are not known")
            if found.error_code != NONE:
                raise refusal(found.error_code, f"a look-up in {partition.name}")
            return FoundOffset(found.offset, found.timestamp, max(found.leader_epoch, 0))

        return await self._link.persist(attempt, seconds=LOOK_UP_SECONDS)


async def list_offsets(
    link: ClusterLink,
    wanted: Mapping[RemotePartition, int],
    *,
    isolation_level: int = _COMMITTED,
    replica_id: int = _CONSUMER,
) -> dict[RemotePartition, ListOffsetsResponsePartition]:
    """Return the offsets at these times. Partitions that have no leader, or whose node does not answer, are left
    out."""
    by_leader: dict[int, list[RemotePartition]] = {}
    for partition in wanted:
        try:
            by_leader.setdefault(partition.leader, []).append(partition)
        except PassingError:
            continue
    answers = await asyncio.gather(
        *(
            _list_at(link, node, {each: wanted[each] for each in led}, isolation_level, replica_id)
            for node, led in by_leader.items()
        )
    )
    return {partition: found for answer in answers for partition, found in answer.items()}


async def _list_at(
    link: ClusterLink, node: int, wanted: Mapping[RemotePartition, int], isolation_level: int, replica_id: int
) -> dict[RemotePartition, ListOffsetsResponsePartition]:
    topics: dict[str, list[ListOffsetsRequestPartition]] = {}
    for partition, timestamp_ms in wanted.items():
        topics.setdefault(partition.topic, []).append(
            ListOffsetsRequestPartition(partition_index=partition.key.partition, timestamp=timestamp_ms)
        )
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation_level,
        topics=[ListOffsetsRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )
    try:
        answer = await link.ask(node, LIST_OFFSETS, request, last_version=_WITHOUT_TIMEOUT)
    except PassingError:
        return {}
    known = {(each.topic, each.key.partition): each for each in wanted}
    return {
        known[topic.name, found.partition_index]: found
        for topic in answer.topics
        for found in topic.partitions
        if (topic.name, found.partition_index) in known
    }


async def delete_records(link: ClusterLink, partition: RemotePartition, before_offset: int) -> int:
    """Delete the records below an offset, and return the log start offset."""

    async def attempt() -> int:
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsRequestTopic(
                    name=partition.topic,
                    partitions=[
                        DeleteRecordsRequestPartition(partition_index=partition.key.partition, offset=before_offset)
                    ],
                )
            ],
            timeout_ms=_TIMEOUT_MS,
        )
        answer = await link.ask(partition.leader, DELETE_RECORDS, request)
        [topic] = answer.topics
        [found] = topic.partitions
        if found.error_code in PASSING:
            raise PassingError(f"records of {partition.name} are not deleted yet")
        if found.error_code != NONE:
            raise refusal(found.error_code, f"a deletion of records of {partition.name}")
        return int(found.low_watermark)

    return await link.persist(attempt, seconds=LOOK_UP_SECONDS)
