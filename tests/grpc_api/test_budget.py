"""The byte budget: bounded, first come first served, and nothing lost to cancelled waiters."""

from __future__ import annotations

import asyncio

import pytest

from logbroker.grpc_api.budget import ByteBudget


async def taken(budget: ByteBudget, size_bytes: int) -> bool:
    try:
        async with asyncio.timeout(0):
            await budget.take(size_bytes)
    except TimeoutError:
        return False
    return True


async def test_takes_up_to_the_total() -> None:
    budget = ByteBudget(100)
    assert await budget.take(60) == 60
    assert not await taken(budget, 41)
    assert await taken(budget, 40)
    budget.give_back(60)
    assert await taken(budget, 60)


async def test_more_than_all_counts_as_all() -> None:
    budget = ByteBudget(100)
    assert await budget.take(1000) == 100
    budget.give_back(100)
    assert await taken(budget, 100)


async def test_first_come_first_served() -> None:
    budget = ByteBudget(100)
    await budget.take(100)
    order = []

    async def wait(name: str, size_bytes: int) -> None:
        await budget.take(size_bytes)
        order.append(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(wait("large", 90))
        group.create_task(wait("small", 10))
        await asyncio.sleep(0)
        budget.give_back(50)
        await asyncio.sleep(0)
        assert order == [], "the small one must not overtake the large one"
        budget.give_back(50)
    assert order == ["large", "small"]


@pytest.mark.parametrize("granted", [False, True])
async def test_a_cancelled_waiter_gives_back(granted: bool) -> None:
    budget = ByteBudget(100)
    await budget.take(100)
    waiter = asyncio.create_task(budget.take(100))
    await asyncio.sleep(0)
    if granted:
        budget.give_back(100)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    if not granted:
        budget.give_back(100)
    assert await taken(budget, 100)
