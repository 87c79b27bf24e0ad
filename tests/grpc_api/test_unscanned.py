"""Reports on a queue group whose scan has not reached all readable records: they wait for it, or say so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from logbroker.broker.broker import Broker
from logbroker.broker.read_budget import ReadBudget
from logbroker.engine import Append, Appended, Read
from logbroker.errors import CorruptLogError
from logbroker.grpc_api.queues.service import QueuesService
from logbroker.queues.model.settings import Priority, QueueGroupSettings
from logbroker.queues.model.starts import StartAt
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.v1 import queues_pb2 as pb
from tests.broker.conftest import broker_on
from tests.homes import home_of
from tests.queues.shell import until

GROUPS: Final = 40
KEYS: Final = 30
KINDS: Final = (QueueGroupSettings(), QueueGroupSettings(priority=Priority.STRICT))


class Operator:
    """Asks a broker about its queue groups."""

    def __init__(self, broker: Broker) -> None:
        self._service: Any = QueuesService(broker, ReadBudget(1 << 20, 1.0), asyncio.Event())

    async def lanes(self, group_id: str) -> pb.ListLanesResponse:
        response: pb.ListLanesResponse = await self._service.list_lanes(
            pb.ListLanesRequest(group_id=group_id, top=KEYS), None
        )
        return response

    async def state(self, group_id: str, key: bytes) -> str:
        response = await self._service.explain_lanes(pb.ExplainLanesRequest(group_id=group_id, keys=[key]), None)
        return str(response.lanes[0].state)

    async def refusal(self, group_id: str, key: bytes) -> str:
        """The error of a decision about the lane of this key."""
        decision = pb.LaneDecision(key=key, resume=True)
        request = pb.DecideLanesRequest(group_id=group_id, decisions=[decision])
        return str((await self._service.decide_lanes(request, None)).results[0].status.message)

    async def counts(self, *group_ids: str) -> list[tuple[int, int]]:
        """How many records of each are open, and not scanned."""
        response = await self._service.describe_queues(pb.DescribeQueuesRequest(group_ids=group_ids), None)
        return [(queue.counts.open, queue.counts.unscanned) for queue in response.queues]


async def append(broker: Broker, count: int = KEYS) -> None:
    records = [NewRecord(value=b"v", key=b"k%d" % number, timestamp_ms=1_700_000_000_000) for number in range(count)]
    [outcome] = await broker.engine.append([Append(broker.engine.topic("t").id, 0, encode_batch(records))])
    assert isinstance(outcome, Appended)


async def make_groups(broker: Broker, count: int) -> list[str]:
    topic = await broker.engine.create_topic("t", 1, {})
    names = [f"g{number}" for number in range(count)]
    for number, name in enumerate(names):
        await home_of(broker).queues.create(name, topic, KINDS[number % len(KINDS)], StartAt())
    return names


async def all_have_looked(broker: Broker) -> None:
    await until(
        lambda: not any(home_of(broker).queues.group(name).scanner.is_indexing for name in home_of(broker).queues.ids())
    )


async def check_lanes(inspector: Operator, name: str) -> None:
    lanes = await inspector.lanes(name)
    assert (len(lanes.lanes), lanes.total, lanes.incomplete) == (KEYS, KEYS, False)


async def check_state(inspector: Operator, name: str) -> None:
    assert await inspector.state(name, b"k%d" % (KEYS - 1)) == "ready"
    assert await inspector.state(name, b"none") == "idle"


async def check_counts(inspector: Operator, name: str) -> None:
    assert await inspector.counts(name) == [(KEYS, 0)]


CHECKS: Final = (check_lanes, check_state, check_counts)


@pytest.mark.parametrize("check", CHECKS)
async def test_who_asks_first_after_a_start_is_told_of_what_is_in_the_log(
    tmp_path: Path, check: Callable[[Operator, str], Awaitable[None]]
) -> None:
    async with broker_on(tmp_path) as broker:
        names = await make_groups(broker, 4)
        await append(broker)
    async with broker_on(tmp_path) as broker:
        for name in names:
            await check(Operator(broker), name)


@pytest.mark.parametrize("check", CHECKS)
async def test_a_look_that_is_under_way_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: Callable[[Operator, str], Awaitable[None]]
) -> None:
    async with broker_on(tmp_path) as broker:
        [name] = await make_groups(broker, 1)
        await all_have_looked(broker)
        begun, may_go_on = asyncio.Event(), asyncio.Event()
        read = broker.engine.read

        async def held(reads: Sequence[Read]) -> Any:
            begun.set()
            await may_go_on.wait()
            return await read(reads)

        monkeypatch.setattr(broker.engine, "read", held)
        await append(broker)
        async with asyncio.timeout(20):
            await begun.wait()
        asking = asyncio.ensure_future(check(Operator(broker), name))
        for _ in range(5):
            await asyncio.sleep(0)
        may_go_on.set()
        await asking


async def hang(_: Sequence[Read]) -> Any:
    await asyncio.Event().wait()


async def fail(reads: Sequence[Read]) -> Any:
    return [CorruptLogError("a test damaged it") for _ in reads]


@pytest.mark.prove
@pytest.mark.parametrize("read", [hang, fail])
async def test_what_cannot_be_scanned_is_not_told_of_as_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Sequence[Read]], Awaitable[Any]]
) -> None:
    async with broker_on(tmp_path) as broker:
        [name] = await make_groups(broker, 1)
        await all_have_looked(broker)
        monkeypatch.setattr(broker.engine, "read", read)
        await append(broker)
        inspector = Operator(broker)
        assert await inspector.state(name, b"k1") == "not scanned"
        assert "; the log is not scanned to its end yet: try again later" in await inspector.refusal(name, b"k1")
        assert (await inspector.lanes(name)).incomplete
        assert await inspector.counts(name) == [(0, KEYS)]


@pytest.mark.prove
async def test_many_groups_that_are_not_scanned_are_waited_for_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_on(tmp_path) as broker:
        names = await make_groups(broker, GROUPS)
        await all_have_looked(broker)
        monkeypatch.setattr(broker.engine, "read", hang)
        await append(broker)
        async with asyncio.timeout(GROUPS / 2):  # It waited a second for each.
            counts = await Operator(broker).counts(*names)
        assert counts == [(0, KEYS)] * GROUPS


async def test_after_a_start_groups_that_nobody_uses_look_at_their_logs_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_on(tmp_path) as broker:
        await make_groups(broker, GROUPS)
        await append(broker)
    async with broker_on(tmp_path) as broker:
        at_once: set[str] = set()
        most = 0
        groups = [home_of(broker).queues.group(name) for name in home_of(broker).queues.ids()]
        read = broker.engine.read

        async def counted(reads: Sequence[Read]) -> Any:
            nonlocal most
            at_once.update(group.group_id for group in groups if group.scanner.looks and group.scanner.unscanned())
            most = max(most, len(at_once))
            at_once.clear()
            return await read(reads)

        monkeypatch.setattr(broker.engine, "read", counted)
        await until(lambda: all(group.scanner.unscanned() == 0 for group in groups))
        assert most == 1
