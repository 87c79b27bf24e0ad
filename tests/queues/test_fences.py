"""Receipts and fencing tokens: none is given out twice, and none settles what it was not given for, whatever happens to
groups, topics, the broker, its metadata and its clock."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from logbroker.broker.local_engine import lifetime
from logbroker.broker.local_engine.numbers import ReceiptNumbers
from logbroker.broker.local_engine.state_store import state_key
from logbroker.engine import Append, Appended
from logbroker.errors import (
    LeaseLostError,
    LogbrokerError,
    OverloadedError,
    PartitionOfflineError,
    UnknownGroupError,
)
from logbroker.queues import group as queue_group
from logbroker.queues import registry as queue_groups
from logbroker.queues.delivery.worker_stream import WorkerLink
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.messages import Extension, Nack, SessionWrite, Settlement
from logbroker.queues.model.settings import GROUP_TYPE, OnExhausted, QueueGroupSettings
from logbroker.queues.model.starts import StartAt
from logbroker.queues.model.worker_messages import ListedSession
from logbroker.queues.state.rows import HEADER_ROW, SESSION_ROW, VERSION, HeaderRow, hashed_key, upsert
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.storage.metadata.metadata_store import MetadataStore
from logbroker.tools.metadata_backup import Backup, back_up
from logbroker.tools.metadata_restore import extracted, plan_restore, restore
from tests.queues.shell import Shell, ack, hello, nack, shell, take, until

DAY_NS = 24 * 3600 * 10**9
NAMES = ("g", "h")
KEYS = (b"s1", b"s2")
LATE_ONES = 12
"""Old receipts that are tried at a time, beside the first and the last."""


class Clock:
    """The machine's wall clock, for broker and tools alike; `step` turns it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        real = time.time_ns
        self.ahead_ns = 0
        patch.setattr(time, "time_ns", lambda: real() + self.ahead_ns)

    def step(self, days: int) -> None:
        self.ahead_ns += days * DAY_NS


def restored(backup: Backup, data_dir: Path) -> None:
    with extracted(backup, data_dir) as store:
        restore(plan_restore(backup, store, data_dir), store, data_dir)


class Fences:
    """Two groups, through many lives; all that they ever gave out."""

    def __init__(self, path: Path, chance: random.Random, clock: Clock) -> None:
        self.path = path
        self.chance = chance
        self.clock = clock
        self.receipts: dict[str, list[int]] = {name: [] for name in NAMES}
        self.tokens: dict[str, list[tuple[bytes, int]]] = {name: [] for name in NAMES}
        self.held: dict[str, set[int]] = {}
        self.sessions: dict[str, dict[bytes, int]] = {}
        self.links: dict[str, WorkerLink] = {}
        self.backups: list[Backup] = []
        self.incarnation = 0
        self.history: list[str] = []
        self.opened: Shell

    # --- lives ---

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        crash = self.chance.random() < 0.5
        self.history.append("start, to crash" if crash else "start")
        async with shell(self.path, crash=crash) as self.opened:
            self.forget(*NAMES)
            await self.delete_again()
            yield

    async def delete_again(self) -> None:
        """A restored backup brings a topic back that was deleted since, without its files."""
        engine = self.opened.engine
        for topic in engine.topics():
            try:
                engine.partition_facts(topic.id, 0)
            except PartitionOfflineError:
                await self.delete_topic(topic.name)

    def forget(self, *names: str) -> None:
        for name in names:
            self.held[name] = set()
            self.sessions[name] = {}
            self.links.pop(name, None)

    def between(self) -> None:
        """Do what an operator does to a broker that does not run."""
        what = self.chance.choice(("nothing", "back up", "restore", "restore", "lose the file"))
        self.history.append(what)
        data_dir = self.path / "data"
        if what == "back up" or not self.backups:
            self.backups.append(back_up(data_dir, self.path / f"{len(self.backups)}.backup")[0])
        elif what == "restore":
            self.clock.step(self.chance.choice((-1, 0, 0, 1)))
            restored(self.chance.choice(self.backups), data_dir)
        elif what == "lose the file":
            (data_dir / "issued-numbers").unlink(missing_ok=True)  # By itself it takes nothing back.
            return
        self.clock.step(self.chance.choice((-1, 0, 0, 1)))

    # --- steps ---

    async def group(self, name: str) -> QueueGroup:
        """The group, created where it is not there."""
        try:
            return self.opened.groups.group(name)
        except UnknownGroupError:
            engine = self.opened.engine
            topics = {topic.name for topic in engine.topics()}
            topic = engine.topic("t") if "t" in topics else await engine.create_topic("t", 1, {})
            settings = QueueGroupSettings(grace_seconds=0.0, backoff_jitter=0.0)
            return (await self.opened.groups.create(name, topic, settings, StartAt(latest=True)))[0]

    async def link(self, name: str) -> WorkerLink:
        if name not in self.links:
            self.incarnation += 1
            group = await self.group(name)
            self.links[name] = await group.connect(hello(incarnation=self.incarnation))
        return self.links[name]

    async def hand_out(self, name: str) -> None:
        link = await self.link(name)
        count = self.chance.randrange(1, 4)
        await self.append(count)
        for receipt, _ in await take(link, count):
            assert receipt > max(self.receipts[name], default=0), f"receipt {receipt} came before: {self.history}"
            self.receipts[name].append(receipt)
            self.held[name].add(receipt)

    async def append(self, count: int) -> None:
        """Records of keys of their own; no clock stamps them but the test's."""
        new = [NewRecord(value=b"v", key=b"%x" % self.chance.getrandbits(64), timestamp_ms=1) for _ in range(count)]
        append = Append(self.opened.engine.topic("t").id, 0, encode_batch(new))
        async with asyncio.timeout(30):
            [result] = await self.opened.engine.append([append])
            while isinstance(result, OverloadedError):  # A kill took the index, and a thread makes it anew.
                await asyncio.sleep(0.01)
                [result] = await self.opened.engine.append([append])
        assert isinstance(result, Appended), result

    async def open_session(self, name: str) -> None:
        link = await self.link(name)
        key = self.chance.choice(KEYS)
        if key in self.sessions[name]:
            await link.close_session(key, self.sessions[name].pop(key))
        token = (await link.open_session(key, wait_seconds=10)).token
        before = max((token for _, token in self.tokens[name]), default=0)
        assert token > before, f"token {token} is not above {before}: {self.history}"
        self.tokens[name].append((key, token))
        self.sessions[name][key] = token

    async def settle(self, name: str) -> None:
        """Settle half of the receipts held: each is accepted."""
        link = await self.link(name)
        for receipt in self.chance.sample(sorted(self.held[name]), len(self.held[name]) // 2):
            await ack(link, receipt)
            self.held[name].discard(receipt)

    async def come_late(self, name: str) -> None:
        """Nothing that was given out for anything else settles anything."""
        link = await self.link(name)
        old = sorted(set(self.receipts[name]) - self.held[name])
        for receipt in [*old[:1], *old[-1:], *self.chance.sample(old, min(LATE_ONES, len(old)))]:
            span = [(receipt, receipt)]
            settlement = self.chance.choice(
                (
                    Settlement(acks=span),
                    Settlement(nacks=[Nack(receipt, receipt, "late")]),
                    Settlement(releases=span),
                    Settlement(extensions=[Extension(receipt, receipt, 30.0)]),
                )
            )
            refusals = await link.settle(settlement)
            assert [(each.first, each.last) for each in refusals] == span, f"{receipt} was settled: {self.history}"
        for key, token in self.chance.sample(self.tokens[name], min(LATE_ONES, len(self.tokens[name]))):
            if self.sessions[name].get(key) == token:
                continue
            with pytest.raises(LogbrokerError):
                link.renew_session(key, token)
            with pytest.raises(LogbrokerError):
                await link.close_session(key, token)
            assert await link.settle(Settlement(states=[SessionWrite(key, token, b"late")]))
        for key, token in self.sessions[name].items():
            link.renew_session(key, token)

    async def delete_group(self, name: str) -> None:
        await self.group(name)
        await self.opened.groups.delete(name)
        self.forget(name)

    async def delete_topic(self, name: str) -> None:
        engine = self.opened.engine
        for topic in engine.topics():
            if topic.name == "t":
                await engine.delete_topic(topic.id)
        await until(lambda: not self.opened.groups.ids())
        self.forget(*NAMES)

    async def walk(self, steps: int) -> None:
        kinds: list[tuple[int, Callable[[str], Awaitable[None]]]] = [
            (6, self.hand_out),
            (3, self.open_session),
            (3, self.settle),
            (4, self.come_late),
            (2, self.delete_group),
            (1, self.delete_topic),
        ]
        for _ in range(steps):
            [step] = self.chance.choices([kind for _, kind in kinds], [weight for weight, _ in kinds])
            name = self.chance.choice(NAMES)
            self.history.append(f"{step.__name__} {name}")
            await step(name)


async def wander(path: Path, clock: Clock, lives: int = 10) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201  # Shown where it fails.
    fences = Fences(path, random.Random(seed), clock)
    for _ in range(lives):
        async with fences.life():
            await fences.walk(12)
        fences.between()
    assert all(fences.receipts.values())


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("reserved", [queue_group.NUMBERS, 8], ids=["many", "few"])
@pytest.mark.parametrize("turn", range(3))
async def test_nothing_that_was_given_out_comes_again_or_settles_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turn: int, reserved: int
) -> None:
    """`reserved`: numbers at a time; a group with few has to wait for more again and again."""
    for module in (queue_group, queue_groups):
        monkeypatch.setattr(module, "NUMBERS", reserved)
    monkeypatch.setattr(queue_group, "MIN_NUMBERS", min(queue_group.MIN_NUMBERS, 4))
    await wander(tmp_path, Clock(monkeypatch))


def file_is_not_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lifetime, "read_issued", lambda directory, files: None)


def file_is_not_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lifetime, "write_issued", lambda *arguments: None)


def deleted_groups_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queue_groups.QueueGroupRegistry, "_new_epoch", first_epoch)


async def first_epoch(self: queue_groups.QueueGroupRegistry) -> int:
    await self._store.numbers.reserve(self._next_epoch + queue_group.NUMBERS)
    return cast(ReceiptNumbers, self._store.numbers).first


PLANTS = (file_is_not_read, file_is_not_written, deleted_groups_are_forgotten)


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
async def test_a_planted_bug_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    plant(monkeypatch)
    clock = Clock(monkeypatch)

    async def wander_on() -> None:
        for turn in range(30):
            await wander(tmp_path / str(turn), clock)

    with pytest.raises(AssertionError, match=r"came before|is not above|was settled"):
        await wander_on()


async def test_a_directory_of_a_broker_that_counted_epochs_goes_on_above_them(tmp_path: Path) -> None:
    """Receipts had the group epoch as their upper bits; a session that was held over a crash keeps its token."""
    async with shell(tmp_path, crash=True) as opened:
        topic = await opened.topic()
        await opened.append((b"a", b"a1"), (b"b", b"b1"))
        group = await opened.group(grace_seconds=60)
        token = (await (await group.connect(hello())).open_session(b"a")).token
    old_token = (200_000 << 44) + token % 1000
    store = MetadataStore.open(tmp_path / "data" / "meta", on_failure=print)
    header = upsert(HEADER_ROW, HeaderRow(VERSION, GROUP_TYPE, topic.id, 200_000))
    session = upsert(hashed_key(SESSION_ROW, b"a"), (b"a", old_token))
    rows = [("state", state_key("group:g", event.key), event.value) for event in (header, session)]
    store.submit([*rows, ("broker", b"next-receipt", None)]).result(20)
    store.close()
    (tmp_path / "data" / "issued-numbers").unlink()
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        held = [ListedSession(b"a", old_token, 1)]
        link = await group.connect(hello(sessions=held, group_epoch=200_000))
        assert link.sessions == held
        assert group.queue.group_epoch >= 200_001 << 44
        link.renew_session(b"a", old_token)
        [refusal] = await link.settle(Settlement(acks=[((200_000 << 44) + 1, (200_000 << 44) + 1)]))
        assert isinstance(refusal.error, LeaseLostError)
    async with shell(tmp_path) as opened:
        assert opened.groups.group("g").queue.group_epoch > 200_001 << 44


async def test_after_a_restore_no_sequence_of_a_dead_letter_is_used_again(tmp_path: Path) -> None:
    """The dead-letter topic remembers letters of the group's producer that the store forgot."""
    settings: dict[str, Any] = {
        "on_exhausted": OnExhausted.DEAD_LETTER,
        "max_attempts": 1,
        "grace_seconds": 0.0,
        "backoff_initial_seconds": 0.0,
    }

    async def fail(opened: Shell, key: bytes) -> None:
        """Have one record exhausted, and wait for what becomes of it."""
        group = opened.groups.group("g")
        link = await group.connect(hello(key.decode()))
        sent = group.dead_lettering.sent
        [(receipt, record)] = await take(link, 1)
        assert record.key == key
        await nack(link, receipt)
        await until(lambda: group.dead_lettering.sent > sent)
        await link.goodbye()

    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"before", b"v"))
        await opened.group(**settings)
        await fail(opened, b"before")
    backup = back_up(tmp_path / "data", tmp_path / "one.backup")[0]
    async with shell(tmp_path) as opened:
        await opened.append((b"after", b"v"))
        await fail(opened, b"after")
    restored(backup, tmp_path / "data")
    async with shell(tmp_path) as opened:
        link = await opened.groups.group("g").connect(hello())
        [(receipt, record)] = await take(link, 1)
        assert record.key == b"after"
        await ack(link, receipt)  # This time it goes well.
        await link.goodbye()
        await opened.append((b"other", b"v"))
        await fail(opened, b"other")
        letters = [letter.key for letter in await opened.stored("g.dead-letters")]
        assert letters == [b"before", b"after", b"other"], "a letter was taken for another one"
