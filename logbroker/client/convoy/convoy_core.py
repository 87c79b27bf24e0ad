"""The part that the asynchronous and the synchronous convoy share: everything except waiting and calling the
program."""

from __future__ import annotations

import enum
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable
from time import monotonic
from typing import Any, Final, Literal

import msgspec

from logbroker.client.consumer.cursor import Record
from logbroker.client.consumer.group_offsets import CommittedOffset
from logbroker.client.convoy.done_offsets import decode
from logbroker.client.convoy.lanes import Lanes, RetryPolicy
from logbroker.client.convoy.track import Entry, LooseTrack, RecordState, Track
from logbroker.client.runtime.arguments import check_bounds, check_seconds, choice
from logbroker.client.runtime.handlers import forget_frames, result_of
from logbroker.client.worker.leased_record import LeasedRecord, reason_of
from logbroker.client.worker.settlements import REASON_CHARACTERS
from logbroker.errors import InvalidRequestError, LogbrokerError, quoted
from logbroker.record.dead_letter import MAX_REASONS, Origin, dead_letter
from logbroker.types import TopicPartition

_log = logging.getLogger(__name__)

OnExhausted = Literal["block", "dead-letter", "skip"]
BLOCK, DEAD_LETTER, SKIP = "block", "dead-letter", "skip"

Key = Callable[[Any], Hashable | None]
DeadLetter = Callable[[Any, Exception], Awaitable[object] | object]
Ack = Callable[[], Awaitable[object] | object]
Nack = Callable[[Exception | None], Awaitable[object] | object]
Item = tuple[Hashable | None, Any, Ack, Nack]

DEFAULT_CONCURRENCY: Final = 100
DEFAULT_MAX_RECORDS: Final = 10_000
DEFAULT_MAX_BYTES: Final = 64 * 1024 * 1024
DEFAULT_DRAIN_SECONDS: Final = 30.0
MAX_CONCURRENCY: Final = 100_000
_MAX_RECORDS: Final = 10_000_000
_MAX_BYTES: Final = 1 << 40
_MAX_ATTEMPTS: Final = 1_000_000
_LOOK_SECONDS: Final = 0.25
PULL_SECONDS: Final = 0.25
"""How long one request for records waits. The convoy notices a stop after it."""
HANDLER: Final = "the handler"
KEY: Final = "the function key"
LETTER_FUNCTION: Final = "the function dead_letter"
ACK_OR_NACK: Final = "ack or nack"
SOURCE: Final = "the source"
STILL_RUN: Final = "%d handlers still run while their partitions are given away"
RUNS_ALREADY: Final = "this convoy runs already, or has run: make another one"


class AllKeys(enum.Enum):
    """The default of `key` in `resume` and `skip`: all blocked keys."""

    ALL = "all keys"


ALL: Final = AllKeys.ALL


class BlockedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A blocked key. The attempts of its first record are used up.

    partition, offset: the record's place. If the source has no partitions, `partition` is None, and `offset` is the
        number of the record in the order in which the convoy took them.
    attempts: number of failed attempts.
    reason: the last failure.

    `resume` and `skip` take it as the name of this one record.
    """

    key: Hashable | None
    partition: TopicPartition | None
    offset: int
    attempts: int
    reason: str


class ConvoyCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a convoy.

    waiting: records in memory that do not run. They wait behind others of their key, for a free handler, for a retry or
        for an operator.
    running: records whose handler runs.
    blocked: blocked keys.
    bytes: size of all records in memory.
    done: records that were done since `run` began, including skipped ones and dead letters.
    failures: failed attempts.
    skipped: records that were skipped, after their last attempt or by a call of `skip`.
    dead_letters: records that were sent to the dead-letter topic, or given to the function.
    repeats_saved: records that the broker delivered again although they were done, and that the convoy passed over.
    """

    waiting: int
    running: int
    blocked: int
    bytes: int
    done: int
    failures: int
    skipped: int
    dead_letters: int
    repeats_saved: int


class Tracks:
    """The tracks of a consumer's partitions, with those methods of a `Completion` that need only the tracks.

    This object refers to nothing that belongs to the program, so that the program's consumer can be collected.
    """

    def __init__(self, tracks: dict[TopicPartition, Track]) -> None:
        self.lock = threading.RLock()
        self.tracks = tracks

    def floor(self, partition: TopicPartition, position: int) -> int:
        """See `Completion`."""
        with self.lock:
            track = self.tracks.get(partition)
            if track is None or not track.has_pending or track.floor is None:
                return position
            return min(track.floor, position)

    def changes(self, partition: TopicPartition) -> int:
        """See `Completion`."""
        with self.lock:
            track = self.tracks.get(partition)
            return 0 if track is None else track.changes

    def text(self, partition: TopicPartition, offset: int) -> str:
        """See `Completion`."""
        with self.lock:
            track = self.tracks.get(partition)
            return "" if track is None else track.text(offset)


class LastWord(Tracks):
    """The `Completion` that a convoy leaves to its consumer at its end: it still knows which records are done. See
    `GroupReader.follow_until_asked`."""

    def is_busy(self) -> bool:
        """See `Completion`."""
        return False

    def assigned(self, partitions: list[TopicPartition]) -> None:
        """See `Completion`."""

    def revoked(self, partitions: list[TopicPartition]) -> None:
        """See `Completion`."""

    def forget(self, partition: TopicPartition) -> None:
        """See `Completion`."""
        self.tracks.pop(partition, None)


class ConvoyCore(Tracks):
    """The settings and the records of one convoy.

    Whoever uses `lanes` or a track holds `lock`, or runs in the only thread that uses them.
    """

    def __init__(
        self,
        *,
        concurrency: int,
        key: Key | None,
        max_attempts: int,
        backoff_initial_seconds: float,
        backoff_factor: float,
        backoff_cap_seconds: float,
        backoff_jitter: float,
        on_exhausted: str,
        dead_letter: str | DeadLetter | None,
        max_records: int,
        max_bytes: int,
        drain_seconds: float,
    ) -> None:
        super().__init__({})
        check_bounds(1, MAX_CONCURRENCY, concurrency=concurrency)
        check_bounds(1, _MAX_ATTEMPTS, max_attempts=max_attempts)
        check_bounds(1, _MAX_RECORDS, max_records=max_records)
        check_bounds(1, _MAX_BYTES, max_bytes=max_bytes)
        check_seconds(shortest=0, backoff_initial_seconds=backoff_initial_seconds, drain_seconds=drain_seconds)
        check_seconds(shortest=0, backoff_cap_seconds=backoff_cap_seconds)
        check_bounds(1, 1_000, backoff_factor=backoff_factor)
        check_bounds(0, 1, backoff_jitter=backoff_jitter)
        if backoff_initial_seconds > backoff_cap_seconds:
            raise InvalidRequestError(
                f"backoff_initial_seconds is {backoff_initial_seconds}, above backoff_cap_seconds,"
                f" {backoff_cap_seconds}: raise the cap"
            )
        self.on_exhausted = choice("on_exhausted", {word: word for word in (BLOCK, DEAD_LETTER, SKIP)}, on_exhausted)
        if (on_exhausted == DEAD_LETTER) != (dead_letter is not None):
            raise InvalidRequestError(
                'on_exhausted="dead-letter" and dead_letter belong together: give both, or neither. dead_letter is a'
                " topic, or a function of the record and its last error"
            )
        self.concurrency = concurrency
        self.max_attempts = max_attempts
        self.drain_seconds = drain_seconds
        self.dead_letter = dead_letter
        self.key = key
        policy = RetryPolicy(
            max_attempts=max_attempts,
            backoff_initial_seconds=backoff_initial_seconds,
            backoff_factor=backoff_factor,
            backoff_cap_seconds=backoff_cap_seconds,
            backoff_jitter=backoff_jitter,
        )
        self.lanes = Lanes(policy, max_records=max_records, max_bytes=max_bytes)
        self.max_records = max_records
        self.loose = LooseTrack(None)
        self._next = 0
        """Number of records that came from a source without partitions."""
        self.skipped = 0
        self.dead_letters = 0
        self.repeats_saved = 0
        self.stopping = False
        self.has_begun = False
        self._look_at = 0.0
        """When the leases of a worker's waiting records are to be checked next."""
        self._drained_by = 0.0
        """When running handlers have to end, once the convoy was stopped."""

    def stop(self) -> None:
        """Start no more records. Further calls change nothing."""
        if not self.stopping:
            self._drained_by = monotonic() + self.drain_seconds
            self.stopping = True

    @property
    def drain_left_seconds(self) -> float:
        """Return how long running handlers may still take."""
        return max(0.0, self._drained_by - monotonic()) if self.stopping else self.drain_seconds

    # --- what comes in ----------------------------------------------------------------------------------------------

    def take_records(self, partition: TopicPartition, epoch: int, records: Iterable[Record]) -> None:
        """Take records of one batch that the consumer has handed out."""
        with self.lock:
            track = self.tracks.get(partition)
            if track is None:
                track = self.tracks[partition] = Track(partition)
            lanes = self.lanes
            for record in records:
                offset = record.offset
                if track.end is not None and offset < track.end:
                    # The consumer was moved back, or its log was cut: begin anew with these offsets.
                    self._interrupt(lanes.drop(track))
                    track = self.tracks[partition] = Track(partition, offset)
                if track.is_done(offset, epoch):
                    track.skip(offset, epoch)
                    self.repeats_saved += 1
                    continue
                entry = Entry(track, offset, record.key, record, record.size_bytes)
                if self.key is not None:
                    try:
                        self._find_key(entry)
                    except BaseException:
                        # The consumer counts the whole batch as handed out. So the floor must never pass this record.
                        entry.state = RecordState.GONE
                        track.add(entry, epoch)
                        raise
                lanes.add(entry, epoch)

    def _find_key(self, entry: Entry) -> None:
        """Ask the program for the ordering key of a record. If this fails, the record is a lane of its own."""
        try:
            entry.key = self._key_of(entry.item)
        except Exception:
            entry.key, entry.lacks_key = None, True

    def key_failure(self, entry: Entry) -> Exception | None:
        """Ask again for the key of a record that lacks it, as the first step of an attempt. Return the failure."""
        try:
            self._key_of(entry.item)
        except Exception as error:
            return error
        return None

    def _key_of(self, item: Any) -> Hashable | None:
        assert self.key is not None
        key: Hashable | None = result_of(KEY, self.key, item)
        hash(key)
        return key

    def take_item(self, item: Item) -> None:
        """Take a record of a source without partitions."""
        try:
            key, content, ack, nack = item
            hash(key)
        except (TypeError, ValueError):
            raise InvalidRequestError(
                "a source of a convoy yields tuples of a key that can be hashed (or None), an item, and two functions,"
                f" ack() and nack(error), not {type(item).__name__}"
            ) from None
        if isinstance(content, LeasedRecord):
            size_bytes = content.size_bytes
        else:
            size_bytes = len(content) if isinstance(content, bytes | str) else 0
        self._next += 1
        entry = Entry(self.loose, self._next, key, content, size_bytes)
        entry.settlement = ack, nack
        try:
            if self.key is not None:
                self._find_key(entry)
        finally:
            self.lanes.add(entry)

    def lose(self, entry: Entry) -> None:
        """Forget a worker's record whose lease has ended. It is delivered again, to this worker or another."""
        give_up(entry.item)
        self.lanes.lost(entry)

    def ack_refused(self, entry: Entry) -> None:
        """Forget a record whose ack its source did not take. The source may deliver it again."""
        if entry.state is RecordState.RUNNING:
            self.lanes.lost(entry)

    def look_at_leases(self, now: float) -> None:
        """Let the worker extend the leases of records that wait here, and forget records whose leases have ended
        nevertheless. Does nothing if the last call was less than _LOOK_SECONDS ago."""
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_SECONDS
        lost = 0
        with self.lock:
            for entry in list(self.loose.nodes()):
                if entry.state is RecordState.RUNNING:
                    continue
                if entry.item.lost:
                    self.lose(entry)
                    lost += 1
                else:
                    entry.item.batch.waits_in_program(entry.item.index)
        if lost:
            _log.warning("the leases of %d records that waited have ended: they come again, behind others", lost)

    def _interrupt(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if entry.abandon is not None:
                entry.abandon()

    # --- partitions -------------------------------------------------------------------------------------------------

    def open_track(self, partition: TopicPartition, position: int | None, committed: CommittedOffset | None) -> None:
        """Begin with a partition at its position. If this is the committed offset, the text beside it tells which later
        records are done."""
        done = None
        if committed is not None and committed.offset == position:
            done = decode(committed.metadata, committed.offset)
        with self.lock:
            self.tracks[partition] = Track(partition, position, done)

    def hold(self, partitions: Iterable[TopicPartition]) -> list[Track]:
        """Start no more records of these partitions, and forget those that do not run. Return the tracks."""
        with self.lock:
            tracks = [self.tracks[partition] for partition in partitions if partition in self.tracks]
            for track in tracks:
                self.lanes.hold(track)
            return tracks

    def drop(self, tracks: Iterable[Track]) -> list[Entry]:
        """Forget all records of these tracks, and interrupt the handlers that still run. Return the records of these
        handlers."""
        with self.lock:
            ran = [entry for track in tracks for entry in self.lanes.drop(track)]
        self._interrupt(ran)
        return ran

    def forget(self, partition: TopicPartition) -> None:
        """See `Completion`."""
        with self.lock:
            track = self.tracks.pop(partition, None)
            ran = [] if track is None else self.lanes.drop(track)
        if ran:
            _log.warning("%s is lost while %d of its records run; they run again elsewhere", partition, len(ran))
        self._interrupt(ran)

    def is_busy(self) -> bool:
        """See `Completion`."""
        return self.lanes.records > 0

    # --- what becomes of a record -----------------------------------------------------------------------------------

    def is_used_up(self, entry: Entry) -> bool:
        """Whether the record's attempts are used up, so that only its dead letter is still to be sent."""
        return entry.attempts >= self.max_attempts

    # The logging comes after all other steps and without the lock, because a logging handler of the program may raise
    # an error, or take its time.

    def has_settled(self, entry: Entry, error: Exception) -> bool:
        """Return whether a handler of a delivery settled it and then failed. The failure is logged and changes nothing:
        the delivery is not this program's any more."""
        if not isinstance(entry.item, LeasedRecord) or not entry.item.settled:
            return False
        _log.error("the handler of %s failed after it had settled it: %s", name_of(entry), error, exc_info=error)
        return True

    def failed(self, entry: Entry, error: Exception) -> bool:
        """Note the failure of a handler. Return whether the record is to be given up: its attempts are used up, and its
        key is not to be blocked. If they were used up before this call, only the dead letter is still to be sent, and
        nothing is noted. Records that the handler sent with a delivery are dropped: only the outputs of the attempt
        that succeeds go with the ack."""
        if self.is_used_up(entry):
            return True
        if isinstance(entry.item, LeasedRecord) and not entry.item.settled:
            entry.item.outputs = None
        with self.lock:
            if not entry.attempts:
                entry.first_failure_ms = _now_ms()
                entry.reasons = ()
            entry.reasons = (*entry.reasons, reason_of(error)[:REASON_CHARACTERS])[-MAX_REASONS:]
            entry.refusal = None
            is_given_up = self.lanes.failed(entry, error, monotonic())
            is_blocked = is_given_up and self.on_exhausted == BLOCK
            if is_blocked:
                self.lanes.block(entry)
                is_given_up = False
        _log.error("attempt %d of %s failed: %s", entry.attempts, name_of(entry), reason_of(error), exc_info=error)
        if is_blocked:
            _log.error("%s blocks its key, until `resume` or `skip` is called", name_of(entry))
        forget_frames(error)  # The record may wait for long with its error.
        return is_given_up

    def skip(self, entry: Entry) -> None:
        """Note that a record is given up and counts as done."""
        with self.lock:
            self.skipped += 1
        _log.error("%s is skipped after %d attempts: it counts as done", name_of(entry), entry.attempts)

    def sent_letter(self) -> None:
        """Note that a dead letter is stored, or taken by the program's function."""
        with self.lock:
            self.dead_letters += 1

    def refused_letter(self, entry: Entry, error: Exception) -> None:
        """Note that the dead letter of a record could not be sent. After an error that may pass, it is sent again after
        a backoff; otherwise its key is blocked. So nothing is lost."""
        may_pass = isinstance(error, LogbrokerError) and error.retriable
        with self.lock:
            entry.refusal = error
            if may_pass:
                self.lanes.delay(entry, monotonic())
            else:
                self.lanes.block(entry)
        _log.error(
            "the dead letter of %s is not sent, and its key %s: %s",
            name_of(entry),
            "waits" if may_pass else "stands",
            reason_of(error),
        )
        forget_frames(error)

    def letter(self, entry: Entry, group: str) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
        """Return value, key and headers of the dead letter of a record."""
        record = entry.item
        origin = Origin(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            group=group,
            attempts=entry.attempts,
            first_failure_ms=entry.first_failure_ms,
            last_failure_ms=_now_ms(),
            reasons=entry.reasons,
        )
        made = dead_letter(record, origin)
        return made.value, made.key, list(made.headers)

    def give_back(self) -> list[tuple[Entry, Nack, Exception | None]]:
        """Forget those records of a source without partitions that are not done. Return each with its function `nack`
        and its last error."""
        with self.lock:
            left = [(entry, entry.settlement[1], entry.error) for entry in self.loose.nodes() if entry.settlement]
            self.drop([self.loose])
            return left

    def not_settled(self, entry: Entry, error: BaseException) -> None:
        """Note that a source did not take an ack or a nack."""
        _log.warning("%s is not settled: %s", name_of(entry), reason_of(error))

    # --- what the program asks --------------------------------------------------------------------------------------

    def counts(self) -> ConvoyCounts:
        """See `Convoy.counts`."""
        with self.lock:
            lanes = self.lanes
            return ConvoyCounts(
                waiting=lanes.records - lanes.running,
                running=lanes.running,
                blocked=len(lanes.blocked),
                bytes=lanes.bytes,
                done=lanes.finished,
                failures=lanes.failures,
                skipped=self.skipped,
                dead_letters=self.dead_letters,
                repeats_saved=self.repeats_saved,
            )

    def blocked(self) -> list[BlockedKey]:
        """See `Convoy.blocked`."""
        with self.lock:
            return [
                BlockedKey(
                    key=entry.key,
                    partition=entry.track.name,
                    offset=entry.offset,
                    attempts=entry.attempts,
                    reason="" if (error := entry.refusal or entry.error) is None else reason_of(error),
                )
                for entry in self.lanes.blocked
            ]

    def resume(self, key: Hashable, partition: TopicPartition | None) -> int:
        """See `Convoy.resume`."""
        with self.lock:
            entries = self._standing(key, partition)
            for entry in entries:
                self.lanes.resume(entry)
            return len(entries)

    def take_blocked(self, key: Hashable, partition: TopicPartition | None) -> list[Entry]:
        """Take blocked records in order to skip them. Call `skipped_by_hand` next."""
        with self.lock:
            return [entry for entry in self._standing(key, partition) if self.lanes.skip(entry)]

    def skipped_by_hand(self, entries: list[Entry]) -> int:
        """Note the end of a call of `Convoy.skip`: block the records again that are not done. Return how many are
        done."""
        with self.lock:
            for entry in entries:
                self.lanes.block(entry)
        skipped = [entry for entry in entries if entry.state is RecordState.DONE]
        for entry in skipped:
            self.skip(entry)
        return len(skipped)

    def _standing(self, key: Hashable, partition: TopicPartition | None) -> list[Entry]:
        """Return the blocked records of a key or of all keys, or the record that a `BlockedKey` names; with a
        partition, only those in it."""
        if isinstance(key, BlockedKey):
            place = key.partition, key.offset
            found = [entry for entry in self.lanes.blocked if (entry.track.name, entry.offset) == place]
        else:
            found = [entry for entry in self.lanes.blocked if key is ALL or entry.key == key]
        return [entry for entry in found if partition is None or entry.track.name == partition]


def name_of(entry: Entry) -> str:
    """Return a record as text, for logs."""
    if isinstance(entry.track, LooseTrack):
        return f"a record of key {quoted(entry.key)}"
    return f"offset {entry.offset} of {entry.track.name}, key {quoted(entry.key)}"


def give_up(delivery: LeasedRecord) -> None:
    """Let the worker release a delivery that the convoy forgets, so that it is not counted as unsettled any more."""
    outbox = delivery.batch.settlements.outbox
    outbox.dropped.append((delivery.batch, delivery.index))
    outbox.wake()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
