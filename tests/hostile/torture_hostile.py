"""Columns of `make torture` of this folder: a million hostile inputs, and ten minutes of a crowd."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.crash.columns import Column
from tests.hostile import barrage, crowd

INPUTS_PER_SEED: Final = 10_000
CROWD_SECONDS: Final = 60.0


def _inputs(seed: int, directory: Path) -> Mapping[str, int]:
    return barrage.run(directory, seed, INPUTS_PER_SEED)


def _crowd(seed: int, directory: Path) -> Mapping[str, int]:
    return crowd.run(directory, seconds=CROWD_SECONDS, descriptors=crowd.FEW_DESCRIPTORS if seed % 2 else 0)


COLUMNS: Final = [
    Column(
        name="hostile-input",
        about=f"{INPUTS_PER_SEED} malformed requests and batches to a broker under a memory cap",
        seeds=range(100),
        run=_inputs,
    ),
    Column(
        name="hostile-crowd",
        about=f"{CROWD_SECONDS:g} s of {crowd.STALLED} stalled readers and {crowd.CONNECTIONS} connections, every"
        f" second time with {crowd.FEW_DESCRIPTORS} descriptors",
        seeds=range(10),
        run=_crowd,
    ),
]
