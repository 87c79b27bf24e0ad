"""The dispatcher: from a worker's place in the line to the messages that it is sent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from logbroker.errors import LogbrokerError, OffsetOutOfRangeError
from logbroker.queues.context import GroupContext
from logbroker.queues.delivery.packing import Unreadable, pack
from logbroker.queues.delivery.pull_line import PullLine, PullRequest, Turn
from logbroker.queues.model.messages import Delivered, Granted, Nack, Settlement
from logbroker.queues.model.worker_messages import DISPATCH_BYTES
from logbroker.queues.records.fetch import LATER, Records
from logbroker.queues.scan.scanner import Scanner

_log = logging.getLogger(__name__)

MAX_DISPATCH_BYTES: Final = 2 * DISPATCH_BYTES
"""What was granted beyond it, by a mean size that was wrong, is given back."""
SLICE: Final = 512
SLICE_OF_RUN: Final = 4096
"""Records that are fetched at a time: their size is not known before."""


class Dispatcher:
    """The line of one queue group, and what those who wait in it are handed."""

    def __init__(self, context: GroupContext, scanner: Scanner, records: Records) -> None:
        self._context = context
        self._queue = context.queue
        self._scanner = scanner
        self._records = records
        self.line = PullLine(self._queue, scanner, context.moment)

    async def next(
        self, pull: PullRequest, wait_seconds: float | None = None, *, sessions: bool = False
    ) -> list[Delivered]:
        """Wait for records: in the line, within the credit, and with `sessions` for those of the worker's sessions.

        None come where the time is over, or the worker left the line meanwhile. Raises what it left with.
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
            # What was granted at that very moment is handed out: given back, it would have been out of the line for
            # nobody, and would be marked as a repeat.
            late = self.line.leave(pull)
            return [] if late is None else await self._pack(pull, late)
        except BaseException:
            self.leave(pull)
            raise
        if pull.turn is not waiting:
            return []  # It left meanwhile, and what was granted was taken back.
        pull.turn = None
        return await self._pack(pull, turn)

    def leave(self, pull: PullRequest, unsent: Iterable[Delivered] = (), error: LogbrokerError | None = None) -> None:
        """Wait no more; what was granted, and what is not sent, is given back."""
        turn = self.line.leave(pull, error)
        granted = turn.granted if turn is not None else ()
        self.release(pull.worker_id, [*map(_receipts, granted), *map(_receipts, unsent)])

    def release(self, worker_id: str, receipts: Sequence[tuple[int, int]]) -> None:
        """Give back what a worker never saw: ranges in the order in which they were handed out, and are again."""
        if receipts:
            # Each comes to the front of the line.
            self._queue.settle(worker_id, Settlement(releases=receipts[::-1]), self._context.moment())
            self._context.touched()

    async def _pack(self, pull: PullRequest, turn: Turn) -> list[Delivered]:
        """Put what was granted into messages; what would make them too large is given back."""
        packed: list[Delivered] = []
        size_bytes = 0
        slices = [piece for whole in turn.granted for piece in _sliced(whole)]
        session = None if turn.session is None else (turn.session.token, turn.session.key)
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
                    await asyncio.sleep(0)  # What is kept in memory is packed without a wait.
                result = await pack(
                    self._records,
                    piece,
                    session=session,
                    replacements=self._queue.replacements.records,
                    max_bytes=MAX_DISPATCH_BYTES,
                )
                packed += result.delivered
                size_bytes += sum(len(each.batches) for each in result.delivered)
                unused += len(result.unreadable)
                for each in result.unreadable:
                    if each.error is LATER:
                        unsent.append((each.receipt, _receipts(piece)[1]))
                        break
                    self._drop(pull.worker_id, each)
                # In a session nothing goes ahead of a record that comes again.
                is_full = (
                    size_bytes >= MAX_DISPATCH_BYTES
                    or result.leaves_out
                    or (session is not None and bool(result.unreadable))
                )
        except BaseException:
            self.release(pull.worker_id, [_receipts(piece) for piece in slices])
            raise
        # At once: of pieces that are given back one by one, the last would come first.
        self.release(pull.worker_id, unsent)
        if session is None and unused:
            self.line.credited(pull, unused)
        for delivered in packed:
            delivered.granted_at = turn.granted_at
        if packed:
            self.line.observe(sum(each.count for each in packed), size_bytes)
        return packed

    def _drop(self, worker_id: str, unreadable: Unreadable) -> None:
        """A record cannot be handed out: one that retention took is done, any other failed."""
        receipt, error = unreadable.receipt, unreadable.error
        if isinstance(error, OffsetOutOfRangeError):
            self._queue.expire(worker_id, receipt, self._context.moment())
        else:
            _log.warning("queue group %s: a record cannot be handed out: %s", self._context.group_id, error.message)
            nack = Nack(receipt, receipt, error.message)
            self._queue.settle(worker_id, Settlement(nacks=[nack]), self._context.moment())
        self._context.touched()


def _receipts(given: Granted | Delivered) -> tuple[int, int]:
    """The first and the last."""
    count = given.count if isinstance(given, Delivered) else len(given)
    return given.first_receipt, given.first_receipt + count - 1


def _sliced(granted: Granted) -> Iterator[Granted]:
    """Yield parts that fit the memory, however large the records are."""
    size = SLICE_OF_RUN if isinstance(granted.record_ids, range) else SLICE
    if len(granted) <= size:
        yield granted
        return
    for start in range(0, len(granted), size):
        end = start + size
        yield Granted(
            granted.first_receipt + start,
            granted.record_ids[start:end],
            granted.attempts[start:end],
            granted.redelivered[start:end],
        )
