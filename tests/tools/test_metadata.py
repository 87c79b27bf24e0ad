"""Reading the metadata store beside a broker: nothing is written, and what may have changed meanwhile is read again."""

from __future__ import annotations

from typing import Any

import pytest

from logbroker.errors import DataDirError
from logbroker.storage.metadata.metadata_store import MetadataReader
from tests.tools.segment_files import StoppedPartition


class _Commits:
    """An environment in which others commit while it is read."""

    def __init__(self, environment: Any, commits: list[int]) -> None:
        self._environment = environment
        self._commits = commits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def info(self) -> dict[str, int]:
        info: dict[str, int] = self._environment.info()
        return info | {"last_txnid": info["last_txnid"] + self._commits.pop(0)}


def test_a_read_that_commits_have_overtaken_is_repeated(
    stopped: StoppedPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stopped.data_dir / "meta" / "lock.mdb").unlink()  # so that LMDB does not know of the reader
    reader = MetadataReader.open(stopped.data_dir / "meta")
    environment = reader._environment
    try:
        commits = [3, 7, 2, 1, 0]
        monkeypatch.setattr(reader, "_environment", _Commits(environment, commits))
        assert [key for key, _ in reader.scan("topics")] == [stopped.disk.topic_id]
        assert commits == [0]
        monkeypatch.setattr(reader, "_environment", _Commits(environment, [3] * 100))
        with pytest.raises(DataDirError, match="changes faster"):
            reader.scan("topics")
    finally:
        reader.close()


def test_there_must_be_a_store_of_a_known_version(stopped: StoppedPartition) -> None:
    with pytest.raises(DataDirError):
        MetadataReader.open(stopped.data_dir / "nowhere")
    assert not (stopped.data_dir / "nowhere").exists()
