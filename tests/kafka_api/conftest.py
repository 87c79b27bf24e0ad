"""A broker with a Kafka listener, shared by the tests of a module; each uses topics of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

import logbroker
from logbroker.client.sync import Admin
from logbroker.embedded_broker import EmbeddedBroker

_numbers = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with logbroker.embedded(kafka=True) as broker:
        yield broker


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    """A topic with three partitions."""
    name = f"topic-{next(_numbers)}"
    with Admin(broker.address) as admin:
        admin.create_topic(name, partitions=3)
    return name
