"""Metrics of the times at which records were worked on: order, latency, idle workers. Pure functions."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Finish(NamedTuple):
    """A record that a worker worked on, from `begun` to `finished`: seconds on the machine's monotonic clock."""

    partition: int
    offset: int
    begun: float
    finished: float
    worker: int


def violations(positions: Iterable[int], keys: Sequence[int]) -> dict[int, int]:
    """Return how many times the order of each key was violated. Keys without a violation are left out.

    `positions` are the positions of the records in the order in which they were finished. `keys` has the key of each
    position. A record that is finished after a later record of its key violates the order.
    """
    latest: dict[int, int] = {}
    found: dict[int, int] = defaultdict(int)
    for position in positions:
        key = keys[position]
        if position < latest.get(key, -1):
            found[key] += 1
        else:
            latest[key] = position
    return dict(found)


def percentile(values: Sequence[float], rank: float) -> float:
    """Return the value that a share `rank` (0 to 1) of the values does not exceed (nearest rank). NaN if there are no
    values."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(rank * len(ordered)) - 1)]


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean, or NaN if there are no values."""
    return sum(values) / len(values) if values else math.nan


def busy_shares(finishes: Iterable[Finish], workers: int, begun: float, ended: float) -> list[float]:
    """Return the share of the time from `begun` to `ended` that each worker was at work. Work outside of this time does
    not count."""
    busy = [0.0] * workers
    for finish in finishes:
        busy[finish.worker] += max(0.0, min(finish.finished, ended) - max(finish.begun, begun))
    return [seconds / (ended - begun) for seconds in busy]


def pauses(finishes: Iterable[Finish], group: Sequence[int]) -> list[float]:
    """Return the seconds between the end of a record and the beginning of the next one of the same group.

    `group` has the group of each finish, such as its worker or its key. Finishes with a negative group are left out.
    """
    spans: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for finish, each in zip(finishes, group, strict=True):
        if each >= 0:
            spans[each].append((finish.begun, finish.finished))
    found = []
    for row in spans.values():
        row.sort()
        found += [after[0] - before[1] for before, after in itertools.pairwise(row)]
    return found
