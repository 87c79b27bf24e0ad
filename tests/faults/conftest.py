"""The engines of the broker's own tests, and what Kafka's reader says of the files that outlive a fault."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.broker.conftest import held_sync, open_at
from tests.interop.kafka_reader import compare, trouble

__all__ = ["held_sync", "keep_survivors", "open_at"]

KeepSurvivors = Callable[[Path], None]


@pytest.fixture(scope="session")
def keep_survivors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeepSurvivors]:
    """Copies a data directory's logs. Kafka's reader goes through all of them at the end, in one run of Java."""
    kept = tmp_path_factory.mktemp("survivors")
    numbers = itertools.count()

    def keep(data_dir: Path) -> None:
        for log in data_dir.glob("*/*.log"):
            copy = kept / str(next(numbers)) / log.name
            copy.parent.mkdir()
            shutil.copyfile(log, copy)

    yield keep
    if not trouble():
        compare(kept.rglob("*.log"))


@pytest.fixture(autouse=True)
def survivors(request: pytest.FixtureRequest, keep_survivors: KeepSurvivors) -> Iterator[None]:
    """Keeps what a test leaves in its data directory."""
    tmp_path = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    if tmp_path is not None:
        keep_survivors(tmp_path / "data")
