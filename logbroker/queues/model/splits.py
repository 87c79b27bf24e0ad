"""Splits of hot keys: the records of one lane are divided into sub-lanes by a second key.

A record of a split key goes to sub-lane `(murmur2(second key) & 0x7fffffff) % into`, as a key goes to a partition. So
records with the same second key share a sub-lane and stay in order. A record without a second key counts as having an
empty one. A split by `none` uses the offset instead: `offset % into`. The name of a sub-lane is that of its lane, `#`,
and its number, as in `general#3`. It is a lane key like any other: operators and sessions use it to name the sub-lane.
If another ordering key has the same name, both share this lane, and the records of each stay in order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from logbroker.errors import InvalidRequestError, quoted_key
from logbroker.queues.model.lane import MAX_KEY_BYTES, SHOWN_KEY_BYTES
from logbroker.queues.model.second_key import MAX_SUB_LANES, MIN_SUB_LANES, SecondKey, SplitBy
from logbroker.queues.model.settings import Ordering
from logbroker.record.codec import Headers
from logbroker.record.partitioner import partition_for_key

_SUFFIX_BYTES: Final = len(f"#{MAX_SUB_LANES - 1}")


class Split(msgspec.Struct, frozen=True, array_like=True):
    """The split of one lane. Also its row in the store."""

    key: bytes
    """Lane key, as `lane.lane_key` returns it."""
    second: SecondKey
    into: int
    """Number of sub-lanes."""
    since_ms: int
    is_automatic: bool = False
    """Whether the queue group split the lane by itself, and will join it again."""
    ends: dict[int, int] | None = None
    """End offsets by partition, while the split is being undone: only records below them belong to sub-lanes. None: the
    split is not being undone, and all records of the key belong to sub-lanes."""

    def check(self) -> None:
        """Raise InvalidRequestError if the number of sub-lanes is out of range."""
        if not MIN_SUB_LANES <= self.into <= MAX_SUB_LANES:
            raise InvalidRequestError(
                f"cannot split a lane into {self.into} sub-lanes: give {MIN_SUB_LANES} to {MAX_SUB_LANES:,}"
            )

    def __str__(self) -> str:
        return f"key {quoted_key(self.key)} is split by {self.second} into {self.into:,} sub-lanes"

    def has_same_sub_lanes(self, other: Split) -> bool:
        return (self.second, self.into) == (other.second, other.into)

    @property
    def rule(self) -> tuple[object, ...]:
        """The fields that decide which sub-lane a record belongs to. Equal rules are encoded to equal bytes."""
        ends = None if self.ends is None else sorted(self.ends.items())
        return self.key, self.second, self.into, ends

    def sub_lane(self, number: int) -> bytes:
        """Return the key of a sub-lane."""
        return b"%b#%d" % (_stem(self.key), number)

    def sub_lanes(self) -> list[bytes]:
        """Return the keys of all sub-lanes."""
        stem = _stem(self.key)
        return [b"%b#%d" % (stem, number) for number in range(self.into)]

    def holds(self, partition: int, offset: int) -> bool:
        """Return whether a record of the key belongs to a sub-lane."""
        return self.ends is None or offset < self.ends.get(partition, 0)

    def number_of(self, offset: int, record_key: bytes | None, headers: Headers) -> int:
        """Return the number of the sub-lane of a record."""
        if self.second.by is SplitBy.NONE:
            return offset % self.into
        return partition_for_key(self.second.of(record_key, headers), self.into)


def _stem(key: bytes) -> bytes:
    """Return the common beginning of the keys of sub-lanes: the lane's key or, if that is too long, its beginning and a
    hash."""
    if len(key) + _SUFFIX_BYTES <= MAX_KEY_BYTES:
        return key
    return key[:SHOWN_KEY_BYTES] + hashlib.blake2b(key, digest_size=32).digest()


class Keying(msgspec.Struct, frozen=True, eq=False):
    """The ordering and the splits in force: they decide which lane a record belongs to. Each change makes a new
    object."""

    ordering: Ordering
    key_header: str
    splits: Mapping[bytes, Split] = {}

    @property
    def fingerprint(self) -> tuple[str, str]:
        """Two texts that identify the keying, and stay the same over restarts."""
        if not self.splits:
            return self.ordering.value, self.key_header
        rules = msgspec.msgpack.encode([split.rule for _, split in sorted(self.splits.items())])
        return self.ordering.value, f"{self.key_header}\0{hashlib.blake2b(rules, digest_size=16).hexdigest()}"

    def may_split(self, plain: bytes | bytearray) -> bool:
        """Return whether the expanded bytes of a batch may have records of a split key."""
        return len(self.splits) > _SOUGHT_KEYS or any(key[:SHOWN_KEY_BYTES] in plain for key in self.splits)


_SOUGHT_KEYS: Final = 8
"""Maximum number of split keys that are searched for in the bytes of a batch. With more, every batch is decoded."""


def already_split(split: Split) -> InvalidRequestError:
    what = "its sub-lanes are being joined: wait until they are" if split.ends is not None else "undo that split first"
    return InvalidRequestError(f"{split} already: {what}")
