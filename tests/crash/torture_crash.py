"""The crash loop's columns of `make torture`: 1,000 lives of brokers that are killed, 1,000 that lose their power."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.crash.columns import Column
from tests.crash.crash_loop import run

_LIVES: Final = 50


def _killed(seed: int, directory: Path) -> Mapping[str, int]:
    return run(directory, seed, lives=_LIVES)


def _power_cut(seed: int, directory: Path) -> Mapping[str, int]:
    return run(directory, seed, lives=_LIVES, volatile=True)


COLUMNS: Final = [
    Column(
        name="crash-kill",
        about=f"{_LIVES} lives of a broker killed under load, with 5 senders and 2 readers",
        seeds=range(20),
        run=_killed,
    ),
    Column(
        name="crash-power",
        about=f"{_LIVES} lives of a broker that loses what it has not synced",
        seeds=range(20),
        run=_power_cut,
    ),
]
