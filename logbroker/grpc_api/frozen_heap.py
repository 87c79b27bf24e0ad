"""Keep what lives long from the garbage collector's full collections: one looks through everything, and holds the event
loop for 0.5 us for each object (0.1 s beside 10,000 partitions).

Whatever survives a full collection in some number is frozen (gc.freeze): no later collection looks at it. It is freed
as ever when nothing refers to it any more; only frozen objects that refer to each other in a circle would stay after
their end. So when the frozen have become twice as many as there were alive at last, and some, they are thawed, and the
next full collection looks through everything: rarely, as often as the heap doubles, or its garbage outgrows it.
"""

from __future__ import annotations

import gc
from typing import Any, Final

FREEZE_OBJECTS: Final = 50_000
"""What survives a full collection is frozen from so many on: about 5 ms for the collector."""
SPARE_OBJECTS: Final = 1_000_000
"""Frozen objects that there may be beside twice the living ones."""


class FrozenHeap:
    """Freezes after full collections, from `start` to `stop`. One in a process."""

    def __init__(self, freeze_objects: int = FREEZE_OBJECTS, spare_objects: int = SPARE_OBJECTS) -> None:
        self._freeze_objects = freeze_objects
        self._spare_objects = spare_objects
        self._alive = 0
        """Frozen objects when all of them were last found to be alive."""
        self._is_thawed = False
        self.thaws = 0

    def start(self) -> None:
        """Freeze what there is."""
        gc.freeze()
        self._alive = gc.get_freeze_count()
        gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        """Leave the collector as it is without this."""
        gc.callbacks.remove(self._on_collection)
        gc.unfreeze()

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        if phase != "stop" or info["generation"] != 2:
            return
        survivors = len(gc.get_objects(2))
        if survivors < self._freeze_objects:
            return
        if self._is_thawed:
            gc.freeze()
            self._alive = survivors
            self._is_thawed = False
        elif gc.get_freeze_count() + survivors > 2 * self._alive + self._spare_objects:
            # The next full collection is due soon, as by now few objects count as old.
            gc.unfreeze()
            self._is_thawed = True
            self.thaws += 1
        else:
            gc.freeze()
