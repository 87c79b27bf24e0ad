"""Reads and watches over the partitions of the cluster: batches as they are stored, without what readers must not see.

Readers see what lies below the last stable offset, without control batches and without the batches of aborted
transactions. These leave gaps.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from logbroker.broker.cluster_engine.connection.codes import NONE, OFFSET_OUT_OF_RANGE, PASSING
from logbroker.broker.cluster_engine.connection.link import ClusterLink, Line, PassingError
from logbroker.broker.cluster_engine.connection.refusals import refusal
from logbroker.broker.cluster_engine.connection.requests import whole_batches
from logbroker.broker.cluster_engine.log.remote_partition import RemotePartition
from logbroker.config import MAX_INT32
from logbroker.engine import Read, ReadResult
from logbroker.errors import CorruptBatchError, CorruptLogError, LogbrokerError, OffsetOutOfRangeError
from logbroker.kafka_wire.apis import FETCH
from logbroker.kafka_wire.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponsePartitionData,
)
from logbroker.record.codec import split_batches
from logbroker.types import PartitionKey

_log = logging.getLogger(__name__)

READ_SECONDS: Final = 15.0
"""The time for which a read is repeated while a partition has no leader."""
FOLLOW_MS: Final = 250
"""The time that a node lets a long fetch wait. A partition that is watched anew is followed after that time at the
latest."""
_COMMITTED: Final = 1
"""Kafka's isolation level read_committed."""
_PAUSE_SECONDS: Final = 0.1
_ONE_BATCH_BYTES: Final = 1


class BatchReader:
    """Reads batches of partitions, those of one node in one request."""

    def __init__(self, link: ClusterLink) -> None:
        self._link = link

    async def read(self, wishes: Sequence[tuple[RemotePartition, Read]]) -> list[ReadResult | LogbrokerError]:
        """See `LogEngine.read`."""
        results: dict[int, ReadResult | LogbrokerError] = {}
        offsets = {index: wish.offset for index, (_, wish) in enumerate(wishes)}

        async def attempt() -> None:
            while left := {wishes[index][0]: index for index in reversed(offsets) if index not in results}:
                found = await self._fetch(
                    {each: (offsets[at], max(wishes[at][1].max_bytes, each.batch_bytes)) for each, at in left.items()}
                )
                has_moved = False
                for partition, index in left.items():
                    answer = found.get(partition)
                    if answer is None or answer.error_code in PASSING:
                        continue
                    outcome = self._result(partition, wishes[index][1], offsets[index], answer)
                    if outcome is None:
                        continue
                    has_moved = True
                    if isinstance(outcome, int):
                        offsets[index] = outcome
                    else:
                        results[index] = outcome
                if not has_moved:
                    raise PassingError(f"{next(iter(left)).name} cannot be read")

        try:
            await self._link.persist(attempt, seconds=READ_SECONDS)
        except LogbrokerError as error:
            for index in offsets:
                results.setdefault(index, error.as_value())
        return [results[index] for index in range(len(wishes))]

    async def _fetch(
        self, wanted: Mapping[RemotePartition, tuple[int, int]]
    ) -> dict[RemotePartition, FetchResponsePartitionData]:
        by_leader: dict[int, dict[RemotePartition, tuple[int, int]]] = {}
        for partition, wish in wanted.items():
            try:
                by_leader.setdefault(partition.leader, {})[partition] = wish
            except PassingError:
                continue
        answers = await asyncio.gather(
            *(fetch(self._link, node, wishes, max_wait_ms=0) for node, wishes in by_leader.items()),
            return_exceptions=True,
        )
        found: dict[RemotePartition, FetchResponsePartitionData] = {}
        for answer in answers:
            if isinstance(answer, BaseException):
                if not isinstance(answer, PassingError):
                    raise answer
            else:
                found.update(answer)
        return found

    def _result(
        self, partition: RemotePartition, wish: Read, offset: int, answer: FetchResponsePartitionData
    ) -> ReadResult | LogbrokerError | int | None:
        """Return the result of a read; a number if it has to go on at that offset; None if the leader has to be asked
        again."""
        if answer.error_code == OFFSET_OUT_OF_RANGE:
            partition.heard(answer.log_start_offset, -1)
            return OffsetOutOfRangeError(
                f"offset {wish.offset} of {partition.name} is not there: it has offsets from"
                f" {partition.log_start_offset} to {partition.high_watermark}"
            )
        if answer.error_code != NONE:
            return refusal(answer.error_code, f"a read of {partition.name}")
        partition.heard_stable(answer.log_start_offset, answer.last_stable_offset, answer.high_watermark)
        data = bytes(answer.records or b"")
        if not data and offset < partition.high_watermark:
            # A new leader does not know yet how far the others are, or the answer had no room.
            return None
        whole_bytes, wanted_bytes = whole_batches(data, wish.max_bytes)
        if data and not whole_bytes:
            if wanted_bytes <= partition.batch_bytes:
                return None
            partition.batch_bytes = wanted_bytes
            return offset
        try:
            batches, next_offset = visible(data[:whole_bytes], offset, answer)
        except CorruptBatchError as error:
            return CorruptLogError(f"{partition.name} of the cluster is damaged: {error.message}")
        if not batches and next_offset > offset and next_offset < answer.last_stable_offset:
            return next_offset
        return ReadResult(
            batches,
            next_offset,
            max(partition.high_watermark, next_offset),
            partition.log_start_offset,
            partition.leader_epoch,
            gaps_below=next_offset,
        )


def visible(data: bytes, offset: int, answer: FetchResponsePartitionData) -> tuple[bytes, int]:
    """Return the batches that readers see, and the offset after the last batch of all.

    A batch is hidden if it is a control batch, or if it belongs to a transaction that was aborted: its producer has an
    aborted transaction that began at or before it, and whose marker has not come yet. Raises CorruptBatchError.
    """
    aborted = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ())
    open_aborted: set[int] = set()
    next_offset = offset
    parts: list[bytes] = []
    for header, batch in split_batches(data):
        while aborted and aborted[0][0] <= header.base_offset:
            open_aborted.add(aborted.pop(0)[1])
        next_offset = max(next_offset, header.next_offset)
        if header.is_control:
            open_aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_aborted) and header.next_offset > offset:
            parts.append(batch)
    return b"".join(parts), next_offset


async def fetch(
    link: ClusterLink, node: int, wishes: Mapping[RemotePartition, tuple[int, int]], *, max_wait_ms: int
) -> dict[RemotePartition, FetchResponsePartitionData]:
    """Ask a node for batches: from an offset on, up to a number of bytes. Raises PassingError."""
    by_topic: dict[str, list[RemotePartition]] = {}
    for partition in wishes:
        by_topic.setdefault(partition.topic, []).append(partition)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=min(sum(max_bytes for _, max_bytes in wishes.values()), MAX_INT32),
        isolation_level=_COMMITTED,
        topics=[
            FetchRequestTopic(
                topic=name,
                topic_id=partitions[0].key.topic_id,
                partitions=[
                    FetchRequestPartition(
                        partition=each.key.partition, fetch_offset=wishes[each][0], partition_max_bytes=wishes[each][1]
                    )
                    for each in partitions
                ],
            )
            for name, partitions in by_topic.items()
        ],
    )
    answer = await link.ask(node, FETCH, request, line=Line.FOLLOWING if max_wait_ms else Line.REQUESTS)
    known = {(each.topic, each.key.partition): each for each in wishes}
    known_by_id = {(each.key.topic_id, each.key.partition): each for each in wishes}
    found: dict[RemotePartition, FetchResponsePartitionData] = {}
    for topic in answer.responses:
        for data in topic.partitions:
            number = data.partition_index
            answered = known_by_id.get((topic.topic_id, number)) or known.get((topic.topic, number))
            if answered is not None:
                found[answered] = data
    return found


class ClusterWatch:
    """The `logbroker.engine.Watch` of this engine."""

    def __init__(
        self, find: Callable[[PartitionKey], RemotePartition], wake: Callable[[], None], follow: Callable[[], None]
    ) -> None:
        self._find = find
        self._wake = wake
        self._follow = follow
        self._watched: dict[PartitionKey, RemotePartition] = {}
        self._moved: set[PartitionKey] = set()

    def add(self, key: PartitionKey) -> None:
        partition = self._find(key)
        self._watched[key] = partition
        partition.listeners.add(self)
        self._follow()

    def remove(self, key: PartitionKey) -> None:
        partition = self._watched.pop(key, None)
        if partition is not None:
            partition.listeners.discard(self)
            self._moved.discard(key)

    def moved(self) -> set[PartitionKey]:
        moved, self._moved = self._moved, set()
        return moved

    def close(self) -> None:
        for partition in self._watched.values():
            partition.listeners.discard(self)
        self._watched.clear()

    def notify(self, key: PartitionKey) -> None:
        self._moved.add(key)
        self._wake()


class Follower:
    """Follows the partitions that are watched, by one long fetch at each node."""

    def __init__(self, link: ClusterLink, partitions: Callable[[], Iterable[RemotePartition]]) -> None:
        """`partitions` returns all partitions; those with listeners are followed."""
        self._link = link
        self._partitions = partitions
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def follow(self) -> None:
        """Begin to follow at every node that is not followed yet."""
        for node in self._link.nodes:
            task = self._tasks.get(node)
            if task is None or task.done():
                self._tasks[node] = asyncio.create_task(self._run(node))

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _run(self, node: int) -> None:
        """Follow the partitions of one node as long as any is watched."""
        while wishes := self._watched_at(node):
            try:
                found = await fetch(self._link, node, wishes, max_wait_ms=FOLLOW_MS)
            except PassingError:
                found = {}
            if any(each.error_code != NONE for each in found.values()) or not found:
                await asyncio.sleep(_PAUSE_SECONDS)
                try:
                    await self._link.refresh()
                except PassingError as error:
                    _log.debug("the topics of the cluster cannot be read: %s", error)
                if node not in self._link.nodes:
                    return
            for partition, data in found.items():
                if data.error_code == NONE:
                    partition.heard_stable(data.log_start_offset, data.last_stable_offset, data.high_watermark)

    def _watched_at(self, node: int) -> dict[RemotePartition, tuple[int, int]]:
        wishes: dict[RemotePartition, tuple[int, int]] = {}
        for partition in self._partitions():
            if partition.listeners and not partition.closed:
                try:
                    if partition.leader == node:
                        wishes[partition] = partition.high_watermark, _ONE_BATCH_BYTES
                except PassingError:
                    continue
        return wishes
