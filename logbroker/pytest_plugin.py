"""Fixtures for tests against a real broker; pytest finds them once logbroker is installed.

def test_orders(logbroker_broker):
    with Producer(logbroker_broker.address) as producer: ...

The fixtures with `kafka` in their names are for Kafka clients, which connect to `kafka_address`. The report of a test
that fails shows the end of its broker's log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from logbroker.embedded_broker import EmbeddedBroker

_LOG_LINES: Final = 40
"""Number of lines of the broker's log that a report shows."""

_running: dict[str, EmbeddedBroker] = {}
"""The brokers that run now, by the names of their fixtures."""


@contextmanager
def _broker(fixture: str, *, kafka: bool = False) -> Iterator[EmbeddedBroker]:
    # Imported here because pytest loads this plugin in every project of the environment.
    from logbroker.embedded_broker import embedded

    with embedded(kafka=kafka) as broker:
        _running[fixture] = broker
        try:
            yield broker
        finally:
            del _running[fixture]


@pytest.fixture
def logbroker_broker() -> Iterator[EmbeddedBroker]:
    """A new broker for each test, on a free port, with an empty data directory. The test may kill and restart it."""
    with _broker("logbroker_broker") as broker:
        yield broker


@pytest.fixture(scope="session")
def logbroker_session_broker() -> Iterator[EmbeddedBroker]:
    """One broker for all tests of a run: this is faster, if each test uses its own topics."""
    with _broker("logbroker_session_broker") as broker:
        yield broker


@pytest.fixture
def logbroker_kafka_broker() -> Iterator[EmbeddedBroker]:
    """A new broker for each test that also listens for Kafka clients, at `kafka_address`."""
    with _broker("logbroker_kafka_broker", kafka=True) as broker:
        yield broker


@pytest.fixture(scope="session")
def logbroker_session_kafka_broker() -> Iterator[EmbeddedBroker]:
    """One broker for all tests of a run that also listens for Kafka clients, at `kafka_address`."""
    with _broker("logbroker_session_kafka_broker", kafka=True) as broker:
        yield broker


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add the end of the broker's log to the report of a test, or of its set-up, that failed."""
    outcome: Any = yield
    report: pytest.TestReport = outcome.get_result()
    if not report.failed:
        return
    wanted = getattr(item, "fixturenames", ())
    for name, broker in _running.items():
        if name in wanted:
            with suppress(OSError), broker.log_path.open(encoding="utf-8", errors="replace") as log:
                report.sections.append((f"end of the log of {name}", "".join(deque(log, _LOG_LINES))))
