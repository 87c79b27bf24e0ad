"""The rows that store a queue group, in the scope `"group:" + group id` of the StateStore.

All integers in keys are big-endian. Values are msgpack arrays, except for pages.

    row       key                                    value
    header    b"g"                                   version, "queue", topic id, group epoch
    settings  b"s"                                   a map of all settings by name
    floor     b"f" partition (4)                     offset: all records below are done
    page      b"p" partition (4) number (5)          a bitmap of done records: bit `offset & 7` of byte
                                                     `offset >> 3 & 4095`, of the offsets with `offset >> 15 == number`;
                                                     without trailing zero bytes, and b"\\0" if all of it is done
    failure   b"a" partition (4) offset (8)          failed attempts, their times and reasons: see `failures`
    parked    b"k" BLAKE2b of the key (16)           ordering key, since when (ms), reason, record id of the head
    intent    b"d" partition (4) offset (8)          partition of the dead-letter topic, sequence in it, ...:
                                                     see `dead_letter_intents`
    sequence  b"q" partition (4)                     the next sequence in this partition of the dead-letter topic
    producer  b"i" partition (4)                     the producer that appends to it: see `messages.LetterProducer`
    copies    b"t", b"c" ...                         the internal topic, and the copies there: see `copies`
    replaced  b"r" partition (4) offset (8)          the replacement of a record: see `replacements`
    origin    b"b" partition (4) offset (8)          the first origin of a redriven record: see `origins`
    session   b"z" BLAKE2b of the key (16)           lane key, fencing token; only while the session is open
    state     b"y" BLAKE2b of the key (16)           lane key, the state that sessions of this key leave to the next
    split     b"x" BLAKE2b of the key (16)           the split of a lane: see `model.splits.Split`
    progress  b"e" partition (4) topic id (16)       progress of the redrive of this partition: see `redrive`
    round     b"w"                                   the round of letters that is being sent back: see `redrive`
    room      b"l"                                   size limit that the broker set on the dead-letter topic:
                                                     see `size_limits`
    output    b"o" number (8)                        batches for other topics: see `outbox`
    handed    b"h"                                   group epoch, and a map of partition to the offset below which
                                                     records may have been handed out. A clean stop writes it; it is
                                                     void if the header has another epoch

The header begins like that of a consumer group, so that a reader of a scope sees the type of the group.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from logbroker.engine import StateEvent
from logbroker.errors import CorruptLogError
from logbroker.queues.model.record_id import OFFSET_MASK, PARTITION_SHIFT

HEADER_ROW: Final = b"g"
SETTINGS_ROW: Final = b"s"
HANDED_ROW: Final = b"h"
FLOOR_ROW: Final = b"f"
PAGE_ROW: Final = b"p"
FAILURE_ROW: Final = b"a"
PARKED_ROW: Final = b"k"
COPIES_TOPIC_ROW: Final = b"t"
COPIES_ROW: Final = b"c"
INTENT_ROW: Final = b"d"
SEQUENCE_ROW: Final = b"q"
REPLACEMENT_ROW: Final = b"r"
SESSION_ROW: Final = b"z"
STATE_ROW: Final = b"y"
PRODUCER_ROW: Final = b"i"
PROGRESS_ROW: Final = b"e"
ROUND_ROW: Final = b"w"
ROOM_ROW: Final = b"l"
ORIGIN_ROW: Final = b"b"
OUTPUT_ROW: Final = b"o"
SPLIT_ROW: Final = b"x"

VERSION: Final = 1
PAGE_SHIFT: Final = 15
PAGES_SHIFT: Final = PARTITION_SHIFT - PAGE_SHIFT
"""`page id >> PAGES_SHIFT` is the partition."""

_PAGE_MASK: Final = OFFSET_MASK >> PAGE_SHIFT
_RECORD_ID_BYTES: Final = 12
_HASH_BYTES: Final = 16

T = TypeVar("T")

encode: Final[Callable[[object], bytes]] = msgspec.msgpack.Encoder().encode


class HeaderRow(msgspec.Struct, frozen=True, array_like=True):
    """The row of the queue group itself."""

    version: int
    type: str
    topic_id: bytes
    group_epoch: int
    """A number above all earlier receipts and tokens. It is also the first receipt of this epoch. A value up to
    `MAX_COUNTED_EPOCH` was written by an older broker, which counted epochs from 1 and used them as the upper 19 bits
    of receipts."""


def record_row_key(kind: bytes, record_id: int) -> bytes:
    """Return the key of a row about one record."""
    return kind + (record_id >> PARTITION_SHIFT).to_bytes(4, "big") + (record_id & OFFSET_MASK).to_bytes(8, "big")


def record_id_in(key: bytes) -> int:
    """Return the record that a row is about. Raises CorruptLogError."""
    if len(key) != 1 + _RECORD_ID_BYTES:
        raise CorruptLogError(f"the queue row under key {key.hex()} names no record")
    return int.from_bytes(key[1:5], "big") << PARTITION_SHIFT | int.from_bytes(key[5:], "big")


def partition_key(kind: bytes, partition: int) -> bytes:
    """Return the key of a row about one partition."""
    return kind + partition.to_bytes(4, "big")


def partition_in(key: bytes) -> int:
    return int.from_bytes(key[1:], "big")


def page_key(page_id: int) -> bytes:
    return PAGE_ROW + (page_id >> PAGES_SHIFT).to_bytes(4, "big") + (page_id & _PAGE_MASK).to_bytes(5, "big")


def page_in(key: bytes) -> int:
    return int.from_bytes(key[1:5], "big") << PAGES_SHIFT | int.from_bytes(key[5:], "big")


def hashed_key(kind: bytes, lane_key: bytes) -> bytes:
    """Return the key of a row about one lane. It contains a hash of the lane's key, because an ordering key may be
    longer than the key of a row."""
    return kind + hashlib.blake2b(lane_key, digest_size=_HASH_BYTES).digest()


def upsert(key: bytes, value: object) -> StateEvent:
    return StateEvent(key, encode(value))


def delete(key: bytes) -> StateEvent:
    return StateEvent(key, None)


def decode(key: bytes, value: bytes, kind: type[T]) -> T:
    """Decode a row's value. Raises CorruptLogError."""
    try:
        return msgspec.msgpack.decode(value, type=kind)
    except msgspec.MsgspecError as error:
        raise CorruptLogError(f"the queue row under key {key.hex()} cannot be read: {error}") from None


def decode_header(value: bytes) -> HeaderRow:
    """Decode the header row. Raises CorruptLogError."""
    header = decode(HEADER_ROW, value, HeaderRow)
    if header.version != VERSION:
        raise CorruptLogError(
            f"the queue group is stored in layout {header.version}, this broker knows {VERSION}: use a newer broker"
        )
    return header
