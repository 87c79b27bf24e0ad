"""One partition at run time: its log, the group commit of its appends, and the calls that wait for it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from logbroker.broker.local_engine.failure import StorageFailure
from logbroker.broker.local_engine.io_pool import IoPool
from logbroker.errors import LogbrokerError
from logbroker.storage.partition_log import LogEnd, PartitionCheckpoint, PartitionLog, WriteGroup
from logbroker.types import Durability, PartitionKey


class Listener(Protocol):
    """A listener that is notified when the high watermark of a partition has moved, the topic has grown, or the
    partition was closed."""

    def notify(self, key: PartitionKey) -> None: ...


class Pending:
    """The appends of one call that are not durable yet: one future for all of them.

    An append is settled when it is durable, or when storage failed and it never will be. `on_settled` is called once
    all are settled, even if nobody waits any more.
    """

    __slots__ = ("_future", "_on_settled", "_open")

    def __init__(self, on_settled: Callable[[], None]) -> None:
        self._open = 0
        self._future: asyncio.Future[None] | None = None
        self._on_settled = on_settled

    def expect_one(self) -> None:
        self._open += 1

    def settle_one(self) -> None:
        """Count one append as settled."""
        self._open -= 1
        if self._open:
            return
        self._on_settled()
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        """Wait until all are settled."""
        if self._open:
            self._future = asyncio.get_running_loop().create_future()
            await self._future


class _Waiter(msgspec.Struct, gc=False):
    offset: int
    """Offset below which everything must be durable."""
    pending: Pending


class Partition:
    """Owns a `PartitionLog`. Every method runs on the event loop.

    Group commit: while a thread writes and syncs one write group (`WriteGroup`), the appends that arrive form the next
    one. The loop hands each write group to a thread once, for both the write and the sync. Appends that need no sync
    are written on the event loop when no thread writes here: a copy into the page cache costs less than to wake a
    thread (docs/BENCHMARKS.md). If a topic's appends need no sync, the sync for a checkpoint runs in a thread beside
    these writes.
    """

    def __init__(self, key: PartitionKey, name: str, log: PartitionLog, pool: IoPool, failure: StorageFailure) -> None:
        self.key = key
        self.name = name
        self.log = log
        self.listeners: set[Listener] = set()
        self.closed = False
        self.removing = asyncio.Lock()
        """Lock that is held while segment files are removed (retention, deletion of records), and while the partition
        of a deleted topic is closed. So nothing removes files by a path that already belongs to a new topic of the same
        name."""
        self._pool = pool
        self._failure = failure
        self._writing = False
        """Whether a thread has the partition, to write and sync a write group or only to sync. The event loop then
        writes nothing."""
        self._syncing = False
        """Whether a thread is syncing written batches; the event loop may write meanwhile."""
        self._sync_wanted = False
        self._answer_early = False
        """Whether a waiting call needs its appends written only, not synced."""
        self._settlers: list[asyncio.Future[PartitionCheckpoint]] = []
        self._await_written: deque[_Waiter] = deque()
        self._await_synced: deque[_Waiter] = deque()

    def commit(self, durability: Durability | None) -> bool:
        """Begin to make the staged appends as durable as requested (None: as the topic says).

        Return whether the caller need not wait: the appends are durable, or storage failed.
        """
        log = self.log
        topic_durability = log.config.durability
        synced = (durability or topic_durability) is Durability.SYNCED
        if synced or topic_durability is Durability.SYNCED:
            self._sync_wanted = True
        if not synced:
            self._answer_early = True
        self.flush()
        covered_offset = log.synced_offset if synced else log.high_watermark
        return covered_offset >= log.log_end_offset or self._failure.error is not None

    def expect(self, durability: Durability | None, pending: Pending) -> None:
        """Let a call wait until all appends staged so far are as durable as the call requests.

        These appends include the batch of the call. A duplicate is not staged, but its original may still be waiting.
        """
        pending.expect_one()
        waiter = _Waiter(self.log.log_end_offset, pending)
        synced = (durability or self.log.config.durability) is Durability.SYNCED
        (self._await_synced if synced else self._await_written).append(waiter)

    def flush(self) -> None:
        """Begin to write the staged appends. If a thread is writing, do nothing: they are written when it is done."""
        if self._failure.error is not None:
            self._give_up(self._failure.error, [])
            return
        if self._writing:
            return
        group = self.log.take_staged()
        if (self._sync_wanted or self._settlers) and not self._syncing:
            self._hand_over(group)
        elif group is not None:
            try:
                self.log.write(group)
            except Exception as error:
                self._fail(error, [])
            else:
                self.log.wrote(group, synced=False)
                if self.listeners:
                    self.notify_listeners()
                if self._await_written:
                    self._settle_waiters(self._await_written, group.end_offset)

    async def settle(self) -> PartitionCheckpoint:
        """Write and sync everything staged, save the indexes, and return the recovery point after that."""
        self._check_alive()
        future: asyncio.Future[PartitionCheckpoint] = asyncio.get_running_loop().create_future()
        self._settlers.append(future)
        self.flush()
        return await future

    @property
    def is_busy(self) -> bool:
        """Whether anything is staged, or a thread writes or syncs. If False, all waiting calls are answered."""
        return self._writing or self._syncing or self.log.has_staged

    async def checkpoint(self) -> PartitionCheckpoint:
        """Return a current recovery point.

        If the topic's appends need no sync and no thread writes or syncs, the event loop goes on writing appends
        meanwhile. Otherwise this is `settle`.
        """
        if self.log.config.durability is Durability.SYNCED or self._writing or self._syncing:
            return await self.settle()
        self._check_alive()
        future: asyncio.Future[PartitionCheckpoint] = asyncio.get_running_loop().create_future()
        self._syncing = True
        log, complete = self.log, self._pool.complete
        due, end = log.begin_sync(), log.written_end

        def job() -> None:
            try:
                log.sync(due)
                log.flush_indexes()
            except Exception as error:
                failure = error
                complete(lambda: self._fail(failure, [future]))
            else:
                complete(lambda: self._synced(None, end, [future]))

        self._pool.submit(job)
        return await future

    def close(self, *, to_be_removed: bool = False) -> None:
        """Close the log, and notify the listeners. Before that, the caller calls `settle`; the log gets no more
        appends."""
        self.closed = True
        self.notify_listeners()
        self.log.close(to_be_removed=to_be_removed)

    def notify_listeners(self) -> None:
        for listener in self.listeners:
            listener.notify(self.key)

    def _hand_over(self, group: WriteGroup | None) -> None:
        self._writing = True
        self._sync_wanted = False
        settlers, self._settlers = self._settlers, []
        log, complete = self.log, self._pool.complete
        before = log.written_end
        answer_early, self._answer_early = self._answer_early and group is not None, False

        def job() -> None:
            try:
                if group is not None:
                    log.write(group)
                    if answer_early:
                        complete(lambda: self._settle_waiters(self._await_written, group.end_offset))
                log.sync(log.begin_sync())
                if settlers:
                    log.flush_indexes()
            except Exception as error:
                failure = error
                complete(lambda: self._fail(failure, settlers))
            else:
                complete(lambda: self._synced(group, before, settlers))

        self._pool.submit(job)

    def _synced(
        self, group: WriteGroup | None, before: LogEnd, settlers: list[asyncio.Future[PartitionCheckpoint]]
    ) -> None:
        """Handle a finished sync. It covered everything up to `before` and, if there is one, the write group."""
        self._writing = self._syncing = False
        log = self.log
        readable_offset = log.high_watermark
        if group is not None:
            log.wrote(group, synced=True)
        else:
            log.mark_synced(before)
        # Notify readers first: passing on records takes longer than answering the producer.
        if log.high_watermark != readable_offset:
            self.notify_listeners()
        self._settle_waiters(self._await_written, log.synced_offset)
        self._settle_waiters(self._await_synced, log.synced_offset)
        for future in settlers:
            if not future.done():
                future.set_result(log.checkpoint())
        self.flush()

    def _settle_waiters(self, waiters: deque[_Waiter], offset: int) -> None:
        while waiters and waiters[0].offset <= offset:
            waiters.popleft().pending.settle_one()

    def _check_alive(self) -> None:
        if self._failure.error is not None:
            raise self._failure.error.anew()

    def _fail(self, error: Exception, settlers: list[asyncio.Future[PartitionCheckpoint]]) -> None:
        """Report a failed write or sync, which is fatal: nothing is acknowledged any more."""
        self._give_up(self._failure.report(error), settlers)

    def _give_up(self, refusal: LogbrokerError, settlers: list[asyncio.Future[PartitionCheckpoint]]) -> None:
        """End all waits: after a failure of storage, no thread writes or syncs any more."""
        for waiter in (*self._await_written, *self._await_synced):
            waiter.pending.settle_one()
        for future in (*settlers, *self._settlers):
            if not future.done():
                future.set_exception(refusal.anew())
        self._await_written.clear()
        self._await_synced.clear()
        self._settlers.clear()
