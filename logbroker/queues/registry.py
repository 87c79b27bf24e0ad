"""The registry of the broker's queue groups, from the start of the broker to its end.

A group ends with its topic, even if the topic was deleted while the broker was down.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from logbroker.clock import Clock
from logbroker.command_line import command_line
from logbroker.config import BrokerConfig
from logbroker.engine import DiskUse, LogEngine, StateEvent, StateStore, Topic
from logbroker.errors import (
    BrokerUnavailableError,
    FixedTopicError,
    GroupExistsError,
    LogbrokerError,
    OverloadedError,
    PartitionOfflineError,
    UnknownGroupError,
    UnknownTopicError,
    WrongGroupTypeError,
)
from logbroker.group_runtime.group_store import GroupStore, check_group_id, reading_rows, stored_group_ids
from logbroker.queues.dead_letters.sender import DeadLetterTopic
from logbroker.queues.dead_letters.size_limits import MAX_MESSAGE_BYTES, LetterSizeLimit
from logbroker.queues.group import NUMBERS, QueueGroup
from logbroker.queues.machine.leases import end_of_epoch
from logbroker.queues.machine.load import load_queue
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.settings import GROUP_TYPE, Ordering, QueueGroupSettings, dead_letter_topic_of
from logbroker.queues.model.starts import StartAt
from logbroker.queues.priority.group_bands import bands_of
from logbroker.queues.records.batch_cache import BatchCache
from logbroker.queues.retention.copies import delete_copies
from logbroker.queues.scan.index_cache import files as index_files
from logbroker.queues.scan.index_cache.files import remove_strays
from logbroker.queues.scan.rests import Rests
from logbroker.queues.scan.spill import SpillFile
from logbroker.queues.state.rows import HEADER_ROW, decode_header
from logbroker.queues.topic_settings import (
    altered,
    check_ordering,
    completed,
    make_dead_letter_topic,
)
from logbroker.types import INTERNAL_PREFIX, TopicId

INDEX_DIRECTORY: Final = index_files.DIRECTORY
"""Folder of the data directory for the indexes of queue groups, which are disposable."""

_log = logging.getLogger(__name__)

EPOCH_NUMBERS: Final = 1 << 20
"""Each group epoch is a multiple of this number. So the first receipts of an epoch, up to this many, show their
epoch."""

T = TypeVar("T")


class SharedQueues:
    """The bounds that all queue groups of a process share, whatever registry they belong to, and what they know of each
    other. Nothing is known here of the groups of other processes."""

    def __init__(self, config: BrokerConfig) -> None:
        self.max_groups = config.max_queue_groups
        self.cache = BatchCache(config.queue_cache_bytes)
        self.rests = Rests()
        self.raising = asyncio.Lock()
        """Held while the size limit of a dead-letter topic is raised, of which groups of several registries know."""
        self.registries: list[QueueGroupRegistry] = []

    def groups(self) -> list[QueueGroup]:
        """Return the groups of all registries."""
        return [group for registry in self.registries for group in registry.groups()]

    def check_new_group(self) -> None:
        """Raise OverloadedError if there may be no further group."""
        count = sum(map(len, self.registries))
        if count >= self.max_groups:
            raise OverloadedError(f"there are {count} queue groups, the maximum (max_queue_groups): delete some")


class QueueGroupRegistry:
    """The queue groups of one part of the state, which has its own store. Made by `open_queue_groups`. Changes run one
    at a time, and finish even if their callers are cancelled."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        engine: LogEngine,
        store: StateStore,
        data_dir: Path,
        shared: SharedQueues | None = None,
        is_at_home: Callable[[str], bool] = lambda group_id: True,
    ) -> None:
        """`is_at_home` returns whether a group of this id belongs to this registry. What a crash has left of groups is
        removed only where it does."""
        self._config = config
        self._clock = clock
        self._engine = engine
        self._store = store
        self._data_dir = data_dir
        self._loop = asyncio.get_running_loop()
        self._shared = shared or SharedQueues(config)
        self._shared.registries.append(self)
        self._is_at_home = is_at_home
        self._groups: dict[str, QueueGroup] = {}
        self._begun: set[str] = set()
        """Ids of groups that are being created."""
        self._next_epoch = 0
        """A number above all receipts and tokens of deleted groups, and above all group epochs."""
        self._lock = asyncio.Lock()
        self._changes: set[asyncio.Task[Any]] = set()
        self._changed_topics: list[Topic] = []
        """Changed topics that the groups were not told of yet."""
        self._ending: set[QueueGroup] = set()
        """Groups whose topics are deleted, and which will be deleted when the changes before are done."""
        self._frozen = False
        self.moved: LogbrokerError | None = None
        """Error that tells who still uses the groups where they are now; None: they stop because the broker stops."""
        self._is_over = False
        self._end_listening = ExitStack()
        self.is_of_other_type: Callable[[str], bool] = lambda group_id: False
        """Returns whether a group of another type has the id. `open_broker` sets it."""

    # --- lookup ------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of groups, with those that are being created."""
        return len(self._groups) + len(self._begun)

    def groups(self) -> Collection[QueueGroup]:
        return self._groups.values()

    def ids(self) -> list[str]:
        """Return the ids of all groups, sorted."""
        return sorted(self._groups)

    def has(self, group_id: str) -> bool:
        """Return whether a group has the id, or is being created with it."""
        return group_id in self._groups or group_id in self._begun

    def group(self, group_id: str) -> QueueGroup:
        """Return a group. Raises UnknownGroupError, WrongGroupTypeError or InvalidGroupIdError."""
        self._check_open()
        found = self._groups.get(group_id)
        if found is None:
            self._check_new_id(group_id)
            raise UnknownGroupError(
                f"there is no queue group {group_id}: check the id (`logbroker queue list`), or create the group"
                " (`logbroker queue create`)"
            )
        return found

    def _check_open(self) -> None:
        if self._is_over:
            raise self._over().anew()

    def _over(self) -> LogbrokerError:
        return self.moved or BrokerUnavailableError("the broker has stopped")

    def _check_new_id(self, group_id: str) -> None:
        check_group_id(group_id)
        if self.is_of_other_type(group_id):
            raise WrongGroupTypeError(
                f"{group_id} is a consumer group: use a Consumer or `logbroker group` (the service Groups), or another"
                " id"
            )

    # --- changes -----------------------------------------------------------------------------------------------------

    async def create(
        self, group_id: str, topic: Topic, settings: QueueGroupSettings, start: StartAt
    ) -> tuple[QueueGroup, bool]:
        """Create a queue group and its dead-letter topic; return it, and whether it is new.

        Raises InvalidGroupIdError, InvalidRequestError, WrongGroupTypeError, OverloadedError, UnknownTopicError,
        PartitionOfflineError if the group is to begin at a time and a partition is offline, or GroupExistsError if the
        group exists with another topic or other settings.
        """
        return await self._to_the_end(self._create(group_id, topic.id, settings, start))

    async def alter(self, group_id: str, changes: Mapping[str, Any]) -> QueueGroup:
        """Change some settings, by the names of `QueueGroupSettings`. Return when they are stored or, for instance
        after a change of the ordering, when they wait for deliveries in flight. Raises UnknownGroupError or
        InvalidRequestError."""
        return await self._to_the_end(self._alter(group_id, changes))

    async def delete(self, group_id: str) -> None:
        """End and forget a queue group. Raises UnknownGroupError, WrongGroupTypeError or InvalidGroupIdError."""
        await self._to_the_end(self._delete_by_id(group_id))

    async def _create(
        self, group_id: str, topic_id: TopicId, settings: QueueGroupSettings, start: StartAt
    ) -> tuple[QueueGroup, bool]:
        self._check_new_id(group_id)
        topic = self._engine.topic_by_id(topic_id)
        found = self._groups.get(group_id)
        if found is not None and self._is_gone(found.topic_id):
            await self._end_with_topic(found)  # Its topic is deleted, and the group was to be deleted soon.
            found = None
        settings = completed(settings, group_id, topic, None if found is None else found.latest_settings)
        if found is not None:
            if (found.queue.topic_id, found.queue.latest_settings) == (topic_id, settings):
                return found, False
            raise GroupExistsError(
                f"there is a queue group {group_id} with another topic or other settings: alter it, or choose another"
                " id"
            )
        self._shared.check_new_group()
        self._store.check_room(DiskUse.TAKES_ROOM)
        self._begun.add(group_id)
        try:
            offsets = await start.offsets(self._engine, self._engine, topic_id, range(topic.partitions))
            room = await self._make_dead_letter_topic(settings, topic)
            await delete_copies(self._engine, INTERNAL_PREFIX + group_id)  # Left by a deleted group of this name.
            letters = DeadLetterTopic(
                self._engine, settings.dead_letter_topic or dead_letter_topic_of(group_id), self._takes_letters
            )
            queue = Queue(
                topic_id,
                settings,
                random=random.random,
                route=letters.route,
                store=self._spill(group_id),
                group_epoch=await self._new_epoch(),
            )
            for partition, offset in offsets.items():
                queue.open_partition(partition, _begun_at(start, offset))
            async with self._ordering_kept(settings, topic_id, None):
                group = self._group(group_id, queue, letters, is_stored=False)
                await group.start(is_new=True)
                await group.dead_lettering.keep_room(room)
                self._groups[group_id] = group
        finally:
            self._begun.discard(group_id)
        self._tell(group)  # The topic may have been deleted or changed during the creation.
        _log.info("queue group %s begins on topic %s", group_id, topic.name)
        return group, True

    async def _alter(self, group_id: str, changes: Mapping[str, Any]) -> QueueGroup:
        group = self.group(group_id)
        self._store.check_room(DiskUse.USES_RESERVE)
        topic = self._engine.topic_by_id(TopicId(group.queue.topic_id))
        present = group.queue.latest_settings
        settings = completed(altered(present, changes), group_id, topic, present)
        room = await self._make_dead_letter_topic(settings, topic)
        async with self._ordering_kept(settings, topic.id, present):
            await group.alter(settings)
        await group.dead_lettering.keep_room(room)
        self._tell(group)
        return group

    @asynccontextmanager
    async def _ordering_kept(
        self, settings: QueueGroupSettings, topic_id: TopicId, present: QueueGroupSettings | None
    ) -> AsyncIterator[None]:
        """Keep the topic from growing until a group has an ordering that does not allow it. The block must not change
        topics. Raises InvalidRequestError if the topic has grown, or UnknownTopicError."""
        if settings.ordering is not Ordering.SINGLE:
            yield
            return
        topic = await self._engine.pin(topic_id)
        try:
            check_ordering(settings, topic, present)
            yield
        finally:
            self._engine.unpin(topic_id)

    async def _make_dead_letter_topic(self, settings: QueueGroupSettings, topic: Topic) -> LetterSizeLimit | None:
        """Create the dead-letter topic if it does not exist. Return the size limit that the broker set on it, for this
        group or for another one; None: the broker set none."""
        room = await make_dead_letter_topic(settings, topic, self._engine)
        if room is None and settings.uses_dead_letters:
            dead_topic_id = self._engine.topic(settings.dead_letter_topic).id
            rooms = (group.dead_lettering.room for group in self._shared.groups())
            room = next((room for room in rooms if room is not None and room.topic_id == dead_topic_id), None)
        return room

    async def _delete_by_id(self, group_id: str) -> None:
        group = self.group(group_id)
        await self._delete(
            group,
            UnknownGroupError(
                f"queue group {group_id} was deleted; if there is a new one of its name, connect to it again"
            ),
        )

    async def _new_epoch(self) -> int:
        """Return a group epoch above all numbers that a group of any name has given out."""
        group_epoch = (self._next_epoch + EPOCH_NUMBERS - 1) // EPOCH_NUMBERS * EPOCH_NUMBERS
        self._next_epoch = group_epoch + EPOCH_NUMBERS
        if self._store.numbers.reserved - group_epoch < NUMBERS // 2:
            await self._store.numbers.reserve(group_epoch + NUMBERS)
        return group_epoch

    async def _delete(self, group: QueueGroup, error: LogbrokerError) -> None:
        """Delete a group that still exists. Must run as a change, or within one."""
        group_id = group.group_id
        await group.end(error)
        self._next_epoch = max(self._next_epoch, group.queue.next_number)
        group.queue.lanes.successors.close()
        group.index_cache.remove()
        await self._forget(group_id)
        del self._groups[group_id]
        _log.info(
            "queue group %s is deleted%s", group_id, " with its topic" if isinstance(error, UnknownTopicError) else ""
        )
        await group.hold.copies.delete()

    async def _forget(self, group_id: str) -> None:
        store = GroupStore(self._store, group_id, GROUP_TYPE, is_stored=True)
        await store.delete([StateEvent(key, None) for key in await store.load()])

    def _group(self, group_id: str, queue: Queue, letters: DeadLetterTopic, *, is_stored: bool) -> QueueGroup:
        """Make the runtime of a group. Raises UnknownTopicError."""
        queue.alteration.bands = bands_of(self._engine.topic_by_id(TopicId(queue.topic_id)))
        store = GroupStore(self._store, group_id, GROUP_TYPE, is_stored=is_stored)
        max_workers = self._config.max_queue_workers
        return QueueGroup(
            group_id,
            queue,
            self._engine,
            store,
            self._clock,
            letters,
            self._shared.cache,
            self._shared.rests,
            max_workers=max_workers,
            data_dir=self._data_dir,
        )

    def _spill(self, group_id: str) -> SpillFile:
        return SpillFile(self._data_dir, group_id)

    async def _to_the_end(self, change: Coroutine[Any, Any, T]) -> T:
        try:
            self._check_open()
        except LogbrokerError:
            change.close()
            raise
        return await asyncio.shield(self._in_turn(change))

    def _in_turn(self, change: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a change after all earlier ones. By then, the group or topic that it names may have been replaced by
        another one of the same name."""

        async def in_turn() -> T:
            async with self._lock:
                return await change

        task = self._loop.create_task(in_turn())
        self._changes.add(task)
        task.add_done_callback(self._changed)
        return task

    def _changed(self, task: asyncio.Task[Any]) -> None:
        self._changes.discard(task)
        if not task.cancelled():
            task.exception()  # The caller may be gone.

    # --- topics ------------------------------------------------------------------------------------------------------

    def _check_growth(self, topic: Topic) -> None:
        """Raise FixedTopicError if a group needs the topic to have one partition. A new ordering that still waits for
        deliveries in flight is not stored yet, so the one before counts, too."""
        for group in self._groups.values():
            orderings = group.settings.ordering, group.latest_settings.ordering
            if group.topic_id == topic.id and Ordering.SINGLE in orderings:
                command = command_line("queue alter", group.group_id, options=("--ordering", "key"))
                raise FixedTopicError(
                    f"topic {topic.name} cannot get more partitions while queue group {group.group_id} reads it with"
                    f" ordering single: let the group order by key (`{command}`) or delete it first"
                )

    def _on_topic_changed(self, topic: Topic) -> None:
        """Note a changed topic. Changes that come together are passed to the groups together."""
        if not self._changed_topics and not self._frozen:
            self._loop.call_soon(self._tell_topics)
        self._changed_topics.append(topic)
        if self._is_gone(topic.id) and not topic.name.startswith(INTERNAL_PREFIX):
            ending = sum(group.topic_id == topic.id for group in self._groups.values())
            _log.info("topic %s is deleted; queue groups that go with it: %d", topic.name, ending)

    def _tell_topics(self) -> None:
        """Notify the groups that read the changed topics or send their dead letters there."""
        changed, self._changed_topics = self._changed_topics, []
        ids, names = {topic.id for topic in changed}, {topic.name for topic in changed}
        for group in list(self._groups.values()):
            if group.queue.topic_id in ids or group.dead_lettering.topic.name in names:
                self._tell(group)

    def _tell(self, group: QueueGroup) -> None:
        """Let a group react to a change of its topic or of its dead-letter topic."""
        if self._frozen:
            return  # The next start ends groups without a topic.
        if not self._is_gone(group.topic_id):
            group.topics_changed()
        elif group not in self._ending:
            self._ending.add(group)
            self._in_turn(self._end_with_topic(group))
        if group.dead_lettering.grown_room() is not None:
            self._in_turn(self._make_room(group))

    async def _make_room(self, group: QueueGroup) -> None:
        """Raise the size limit that the broker set on a dead-letter topic, after the limit of the group's topic was
        raised."""
        async with self._shared.raising:
            room = group.dead_lettering.grown_room()
            if room is None or self._groups.get(group.group_id) is not group:
                return
            try:
                await group.dead_lettering.keep_room(room)
                for other in self._shared.groups():
                    if other.dead_lettering.room is not None and other.dead_lettering.room.topic_id == room.topic_id:
                        await other.dead_lettering.keep_room(room)
                changed = {MAX_MESSAGE_BYTES: str(room.sizes[-1])}
                await self._engine.alter_topic(TopicId(room.topic_id), set_configs=changed)
            except LogbrokerError as error:
                _log.warning(
                    "queue group %s: the size limit of its dead-letter topic cannot be raised along with its topic's:"
                    " %s",
                    group.group_id,
                    error.message,
                )

    def _is_gone(self, topic_id: TopicId) -> bool:
        try:
            self._engine.topic_by_id(topic_id)
        except UnknownTopicError:
            return True
        return False

    async def _end_with_topic(self, group: QueueGroup) -> None:
        """Delete a group whose topic is deleted. This runs after all earlier changes, so the group may be deleted
        already, and another one created under its name."""
        self._ending.discard(group)
        if self._groups.get(group.group_id) is group:
            await self._delete(group, UnknownTopicError("the queue group's topic is deleted, and the group with it"))

    # --- lifetime ----------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Load the stored groups. State about records beyond the ends of the logs, which a crash may have cut off, is
        dropped. Raises CorruptLogError."""
        self._end_listening.callback(self._engine.on_topics_changed(self._on_topic_changed))
        self._end_listening.callback(self._engine.on_growth(self._check_growth))
        stored: dict[str, Mapping[bytes, bytes]] = {}
        self._next_epoch = self._store.numbers.reserved
        for group_id in await stored_group_ids(self._store, GROUP_TYPE):
            rows = await GroupStore(self._store, group_id, GROUP_TYPE, is_stored=True).load()
            if not rows:
                await self._forget(group_id)  # Its creation or deletion was not finished.
                continue
            stored[group_id] = rows
            if HEADER_ROW in rows:
                with reading_rows(group_id):
                    self._next_epoch = max(self._next_epoch, end_of_epoch(decode_header(rows[HEADER_ROW]).group_epoch))
        group_epoch = await self._new_epoch() if stored else 0
        for group_id, rows in stored.items():
            try:
                with reading_rows(group_id):
                    self._groups[group_id] = self._load(group_id, rows, group_epoch)
            except UnknownTopicError:
                _log.warning("queue group %s: its topic is gone, and the group with it", group_id)
                await self._forget(group_id)
        await self._delete_stray_copies()
        remove_strays(self._data_dir, lambda group_id: self._is_at_home(group_id) and group_id not in self._groups)
        for group in self._groups.values():
            await group.hold.copies.take_up()
        await asyncio.gather(*(group.start() for group in self._groups.values()))
        for group in list(self._groups.values()):
            self._tell(group)  # React to topic changes that a crash interrupted.

    async def _delete_stray_copies(self) -> None:
        """Delete topics of copies whose group is gone. A crash may leave such topics."""
        for topic in self._engine.topics():
            group_id = topic.name.removeprefix(INTERNAL_PREFIX)
            is_copy = group_id != topic.name
            if is_copy and self._is_at_home(group_id) and group_id not in self._groups:
                await self._engine.delete_topic(topic.id)

    def _takes_letters(self, topic: str, group_id: str) -> bool:
        """Return whether a topic is the dead-letter topic of an existing queue group, or has the default name for the
        dead letters of `group_id`, which may be gone."""
        return topic == dead_letter_topic_of(group_id) or any(
            group.latest_settings.dead_letter_topic == topic for group in self._shared.groups()
        )

    def _load(self, group_id: str, rows: Mapping[bytes, bytes], group_epoch: int) -> QueueGroup:
        """Load a group in its next epoch. All groups may share the epoch, because each group has its own receipts and
        tokens."""
        if HEADER_ROW in rows:
            topic = self._engine.topic_by_id(TopicId(decode_header(rows[HEADER_ROW]).topic_id))
            ends = self._log_ends(topic)
        else:
            ends = {}  # Loading the rows raises the error.
        letters = DeadLetterTopic(self._engine, dead_letter_topic_of(group_id), self._takes_letters)
        queue = load_queue(
            rows, ends, random=random.random, route=letters.route, store=self._spill(group_id), group_epoch=group_epoch
        )
        letters.name = queue.settings.dead_letter_topic or letters.name
        group = self._group(group_id, queue, letters, is_stored=True)
        group.dead_lettering.load(rows)
        group.redriving.load(rows)
        group.hold.copies.load(rows)
        topic = self._engine.topic_by_id(group.topic_id)
        if group.settings.ordering is Ordering.SINGLE and topic.partitions > 1:
            # The metadata were restored, and are from before a growth.
            _log.warning(
                "queue group %s has ordering single, but its topic %s has %d partitions: records of different"
                " partitions are delivered in any order",
                *(group_id, topic.name, topic.partitions),
            )
        return group

    def _log_ends(self, topic: Topic) -> dict[int, int]:
        ends = {}
        for partition in range(topic.partitions):
            with suppress(PartitionOfflineError):  # Its stored state is kept until its end is known.
                ends[partition] = self._engine.partition_facts(topic.id, partition).log_end_offset
        return ends

    def freeze(self) -> None:
        """Stop handing out records because the broker is stopping; workers are expected back at the next start."""
        self._frozen = True
        for group in self._groups.values():
            group.freeze(self.moved)

    async def stop(self) -> None:
        """Wait for the changes under way, then stop all groups, which store what the next start needs. Nothing of the
        registry stays in the engine or in what several registries share."""
        self.freeze()
        while self._changes:
            await asyncio.wait(self._changes)
        self._is_over = True
        await asyncio.gather(*(group.stop(self._over()) for group in self._groups.values()))
        self._end_listening.close()
        self._shared.registries.remove(self)


def _begun_at(start: StartAt, found: int | LogbrokerError) -> int:
    """Return the offset at which a group begins in a partition. An offline partition is served after a start of the
    broker that finds it online. Raises any other error, and PartitionOfflineError if the start offset depends on the
    partition's records."""
    if not isinstance(found, LogbrokerError):
        return found
    offset = start.offset_unseen() if isinstance(found, PartitionOfflineError) else None
    if offset is not None:
        return offset
    if isinstance(found, PartitionOfflineError):
        raise PartitionOfflineError(
            f"{found.message}; a group cannot begin at a time in it: begin at the earliest or latest record, or at an"
            " offset, or bring the partition back first"
        )
    raise found


@asynccontextmanager
async def open_queue_groups(
    config: BrokerConfig,
    clock: Clock,
    engine: LogEngine,
    store: StateStore,
    data_dir: Path,
    shared: SharedQueues,
    is_at_home: Callable[[str], bool],
) -> AsyncIterator[QueueGroupRegistry]:
    """Load the queue groups, and stop them cleanly at the end. The groups keep their index caches and temporary files
    in `data_dir`. For `is_at_home` see `QueueGroupRegistry`.

    Raises CorruptLogError.
    """
    groups = QueueGroupRegistry(config, clock, engine, store, data_dir, shared, is_at_home)
    try:
        await groups.load()
        yield groups
    finally:
        await groups.stop()
