"""Every state that a crash may leave of a recorded trace opens, and keeps what was promised."""

from __future__ import annotations

import random

import pytest

from tests.faults.crash_trace import Trace

SEEDS = range(25)
STATES = 200


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_crash_keeps_every_promise(seed: int) -> None:
    trace = Trace(seed).run(steps=20)
    for number, state in enumerate(trace.states(STATES)):
        try:
            trace.check(state)
        except Exception as error:
            error.add_note(f"seed {seed}, state {number}: {state.about}, after operation {state.at}")
            raise


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("seed", range(5))
def test_a_crash_in_the_recovery_keeps_every_promise(seed: int) -> None:
    chance = random.Random(seed)
    trace = Trace(seed).run(steps=20)
    for state in trace.states(12):
        again = list(trace.crashed_again(state, [chance.random()]))
        for last in chance.sample(again, min(len(again), 5)):
            try:
                trace.check(last)
            except Exception as error:
                error.add_note(f"seed {seed}: {last.about}, at operation {last.at}")
                raise
