"""Every state that a crash may leave of a recorded trace opens, and keeps what was promised."""

from __future__ import annotations

import pytest

from tests.faults.crash_trace import Trace

SEEDS = range(25)
STATES = 200


@pytest.mark.parametrize("seed", SEEDS)
def test_a_crash_keeps_every_promise(seed: int) -> None:
    trace = Trace(seed).run(steps=20)
    for number, state in enumerate(trace.states(STATES)):
        try:
            trace.check(state)
        except Exception as error:
            error.add_note(f"seed {seed}, state {number}: {state.about}, after operation {state.at}")
            raise
