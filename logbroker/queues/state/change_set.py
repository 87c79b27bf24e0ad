"""What the inputs to a queue led to since the shell took the last outputs.

The parts of a queue put in what they change, as it changes. So nobody asks the parts that did not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar

from logbroker.engine import StateEvent
from logbroker.queues.model.holders import WorkerSession
from logbroker.queues.model.lost_receipts import Loss
from logbroker.queues.model.messages import Notice, Outputs
from logbroker.queues.state.rows import delete, upsert

K = TypeVar("K", bound=Hashable)


class RowSource(Protocol):
    """A part of a queue that has rows to store."""

    def take_rows(self) -> list[StateEvent]:
        """Return the rows of all that changed since the last call."""
        ...


class ChangeSet:
    """The changes of one queue."""

    def __init__(self) -> None:
        self.events: list[StateEvent] = []
        """Rows as they are to be stored."""
        self.sources: dict[RowSource, None] = {}
        """Parts with more rows."""
        self.notices: list[Notice] = []
        self.lost_sessions: list[tuple[WorkerSession, Loss]] = []
        """Sessions that ended without their holder's wish."""
        self.unsent_letters: dict[int, None] = {}
        """Ids of records whose dead letters are to be sent."""
        self.discarded: list[Any] = []
        """Containers that nobody refers to any more."""
        self.rescan = False
        """The index was emptied."""

    def take(self) -> Outputs:
        """Return the changes, all rows as one transaction, and forget them; without the dead letters, which are made of
        what the rows are made of."""
        events, self.events = self.events, []
        if self.sources:
            sources, self.sources = self.sources, {}
            for source in sources:
                events += source.take_rows()
        outputs = Outputs(events, [], self.notices, self.lost_sessions, self.rescan, self.discarded)
        self.notices, self.lost_sessions, self.rescan, self.discarded = [], [], False, []
        return outputs


class ChangedRows(Generic[K]):
    """Which rows of one kind are stored, and which are to be stored anew or deleted."""

    def __init__(
        self, changes: ChangeSet, row_key: Callable[[K], bytes], content: Callable[[K], object | None]
    ) -> None:
        """`content` returns what the row of something is to hold; None: it has no row (any more)."""
        self._changes = changes
        self._row_key = row_key
        self._content = content
        self._changed: dict[K, None] = {}
        self._stored: set[K] = set()

    def load(self, item: K) -> None:
        """There is a row of this."""
        self._stored.add(item)

    def changed(self, item: K) -> None:
        """The row of this is to be stored anew, or deleted."""
        if not self._changed:
            self._changes.sources[self] = None
        self._changed[item] = None

    def stored(self) -> set[K]:
        """All that have a row. Only to be read."""
        return self._stored

    def take_rows(self) -> list[StateEvent]:
        """See `RowSource`."""
        events: list[StateEvent] = []
        for item in self._changed:
            content = self._content(item)
            if content is not None:
                self._stored.add(item)
                events.append(upsert(self._row_key(item), content))
            elif item in self._stored:
                self._stored.discard(item)
                events.append(delete(self._row_key(item)))
        self._changed.clear()
        return events
