"""The changes of a queue since the last `take`: rows to store, and tasks for the group's runtime.

The parts of a queue add their changes as they happen. So `take` need not ask parts that have not changed.
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
        """Return the rows of everything that changed since the last call."""
        ...


class ChangeSet:
    """The changes of one queue."""

    def __init__(self) -> None:
        self.events: list[StateEvent] = []
        """Rows to store."""
        self.sources: dict[RowSource, None] = {}
        """Parts that have more rows to store."""
        self.notices: list[Notice] = []
        self.lost_sessions: list[tuple[WorkerSession, Loss]] = []
        """Sessions that ended against the will of their holders."""
        self.unsent_letters: dict[int, None] = {}
        """Ids of records whose dead letters are to be sent."""
        self.unsent_outputs: list[Any] = []
        """Entries of the outbox (`OutboxEntry`) that are to be sent."""
        self.discarded: list[Any] = []
        """Containers that are no longer used."""
        self.rescan = False
        """Whether the index was emptied."""

    def take(self) -> Outputs:
        """Return and forget the changes, with all rows for one transaction. The dead letters are left out;
        `DeadLetters.take` returns them."""
        events, self.events = self.events, []
        if self.sources:
            sources, self.sources = self.sources, {}
            for source in sources:
                events += source.take_rows()
        outputs = Outputs(
            events, [], list(self.unsent_outputs), self.notices, self.lost_sessions, self.rescan, self.discarded
        )
        self.unsent_outputs.clear()
        self.notices, self.lost_sessions, self.rescan, self.discarded = [], [], False, []
        return outputs


class ChangedRows(Generic[K]):
    """The rows of one kind: which ones are stored, and which ones have to be stored again or deleted."""

    def __init__(
        self, changes: ChangeSet, row_key: Callable[[K], bytes], content: Callable[[K], object | None]
    ) -> None:
        """`content` returns the content for the row of an item; None: the item has no row any more, or never had
        one."""
        self._changes = changes
        self._row_key = row_key
        self._content = content
        self._changed: dict[K, None] = {}
        self._stored: set[K] = set()

    def load(self, item: K) -> None:
        """Note that the item has a row."""
        self._stored.add(item)

    def changed(self, item: K) -> None:
        """Note that the row of the item is to be stored again, or deleted."""
        if not self._changed:
            self._changes.sources[self] = None
        self._changed[item] = None

    def stored(self) -> set[K]:
        """Return all items that have a row. Read-only."""
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
