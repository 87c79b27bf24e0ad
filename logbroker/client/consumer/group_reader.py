"""The group membership of a consumer: follows the assignments between two records, and commits what the program has
finished.

Assignments arrive at any time, but they are applied when the program asks for records (`turn`). The program has then
finished all records that it was given. So all records of a revoked partition are finished and committed, and no
callback runs concurrently with the program's own loop. If a program asks too rarely, the broker fences the member after
the rebalance timeout or the poll interval.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Final, Protocol

import msgspec

from logbroker.client.consumer.cursor import Cursor
from logbroker.client.consumer.fetcher import Assigned, Fetcher
from logbroker.client.consumer.group_messages import Positions
from logbroker.client.consumer.group_offsets import fetch_offsets
from logbroker.client.consumer.group_settings import GroupSettings
from logbroker.client.consumer.loop_ends import LoopEnds
from logbroker.client.consumer.member import Activity, GroupMember
from logbroker.client.consumer.membership import LOST, AssignedPartitions, GrantedPartitions, MembershipState
from logbroker.client.consumer.offset_reset import place_of
from logbroker.client.transport.background import Background
from logbroker.client.transport.connection import CLOSED, Connection, backoff_seconds
from logbroker.client.transport.errand import Errand
from logbroker.client.transport.offsets import ListedOffset, When, list_offsets
from logbroker.errors import (
    BrokerUnavailableError,
    InvalidRequestError,
    LogbrokerError,
    NotOwnerError,
    OffsetOutOfRangeError,
    OffsetsFullError,
    UnknownMemberError,
    UnknownTopicError,
)
from logbroker.types import TopicId, TopicPartition
from logbroker.v1.groups_pb2 import (
    READING_STATE_FAILED,
    READING_STATE_FINISHED,
    READING_STATE_PAUSED,
    READING_STATE_READING,
    ReadingState,
)

_log = logging.getLogger(__name__)

Callback = Callable[[list[TopicPartition]], Any]
"""A callback that takes a list of partitions. If a callback of an asynchronous consumer returns an awaitable, the
consumer awaits it."""

Calls = AsyncGenerator[tuple[Callback, list[TopicPartition]], None]
"""Callbacks to call. Each must be called before the next is requested."""

_STOPPED: Final = (READING_STATE_FAILED, READING_STATE_PAUSED)
_MAX_TOLD: Final = 10_000
"""Maximum number of positions in one heartbeat."""
_NOT_COMMITTED: Final = "member of group %s: not committed: %s"
_TEXTS_AT_ONCE: Final = 100
"""Maximum number of offsets with texts beside them in one commit, because a text may have 4 KiB."""
_NO_ANSWER: Final = "the broker does not answer"
_ON_LOSS: Final = "member of group %s: the group gave away %d partitions before they were released"


class _Places(msgspec.Struct):
    """The offsets at which new partitions begin."""

    starts: dict[TopicPartition, ListedOffset | LogbrokerError]
    """Start offsets of partitions without a committed offset."""
    ends: dict[TopicPartition, ListedOffset | LogbrokerError]
    """End offsets, for a bounded loop."""
    committed: dict[TopicPartition, int]
    """The offsets that were just committed for new partitions."""


class Completion(Protocol):
    """Knows which records are done, for a program that processes many records at once and finishes them in any order:
    see `GroupReader.follow`.

    With a completion, records do not count as finished because the program asks for more. The methods are called in the
    event loop, except `assigned` and `revoked`, which are called as the program's callbacks are.
    """

    def floor(self, partition: TopicPartition, position: int) -> int:
        """Return the offset of the first record that is not done. If all are done, return `position`, the offset after
        the last record that the program was given."""
        ...

    def changes(self, partition: TopicPartition) -> int:
        """Return a number that changes whenever `text` changes for the same offset."""
        ...

    def text(self, partition: TopicPartition, offset: int) -> str:
        """Return the text to store beside a committed offset. It names the records beyond this offset that are done.
        `floor` has just returned the offset."""
        ...

    def is_busy(self) -> bool:
        """Whether the program is working on records. If so, it stays a member even if it asks for no others."""
        ...

    def assigned(self, partitions: list[TopicPartition]) -> Any:
        """Prepare for the first record of the partitions. Called before the program's own callback."""
        ...

    def revoked(self, partitions: list[TopicPartition]) -> Any:
        """Finish the running records as far as possible: records that are done after this call are not committed.
        Called before the program's own callback."""
        ...

    def forget(self, partition: TopicPartition) -> None:
        """Note that the member does not hold the partition any more."""
        ...


class GroupReader:
    """Connects a group member to the reading part of its consumer. `assigned` belongs to the consumer and is updated
    here."""

    def __init__(
        self,
        settings: GroupSettings,
        connection: Connection,
        cursor: Cursor,
        fetcher: Fetcher,
        assigned: dict[TopicPartition, Assigned],
    ) -> None:
        self.member = GroupMember(
            connection,
            settings.member,
            reader=self,
            look_at_program=self._look_at_program,
            on_change=fetcher.interrupt,
        )
        self.ownership = self.member.membership.ownership
        self.asked = False
        """Whether the program has asked for records since the last heartbeat."""
        self._settings = settings
        self._group_id = settings.member.group_id
        self._connection = connection
        self._cursor = cursor
        self._fetcher = fetcher
        self._assigned = assigned
        self._committed: dict[TopicPartition, int] = {}
        """Committed offsets of the partitions that this member reads, as far as it knows; -1 if nothing is
        committed."""
        self._unsure: dict[TopicPartition, int] = {}
        """The committed offsets that this member knew when the current stream began. They are kept until the broker has
        reported its own committed offsets, because the broker may have been restored from an older backup."""
        self._looking = asyncio.Lock()
        self._lost_uncommitted = False
        """Whether all partitions were lost before the program's records were committed, and no partition is held again
        yet."""
        self._unplaced: dict[TopicPartition, GrantedPartitions] = {}
        """Partitions that the member holds and does not read yet."""
        self._placing: Errand[_Places] = Errand()
        self._letting_go: Errand[bool] = Errand()
        self._released: set[TopicPartition] = set()
        """Partitions that the member still holds although the program was told of their revocation."""
        self._being_revoked: set[TopicPartition] = set()
        """Partitions for which `on_revoked` is being called."""
        self._to_tell: dict[TopicPartition, bool] = {}
        """Partitions that are read before `on_assigned` has returned for them, and whether it was called."""
        self._on_assigned: Callback = _ignore
        self._on_revoked: Callback = _ignore
        self._on_lost: Callback = _ignore
        self._last_seen: object = None
        fetcher.on_cut = self._log_was_cut
        self._committer = Background("commits at intervals", connection, self._commit_on_and_on)
        self._commit_now = asyncio.Event()
        self._refused: set[TopicPartition] = set()
        """Partitions whose latest commit was refused."""
        self._generations: dict[TopicId, int] = {}
        """The generation of each topic that the member has to read, as the broker last reported it."""
        self._told: dict[TopicPartition, tuple[int, ReadingState]] = {}
        """The position and reading state of each partition as last reported to the broker on this stream."""
        fetcher.boundary = self._at_boundary
        self._completion: Completion | None = None
        self._is_last_word = False
        """Whether the completion has ended, and is used only until the program asks for records again."""
        self._has_warned = False
        self._saved: dict[TopicPartition, int] = {}
        """`Completion.changes` of each partition when its committed text was made."""

    @property
    def commits(self) -> bool:
        """Whether finished records are committed without a call of the program."""
        return self._settings.auto_commit

    @property
    def group_id(self) -> str:
        return self._group_id

    @property
    def rebalance_timeout_seconds(self) -> float:
        """How long the member may take to give up partitions."""
        return self._settings.member.rebalance_timeout_seconds

    def follow(self, completion: Completion | None) -> None:
        """From now on, commit what `completion` says is done. With None, records are finished when the program asks for
        more."""
        self._completion = completion
        self._is_last_word = False
        self._saved.clear()

    def follow_until_asked(self, completion: Completion) -> None:
        """Note that the current completion has ended, and that the consumer was moved back to the first records that
        are not done. Until the program asks for records, `completion` says instead what is done, because some of the
        done records may still have to be committed."""
        self._completion = completion
        self._is_last_word = True

    def begin(self) -> None:
        """Note that the program asks for records."""
        if self._is_last_word:
            self.follow(None)

    async def subscribe(
        self,
        topics: Sequence[str],
        pattern: str,
        bands: Sequence[str],
        *,
        on_assigned: Callback | None,
        on_revoked: Callback | None,
        on_lost: Callback | None,
    ) -> None:
        """Join the group, or change the subscription. A callback of None keeps the previous one."""
        before = self._on_assigned, self._on_revoked, self._on_lost
        self._on_assigned = on_assigned or self._on_assigned
        self._on_revoked = on_revoked or self._on_revoked
        self._on_lost = on_lost or self._on_lost
        try:
            await self.member.subscribe(topics, pattern, bands)
        except BaseException:
            self._on_assigned, self._on_revoked, self._on_lost = before
            raise
        if self.member.is_leaving:
            # The member was closed just when the broker accepted it.
            raise BrokerUnavailableError(CLOSED)
        if not self._committer.has_begun:
            self._committer.start()

    def _look_at_program(self) -> Activity:
        last = self._cursor.last
        delivers = last is not self._last_seen
        delivers |= self._completion is not None and self._completion.is_busy()
        polls = self.asked or self._fetcher.waiting or delivers
        self.asked, self._last_seen = False, last
        return Activity(polls, delivers)

    # --- between two records ----------------------------------------------------------------------------------------

    async def turn(self, ends: LoopEnds | None, deadline: float | None) -> Calls:
        """Do what the group requires until records may be handed out, or the deadline (monotonic seconds) is over.

        The deadline ends a wait, but not the work behind it: the next call continues that work. Retriable errors are
        not raised; the failed step is tried again.

        Yields the callbacks to call, each with its partitions, before the next step. `ends` holds the remaining end
        offsets of a bounded loop: revoked partitions are removed, and new ones are added with their current end.
        """
        membership = self.member.membership
        self._cursor.settle()
        is_telling = False
        while True:
            if is_telling:
                # This comes first: a partition that was never announced as assigned can be neither announced as revoked
                # nor committed.
                told = list(self._to_tell)
                if self._completion is not None:
                    yield self._completion.assigned, told
                is_telling = False
                # The partitions may have been lost in a freeze, or while the completion asked the broker.
                if membership.is_sure(monotonic()):
                    self._to_tell.update(dict.fromkeys(told, True))
                    # If the callback raises, it is called again. No record is handed out before it has returned.
                    yield self._on_assigned, told
                    for partition in told:
                        self._to_tell.pop(partition, None)
            elif membership.lost:
                self._lost_uncommitted |= any(
                    assigned.has_read and self._done_up_to(assigned) > self._committed[partition]
                    for partition, assigned in self._assigned.items()
                )
                announced = [partition for partition in self._assigned if self._to_tell.get(partition, True)]
                self._stop_reading(list(self._assigned), ends)
                self._unplaced = {}
                membership.forget()
                if announced:
                    _log.warning(_ON_LOSS, self._group_id, len(announced))
                    yield self._on_lost, announced
            elif not membership.is_sure(monotonic()):
                # After a freeze, pushed messages may be void. Continue only after the broker has answered.
                if not await self._wait(deadline):
                    return
            elif (assignment := membership.outstanding) is not None:
                revoked = self._missing(assignment)
                announced = [partition for partition in revoked if self._to_tell.get(partition, True)]
                untold = [partition for partition in announced if partition not in self._released]
                if untold:
                    self._being_revoked.update(untold)
                    try:
                        if self._completion is not None:
                            yield self._completion.revoked, untold
                        yield self._on_revoked, untold
                    finally:
                        self._being_revoked.difference_update(untold)
                    self._released.update(untold)
                    membership.displace()
                if self._settings.auto_commit and revoked:
                    positions = {p: self._done_up_to(self._assigned[p]) for p in announced}
                    commit = functools.partial(self._try_commit, positions)
                    if await self._letting_go.outcome(assignment, commit, deadline) is None:
                        return
                if self.member.take(assignment):
                    self._stop_reading(revoked, ends)
                    self._unplaced = {p: g for p, g in assignment.partitions.items() if p not in self._assigned}
            elif self._unplaced:
                new = self._unplaced
                find = functools.partial(self._find_places, new, bounded=ends is not None)
                places = await self._placing.outcome(new, find, deadline)
                if places is None:
                    return
                # The partitions may have been lost while the broker was asked.
                if membership.is_sure(monotonic()) and self._unplaced is new:
                    await self._begin_to_read(new, places, ends)
                    self._unplaced = {}
                    self._lost_uncommitted = False
                    self._to_tell.update(dict.fromkeys(new, False))
                    is_telling = True
            elif self._released:
                # Their revocation was announced, but they stay, because the assignment became void before it was taken.
                self._to_tell.update(dict.fromkeys(self._released, True))
                self._released.clear()
                is_telling = True
            elif self._to_tell:
                is_telling = True
            elif membership.epoch and not membership.placed:
                membership.place()
            elif not self.ownership.lasts():
                if not await self._wait(deadline):
                    return
            else:
                return

    def _missing(self, assignment: AssignedPartitions) -> list[TopicPartition]:
        """Return the partitions that are read and are not in an assignment. A topic with the same name and another id
        is another topic."""
        return [
            partition
            for partition, assigned in self._assigned.items()
            if partition not in assignment.partitions or assignment.partitions[partition].topic_id != assigned.topic_id
        ]

    async def _wait(self, deadline: float | None) -> bool:
        self._fetcher.waiting = True
        try:
            self.member.go_on()
            return await self.member.changed(deadline)
        finally:
            self._fetcher.waiting = False

    def _stop_reading(self, partitions: list[TopicPartition], ends: LoopEnds | None) -> list[TopicPartition]:
        for partition in partitions:
            assigned = self._assigned.pop(partition)
            if self._cursor.assigned is assigned:
                self._cursor.drop()
            self._fetcher.remove(assigned)
            self._committed.pop(partition, None)
            self._unsure.pop(partition, None)
            self._told.pop(partition, None)
            self._refused.discard(partition)
            self._released.discard(partition)
            self._to_tell.pop(partition, None)
            self._saved.pop(partition, None)
            if self._completion is not None:
                self._completion.forget(partition)
            if ends is not None:
                ends.pop(partition, None)
        return partitions

    async def _find_places(self, new: Mapping[TopicPartition, GrantedPartitions], *, bounded: bool) -> _Places:
        """Find the start positions of new partitions. Commit the positions that a later search would not find again."""
        start = self._settings.start
        without = [partition for partition, granted in new.items() if granted.offset < 0 and start is not None]
        ends = list(new) if bounded else []
        wishes: list[tuple[TopicPartition, When]] = [(p, "latest") for p in ends]
        if start is not None:
            wishes = [(p, place_of(start)) for p in without] + wishes
        found = await self._list_offsets(wishes)
        starts = dict(zip(without, found, strict=False))
        committed: dict[TopicPartition, int] = {}
        if self._settings.auto_commit and start != "earliest" and self.member.membership.is_sure(monotonic()):
            # Otherwise the next owner would begin at a later end of the log, and the records in between would be
            # skipped.
            begun = {
                partition: (new[partition].topic_id, place.offset)
                for partition, place in starts.items()
                if not isinstance(place, LogbrokerError) and place.offset >= 0
            }
            try:
                failures = await self.member.commit(begun) if begun else {}
                committed = {p: offset for p, (_, offset) in begun.items() if p not in failures}
                for refusal in failures.values():
                    raise refusal
            except LogbrokerError as error:
                _log.warning(_NOT_COMMITTED, self._group_id, error)
        return _Places(starts, dict(zip(ends, found[len(without) :], strict=True)), committed)

    async def _list_offsets(self, wishes: Sequence[tuple[TopicPartition, When]]) -> list[ListedOffset | LogbrokerError]:
        """Ask the broker until it answers."""
        for attempt in itertools.count():
            try:
                return await list_offsets(self._connection, wishes)
            except LogbrokerError as error:
                if not error.retriable:
                    raise
                _log.info("member of group %s: where to begin is not known yet: %s", self._group_id, error)
            await asyncio.sleep(backoff_seconds(attempt))
        raise AssertionError

    async def _begin_to_read(
        self, new: Mapping[TopicPartition, GrantedPartitions], places: _Places, ends: LoopEnds | None
    ) -> None:
        """Begin to read new partitions at their committed offsets, or at the start offsets that the settings give."""
        for partition, granted in new.items():
            place = places.starts.get(partition, granted)
            # If the offset was not found, the fetcher keeps asking or raises the error to the program.
            offset = -1 if isinstance(place, LogbrokerError) else place.offset
            assigned = Assigned(partition, granted.topic_id, offset, offset, start=self._settings.start)
            assigned.generation = self._generations.get(granted.topic_id, 0)
            self._assigned[partition] = assigned
            self._committed[partition] = places.committed.get(partition, granted.offset)
            self._fetcher.add(assigned)
        if ends is not None:
            for partition, end in places.ends.items():
                if not isinstance(end, LogbrokerError):
                    ends.known[partition] = end.offset
                bound = await self._fetcher.bound(self._assigned[partition], end)
                if bound is not None:
                    ends[partition] = bound

    # --- commits ----------------------------------------------------------------------------------------------------

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int] | None,
        of_topics: Collection[tuple[TopicPartition, TopicId]] = (),
    ) -> None:
        """See ConsumerCore.commit. `of_topics` holds the topic ids of offsets that were given as records. Raises
        InvalidRequestError for an offset below 0."""
        self.begin()
        if self._completion is not None:
            raise InvalidRequestError(
                "a convoy runs on this consumer and commits what is done: commit nothing beside it"
            )
        for partition, offset in (offsets or {}).items():
            if offset < 0:
                raise InvalidRequestError(f"{offset} cannot be committed for {partition}: offsets begin at 0")
        # A repeated older commit must not arrive after this one.
        if self._unsure or self._looking.locked():
            with suppress(LogbrokerError):
                await self._look_at_committed()
        if offsets is None:
            if self._lost_uncommitted:
                raise UnknownMemberError(LOST)
            self._cursor.settle()
            positions = {partition: assigned.position for partition, assigned in self._assigned.items()}
            offsets = await self._ahead(positions, retry=True)
        strangers = [partition for partition in offsets if partition not in self._assigned]
        if strangers:
            raise NotOwnerError(f"this member does not hold {strangers[0]}; its new owner commits for it")
        for partition, topic_id in of_topics:
            if topic_id and topic_id != self._assigned[partition].topic_id:
                raise UnknownTopicError(
                    f"the topic of this record of {partition} was deleted; the current topic of its name is another"
                    " one, so nothing is committed"
                )
        offsets = {
            partition: offset
            for partition, offset in offsets.items()
            if offset != self._committed[partition] or partition in self._unsure
        }
        failures = await self._commit(offsets, monotonic() + self._connection.request_timeout_seconds)
        for partition in offsets.keys() - failures.keys():
            self._unsure.pop(partition, None)
        for error in failures.values():
            raise error

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """See ConsumerCore.committed."""
        wanted = list(partitions)
        found = await fetch_offsets(self._connection, self._group_id, wanted)
        return {partition: found[partition].offset if partition in found else None for partition in wanted}

    async def _commit(
        self, offsets: Mapping[TopicPartition, int], deadline: float | None
    ) -> dict[TopicPartition, LogbrokerError]:
        if self._completion is None:
            return await self._commit_once(offsets, deadline)
        failures: dict[TopicPartition, LogbrokerError] = {}
        left = list(offsets)
        while left:
            some, left = left[:_TEXTS_AT_ONCE], left[_TEXTS_AT_ONCE:]
            failures |= await self._commit_once({p: offsets[p] for p in some if p in self._assigned}, deadline)
        return failures

    async def _commit_once(
        self, offsets: Mapping[TopicPartition, int], deadline: float | None
    ) -> dict[TopicPartition, LogbrokerError]:
        if not offsets:
            return {}
        if self._completion is not None:
            # More records may be done by now. Nothing is awaited between here and the moment when the commit is in the
            # outbox, so a later commit never has older offsets.
            offsets = {partition: self._finished(self._assigned[partition]) for partition in offsets}
            changes = {partition: self._completion.changes(partition) for partition in offsets}
            texts = {partition: self._completion.text(partition, offset) for partition, offset in offsets.items()}
        else:
            changes, texts = {}, {}
        named = {partition: (self._assigned[partition].topic_id, offset) for partition, offset in offsets.items()}
        failures = await (self.member.commit(named, deadline, texts) if texts else self.member.commit(named, deadline))
        full = [p for p, error in failures.items() if isinstance(error, OffsetsFullError) and texts.get(p)]
        if full:
            # Commit the offsets without the texts. Records that are done beyond the offsets are then only repeated
            # after a crash.
            self._warn_once_of(failures[full[0]])
            changes = {partition: number for partition, number in changes.items() if partition not in full}
            again = await self.member.commit({partition: named[partition] for partition in full}, deadline)
            failures = {p: error for p, error in failures.items() if p not in full} | again
        self._refused = (self._refused - named.keys()) | failures.keys()
        if self._completion is not None:
            self._saved |= {p: number for p, number in changes.items() if p not in failures and p in self._committed}
        for partition, offset in offsets.items():
            if partition not in failures and partition in self._committed:
                self._committed[partition] = max(offset, self._committed[partition])
        return failures

    def _warn_once_of(self, error: LogbrokerError) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "member of group %s: what is done beyond the committed offsets is not stored, and is repeated after a"
                " crash: %s",
                self._group_id,
                error,
            )

    async def _try_commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit positions that are ahead of the committed offsets. Return whether all were committed. If not, the next
        owner reads those records again."""
        try:
            failures = await self._commit(await self._ahead(offsets), None)
            for refusal in failures.values():
                raise refusal
        except LogbrokerError as error:
            _log.warning(_NOT_COMMITTED, self._group_id, error)
            return False
        return True

    async def _ahead(self, offsets: Mapping[TopicPartition, int], *, retry: bool = False) -> dict[TopicPartition, int]:
        """Return the positions that are ahead of the committed offsets, or whose stored texts are outdated. Leave out
        positions that do not belong to the current log."""
        ahead = {
            partition: offset
            for partition, offset in offsets.items()
            if offset > self._committed[partition] or self._has_changed(partition, offset)
        }
        await self._fetcher.confirm([self._assigned[partition] for partition in ahead], retry=retry)
        return {
            partition: offset
            for partition, offset in ahead.items()
            if partition in self._assigned and _may_commit(self._assigned[partition])
        }

    def _has_changed(self, partition: TopicPartition, offset: int) -> bool:
        """Whether more records are done beyond the committed offset than its stored text says."""
        return (
            self._completion is not None
            and offset == self._committed[partition]
            and self._completion.changes(partition) != self._saved.get(partition, 0)
        )

    def _finished(self, assigned: Assigned) -> int:
        """Return the offset up to which the program has finished; see `Cursor.finished`."""
        if self._completion is None:
            return self._cursor.finished(assigned)
        return self._done_up_to(assigned)

    def _done_up_to(self, assigned: Assigned) -> int:
        """Return the same offset for a moment when the program has just asked for records, and so has finished all
        records that it was given."""
        if self._completion is None:
            return assigned.position
        return self._completion.floor(assigned.partition, self._cursor.handed_out(assigned))

    async def commit_done(self) -> None:
        """Commit what is done, and try again after a break of the connection. Gives up if the broker does not answer in
        time, or the partitions are lost."""
        membership = self.member.membership
        try:
            async with asyncio.timeout(self._connection.request_timeout_seconds):
                for attempt in itertools.count():
                    if await self._commit_finished() or membership.lost or self.member.is_leaving:
                        return
                    await asyncio.sleep(backoff_seconds(attempt))
        except TimeoutError:
            _log.warning(_NOT_COMMITTED, self._group_id, _NO_ANSWER)

    def look_at_boundary(self) -> None:
        """Note that more records are done. The group may be waiting for the last ones of a generation."""
        if self._fetcher.at_boundary:
            self._at_boundary()

    async def _commit_on_and_on(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.auto_commit_interval_seconds):
                    await self._commit_now.wait()
            self._commit_now.clear()
            if self.member.membership.state is MembershipState.MEMBER:
                if self._settings.auto_commit:
                    await self._commit_finished()
                else:
                    await self._be_sure_of_committed()

    async def _commit_finished(self) -> bool:
        await self._be_sure_of_committed()
        return await self._try_commit({p: self._finished(assigned) for p, assigned in self._assigned.items()})

    async def _be_sure_of_committed(self) -> None:
        if self._unsure:
            try:
                await self._look_at_committed()
            except LogbrokerError as error:
                _log.info("member of group %s: what is committed is not known: %s", self._group_id, error)

    async def _look_at_committed(self) -> None:
        """After the stream broke, ask the broker for its committed offsets, and commit again those that it has lost.

        Only the member that holds a partition still knows the commits that the broker has lost.
        """
        async with self._looking:
            if self._unsure:
                await self._commit_what_is_lacking()

    async def _commit_what_is_lacking(self) -> None:
        known = self._unsure
        topic_ids = {partition: self._assigned[partition].topic_id for partition in known}
        found = await fetch_offsets(self._connection, self._group_id, topic_ids)
        if self._unsure is not known:
            return  # The next stream began in the meantime.
        self._unsure = {}
        lacking = {}
        is_news = False
        for partition, offset in known.items():
            told = found[partition].offset if partition in found else -1
            # The new stream may have committed a higher offset in the meantime.
            if told < offset and self._committed[partition] <= offset:
                is_news |= self._committed[partition] == offset
                self._committed[partition] = told
                lacking[partition] = offset
        if not lacking:
            return
        if is_news:
            _log.warning(
                "member of group %s: the broker has lost commits of %d partitions, as by a restore: committing again",
                self._group_id,
                len(lacking),
            )
        # Do not commit an offset again if the program has not finished all records below it. Then it is unknown how
        # many of these records are in the current log.
        await self._try_commit({p: at for p, at in lacking.items() if self._finished(self._assigned[p]) >= at})
        # Offsets that cannot be committed now are checked again later.
        self._unsure |= {p: at for p, at in lacking.items() if self._committed.get(p, at) < at}

    def _log_was_cut(self, assigned: Assigned, offset: int) -> None:
        """Commit again from the cut on, because the broker's offsets above it are void, too."""
        if assigned.partition in self._committed:
            self._committed[assigned.partition] = min(self._committed[assigned.partition], offset)

    # --- generations of topics --------------------------------------------------------------------------------------

    def joined(self) -> None:
        """See `member.Reader`."""
        self._told.clear()
        self._unsure = {partition: offset for partition, offset in self._committed.items() if offset >= 0}
        self._commit_now.set()

    def silent(self) -> None:
        """See `member.Reader`."""
        self._fetcher.connection_is_silent()

    def read_generations(self, generations: Mapping[TopicId, int]) -> None:
        """See `member.Reader`."""
        self._generations |= generations
        for assigned in self._assigned.values():
            generation = generations.get(assigned.topic_id)
            if generation is not None:
                self._fetcher.read_generation(assigned, generation)

    def new_positions(self) -> Positions:
        """See `member.Reader`. The broker knows the committed offsets, so only other finished offsets are reported."""
        found: dict[TopicPartition, tuple[TopicId, int, ReadingState]] = {}
        for partition, assigned in self._assigned.items():
            limit, is_stopped = assigned.limit, assigned.failed or assigned.paused
            if not assigned.generation or (limit is None and not is_stopped and partition not in self._told):
                continue
            finished = self._finished(assigned)
            is_finished = limit is not None and finished >= limit
            before, before_state = self._told.get(partition, (-1, None))
            state = READING_STATE_READING
            if is_stopped and (is_finished or not assigned.unreadable):
                state = READING_STATE_FAILED if assigned.unreadable else READING_STATE_PAUSED
                is_news = state != before_state
            elif is_finished and not self._will_commit(partition):
                if not assigned.has_read or self._settings.auto_commit:
                    state = READING_STATE_FINISHED
                is_news = (finished, state) != (before, before_state)
            else:
                # A report is void if the program moved back.
                is_news = before_state is not None and (finished < before or before_state in _STOPPED)
            if is_news:
                self._told[partition] = (finished, state)
                found[partition] = (assigned.topic_id, finished, state)
                if len(found) == _MAX_TOLD:
                    break
        return found

    def _will_commit(self, partition: TopicPartition) -> bool:
        """Whether finished records will be committed without a call of the program."""
        return self._settings.auto_commit and partition not in self._refused

    def _at_boundary(self) -> bool:
        """Commit or report positions that have reached the end of their generation, because the group may be waiting
        for them."""
        waiting, is_news = self._fetcher.at_boundary, False
        for assigned in list(waiting):
            limit = assigned.limit
            is_finished = limit is not None and self._finished(assigned) >= limit
            if is_finished or (assigned.failed and not assigned.unreadable):
                del waiting[assigned]
                is_news = True
        if is_news:
            self._commit_now.set()
            self.member.tell()
        return is_news

    # --- the end ----------------------------------------------------------------------------------------------------

    async def goodbye(self) -> Calls:
        """Tell the program that its partitions are revoked or lost, and commit the finished records. Yields callbacks
        as `turn` does."""
        gone = self._released | self._being_revoked
        held = [partition for partition in self._assigned if partition not in gone]
        if held and self._completion is not None and not self.member.membership.lost:
            yield self._completion.revoked, held
        announced = [partition for partition in held if self._to_tell.get(partition, True)]
        if announced:
            yield (self._on_lost if self.member.membership.lost else self._on_revoked), announced
        await self.commit_last()

    async def commit_last(self) -> None:
        """Commit the finished records if commits are automatic. Gives up if the broker does not answer in time."""
        if self._settings.auto_commit:
            try:
                async with asyncio.timeout(self._connection.request_timeout_seconds):
                    await self._commit_finished()
            except TimeoutError:
                _log.warning(_NOT_COMMITTED, self._group_id, _NO_ANSWER)

    async def leave(self) -> None:
        self.member.is_leaving = True
        self._placing.close()
        self._letting_go.close()
        try:
            await self._committer.end()
        finally:
            await self.member.leave()


def _may_commit(assigned: Assigned) -> bool:
    """Whether the position belongs to the current log. If it does not, records that nobody has read may be appended
    below it."""
    in_log = assigned.cut_offset is None and not isinstance(assigned.error, OffsetOutOfRangeError)
    return in_log and not assigned.doubtful


def _ignore(partitions: list[TopicPartition]) -> None:
    pass
