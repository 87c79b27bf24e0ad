"""The load of the comparison: the same bytes, keys and pace for every peer."""

from __future__ import annotations

import asyncio
import os
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from itertools import cycle, islice
from mmap import mmap
from typing import Final, Literal

import msgspec

KEYS: Final = 10_000
NUMBER_BYTES: Final = 8
CHUNK_BYTES: Final = 512 * 1024
TICK_SECONDS: Final = 0.002
IDLE_SECONDS: Final = 60.0
"""Without any progress a measurement has failed."""
_DISTINCT: Final = 1000


class Load(msgspec.Struct, frozen=True):
    """Records to send."""

    topic: str
    records: int
    value_bytes: int
    shards: int = 1
    keyed: bool = False
    """Each record has a key, by which its shard is found."""
    max_seconds: float = 3600.0
    """Then no more are sent: a slow peer does with fewer."""

    def chunks(self) -> Iterator[list[bytes]]:
        """Values in lists of at most 1,000 and about 512 KiB; each begins with its number where the load is keyed."""
        values = self._numbered() if self.keyed else self._random()
        size = min(_DISTINCT, max(1, CHUNK_BYTES // max(1, self.value_bytes)))
        end = time.monotonic() + self.max_seconds
        while time.monotonic() < end and (chunk := list(islice(values, size))):
            yield chunk

    def _numbered(self) -> Iterator[bytes]:
        tail = os.urandom(max(0, self.value_bytes - NUMBER_BYTES))
        return (number.to_bytes(NUMBER_BYTES) + tail for number in range(self.records))

    def _random(self) -> Iterator[bytes]:
        count = min(_DISTINCT, self.records, max(1, 32 * CHUNK_BYTES // max(1, self.value_bytes)))
        return islice(cycle([os.urandom(self.value_bytes) for _ in range(count)]), self.records)


class Published(msgspec.Struct, frozen=True):
    """The records that a client has sent, all of them acknowledged."""

    records: int
    seconds: float


Kind = Literal["work", "ordered", "group"]
"""Workloads of several workers."""


class Job(msgspec.Struct, frozen=True):
    """The task of one worker."""

    kind: Kind

    topic: str
    shards: int
    records: int
    """Number of records for all workers together."""
    workers: int
    worker: int
    """0 for the first."""
    tally_path: str

    @property
    def group(self) -> str:
        """The group of all workers."""
        return f"{self.topic}-workers"

    @property
    def own_shards(self) -> range:
        """The worker's, where the program must spread them over the workers."""
        return range(self.worker, self.shards, self.workers)


class Worked(msgspec.Struct, frozen=True):
    """The result of one worker. Times are in seconds of the machine's monotonic clock."""

    records: int
    first: float | None
    """When the worker was handed its first record; None: it had none."""
    last: float
    """When its last acknowledgement was answered, or sent where a peer answers none."""
    disordered: int
    """Records that came before their predecessor of the same key was handed to any worker."""
    repeated: int
    """Records that had been handed to one of the workers before."""


def key_of(value: bytes) -> bytes:
    """The key of a numbered value."""
    return b"key-%d" % (int.from_bytes(value[:NUMBER_BYTES]) % KEYS)


def shard_of(value: bytes, shards: int) -> int:
    """The shard of a numbered value's key, where the program chooses it."""
    return zlib.crc32(key_of(value)) % shards if shards > 1 else 0


def shard_names(topic: str, shards: int) -> list[str]:
    """The topics behind one, where a peer's shards are topics of their own."""
    return [f"{topic}-{number}" for number in range(shards)] if shards > 1 else [topic]


class WorkLog:
    """The records that one worker sees: when the first one came, and whether the records of each key come in order, and
    once.

    `handed` has a byte for each record of the job, and is shared by all workers: so a record that overtakes one that
    another worker has is noticed, too.
    """

    def __init__(self, handed: mmap | bytearray) -> None:
        self.first: float | None = None
        self.last = 0.0
        self.records = 0
        self._disordered = 0
        self._repeated = 0
        self._handed = handed

    def see(self, value: bytes) -> None:
        """Count a record that has come."""
        if not self.records:
            self.first = time.monotonic()
        self.records += 1
        number, handed = int.from_bytes(value[:NUMBER_BYTES]), self._handed
        if handed[number]:
            self._repeated += 1
        if number >= KEYS and not handed[number - KEYS]:
            self._disordered += 1
        handed[number] = 1

    def result(self) -> Worked:
        """Return what was done; `last` is when the caller's last acknowledgement was answered."""
        return Worked(self.records, self.first, self.last, self._disordered, self._repeated)


class Stopwatch:
    """Times records on their way; a record begins with its number."""

    def __init__(self, records: int) -> None:
        self._sent = [0.0] * records
        self._seconds = [-1.0] * records
        self._open = records

    def value(self, number: int, sent: float) -> bytes:
        """The value of a record that is sent now."""
        self._sent[number] = sent
        return number.to_bytes(NUMBER_BYTES).ljust(100, b".")

    def see(self, value: bytes) -> bool:
        """Take note of a record that has come; True: it was the last one missing."""
        number = int.from_bytes(value[:NUMBER_BYTES])
        if self._seconds[number] < 0:
            self._seconds[number] = time.monotonic() - self._sent[number]
            self._open -= 1
        return not self._open

    def result(self) -> list[float]:
        """Seconds of each record."""
        return self._seconds


def pace(records: int, per_second: float) -> Iterator[list[tuple[int, float]]]:
    """Numbers of records when they are due, each with the moment that counts as its send.

    Records are due in ticks of 2 ms. A tick that comes late because the one before took so long brings all that are due
    by then, and each counts from when it was due: who waits for the server hides nothing.
    """
    begun, number = time.monotonic(), 0
    while number < records:
        wait = begun + number / per_second - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        now = time.monotonic()
        late = int((now - begun) * per_second) - number if wait <= 0 else 0
        tick = _tick(number, records, per_second) if late <= 0 else range(number, min(records, number + late))
        yield [(each, now if wait > 0 else min(now, begun + each / per_second)) for each in tick]
        number = tick.stop


async def paced(records: int, per_second: float) -> AsyncIterator[tuple[int, float]]:
    """The same on an event loop, one by one: its libraries send without waiting."""
    begun, number = time.monotonic(), 0
    while number < records:
        due = begun + number / per_second
        wait = due - time.monotonic()
        await asyncio.sleep(max(0.0, wait))
        start = time.monotonic() if wait > 0 else due
        for each in _tick(number, records, per_second):
            yield each, start
            number = each + 1


def _tick(number: int, records: int, per_second: float) -> range:
    return range(number, min(records, number + max(1, round(per_second * TICK_SECONDS))))
