"""A lack of file descriptors is a refusal."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from logbroker.errors import TooManyOpenFilesError, UnknownTopicError
from logbroker.storage.files import RealFiles
from tests.broker.conftest import OpenEngine


async def test_a_deletion_without_descriptors_is_finished_before_its_name_is_used_again(
    open_at: OpenEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_descriptors(_self: RealFiles, path: str) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    async with open_at() as opened:
        topic = await opened.engine.create_topic("t", 1, {})
        await opened.append(topic.id, b"old")
        with monkeypatch.context() as patch:
            patch.setattr(RealFiles, "sync_directory", out_of_descriptors)
            with pytest.raises(TooManyOpenFilesError):
                await opened.engine.delete_topic(topic.id)
            with pytest.raises(UnknownTopicError):
                opened.engine.topic("t")
            with pytest.raises(TooManyOpenFilesError, match="deleted topic"):
                await opened.engine.create_topic("t", 1, {})
        assert opened.failures == []
        new = await opened.engine.create_topic("t", 1, {})
        assert await opened.append(new.id, b"new") == 0
    async with open_at() as opened:
        assert opened.engine.partition_facts(new.id, 0).log_end_offset == 1
        assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["lock", "meta", "t-0"]
