"""Conversion between the messages of workers and the types of `queues`. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from logbroker.broker.topics import MAX_ITEMS
from logbroker.errors import InvalidRequestError, LogbrokerError
from logbroker.grpc_api.status import item_status
from logbroker.pacing import Pace, Steps, at_once
from logbroker.queues.delivery.worker_stream import WorkerLink
from logbroker.queues.model.lane import lane_key
from logbroker.queues.model.messages import (
    MAX_REASON_CHARACTERS,
    Extension,
    Granted,
    Nack,
    Refusal,
    SessionWrite,
    Settlement,
)
from logbroker.queues.model.record_id import MAX_PARTITIONS, OFFSET_MASK, record_id_of
from logbroker.queues.model.settings import QueueGroupSettings
from logbroker.queues.model.worker_messages import Hello, ListedSession
from logbroker.v1 import queues_pb2 as pb

MAX_RECEIPTS: Final = 65_536
"""Maximum number of receipts that one settlement may name, so that its answer has room to refuse each."""
MAX_ATOMIC_RECEIPTS: Final = 10_000
"""Maximum number of receipts in a settlement with states or outputs. Such a settlement is carried out as a whole, or
not at all."""
PAUSE_RANGES: Final = 500
"""Number of ranges of a settlement that are read between two steps of a `Pace`."""
MAX_HELD: Final = 100_000
"""Maximum number of records that one Hello may list, so that its Welcome has room for all of them."""
MAX_FULL_FAILURES: Final = 1_000
"""Number of failures in one answer that have a message. Further failures have only code and reason."""


async def read_hello(message: pb.Hello) -> Hello:
    """Read a Hello. Raises InvalidRequestError."""
    pace = Pace()
    held, sessions = message.held, message.sessions
    if len(held.partitions) != len(held.offsets):
        raise InvalidRequestError(
            f"held has {len(held.partitions)} partitions and {len(held.offsets)} offsets: give both for each record"
        )
    if held.attempts and len(held.attempts) != len(held.offsets):
        raise InvalidRequestError(
            f"held has {len(held.offsets)} offsets and {len(held.attempts)} attempts: give one for each record, or none"
        )
    if len(held.offsets) > MAX_HELD or len(sessions) > MAX_ITEMS:
        raise InvalidRequestError(
            f"the Hello lists {len(held.offsets)} records and {len(sessions)} sessions that are held: at most"
            f" {MAX_HELD:,} and {MAX_ITEMS:,} are taken, give up the others"
        )
    record_ids: list[int] = []
    for partition, offset in zip(held.partitions, held.offsets, strict=True):
        record_ids.append(read_record_id(partition, offset))
        await pace.step()
    held_sessions: list[ListedSession] = []
    for session in sessions:
        prefetch = session.prefetch if session.HasField("prefetch") else 1
        credit_bytes = session.credit_bytes if session.HasField("credit_bytes") else None
        held_sessions.append(ListedSession(session.key, session.token, prefetch, credit_bytes))
        await pace.step(2)
    hello = Hello(
        worker_id=message.worker_id,
        incarnation=message.incarnation,
        client_name=message.client_name,
        held=record_ids,
        sessions=held_sessions,
        attempts=held.attempts,
        group_epoch=message.life,
        band=message.band,
        credit_bytes=message.credit_bytes if message.HasField("credit_bytes") else None,
    )
    hello.check()
    return hello


def read_record_id(partition: int, offset: int) -> int:
    """Return a record id. Raises InvalidRequestError for an impossible partition or offset."""
    if not 0 <= partition < MAX_PARTITIONS or not 0 <= offset <= OFFSET_MASK:
        raise InvalidRequestError(
            f"there is no record at partition {partition}, offset {offset}: name a record that was delivered"
        )
    return record_id_of(partition, offset)


def welcome_message(
    topic: str, settings: QueueGroupSettings, group_epoch: int, link: WorkerLink, max_request_bytes: int
) -> pb.WorkerResponse:
    lease_ms = round(settings.lease_seconds * 1000)
    return pb.WorkerResponse(
        welcome=pb.Welcome(
            resumed=link.resumed,
            lease_ms=lease_ms,
            grace_ms=round(settings.grace_seconds * 1000),
            reclaimed=[_reclaimed(granted, lease_ms) for granted in link.reclaimed],
            sessions=[
                pb.SessionRef(key=session.key, token=session.token, prefetch=session.prefetch)
                for session in link.sessions
            ],
            ordering=settings.ordering.value,
            topic=topic,
            life=group_epoch,
            max_request_bytes=max_request_bytes,
        )
    )


def _reclaimed(granted: Granted, lease_ms: int) -> pb.Deliveries:
    """Return reclaimed deliveries without their records: the worker has them already."""
    return pb.Deliveries(
        first_receipt=granted.first_receipt,
        count=len(granted),
        partitions=granted.partitions(),
        offsets=granted.offsets(),
        attempts=granted.attempts,
        redelivered=granted.redelivered,
        lease_ms=lease_ms,
    )


# --- settlements ---------------------------------------------------------------------------------------------------


class ReadSettle(msgspec.Struct):
    """A settlement as received, and the refusals of its invalid ranges."""

    settlement: Settlement
    refusals: list[Refusal]


def read_settle(message: pb.Settle) -> Steps[ReadSettle]:
    """Read a settlement. Raises InvalidRequestError for a malformed one; invalid ranges are refused one by one."""
    if message.outputs and not message.acks.firsts:
        raise InvalidRequestError("a settlement with outputs has no ack: add one, or produce the records instead")
    _check_columns(message.acks, "acks")
    _check_columns(message.releases, "releases")
    ranges = len(message.acks.firsts) + len(message.nacks) + len(message.releases.firsts) + len(message.extensions)
    if ranges + len(message.states) > MAX_ITEMS:
        raise InvalidRequestError(
            f"the settlement lists {ranges} ranges of receipts and {len(message.states)} states;"
            f" split it, at most {MAX_ITEMS} are taken"
        )
    check = _RangeCheck()
    acks = yield from _taken_pairs(message.acks, check)
    nacks: list[Nack] = []
    for number, nack in enumerate(message.nacks):
        if check.takes(nack.first_receipt, nack.last_receipt):
            delay_seconds = nack.delay_ms / 1000 if nack.HasField("delay_ms") else None
            reason = nack.reason[:MAX_REASON_CHARACTERS]
            nacks.append(Nack(nack.first_receipt, nack.last_receipt, reason, delay_seconds))
        if number % PAUSE_RANGES == PAUSE_RANGES - 1:
            yield PAUSE_RANGES
    releases = yield from _taken_pairs(message.releases, check)
    extensions: list[Extension] = []
    for number, extension in enumerate(message.extensions):
        if check.takes(extension.first_receipt, extension.last_receipt):
            lease_seconds = extension.lease_ms / 1000 if extension.HasField("lease_ms") else None
            extensions.append(Extension(extension.first_receipt, extension.last_receipt, lease_seconds))
        if number % PAUSE_RANGES == PAUSE_RANGES - 1:
            yield PAUSE_RANGES
    states = [SessionWrite(lane_key(write.key), write.token, write.state) for write in message.states]
    settlement = Settlement(acks, nacks, releases, extensions, states)
    is_atomic = bool(states or message.outputs)
    if is_atomic and check.receipts > MAX_ATOMIC_RECEIPTS:
        raise InvalidRequestError(
            f"the settlement has states of sessions or outputs and names {check.receipts:,} receipts: at most"
            f" {MAX_ATOMIC_RECEIPTS:,} are taken with them, send the other receipts in another settlement"
        )
    if is_atomic and check.refusals:
        # It is carried out as a whole, or not at all.
        return ReadSettle(Settlement(), [Refusal(0, 0, check.refusals[0].error), *check.refusals])
    return ReadSettle(settlement, check.refusals)


def _taken_pairs(receipts: pb.Receipts, check: _RangeCheck) -> Steps[list[tuple[int, int]]]:
    """Return the valid ranges."""
    pairs = list(zip(receipts.firsts, receipts.lasts, strict=True))
    if len(pairs) <= PAUSE_RANGES:
        return [pair for pair in pairs if check.takes(*pair)]
    taken: list[tuple[int, int]] = []
    for start in range(0, len(pairs), PAUSE_RANGES):
        taken += [pair for pair in pairs[start : start + PAUSE_RANGES] if check.takes(*pair)]
        yield PAUSE_RANGES
    return taken


def _check_columns(receipts: pb.Receipts, name: str) -> None:
    if len(receipts.firsts) != len(receipts.lasts):
        raise InvalidRequestError(
            f"{name} has {len(receipts.firsts)} firsts and {len(receipts.lasts)} lasts: give both for each range"
        )


class _RangeCheck:
    """Collects refusals of receipt ranges: invalid ranges, and ranges above MAX_RECEIPTS."""

    def __init__(self) -> None:
        self.refusals: list[Refusal] = []
        self._room = MAX_RECEIPTS

    @property
    def receipts(self) -> int:
        """Number of receipts in the accepted ranges."""
        return MAX_RECEIPTS - self._room

    def takes(self, first: int, last: int) -> bool:
        count = last - first + 1
        if 0 < count <= self._room:
            self._room -= count
            return True
        error: LogbrokerError
        if count <= 0:
            error = InvalidRequestError(f"a range of receipts ends with {last}, before its first, {first}")
        else:
            error = InvalidRequestError(
                f"a settlement names at most {MAX_RECEIPTS:,} receipts: send the rest in another settlement"
            )
        self.refusals.append(Refusal(first, last, error))
        return False


def settle_answer(correlation_id: int, refusals: Sequence[Refusal]) -> pb.SettleAnswer:
    """Return the result of `make_settle_answer`, made without pauses."""
    if not refusals:
        return pb.SettleAnswer(correlation_id=correlation_id)
    return at_once(make_settle_answer(correlation_id, refusals))


def make_settle_answer(correlation_id: int, refusals: Sequence[Refusal]) -> Steps[pb.SettleAnswer]:
    """Return the answer to a settlement that is done and synced, except for the refusals."""
    answer = pb.SettleAnswer(correlation_id=correlation_id)
    for number, refusal in enumerate(refusals):
        status = item_status(refusal.error)
        if number >= MAX_FULL_FAILURES:
            status.message = "as above"
        answer.failures.add(first_receipt=refusal.first, last_receipt=refusal.last, status=status)
        yield 3
    return answer


def settle_refused(correlation_id: int, error: LogbrokerError) -> pb.SettleAnswer:
    """Return the answer to a settlement that was refused as a whole."""
    return pb.SettleAnswer(correlation_id=correlation_id, failures=[pb.SettleFailure(status=item_status(error))])


# --- sessions ------------------------------------------------------------------------------------------------------


def session_lost(key: bytes, token: int, why: LogbrokerError) -> pb.SessionAnswer:
    """Return the message that a worker has lost a session."""
    return pb.SessionAnswer(status=item_status(why), key=key, token=token)
