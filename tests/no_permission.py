"""Directories that the user may not enter, also where the tests run as root, who may enter any."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

_ENTERING: Final = ("stat", "lstat", "open", "mkdir", "unlink", "rmdir", "link", "rename")
_LISTING: Final = ("listdir", "scandir")


@contextmanager
def without_permission(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Within the block, calls of `os` by a path treat a directory as if its mode were 0000."""

    def refusing(name: str) -> Any:
        real = getattr(os, name)

        def call(path: Any = ".", *arguments: Any, **fields: Any) -> Any:
            if not isinstance(path, int):
                asked = Path(os.fsdecode(path))
                is_listed = asked == directory and (name in _LISTING or name == "open")
                if directory in asked.parents or is_listed:
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
            return real(path, *arguments, **fields)

        return call

    with monkeypatch.context() as patch:
        for name in (*_ENTERING, *_LISTING):
            patch.setattr(os, name, refusing(name))
        yield
