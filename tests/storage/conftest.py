"""A partition for each test that asks for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.partition import PartitionOnDisk


@pytest.fixture
def partition(tmp_path: Path) -> PartitionOnDisk:
    """An empty partition with small segments."""
    return PartitionOnDisk(tmp_path / "flights-0")
