"""The columns of `make torture` that go through the states which a crash may leave of a recorded trace."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.crash.columns import Column
from tests.faults.crash_disk import crash_states
from tests.faults.crash_trace import Trace

STATES_PER_SEED: Final = 1000
_POWER_CUTS: Final = 0.1
"""The share that is taken of the many states which a power cut in a recovery may leave."""
_DEEP: Final = 0.1
"""The share of the crashes in a recovery whose own recovery crashes too."""


def crash_of_a_trace(seed: int, _directory: Path) -> Mapping[str, int]:
    """Check the states that a crash may leave of one recorded trace."""
    trace = Trace(seed).run(steps=20 + seed % 20)
    for number, state in enumerate(trace.states(STATES_PER_SEED)):
        try:
            trace.check(state)
        except Exception as error:
            error.add_note(f"seed {seed}, state {number}: {state.about}, after operation {state.at}")
            raise
    return {"states": STATES_PER_SEED, "operations": len(trace.files.ops)}


def crash_of_a_recovery(seed: int, _directory: Path) -> Mapping[str, int]:
    """Kill a trace after every operation, or lose its power, and its recovery after every operation of that."""
    chance = random.Random(seed)
    trace = Trace(seed).run(steps=10)
    lives = twice = thrice = 0
    for at in trace.moments:
        first = list(crash_states(trace.files.ops, at, [0.5]))
        killed = [state for state in first if not state.rebooted]
        for state in (*killed, *chance.sample(first, 1)):
            lives += 1
            for again in trace.crashed_again(state, [0.5]):
                if "then killed" not in again.about and chance.random() > _POWER_CUTS:
                    continue
                deep = list(trace.crashed_again(again, [chance.random()])) if chance.random() < _DEEP else []
                for last in (again, *chance.sample(deep, min(len(deep), 4))):
                    thrice += last is not again
                    try:
                        trace.check(last)
                    except Exception as error:
                        error.add_note(f"seed {seed}: {last.about}, at operation {last.at}")
                        raise
                twice += 1
    return {"lives": lives, "states after two crashes": twice, "states after three": thrice}


COLUMNS: Final = [
    Column(
        name="crash-states",
        about=f"one recorded trace, {STATES_PER_SEED} states that a crash may leave of it",
        seeds=range(100),
        run=crash_of_a_trace,
    ),
    Column(
        name="crash-twice",
        about="one recorded trace, crashed at every operation, and at every operation of the recovery from that",
        seeds=range(24),
        run=crash_of_a_recovery,
    ),
]
