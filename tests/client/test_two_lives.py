"""Two processes of one static member, of which the first does not know that it is cut off."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest

from logbroker.client import Consumer
from tests.client.group_helpers import Events, drain, fill, take
from tests.client.links import Link


@pytest.mark.prove
async def test_the_second_life_begins_when_the_first_delivers_nothing_any_more(address: str, topic: str) -> None:
    await fill(address, topic, 1, 200)
    events = Events()
    async with Link().to(address) as link, Consumer(address, group=topic, instance_id="one") as second:
        first = Consumer(link.address, group=topic, instance_id="one", auto_commit=False, request_timeout_seconds=1.0)
        await first.subscribe(topic)
        await take(first, 3)
        await first.commit()
        # So that its ownership deadline is as fresh as can be.
        before = first._core.ownership.until
        async with asyncio.timeout(20):
            while first._core.ownership.until == before:
                await asyncio.sleep(0.005)
        link.cut_far_ends()
        assert first._core.ownership.lasts()
        await second.subscribe(topic, **events.listen("second"))
        assert monotonic() > first._core.ownership.until
        assert (await drain(second, 1))[0].offset == 3
        assert await first.poll(timeout_seconds=0.05) == []
        assert events.all == [("second", "assigned", [0])]
        await asyncio.wait_for(first.close(), 20)


async def test_a_restart_after_a_goodbye_waits_for_nothing(address: str, topic: str) -> None:
    await fill(address, topic, 1, 10)
    first = Consumer(address, group=topic, instance_id="one", session_timeout_seconds=60.0)
    await first.subscribe(topic)
    await take(first, 3)
    await first.close()
    async with Consumer(address, group=topic, instance_id="one") as second:
        await second.subscribe(topic)
        member = second._core._group.member if second._core._group else None
        assert member is not None
        assert member._last_error is None, "it was let in at once"
        assert [record.offset for record in await drain(second, 8)] == list(range(2, 10))
