"""A data directory for each test that asks for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.segment_files import StoppedPartition


@pytest.fixture
def stopped(tmp_path: Path) -> StoppedPartition:
    """A cleanly stopped partition of several segments."""
    partition = StoppedPartition(tmp_path / "data")
    partition.stop()
    return partition
