"""All consumer groups of the broker, from its start to its end."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence, Set
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Final, TypeVar

from logbroker.clock import Clock
from logbroker.config import MAX_INT64, BrokerConfig
from logbroker.consumer_groups.assignors import AssignableTopic
from logbroker.consumer_groups.classic.classic_coordinator import ClassicCoordinator
from logbroker.consumer_groups.classic.group import ClassicGroup
from logbroker.consumer_groups.classic.member import MAX_BYTES, MemberBudget
from logbroker.consumer_groups.classic.messages import ClassicJoin, ClassicJoined
from logbroker.consumer_groups.classic.rows import is_classic
from logbroker.consumer_groups.coordinator import Coordinator
from logbroker.consumer_groups.group import Group
from logbroker.consumer_groups.heartbeats import member as heartbeats
from logbroker.consumer_groups.heartbeats.messages import JOINING, HeartbeatAnswer, HeartbeatTimes, MemberHeartbeat
from logbroker.consumer_groups.membership import Channel, MemberLink
from logbroker.consumer_groups.messages import Join
from logbroker.consumer_groups.offsets import OFFSET_ROW, CommitOutcome, OffsetBudget, OffsetTable, TopicCommit
from logbroker.consumer_groups.rows import GROUP_TYPE
from logbroker.engine import DiskUse, LogEngine, StateStore, Topic
from logbroker.errors import (
    BrokerUnavailableError,
    GroupNotEmptyError,
    LogbrokerError,
    OverloadedError,
    UnknownGroupError,
    UnknownMemberError,
    UnknownTopicError,
    WrongGroupTypeError,
)
from logbroker.group_runtime.group_store import GroupStore, check_group_id, reading_rows, stored_group_ids
from logbroker.types import TopicId

_log = logging.getLogger(__name__)

AnyGroup = Coordinator | ClassicCoordinator
_G = TypeVar("_G", Coordinator, ClassicCoordinator)

EXPIRY_CHECK_SECONDS: Final = 60.0
EXPIRY_CHECKS_PER_RETENTION: Final = 4
TOPIC_NEWS_SHARE: Final = 0.1
"""Share of the time that groups may spend on changes of topics."""
MAX_TOPIC_NEWS_SECONDS: Final = 5.0
"""Longest time for which a notification of groups about changed topics is delayed."""
HEARTBEATS_PER_SESSION: Final = 3
"""Least number of heartbeats within a session timeout."""
MAX_STALE_TOPICS: Final = 1000
"""Number of cached topics from which on the cache is cleared, if at least half of them no longer exist."""


class _TopicIds(Set[TopicId]):
    """A live view of the ids of all topics. A group is notified of a change of topics, and reads the ids some time
    later. A copy made at the change could be outdated by then."""

    def __init__(self, engine: LogEngine) -> None:
        self._engine = engine

    def __contains__(self, topic_id: object) -> bool:
        try:
            self._engine.topic_by_id(TopicId(topic_id))  # type: ignore[arg-type]
        except UnknownTopicError:
            return False
        return True

    def __ge__(self, other: Set[object]) -> bool:
        return all(topic_id in self for topic_id in other)  # Does not list all topics.

    def __iter__(self) -> Iterator[TopicId]:
        return (topic.id for topic in self._engine.topics())

    def __len__(self) -> int:
        return len(self._engine.topics())


class _AssignableTopics(Mapping[str, AssignableTopic]):
    """A live view of all topics, by name. So a change of one topic costs the same, however many exist."""

    def __init__(self, engine: LogEngine) -> None:
        self._engine = engine
        self._made: dict[str, tuple[Topic, AssignableTopic]] = {}

    def __getitem__(self, name: str) -> AssignableTopic:
        try:
            topic = self._engine.topic(name)
        except UnknownTopicError:
            raise KeyError(name) from None
        of, made = self._made.get(name, (None, None))
        if made is None or of is not topic:
            made = AssignableTopic(topic.name, topic.id, topic.partitions, topic.routing_bands)
            if len(self._made) >= MAX_STALE_TOPICS and len(self._made) >= 2 * len(self):
                self._made.clear()  # Most of these topics no longer exist.
            self._made[name] = topic, made
        return made

    def __iter__(self) -> Iterator[str]:
        return (topic.name for topic in self._engine.topics())

    def __len__(self) -> int:
        return len(self._engine.topics())


class SharedGroups:
    """The bounds that all consumer groups of a process share, whatever `Groups` they belong to."""

    def __init__(self, config: BrokerConfig) -> None:
        self.max_groups = config.max_groups
        self.offsets = OffsetBudget(config.max_offsets_bytes, config.max_group_offsets_bytes)
        self.members = MemberBudget(MAX_BYTES)
        self.instances: list[Groups] = []

    def check_new_group(self) -> None:
        """Raise OverloadedError if there may be no further group."""
        count = sum(map(len, self.instances))
        if count >= self.max_groups:
            raise OverloadedError(f"there are {count} groups, the most that the broker takes (max_groups): delete some")


class Groups:
    """The consumer groups of one part of the state, which has its own store. Made by `open_groups`."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        engine: LogEngine,
        store: StateStore,
        shared: SharedGroups | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._engine = engine
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._shared = shared or SharedGroups(config)
        self._shared.instances.append(self)
        session_ms = round(config.group_session_timeout_seconds * 1000)
        interval_ms = round(config.group_heartbeat_interval_seconds * 1000)
        self.heartbeat_times = HeartbeatTimes(session_ms, min(interval_ms, session_ms // HEARTBEATS_PER_SESSION))
        self._groups: dict[str, AnyGroup] = {}
        self._deletions: dict[str, asyncio.Task[None]] = {}
        self._topics = _AssignableTopics(engine)
        self._topic_ids = _TopicIds(engine)
        self._changed_topics: set[TopicId] = set()
        """Changed topics of which the groups were not notified yet."""
        self._later_news: asyncio.TimerHandle | None = None
        self._frozen = False
        self._told_at = -math.inf
        """Time of the last notification (monotonic seconds)."""
        self._rebalance_seconds = self._rebalance_seconds_before = 0.0
        """Time that all groups have spent on rebalances, now and at the last notification."""
        self.moved: LogbrokerError | None = None
        """Error that tells who still uses the groups where they are now; None: they stop because the broker stops."""
        self._is_over = False
        self._end_listening: Callable[[], None] = lambda: None
        self.is_of_other_type: Callable[[str], bool] = lambda group_id: False
        """Returns whether a group id belongs to a queue group. `open_broker` sets it."""

    # --- queries ---

    def __len__(self) -> int:
        return len(self._groups)

    def ids(self) -> list[str]:
        """Return the ids of all groups, sorted."""
        return sorted(self._groups)

    def has(self, group_id: str) -> bool:
        """Return whether the id belongs to a consumer group."""
        return group_id in self._groups

    def group(self, group_id: str) -> AnyGroup:
        """Return the group. Raises UnknownGroupError, WrongGroupTypeError or InvalidGroupIdError."""
        self._check_open()
        found = self._groups.get(group_id)
        if found is None:
            self._check_new_id(group_id)
            raise UnknownGroupError(
                f"there is no group {group_id}: check the id (`logbroker group list`); a group begins with its first"
                " member or commit"
            )
        return found

    def classic_group(self, group_id: str) -> ClassicCoordinator:
        """Return the classic group of a member. Raises InvalidGroupIdError, or UnknownMemberError if it is none."""
        self._check_open()
        found = self._groups.get(group_id)
        if isinstance(found, ClassicCoordinator):
            return found
        check_group_id(group_id)
        raise UnknownMemberError(f"there is no classic group {group_id}, and so no such member: join first")

    # --- changes ---

    async def join(self, group_id: str, join: Join, channel: Channel) -> MemberLink:
        """Join a group. The first member creates the group.

        Raises InvalidGroupIdError, WrongGroupTypeError, OverloadedError, DiskFullError, or the errors of
        `Coordinator.join`.
        """
        group = await self._group_of_type(group_id, Coordinator)
        self._store.check_room(DiskUse.USES_RESERVE)
        membership = group.join(join, channel)
        self._groups[group_id] = group
        return membership

    async def join_classic(self, group_id: str, join: ClassicJoin) -> ClassicJoined:
        """Join a group by the classic protocol; returns when the generation begins. The first member creates the group.

        Raises InvalidGroupIdError, WrongGroupTypeError, OverloadedError, DiskFullError, or the errors of
        `ClassicCoordinator.join`.
        """
        if join.member_id and group_id not in self._groups and group_id not in self._deletions:
            self._check_new_id(group_id)
            raise UnknownMemberError(f"there is no group {group_id}, and so no such member: join without an id")
        join.check()  # Before the group changes its type for it.
        group = await self._group_of_type(group_id, ClassicCoordinator)
        answer = group.join(join)
        self._groups[group_id] = group
        return await answer

    async def heartbeat(self, group_id: str, beat: MemberHeartbeat) -> HeartbeatAnswer:
        """Answer a heartbeat of a member that has no stream. The first member creates the group.

        Raises InvalidGroupIdError, UnknownGroupError, WrongGroupTypeError, OverloadedError, DiskFullError, or the
        errors of `heartbeats`.
        """
        if beat.epoch == JOINING:
            group = await self._group_of_type(group_id, Coordinator)
            self._store.check_room(DiskUse.USES_RESERVE)
            member = heartbeats.join(group, beat, self.heartbeat_times)
            self._groups[group_id] = group
            return await member.answer(beat)
        known = self.group(group_id)
        if not isinstance(known, Coordinator):
            raise WrongGroupTypeError(f"group {group_id} uses the classic protocol: use it, too, or another id")
        if beat.epoch < 0:
            return await heartbeats.leave(known, beat)
        return await heartbeats.heard(known, beat).answer(beat)

    async def commit_offsets(
        self, group_id: str, topics: Sequence[TopicCommit | LogbrokerError]
    ) -> list[CommitOutcome]:
        """Commit for a program that is not a member. The first commit creates the group.

        Raises InvalidGroupIdError, WrongGroupTypeError, OverloadedError, DiskFullError or GroupNotEmptyError.
        """
        group = await self._group_or_new(group_id, Coordinator)
        self._groups[group_id] = group
        return await group.commit_offsets(topics)

    async def commit_of_kafka(
        self,
        group_id: str,
        member_id: str,
        instance_id: str,
        generation: int,
        topics: Sequence[TopicCommit | LogbrokerError],
    ) -> list[CommitOutcome]:
        """Commit for a Kafka client: for a member, which names its generation or epoch, or for a program that is not a
        member and names none. Such a commit creates the group.

        Raises InvalidGroupIdError, UnknownGroupError, UnknownMemberError, WrongGroupTypeError, OverloadedError or
        DiskFullError.
        """
        if generation < 0 and not member_id:
            group = await self._group_or_new(group_id, ClassicCoordinator)
            self._groups[group_id] = group
        else:
            group = self.group(group_id)
        if isinstance(group, ClassicCoordinator):
            return await group.commit(member_id, instance_id, generation, topics)
        if generation >= 0 or member_id or len(group.machine):
            return await heartbeats.commit(group, member_id, generation, topics)
        return await group.commit_offsets(topics)

    async def delete(self, group_id: str) -> None:
        """Delete a group. A deletion that has begun is finished even if the caller is cancelled. Raises
        UnknownGroupError or GroupNotEmptyError."""
        deletion = self._deletions.get(group_id)
        if deletion is None:
            deletion = self._loop.create_task(self._delete(self.group(group_id)))
            self._deletions[group_id] = deletion
        await asyncio.shield(deletion)

    async def _delete(self, group: AnyGroup) -> None:
        try:
            await group.delete()
            del self._groups[group.group_id]
        finally:
            del self._deletions[group.group_id]

    async def _group_of_type(self, group_id: str, kind: type[_G]) -> _G:
        """Return the group, as one for this kind of members (`Coordinator` or `ClassicCoordinator`). A group of the
        other kind that has no members is changed to this kind, and keeps its offsets. A classic client that has only
        been given a member id is no member.

        Raises WrongGroupTypeError, or the errors of a new group.
        """
        while True:
            found = await self._group_or_new(group_id, kind)
            if isinstance(found, kind):
                return found
            if len(found.machine):
                raise WrongGroupTypeError(
                    f"group {group_id} has members of the other protocol ({len(found.machine)}): stop them first, or"
                    " choose another id"
                )
            if not found.is_storing:
                break
            await found.settle()
        # Nothing runs, so nothing can come between these steps.
        found.close(WrongGroupTypeError(f"group {group_id} has just changed its type: try again"))
        changed = self._made(kind, group_id, found.offsets, {}, 0.0, found.store)
        changed.machine.empty_since_ms = found.machine.empty_since_ms
        self._groups[group_id] = changed
        return changed

    async def _group_or_new(self, group_id: str, kind: type[_G]) -> AnyGroup:
        """Return the group of this id, of either kind, or a new one of this kind, which is not among the groups yet."""
        while (deletion := self._deletions.get(group_id)) is not None:
            await asyncio.wait([deletion])
        self._check_open()
        found = self._groups.get(group_id)
        if found is not None:
            return found
        self._check_new_id(group_id)
        self._store.check_room(DiskUse.TAKES_ROOM)
        self._shared.check_new_group()
        store = GroupStore(self._store, group_id, GROUP_TYPE, is_stored=False)
        return self._made(kind, group_id, OffsetTable(budget=self._shared.offsets), {}, 0.0, store)

    def _check_open(self) -> None:
        if self._is_over:
            raise self._over().anew()

    def _over(self) -> LogbrokerError:
        return self.moved or BrokerUnavailableError("the broker has stopped")

    def _check_new_id(self, group_id: str) -> None:
        check_group_id(group_id)
        if self.is_of_other_type(group_id):
            raise WrongGroupTypeError(
                f"{group_id} is a queue group: use a Worker or `logbroker queue` (the service Queues), or another id"
            )

    def _made(
        self,
        kind: type[_G],
        group_id: str,
        offsets: OffsetTable,
        rows: Mapping[bytes, bytes],
        now: float,
        store: GroupStore,
    ) -> _G:
        """Return a group with its machine."""
        if issubclass(kind, ClassicCoordinator):
            classic = ClassicGroup(
                group_id,
                initial_delay_seconds=self._config.group_initial_rebalance_delay_seconds,
                max_members=self._config.max_group_members,
                budget=self._shared.members,
            )
            try:
                classic.load(rows, now)
            except Exception:
                classic.leave_budget()
                raise
            return kind(group_id, classic, offsets, store, self._clock, self._readable_end)
        machine = Group(
            group_id,
            reconnect_grace_seconds=self._config.reconnect_grace_seconds,
            max_members=self._config.max_group_members,
        )
        machine.load(rows, self._topics, now)
        return kind(group_id, machine, offsets, store, self._clock, self._readable_end, self._engine, self._rebalanced)

    def _rebalanced(self, seconds: float) -> None:
        self._rebalance_seconds += seconds

    def _readable_end(self, topic_id: TopicId, partition: int) -> int:
        """Return the highest offset that can be committed."""
        if not self._engine.is_sole_writer:
            return MAX_INT64  # The end that is known here may be older than what the member has read.
        return self._engine.partition_facts(topic_id, partition).high_watermark

    # --- topics ---

    def _on_topic_changed(self, topic: Topic) -> None:
        """Schedule one notification for any number of changes at the same time."""
        if not self._changed_topics and not self._frozen:
            self._loop.call_soon(self._tell_topics)
        self._changed_topics.add(topic.id)

    def _tell_topics(self) -> None:
        """Tell groups that topics have changed: all active groups, because any topic may match a subscription, and the
        other groups that have committed offsets in a changed topic.

        Groups that subscribe to many topics by a pattern need some time for each notification. So a notification is
        delayed if they were busy with the previous one: they spend about a tenth of the time on notifications, however
        many topics change. It is more if one notification takes over 0.5 s, because the delay is at most
        MAX_TOPIC_NEWS_SECONDS.
        """
        if self._frozen:
            return  # The next start loads the groups with the topics that exist then.
        now = self._loop.time()
        busy_seconds = self._rebalance_seconds - self._rebalance_seconds_before
        told_at = self._told_at + min(busy_seconds / TOPIC_NEWS_SHARE, MAX_TOPIC_NEWS_SECONDS)
        if now < told_at:
            self._later_news = self._loop.call_at(told_at, self._tell_topics)
            return
        self._told_at, self._rebalance_seconds_before = now, self._rebalance_seconds
        changed, self._changed_topics = self._changed_topics, set()
        for group in self._groups.values():
            if group.is_active or not changed.isdisjoint(group.offsets.topic_ids()):
                if isinstance(group, Coordinator):
                    group.topics_changed(self._topics, self._topic_ids)
                else:
                    group.drop_topics(self._topic_ids)

    # --- lifetime ---

    async def load(self) -> None:
        """Load the stored groups. Offsets beyond the end of their logs are cut back.

        Raises CorruptLogError. The grace of the members begins now.
        """
        self._end_listening = self._engine.on_topics_changed(self._on_topic_changed)
        loaded: list[tuple[str, OffsetTable, dict[bytes, bytes]]] = []
        try:
            await self._load(loaded)
        except BaseException:
            for _, offsets, _ in loaded:
                offsets.leave_budget()
            raise

    async def _load(self, loaded: list[tuple[str, OffsetTable, dict[bytes, bytes]]]) -> None:
        """Load the stored groups, and list them with their offsets and their other rows."""
        log_end = cache(self._log_end)  # Nothing is appended yet, and groups share many partitions.
        for group_id in await stored_group_ids(self._store, GROUP_TYPE):
            store = GroupStore(self._store, group_id, GROUP_TYPE, is_stored=True)
            rows = await store.load()
            with reading_rows(group_id):
                offsets = OffsetTable(rows, self._shared.offsets)
            # All groups together may have very many offset rows, so only those of one group are kept in memory at a
            # time.
            of_machine = {key: value for key, value in rows.items() if not key.startswith(OFFSET_ROW)}
            loaded.append((group_id, offsets, of_machine))
            events = offsets.drop_topics(self._topic_ids.__contains__) + offsets.clamped(log_end)
            if events:
                _log.warning(
                    "group %s: %d committed offsets cut back to the end of their log, or dropped with their topic",
                    group_id,
                    len(events),
                )
                await store.commit(events)
        budget = self._shared.offsets
        if budget.used_bytes > budget.max_bytes:
            _log.warning(
                "the committed offsets take %d bytes, more than max_offsets_bytes (%d): commits for further partitions"
                " are refused until groups are deleted",
                budget.used_bytes,
                budget.max_bytes,
            )
        now = self._loop.time()
        for group_id, offsets, rows in loaded:
            with reading_rows(group_id):
                store = GroupStore(self._store, group_id, GROUP_TYPE, is_stored=True)
                self._groups[group_id] = (
                    self._made(ClassicCoordinator, group_id, offsets, rows, now, store)
                    if is_classic(rows)
                    else self._made(Coordinator, group_id, offsets, rows, now, store)
                )

    def _log_end(self, topic_id: TopicId, partition: int) -> int:
        return self._engine.partition_facts(topic_id, partition).log_end_offset

    def stop_waiting(self) -> None:
        """Answer the members of classic groups that wait for a generation, because the broker stops."""
        for group in self._groups.values():
            if isinstance(group, ClassicCoordinator):
                group.stop_waiting()

    def freeze(self) -> None:
        """Freeze all groups, because the broker stops. Their members are expected back at the next start."""
        self._frozen = True
        if self._later_news is not None:
            self._later_news.cancel()
        for group in self._groups.values():
            group.freeze()

    async def settle(self) -> None:
        """Wait for the running transactions."""
        for group in self._groups.values():
            await group.settle()

    async def stop(self) -> None:
        """Freeze all groups, and wait for the running transactions. Nothing of the groups stays in the engine or in
        what several instances share."""
        self.freeze()
        self._is_over = True
        if self._deletions:
            await asyncio.wait(self._deletions.values())
        await self.settle()
        self._end_listening()
        self._end_listening = lambda: None
        for group in self._groups.values():
            group.end(self._over())
        self._shared.instances.remove(self)

    async def expire(self) -> None:
        """Delete groups that nobody has used for as long as offsets are retained. Runs until it is cancelled."""
        retention_seconds = self._config.offsets_retention_seconds
        pause_seconds = min(EXPIRY_CHECK_SECONDS, retention_seconds / EXPIRY_CHECKS_PER_RETENTION)
        while True:
            await asyncio.sleep(pause_seconds)
            for group in list(self._groups.values()):
                # While others were deleted, the group may have been deleted too, and another one created with its name.
                if self._groups.get(group.group_id) is group and group.is_expired(int(retention_seconds * 1000)):
                    with suppress(GroupNotEmptyError, UnknownGroupError):
                        await self.delete(group.group_id)


@asynccontextmanager
async def open_groups(
    config: BrokerConfig, clock: Clock, engine: LogEngine, store: StateStore, shared: SharedGroups
) -> AsyncIterator[Groups]:
    """Load the groups; at the end, wait for the running transactions. Raises CorruptLogError."""
    groups = Groups(config, clock, engine, store, shared)
    try:
        await groups.load()
        expiry = asyncio.create_task(groups.expire(), name="groups expiry")
        try:
            yield groups
        finally:
            expiry.cancel()
            await asyncio.wait([expiry])
    finally:
        await groups.stop()
