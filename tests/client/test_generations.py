"""The order in which a consumer without a group reads the generations of a topic, without a broker."""

from __future__ import annotations

from typing import Any

import pytest

from logbroker.client.consumer.fetcher import Assigned
from logbroker.client.consumer.generations import TopicGenerations
from logbroker.types import TopicId, TopicPartition


class Fetcher:
    """Notes which generation is read."""

    def __init__(self) -> None:
        self.generations: list[int] = []

    def read_generation(self, assigned: Assigned, generation: int) -> None:
        assigned.generation, assigned.generation_end = generation, None
        self.generations.append(generation)


def assigned(number: int, position: int) -> Assigned:
    return Assigned(TopicPartition("t", number), TopicId(bytes(16)), position, position)


@pytest.mark.parametrize(("number", "position", "is_earlier"), [(0, 5, False), (0, 4, True), (1, 0, False)])
def test_only_a_move_into_an_earlier_generation_reads_all_of_them_anew(
    number: int, position: int, is_earlier: bool
) -> None:
    """Partition 1 is added between the first generation and the second one."""
    fetcher: Any = Fetcher()
    first, added = assigned(0, 5), assigned(1, 0)
    generations = TopicGenerations(fetcher, [first], lambda each: each.position)
    first.generation_end = 5
    assert generations.look(first)
    generations.add(added)
    generations.advance()
    assert fetcher.generations == [2, 2]
    moved = (first, added)[number]
    moved.position = position
    generations.moved(moved)
    assert fetcher.generations[2:] == ([1, 1] if is_earlier else [])
