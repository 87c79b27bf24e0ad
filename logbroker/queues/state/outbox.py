"""The outbox: batches that settlements send to other topics, until they are appended there.

    row      key    b"o" number (8)
             value  msgpack array: the outputs of one settlement, each an array of the fields of `Output`

An entry is stored in the same transaction as the acks of its settlement, and removed when all its batches are appended
and synced. The batches of one partition are a *stream*: they carry a producer id of the group and consecutive
sequences, and are appended in the order of the settlements. The producer and the sequences last as long as the group
runs. After a start, the remaining entries are renewed: batches that the log has already are dropped, and the others get
a new producer id and new sequences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from logbroker.errors import CorruptLogError
from logbroker.queues.model.messages import Output
from logbroker.queues.state.change_set import ChangedRows, ChangeSet
from logbroker.queues.state.rows import OUTPUT_ROW, decode
from logbroker.record.codec import with_producer
from logbroker.record.header import MAX_SEQUENCE, parse_header

StreamKey = tuple[bytes, int]
"""Topic id and partition."""

RETRY_SECONDS: Final = 5.0
"""Time after which a refused settlement that was not tried again is forgotten."""
_NUMBER_BYTES: Final = 8


class _Stream(msgspec.Struct):
    producer_id: int
    epoch: int
    next_sequence: int = 0


class _Refused(msgspec.Struct):
    """Refusals of settlements with outputs for one topic, none of which was accepted in between."""

    first_at: float
    last_at: float
    """Monotonic time."""
    why: str


class OutboxEntry(msgspec.Struct, eq=False):
    """The outputs of one settlement that are not appended yet, in their order."""

    number: int
    outputs: dict[Output, None]


class TransactionalOutbox:
    """The outbox of one queue group."""

    def __init__(self, changes: ChangeSet) -> None:
        self.producer: tuple[int, int] | None = None
        """Producer id and epoch for new streams. Set it before the first `put`."""
        self.size_bytes = 0
        """Size of all batches in the outbox."""
        self.troubles: dict[bytes, str] = {}
        """Reasons why topics do not accept outputs now, by topic id."""
        self._refused: dict[bytes, _Refused] = {}
        self._entries: dict[int, OutboxEntry] = {}
        """Entries by number, in the order of their settlements."""
        self._next_number = 0
        self._streams: dict[StreamKey, _Stream] = {}
        self._unsent = changes.unsent_outputs
        self._rows = ChangedRows(changes, _row_key, self._row_of)

    def load(self, rows: Mapping[bytes, bytes]) -> None:
        """Load the entries of an earlier run, which have to be renewed. Raises CorruptLogError."""
        stored = sorted((_number_in(key), key, value) for key, value in rows.items() if key.startswith(OUTPUT_ROW))
        for number, key, value in stored:
            entry = self._entries[number] = OutboxEntry(number, dict.fromkeys(decode(key, value, list[Output])))
            self._rows.load(number)
            self.size_bytes += _size_bytes(entry.outputs)
            self._next_number = number + 1

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._entries)

    @property
    def last(self) -> OutboxEntry | None:
        """The entry that was put last, if any is left."""
        return next(reversed(self._entries.values()), None)

    def entries(self) -> list[OutboxEntry]:
        """Return all entries, in the order of their settlements."""
        return list(self._entries.values())

    def refused(self, topic_id: bytes, why: str, seconds: float) -> None:
        """Note that a settlement with outputs for a topic was refused, at this time. Its worker tries again."""
        refused = self._refused.get(topic_id)
        if refused is None or seconds > refused.last_at + RETRY_SECONDS:
            refused = self._refused[topic_id] = _Refused(seconds, seconds, why)
        refused.last_at, refused.why = seconds, why

    def accepted(self, topic_id: bytes) -> None:
        """Note that a settlement with outputs for a topic was accepted."""
        self._refused.pop(topic_id, None)

    def obstacles(self, seconds: float) -> dict[bytes, str]:
        """Return, by topic id, why stored outputs of a topic, or acks with outputs for it, wait now."""
        for topic_id in [each for each, refused in self._refused.items() if seconds > refused.last_at + RETRY_SECONDS]:
            del self._refused[topic_id]
        waiting = {each: refused.why for each, refused in self._refused.items() if seconds > refused.first_at + 1}
        return waiting | self.troubles

    def put(self, outputs: Sequence[Output]) -> None:
        """Add the outputs of a settlement. They are sent once their row is stored."""
        entry = OutboxEntry(self._next_number, dict.fromkeys(map(self._stamped, outputs)))
        self._next_number += 1
        self._entries[entry.number] = entry
        self._unsent.append(entry)
        self._rows.changed(entry.number)
        self.size_bytes += _size_bytes(entry.outputs)

    def end_streams(self, topic_id: bytes) -> None:
        """End the streams of a topic. The next batch of each partition begins a stream with `producer`."""
        for stream in [stream for stream in self._streams if stream[0] == topic_id]:
            del self._streams[stream]

    def renew(self, entry: OutboxEntry, topic_id: bytes, outputs: Sequence[Output]) -> None:
        """Replace the outputs of an entry for one topic, after `end_streams`, by those that are still to be appended.
        Renew the entries in their order. Their outputs are sent once the rows are stored."""
        self.size_bytes -= _size_bytes(entry.outputs)
        others = [output for output in entry.outputs if output.topic_id != topic_id]
        entry.outputs = dict.fromkeys([*others, *map(self._stamped, outputs)])
        self.size_bytes += _size_bytes(entry.outputs)
        if not entry.outputs:
            del self._entries[entry.number]
        self._rows.changed(entry.number)

    def appended(self, entry: OutboxEntry, output: Output) -> bool:
        """Remove an output that is appended and synced; return whether it was the last one of its entry."""
        del entry.outputs[output]
        self.size_bytes -= len(output.batch)
        if entry.outputs:
            return False
        del self._entries[entry.number]
        self._rows.changed(entry.number)
        return True

    def _stamped(self, output: Output) -> Output:
        key = output.topic_id, output.partition
        stream = self._streams.get(key)
        if stream is None:
            assert self.producer is not None
            stream = self._streams[key] = _Stream(*self.producer)
        batch = with_producer(output.batch, stream.producer_id, stream.epoch, stream.next_sequence)
        stream.next_sequence = (stream.next_sequence + parse_header(batch).record_count) & MAX_SEQUENCE
        return msgspec.structs.replace(output, batch=batch)

    def _row_of(self, number: int) -> list[Output] | None:
        entry = self._entries.get(number)
        return None if entry is None else list(entry.outputs)


def _row_key(number: int) -> bytes:
    return OUTPUT_ROW + number.to_bytes(_NUMBER_BYTES, "big")


def _number_in(key: bytes) -> int:
    if len(key) != len(OUTPUT_ROW) + _NUMBER_BYTES:
        raise CorruptLogError(f"the queue row under key {key.hex()} names no entry of the outbox")
    return int.from_bytes(key[len(OUTPUT_ROW) :], "big")


def _size_bytes(outputs: Iterable[Output]) -> int:
    return sum(len(output.batch) for output in outputs)
