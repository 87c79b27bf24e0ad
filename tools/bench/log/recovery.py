"""The cost of an unclean stop at the next start: the broker of a growing data directory is killed again and again."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from logbroker.client import Admin
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import CorruptLogError, LogbrokerError
from logbroker.tools.bench.harness import load
from logbroker.tools.bench.harness.measure import MIB, PRODUCE, TOPIC, Row, Setup
from logbroker.tools.segments.metadata import Metadata
from logbroker.types import TopicPartition

NO_CHECKPOINTS_SECONDS: Final = 86_400
"""The time between checkpoints. It is so long that appended bytes stay above the recovery points until the broker
stores recovery points early: at an eighth of its bound on such bytes, or at half of it if there are many partitions."""


async def recovery(
    setup: Setup,
    *,
    gigabytes: Sequence[float],
    partitions: int,
    unsynced_megabytes: Sequence[float],
    batch_bytes: int,
    cold: bool,
) -> list[Row]:
    """Measure the seconds from exec to `ready` after a SIGKILL, for data directories of these sizes, in ascending
    order.

    Before each start, about `unsynced_megabytes` are appended in batches of `batch_bytes`. The name of the row says how
    much lies above the recovery points: less if the broker stored recovery points early (`NO_CHECKPOINTS_SECONDS`).
    Between these starts, an empty broker that was killed is started, too. With `cold`, no byte of the directory is in
    the page cache, otherwise as much of it as fits in memory.
    """
    rows: list[Row] = []
    empty: list[float] = []
    setup.check_room(int(max(gigabytes) * 1e9 + setup.rounds * len(gigabytes) * sum(unsynced_megabytes) * MIB))
    with tempfile.TemporaryDirectory(prefix="logbroker-bench-", dir=setup.directory) as directory:
        empty_dir = Path(directory, "empty")
        _start_seconds(EmbeddedBroker(empty_dir))
        data = _Data(Path(directory, "data"), partitions)
        for size in sorted(gigabytes):
            await data.grow(int(size * 1e9))
            for wanted in unsynced_megabytes:
                seconds, found = [], []
                for _ in range(setup.rounds):
                    await data.append_and_kill(int(wanted * MIB), batch_bytes)
                    found.append(data.bytes_above_recovery_points())
                    if cold:
                        _evict(data.path)
                    empty.append(_start_seconds(EmbeddedBroker(empty_dir)))
                    seconds.append(await data.start_seconds())
                above = f"{statistics.median(found) / MIB:.3g} MiB above the recovery points"
                name = f"exec to ready after a kill, {size:g} GB in {partitions} partitions, {above}"
                rows.append(Row(name=name, durability="written", unit="s", rounds=seconds, ceiling_rounds=[]))
    name = "exec to ready after a kill, empty data directory"
    return [Row(name=name, durability="-", unit="s", rounds=empty, ceiling_rounds=[]), *rows]


class _Data:
    """A data directory with one topic. No broker runs on it between the calls."""

    def __init__(self, path: Path, partitions: int) -> None:
        self.path = path
        self._partitions = [TopicPartition(TOPIC, number) for number in range(partitions)]
        self._ends: list[int] = []

    async def grow(self, size_bytes: int) -> None:
        """Fill the directory up to `size_bytes`, and stop the broker cleanly."""
        with EmbeddedBroker(self.path) as broker:
            before = self._log_bytes()
            if not before:
                async with Admin(broker.address) as admin:
                    configs = {"durability": "written", "max.message.bytes": str(2 * MIB), "retention.ms": "-1"}
                    await admin.create_topic(TOPIC, len(self._partitions), configs=configs)
            await self._append(broker, size_bytes - before, MIB)

    async def append_and_kill(self, size_bytes: int, batch_bytes: int) -> None:
        """Append `size_bytes` over all partitions, with a broker that stores no recovery points at intervals, and kill
        it."""
        with EmbeddedBroker(self.path, checkpoint_seconds=NO_CHECKPOINTS_SECONDS) as broker:
            await self._append(broker, size_bytes, batch_bytes)
            self._ends = await self._log_ends(broker)
            broker.kill()

    async def start_seconds(self) -> float:
        """Start a broker, check that no record is missing, and kill it. Return the seconds of the start. Raises
        CorruptLogError."""
        broker = EmbeddedBroker(self.path)
        start = time.perf_counter()
        with broker:
            seconds = time.perf_counter() - start
            if await self._log_ends(broker) != self._ends:
                raise CorruptLogError("the restarted broker does not have what the killed one had acknowledged")
            broker.kill()
        return seconds

    def bytes_above_recovery_points(self) -> int:
        """Return the number of bytes above the recovery points, by the sizes of the files and the metadata store."""
        known_bytes = 0
        metadata = Metadata(self.path)
        try:
            topic_id, _row = metadata.topics[TOPIC]
            for number in range(len(self._partitions)):
                checkpoint = metadata.checkpoint(topic_id, number)
                known_bytes += sum(entry.size_bytes for entry in checkpoint.segments) if checkpoint else 0
        finally:
            metadata.close()
        return self._log_bytes() - known_bytes

    async def _append(self, broker: EmbeddedBroker, size_bytes: int, batch_bytes: int) -> None:
        requests = load.spread_requests(TOPIC, len(self._partitions), load.batch_of(batch_bytes), size_bytes)
        await load.fill(broker.address, PRODUCE, requests, load.check_produced)

    def _log_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.path.glob("*/*.log"))

    async def _log_ends(self, broker: EmbeddedBroker) -> list[int]:
        async with Admin(broker.address) as admin:
            listed = await admin.list_offsets(self._partitions, "latest")
        ends = []
        for found in listed:
            if isinstance(found, LogbrokerError):
                raise found
            ends.append(found.offset)
        return ends


def _start_seconds(broker: EmbeddedBroker) -> float:
    start = time.perf_counter()
    with broker:
        seconds = time.perf_counter() - start
        broker.kill()
    return seconds


def _evict(directory: Path) -> None:
    """Take the files of a directory out of the page cache."""
    for path in directory.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fdatasync(fd)  # Unsynced pages would stay in the cache.
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)
