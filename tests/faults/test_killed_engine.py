"""SIGKILL at every write, sync, rename, removal and commit of one life, and again while the next one recovers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.engine_plants import PLANTS


def lives(*plants: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.faults.engine_lives", *plants]
    root = Path(__file__).resolve().parents[2]
    return subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=120, check=False)


@pytest.mark.prove
def test_a_kill_at_any_call_keeps_every_promise() -> None:
    result = lives()
    assert result.returncode == 0, result.stderr[-4000:]
    figures = {name: int(count) for name, count in re.findall(r"'([a-z ]+)': (\d+)", result.stdout)}
    assert figures["kills"] > 300
    assert figures["kills in recovery"] > 80


@pytest.mark.prove
@pytest.mark.parametrize("plant", PLANTS)
def test_the_bug_is_caught(plant: str) -> None:
    result = lives(plant)
    assert result.returncode == 1
    assert "killed at call " in result.stderr
