"""The topics of the cluster: read anew from time to time, and changed by requests to the cluster.

The cluster keeps a topic's partitions and the configs that it knows itself. What it has no place for is kept in rows of
the state: generations, bands, routing and the other configs of this project. A topic without a row was made by somebody
else, and gets one when it is first seen. If its partitions grow behind the gateway's back, a new generation begins
where the partitions end at that moment: records of a key that were sent to the new partitions before that moment have
no place in the order.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Final

import msgspec

from logbroker.broker.catalog import Catalog, unknown_topic_id
from logbroker.broker.cluster_engine.codes import MISSING, NONE, PASSING
from logbroker.broker.cluster_engine.link import ClusterLink, ClusterTopic, PassingError
from logbroker.broker.cluster_engine.offsets import Offsets
from logbroker.broker.cluster_engine.refusals import refusal
from logbroker.broker.cluster_engine.remote_partition import RemotePartition
from logbroker.broker.cluster_engine.state_store import Ownership
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
from logbroker.config import TOPIC_CONFIGS, BrokerConfig, TopicConfig, topic_config
from logbroker.engine import LogGeneration, StateEvent, StateStore, Topic, TopicPlan
from logbroker.errors import (
    BrokerUnavailableError,
    InvalidConfigError,
    InvalidRequestError,
    LogbrokerError,
    TopicExistsError,
    UnknownPartitionError,
)
from logbroker.kafka_wire.apis import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
)
from logbroker.kafka_wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsRequestTopic
from logbroker.kafka_wire.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestCreatableTopic,
    CreateTopicsRequestCreatableTopicConfig,
)
from logbroker.kafka_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopicState
from logbroker.kafka_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsRequestResource
from logbroker.kafka_wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from logbroker.types import INTERNAL_PREFIX, TopicId

_log = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 2.0
CONFIG_TURNS: Final = 5
"""The configs are read with every so many refreshes."""
CHANGE_SECONDS: Final = 30.0
_TIMEOUT_MS: Final = 15_000
_SCOPE: Final = "topics"
_TOPIC: Final = 2
"""Kafka's resource type of a topic."""
_OF_TOPIC: Final = 1
"""Kafka's source of a config that the topic sets itself."""
_SET: Final = 0
_UNSET: Final = 1
_OWN: Final = frozenset({"durability", "priority.bands", "priority.routing", "retention.hold.bytes"})
"""Configs that the cluster does not know."""
_HIDDEN_PREFIX: Final = "__"


class _Row(msgspec.Struct):
    """The facts of a topic that the cluster has no place for; in the scope "topics", under the topic's id."""

    own_configs: dict[str, str]
    generations: list[LogGeneration]
    created_at_ms: int


class ClusterTopics:
    """All topics that this gateway serves, and their partitions."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        link: ClusterLink,
        state: StateStore,
        ownership: Ownership,
        catalog: Catalog,
    ) -> None:
        self._config = config
        self._clock = clock
        self._link = link
        self._state = state
        self._ownership = ownership
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
        self._tasks: set[asyncio.Task[Topic | LogbrokerError]] = set()

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

    def generation(self, topic_id: TopicId) -> int:
        """Return the generation that keyed appends must carry now. While the topic grows, this is already the next
        generation."""
        generation = self._catalog.by_id(topic_id).generation
        return generation + 1 if topic_id in self._growing else generation

    # --- what the cluster says ---------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read the topics anew, on and on, and from time to time their configs."""
        for turn in itertools.count(1):
            await asyncio.sleep(REFRESH_SECONDS)
            try:
                await self.refresh()
                self.on_refreshed()
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

    async def _take_in(self) -> None:
        seen = {found.id: found for found in self._link.topics.values() if found.partitions and _is_served(found.name)}
        for gone in [topic for topic in self._catalog.all() if topic.id not in seen]:
            self._forget(gone.id)
            await self._commit((gone.id, None))
        new = [found for found in seen.values() if found.id not in self._partitions]
        if new:
            rows = await self._state.load(_SCOPE)
            configs = await self._configs(new)
            for found in new:
                await self._add(found, configs.get(found.name, {}), rows)
        for found in seen.values():
            known, count = self._catalog.by_id(found.id), len(found.partitions)
            if count > known.partitions:
                _log.warning(
                    "topic %s was given %d partitions by somebody else; a new generation begins now", found.name, count
                )
                await self._grown(known, count)

    async def _read_configs(self) -> None:
        """Take in configs that were changed by other tools."""
        async with self._lock:
            topics = [
                found for topic in self._catalog.all() if (found := self._link.topics.get(topic.name)) is not None
            ]
            configs = await self._configs(topics) if topics else {}
            for found in topics:
                known = self._catalog.by_id(found.id)
                if found.name not in configs:
                    continue
                own = {name: text for name, text in known.overrides.items() if name in _OWN}
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
            _Row({}, [LogGeneration(1, count, ())], self._clock.wall_ms())
            if row is None
            else msgspec.msgpack.decode(row, type=_Row)
        )
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
            RemotePartition(self._link, self._ownership.check, topic.name, topic.id, number) for number in numbers
        ]
        for each in opened:
            each.on_removed = self.offsets.removed
        await self.offsets.sweep(opened)
        if waits and not all(each.is_known for each in opened):
            raise PassingError(f"a partition of topic {topic.name} has no leader yet")
        self._partitions.setdefault(topic.id, []).extend(opened)

    def _forget(self, topic_id: TopicId) -> None:
        for partition in self._partitions.pop(topic_id, ()):
            partition.close()
        self.offsets.holders.pop(topic_id, None)
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

    async def _configs(self, topics: Sequence[ClusterTopic]) -> dict[str, dict[str, tuple[str, bool]]]:
        """Return the configs by topic and name: the value, and whether the topic sets it itself."""
        names = [name for name in TOPIC_CONFIGS if name not in _OWN]
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequestResource(resource_type=_TOPIC, resource_name=topic.name, configuration_keys=names)
                for topic in topics
            ]
        )
        answer = await self._link.ask_any(DESCRIBE_CONFIGS, request)
        return {
            found.resource_name: {
                each.name: (each.value, each.config_source == _OF_TOPIC)
                for each in found.configs
                if each.name in TOPIC_CONFIGS and each.value is not None
            }
            for found in answer.results
            if found.error_code == NONE
        }

    async def _store(self, topic: Topic) -> None:
        await self._commit((topic.id, _row_of(topic)), (_planned(topic.name), None))

    async def _commit(self, *rows: tuple[bytes, bytes | None]) -> None:
        await self._state.commit(_SCOPE, [StateEvent(key, value) for key, value in rows])

    # --- changes -----------------------------------------------------------------------------------------------------

    async def create(
        self, name: str, partitions: int | None, overrides: Mapping[str, str], plan: TopicPlan | None
    ) -> Topic:
        """See `LogEngine.create_topic`."""
        return await self._to_the_end(self._create(name, partitions, overrides, plan))

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
        await self._commit((_planned(name), _row_of(draft)))
        try:
            topic_id = await self._link.persist(lambda: self._ask_to_create(draft), seconds=CHANGE_SECONDS)
        except BrokerUnavailableError:
            raise  # Perhaps the topic was created.
        except LogbrokerError:
            await self._commit((_planned(name), None))
            raise
        topic = msgspec.structs.replace(draft, id=topic_id)
        await self._store(topic)
        return await self._link.persist(lambda: self._appeared(topic), seconds=CHANGE_SECONDS)

    async def _ask_to_create(self, topic: Topic) -> TopicId:
        creatable = CreateTopicsRequestCreatableTopic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=self._link.replication_factor(),
            configs=[
                CreateTopicsRequestCreatableTopicConfig(name=name, value=text)
                for name, text in self._for_cluster(topic.overrides).items()
            ],
        )
        request = CreateTopicsRequest(topics=[creatable], timeout_ms=_TIMEOUT_MS)
        answer = await self._link.ask(self._link.controller, CREATE_TOPICS, request)
        [found] = answer.topics
        _check(found.error_code, found.error_message, f"the creation of topic {topic.name}")
        return TopicId(found.topic_id)

    def _for_cluster(self, overrides: Mapping[str, str]) -> dict[str, str]:
        return self._link.safety_configs() | {name: text for name, text in overrides.items() if name not in _OWN}

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
        return await self._to_the_end(self._delete(topic_id))

    async def _delete(self, topic_id: TopicId) -> Topic:
        topic = self._catalog.by_id(topic_id)

        async def attempt() -> None:
            request = DeleteTopicsRequest(
                topics=[DeleteTopicsRequestTopicState(name=None, topic_id=topic_id)], timeout_ms=_TIMEOUT_MS
            )
            answer = await self._link.ask(self._link.controller, DELETE_TOPICS, request)
            [found] = answer.responses
            _check(found.error_code, found.error_message, f"the deletion of topic {topic.name}")

        await self._link.persist(attempt, seconds=CHANGE_SECONDS)
        self._forget(topic_id)
        await self._commit((topic_id, None))
        return topic

    async def alter(
        self,
        topic_id: TopicId,
        partitions: int | None,
        set_configs: Mapping[str, str],
        unset_configs: Sequence[str],
        plan: TopicPlan | None,
    ) -> Topic:
        """See `LogEngine.alter_topic`."""
        return await self._to_the_end(self._alter(topic_id, partitions, set_configs, unset_configs, plan))

    async def _alter(
        self,
        topic_id: TopicId,
        partitions: int | None,
        set_configs: Mapping[str, str],
        unset_configs: Sequence[str],
        plan: TopicPlan | None,
    ) -> Topic:
        old = self._catalog.by_id(topic_id)
        if partitions is None and not set_configs and not unset_configs:
            raise InvalidRequestError("nothing to alter: give partitions, configs to set or configs to unset")
        topic = with_configs(old, set_configs, unset_configs, self._defaults)
        if partitions is not None:
            check_growth(old, partitions)
            self._ask_for_growth(old)
            planned = 0 if plan is None else plan.partitions
            check_partition_count(partitions, self._catalog.partition_count + planned - old.partitions, self._config)
        if plan is not None:
            plan.partitions += 0 if partitions is None else partitions - old.partitions
            return topic
        async with self.pins.alone(topic_id):
            if partitions is not None:
                self._ask_for_growth(old)  # Once more: it was perhaps pinned for a change after which it must not grow.
            if set_configs or unset_configs:
                await self._link.persist(
                    lambda: self._ask_to_alter(topic, set_configs, unset_configs), seconds=CHANGE_SECONDS
                )
                await self._store(topic)
                self._catalog.put(topic)
            if partitions is not None:
                topic = await self._grow(topic, partitions)
        return topic

    def _ask_for_growth(self, topic: Topic) -> None:
        for check in self.growth_checks:
            check(topic)

    async def _ask_to_alter(self, topic: Topic, set_configs: Mapping[str, str], unset_configs: Sequence[str]) -> None:
        changes: list[tuple[str, int, str | None]] = [
            (name, _SET, topic.overrides[name]) for name in set_configs if name not in _OWN
        ]
        changes += [(name, _UNSET, None) for name in unset_configs if name not in _OWN]
        if not changes:
            return
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsRequestAlterConfigsResource(
                    resource_type=_TOPIC,
                    resource_name=topic.name,
                    configs=[
                        IncrementalAlterConfigsRequestAlterableConfig(name=name, config_operation=operation, value=text)
                        for name, operation, text in changes
                    ],
                )
            ]
        )
        answer = await self._link.ask(self._link.controller, INCREMENTAL_ALTER_CONFIGS, request)
        [found] = answer.responses
        _check(found.error_code, found.error_message, f"the change of topic {topic.name}")

    async def _grow(self, topic: Topic, partitions: int) -> Topic:
        async def attempt() -> None:
            request = CreatePartitionsRequest(
                topics=[CreatePartitionsRequestTopic(name=topic.name, count=partitions, assignments=None)],
                timeout_ms=_TIMEOUT_MS,
            )
            answer = await self._link.ask(self._link.controller, CREATE_PARTITIONS, request)
            [found] = answer.results
            _check(found.error_code, found.error_message, f"the growth of topic {topic.name}")

        await self._link.persist(attempt, seconds=CHANGE_SECONDS)
        return await self._grown(topic, partitions)

    async def _grown(self, topic: Topic, partitions: int) -> Topic:
        """Begin the next generation of a topic whose partitions the cluster has made."""
        await asyncio.sleep(max(0.0, self._ownership.alone_from - monotonic()))
        self._growing.add(topic.id)
        try:
            # Keyed appends of the old generation are refused from here on: all its keyed records are below the ends
            # that are read once those on their way are answered.
            await asyncio.gather(*(each.settle() for each in self._partitions[topic.id]))
            ends = await self._link.persist(lambda: self._ends(topic, partitions), seconds=CHANGE_SECONDS)
            known = len(self._partitions[topic.id])
            topic = grown(topic, partitions, ends)
            await self._store(topic)
            await self._link.persist(
                lambda: self._open(topic, range(known, partitions), waits=True), seconds=CHANGE_SECONDS
            )
            self._catalog.put(topic)
        finally:
            self._growing.discard(topic.id)
        for each in self._partitions[topic.id]:
            each.notify_listeners()  # Readers read by generation.
        return topic

    async def _ends(self, topic: Topic, partitions: int) -> list[int]:
        """Return the ends of the old partitions, once the cluster knows the new ones."""
        await self._link.refresh()
        found = self._link.topics.get(topic.name)
        if found is None or found.id != topic.id:
            raise unknown_topic_id(topic.id)
        if len(found.partitions) < partitions:
            raise PassingError(f"topic {topic.name} has not grown yet")
        await self.offsets.sweep(self._partitions[topic.id])
        if not all(each.is_known for each in self._partitions[topic.id]):
            raise PassingError(f"a partition of topic {topic.name} has no leader")
        return [each.high_watermark for each in self._partitions[topic.id]]

    async def _to_the_end(self, change: Awaitable[Topic]) -> Topic:
        """Carry out a change after the one before. Once begun, it finishes even if its caller is cancelled."""

        async def carry_out() -> Topic | LogbrokerError:
            async with self._lock:
                try:
                    return await change
                except LogbrokerError as error:
                    return error.as_value()

        task = asyncio.create_task(carry_out())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        outcome = await asyncio.shield(task)
        if isinstance(outcome, LogbrokerError):
            raise outcome.anew()
        return outcome

    async def close(self) -> None:
        """Wait for the change under way, and let no other begin."""
        await self._lock.acquire()


def _overrides(configs: Mapping[str, tuple[str, bool]]) -> dict[str, str]:
    """Return the values that a topic sets itself."""
    return {name: text for name, (text, is_own) in configs.items() if is_own}


def _planned(name: str) -> bytes:
    """Return the key of the row of a topic that is to be created. The longest name makes 254 bytes of it."""
    return b"new: " + name.encode()


def _row_of(topic: Topic) -> bytes:
    own = {name: text for name, text in topic.overrides.items() if name in _OWN}
    return msgspec.msgpack.encode(_Row(own, list(topic.generations), topic.created_at_ms))


def _is_served(name: str) -> bool:
    """Return whether a topic is one of users, or of copies, and not one of Kafka's or of this engine's own."""
    return name.startswith(INTERNAL_PREFIX) or not name.startswith(_HIDDEN_PREFIX)


def _check(code: int, message: str | None, what: str) -> None:
    if code in PASSING - MISSING:
        raise PassingError(f"{what} was answered with error {code}")
    if code != NONE:
        raise refusal(code, what, message)
