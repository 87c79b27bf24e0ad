"""The mapping from a record's key to its partition, as in Kafka's own clients."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Sequence
from typing import Final

from logbroker.record.bands import Band, band_of, one_band
from logbroker.record.message_headers import priority_of

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_SHIFT: Final = 24
_SHORT_BYTES: Final = 4096
_MASK: Final = 0xFFFF_FFFF


def murmur2(key: bytes) -> int:
    """Return Kafka's 32-bit MurmurHash2 of a key, as an unsigned number.

    Algorithm: Austin Appleby's MurmurHash2, little-endian, with the seed that Kafka's Java client has
    (org.apache.kafka.common.utils.Utils.murmur2, which returns the same 32 bits as a signed number).
    Takes about 1 µs for a short key.
    """
    size = len(key)
    value = _SEED ^ size
    words: Iterable[int]
    if size <= _SHORT_BYTES:
        words = struct.unpack_from(f"<{size >> 2}I", key)
    else:  # Unpacking a long key at once would block other threads, and take ten times its memory.
        words = (word for (word,) in struct.iter_unpack("<I", memoryview(key)[: size & ~3]))
    for word in words:
        word = word * _MULTIPLIER & _MASK
        word = (word ^ word >> _SHIFT) * _MULTIPLIER & _MASK
        value = value * _MULTIPLIER & _MASK ^ word
    tail = size & 3
    if tail:
        value = (value ^ int.from_bytes(key[size - tail :], "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition, 0 to `partitions` - 1, in which a key lies. An empty key is a key."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


class PartitionCache(dict[bytes, int]):
    """A cache of partitions: `cache[key]` computes the key's partition once. Partition numbers begin at `first`.

    It forgets everything when it holds `max_keys`, and never keeps a key of more than `max_key_bytes`.
    """

    def __init__(self, partitions: int, *, first: int = 0, max_keys: int = 65_536, max_key_bytes: int = 256) -> None:
        self._partitions = partitions
        self._first = first
        self._max_keys = max_keys
        self._max_key_bytes = max_key_bytes

    def __missing__(self, key: bytes) -> int:
        partition = self._first + partition_for_key(key, self._partitions)
        if len(key) <= self._max_key_bytes:
            if len(self) >= self._max_keys:
                self.clear()
            # A memoryview would keep its whole buffer in memory.
            self[bytes(key)] = partition
        return partition


class Router:
    """Chooses partitions for the records of one request by their keys, as a producer would. In a topic with bands, the
    partition is one of the band of the record's priority. Records without a key share one partition of their band,
    chosen at random."""

    def __init__(self, bands: Sequence[Band], partitions: int) -> None:
        """`bands` are the `routing_bands` of the topic; empty if the topic routes by key alone."""
        self._bands = bands or (one_band(partitions),)
        self._keyless = {band.name: random.choice(band.partition_range) for band in self._bands}

    def partition(self, key: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> int:
        band = self._bands[0] if len(self._bands) == 1 else band_of(self._bands, priority_of(headers))
        if key is None:
            return self._keyless[band.name]
        return band.first_partition + partition_for_key(key, band.partitions)
