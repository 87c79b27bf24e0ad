"""A group that is moved past damage in the log goes on behind it, and keeps the readable records of its held lanes."""

from __future__ import annotations

from pathlib import Path

import pytest

from logbroker.queues.model.settings import OnExhausted
from logbroker.queues.model.starts import Rewound, StartAt
from logbroker.queues.retention import copies, holder
from logbroker.queues.scan.scanner import Scanner
from logbroker.record.codec import split_batches
from logbroker.record.compression import Codec
from tests.queues.retained import CONFIGS, COPIES, GroupRun, again, begin
from tests.queues.shell import Shell, ack, hello, nack, shell, take, until
from tests.queues.test_standing import scan_nothing

COUNT = 60
IN_SEGMENT = 7
"""Records of each segment. Each is a batch of its own."""
FIRST, LATER = 2, 4
"""Numbers of the damaged segments."""
HEADS = {"before the damage": 5, "in the damage": 15, "in later damage": 29}
BAD = b"bad"
HEADER_BYTE, RECORD_BYTE = 7, 70
"""Bytes of a batch: one that its CRC does not cover, and one that it covers."""


def key_of(offset: int, head: int) -> bytes:
    """From the head on, every third record is of the lane that fails."""
    if offset == 0:
        return b"first"
    return BAD if offset >= head and (offset - head) % 3 == 0 else b"free"


async def fill_and_work(opened: Shell, on_exhausted: OnExhausted, head: int) -> None:
    """Work off all records below the head but the first record, and fail the head."""
    await opened.engine.create_topic("t", 1, CONFIGS | {"retention.hold.bytes": "0"})
    group = await opened.group(max_attempts=1, on_exhausted=on_exhausted, grace_seconds=0.0)
    link = await group.connect(hello())
    for offset in range(COUNT):
        await opened.append((key_of(offset, head), b"%0180d" % offset))
        if offset > head:
            continue
        [(receipt, record)] = await take(link, 1)
        assert int(record.value or b"") == offset
        if offset == head:
            await nack(link, receipt)
        elif offset:
            await ack(link, receipt)
    await until(lambda: group.inspector.held())


def damage(tmp_path: Path, segment: int, at: int) -> range:
    """Damage one byte of the second batch of a segment; return the offsets that cannot be read."""
    path = tmp_path / "data" / "t-0" / f"{segment * IN_SEGMENT:020d}.log"
    content = bytearray(path.read_bytes())
    batches = list(split_batches(bytes(content)))
    assert len(batches) == IN_SEGMENT
    content[len(batches[0][1]) + at] ^= 1
    path.write_bytes(content)
    return range(segment * IN_SEGMENT + 1, (segment + 1) * IN_SEGMENT)


async def is_scanned(run: GroupRun) -> None:
    queue = run.group.queue
    await until(lambda: queue.admission.generation and queue.position(0) == run.facts().high_watermark)
    await until(lambda: not run.group.scanner.stopped)


async def worked_off(run: GroupRun) -> list[int]:
    """Acknowledge everything that is ready, and return the offsets in their order."""
    found = []
    while run.group.inspector.counts().ready:
        [(receipt, record)] = await take(run.link, 1)
        found.append(int(record.value or b""))
        await ack(run.link, receipt)
    return found


@pytest.mark.prove(keep=6)
@pytest.mark.parametrize("is_found", [True, False], ids=["found", "not found"])
@pytest.mark.parametrize("at", [RECORD_BYTE, HEADER_BYTE], ids=["CRC", "header"])
@pytest.mark.parametrize("on_exhausted", [OnExhausted.PARK, OnExhausted.BLOCK])
@pytest.mark.parametrize("head_is", HEADS)
async def test_a_group_that_stands_before_damage_is_moved_past_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head_is: str, on_exhausted: OnExhausted, at: int, is_found: bool
) -> None:
    head = HEADS[head_is]
    async with shell(tmp_path, crash=True) as opened:
        await fill_and_work(opened, on_exhausted, head)
    lost, later = damage(tmp_path, FIRST, at), damage(tmp_path, LATER, at)
    is_parked = on_exhausted is OnExhausted.PARK
    async with shell(tmp_path) as opened:
        with monkeypatch.context() as patch:
            if not is_found:
                patch.setattr(Scanner, "_scan_some", scan_nothing)
            run = await again(opened)
            if is_found:
                await until(lambda: run.group.scanner.stopped)
            kept = [offset for offset in range(head, lost.start) if key_of(offset, head) == BAD]
            unreadable = len(range(max(head, lost.start), lost.stop))
            # The first record and those from the head on are not done.
            skipped = 1 + len(range(head, lost.stop)) - len(kept)
            planned = await run.group.operations.rewind(StartAt(offset=lost.stop), dry_run=True)
            assert planned == [Rewound(0, 0, lost.stop, len(kept), skipped, unreadable)]
        assert await run.group.operations.rewind(StartAt(offset=lost.stop)) == planned
        await until(lambda: run.group.scanner.stopped)
        assert run.group.queue.position(0) == later.start
        is_held = bool(kept) or is_parked
        kept += [offset for offset in range(lost.stop, later.start) if is_held and key_of(offset, head) == BAD]
        [rewound] = await run.group.operations.rewind(StartAt(offset=later.stop))
        assert isinstance(rewound, Rewound)
        assert rewound.standing_records == len(kept)
        assert (rewound.unreadable_records == len(later)) == is_held
        await is_scanned(run)
        assert (BAD in run.group.queue.stalled.parked) == is_parked
        assert bool(run.group.inspector.held()) == is_held
    async with shell(tmp_path) as opened:
        run = await again(opened)
        await is_scanned(run)
        found = await worked_off(run)
        await run.retain()
        assert run.facts().log_start_offset > later.stop, "retention waits no longer"
        await run.resume()
        found += await worked_off(run)
        assert sorted(found) == [*kept, *range(later.stop, COUNT)]
        assert [offset for offset in found if key_of(offset, head) == BAD] == [
            offset for offset in sorted(found) if key_of(offset, head) == BAD
        ]


@pytest.mark.parametrize("at", [RECORD_BYTE, HEADER_BYTE], ids=["CRC", "header"])
async def test_a_rewind_finds_damage_in_done_records_that_nobody_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """The scan would stop at the damage, so the records of a held lane behind it in its segment are given up."""
    head = 15
    held = [offset for offset in range(COUNT) if key_of(offset, head) == BAD]
    async with shell(tmp_path) as opened:
        await fill_and_work(opened, OnExhausted.PARK, head)
    async with shell(tmp_path) as opened:
        run = await again(opened)
        for _ in range(1 + len(range(head, COUNT)) - len(held)):
            [(receipt, _record)] = await take(run.link, 1)
            await ack(run.link, receipt)
    lost = damage(tmp_path, LATER, at)
    assert lost.start not in held
    async with shell(tmp_path) as opened:
        with monkeypatch.context() as patch:
            patch.setattr(Scanner, "_scan_some", scan_nothing)
            run = await again(opened)
            planned = await run.group.operations.rewind(StartAt(offset=lost.stop), dry_run=True)
        kept = [offset for offset in held if offset < lost.start]
        given_up = [offset for offset in held if offset in lost]
        assert given_up
        assert planned == [Rewound(0, head, lost.stop, len(kept), len(given_up), len(given_up))]
        assert await run.group.operations.rewind(StartAt(offset=lost.stop)) == planned
        await is_scanned(run)
        found = await worked_off(run)
        await run.resume()
        found += await worked_off(run)
        assert sorted(found) == [*kept, *range(lost.stop, COUNT)]


async def park_and_copy(tmp_path: Path) -> tuple[list[tuple[int, int]], Path]:
    """Let retention copy the records of a parked lane, every second one of the log. Return the first and last offset of
    each batch of copies, and their file."""
    async with shell(tmp_path) as opened:
        run = await begin(opened, [BAD], on_exhausted=OnExhausted.PARK)
        await opened.engine.alter_topic(opened.engine.topic("t").id, set_configs={"retention.hold.bytes": "0"})
        await run.write([BAD, b"free"], range(COUNT))
        await run.work(COUNT)
        await run.retain()
        bounds = [(batch.first, last) for last, batch in run.group.hold.copies.batches(0)]
        assert len(bounds) > 2
    return bounds, tmp_path / "data" / f"{COPIES}-0" / f"{0:020d}.log"


@pytest.mark.parametrize("is_found", [True, False], ids=["found", "not found"])
async def test_a_group_is_moved_past_damage_in_its_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_found: bool
) -> None:
    """Copies before the damage stay. Later copies in the same file are given up, and new records are served."""
    monkeypatch.setattr(holder, "BATCH_BYTES", 2000)
    monkeypatch.setattr(copies, "_CODECS", (Codec.NONE,))
    bounds, path = await park_and_copy(tmp_path)
    content = bytearray(path.read_bytes())
    content[len(next(split_batches(bytes(content)))[1]) + RECORD_BYTE] ^= 1
    path.write_bytes(content)
    kept = range(bounds[1][0] // 2)
    async with shell(tmp_path) as opened:
        with monkeypatch.context() as patch:
            if not is_found:
                patch.setattr(Scanner, "_scan_some", scan_nothing)
            run = await again(opened)
            if is_found:
                await until(lambda: run.group.scanner.stopped)
            start = run.facts().log_start_offset
            if is_found:
                advice = f"`logbroker queue rewind g --partition 0 --to {start}`"
                assert str(run.group.scanner.stopped[0]).endswith(advice)
            unreadable = len(range(bounds[1][0], start, 2))
            planned = await run.group.operations.rewind(StartAt(offset=start), dry_run=True)
            assert planned == [Rewound(0, 0, start, len(kept), unreadable, unreadable)]
        assert await run.group.operations.rewind(StartAt(offset=start)) == planned
        await is_scanned(run)
        await run.resume()
        assert sorted(await worked_off(run)) == [*kept, *(offset // 2 for offset in range(start, 2 * COUNT))]
