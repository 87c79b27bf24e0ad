"""The committed offsets of one group: what a commit may change, and the rows that keep it. No I/O.

A commit is checked and staged at once, in the order in which the member sent it, and visible (to reads, and to the next
owner of the partition) only when its rows are synced. Between the two it is remembered only where it must be: in the
floors of the member that made it, so that its next commit cannot go back behind it.

All offsets are in memory, with their metadata, so both are bounded: for a group and for all groups together, in bytes
of memory (`stored_bytes`). A commit that needs more is refused; one that needs no more than the offset that it
replaces is taken even where the bound is exceeded, so consumers that are under way go on.

    row      key    b"o", topic id (16 bytes), partition (4 bytes, big-endian)
             value  msgpack array: offset, leader epoch (-1: not known), metadata text, commit time (ms since 1970)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Final

import msgspec

from logbroker.engine import StateEvent
from logbroker.errors import (
    CorruptLogError,
    InvalidRequestError,
    LogbrokerError,
    NotOwnerError,
    OffsetGoesBackError,
    OffsetMetadataTooLargeError,
    OffsetOutOfRangeError,
    OffsetsFullError,
)
from logbroker.types import PartitionKey, TopicId

MAX_METADATA_BYTES: Final = 4096
OFFSET_ROW: Final = b"o"

OFFSET_BYTES: Final = 192
"""Memory that one committed offset takes beside its metadata: the struct, its numbers and its places in two tables."""
TEXT_BYTES: Final = 56
"""Memory that a text takes beside its characters."""

_MAX_BYTES_PER_CHARACTER: Final = 4
_TOPIC_ID_BYTES: Final = 16


class Committed(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What is committed for one partition."""

    offset: int
    """The next one to read."""
    leader_epoch: int
    """Of the last record that was read; -1: not known."""
    metadata: str
    commit_time_ms: int


class TopicCommit(msgspec.Struct, gc=False):
    """Offsets to commit for one topic: columns of equal length; the last two may be empty instead."""

    topic_id: TopicId
    partitions: list[int]
    offsets: list[int]
    leader_epochs: list[int]
    metadata: list[str]

    def check_columns(self) -> None:
        """Raises InvalidRequestError where the columns do not match."""
        count = len(self.partitions)
        if len(self.offsets) != count:
            raise InvalidRequestError(f"there are {count} partitions but {len(self.offsets)} offsets")
        for name in ("leader_epochs", "metadata"):
            if len(getattr(self, name)) not in (0, count):
                raise InvalidRequestError(f"give one of {name} per partition ({count}), or none")

    def part(self, start: int, end: int) -> TopicCommit:
        """Return the rows from number `start` to before `end`."""
        return TopicCommit(
            self.topic_id,
            self.partitions[start:end],
            self.offsets[start:end],
            self.leader_epochs[start:end],
            self.metadata[start:end],
        )


Floors = dict[TopicId, dict[int, int]]
"""The partitions that a member holds, each with the offset that it last committed there; -1: none yet."""

EndOffset = Callable[[TopicId, int], int]
"""The end of the readable log of a partition; raises UnknownPartitionError or another LogbrokerError."""

Failures = list[tuple[int, LogbrokerError]]
"""Partitions of a commit that were refused."""

CommitOutcome = Failures | LogbrokerError
"""Of one topic of a commit: the partitions that were refused, or the error of them all."""


class OffsetBudget:
    """Bytes of memory for the committed offsets of all groups, and of one group."""

    def __init__(self, max_bytes: int = sys.maxsize, max_group_bytes: int = sys.maxsize) -> None:
        self.max_bytes = max_bytes
        self.max_group_bytes = max_group_bytes
        self.used_bytes = 0

    def check(self, group_bytes: int, growth_bytes: int) -> None:
        """Raise OffsetsFullError where a group that takes `group_bytes` may not grow by `growth_bytes`."""
        if group_bytes + growth_bytes > self.max_group_bytes:
            raise OffsetsFullError(
                f"the committed offsets of the group take {group_bytes} bytes of {self.max_group_bytes}"
                " (max_group_offsets_bytes): commit less metadata, or spread the topics over more groups"
            )
        if self.used_bytes + growth_bytes > self.max_bytes:
            raise OffsetsFullError(
                f"the committed offsets of all groups take {self.used_bytes} bytes of {self.max_bytes}"
                " (max_offsets_bytes): commit less metadata, or delete groups that are not used any more"
            )


def stored_bytes(metadata: str) -> int:
    """Return the memory that an offset with this metadata counts for.

    Python keeps a text that is not ASCII with up to four bytes a character, and once more in UTF-8 when it was encoded.
    """
    if not metadata:
        return OFFSET_BYTES
    return OFFSET_BYTES + TEXT_BYTES + len(metadata) * (1 if metadata.isascii() else _MAX_BYTES_PER_CHARACTER * 2)


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Committed).decode


class StagedOffsets(msgspec.Struct, gc=False):
    """Offsets on their way to one transaction."""

    rows: dict[bytes, tuple[TopicId, int, Committed]]
    """By the keys of their rows."""

    def events(self) -> list[StateEvent]:
        return [StateEvent(key, _encode(committed)) for key, (_, _, committed) in self.rows.items()]


class OffsetTable:
    """Synced offsets, and those staged for the next transaction."""

    def __init__(self, rows: Mapping[bytes, bytes] | None = None, budget: OffsetBudget | None = None) -> None:
        """Load the rows of a scope; other rows are passed over. Raises CorruptLogError.

        What is stored is loaded, whatever the budget says. Without a budget nothing is bounded.
        """
        self._topics: dict[TopicId, dict[int, Committed]] = {}
        self._staged: dict[bytes, tuple[TopicId, int, Committed]] = {}
        self._syncing: dict[bytes, tuple[TopicId, int, Committed]] = {}
        self._budget = budget or OffsetBudget()
        self._bytes = 0
        self.last_commit_ms = 0
        """When the youngest offset was committed; 0: there is none."""
        if rows is not None:
            self._load(rows)

    def _load(self, rows: Mapping[bytes, bytes]) -> None:
        """A start decodes the rows of all groups, up to a million or two: as little as possible is done for each."""
        topics, loaded_bytes, last_commit_ms = self._topics, 0, 0
        topic_end = len(OFFSET_ROW) + _TOPIC_ID_BYTES
        for key, value in rows.items():
            if not key.startswith(OFFSET_ROW):
                continue
            try:
                committed = _decode(value)
            except msgspec.MsgspecError as error:
                raise CorruptLogError(f"the committed offset under key {key.hex()} cannot be read: {error}") from None
            topic_id = TopicId(key[len(OFFSET_ROW) : topic_end])
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = {}
            topic[int.from_bytes(key[topic_end:], "big")] = committed
            loaded_bytes += stored_bytes(committed.metadata)
            if committed.commit_time_ms > last_commit_ms:
                last_commit_ms = committed.commit_time_ms
        self._charge(loaded_bytes)
        self.last_commit_ms = last_commit_ms

    def get(self, topic_id: TopicId, partition: int) -> Committed | None:
        """The synced offset of a partition."""
        topic = self._topics.get(topic_id)
        return None if topic is None else topic.get(partition)

    def of_topic(self, topic_id: TopicId) -> Mapping[int, Committed]:
        return self._topics.get(topic_id, {})

    def topic_ids(self) -> Set[TopicId]:
        return self._topics.keys()

    def __iter__(self) -> Iterator[tuple[PartitionKey, Committed]]:
        for topic_id, partitions in self._topics.items():
            for partition, committed in partitions.items():
                yield PartitionKey(topic_id, partition), committed

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    @property
    def has_staged(self) -> bool:
        return bool(self._staged)

    @property
    def used_bytes(self) -> int:
        """Memory that the synced and the staged offsets count for."""
        return self._bytes

    def floors(self, partitions: Iterable[PartitionKey], before: Floors) -> Floors:
        """Return the floors of a member that holds these partitions now: what it kept without interruption keeps its
        own."""
        floors: Floors = {}
        for topic_id, partition in partitions:
            floors.setdefault(topic_id, {})[partition] = before.get(topic_id, {}).get(partition, -1)
        return floors

    def loaded_floors(self, partitions: Iterable[PartitionKey]) -> Floors:
        """Return the floors of a member after a restart: whose commits the offsets are is not stored, so all count."""
        floors: Floors = {}
        for topic_id, partition in partitions:
            committed = self.get(topic_id, partition)
            floors.setdefault(topic_id, {})[partition] = -1 if committed is None else committed.offset
        return floors

    def stage(self, commit: TopicCommit, floors: Floors | None, end_offset: EndOffset, now_ms: int) -> Failures:
        """Stage what may be committed, and return what may not.

        `floors` are those of the member that commits, and are raised; None for a program that is no member: it may
        commit everything, backwards too. The columns of `commit` match.
        """
        topic_id, staged = commit.topic_id, self._staged
        held = None if floors is None else floors.get(topic_id, {})
        key_prefix = OFFSET_ROW + topic_id
        count = len(commit.partitions)
        leader_epochs = commit.leader_epochs or (-1,) * count
        metadata = commit.metadata or ("",) * count
        failures: Failures = []
        for partition, offset, leader_epoch, text in zip(
            commit.partitions, commit.offsets, leader_epochs, metadata, strict=True
        ):
            try:
                if held is not None:
                    floor = held.get(partition)
                    if floor is None:
                        raise NotOwnerError(f"the member does not hold partition {partition}: it has no say there")
                    if offset < floor:
                        raise OffsetGoesBackError(
                            f"offset {offset} is below {floor}, which the member committed before; a committed offset"
                            " only goes back when the group is reset"
                        )
                end = end_offset(topic_id, partition)
                if not 0 <= offset <= end:
                    raise OffsetOutOfRangeError(
                        f"offset {offset} is not within the log of partition {partition}, which ends at {end};"
                        " commit the offset after the last record that was read"
                    )
                if len(text) * _MAX_BYTES_PER_CHARACTER > MAX_METADATA_BYTES:
                    _check_metadata(text)
                key = key_prefix + partition.to_bytes(4, "big")
                growth_bytes = stored_bytes(text) - self._counted_bytes(key, topic_id, partition)
                if growth_bytes > 0:
                    self._budget.check(self._bytes, growth_bytes)
            except LogbrokerError as error:
                failures.append((partition, error.as_value()))
                continue
            if held is not None:
                held[partition] = offset
            committed = Committed(offset, leader_epoch if leader_epoch >= 0 else -1, text, now_ms)
            # The last commit of a partition in a transaction is the one that counts.
            staged[key] = (topic_id, partition, committed)
            self._charge(growth_bytes)
        return failures

    def _counted_bytes(self, key: bytes, topic_id: TopicId, partition: int) -> int:
        """Return what is counted for a partition: its youngest offset, staged or synced."""
        row = self._staged.get(key) or self._syncing.get(key)
        committed = row[2] if row is not None else self.get(topic_id, partition)
        return 0 if committed is None else stored_bytes(committed.metadata)

    def _charge(self, growth_bytes: int) -> None:
        self._bytes += growth_bytes
        self._budget.used_bytes += growth_bytes

    def take_staged(self) -> StagedOffsets:
        """Return what was staged since the last call, for one transaction; `apply` it before the next call."""
        self._syncing, self._staged = self._staged, {}
        return StagedOffsets(self._syncing)

    def apply(self, staged: StagedOffsets) -> None:
        """What was staged is synced."""
        for topic_id, partition, committed in staged.rows.values():
            topic = self._topics.get(topic_id)
            if topic is None:
                topic = self._topics[topic_id] = {}
            topic[partition] = committed
            self.last_commit_ms = max(self.last_commit_ms, committed.commit_time_ms)
        self._syncing = {}

    def clamped(self, end_offset: EndOffset) -> list[StateEvent]:
        """Cut back offsets that lie behind the end of their log; return the rows.

        Where the end is not known (the partition is offline), an offset stays. Before anything is staged.
        """
        events: list[StateEvent] = []
        for topic_id, topic in self._topics.items():
            for partition, committed in topic.items():
                try:
                    end = end_offset(topic_id, partition)
                except LogbrokerError:
                    continue
                if committed.offset > end:
                    # The record that it follows is gone, and with it the epoch of that record.
                    cut = msgspec.structs.replace(committed, offset=end, leader_epoch=-1)
                    topic[partition] = cut
                    events.append(StateEvent(offset_key(topic_id, partition), _encode(cut)))
        return events

    def drop_topics(self, exists: Callable[[TopicId], bool]) -> list[StateEvent]:
        """Forget the offsets of topics that are gone; return the rows to delete. Not within a transaction."""
        for key, (topic_id, partition, _) in list(self._staged.items()):
            if not exists(topic_id):
                counted_bytes = self._counted_bytes(key, topic_id, partition)
                del self._staged[key]
                self._charge(self._counted_bytes(key, topic_id, partition) - counted_bytes)
        gone = [topic_id for topic_id in self._topics if not exists(topic_id)]
        events: list[StateEvent] = []
        for topic_id in gone:
            for partition, committed in self._topics.pop(topic_id).items():
                self._charge(-stored_bytes(committed.metadata))
                events.append(StateEvent(offset_key(topic_id, partition), None))
        return events


def offset_key(topic_id: TopicId, partition: int) -> bytes:
    """The key of the row of a partition."""
    return OFFSET_ROW + topic_id + partition.to_bytes(4, "big")


def _check_metadata(text: str) -> None:
    if len(text) > MAX_METADATA_BYTES or len(text.encode()) > MAX_METADATA_BYTES:
        raise OffsetMetadataTooLargeError(
            f"the metadata text has more than {MAX_METADATA_BYTES} bytes, which is what is kept beside an offset"
        )
