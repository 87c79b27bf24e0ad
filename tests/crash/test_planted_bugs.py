"""The crash loop can fail: each planted bug is found, by what it does. Some of them only a power cut shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.anomalies import BrokenPromisesError
from tests.crash.crash_loop import run
from tests.crash.log_files import BrokenFilesError
from tests.crash.plants import PLANTS

LIVES: Final = 30
TRIES: Final = 8
SYMPTOMS: Final = {
    "ack_before_sync": "was acknowledged at .* there is",
    "torn_tail_kept": "does not keep what was cut off|CORRUPT_BATCH|CORRUPT_LOG|was acknowledged at .* there is",
    "producer_state_forgotten": "UNKNOWN_PRODUCER_ID|one value at two offsets",
    "retry_answered_early": "repeater.* was acknowledged at .* there is",
    "high_watermark_early": "LOG_TRUNCATED|acknowledged or read, then gone|one offset with two values|comes next",
}
SHOWN_BY_A_KILL: Final = {"producer_state_forgotten"}


def test_every_plant_has_its_symptoms() -> None:
    assert SYMPTOMS.keys() == PLANTS.keys()


@pytest.mark.prove
@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_is_found(plant: str, tmp_path: Path) -> None:
    for seed in range(TRIES):
        directory = tmp_path / str(seed)
        directory.mkdir()
        symptoms = ""
        try:
            run(directory, seed, lives=LIVES, volatile=plant not in SHOWN_BY_A_KILL, plant=plant)
        except (BrokenPromisesError, BrokenFilesError) as error:
            symptoms = str(error)
        if symptoms:
            # Others would mean that the plant itself is broken.
            assert re.search(SYMPTOMS[plant], symptoms)
            return
    pytest.fail(f"{plant} was not found in {TRIES * LIVES} lives")
