"""The synchronous Admin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from logbroker.client.admin import admin
from logbroker.client.admin.admin import BrokerDescription, NewTopic, TopicDescription
from logbroker.client.admin.groups import GroupDescription, GroupInfo, PartitionLag
from logbroker.client.consumer.group_offsets import CommittedOffset
from logbroker.client.runtime.arguments import checks_arguments
from logbroker.client.runtime.lifetime import Uncopied
from logbroker.client.runtime.sync_loop import run
from logbroker.client.transport.metadata import TopicInfo
from logbroker.client.transport.offsets import ListedOffset, When
from logbroker.errors import LogbrokerError
from logbroker.types import TopicPartition


@checks_arguments()
class Admin(Uncopied):
    """Creates, lists, describes, alters and deletes topics; lists, describes, resets and deletes groups.

    For programs without an event loop; may be used by many threads at once. Methods for one topic raise its error.
    Methods for many return a result or an error for each, in order. All methods raise BrokerUnavailableError if the
    broker cannot be reached or the connection breaks, and RequestTimeoutError if it does not answer within
    `request_timeout_seconds`. If the broker was reached, the change may have been made nevertheless; the message says
    so.
    """

    def __init__(self, broker: str, *, request_timeout_seconds: float = 10.0) -> None:
        """`broker` is "HOST:PORT" or "HOST:PORT,HOST:PORT".

        Calls that change nothing are repeated while the broker is away.
        """
        self._admin = admin.Admin(broker, request_timeout_seconds=request_timeout_seconds)

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
        *,
        exist_ok: bool = False,
        validate_only: bool = False,
    ) -> TopicInfo:
        """Create one topic durably. With `exist_ok`, an existing topic is returned unchanged, even if its partitions
        and configs differ.

        Raises TopicExistsError, InvalidTopicNameError, InvalidPartitionsError or InvalidConfigError.
        """
        return run(self._admin.create_topic(name, partitions, configs, exist_ok=exist_ok, validate_only=validate_only))

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicInfo | LogbrokerError]:
        """Create topics. `validate_only` checks everything and creates nothing."""
        return run(self._admin.create_topics(topics, validate_only=validate_only))

    def list_topics(self) -> list[TopicInfo]:
        """Return all topics, sorted by name."""
        return run(self._admin.list_topics())

    def describe_topic(self, name: str) -> TopicDescription:
        """Return the description of a topic. Raises UnknownTopicError."""
        return run(self._admin.describe_topic(name))

    def describe_topics(self, names: Sequence[str]) -> list[TopicDescription | LogbrokerError]:
        """Return the descriptions of these topics."""
        return run(self._admin.describe_topics(names))

    def alter_topic(
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
        return run(
            self._admin.alter_topic(
                name,
                partitions=partitions,
                set_configs=set_configs,
                unset_configs=unset_configs,
                validate_only=validate_only,
            )
        )

    def delete_topic(self, name: str) -> TopicInfo:
        """Delete a topic and its records durably. Return the facts of the deleted topic. Raises UnknownTopicError."""
        return run(self._admin.delete_topic(name))

    def delete_topics(self, names: Sequence[str]) -> list[TopicInfo | LogbrokerError]:
        """Delete topics and their records."""
        return run(self._admin.delete_topics(names))

    def delete_records(
        self, offsets: Mapping[TopicPartition, int | None]
    ) -> dict[TopicPartition, int | LogbrokerError]:
        """Delete the records below an offset of each partition durably; None: all records. Return where each log begins
        now, or the error.

        Queue groups lose the records as well, except those of their stalled lanes, which the broker copies first.
        """
        return run(self._admin.delete_records(offsets))

    def list_offsets(self, partitions: Sequence[TopicPartition], when: When) -> list[ListedOffset | LogbrokerError]:
        """Find the earliest or latest offset of each partition, or the first offset at or after a time."""
        return run(self._admin.list_offsets(partitions, when))

    def list_groups(self) -> list[GroupInfo]:
        """Return all groups, sorted by id."""
        return run(self._admin.list_groups())

    def describe_group(self, group: str) -> GroupDescription:
        """Return a group and its members. Raises UnknownGroupError."""
        return run(self._admin.describe_group(group))

    def describe_groups(self, group_ids: Sequence[str]) -> list[GroupDescription | LogbrokerError]:
        """Return these groups and their members."""
        return run(self._admin.describe_groups(group_ids))

    def group_lag(self, group: str) -> list[PartitionLag]:
        """Return the lag of a group in each partition that members hold or are assigned, or that has a committed
        offset. Of a topic in which offsets are committed but nothing is assigned, return all partitions. Raises
        UnknownGroupError."""
        return run(self._admin.group_lag(group))

    def delete_group(self, group: str) -> None:
        """Delete a group that has no members, with its offsets. Raises UnknownGroupError or GroupNotEmptyError."""
        run(self._admin.delete_group(group))

    def delete_groups(self, group_ids: Sequence[str]) -> list[LogbrokerError | None]:
        """Delete groups that have no members, with their offsets."""
        return run(self._admin.delete_groups(group_ids))

    def fetch_offsets(
        self, group: str, partitions: Sequence[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group in these partitions; with None, in all. Partitions without a
        committed offset are left out."""
        return run(self._admin.fetch_offsets(group, partitions))

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, LogbrokerError | None]:
        """Set and sync the committed offsets (the next ones to read) of a group without members. The group need not
        exist yet.

        Returns the error of each partition, or None. Raises GroupNotEmptyError.
        """
        return run(self._admin.commit_offsets(group, offsets))

    def describe_broker(self) -> BrokerDescription:
        """Return the broker's version, size and limits."""
        return run(self._admin.describe_broker())

    def close(self) -> None:
        """Close the connection."""
        if not self._admin._lifetime.is_forked:
            run(self._admin.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
