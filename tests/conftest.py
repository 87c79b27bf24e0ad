"""Settings of all tests: Hypothesis prints how to repeat a failure, and no example is given up for a slow machine.

Tests run at two speeds. `make test` leaves out what is marked `prove`, and says how many tests that are; `make prove`
runs all. Who names files, or a part of a name (-k), gets all that has it.
"""

from __future__ import annotations

import logging
import os
import signal
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.speeds import ALL, FAST, REST, SPEED

settings.register_profile(
    "logbroker", print_blob=True, deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("logbroker")
# Under nohup, and in the background of a shell, these are ignored, in all programs that tests start as well, and those
# are told by them to stop.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


_LEFT = pytest.StashKey[int]()
FILES_AT_HAND = pytest.StashKey[frozenset[str]]()
"""Those of which `make test` runs something; empty where not all tests were looked for."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--prove", choices=(ALL, REST), help="all tests, or those that `make test` leaves out or shortens")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        is_named = config.option.keyword or config.args != config.getini("testpaths")
        # Before any test module is imported, and for the processes that share the work.
        os.environ[SPEED] = config.option.prove or (ALL if is_named else FAST)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    speed, met = os.environ[SPEED], Counter[str]()
    taken: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        is_long, is_twice = False, item.get_closest_marker("twice") is not None
        if (mark := item.get_closest_marker("prove")) is not None:
            name = item.nodeid.partition("[")[0]
            met[name] += 1
            is_long = met[name] > mark.kwargs.get("keep", 0)
        is_wanted = speed == ALL or is_long == (speed == REST) or (is_twice and not is_long)
        (taken if is_wanted else left).append(item)
    at_hand = {item.nodeid.partition("::")[0] for item in (left if speed == REST else taken)}
    is_whole = speed == REST or (speed == FAST and not config.option.keyword)
    config.stash[FILES_AT_HAND] = frozenset(at_hand if is_whole else ())
    items[:] = taken
    config.hook.pytest_deselected(items=left)
    config.stash[_LEFT] = len(left)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left"] = session.config.stash.get(_LEFT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    node.config.stash[_LEFT] = getattr(node, "workeroutput", {}).get("left", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left = config.stash.get(_LEFT, 0)
    if left and os.environ[SPEED] == FAST:
        terminalreporter.write_line(f"{left:,} tests were left to `make prove`")


@pytest.fixture
def quiet_clients(caplog: pytest.LogCaptureFixture) -> None:
    """Every client says that it reconnects, after every kill; a failure would be hard to find in that."""
    caplog.set_level(logging.ERROR, "logbroker.client")
