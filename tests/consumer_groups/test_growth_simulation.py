"""Random histories of a group whose topic grows: nothing of a generation comes before all of the one before it is
finished, and nobody waits for ever. Each check is shown to notice a bug."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from logbroker.consumer_groups.coordinator import Coordinator
from logbroker.consumer_groups.generations import Generations
from tests.consumer_groups.growth_simulation import run

HISTORIES = 25
STEPS = 300


def test_random_histories() -> None:
    first = random.randrange(1 << 32)
    generations = sum(len(run(seed, STEPS).log.spans) for seed in range(first, first + HISTORIES))
    assert generations > 2 * HISTORIES, "the topics did not grow"


def _run_many(histories: int) -> None:
    for seed in range(histories):
        run(seed, STEPS)


def _everything_is_finished(self: Generations, *_: Any) -> bool:
    return True


def _told_counts_where_offsets_are_committed(
    self: Generations, topic_id: Any, partition: int, end: int, now: float
) -> bool:
    told = self._told.get(topic_id, {}).get(partition)
    return (told is not None and told.offset >= end) or FINISHED(self, topic_id, partition, end, now)


def _nothing_told_counts(self: Generations, *_: Any) -> None:
    pass


def _offline_partitions_are_waited_for(self: Generations, topic_id: Any, partition: int, end: int, now: float) -> bool:
    offsets = self._committed(topic_id)
    return partition in offsets and offsets[partition].offset >= end


def _nobody_is_told(self: Coordinator) -> None:
    pass


FINISHED = Generations._is_finished


@pytest.mark.parametrize(
    ("owner", "name", "plant", "complaint"),
    [
        (Generations, "_is_finished", _everything_is_finished, "has only come to|is late|later record"),
        (Generations, "_is_finished", _told_counts_where_offsets_are_committed, "is late"),
        (Generations, "_is_finished", _offline_partitions_are_waited_for, "is stuck"),
        (Generations, "tell", _nothing_told_counts, "is stuck"),
        (Coordinator, "_follow_generations", _nobody_is_told, "is stuck"),
    ],
)
def test_the_histories_notice(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, plant: Callable[..., Any], complaint: str
) -> None:
    monkeypatch.setattr(owner, name, plant)
    with pytest.raises(AssertionError, match=complaint):
        _run_many(100)
