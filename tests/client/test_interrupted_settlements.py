"""Settlements interrupted by a signal handler that raises: all of a settlement is sent, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from time import monotonic
from types import FrameType
from typing import Any

import pytest

from logbroker.client.worker.delivery_batch import LOST
from logbroker.client.worker.held_session import HeldSession
from logbroker.client.worker.in_flight import InFlight
from logbroker.client.worker.leased_record import SyncWorkerDelivery
from logbroker.client.worker.sent_records import sent_record
from logbroker.v1 import queues_pb2
from tests.client.in_flight_by_hand import NOW, Worker, acks, releases

MOST_POINTS = 200
SENT = sent_record("out", b"of the session", None, None, (), None, None, None, None)


class RungError(Exception):
    """Raised by the handler."""


class _At:
    """Raises at one of the points at which CPython lets signal handlers run: the beginning of a Python function, and
    the end of a call of any other one."""

    def __init__(self, point: int) -> None:
        self._left = point
        self.has_raised = False
        self.where = ""

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        # What is raised in the finalizer of an earlier delivery, whenever that runs, is nobody's.
        in_finalizer = frame.f_code.co_name == "__del__"
        if event in ("call", "c_return") and "logbroker/client" in frame.f_code.co_filename and not in_finalizer:
            self._left -= 1
            if self._left < 0:
                sys.setprofile(None)
                self.has_raised = True
                self.where = frame.f_code.co_name if event == "call" else ""
                raise RungError

    def run(self, settle: Callable[[], object]) -> None:
        sys.setprofile(self)
        try:
            settle()
        except (RungError, ValueError):
            pass
        finally:
            sys.setprofile(None)


class SyncWorker(Worker):
    """As `Worker`, of a synchronous program; counts how often its sender was woken."""

    def __init__(self) -> None:
        super().__init__()
        self.woken = 0
        make: Callable[..., Any] = SyncWorkerDelivery
        self.in_flight = InFlight(make, wake=self._wake, max_extension_seconds=1000.0)
        self.welcome()

    def _wake(self) -> None:
        self.woken += 1


def _with_block(delivery: SyncWorkerDelivery) -> None:
    with delivery:
        pass


def _failing_block(delivery: SyncWorkerDelivery) -> None:
    with delivery:
        raise ValueError("bad")


WAYS: dict[str, Callable[[Any], object]] = {
    "ack": lambda delivery: delivery.ack(),
    "nack": lambda delivery: delivery.nack(reason="bad"),
    "release": lambda delivery: delivery.release(),
}


Said = tuple[list[int], list[int], list[int]]
WORDS: dict[str, Said] = {"ack": ([50], [], []), "nack": ([], [50], []), "release": ([], [], [50])}
NOTHING: Said = [], [], []


def _said(settle: queues_pb2.Settle | None) -> Said:
    """The receipts that are acked, nacked and released."""
    if settle is None:
        return NOTHING
    nacks = [(nack.first_receipt, nack.last_receipt) for nack in settle.nacks]
    acked, nacked, released = (
        [receipt for first, last in found for receipt in range(first, last + 1)]
        for found in (acks(settle), nacks, releases(settle))
    )
    return acked, nacked, released


def _outputs(settle: queues_pb2.Settle | None) -> list[bytes]:
    outputs = () if settle is None else settle.outputs
    return [record.value for output in outputs for record in output.records.records]


def _taken(worker: SyncWorker, now: float, *, in_session: bool) -> tuple[list[Any], HeldSession[Any] | None]:
    session = worker.open_session() if in_session else None
    worker.receive(50, range(3), now, session)
    taken = worker.take(3, now, None if session is None else session.buffer)
    taken[0].send("out", b"of the delivery")
    if session is not None:
        session.set_state(b"after")
        session.handed_out(taken[0])
        session.send(SENT)
    worker.in_flight.outbox.awake = False
    return taken, session


@pytest.mark.parametrize("in_session", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_word_is_said_whole_or_not_at_all(way: str, in_session: bool) -> None:
    outputs = [*([b"of the session"] if in_session else []), b"of the delivery"]  # In the order of the calls.
    for point in range(MOST_POINTS):
        worker = SyncWorker()
        (delivery, later, _), session = _taken(worker, NOW, in_session=in_session)
        interrupt = _At(point)
        interrupt.run(partial(WAYS[way], delivery))
        if not interrupt.has_raised:
            assert point > 5
            return
        is_said = delivery.settled
        settle = worker.in_flight.next_settle(NOW)
        assert _said(settle) == (WORDS[way] if is_said else NOTHING)
        assert _outputs(settle) == (outputs if is_said and way == "ack" else [])
        if session is None:
            assert worker.in_flight.in_hand == (2 if is_said else 3)
        else:
            states = [] if settle is None else [write.state for write in settle.states]
            assert states == ([b"after"] if is_said and way == "ack" else [])
            # Who gives a record back gives back what follows it.
            assert (later.batch.states[later.index] == LOST) == (is_said and way != "ack")
        if not is_said:
            delivery.ack()
            settle = worker.sent()
            assert (_said(settle), _outputs(settle)) == (WORDS["ack"], outputs)
            assert worker.woken
        elif way != "ack" and session is not None:
            worker.answer(worker.sent() if settle is None else settle)
            worker.receive(60, range(1), session=session)
            [again] = worker.take(1, buffer=session.buffer)
            again.ack()
            assert _outputs(worker.sent()) == [], "it is sent again while the delivery is worked on again"
    pytest.fail("it never came to its end")


@pytest.mark.parametrize("block", [_with_block, _failing_block])
def test_a_block_leaves_no_record_unsettled(block: Callable[[Any], object]) -> None:
    for point in range(MOST_POINTS):
        worker = SyncWorker()
        (delivery, _, _), _ = _taken(worker, monotonic(), in_session=False)
        interrupt = _At(point)
        interrupt.run(partial(block, delivery))
        if not interrupt.has_raised:
            assert point > 5
            return
        began = interrupt.where != "__enter__"
        del delivery
        said = _said(worker.in_flight.next_settle(NOW))
        if not began:
            continue
        assert said in (WORDS["ack" if block is _with_block else "nack"], WORDS["release"])
    pytest.fail("it never came to its end")
