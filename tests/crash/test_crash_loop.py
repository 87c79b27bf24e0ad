"""The crash loop, as long as a test run bears. `make torture` runs it twenty times over.

Each run has a new seed, which is printed when it fails; CRASH_SEED=<seed> sets it.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.crash.crash_loop import run
from tests.crash.torture import repeat_command


@pytest.fixture
def seed() -> int:
    return int(os.environ.get("CRASH_SEED") or random.randrange(10**6))


def told(seed: int, column: str) -> str:
    return f"seed {seed} failed; repeat it: {repeat_command(column, seed)}"


def test_fifty_killed_brokers_keep_every_promise(tmp_path: Path, seed: int) -> None:
    try:
        figures = run(tmp_path, seed, lives=50)
    except BaseException as error:
        error.add_note(told(seed, "crash-kill"))
        raise
    assert figures["kills under load"] > 20
    assert figures["sends ok"] > 1000
    assert figures["records polled"] > 1000


def test_power_cuts_take_nothing_that_was_acknowledged(tmp_path: Path, seed: int) -> None:
    try:
        figures = run(tmp_path, seed, lives=10, volatile=True)
    except BaseException as error:
        error.add_note(told(seed, "crash-power"))
        raise
    assert figures["sends ok"] > 200
