"""A group whose copies an operator has repaired goes on without those that are lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from logbroker.cli.main import run as run_command
from logbroker.queues.retention import copies, holder
from logbroker.record.codec import split_batches
from logbroker.record.compression import Codec
from tests.queues.retained import COPIES, KEYS, again, all_held
from tests.queues.shell import shell, until
from tests.queues.test_copies import copied_once
from tests.queues.test_rewind_past_damage import BAD, COUNT, RECORD_BYTE, is_scanned, park_and_copy, worked_off

NEW = range(COUNT, COUNT + 30)
"""Numbers of the records that are written after the repair."""


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holder, "BATCH_BYTES", 2000)
    monkeypatch.setattr(copies, "_CODECS", (Codec.NONE,))


def damage(path: Path, number: int) -> None:
    """Damage a record of one batch of a file."""
    content = bytearray(path.read_bytes())
    before = [batch for _, batch in split_batches(bytes(content))][:number]
    content[sum(map(len, before)) + RECORD_BYTE] ^= 1
    path.write_bytes(content)


def repair(directory: Path, how: str) -> None:
    assert run_command(["segment", "repair", str(directory), how, "--yes"]) == 0


@pytest.mark.parametrize("is_resumed", [False, True], ids=["parked", "resumed"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("how", ["--accept-gaps", "--cut"])
async def test_a_group_goes_on_without_copies_that_a_repair_gave_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str, is_killed: bool, is_resumed: bool
) -> None:
    bounds, path = await park_and_copy(tmp_path)
    damage(path, 1)
    repair(path.parent, how)
    lost = range(bounds[1][0], 1 + (bounds[1] if how == "--accept-gaps" else bounds[-1])[1])
    if is_killed:
        async with shell(tmp_path, crash=True) as opened:
            await is_scanned(await again(opened))
        caplog.clear()
    async with shell(tmp_path, crash=is_killed) as opened:
        run = await again(opened, () if is_resumed else [BAD])
        if is_resumed:
            await run.resume()
        await is_scanned(run)
        if not is_killed:
            [text] = [text for text in caplog.messages if "are lost, and given up" in text]
            assert text == (
                f"queue group g: the copies of records {lost.start} to {lost.stop - 1} of partition 0 are lost, and"
                f" given up: __queue.g-0 has no batch at offset {len(range(0, lost.start, 2))} any more"
            )
            assert run.group.queue.tally.expired == len(range(lost.start, lost.stop, 2))
        await run.write([b"free"], NEW)
        found: list[int] = []
        if is_resumed:
            found = await worked_off(run)
        else:
            await run.work(len(NEW))
            assert run.done == {b"free": [*NEW]}
        begun = run.facts().log_start_offset
        await run.retain()
        assert run.facts().log_start_offset > begun, "retention goes on"
        assert is_resumed or not any(offset in lost for offset in run.copied())
    async with shell(tmp_path) as opened:
        run = await again(opened)
        await is_scanned(run)
        if not is_resumed:
            await run.resume()
            found = [*await worked_off(run), *NEW]
        assert sorted(found) == [number for number in range(NEW.stop) if number in NEW or 2 * number not in lost]
        assert [number for number in found if number < COUNT] == sorted(number for number in found if number < COUNT)
        assert await worked_off(run) == []


async def test_a_group_goes_on_after_a_repair_has_given_up_all_copies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bounds, path = await park_and_copy(tmp_path)
    path.unlink()
    repair(path.parent, "--accept-gaps")
    async with shell(tmp_path) as opened:
        assert f"the copies of records 0 to {bounds[-1][1]} of partition 0 are lost, and given up" in caplog.text
        run = await again(opened)
        assert run.copied() == []
        await is_scanned(run)
        await run.resume()
        assert await worked_off(run) == [number for number in range(COUNT) if 2 * number > bounds[-1][1]]


async def test_lost_copies_of_records_that_the_log_still_has_are_made_again(tmp_path: Path) -> None:
    await copied_once(tmp_path, COUNT)
    path = tmp_path / "data" / f"{COPIES}-0" / f"{0:020d}.log"
    damage(path, 1)
    repair(path.parent, "--accept-gaps")
    async with shell(tmp_path, crash=True) as opened:
        run = await again(opened, [b"blocked"])
        await run.retain()
        assert run.facts().log_start_offset > 0
        await run.write(KEYS, range(COUNT, COUNT + 60))
        await run.work(7 * 60)
        await run.retain()
    async with shell(tmp_path) as opened:
        run = await again(opened)
        await all_held(run, COUNT + 60)
        await run.resume()
        await run.work(COUNT + 60)
        assert run.done == {b"blocked": list(range(COUNT + 60))}


async def test_copies_in_a_partition_that_cannot_be_read_are_not_given_up(tmp_path: Path) -> None:
    """The file comes back: all copies are handed out."""
    _bounds, path = await park_and_copy(tmp_path)
    path.rename(tmp_path / "away")
    async with shell(tmp_path) as opened:
        run = await again(opened, [BAD])
        await until(lambda: run.group.scanner.stopped)
        await run.retain()
    (tmp_path / "away").rename(path)
    async with shell(tmp_path) as opened:
        run = await again(opened)
        await is_scanned(run)
        await run.resume()
        assert await worked_off(run) == [*range(COUNT)]
