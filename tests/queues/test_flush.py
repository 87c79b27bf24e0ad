"""Commits of a queue group: what comes together shares one, and who shares one leaves room for others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from logbroker.engine import StateEvent
from logbroker.queues.flush import MAX_REST_SECONDS, Flush
from logbroker.queues.messages import Outputs

ROW = StateEvent(b"row", b"value")


class HeldStore:
    """Takes a commit at a time, each until it is let go."""

    def __init__(self) -> None:
        self.commits: list[int] = []
        self.go = asyncio.Semaphore(0)

    async def commit(self, events: Sequence[StateEvent]) -> None:
        self.commits.append(len(events))
        await self.go.acquire()


def flush_into(store: Any) -> Flush:
    queue: Any = SimpleNamespace(take_outputs=lambda: Outputs([], [], [], [], False))
    return Flush("test", queue, store, lambda outputs: None)


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The rests between commits, which take no time here."""
    taken: list[float] = []
    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        taken.append(seconds)
        await real_sleep(0)

    monkeypatch.setattr("logbroker.queues.flush.asyncio.sleep", sleep)
    return taken


async def test_what_comes_during_a_commit_shares_the_next_one() -> None:
    store = HeldStore()
    flush = flush_into(store)
    first = flush.synced(1, [ROW])
    while not store.commits:
        await asyncio.sleep(0)
    others = [flush.synced(number, [ROW]) for number in (2, 3, 4)]
    store.go.release()
    assert await first == 1
    store.go.release()
    assert await asyncio.gather(*others) == [2, 3, 4]
    assert store.commits == [1, 3]
    await flush.settle()


async def test_who_is_alone_does_not_wait_and_who_shares_a_commit_rests_as_long_as_it_took(rests: list[float]) -> None:
    store = HeldStore()
    flush = flush_into(store)
    for number in range(3):
        store.go.release()
        assert await flush.synced(number, [ROW]) == number
    await flush.settle()
    assert rests == []
    store.go.release()
    await asyncio.gather(flush.synced(1, [ROW]), flush.synced(2, [ROW]))
    await flush.settle()
    assert len(rests) == 1
    assert 0 < rests[0] <= MAX_REST_SECONDS
