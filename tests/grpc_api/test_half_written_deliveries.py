"""Deliveries that were being written when the stream broke: whether they arrived is known to the worker alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from logbroker.broker.read_budget import ReadBudget
from logbroker.grpc_api.queues.worker_stream import WorkerStream
from logbroker.grpc_api.status import Context
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.messages import Delivered
from logbroker.queues.model.record_id import record_id_of
from logbroker.queues.model.settings import Ordering
from logbroker.queues.model.worker_messages import ListedSession
from logbroker.v1 import queues_pb2 as pb
from tests.grpc_api.test_worker_stream_breaks import StuckClient
from tests.queues.shell import DEADLINE_SECONDS, ack, hello, shell


@asynccontextmanager
async def stuck_in_a_write(
    path: Path, session: bool, **settings: Any
) -> AsyncIterator[tuple[QueueGroup, Delivered, Callable[[], Awaitable[None]]]]:
    """A queue group whose worker `gone` reads nothing any more, what is written to it, and the end of its stream."""
    async with shell(path) as broker:
        await broker.topic()
        group = await broker.group(**settings)
        client = StuckClient(2 if session else 1)
        budget = ReadBudget(1 << 20, DEADLINE_SECONDS)
        stream = WorkerStream(
            broker.groups.group, cast(Any, broker.engine), cast(Context, client), budget, asyncio.Event()
        )
        greeting = pb.Hello(group_id=group.group_id, worker_id="gone", incarnation=1)
        client.requests.put_nowait(pb.WorkerRequest(hello=greeting))
        call = asyncio.create_task(stream.run())
        await client.welcomed.wait()
        if session:
            opening = pb.OpenSession(correlation_id=1, key=b"k", prefetch=10)
            client.requests.put_nowait(pb.WorkerRequest(open_session=opening))
        else:
            client.requests.put_nowait(pb.WorkerRequest(credit=pb.Credit(records=10)))
        await broker.append((b"k", b"v"))
        await client.stuck.wait()
        delivered = stream._unsure
        assert delivered is not None

        async def end() -> None:
            call.cancel()
            client.gone.set()
            await asyncio.wait([call])

        yield group, delivered, end


@asynccontextmanager
async def broken_in_a_write(path: Path, session: bool, **settings: Any) -> AsyncIterator[tuple[QueueGroup, Delivered]]:
    """A queue group whose worker `gone` broke off while a record was written to it, which may have arrived."""
    async with stuck_in_a_write(path, session, **settings) as (group, delivered, end):
        await end()
        yield group, delivered


async def taken_by_another(group: QueueGroup) -> Delivered:
    other = await group.connect(hello("other"))
    other.add_credit(1)
    async with asyncio.timeout(DEADLINE_SECONDS):
        return await other.next_deliveries()


@pytest.mark.parametrize("session", [False, True])
async def test_what_was_being_written_when_the_stream_broke_is_the_workers_if_it_has_it(
    tmp_path: Path, session: bool
) -> None:
    async with broken_in_a_write(tmp_path, session, grace_seconds=DEADLINE_SECONDS) as (group, delivered):
        other = await group.connect(hello("other"))
        other.add_credit(1)
        held = [record_id_of(0, delivered.offsets[0])]
        sessions = [ListedSession(b"k", delivered.session[0])] if delivered.session is not None else []
        back = await group.connect(hello("gone", held=held, sessions=sessions))
        assert back.resumed
        await ack(back, delivered.first_receipt)
        assert group.queue.tally.acked == 1
        assert group.queue.deliveries.in_flight == 0


@pytest.mark.parametrize("session", [False, True])
async def test_what_was_being_written_when_the_stream_broke_is_free_if_the_worker_says_so(
    tmp_path: Path, session: bool
) -> None:
    async with broken_in_a_write(tmp_path, session, grace_seconds=DEADLINE_SECONDS) as (group, _):
        back = await group.connect(hello("gone"))
        assert back.resumed
        delivered = await taken_by_another(group)
        assert not delivered.attempts, "not all are first attempts"


@pytest.mark.parametrize(("session", "ordering"), [(False, Ordering.KEY), (False, Ordering.NONE), (True, Ordering.KEY)])
async def test_what_was_being_written_to_a_worker_that_never_came_back_did_not_fail(
    tmp_path: Path, session: bool, ordering: Ordering
) -> None:
    async with broken_in_a_write(tmp_path, session, grace_seconds=0.05, ordering=ordering) as (group, _):
        delivered = await taken_by_another(group)
        assert not delivered.attempts, "not all are first attempts"


@pytest.mark.parametrize("is_late", [False, True], ids=["in time", "late"])
@pytest.mark.parametrize("session", [False, True])
async def test_what_a_worker_came_back_with_it_may_fail_with(tmp_path: Path, session: bool, is_late: bool) -> None:
    """Also where the broker hears of the end of the stream before only when the next one has taken its place."""
    settings: dict[str, Any] = {"backoff_initial_seconds": 0.01, "grace_seconds": DEADLINE_SECONDS}
    async with stuck_in_a_write(tmp_path, session, **settings) as (group, delivered, end):
        if not is_late:
            await end()
        held = [record_id_of(0, delivered.offsets[0])]
        sessions = [ListedSession(b"k", delivered.session[0])] if delivered.session is not None else []
        back = await group.connect(hello("gone", held=held, sessions=sessions))
        assert back.resumed
        if is_late:
            await end()
        back.disconnected()
        await group.connect(hello("gone", incarnation=2))
        delivered = await taken_by_another(group)
        assert delivered.attempts == [2]
