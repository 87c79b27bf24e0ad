"""Members that have nothing to do cost next to nothing: heartbeats as rare as the session allows, many at a time."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, cast

import pytest

from logbroker.client import Consumer
from logbroker.client.consumer.member import GroupMember
from logbroker.client.consumer.membership import Membership, next_heartbeat
from logbroker.consumer_groups.messages import Joined
from logbroker.embedded_broker import EmbeddedBroker, embedded
from logbroker.engine import LogEngine
from logbroker.grpc_api.groups.messages import member_response
from tests.client.group_helpers import Events, add, fill, numbers

GRACE_SECONDS = 0.3
SESSION_SECONDS = 4.0
MEMBERS = 4


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """The time that a heartbeat permits is over long before an idle member's next one."""
    with embedded(reconnect_grace_seconds=GRACE_SECONDS) as broker:
        yield broker


@pytest.fixture
def sent_at(monkeypatch: pytest.MonkeyPatch) -> dict[GroupMember, list[float]]:
    """When members sent heartbeats."""
    sent_at: dict[GroupMember, list[float]] = defaultdict(list)
    send = GroupMember._send_heartbeat

    def note(self: GroupMember, *arguments: Any, **options: Any) -> None:
        sent_at[self].append(time.monotonic())
        send(self, *arguments, **options)

    monkeypatch.setattr(GroupMember, "_send_heartbeat", note)
    return sent_at


async def poll_until_cancelled(consumer: Consumer) -> None:
    while True:
        assert not await consumer.poll(timeout_seconds=0.1)


@pytest.mark.prove
async def test_idle_members_send_two_heartbeats_a_session(
    broker: EmbeddedBroker, topic: str, sent_at: dict[GroupMember, list[float]]
) -> None:
    """Also where their programs ask for records all the time: permission is asked for once there are some."""
    await fill(broker.address, topic, MEMBERS, 0)
    events = Events()
    consumers = [Consumer(broker.address, group=topic, session_timeout_seconds=SESSION_SECONDS) for _ in range(MEMBERS)]
    try:
        for consumer in consumers:
            await consumer.subscribe(topic, **events.listen("them"))
        polling = [asyncio.create_task(poll_until_cancelled(consumer)) for consumer in consumers]
        async with asyncio.timeout(20):
            while [len(numbers(consumer)) for consumer in consumers] != [1] * MEMBERS:
                await asyncio.sleep(0.01)
            await asyncio.sleep(2 * GRACE_SECONDS)  # Those that taking the assignments needed are over.
            sent_at.clear()
            while len(sent_at) < MEMBERS or min(map(len, sent_at.values())) < 3:
                await asyncio.sleep(0.01)
        for moments in sent_at.values():
            gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
            assert min(gaps) > SESSION_SECONDS / 2 - SESSION_SECONDS / 10, gaps
        for task in polling:
            task.cancel()
        await asyncio.gather(*polling, return_exceptions=True)
    finally:
        for consumer in consumers:
            await consumer.close()
    assert "lost" not in {kind for _, kind, _ in events.all}


@pytest.mark.prove
async def test_records_come_to_an_idle_member_at_once(
    broker: EmbeddedBroker, topic: str, sent_at: dict[GroupMember, list[float]]
) -> None:
    """It asks the broker first, once, and then keeps its permission while it delivers."""
    await fill(broker.address, topic, 1, 0)
    async with Consumer(broker.address, group=topic, session_timeout_seconds=60.0) as consumer:
        await consumer.subscribe(topic)
        for number in range(3):
            async with asyncio.timeout(20):
                while not numbers(consumer) or consumer._core.ownership.lasts():
                    assert not await consumer.poll(timeout_seconds=0.05)
            sent_at.clear()
            await add(broker.address, topic, 1, 1)
            async with asyncio.timeout(5):  # The next heartbeat is due in seven.
                [record] = await consumer.poll(timeout_seconds=10)
            assert record.offset == number
            assert sent_at


@pytest.mark.parametrize("session_seconds", [1.0, 2.0, 4.0, 6.67, 8.0, 10.0, 12.0, 13.4, 30.0, 45.0, 3600.0])
async def test_a_sixth_of_the_session_is_left_to_come_back(session_seconds: float) -> None:
    """After the rarest heartbeat has had no answer, at whatever session: the connection may have died before it."""
    session_ms = round(session_seconds * 1000)
    told = Joined(
        assignor="", session_timeout_ms=session_ms, reconnect_grace_ms=session_ms, growth_order="", resumed=False
    )
    unused = cast(LogEngine, None)
    interval_seconds = (await member_response(unused, told)).joined.idle_heartbeat_interval_ms / 1000
    membership = Membership(session_timeout_seconds=session_seconds, max_poll_interval_seconds=300.0)
    assert session_seconds - interval_seconds - membership.patience_seconds(0) > session_seconds / 6


def test_heartbeats_of_a_machine_fall_together() -> None:
    interval_seconds = 6.0
    rng = random.Random(7)
    moments = set()
    for _ in range(1000):
        now = rng.uniform(1e5, 1e5 + interval_seconds)
        for _ in range(3):
            following = next_heartbeat(now, interval_seconds)
            assert 0.9 * interval_seconds < following - now <= interval_seconds
            now = following + rng.uniform(0, 0.001)
        moments.add(round(now / interval_seconds * 20) % 20)
        assert abs(now * 20 / interval_seconds - round(now * 20 / interval_seconds)) < 0.01
    assert len(moments) <= 20
