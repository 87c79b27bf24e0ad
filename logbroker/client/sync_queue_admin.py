"""The synchronous QueueAdmin."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from logbroker.client import queue_admin
from logbroker.client.arguments import checks_arguments
from logbroker.client.groups import GroupInfo
from logbroker.client.queue_admin import Lane, QueueStart
from logbroker.client.queue_descriptions import (
    DecidedAll,
    Decision,
    LaneDescription,
    LaneOrder,
    QueueDescription,
    QueueSettings,
    Redriven,
    RewoundPartition,
)
from logbroker.client.sync_loop import run
from logbroker.errors import LogbrokerError
from logbroker.record.codec import Headers


@checks_arguments()
class QueueAdmin:
    """`logbroker.client.QueueAdmin` for programs without an event loop; each method is documented there."""

    def __init__(self, broker: str, *, request_timeout_seconds: float = 10.0) -> None:
        self._admin = queue_admin.QueueAdmin(broker, request_timeout_seconds=request_timeout_seconds)

    def create_queue(
        self, group: str, topic: str, settings: QueueSettings | None = None, *, start: QueueStart = "earliest"
    ) -> tuple[QueueDescription, bool]:
        return run(self._admin.create_queue(group, topic, settings, start=start))

    def list_queues(self) -> list[GroupInfo]:
        return run(self._admin.list_queues())

    def describe_queue(self, group: str) -> QueueDescription:
        return run(self._admin.describe_queue(group))

    def describe_queues(self, groups: Sequence[str]) -> list[QueueDescription | LogbrokerError]:
        return run(self._admin.describe_queues(groups))

    def alter_queue(self, group: str, settings: QueueSettings) -> tuple[QueueDescription, bool]:
        return run(self._admin.alter_queue(group, settings))

    def delete_queue(self, group: str) -> None:
        run(self._admin.delete_queue(group))

    def list_lanes(
        self, group: str, *, order: LaneOrder = "hottest", top: int = 20
    ) -> tuple[list[LaneDescription], int]:
        return run(self._admin.list_lanes(group, order=order, top=top))

    def explain_lane(self, group: str, key: bytes) -> LaneDescription:
        return run(self._admin.explain_lane(group, key))

    def resume_lane(self, group: str, lane: Lane) -> None:
        run(self._admin.resume_lane(group, lane))

    def skip_head(self, group: str, lane: Lane) -> int:
        return run(self._admin.skip_head(group, lane))

    def drop_lane(self, group: str, lane: Lane) -> int:
        return run(self._admin.drop_lane(group, lane))

    def decide_all(self, group: str, decision: Decision) -> DecidedAll:
        return run(self._admin.decide_all(group, decision))

    def replace_head(
        self, group: str, lane: Lane, value: bytes | None, *, key: bytes | None = None, headers: Headers = ()
    ) -> None:
        run(self._admin.replace_head(group, lane, value, key=key, headers=headers))

    def redrive(
        self, group: str, *, key: bytes | None = None, dry_run: bool = False, max_records: int | None = None
    ) -> Redriven:
        return run(self._admin.redrive(group, key=key, dry_run=dry_run, max_records=max_records))

    def rewind(
        self,
        group: str,
        to: QueueStart | int,
        *,
        partitions: Sequence[int] = (),
        include_parked: bool = False,
        drop_standing: bool = False,
        dry_run: bool = False,
    ) -> list[RewoundPartition]:
        return run(
            self._admin.rewind(
                group,
                to,
                partitions=partitions,
                include_parked=include_parked,
                drop_standing=drop_standing,
                dry_run=dry_run,
            )
        )

    def close(self) -> None:
        run(self._admin.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
