"""The crash loop can fail: each planted bug is found. Bugs that only a power cut shows are planted with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.crash_loop import run
from tests.crash.plants import PLANTS

LIVES = 8
TRIES = 6
NEEDS_POWER_CUT = {"ack_before_sync", "torn_tail_kept", "retry_answered_early", "high_watermark_early"}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_is_found(plant: str, tmp_path: Path) -> None:
    for seed in range(TRIES):
        directory = tmp_path / str(seed)
        directory.mkdir()
        try:
            run(directory, seed, lives=LIVES, volatile=plant in NEEDS_POWER_CUT, plant=plant)
        except AssertionError as error:
            print(f"{plant}: found by seed {seed}: {error}")  # noqa: T201
            return
    pytest.fail(f"{plant} was not found in {TRIES * LIVES} lives")
