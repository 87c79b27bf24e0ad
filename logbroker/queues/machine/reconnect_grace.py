"""Workers whose stream broke, and the end of their reconnect grace."""

from __future__ import annotations

from logbroker.group_runtime.deadline_heap import NEVER


class ReconnectGraces:
    """Ends of reconnect graces (monotonic seconds) by worker. The graces are few, and all have about the same
    length."""

    def __init__(self) -> None:
        self._ends: dict[str, float] = {}
        self.next_at = NEVER
        """End of the next grace. May be too early."""

    def __contains__(self, worker_id: str) -> bool:
        return worker_id in self._ends

    def begin(self, worker_id: str, end: float) -> None:
        self._ends[worker_id] = end
        self.next_at = min(self.next_at, end)

    def cancel(self, worker_id: str) -> bool:
        """Cancel the worker's grace; return whether it had one."""
        return self._ends.pop(worker_id, None) is not None

    def pop(self, now: float) -> list[str]:
        """Remove and return the workers whose grace is over."""
        if now < self.next_at:
            return []
        over = [worker_id for worker_id, end in self._ends.items() if end <= now]
        for worker_id in over:
            del self._ends[worker_id]
        self.next_at = min(self._ends.values(), default=NEVER)
        return over
