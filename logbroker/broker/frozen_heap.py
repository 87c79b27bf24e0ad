"""Keeps long-lived objects out of full garbage collections. A full collection visits every object, and blocks the event
loop for 0.5 us per object (0.1 s with 10,000 partitions).

If many objects survive a full collection, they are frozen (gc.freeze), and no later collection visits them. Reference
counting still frees frozen objects, except those in a reference cycle. So all objects are thawed when the frozen ones,
with the survivors that would be frozen now, are more than 2 * N + SPARE_OBJECTS. N is the number of objects that were
alive when a collection last visited everything. The next full collection then visits everything. This is rare: it
happens when the heap doubles, or when there is more garbage than living objects.
"""

from __future__ import annotations

import gc
from typing import Any, Final

FREEZE_OBJECTS: Final = 50_000
"""Minimum number of survivors of a full collection for a freeze: to visit so many takes about 25 ms."""
SPARE_OBJECTS: Final = 1_000_000
"""Number of frozen objects allowed above twice the number of living objects."""


class FrozenHeap:
    """Freezes what survives full collections, from `start` to `stop`. A process has one."""

    def __init__(self, freeze_objects: int = FREEZE_OBJECTS, spare_objects: int = SPARE_OBJECTS) -> None:
        self._freeze_objects = freeze_objects
        self._spare_objects = spare_objects
        self._alive = 0
        """Number of objects that were alive when a full collection last visited all of them; at first, the number of
        all objects at `start`."""
        self._is_thawed = False
        self.thaws = 0

    def start(self) -> None:
        """Freeze all objects that exist now, and watch the collections."""
        gc.freeze()
        self._alive = gc.get_freeze_count()
        gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        """Restore the collector to its normal state."""
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
            # The next full collection comes soon, because few objects count as old now.
            gc.unfreeze()
            self._is_thawed = True
            self.thaws += 1
        else:
            gc.freeze()
