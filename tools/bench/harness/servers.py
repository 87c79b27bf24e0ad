"""The process that a broker is measured against."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from logbroker.child_python import child_command
from logbroker.errors import BrokerUnavailableError


@contextmanager
def baseline_server(directory: Path) -> Iterator[str]:
    """Run the baseline server on a file in `directory`. Yield its address."""
    command = child_command("logbroker.tools.bench.harness.baseline_server", str(directory))
    # The server has a process group of its own, because Ctrl-C is meant for the program: the server must not end before
    # the program.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready grpc="):
            raise BrokerUnavailableError("the baseline server did not start")
        yield line.strip().removeprefix("ready grpc=")
    finally:
        process.communicate(timeout=30)  # This closes its standard input, and so stops it.
