"""The read budget: responses shrink as it fills, small ones always go, large ones wait and are refused in the end."""

from __future__ import annotations

import asyncio

import pytest

from logbroker.broker.read_budget import MIN_RESPONSE_BYTES, ReadBudget
from logbroker.errors import OverloadedError

MIB = 1024 * 1024


def test_stalled_readers_never_use_it_up() -> None:
    budget = ReadBudget(128 * MIB, 1)
    held = []
    for _ in range(1000):
        held.append(budget.allowance(MIB))
        budget.hold(held[-1])
    assert held[0] == MIB
    assert held == sorted(held, reverse=True)
    assert held[-1] == MIN_RESPONSE_BYTES, "the thousandth reader still gets something"
    assert sum(held) <= 128 * MIB + 1000 * MIN_RESPONSE_BYTES
    for size in held:
        budget.release(size)
    assert budget.allowance(MIB) == MIB


async def test_a_large_batch_waits_for_memory() -> None:
    budget = ReadBudget(MIB, 20)
    budget.hold(MIB)
    assert not budget.fits(MIB)
    assert budget.fits(MIN_RESPONSE_BYTES)
    waiter = asyncio.create_task(budget.wait())
    await asyncio.sleep(0)
    assert not waiter.done()
    budget.release(1)
    await waiter
    assert budget.fits(MIB)


async def test_without_any_bytes_one_response_goes_at_a_time() -> None:
    budget = ReadBudget(0, 0.01)
    for _ in range(2):
        assert budget.fits(MIB)
        await budget.wait()
        await budget.acquire_decoder(held_bytes=0)
        budget.decoder.release()
        budget.hold(MIB)
        assert not budget.fits(MIB)
        await budget.acquire_decoder(held_bytes=MIB)
        budget.decoder.release()
        with pytest.raises(OverloadedError):
            await budget.wait()
        budget.release(MIB)


async def test_waiting_ends_with_a_refusal() -> None:
    budget = ReadBudget(10, 0.01)
    budget.hold(10)
    with pytest.raises(OverloadedError, match="max_fetch_bytes_in_flight"):
        await budget.wait()


async def test_a_decoder_waits_for_what_others_hold_and_not_for_its_own() -> None:
    budget = ReadBudget(10, 20)
    budget.hold(15)
    async with asyncio.timeout(25):
        await budget.acquire_decoder(held_bytes=6)
    budget.decoder.release()
    waiter = asyncio.create_task(budget.acquire_decoder(held_bytes=5))
    await asyncio.sleep(0)
    assert not waiter.done()
    assert not budget.decoder.locked(), "who waits for memory keeps nobody from decoding"
    budget.release(1)
    await asyncio.wait_for(waiter, 5)
    assert budget.decoder.locked()
