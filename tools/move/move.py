"""Moves a data directory to a cluster.

Records keep their offsets, because everything that is stored about groups is in terms of offsets. A partition of a
cluster begins at 0, so one that begins later here first gets empty records up to there, which are then deleted. Batches
are appended as they are, with acks=all, under a producer id of the move. A topic that has grown grows again at the same
offsets.

The steps, each of which may be repeated after a crash:

1. All headers are read: what cannot be moved is refused before anything is changed.
2. Each topic is created, and a row in the state names it as one of this move. Until step 5, it keeps all records. They
   are appended from the end that it has on the cluster.
3. Each partition is read back, and compared with the directory. Then the rows of the groups are written.
4. With a new connection, the rows are read back and compared. A mark notes that the move is verified.
5. The topics get their configs, and the groups are listed: from here on, gateways serve them. The rows of the move are
   deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from logbroker.config import MAX_INT64
from logbroker.engine import Append, Read, StateEvent, Topic
from logbroker.errors import CorruptLogError, InvalidRequestError, LogbrokerError, StorageFailedError, TopicExistsError
from logbroker.group_runtime.group_store import GROUP_SCOPE, GROUPS_SCOPE, listed_types
from logbroker.record.codec import NewRecord, encode_batch, split_batches, with_producer
from logbroker.record.compression import Codec
from logbroker.record.header import CRC_START, MAX_SEQUENCE, NO_PRODUCER_ID, BatchHeader
from logbroker.tools.move.cluster import Cluster, open_cluster
from logbroker.tools.move.rows import moved_rows
from logbroker.tools.move.source import LocalPartition, Progress, Source
from logbroker.types import INTERNAL_PREFIX, TopicId

FILLER_RECORDS: Final = 100_000
"""Empty records of one batch below the beginning of a partition. With zstd, they take 60 kB."""
READ_BYTES: Final = 4 << 20
_OFFSET_BYTES: Final = 8
_AT_ONCE: Final = 8
"""Partitions that are copied or read at the same time."""
_COMMIT_BYTES: Final = 1 << 20
_MOVES: Final = "moves"
"""Scope of the rows of a move, and the name by which its home is chosen. Each has the id of a topic in the data
directory as key, and the id on the cluster as value."""
_PLANNED: Final = b""
"""The value of a row while the topic is created."""
_VERIFIED: Final = b"verified"
"""Key of the row which says that everything but the list of groups is there and verified."""
_LEAST_BATCH_BYTES: Final = 1 << 20
"""The least limit of a topic's batches during the move; those of empty records must fit."""
_KEEP_ALL: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
_ANY_TIME: Final = {"message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": str(MAX_INT64)}
_SET_BY_MOVE: Final = (*_KEEP_ALL, *_ANY_TIME, "max.message.bytes")
"""Configs that a topic has only during the move."""


class MovePlan(msgspec.Struct, frozen=True):
    """Sizes of everything that is moved."""

    topics: list[MovedTopic]
    groups: list[MovedGroup]


class MovedTopic(msgspec.Struct, frozen=True):
    name: str
    partitions: int
    records: int
    bytes: int


class MovedGroup(msgspec.Struct, frozen=True):
    id: str
    type: str
    rows: int


def plan_move(source: Source, progress: Progress) -> MovePlan:
    """Read the headers of all batches, and return what is to be moved. Raises DataDirError or CorruptLogError if
    something cannot be moved."""
    for partition in source.all_partitions():
        partition.look_through(progress)
    for topic in source.topics:
        for generation in topic.generations[1:]:
            for number, start in enumerate(generation.start_offsets):
                if start > source.partitions[topic.id][number].end_offset:
                    raise CorruptLogError(
                        f"{topic.name}-{number} ends before offset {start}, where the topic has grown: records are"
                        " missing; delete the topic before the move"
                    )
    types = _types(source.listed)
    same: dict[bytes, TopicId] = {topic.id: topic.id for topic in source.topics}
    groups = [
        MovedGroup(group_id, types[group_id], len(moved_rows(group_id, types[group_id], rows, same)))
        for group_id, rows in sorted(source.groups.items())
    ]
    return MovePlan(
        [
            MovedTopic(
                topic.name,
                topic.partitions,
                sum(each.records for each in source.partitions[topic.id]),
                sum(each.size_bytes for each in source.partitions[topic.id]),
            )
            for topic in source.topics
        ],
        groups,
    )


async def check_move(source: Source, addresses: str) -> None:
    """Raise the error with which `move` would refuse a cluster before it changes anything there."""
    async with open_cluster(addresses) as cluster:
        await _Move(source, cluster).check()


async def move(source: Source, addresses: str, progress: Progress) -> None:
    """Move everything after `plan_move`, and verify it. It may be called again after a crash or an error. All batches
    are read twice.

    Raises InvalidRequestError if gateways serve the cluster or it has groups of these names, TopicExistsError,
    StorageFailedError if what is read back differs, BrokerUnavailableError, or what the cluster refuses with.
    """
    async with open_cluster(addresses) as cluster:
        under_way = _Move(source, cluster)
        await under_way.check()
        if not under_way.is_verified:
            await under_way.copy_topics(progress)
            await under_way.verify_topics(progress)
            await under_way.write_groups()
    async with open_cluster(addresses) as cluster:
        last = _Move(source, cluster)
        await last.check()
        if not last.is_verified:
            await last.verify_groups()
        await last.configure_topics()
        await last.list_groups()


class _Move:
    """The move over one connection to the cluster."""

    def __init__(self, source: Source, cluster: Cluster) -> None:
        self._source = source
        self._cluster = cluster
        self._engine = cluster.engine
        self._types = _types(source.listed)
        self._rows = cluster.store_of(_MOVES)
        self._ids: dict[bytes, TopicId] = {}
        """The ids of the topics that are on the cluster, by their ids in the directory."""
        self.is_verified = False
        """Whether only the list of groups is left to be written."""
        self._at_once = asyncio.Semaphore(_AT_ONCE)

    async def check(self) -> None:
        """Find what an earlier attempt has moved, and refuse what is not of this move. Changes nothing."""
        rows = await self._rows.load(_MOVES)
        here = {topic.name: topic.id for topic in self._engine.topics()}
        ids = set(here.values())
        ours = {topic.id: rows[topic.id] for topic in self._source.topics if rows.get(topic.id) in ids}
        for topic in self._source.topics:
            # The last attempt ended between the creation and the row with the id.
            if rows.get(topic.id) == _PLANNED and topic.name in here and self._is_as_created(topic):
                ours[topic.id] = here[topic.name]
        others = [key for key, value in rows.items() if key not in ours and value in ids]
        if others:
            names = [name for name, topic_id in here.items() if topic_id in {rows[key] for key in others}]
            raise InvalidRequestError(
                f"another data directory is being moved to this cluster (topics {', '.join(sorted(names)[:5])}): finish"
                " that, or delete these topics there, then move again"
            )
        for topic in self._source.topics:
            if topic.name in here and here[topic.name] != ours.get(topic.id):
                raise TopicExistsError(
                    f"the cluster has a topic {topic.name} already, which is not of an unfinished move: delete one of"
                    " the two, or move to another cluster"
                )
        self._ids = {key: TopicId(value) for key, value in ours.items()}
        self.is_verified = _VERIFIED in rows and len(ours) == len(self._source.topics)
        if not self.is_verified:
            for group_id in self._source.groups:
                if group_id.encode() in await self._cluster.store_of(group_id).load(GROUPS_SCOPE):
                    raise InvalidRequestError(
                        f"the cluster has a group {group_id} already: delete one of the two, or move to another cluster"
                    )

    # --- topics ------------------------------------------------------------------------------------------------------

    async def copy_topics(self, progress: Progress) -> None:
        """Create the topics, and append what they lack."""
        producer = await self._engine.init_producer_id()
        for topic in self._source.topics:
            parts = self._source.partitions[topic.id]
            topic_id = self._ids.get(topic.id) or await self._create(topic)
            await self._rows.commit(_MOVES, [StateEvent(topic.id, topic_id)])
            await self._engine.learn_ends(topic_id, range(self._engine.topic_by_id(topic_id).partitions))
            copies = [
                _PartitionCopy(self._cluster, topic_id, number, local, producer, progress)
                for number, local in enumerate(parts)
            ]
            await self._grow(topic, topic_id, copies)
            await self._each(copy.advance(copy.local.end_offset) for copy in copies)
            for copy in copies:
                if copy.local.start_offset:
                    await self._engine.delete_records(topic_id, copy.number, copy.local.start_offset)

    async def _create(self, topic: Topic) -> TopicId:
        await self._rows.commit(_MOVES, [StateEvent(topic.id, _PLANNED)])
        created = await self._engine.create_topic(
            topic.name, topic.generations[0].partitions, self._configs_meanwhile(topic)
        )
        self._ids[topic.id] = created.id
        return created.id

    def _is_as_created(self, topic: Topic) -> bool:
        """Return whether the topic of this name on the cluster looks as if the move had just created it."""
        there = self._engine.topic(topic.name)
        return (
            there.generations == topic.generations[:1]
            and self._configs_meanwhile(topic).items() <= there.overrides.items()
            and not any(
                self._engine.partition_facts(there.id, number).high_watermark for number in range(there.partitions)
            )
        )

    def _configs_meanwhile(self, topic: Topic) -> dict[str, str]:
        """Return the configs that a topic has during the move: it takes every batch, and loses none."""
        largest = max(each.largest_bytes for each in self._source.partitions[topic.id])
        return {
            **topic.overrides,
            **_KEEP_ALL,
            **_ANY_TIME,
            "max.message.bytes": str(max(_LEAST_BATCH_BYTES, largest, topic.config.max_message_bytes)),
        }

    async def _grow(self, topic: Topic, topic_id: TopicId, copies: list[_PartitionCopy]) -> None:
        """Let the topic on the cluster grow as the one here has grown, each time with the records from before."""
        present = self._engine.topic_by_id(topic_id)
        for generation in topic.generations[present.generation :]:
            await self._each(
                copy.advance(start)
                for copy, start in zip(copies[: present.partitions], generation.start_offsets, strict=True)
            )
            present = await self._engine.alter_topic(topic_id, partitions=generation.partitions)
        if present.generations != topic.generations:
            raise StorageFailedError(
                f"topic {topic.name} has other generations on the cluster than here, so somebody else has written to it"
                " or changed it: delete it there, then move again"
            )

    async def verify_topics(self, progress: Progress) -> None:
        """Read all partitions back. Raises StorageFailedError if something differs."""
        for topic in self._source.topics:
            topic_id, parts = self._ids[topic.id], self._source.partitions[topic.id]
            await self._engine.learn_ends(topic_id, range(len(parts)))
            await self._each(self._verify(topic_id, number, local, progress) for number, local in enumerate(parts))

    async def _verify(self, topic_id: TopicId, number: int, local: LocalPartition, progress: Progress) -> None:
        facts = self._engine.partition_facts(topic_id, number)
        if (facts.log_start_offset, facts.high_watermark) != (local.start_offset, local.end_offset):
            raise _differs(
                local,
                f"it has the offsets {facts.log_start_offset} to {facts.high_watermark} there, not"
                f" {local.start_offset} to {local.end_offset}",
            )
        expected = local.batches(local.start_offset, progress)
        offset = local.start_offset
        while offset < local.end_offset:
            [result] = await self._engine.read([Read(topic_id, number, offset, READ_BYTES, check_crc=True)])
            if isinstance(result, LogbrokerError):
                raise result
            if not result.batches:
                raise _differs(local, f"nothing can be read at offset {offset}")
            for header, batch in split_batches(result.batches):
                wanted = next(expected, None)
                if wanted is None or wanted[0].base_offset != header.base_offset or _core(wanted[1]) != _core(batch):
                    raise _differs(local, f"the batch at offset {header.base_offset} is another one")
            offset = result.next_offset
        if next(expected, None) is not None:
            raise _differs(local, f"batches from offset {offset} on are missing")

    async def configure_topics(self) -> None:
        """Give the topics their own configs. From here on, the cluster may delete records by their retention."""
        for topic in self._source.topics:
            own = topic.overrides
            if topic.name.startswith(INTERNAL_PREFIX):
                own = own | _KEEP_ALL  # A cluster does not ask the group what it still needs.
            await self._engine.alter_topic(
                self._ids[topic.id],
                set_configs={name: own[name] for name in _SET_BY_MOVE if name in own},
                unset_configs=[name for name in _SET_BY_MOVE if name not in own],
            )

    # --- groups ------------------------------------------------------------------------------------------------------

    def _moved_rows(self, group_id: str) -> dict[bytes, bytes]:
        return moved_rows(group_id, self._types[group_id], self._source.groups[group_id], self._ids)

    async def write_groups(self) -> None:
        """Write the rows of all groups, and let no number repeat that was given out here, whatever the group."""
        for store, _ in self._cluster.homes:
            await store.numbers.reserve(self._source.next_receipt)
        for group_id in self._source.groups:
            store, scope = self._cluster.store_of(group_id), GROUP_SCOPE + group_id
            rows, there = self._moved_rows(group_id), await store.load(scope)
            events = [StateEvent(key, None) for key in there if key not in rows]
            events += [StateEvent(key, value) for key, value in rows.items()]
            for part in _in_parts(events):
                await store.commit(scope, part)

    async def verify_groups(self) -> None:
        """Compare the rows of all groups with those that were read from the cluster, and note that the move is
        verified. Raises StorageFailedError."""
        for group_id in self._source.groups:
            store = self._cluster.store_of(group_id)
            if await store.load(GROUP_SCOPE + group_id) != self._moved_rows(group_id):
                raise StorageFailedError(f"the rows of group {group_id} that were read back differ: move again")
        if any(store.numbers.reserved < self._source.next_receipt for store, _ in self._cluster.homes):
            raise StorageFailedError("receipts could repeat on the cluster: move again")
        await self._rows.commit(_MOVES, [StateEvent(_VERIFIED, b"1")])

    async def list_groups(self) -> None:
        """Let gateways serve the groups, and forget the move."""
        for group_id, row in self._source.listed.items():
            await self._cluster.store_of(group_id).commit(GROUPS_SCOPE, [StateEvent(group_id.encode(), row)])
        left = await self._rows.load(_MOVES)
        await self._rows.commit(_MOVES, [StateEvent(key, None) for key in left])

    async def _each(self, steps: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Carry out steps, some at a time. The first error ends all."""

        async def carry_out(step: Coroutine[Any, Any, None]) -> None:
            async with self._at_once:
                await step

        tasks = [asyncio.create_task(carry_out(step)) for step in steps]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class _PartitionCopy:
    """Appends the batches of one partition to its copy on the cluster."""

    def __init__(
        self,
        cluster: Cluster,
        topic_id: TopicId,
        number: int,
        local: LocalPartition,
        producer: tuple[int, int],
        progress: Progress,
    ) -> None:
        self.number = number
        self.local = local
        self._engine = cluster.engine
        self._topic_id = topic_id
        self._end_offset = -1
        """Where the copy ends; -1: not looked up yet."""
        self._producer = producer
        self._sequence = 0
        self._batches: Iterator[tuple[BatchHeader, bytes]] = iter(())
        self._progress = progress

    async def advance(self, end_offset: int) -> None:
        """Append until the copy ends at an offset. The copy exists, and its end is known."""
        if self._end_offset < 0:
            self._end_offset = self._engine.partition_facts(self._topic_id, self.number).high_watermark
            self._batches = self.local.batches(max(self._end_offset, self.local.start_offset), self._progress)
        while self._end_offset < end_offset:
            if (missing := min(end_offset, self.local.first_offset) - self._end_offset) > 0:
                count = min(missing, FILLER_RECORDS)
                await self._append(_filler(count), count, self._end_offset)
                continue
            header, batch = next(self._batches, (None, b""))
            if header is None or header.base_offset != self._end_offset or header.next_offset > end_offset:
                raise _differs(self.local, f"it ends at offset {self._end_offset} there, where no batch begins here")
            await self._append(batch, header.record_count, header.base_offset)

    async def _append(self, batch: bytes, records: int, offset: int) -> None:
        # A new batch begins at offset 0; the cluster gives it its place.
        stamped = bytes(_OFFSET_BYTES) + with_producer(batch, *self._producer, self._sequence)[_OFFSET_BYTES:]
        [outcome] = await self._engine.append([Append(self._topic_id, self.number, stamped)])
        if isinstance(outcome, LogbrokerError):
            raise StorageFailedError(f"{self.local.name}, the batch at offset {offset}: {outcome.message}")
        if outcome.base_offset != offset:
            raise _differs(self.local, f"somebody else has appended to it at offset {offset}")
        self._sequence = (self._sequence + records) & MAX_SEQUENCE
        self._end_offset += records


@lru_cache(maxsize=2)
def _filler(count: int) -> bytes:
    """Return a batch of empty records. They bear the oldest time, so that the first record begins another segment."""
    return encode_batch([NewRecord(None, timestamp_ms=0)] * count, codec=Codec.ZSTD)


def _core(batch: bytes) -> bytes:
    """Return what of a batch does not depend on its place and its producer."""
    return with_producer(batch, NO_PRODUCER_ID, -1, -1)[CRC_START:]


def _differs(local: LocalPartition, how: str) -> StorageFailedError:
    return StorageFailedError(
        f"{local.name} is not the same on the cluster: {how}; delete the topic there, then move again"
    )


def _types(listed: Mapping[str, bytes]) -> dict[str, str]:
    return listed_types({group_id.encode(): row for group_id, row in listed.items()})


def _in_parts(events: list[StateEvent]) -> Iterator[list[StateEvent]]:
    """Divide events into commits of a moderate size."""
    part: list[StateEvent] = []
    size_bytes = 0
    for event in events:
        part.append(event)
        size_bytes += len(event.key) + len(event.value or b"")
        if size_bytes >= _COMMIT_BYTES:
            yield part
            part, size_bytes = [], 0
    if part:
        yield part
