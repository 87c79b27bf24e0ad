"""The distribution of records over keys (uniform, by Zipf's law, or one key with most), and each partition's share of
it."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Final

from logbroker.errors import InvalidRequestError
from logbroker.record.partitioner import partition_for_key

ZIPF_EXPONENT: Final = 1.1
HOT_SHARE: Final = 0.8
SKEWS: Final = ("uniform", "zipf", "hot")
"""All keys alike; the k-th most frequent key k^1.1 times rarer than the first; the first key with 80 %."""


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
    """Return shares where the first key has `hottest` of the records, and the others are alike."""
    if keys == 1:
        return [1.0]
    return [hottest] + [(1 - hottest) / (keys - 1)] * (keys - 1)


def key_name(number: int, placement: str = "") -> bytes:
    """Return the key of this number. Another `placement` is another set of names, which lies elsewhere."""
    return f"{placement}key-{number}".encode()


def draw_keys(shares: Sequence[float], records: int, seed: int) -> list[int]:
    """Return the numbers of the keys of so many records, in an order drawn by lot; the same for the same seed.

    Each key has as many as its share says, but for rounding: a small run shall not be skewed by chance.
    """
    counts = [math.floor(share * records) for share in shares]
    by_rest = sorted(range(len(shares)), key=lambda key: counts[key] - shares[key] * records)
    for key in by_rest[: records - sum(counts)]:
        counts[key] += 1
    drawn = [key for key, count in enumerate(counts) for _ in range(count)]
    random.Random(seed).shuffle(drawn)
    return drawn


def partition_shares(shares: Sequence[float], partitions: int, placement: str = "") -> list[float]:
    """Return the share of the records that each partition gets, as the producer routes `key_name`."""
    (found,) = partition_shares_of(shares, (partitions,), placement)
    return found


def partition_shares_of(shares: Sequence[float], counts: Sequence[int], placement: str = "") -> list[list[float]]:
    """Return the same for several partition counts; each key is hashed once, for their common multiple."""
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
