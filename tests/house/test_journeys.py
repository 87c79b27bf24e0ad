"""The way of a request stays short: docs/ARCHITECTURE.md tells how many calls from module to module it takes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST = {"send": 123, "ack": 60}


@pytest.mark.parametrize("journey", MOST)
def test_a_journey_is_as_short_as_the_map_says(journey: str) -> None:
    # In a process of its own: every call of the broker in it is looked at.
    run = subprocess.run(
        [sys.executable, "-m", "tests.journeys", journey],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found = re.fullmatch(rf"{journey}: (\d+) calls between modules\n", run.stdout)
    assert found is not None, run.stdout
    assert int(found[1]) <= MOST[journey]
    told = re.search(rf"^\| {journey} \|.*\| (\d+) \|$", (ROOT / "docs" / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    assert told is not None
    assert int(told[1]) == MOST[journey]
