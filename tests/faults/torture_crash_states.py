"""What `make torture` runs of this folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.crash.columns import Column
from tests.faults.crash_trace import Trace

STATES_PER_SEED = 1000


def crash_states(seed: int, _directory: Path) -> Mapping[str, int]:
    """Check the states that a crash may leave of one recorded trace."""
    trace = Trace(seed).run(steps=20 + seed % 20)
    for number, state in enumerate(trace.states(STATES_PER_SEED)):
        try:
            trace.check(state)
        except Exception as error:
            error.add_note(f"seed {seed}, state {number}: {state.about}, after operation {state.at}")
            raise
    return {"states": STATES_PER_SEED, "operations": len(trace.files.ops)}


COLUMNS = [
    Column(
        name="crash-states",
        about=f"one recorded trace, {STATES_PER_SEED} states that a crash may leave of it",
        seeds=range(100),
        run=crash_states,
    )
]
