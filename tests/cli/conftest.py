"""Fixtures of the command-line tests: a broker, a topic with records, a group, and a Ctrl-C that counts."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator

import pytest

from logbroker.client.sync import Admin
from logbroker.embedded_broker import EmbeddedBroker
from tests.cli.queues import Queue, send


@pytest.fixture
def address(logbroker_session_broker: EmbeddedBroker) -> str:
    return logbroker_session_broker.address


@pytest.fixture
def queue(address: str, capsys: pytest.CaptureFixture[str]) -> Queue:
    return Queue(address, capsys)


@pytest.fixture
def topic(address: str) -> str:
    """A topic of 2 partitions with the values 0 to 19 of 5 keys."""
    name = f"t-{uuid.uuid4()}"
    with Admin(address) as admin:
        admin.create_topic(name, 2)
    send(address, name, range(20))
    return name


@pytest.fixture
def name() -> str:
    """Name of a queue group that no other test uses."""
    return f"q-{uuid.uuid4()}"


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Is not ignored by what a test starts, though a shell lets what it starts in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
