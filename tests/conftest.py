"""What all tests share: Hypothesis prints how to repeat a failure, and no example is given up for a slow machine."""

from __future__ import annotations

import logging
import signal

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "logbroker", print_blob=True, deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("logbroker")
# Under nohup, and in the background of a shell, these are ignored, in all programs that tests start as well, and those
# are told by them to stop.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def quiet_clients(caplog: pytest.LogCaptureFixture) -> None:
    """Every client says that it reconnects, after every kill; a failure would be hard to find in that."""
    caplog.set_level(logging.ERROR, "logbroker.client")
