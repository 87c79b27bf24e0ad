"""To wait for what comes, without an event to tell of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_LOOK_SECONDS: Final = 0.01


def until(holds: Callable[[], object], seconds: float = 20.0) -> None:
    """Look until a condition holds; fail where it does not come true in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"it did not come true within {seconds:g} s"
        time.sleep(_LOOK_SECONDS)
