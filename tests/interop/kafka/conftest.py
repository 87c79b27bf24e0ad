"""The programs of other languages end with the tests that they work for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.kafka.programs import end_programs


@pytest.fixture(scope="session", autouse=True)
def programs() -> Iterator[None]:
    yield
    end_programs()
