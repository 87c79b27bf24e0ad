"""A partition against a list of records, through appends, reads, retention, checkpoints, kills and power cuts."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from logbroker.errors import OffsetOutOfRangeError, OutOfOrderSequenceError
from logbroker.record.compression import Codec
from logbroker.storage.partition_log import WriteGroup
from logbroker.types import Durability
from tests.storage.partition import NOW_MS, SMALL, PartitionOnDisk, batch_of, decoded

PRODUCER = 7


@dataclass(frozen=True)
class Batch:
    """An appended batch, as the model knows it."""

    batch: bytes
    base_offset: int
    next_offset: int
    values: tuple[bytes, ...]
    timestamp_ms: int
    path: str = ""
    end_position: int = 0
    group: int = 0


class PartitionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.batches: list[Batch] = []
        self.synced = 0
        """So many of the batches are synced for certain."""
        self.start_offset = 0
        self.synced_path = ""
        """The file that had the end of what was synced at the last deletion: it stays until the next one."""
        self.rebooted = False
        """Whether the stored checkpoint is of an earlier boot."""
        self.groups = 0
        self.counter = 0
        self.sequence = 0
        self.sent: list[tuple[bytes, int, int]] = []
        """The idempotent producer's batches: (batch, base offset, next offset)."""

    @initialize(durability=st.sampled_from(Durability))
    def open(self, durability: Durability) -> None:
        config = msgspec.structs.replace(SMALL, durability=durability)
        self.partition = PartitionOnDisk(self.directory / "t-0", config)
        self.partition.store_checkpoint()  # As with a topic's creation: without one it would be an imported log.

    def teardown(self) -> None:
        if hasattr(self, "partition"):
            self.partition.kill()
        shutil.rmtree(self.directory)

    @property
    def end_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    # --- appends ---

    def _values(self, count: int, size: int) -> tuple[bytes, ...]:
        self.counter += 1
        return tuple(b"%d.%d" % (self.counter, index) + bytes(size) for index in range(count))

    def _stage(self, batch: bytes, values: tuple[bytes, ...], timestamp_ms: int) -> Batch:
        staged = self.partition.stage(batch)
        assert not staged.duplicate
        assert staged.base_offset == self.end_offset
        return Batch(batch, staged.base_offset, staged.next_offset, values, timestamp_ms)

    def _write(self, staged: list[Batch], *, sync: bool) -> None:
        group = self.partition.write(sync=sync)
        assert group is not None
        self.groups += 1
        places = _places(group)
        assert len(places) == len(staged)
        for index, (path, end) in enumerate(places):
            self.batches[index - len(places)] = replace(staged[index], path=path, end_position=end, group=self.groups)
        if sync:
            self.synced = len(self.batches)

    @rule(
        batches=st.lists(
            st.tuples(st.integers(1, 4), st.integers(0, 400), st.integers(0, 50), st.sampled_from(Codec)),
            min_size=1,
            max_size=6,
        ),
        sync=st.booleans(),
    )
    def append(self, batches: list[tuple[int, int, int, Codec]], sync: bool) -> None:
        staged = []
        for count, size, age, codec in batches:
            values = self._values(count, size)
            timestamp_ms = NOW_MS - age
            batch = batch_of(*values, timestamp_ms=timestamp_ms, codec=codec)
            staged.append(self._stage(batch, values, timestamp_ms))
            self.batches.append(staged[-1])
        self._write(staged, sync=sync)

    @rule(count=st.integers(1, 3), sync=st.booleans())
    def append_idempotent(self, count: int, sync: bool) -> None:
        values = self._values(count, 10)
        batch = batch_of(*values, producer_id=PRODUCER, epoch=0, sequence=self.sequence)
        staged = self._stage(batch, values, NOW_MS)
        self.batches.append(staged)
        self.sequence += count
        self.sent.append((batch, staged.base_offset, staged.next_offset))
        self._write([staged], sync=sync)

    @precondition(lambda self: self.sent)
    @rule(back=st.integers(1, 8))
    def send_again(self, back: int) -> None:
        if back > len(self.sent):
            return
        batch, base_offset, next_offset = self.sent[-back]
        if back <= 5:
            staged = self.partition.stage(batch)
            assert (staged.duplicate, staged.base_offset, staged.next_offset) == (True, base_offset, next_offset)
        else:
            with pytest.raises(OutOfOrderSequenceError):
                self.partition.stage(batch)

    @rule()
    def skip_a_sequence(self) -> None:
        batch = batch_of(b"x", producer_id=PRODUCER, epoch=0, sequence=self.sequence + 1)
        with pytest.raises(OutOfOrderSequenceError):
            self.partition.stage(batch)

    @rule()
    def sync(self) -> None:
        self.partition.log.sync(self.partition.log.begin_sync())
        self.partition.log.mark_synced(self.partition.log.written_end)
        self.synced = len(self.batches)

    # --- reads ---

    def _readable(self) -> list[Batch]:
        written = self.partition.config.durability is Durability.WRITTEN
        return self.batches if written else self.batches[: self.synced]

    @rule(data=st.data(), max_bytes=st.integers(0, 5000), nowait=st.booleans())
    def read(self, data: st.DataObject, max_bytes: int, nowait: bool) -> None:
        log = self.partition.log
        offset = data.draw(st.integers(log.log_start_offset, log.high_watermark))
        try:
            chunk = log.read(offset, max_bytes, nowait=nowait)
        except BlockingIOError:
            assert nowait
            chunk = log.read(offset, max_bytes, nowait=False)
        expected = [batch for batch in self._readable() if batch.next_offset > offset]
        if not expected:
            assert (chunk.batches, chunk.next_offset) == (b"", offset)
            return
        records = list(decoded(chunk.batches))
        assert records[0].offset == expected[0].base_offset
        assert records[-1].offset + 1 == chunk.next_offset
        values = [value for batch in expected for value in batch.values]
        assert [record.value for record in records] == values[: len(records)]
        one_batch = len(records) == len(expected[0].values)
        assert len(chunk.batches) <= max_bytes or one_batch
        # As much as fits, within a segment.
        after = [batch for batch in expected if batch.base_offset == chunk.next_offset]
        if after and after[0].path == expected[0].path:
            assert len(chunk.batches) + len(after[0].batch) > max_bytes

    @rule(offset=st.integers(-3, 3))
    def read_out_of_range(self, offset: int) -> None:
        log = self.partition.log
        if offset < 0:
            with pytest.raises(OffsetOutOfRangeError):
                log.read(log.log_start_offset + offset, 100, nowait=True)
        elif offset > 0:
            with pytest.raises(OffsetOutOfRangeError):
                log.read(log.high_watermark + offset, 100, nowait=True)

    @rule(age=st.integers(-2, 52))
    def find_time(self, age: int) -> None:
        timestamp_ms = NOW_MS - age
        found = self.partition.log.offset_for_time(timestamp_ms)
        young = [
            (max(batch.base_offset, self.start_offset), batch.timestamp_ms)
            for batch in self._readable()
            if batch.timestamp_ms >= timestamp_ms and batch.next_offset > self.start_offset
        ]
        assert (found.offset, found.timestamp_ms) == (young[0] if young else (-1, -1))

    @rule()
    def find_latest_time(self) -> None:
        found = self.partition.log.offset_for_latest_time()
        kept = [batch for batch in self._readable() if batch.next_offset > self.start_offset]
        latest = max(kept, key=lambda batch: batch.timestamp_ms, default=None)
        offset = -1 if latest is None else max(latest.base_offset, self.start_offset)
        assert (found.offset, found.timestamp_ms) == (offset, -1 if latest is None else latest.timestamp_ms)

    # --- upkeep and restarts ---

    @rule(data=st.data(), new_segment=st.booleans())
    def delete_below(self, data: st.DataObject, new_segment: bool) -> None:
        """Records are deleted on request, also within a segment or a batch."""
        log = self.partition.log
        offset = data.draw(st.integers(log.log_start_offset, min(log.high_watermark, log.synced_offset)))
        if offset == log.log_start_offset:
            return
        if new_segment and offset == log.log_end_offset:
            log.begin_segment(NOW_MS)
            log.sync_directory()
        self._begin_at(offset)

    def _begin_at(self, start_offset: int) -> None:
        log = self.partition.log
        self.partition.store_checkpoint()
        checkpoint = self.partition.stored_checkpoint()
        assert checkpoint is not None
        checkpoint.log_start_offset = start_offset
        self.partition.stored = msgspec.msgpack.encode(checkpoint)
        self.synced_path = self.batches[self.synced - 1].path if self.synced else ""
        log.remove_files(log.advance_log_start(start_offset))
        self.start_offset = start_offset

    @rule(retention_bytes=st.integers(0, 8000))
    def retain(self, retention_bytes: int) -> None:
        log = self.partition.log
        log.config = msgspec.structs.replace(self.partition.config, retention_bytes=retention_bytes)
        start_offset = log.expired_segments(NOW_MS).start_offset
        assert start_offset <= log.high_watermark
        if start_offset > log.log_start_offset:
            size_before = log.size_bytes
            self._begin_at(start_offset)
            assert retention_bytes <= log.size_bytes < size_before
        log.config = self.partition.config

    @rule(age=st.integers(-2, 52))
    def expire(self, age: int) -> None:
        """Retention by age, which takes the active segment where all of the log has expired, and is synced."""
        log = self.partition.log
        log.config = msgspec.structs.replace(self.partition.config, retention_ms=age + 2)
        start_offset = log.expired_segments(NOW_MS).start_offset
        log.config = self.partition.config
        assert start_offset <= log.high_watermark
        gone = [batch for batch in self.batches if batch.next_offset <= start_offset]
        assert all(batch.timestamp_ms < NOW_MS - age - 2 for batch in gone if batch.next_offset > self.start_offset)
        if start_offset > log.log_start_offset:
            if start_offset == log.log_end_offset:
                log.begin_segment(NOW_MS)
                log.sync_directory()
            self._begin_at(start_offset)
            if start_offset == log.log_end_offset:
                assert (log.size_bytes, log.segment_count) == (0, 1)

    @rule()
    def checkpoint(self) -> None:
        self.partition.store_checkpoint()
        self.rebooted = False

    @rule()
    def restart(self) -> None:
        self.partition.stop()
        self.rebooted = False
        self.synced = len(self.batches)
        epoch = self.partition.log.leader_epoch
        self.partition.open()
        assert self.partition.log.leader_epoch == epoch
        self._check_ends()

    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        """The process dies, perhaps within its last write."""
        self.partition.kill()
        last_group = [batch for batch in self.batches[self.synced :] if batch.group == self.groups]
        torn = data.draw(st.none() | st.sampled_from(last_group)) if last_group else None
        epoch = self.partition.log.leader_epoch
        cut = False
        if torn is not None and torn.path == self.batches[-1].path:
            cut = self._tear(data, torn)
        self.partition.open()
        assert self.partition.log.leader_epoch - epoch == cut or self.rebooted
        self._check_ends()

    @rule(data=st.data())
    def cut_power(self, data: st.DataObject) -> None:
        """The machine dies: anything that was not synced may be missing."""
        self.partition.kill()
        self.partition.after_power_cut()
        self.rebooted = True
        if self.batches[self.synced :]:
            self._tear(data, data.draw(st.sampled_from(self.batches[self.synced :])))
        self.partition.open()
        self._check_ends()

    def _tear(self, data: st.DataObject, torn: Batch) -> bool:
        """Damage a batch in its file; returns whether something is left there to be cut off."""
        kept = data.draw(st.integers(0, len(torn.batch) - 1))
        start = torn.end_position - len(torn.batch)
        with open(torn.path, "r+b") as file:
            file.truncate(start + kept)
            if data.draw(st.booleans()):
                file.seek(start + kept)
                file.write(b"\xa5" * (torn.end_position - start - kept))
        self.batches = [batch for batch in self.batches if batch.base_offset < torn.base_offset]
        return Path(torn.path).stat().st_size > start

    def _check_ends(self) -> None:
        log = self.partition.log
        assert log.high_watermark == log.log_end_offset == log.synced_offset == self.end_offset
        self.synced = len(self.batches)
        self.sent = [sent for sent in self.sent if sent[2] <= self.end_offset]
        lost = [batch for batch in self.sent if batch[2] > self.end_offset]
        assert not lost
        count = sum(next_offset - base_offset for _, base_offset, next_offset in self.sent)
        self.sequence = count
        assert self.partition.values() == [
            value for batch in self.batches if batch.next_offset > self.start_offset for value in batch.values
        ]

    @invariant()
    def facts_agree(self) -> None:
        if not hasattr(self, "partition"):
            return
        log = self.partition.log
        assert log.log_start_offset == self.start_offset
        assert log.log_end_offset == self.end_offset
        readable = self._readable()
        assert log.high_watermark == max((batch.next_offset for batch in readable), default=0)
        # The file of a segment stays until all of it is below the log start.
        paths = {batch.path for batch in self.batches if batch.next_offset > self.start_offset}
        paths |= {segment.log_path for segment in log._view.segments[-1:]}
        paths |= {each.log_path for each in log._view.segments if each.log_path == self.synced_path}
        on_disk = [batch for batch in self.batches if batch.path in paths]
        assert log.size_bytes == sum(len(batch.batch) for batch in on_disk)


def _places(group: WriteGroup) -> list[tuple[str, int]]:
    """Where the batches of a group lie: (path, end position) of each."""
    places = []
    for segment, start, buffers in group.runs:
        position = start
        for prefix, rest in zip(buffers[::2], buffers[1::2], strict=True):
            position += len(prefix) + len(rest)
            places.append((segment.log_path, position))
    return places


TestPartition = PartitionMachine.TestCase
TestPartition.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
