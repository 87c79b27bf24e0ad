"""The settings of a queue group while it runs: some change at once, others when all that is in flight is settled.

What makes other lanes, or another line for them, waits: until then nothing is handed out, and then the index is made
anew. So nothing is redelivered by it, and no lane has two records in flight.
"""

from __future__ import annotations

from collections.abc import Sequence

from logbroker.errors import InvalidRequestError
from logbroker.queues.machine.ages import Ages
from logbroker.queues.machine.parts import MachineParts
from logbroker.queues.machine.reindex import Index
from logbroker.queues.machine.sessions import Sessions
from logbroker.queues.model.settings import Ordering, PriorityRank, QueueGroupSettings
from logbroker.queues.priority.policy import policy_of
from logbroker.queues.state.change_set import ChangeSet
from logbroker.queues.state.rows import SETTINGS_ROW, upsert
from logbroker.record.bands import DEFAULT_BANDS, Band


class Alteration:
    """The settings that hold, and those that wait."""

    def __init__(
        self,
        settings: QueueGroupSettings,
        parts: MachineParts,
        index: Index,
        sessions: Sessions,
        ages: Ages,
        changes: ChangeSet,
    ) -> None:
        self.settings = settings
        self.next: QueueGroupSettings | None = None
        """They wait until all that is in flight is settled."""
        self._parts = parts
        self._index = index
        self._sessions = sessions
        self._ages = ages
        self._bands: Sequence[Band] = DEFAULT_BANDS
        self._changes = changes
        changes.events.append(upsert(SETTINGS_ROW, settings))
        self._rank_lanes()

    @property
    def bands(self) -> Sequence[Band]:
        """The most urgent one first: those of the topic, or the default ones."""
        return self._bands

    @bands.setter
    def bands(self, bands: Sequence[Band]) -> None:
        self._bands = bands
        self._rank_lanes()

    @property
    def index_is_broken(self) -> bool:
        """Whether part of the index proved unreadable: nothing is handed out before it is made anew."""
        return self._parts.admission.is_broken or self._parts.lanes.successors.is_broken

    def alter(self, settings: QueueGroupSettings) -> None:
        """See `Queue.alter`."""
        settings.check()
        same_ordering = _ordering(settings) == _ordering(self.settings)
        if not same_ordering and next(self._parts.stalled.parked_lanes(), None) is not None:
            raise InvalidRequestError(
                "lanes are parked by the ordering that the group has: resume or drop them before you change it"
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
        """Let what waits take effect, where nothing is in flight any more. Where part of the index proved unreadable,
        that waits too: it is made anew, under the settings that hold."""
        if self.index_is_broken and self.next is None:
            self._set_when_drained(self.settings)
        if self.next is None or self._parts.deliveries.in_flight:
            return
        keeps_keys = _ordering(self.next) == _ordering(self.settings)
        self._set(self.next)
        self.next = None
        self._index.rebuild(keep_parked=keeps_keys, rank_lanes=self._rank_lanes)
        self._ages.clear()

    def _set_when_drained(self, settings: QueueGroupSettings) -> None:
        self.next = settings
        self._sessions.paused = True

    def _set(self, settings: QueueGroupSettings) -> None:
        self.settings = self._parts.stalled.settings = settings
        self._changes.events.append(upsert(SETTINGS_ROW, settings))

    def _rank_lanes(self) -> None:
        settings = self.settings
        policy = policy_of(settings, self._bands) if settings.has_priorities else None
        self._parts.lanes.rank_by(policy, by_head=settings.priority_rank is PriorityRank.HEAD)


def _ordering(settings: QueueGroupSettings) -> tuple[Ordering, str]:
    """What the keys of lanes depend on."""
    return settings.ordering, settings.key_header


def _ranking(settings: QueueGroupSettings) -> PriorityRank | None:
    """What the line is made for."""
    return settings.priority_rank if settings.has_priorities else None
