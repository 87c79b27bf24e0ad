"""The sources of an asynchronous convoy: a consumer of a group, a worker, and any iterator of records."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable
from contextlib import aclosing, suppress
from time import monotonic
from typing import Any, Final, Protocol, runtime_checkable

from logbroker.client.consumer.consumer import Consumer
from logbroker.client.consumer.consumer_core import ConsumerCore
from logbroker.client.consumer.group_offsets import CommittedOffset, fetch_offsets
from logbroker.client.consumer.group_reader import GroupReader
from logbroker.client.convoy.convoy_core import PULL_SECONDS, SOURCE, Ack, ConvoyCore, Item, LastWord, Nack, give_up
from logbroker.client.convoy.track import Track
from logbroker.client.runtime.handlers import CALLBACK, call, is_own, let_out
from logbroker.client.runtime.tasks import end_tasks
from logbroker.client.worker.leased_record import LeasedRecord, WorkerDelivery, reason_of
from logbroker.client.worker.worker import Worker
from logbroker.client.worker.worker_core import WorkerCore
from logbroker.errors import InvalidRequestError, LogbrokerError, NoCommittedOffsetError
from logbroker.types import TopicPartition

_MAX_PULLED: Final = 1_000
"""Maximum number of records that are taken from a source before the event loop gets a turn."""
_WORKER_SHARE: Final = 10
"""Number of unsettled deliveries per handler that a worker may have, so that free handlers find records of other
keys."""


@runtime_checkable
class ConvoySource(Protocol):
    """A source of records for a `Convoy`: an asynchronous iterator of tuples of four.

    key      the ordering key: any hashable value. With None, the record is a lane of its own, without an order
    item     the argument of the handler
    ack      called without an argument when the item is done
    nack     called if the convoy ends before the item is done, with its last error, or None if it never failed. The
             source should deliver the item again

    Either function may return an awaitable. The convoy takes a few items at a time, as it has room for them.
    """

    def __aiter__(self) -> AsyncIterator[tuple[Hashable | None, Any, Ack, Nack]]: ...


class Feed(Protocol):
    """A source, as the convoy uses it."""

    is_over: bool
    """Whether the source has ended."""

    @property
    def is_closed(self) -> bool:
        """Whether the program has closed the source."""
        ...

    async def open(self) -> None:
        """Begin to take records. Raises InvalidRequestError, and then changes nothing."""
        ...

    async def pull(self, records: int, size_bytes: int) -> None:
        """Wait a moment for records, and give them to the core."""
        ...

    async def idle(self) -> None:
        """Do what the source needs while it is not asked for records."""
        ...

    def may_start(self) -> bool:
        """Whether records may be started now."""
        ...

    def begins(self, item: Any) -> bool:
        """Note that the work on a record begins. Return False if its lease has ended."""
        ...

    def progressed(self) -> None:
        """Note that no record runs now."""
        ...

    async def close(self) -> None:
        """Take no more records, and leave the source to whoever uses it next."""
        ...


class GroupHold:
    """A convoy's connection to the consumer of a group. The asynchronous and the synchronous convoy share it."""

    def __init__(self, consumer: ConsumerCore, core: ConvoyCore) -> None:
        self.consumer = consumer
        self._core = core
        group = consumer.group
        if group is None:
            raise InvalidRequestError(
                "a convoy needs the consumer of a group that has subscribed: Consumer(broker, group=...) and"
                " subscribe(topic), before the convoy runs"
            )
        if not group.commits:
            raise InvalidRequestError("a convoy commits what is done: leave auto_commit of its consumer at True")
        if consumer.on_records is not None:
            raise InvalidRequestError("another convoy runs on this consumer: give each its own")
        self.group: GroupReader = group
        self.ownership = consumer.ownership
        self._keeping = group.member.membership.keeping

    def may_start(self) -> bool:
        return monotonic() <= self._keeping.until

    def drain_seconds(self) -> float:
        """Return how long running handlers may take when their partitions are revoked."""
        return min(self._core.drain_left_seconds, self.group.rebalance_timeout_seconds / 2)

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of partitions that the convoy begins with. Raises retriable errors only."""
        try:
            return await fetch_offsets(self.consumer.connection, self.group.group_id, list(partitions))
        except LogbrokerError as error:
            if error.retriable:
                raise
            return {}  # The topic was deleted, for instance. Done records that are still there run again.

    def kept(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Track]:
        """Return the tracks of those partitions whose revocation was announced, but that this member still has."""
        return {each: self._core.tracks[each] for each in partitions if each in self._core.tracks}

    def open_tracks(
        self, partitions: Iterable[TopicPartition], committed: dict[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, int]:
        """Begin with assigned partitions. Return the offsets to which the consumer has to be moved before it reads
        on."""
        back: dict[TopicPartition, int] = {}
        kept = self.kept(partitions)
        for partition in partitions:
            if partition in kept:
                track = self._core.tracks[partition] = kept[partition].again()
                if track.floor is not None:
                    back[partition] = track.floor
                continue
            position: int | None = None
            with suppress(NoCommittedOffsetError):
                position = self.consumer.position(partition)
            self._core.open_track(partition, position, committed.get(partition))
        return back

    def begun(self) -> dict[TopicPartition, int]:
        """Return the offsets at which the consumer goes on when the convoy has ended: in each partition, that of the
        first record that is not done."""
        assigned = set(self.consumer.assignment())
        with self._core.lock:
            floors = {p: track.floor for p, track in self._core.tracks.items() if track.has_pending and p in assigned}
        return {partition: floor for partition, floor in floors.items() if floor is not None}

    def let_go(self) -> None:
        """Detach the convoy from the consumer."""
        self.consumer.on_records = None
        self.group.follow_until_asked(LastWord(self._core.tracks))


class ConsumerFeed:
    """Records of a consumer group. Partitions come and go while the consumer is asked for records."""

    is_over = False

    def __init__(self, consumer: Consumer, core: ConvoyCore, drain: Any) -> None:
        self._consumer = consumer
        self._core = core
        self._drain = drain
        """A function that waits until no record of some tracks runs, or the time is over."""
        self._hold: GroupHold | None = None

    @property
    def hold(self) -> GroupHold:
        assert self._hold is not None
        return self._hold

    @property
    def group_id(self) -> str:
        return self.hold.group.group_id

    @property
    def is_closed(self) -> bool:
        return self.hold.consumer.closed

    @property
    def broker(self) -> str:
        return self._consumer._core.connection.brokers

    async def open(self) -> None:
        core = self._consumer._core
        hold = GroupHold(core, self._core)
        with core.use.reading():
            partitions = core.assignment()
            committed = await hold.committed(partitions) if partitions else {}
            self._hold = hold
            core.on_records = self._core.take_records
            hold.group.follow(self)
            hold.open_tracks(partitions, committed)

    async def pull(self, records: int, size_bytes: int) -> None:
        await self._consumer.poll(records, PULL_SECONDS, max_bytes=size_bytes)

    async def idle(self) -> None:
        core = self.hold.consumer
        with core.use.reading():
            core.ask()
            if not core.ownership.lasts():
                async with aclosing(core.turn(None, monotonic() + PULL_SECONDS)) as calls:
                    async for callback, partitions in calls:
                        await call(CALLBACK, callback, partitions)

    def may_start(self) -> bool:
        return self.hold.may_start()

    def begins(self, item: Any) -> bool:
        return True

    def progressed(self) -> None:
        self.hold.group.look_at_boundary()

    async def close(self) -> None:
        hold = self.hold
        try:
            await hold.group.commit_done()
        finally:
            # Nobody must commit the position of the consumer before it is moved back.
            try:
                for partition, offset in hold.begun().items():
                    await self._consumer.seek(partition, offset)
            finally:
                hold.let_go()

    # --- the completion of the group reader -------------------------------------------------------------------------

    def floor(self, partition: TopicPartition, position: int) -> int:
        return self._core.floor(partition, position)

    def changes(self, partition: TopicPartition) -> int:
        return self._core.changes(partition)

    def text(self, partition: TopicPartition, offset: int) -> str:
        return self._core.text(partition, offset)

    def is_busy(self) -> bool:
        return self._core.is_busy()

    def forget(self, partition: TopicPartition) -> None:
        self._core.forget(partition)

    async def assigned(self, partitions: list[TopicPartition]) -> None:
        hold = self.hold
        new = [each for each in partitions if each not in hold.kept(partitions)]
        committed = await hold.committed(new) if new else {}
        held = set(hold.consumer.assignment())
        for partition, offset in hold.open_tracks([each for each in partitions if each in held], committed).items():
            await self._consumer.seek(partition, offset)

    async def revoked(self, partitions: list[TopicPartition]) -> None:
        await self._drain(self._core.hold(partitions), self.hold.drain_seconds())


class StreamFeed:
    """Records of an iterator, or of a worker."""

    def __init__(self, source: ConvoySource, core: ConvoyCore) -> None:
        self.is_over = False
        self._source = source
        self._core = core
        self._items: AsyncIterator[Item] | None = None
        self._next: asyncio.Task[Item] | None = None

    @property
    def is_closed(self) -> bool:
        return True  # An error of the program's own source is never tried again.

    async def open(self) -> None:
        self._items = aiter(self._source)

    async def pull(self, records: int, size_bytes: int) -> None:
        assert self._items is not None
        taken, before = 0, self._core.lanes.bytes
        while taken < min(records, _MAX_PULLED) and self._core.lanes.bytes - before < size_bytes:
            if self._next is None:
                self._next = asyncio.create_task(_next_of(self._items))
                await asyncio.sleep(0)
            if not self._next.done():
                if taken:
                    return
                await asyncio.wait([self._next], timeout=PULL_SECONDS)
                if not self._next.done():
                    return
            arrived, self._next = self._next, None
            try:
                item = arrived.result()
            except StopAsyncIteration:
                self.is_over = True
                return
            self._core.take_item(item)
            taken += 1

    async def idle(self) -> None:
        pass

    def may_start(self) -> bool:
        return True

    def begins(self, item: Any) -> bool:
        return True

    def progressed(self) -> None:
        pass

    async def close(self) -> None:
        if self._next is not None:
            arrived, self._next = self._next, None
            for outcome in await end_tasks(arrived):
                if isinstance(outcome, tuple):
                    self._core.take_item(outcome)
        close = getattr(self._items, "aclose", None)
        if close is not None and self._items is not self._source:
            await close()


async def _next_of(items: AsyncIterator[Item]) -> Item:
    try:
        return await anext(items)
    except asyncio.CancelledError as error:
        if is_own(error):
            raise let_out(SOURCE, error) from error
        raise


class WorkerFeed:
    """Records of a worker. It settles them as the convoy finishes them."""

    def __init__(self, worker: Worker, core: ConvoyCore) -> None:
        self.is_over = False
        self._worker: WorkerCore[Any] = worker._core
        self._core = core
        self._next: asyncio.Task[Any] | None = None

    @property
    def is_closed(self) -> bool:
        return self._worker.closed

    @property
    def group_id(self) -> str:
        return self._worker.group

    @property
    def broker(self) -> str:
        return self._worker.connection.brokers

    async def open(self) -> None:
        self._worker.has_handlers = True
        await self._worker.start(prefetch_of(self._worker, self._core))

    async def pull(self, records: int, size_bytes: int) -> None:
        self._core.look_at_leases(monotonic())
        worker, buffer = self._worker, self._worker.in_flight.buffer
        taken, before = 0, self._core.lanes.bytes
        while taken < min(records, _MAX_PULLED) and self._core.lanes.bytes - before < size_bytes:
            if self._next is None:
                delivery = worker.take(buffer, monotonic())
                if delivery is None:
                    if taken:
                        return
                    self._next = asyncio.create_task(worker.next_delivery(buffer))
                    continue
            else:
                await asyncio.wait([self._next], timeout=PULL_SECONDS)
                if not self._next.done():
                    return
                arrived, self._next = self._next, None
                delivery = arrived.result()
                if delivery is None:
                    self.is_over = True
                    return
            self._core.take_item(item_of(delivery, _ack))
            taken += 1

    async def idle(self) -> None:
        self._core.look_at_leases(monotonic())

    def may_start(self) -> bool:
        return True

    def begins(self, item: Any) -> bool:
        return begins(item)

    def progressed(self) -> None:
        pass

    async def close(self) -> None:
        if self._next is not None:
            arrived, self._next = self._next, None
            for outcome in await end_tasks(arrived):
                if isinstance(outcome, LeasedRecord):
                    self._core.take_item(item_of(outcome, _ack))
        self._worker.handlers_ended()


def prefetch_of(worker: WorkerCore[Any], core: ConvoyCore) -> int:
    """Return how many unsettled deliveries the worker of a convoy may have."""
    return worker.prefetch or max(core.concurrency, min(core.max_records, _WORKER_SHARE * core.concurrency))


def begins(delivery: LeasedRecord) -> bool:
    """Note that the work on a delivery begins: the limit of its lease's extension counts from now. Return False if the
    lease has ended."""
    if delivery.lost:
        return False
    delivery.batch.begins(delivery.index, monotonic())
    return True


def item_of(delivery: LeasedRecord, ack: Callable[[Any], object]) -> Item:
    """Return a delivery as a record of a source. `ack` acks it."""
    return delivery.key, delivery, functools.partial(ack, delivery), functools.partial(_nack, delivery)


def _ack(delivery: WorkerDelivery) -> Awaitable[None] | None:
    """Ack a delivery. If it has outputs, the result waits until they are stored: until then, no other record of its key
    may begin, whose outputs could come first."""
    if not delivery.settled:
        delivery.ack()
    return delivery if delivery.outputs else None


def _nack(delivery: LeasedRecord, error: Exception | None) -> None:
    if delivery.settled:
        return
    if delivery.lost:
        give_up(delivery)
    elif error is None:
        delivery.release()
    else:
        delivery.nack(reason=reason_of(error))
