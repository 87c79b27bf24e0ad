"""Finds the dead letters of a queue group in its dead-letter topic, which several groups may share.

A key has one partition within a generation of the topic, and may have another one in the next. So the search goes
through all partitions of a generation before it goes to the next one: the letters of a key come in the order in which
they were written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from logbroker.config import MAX_INT64, MIB
from logbroker.engine import LogEngine, LogGeneration, Read, ReadResult, Topic, damage_at
from logbroker.errors import LogbrokerError, OffsetOutOfRangeError
from logbroker.queues.model.record_id import offset_of, partition_of, record_id_of
from logbroker.queues.records.decoder import in_decoder, in_decoder_if
from logbroker.record.codec import LogRecord, check_crc, decode_batch, split_batches
from logbroker.record.dead_letter import GROUP, ORIGIN_PARTITION, ORIGIN_TOPIC, UNDECODABLE, header_value
from logbroker.record.partitioner import partition_for_key

READ_BYTES: Final = MIB
MAX_ROUND_RECORDS: Final = 1000
MAX_ROUND_BYTES: Final = 4 * MIB
LONG_KEY_BYTES: Final = 4096
"""Maximum size of a key that is hashed on the event loop. Hashing a key of megabytes takes a second."""
_MAX_DIGITS: Final = 9
"""Maximum number of digits of a partition number."""
MAX_LEFT: Final = 50_000
"""Letters that are held are remembered, so that letters behind them can be redriven. This is the maximum number for
each partition."""


class Letter(msgspec.Struct):
    """A dead letter."""

    record_id: int
    """Record id in the dead-letter topic."""
    key: bytes | None
    """Ordering key of the letter."""
    origin_partition: int
    record: LogRecord

    @property
    def size_bytes(self) -> int:
        record = self.record
        headers = sum(len(name.encode()) + len(value or b"") + 10 for name, value in record.headers)
        return len(record.key or b"") + len(record.value or b"") + headers


class Start(NamedTuple):
    """Where to begin in one partition."""

    position: int
    redriven: frozenset[int] = frozenset()
    """Offsets from `position` on that are already redriven."""
    left: frozenset[int] = frozenset()
    """Offsets below `position` that are tried once more."""
    end: int = MAX_INT64
    """The search ends before this offset."""


_NOT_KEPT: Final = LogRecord(-1, -1, None, None, ())
"""Stands for the record of a letter that is only counted."""


class HeldLetters:
    """The letters that one call of redrive cannot send back. It tries each of them only once."""

    def __init__(self) -> None:
        self.record_ids: set[int] = set()
        self.keys: set[bytes] = set()
        """Ordering keys of held letters. The later letters of these keys are held too, to keep the order of the key."""
        self.why = ""

    def add(self, record_id: int, key: bytes | None, why: str) -> None:
        self.record_ids.add(record_id)
        if key is not None:
            self.keys.add(key)
        self.why = self.why or why


class GatheredLetters(msgspec.Struct):
    """Letters that were found, in their order, and how far each partition was searched."""

    dead_topic_id: bytes
    letters: list[Letter]
    next_offsets: dict[int, int]
    """Offset of each partition below which all matches are included or held."""
    more: bool = False
    """Whether the search left matches below `Start.end` for a later call."""

    def leave(self, record_id: int) -> None:
        """Leave a gathered letter to a later search, by moving `next_offsets` back to it. The letter stays in
        `letters`."""
        partition = partition_of(record_id)
        self.next_offsets[partition] = min(self.next_offsets.get(partition, MAX_INT64), offset_of(record_id))
        self.more = True


class Wanted(msgspec.Struct, frozen=True):
    """The criteria of a search for letters."""

    group_id: str
    origin: str
    """Name of the topic that the letters came from."""
    key_header: str
    """Header that holds the ordering key; "": the record key is the ordering key."""
    key: bytes | None
    """Ordering key of the letters; None: any."""

    def letter(self, record_id: int, record: LogRecord) -> Letter | None:
        """Return the record as a letter, whatever its key; None if it is no letter of this group and topic, or holds a
        batch that cannot be decoded."""
        headers = record.headers
        if (
            header_value(headers, GROUP) != self.group_id.encode()
            or header_value(headers, ORIGIN_TOPIC) != self.origin.encode()
            or header_value(headers, UNDECODABLE) is not None
        ):
            return None
        partition = header_value(headers, ORIGIN_PARTITION) or b""
        key = header_value(headers, self.key_header) if self.key_header else record.key
        # Any program may write to the topic, so the number is checked.
        is_number = len(partition) <= _MAX_DIGITS and partition.isdigit()
        return Letter(record_id, key, int(partition) if is_number else 0, record)


async def gather(
    engine: LogEngine,
    dead_topic: Topic,
    starts: Mapping[int, Start],
    wanted: Wanted,
    held: HeldLetters,
    limit: int,
    *,
    counting: bool,
) -> GatheredLetters:
    """Find up to `limit` letters. Unless they are only counted, find at most the letters of one round. Batches that
    cannot be read and letters of held keys are added to `held`."""
    gathering = _Gathering(engine, dead_topic, starts, wanted, held, limit, counting=counting)
    for generation in dead_topic.generations:
        if not await gathering.look_through(generation):
            break
    return gathering.gathered


class _Search(msgspec.Struct):
    """The search of one partition, through all generations."""

    start: Start
    room: int
    """How many more held letters can be remembered."""
    first_left: int | None = None
    """Offset of the first letter that was left because it has another key."""
    is_over: bool = False
    """Whether the partition cannot be searched any further in this call."""


class _Gathering:
    def __init__(
        self,
        engine: LogEngine,
        dead_topic: Topic,
        starts: Mapping[int, Start],
        wanted: Wanted,
        held: HeldLetters,
        limit: int,
        *,
        counting: bool,
    ) -> None:
        self.gathered = GatheredLetters(dead_topic.id, [], {})
        self._engine = engine
        self._topic = dead_topic
        self._searches = {partition: _Search(start, MAX_LEFT - len(start.left)) for partition, start in starts.items()}
        self._wanted = wanted
        self._held = held
        self._limit = limit
        self._counting = counting
        self._size_bytes = 0
        self._unsearched: set[tuple[int, int]] = set()
        """Parts of earlier generations that cannot be searched now: partition count of the generation, and partition. A
        later letter is held if its key belonged to such a partition."""

    async def look_through(self, generation: LogGeneration) -> bool:
        """Gather letters of a generation; return whether there is room for more."""
        unsearched: list[tuple[int, int]] = []
        for partition in range(generation.partitions):
            search = self._searches[partition]
            first = generation.start_offsets[partition] if partition < len(generation.start_offsets) else 0
            end = self._topic.end_of(generation.generation, partition)
            end = MAX_INT64 if end is None else end
            left = sorted(offset for offset in search.start.left if first <= offset < end)
            if end <= search.start.position and not left:
                continue
            if not search.is_over:
                try:
                    if not await self._look_through(partition, search, left, first, end):
                        return False
                except LogbrokerError as error:
                    if error.retriable:
                        raise
                    self._held.why = self._held.why or error.message
                    search.is_over = True
            if search.is_over:
                unsearched.append((generation.partitions, partition))
        self._unsearched.update(unsearched)
        return True

    async def _look_through(self, partition: int, search: _Search, left: Sequence[int], first: int, end: int) -> bool:
        """Gather letters of a partition from `first` to before `end`; return whether there is room for more. `left` are
        the offsets to try once more."""
        held, wanted, start = self._held, self._wanted, search.start
        topic_id = self._topic.id
        facts = self._engine.partition_facts(topic_id, partition)
        end = min(end, start.end, facts.high_watermark)
        for offset in left:
            if record_id_of(partition, offset) in held.record_ids or not facts.log_start_offset <= offset < end:
                continue
            for record in await self._read_one(partition, offset):
                letter = wanted.letter(record_id_of(partition, offset), record)
                if letter is None or (wanted.key is not None and letter.key != wanted.key):
                    continue
                if not await self._is_held(letter) and not self._take(letter):
                    return False
        if search.room <= 0:
            held.why = held.why or f"{MAX_LEFT:,} letters of partition {partition} cannot be sent back"
            search.is_over = True
            return True
        offset = max(start.position, first, facts.log_start_offset)
        while offset < end:
            [result] = await self._engine.read([Read(topic_id, partition, offset, READ_BYTES)])
            if isinstance(result, OffsetOutOfRangeError):
                offset = max(offset + 1, self._engine.partition_facts(topic_id, partition).log_start_offset)
                continue
            if isinstance(result, LogbrokerError):
                raise result
            records, errors = await in_decoder(partial(_records, result))
            for base_offset, why in errors:
                if base_offset >= end:
                    continue
                damage = await damage_at(self._engine, topic_id, partition, base_offset)
                why = why if damage is None else damage.message
                held.add(record_id_of(partition, max(offset, base_offset)), None, why)
            for record in records:
                if not offset <= record.offset < end or record.offset in start.redriven:
                    continue
                letter = wanted.letter(record_id_of(partition, record.offset), record)
                if letter is None:
                    continue
                if wanted.key is not None and letter.key != wanted.key:
                    search.first_left = record.offset if search.first_left is None else search.first_left
                    continue
                if letter.record_id in held.record_ids or await self._is_held(letter):
                    search.room -= 1
                    if search.room < 0:  # No more letters of this partition can be remembered.
                        self._reached(partition, search, record.offset)
                        search.is_over = True
                        return True
                    continue
                if not self._take(letter):
                    self._reached(partition, search, record.offset)
                    return False
            offset = min(result.next_offset, end)  # A batch may reach beyond the end.
            self._reached(partition, search, offset)
        return True

    def _reached(self, partition: int, search: _Search, offset: int) -> None:
        self.gathered.next_offsets[partition] = offset if search.first_left is None else search.first_left

    async def _read_one(self, partition: int, offset: int) -> list[LogRecord]:
        [result] = await self._engine.read([Read(self._topic.id, partition, offset, 1, check_crc=True)])
        if isinstance(result, LogbrokerError):
            raise result
        records, errors = await in_decoder(partial(_records, result))
        for _, why in errors:
            self._held.add(record_id_of(partition, offset), None, why)
        return [record for record in records if record.offset == offset]

    async def _is_held(self, letter: Letter) -> bool:
        """Return whether a letter must stay behind an earlier letter of its key that is held or cannot be read now; if
        so, it is held, too."""
        key = letter.key
        if key is None or not (key in self._held.keys or (self._unsearched and await self._follows_unsearched(key))):
            return False
        self._held.record_ids.add(letter.record_id)
        return True

    async def _follows_unsearched(self, key: bytes) -> bool:
        places = self._unsearched
        return await in_decoder_if(
            len(key) > LONG_KEY_BYTES,
            lambda: any(partition_for_key(key, partitions) == partition for partitions, partition in places),
        )

    def _take(self, letter: Letter) -> bool:
        """Add a letter; return False if there is no room."""
        letters = self.gathered.letters
        full = not self._counting and (len(letters) >= MAX_ROUND_RECORDS or self._size_bytes >= MAX_ROUND_BYTES)
        if len(letters) >= self._limit or full:
            self.gathered.more = True
            return False
        self._size_bytes += letter.size_bytes
        if self._counting:
            letter.record = _NOT_KEPT
        letters.append(letter)
        return True


def _records(result: ReadResult) -> tuple[list[LogRecord], list[tuple[int, str]]]:
    """Decode batches; return the records, and the base offsets and errors of batches that cannot be decoded."""
    records: list[LogRecord] = []
    errors: list[tuple[int, str]] = []
    for header, batch in split_batches(result.batches):
        if not header.is_control:
            try:
                check_crc(header, batch)
                records += list(decode_batch(batch))
            except LogbrokerError as error:
                errors.append((header.base_offset, error.message))
    return records, errors
