"""Modes of the files that this program makes: only its own user has access, whatever the umask is.

A umask only removes permissions. So a stricter umask also applies to these files.
"""

from __future__ import annotations

import os
from typing import Final

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700


def private_opener(path: str, flags: int) -> int:
    """Open a file, creating it for this user alone if it does not exist: `open(path, "wb", opener=private_opener)`."""
    return os.open(path, flags, FILE_MODE)
