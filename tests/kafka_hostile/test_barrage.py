"""Damaged requests to every Kafka API: answered or refused, others are served, and nothing acknowledged is lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fast_directory import fast_directory
from tests.kafka_hostile import barrage
from tests.kafka_hostile.plants import KAFKA_PLANTS
from tests.speeds import examples

SEEDS = 3


@pytest.mark.twice
def test_damaged_requests_of_every_api_are_answered_or_end_their_connection() -> None:
    seed = random.randrange(10**6)
    requests = examples(300, 100_000)
    with fast_directory() as directory:
        figures = barrage.run(directory, seed, requests)
    assert figures["answers"] > requests // 4, "hardly anything was right; the damage is too coarse to test much"


@pytest.mark.prove
@pytest.mark.parametrize("plant", KAFKA_PLANTS)
def test_a_planted_bug_is_found(plant: str, tmp_path: Path) -> None:
    """Within a few seeds: what meets the bug first depends on what was sent beside it."""
    for seed in range(SEEDS):
        directory = tmp_path / str(seed)
        directory.mkdir()
        try:
            barrage.run(directory, seed, 3000, plant=plant)
        except AssertionError:
            return
    pytest.fail(f"{plant} is not found by {SEEDS} seeds")
