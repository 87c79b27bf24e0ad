"""How the index of what waits is made anew: for another ordering, or from other offsets on."""

from __future__ import annotations

from collections.abc import Mapping

from logbroker.queues import retry
from logbroker.queues.dead_letters import DeadLetters
from logbroker.queues.deliveries import Deliveries
from logbroker.queues.done import DoneRecords
from logbroker.queues.held import HeldLanes
from logbroker.queues.intake import Intake
from logbroker.queues.lanes import Lanes
from logbroker.queues.ledger import Ledger
from logbroker.queues.places import partition_of, place_of
from logbroker.queues.redelivery import Redelivery
from logbroker.queues.replacements import Replacements
from logbroker.queues.retry import Failures
from logbroker.queues.sessions import Sessions


class Index:
    """Empties what holds lanes, and has it scanned again."""

    def __init__(
        self,
        done: DoneRecords,
        lanes: Lanes,
        deliveries: Deliveries,
        failures: Failures,
        dead_letters: DeadLetters,
        held: HeldLanes,
        redelivery: Redelivery,
        replacements: Replacements,
        intake: Intake,
        ledger: Ledger,
        sessions: Sessions,
    ) -> None:
        self.rescan = False
        """Emptied, and the shell is not told yet."""
        self._done = done
        self._lanes = lanes
        self._deliveries = deliveries
        self._failures = failures
        self._dead_letters = dead_letters
        self._held = held
        self._redelivery = redelivery
        self._replacements = replacements
        self._intake = intake
        self._ledger = ledger
        self._sessions = sessions

    def rebuild(self, *, keep_parked: bool) -> None:
        """Nothing is in flight. Without `keep_parked` nothing is parked by its key any more: lanes will be others."""
        if not keep_parked:
            self._held.forget_parked(lambda parked: True)
        self._empty()

    def rewind(self, targets: Mapping[int, int], *, include_parked: bool) -> None:
        """See `Queue.rewind`."""
        self._ledger.mark_handed_out()
        for partition, offset in targets.items():
            self._redelivery.mark_below(place_of(partition, self._intake.reached(partition)))
            self._done.rewind(partition, offset)
        if include_parked:
            self._held.forget_parked(lambda parked: partition_of(parked.head) in targets)
        self._replacements.forget_all([place for place in self._replacements.records if place in self._done])
        for place, failure in list(self._failures.items()):
            stays = failure.state == retry.PARKED and not include_parked and place not in self._done
            if partition_of(place) in targets and not stays and not self._dead_letters.has_intent(place):
                self._failures.forget(place)
        self._deliveries.lose_everything()
        self._empty()

    def _empty(self) -> None:
        self._ledger.mark_handed_out()
        self._sessions.void()
        self._lanes.clear()
        self._dead_letters.forget_lanes()
        self._held.forget_lanes()
        self._held.expect_all()
        self._intake.rewind()
        self._ledger.open_records = 0
        self.rescan = True
