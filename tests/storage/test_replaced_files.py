"""Files that are replaced as a whole."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from logbroker.storage.files import replace_file
from tests.storage.faulty_files import FaultyFiles


def test_the_reason_is_told_where_a_directory_may_not_be_written(tmp_path: Path) -> None:
    """There is no file then that could be in the way."""
    files = FaultyFiles()
    for _ in range(2):
        files.fail("open", errno.EACCES)
    with pytest.raises(PermissionError):
        replace_file(files, str(tmp_path / "checkpoint"), b"new")


def test_what_is_in_the_way_of_a_new_file_goes(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.tmp").symlink_to(tmp_path / "elsewhere")
    replace_file(FaultyFiles(), str(tmp_path / "checkpoint"), b"new")
    assert (tmp_path / "checkpoint").read_bytes() == b"new"
    assert not (tmp_path / "elsewhere").exists()
