"""Fixtures shared by the client's tests against real brokers."""

from __future__ import annotations

import itertools
import signal
import socket
from collections.abc import Iterator

import pytest

from logbroker.embedded_broker import EmbeddedBroker

DEADLINE_SECONDS = 60
_numbers = itertools.count()


@pytest.fixture
def address(logbroker_session_broker: EmbeddedBroker) -> str:
    """Address of a broker that all tests share."""
    return logbroker_session_broker.address


@pytest.fixture(autouse=True)
def deadline() -> Iterator[None]:
    """Fail a test that waits for what never comes, instead of stopping the run."""

    def give_up(number: int, frame: object) -> None:
        raise TimeoutError(f"the test takes more than {DEADLINE_SECONDS} s")

    before = signal.signal(signal.SIGALRM, give_up)
    # Again and again, since what cleans up may wait as well.
    signal.setitimer(signal.ITIMER_REAL, DEADLINE_SECONDS, 1)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def unused_tcp_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
