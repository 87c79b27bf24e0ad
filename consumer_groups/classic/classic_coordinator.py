"""The coordinator of a classic group, around its state machine (`group`). Requests wait here for the answers of the
state machine, which are given once the changes that they report are synced."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from logbroker.clock import Clock
from logbroker.consumer_groups.classic.errors import CoordinatorStoppingError
from logbroker.consumer_groups.classic.group import ClassicGroup
from logbroker.consumer_groups.classic.messages import ClassicAnswer, ClassicJoin, ClassicJoined, ClassicSynced
from logbroker.consumer_groups.group_shell import GroupShell, in_turns
from logbroker.consumer_groups.offsets import CommitOutcome, EndOffset, OffsetTable, StagedOffsets, TopicCommit
from logbroker.engine import DiskUse, StateEvent
from logbroker.errors import LogbrokerError
from logbroker.group_runtime.group_store import GroupStore
from logbroker.pacing import Pace

LEAVE_STEPS = 5
"""Steps of a `Pace` that it takes to let a member leave, or to find that there is none."""


class _ClassicStep(NamedTuple):
    """Changes that take effect once they are stored."""

    staged: StagedOffsets
    answers: Sequence[tuple[int, ClassicAnswer]]


class ClassicCoordinator(GroupShell[ClassicGroup]):
    """One classic group."""

    def __init__(
        self,
        group_id: str,
        machine: ClassicGroup,
        offsets: OffsetTable,
        store: GroupStore,
        clock: Clock,
        end_offset: EndOffset,
    ) -> None:
        super().__init__(group_id, machine, offsets, store, clock, end_offset)
        self._tickets = count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        """Requests that wait for their answer, by their tickets."""
        self._arm()

    # --- members ---

    def join(self, join: ClassicJoin) -> asyncio.Future[ClassicJoined]:
        """Let a member join the next generation. The future completes when the generation begins.

        Raises the errors of the state machine at once, or through the future.
        """
        ticket, future = self._new_ticket()
        self.machine.join(join, ticket, self._loop.time())
        return self._awaiting(ticket, future)

    def sync(
        self,
        member_id: str,
        instance_id: str,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
        assignments: Mapping[str, bytes],
    ) -> asyncio.Future[ClassicSynced]:
        """Take the leader's assignments, or ask for that of another member. The future completes when the member's own
        assignment is there.

        Raises the errors of the state machine at once, or through the future.
        """
        ticket, future = self._new_ticket()
        self.machine.sync(
            *(member_id, instance_id, generation, protocol_type, protocol, assignments), ticket, self._loop.time()
        )
        return self._awaiting(ticket, future)

    def heartbeat(self, member_id: str, instance_id: str, generation: int) -> None:
        """Note that a member was heard from. Raises the errors of the state machine."""
        self._check_running()
        self.machine.heartbeat(member_id, instance_id, generation, self._loop.time())

    async def leave(self, members: Sequence[tuple[str, str]]) -> list[LogbrokerError | None]:
        """Let members leave, each named by its id and instance id, and return the error of each."""
        self._check_running()
        outcomes: list[LogbrokerError | None] = []
        pace = Pace()
        for member_id, instance_id in members:
            self._check_running()
            try:
                self.machine.leave(member_id, instance_id, self._loop.time())
            except LogbrokerError as error:
                outcomes.append(error.as_value())
            else:
                outcomes.append(None)
            await pace.step(LEAVE_STEPS)
        await self._commits.synced(None)
        return outcomes

    async def commit(
        self, member_id: str, instance_id: str, generation: int, topics: Sequence[TopicCommit | LogbrokerError]
    ) -> list[CommitOutcome]:
        """Commit offsets for a member, or for a program that names no generation while the group is empty. The offsets
        may go back, since members may seek. Returns when they are synced."""

        def stage(part: Sequence[TopicCommit | LogbrokerError]) -> list[CommitOutcome]:
            try:
                self._check_running()
                self.machine.check_commit(member_id, instance_id, generation, self._loop.time())
                if not len(self.machine):
                    self.machine.detached_change()
                self.store.check_room(DiskUse.USES_RESERVE)
            except LogbrokerError as error:
                return [error.as_value()] * len(part)
            return self._stage(part, None)

        outcomes = await in_turns(topics, stage)
        await self._commits.synced(None)
        return outcomes

    # --- the group ---

    @property
    def is_active(self) -> bool:
        return super().is_active or self.machine.has_pending

    def stop_waiting(self) -> None:
        """Refuse all requests that wait, and later ones, because the broker stops. Members stay: they come back after
        the restart."""
        self.freeze()
        self._refuse_all(_stopping())

    def end(self, error: LogbrokerError) -> None:
        super().end(error)
        self._refuse_all(error)
        self.machine.leave_budget()

    def _refuse_all(self, error: LogbrokerError) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            _complete(future, error.anew())

    def _new_ticket(self) -> tuple[int, asyncio.Future[Any]]:
        self._check_running()
        self.store.check_room(DiskUse.USES_RESERVE)
        return next(self._tickets), self._loop.create_future()

    def _awaiting(self, ticket: int, future: asyncio.Future[Any]) -> asyncio.Future[Any]:
        self._waiting[ticket] = future
        self._commits.request()
        return future

    def _check_running(self) -> None:
        if self._closed_by is not None:
            raise self._closed_by.anew()
        if self._frozen:
            raise _stopping()

    # --- steps ---

    def _step(self) -> tuple[Sequence[StateEvent], _ClassicStep]:
        if self._is_time and not self._frozen:
            self._is_time = False
            self.machine.tick(self._loop.time())
        dropped = self._drop_topics_now()
        outputs = self.machine.take_outputs(self._clock.wall_ms())
        staged = self.offsets.take_staged()
        return [*outputs.events, *dropped, *staged.events()], _ClassicStep(staged, outputs.answers)

    def _on_synced(self, step: _ClassicStep) -> None:
        self.offsets.apply(step.staged)
        for ticket, answer in step.answers:
            future = self._waiting.pop(ticket, None)
            if future is not None:
                _complete(future, answer)
        self._arm()

    def _on_failed(self, error: LogbrokerError) -> None:
        self._closed_by = error
        self._refuse_all(error)


def _stopping() -> CoordinatorStoppingError:
    return CoordinatorStoppingError("the broker stops: find the coordinator again in a moment")


def _complete(future: asyncio.Future[Any], answer: ClassicAnswer) -> None:
    if future.done():
        return  # The client is gone.
    if isinstance(answer, LogbrokerError):
        future.set_exception(answer)
        future.exception()  # Perhaps the client is gone.
    else:
        future.set_result(answer)
