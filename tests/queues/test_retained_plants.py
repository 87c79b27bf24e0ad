"""Bugs planted in what lets retention go on beside queue groups: a story of two lives shows each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logbroker.config import MAX_INT64
from logbroker.queues.retention import copies
from logbroker.queues.retention import holder as retention_hold
from logbroker.queues.retention.copies import Copies
from logbroker.queues.retention.holder import RetentionHolder
from logbroker.queues.retention.stalled_records import StalledRecords, Standing
from logbroker.queues.state import rows
from logbroker.record.compression import Codec
from tests.queues.retained import COPIES, again, begin
from tests.queues.shell import shell, until

COUNT = 25

Plant = Callable[[pytest.MonkeyPatch], None]


async def story(path: Path) -> None:
    """Retention takes what stands, twice; after a crash all of it comes back, in order."""
    async with shell(path, crash=True) as opened:
        run = await begin(opened, [b"blocked"])
        for start in (0, COUNT):
            await run.write([b"blocked", *[b"free"] * 6], range(start, start + COUNT))
            await run.work(6 * COUNT)
            await run.retain()
        assert run.facts().log_start_offset > 6 * COUNT
        assert run.facts().size_bytes < 32_000, "the disk fills"
    async with shell(path) as opened:
        run = await again(opened)
        group = run.group
        await until(lambda: group.scanner.stopped or group.queue.position(0) == run.facts().high_watermark)
        assert not group.scanner.stopped, "what was kept cannot be read"
        await run.resume()
        while group.inspector.counts().ready:
            await run.work_once()
        assert run.done.keys() <= {b"blocked"}, "what is done came again"
        assert run.done.get(b"blocked") == list(range(2 * COUNT)), "records are lost, or out of order"
        assert group.queue.done.floor(0) == run.facts().high_watermark
        await opened.groups.delete("g")
        assert [topic.name for topic in opened.engine.topics()] == ["t"], f"{COPIES} stays"


async def test_without_a_bug_the_story_ends_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_hold, "BATCH_BYTES", 3_000)
    await story(tmp_path)


async def nothing(self: Copies) -> None:
    pass


def hold_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RetentionHolder, "needed_from", lambda self, partition: MAX_INT64)


def never_lets_go(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RetentionHolder, "let_go", lambda self, partition, offset: None)


def copy_order_reversed(patch: pytest.MonkeyPatch) -> None:
    encoded = copies._encoded
    patch.setattr(copies, "_encoded", lambda records: encoded(records[::-1]))


def copies_in_each_others_place(patch: pytest.MonkeyPatch) -> None:
    originals = copies._originals

    def swapped(batch: bytes) -> list[Any]:
        found = originals(batch)
        for record, other in zip(found, [each.value for each in found[::-1]], strict=True):
            record.value = other
        return found

    patch.setattr(copies, "_originals", swapped)


def successors_skipped(patch: pytest.MonkeyPatch) -> None:
    standing = StalledRecords.standing

    async def only_heads(self: StalledRecords, *arguments: int) -> Standing:
        found = await standing(self, *arguments)
        found.keys.clear()
        return found

    patch.setattr(StalledRecords, "standing", only_heads)


def done_records_copied_by_key_only(patch: pytest.MonkeyPatch) -> None:
    standing = StalledRecords.standing

    async def only_keys(self: StalledRecords, *arguments: int) -> Standing:
        found = await standing(self, *arguments)
        found.keys = {b"free"}
        return found

    patch.setattr(StalledRecords, "standing", only_keys)


def copying_begins_after_what_is_held(patch: pytest.MonkeyPatch) -> None:
    read = StalledRecords.read
    patch.setattr(
        StalledRecords,
        "read",
        lambda self, partition, start, until, **named: read(self, partition, start + 10, until, **named),
    )


def last_batch_forgotten(patch: pytest.MonkeyPatch) -> None:
    add = Copies.add

    async def every_other(self: Copies, partition: int, records: list[Any], *rest: Any) -> None:
        if records[0].offset % 2:
            await add(self, partition, records, *rest)

    patch.setattr(Copies, "add", every_other)


def rows_not_stored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(copies, "upsert", lambda key, value: rows.delete(key))
    patch.setattr(Copies, "take_up", nothing)  # It would find them all the same.


def copies_not_held(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(copies._CONFIGS, "segment.bytes", "2000")
    patch.setattr(copies, "_CODECS", (Codec.NONE,))
    patch.setattr(Copies, "needed_from", lambda self, partition: MAX_INT64)


def copies_not_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Copies, "next_batch", lambda self, partition, offset: None)


def copies_outlive_the_group(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Copies, "delete", nothing)


PLANTS: list[Plant] = [
    hold_ignored,
    never_lets_go,
    copy_order_reversed,
    copies_in_each_others_place,
    successors_skipped,
    done_records_copied_by_key_only,
    copying_begins_after_what_is_held,
    last_batch_forgotten,
    rows_not_stored,
    copies_not_held,
    copies_not_read,
    copies_outlive_the_group,
]


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
async def test_a_planted_bug_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Plant) -> None:
    monkeypatch.setattr(retention_hold, "BATCH_BYTES", 3_000)
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        await story(tmp_path)
