"""An index of many lanes is emptied at once, and what held it is let go in turns: to free it takes long."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import pytest

from logbroker.pacing import TURN_STEPS, Pace, let_go
from logbroker.queues.machine.queue import Queue
from logbroker.queues.model.record_id import Moment
from logbroker.queues.model.settings import Ordering, Priority, QueueGroupSettings

LANES = 20_000
NOW = Moment(1.0, 1000)


def filled(**settings: Any) -> Queue:
    queue = Queue(bytes(16), QueueGroupSettings(**settings), random=lambda: 0.5, route=lambda key: 0)
    queue.open_partition(0, 0)
    queue.begin_generation(1, [])
    keys = [b"%d" % number for number in range(LANES)]
    queue.admit(0, 1, range(LANES), LANES, keys, [], NOW, 5)
    queue.take_outputs()
    return queue


@pytest.mark.parametrize("priority", [Priority.NONE, Priority.STRICT])
@pytest.mark.parametrize("by", ["rewind", "alter"])
def test_an_index_is_not_freed_where_it_is_emptied(by: str, priority: Priority) -> None:
    queue = filled(ordering=Ordering.KEY, priority=priority)
    if by == "rewind":
        queue.rewind({0: 0}, NOW)
    else:
        queue.alter(QueueGroupSettings(ordering=Ordering.NONE, priority=priority))
    assert queue.lanes.count == queue.lanes.ready_records == 0
    outputs = queue.take_outputs()
    assert outputs.rescan
    # Every lane, by its key and in the line.
    assert sum(map(len, outputs.discarded)) >= 2 * LANES
    assert not queue.take_outputs().discarded


def test_the_index_is_made_anew_beside_what_is_let_go() -> None:
    queue = filled(ordering=Ordering.KEY)
    queue.rewind({0: 0}, NOW)
    queue.begin_generation(1, [])
    queue.admit(0, 1, range(10), 10, [b"new"] * 10, [], NOW, 5)
    discarded = queue.take_outputs().discarded
    assert queue.lanes.count == 1
    asyncio.run(let_go(discarded))
    assert not discarded
    [granted] = queue.take("w", 100, NOW)
    assert list(granted.record_ids) == [0]


class Counted:
    freed = 0

    def __del__(self) -> None:
        Counted.freed += 1


@pytest.mark.parametrize("make", [list, deque, lambda things: dict(enumerate(things))])
async def test_little_is_freed_in_one_turn(make: Any) -> None:
    containers = [make(Counted() for _ in range(LANES)), make([Counted()])]
    Counted.freed = before = 0
    task = asyncio.create_task(let_go(containers))
    while not task.done():
        await asyncio.sleep(0)
        assert Counted.freed - before <= 5 * TURN_STEPS
        before = Counted.freed
    assert Counted.freed == LANES + 1
    assert not containers


async def test_one_of_many_has_its_turn_in_each_round() -> None:
    rounds = turns = most = 0

    async def work() -> None:
        nonlocal turns
        pace = Pace()
        for _ in range(20):
            await pace.step(TURN_STEPS)
            turns += 1

    tasks = [asyncio.create_task(work()) for _ in range(10)]
    await asyncio.sleep(0)
    gone, *rest = tasks
    gone.cancel()
    while not all(task.done() for task in rest):
        before = turns
        await asyncio.sleep(0)
        rounds += 1
        most = max(most, turns - before)
    assert most == 1
    assert turns == 20 * len(rest)
    assert gone.cancelled()
    assert rounds < 3 * turns
