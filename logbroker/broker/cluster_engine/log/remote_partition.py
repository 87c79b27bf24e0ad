"""One partition of the cluster as this gateway knows it: its offsets, who watches it, and the batches on their way."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import msgspec

from logbroker.broker.cluster_engine.connection import requests
from logbroker.broker.cluster_engine.connection.codes import NONE, PASSING, UNKNOWN_TOPIC_OR_PARTITION
from logbroker.broker.cluster_engine.connection.link import ClusterLink, PassingError
from logbroker.broker.cluster_engine.connection.refusals import refusal
from logbroker.engine import Appended, Buffer, PartitionFacts
from logbroker.errors import BrokerUnavailableError, LogbrokerError, PartitionOfflineError
from logbroker.record.header import MAX_SEQUENCE, BatchHeader
from logbroker.types import PartitionKey, TopicId

_log = logging.getLogger(__name__)

APPEND_SECONDS: Final = 60.0
"""The time for which an append is repeated while the partition has no leader that takes it."""


class PartitionWatcher(Protocol):
    """Somebody who wants to know that a partition has moved."""

    def notify(self, key: PartitionKey) -> None: ...


class _Pending(msgspec.Struct, gc=False, eq=False):
    batch: Buffer
    header: BatchHeader
    done: asyncio.Future[Appended]
    check: Callable[[], None] | None
    """Raises an error if the batch may not be appended any more."""
    refusal: LogbrokerError | None = None
    """Why it must not be appended; it is answered like the first time if the cluster has it already."""
    is_sent: bool = False
    """Whether it may have arrived."""


class RemotePartition:
    """One partition. Its offsets are as of the last answer that named them."""

    def __init__(
        self, link: ClusterLink, check_lease: Callable[[], None], topic: str, topic_id: TopicId, number: int
    ) -> None:
        """`check_lease` raises PassingError if this gateway may not append now (`GatewayMembership.check`)."""
        self.key = PartitionKey(topic_id, number)
        self.name = f"{topic}-{number}"
        self.listeners: set[PartitionWatcher] = set()
        self.log_start_offset = 0
        self.high_watermark = 0
        self.is_known = False
        """Whether a leader has named the offsets since the gateway was started."""
        self.fresh_at = -math.inf
        """When the question was asked whose answer named the offsets last (monotonic seconds)."""
        self.has_open_transaction = False
        """Whether a transaction of a Kafka client was open when a leader last said: records behind its first one cannot
        be read yet."""
        self.on_removed: Callable[[PartitionKey], None] = lambda key: None
        """Called when the log start offset has risen, whichever answer told it."""
        self.closed = False
        self.batch_bytes = 0
        """Size of the largest batch that did not fit into a read so far."""
        self._link = link
        self._check_lease = check_lease
        self.topic = topic
        self._waiting: deque[_Pending] = deque()
        self._sending: asyncio.Task[None] | None = None

    @property
    def leader(self) -> int:
        """The node that leads it. Raises PassingError if there is none."""
        return self._link.leader(self.topic, self.key.partition).leader

    @property
    def leader_epoch(self) -> int:
        try:
            return max(self._link.leader(self.topic, self.key.partition).leader_epoch, 0)
        except PassingError:
            return 0

    def facts(self) -> PartitionFacts:
        """See `LogEngine.partition_facts`. Raises PartitionOfflineError."""
        if not self.is_known:
            raise PartitionOfflineError(
                f"{self.name} is offline: none of its nodes in the cluster is up; start them, then the gateway again"
            )
        return PartitionFacts(
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            log_end_offset=self.high_watermark,
            leader_epoch=self.leader_epoch,
            size_bytes=0,
            segments=0,
        )

    def heard(self, log_start_offset: int, high_watermark: int) -> None:
        """Take in offsets that an answer names; -1: it does not say."""
        self.is_known = True
        rose = log_start_offset > self.log_start_offset
        self.log_start_offset = max(self.log_start_offset, log_start_offset)
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            self.notify_listeners()
        if rose:
            self.on_removed(self.key)

    def heard_stable(self, log_start_offset: int, last_stable_offset: int, high_watermark: int) -> None:
        """Take in offsets of a leader that names both ends."""
        self.has_open_transaction = last_stable_offset < high_watermark
        if self.has_open_transaction and last_stable_offset < self.high_watermark:
            # An append of this gateway was counted as readable, but a transaction had begun before it.
            self.high_watermark = max(last_stable_offset, self.log_start_offset)
        self.heard(log_start_offset, last_stable_offset)

    def notify_listeners(self) -> None:
        for listener in list(self.listeners):
            listener.notify(self.key)

    def close(self) -> None:
        """Note that the topic is gone."""
        self.closed = True
        self.notify_listeners()

    # --- appends -----------------------------------------------------------------------------------------------------

    def append(
        self, batch: Buffer, header: BatchHeader, check: Callable[[], None] | None = None
    ) -> asyncio.Future[Appended]:
        """Send a batch after all earlier ones. The result is set when all replicas in sync have it. `check` is called
        before the batch is sent, and raises an error if it may not be appended any more."""
        return self._queue(_Pending(batch, header, asyncio.get_running_loop().create_future(), check))

    def repeat(self, batch: Buffer, header: BatchHeader, refusal: LogbrokerError) -> asyncio.Future[Appended]:
        """Answer a batch of an idempotent producer that must not be appended now. It may be one that was sent before,
        through this gateway or another one, and not answered: then the result is as for the first time. Otherwise the
        future gets the refusal, which tells the sender that the batch was not appended."""
        return self._queue(_Pending(batch, header, asyncio.get_running_loop().create_future(), None, refusal))

    def _queue(self, pending: _Pending) -> asyncio.Future[Appended]:
        self._waiting.append(pending)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())
        return pending.done

    async def settle(self) -> None:
        """Wait until all batches so far are answered."""
        if self._sending is not None:
            await asyncio.wait([self._sending])

    async def _send(self) -> None:
        """Send one batch after the other. Only so does a batch that has to be sent again keep its place: nothing else
        orders batches without a producer id, and of those with one a leader refuses what overtakes."""
        while self._waiting:
            pending = self._waiting.popleft()
            try:
                appended = await self._link.persist(partial(self._attempt, pending), seconds=APPEND_SECONDS)
            except LogbrokerError as error:
                _fail(pending, error)
            except Exception as error:
                _log.exception("an append to %s has failed", self.name)
                _fail(pending, BrokerUnavailableError(f"an append to {self.name} has failed: {error!r}"))
            else:
                if not pending.done.done():
                    pending.done.set_result(appended)

    async def _attempt(self, pending: _Pending) -> Appended:
        if self.closed:
            raise refusal(UNKNOWN_TOPIC_OR_PARTITION, f"an append to {self.name}", "the topic is deleted")
        self._check_lease()
        if pending.refusal is not None and not await self._has(pending.header):
            raise pending.refusal.anew()
        if pending.check is not None:
            try:
                pending.check()
            except LogbrokerError as error:
                if not pending.is_sent:
                    raise
                raise BrokerUnavailableError(
                    f"nobody knows whether a batch was appended to {self.name}: {error}"
                ) from None
        pending.is_sent = True
        found = await requests.append(self._link, self.topic, self.key.partition, pending.batch)
        if found.error_code in PASSING:
            raise PassingError(f"an append to {self.name} was answered with error {found.error_code}")
        if found.error_code != NONE:
            raise refusal(found.error_code, f"an append to {self.name}", found.error_message)
        end = -1 if self.has_open_transaction else found.base_offset + pending.header.record_count
        self.heard(found.log_start_offset, end)
        return Appended(
            *(found.base_offset, found.log_append_time_ms, self.log_start_offset, self.leader_epoch),
            duplicate=pending.refusal is not None,
        )

    async def _has(self, header: BatchHeader) -> bool:
        """Return whether the cluster has a batch, as far as its sequence numbers tell. The cluster refuses a batch of
        an older epoch itself."""
        known = await requests.last_sequence(self._link, self.topic, self.key.partition, header.producer_id)
        if known is None:
            return False
        epoch, sequence = known
        ahead = (header.last_sequence - sequence) & MAX_SEQUENCE
        return epoch > header.producer_epoch or (epoch == header.producer_epoch and not 0 < ahead <= MAX_SEQUENCE // 2)


def _fail(pending: _Pending, error: LogbrokerError) -> None:
    if not pending.done.done():
        pending.done.set_exception(error.as_value())
        pending.done.exception()  # The caller may be gone.
