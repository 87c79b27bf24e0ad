"""Counted calls: what work costs, told by no clock, so that no busy machine changes it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Calls:
    """How many functions, of Python and of C, were called."""

    def __init__(self) -> None:
        self.count = 0

    def _seen(self, frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            self.count += 1


@contextmanager
def counted() -> Iterator[Calls]:
    """Count the calls that this thread makes within the block."""
    calls = Calls()
    sys.setprofile(calls._seen)
    try:
        yield calls
    finally:
        sys.setprofile(None)
