"""Numbers that are never given out twice: over restarts, kills in between, restored backups and a clock that steps."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from pathlib import Path

import pytest

from logbroker.broker.local_engine import lifetime
from logbroker.broker.local_engine.numbers import MAX_FROM_CLOCK
from logbroker.errors import DiskFullError, OverloadedError
from logbroker.storage.metadata.issued_numbers import ISSUED_NAME, IssuedNumbers, write_issued
from logbroker.tools.metadata_backup import Backup, back_up
from logbroker.tools.metadata_restore import extracted, plan_restore, restore
from tests.broker.conftest import OpenEngine

DAY_NS = 24 * 3600 * 10**9


def restored(backup: Backup, data_dir: Path) -> None:
    with extracted(backup, data_dir) as store:
        restore(plan_restore(backup, store, data_dir), store, data_dir)


@pytest.mark.parametrize("turn", range(3))
async def test_no_producer_id_and_no_number_comes_again(
    open_at: OpenEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201  # Shown where it fails.
    chance = random.Random(seed)
    real, ahead_ns = time.time_ns, 0
    monkeypatch.setattr(time, "time_ns", lambda: real() + ahead_ns)
    data_dir = tmp_path / "data"
    backups: list[Backup] = []
    ids: set[int] = set()
    number = 0
    for life in range(12):
        async with open_at() as opened:
            for _ in range(chance.choice((1, 3, 1100))):
                producer_id, _ = await opened.engine.init_producer_id()
                assert producer_id not in ids
                ids.add(producer_id)
            numbers = opened.state.numbers
            assert numbers.first > number
            number = numbers.first + chance.choice((0, 5, 1 << 40))
            await numbers.reserve(number + 1)
            assert numbers.reserved > number
            if chance.random() < 0.3:  # What a kill leaves, as all is quiet.
                shutil.copytree(data_dir, tmp_path / f"killed {life}")
        killed = tmp_path / f"killed {life}"
        if killed.exists():
            shutil.rmtree(data_dir)
            killed.rename(data_dir)
        if chance.random() < 0.4 or not backups:
            backups.append(back_up(data_dir, tmp_path / f"{life}.backup")[0])
        elif chance.random() < 0.7:
            restored(chance.choice(backups), data_dir)
        elif chance.random() < 0.5:
            (data_dir / ISSUED_NAME).unlink()  # By itself it takes nothing back.
            continue
        ahead_ns += chance.choice((-1, 0, 1)) * DAY_NS


async def test_a_lost_file_and_an_older_store_are_made_up_for_by_the_clock(open_at: OpenEngine, tmp_path: Path) -> None:
    async with open_at() as opened:
        await opened.engine.init_producer_id()
    shutil.copytree(tmp_path / "data", tmp_path / "old")
    async with open_at() as opened:
        ids = {(await opened.engine.init_producer_id())[0] for _ in range(3000)}
        first = opened.state.numbers.first
        await opened.state.numbers.reserve(first + 1)
    shutil.rmtree(tmp_path / "data")
    (tmp_path / "old").rename(tmp_path / "data")
    (tmp_path / "data" / ISSUED_NAME).unlink()
    async with open_at() as opened:
        assert (await opened.engine.init_producer_id())[0] not in ids
        assert opened.state.numbers.first > first


@pytest.mark.parametrize("handed_out_before", [0, 1, 1100])
async def test_a_data_directory_put_back_as_it_was_is_made_up_for_by_the_clock(
    open_at: OpenEngine, tmp_path: Path, handed_out_before: int
) -> None:
    """Everything in it, also where it was copied before anything was handed out."""
    ids: set[int] = set()
    first = 0
    async with open_at() as opened:
        ids |= {(await opened.engine.init_producer_id())[0] for _ in range(handed_out_before)}
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    for _ in range(3):
        async with open_at() as opened:
            new = [(await opened.engine.init_producer_id())[0] for _ in range(2100)]
            assert not ids & set(new)
            ids |= set(new)
            assert opened.state.numbers.first > first
            first = opened.state.numbers.first + 1000
            await opened.state.numbers.reserve(first)
        shutil.rmtree(tmp_path / "data")
        shutil.copytree(tmp_path / "copy", tmp_path / "data")


async def test_a_clock_that_is_far_ahead_once_leaves_numbers(
    open_at: OpenEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: (1 << 80) * 10**6)
        async with open_at() as opened:
            await opened.state.numbers.reserve(opened.state.numbers.first + 100)
            await opened.engine.init_producer_id()
    async with open_at() as opened:
        first = opened.state.numbers.first
        assert MAX_FROM_CLOCK <= first < MAX_FROM_CLOCK + 1000
        await opened.state.numbers.reserve(first + (1 << 61))
        with pytest.raises(OverloadedError):
            await opened.state.numbers.reserve(1 << 63)


async def test_a_caller_that_goes_away_leaves_the_end_where_it_was_raised_to(
    open_at: OpenEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = write_issued
    ends: list[int] = []

    def slowly(directory: str, issued: IssuedNumbers, *others: object) -> None:
        ends.append(issued.receipts)
        write(directory, issued, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(lifetime, "write_issued", slowly)
    async with open_at() as opened:
        first = opened.state.numbers.first
        for end in range(first + 1, first + 40):
            task = asyncio.create_task(opened.state.numbers.reserve(end))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
    assert ends == sorted(ends)
    async with open_at() as opened:
        assert opened.state.numbers.first >= max(ends)


async def test_where_the_file_cannot_be_written_nothing_is_given_out(
    open_at: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise DiskFullError("there is no room")

    async with open_at() as opened:
        with monkeypatch.context() as patch:
            patch.setattr(lifetime, "write_issued", full)
            with pytest.raises(DiskFullError):
                await opened.engine.init_producer_id()
            reserved = opened.state.numbers.reserved
            with pytest.raises(DiskFullError):
                await opened.state.numbers.reserve(reserved + 1)
            assert opened.state.numbers.reserved == reserved
        await opened.engine.init_producer_id()
