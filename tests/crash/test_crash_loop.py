"""The crash loop, as long as a test run bears. `make torture` runs it forty times over.

Each run has a new seed, which is printed when it fails; CRASH_SEED=<seed> sets it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.crash_loop import run
from tests.crash.torture import drawn_seed

pytestmark = pytest.mark.usefixtures("quiet_clients")


def test_killed_brokers_keep_every_promise(tmp_path: Path) -> None:
    with drawn_seed("crash-kill", "CRASH_SEED") as seed:
        figures = run(tmp_path, seed, lives=25)
    assert figures["kills under load"] > 10
    assert figures["sends ok"] > 1000
    assert figures["records polled"] > 1000


def test_power_cuts_take_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    with drawn_seed("crash-power", "CRASH_SEED") as seed:
        figures = run(tmp_path, seed, lives=10, volatile=True)
    assert figures["sends ok"] > 200
