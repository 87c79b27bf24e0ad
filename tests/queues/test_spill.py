"""Chunks on disk: they come back as they were, the file goes when nothing is in it, and a full disk stops nobody."""

from __future__ import annotations

import errno
import os
from array import array
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logbroker.queues.machine.inspect import Inspector
from logbroker.queues.machine.successors import CHUNKS_IN_MEMORY
from logbroker.queues.model.lane import CHUNK_RECORDS
from logbroker.queues.model.messages import Settlement
from logbroker.queues.model.settings import OnExhausted, Priority
from logbroker.queues.scan.spill import SLOT_BYTES, SpillFile
from tests.queues.groups import ack, admit, at, nack, new_queue, receipts, record_ids


def chunk(number: int) -> array[int]:
    return array("q", range(number, number + CHUNK_RECORDS))


def size_bytes(spill: SpillFile) -> int | None:
    return None if spill._file is None else os.fstat(spill._file.fileno()).st_size


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(("put", "put", "take", "drop")), st.integers(0, 1 << 40)), max_size=60))
def test_chunks_come_back_as_they_were(tmp_path: Path, steps: list[tuple[str, int]]) -> None:
    spill = SpillFile(tmp_path, "g")
    kept: dict[int, array[int]] = {}
    most = 0
    for step, value in steps:
        if step == "put":
            number = spill.put(chunk(value))
            assert number not in kept
            kept[number] = chunk(value)
        elif kept:
            number = sorted(kept)[value % len(kept)]
            expected = kept.pop(number)
            if step == "take":
                assert spill.take(number) == expected
            else:
                spill.drop(number)
        most = max(most, len(kept)) if kept else 0
        assert (size_bytes(spill) or 0) == most * SLOT_BYTES, "free slots are used again"
        assert (spill._file is None) == (not kept)
    assert list(tmp_path.iterdir()) == [], "the file has no name"
    spill.close()


def test_a_disk_that_is_full_sends_chunks_to_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spill = SpillFile(tmp_path, "g")
    first = spill.put(chunk(1))
    answers: list[int | OSError] = [OSError(errno.ENOSPC, "No space left on device"), 100, OSError(errno.EIO, "broken")]

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", pwrite)
        others = [spill.put(chunk(number)) for number in (2, 3, 4)]
    later = spill.put(chunk(5))
    spill.drop(others[1])
    assert [spill.take(number) for number in (first, others[0], others[2], later)] == [
        chunk(1),
        chunk(2),
        chunk(4),
        chunk(5),
    ]
    assert size_bytes(spill) is None
    assert [record.message for record in caplog.records if "queue group g" in record.message] == [
        f"queue group g: {tmp_path} takes no more record ids (No space left on device): they stay in memory"
    ]


def test_a_slot_that_the_disk_refused_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spill = SpillFile(tmp_path, "g")
    first, second = spill.put(chunk(1)), spill.put(chunk(2))
    spill.drop(first)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", lambda fd, data, offset: 0)
        refused = spill.put(chunk(3))
    assert spill.put(chunk(4)) == first
    assert [spill.take(number) for number in (first, second, refused)] == [chunk(4), chunk(2), chunk(3)]
    assert size_bytes(spill) is None


def test_a_directory_that_is_gone_sends_chunks_to_memory(tmp_path: Path) -> None:
    spill = SpillFile(tmp_path / "nowhere", "g")
    assert spill.take(spill.put(chunk(1))) == chunk(1)


def unreadable(fd: int, size: int, offset: int) -> bytes:
    raise OSError(errno.EIO, "Input/output error")


def test_a_chunk_that_cannot_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spill = SpillFile(tmp_path, "g")
    number = spill.put(chunk(1))
    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", unreadable)
        assert spill.take(number) is None
    assert "Input/output error" in caplog.text
    assert spill._file is not None
    os.ftruncate(spill._file.fileno(), 100)
    assert spill.take(number) is None
    assert "shorter" in caplog.text
    spill.drop(number)
    assert size_bytes(spill) is None


@pytest.mark.parametrize("priority", [Priority.NONE, Priority.STRICT])
def test_where_a_chunk_cannot_be_read_all_is_scanned_anew_and_comes_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, priority: Priority
) -> None:
    in_memory, count = CHUNKS_IN_MEMORY * CHUNK_RECORDS, 20 * CHUNK_RECORDS
    queue = new_queue(priority=priority)
    spill = SpillFile(tmp_path, "g")
    queue.lanes.successors._store = spill
    keys = [*[b"long"] * count, b"short", b"short"]
    admit(queue, keys)
    long, short = receipts(queue.take("w", 2, at(0)))
    for record_id in range(1, in_memory + 1):
        assert queue.settle("w", Settlement(acks=[(long, long)]), at(0)) == []
        granted = queue.take("w", 1, at(0))
        assert record_ids(granted) == [record_id]
        [long] = receipts(granted)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", unreadable)
        # The lane that cannot go on comes first.
        assert queue.settle("w", Settlement(acks=[(long, long), (short, short)]), at(0)) == []
    assert queue.take("w", 10, at(0)) == [], "what comes next of the long lane is not known"
    assert queue.take_outputs().rescan
    assert size_bytes(spill) is None
    queue.begin_generation(1, ())
    start = queue.position(0)
    admit(queue, keys[start:], start=start)
    left: list[int] = []
    while granted := queue.take("w", 1000, at(0)):
        left += record_ids(granted)
        ack(queue, granted)
    assert [record_id for record_id in left if record_id < count] == list(range(in_memory + 1, count))
    assert [record_id for record_id in left if record_id >= count] == [count + 1]
    assert queue.open_records == 0


def test_who_waits_for_a_lane_that_lost_a_chunk_is_served_without_another_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = new_queue(on_exhausted=OnExhausted.BLOCK, max_attempts=1)
    queue.lanes.successors._store = SpillFile(tmp_path, "g")
    admit(queue, [b"k"] * 20 * CHUNK_RECORDS)
    for _ in range(CHUNKS_IN_MEMORY * CHUNK_RECORDS):
        ack(queue, queue.take("w", 1, at(0)))
    nack(queue, queue.take("w", 1, at(0)))
    deadline = queue.deadline()
    assert deadline != 0.0
    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", unreadable)
        inspector = Inspector(queue)
        inspector.skip(inspector.lane(b"k"), at(0))
    assert queue.deadline() == 0.0
    queue.tick(at(0))
    assert queue.rescan_due
    assert queue.deadline() == deadline


def test_a_long_lane_goes_through_the_file_in_order(tmp_path: Path) -> None:
    queue = new_queue(max_in_flight=1)
    spill = SpillFile(tmp_path, "g")
    queue.lanes.successors._store = spill
    count = 60 * CHUNK_RECORDS
    admit(queue, [b"k"] * count)
    assert (size_bytes(spill) or 0) >= 40 * SLOT_BYTES
    for number in range(count):
        granted = queue.take("w", 1, at(0))
        assert record_ids(granted) == [number]
        ack(queue, granted)
    assert size_bytes(spill) is None
