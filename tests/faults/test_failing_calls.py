"""Each kind of call fails in each way, once, somewhere in a life: refused or fatal, never a loss."""

from __future__ import annotations

import random

import pytest

from tests.fast_directory import fast_directory
from tests.faults import engine_lives, failing_files, hooked_files
from tests.faults.engine_trace import STEPS

PER_PAIR = 15
ENGINES_PER_PAIR = 2


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize(("call", "error_number"), failing_files.PAIRS)
def test_a_call_that_fails_loses_nothing(call: str, error_number: int) -> None:
    seed = 1000 * failing_files.PAIRS.index((call, error_number))
    chance = random.Random(seed)
    failures = 0
    while failures < PER_PAIR:
        seed += 10
        # The first calls of each kind are those of the partition's making.
        nth = 1 + min(int(chance.expovariate(0.1)), 60)
        failures += failing_files.loses_nothing(seed, call, error_number, nth)


@pytest.mark.prove
def test_a_call_of_a_whole_engine_that_fails_loses_nothing() -> None:
    chance = random.Random(4711)
    failures = 0
    with fast_directory() as directory:
        for kind, error_number in hooked_files.PAIRS * ENGINES_PER_PAIR:
            nth = chance.randint(1, {"truncate": 12, "rename": 6}.get(kind, 60))
            failures += engine_lives.failing_life(directory / "life", STEPS, kind, error_number, nth)
    assert failures > 30
