"""The barrage finds what it is for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest

from tests.hostile.barrage import MEMORY_BYTES, run
from tests.hostile.broker import LimitedBroker
from tests.hostile.plants import PLANTS
from tests.hostile.test_requests import empty_elements_are_refused

BARRAGES: dict[str, Sequence[str]] = {
    "bombs-expand": ("Produce", "Fetch"),
    "lengths-unchecked": ("Produce",),
    "varints-without-end": ("Produce",),
    "transport-parses": (),
    "batches-unchecked": ("Produce", "Fetch"),
}
"""The methods that show a bug soonest; none: all. Elements that are not counted have a test of their own."""


SEEDS = 5


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("plant", BARRAGES)
def test_a_planted_bug_is_found(plant: str, tmp_path: Path) -> None:
    """Within a few seeds: which input meets the bug first depends on what was sent beside it."""
    for seed in range(1, SEEDS + 1):
        directory = tmp_path / str(seed)
        directory.mkdir()
        try:
            run(directory, seed, 2000, methods=BARRAGES[plant], plant=plant)
        except (AssertionError, ExceptionGroup):
            return
    pytest.fail(f"{plant} is not found by {SEEDS} seeds")


@pytest.mark.prove
async def test_elements_that_are_not_counted_cost_memory(tmp_path: Path) -> None:
    broker = LimitedBroker(tmp_path, memory_bytes=MEMORY_BYTES, plant="elements-uncounted")
    with broker, pytest.raises((AssertionError, grpc.aio.AioRpcError)):
        await empty_elements_are_refused(broker, "Fetch")


def test_every_planted_bug_has_its_test() -> None:
    assert set(PLANTS) == {*BARRAGES, "elements-uncounted"}
