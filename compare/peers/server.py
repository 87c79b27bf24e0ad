"""A peer's server: started by hand on free ports, watched and ended by its own process group."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from logbroker.errors import BrokerUnavailableError

HOST: Final = "127.0.0.1"
START_SECONDS: Final = 180.0
STOP_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.005
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        return int(sock.getsockname()[1])


def accepts(address: str) -> bool:
    """Return whether somebody listens at HOST:PORT, or at one of several with commas between them."""
    for each in address.split(","):
        host, _, port = each.rpartition(":")
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return True
    return False


class ServerProcess:
    """A server that a command starts. Its output goes to `server.log` in the directory."""

    def __init__(
        self, command: Sequence[str], *, address: str, directory: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.address: Final = address
        self._command = list(command)
        self._directory = directory
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Execute it, and return when its port accepts connections; raises BrokerUnavailableError."""
        log_path = self._directory / "server.log"
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*_ends_with_its_parent(), *self._command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                env=self._environment,
                start_new_session=True,
            )
        end = time.monotonic() + START_SECONDS
        while not accepts(self.address):
            if self._process.poll() is not None or time.monotonic() > end:
                self.kill()
                words = log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:]
                raise BrokerUnavailableError(f"{self._command[0]} did not start: {' / '.join(words)}")
            time.sleep(_LOOK_SECONDS)

    def stop(self) -> None:
        """Ask it to stop (SIGTERM), and wait."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it and all that it has started."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            if how is signal.SIGTERM:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(STOP_SECONDS)
            os.killpg(process.pid, signal.SIGKILL)  # the group is its own: nobody else's process is in it
        process.wait()

    def signal(self, how: signal.Signals) -> None:
        """Send a signal to it and all that it has started."""
        assert self._process is not None
        os.killpg(self._process.pid, how)

    def resident_bytes(self) -> int:
        """Return the resident memory of all processes of its group."""
        return sum(_resident_bytes(pid) for pid in _group(self._process.pid)) if self._process else 0


def _ends_with_its_parent() -> list[str]:
    """A prefix by which the kernel ends a command when whoever started it was killed; empty where there is none."""
    found = shutil.which("setpriv")
    return [found, "--pdeathsig", "KILL", "--"] if found else []


def _group(group: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # The name, in parentheses, may hold spaces; behind it come state, parent and group.
            if (
                int((path / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[2])
                == group
            ):
                found.append(int(path.name))
    return found


def _resident_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
    return 0
