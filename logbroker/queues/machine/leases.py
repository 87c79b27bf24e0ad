"""Deliveries in flight: their receipts, holders and deadlines.

Receipts are consecutive integers of 63 bits. They begin at the *group epoch*, a number above every receipt that a group
of this name has ever given out (`engine.Numbers`). So a receipt is never reused, and one range of receipts can name any
number of deliveries.

Deliveries that were handed out together form one *grant*: one entry in the list of grants, which is sorted by first
receipt, and one in the heap of leases. Finding a receipt is a bisection, and the end of a lease costs O(log grants). A
grant consists of lanes or of a run of record ids. Settling part of it leaves a hole among lanes, and cuts a run in two.

Deliveries of a session have no lease of their own: the lock of the session holds them. A worker that settles a lost or
an already settled delivery gets an error that says which of the two it was.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Final

import msgspec

from logbroker.errors import NotHolderError
from logbroker.group_runtime.deadline_heap import DeadlineHeap
from logbroker.queues.model.holders import Grant, LeaseHolder, WorkerSession
from logbroker.queues.model.lane import Lane
from logbroker.queues.model.lost_receipts import Loss, LostReceipts
from logbroker.queues.model.messages import Refusal

COUNTER_BITS: Final = 44
MAX_COUNTED_EPOCH: Final = (1 << 19) - 1
"""Highest group epoch of older brokers, which counted epochs from 1 and used them as the upper bits of receipts."""
FIRST_EPOCH: Final = 1 << COUNTER_BITS

LOST_AT_ONCE: Final = 1_000
"""Number of deliveries that are taken back in one go. Each of them fails, which takes some microseconds."""
_COMPACT_AT: Final = 64


def end_of_epoch(group_epoch: int) -> int:
    """Return a number above a stored epoch. For an epoch that was counted from 1, it is above the receipts of that
    epoch, too."""
    return (group_epoch + 1) << COUNTER_BITS if group_epoch <= MAX_COUNTED_EPOCH else group_epoch + 1


Settled = list[Lane] | range
"""Deliveries to settle: lanes in flight, or record ids of a run."""


def merged(ranges: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    """Return ranges of receipts sorted, with adjacent ranges joined. Overlapping ranges stay apart."""
    if len(ranges) < 2:
        return ranges
    joined: list[tuple[int, int]] = []
    ordered = iter(sorted(ranges))
    first, last = next(ordered)
    for start, end in ordered:
        if start == last + 1 <= end:
            last = end
        else:
            joined.append((first, last))
            first, last = start, end
    joined.append((first, last))
    return joined


class Deliveries:
    """All grants of a queue group."""

    def __init__(self, group_epoch: int) -> None:
        self._first = group_epoch
        self._next = self._first
        self._firsts: list[int] = []
        self._grants: list[Grant] = []
        """Grants in the order of `_firsts`, their first receipts. Some are over."""
        self._over = 0
        self.leases = DeadlineHeap[Grant](attrgetter("deadline"))
        """Leases of the grants that are not over. Grants of sessions have none."""
        self._workers: dict[str, LeaseHolder] = {}
        self._lost = LostReceipts()
        self._now = 0.0
        """Time of the last `pop_expired`. Leases and locks that ended before it are over, even if some of their
        deliveries are not taken back yet."""
        self.in_flight = 0
        self.client_of: Callable[[str], str] = lambda worker_id: ""
        """Returns the client name of a worker that begins to hold something. `WorkerStreams` sets it."""

    @property
    def next_receipt(self) -> int:
        """The next receipt. All receipts given out are below it."""
        return self._next

    # --- workers -----------------------------------------------------------------------------------------------------

    def worker(self, worker_id: str) -> LeaseHolder:
        """Return the worker with this id. A worker is known as long as it holds something."""
        return self._workers.get(worker_id) or LeaseHolder(worker_id, self.client_of(worker_id), {}, {})

    def add_session(self, session: WorkerSession) -> None:
        worker = self._workers[session.worker.id] = session.worker
        worker.sessions[session.key] = session

    def remove_session(self, session: WorkerSession) -> None:
        """Remove a session whose deliveries are already lost."""
        worker = session.worker
        del worker.sessions[session.key]
        self._forget_if_idle(worker)

    def _forget_if_idle(self, worker: LeaseHolder) -> None:
        if not worker.in_flight and not worker.sessions and self._workers.get(worker.id) is worker:
            del self._workers[worker.id]

    def held_by(self, worker_id: str) -> Iterator[tuple[int, int]]:
        """Yield receipt and record id of each delivery that a worker holds."""
        for grant in self.worker(worker_id).grants.values():
            if grant.lanes is None:
                yield from enumerate(grant.record_ids or (), grant.first)
            else:
                yield from (
                    (receipt, lane.head) for receipt, lane in enumerate(grant.lanes, grant.first) if lane is not None
                )

    # --- granting and finding ----------------------------------------------------------------------------------------

    def grant(
        self,
        worker: LeaseHolder,
        lanes: list[Lane] | None,
        record_ids: range | None,
        deadline: float,
        session: WorkerSession | None = None,
        *,
        is_redelivered: bool = False,
    ) -> int:
        """Hand out lanes or a run; return the first receipt."""
        first = self._next
        count = len(lanes) if lanes is not None else len(record_ids or ())
        self._next += count
        # A copy of the list, because None will replace each lane whose delivery is settled.
        grant = Grant(first, worker, deadline, list(lanes) if lanes is not None else None, record_ids, count, session)
        grant.is_redelivered, grant.first_deadline = is_redelivered, deadline
        self._firsts.append(first)
        self._grants.append(grant)
        self._workers[worker.id] = worker
        worker.grants[first] = grant
        worker.in_flight += count
        self.in_flight += count
        if session is None:
            self.leases.arm(grant, deadline, first)
        else:
            session.in_flight += count
            session.grants = [kept for kept in session.grants if kept.left]
            session.grants.append(grant)
        return first

    def select(
        self, worker_id: str, first: int, last: int, refusals: list[Refusal]
    ) -> Iterator[tuple[Grant, int, int]]:
        """Yield the worker's grants that contain receipts `first` to `last`, each with the part (from, to before) in
        this range. Append refusals for the other receipts. The caller may settle or cut a grant before it asks for the
        next."""
        position = first
        while position <= last:
            index = bisect_right(self._firsts, position) - 1
            grant = self._grants[index] if index >= 0 else None
            if grant is not None and grant.left and position < (grant_end := grant.end):
                end = min(last + 1, grant_end)
                if (why := self._gone_by(grant)) is not None:
                    refusals.append(Refusal(position, end - 1, why.of_delivery(session_ended=bool(grant.session))))
                elif grant.worker.id == worker_id:
                    yield grant, position, end
                else:
                    error = NotHolderError("the delivery belongs to another worker: settle only your own deliveries")
                    refusals.append(Refusal(position, end - 1, error))
            else:
                end = min(last + 1, self._next_grant(index + 1))
                self._refuse(position, end, refusals)
            position = end

    def _gone_by(self, grant: Grant) -> Loss | None:
        """Return why a grant is lost; None: it is not lost. A lost grant may still have to be taken back, because only
        so many are taken back at a time."""
        if grant.worker.gone is not None:
            return grant.worker.gone
        if grant.session is not None:
            return Loss.LOCK_ENDED if grant.session.deadline <= self._now else None
        return Loss.LEASE_ENDED if grant.deadline <= self._now else None

    def _next_grant(self, index: int) -> int:
        for grant in self._grants[index : index + 1]:
            return grant.first
        return 1 << 64

    def close(self, grant: Grant, start: int, end: int, refusals: list[Refusal]) -> Settled:
        """Take receipts `start` to before `end` out of a grant, and return their lanes or record ids."""
        if grant.lanes is None:
            piece = self._cut(self._cut(grant, start), end, upper=False)
            record_ids = piece.record_ids or range(0)
            self._finish(piece, piece.left)
            return record_ids
        lanes = grant.lanes
        low, high = start - grant.first, end - grant.first
        taken = lanes[low:high]
        if grant.left == len(lanes):
            settled: list[Lane] = taken  # type: ignore[assignment]  # No holes yet.
        else:
            settled = [lane for lane in taken if lane is not None]
            if len(settled) < len(taken):
                self.refuse_settled(grant, start, end, refusals)
        if len(settled) < grant.left:
            lanes[low:high] = [None] * (high - low)
        self._finish(grant, len(settled))
        return settled

    def _finish(self, grant: Grant, count: int) -> None:
        worker = grant.worker
        grant.left -= count
        worker.in_flight -= count
        self.in_flight -= count
        if grant.session is not None:
            grant.session.in_flight -= count
        if not worker.in_flight:
            self._forget_if_idle(worker)
        if not grant.left:
            del worker.grants[grant.first]
            self.leases.disarm(grant)
            # The heap keeps the grant until its lease would have ended. So free the contents now.
            grant.lanes = grant.record_ids = None
            self._over += 1
            if self._over > _COMPACT_AT and self._over * 2 > len(self._grants):
                self._grants = [kept for kept in self._grants if kept.left]
                self._firsts = [kept.first for kept in self._grants]
                self._over = 0

    def _cut(self, grant: Grant, at: int, *, upper: bool = True) -> Grant:
        """Split a grant before receipt `at`; return the upper or the lower part."""
        if at == grant.first or at == grant.end:
            return grant
        offset = at - grant.first
        lanes = None if grant.lanes is None else grant.lanes[offset:]
        record_ids = None if grant.record_ids is None else grant.record_ids[offset:]
        left = len(record_ids or ()) if lanes is None else len(lanes) - lanes.count(None)
        rest = msgspec.structs.replace(grant, first=at, lanes=lanes, record_ids=record_ids, left=left)
        if grant.lanes is not None:
            del grant.lanes[offset:]
        elif grant.record_ids is not None:
            grant.record_ids = grant.record_ids[:offset]
        grant.left -= left
        index = bisect_right(self._firsts, at)
        self._firsts.insert(index, at)
        self._grants.insert(index, rest)
        # A part whose deliveries are all settled is over at once.
        for part in (grant, rest):
            if part.left:
                part.worker.grants[part.first] = part
            else:
                part.worker.grants.pop(part.first, None)
                self.leases.disarm(part)
                self._over += 1
        if rest.session is not None:
            grants = rest.session.grants
            grants.insert(grants.index(grant) + 1, rest)
        elif rest.left:
            self.leases.arm(rest, rest.deadline, at)
        return rest if upper else grant

    def extend(self, grant: Grant, start: int, end: int, deadline: float, refusals: list[Refusal]) -> None:
        """Set the deadline of receipts `start` to before `end` of a grant."""
        part = self._cut(self._cut(grant, start), end, upper=False)
        if part.left < end - start:
            self.refuse_settled(part, start, end, refusals)
        if part.left:
            part.deadline = deadline
            self.leases.arm(part, deadline, part.first)

    def excuse(self, worker_id: str, first: int, last: int) -> None:
        """Let no attempt be counted if the leases of some receipts end or their worker is lost. Receipts that the
        worker does not hold are ignored."""
        for grant, start, end in self.select(worker_id, first, last, []):
            self._cut(self._cut(grant, start), end, upper=False).excused = True

    def seen(self, worker_id: str) -> None:
        """Note that a worker has seen all its deliveries. If they are lost, an attempt counts."""
        worker = self._workers.get(worker_id)
        for grant in worker.grants.values() if worker is not None else ():
            grant.excused = False

    def refuse_settled(self, grant: Grant, start: int, end: int, refusals: list[Refusal]) -> int:
        """Append refusals for the settled receipts in `start` to before `end` of a grant; return their number."""
        lanes = grant.lanes or []
        settled = [receipt for receipt in range(start, end) if lanes and lanes[receipt - grant.first] is None]
        for receipt in settled:
            self._refuse(receipt, receipt + 1, refusals)
        return len(settled)

    # --- losing ------------------------------------------------------------------------------------------------------

    def pop_expired(self, now: float) -> list[tuple[LeaseHolder, Settled, bool]]:
        """Take out grants whose lease has ended, about `LOST_AT_ONCE` deliveries. Return their workers and contents,
        and whether no attempt counts."""
        self._now = now
        lost: list[tuple[LeaseHolder, Settled, bool]] = []
        room = LOST_AT_ONCE
        while room > 0 and (grant := self.leases.pop(now)) is not None:
            part = self._cut(grant, min(grant.end, grant.first + LOST_AT_ONCE), upper=False)
            held = self._lose(part, Loss.LEASE_ENDED)
            lost.append((part.worker, held, part.excused))
            room -= len(held)
        return lost

    def let_go(self, worker_id: str, why: Loss) -> LeaseHolder | None:
        """Forget a worker and return it, for `lose_some` to take back its deliveries. None: it has nothing."""
        worker = self._workers.pop(worker_id, None)
        if worker is not None:
            worker.gone = why
        return worker

    def lose_some(self, worker: LeaseHolder, why: Loss, *, last: bool) -> tuple[Settled, bool]:
        """Take out the first or the last deliveries of a worker without sessions, at most `LOST_AT_ONCE`. Return them,
        and whether no attempt counts."""
        grants = worker.grants.values()
        grant = next(reversed(grants) if last else iter(grants))
        if last:
            part = self._cut(grant, max(grant.first, grant.end - LOST_AT_ONCE))
        else:
            part = self._cut(grant, min(grant.end, grant.first + LOST_AT_ONCE), upper=False)
        return self._lose(part, why) if part.left else [], part.excused

    def lose_everything(self, why: Loss) -> None:
        """Forget all workers and their deliveries."""
        for grant in [grant for grant in self._grants if grant.left]:
            self._lose(grant, why, ended=grant.session is not None)
        self._workers.clear()

    def lose_from(self, session: WorkerSession, why: Loss, receipt: int = 0, *, ended: bool = False) -> list[Lane]:
        """Take out the deliveries of a session from a receipt on; return them in order."""
        lost: list[Lane] = []
        for grant in list(session.grants):
            if grant.left and grant.end > receipt:
                part = self._cut(grant, max(receipt, grant.first))
                if part.left:
                    lost += [lane for lane in self._lose(part, why, ended=ended) if isinstance(lane, Lane)]
        session.grants = [grant for grant in session.grants if grant.left]
        return lost

    def _lose(self, grant: Grant, why: Loss, *, ended: bool = False) -> Settled:
        if grant.lanes is None:
            self._lost.add(grant.first, grant.end - 1, why, ended=ended)
            held: Settled = grant.record_ids or range(0)
        else:
            held = []
            begun = -1
            for receipt, lane in enumerate((*grant.lanes, None), grant.first):
                if lane is not None:
                    held.append(lane)
                    begun = receipt if begun < 0 else begun
                elif begun >= 0:
                    self._lost.add(begun, receipt - 1, why, ended=ended)
                    begun = -1
        self._finish(grant, grant.left)
        return held

    # --- refusals ----------------------------------------------------------------------------------------------------

    def _refuse(self, position: int, end: int, refusals: list[Refusal]) -> None:
        """Append refusals for receipts `position` to before `end`, which nobody holds."""
        while position < end:
            stop, error = self._lost.why(position, end, given=range(self._first, self._next))
            refusals.append(Refusal(position, stop - 1, error))
            position = stop

    # --- queries -----------------------------------------------------------------------------------------------------

    def next_grant(self, receipt: int) -> Grant | None:
        """Return the first grant from a receipt on. It may be over."""
        index = bisect_left(self._firsts, receipt)
        return self._grants[index] if index < len(self._grants) else None

    def holder_of(self, lane: Lane, receipt: int) -> Grant | None:
        """Return the grant under which a lane was handed out with this receipt, or None if the lane is no longer in
        flight with this receipt."""
        index = bisect_right(self._firsts, receipt) - 1
        grant = self._grants[index] if index >= 0 else None
        if grant is None or grant.lanes is None or not grant.first <= receipt < grant.end:
            return None
        return grant if grant.lanes[receipt - grant.first] is lane else None

    def record_ids(self) -> Iterator[int | range]:
        """Yield the record ids of all deliveries in flight."""
        for grant in self._grants:
            if grant.left:
                if grant.lanes is None:
                    yield grant.record_ids or range(0)
                else:
                    yield from (lane.head for lane in grant.lanes if lane is not None)
