"""One partition of the state topic in the hands of its owner: claimed, loaded, and written by one gateway at a time.

Ownership is fenced by Kafka's producer epochs, without transactions (seen on Kafka 4.3). Each partition has a
transactional id. A gateway that takes the partition over asks for the id's next epoch (InitProducerId), and appends a
claim with it. From then on, the leader refuses batches of earlier epochs. What an earlier owner got in before the claim
lies before it in the log, so the new owner reads it: it loads the partition up to its claim, and then serves.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Final

import msgspec

from logbroker.broker.cluster_engine.connection import requests
from logbroker.broker.cluster_engine.connection.codes import FENCED, OFFSET_OUT_OF_RANGE
from logbroker.broker.cluster_engine.connection.link import ClusterLink, Line, check
from logbroker.broker.cluster_engine.state.state_rows import CLAIM_KEY, CONFIRM_KEY, StateRows
from logbroker.errors import CorruptBatchError, CorruptLogError, LogbrokerError, StaleOwnerError, StorageFailedError
from logbroker.kafka_wire.apis import INIT_PRODUCER_ID
from logbroker.kafka_wire.messages.fetch import FetchResponsePartitionData
from logbroker.kafka_wire.messages.init_producer_id import InitProducerIdRequest
from logbroker.record.codec import NewRecord, check_crc, encode_to_fit, split_batches, with_producer

_log = logging.getLogger(__name__)

OPEN_SECONDS: Final = 60.0
"""The time that a claim and the load after it may take while the cluster is not ready."""
RENEW_SECONDS: Final = 86_400.0
"""The time after which an owner takes the next epoch. A cluster forgets a transactional id that nobody has asked about
for 7 days (transactional.id.expiration.ms), and with it who is to be refused."""
COMMIT_SECONDS: Final = 60.0
"""The time for which a commit is repeated while the cluster does not take it."""
MAX_COMMIT_BYTES: Final = 8 * 1024 * 1024
"""The topic's max.message.bytes: a commit is one batch, and is at most so large."""
_JOINED_BYTES: Final = 1024 * 1024
"""Commits that wait are joined into one batch up to about this size."""
_READ_BYTES: Final = 8 * 1024 * 1024
_TRANSACTION_TIMEOUT_MS: Final = 60_000
"""InitProducerId requires it. No transaction is ever begun."""
_MAX_SEQUENCE: Final = 2**31 - 1
_RECORD_BYTES: Final = 32
"""Bytes counted for a record besides its key and value."""


class _Commit(msgspec.Struct, gc=False, eq=False):
    records: Sequence[NewRecord]
    done: asyncio.Future[None]

    @property
    def size_bytes(self) -> int:
        return sum(len(each.key or b"") + len(each.value or b"") + _RECORD_BYTES for each in self.records)


class StatePartition:
    """One partition of the state topic. `open` takes it over; `commit` then writes to it."""

    def __init__(
        self,
        link: ClusterLink,
        topic: str,
        number: int,
        owner: str,
        on_lost: Callable[[LogbrokerError], None],
        check_owner: Callable[[], None] = lambda: None,
    ) -> None:
        """`owner` is what the claim says about this gateway. `on_lost` is called once, when the partition turns out to
        be another gateway's, or cannot be written any more. `check_owner` raises an error if this gateway may not write
        now."""
        self.number = number
        self.rows = StateRows()
        """The rows of all commits that were answered."""
        self._link = link
        self._topic = topic
        self._owner = owner
        self._on_lost = on_lost
        self._check_owner = check_owner
        self._transactional_id = f"{topic}-{number}"
        self.last_offset = -1
        """The offset at which the last commit begins."""
        self._producer_id = self._epoch = -1
        self._sequence = 0
        self._renew_at = math.inf
        """When the next epoch is due (monotonic seconds)."""
        self._waiting: list[_Commit] = []
        self._writing: asyncio.Task[None] | None = None
        self.lost: LogbrokerError | None = None
        """Why the partition is not this gateway's any more; None: it still is, as far as is known."""

    async def open(self) -> None:
        """Claim the partition, and load it up to the claim.

        Raises StaleOwnerError if another gateway claims it meanwhile, BrokerUnavailableError or CorruptLogError.
        """
        await self._load(await self._claim())

    async def _claim(self) -> int:
        """Write a claim in the next epoch, and return its offset."""
        self._producer_id, self._epoch = await self._link.persist(self._new_epoch, seconds=OPEN_SECONDS)
        self._sequence = 0
        self._renew_at = monotonic() + RENEW_SECONDS
        return await self._append([NewRecord(key=CLAIM_KEY, value=self._owner.encode())])

    async def confirm(self) -> None:
        """Write something that is no row. Returns when the cluster has taken it, so the partition was still this
        gateway's. Raises as `commit` does."""
        await self.commit([NewRecord(key=CONFIRM_KEY, value=b"")])

    async def _new_epoch(self) -> tuple[int, int]:
        node = await self._link.transaction_coordinator(self._transactional_id)
        # With the id and the epoch of the owner, only the owner gets the next epoch.
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id,
            transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
        )
        answer = await self._link.ask(node, INIT_PRODUCER_ID, request)
        if answer.error_code in FENCED:
            raise self._taken_over()
        check(answer.error_code, "InitProducerId")
        return answer.producer_id, answer.producer_epoch

    async def _load(self, claim: int) -> None:
        """Read all batches from the beginning up to the offset of the claim."""
        offset = 0
        while offset <= claim:
            found = await self._link.persist(partial(self._read, offset), seconds=OPEN_SECONDS)
            if found.error_code == OFFSET_OUT_OF_RANGE:
                offset = found.log_start_offset
                continue
            data = bytes(found.records or b"")
            data = data[: requests.whole_batches(data, len(data))[0]]
            before = offset
            try:
                for header, batch in split_batches(data):
                    check_crc(header, batch)
                    self.rows.replay(header, batch)
                    offset = header.next_offset
            except CorruptBatchError as error:
                raise CorruptLogError(f"{self._topic}-{self.number} of the cluster is damaged: {error}") from None
            if offset == before:
                raise CorruptLogError(f"{self._topic}-{self.number} of the cluster ends before its claim at {claim}")

    async def _read(self, offset: int) -> FetchResponsePartitionData:
        found = await requests.read(self._link, self._topic, self.number, offset, _READ_BYTES)
        if found.error_code != OFFSET_OUT_OF_RANGE:
            check(found.error_code, "Fetch")
        return found

    async def commit(self, records: Sequence[NewRecord]) -> None:
        """Store records, all or none. Returns when every replica in sync has them. Commits that wait at the same time
        share a batch.

        Raises StaleOwnerError if the partition is not this gateway's any more, or BrokerUnavailableError if the cluster
        has not taken them in time; nobody knows then whether they are stored, and the partition is lost, too.
        """
        if self.lost is not None:
            raise self.lost.anew()
        commit = _Commit(records, asyncio.get_running_loop().create_future())
        self._waiting.append(commit)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        await asyncio.shield(commit.done)

    async def close(self) -> None:
        """Wait for the commits under way."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write(self) -> None:
        while self._waiting and self.lost is None:
            joined = self._next()
            records = [record for commit in joined for record in commit.records]
            try:
                if monotonic() >= self._renew_at:
                    await self._claim()
                await self._append(records)
            except LogbrokerError as error:
                self._lose(error, joined)
                return
            except Exception as error:
                _log.exception("a commit to %s-%d has failed", self._topic, self.number)
                self._lose(StorageFailedError(f"a commit has failed: {error!r}"), joined)
                return
            self.rows.commit(records)
            for commit in joined:
                _tell(commit, None)

    def _next(self) -> list[_Commit]:
        """Take the commits for the next batch."""
        joined = [self._waiting.pop(0)]
        size_bytes = joined[0].size_bytes
        while self._waiting and (size_bytes := size_bytes + self._waiting[0].size_bytes) <= _JOINED_BYTES:
            joined.append(self._waiting.pop(0))
        return joined

    async def _append(self, records: Sequence[NewRecord]) -> int:
        """Append one batch, and return its offset. The cluster drops repeats by their sequence."""
        plain = encode_to_fit(records, MAX_COMMIT_BYTES)
        batch = with_producer(plain, self._producer_id, self._epoch, self._sequence)

        async def attempt() -> int:
            self._check_owner()
            answer = await requests.append(self._link, self._topic, self.number, batch, Line.COMMITS)
            if answer.error_code in FENCED:
                raise self._taken_over()
            check(answer.error_code, f"a commit to {self._topic}-{self.number}")
            return int(answer.base_offset)

        offset = await self._link.persist(attempt, seconds=COMMIT_SECONDS)
        self.last_offset = offset
        self._sequence = (self._sequence + len(records)) & _MAX_SEQUENCE
        return offset

    def _taken_over(self) -> StaleOwnerError:
        return StaleOwnerError(
            f"another gateway has taken over {self._topic}-{self.number}: this one serves its groups no more"
        )

    def _lose(self, error: LogbrokerError, commits: Sequence[_Commit]) -> None:
        self.lost = error
        for commit in (*commits, *self._waiting):
            _tell(commit, error)
        self._waiting.clear()
        self._on_lost(error)


def _tell(commit: _Commit, error: LogbrokerError | None) -> None:
    if commit.done.done():
        return
    if error is None:
        commit.done.set_result(None)
    else:
        commit.done.set_exception(error.anew())
        commit.done.exception()  # The caller may be gone.
