"""One broker after the other on the same data and port, each ended at a moment of the crash loop's choice."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from logbroker.embedded_broker import READY_PREFIX

_ROOT: Final = Path(__file__).resolve().parents[2]
_READY_SECONDS: Final = 30
_STOP_SECONDS: Final = 30

# Recovery points and retention run all the time, and files are closed and opened again.
_SETTINGS: Final = """
checkpoint_seconds = 0.1
retention_check_seconds = 0.15
sync_threads = 3
max_open_segments = 16
"""


class BrokerFailedError(AssertionError):
    """A broker did not start, or ended by itself."""


class BrokerProcess:
    """A broker that is started and ended many times. Everything lies in `directory`."""

    def __init__(
        self,
        directory: Path,
        *,
        seed: int,
        child_module: str = "tests.crash.broker_child",
        child_options: Sequence[str] = (),
        settings: str = "",
    ) -> None:
        """With `child_options`, the broker is what `child_module` makes of it. `settings` are further lines of TOML."""
        self.data_dir: Final = directory / "data"
        self.log_path: Final = directory / "broker.log"
        self._seed = seed
        self._child_module = child_module
        self._child_options = list(child_options)
        self._config_path = directory / "broker.toml"
        self._config_path.write_text(_SETTINGS + settings, encoding="ascii")
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.address: Final = f"127.0.0.1:{listener.getsockname()[1]}"
        self._process: asyncio.subprocess.Process | None = None
        self._lives = 0

    async def spawn(self) -> None:
        """Start a broker; it is not ready yet."""
        module = [self._child_module, *self._child_options] if self._child_options else ["logbroker"]
        command = [sys.executable, "-m", *module, "serve", "--config", str(self._config_path), "--stop-with-stdin"]
        command += ["--data-dir", str(self.data_dir), "--listen", self.address]
        self._lives += 1
        with self.log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                cwd=_ROOT,
                env={**os.environ, "LOGBROKER_CRASH_SEED": str(self._seed * 100_003 + self._lives)},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )

    async def wait_ready(self) -> None:
        """Raises BrokerFailedError."""
        assert self._process is not None
        assert self._process.stdout is not None
        async with asyncio.timeout(_READY_SECONDS):
            line = await self._process.stdout.readline()
        if not line.decode().startswith(READY_PREFIX):
            raise BrokerFailedError(f"the broker did not start: {self.last_words()}")

    async def kill(self) -> None:
        """SIGKILL. Raises BrokerFailedError where the broker had ended by itself."""
        process, self._process = self._process, None
        assert process is not None
        ended_before = process.returncode is not None
        if not ended_before:
            process.kill()
        code = await process.wait()
        if ended_before or code != -9:
            raise BrokerFailedError(f"the broker ended by itself with code {code}: {self.last_words()}")

    async def stop(self, *, kill_after_seconds: float = _STOP_SECONDS) -> None:
        """SIGTERM, and SIGKILL if that takes longer. Raises BrokerFailedError where the broker failed meanwhile."""
        process, self._process = self._process, None
        assert process is not None
        process.terminate()
        try:
            async with asyncio.timeout(kill_after_seconds):
                code = await process.wait()
        except TimeoutError:
            process.kill()
            code = await process.wait()
        if code not in (0, -9):
            raise BrokerFailedError(f"the broker ended with code {code}: {self.last_words()}")

    async def end(self) -> None:
        """Leave nothing running, whatever happened."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()

    def last_words(self) -> str:
        lines = self.log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return " | ".join(lines[-3:])
