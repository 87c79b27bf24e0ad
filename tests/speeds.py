"""The two speeds of the tests: `make test` runs few examples of what `make prove` runs many of."""

from __future__ import annotations

import os
from typing import Final

SPEED: Final = "LOGBROKER_TESTS"
FAST: Final = "fast"
ALL: Final = "all"
REST: Final = "rest"
"""Tests that are left out, or shortened, at the speed `fast`."""


def examples(few: int, many: int) -> int:
    """Return how many examples to try, at the speed of this run."""
    return few if os.environ.get(SPEED) == FAST else many
