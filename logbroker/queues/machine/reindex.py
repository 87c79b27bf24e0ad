"""Rebuilding the index of waiting records, for another ordering or from other offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from logbroker.queues.machine.outcomes import Outcomes
from logbroker.queues.machine.parts import MachineParts
from logbroker.queues.machine.sessions import Sessions
from logbroker.queues.machine.splitting import Splitting
from logbroker.queues.model.lost_receipts import Loss
from logbroker.queues.model.record_id import offset_of, partition_of, record_id_of
from logbroker.queues.state import failures as retry
from logbroker.queues.state.change_set import ChangeSet
from logbroker.queues.state.completion import RecordIds


class Index:
    """Empties the parts that hold lanes, and has the partitions scanned again."""

    def __init__(
        self, parts: MachineParts, outcomes: Outcomes, sessions: Sessions, splitting: Splitting, changes: ChangeSet
    ) -> None:
        self._changes = changes
        self._parts = parts
        self._outcomes = outcomes
        self._sessions = sessions
        self._splitting = splitting

    def rebuild(self, *, keep_keys: bool, rank_lanes: Callable[[], None]) -> None:
        """Rebuild the index while nothing is in flight. Without `keep_keys` no key stays parked or split, because the
        lanes will have other keys. `rank_lanes` is called while there are no lanes."""
        if not keep_keys:
            self._parts.stalled.forget_parked(lambda parked: True)
        self._empty(Loss.REARRANGED, rank_lanes)
        if not keep_keys:
            self._splitting.forget_all()

    def rewind(self, targets: Mapping[int, int], *, include_parked: bool, kept: Mapping[int, RecordIds] | None) -> None:
        """See `Queue.rewind`."""
        parts = self._parts
        for partition in targets:
            if not parts.done.is_open(partition):
                raise KeyError(partition)
        self._outcomes.note_handed_out()
        for partition in targets:
            parts.redelivery.mark_below(record_id_of(partition, parts.done.floor(partition)))
        parts.redelivery.note_pages(parts.done.rewind(targets, kept or {}))
        if include_parked:
            parts.stalled.forget_parked(lambda parked: partition_of(parked.head) in targets)
        if kept is None:
            parts.stalled.forget_parked(lambda parked: parked.head in parts.done)
        for record_id in parts.dead_letters.refused():
            if partition_of(record_id) in targets:
                parts.dead_letters.withdraw(record_id)
        parts.replacements.forget_all(
            [record_id for record_id in parts.replacements.records if record_id in parts.done]
        )
        parts.origins.forget_all([record_id for record_id in parts.origins.record_ids() if record_id in parts.done])
        for record_id, failure in list(parts.failures.items()):
            partition = partition_of(record_id)
            if partition not in targets or parts.dead_letters.has_intent(record_id):
                continue
            is_below = offset_of(record_id) < targets[partition]
            stays = not include_parked if failure.state == retry.PARKED else is_below
            if record_id in parts.done or not stays:
                parts.failures.forget(record_id)
                parts.redelivery.returned.add(record_id)
        parts.deliveries.lose_everything(Loss.REWOUND)
        self._empty(Loss.REWOUND)

    def _empty(self, why: Loss, then: Callable[[], None] | None = None) -> None:
        parts = self._parts
        self._outcomes.note_handed_out()
        self._sessions.void(why)
        parts.lanes.clear()
        self._splitting.index_emptied()
        if then is not None:
            then()
        parts.dead_letters.forget_lanes()
        parts.stalled.forget_lanes()
        parts.stalled.expect_all()
        parts.admission.rewind()
        self._outcomes.open_records = 0
        self._changes.rescan = True
