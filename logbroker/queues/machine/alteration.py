"""The settings of a queue group while it runs. Some take effect at once, others after all deliveries in flight are
settled.

Settings that change the keys of lanes, or the kind of the ready queue, have to wait. While they wait, nothing is handed
out. When nothing is in flight any more, they take effect and the index is rebuilt. So the change causes no redelivery,
and no lane has two records in flight.
"""

from __future__ import annotations

from collections.abc import Sequence

from logbroker.errors import InvalidRequestError
from logbroker.queues.machine.parts import MachineParts
from logbroker.queues.machine.reindex import Index
from logbroker.queues.machine.sessions import Sessions
from logbroker.queues.machine.splitting import Splitting
from logbroker.queues.model.settings import Ordering, PriorityRank, QueueGroupSettings
from logbroker.queues.priority.policy import policy_of
from logbroker.queues.records.ages import Ages
from logbroker.queues.state.change_set import ChangeSet
from logbroker.queues.state.rows import SETTINGS_ROW, upsert
from logbroker.record.bands import DEFAULT_BANDS, Band


class Alteration:
    """The settings in effect, and those that wait to take effect."""

    def __init__(
        self,
        settings: QueueGroupSettings,
        parts: MachineParts,
        index: Index,
        sessions: Sessions,
        splitting: Splitting,
        ages: Ages,
        changes: ChangeSet,
    ) -> None:
        self.settings = settings
        self.next: QueueGroupSettings | None = None
        """Settings that wait until all deliveries in flight are settled."""
        self._parts = parts
        self._index = index
        self._sessions = sessions
        self._splitting = splitting
        self._ages = ages
        self._bands: Sequence[Band] = DEFAULT_BANDS
        self._changes = changes
        changes.events.append(upsert(SETTINGS_ROW, settings))
        self._rank_lanes()

    @property
    def bands(self) -> Sequence[Band]:
        """The bands of the topic, or the default ones, the most urgent one first."""
        return self._bands

    @bands.setter
    def bands(self, bands: Sequence[Band]) -> None:
        self._bands = bands
        self._rank_lanes()

    @property
    def index_is_broken(self) -> bool:
        """Whether part of the index proved unreadable. Nothing is handed out until the index is rebuilt."""
        return self._parts.admission.is_broken or self._parts.lanes.successors.is_broken

    def alter(self, settings: QueueGroupSettings) -> None:
        """See `Queue.alter`."""
        settings.check()
        same_ordering = _ordering(settings) == _ordering(self.settings)
        if not same_ordering and next(self._parts.stalled.parked_lanes(), None) is not None:
            raise InvalidRequestError(
                "lanes are parked with keys of the current ordering: resume or drop them before you change it"
            )
        if same_ordering and _ranking(settings) == _ranking(self.settings):
            self.next = None
            self._set(settings)
            self._rank_lanes()
            self._sessions.resume()
        else:
            self._set_when_drained(settings)
        self.rebuild_if_drained()

    def rebuild_if_drained(self) -> None:
        """Put waiting settings into effect and rebuild the index, if nothing is in flight. If part of the index proved
        unreadable, rebuild the index in the same way, with the settings that are in effect."""
        if self.index_is_broken and self.next is None:
            self._set_when_drained(self.settings)
        if self.next is None or self._parts.deliveries.in_flight:
            return
        keeps_keys = _ordering(self.next) == _ordering(self.settings)
        self._set(self.next)
        self.next = None
        self._index.rebuild(keep_keys=keeps_keys, rank_lanes=self._rank_lanes)
        self._ages.clear()

    def rebuild(self) -> None:
        """Rebuild the index with the settings that are in effect, while nothing is in flight."""
        self._index.rebuild(keep_keys=True, rank_lanes=self._rank_lanes)
        self._ages.clear()

    def _set_when_drained(self, settings: QueueGroupSettings) -> None:
        self.next = settings
        self._sessions.paused = True

    def _set(self, settings: QueueGroupSettings) -> None:
        self.settings = self._parts.stalled.settings = settings
        self._splitting.set_settings(settings)
        self._changes.events.append(upsert(SETTINGS_ROW, settings))

    def _rank_lanes(self) -> None:
        settings = self.settings
        policy = policy_of(settings, self._bands) if settings.has_priorities else None
        self._parts.lanes.rank_by(policy, by_head=settings.priority_rank is PriorityRank.HEAD)


def _ordering(settings: QueueGroupSettings) -> tuple[Ordering, str]:
    """Return the settings that determine the keys of lanes."""
    return settings.ordering, settings.key_header


def _ranking(settings: QueueGroupSettings) -> PriorityRank | None:
    """Return the setting that determines the kind of the ready queue."""
    return settings.priority_rank if settings.has_priorities else None
