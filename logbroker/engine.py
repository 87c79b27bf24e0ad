"""The broker's two interfaces to storage: the log, and the state of groups and queue groups.

The layers above (the listeners, the groups and queue groups) use only these Protocols. Today this process implements
both (`logbroker.broker.local_engine`). Later a cluster with Kafka's protocol could implement them. So everything that
may take time is async, and state changes are events, which fit both an LMDB transaction and a compacted topic.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from logbroker.config import TopicConfig
from logbroker.errors import CorruptLogError, LogbrokerError
from logbroker.record.bands import Band
from logbroker.types import Durability, PartitionKey, PriorityRouting, TopicId

Buffer = bytes | memoryview


class LogGeneration(msgspec.Struct, frozen=True):
    """A span of a topic's life with one partition count. A key has one partition within it."""

    generation: int
    partitions: int
    start_offsets: tuple[int, ...]
    """The end offset of each partition of the previous generation, at the moment when this generation began; () for the
    first."""


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a topic at one moment. Every change makes a new Topic."""

    name: str
    id: TopicId
    partitions: int
    config: TopicConfig
    overrides: dict[str, str]
    """The configs that the topic sets itself, as text."""
    generations: tuple[LogGeneration, ...]
    created_at_ms: int

    @property
    def generation(self) -> int:
        """The current generation; the first is 1."""
        return self.generations[-1].generation

    def end_of(self, generation: int, partition: int) -> int | None:
        """Return the end offset of a generation in a partition, or None if the generation has not ended (or is 0)."""
        if not 0 < generation < self.generation:
            return None
        # Generations are numbered from 1, so this is the next generation.
        start_offsets = self.generations[generation].start_offsets
        return start_offsets[partition] if partition < len(start_offsets) else 0

    @property
    def routing_bands(self) -> tuple[Band, ...]:
        """The bands, if each has its own partitions for its records; (): records are routed by their keys alone."""
        return self.config.priority_bands if self.config.priority_routing is PriorityRouting.PRIORITY else ()


class PartitionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets and size of one partition at one moment."""

    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    size_bytes: int
    segments: int
    damage: str = ""
    """The known reason why a part of the partition cannot be read, the first one if there are several; "": none is
    known."""
    cut_bytes: int = 0
    """Bytes that recovery cut off the end of the partition at the start."""
    cut_offset: int = 0
    """The offset of this cut, if there was one."""


class ProducerFacts(msgspec.Struct, frozen=True, gc=False):
    """The last batch of an idempotent producer in a partition."""

    producer_id: int
    epoch: int
    last_sequence: int
    timestamp_ms: int
    """Largest timestamp of its records; -1: none, or not known."""


_NONE: Final[frozenset[TopicId]] = frozenset()


class RoutingFence:
    """Keeps appends of one origin (a stream, or one request) from overtaking appends that were refused as stale.

    If a batch is refused because its topic has grown, all later routed batches for the topic are refused as well: the
    sender does not know of the refusal yet, and would send the refused batch again after them. A request with a newer
    generation opens the fence again, but only if the request came after every refusal was answered.
    """

    __slots__ = ("_closed",)

    def __init__(self) -> None:
        self._closed: dict[TopicId, tuple[int, int]] = {}
        """The newest generation that was refused, and the number of refusals that are not answered yet, by topic."""

    def told(self) -> frozenset[TopicId]:
        """Return the topics for which the sender was told of all refusals. A request that comes now may open the fence
        for them."""
        if not self._closed:
            return _NONE
        return frozenset(topic_id for topic_id, (_, unanswered) in self._closed.items() if not unanswered)

    def lets_through(self, topic_id: TopicId, known_generation: int) -> bool:
        """Decide on a batch at the moment of its append. If it has a newer generation, open the fence for this batch
        and later ones."""
        if not self._closed or topic_id not in self._closed:
            return True
        if known_generation <= self._closed[topic_id][0]:
            return False
        del self._closed[topic_id]
        return True

    def refused(self, topic_id: TopicId, generation: int) -> None:
        """Close the fence for batches after a refused batch. `generation` is the generation of the refused batch if it
        is older than the topic's, and otherwise 0."""
        before, unanswered = self._closed.get(topic_id, (0, 0))
        self._closed[topic_id] = max(before, generation), unanswered + 1

    def answered(self, topic_id: TopicId) -> None:
        """Note that the sender was told of one refusal."""
        if topic_id in self._closed:
            generation, unanswered = self._closed[topic_id]
            self._closed[topic_id] = generation, unanswered - 1


class DiskUse(enum.Enum):
    """The effect of a request on the free disk space, which decides when the request is refused. Other writes are never
    refused, and may use the remaining space: they free space, or follow from earlier decisions (deletions, retention,
    recovery points, the end of leases and members)."""

    TAKES_ROOM = "takes room"
    """Creates lasting objects: records, groups, topics, partitions, producers."""
    USES_RESERVE = "uses the reserve"
    """Processes existing records, or is an operator's decision: commits, settlements, sessions, decisions about
    lanes."""


class Append(msgspec.Struct, gc=False):
    """One batch for one partition."""

    topic_id: TopicId
    partition: int
    batch: Buffer
    generation: int = 0
    """The generation by which the records were routed; 0: not checked."""
    fence: RoutingFence | None = None
    """The fence of the appends that must not overtake each other when the topic grows; None: this append may overtake
    others."""
    known_generation: int = 0
    """The generation with which the request may open the fence; 0: the request came before the sender was told of every
    refusal."""
    room_bytes: int = -1
    """Number of bytes for which there must be room, on the disk and among the bytes in flight; -1: the size of the
    batch. If several appends belong together, the first one asks for the room of all. The others have 0: they ask for
    no room, and are refused if the append before them was refused."""
    use: DiskUse = DiskUse.TAKES_ROOM
    """The effect on the free disk space. Copies that let retention go on use the reserve."""
    may_repeat: bool = False
    """Whether a batch that begins at sequence 0 is accepted although its producer may have been forgotten, and it may
    repeat another: Kafka clients send it again in any case."""
    has_closed_fence: bool = False
    """Set by the engine when it closes the fence at this append: the fence stays closed until the sender has the
    answer, whatever error that is."""

    def close_fence(self, current_generation: int) -> None:
        """Close the fence, if there is one, because this append came too late for the topic's current generation, or
        too soon after one that did."""
        if self.fence is not None:
            self.fence.refused(self.topic_id, self.generation if self.generation < current_generation else 0)
            self.has_closed_fence = True


class Appended(msgspec.Struct, gc=False):
    """The place of an appended batch."""

    base_offset: int
    log_append_time_ms: int
    """The append time; -1 under CreateTime."""
    log_start_offset: int
    leader_epoch: int
    duplicate: bool
    """Whether the batch was there already, because an idempotent producer sent it again."""


class Read(msgspec.Struct, gc=False):
    """A request for the batches of one partition from `offset` on."""

    topic_id: TopicId
    partition: int
    offset: int
    max_bytes: int
    last_leader_epoch: int = -1
    """Leader epoch of the last record that the caller read; -1: not checked."""
    check_crc: bool = False
    """Whether to stop reading before the first batch with a wrong CRC. For readers that must know whether stored bytes
    are damaged, such as `damage_at`, or that copy batches. Other readers check the CRC when they decode the batches."""


class ReadResult(msgspec.Struct, gc=False):
    """Whole batches and the partition's offsets at that moment."""

    batches: bytes
    """Whole batches; empty if nothing is readable at the offset. The first batch may begin before it."""
    next_offset: int
    """The offset after the last batch; if there is no batch, the requested offset."""
    high_watermark: int
    log_start_offset: int
    leader_epoch: int
    gaps_below: int = 0
    """Below this offset, there may be a gap before a batch. Every other batch begins where the previous batch ends; the
    first one begins at the requested offset or before."""


UP_TO_HIGH_WATERMARK: Final = -1
"""Stands for the high watermark in `LogEngine.delete_records`."""


class FoundOffset(msgspec.Struct, gc=False):
    """An offset that was looked up by time."""

    offset: int
    """The offset; -1: no record is at or after the time."""
    timestamp_ms: int
    """-1: none."""
    leader_epoch: int


class Watch(Protocol):
    """Reports which of some partitions have new readable records. Belongs to one task; close it."""

    def add(self, key: PartitionKey) -> None:
        """Watch a partition; raises UnknownTopicError or UnknownPartitionError."""
        ...

    def remove(self, key: PartitionKey) -> None: ...

    def moved(self) -> set[PartitionKey]:
        """Return the partitions whose high watermark has moved, whose topic has grown or that were closed, since the
        last call."""
        ...

    def close(self) -> None: ...


class Holder(Protocol):
    """A part of the broker that needs records of one topic. Retention keeps the records that the holder needs."""

    def needed_from(self, partition: int) -> int:
        """The first offset that the holder still needs."""
        ...

    def let_go(self, partition: int, offset: int) -> Awaitable[None] | None:
        """Ask the holder to release records below `offset`. Retention asks again at each check, until the holder has
        released them. Return what to await for the end of the attempt; None: none was begun."""
        ...

    def removed(self, partition: int) -> None:
        """Note that records of the partition were removed: its log start offset has risen."""
        ...


class Numbers(Protocol):
    """Numbers of 63 bits that never repeat, even after deletions, restarts, kills or the restore of a backup."""

    @property
    def reserved(self) -> int:
        """Numbers below it may be given out. No number from it on was ever given out."""
        ...

    async def reserve(self, end: int) -> None:
        """Raise `reserved` to at least `end`. Returns when the new end is durable.

        Raises StorageFailedError, OverloadedError, DiskFullError or TooManyOpenFilesError.
        """
        ...


class ReadableLog(Protocol):
    """The operations on topics and their logs that a reader needs."""

    @property
    def partitions_per_read(self) -> int:
        """The number of partitions that a reader of many should name in one `read`: more than one where each call takes
        a while, whatever it reads."""
        ...

    def topic_by_id(self, topic_id: TopicId) -> Topic:
        """The topic of this id; raises UnknownTopicError."""
        ...

    def partition_facts(self, topic_id: TopicId, partition: int) -> PartitionFacts:
        """Return the facts of a partition. Raises UnknownTopicError, UnknownPartitionError or PartitionOfflineError."""
        ...

    async def read(self, reads: Sequence[Read]) -> list[ReadResult | LogbrokerError]:
        """Read the batches that are readable now, without waiting for more. At least one batch is returned if one is
        readable.

        Each batch begins exactly where the previous batch ends, except for gaps below `gaps_below`. At a batch that
        does not, and for what follows it in its segment, the result is CorruptLogError. Its `readable_from` says where
        the next segment begins.
        """
        ...

    def watch(self, wake: Callable[[], None]) -> Watch:
        """Begin to watch partitions for new readable records: `wake` is called when `moved` has something to return."""
        ...


class TopicPlan:
    """The result of a request that is only validated: its new topics and partitions. Each item is checked as if the
    earlier items had been carried out."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        """Names of new topics."""
        self.partitions = 0
        """Number of partitions in addition to those that exist."""


class LogEngine(ReadableLog, Protocol):
    """Topics and their partitions' logs.

    Lists are answered in their order: each item has its result, or its own error.
    """

    @property
    def is_sole_writer(self) -> bool:
        """Whether nobody else appends, so that `partition_facts` is always up to date."""
        ...

    @property
    def waits_for_holders(self) -> bool:
        """Whether records stay until their holders have released them. Otherwise holders are only asked in good time,
        and records that they have released may stay for long, or be gone at any time."""
        ...

    @property
    def durability(self) -> str:
        """Durability of every write, whatever topics and requests ask for; "": they choose."""
        ...

    async def learn_ends(self, topic_id: TopicId, partitions: Sequence[int]) -> Mapping[int, LogbrokerError]:
        """Return when the facts of these partitions are as new as this call, or after some seconds. Partitions whose
        facts are not, so that they may end later than these say, are returned with the reason."""
        ...

    @property
    def boot_id(self) -> str:
        """The boot id, which changes with every start of the computer; "": not known. After such a start, a file that
        was not synced may have other contents."""
        ...

    def topics(self) -> Sequence[Topic]:
        """All topics, sorted by name."""
        ...

    def topic(self, name: str) -> Topic:
        """The topic of this name; raises UnknownTopicError."""
        ...

    def on_topics_changed(self, listener: Callable[[Topic], None]) -> Callable[[], None]:
        """Call `listener` on the event loop after each change of topics, with the created or altered topic as it is
        now, or the deleted topic as it was. Return the function that ends this."""
        ...

    def on_growth(self, check: Callable[[Topic], None]) -> Callable[[], None]:
        """Call `check` on the event loop before a topic gets more partitions, or a plan notes it. An error that `check`
        raises refuses the growth. The last call comes while the topic is not pinned, so a pinned topic for which
        `check` would raise an error does not grow any more. Return the function that ends this."""
        ...

    async def create_topic(
        self, name: str, partitions: int | None, overrides: Mapping[str, str], *, plan: TopicPlan | None = None
    ) -> Topic:
        """Create a topic durably or, with a plan, only note it there.

        Raises InvalidTopicNameError, InvalidPartitionsError, InvalidConfigError, TopicExistsError, or OverloadedError
        or DiskFullError if a limit is reached.
        """
        ...

    async def delete_topic(self, topic_id: TopicId) -> Topic:
        """Delete a topic durably, and return what it was. Its name is free at once."""
        ...

    async def alter_topic(
        self,
        topic_id: TopicId,
        *,
        partitions: int | None = None,
        set_configs: Mapping[str, str] | None = None,
        unset_configs: Sequence[str] = (),
        plan: TopicPlan | None = None,
    ) -> Topic:
        """Change configs and add partitions, all or nothing. Growth begins a new generation and fences the old one.
        With a plan, the change is only noted there."""
        ...

    async def pin(self, topic_id: TopicId) -> Topic:
        """Return the topic, and keep its generation and configs until `unpin`, so that records are routed, batched and
        appended by the same ones. Waits while the topic is altered; alterations wait for `unpin`. The topic may still
        be deleted. Raises UnknownTopicError."""
        ...

    def unpin(self, topic_id: TopicId) -> None:
        """Let the topic change again. Call once for each `pin`."""
        ...

    async def append(
        self, appends: Sequence[Append], durability: Durability | None = None
    ) -> list[Appended | LogbrokerError]:
        """Append batches. Returns when each has the requested durability (None: its topic's) or has failed.

        Order: the batches of one partition take their offsets in the order in which the calls of this coroutine run
        their first step, and within a call in the order of the list.
        """
        ...

    async def offset_for_time(self, topic_id: TopicId, partition: int, timestamp_ms: int) -> FoundOffset:
        """Find the first record at or after a time."""
        ...

    async def offset_for_latest_time(self, topic_id: TopicId, partition: int) -> FoundOffset:
        """Find the first record with the largest timestamp."""
        ...

    def producers(self, topic_id: TopicId, partition: int) -> list[ProducerFacts]:
        """Return what a partition remembers of idempotent producers, the one that appended longest ago first. Raises
        UnknownTopicError, UnknownPartitionError or PartitionOfflineError."""
        ...

    def end_of_epoch(self, topic_id: TopicId, partition: int, leader_epoch: int) -> tuple[int, int] | None:
        """Return the last leader epoch up to `leader_epoch`, and the offset at which it ends; None if no such epoch is
        known. Raises UnknownTopicError, UnknownPartitionError or PartitionOfflineError."""
        ...

    async def delete_records(self, topic_id: TopicId, partition: int, before_offset: int) -> int:
        """Delete the records below an offset (or UP_TO_HIGH_WATERMARK) durably, and return the log start offset.

        Holders release the records first, as for retention. Once begun, the deletion goes on if the caller is
        cancelled. Raises OffsetOutOfRangeError for an offset above the high watermark, RecordsNeededError,
        UnknownTopicError, UnknownPartitionError or PartitionOfflineError.
        """
        ...

    def hold(self, topic_id: TopicId, holder: Holder) -> None:
        """Let retention keep the records that `holder` needs. Beyond `retention.hold.bytes`, the holder is asked to
        release records, and retention waits until it has.

        Not durable: after a start, retention begins only when all holders are registered.
        """
        ...

    def release(self, topic_id: TopicId, holder: Holder) -> None:
        """Stop waiting for `holder`."""
        ...

    async def init_producer_id(self, producer_id: int = -1, producer_epoch: int = -1) -> tuple[int, int]:
        """Return a new producer id with epoch 0, or the given one with its epoch raised; never the same pair twice."""
        ...


async def damage_at(engine: ReadableLog, topic_id: TopicId, partition: int, offset: int) -> CorruptLogError | None:
    """Let the engine check a batch that cannot be decoded. If the stored bytes are damaged, return the error, which
    names file and byte, else None. The engine remembers the damage, and later reads there result in the same error."""
    [found] = await engine.read([Read(topic_id, partition, offset, 1, check_crc=True)])
    return found if isinstance(found, CorruptLogError) else None


class StateEvent(msgspec.Struct, frozen=True, gc=False):
    """One change of state: an upsert, or a deletion if `value` is None."""

    key: bytes
    value: bytes | None


class StateStore(Protocol):
    """Durable state of groups and queue groups: keys with values, changed by events in order.

    `scope` names an owner (one group or queue group); scopes never see each other's keys. Keys have 1 to 255 bytes.
    """

    @property
    def numbers(self) -> Numbers:
        """The numbers for receipts, fencing tokens and group epochs of the queue groups whose state lies here."""
        ...

    def check_room(self, use: DiskUse = DiskUse.USES_RESERVE) -> None:
        """Raise DiskFullError if the disk is too full for a change with this use of the disk, and OverloadedError if
        the store itself is full. Call it before anything is changed: `commit` only stores decisions that were made."""
        ...

    async def load(self, scope: str) -> dict[bytes, bytes]:
        """Return the current keys and values of a scope."""
        ...

    async def commit(self, scope: str, events: Sequence[StateEvent]) -> None:
        """Apply events, all or none. Returns when they are synced. Commits of many callers share one sync."""
        ...
