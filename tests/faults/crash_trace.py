"""The life of a partition that is recorded, and what it promised at each moment of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from logbroker.errors import DiskFullError, LogTruncatedError, TooManyOpenFilesError
from logbroker.record.header import HEADER_BYTES, PREFIX_BYTES, check_new_batch, parse_header
from logbroker.storage.handles import HandleCache
from logbroker.storage.partition_log import PartitionCheckpoint, PartitionLog
from logbroker.types import Durability, new_topic_id
from tests.faults.crash_disk import CrashState, MemoryFiles, Op, crash_states, disk_with, unsynced
from tests.storage.partition import NOW_MS, SMALL, batch_of

DIRECTORY = Path("/data/t-0")
PRODUCERS = (5, 6)


class Promised(msgspec.Struct):
    """Promises that held when an operation began."""

    staged: int = 0
    """The log end offset: nothing at or above it was ever sent."""
    written: int = 0
    """End offset of what a killed process must not lose."""
    synced: int = 0
    """End offset of what must never be lost."""
    visible: int = 0
    """End offset of what readers have seen, in `epoch`."""
    epoch: int = 0
    log_start: int = 0
    next_log_start: int = 0
    row: bytes = b""
    """The checkpoint in the metadata store."""


class Sent(NamedTuple):
    base_offset: int
    next_offset: int
    producer_id: int
    sequence: int
    body: bytes
    """The batch from its 17th byte on: what the broker does not change."""


class Trace:
    """Drives a partition the way the engine does, and writes down every operation and promise."""

    def __init__(self, seed: int, files: MemoryFiles | None = None) -> None:
        self.random = random.Random(seed)
        self.files = files or MemoryFiles()
        self.topic_id = new_topic_id()
        durability = self.random.choice(list(Durability))
        self.config = msgspec.structs.replace(SMALL, durability=durability, segment_bytes=1200)
        self.refused = 0
        """How many steps."""
        self.sent: list[Sent] = []
        self.promises: list[tuple[int, Promised]] = []
        """(operations before, promises from then on)."""
        self._now = Promised()
        self._sequences = dict.fromkeys(PRODUCERS, 0)
        if seed % 3:
            self._leave_over(synced=seed % 3 == 1)
        PartitionLog.create(DIRECTORY, self.topic_id, self.files)
        self._open()
        self._commit()
        self._born = len(self.files.ops)
        """From here on the topic exists."""

    def _leave_over(self, *, synced: bool) -> None:
        """Begin another topic of the same name, whose creation a crash cuts off."""
        PartitionLog.create(DIRECTORY, new_topic_id(), self.files)
        if synced:
            self.files.ops += (Op("fdatasync", inode) for inode in list(self.files.contents))
            self.files.ops += (Op("sync_directory", path=path) for path in (str(DIRECTORY.parent), str(DIRECTORY)))

    def _promise(self, **fields: object) -> None:
        self._now = msgspec.structs.replace(self._now, **fields)
        self.promises.append((len(self.files.ops), self._now))

    def at(self, index: int) -> Promised:
        """Return the promises that held after this many operations."""
        return next(promised for before, promised in reversed(self.promises) if before <= index)

    def _open(self) -> None:
        row = self._now.row
        self.log = PartitionLog.open(
            DIRECTORY,
            self.topic_id,
            self.config,
            files=self.files,
            handles=HandleCache(self.files, 3),
            checkpoint=msgspec.msgpack.decode(row, type=PartitionCheckpoint) if row else None,
        )

    def _commit(self, log_start: int = -1, checkpoint: PartitionCheckpoint | None = None) -> None:
        self.log.flush_indexes()
        checkpoint = checkpoint or self.log.checkpoint()
        if log_start >= 0:
            checkpoint.log_start_offset = log_start
            # Until the commit has returned, either may be found.
            self._promise(next_log_start=log_start)
        self.files.ops.append(Op("commit"))
        start = max(log_start, self._now.log_start)
        self._promise(row=msgspec.msgpack.encode(checkpoint), log_start=start, next_log_start=start)

    def run(self, steps: int) -> Trace:
        actions: Sequence[Callable[[], None]] = (
            self._append,
            self._append,
            self._append,
            self._write_only,
            self._sync,
            self._commit,
            self._retain,
            self._expire,
            self._restart,
        )
        for _ in range(steps):
            self.refused += self._refuses(self.random.choice(actions))
        return self

    def _refuses(self, action: Callable[[], None]) -> bool:
        """Do it; whether it was refused. A broker that is refused its start is started again."""
        try:
            action()
        except (DiskFullError, TooManyOpenFilesError):
            if group := self.log.take_staged():
                # What came before the refused one is written all the same.
                self.log.write(group)
                self.log.wrote(group, synced=False)
                self._written(synced=False)
            while action == self._restart and self._refuses(action):
                pass
            return True
        return False

    def _stage(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            count = self.random.randint(1, 3)
            producer_id = self.random.choice((-1, *PRODUCERS))
            sequence = self._sequences.get(producer_id, -1)
            values = [
                b"%d.%d" % (len(self.sent), index) + bytes(self.random.choice((0, 300))) for index in range(count)
            ]
            epoch = 0 if producer_id >= 0 else -1
            batch = batch_of(*values, producer_id=producer_id, epoch=epoch, sequence=sequence)
            # Before the call: it may create a segment.
            self._promise(staged=self.log.log_end_offset + count)
            found = self.log.stage(batch, check_new_batch(batch), NOW_MS)
            if producer_id >= 0:
                self._sequences[producer_id] += count
            self.sent.append(Sent(found.base_offset, found.next_offset, producer_id, sequence, batch[PREFIX_BYTES:]))

    def _written(self, *, synced: bool) -> None:
        end = self.log.log_end_offset
        visible = self.log.high_watermark
        self._promise(
            written=end, synced=end if synced else self._now.synced, visible=visible, epoch=self.log.leader_epoch
        )

    def _append(self) -> None:
        self._stage()
        group = self.log.take_staged()
        assert group is not None
        self.log.write(group)
        self.log.sync(self.log.begin_sync())
        self.log.wrote(group, synced=True)
        self._written(synced=True)

    def _write_only(self) -> None:
        self._stage()
        group = self.log.take_staged()
        assert group is not None
        self.log.write(group)
        self.log.wrote(group, synced=False)
        self._written(synced=False)

    def _sync(self) -> None:
        self.log.sync(self.log.begin_sync())
        self.log.mark_synced(self.log.written_end)
        self._written(synced=True)

    def _retain(self) -> None:
        self.log.config = msgspec.structs.replace(self.config, retention_bytes=1500)
        start = self.log.expired_segments(NOW_MS).start_offset
        if start > self.log.log_start_offset:
            self._commit(start)
            self.log.remove_files(self.log.advance_log_start(start))
        self.log.config = self.config

    def _expire(self) -> None:
        """All that is synced expires, the active segment too where that is all of it."""
        self.log.config = msgspec.structs.replace(self.config, retention_ms=0)
        start = self.log.expired_segments(NOW_MS + 1).start_offset
        self.log.config = self.config
        if start > self.log.log_start_offset:
            checkpoint = None
            if start == self.log.log_end_offset:
                self.log.begin_segment(NOW_MS)
                checkpoint = self.log.checkpoint()
                if self.random.random() < 0.3:
                    self._append()  # The loop goes on while the names are synced.
                self.log.sync_directory()
            self._commit(start, checkpoint)
            self.log.remove_files(self.log.advance_log_start(start))

    def _restart(self) -> None:
        """The process is killed between two operations, and its successor recovers what there is."""
        self._open()
        end = self.log.log_end_offset
        self.sent = [sent for sent in self.sent if sent.next_offset <= end]
        for producer_id in PRODUCERS:
            self._sequences[producer_id] = sum(
                sent.next_offset - sent.base_offset for sent in self.sent if sent.producer_id == producer_id
            )
        self._promise(staged=end, written=end, synced=end, visible=end, epoch=self.log.leader_epoch)
        self._commit()

    @property
    def moments(self) -> range:
        """How many operations may have ended when it crashes."""
        return range(self._born, len(self.files.ops) + 1)

    def states(self, count: int) -> list[CrashState]:
        """So many of the states that a crash may leave, from all over the trace."""
        found: list[CrashState] = []
        moments = self.moments
        while len(found) < count:
            torn = [0.0, self.random.random(), self.random.random()]
            states = list(crash_states(self.files.ops, self.random.choice(moments), torn))
            found += self.random.sample(states, min(len(states), 4))
        return found[:count]

    def crashed_again(self, state: CrashState, torn: Iterable[float] = ()) -> Iterator[CrashState]:
        """The states that a crash may leave of the recovery from a crash, at each operation of it."""
        files = disk_with(state.ops)
        before = state.ops
        if state.rebooted:
            # What a boot has found on the disk is there.
            before = [*before, *(Op("fdatasync", inode) for inode in files.contents)]
            before += [Op("sync_directory", path=path) for path in ("/data", str(DIRECTORY))]
        self._opened(files, self.at(state.at).row, rebooted=state.rebooted)
        ops = [*before, *files.ops]
        for done in range(1, len(files.ops) + 1):
            for again in crash_states(ops, len(before) + done, torn):
                about = f"{state.about}; then {again.about} after operation {done} of the recovery"
                yield CrashState(about, state.at, state.rebooted or again.rebooted, again.ops)

    def check(self, state: CrashState) -> MemoryFiles:
        """Open what the crash left, and compare it with what was promised; returns the disk as it is after that.

        Raises AssertionError or CorruptLogError.
        """
        promised = self.at(state.at)
        files = disk_with(state.ops)
        log = self._opened(files, promised.row, rebooted=state.rebooted)
        end = log.log_end_offset
        must = promised.synced if state.rebooted else promised.written
        assert must <= end <= promised.staged, f"the log ends at {end}, not from {must} to {promised.staged}"
        assert log.high_watermark == log.synced_offset == end
        assert log.log_start_offset in (promised.log_start, promised.next_log_start)
        self._check_records(log)
        self._check_producers(log)
        on_disk = {name: size for name, size in files.list_directory(str(DIRECTORY)).items() if name.endswith(".log")}
        assert sum(on_disk.values()) == log.size_bytes, f"{on_disk} are not cut where the log ends"
        # What is served now is durable, also if the next power cut comes before the next commit. What a reboot has
        # read from the disk is there; what a killed process wrote may be in the page cache only.
        ops = [*state.ops, *files.ops]
        lost = {index for index in unsynced(ops) if index >= len(state.ops) or not state.rebooted}
        survivors = disk_with(op for index, op in enumerate(ops) if index not in lost)
        again = self._opened(survivors, promised.row, rebooted=True)
        assert again.log_end_offset == end, f"{end} was served, but only {again.log_end_offset} was kept"
        self._check_records(again)
        self._check_that_it_goes_on(again, promised)
        return survivors

    def _check_that_it_goes_on(self, log: PartitionLog, promised: Promised) -> None:
        lost = promised.visible - log.log_end_offset
        batch = batch_of(*[b"after"] * (max(0, lost) + 1))
        log.stage(batch, check_new_batch(batch), NOW_MS)
        group = log.take_staged()
        assert group is not None
        log.write(group)
        log.sync(log.begin_sync())
        log.wrote(group, synced=True)
        assert log.high_watermark == log.log_end_offset > promised.visible
        if lost > 0:
            # Whoever read what is lost would take the new records for those that follow it.
            try:
                log.check_leader_epoch(promised.epoch, promised.visible)
            except LogTruncatedError:
                return
            raise AssertionError(f"a reader that saw {promised.visible} does not learn that the log was cut")

    def _opened(self, files: MemoryFiles, row: bytes, *, rebooted: bool) -> PartitionLog:
        checkpoint = msgspec.msgpack.decode(row, type=PartitionCheckpoint) if row else None
        if checkpoint is not None and rebooted:
            checkpoint.boot_id = "an earlier boot"
        handles = HandleCache(files, 3)
        return PartitionLog.open(
            DIRECTORY, self.topic_id, self.config, files=files, handles=handles, checkpoint=checkpoint
        )

    def _check_records(self, log: PartitionLog) -> None:
        expected = {sent.base_offset: sent for sent in self.sent}
        offset = log.log_start_offset
        while chunk := log.read(offset, 1 << 20, nowait=False).batches:
            position = 0
            while position < len(chunk):
                header = parse_header(chunk, position)
                end = position + header.size_bytes
                assert header.base_offset == offset
                assert chunk[position + PREFIX_BYTES : end] == expected[offset].body, f"phantom at offset {offset}"
                assert header.size_bytes >= HEADER_BYTES
                offset = header.next_offset
                position = end
        assert offset == log.log_end_offset

    def _check_producers(self, log: PartitionLog) -> None:
        found = {
            producer.producer_id: [
                (batch.first_sequence, batch.base_offset, batch.next_offset) for batch in producer.batches
            ]
            for producer in log.checkpoint().producers
        }
        expected = {}
        for producer_id in PRODUCERS:
            batches = [
                (sent.sequence, sent.base_offset, sent.next_offset)
                for sent in self.sent
                if sent.producer_id == producer_id and sent.next_offset <= log.log_end_offset
            ]
            if batches:
                expected[producer_id] = batches[-5:]
        assert found == expected
