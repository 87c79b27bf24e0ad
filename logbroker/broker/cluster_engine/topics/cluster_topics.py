"""The topics of the cluster: read anew from time to time, and changed by requests to the cluster.

The cluster keeps a topic's partitions and the configs that it knows itself. What it has no place for is kept in rows of
the state: generations, bands, routing and the other configs of this project. A topic without a row was made by somebody
else, and gets one when it is first seen. If its partitions grow behind the gateway's back, a new generation begins
where the partitions end at that moment: records of a key that were sent to the new partitions before that moment have
no place in the order.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, Final

import msgspec

from logbroker.broker.catalog import Catalog, unknown_topic_id
from logbroker.broker.cluster_engine.connection.link import ClusterLink, ClusterTopic, PassingError
from logbroker.broker.cluster_engine.log.offsets import Offsets
from logbroker.broker.cluster_engine.log.remote_partition import RemotePartition
from logbroker.broker.cluster_engine.ownership.membership import GatewayMembership
from logbroker.broker.cluster_engine.state.state_partition import OPEN_SECONDS
from logbroker.broker.cluster_engine.topics.cluster_admin import ClusterAdmin
from logbroker.broker.cluster_engine.topics.topic_requests import TopicRequests
from logbroker.broker.cluster_engine.topics.topic_rows import (
    KNOWN_SECONDS,
    OWN_CONFIGS,
    ClusterTopicRow,
    TopicRows,
    row_of,
)
from logbroker.broker.topic_pins import TopicPins
from logbroker.broker.topics import (
    check_growth,
    check_partition_count,
    check_topic_name,
    grown,
    new_topic,
    partition_count,
    with_configs,
)
from logbroker.clock import Clock
from logbroker.config import BrokerConfig, TopicConfig, topic_config
from logbroker.engine import LogGeneration, Topic, TopicPlan
from logbroker.errors import (
    BrokerUnavailableError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidRequestError,
    LogbrokerError,
    NotReplicatedError,
    StaleOwnerError,
    TopicExistsError,
    UnknownPartitionError,
)
from logbroker.types import INTERNAL_PREFIX, TopicId

_log = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 2.0
CONFIG_TURNS: Final = 5
"""The configs are read with every so many refreshes."""
CHANGE_SECONDS: Final = 30.0
_SOON_SECONDS: Final = 0.1
_TOPIC_ID_BYTES: Final = 16
_PLANNED: Final = b"new: "
GONE_TURNS: Final = 3
GONE_SECONDS: Final = 4.0
"""A topic counts as deleted when so many refreshes in a row did not name it, for so long: a node may know less than
others."""
FOLLOW_SECONDS: Final = 15.0
"""The time for which a gateway waits until it has taken in what another one has changed."""
_HIDDEN_PREFIX: Final = "__"


class ClusterTopics:
    """All topics that this gateway serves, and their partitions."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        link: ClusterLink,
        rows: TopicRows,
        membership: GatewayMembership,
        catalog: Catalog,
    ) -> None:
        self._config = config
        self._clock = clock
        self._link = link
        self._rows = rows
        self._membership = membership
        self._requests = TopicRequests()
        self._admin = ClusterAdmin(link)
        self._news = asyncio.Event()
        self._news.set()
        """Set when another gateway has changed rows."""
        self._opened: dict[TopicId, Topic] = {}
        """Topics that have grown, and of which the groups here were not told yet."""
        self._missed: dict[TopicId, tuple[int, float]] = {}
        """How many refreshes in a row did not name a known topic, and when the first one did not."""
        self._deleted: set[TopicId] = set()
        """Topics that were deleted here. A node may still name them."""
        self._catalog = catalog
        self._defaults = config.parsed_topic_defaults()
        self._partitions: dict[TopicId, list[RemotePartition]] = {}
        self.offsets = Offsets(link, self.partitions)
        self.pins = TopicPins(catalog)
        self.growth_checks: list[Callable[[Topic], None]] = []
        """See `LogEngine.on_growth`."""
        self.on_refreshed: Callable[[], None] = lambda: None
        """Called after each time that the topics and their leaders were read anew."""
        self._lock = asyncio.Lock()
        self._growing: set[TopicId] = set()
        """Topics whose growth is under way here. Nothing else changes them, though other topics may be changed."""
        self._told_generations: dict[TopicId, int] = {}
        """The generations that the rows of another gateway demand."""
        self._tasks: set[asyncio.Task[Topic | LogbrokerError | PassingError]] = set()
        self._is_closed = False

    # --- queries -----------------------------------------------------------------------------------------------------

    def partitions(self) -> Iterator[RemotePartition]:
        """Return all partitions."""
        return (each for of_topic in list(self._partitions.values()) for each in of_topic)

    def partition(self, topic_id: TopicId, number: int) -> RemotePartition:
        """Return a partition. Raises UnknownTopicError or UnknownPartitionError."""
        found = self._partitions.get(topic_id)
        if found is None:
            raise unknown_topic_id(topic_id)
        if not 0 <= number < len(found):
            name = self._catalog.by_id(topic_id).name
            raise UnknownPartitionError(f"topic {name} has partitions 0 to {len(found) - 1}, not {number}")
        return found[number]

    def of_topic(self, topic_id: TopicId) -> Sequence[RemotePartition]:
        """Return the partitions of a topic; none if it is gone."""
        return self._partitions.get(topic_id, ())

    def check_replicas(self, topic_id: TopicId, partition: int) -> None:
        """Raise NotReplicatedError if a record may be acknowledged that is lost with one of several replicas."""
        topic = self._catalog.by_id(topic_id).name
        replicas = self._link.replicas(topic, partition)
        needed = self._admin.min_insync_replicas.get(topic, replicas)
        if replicas > 1 and needed < 2 and not self._config.allow_single_replica_acks:
            raise NotReplicatedError(
                f"topic {topic} has {replicas} replicas, but one of them is enough for an acknowledgement"
                " (min.insync.replicas=1), so acknowledged records could be lost with it: set min.insync.replicas=2"
                " with kafka-configs, or start the gateways with allow_single_replica_acks"
            )

    def generation(self, topic_id: TopicId) -> int:
        """Return the generation that keyed appends must carry now. While the topic grows, this is already the next
        generation."""
        return max(self._own_generation(topic_id), self._told_generations.get(topic_id, 0))

    def _own_generation(self, topic_id: TopicId) -> int:
        return self._catalog.by_id(topic_id).generation + (topic_id in self._growing)

    # --- what the cluster says ---------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read the topics anew, on and on, and from time to time their configs."""
        for turn in itertools.count(1):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REFRESH_SECONDS):
                    await self._news.wait()
            self._news.clear()
            try:
                read_to = self._membership.offset
                await self.refresh()
                if self._knows_all():
                    self._membership.taken_in = read_to
                    self._membership.beat_soon()
                else:
                    self._news.set()
                    await asyncio.sleep(_SOON_SECONDS)
                self.on_refreshed()
                await self._tell_opened()
                if turn % CONFIG_TURNS == 0:
                    await self._read_configs()
            except (PassingError, LogbrokerError) as error:
                _log.warning("the topics of the cluster cannot be read: %s", error)
            except Exception:
                _log.exception("a change of the cluster's topics was not taken in; it is tried again")

    async def refresh(self) -> None:
        """Take in the topics as the cluster has them now. Raises PassingError or LogbrokerError."""
        await self._link.refresh()
        async with self._lock:
            await self._take_in()

    def rows_changed(self, keys: Iterable[bytes]) -> None:
        """Take in at once that another gateway has changed rows: what was routed by an earlier generation is appended
        no more."""
        rows = self._rows.followed()
        for key in keys:
            if (row := rows.get(key)) is None or not _is_id(key):
                continue
            told, topic_id = msgspec.msgpack.decode(row, type=ClusterTopicRow).generation, TopicId(key)
            # A later one than this gateway has stored itself shows that it is the owner no more.
            if self._rows.is_owner and self._catalog.has_id(topic_id) and told <= self._own_generation(topic_id):
                self._told_generations.pop(topic_id, None)
            else:
                self._told_generations[topic_id] = told
        self._news.set()

    async def _take_in(self) -> None:
        seen = {found.id: found for found in self._link.topics.values() if found.partitions and _is_served(found.name)}
        rows = self._rows.all()
        for topic_id in [
            *self._partitions,
            *(TopicId(key) for key in rows if _is_id(key) and key not in self._partitions),
        ]:
            if await self._is_gone(topic_id, is_seen=topic_id in seen, has_row=topic_id in rows):
                self._forget(topic_id)
        new = [
            found
            for found in seen.values()
            if found.id not in self._partitions
            and found.id not in self._deleted
            and (found.id in rows or self._rows.is_owner)
        ]
        if new:
            configs = await self._admin.configs(new)
            for found in new:
                await self._add(found, configs.get(found.name, {}), rows)
        for found in seen.values():
            if found.id not in self._partitions or found.id in self._growing:
                continue
            row = msgspec.msgpack.decode(rows[found.id], type=ClusterTopicRow) if found.id in rows else None
            if row is not None:
                await self._follow(found, row)
            if self._rows.is_owner:
                await self._finish_growth(self._known(found.id), len(found.partitions), row)

    def _knows_all(self) -> bool:
        """Return whether the topics are known as the rows say."""
        return all(
            key in self._partitions
            and self._known(TopicId(key)).generation >= self._told_generations.get(TopicId(key), 0)
            for key in self._rows.all()
            if _is_id(key)
        )

    def _known(self, topic_id: TopicId) -> Topic:
        """Return a topic as its partitions are served here; the groups may not have been told yet."""
        return self._opened.get(topic_id) or self._catalog.by_id(topic_id)

    async def take_in_all(self) -> None:
        """Return when all topics that have rows are served. Raises BrokerUnavailableError."""

        async def attempt() -> None:
            if missing := [key for key in self._rows.all() if _is_id(key) and key not in self._partitions]:
                await self.refresh()
                raise PassingError(f"{len(missing)} topics are not there yet")

        await self._link.persist(attempt, seconds=OPEN_SECONDS)

    async def _is_gone(self, topic_id: TopicId, *, is_seen: bool, has_row: bool) -> bool:
        """Return whether a topic was deleted by others. The owner of the rows decides; then it removes the row."""
        if not self._rows.is_owner:
            return not has_row
        if is_seen:
            self._missed.pop(topic_id, None)
            return False
        turns, since = self._missed.get(topic_id, (0, monotonic()))
        self._missed[topic_id] = turns + 1, since
        if turns + 1 < GONE_TURNS or monotonic() - since < GONE_SECONDS:
            return False
        await self._rows.commit((topic_id, None))
        return True

    async def _finish_growth(self, known: Topic, count: int, row: ClusterTopicRow | None) -> None:
        """Begin the generation of partitions that somebody else has added, or end a growth that another gateway has
        begun and not finished."""
        if count > known.partitions:
            _log.warning(
                "topic %s was given %d partitions by somebody else; a new generation begins now", known.name, count
            )
            await self._grown(known, count)
        elif row is not None and row.is_growing:
            await self._store(known)
        self._told_generations.pop(known.id, None)

    async def _follow(self, found: ClusterTopic, row: ClusterTopicRow) -> None:
        """Take in what another gateway has stored about a topic."""
        known, partitions = self._known(found.id), row.generations[-1].partitions
        before = {name: text for name, text in known.overrides.items() if name in OWN_CONFIGS}
        if (known.partitions, known.generations, before) == (partitions, tuple(row.generations), row.own_configs):
            return
        if partitions > len(found.partitions):
            return  # The cluster has not told of the new partitions yet.
        if partitions > len(self._partitions[known.id]):
            await self._open(known, range(len(self._partitions[known.id]), partitions), waits=True)
        configs = (await self._admin.configs([found])).get(found.name, {})
        topic = msgspec.structs.replace(
            known,
            partitions=partitions,
            generations=tuple(row.generations),
            overrides=_overrides(configs) | row.own_configs,
            config=self._effective(found.name, configs, row.own_configs),
        )
        if partitions > known.partitions:
            self._opened[topic.id] = topic
        else:
            self._tell(topic)

    async def _tell_opened(self) -> None:
        """Tell the groups here of topics that have grown, once all gateways serve the new partitions: members may read
        them through any of these."""
        if self._opened:
            await self._membership.taken_in_by_all(self._membership.taken_in - 1, seconds=KNOWN_SECONDS)
        while self._opened:
            topic_id, topic = self._opened.popitem()
            if topic_id in self._partitions:
                self._tell(topic)

    def _tell(self, topic: Topic) -> None:
        self._catalog.put(topic)
        for each in self._partitions[topic.id]:
            each.notify_listeners()

    async def _read_configs(self) -> None:
        """Take in configs that were changed by other tools."""
        async with self._lock:
            topics = [
                found for topic in self._catalog.all() if (found := self._link.topics.get(topic.name)) is not None
            ]
            configs = await self._admin.configs(topics) if topics else {}
            for found in topics:
                known = self._catalog.by_id(found.id)
                if found.name not in configs or found.id in self._growing:
                    continue
                own = {name: text for name, text in known.overrides.items() if name in OWN_CONFIGS}
                topic = msgspec.structs.replace(
                    known,
                    config=self._effective(found.name, configs[found.name], own),
                    overrides=_overrides(configs[found.name]) | own,
                )
                if topic != known:
                    self._catalog.put(topic)

    async def _add(
        self, found: ClusterTopic, configs: Mapping[str, tuple[str, bool]], rows: Mapping[bytes, bytes]
    ) -> None:
        """Begin to serve a topic."""
        count = len(found.partitions)
        row = rows.get(found.id) or rows.get(_planned(found.name))
        stored = (
            ClusterTopicRow({}, [LogGeneration(1, count, ())], self._clock.wall_ms())
            if row is None
            else msgspec.msgpack.decode(row, type=ClusterTopicRow)
        )
        if stored.generations[-1].partitions > count:
            return  # The cluster has not told of all partitions yet.
        topic = Topic(
            name=found.name,
            id=found.id,
            partitions=stored.generations[-1].partitions,
            config=self._effective(found.name, configs, stored.own_configs),
            overrides=_overrides(configs) | stored.own_configs,
            generations=tuple(stored.generations),
            created_at_ms=stored.created_at_ms,
        )
        if found.id not in rows:
            await self._store(topic)
        await self._open(topic, range(topic.partitions))
        self._catalog.put(topic)

    async def _open(self, topic: Topic, numbers: Sequence[int], *, waits: bool = False) -> None:
        """Make partitions of a topic, with their offsets. One without a leader is offline; with `waits`, PassingError
        is raised instead."""
        opened = [
            RemotePartition(self._link, self._membership.check, topic.name, topic.id, number) for number in numbers
        ]
        for each in opened:
            each.on_removed = self.offsets.removed
        await self.offsets.sweep(opened)
        if waits and not all(each.is_known for each in opened):
            raise PassingError(f"a partition of topic {topic.name} has no leader yet")
        self._partitions.setdefault(topic.id, []).extend(opened)

    def _forget(self, topic_id: TopicId) -> None:
        if topic_id not in self._partitions:
            return
        for partition in self._partitions.pop(topic_id):
            partition.close()
        self.offsets.holders.pop(topic_id, None)
        self._told_generations.pop(topic_id, None)
        self._missed.pop(topic_id, None)
        self._catalog.remove(topic_id)

    def _effective(self, topic: str, configs: Mapping[str, tuple[str, bool]], own: Mapping[str, str]) -> TopicConfig:
        """Return the configs of a topic. A value that only Kafka can have counts as the default here."""
        config = self._defaults
        for name, text in {**{name: text for name, (text, _) in configs.items()}, **own}.items():
            try:
                config = topic_config({name: text}, config)
            except InvalidConfigError as error:
                _log.debug("topic %s: %s", topic, error)
        return config

    async def _store(self, topic: Topic) -> None:
        await self._rows.commit((topic.id, row_of(topic)), (_planned(topic.name), None))

    # --- changes -----------------------------------------------------------------------------------------------------

    async def create(
        self, name: str, partitions: int | None, overrides: Mapping[str, str], plan: TopicPlan | None
    ) -> Topic:
        """See `LogEngine.create_topic`."""

        async def there(owner: str) -> Topic:
            created = await self._requests.create(owner, name, partitions, overrides, validate_only=plan is not None)
            return created if plan is not None else await self._heard_of(created)

        async def here() -> Topic:
            async with self._changing():
                return await self._create(name, partitions, overrides, plan)

        return await self._through_owner(here, there)

    async def _through_owner(
        self, here: Callable[[], Coroutine[Any, Any, Topic]], there: Callable[[str], Awaitable[Topic]]
    ) -> Topic:
        """Change topics here if this gateway has their rows, or let the gateway at HOST:PORT do it that has them."""

        async def attempt() -> Topic:
            if self._rows.is_owner:
                try:
                    topic = await self._to_the_end(here)
                except StaleOwnerError as error:
                    raise BrokerUnavailableError(
                        f"{error.message}; nobody knows whether the topic was changed: describe it, then try again"
                    ) from None
                await self._rows.known_to_all()
                return topic
            owner = self._rows.owner_address()
            try:
                if owner:
                    return await there(owner)
            except StaleOwnerError:
                pass
            raise PassingError("no gateway changes topics just now")

        return await self._link.persist(attempt, seconds=CHANGE_SECONDS)

    async def _create(
        self, name: str, partitions: int | None, overrides: Mapping[str, str], plan: TopicPlan | None
    ) -> Topic:
        check_topic_name(name)
        if self._catalog.has(name) or (plan is not None and name in plan.names):
            raise TopicExistsError(f"topic {name!r} exists already")
        config = topic_config(overrides, self._defaults)
        count = partition_count(partitions, config, self._config.default_partitions)
        planned = 0 if plan is None else plan.partitions
        check_partition_count(count, self._catalog.partition_count + planned, self._config)
        draft = new_topic(name, TopicId(b""), count, overrides, config, self._clock.wall_ms())
        if plan is not None:
            plan.names.add(name)
            plan.partitions += count
            return draft
        # The id is not known before the creation. If this gateway dies, the next one finds the topic without a row
        # under its id, and takes this one.
        await self._rows.commit((_planned(name), row_of(draft)))
        try:
            topic_id = await self._link.persist(lambda: self._admin.create(draft), seconds=CHANGE_SECONDS)
        except BrokerUnavailableError:
            raise  # Perhaps the topic was created.
        except LogbrokerError:
            await self._rows.commit((_planned(name), None))
            raise
        topic = msgspec.structs.replace(draft, id=topic_id)
        await self._store(topic)
        return await self._link.persist(lambda: self._appeared(topic), seconds=CHANGE_SECONDS)

    async def _appeared(self, topic: Topic) -> Topic:
        """Begin to serve a new topic, as soon as its partitions have leaders."""
        await self._link.refresh()
        found = self._link.topics.get(topic.name)
        if found is None or found.id != topic.id or len(found.partitions) != topic.partitions:
            raise PassingError(f"topic {topic.name} is not there yet")
        await self._open(topic, range(topic.partitions), waits=True)
        self._catalog.put(topic)
        return topic

    async def delete(self, topic_id: TopicId) -> Topic:
        """See `LogEngine.delete_topic`."""

        async def there(owner: str) -> Topic:
            topic = self._catalog.by_id(topic_id)
            await self._requests.delete(owner, topic_id)
            await self._wait_for(lambda: topic_id not in self._partitions)
            return topic

        async def here() -> Topic:
            async with self._changing():
                topic = self._catalog.by_id(topic_id)
                self._check_not_growing(topic)
                await self._link.persist(lambda: self._admin.delete(topic), seconds=CHANGE_SECONDS)
                self._deleted.add(topic_id)
                self._forget(topic_id)
                await self._rows.commit((topic_id, None))
                return topic

        return await self._through_owner(here, there)

    async def alter(
        self,
        topic_id: TopicId,
        partitions: int | None,
        set_configs: Mapping[str, str],
        unset_configs: Sequence[str],
        plan: TopicPlan | None,
    ) -> Topic:
        """See `LogEngine.alter_topic`."""

        async def there(owner: str) -> Topic:
            if partitions is not None:
                self._ask_for_growth(self._catalog.by_id(topic_id))
            altered = await self._requests.alter(
                owner, topic_id, partitions, set_configs, unset_configs, validate_only=plan is not None
            )
            return altered if plan is not None else await self._heard_of(altered)

        return await self._through_owner(
            lambda: self._alter(topic_id, partitions, set_configs, unset_configs, plan), there
        )

    async def _alter(
        self,
        topic_id: TopicId,
        partitions: int | None,
        set_configs: Mapping[str, str],
        unset_configs: Sequence[str],
        plan: TopicPlan | None,
    ) -> Topic:
        if plan is not None:
            topic, count = self._altered(topic_id, partitions, set_configs, unset_configs, plan.partitions)
            plan.partitions += count
            return topic
        # Whoever has pinned this topic may wait for the end of another change, which needs the lock.
        async with self.pins.alone(topic_id), self._changing():
            topic, _ = self._altered(topic_id, partitions, set_configs, unset_configs, 0)
            self._check_not_growing(topic)
            if set_configs or unset_configs:
                await self._link.persist(
                    lambda: self._admin.alter_configs(topic, set_configs, unset_configs), seconds=CHANGE_SECONDS
                )
                await self._store(topic)
                self._catalog.put(topic)
            return topic if partitions is None else await self._grow(topic, partitions)

    def _altered(
        self,
        topic_id: TopicId,
        partitions: int | None,
        set_configs: Mapping[str, str],
        unset_configs: Sequence[str],
        planned: int,
    ) -> tuple[Topic, int]:
        """Return a topic with other configs, and how many partitions it is to get beside those that are planned. Raises
        the error that says why it cannot be altered so."""
        old = self._catalog.by_id(topic_id)
        if partitions is None and not set_configs and not unset_configs:
            raise InvalidRequestError("nothing to alter: give partitions, configs to set or configs to unset")
        topic = with_configs(old, set_configs, unset_configs, self._defaults)
        if partitions is None:
            return topic, 0
        check_growth(old, partitions)
        self._ask_for_growth(old)
        check_partition_count(partitions, self._catalog.partition_count + planned - old.partitions, self._config)
        return topic, partitions - old.partitions

    def _ask_for_growth(self, topic: Topic) -> None:
        for check in self.growth_checks:
            check(topic)

    async def _grow(self, topic: Topic, partitions: int) -> Topic:
        async def attempt() -> None:
            try:
                await self._admin.add_partitions(topic, partitions)
            except InvalidPartitionsError:
                if not await self._has_grown(topic, partitions):
                    raise
                # A gateway that died has begun this growth.

        await self._link.persist(attempt, seconds=CHANGE_SECONDS)
        return await self._grown(topic, partitions)

    async def _has_grown(self, topic: Topic, partitions: int) -> bool:
        await self._link.refresh()
        found = self._link.topics.get(topic.name)
        return found is not None and found.id == topic.id and len(found.partitions) == partitions

    async def _heard_of(self, changed: Topic) -> Topic:
        """Wait until this gateway has taken in a topic that another one has created or changed, and return it."""

        def is_here() -> bool:
            known = self._catalog.has_id(changed.id)
            return known and self._catalog.by_id(changed.id).generation >= changed.generation

        await self._wait_for(is_here)
        await self._read_configs()
        return self._catalog.by_id(changed.id)

    async def _wait_for(self, is_done: Callable[[], bool]) -> None:
        async def attempt() -> None:
            self._news.set()
            if not is_done():
                raise PassingError("this gateway has not heard of the change of a topic by another one yet")

        await self._link.persist(attempt, seconds=FOLLOW_SECONDS)

    async def _grown(self, topic: Topic, partitions: int) -> Topic:
        """Begin the next generation of a topic whose partitions the cluster has made. Called with the lock, which is
        free for changes of other topics while this one waits. Raises UnknownTopicError if it is deleted meanwhile."""
        self._growing.add(topic.id)
        try:
            # From here on, a gateway that reads this row appends no keyed records of the old generation any more; one
            # that does not read it loses its lease.
            await self._rows.commit((topic.id, row_of(topic, is_growing=True)))
            old = list(self._partitions[topic.id])
            async with self._aside(topic.id):
                now = monotonic()
                await asyncio.sleep(self._membership.gateways.appends_until(now) - now)
                # Keyed appends of the old generation are refused from here on: all its keyed records are below the
                # ends that are read once those on their way are answered.
                await asyncio.gather(*(each.settle() for each in old))
                ends = await self._link.persist(lambda: self._ends(topic, partitions, old), seconds=CHANGE_SECONDS)
            topic = grown(topic, partitions, ends)
            await self._store(topic)
            await self._link.persist(
                lambda: self._open(topic, range(len(old), partitions), waits=True), seconds=CHANGE_SECONDS
            )
            # Members that are given new partitions may read them through any gateway.
            async with self._aside(topic.id):
                await self._rows.known_to_all()
            self._catalog.put(topic)
        finally:
            self._growing.discard(topic.id)
        for each in self._partitions[topic.id]:
            each.notify_listeners()  # Readers read by generation.
        return topic

    @asynccontextmanager
    async def _aside(self, topic_id: TopicId) -> AsyncIterator[None]:
        """Let other topics be changed in the block. Raises UnknownTopicError if this one is gone after it."""
        self._lock.release()
        try:
            yield
        finally:
            await self._lock.acquire()
        if topic_id not in self._partitions:
            raise unknown_topic_id(topic_id)

    def _check_not_growing(self, topic: Topic) -> None:
        """Raise PassingError if a topic is growing: it is changed after that."""
        if topic.id in self._growing:
            raise PassingError(f"topic {topic.name} is growing")

    async def _ends(self, topic: Topic, partitions: int, old: Sequence[RemotePartition]) -> list[int]:
        """Return the ends of the old partitions, once the cluster knows the new ones."""
        await self._link.refresh()
        found = self._link.topics.get(topic.name)
        if found is None or found.id != topic.id:
            raise unknown_topic_id(topic.id)
        if len(found.partitions) < partitions:
            raise PassingError(f"topic {topic.name} has not grown yet")
        return await self.offsets.committed_ends(old)

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        """Wait for the change before, and let no other topic be changed in the block, but for `_aside`."""
        async with self._lock:
            if self._is_closed:
                raise BrokerUnavailableError("the gateway is stopping; try again at another one")
            yield

    async def _to_the_end(self, change: Callable[[], Awaitable[Topic]]) -> Topic:
        """Carry out a change. Once begun, it finishes even if its caller is cancelled."""

        async def carry_out() -> Topic | LogbrokerError | PassingError:
            try:
                return await change()
            except LogbrokerError as error:
                return error.as_value()
            except PassingError as error:
                return error
            except asyncio.CancelledError:
                return BrokerUnavailableError("the gateway is stopping; another one ends the growth").as_value()

        task = asyncio.create_task(carry_out())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        outcome = await asyncio.shield(task)
        if isinstance(outcome, LogbrokerError):
            raise outcome.anew()
        if isinstance(outcome, PassingError):
            raise outcome
        return outcome

    async def close(self) -> None:
        """Wait for the change under way, and let no other begin. Growths that wait are left to another gateway."""
        self._is_closed = True
        async with self._lock:
            tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)


def _overrides(configs: Mapping[str, tuple[str, bool]]) -> dict[str, str]:
    """Return the values that a topic sets itself."""
    return {name: text for name, (text, is_own) in configs.items() if is_own}


def _is_id(key: bytes) -> bool:
    """Return whether the key of a row is the id of a topic."""
    return len(key) == _TOPIC_ID_BYTES and not key.startswith(_PLANNED)


def _planned(name: str) -> bytes:
    """Return the key of the row of a topic that is to be created. The longest name makes 254 bytes of it."""
    return _PLANNED + name.encode()


def _is_served(name: str) -> bool:
    """Return whether a topic is one of users, or of copies, and not one of Kafka's or of this engine's own."""
    return name.startswith(INTERNAL_PREFIX) or not name.startswith(_HIDDEN_PREFIX)
