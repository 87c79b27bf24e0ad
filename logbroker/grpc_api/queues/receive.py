"""Receive: deliveries to a program without a stream, one answer per call.

If the call is cancelled, or its deadline passes, before the answer is written, its deliveries are released and no
attempt is counted. (`_take_back` has one exception.) So the method writes its answer itself, as streams do: otherwise
it would not learn whether the transport took the whole answer. Records that the transport took belong to the worker;
whether the answer arrived is known only when the worker settles.

An answer that is sent shortly before the deadline may arrive too late, and nobody notices. So a call hands out no
record in its last moments, which are reserved for its answer. If more than half of this time has passed when the answer
is written, the call ends with DEADLINE_EXCEEDED.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Final, cast

from logbroker.broker.read_budget import ReadBudget
from logbroker.errors import InvalidRequestError, RequestTimeoutError
from logbroker.grpc_api.log.fetch import MAX_WAIT_MS
from logbroker.grpc_api.queues.delivery_frames import plain_deliveries, receive_response
from logbroker.grpc_api.status import Context
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.messages import Delivered
from logbroker.v1 import queues_pb2 as pb

COLUMN_BYTES: Final = 16
"""Approximate size of one delivery in an answer, without its records."""
MAX_RECEIVED: Final = 10_000
"""Maximum number of records that one Receive may ask for."""
MAX_RETURN_SECONDS: Final = 0.1
MIN_RETURN_SECONDS: Final = 0.025
"""A quarter of the call's time is reserved for the answer to reach the caller, within these bounds."""
REFUSAL_SECONDS: Final = 0.05
"""How long to wait to see whether the client refuses an answer above `max_response_bytes`."""

_log = logging.getLogger(__name__)


def return_seconds(seconds_left: float) -> float:
    """Return how much of a call's time is reserved for its answer."""
    return min(max(seconds_left / 4, MIN_RETURN_SECONDS), MAX_RETURN_SECONDS)


class Receive:
    """One call."""

    def __init__(
        self,
        group: QueueGroup,
        request: pb.ReceiveRequest,
        context: Context,
        budget: ReadBudget,
        max_response_bytes: int,
    ) -> None:
        self._request = request
        self._context = context
        self._budget = budget
        self._max_response_bytes = max_response_bytes
        self._group = group
        self._return_seconds = 0.0

    async def run(self) -> None:
        """Wait for records and write the answer. Raises InvalidRequestError, RequestTimeoutError, OverloadedError, or
        the group's terminal error."""
        request = self._request
        max_records = request.max_records if request.HasField("max_records") else 1
        if not 1 <= max_records <= MAX_RECEIVED:
            raise InvalidRequestError(f"max_records must be 1 to {MAX_RECEIVED:,}, not {max_records}")
        if not 0 <= request.max_wait_ms <= MAX_WAIT_MS:
            raise InvalidRequestError(f"max_wait_ms must be 0 to {MAX_WAIT_MS:,}, not {request.max_wait_ms}")
        band = self._group.band(request.band)
        self._return_seconds = self._time_to_return()
        await self._budget.wait()
        wait_seconds = min(request.max_wait_ms / 1000, self._time_left())
        if wait_seconds < 0:
            raise self._too_late()
        received = await self._group.receive(request.worker_id, max_records, wait_seconds, band)
        await self._hand_on(received)

    # --- time --------------------------------------------------------------------------------------------------------

    def _time_to_return(self) -> float:
        return return_seconds(self._seconds())

    def _time_left(self) -> float:
        """Return the seconds left in which records may be handed out."""
        return self._seconds() - self._return_seconds

    def _seconds(self) -> float:
        # None if the call has no deadline, although the type stubs say float.
        seconds = cast("float | None", self._context.time_remaining())
        return math.inf if seconds is None else seconds

    def _too_late(self) -> RequestTimeoutError:
        return RequestTimeoutError(
            f"the call had too little time left for its answer: no record is handed out in the last "
            f"{self._return_seconds * 1000:.0f} ms of a call; give the call a later deadline"
        )

    # --- the answer --------------------------------------------------------------------------------------------------

    async def _hand_on(self, received: list[Delivered]) -> None:
        """Write the answer; if that fails, take its deliveries back."""
        unsent = {delivered.first_receipt: delivered.count for delivered in received}
        held_bytes = sum(len(delivered.batches) for delivered in received)
        self._budget.hold(held_bytes)
        is_out = False
        size_bytes = 0
        try:
            try:
                response = await self._packed(received, held_bytes, unsent)
            finally:
                self._budget.release(held_bytes)
            size_bytes = len(response)
            await self._write(response)
            # The answer is not accepted yet: without a status after it, the caller discards it. A refusal may still
            # come.
            if size_bytes > self._max_response_bytes:
                await asyncio.sleep(REFUSAL_SECONDS)
            if received and self._time_left() < -self._return_seconds / 2:
                raise self._too_late()
            is_out = True
        finally:
            if not is_out:
                self._take_back(unsent, size_bytes)

    async def _packed(self, received: list[Delivered], held_bytes: int, unsent: dict[int, int]) -> bytes:
        """Return the answer with as many deliveries as fit. The others are released, and removed from `unsent`."""
        lease_ms = self._group.lease_left_ms(received[0]) if received else 0
        room = self._max_response_bytes
        plain: list[bytes] = []
        sent: list[Delivered] = []
        is_full = False
        rest: list[tuple[int, int]] = []
        for delivered in received:
            is_full = is_full or bool((sent or plain) and room < len(delivered.batches))
            count = 0
            if not is_full and self._request.plain_records:
                parts, count = await plain_deliveries(delivered, lease_ms, room, self._budget, held_bytes)
                plain += parts
                room -= sum(map(len, parts))
                is_full = count < delivered.count
            elif not is_full:
                sent.append(delivered)
                count = delivered.count
                room -= len(delivered.batches) + COLUMN_BYTES * count
            if count < delivered.count:
                rest.append((delivered.first_receipt + count, delivered.first_receipt + delivered.count - 1))
                unsent[delivered.first_receipt] = count
        self._group.release(self._request.worker_id, rest)
        return b"".join(plain) if self._request.plain_records else receive_response(sent, lease_ms)

    async def _write(self, response: bytes) -> None:
        self._budget.hold(len(response))
        try:
            await self._context.write(response)
        finally:
            self._budget.release(len(response))

    def _take_back(self, unsent: dict[int, int], size_bytes: int) -> None:
        """Release the deliveries of an answer that did not reach the caller.

        An answer above the size limit has one large record or one large stored batch. Its records keep their leases:
        the answer may be too large for this caller, and its records would otherwise be delivered again before all
        others.
        """
        worker_id = self._request.worker_id
        receipts = [(first, first + count - 1) for first, count in unsent.items() if count]
        if size_bytes <= self._max_response_bytes:
            self._group.release(worker_id, receipts, are_unseen=False)
            return
        self._group.excuse(worker_id, receipts)
        _log.warning(
            "queue group %s: an answer of %d bytes did not reach worker %r: if this goes on, let the client accept "
            "larger messages, or give its calls more time",
            self._group.group_id,
            size_bytes,
            worker_id,
        )
