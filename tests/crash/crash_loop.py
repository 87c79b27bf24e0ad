"""The crash loop: a broker is killed under load, started again, and asked for all that the last one promised.

`run` is one history: many lives of a broker on one data directory, then a final read, then the checker. With `volatile`
every kill is a power cut (see volatile_files). The seed fixes what is done and when, not how threads and processes
interleave: a failure may take a few runs of its seed to come again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from pathlib import Path
from typing import Final

from logbroker.client import Admin
from logbroker.errors import LogbrokerError
from logbroker.types import TopicPartition, topic_id_text
from tests.anomalies import BrokenPromisesError
from tests.crash.broker_process import BrokerProcess
from tests.crash.checker import FinalRead, Log, check
from tests.crash.load import RETAINED, TOPICS, History, Load, read_all
from tests.crash.log_files import LogFiles, LogOnDisk
from tests.crash.topic_changes import FLEETING, TopicChanges
from tests.interop.kafka_reader import compare, trouble

_log = logging.getLogger(__name__)

_INCARNATED: Final = frozenset({FLEETING})


def run(directory: Path, seed: int, *, lives: int, volatile: bool = False, plant: str | None = None) -> Counter[str]:
    """Return figures of one history; raises BrokenPromisesError, BrokerFailedError or BrokenFilesError."""
    loop = _CrashLoop(directory, seed, volatile=volatile, plant=plant)
    figures = asyncio.run(loop.run(lives))
    if plant is not None:
        return figures
    if missing := trouble():
        _log.warning("%s", missing)
    else:
        figures["segments that Kafka's reader read"] = compare(loop.data_dir.rglob("*.log"))
    return figures


class _CrashLoop:
    def __init__(self, directory: Path, seed: int, *, volatile: bool, plant: str | None) -> None:
        self._rng = random.Random(seed)
        self._volatile = volatile
        options = ["--volatile"] * volatile + (["--plant", plant] if plant else [])
        self._broker = BrokerProcess(directory, seed=seed, child_options=options)
        self._history = History()
        self._load = Load(self._broker.address, self._history, seed=seed, volatile=volatile)
        self._changes = TopicChanges(self._broker.address, self._history, seed=seed)
        self._files = LogFiles(self._broker.data_dir, incarnated=_INCARNATED)
        self._figures = self._history.figures
        self.data_dir: Final = self._broker.data_dir

    async def run(self, lives: int) -> Counter[str]:
        try:
            async with asyncio.timeout(60 + 6 * lives):
                await self._run(lives)
        finally:
            await self._load.cancel()
            await self._changes.cancel()
            await self._broker.end()
        return self._figures

    async def _run(self, lives: int) -> None:
        await self._broker.spawn()
        await self._broker.wait_ready()
        async with Admin(self._broker.address) as admin:
            for name, (partitions, configs) in TOPICS.items():
                await admin.create_topic(name, partitions, configs)
            self._load.start()
            self._changes.start()
            for _ in range(lives):
                await self._live()
                await self._die()
                self._check_files()
                await self._come_back()
                await self._check_promises(admin)
            await self._load.stop()
            await self._changes.stop()
            await self._changes.check(admin)
            final = await self._final_read(admin)
        await self._broker.stop()
        self._check_final_files(final)
        self._raise_troubles()
        anomalies = check(self._history.events, final)
        if anomalies:
            raise BrokenPromisesError([str(each) for each in anomalies], {each.kind for each in anomalies})

    # --- one life ---------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        if self._rng.random() < 0.9:
            # Else it may die before any client has found it.
            self._history.progress.clear()
            async with asyncio.timeout(20):
                await self._history.progress.wait()
        await asyncio.sleep(self._rng.uniform(0.05, 0.6))

    async def _die(self) -> None:
        chance = self._rng.random()
        if chance < 0.06:
            await self._broker.stop()
            self._figures["clean stops"] += 1
        elif chance < 0.12:
            await self._broker.stop(kill_after_seconds=self._rng.uniform(0, 0.06))
            self._figures["kills while stopping"] += 1
        else:
            await self._broker.kill()
            self._figures["kills under load"] += 1
        self._load.broker_died()
        self._load.collect()

    async def _come_back(self) -> None:
        await self._broker.spawn()
        while self._rng.random() < 0.12:
            await asyncio.sleep(self._rng.uniform(0.1, 0.5))
            await self._broker.kill()
            self._figures["kills while starting"] += 1
            self._check_files()
            await self._broker.spawn()
        await self._broker.wait_ready()
        self._figures["lives"] += 1

    # --- what was promised ------------------------------------------------------------------------------------------

    def _check_files(self) -> None:
        """While no broker runs: the files are sound, and hold every acknowledged record."""
        self._files.read(power_cut=self._volatile)
        logs = self._files.logs
        lost = []
        acked = self._history.acked
        while acked:
            send = acked.popleft()
            assert send.log is not None
            found = logs.get(send.log)
            if found is None:
                if send.log.topic not in _INCARNATED:
                    lost.append(f"{send.log} is gone")
            elif found.start_offset <= send.offset and found.values.get(send.offset) != send.value:
                value = found.values.get(send.offset, b"nothing")[:40]
                lost.append(
                    f"{send.value[:40]!r} was acknowledged at {send.log}:{send.offset}; there is {value!r},"
                    f" the log ends at {found.end_offset}, torn: {found.torn and found.torn.position}"
                )
        self._figures["torn tails"] += sum(found.torn is not None for found in logs.values())
        if lost:
            raise BrokenPromisesError(lost)

    async def _check_promises(self, admin: Admin) -> None:
        """While the next broker runs: it serves all that the files held, and kept what it cut off."""
        for found in self._files.logs.values():
            torn = found.torn
            if torn is None or not torn.path.parent.exists() or torn.content in torn.kept():
                continue
            if torn.path.parent.name.rpartition("-")[0] not in _INCARNATED:
                self._history.troubles.append(f"{torn.side_path} does not keep what was cut off")
        # A partition without records may be the beginning of a growth that was cut off.
        ends = {
            TopicPartition(log.topic, log.partition): found.end_offset
            for log, found in self._files.logs.items()
            if log.topic in TOPICS and found.end_offset > 0
        }
        for (partition, end_offset), listed in zip(
            ends.items(), await admin.list_offsets(list(ends), "latest"), strict=True
        ):
            if isinstance(listed, LogbrokerError):
                self._history.troubles.append(f"{partition}: {listed.reason}: {listed}")
            elif listed.offset < end_offset:
                self._history.troubles.append(f"{partition} ended at {end_offset} on disk, now at {listed.offset}")
        await self._changes.check(admin)
        self._raise_troubles()
        self._load.check_alive()
        self._changes.check_alive()

    def _raise_troubles(self) -> None:
        if self._history.troubles:
            raise BrokenPromisesError(self._history.troubles)

    # --- the end ----------------------------------------------------------------------------------------------------

    async def _final_read(self, admin: Admin) -> dict[Log, FinalRead]:
        topics = [
            (topic.name, topic_id_text(topic.id) if topic.name in _INCARNATED else "")
            for topic in await admin.list_topics()
        ]
        found = await read_all(self._broker.address, topics)
        starts = await admin.list_offsets([TopicPartition(log.topic, log.partition) for log in found], "earliest")
        final = {}
        for (log, records), start in zip(found.items(), starts, strict=True):
            if isinstance(start, LogbrokerError):
                raise start
            if start.offset and log.topic != RETAINED:
                self._history.troubles.append(f"{log} begins at offset {start.offset}")
            final[log] = FinalRead(records[0][0] if records else start.offset, records)
        self._figures["records read at the end"] = sum(len(each.records) for each in final.values())
        return final

    def _check_final_files(self, final: dict[Log, FinalRead]) -> None:
        """Everything is read once more, by the other reader: both must have seen the same."""
        files = LogFiles(self._broker.data_dir, incarnated=_INCARNATED)
        files.read(power_cut=False)
        self._figures["bytes in the logs"] = files.bytes_read
        for log, end in final.items():
            # A partition that has had no record needs no files, and a power cut may have zeroed the one that it had.
            found = files.logs.get(log) or LogOnDisk()
            # Retention may have gone on since.
            start_offset = max(found.start_offset, end.start_offset) if log.topic == RETAINED else end.start_offset
            on_disk = {offset: value for offset, value in found.values.items() if offset >= start_offset}
            served = {offset: value for offset, value in end.records if offset >= start_offset}
            if found.torn or on_disk != served:
                self._history.troubles.append(f"{log}: {len(on_disk)} records in the files, {len(served)} served")
