"""Names that are legal, but that the file system does not take."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from logbroker.broker.local_engine.lifetime import open_engine
from logbroker.config import BrokerConfig
from logbroker.errors import InvalidTopicNameError
from tests.broker.conftest import Opened, TestClock

PATH_BYTES = 3850
MAX_PATH_BYTES = 4096


@pytest.fixture
def deep_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path
    monkeypatch.chdir(path)
    while (left := PATH_BYTES - len(str(path)) - 1) > 0:
        name = "d" * min(left, 200)
        os.mkdir(name)
        os.chdir(name)
        path /= name
    monkeypatch.chdir(tmp_path)
    return path


@pytest.mark.skipif(os.pathconf("/", "PC_PATH_MAX") != MAX_PATH_BYTES, reason="paths have another limit here")
@pytest.mark.parametrize("length", [240, 215])
async def test_a_topic_whose_files_would_have_too_long_paths_is_refused(deep_directory: Path, length: int) -> None:
    """240: its directory cannot be made. 215: only the longer ones of its files cannot."""
    failures: list[Exception] = []
    clock = TestClock()
    async with open_engine(BrokerConfig(data_dir=str(deep_directory)), clock, failures.append) as (engine, state):
        opened = Opened(engine, state, clock, failures)
        short = await engine.create_topic("s", 1, {})
        for _ in range(2):
            with pytest.raises(InvalidTopicNameError, match="the file system does not take a path as long as"):
                await engine.create_topic("t" * length, 1, {})
        await opened.append(short.id, b"a")
        await engine.delete_topic(short.id)
        assert not failures
        assert {path.name for path in deep_directory.iterdir()} <= {"lock", "meta", "issued-numbers"}
