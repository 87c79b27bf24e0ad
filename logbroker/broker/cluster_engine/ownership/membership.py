"""The part of the state that all gateways share: partition 0, which each of them reads to its end all the time.

It has the rows of topics, which the owner of home 0 writes, and the heartbeats of all gateways. A gateway that has read
its own heartbeat has read everything before it. So its lease, which begins with the writing of that heartbeat, says how
well it knows the topics: without a lease it appends nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Iterable
from functools import partial
from time import monotonic
from typing import Final

import msgspec

from logbroker.broker.cluster_engine.connection import requests
from logbroker.broker.cluster_engine.connection.codes import OFFSET_OUT_OF_RANGE
from logbroker.broker.cluster_engine.connection.link import ClusterLink, Line, PassingError, check
from logbroker.broker.cluster_engine.ownership.gateways import HEARTBEAT_SECONDS, LEASE_SECONDS, Gateways, Heartbeat
from logbroker.broker.cluster_engine.state.state_partition import OPEN_SECONDS
from logbroker.broker.cluster_engine.state.state_rows import HEARTBEAT_KEY, StateRows
from logbroker.errors import CorruptBatchError, CorruptLogError, LogbrokerError
from logbroker.record.codec import NewRecord, check_crc, decode_batch, encode_batch, split_batches

_log = logging.getLogger(__name__)

SHARED_PARTITION: Final = 0
TOPICS: Final = "topics"
"""The scope of the rows of topics."""
_READ_BYTES: Final = 8 * 1024 * 1024
_WAIT_MS: Final = 500
"""The time that the leader lets a read wait for something new."""
_LEAVE_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.1


class GatewayMembership:
    """The place of this gateway among all others."""

    def __init__(self, link: ClusterLink, topic: str, gateways: Gateways, homes: Callable[[], Iterable[int]]) -> None:
        """`homes` returns the homes that this gateway has, or is taking over or giving up."""
        self.gateways = gateways
        self.rows = StateRows(only=TOPICS)
        """The rows of topics, as far as partition 0 was read."""
        self.on_rows: Callable[[Iterable[bytes]], None] = lambda keys: None
        """Called with the keys of rows of topics that were read."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after heartbeats were read."""
        self._link = link
        self._topic = topic
        self._homes = homes
        self._address = ""
        self._number = 0
        self._namesakes = {gateways.own_id}
        """Ids of gateways with the address of this one."""
        self._begun: dict[int, float] = {}
        """When this gateway began to write its last heartbeats, by their number (monotonic seconds)."""
        self._lease_from = -math.inf
        self.offset = 0
        """Partition 0 was read below this offset."""
        self.taken_in = 0
        """The topics are known as the state says below this offset."""
        self._moved = asyncio.Event()
        self._soon = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    # --- the lease ---------------------------------------------------------------------------------------------------

    @property
    def has_lease(self) -> bool:
        """Whether this gateway knows what the others have changed."""
        return monotonic() - self._lease_from < LEASE_SECONDS

    def check(self) -> None:
        """Raise PassingError if this gateway has no lease now, so it may not append."""
        if not self.has_lease:
            raise PassingError("this gateway does not read its own heartbeats, so it cannot know what others change")

    # --- life --------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Read everything that is there now. Raises BrokerUnavailableError or CorruptLogError."""
        await self._catch_up(seconds=OPEN_SECONDS)
        self._tasks.append(asyncio.create_task(self._follow()))

    async def join(self, address: str) -> None:
        """Begin to write heartbeats. Returns when this gateway has read its first one. Raises TimeoutError."""
        self._address = address
        self._tasks.append(asyncio.create_task(self._beat()))
        async with asyncio.timeout(OPEN_SECONDS):
            while self._lease_from == -math.inf:
                self._moved.clear()
                await self._moved.wait()

    async def close(self) -> None:
        """Leave, so that the others need not wait until they miss this gateway."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._address:
            with contextlib.suppress(LogbrokerError, PassingError, TimeoutError):
                async with asyncio.timeout(_LEAVE_SECONDS):
                    await self._write(None)

    def beat_soon(self) -> None:
        """Write a heartbeat now, because there is news."""
        self._soon.set()

    async def _beat(self) -> None:
        while True:
            self._number += 1
            self._begun[self._number] = monotonic()
            heartbeat = Heartbeat(self._address, self._number, tuple(sorted(self._homes())), self.taken_in)
            try:
                await self._write(msgspec.msgpack.encode(heartbeat))
            except PassingError as error:
                _log.debug("a heartbeat was not written: %s", error)
                with contextlib.suppress(PassingError):
                    await self._link.refresh()
            except Exception:
                _log.exception("a heartbeat was not written")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._soon.wait()
            self._soon.clear()

    async def _write(self, value: bytes | None) -> None:
        key = HEARTBEAT_KEY + self.gateways.own_id.encode()
        batch = encode_batch([NewRecord(key=key, value=value)])
        answer = await requests.append(self._link, self._topic, SHARED_PARTITION, batch, Line.HEARTBEATS)
        check(answer.error_code, "a heartbeat")

    async def taken_in_by_all(self, offset: int, *, seconds: float) -> None:
        """Return when all gateways know the topics as the state says up to an offset, or after some seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.gateways.have_taken_in(offset, monotonic()):
                    self._moved.clear()
                    await self._moved.wait()

    # --- reading -----------------------------------------------------------------------------------------------------

    async def read_to_end(self, *, seconds: float) -> None:
        """Return when everything was read that is stored now. Raises BrokerUnavailableError."""
        end = await self._link.persist(self._end, seconds=seconds)
        async with asyncio.timeout(seconds):
            while self.offset < end:
                self._moved.clear()
                await self._moved.wait()

    async def _end(self) -> int:
        found = await requests.read(self._link, self._topic, SHARED_PARTITION, self.offset, 1)
        if found.error_code != OFFSET_OUT_OF_RANGE:
            check(found.error_code, "Fetch")
        return int(found.high_watermark)

    async def _catch_up(self, *, seconds: float) -> None:
        while True:
            found = await self._link.persist(partial(self._read, 0), seconds=seconds)
            if self.offset >= found:
                return

    async def _follow(self) -> None:
        while True:
            try:
                await self._read(_WAIT_MS)
            except PassingError as error:
                _log.debug("the shared state cannot be read: %s", error)
                await asyncio.sleep(_PAUSE_SECONDS)
                with contextlib.suppress(PassingError):
                    await self._link.refresh()
            except CorruptLogError as error:
                _log.error("%s", error)
                await asyncio.sleep(LEASE_SECONDS)
            except Exception:
                _log.exception("the shared state was not taken in")
                await asyncio.sleep(LEASE_SECONDS)

    async def _read(self, wait_ms: int) -> int:
        """Read and take in what follows. Return the high watermark."""
        found = await requests.read(
            *(self._link, self._topic, SHARED_PARTITION, self.offset, _READ_BYTES),
            max_wait_ms=wait_ms,
            line=Line.SHARED,
        )
        if found.error_code == OFFSET_OUT_OF_RANGE:
            self.offset = found.log_start_offset
            return int(found.high_watermark)
        check(found.error_code, "Fetch")
        data = bytes(found.records or b"")
        data = data[: requests.whole_batches(data, len(data))[0]]
        now, has_heartbeats = monotonic(), False
        try:
            for header, batch in split_batches(data):
                check_crc(header, batch)
                if header.producer_id < 0 and not header.is_control:
                    self._take_in(batch, now)
                    has_heartbeats = True
                else:
                    self.rows.replay(header, batch)
                self.offset = header.next_offset
        except CorruptBatchError as error:
            raise CorruptLogError(f"{self._topic}-{SHARED_PARTITION} of the cluster is damaged: {error}") from None
        self._moved.set()
        if self.rows.changed:
            changed, self.rows.changed = self.rows.changed, set()
            self.on_rows(changed)
        if has_heartbeats:
            self.on_change()
        return int(found.high_watermark)

    def _take_in(self, batch: bytes, now: float) -> None:
        for record in decode_batch(batch):
            if not record.key or not record.key.startswith(HEARTBEAT_KEY):
                continue
            gateway_id = record.key[len(HEARTBEAT_KEY) :].decode()
            if record.value is None:
                self.gateways.left(gateway_id)
                continue
            heartbeat = msgspec.msgpack.decode(record.value, type=Heartbeat)
            if heartbeat.address == self._address and gateway_id not in self._namesakes:
                self._namesakes.add(gateway_id)
                _log.warning(
                    "another gateway says, too, that it is reached at %s: give each gateway an address of its own"
                    " (--advertise)",
                    self._address,
                )
            self.gateways.heard(gateway_id, heartbeat, now)
            if gateway_id == self.gateways.own_id and heartbeat.number in self._begun:
                self._lease_from = self._begun[heartbeat.number]
                self._begun = {number: at for number, at in self._begun.items() if number > heartbeat.number}
