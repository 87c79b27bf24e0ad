"""A broker process under limits, and what it takes of memory and descriptors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from logbroker.embedded_broker import READY_PREFIX
from logbroker.tools.segments.findings import Severity
from logbroker.tools.segments.locate import locate
from logbroker.tools.segments.verify import verify
from tests.cli.command import line_of

MIB: Final = 1024 * 1024
_ROOT: Final = Path(__file__).resolve().parents[2]
_STOP_SECONDS: Final = 30


class LimitedBroker:
    """`logbroker serve` below `directory`. Stopped with SIGTERM at the end, which must go cleanly, and all it wrote
    verified; killed where the test failed. `plant` is a name of `tests.hostile.plants` or `tests.kafka_hostile.plants`,
    or "none"."""

    def __init__(
        self, directory: Path, *, memory_bytes: int = 0, descriptors: int = 0, plant: str = "none", **settings: Any
    ) -> None:
        self._data_dir = directory / "data"
        self._log_path = directory / "broker.log"
        config_path = directory / "broker.toml"
        config_path.write_text("".join(f"{name} = {value}\n" for name, value in settings.items()), encoding="ascii")
        limits = [str(memory_bytes), str(descriptors), plant]
        command = [sys.executable, "-m", "tests.hostile.limited_broker", *limits, "serve", "--config", str(config_path)]
        command += ["--data-dir", str(self._data_dir), "--listen", "127.0.0.1:0", "--log-level", "warning"]
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=log)
        self.address = self.kafka_address = ""
        self._checked_bytes = 0

    def __enter__(self) -> Self:
        try:
            line = line_of(self._process).decode()
            assert line.startswith(READY_PREFIX), self.last_words()
        except BaseException:
            self._end()
            raise
        self.address, _, self.kafka_address = line.strip().removeprefix(READY_PREFIX).partition(" kafka=")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._stop_and_verify()
            elif error is not None and not self.is_alive():
                error.add_note(f"the broker ended with code {self._process.returncode}: {self.last_words()}")
        finally:
            self._end()

    @property
    def host_and_port(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host, int(port)

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def resident_bytes(self) -> int:
        return self._memory("VmRSS")

    def peak_bytes(self) -> int:
        """The most that it ever had in memory."""
        return self._memory("VmHWM")

    def descriptors(self) -> int:
        """How many are open."""
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))

    def check_log(self) -> None:
        """Raise AssertionError if the broker has told an error since the last check."""
        with self._log_path.open("rb") as file:
            file.seek(self._checked_bytes)
            new = file.read()
        self._checked_bytes += len(new)
        said = new.decode(errors="replace")
        assert "Traceback" not in said, said[-4000:]
        assert " ERROR " not in said, said[-4000:]

    def last_words(self) -> str:
        return "\n".join(self._log().splitlines()[-30:])

    def _log(self) -> str:
        return self._log_path.read_text(encoding="utf-8", errors="replace").strip()

    def _memory(self, name: str) -> int:
        for line in Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"no {name}: the broker has ended: {self.last_words()}")

    def _stop_and_verify(self) -> None:
        assert self.is_alive(), f"the broker ended with code {self._process.returncode}: {self.last_words()}"
        self._process.terminate()
        code = self._process.wait(_STOP_SECONDS)
        assert code == 0, f"exit code {code}: {self.last_words()}"
        self.check_log()
        reports = verify(locate([self._data_dir]), lambda _bytes: None)
        wrong = [item for report in reports for item in report.findings if item.severity is not Severity.NOTE]
        assert not wrong, wrong[:5]

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()
