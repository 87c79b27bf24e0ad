"""Refusals leave nothing behind in the broker, however many items of a request, or requests, are refused.

An error that is kept keeps, by its traceback, the request and the answer; one that is put into a list leaves a cycle
for the garbage collector, whose full collections hold the event loop. Here the collector is off, and counts.
"""

from __future__ import annotations

import asyncio
import gc
from types import FrameType, TracebackType
from typing import Final

import pytest

from tests.grpc_api.test_turns import CASES, FEW, METHODS, Scene, stage
from tests.grpc_api.turns import Served

__all__ = ["stage"]

MOST_GARBAGE: Final = FEW
"""Objects in cycles that a call may leave: those of its task, not one for each item."""
SLACK: Final = 20
"""Frames by which what the broker does by itself may differ between two moments."""


def _frames() -> int:
    return sum(isinstance(each, FrameType | TracebackType) for each in gc.get_objects())


async def _call(served: Served, scene: Scene, name: str) -> int:
    """Make all calls of a case, and return the most objects in cycles that one of them left."""
    most = 0
    method = METHODS[name]
    async for requests in CASES[name](scene):
        for _ in range(3):
            await asyncio.sleep(0)  # What came before the call ends.
        gc.collect()
        await served.call(method, requests if method.client_streaming else [requests], aborts=True)
        del requests
        for _ in range(3):
            await asyncio.sleep(0)
        most = max(most, gc.collect())
    return most


@pytest.mark.prove
@pytest.mark.parametrize("name", CASES)
def test_a_call_leaves_no_frames_and_hardly_a_cycle(stage: tuple[asyncio.Runner, Scene], name: str) -> None:
    runner, scene = stage
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        assert runner.run(_call(scene.served, scene, name)) < MOST_GARBAGE
        before = _frames()
        runner.run(_call(scene.served, scene, name))
        assert _frames() - before < SLACK
    finally:
        gc.enable()
        gc.unfreeze()
