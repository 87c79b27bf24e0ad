"""Redriving: dead letters are sent back to the end of the topic that they came from, in order for each key.

A letter is redriven once. A round of letters is appended under its own producer id, after its row is committed. After a
crash between the two, the same round is appended again, and the topic drops the batches that it already has.

    row       key                                   value
    progress  b"e" partition (4) topic id (16)      msgpack array, the fields of `Progress`, for a partition of a
                                                    dead-letter topic
    round     b"w"                                  msgpack array, the fields of `Round`; exists until the progress is
                                                    committed

A group may be altered to another dead-letter topic and back, so each topic has its own progress. The progress begins at
the ends that the topic has when the group begins or is altered to it: letters below these ends are from an earlier
group of the same name. If no progress of the current topic is stored, it begins at 0. When a topic is deleted, its
progress is deleted. Older brokers wrote progress without a topic id in the key, and for one topic only.

Only letters of this group and its topic are redriven; batches that a group could not decode stay where they are.

If the topic refuses a letter, for instance because it is too large, this letter and the later letters of its key are
held, and all others are redriven. Every call tries held letters once more.

The topic that letters go back to is pinned from their routing to their append. If it grows after an interruption, the
repeat of the round shows which letters are in it already: the topic accepts these as repeats, and refuses the others.
The next round then routes the refused letters anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from logbroker.engine import Append, StateEvent, Topic
from logbroker.errors import (
    BatchExpandsTooFarError,
    InvalidRequestError,
    LogbrokerError,
    OutOfOrderSequenceError,
    OverloadedError,
    StaleGenerationError,
    StorageFailedError,
    UnknownTopicError,
)
from logbroker.queues.context import GroupContext
from logbroker.queues.dead_letters.search import (
    LONG_KEY_BYTES,
    GatheredLetters,
    HeldLetters,
    Letter,
    Start,
    Wanted,
    gather,
)
from logbroker.queues.dead_letters.sender import DeadLetterTopic
from logbroker.queues.model.record_id import offset_of, partition_of, record_id_of
from logbroker.queues.model.redrive_ends import RedriveEnds
from logbroker.queues.records.batch_cache import BatchCache
from logbroker.queues.records.decoder import INLINE_BYTES, in_decoder_if
from logbroker.queues.records.fetch import Records
from logbroker.queues.state.rows import PROGRESS_ROW, ROUND_ROW, decode, delete, partition_in, partition_key, upsert
from logbroker.record.codec import LogRecord, NewRecord, encode_to_fit, with_producer
from logbroker.record.dead_letter import as_it_was, first_origin
from logbroker.record.partitioner import Router
from logbroker.types import Durability, TopicId

_log = logging.getLogger(__name__)

MAX_BATCHES: Final = 5
"""Maximum number of batches of a round in one partition. It is the number of batches of a producer that a partition
remembers."""
RECORD_BYTES: Final = 64
"""Upper bound of a record's size without its key, value and headers."""
MAX_OUT_OF_ORDER: Final = 50_000
"""Maximum number of letters of one partition that may be redriven while an earlier letter is not."""
MAX_LISTED: Final = 1000
"""Maximum number of letters that a dry run lists."""
_OLD_KEY_BYTES: Final = 1 + 4
"""Size of the key of a progress row without a topic id."""


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """The progress of redriving one partition of a dead-letter topic."""

    topic_id: bytes
    position: int
    """All letters below this offset are redriven or are not to be redriven, except those in `left`."""
    redriven: frozenset[int] = frozenset()
    """Redriven offsets from `position` on."""
    left: frozenset[int] = frozenset()
    """Offsets below `position` of letters that were held and are not redriven."""


class Round(msgspec.Struct, frozen=True, array_like=True):
    """Letters that are being appended. `batches` has the batches of the round in order: for each, its partition and the
    record ids of its letters."""

    dead_topic_id: bytes
    producer_id: int
    epoch: int
    generation: int
    batches: list[tuple[int, list[int]]]


class RedriveOutcome(msgspec.Struct, frozen=True):
    """The outcome of a call, or of a dry run."""

    records: int
    keys: int
    more: bool
    """Whether letters are left below the ends."""
    held: int = 0
    """Number of letters that could not be sent back or, to keep the order of their key, stay behind such a letter."""
    why: str = ""
    """Reason why the first held letter could not be sent back."""
    letters: tuple[int, ...] = ()
    """Record ids of the first letters in the dead-letter topic, at most MAX_LISTED; empty unless it was a dry run."""


class Redriving:
    """The redriving of one queue group; one call at a time."""

    def __init__(self, context: GroupContext, dead_letter_topic: DeadLetterTopic) -> None:
        self._context = context
        self._queue = context.queue
        self._engine = context.engine
        self._dead_letter_topic = dead_letter_topic
        self._lock = asyncio.Lock()
        self._progress: dict[tuple[bytes, int], Progress] = {}
        """Progress by id of the dead-letter topic, and partition."""
        self._old_rows: list[bytes] = []
        """Keys of the loaded progress rows of older brokers."""
        self._round: Round | None = None

    def load(self, rows: Mapping[bytes, bytes]) -> None:
        """Load the stored rows. Raises CorruptLogError."""
        for key, value in rows.items():
            if key.startswith(PROGRESS_ROW):
                progress = decode(key, value, Progress)
                partition = partition_in(key[:_OLD_KEY_BYTES])
                self._progress[progress.topic_id, partition] = progress
                if len(key) == _OLD_KEY_BYTES:
                    self._old_rows.append(key)
            elif key == ROUND_ROW:
                self._round = decode(key, value, Round)

    def begin(self) -> list[StateEvent]:
        """Return the first rows of a new group, which skip the letters of earlier groups with the same name."""
        return self._begin_at_ends(self._dead_letter_topic.name)

    def take_up(self) -> list[StateEvent]:
        """Return the changes of the rows at a start: rows of older brokers get their new keys, and rows of deleted
        topics are deleted."""
        events = [delete(key) for key in self._old_rows]
        if self._old_rows:
            events += [upsert(_row_key(*place), progress) for place, progress in self._progress.items()]
            self._old_rows = []
        return events + self._forget_deleted()

    def turn_to(self, name: str) -> list[StateEvent]:
        """Return the rows for a group whose dead letters will go to the topic with this name. If the group has no
        progress for this topic, the new rows skip the letters of earlier groups with the same name."""
        if name == self._dead_letter_topic.name:
            return []
        events: list[StateEvent] = []
        with suppress(UnknownTopicError):
            present = self._dead_letter_topic.get()
            if not self._knows(present.id):
                # The group must not skip its own letters if it returns to this topic.
                events += self._put([(0, Progress(present.id, 0))])
        return events + self._begin_at_ends(name) + self._forget_deleted()

    def _begin_at_ends(self, name: str) -> list[StateEvent]:
        """Begin the progress of a topic at its current ends, if the topic exists and no progress of it is stored."""
        try:
            dead_topic = self._engine.topic(name)
        except UnknownTopicError:
            return []
        begun: list[tuple[int, Progress]] = []
        for partition in range(dead_topic.partitions if not self._knows(dead_topic.id) else 0):
            with suppress(LogbrokerError):  # It is offline: its letters cannot be read anyway.
                end = self._engine.partition_facts(dead_topic.id, partition).log_end_offset
                if end > 0:
                    begun.append((partition, Progress(dead_topic.id, end)))
        return self._put(begun)

    def _knows(self, dead_topic_id: bytes) -> bool:
        """Return whether progress of a topic is stored."""
        return any(topic_id == dead_topic_id for topic_id, _ in self._progress)

    def _put(self, changed: Iterable[tuple[int, Progress]]) -> list[StateEvent]:
        """Note progress of partitions, and return its rows."""
        events: list[StateEvent] = []
        for partition, progress in changed:
            self._progress[progress.topic_id, partition] = progress
            events.append(upsert(_row_key(progress.topic_id, partition), progress))
        return events

    def _forget_deleted(self) -> list[StateEvent]:
        """Forget the progress of topics that no longer exist."""
        deleted: set[bytes] = set()
        for topic_id in {topic_id for topic_id, _ in self._progress}:
            try:
                self._engine.topic_by_id(TopicId(topic_id))
            except UnknownTopicError:
                deleted.add(topic_id)
        places = [place for place in self._progress if place[0] in deleted]
        for place in places:
            del self._progress[place]
        return [delete(_row_key(*place)) for place in places]

    async def finish(self) -> None:
        """Finish a round that a crash interrupted."""
        async with self._lock:
            if self._round is not None:
                try:
                    await self._finish_round(self._round)
                except LogbrokerError as error:
                    _log.warning(
                        "queue group %s: an interrupted redrive cannot be finished: %s",
                        self._context.group_id,
                        error.message,
                    )

    def ends(self) -> RedriveEnds:
        """Return the current ends of the dead-letter topic. Raises UnknownTopicError."""
        self._check_topic()
        dead_topic = self._dead_letter_topic.get()
        offsets = []
        for partition in range(dead_topic.partitions):
            try:
                offsets.append(self._engine.partition_facts(dead_topic.id, partition).high_watermark)
            except LogbrokerError as error:
                if error.retriable:
                    raise
                offsets.append(0)  # It is offline: its letters cannot be read anyway, and `gather` says so.
        return RedriveEnds(dead_topic.id, offsets)

    async def redrive(
        self, key: bytes | None, max_records: int, until: RedriveEnds | None, *, dry_run: bool
    ) -> RedriveOutcome:
        """Send back up to `max_records` letters below `until` (None: below the current ends), of one ordering key or
        (None) of any; return when they are synced.

        The outcome reports the error of a single letter or partition. Raises InvalidRequestError, UnknownTopicError,
        OverloadedError, or an error that refuses every append, such as a full disk: some letters may then be redriven
        already, and another call goes on with the rest.
        """
        if max_records < 1:
            raise InvalidRequestError(f"max_records is {max_records}: redrive at least one")
        until = until or self.ends()
        self._check_topic()
        async with self._lock:
            if key is not None and any(
                len(each.redriven) >= MAX_OUT_OF_ORDER
                for (topic_id, _), each in self._progress.items()
                if topic_id == until.topic_id
            ):
                raise OverloadedError(
                    f"{MAX_OUT_OF_ORDER:,} letters are redriven although earlier ones are not: redrive the earlier ones"
                    " first, with a call without a key"
                )
            records, keys, held = 0, set[bytes](), HeldLetters()
            while True:
                if self._round is not None:
                    await self._finish_round(self._round)
                known = len(held.record_ids)
                gathered = await self._gather(key, until, held, max_records - records, counting=dry_run)
                done = (
                    {letter.record_id for letter in gathered.letters}
                    if dry_run
                    else await self._carry_out(gathered, held)
                )
                records += len(done)
                keys.update(
                    letter.key for letter in gathered.letters if letter.key is not None and letter.record_id in done
                )
                is_stuck = not done and len(held.record_ids) == known
                if dry_run or is_stuck or not gathered.more or records >= max_records:
                    listed = tuple(letter.record_id for letter in gathered.letters[: MAX_LISTED if dry_run else 0])
                    return RedriveOutcome(records, len(keys), gathered.more, len(held.record_ids), held.why, listed)

    def _check_topic(self) -> None:
        """Raise UnknownTopicError if the group has no dead-letter topic."""
        try:
            self._dead_letter_topic.get()
        except UnknownTopicError:
            settings = self._queue.latest_settings
            if settings.uses_dead_letters:
                raise
            raise UnknownTopicError(
                f"queue group {self._context.group_id} dead-letters nothing (on_exhausted"
                f" {settings.on_exhausted.value}, on_undecodable {settings.on_undecodable.value}): it has no"
                " dead letters"
            ) from None

    # --- gathering ---------------------------------------------------------------------------------------------------

    async def _gather(
        self, key: bytes | None, until: RedriveEnds, held: HeldLetters, limit: int, *, counting: bool
    ) -> GatheredLetters:
        dead_topic = self._dead_letter_topic.get()
        if dead_topic.id != until.topic_id:
            raise UnknownTopicError(
                f"topic {dead_topic.name} is not the dead-letter topic in which this redrive began: that was deleted or"
                " replaced; redrive anew, without `until`"
            )
        if len(until.offsets) > dead_topic.partitions:
            raise InvalidRequestError(
                f"`until` has {len(until.offsets)} offsets, but topic {dead_topic.name} has {dead_topic.partitions}"
                " partitions: give at most one offset for each partition"
            )
        starts: dict[int, Start] = {}
        for partition in range(dead_topic.partitions):
            progress = self._progress.get((dead_topic.id, partition))
            if progress is not None:
                starts[partition] = Start(progress.position, progress.redriven, progress.left, until.of(partition))
            else:
                starts[partition] = Start(0, end=until.of(partition))
        wanted = Wanted(self._context.group_id, self._topic().name, self._queue.settings.key_header, key)
        return await gather(self._engine, dead_topic, starts, wanted, held, limit, counting=counting)

    def _topic(self) -> Topic:
        return self._engine.topic_by_id(TopicId(self._queue.topic_id))

    # --- carrying out ------------------------------------------------------------------------------------------------

    async def _carry_out(self, gathered: GatheredLetters, held: HeldLetters) -> set[int]:
        """Redrive the gathered letters, except those that are held or have to wait for another round; return the record
        ids of the redriven letters."""
        # While the topic is pinned, it cannot grow: letters are routed and appended in the same generation.
        topic = await self._engine.pin(TopicId(self._queue.topic_id))
        try:
            return await self._carry_out_pinned(topic, gathered, held)
        finally:
            self._engine.unpin(topic.id)

    async def _carry_out_pinned(self, topic: Topic, gathered: GatheredLetters, held: HeldLetters) -> set[int]:
        batches = await self._batches(topic, gathered.letters, held)
        taken = {record_id for _, record_ids in batches for record_id in record_ids}
        for letter in gathered.letters:
            if letter.record_id not in taken and letter.record_id not in held.record_ids:
                gathered.leave(letter.record_id)
        if not batches:
            await self._context.commits.synced(
                None, self._move_on(gathered.dead_topic_id, gathered.next_offsets, (), held)
            )
            return set()
        producer_id, epoch = await self._engine.init_producer_id()
        self._round = Round(gathered.dead_topic_id, producer_id, epoch, topic.generation, batches)
        await self._context.stored([upsert(ROUND_ROW, self._round)])
        letters = {letter.record_id: letter for letter in gathered.letters}
        records = {record_id: letter.record for record_id, letter in letters.items()}
        return await self._append(self._round, records, gathered, letters, held)

    async def _batches(self, topic: Topic, letters: Iterable[Letter], held: HeldLetters) -> list[tuple[int, list[int]]]:
        """Put letters into batches by partition. Letters beyond the bounds of a round wait for the next round. A letter
        that is too large for any batch is held."""
        bound = topic.config.max_message_bytes
        batches: list[tuple[int, list[int]]] = []
        last: dict[int, tuple[list[int], int]] = {}
        counts: dict[int, int] = {}
        for letter in letters:
            if letter.key is not None and letter.key in held.keys:
                held.record_ids.add(letter.record_id)
                continue
            is_long = letter.key is not None and len(letter.key) > LONG_KEY_BYTES
            partition = await in_decoder_if(is_long, partial(self._partition, topic, letter))
            size_bytes = letter.size_bytes + RECORD_BYTES
            if size_bytes > bound and (why := await self._too_large(letter, bound)):
                held.add(letter.record_id, letter.key, why)
                continue
            record_ids, used_bytes = last.get(partition, ([], bound))
            if used_bytes + size_bytes > bound:
                counts[partition] = counts.get(partition, 0) + 1
                if counts[partition] > MAX_BATCHES:
                    last[partition] = [], bound  # Later letters wait too, because they may have the same key.
                    continue
                record_ids, used_bytes = [], RECORD_BYTES
                batches.append((partition, record_ids))
            record_ids.append(letter.record_id)
            last[partition] = record_ids, used_bytes + size_bytes
        return batches

    async def _too_large(self, letter: Letter, bound: int) -> str:
        """Return the reason why no batch can hold a letter; "" if a batch can."""
        try:
            batch = await _encoded([letter.record], bound)
        except BatchExpandsTooFarError as error:
            return error.message
        if len(batch) <= bound:
            return ""
        return (
            f"the dead letter at offset {offset_of(letter.record_id)} of partition {partition_of(letter.record_id)}"
            f" takes {len(batch)} bytes, and topic {self._topic().name} allows {bound}: raise its"
            f" max.message.bytes to {len(batch)} or more, and redrive again"
        )

    def _partition(self, topic: Topic, letter: Letter) -> int:
        """Return the partition to which a producer would send the letter now."""
        if letter.key is None:
            return letter.origin_partition % topic.partitions
        return Router(topic.routing_bands, topic.partitions).partition(letter.key, letter.record.headers)

    async def _finish_round(self, round_: Round) -> None:
        """Append again a round that a crash or a cancellation interrupted. If its topic has grown since, letters that
        the topic does not have yet are left for the next round."""
        await self._context.stored(())  # The row of the round must be stored before anything is appended.
        record_ids = [record_id for _, record_ids in round_.batches for record_id in record_ids]
        records: dict[int, LogRecord] = {}
        try:
            found = await Records(self._engine, TopicId(round_.dead_topic_id), BatchCache(0)).fetch(record_ids)
        except UnknownTopicError:
            found = []
        for record_id, record in zip(record_ids, found, strict=False):
            if isinstance(record, LogRecord):
                records[record_id] = record
            elif record.retriable:
                raise record
        await self._append(round_, records, None, {}, HeldLetters())

    async def _append(
        self,
        round_: Round,
        records: Mapping[int, LogRecord],
        gathered: GatheredLetters | None,
        letters: Mapping[int, Letter],
        held: HeldLetters,
    ) -> set[int]:
        """Append a round, store the progress, and return the record ids of the letters that are appended. Raises an
        error that refuses every batch."""
        topic = self._topic()
        appends: list[Append] = []
        sent: list[tuple[int, list[int]]] = []
        sequences: dict[int, int] = {}
        for partition, record_ids in round_.batches:
            stamp = (round_.producer_id, round_.epoch, sequences.get(partition, 0))
            sequences[partition] = stamp[2] + len(record_ids)
            if all(record_id in records for record_id in record_ids):
                batch = await _encoded([records[record_id] for record_id in record_ids], topic.config.max_message_bytes)
                appends.append(Append(topic.id, partition, with_producer(batch, *stamp), round_.generation))
                sent.append((partition, record_ids))
        results = await self._engine.append(appends, Durability.SYNCED)
        done: set[int] = set()
        refused: LogbrokerError | None = None
        for (partition, record_ids), result in zip(sent, results, strict=True):
            if not isinstance(result, LogbrokerError):
                done.update(record_ids)
                self._note_origins(
                    record_id_of(partition, result.base_offset), [records[record_id] for record_id in record_ids]
                )
                continue
            if result.retriable or isinstance(result, UnknownTopicError | StorageFailedError):
                refused = refused or result
            # The next two errors only mean that the batch before was refused, or that the topic has grown since the
            # round began. These letters wait for the next round. After any other error, the letters are held.
            elif not isinstance(result, OutOfOrderSequenceError | StaleGenerationError):
                for record_id in record_ids:
                    letter = letters.get(record_id)
                    held.add(record_id, None if letter is None else letter.key, result.message)
                continue
            if gathered is not None:
                for record_id in record_ids:
                    gathered.leave(record_id)
        next_offsets = gathered.next_offsets if gathered is not None else {}
        events = self._move_on(round_.dead_topic_id, next_offsets, done, held)
        self._round = None
        await self._context.stored([*events, delete(ROUND_ROW)])
        if refused is not None:
            raise refused
        return done

    def _note_origins(self, first_record_id: int, letters: Iterable[LogRecord]) -> None:
        """Store the first origins of redriven letters, which now have consecutive record ids: if they fail again, their
        next dead letters carry the first origins."""
        for record_id, letter in enumerate(letters, first_record_id):
            first = first_origin(letter.headers)
            if first is not None and record_id not in self._queue.done:
                self._queue.origins.put(record_id, first)

    def _move_on(
        self, dead_topic_id: bytes, next_offsets: Mapping[int, int], done: Iterable[int], held: HeldLetters
    ) -> list[StateEvent]:
        """Note progress, and return its events. `done` has the record ids of redriven letters. `next_offsets` has, for
        each partition, the offset below which all letters are redriven or held."""
        redriven: dict[int, set[int]] = {partition: set() for partition in next_offsets}
        stays: dict[int, set[int]] = {}
        for record_id in held.record_ids:
            stays.setdefault(partition_of(record_id), set()).add(offset_of(record_id))
        for record_id in done:
            redriven.setdefault(partition_of(record_id), set()).add(offset_of(record_id))
        changed: list[tuple[int, Progress]] = []
        for partition, offsets in redriven.items():
            before = self._progress.get((dead_topic_id, partition)) or Progress(dead_topic_id, 0)
            position = max(before.position, next_offsets.get(partition, 0))
            done_above = frozenset(offset for offset in before.redriven | offsets if offset >= position)
            # A letter that was held may have been redriven since.
            left = (before.left | stays.get(partition, set())) - before.redriven - offsets
            progress = Progress(
                dead_topic_id, position, done_above, frozenset(offset for offset in left if offset < position)
            )
            if progress != before:
                changed.append((partition, progress))
        return self._put(changed) + self._forget_deleted()


def _row_key(topic_id: bytes, partition: int) -> bytes:
    return partition_key(PROGRESS_ROW, partition) + topic_id


async def _encoded(records: Iterable[LogRecord], max_bytes: int) -> bytes:
    """Encode records as they were before they became letters. Raises BatchExpandsTooFarError."""
    new = [NewRecord(record.value, record.key, as_it_was(record.headers)) for record in records]
    size_bytes = sum(len(record.value or b"") for record in new)
    return await in_decoder_if(size_bytes > min(INLINE_BYTES, max_bytes), lambda: encode_to_fit(new, max_bytes))
