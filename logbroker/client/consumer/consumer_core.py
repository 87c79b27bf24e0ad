"""The common part of the asynchronous and the synchronous consumer: everything except the loops over records."""

from __future__ import annotations

import datetime
import enum
import functools
import itertools
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, Literal, Protocol

from logbroker.client.consumer.cursor import Cursor, MergedRecord, Record
from logbroker.client.consumer.fetcher import Assigned, Chunk, Fetcher
from logbroker.client.consumer.generations import (
    KEY_ORDER,
    NO_ORDER,
    WholeTopics,
    has_delivered,
    held_back_topics,
)
from logbroker.client.consumer.group_reader import Callback, Calls, GroupReader
from logbroker.client.consumer.group_settings import GroupSettings, GrowthOrder
from logbroker.client.consumer.loop_ends import LoopEnds
from logbroker.client.consumer.offset_reset import OffsetReset, reset_policy
from logbroker.client.consumer.ownership_deadline import OwnershipDeadline
from logbroker.client.runtime import forking
from logbroker.client.runtime.arguments import MAX_INT, check_bounds
from logbroker.client.runtime.exclusive import BESIDE, Exclusive
from logbroker.client.runtime.handlers import CALLBACK, check_no_generator
from logbroker.client.runtime.lifetime import Droppable, Lifetime
from logbroker.client.transport.connection import CLOSED, Connection, running_loop
from logbroker.client.transport.metadata import check_bands, find_topics
from logbroker.client.transport.offsets import Start, When, find_offsets, find_starts, list_offsets, milliseconds
from logbroker.errors import (
    BrokerUnavailableError,
    ConcurrentUseError,
    InvalidRequestError,
    LogbrokerError,
    NoCommittedOffsetError,
    UnknownPartitionError,
)
from logbroker.types import TopicPartition

DEFAULT_BUFFER_BYTES: Final = 8 * 1024 * 1024
DEFAULT_POLL_BYTES: Final = 16 * 1024 * 1024
DEFAULT_POLL_RECORDS: Final = 500
DEFAULT_LIST_RECORDS: Final = 100_000
"""Maximum number of records in one list of `batches`. A batch of a few compressed bytes may hold millions of
records."""
_UNLIMITED: Final = OwnershipDeadline()


class Step(enum.Enum):
    """Result of `open_next`: a batch is open, or the reason why no batch is open."""

    OPENED = enum.auto()
    NEEDS_CHUNK = enum.auto()
    AT_END = enum.auto()


class Room:
    """The room that is left in a list of records. The first record always goes in, even if it is larger."""

    __slots__ = ("bytes", "records")

    def __init__(self, max_records: int, max_bytes: int) -> None:
        if max_records < 1:
            # In other clients the first argument is the time.
            raise InvalidRequestError(
                f"max_records must be at least 1, not {max_records}; to take available records without waiting, give "
                "timeout_seconds=0"
            )
        check_bounds(1, MAX_INT, max_bytes=max_bytes)
        self.records = max_records
        self.bytes = max_bytes

    @property
    def is_left(self) -> bool:
        return self.records > 0 and self.bytes > 0


def concurrent_use(error: ValueError) -> Exception:
    """Return the error for a decoder that cannot go on because another thread runs it."""
    return ConcurrentUseError(BESIDE) if "already executing" in str(error) else error


class ReadAhead(Protocol):
    """A reader that takes records before it hands them out."""

    def first(self, partition: TopicPartition) -> int | None:
        """Return the offset of the first record of a partition that was taken and not handed out, or None."""

    def stop(self) -> None:
        """Hand out no more of the records that were taken."""

    def begin(self) -> None:
        """Begin at the positions of the consumer, for the first time or after a `stop`."""


class ConsumerCore(Droppable):
    """Manages the assignment and the positions, and opens the batches of received chunks.

    All loops over a consumer and `poll` share its positions, and nothing else. Each step of a loop begins with `ask`
    and continues at the positions, whatever the body of the loop has done since the previous step.

    `call` calls a function of the fetcher in its event loop, which may run in another thread; `carry_out` also waits
    until the function has returned. `who` identifies the caller, because only one caller at a time may ask for records.
    """

    def __init__(
        self,
        broker: str,
        *,
        on_out_of_range: OffsetReset | Literal["error"],
        buffer_bytes: int,
        max_expanded_bytes: int,
        request_timeout_seconds: float,
        group: GroupSettings | None,
        growth_order: GrowthOrder | None,
        call: Callable[..., Any],
        carry_out: Callable[..., Any],
        who: Callable[[Lifetime], object],
    ) -> None:
        check_bounds(1, MAX_INT, buffer_bytes=buffer_bytes, max_expanded_bytes=max_expanded_bytes)
        policy = None if on_out_of_range == "error" else reset_policy(on_out_of_range, "on_out_of_range")
        if growth_order not in (None, KEY_ORDER, NO_ORDER):
            raise InvalidRequestError(f"growth_order takes {KEY_ORDER} or {NO_ORDER}")
        self._lifetime = lifetime = Lifetime("Consumer", broker)
        connect = functools.partial(
            Connection,
            broker,
            request_timeout_seconds=request_timeout_seconds,
            lifetime=lifetime,
            is_of_member=group is not None,
        )
        self.connection = connect()
        self._for_records = connect()
        """The connection of the fetch stream only. On a slow link, megabytes of records may be on their way, and
        answers to heartbeats and other calls must not wait behind them."""
        self.cursor = Cursor(max_expanded_bytes)
        self.closed = False
        self.on_records: Callable[[TopicPartition, int, Iterable[Record]], None] | None = None
        """Called with the records of one batch that `rest_of_batch` hands out, and the leader epoch of the batch."""
        self.has_ended = False
        """Whether there is nothing left to close."""
        self.use = Exclusive(functools.partial(who, lifetime))
        self._call = call
        self._carry_out = carry_out
        self.buffer_bytes = buffer_bytes
        self._read_ahead: ReadAhead | None = None
        self._fetcher: Fetcher | None = None
        self._fetcher_options: dict[str, Any] = {
            "buffer_bytes": buffer_bytes,
            "on_out_of_range": policy,
            "topics_may_go": group is not None,
        }
        self._assigned: dict[TopicPartition, Assigned] = {}
        self._moves = 0
        """How many times the program has moved or resumed a partition."""
        self._holds = False
        self._settings = group
        self._group: GroupReader | None = None
        self._keeps_order = growth_order != NO_ORDER
        self._whole_topics: WholeTopics | None = None
        """The topics that are assigned as a whole."""
        forking.watch(self)

    def forked(self) -> None:
        """See `forking.Forked`. The received records belong to the parent process."""
        self._stop_handing_out()

    def _stop_handing_out(self) -> None:
        self.cursor.stop()
        if self._read_ahead is not None:
            self._read_ahead.stop()

    @property
    def fetcher(self) -> Fetcher:
        """The fetcher, which reads ahead. Raises InvalidRequestError if nothing is assigned, and ForkedProcessError
        after a fork."""
        self._lifetime.check()
        if self._fetcher is None:
            raise InvalidRequestError("nothing is assigned; call assign(topic) or, in a group, subscribe(topic) first")
        return self._fetcher

    @property
    def in_group(self) -> bool:
        """Whether the consumer is, or is going to be, a member of a group."""
        return self._settings is not None

    @property
    def subscribed(self) -> bool:
        """Whether the consumer has begun to join its group."""
        return self._group is not None

    @property
    def group(self) -> GroupReader | None:
        """The membership in a group; None before the first subscription, and outside of groups."""
        return self._group

    @property
    def ownership(self) -> OwnershipDeadline:
        """The deadline until which records may be handed out."""
        return _UNLIMITED if self._group is None else self._group.ownership

    @property
    def must_turn(self) -> bool:
        """Whether `turn` must be called before the consumer waits for records: the group needs something first, or the
        ownership deadline is over and there is something to hand out."""
        ownership = self.ownership
        if ownership.lasts():
            return False
        return not (ownership.lapsed() and self.cursor.assigned is None and self.fetcher.has_nothing)

    def _open_fetcher(self) -> Fetcher:
        if self.closed:
            # Another thread has closed the consumer.
            raise BrokerUnavailableError(CLOSED)
        if self._fetcher is None:
            self._fetcher = Fetcher(self.connection, self._for_records, **self._fetcher_options)
            self._lifetime.opened(self.connection.close, self._for_records.close, self._fetcher.close)
        return self._fetcher

    async def subscribe(
        self,
        *topics: str,
        pattern: str | None = None,
        bands: str | Iterable[str] = (),
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Join the group, or change the subscription: see `Consumer.subscribe`."""
        running_loop()
        self._lifetime.check_loop()
        if self._settings is None:
            raise InvalidRequestError(
                "this consumer is in no group; give a group, Consumer(broker, group=...), or call assign()"
            )
        if not topics and not pattern:
            raise InvalidRequestError("name a topic or a pattern to subscribe to")
        for callback in (on_assigned, on_revoked, on_lost):
            if callback is not None:
                check_no_generator(CALLBACK, callback)
        self._lifetime.check()
        if self._group is None:
            fetcher = self._open_fetcher()
            self._group = GroupReader(self._settings, self.connection, self.cursor, fetcher, self._assigned)
            self._lifetime.finish = self._group.commit_last
            self._lifetime.opened(self._group.leave)
        await self._group.subscribe(
            topics, pattern or "", _listed(bands), on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost
        )

    async def commit(self, offsets: Mapping[TopicPartition, int] | Record | Sequence[Record] | None = None) -> None:
        """Commit these offsets or, without an argument, all records that were handed out so far: see
        `Consumer.commit`."""
        self._lifetime.check_loop()
        group = self._in_group()
        if offsets is None or isinstance(offsets, Mapping):
            await group.commit(offsets)
        else:
            records = [offsets] if isinstance(offsets, Record) else offsets
            await group.commit(_behind(records), {(_partition_of(each), each.topic_id) for each in records})

    async def committed(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int | None]:
        """Return committed offsets: see `Consumer.committed`."""
        return await self._in_group().committed(self.assignment() if partitions is None else list(partitions))

    def _in_group(self) -> GroupReader:
        self._lifetime.check()
        if self._group is None:
            raise InvalidRequestError("this consumer is no member of a group; call subscribe(topic) first")
        return self._group

    async def assign(
        self,
        topics: str | TopicPartition | Iterable[str | TopicPartition],
        start: Start = "earliest",
        *,
        bands: str | Iterable[str] = (),
    ) -> None:
        """Read these topics and partitions, and no others: see `Consumer.assign`."""
        if self._settings is not None:
            raise InvalidRequestError("in a group, partitions are assigned by the broker; call subscribe(topic)")
        wanted = [topics] if isinstance(topics, str | TopicPartition) else list(topics)
        names = list(dict.fromkeys(item if isinstance(item, str) else item.topic for item in wanted))
        infos = {info.name: info for info in await find_topics(self.connection, names)} if names else {}
        bands = _listed(bands)
        check_bands([infos[item] for item in wanted if isinstance(item, str)], bands)
        partitions: dict[TopicPartition, None] = {}
        for item in wanted:
            if isinstance(item, str):
                partitions |= {TopicPartition(item, number): None for number in infos[item].partitions_of(bands)}
            elif 0 <= item.partition < infos[item.topic].partitions:
                partitions[item] = None
            else:
                raise UnknownPartitionError(
                    f"topic {item.topic!r} has no partition {item.partition}; it has {infos[item.topic].partitions}"
                )
        offsets = await find_starts(self.connection, list(partitions), start)
        if self._whole_topics is not None:
            await self._whole_topics.close()
            self._lifetime.ended(self._whole_topics.close)
        self.cursor.drop()
        # If a partition is offline, the fetcher looks for its start again and reports the error to the program. It
        # reads the other partitions meanwhile.
        later = None if isinstance(start, int) else start
        if self._read_ahead is not None:
            self._read_ahead.stop()
        self._read_ahead, self.cursor.record_type = None, Record
        self._assigned = {
            partition: Assigned(partition, infos[partition.topic].id, offset, offset, start=later)
            for partition in partitions
            for offset in [offsets.get(partition, -1)]
        }
        fetcher = self._open_fetcher()
        reads = self._assigned

        def add(assigned: Assigned) -> None:
            # This is not a method, because nothing in the event loop may refer to the consumer: a dropped consumer
            # would then not be collected.
            if assigned.partition not in reads:
                reads[assigned.partition] = assigned
                fetcher.add(assigned)

        cursor, core = self.cursor, weakref.ref(self)

        def finished(assigned: Assigned) -> int:
            reader = None if (living := core()) is None else living._read_ahead
            first = None if reader is None else reader.first(assigned.partition)
            return cursor.finished(assigned) if first is None else min(first, cursor.finished(assigned))

        whole_topics = self._whole_topics = WholeTopics(self.connection, fetcher, finished, add)
        self._lifetime.opened(whole_topics.close)
        for item in dict.fromkeys(wanted):
            if isinstance(item, str):
                whole = [self._assigned[TopicPartition(item, number)] for number in infos[item].partitions_of(bands)]
                whole_topics.read(infos[item], bands, whole, keeps_order=self._keeps_order)
        fetcher.assign(self._assigned.values())

    @property
    def assigned(self) -> Mapping[TopicPartition, Assigned]:
        """The partitions that are read. Each call of `assign` makes a new mapping."""
        return self._assigned

    def reads_only(self, topic: str) -> bool:
        """Whether the assignment is this topic, as a whole or in some bands."""
        return self._whole_topics is not None and self._whole_topics.are_only(topic, self._assigned)

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are read."""
        return list(self._assigned)

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record to be delivered: see `Consumer.position`."""
        assigned = self._find(partition)
        self.cursor.settle()
        if assigned.position < 0:
            raise NoCommittedOffsetError(
                f"{partition} has no position yet: {assigned.error or 'the broker is asked for it'}; call seek()"
            )
        return self._position_of(assigned)

    def _position_of(self, assigned: Assigned) -> int:
        first = None if self._read_ahead is None else self._read_ahead.first(assigned.partition)
        return assigned.position if first is None else first

    def positions(self) -> dict[TopicPartition, int]:
        """Return the positions of all partitions that have one."""
        self.cursor.settle()
        return {at.partition: self._position_of(at) for at in self._assigned.values() if at.position >= 0}

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at an offset: see `Consumer.seek`."""
        if offset < 0:
            raise InvalidRequestError(f"{offset} is not an offset; give 0 or more")
        self._move({partition: offset})

    async def seek_to_time(self, partition: TopicPartition, moment: int | datetime.datetime) -> None:
        """Go on at the first record at or after a time: see `Consumer.seek_to_time`."""
        self._find(partition)
        self._move(await find_offsets(self.connection, [partition], milliseconds(moment)))

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go back to the log start offset of these partitions; without an argument, of all assigned partitions."""
        self._move(await self.beginning_offsets(partitions or None))

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on at the end of these partitions; without an argument, of all assigned partitions."""
        self._move(await self.end_offsets(partitions or None))

    def _move(self, offsets: dict[TopicPartition, int]) -> None:
        self._lifetime.check_loop()
        for partition in offsets:
            self._find(partition)
        self._leave_read_ahead()
        # Going back to an earlier generation also moves the other partitions of the topic to their positions.
        self.cursor.settle()
        self._set_positions(offsets)

    def _set_positions(self, offsets: dict[TopicPartition, int]) -> None:
        for partition, offset in offsets.items():
            assigned = self._assigned[partition]
            self._drop_open(assigned)
            assigned.position = offset
            # The leader epoch of the records that were read until now need not be that of the new position.
            assigned.leader_epoch, assigned.cut_offset = -1, None
            self._moves += 1
            self.fetcher.move(assigned)
            if self._whole_topics is not None:
                self._whole_topics.moved(assigned)

    def pause(self, *partitions: TopicPartition) -> None:
        """Deliver no records of these partitions until they are resumed."""
        self._lifetime.check_loop()
        found = [self._find(partition) for partition in partitions or self.assignment()]
        if going := [assigned for assigned in found if not assigned.paused]:
            self._leave_read_ahead()
            for assigned in going:
                self._drop_open(assigned)
                self.fetcher.pause(assigned)

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with paused partitions at their positions."""
        self._lifetime.check_loop()
        found = [self._find(partition) for partition in partitions or self.assignment()]
        if paused := [assigned for assigned in found if assigned.paused]:
            self._leave_read_ahead()
            for assigned in paused:
                assigned.paused = False
                self._moves += 1
                self.fetcher.move(assigned)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """Return the log start offsets of these partitions; with None, of all assigned partitions."""
        return await self._offsets(partitions, "earliest")

    async def end_offsets(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """Return the high watermarks of these partitions; with None, of all assigned partitions."""
        return await self._offsets(partitions, "latest")

    async def _offsets(self, partitions: Iterable[TopicPartition] | None, when: When) -> dict[TopicPartition, int]:
        return await find_offsets(self.connection, self.assignment() if partitions is None else list(partitions), when)

    def _find(self, partition: TopicPartition) -> Assigned:
        try:
            return self._assigned[partition]
        except KeyError:
            raise InvalidRequestError(f"{partition} is not assigned; call assign() with it first") from None

    def _drop_open(self, assigned: Assigned) -> None:
        if self.cursor.assigned is assigned:
            self.cursor.drop()

    # --- the way through the chunks ---------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise BrokerUnavailableError if the consumer is closed, and ForkedProcessError after a fork."""
        if self.closed:
            raise BrokerUnavailableError(CLOSED)
        self._lifetime.check()

    def ask(self, reader: ReadAhead | None = None) -> None:
        """Begin a `poll` or a step of a loop.

        The program asks for records, and so has finished those that it was given. A `reader` takes records, which are
        MergedRecords, before it hands them out. What it has not handed out is read again when anything else asks for
        records. Raises what `check_open` does.
        """
        self.check_open()
        self.cursor.asked()
        if self._group is not None:
            self._group.asked = True
            self._group.begin()
        if self._read_ahead is not reader:
            if self._read_ahead is not None:
                self._carry_out(self._leave_read_ahead)
            if reader is not None:
                self._read_anew_as_merged()
                reader.begin()
                self._read_ahead = reader
            # Going back has closed the open batch as if the program still had its last record in hand.
            self.cursor.asked()

    def is_read_by(self, reader: ReadAhead) -> bool:
        """Whether nothing else has asked for records, or moved or paused a partition, since this reader asked."""
        return self._read_ahead is reader

    def _leave_read_ahead(self) -> None:
        """Go back to the first records that the reader ahead has not handed out. It begins anew when it asks again.

        An exception that a signal handler raises meanwhile does no harm: the next caller does all of this again.
        """
        reader = self._read_ahead
        if reader is None:
            return
        reader.stop()
        self.cursor.settle()
        offsets = {}
        for partition, assigned in self._assigned.items():
            first = reader.first(partition)
            if first is not None or assigned.full or assigned is self.cursor.assigned:
                offsets[partition] = assigned.position if first is None else first
                assigned.full = False
        self._set_positions(offsets)
        self.cursor.record_type = Record
        self._read_ahead = None

    def _read_anew_as_merged(self) -> None:
        """Make all records from now on MergedRecords. An open batch is therefore read again from its position."""
        self.cursor.settle()
        if (assigned := self.cursor.assigned) is not None:
            self._carry_out(self._set_positions, {assigned.partition: assigned.position})
        self.cursor.record_type = MergedRecord

    def hold_back(self, assigned: Assigned) -> None:
        """Fetch no more of a partition for the reader ahead, until `fetch_again`."""
        self._drop_open(assigned)
        assigned.full = True
        self._call(self.fetcher.hold_back, assigned)

    def fetch_again(self, assigned: Assigned) -> None:
        """Go on with a partition that was held back."""
        self._call(self.fetcher.fetch_again, assigned)

    def turn(self, ends: LoopEnds | None, deadline: float | None) -> Calls:
        """Follow the group until records may be handed out, or the deadline is over: see `GroupReader.turn`."""
        return self._in_group().turn(ends, deadline)

    def goodbye(self) -> Calls:
        """Prepare for the end of a group member: see `GroupReader.goodbye`."""
        return self._in_group().goodbye()

    async def ends(self) -> LoopEnds:
        """Return the ends of a bounded loop: the current high watermarks of the partitions that have not reached them.
        A standing partition (stopped by an error) is included, so that its error is raised at the end. It is left out
        if its error was raised before and the program has received no record since. Paused partitions are left out,
        too, and those that an earlier bounded loop left out are read again."""
        self._release_held()
        self.cursor.settle()
        ends = LoopEnds(self._assigned, self._moves)
        if self._whole_topics is not None:
            await self._whole_topics.refresh()
        standing = set(self.fetcher.standing) if self.fetcher.just_told else set()
        self.fetcher.just_told = False
        all_assigned = list(self._assigned.values())
        found = await list_offsets(self.connection, [(assigned.partition, "latest") for assigned in all_assigned])
        for assigned, outcome in zip(all_assigned, found, strict=True):
            if not isinstance(outcome, LogbrokerError):
                ends.known[assigned.partition] = outcome.offset
            if assigned.paused:
                continue
            if not isinstance(outcome, LogbrokerError) and outcome.offset < assigned.position:
                self._drop_open(assigned)
            end = await self.fetcher.bound(assigned, outcome)
            if end is not None and assigned not in standing:
                ends[assigned.partition] = end
        return ends

    def is_of_old_assignment(self, ends: LoopEnds) -> bool:
        """Whether the program has called `assign` since the ends were taken."""
        return ends.assignment is not self._assigned

    async def renew(self, ends: LoopEnds) -> None:
        """Let a bounded loop go on to the current ends of the new assignment."""
        ends.renew(await self.ends())

    def begin_chunk(self, chunk: Chunk, ends: LoopEnds | None) -> None:
        """Begin with a chunk. If a bounded loop does not read the partition of the chunk, hold the partition: its
        records are not wanted before the next loop, and must not be lost."""
        if ends is None or chunk.assigned.partition in ends:
            self.cursor.take(chunk)
        else:
            self._hold(chunk.assigned)

    def _hold(self, assigned: Assigned) -> None:
        self._holds = True
        # Set it here, too: `_leave_blocked` may read it before the event loop has its next turn.
        assigned.held = True
        self._call(self.fetcher.hold, assigned)

    def _release_held(self) -> None:
        if self._holds:
            self._holds = False
            self._call(self.fetcher.release_held)

    def open_next(self, ends: LoopEnds | None) -> Step:
        """Open the next batch. `ends` holds the remaining ends of a bounded loop. Partitions that have reached their
        ends, are paused, or are no longer assigned are removed from `ends`; partitions that were moved back or resumed
        are put back. If only standing partitions remain in `ends`, their error is raised."""
        if ends is None:
            # A bounded loop within the body of this one may have held partitions.
            self._release_held()
        else:
            self._look_anew(ends)
        try:
            opened = self.cursor.advance(ends)
        except LogbrokerError as error:
            self.fail_open(error)
            opened = False
        if ends is not None:
            for partition, end in list(ends.items()):
                assigned = self._assigned.get(partition)
                if assigned is None or assigned.paused:
                    del ends[partition]
                elif assigned.position >= end and assigned.error is None:
                    del ends[partition]
                    self._hold_unless_read(assigned)
                elif assigned.held:
                    # The program has moved it back, or another loop held it.
                    assigned.held = False
                    self._call(self.fetcher.move, assigned)
            if not opened:
                self._leave_blocked(ends)
            if not ends:
                return Step.AT_END
            if not opened and self._only_standing_remain(ends):
                self.fetcher.tell()
        return Step.OPENED if opened else Step.NEEDS_CHUNK

    def _only_standing_remain(self, ends: LoopEnds) -> bool:
        """Whether each partition of `ends` is standing, or waits at the end of its generation for a standing one whose
        position the program has to move."""
        standing = self.fetcher.standing
        held_back = {each.topic_id for each in standing if each.generation and not each.unreadable}
        return all(
            assigned in standing or (assigned.topic_id in held_back and has_delivered(assigned))
            for assigned in (self._assigned[partition] for partition in ends)
        )

    def _look_anew(self, ends: LoopEnds) -> None:
        """Take into account what the body of a bounded loop did with the consumer."""
        ends.look_anew(self._moves)
        open_one = self.cursor.assigned
        if open_one is not None and open_one.partition not in ends:
            # Another loop or `poll` opened this batch. The rest of its chunk is dropped here and fetched again later.
            self.cursor.settle()
            self._hold_unless_read(open_one)

    def _hold_unless_read(self, assigned: Assigned) -> None:
        """Hold a partition that a bounded loop has finished, if records behind its end have arrived.

        A partition of which everything was read is still fetched, because the broker has to report the ends of its next
        generations, and other partitions of the topic wait for these reports.
        """
        if not assigned.generation or assigned.fetched > assigned.position:
            self._hold(assigned)

    def _leave_blocked(self, ends: LoopEnds) -> None:
        """Remove from `ends` the partitions that wait at the end of their generation for a partition that the loop does
        not read."""
        held_back = held_back_topics(self._assigned.values(), ends)
        for partition in list(ends) if held_back else ():
            assigned = self._assigned[partition]
            if assigned.topic_id in held_back and has_delivered(assigned) and not assigned.failed:
                del ends[partition]
                self._hold(assigned)

    def rest_of_batch(self, records: list[Record], room: Room) -> None:
        """Add the undelivered records of the open batch to a list, as far as there is room. If room is left afterwards,
        all of them were added."""
        cursor, before = self.cursor, len(records)
        error = None
        try:
            if cursor.open_bytes <= room.bytes:
                room.bytes -= cursor.open_bytes
                records.extend(itertools.islice(cursor.records, room.records))
            else:
                _fill(records, cursor, room)
        except LogbrokerError as failure:
            error = failure.as_value()
        except ValueError as failure:
            raise concurrent_use(failure) from None
        room.records -= len(records) - before
        if len(records) > before:
            self.cursor.hand_out(records, before)
            self.fetcher.just_told = False
            if self.on_records is not None and self.cursor.assigned is not None:
                handed_out = records if before == 0 else itertools.islice(records, before, None)
                self.on_records(self.cursor.assigned.partition, self.cursor.leader_epoch, handed_out)
        if error is not None:
            self.fail_open(error)

    def fail_open(self, error: LogbrokerError) -> None:
        """Stop the partition of the open batch with an error. The next chunk is then this error."""
        assigned = self.cursor.assigned
        assert assigned is not None
        error = self.cursor.undecodable(error)
        self.cursor.drop()
        self._call(self.fetcher.fail, assigned, error)

    async def close(self) -> None:
        """Stop reading, and close the connections. All steps are taken, however often the call is cancelled."""
        self.closed = True
        if self._lifetime.is_forked:
            return
        async with AsyncExitStack() as stack:
            stack.callback(setattr, self, "has_ended", True)
            # These steps come after the group was left: undelivered records of the open batch must not count as
            # finished.
            stack.callback(self._lifetime.closed)
            stack.callback(self._stop_handing_out)
            stack.push_async_callback(self.connection.close)
            stack.push_async_callback(self._for_records.close)
            if self._fetcher is not None:
                stack.push_async_callback(self._fetcher.close)
            if self._whole_topics is not None:
                stack.push_async_callback(self._whole_topics.close)
            if self._group is not None:
                stack.push_async_callback(self._group.leave)


def _fill(records: list[Record], cursor: Cursor, room: Room) -> None:
    """Add records one by one, because each may be larger than the room that is left. Once all remaining records are
    known to fit, add them in one step."""
    left, before = room.bytes, len(records)
    try:
        for record in itertools.islice(cursor.records, room.records):
            size_bytes = record.size_bytes
            if size_bytes > left and records:
                cursor.put_back(record)
                left = 0
                return
            records.append(record)
            left -= size_bytes
            if cursor.open_bytes <= left:
                left -= cursor.open_bytes
                records.extend(itertools.islice(cursor.records, room.records - len(records) + before))
                return
    finally:
        room.bytes = max(0, left)


def _partition_of(record: Record) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)


def _behind(records: Sequence[Record]) -> dict[TopicPartition, int]:
    """Return the offsets to commit for these records."""
    behind: dict[TopicPartition, int] = {}
    for record in records:
        partition = _partition_of(record)
        behind[partition] = max(record.offset + 1, behind.get(partition, 0))
    return behind


def _listed(bands: str | Iterable[str]) -> list[str]:
    return [bands] if isinstance(bands, str) else list(bands)
