"""What a queue group keeps of its index: used where it fits, and never where it might be wrong."""

from __future__ import annotations

import asyncio
import random
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from logbroker.broker.local_engine.engine import LocalEngine
from logbroker.engine import Append, Appended, Read, ReadResult
from logbroker.errors import LogbrokerError
from logbroker.queues import sidecar as sidecar_module
from logbroker.queues.columns import Columns
from logbroker.queues.messages import Settlement
from logbroker.queues.places import place_of
from logbroker.queues.queue_group import QueueGroup
from logbroker.queues.settings import Ordering, Priority
from logbroker.queues.sidecar import Sidecar
from logbroker.queues.sidecar_files import DIRECTORY, SidecarFiles
from logbroker.queues.sidecar_format import Checkpoint, Gathered, StoredBlock, decode, encode
from logbroker.queues.starts import StartAt
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.record.message_headers import NOT_BEFORE, PRIORITY
from tests.queues.shell import Shell, ack, hello, records, shell, take, until

PARTITIONS = 3
ORDERINGS = [Ordering.NONE, Ordering.KEY]

# --- the format ------------------------------------------------------------------------------------------------------


def gathered(draw: random.Random, *, has_gaps: bool, has_keys: bool) -> tuple[Gathered, Columns]:
    """Some columns in pieces, and as a whole from the position on at which the first piece counts."""
    offsets: list[int] = []
    for _ in range(200):
        offsets.append((offsets[-1] if offsets else 99) + (draw.choice((1, 1, 5)) if has_gaps else 1))
    keys: list[bytes | None] = [draw.choice((b"a", b"", b"b" * 300, None)) if has_keys else None for _ in offsets]
    whole = Columns(
        offsets,
        offsets[-1] + 1 + (3 if has_gaps else 0),
        keys if has_keys else [],
        [(offset, draw.randrange(1 << 50)) for offset in offsets if draw.random() < 0.1],
        bytes(draw.randrange(10) for _ in offsets),
        array("q", (draw.randrange(-1, 1 << 50) for _ in offsets)),
        [],
    )
    start = 10
    found = Gathered.begin(1, offsets[start])
    position = offsets[start]
    for first, end in ((0, 70), (70, 71), (71, 200)):
        following = offsets[end] if end < 200 else whole.next_offset
        piece = Columns(
            offsets[first:end],
            following,
            whole.keys[first:end],
            [due for due in whole.not_before if offsets[first] <= due[0] < following],
            whole.priorities[first:end],
            whole.times[first:end],
            [],
        )
        found.add(position, piece)
        position = following
    rest = Columns(
        offsets[start:],
        whole.next_offset,
        whole.keys[start:],
        [due for due in whole.not_before if due[0] >= offsets[start]],
        whole.priorities[start:],
        whole.times[start:],
        [],
    )
    return found, rest


@pytest.mark.parametrize("has_gaps", [False, True])
@pytest.mark.parametrize("has_keys", [False, True])
def test_a_block_is_read_as_it_was_gathered(has_gaps: bool, has_keys: bool) -> None:
    found, columns = gathered(random.Random(1), has_gaps=has_gaps, has_keys=has_keys)
    block = decode(encode(found.block(7)), StoredBlock)
    assert block is not None
    read = block.columns()
    assert list(read.offsets) == list(columns.offsets)
    assert msgspec.structs.replace(read, offsets=()) == msgspec.structs.replace(columns, offsets=())
    assert isinstance(read.offsets, range) is not has_gaps
    summary = found.summary(7, 3, 1, 0, 1)
    assert block.is_of(summary)
    for priority in range(10):
        times = [time for each, time in zip(columns.priorities, columns.times, strict=True) if each == priority]
        assert summary.counts[priority] == len(times)
        assert summary.least_ms[priority] == min(times, default=0)
    assert summary.due_ms == max(due_ms for _, due_ms in columns.not_before)


@pytest.mark.parametrize("kind", [StoredBlock, Checkpoint])
def test_no_damage_is_taken_for_what_was_written(kind: type[Any]) -> None:
    found, _ = gathered(random.Random(2), has_gaps=True, has_keys=True)
    value: Any = found.block(7)
    if kind is Checkpoint:
        value = Checkpoint(1, "boot", b"t" * 16, "key", "", [found.summary(7, 3, 1, 0, 1)])
    data = encode(value)
    assert decode(data, kind) == value
    for index in range(len(data)):
        flipped = bytearray(data)
        flipped[index] ^= 1 << index % 8
        assert decode(bytes(flipped), kind) is None
        assert decode(data[:index], kind) is None
    assert decode(data + b"\0", kind) is None


# --- over lives of a broker ------------------------------------------------------------------------------------------


class Reads:
    """Which partitions were read, from which offsets on."""

    def __init__(self, opened: Shell) -> None:
        self.offsets: list[tuple[int, int]] = []
        read = opened.engine.read

        async def noted(reads: list[Read]) -> list[ReadResult | LogbrokerError]:
            self.offsets += [(wish.partition, wish.offset) for wish in reads]
            return await read(reads)

        opened.engine.read = noted  # type: ignore[method-assign, assignment]


async def fill(opened: Shell, draw: random.Random, batches: int = 16) -> None:
    """Append records of all priorities, some keys and mixed timestamps."""
    topic = opened.engine.topic("t")
    for number in range(batches):
        partition = draw.randrange(PARTITIONS)
        batch = [
            NewRecord(
                b"%d-%d" % (number, index),
                draw.choice((None, b"k%d-%d" % (partition, draw.randrange(5)))),
                [(PRIORITY, b"%d" % draw.randrange(10))],
                timestamp_ms=draw.randrange(1_000_000),
            )
            for index in range(draw.randrange(1, 10))
        ]
        [result] = await opened.engine.append([Append(topic.id, partition, encode_batch(batch))])
        assert isinstance(result, Appended)


async def group_of(opened: Shell, ordering: Ordering, **settings: Any) -> QueueGroup:
    group = await opened.group(ordering=ordering, priority=Priority.STRICT, **settings)
    await until(lambda: not group.scanner.is_indexing)
    return group


async def all_values(group: QueueGroup) -> list[bytes | None]:
    """Take all there is, with an ordering one after the other, and acknowledge it; return it in its order."""
    await until(lambda: not group.scanner.is_indexing)
    link = await group.connect(hello(f"reader-{random.random()}"))
    values: list[bytes | None] = []
    while group.queue.open_records:
        link.add_credit(100 if group.queue.settings.ordering is Ordering.NONE else 1)
        async with asyncio.timeout(10):
            delivered = await link.next_deliveries()
        values += [record.value for record in records(delivered)]
        await ack(link, *range(delivered.first_receipt, delivered.first_receipt + delivered.count))
    await link.goodbye()
    return values


def files(path: Path) -> list[Path]:
    return sorted((path / "data" / DIRECTORY).rglob("*.*"))


async def order_without_sidecar(path: Path, ordering: Ordering, seed: int, acked: int) -> list[bytes | None]:
    """The order in which the records of a seed come from a group that never had a restart."""
    async with shell(path) as opened:
        await opened.topic(partitions=PARTITIONS)
        group = await group_of(opened, ordering)
        draw = random.Random(seed)
        await fill(opened, draw)
        await until(lambda: group.scanner.unscanned() == 0 and not group.scanner.is_indexing)
        link = await group.connect(hello())
        for _ in range(acked):
            [(receipt, _)] = await take(link, 1)
            await ack(link, receipt)
        await link.goodbye()
        return await all_values(group)


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("ending", ["stop", "crash", "crash after a checkpoint", "without files"])
async def test_the_order_after_a_restart_is_that_without_one(tmp_path: Path, ordering: Ordering, ending: str) -> None:
    seed, acked = 5, 20
    expected = await order_without_sidecar(tmp_path / "other", ordering, seed, acked)
    path = tmp_path / "one"
    async with shell(path, crash=ending.startswith("crash")) as opened:
        await opened.topic(partitions=PARTITIONS)
        group = await group_of(opened, ordering)
        await fill(opened, random.Random(seed))
        await until(lambda: group.scanner.unscanned() == 0 and not group.scanner.is_indexing)
        link = await group.connect(hello())
        for _ in range(acked):
            [(receipt, _)] = await take(link, 1)
            await ack(link, receipt)
        await link.goodbye()
        if ending == "crash after a checkpoint":
            group.sidecar.close()
    if ending == "without files":
        for file in files(path):
            if file.is_file():
                file.unlink()
    async with shell(path) as opened:
        reads = Reads(opened)
        group = opened.groups.group("g")
        await until(lambda: not group.scanner.is_indexing)
        used = ending in ("stop", "crash after a checkpoint")
        assert bool(reads.offsets) is not used, "the log was read for what is kept of it, or nothing was kept"
        assert await all_values(group) == expected


@contextmanager
def small_blocks(monkeypatch: pytest.MonkeyPatch, count: int) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setattr(sidecar_module, "BLOCK_RECORDS", count)
        yield


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("seed", range(3))
async def test_damaged_files_are_never_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ordering: Ordering, seed: int
) -> None:
    draw = random.Random(seed)
    expected = await order_without_sidecar(tmp_path / "other", ordering, seed, 0)
    path = tmp_path / "one"
    with small_blocks(monkeypatch, 16):
        async with shell(path) as opened:
            await opened.topic(partitions=PARTITIONS)
            group = await group_of(opened, ordering)
            await fill(opened, random.Random(seed))
            await until(lambda: group.scanner.unscanned() == 0 and not group.scanner.is_indexing)
        [blocks] = [file for file in files(path) if file.suffix == ".blocks"]
        data = bytearray(blocks.read_bytes())
        if seed == 0:
            data = data[: len(data) // 2]
        for _ in range(5):
            data[draw.randrange(len(data))] ^= 0xFF
        blocks.write_bytes(data)
        async with shell(path) as opened:
            group = opened.groups.group("g")
            values = await all_values(group)
            assert sorted(map(str, values)) == sorted(map(str, expected))
            if ordering is Ordering.KEY:
                assert values == expected


async def refused_files(path: Path, change: Callable[[], Any], **settings: Any) -> list[tuple[int, int]]:
    """What of the log is read at a start after a change."""
    async with shell(path) as opened:
        await opened.topic(partitions=PARTITIONS)
        group = await group_of(opened, Ordering.KEY, **settings)
        await fill(opened, random.Random(1))
        await until(lambda: group.scanner.unscanned() == 0 and not group.scanner.is_indexing)
    change()
    async with shell(path) as opened:
        reads = Reads(opened)
        group = opened.groups.group("g")
        await until(lambda: not group.scanner.is_indexing)
        return reads.offsets


async def test_files_of_another_boot_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await refused_files(tmp_path / "a", lambda: None) == []
    change = lambda: monkeypatch.setattr(LocalEngine, "boot_id", "another boot")  # noqa: E731
    assert await refused_files(tmp_path / "b", change) != []


async def test_blocks_of_another_leader_epoch_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the log was cut, what is written there since may be another record."""

    def cut() -> None:
        facts = LocalEngine.partition_facts
        monkeypatch.setattr(
            LocalEngine,
            "partition_facts",
            lambda *place: msgspec.structs.replace(facts(*place), leader_epoch=facts(*place).leader_epoch + 1),
        )

    assert await refused_files(tmp_path, cut) != []


async def test_planted_a_stale_block_that_is_used_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sidecar, "_fits", lambda sidecar, checkpoint: True)
    with pytest.raises(AssertionError):
        await test_files_of_another_boot_are_not_used(tmp_path, monkeypatch)


async def test_blocks_of_other_settings_are_not_used(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic(partitions=PARTITIONS)
        group = await group_of(opened, Ordering.NONE)
        await fill(opened, random.Random(1))
        await until(lambda: group.scanner.unscanned() == 0)
        assert group.queue.lanes.count == 0
        await opened.groups.alter("g", {"ordering": Ordering.KEY})
        await until(lambda: group.queue.lanes.count and not group.scanner.is_indexing)
        lanes = group.queue.lanes.count
    async with shell(tmp_path) as opened:
        reads = Reads(opened)
        group = opened.groups.group("g")
        await until(lambda: not group.scanner.is_indexing)
        assert (reads.offsets, group.queue.lanes.count) == ([], lanes)


async def test_a_rewind_uses_what_is_kept_and_misses_nothing(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic(partitions=PARTITIONS)
        group = await group_of(opened, Ordering.NONE)
        await fill(opened, random.Random(1))
        before = await all_values(group)
        await group.operations.rewind(StartAt())
        assert await all_values(group) == before


async def test_not_before_times_are_kept(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        topic = await opened.topic()
        await group_of(opened, Ordering.NONE)
        headers: list[tuple[str, bytes | None]] = [(NOT_BEFORE, b"9999999999999"), (PRIORITY, b"9")]
        batch = encode_batch([NewRecord(b"later", None, headers), NewRecord(b"now", None, [(PRIORITY, b"0")])])
        await opened.engine.append([Append(topic.id, 0, batch)])
        group = opened.groups.group("g")
        await until(lambda: group.queue.open_records == 2)
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        link = await group.connect(hello())
        [(_, record)] = await take(link, 1)
        assert record.value == b"now"
        assert group.queue.ready_records() == 0


async def test_a_deleted_group_leaves_no_files_and_another_of_its_name_sees_none(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic(partitions=PARTITIONS)
        group = await group_of(opened, Ordering.NONE)
        await fill(opened, random.Random(1))
        await until(lambda: group.scanner.unscanned() == 0)
        group.sidecar.close()
        assert files(tmp_path)
        await opened.groups.delete("g")
        assert not files(tmp_path)
    stray = tmp_path / "data" / DIRECTORY / "gone.index" / "1.blocks"
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"x")
    async with shell(tmp_path):
        assert not files(tmp_path)


async def test_a_topic_of_the_same_name_never_sees_old_files(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        topic = await opened.topic(partitions=PARTITIONS)
        group = await group_of(opened, Ordering.NONE)
        await fill(opened, random.Random(1))
        await until(lambda: group.scanner.unscanned() == 0)
        group.sidecar.close()
        kept = {file: file.read_bytes() for file in files(tmp_path) if file.is_file()}
        await opened.engine.delete_topic(topic.id)
        await until(lambda: not opened.groups.ids())
        await opened.topic(partitions=PARTITIONS)
        for file, data in kept.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        group = await group_of(opened, Ordering.NONE)
        assert group.queue.open_records == 0


async def test_a_disk_that_takes_nothing_is_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(files: SidecarFiles, data: bytes) -> tuple[int, int]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SidecarFiles, "append", full)
    with small_blocks(monkeypatch, 16):
        async with shell(tmp_path) as opened:
            await opened.topic(partitions=PARTITIONS)
            group = await group_of(opened, Ordering.NONE)
            await fill(opened, random.Random(1))
            await until(lambda: group.scanner.unscanned() == 0)
            count = group.queue.open_records
            assert len(await all_values(group)) == count
    assert caplog.text.count("its index is not kept on disk any more (No space left on device)") == 1
    assert not files(tmp_path)


async def test_what_is_done_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logbroker.queues.sidecar_files.FILE_BYTES", 1000)
    with small_blocks(monkeypatch, 16):
        async with shell(tmp_path) as opened:
            await opened.topic(partitions=PARTITIONS)
            group = await group_of(opened, Ordering.NONE)
            await fill(opened, random.Random(1), batches=100)
            await until(lambda: group.scanner.unscanned() == 0)
            before = len(files(tmp_path))
            link = await group.connect(hello())
            await ack(link, *[receipt for receipt, _ in await take(link, group.queue.open_records)])
            await link.settle(Settlement())
            group.sidecar.close()
            assert before > 4
            assert len([file for file in files(tmp_path) if file.suffix == ".blocks"]) <= 1


async def test_a_group_without_priorities_keeps_nothing(tmp_path: Path) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic(partitions=PARTITIONS)
        group = await opened.group()
        await fill(opened, random.Random(1))
        await until(lambda: group.scanner.unscanned() == 0)
    assert not files(tmp_path)


async def test_workers_come_back_for_what_lies_in_blocks_that_are_not_read(tmp_path: Path) -> None:
    async with shell(tmp_path, crash=True) as opened:
        await opened.topic(partitions=PARTITIONS)
        group = await group_of(opened, Ordering.NONE, grace_seconds=1.0)
        await fill(opened, random.Random(1))
        await until(lambda: group.scanner.unscanned() == 0)
        link = await group.connect(hello())
        link.add_credit(7)
        delivered = await link.next_deliveries()
        held = list(map(place_of, delivered.partitions, delivered.offsets))
        waiting = group.queue.open_records
        group.sidecar.close()
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        link = await group.connect(hello(held=held))
        assert sorted(place for granted in link.reclaimed for place in granted.places) == sorted(held)
        other = await group.connect(hello("other"))
        rest = await take(other, waiting - len(held))
        assert len({record.value for _, record in rest}) == len(rest)
        assert not {record.value for _, record in rest} & {record.value for record in records(delivered)}
