"""Fixtures shared by the tests of queue groups: a directory where syncs are quick, of which they make thousands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fast_directory import fast_directory


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with fast_directory() as directory:
        yield directory
