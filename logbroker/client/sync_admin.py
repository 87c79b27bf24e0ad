"""The synchronous Admin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from logbroker.client import admin
from logbroker.client.admin import BrokerDescription, NewTopic, TopicDescription
from logbroker.client.arguments import checks_arguments
from logbroker.client.group_offsets import CommittedOffset
from logbroker.client.groups import GroupDescription, GroupInfo, PartitionLag
from logbroker.client.metadata import TopicInfo
from logbroker.client.offsets import ListedOffset, When
from logbroker.client.sync_loop import run
from logbroker.errors import LogbrokerError
from logbroker.types import TopicPartition


@checks_arguments()
class Admin:
    """`logbroker.client.Admin` for programs without an event loop; each method is documented there."""

    def __init__(self, broker: str, *, request_timeout_seconds: float = 10.0) -> None:
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
        """Create one topic, durably; with `exist_ok`, one that is there already is returned as it is.

        Raises TopicExistsError, InvalidTopicNameError, InvalidPartitionsError or InvalidConfigError.
        """
        return run(self._admin.create_topic(name, partitions, configs, exist_ok=exist_ok, validate_only=validate_only))

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicInfo | LogbrokerError]:
        return run(self._admin.create_topics(topics, validate_only=validate_only))

    def list_topics(self) -> list[TopicInfo]:
        return run(self._admin.list_topics())

    def describe_topic(self, name: str) -> TopicDescription:
        return run(self._admin.describe_topic(name))

    def describe_topics(self, names: Sequence[str]) -> list[TopicDescription | LogbrokerError]:
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
        return run(self._admin.delete_topic(name))

    def delete_topics(self, names: Sequence[str]) -> list[TopicInfo | LogbrokerError]:
        return run(self._admin.delete_topics(names))

    def list_offsets(self, partitions: Sequence[TopicPartition], when: When) -> list[ListedOffset | LogbrokerError]:
        return run(self._admin.list_offsets(partitions, when))

    def list_groups(self) -> list[GroupInfo]:
        return run(self._admin.list_groups())

    def describe_group(self, group: str) -> GroupDescription:
        return run(self._admin.describe_group(group))

    def describe_groups(self, group_ids: Sequence[str]) -> list[GroupDescription | LogbrokerError]:
        return run(self._admin.describe_groups(group_ids))

    def group_lag(self, group: str) -> list[PartitionLag]:
        return run(self._admin.group_lag(group))

    def delete_group(self, group: str) -> None:
        run(self._admin.delete_group(group))

    def delete_groups(self, group_ids: Sequence[str]) -> list[LogbrokerError | None]:
        return run(self._admin.delete_groups(group_ids))

    def fetch_offsets(
        self, group: str, partitions: Sequence[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        return run(self._admin.fetch_offsets(group, partitions))

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, LogbrokerError | None]:
        return run(self._admin.commit_offsets(group, offsets))

    def describe_broker(self) -> BrokerDescription:
        return run(self._admin.describe_broker())

    def close(self) -> None:
        run(self._admin.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
