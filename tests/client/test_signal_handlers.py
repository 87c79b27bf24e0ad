"""A signal handler that uses a synchronous client while its thread is in the middle of a call of one: it works, or
raises at once; nobody waits for ever, and the client goes on."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import FrameType
from typing import Any

import pytest

from logbroker.client import sync
from logbroker.client.runtime import sync_loop
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import ConcurrentUseError, LogbrokerError
from tests.client.worker_helpers import create, fill

DEADLINE_SECONDS = 30
MOST_POINTS = 60
STRIDE = 3


class Clients:
    """Fresh clients, a record in hand, and one that waits."""

    def __init__(self, address: str, topic: str, stack: ExitStack) -> None:
        self.topic = topic
        self.producer = stack.enter_context(sync.Producer(address))
        self.consumer = stack.enter_context(sync.Consumer(address))
        self.worker = stack.enter_context(sync.Worker(address, topic))
        self.producer.send_and_wait(topic, b"")
        self.consumer.assign(topic)
        self.deliveries = iter(self.worker)
        self.first, self.second = next(self.deliveries), next(self.deliveries)

    def settle_rest(self) -> None:
        with suppress(LogbrokerError):  # The worker may be closed.
            for delivery in (self.first, self.second):
                if not delivery.settled:
                    delivery.release()


CALLS: dict[str, Callable[[Clients], object]] = {
    "send": lambda clients: clients.producer.send(clients.topic, b""),
    "take": lambda clients: next(clients.deliveries),
    "ack": lambda clients: clients.first.ack(),
    "poll": lambda clients: clients.consumer.poll(1, timeout_seconds=0),
}
HANDLERS: dict[str, Callable[[Clients], object]] = {
    "send": lambda clients: clients.producer.send(clients.topic, b""),
    "close the producer": lambda clients: clients.producer.close(),
    "stop": lambda clients: clients.worker.stop(),
    "close the worker": lambda clients: clients.worker.close(),
    "ack": lambda clients: clients.second.ack(),
    "close the consumer": lambda clients: clients.consumer.close(),
}


class AtPoint:
    """Calls a handler once, at one of the points at which CPython lets signal handlers run: the beginning of a Python
    function, and the end of a call of any other one."""

    def __init__(self, point: int, handler: Callable[[], object]) -> None:
        self._left = point
        self._handler = handler
        self.was_called = False
        self.refusal: Exception | None = None

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_return") and "logbroker/client" in frame.f_code.co_filename:
            self._left -= 1
            if self._left < 0:
                sys.setprofile(None)
                self.was_called = True
                try:
                    self._handler()
                except Exception as error:
                    self.refusal = error
                    raise

    def run(self, call: Callable[[], object]) -> None:
        sys.setprofile(self)
        try:
            call()
        except (LogbrokerError, StopIteration):
            pass  # Closed or stopped by the handler, or what the handler raised.
        finally:
            sys.setprofile(None)


@pytest.fixture(scope="module")
def filled(logbroker_session_broker: EmbeddedBroker) -> tuple[str, str]:
    address, topic = logbroker_session_broker.address, "handlers"

    async def prepare() -> None:
        await create(address, topic)
        await fill(address, topic, 2_000)

    asyncio.run(prepare())
    return address, topic


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("handler", list(HANDLERS))
@pytest.mark.parametrize("call", list(CALLS))
def test_a_handler_in_the_middle_of_a_call_works_or_is_refused_at_once(
    filled: tuple[str, str], call: str, handler: str
) -> None:
    outcomes: list[Any] = []

    def one(point: int) -> bool:
        with ExitStack() as stack:
            clients = Clients(*filled, stack)
            at = AtPoint(point, lambda: HANDLERS[handler](clients))
            at.run(lambda: CALLS[call](clients))
            outcomes.append(at.refusal)
            clients.settle_rest()
            return at.was_called

    for point in range(0, MOST_POINTS, STRIDE):
        met: list[bool] = []
        thread = threading.Thread(target=lambda: met.append(one(point)), daemon=True)  # noqa: B023
        thread.start()
        thread.join(DEADLINE_SECONDS)
        assert met, f"{handler} waits for ever at point {point} of {call}"
        if not met[0]:
            break
    assert sync_loop.run(asyncio.sleep(0, "answered")) == "answered"
    refusals = [outcome for outcome in outcomes if outcome is not None]
    assert {type(error) for error in refusals} <= {ConcurrentUseError}
    # There are points at which the thread has a lock that the event loop may wait for; `stop` waits for nobody.
    if handler == "stop" or call == "poll":
        assert not refusals
    elif handler.startswith("close"):
        assert "signal handler" in str(refusals[0])
