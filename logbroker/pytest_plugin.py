"""Fixtures for tests against a real broker; pytest finds them once logbroker is installed.

def test_orders(logbroker_broker):
    with Producer(logbroker_broker.address) as producer: ...

The fixtures with `kafka` in their names are for Kafka clients, which connect to `kafka_address`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from logbroker.embedded_broker import EmbeddedBroker


@pytest.fixture
def logbroker_broker() -> Iterator[EmbeddedBroker]:
    """A new broker for each test, on a free port, with an empty data directory. The test may kill and restart it."""
    # Imported here because pytest loads this plugin in every project of the environment.
    from logbroker.embedded_broker import embedded

    with embedded() as broker:
        yield broker


@pytest.fixture(scope="session")
def logbroker_session_broker() -> Iterator[EmbeddedBroker]:
    """One broker for all tests of a run: this is faster, if each test uses its own topics."""
    from logbroker.embedded_broker import embedded  # see above

    with embedded() as broker:
        yield broker


@pytest.fixture
def logbroker_kafka_broker() -> Iterator[EmbeddedBroker]:
    """A new broker for each test that also listens for Kafka clients, at `kafka_address`."""
    from logbroker.embedded_broker import embedded  # see above

    with embedded(kafka=True) as broker:
        yield broker


@pytest.fixture(scope="session")
def logbroker_session_kafka_broker() -> Iterator[EmbeddedBroker]:
    """One broker for all tests of a run that also listens for Kafka clients, at `kafka_address`."""
    from logbroker.embedded_broker import embedded  # see above

    with embedded(kafka=True) as broker:
        yield broker
