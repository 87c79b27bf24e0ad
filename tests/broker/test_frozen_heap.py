"""Full collections look through little, however much lives, and what dies in circles is freed after all.

Counted in objects, in a process of its own: the collector is one for the process.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

FREEZE: Final = 5_000
SPARE: Final = 40_000

COMMON: Final = f"""
import gc
from logbroker.broker.frozen_heap import FrozenHeap

class Node:
    def __init__(self):
        self.me = self

def collect():
    # As the collector does by itself.
    gc.collect()

def tracked():
    return gc.get_freeze_count() + len(gc.get_objects())

heap = FrozenHeap(freeze_objects={FREEZE}, spare_objects={SPARE})
collect()
heap.start()
start = tracked()
"""

GROWTH: Final = f"""
kept = []
walked = []
for _ in range(100):
    kept.append([[] for _ in range(5000)])
    collect()
    walked.append(len(gc.get_objects()))
assert sorted(walked)[-8] < 3 * {FREEZE}, walked
assert 1 <= heap.thaws <= 8, heap.thaws
del kept, walked
collect()
assert tracked() < start + {FREEZE} * 3, (tracked(), start)
"""
"""Lists die by their count of references, frozen or not."""

GARBAGE: Final = f"""
most = 0
for _ in range(100):
    held = [Node() for _ in range(6000)]
    collect()
    assert gc.get_freeze_count() or heap._is_thawed
    del held
    most = max(most, tracked())
assert most < 2 * start + {SPARE} + 10 * {FREEZE}, (most, start)
assert heap.thaws >= 2
"""
"""Each round freezes circles, which then die."""

STOPPED: Final = """
held = [Node() for _ in range(6000)]
collect()
heap.stop()
assert not gc.callbacks and not gc.get_freeze_count()
del held
collect()
assert tracked() < start + 2000
"""


@pytest.mark.parametrize("steps", [GROWTH, GARBAGE, STOPPED], ids=["growth", "garbage", "stopped"])
def test_little_is_walked_and_little_is_left(steps: str) -> None:
    done = subprocess.run([sys.executable, "-c", COMMON + steps], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
