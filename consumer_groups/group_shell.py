"""The common part of the coordinators, the code around the state machines of groups: committed offsets, transactions
and the deletion of the group.

Inputs are processed at once, in the order in which they arrive. Their results gather until the previous transaction is
synced, and go into the next one together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, Final, Generic, Protocol, TypeVar

from logbroker.clock import Clock
from logbroker.consumer_groups.offsets import (
    CommitOutcome,
    EndOffset,
    Failures,
    Floors,
    OffsetTable,
    TopicCommit,
)
from logbroker.consumer_groups.rows import HEADER_ROW
from logbroker.engine import DiskUse, StateEvent
from logbroker.errors import GroupNotEmptyError, LogbrokerError, UnknownGroupError
from logbroker.group_runtime.group_commit import GroupCommit
from logbroker.group_runtime.group_store import GroupStore
from logbroker.group_runtime.timer import Timer
from logbroker.pacing import Pace
from logbroker.types import PartitionKey, TopicId

SLICE_PARTITIONS: Final = 500
"""Number of partitions that are staged in one go."""


class GroupMachine(Protocol):
    """The parts of a state machine that `GroupShell` needs."""

    empty_since_ms: int

    def __len__(self) -> int: ...
    def detached_change(self) -> None: ...
    def deadline(self) -> float: ...
    def is_due(self, now: float) -> bool: ...


M = TypeVar("M", bound=GroupMachine)


class GroupShell(Generic[M]):
    """One group. It runs on the event loop, with one transaction at a time."""

    def __init__(
        self,
        group_id: str,
        machine: M,
        offsets: OffsetTable,
        store: GroupStore,
        clock: Clock,
        end_offset: EndOffset,
    ) -> None:
        self.group_id = group_id
        self.machine = machine
        self.offsets = offsets
        self.store = store
        self._clock = clock
        self._end_offset = end_offset
        self._loop = asyncio.get_running_loop()
        self._commits: GroupCommit[Any] = GroupCommit(
            f"group {group_id}", store, self._step, self._on_synced, self._on_failed
        )
        self._is_time = False
        self._timer = Timer(self._on_time)
        self._frozen = False
        self._closed_by: LogbrokerError | None = None
        self._topic_ids: Set[TopicId] | None = None
        """Ids of the existing topics, if offsets of other topics have to be dropped."""

    # --- commits of programs that are not members ---

    async def commit_offsets(self, topics: Sequence[TopicCommit | LogbrokerError]) -> list[CommitOutcome]:
        """Commit offsets for a program that is not a member. The offsets may go back. Returns when they are synced.

        Raises GroupNotEmptyError or DiskFullError.
        """
        self.store.check_room(DiskUse.USES_RESERVE)
        self._detached_change()
        if is_small(topics):
            outcomes = self._stage(topics, None)
        else:
            outcomes = await in_turns(topics, self._stage_detached)
        await self._commits.synced(None)
        return outcomes

    async def delete_offsets(self, partitions: Iterable[PartitionKey]) -> None:
        """Delete the committed offsets of partitions; those without one are ignored. Returns when they are gone from
        the store."""
        if self._closed_by is not None:
            raise self._closed_by.anew()
        self.store.check_room(DiskUse.USES_RESERVE)
        for topic_id, partition in partitions:
            self.offsets.stage_deletion(topic_id, partition)
        await self._commits.synced(None)

    def _detached_change(self) -> None:
        if self._closed_by is not None:
            raise self._closed_by.anew()
        self.machine.detached_change()

    def _stage_detached(self, topics: Sequence[TopicCommit | LogbrokerError]) -> list[CommitOutcome]:
        """Stage a part of a commit, unless members have joined since the commit began."""
        try:
            self._detached_change()
        except LogbrokerError as error:
            return [error.as_value()] * len(topics)
        return self._stage(topics, None)

    def _stage(self, topics: Sequence[TopicCommit | LogbrokerError], floors: Floors | None) -> list[CommitOutcome]:
        now_ms = self._clock.wall_ms()
        stage, end_offset = self.offsets.stage, self._end_offset
        return [
            topic if isinstance(topic, LogbrokerError) else stage(topic, floors, end_offset, now_ms) for topic in topics
        ]

    # --- the group ---

    @property
    def is_storing(self) -> bool:
        """Whether changes are on their way to the store. `settle` waits for them, and for nothing else."""
        return self._commits.is_running

    @property
    def is_active(self) -> bool:
        """Whether the group has members, or offsets that may be on their way to the store."""
        return bool(len(self.machine)) or self.is_storing

    def drop_topics(self, topic_ids: Set[TopicId]) -> None:
        """Drop the offsets of topics that do not exist any more."""
        if self.is_active or not self.offsets.topic_ids() <= topic_ids:
            self._topic_ids = topic_ids
            self._commits.request()

    def is_expired(self, retention_ms: int) -> bool:
        """Return whether the group has had no members and no commits for this long, by the wall clock."""
        if self.is_active:
            return False
        last_used_ms = max(self.machine.empty_since_ms, self.offsets.last_commit_ms)
        return last_used_ms + retention_ms <= self._clock.wall_ms()

    async def delete(self) -> None:
        """Delete everything stored. Raises GroupNotEmptyError. Nobody may join during this call or after it."""
        if len(self.machine):
            raise GroupNotEmptyError(
                f"the group has members ({len(self.machine)}): stop them, or wait until their sessions have timed out"
            )
        await self.settle()
        # The group is closed first, so that it stores nothing after the deletion: the rows may then belong to a new
        # group of the same name.
        self.close(UnknownGroupError(f"group {self.group_id} was deleted"))
        await self.store.delete([StateEvent(HEADER_ROW, None), *self.offsets.drop_topics(lambda _: False)])

    def close(self, error: LogbrokerError) -> None:
        """Change nothing any more, because the rows and the offsets are deleted, or belong to another object from now
        on. Later callers get the error."""
        self.freeze()
        self._closed_by = error
        self._commits.close(error)

    def end(self, error: LogbrokerError) -> None:
        """End the group in this process, which keeps nothing of it in the shared budgets. Whoever still uses it gets
        the error."""
        self.close(error)
        self.offsets.leave_budget()

    def freeze(self) -> None:
        """Stop timeouts, because the broker stops: members do not expire any more."""
        self._frozen = True
        self._timer.stop()

    async def settle(self) -> None:
        """Wait for the running transactions."""
        await self._commits.settle()

    # --- steps ---

    def _step(self) -> tuple[Sequence[StateEvent], Any]:
        """Make the decisions that are due; return everything gathered, and what `_on_synced` gets when it is stored."""
        raise NotImplementedError

    def _on_synced(self, step: Any) -> None:
        raise NotImplementedError

    def _on_failed(self, error: LogbrokerError) -> None:
        """Note that nothing more is stored."""

    def _drop_topics_now(self) -> list[StateEvent]:
        """Return the rows to delete with the offsets of deleted topics."""
        if self._topic_ids is None:
            return []
        topic_ids, self._topic_ids = self._topic_ids, None
        return self.offsets.drop_topics(topic_ids.__contains__)

    # --- time ---

    def _arm(self) -> None:
        self._timer.arm(self.machine.deadline())

    def _on_time(self) -> None:
        # Usually all members were heard from meanwhile, and no step is needed. A step and its task for each heartbeat
        # would be the main cost of idle members.
        if self.machine.is_due(self._loop.time()):
            self._is_time = True
            self._commits.request()
        else:
            self._arm()


def is_small(topics: Sequence[TopicCommit | LogbrokerError]) -> bool:
    """Return whether a commit may be staged in one go."""
    partitions = sum(len(topic.partitions) for topic in topics if isinstance(topic, TopicCommit))
    return len(topics) + partitions <= SLICE_PARTITIONS


async def in_turns(
    topics: Sequence[TopicCommit | LogbrokerError],
    stage: Callable[[Sequence[TopicCommit | LogbrokerError]], list[CommitOutcome]],
) -> list[CommitOutcome]:
    """Stage a commit in several turns."""
    pace = Pace()
    outcomes: list[CommitOutcome] = []
    for topic in topics:
        if isinstance(topic, LogbrokerError) or len(topic.partitions) <= SLICE_PARTITIONS:
            outcomes += stage((topic,))
            await pace.step(5 if isinstance(topic, LogbrokerError) else 5 + 2 * len(topic.partitions))
            continue
        failures: Failures = []
        for start in range(0, len(topic.partitions), SLICE_PARTITIONS):
            part = topic.part(start, start + SLICE_PARTITIONS)
            (outcome,) = stage((part,))
            if isinstance(outcome, LogbrokerError):
                failures += [(number, outcome) for number in part.partitions]
            else:
                failures += outcome
            await pace.step(2 * len(part.partitions))
        outcomes.append(failures)
    return outcomes
