"""Fixtures for tests against a real broker; pytest finds them once logbroker is installed.

def test_orders(logbroker_broker):
    with Producer(logbroker_broker.address) as producer: ...
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from logbroker.embedded_broker import EmbeddedBroker


@pytest.fixture
def logbroker_broker() -> Iterator[EmbeddedBroker]:
    """A fresh broker on a free port, with an empty data directory: may be killed and restarted at will."""
    # Imported here because pytest loads this plugin in every project of the environment.
    from logbroker.embedded_broker import embedded

    with embedded() as broker:
        yield broker


@pytest.fixture(scope="session")
def logbroker_session_broker() -> Iterator[EmbeddedBroker]:
    """One broker for all tests of a run: the fast choice where each test uses topics of its own."""
    from logbroker.embedded_broker import embedded  # see above

    with embedded() as broker:
        yield broker
