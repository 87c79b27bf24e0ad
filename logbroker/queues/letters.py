"""Finding the dead letters of a queue group in its dead-letter topic, which it may share with others."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import msgspec

from logbroker.config import MIB
from logbroker.engine import LogEngine, Read, ReadResult, Topic
from logbroker.errors import LogbrokerError, OffsetOutOfRangeError
from logbroker.queues.decoding import in_decoder
from logbroker.queues.places import offset_of, partition_of, place_of
from logbroker.record.codec import LogRecord, check_crc, decode_batch, split_batches
from logbroker.record.dead_letter import GROUP, ORIGIN_PARTITION, ORIGIN_TOPIC, UNDECODABLE, header_value

READ_BYTES: Final = MIB
MAX_ROUND_RECORDS: Final = 1000
MAX_ROUND_BYTES: Final = 4 * MIB


class Letter(msgspec.Struct):
    """A dead letter."""

    place: int
    """In the dead-letter topic."""
    key: bytes | None
    """Its ordering key."""
    origin_partition: int
    record: LogRecord

    @property
    def size_bytes(self) -> int:
        record = self.record
        headers = sum(len(name.encode()) + len(value or b"") + 10 for name, value in record.headers)
        return len(record.key or b"") + len(record.value or b"") + headers


class Gathered(msgspec.Struct):
    """Letters that were found, in their order, and how far the partitions were looked through."""

    dead_topic_id: bytes
    letters: list[Letter]
    next_offsets: dict[int, int]
    """By partition: nothing that was looked for is below that is not among the letters."""
    more: bool = False
    """There are more of them."""

    def leave(self, place: int) -> None:
        """A letter is not taken after all."""
        partition = partition_of(place)
        self.next_offsets[partition] = min(self.next_offsets[partition], offset_of(place))
        self.more = True


class Wanted(msgspec.Struct, frozen=True):
    """Which letters are looked for."""

    group_id: str
    origin: str
    """The name of their topic."""
    key_header: str
    """The header that holds the ordering key; "": the record key is it."""
    key: bytes | None
    """Of this ordering key; None: of any."""

    def letter(self, place: int, record: LogRecord) -> Letter | None:
        """Return the letter that a record is, but for its key; None: it is none of this group."""
        headers = record.headers
        if (
            header_value(headers, GROUP) != self.group_id.encode()
            or header_value(headers, ORIGIN_TOPIC) != self.origin.encode()
            or header_value(headers, UNDECODABLE) is not None
        ):
            return None
        partition = header_value(headers, ORIGIN_PARTITION) or b""
        key = header_value(headers, self.key_header) if self.key_header else record.key
        return Letter(place, key, int(partition) if partition.isdigit() else 0, record)


async def gather(
    engine: LogEngine,
    dead_topic: Topic,
    starts: Mapping[int, tuple[int, frozenset[int]]],
    wanted: Wanted,
    limit: int,
    *,
    counting: bool,
) -> Gathered:
    """Find up to `limit` letters, a round of them unless they are only counted. `starts`: by partition, the offset to
    begin at and offsets to pass over. Raises PartitionOfflineError, CorruptBatchError and their like."""
    gathered = Gathered(dead_topic.id, [], {})
    size_bytes = 0
    for partition, (start, passed) in starts.items():
        facts = engine.partition_facts(dead_topic.id, partition)
        offset = max(start, facts.log_start_offset)
        first_left: int | None = None
        while offset < facts.high_watermark:
            [result] = await engine.read([Read(dead_topic.id, partition, offset, READ_BYTES)])
            if isinstance(result, OffsetOutOfRangeError):
                offset = max(offset + 1, engine.partition_facts(dead_topic.id, partition).log_start_offset)
                continue
            if isinstance(result, LogbrokerError):
                raise result
            for record in await in_decoder(partial(_records, result)):
                if record.offset < offset or record.offset in passed:
                    continue
                letter = wanted.letter(place_of(partition, record.offset), record)
                if letter is None:
                    continue
                if wanted.key is not None and letter.key != wanted.key:
                    first_left = record.offset if first_left is None else first_left
                    continue
                full = not counting and (len(gathered.letters) >= MAX_ROUND_RECORDS or size_bytes >= MAX_ROUND_BYTES)
                if len(gathered.letters) >= limit or full:
                    gathered.next_offsets[partition] = record.offset if first_left is None else first_left
                    gathered.more = True
                    return gathered
                if counting:
                    letter.record = LogRecord(record.offset, -1, None, None, ())
                size_bytes += letter.size_bytes
                gathered.letters.append(letter)
            offset = result.next_offset
        gathered.next_offsets[partition] = offset if first_left is None else first_left
    return gathered


def _records(result: ReadResult) -> list[LogRecord]:
    records: list[LogRecord] = []
    for header, batch in split_batches(result.batches):
        if not header.is_control:
            check_crc(header, batch)
            records += decode_batch(batch)
    return records
