"""The columns of `make torture` in which a broker's engine is killed, or a call of it fails."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from tests.crash.columns import Column
from tests.fast_directory import fast_directory
from tests.faults import engine_lives, failing_files, hooked_files
from tests.faults.engine_trace import STEPS, Step, random_steps

_STEPS: Final = 40


def _steps(seed: int) -> Sequence[Step]:
    return random_steps(seed, _STEPS) if seed else STEPS


def killed_engine(seed: int, directory: Path) -> Mapping[str, int]:
    _be_quiet()
    chance = random.Random(seed)
    return engine_lives.kill_everywhere(directory / "life", _steps(seed), lambda _nth: chance.randint(1, 30))


def failing_calls(seed: int, _directory: Path) -> Mapping[str, int]:
    _be_quiet()
    figures: Counter[str] = Counter()
    for call, number in failing_files.PAIRS:
        figures["of a partition"] += _told(partial(failing_files.loses_nothing, seed, call, number))
    with fast_directory() as directory:
        for kind, number in hooked_files.PAIRS:
            life = partial(engine_lives.failing_life, directory / "life", _steps(seed), kind, number)
            figures["of an engine"] += _told(life)
    return figures


def _told(fails: Callable[[int], bool]) -> int:
    """Let the first call fail, the second and so on, to the last; returns how many there were."""
    return next(nth - 1 for nth in count(1) if not fails(nth))


def _be_quiet() -> None:
    logging.getLogger("logbroker").setLevel(logging.CRITICAL + 1)


COLUMNS: Final = [
    Column(
        name="killed-engine",
        about=f"one life of {_STEPS} steps killed at every call that changes a file, and again in its recovery",
        seeds=range(10),
        run=killed_engine,
    ),
    Column(
        name="failing-calls",
        about="every call of a partition's and of an engine's life fails, in every way",
        seeds=range(6),
        run=failing_calls,
    ),
]
