"""Runs the command line as a user does: as a process."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import IO

LOGBROKER = (sys.executable, "-m", "logbroker")

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
"""Output is buffered as it is for users, so that a missing flush shows."""


def logbroker(*arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [*LOGBROKER, *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, env=ENVIRONMENT, timeout=60, check=False)


def output_of(*arguments: str | Path, stdin: bytes = b"") -> bytes:
    """Run a command that must succeed; return what it wrote to standard output."""
    result = logbroker(*arguments, stdin=stdin)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout


def failure_of(*arguments: str | Path, stdin: bytes = b"") -> str:
    """Run a command that must fail with exit code 1 and one line on standard error; return that line."""
    result = logbroker(*arguments, stdin=stdin)
    assert result.returncode == 1, result.stderr.decode()
    lines = result.stderr.decode().splitlines()
    assert len(lines) == 1, result.stderr.decode()
    return lines[0]


def line_of(process: subprocess.Popen[bytes], timeout_seconds: float = 30, *, error: bool = False) -> bytes:
    """Return the next line of a running command, of its standard output or `error`."""
    stream = process.stderr if error else process.stdout
    assert stream is not None
    readable, _, _ = select.select([stream], [], [], timeout_seconds)
    assert readable, "the command wrote nothing"
    return stream.readline()


def unread_bytes(pipe: IO[bytes] | int) -> int:
    """Return how much lies in a pipe."""
    (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    return int(count)
