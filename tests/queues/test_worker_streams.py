"""Workers of a queue group that come, break off, come back or stay away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logbroker.errors import (
    LogbrokerError,
    OverloadedError,
    WorkerIdInUseError,
    WorkerReplacedError,
)
from logbroker.queues.delivery.pull_line import PullLine, PullRequest, Turn
from logbroker.queues.delivery.worker_stream import WorkerLink
from logbroker.queues.model.lane import lane_key
from logbroker.queues.model.messages import AskedOutput, SessionWrite, Settlement
from logbroker.queues.model.worker_messages import ListedSession
from logbroker.record.codec import NewRecord
from tests.queues.shell import ack, hello, nack, shell, take, until, values


async def test_a_worker_reclaims_what_it_held_when_the_broker_crashed(tmp_path: Path) -> None:
    async with shell(tmp_path, crash=True) as opened:
        await opened.topic()
        await opened.append((b"a", b"a1"), (b"b", b"b1"), (b"a", b"a2"))
        group = await opened.group(grace_seconds=60)
        link = await group.connect(hello())
        await take(link, 2)
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        link = await group.connect(hello(held=[0, 1]))
        assert not link.resumed
        [reclaimed] = link.reclaimed
        assert list(reclaimed.record_ids) == [0, 1]
        await ack(link, *reclaimed.receipts())
        assert group.queue.done.floor(0) == 2


async def test_a_worker_that_comes_back_in_time_keeps_what_it_received(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append(*[(b"%d" % number, b"%d" % number) for number in range(4)])
        group = await opened.group(grace_seconds=30)
        link = await group.connect(hello())
        taken = await take(link, 4)
        link.disconnected()
        # It never received the last one.
        again = await group.connect(hello(held=[record.offset for _, record in taken[:3]]))
        assert again.resumed
        await ack(again, *[receipt for receipt, _ in taken[:3]])
        again.add_credit(1)
        delivered = await again.next_deliveries()
        assert (values(delivered), delivered.attempts, delivered.redelivered) == ([b"3"], [], [True])


async def test_a_second_stream_of_a_worker_takes_the_place_of_the_first(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"a"))
        group = await opened.group()
        link = await group.connect(hello())
        [(receipt, _)] = await take(link, 1)
        link.add_credit(5)
        waiting = asyncio.create_task(link.next_deliveries())
        await asyncio.sleep(0)
        again = await group.connect(hello(held=[0]))
        assert again.resumed
        with pytest.raises(WorkerReplacedError):
            await waiting
        with pytest.raises(WorkerReplacedError):
            await link.next_deliveries()
        assert isinstance(await link.ended(), WorkerReplacedError)
        link.disconnected()  # As its stream does at its end: nothing to the one that goes on.
        await ack(again, receipt)


@pytest.mark.parametrize("kind", ["alone", "with outputs", "in turns"])
async def test_a_stream_that_was_replaced_settles_nothing_more(kind: str, tmp_path: Path) -> None:
    """The worker has repeated on the new stream what was on its way on the old one, and has gone on."""
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.topic("out")
        await opened.append((b"a", b"a"))
        group = await opened.group(grace_seconds=30)
        link = await group.connect(hello())
        session = await link.open_session(b"a")

        def write(state: bytes) -> Settlement:
            return Settlement(states=[SessionWrite(lane_key(b"a"), session.token, state)])

        async def settle(link: WorkerLink, state: bytes) -> None:
            if kind == "with outputs":
                records = [NewRecord(state, b"k")]
                asked = AskedOutput(opened.engine.topic("out").id, 0, 0, None, records, len(state))
                await (await link.settle_with_outputs(write(state), [asked]))
            elif kind == "in turns":
                await asyncio.gather(*await link.settle_in_turns(write(state)))
            else:
                await link.settle(write(state))

        await settle(link, b"1")
        again = await group.connect(hello(sessions=[ListedSession(b"a", session.token, 1)]))
        assert again.sessions
        await settle(again, b"2")
        for late in (link, again):
            with pytest.raises(WorkerReplacedError if late is link else LogbrokerError):
                await settle(late, b"1")
            assert group.queue.sessions.state(lane_key(b"a")) == b"2"
            again.disconnected()
        if kind == "with outputs":
            assert [record.value for record in await opened.stored("out", 0)] == [b"1", b"2"]


async def test_another_incarnation_of_a_worker_waits_for_the_end_of_the_one_before(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"a"))
        group = await opened.group(grace_seconds=60, backoff_initial_seconds=0.0)
        link = await group.connect(hello(incarnation=1))
        await take(link, 1)
        with pytest.raises(WorkerIdInUseError):
            await group.connect(hello(incarnation=2))
        link.disconnected()
        other = await group.connect(hello(incarnation=2))
        assert not other.resumed
        other.add_credit(1)
        delivered = await other.next_deliveries()
        assert delivered.attempts == [2], "the death of a worker is a failed attempt"


async def test_a_worker_that_stays_away_loses_what_it_held_after_the_grace(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"a"))
        group = await opened.group(grace_seconds=0.1, backoff_initial_seconds=0.0)
        gone, other = await group.connect(hello("gone")), await group.connect(hello("other"))
        await take(gone, 1)
        gone.disconnected()
        other.add_credit(1)
        async with asyncio.timeout(25):
            delivered = await other.next_deliveries()
        assert delivered.attempts == [2]
        await until(lambda: "gone" not in group.links)


@pytest.mark.parametrize("in_session", [False, True])
@pytest.mark.parametrize("is_gone", [False, True])
async def test_a_lost_record_says_whose_it_was(tmp_path: Path, in_session: bool, is_gone: bool) -> None:
    """The worker is not connected any more when somebody looks for the process that crashed."""
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"a"))
        seconds: dict[str, Any] = {"grace_seconds": 0.1} if is_gone else {"lease_seconds": 0.5}
        group = await opened.group(max_attempts=1, **seconds)
        link = await group.connect(hello("crew", client_name="desk:12"))
        if in_session:
            await link.open_session(b"a")
        await take(link, 1, credit=not in_session)
        inspector = group.inspector
        held = inspector.explain(inspector.lane(b"a"), group.moment())
        assert (held.worker_id, held.worker_client) == ("crew", "desk:12")
        if is_gone:
            link.disconnected()
        await until(lambda: group.queue.failures.get(0) is not None)
        what = (
            "the worker was lost" if is_gone else "the lock of the session ended" if in_session else "the lease ended"
        )
        lane = inspector.explain(inspector.lane(b"a"), group.moment())
        assert lane.failure is not None
        assert lane.failure.reasons == (f"{what}: crew (desk:12)",)


async def test_a_goodbye_gives_back_at_once(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        await opened.append((b"a", b"a"))
        group = await opened.group(grace_seconds=60)
        leaving, other = await group.connect(hello("leaving")), await group.connect(hello("other"))
        await take(leaving, 1)
        await leaving.goodbye()
        other.add_credit(1)
        delivered = await other.next_deliveries()
        assert (delivered.attempts, delivered.redelivered) == ([], [True])
        assert "leaving" not in group.links


async def test_what_was_granted_to_who_went_at_that_moment_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await opened.group(grace_seconds=60)
        hand_out = PullLine._hand_out
        leave: list[Callable[[], object]] = []

        def hand_out_and_leave(line: PullLine, pull: PullRequest, turn: Turn) -> None:
            hand_out(line, pull, turn)
            leave.pop(0)()

        monkeypatch.setattr(PullLine, "_hand_out", hand_out_and_leave)
        link = await group.connect(hello())
        link.add_credit(1)
        asking = asyncio.create_task(link.next_deliveries())
        receiving = asyncio.create_task(group.receive("", 1, 60))
        await asyncio.sleep(0)
        leave += [link.disconnected, receiving.cancel]
        await opened.append((b"a", b"a1"), (b"b", b"b1"))
        await asyncio.wait([asking, receiving])
        assert receiving.cancelled()
        assert isinstance(asking.exception(), LogbrokerError)
        monkeypatch.undo()
        [delivered] = await group.receive("", 2, 5)
        assert (values(delivered), delivered.attempts) == ([b"a1", b"b1"], [])


async def test_workers_without_a_grace_are_gone_at_once_and_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await opened.group(grace_seconds=0)
        monkeypatch.setattr(group.worker_streams, "_max_workers", 2)
        first, _ = await group.connect(hello("a")), await group.connect(hello("b"))
        with pytest.raises(OverloadedError):
            await group.connect(hello("c"))
        first.disconnected()
        assert "a" not in group.links
        await group.connect(hello("c"))


@pytest.mark.parametrize("breaks", [True, False])
async def test_a_worker_that_comes_twice_after_a_crash_reclaims_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks: bool
) -> None:
    async with shell(tmp_path, crash=True) as opened:
        await opened.topic()
        await opened.append((b"a", b"a1"))
        group = await opened.group(grace_seconds=60)
        await take(await group.connect(hello()), 1)
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        await until(lambda: group.queue.position(0) == 1)
        with monkeypatch.context() as patched:
            patched.setattr(group.worker_streams, "_wait_for_scan", lambda *_: asyncio.sleep(60))
            first = asyncio.create_task(group.connect(hello(held=[0])))
            await asyncio.sleep(0)
        if breaks:
            first.cancel()
            await asyncio.wait([first])
        link = await group.connect(hello(held=[0]))
        first.cancel()
        assert not link.resumed
        [reclaimed] = link.reclaimed
        await ack(link, *reclaimed.receipts())
        await asyncio.wait([first])
        assert link.connected


async def test_what_failed_since_or_was_held_before_another_epoch_is_not_reclaimed(tmp_path: Path) -> None:
    async with shell(tmp_path, crash=True) as opened:
        await opened.topic()
        await opened.append((b"a", b"a"), (b"b", b"b"), (b"c", b"c"))
        group = await opened.group(grace_seconds=60, backoff_initial_seconds=0.0)
        link = await group.connect(hello())
        (first, _), *_ = await take(link, 3)
        group_epoch = group.queue.group_epoch
        await nack(link, first, delay_seconds=0)
    held = hello(held=[0, 1, 2], attempts=[1, 1, 1], group_epoch=group_epoch)
    async with shell(tmp_path, crash=True) as opened:
        group = opened.groups.group("g")
        link = await group.connect(held)
        [reclaimed] = link.reclaimed
        assert list(reclaimed.record_ids) == [1, 2], "the first one failed, and was to be somebody else's"
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        assert (await group.connect(held)).reclaimed == [], "others may have had it in the epoch between"


@pytest.mark.parametrize("breaks", [True, False])
async def test_what_was_reclaimed_on_a_stream_that_broke_before_its_welcome_is_reclaimed_again(
    tmp_path: Path, breaks: bool
) -> None:
    async with shell(tmp_path, crash=True) as opened:
        await opened.topic()
        await opened.append((b"a", b"a1"), (b"b", b"b1"), (b"b", b"b2"))
        group = await opened.group(grace_seconds=60)
        link = await group.connect(hello())
        session = await link.open_session(b"b", prefetch=2)
        async with asyncio.timeout(25):
            await link.next_deliveries()
        await take(link, 1)
        group_epoch = group.queue.group_epoch
    sessions = [ListedSession(b"b", session.token, 2)]
    held = hello(held=[0, 1, 2], sessions=sessions, group_epoch=group_epoch)
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        link = await group.connect(held)
        async with asyncio.timeout(25):
            assert (await link.next_deliveries()).session is not None
        if breaks:
            link.disconnected()
        link = await group.connect(held)
        assert not link.resumed, "it knows no receipt of this group epoch"
        assert link.sessions == sessions
        [reclaimed] = link.reclaimed
        assert list(reclaimed.record_ids) == [0]
        async with asyncio.timeout(25):
            delivered = await link.next_deliveries()
        assert values(delivered) == [b"b1", b"b2"]
        await ack(link, *reclaimed.receipts(), delivered.first_receipt, delivered.first_receipt + 1)
        assert group.queue.done.floor(0) == 3
