"""The distribution of records over keys (uniform, by Zipf's law, or one key with most records), and the share of each
partition, and of each sub-lane of a key that is split."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Final

from logbroker.errors import InvalidRequestError
from logbroker.record.partitioner import partition_for_key

ZIPF_EXPONENT: Final = 1.1
HOT_SHARE: Final = 0.8
SECOND_KEYS: Final = 100
"""Number of second keys that a key has if it is split."""
SKEWS: Final = ("uniform", "zipf", "hot")
"""uniform: all keys have equal shares. zipf: the k-th most frequent key is k^1.1 times rarer than the first. hot: the
first key has 80 %."""


def key_shares(skew: str, keys: int) -> list[float]:
    """Return the share of the records that each key has, the hottest first; they add up to 1.

    Raises InvalidRequestError for an unknown skew.
    """
    if skew == "uniform":
        weights = [1.0] * keys
    elif skew == "zipf":
        weights = [rank**-ZIPF_EXPONENT for rank in range(1, keys + 1)]
    elif skew == "hot":
        return hot_shares(HOT_SHARE, keys)
    else:
        raise InvalidRequestError(f"skew {skew!r} is none of {', '.join(SKEWS)}")
    total = sum(weights)
    return [weight / total for weight in weights]


def hot_shares(hottest: float, keys: int) -> list[float]:
    """Return the share of each key: `hottest` for the first key, and equal shares for the others."""
    if keys == 1:
        return [1.0]
    return [hottest] + [(1 - hottest) / (keys - 1)] * (keys - 1)


def key_name(number: int, placement: str = "") -> bytes:
    """Return the key of this number. Each `placement` gives other names, which are routed to other partitions."""
    return f"{placement}key-{number}".encode()


def draw_keys(shares: Sequence[float], records: int, seed: int) -> list[int]:
    """Return the key numbers of `records` records, in a random order that depends only on the seed.

    Each key has the number of records that its share gives, rounded, so that chance does not skew a small run.
    """
    counts = [math.floor(share * records) for share in shares]
    by_rest = sorted(range(len(shares)), key=lambda key: counts[key] - shares[key] * records)
    for key in by_rest[: records - sum(counts)]:
        counts[key] += 1
    drawn = [key for key, count in enumerate(counts) for _ in range(count)]
    random.Random(seed).shuffle(drawn)
    return drawn


def second_key(record: int) -> bytes:
    """Return the second key of a record. `record` is its number among the records of the split key, from 0 on."""
    return key_name(record % SECOND_KEYS)


def sub_lane_shares(into: int, placement: str = "") -> list[float]:
    """Return the share of a split key's records that each sub-lane gets if the 100 second keys have equal shares. A
    second key goes to a sub-lane as a key goes to a partition."""
    return partition_shares([1 / SECOND_KEYS] * SECOND_KEYS, into, placement)


def partition_shares(shares: Sequence[float], partitions: int, placement: str = "") -> list[float]:
    """Return the share of the records that each partition gets, as the producer routes `key_name`."""
    (found,) = partition_shares_of(shares, (partitions,), placement)
    return found


def partition_shares_of(shares: Sequence[float], counts: Sequence[int], placement: str = "") -> list[list[float]]:
    """Return the shares of `partition_shares` for several partition counts. Each key is hashed only once, for the
    common multiple of the counts."""
    multiple = math.lcm(*counts)
    fine: dict[int, float] = {}
    for number, share in enumerate(shares):
        partition = partition_for_key(key_name(number, placement), multiple)
        fine[partition] = fine.get(partition, 0.0) + share
    found = []
    for partitions in counts:
        coarse = [0.0] * partitions
        for partition, share in fine.items():
            coarse[partition % partitions] += share
        found.append(coarse)
    return found
