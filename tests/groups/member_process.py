"""A member of a group in a process of its own, that writes down all that it does. It is told what to do by lines.

    leave     close the consumer, and end
    zombie    if everything was lost since the process was frozen: commit what was held then, under the epoch of then

It ends at once when whoever holds the other end of its orders is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import sys
import zlib
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any, Final

import msgspec

from logbroker.client import Consumer, Convoy
from logbroker.client.consumer import consumer, group_reader, ownership_deadline
from logbroker.client.consumer.cursor import Record
from logbroker.client.consumer.group_messages import Offsets, failures_of, topic_offsets
from logbroker.client.consumer.member import GroupMember
from logbroker.client.consumer.membership import MembershipState
from logbroker.client.convoy import feeds
from logbroker.client.convoy.done_offsets import decode
from logbroker.errors import BrokerUnavailableError, InstanceIdInUseError, LogbrokerError
from logbroker.types import TopicPartition
from logbroker.v1 import groups_pb2
from tests.groups.group_history import (
    Assigned,
    CommitBegun,
    CommitEnded,
    Delivered,
    Handled,
    Lost,
    Revoked,
    Stalled,
)
from tests.groups.group_plants import CLIENT_PLANTS, CONVOY_PLANTS
from tests.history import HistoryFile

LOOP, MANUAL, POLL = MODES = ("loop", "manual", "poll")
"""How a program may read: record by record with commits by and by; with commits of its own; in lists."""
CONVOY: Final = "convoy"
"""Many keys at once, in any order."""
_KEYS: Final = 40

_TICK_SECONDS: Final = 0.05
_STALL_SECONDS: Final = 0.3
_ZOMBIE_SECONDS: Final = 5.0
_ZOMBIE_CORRELATION_ID: Final = 1 << 60


class MemberSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Start parameters of a member process."""

    name: str
    broker: str
    group: str
    topics: list[str]
    history_path: str
    mode: str = LOOP
    session_timeout_seconds: float = 1.0
    instance_id: str | None = None
    release_seconds: float = 0.0
    """How long it takes at most to let go of partitions."""
    handle_seconds: float = 0.0
    """How long it takes at most over a record."""
    plant: str = ""


def run(spec: MemberSpec, orders: Connection) -> None:
    """Be the member; what a process of multiprocessing runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for whoever started it
    logging.basicConfig(filename=f"{spec.history_path}.log", level=logging.INFO, force=True)
    if spec.plant:
        {**CLIENT_PLANTS, **CONVOY_PLANTS}[spec.plant]()
    asyncio.run(_MemberProcess(spec, orders.fileno()).run())


class _Clock:
    """The client's: remembers when it was last looked at, to see whether the program may be told or given something."""

    def __init__(self) -> None:
        self._seen_at = 0.0
        self._is_used = True
        for module in (consumer, group_reader, ownership_deadline, feeds):
            setattr(module, "monotonic", self._look)  # noqa: B010

    def _look(self) -> float:
        self._seen_at, self._is_used = monotonic(), False
        return self._seen_at

    def take(self) -> float:
        """Return the moment of the last look, for the one thing that it allowed; without a new look: now."""
        at = monotonic() if self._is_used else self._seen_at
        self._is_used = True
        return at


class _MemberProcess:
    def __init__(self, spec: MemberSpec, orders_fd: int) -> None:
        self._spec = spec
        self._orders_fd = orders_fd
        self._file = HistoryFile(Path(spec.history_path), spec.name)
        self._clock = _Clock()
        self._rng = random.Random(spec.name)
        self._commits = 0
        self._reading: asyncio.Task[None] | None = None
        self._running = set[tuple[TopicPartition, int]]()
        """The keys whose records a convoy runs now."""
        self._others: list[asyncio.Task[None]] = []
        self._held: tuple[int, int, Offsets] = (0, 0, {})
        """The losses and the epoch of the last commit that was tried, and what it was."""

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        self._write_down_commits()
        loop.add_reader(self._orders_fd, self._on_order)
        self._others = [asyncio.create_task(self._watch_time())]
        spec = self._spec
        async with Consumer(
            spec.broker,
            group=spec.group,
            auto_commit=spec.mode != MANUAL,
            auto_commit_interval_seconds=0.15,
            instance_id=spec.instance_id,
            session_timeout_seconds=spec.session_timeout_seconds,
            rebalance_timeout_seconds=15,
        ) as self._consumer:
            self._reading = asyncio.create_task(self._read())
            await asyncio.wait([self._reading])
            if not self._reading.cancelled():
                self._reading.result()
        for task in self._others:
            task.cancel()
        loop.remove_reader(self._orders_fd)

    def _on_order(self) -> None:
        received = os.read(self._orders_fd, 1000)
        if not received:
            os._exit(1)
        for order in received.split():
            if order == b"leave" and self._reading is not None:
                self._reading.cancel()
            elif order == b"zombie":
                self._others.append(asyncio.create_task(self._commit_as_zombie(*self._held)))

    async def _watch_time(self) -> None:
        last = monotonic()
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = monotonic()
            if now - last > _STALL_SECONDS:
                self._file.write(Stalled, at=last, seconds=now - last)
            last = now

    # --- the program -------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        await self._subscribe()
        read = {
            LOOP: self._read_records,
            MANUAL: self._read_and_commit,
            POLL: self._read_lists,
            CONVOY: self._run_convoy,
        }[self._spec.mode]
        while True:
            try:
                await read()
            except BrokerUnavailableError as error:
                # The broker was away for longer than a request may take.
                logging.info("go on after: %s", error)

    async def _subscribe(self) -> None:
        while True:
            with contextlib.suppress(BrokerUnavailableError, InstanceIdInUseError):
                # A static member's new life may be quicker than the news of the old one's death.
                return await self._consumer.subscribe(
                    *self._spec.topics,
                    on_assigned=self._on_assigned,
                    on_revoked=self._on_revoked,
                    on_lost=lambda partitions: self._file.write(Lost, partitions=partitions),
                )
            await asyncio.sleep(0.05)

    def _on_assigned(self, partitions: list[TopicPartition]) -> None:
        positions = [(each, self._consumer.position(each)) for each in partitions]
        self._file.write(Assigned, at=self._clock.take(), positions=positions)

    async def _on_revoked(self, partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(self._rng.uniform(0, self._spec.release_seconds))
        self._file.write(Revoked, partitions=partitions)

    async def _read_records(self) -> None:
        async for record in self._consumer:
            await self._handle([record])

    async def _read_lists(self) -> None:
        while True:
            records = await self._consumer.poll(max_records=50, timeout_seconds=0.2)
            if records:
                await self._handle(records)

    async def _read_and_commit(self) -> None:
        while True:
            count = self._rng.randint(1, 20)
            records = await self._consumer.poll(max_records=count, timeout_seconds=0.2)
            if not records:
                continue
            await self._handle(records)
            try:
                await self._consumer.commit()
            except LogbrokerError as error:
                logging.info("not committed: %s", error)

    async def _handle(self, records: Sequence[Record]) -> None:
        found = [(TopicPartition(each.topic, each.partition), each.offset, each.value) for each in records]
        self._file.write(Delivered, at=self._clock.take(), records=found)
        if self._spec.handle_seconds and self._rng.random() < 0.2:
            await asyncio.sleep(self._rng.uniform(0, self._spec.handle_seconds))
        self._file.write(Handled, records=[(partition, offset) for partition, offset, _ in found])

    async def _run_convoy(self) -> None:
        convoy = Convoy(
            self._consumer,
            concurrency=12,
            key=lambda record: key_of(record.value),
            backoff_initial_seconds=0.02,
            backoff_cap_seconds=0.05,
            max_attempts=1_000,
            max_records=400,
        )
        await convoy.run(self._handle_in_convoy)

    async def _handle_in_convoy(self, record: Record) -> None:
        partition, value = TopicPartition(record.topic, record.partition), record.value
        assert value is not None
        key = partition, key_of(value)
        self._file.write(Delivered, at=self._clock.take(), records=[(partition, record.offset, value)])
        assert key not in self._running, f"{key} runs twice"
        self._running.add(key)
        try:
            if self._rng.random() < 0.3:
                await asyncio.sleep(self._rng.uniform(0, self._spec.handle_seconds))
            if self._rng.random() < 0.02:
                raise ValueError("not this time")
        finally:
            self._running.discard(key)
        self._file.write(Handled, records=[(partition, record.offset)])

    # --- commits -----------------------------------------------------------------------------------------------------

    def _write_down_commits(self) -> None:
        """Let every commit of this process, those of the client itself too, be written down."""
        commit = GroupMember.commit

        async def written_down(
            member: GroupMember,
            offsets: Offsets,
            deadline: float | None = None,
            texts: Mapping[TopicPartition, str] | None = None,
        ) -> dict[TopicPartition, LogbrokerError]:
            membership = member.membership
            self._held = (membership.losses, membership.epoch, offsets)
            with self._commit(offsets, texts or {}) as refused:
                failures = await commit(member, offsets, deadline, texts)
                refused.update(failures)
            return failures

        GroupMember.commit = written_down  # type: ignore[method-assign, assignment]

    @contextlib.contextmanager
    def _commit(self, offsets: Offsets, texts: Mapping[TopicPartition, str] = {}, *, stale: bool = False) -> Any:
        self._commits += 1
        number = self._commits
        wanted = [(partition, offset) for partition, (_, offset) in offsets.items()]
        decoded = [(partition, decode(text, offsets[partition][1])) for partition, text in texts.items()]
        done = [(partition, list(each.ranges)) for partition, each in decoded if each is not None]
        self._file.write(CommitBegun, number=number, offsets=wanted, done=done, stale=stale)
        refused: dict[TopicPartition, LogbrokerError] = {}
        answered = False
        try:
            yield refused
            answered = True
        finally:
            reasons = [(partition, error.reason) for partition, error in refused.items()]
            self._file.write(CommitEnded, number=number, answered=answered, refused=reasons)

    async def _commit_as_zombie(self, losses: int, epoch: int, offsets: Offsets) -> None:
        """Send the commit of a membership that is over to the broker, past all that the client knows."""
        reader = self._consumer._core._group
        assert reader is not None
        member = reader.member
        deadline = monotonic() + _ZOMBIE_SECONDS
        while member.membership.losses == losses or member.membership.state is not MembershipState.MEMBER:
            if not offsets or monotonic() > deadline:
                return
            await asyncio.sleep(0.01)
        with contextlib.suppress(BrokerUnavailableError, TimeoutError), self._commit(offsets, stale=True) as refused:
            answered = member._commits[_ZOMBIE_CORRELATION_ID] = asyncio.get_running_loop().create_future()
            topics = topic_offsets(offsets)
            member._send(commit=groups_pb2.Commit(correlation_id=_ZOMBIE_CORRELATION_ID, epoch=epoch, topics=topics))
            async with asyncio.timeout(_ZOMBIE_SECONDS):
                refused.update(failures_of(offsets, await answered))


def key_of(value: bytes | None) -> int:
    """Return the key by which a convoy orders a record: from its value, so that records of few keys are enough."""
    return zlib.crc32(value or b"") % _KEYS


def main() -> None:
    """Run one member, described by the first argument; its orders come by the standard input."""
    spec = msgspec.json.decode(sys.argv[1], type=MemberSpec)
    run(spec, Connection(0, writable=False))


if __name__ == "__main__":
    main()
