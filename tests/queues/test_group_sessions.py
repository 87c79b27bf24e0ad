"""Sessions at work: opening in turn, records by prefetch, tokens over restarts, what a holder hears."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from logbroker.engine import Read, ReadResult
from logbroker.errors import (
    BrokerUnavailableError,
    LogbrokerError,
    NoFreeSessionError,
    SessionHeldError,
    StaleSessionError,
)
from logbroker.queues.delivery.worker_stream import WorkerLink
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.holders import WorkerSession
from logbroker.queues.model.messages import Delivered, Nack, SessionWrite, Settlement
from logbroker.queues.model.settings import Priority
from logbroker.queues.model.worker_messages import ListedSession, OpenedSession
from logbroker.queues.scan import scanner
from tests.queues.shell import Shell, ack, hello, shell, until, values


async def next_of(link: WorkerLink) -> Delivered:
    async with asyncio.timeout(25):
        return await link.next_deliveries()


async def scanned(group: QueueGroup, end: int) -> None:
    await until(lambda: group.queue.position(0) == end)


async def five(opened: Shell) -> QueueGroup:
    """A group with three records of key a and two of b."""
    await opened.topic()
    await opened.append((b"a", b"a1"), (b"a", b"a2"), (b"b", b"b1"), (b"a", b"a3"), (b"b", b"b2"))
    group = await opened.group(grace_seconds=5)
    await scanned(group, 5)
    return group


async def test_a_session_gets_its_records_without_credit_and_leaves_its_state(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        group = await five(opened)
        link, other = await group.connect(hello()), await group.connect(hello("other"))
        session = await link.open_session(b"a", prefetch=2)
        assert session.state == b""
        delivered = await next_of(link)
        assert (values(delivered), delivered.session) == ([b"a1", b"a2"], (session.token, b"a"))
        other.add_credit(10)
        assert values(await next_of(other)) == [b"b1"], "a lane in a session is nobody else's"
        settlement = Settlement(
            acks=[(delivered.first_receipt, delivered.first_receipt + 1)],
            states=[SessionWrite(b"a", session.token, b"two done")],
        )
        assert await link.settle(settlement) == []
        assert values(await next_of(link)) == [b"a3"]
        await link.close_session(b"a", session.token)
        again = await other.open_session(b"a")
        assert (again.state, again.token > session.token) == (b"two done", True)
        with pytest.raises(StaleSessionError):
            link.renew_session(b"a", session.token)


async def test_the_next_free_session_is_waited_for_in_turn(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        group = await five(opened)
        links = [await group.connect(hello(f"w{number}")) for number in range(3)]
        first, second = await links[0].open_session(None), await links[1].open_session(None)
        assert {first.key, second.key} == {b"a", b"b"}
        with pytest.raises(NoFreeSessionError):
            await links[2].open_session(None)
        with pytest.raises(SessionHeldError):
            await links[2].open_session(b"a", wait_seconds=0.02)
        waiting = asyncio.create_task(links[2].open_session(None, wait_seconds=10))
        await asyncio.sleep(0)
        await opened.append((b"c", b"c1"))
        assert (await waiting).key == b"c"
        waiting = asyncio.create_task(links[2].open_session(b"a", wait_seconds=10))
        await asyncio.sleep(0)
        await links[0].close_session(first.key, first.token)
        await links[1].close_session(second.key, second.token)
        assert (await waiting).key == b"a"


async def test_a_holder_hears_that_its_lock_ended(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await opened.group(lease_seconds=0.2, backoff_initial_seconds=0.0)
        link, other = await group.connect(hello()), await group.connect(hello("other"))
        lost: list[tuple[bytes, int]] = []
        link.on_session_lost = lambda key, token, why: lost.append((key, token))
        session = await link.open_session(b"a")
        await opened.append((b"a", b"a1"))
        delivered = await next_of(link)
        taken = await other.open_session(b"a", wait_seconds=10)
        assert taken.token > session.token
        await until(lambda: lost)
        assert lost == [(b"a", session.token)]
        refusals = await link.settle(
            Settlement(
                acks=[(delivered.first_receipt, delivered.first_receipt)],
                states=[SessionWrite(b"a", session.token, b"late")],
            )
        )
        assert isinstance(refusals[0].error, StaleSessionError)
        again = await next_of(other)
        assert (values(again), again.attempts) == ([b"a1"], [2])


@pytest.mark.parametrize("crash", [True, False])
async def test_a_holder_keeps_its_session_over_a_reconnect_and_a_restart(tmp_path: Path, crash: bool) -> None:
    async with shell(tmp_path, crash=crash) as opened:
        group = await five(opened)
        link = await group.connect(hello())
        session = await link.open_session(b"a", prefetch=3)
        delivered = await next_of(link)
        link.disconnected()
        held = [ListedSession(b"a", session.token, 3)]
        link = await group.connect(hello(held=[0, 1, 3], sessions=held))
        assert (link.resumed, link.sessions) == (True, held)
        await ack(link, delivered.first_receipt)
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        link = await group.connect(hello(held=[1, 3], sessions=held))
        assert (link.resumed, link.sessions) == (False, held)
        again = await next_of(link)
        assert (values(again), again.redelivered, again.session) == (
            [b"a2", b"a3"],
            [True, True],
            (session.token, b"a"),
        )
        await link.close_session(b"a", session.token)


async def test_records_of_a_session_that_is_over_are_not_given_to_its_worker_again(tmp_path: Path) -> None:
    """The worker has dropped them with the session, and would settle none of them."""
    async with shell(tmp_path, crash=True) as opened:
        group = await five(opened)
        link = await group.connect(hello())
        session = await link.open_session(b"a", prefetch=3)
        await next_of(link)
        link.add_credit(1)
        assert values(await next_of(link)) == [b"b1"]
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        over = [ListedSession(b"a", session.token + 1, 3)]
        link = await group.connect(hello(held=[0, 1, 2, 3], sessions=over))
        assert (link.resumed, link.sessions) == (False, [])
        assert [granted.record_ids for granted in link.reclaimed] == [[2]]
        other = await group.connect(hello("other"))
        taken = await other.open_session(b"a", wait_seconds=20)
        again = await next_of(other)
        assert (values(again), again.attempts) == ([b"a1"], [])
        await other.close_session(b"a", taken.token)


async def test_a_session_that_nobody_reclaims_is_free_after_the_grace(tmp_path: Path) -> None:
    async with shell(tmp_path, crash=True) as opened:
        await opened.topic()
        await opened.append((b"a", b"a1"))
        group = await opened.group(grace_seconds=0.1)
        link = await group.connect(hello())
        session = await link.open_session(b"a", wait_seconds=10)
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        other = await group.connect(hello("other"))
        taken = await other.open_session(b"a", wait_seconds=10)
        assert taken.token > session.token
        assert values(await next_of(other)) == [b"a1"]


async def test_credit_comes_while_a_worker_waits_for_its_session(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        group = await five(opened)
        link = await group.connect(hello())
        waiting = asyncio.create_task(next_of(link))
        await asyncio.sleep(0)
        link.add_credit(1)
        assert values(await waiting) == [b"a1"]


async def test_who_gives_up_just_as_its_turn_comes_takes_no_session(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        group = await five(opened)
        holder, link = await group.connect(hello("holder")), await group.connect(hello())
        held = await holder.open_session(b"a")
        waiting = asyncio.create_task(link.open_session(b"a", wait_seconds=10))
        await asyncio.sleep(0.01)
        group.queue.sessions.close("holder", b"a", held.token, group.moment())
        group.session_waiters.serve()
        assert group.queue.sessions.held_by("w")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not group.queue.sessions.held_by("w")


async def test_whose_turn_comes_as_its_time_is_over_has_the_session(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        group = await five(opened)
        holder, link = await group.connect(hello("holder")), await group.connect(hello())
        held = await holder.open_session(b"a")
        waiting = asyncio.create_task(link.open_session(b"a", wait_seconds=0.05))
        await asyncio.sleep(0.01)
        group.queue.sessions.close("holder", b"a", held.token, group.moment())
        group.session_waiters.serve()
        time.sleep(0.06)  # Both are due in the next round of the loop.
        assert (await waiting).token > held.token


async def test_who_waits_for_a_session_that_is_taken_costs_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shell(tmp_path) as opened:
        group = await five(opened)
        holder, link = await group.connect(hello("holder")), await group.connect(hello())
        held = await holder.open_session(b"a")
        holder.add_credit(1)
        taken = await next_of(holder), await next_of(holder)
        waiting = [asyncio.create_task(link.open_session(key, wait_seconds=10)) for key in (b"a", b"b")]
        await until(lambda: len(group.session_waiters.waiting) == 2)
        tries: list[bytes | None] = []
        open_session = group.queue.sessions.open

        def tried(worker_id: str, key: bytes | None, *given: Any) -> WorkerSession | None:
            tries.append(key)
            return open_session(worker_id, key, *given)

        monkeypatch.setattr(group.queue.sessions, "open", tried)
        for _ in range(10):
            group.session_waiters.serve()
        assert tries == [], "a session and a record that others have are not asked for again and again"
        await holder.close_session(b"a", held.token)
        await ack(holder, *[each.first_receipt for each in taken if each.session is None])
        assert [(await opening).key for opening in waiting] == [b"a", b"b"]
        assert sorted(filter(None, tries)) == [b"a", b"b"]


async def test_whoever_gives_up_while_the_answer_is_on_its_way_takes_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shell(tmp_path) as opened:
        group = await five(opened)
        link = await group.connect(hello())
        tasks: list[asyncio.Task[OpenedSession]] = []

        def give_up(turns: int) -> None:
            if turns:
                asyncio.get_running_loop().call_soon(give_up, turns - 1)
            else:
                tasks[-1].cancel()

        synced = group._commits.synced

        def answered(*given: Any) -> asyncio.Future[Any]:
            answer = synced(*given)
            if isinstance(given[0], OpenedSession):
                # Told before the one who waits, which is no earlier than in the same round.
                answer.add_done_callback(lambda _: give_up(len(tasks) - 1))
            return answer

        monkeypatch.setattr(group._commits, "synced", answered)
        outcomes: list[bool] = []
        for _ in range(4):
            tasks.append(asyncio.create_task(link.open_session(b"a")))
            await asyncio.wait(tasks[-1:])
            outcomes.append(tasks[-1].cancelled())
            assert bool(group.queue.sessions.held_by("w")) is not tasks[-1].cancelled()
            if not tasks[-1].cancelled():
                await link.close_session(b"a", tasks[-1].result().token)
        assert {False, True} == set(outcomes)


async def test_a_holder_keeps_its_session_over_a_crash_also_where_nothing_waits(tmp_path: Path) -> None:
    async with shell(tmp_path, crash=True) as opened:
        await opened.topic()
        await opened.append((b"a", b"a1"))
        group = await opened.group(grace_seconds=60)
        link = await group.connect(hello())
        session = await link.open_session(b"a", wait_seconds=10)
        await ack(link, (await next_of(link)).first_receipt)
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        held = [ListedSession(b"a", session.token, 1)]
        link = await group.connect(hello(sessions=held))
        assert link.sessions == held
        link.renew_session(b"a", session.token)


async def test_who_opens_a_session_hears_whether_its_records_follow(tmp_path: Path) -> None:
    """Some wait: not those of nobody, of a lane that waits for a retry, or that are parked."""
    async with shell(tmp_path) as opened:
        group = await five(opened)
        link, other = await group.connect(hello()), await group.connect(hello("other"))
        free = await link.open_session(None)
        assert free.has_records
        assert values(await next_of(link)) == [b"a1"]
        assert not (await link.open_session(b"z")).has_records
        other.add_credit(1)
        delivered = await next_of(other)
        assert values(delivered) == [b"b1"]
        nack = Nack(delivered.first_receipt, delivered.first_receipt, "no good", 60_000)
        assert await other.settle(Settlement(nacks=[nack])) == []
        assert not (await link.open_session(b"b")).has_records
        await link.close_session(free.key, free.token)
        assert (await other.open_session(b"a")).has_records


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanner, "BARRIER_SECONDS", 0.1)


@contextmanager
def reads_held(opened: Shell) -> Iterator[asyncio.Event]:
    """Let no read of the log end before the event is set."""
    release = asyncio.Event()
    read = opened.engine.read

    async def held(reads: Sequence[Read]) -> list[ReadResult | LogbrokerError]:
        await release.wait()
        return await read(reads)

    opened.engine.read = held  # type: ignore[method-assign]
    try:
        yield release
    finally:
        release.set()
        opened.engine.read = read  # type: ignore[method-assign]


@pytest.mark.parametrize("priority", [Priority.NONE, Priority.STRICT])
async def test_a_session_of_a_key_is_opened_when_its_records_are_found(tmp_path: Path, priority: Priority) -> None:
    """Before the scan has reached them, nobody knows whether there are any."""
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"a1"), (b"b", b"b1"))
        with reads_held(opened) as release:
            group = await opened.group(priority=priority)
            link, other = await group.connect(hello()), await group.connect(hello("other"))
            opening = [asyncio.create_task(link.open_session(b"a")), asyncio.create_task(other.open_session(b"z"))]
            done, _ = await asyncio.wait(opening, timeout=0.1)
            assert not done
            release.set()
            assert [(await each).has_records for each in opening] == [True, False]
            assert values(await next_of(link)) == [b"a1"]


async def test_so_is_one_of_what_was_appended_just_before(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        group = await five(opened)
        link = await group.connect(hello())
        for number in range(20):
            await opened.append((b"k%d" % number, b"v"))
            assert (await link.open_session(b"k%d" % number)).has_records


@pytest.mark.usefixtures("short_waits")
async def test_records_may_follow_while_the_scan_goes_on(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"a1"))
        with reads_held(opened) as release:
            group = await opened.group()
            link = await group.connect(hello())
            assert (await link.open_session(b"a")).has_records
            assert (await link.open_session(b"z")).has_records, "some may follow"
            release.set()
            assert values(await next_of(link)) == [b"a1"]


async def test_a_session_whose_records_are_known_does_not_wait_for_the_scan(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        group = await five(opened)
        link = await group.connect(hello())
        with reads_held(opened):
            await opened.append((b"c", b"c1"))
            async with asyncio.timeout(scanner.BARRIER_SECONDS / 2):
                assert (await link.open_session(b"a")).has_records


@pytest.mark.usefixtures("short_waits")
async def test_a_session_that_is_awaited_ends_with_its_group(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"a1"))
        with reads_held(opened):
            group = await opened.group()
            link = await group.connect(hello())
            opening = asyncio.create_task(link.open_session(b"z"))
            await asyncio.sleep(0)
            group.freeze()
            with pytest.raises(BrokerUnavailableError):
                await opening
