"""Columns of seeds, which `make torture` runs.

A module `tests/<folder>/torture_<name>.py` registers its columns by a list `COLUMNS`; nothing else has to be changed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).resolve().parents[2]


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of test. A seed is one piece of work: a few seconds to a few minutes, done in a process of its own."""

    name: str
    about: str
    """One line that says what a seed does."""
    seeds: Sequence[int]
    run: Callable[[int, Path], Mapping[str, int]]
    """Takes a seed and an empty directory; returns figures, which are added up; raises where it fails."""
    timeout_seconds: float = 900.0


def all_columns() -> list[Column]:
    """Return what the test folders register, in the order of their modules' names."""
    found: list[Column] = []
    for path in sorted(ROOT.glob("tests/*/torture_*.py")):
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        found += module.COLUMNS
    return found
