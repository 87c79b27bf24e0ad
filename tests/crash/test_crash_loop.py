"""The crash loop, as long as a test run bears. `make torture` runs it forty times over.

Each run has a new seed, which is printed when it fails; CRASH_SEED=<seed> sets it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.crash_loop import run
from tests.crash.torture import drawn_seed
from tests.speeds import examples

pytestmark = pytest.mark.usefixtures("quiet_clients")


@pytest.mark.twice
def test_killed_brokers_keep_every_promise(tmp_path: Path) -> None:
    lives = examples(4, 25)
    with drawn_seed("crash-kill", "CRASH_SEED") as seed:
        figures = run(tmp_path, seed, lives=lives)
    assert figures["kills under load"] > lives // 4
    assert figures["sends ok"] > 40 * lives
    assert figures["records polled"] > 40 * lives


@pytest.mark.prove
@pytest.mark.twice
def test_power_cuts_take_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    lives = examples(3, 10)
    with drawn_seed("crash-power", "CRASH_SEED") as seed:
        figures = run(tmp_path, seed, lives=lives, volatile=True)
    assert figures["sends ok"] > 20 * lives
