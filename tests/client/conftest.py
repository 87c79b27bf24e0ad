"""What the client's tests against real brokers share."""

from __future__ import annotations

import itertools
import socket

import pytest

from logbroker.embedded_broker import EmbeddedBroker

_numbers = itertools.count()


@pytest.fixture
def address(logbroker_session_broker: EmbeddedBroker) -> str:
    """Of a broker that all tests share."""
    return logbroker_session_broker.address


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
