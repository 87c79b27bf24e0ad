"""Modes of the files and directories that this program makes, and the removal of directories.

Only the user of this program has access to them, whatever the umask is: a umask can only remove permissions.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from typing import Final

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700


def private_opener(path: str, flags: int) -> int:
    """Open a file, creating it for this user alone if it does not exist: `open(path, "wb", opener=private_opener)`."""
    return os.open(path, flags, FILE_MODE)


def remove_directory(path: str | os.PathLike[str]) -> None:
    """Remove a directory with everything in it. What cannot be removed stays, and so does anything at the path that is
    no directory: this program has not made it.

    `shutil.rmtree` alone opens the path before it looks at its kind, and would wait for ever at a FIFO.
    """
    with suppress(OSError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path, ignore_errors=True)
