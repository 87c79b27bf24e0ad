"""The dispatcher: it turns records granted to a waiting worker into messages."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from logbroker.errors import InvalidRequestError, LogbrokerError, OffsetOutOfRangeError
from logbroker.queues.context import GroupContext
from logbroker.queues.delivery.packing import Unreadable, pack
from logbroker.queues.delivery.pull_line import PullLine, PullRequest, Turn
from logbroker.queues.model.messages import Delivered, Granted, Nack, Settlement
from logbroker.queues.model.record_id import partition_of
from logbroker.queues.model.worker_messages import DISPATCH_BYTES
from logbroker.queues.records.fetch import LATER, NO_BOUND, Records
from logbroker.queues.scan.scanner import Scanner

_log = logging.getLogger(__name__)

MAX_DISPATCH_BYTES: Final = 2 * DISPATCH_BYTES
"""Maximum size of one dispatch; the worker's credit bounds it, too. If more was granted, because the mean size was
wrong, the records beyond it are released."""
SLICE: Final = 512
SLICE_OF_RUN: Final = 4096
"""Number of records with consecutive ids that are fetched at a time, up to half of it more. Their size is known only
then."""


class Dispatcher:
    """The line of one queue group, and the packing of records for the workers that wait in it."""

    def __init__(self, context: GroupContext, scanner: Scanner, records: Records) -> None:
        self._context = context
        self._queue = context.queue
        self._scanner = scanner
        self._records = records
        self.line = PullLine(self._queue, scanner, context.moment)

    async def next(
        self, pull: PullRequest, wait_seconds: float | None = None, *, sessions: bool = False
    ) -> list[Delivered]:
        """Wait in the line until records within the worker's credit are granted. With `sessions`, also wait for records
        of the worker's sessions.

        Return an empty list if the time is over or the worker has left the line. Raises the error that the worker left
        with.
        """
        if wait_seconds is not None and pull.early:
            wait_seconds = await self._scanner.reached(pull.early[-1][0], wait_seconds)
        waiting = self.line.join(pull, sessions=sessions)
        if pull.credit or self._queue.sessions.ready():
            self._context.serve()
        try:
            if wait_seconds is None:
                turn = await waiting
            else:
                async with asyncio.timeout(wait_seconds):
                    turn = await waiting
        except TimeoutError:
            # Records granted at this very moment are handed out: releasing them would only delay them.
            late = self.line.leave(pull)
            return [] if late is None else await self._pack(pull, late)
        except BaseException:
            self.leave(pull)
            raise
        if pull.turn is not waiting:
            return []  # The worker left the line before this task ran, and its grant was taken back.
        pull.turn = None
        return await self._pack(pull, turn)

    def leave(self, pull: PullRequest, unsent: Iterable[Delivered] = (), error: LogbrokerError | None = None) -> None:
        """Leave the line; release the granted deliveries, and `unsent`."""
        turn = self.line.leave(pull, error)
        granted = turn.granted if turn is not None else ()
        self.release(pull.worker_id, [*map(_receipts, granted), *map(_receipts, unsent)])

    def release(self, worker_id: str, receipts: Sequence[tuple[int, int]], *, are_unseen: bool = True) -> None:
        """Release deliveries that never reached a worker: ranges of receipts in the order in which they were handed
        out, which is also the order in which they are handed out again. `are_unseen`: they never left the broker."""
        if receipts:
            # Each released range goes to the front of the line.
            settlement = Settlement(releases=receipts[::-1], are_unseen=are_unseen)
            self._queue.settle(worker_id, settlement, self._context.moment())
            self._context.touched()

    async def _pack(self, pull: PullRequest, turn: Turn) -> list[Delivered]:
        """Pack granted records into messages; release those that would make the messages too large."""
        packed: list[Delivered] = []
        size_bytes = 0
        slices = [piece for whole in turn.granted for piece in _sliced(whole)]
        session = None if turn.session is None else (turn.session.token, turn.session.key)
        left_bytes = pull.left_bytes(0 if session is None else session[0])
        credit_bytes = NO_BOUND if left_bytes is None else max(1, left_bytes)
        max_bytes = min(MAX_DISPATCH_BYTES, credit_bytes)
        unused = 0
        unsent: list[tuple[int, int]] = []
        is_full = False
        try:
            for piece in slices:
                if is_full:
                    unused += len(piece)
                    unsent.append(_receipts(piece))
                    continue
                if packed:
                    await asyncio.sleep(0)  # Packing cached records does not let other tasks run.
                result = await pack(
                    self._records,
                    piece,
                    session=session,
                    replacements=self._queue.replacements.records,
                    max_bytes=max_bytes - size_bytes,
                    credit_bytes=credit_bytes - size_bytes,
                    max_stored_bytes=NO_BOUND if pull.window_bytes is None else pull.window_bytes,
                )
                packed += result.delivered
                size_bytes += sum(len(each.batches) for each in result.delivered)
                unused += len(result.unreadable)
                for each in result.unreadable:
                    if each.error is LATER:
                        unsent.append((each.receipt, _receipts(piece)[1]))
                        break
                    self._drop(pull.worker_id, each)
                if self._queue.stalled.read_failures.by_partition:
                    unread = {each.record_id for each in result.unreadable}
                    self._note_read(record_id for record_id in piece.record_ids if record_id not in unread)
                # In a session, no record may overtake one that will be redelivered.
                is_full = (
                    size_bytes >= max_bytes or result.leaves_out or (session is not None and bool(result.unreadable))
                )
        except BaseException:
            self.release(pull.worker_id, [_receipts(piece) for piece in slices])
            raise
        # In one call: pieces that are released one by one would be redelivered in the opposite order.
        self.release(pull.worker_id, unsent)
        if session is None and unused:
            self.line.credited(pull, unused)
        for delivered in packed:
            delivered.granted_at = turn.granted_at
        if packed:
            self.line.observe(sum(each.count for each in packed), size_bytes)
        return packed

    def _drop(self, worker_id: str, unreadable: Unreadable) -> None:
        """Settle a record that cannot be handed out. It is done if it was deleted from the log, and failed if it can be
        read but not decoded. Otherwise it waits until it can be read."""
        receipt, error = unreadable.receipt, unreadable.error
        if isinstance(error, OffsetOutOfRangeError):
            self._queue.expire(worker_id, receipt, self._context.moment())
        elif not isinstance(error, InvalidRequestError):
            partition = partition_of(unreadable.record_id)
            if partition not in self._queue.stalled.read_failures.by_partition:
                _log.warning(
                    "queue group %s: records of partition %d cannot be read, and wait; no attempt is counted: %s",
                    self._context.group_id,
                    partition,
                    error.message,
                )
            self._queue.wait_until_readable(worker_id, (receipt, receipt), error, self._context.moment())
        else:
            _log.warning("queue group %s: a record cannot be handed out: %s", self._context.group_id, error.message)
            nack = Nack(receipt, receipt, error.message)
            self._queue.settle(worker_id, Settlement(nacks=[nack]), self._context.moment())
        self._context.touched()

    def _note_read(self, record_ids: Iterable[int]) -> None:
        """Note that these records were read, and forget earlier failures to read them."""
        failures = self._queue.stalled.read_failures
        before = set(failures.by_partition)
        failures.forget_all(record_ids)
        for partition in before.difference(failures.by_partition):
            _log.info("queue group %s: partition %d can be read again", self._context.group_id, partition)


def _receipts(given: Granted | Delivered) -> tuple[int, int]:
    """Return the first and the last receipt."""
    count = given.count if isinstance(given, Delivered) else len(given)
    return given.first_receipt, given.first_receipt + count - 1


def _sliced(granted: Granted) -> Iterator[Granted]:
    """Yield slices of granted records, of about the same size, so that few records are in memory at a time."""
    count = len(granted)
    slices = max(1, round(count / (SLICE_OF_RUN if isinstance(granted.record_ids, range) else SLICE)))
    if slices == 1:
        yield granted
        return
    size = math.ceil(count / slices)
    for start in range(0, count, size):
        end = start + size
        yield Granted(
            granted.first_receipt + start,
            granted.record_ids[start:end],
            granted.attempts[start:end],
            granted.redelivered[start:end],
        )
