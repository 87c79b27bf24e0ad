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


@pytest.mark.parametrize("plant", BARRAGES)
def test_a_planted_bug_is_found(plant: str, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, ExceptionGroup)):
        run(tmp_path, 1, 2000, methods=BARRAGES[plant], plant=plant)


async def test_elements_that_are_not_counted_cost_memory(tmp_path: Path) -> None:
    broker = LimitedBroker(tmp_path, memory_bytes=MEMORY_BYTES, plant="elements-uncounted")
    with broker, pytest.raises((AssertionError, grpc.aio.AioRpcError)):
        await empty_elements_are_refused(broker, "Fetch")


def test_every_planted_bug_has_its_test() -> None:
    assert set(PLANTS) == {*BARRAGES, "elements-uncounted"}
