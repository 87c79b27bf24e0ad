"""The committed offsets of one group: the checks of a commit, and the rows. No I/O.

A commit is checked and staged at once, in the order in which the member sent it. It becomes visible (to reads, and to
the next owner of the partition) only when its rows are synced. Before that, only the floors of the committing member
show it, so that the next commit of this member cannot go back behind it.

All offsets are in memory, with their metadata. So both are bounded in bytes of memory (`stored_bytes`), for a group and
for all groups together. A commit that needs more is refused. A commit that needs no more than the offset that it
replaces is accepted even beyond the bound, so running consumers go on.

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
"""Memory of one committed offset without its metadata: the struct, its numbers and its entries in two tables."""
TEXT_BYTES: Final = 56
"""Memory of a text without its characters."""

_MAX_BYTES_PER_CHARACTER: Final = 4
_TOPIC_ID_BYTES: Final = 16


class Committed(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The committed offset of one partition."""

    offset: int
    """The next offset to read."""
    leader_epoch: int
    """Leader epoch of the last record that was read; -1: unknown."""
    metadata: str
    commit_time_ms: int


class TopicCommit(msgspec.Struct, gc=False):
    """Offsets to commit for one topic, as columns of equal length. The last two columns may be empty instead."""

    topic_id: TopicId
    partitions: list[int]
    offsets: list[int]
    leader_epochs: list[int]
    metadata: list[str]

    def check_columns(self) -> None:
        """Raise InvalidRequestError if the columns do not match."""
        count = len(self.partitions)
        if len(self.offsets) != count:
            raise InvalidRequestError(f"there are {count} partitions but {len(self.offsets)} offsets")
        for name in ("leader_epochs", "metadata"):
            if len(getattr(self, name)) not in (0, count):
                raise InvalidRequestError(f"{name} must have one entry for each partition ({count}), or be empty")

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
"""The partitions that a member holds, each with the last offset that the member committed in it; -1 if it has committed
none yet."""

EndOffset = Callable[[TopicId, int], int]
"""Returns the end of the readable log of a partition. Raises UnknownPartitionError or another LogbrokerError."""

Failures = list[tuple[int, LogbrokerError]]
"""Partitions of a commit that were refused, with their errors."""

CommitOutcome = Failures | LogbrokerError
"""Outcome for one topic of a commit: the partitions that were refused, or the error of all of them."""


class OffsetBudget:
    """Budgets of memory in bytes for the committed offsets of all groups, and of one group."""

    def __init__(self, max_bytes: int = sys.maxsize, max_group_bytes: int = sys.maxsize) -> None:
        self.max_bytes = max_bytes
        self.max_group_bytes = max_group_bytes
        self.used_bytes = 0

    def check(self, group_bytes: int, growth_bytes: int) -> None:
        """Raise OffsetsFullError if a group that takes `group_bytes` may not grow by `growth_bytes`."""
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
    """Return the memory that is counted for an offset with this metadata.

    Python keeps a text that is not ASCII with up to four bytes per character, and once more in UTF-8 after it was
    encoded.
    """
    if not metadata:
        return OFFSET_BYTES
    return OFFSET_BYTES + TEXT_BYTES + len(metadata) * (1 if metadata.isascii() else _MAX_BYTES_PER_CHARACTER * 2)


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Committed).decode


class StagedOffsets(msgspec.Struct, gc=False):
    """Offsets for one transaction."""

    rows: dict[bytes, tuple[TopicId, int, Committed | None]]
    """Offsets by the keys of their rows; None: to be deleted."""

    def events(self) -> list[StateEvent]:
        return [
            StateEvent(key, None if committed is None else _encode(committed))
            for key, (_, _, committed) in self.rows.items()
        ]


class OffsetTable:
    """Synced offsets, and those staged for the next transaction."""

    def __init__(self, rows: Mapping[bytes, bytes] | None = None, budget: OffsetBudget | None = None) -> None:
        """Load the offsets from the rows of a scope; rows of other kinds are ignored. Raises CorruptLogError.

        Stored offsets are loaded even if they exceed the budget. Without a budget nothing is bounded.
        """
        self._topics: dict[TopicId, dict[int, Committed]] = {}
        self._staged: dict[bytes, tuple[TopicId, int, Committed | None]] = {}
        self._syncing: dict[bytes, tuple[TopicId, int, Committed | None]] = {}
        self._budget = budget or OffsetBudget()
        self._bytes = 0
        self.last_commit_ms = 0
        """Time of the latest commit; 0: there is none."""
        if rows is not None:
            self._load(rows)

    def _load(self, rows: Mapping[bytes, bytes]) -> None:
        """Load the rows. A start decodes up to two million rows of all groups, so the loop does little for each row."""
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
        """Return the synced offset of a partition."""
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
        """Memory that is counted for the synced and the staged offsets."""
        return self._bytes

    def floors(self, partitions: Iterable[PartitionKey], before: Floors) -> Floors:
        """Return the floors of a member that now holds these partitions. A partition held without interruption keeps
        its floor."""
        floors: Floors = {}
        for topic_id, partition in partitions:
            floors.setdefault(topic_id, {})[partition] = before.get(topic_id, {}).get(partition, -1)
        return floors

    def loaded_floors(self, partitions: Iterable[PartitionKey]) -> Floors:
        """Return the floors of a member after a restart: the committed offsets, whichever member committed them,
        because that is not stored."""
        floors: Floors = {}
        for topic_id, partition in partitions:
            committed = self.get(topic_id, partition)
            floors.setdefault(topic_id, {})[partition] = -1 if committed is None else committed.offset
        return floors

    def stage(self, commit: TopicCommit, floors: Floors | None, end_offset: EndOffset, now_ms: int) -> Failures:
        """Stage the offsets that may be committed, and return the failures of the others.

        `floors` are the floors of the committing member, which are raised. None means that the program is not a member.
        It may commit any offsets, also lower ones. The columns of `commit` must match.
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
                        raise NotOwnerError(
                            f"the member does not hold partition {partition}: only its holder may commit"
                        )
                    if offset < floor:
                        raise OffsetGoesBackError(
                            f"offset {offset} is below {floor}, which was committed in partition {partition} before: a"
                            " member that keeps a partition cannot commit a lower offset; reset the group instead"
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
            # The last commit of a partition in a transaction counts.
            staged[key] = (topic_id, partition, committed)
            self._charge(growth_bytes)
        return failures

    def stage_deletion(self, topic_id: TopicId, partition: int) -> None:
        """Stage the deletion of an offset, if there is one."""
        key = offset_key(topic_id, partition)
        self._charge(-self._counted_bytes(key, topic_id, partition))
        self._staged[key] = (topic_id, partition, None)

    def _counted_bytes(self, key: bytes, topic_id: TopicId, partition: int) -> int:
        """Return the bytes that are counted for a partition, by its latest offset, staged or synced."""
        row = self._staged.get(key) or self._syncing.get(key)
        committed = row[2] if row is not None else self.get(topic_id, partition)
        return 0 if committed is None else stored_bytes(committed.metadata)

    def leave_budget(self) -> None:
        """Give back everything that was taken of the budget."""
        self._budget.used_bytes -= self._bytes
        self._budget = OffsetBudget()

    def _charge(self, growth_bytes: int) -> None:
        self._bytes += growth_bytes
        self._budget.used_bytes += growth_bytes

    def take_staged(self) -> StagedOffsets:
        """Return the offsets staged since the last call, for one transaction. Call `apply` with it before the next
        call."""
        self._syncing, self._staged = self._staged, {}
        return StagedOffsets(self._syncing)

    def apply(self, staged: StagedOffsets) -> None:
        """Make staged offsets visible, after they were synced."""
        for topic_id, partition, committed in staged.rows.values():
            topic = self._topics.get(topic_id)
            if committed is None:
                if topic is not None and topic.pop(partition, None) is not None and not topic:
                    del self._topics[topic_id]
                continue
            if topic is None:
                topic = self._topics[topic_id] = {}
            topic[partition] = committed
            self.last_commit_ms = max(self.last_commit_ms, committed.commit_time_ms)
        self._syncing = {}

    def clamped(self, end_offset: EndOffset) -> list[StateEvent]:
        """Cut back offsets beyond the end of their log; return the rows.

        If the end is unknown (the partition is offline), the offset stays. Call this before anything is staged.
        """
        events: list[StateEvent] = []
        for topic_id, topic in self._topics.items():
            for partition, committed in topic.items():
                try:
                    end = end_offset(topic_id, partition)
                except LogbrokerError:
                    continue
                if committed.offset > end:
                    # The record before it is gone, and so is the epoch of that record.
                    cut = msgspec.structs.replace(committed, offset=end, leader_epoch=-1)
                    topic[partition] = cut
                    events.append(StateEvent(offset_key(topic_id, partition), _encode(cut)))
        return events

    def drop_topics(self, exists: Callable[[TopicId], bool]) -> list[StateEvent]:
        """Forget the offsets of deleted topics; return the rows to delete. Not to be called within a transaction."""
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
    """Return the key of the row of a partition."""
    return OFFSET_ROW + topic_id + partition.to_bytes(4, "big")


def _check_metadata(text: str) -> None:
    if len(text) > MAX_METADATA_BYTES or len(text.encode()) > MAX_METADATA_BYTES:
        raise OffsetMetadataTooLargeError(
            f"the metadata text has more than {MAX_METADATA_BYTES} bytes, the maximum that is stored with an offset"
        )
