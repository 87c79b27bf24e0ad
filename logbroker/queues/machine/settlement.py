"""Carries out a settlement: acks, then nacks, releases and extensions.

If the settlement has session states or outputs, they are carried out together with the acks: if one of them is refused,
the whole settlement is refused. Nacks, releases and extensions are refused one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from logbroker.errors import AlreadySettledError, InvalidRequestError, LogbrokerError
from logbroker.queues.machine.leases import Deliveries, Settled, merged
from logbroker.queues.machine.outcomes import Outcomes
from logbroker.queues.machine.sessions import Sessions
from logbroker.queues.machine.stalled_lanes import StalledLanes
from logbroker.queues.model.holders import Grant
from logbroker.queues.model.messages import Extension, Nack, Refusal, Settlement
from logbroker.queues.model.record_id import Moment
from logbroker.queues.model.settings import check_delay, check_lease
from logbroker.queues.state.outbox import TransactionalOutbox


class Settling:
    """Takes deliveries out of flight by their receipts, and passes their records on."""

    def __init__(
        self,
        deliveries: Deliveries,
        outcomes: Outcomes,
        sessions: Sessions,
        stalled: StalledLanes,
        outbox: TransactionalOutbox,
    ) -> None:
        self._deliveries = deliveries
        self._outcomes = outcomes
        self._sessions = sessions
        self._stalled = stalled
        self._outbox = outbox

    def settle(self, worker_id: str, settlement: Settlement, now: Moment) -> list[Refusal]:
        """See `Queue.settle`."""
        refusals: list[Refusal] = []
        if settlement.states or settlement.outputs:
            refusals += self._why_not(worker_id, settlement)
            if refusals:
                return [Refusal(0, 0, refusals[0].error), *(refusal for refusal in refusals if refusal.last)]
            for write in settlement.states:
                self._sessions.write_state(write, now)
            if settlement.outputs:
                self._outbox.put(settlement.outputs)
        self._ack(worker_id, settlement.acks, refusals, now)
        for nack in settlement.nacks:
            self._nack(worker_id, nack, refusals, now)
        for first, last in settlement.releases:
            is_seen = not settlement.are_unseen
            for settled, grant in self._take_back(worker_id, first, last, refusals, now, None, is_seen=is_seen):
                self._outcomes.give_back(settled, is_redelivered=is_seen or grant.is_redelivered)
        for extension in settlement.extensions:
            self._extend(worker_id, extension, refusals, now)
        return refusals

    def wait_until_readable(
        self, worker_id: str, receipts: tuple[int, int], error: LogbrokerError, now: Moment
    ) -> None:
        """See `Queue.wait_until_readable`."""
        for settled, grant in self._take_back(worker_id, *receipts, [], now, None, is_seen=False, unreadable=error):
            self._outcomes.wait_until_readable(settled, error, now, is_redelivered=grant.is_redelivered)

    def _why_not(self, worker_id: str, settlement: Settlement) -> list[Refusal]:
        """Return the refusals that prevent the states and outputs of a settlement from being stored with its acks."""
        refusals: list[Refusal] = []
        try:
            self._sessions.check_states(worker_id, settlement.states)
        except LogbrokerError as error:
            return [Refusal(0, 0, error)]
        end_before = 0
        for first, last in merged(settlement.acks):
            if first < end_before:
                twice = AlreadySettledError(f"the settlement acks receipt {first} twice: ack each delivery once")
                refusals.append(Refusal(first, min(last, end_before - 1), twice))
            end_before = max(end_before, last + 1)
            for grant, start, end in self._deliveries.select(worker_id, first, last, refusals):
                self._deliveries.refuse_settled(grant, start, end, refusals)
        return refusals

    def _ack(self, worker_id: str, acks: Sequence[tuple[int, int]], refusals: list[Refusal], now: Moment) -> None:
        for first, last in merged(acks):
            for grant, start, end in self._deliveries.select(worker_id, first, last, refusals):
                settled = self._deliveries.close(grant, start, end, refusals)
                self._outcomes.tally.acked += len(settled)
                if grant.session is None:
                    self._outcomes.finish(settled, now)
                else:
                    self._sessions.finish(grant.session, settled, now)

    def _nack(self, worker_id: str, nack: Nack, refusals: list[Refusal], now: Moment) -> None:
        try:
            if nack.delay_seconds is not None:
                check_delay(nack.delay_seconds)
        except InvalidRequestError as error:
            refusals.append(Refusal(nack.first, nack.last, error))
            return
        for settled, _ in self._take_back(worker_id, nack.first, nack.last, refusals, now, nack):
            self._outcomes.fail(settled, nack.reason, nack.delay_seconds, now)

    def _take_back(
        self,
        worker_id: str,
        first: int,
        last: int,
        refusals: list[Refusal],
        now: Moment,
        nack: Nack | None,
        *,
        is_seen: bool = True,
        unreadable: LogbrokerError | None = None,
    ) -> Iterator[tuple[Settled, Grant]]:
        """Take receipts out of flight. Yield the records that are outside of sessions, with their grants. Records of
        sessions are put back here."""
        parts = list(self._deliveries.select(worker_id, first, last, refusals))
        for grant, start, end in parts:
            self._deliveries.refuse_settled(grant, start, end, refusals)
        for grant, start, end in parts:
            if not grant.left:
                continue  # The first record of a session took the later ones of the range with it.
            settled = self._deliveries.close(grant, start, end, [])
            if nack is not None:
                self._outcomes.tally.nacked += len(settled)
            if grant.session is None:
                yield settled, grant
            elif nack is None:
                self._sessions.give_back(grant.session, settled, end, now, is_seen=is_seen, unreadable=unreadable)
            else:
                self._sessions.give_back(grant.session, settled, end, now, nack.reason, nack.delay_seconds)

    def _extend(self, worker_id: str, extension: Extension, refusals: list[Refusal], now: Moment) -> None:
        seconds = extension.lease_seconds
        if seconds is None:
            seconds = self._stalled.settings.lease_seconds
        try:
            check_lease(seconds)
        except InvalidRequestError as error:
            refusals.append(Refusal(extension.first, extension.last, error))
            return
        for grant, start, end in self._deliveries.select(worker_id, extension.first, extension.last, refusals):
            if grant.session is None:
                self._deliveries.extend(grant, start, end, now.seconds + seconds, refusals)
            else:
                settled = self._deliveries.refuse_settled(grant, start, end, refusals)
                if settled < end - start:
                    self._sessions.prolong(grant.session, now, seconds)
