"""One broker after the other on the same data and port, each ended at a moment of the crash loop's choice."""

from __future__ import annotations

import asyncio
import os
import runpy
import signal
import socket
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection as Pipe
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final

from logbroker.embedded_broker import READY_PREFIX
from tests.nursery import processes

_READY_SECONDS: Final = 30
_STOP_SECONDS: Final = 30
_POLL_SECONDS: Final = 0.002

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
        self._process: ForkServerProcess | None = None
        self._input: Pipe | None = None
        """The broker stops when this is closed."""
        self._output: Pipe | None = None
        self._lives = 0
        self.is_ready = False
        """Whether the broker of this life has said that it serves."""

    async def spawn(self) -> None:
        """Start a broker; it is not ready yet."""
        arguments = [*self._child_options, "serve", "--config", str(self._config_path), "--stop-with-stdin"]
        arguments += ["--data-dir", str(self.data_dir), "--listen", self.address]
        module = self._child_module if self._child_options else "logbroker"
        self._lives += 1
        self.is_ready = False
        seed = str(self._seed * 100_003 + self._lives)
        given, self._input = processes.Pipe(duplex=False)
        self._output, taken = processes.Pipe(duplex=False)
        streams = (given, taken, str(self.log_path))
        self._process = processes.Process(target=_be_broker, args=(module, arguments, seed, streams), daemon=True)
        self._process.start()
        given.close()
        taken.close()

    @property
    def pid(self) -> int:
        assert self._process is not None
        assert self._process.pid is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    async def wait_ready(self) -> None:
        """Raises BrokerFailedError."""
        assert self._output is not None
        reader = asyncio.StreamReader()
        output = os.fdopen(os.dup(self._output.fileno()), "rb")
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), output)
        try:
            async with asyncio.timeout(_READY_SECONDS):
                line = await reader.readline()
        finally:
            transport.close()
        if not line.decode().startswith(READY_PREFIX):
            raise BrokerFailedError(f"the broker did not start: {self.last_words()}")
        self.is_ready = True

    async def kill(self) -> None:
        """SIGKILL. Raises BrokerFailedError where the broker had ended by itself."""
        process = self._take()
        ended_before = not process.is_alive()
        process.kill()
        code = await _exit_code(process)
        if ended_before or code != -signal.SIGKILL:
            raise BrokerFailedError(f"the broker ended by itself with code {code}: {self.last_words()}")

    async def stop(self, *, kill_after_seconds: float = _STOP_SECONDS) -> None:
        """SIGTERM, and SIGKILL if that takes longer. Raises BrokerFailedError where the broker failed meanwhile."""
        process = self._take()
        process.terminate()
        try:
            async with asyncio.timeout(kill_after_seconds):
                code = await _exit_code(process)
        except TimeoutError:
            process.kill()
            code = await _exit_code(process)
        if code not in (0, -signal.SIGKILL):
            raise BrokerFailedError(f"the broker ended with code {code}: {self.last_words()}")

    async def end(self) -> None:
        """Leave nothing running, whatever happened."""
        if self._process is not None:
            process = self._take()
            process.kill()
            await _exit_code(process)

    def _take(self) -> ForkServerProcess:
        process, self._process = self._process, None
        assert process is not None
        return process

    def last_words(self) -> str:
        lines = self.log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return " | ".join(lines[-3:])


async def _exit_code(process: ForkServerProcess) -> int:
    """Wait for the end of a process."""
    while process.exitcode is None:
        await asyncio.sleep(_POLL_SECONDS)
    return process.exitcode


def _be_broker(module: str, arguments: list[str], seed: str, streams: tuple[Pipe, Pipe, str]) -> None:
    """Run a module as `python -m` does, with these standard streams; what a process of multiprocessing runs."""
    given, taken, log_path = streams
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number, stream in enumerate((given.fileno(), taken.fileno(), log)):
        os.dup2(stream, number)
    given.close()
    taken.close()
    os.close(log)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    os.environ["LOGBROKER_CRASH_SEED"] = seed
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)
