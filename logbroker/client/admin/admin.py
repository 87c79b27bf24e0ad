"""Admin: topics and their configuration, groups and their offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self, TypeVar

import msgspec

from logbroker.client.admin import groups
from logbroker.client.admin.groups import GroupDescription, GroupInfo, PartitionLag
from logbroker.client.consumer import group_offsets
from logbroker.client.consumer.group_offsets import CommittedOffset
from logbroker.client.runtime.arguments import check_fields, checks_arguments
from logbroker.client.runtime.lifetime import Droppable, Lifetime
from logbroker.client.transport.answers import items
from logbroker.client.transport.connection import Connection
from logbroker.client.transport.metadata import TopicInfo, find_topic, topic_info
from logbroker.client.transport.offsets import ListedOffset, When, list_offsets
from logbroker.client.transport.status import error_of_item
from logbroker.errors import LogbrokerError, TopicExistsError, UnknownTopicError
from logbroker.types import TopicPartition
from logbroker.v1 import admin_pb2

PARTITION_SECONDS: Final = 0.005
"""Added to the timeout of a request for each partition that it may create. One partition takes about 0.5 ms on a busy
machine."""

T = TypeVar("T")


class NewTopic(msgspec.Struct, frozen=True):
    """A topic to create. `partitions` None takes the broker's default. `configs` use Kafka's names, with values as
    text."""

    name: str
    partitions: int | None = None
    configs: Mapping[str, str] = {}


class ConfigValue(msgspec.Struct, frozen=True, kw_only=True):
    """One config of a topic."""

    name: str
    value: str
    is_default: bool
    """Whether the value is the default, because the topic does not override it."""
    documentation: str


class TopicGeneration(msgspec.Struct, frozen=True, kw_only=True):
    """A span of a topic's life with one partition count."""

    generation: int
    partitions: int
    start_offsets: tuple[int, ...]
    """The end offset of each partition of the previous generation at the time when this one began."""


class PartitionDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One partition at one moment.

    If `error` is a PartitionOfflineError, the other fields are 0. If it is a CorruptLogError, the log cannot be read to
    its end.
    """

    partition: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    size_bytes: int
    segments: int
    cut_bytes: int = 0
    """Bytes that a crash left torn at the end of the log. The broker cut them off and kept them in side files when it
    started."""
    cut_offset: int = 0
    """The offset at which the broker cut the log, if it did."""
    error: LogbrokerError | None = None


class TopicDescription(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the broker reports about a topic."""

    info: TopicInfo
    created_at_ms: int
    generations: tuple[TopicGeneration, ...]
    configs: tuple[ConfigValue, ...]
    partitions: tuple[PartitionDescription, ...]


class BrokerDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The broker at one moment."""

    version: str
    started_at_ms: int
    topics: int
    partitions: int
    max_request_bytes: int
    max_response_bytes: int


@checks_arguments()
class Admin(Droppable):
    """Creates, lists, describes, alters and deletes topics; lists, describes, resets and deletes groups.

    Methods for one topic raise its error. Methods for many return a result or an error for each, in order. All methods
    raise BrokerUnavailableError if the broker cannot be reached or the connection breaks, and RequestTimeoutError if it
    does not answer in time. If the broker was reached, the change may have been made nevertheless; the message says so.
    """

    def __init__(self, broker: str, *, request_timeout_seconds: float = 10.0) -> None:
        """`broker` is "HOST:PORT" or "HOST:PORT,HOST:PORT".

        Calls that change nothing are repeated while the broker is away.
        """
        self._lifetime = Lifetime("Admin", broker)
        self._connection = Connection(broker, request_timeout_seconds=request_timeout_seconds, lifetime=self._lifetime)

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
        *,
        exist_ok: bool = False,
        validate_only: bool = False,
    ) -> TopicInfo:
        """Create one topic durably.

        With `exist_ok`, an existing topic is returned unchanged, even if its partitions and configs differ. Raises
        TopicExistsError, InvalidTopicNameError, InvalidPartitionsError or InvalidConfigError.
        """
        new = NewTopic(name, partitions, configs or {})
        while True:
            try:
                return _only(await self.create_topics([new], validate_only=validate_only))
            except TopicExistsError:
                if not exist_ok:
                    raise
            # The topic may be deleted before it is found. Then the loop creates it.
            with suppress(UnknownTopicError):
                return await find_topic(self._connection, name)

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicInfo | LogbrokerError]:
        """Create topics. `validate_only` checks everything and creates nothing."""
        for place, topic in enumerate(topics):
            check_fields(f"topics[{place}]", topic)
        request = admin_pb2.CreateTopicsRequest(
            topics=[
                admin_pb2.NewTopic(name=topic.name, partitions=topic.partitions, configs=topic.configs)
                for topic in topics
            ],
            validate_only=validate_only,
        )
        more = PARTITION_SECONDS * sum(topic.partitions or 0 for topic in topics)
        return _topics(await self._connection.unary("CreateTopics", request, retry=False, more_seconds=more))

    async def list_topics(self) -> list[TopicInfo]:
        """Return all topics, sorted by name."""
        found: list[TopicInfo] = []
        page_token = ""
        while True:
            request = admin_pb2.ListTopicsRequest(page_token=page_token)
            response = await self._connection.unary("ListTopics", request)
            found += [topic_info(topic) for topic in response.topics]
            page_token = response.next_page_token
            if not page_token:
                return found

    async def describe_topic(self, name: str) -> TopicDescription:
        """Return the description of a topic. Raises UnknownTopicError."""
        return _only(await self.describe_topics([name]))

    async def describe_topics(self, names: Sequence[str]) -> list[TopicDescription | LogbrokerError]:
        """Return the descriptions of these topics."""

        async def ask(some: list[str]) -> Sequence[admin_pb2.DescribeTopicsResult]:
            refs = [admin_pb2.TopicRef(name=name) for name in some]
            request = admin_pb2.DescribeTopicsRequest(topics=refs, include_partitions=True)
            response: admin_pb2.DescribeTopicsResponse = await self._connection.unary("DescribeTopics", request)
            return response.results

        found = {name: error or _description(result) async for name, result, error in items(names, ask)}
        return [found[name] for name in names]

    async def alter_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        set_configs: Mapping[str, str] | None = None,
        unset_configs: Sequence[str] = (),
        validate_only: bool = False,
    ) -> TopicInfo:
        """Add partitions and change configs, all or nothing. The number of partitions can only grow, and growth begins
        a new generation.

        Raises UnknownTopicError, InvalidPartitionsError or InvalidConfigError.
        """
        request = admin_pb2.AlterTopicsRequest(
            topics=[
                admin_pb2.TopicAlteration(
                    topic=admin_pb2.TopicRef(name=name),
                    partitions=partitions,
                    set_configs=set_configs or {},
                    unset_configs=unset_configs,
                )
            ],
            validate_only=validate_only,
        )
        more = PARTITION_SECONDS * (partitions or 0)
        return _only(_topics(await self._connection.unary("AlterTopics", request, retry=False, more_seconds=more)))

    async def delete_topic(self, name: str) -> TopicInfo:
        """Delete a topic and its records durably. Return the facts of the deleted topic. Raises UnknownTopicError."""
        return _only(await self.delete_topics([name]))

    async def delete_topics(self, names: Sequence[str]) -> list[TopicInfo | LogbrokerError]:
        """Delete topics and their records."""
        request = admin_pb2.DeleteTopicsRequest(topics=[admin_pb2.TopicRef(name=name) for name in names])
        return _topics(await self._connection.unary("DeleteTopics", request, retry=False))

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int | None]
    ) -> dict[TopicPartition, int | LogbrokerError]:
        """Delete the records below an offset of each partition durably; None: all records. Return where each log begins
        now, or the error.

        Queue groups lose the records as well, except those of their stalled lanes, which the broker copies first.
        """
        request = admin_pb2.DeleteRecordsRequest(
            deletions=[
                admin_pb2.RecordDeletion(
                    topic=admin_pb2.TopicRef(name=place.topic), partition=place.partition, before_offset=offset
                )
                for place, offset in offsets.items()
            ]
        )
        response = await self._connection.unary("DeleteRecords", request, retry=False)
        return {
            place: error_of_item(result.status) or result.log_start_offset
            for place, result in zip(offsets, response.results, strict=True)
        }

    async def list_offsets(
        self, partitions: Sequence[TopicPartition], when: When
    ) -> list[ListedOffset | LogbrokerError]:
        """Find the earliest or latest offset of each partition, or the first offset at or after a time."""
        return await list_offsets(self._connection, [(partition, when) for partition in partitions])

    async def list_groups(self) -> list[GroupInfo]:
        """Return all groups, sorted by id."""
        return await groups.list_groups(self._connection)

    async def describe_group(self, group: str) -> GroupDescription:
        """Return a group and its members. Raises UnknownGroupError."""
        return _only(await self.describe_groups([group]))

    async def describe_groups(self, group_ids: Sequence[str]) -> list[GroupDescription | LogbrokerError]:
        """Return these groups and their members."""
        return await groups.describe_groups(self._connection, group_ids)

    async def group_lag(self, group: str) -> list[PartitionLag]:
        """Return the lag of a group in each partition that members hold or are assigned, or that has a committed
        offset. Of a topic in which offsets are committed but nothing is assigned, return all partitions. Raises
        UnknownGroupError."""
        return await groups.group_lag(self._connection, await self.describe_group(group))

    async def delete_group(self, group: str) -> None:
        """Delete a group that has no members, with its offsets. Raises UnknownGroupError or GroupNotEmptyError."""
        (error,) = await self.delete_groups([group])
        if error is not None:
            raise error

    async def delete_groups(self, group_ids: Sequence[str]) -> list[LogbrokerError | None]:
        """Delete groups that have no members, with their offsets."""
        return await groups.delete_groups(self._connection, group_ids)

    async def fetch_offsets(
        self, group: str, partitions: Sequence[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group in these partitions; with None, in all. Partitions without a
        committed offset are left out."""
        return await group_offsets.fetch_offsets(self._connection, group, partitions)

    async def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, LogbrokerError | None]:
        """Set and sync the committed offsets (the next ones to read) of a group without members. The group need not
        exist yet.

        Returns the error of each partition, or None. Raises GroupNotEmptyError.
        """
        return await group_offsets.commit_offsets(self._connection, group, offsets)

    async def describe_broker(self) -> BrokerDescription:
        """Return the broker's version, size and limits."""
        response = await self._connection.unary("DescribeBroker", admin_pb2.DescribeBrokerRequest())
        return BrokerDescription(
            version=response.version,
            started_at_ms=response.started_at_ms,
            topics=response.topics,
            partitions=response.partitions,
            max_request_bytes=response.max_request_bytes,
            max_response_bytes=response.max_response_bytes,
        )

    async def close(self) -> None:
        """Close the connection."""
        if self._lifetime.may_close():
            try:
                await self._connection.close()
            finally:
                self._lifetime.closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def _only(outcomes: list[T | LogbrokerError]) -> T:
    (outcome,) = outcomes
    if isinstance(outcome, LogbrokerError):
        raise outcome
    return outcome


def _topics(
    response: admin_pb2.CreateTopicsResponse | admin_pb2.AlterTopicsResponse | admin_pb2.DeleteTopicsResponse,
) -> list[TopicInfo | LogbrokerError]:
    return [error_of_item(result.status) or topic_info(result.topic) for result in response.results]


def _description(result: admin_pb2.DescribeTopicsResult) -> TopicDescription:
    return TopicDescription(
        info=topic_info(result.topic),
        created_at_ms=result.created_at_ms,
        generations=tuple(
            TopicGeneration(
                generation=generation.generation,
                partitions=generation.partitions,
                start_offsets=tuple(generation.start_offsets),
            )
            for generation in result.generations
        ),
        configs=tuple(
            ConfigValue(
                name=config.name, value=config.value, is_default=config.is_default, documentation=config.documentation
            )
            for config in result.configs
        ),
        partitions=tuple(
            PartitionDescription(
                partition=partition.partition,
                log_start_offset=partition.log_start_offset,
                high_watermark=partition.high_watermark,
                log_end_offset=partition.log_end_offset,
                leader_epoch=partition.leader_epoch,
                size_bytes=partition.size_bytes,
                segments=partition.segments,
                cut_bytes=partition.cut_bytes,
                cut_offset=partition.cut_offset,
                error=error_of_item(partition.status),
            )
            for partition in result.partitions
        ),
    )
