"""A broker process and what a test of its faults asks of it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from logbroker.errors import LogbrokerError, from_status
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.storage.metadata.metadata_store import MetadataReader
from tests.cli.command import line_of
from tests.grpc_api.api import Api

TOPIC = "t"
TIMEOUT_SECONDS = 60
_ROOT = Path(__file__).resolve().parents[2]


class Served:
    """`logbroker serve` on a directory, with one topic of one partition; stopped cleanly at the end where it lives."""

    def __init__(
        self,
        data_dir: Path,
        *,
        launcher: Sequence[str] = ("-m", "logbroker"),
        wrapper: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        self._data_dir = data_dir
        self._own_dir = tempfile.TemporaryDirectory()  # not on a disk that the test fills
        config = Path(self._own_dir.name, "broker.toml")
        config.write_text("".join(f"{name} = {value}\n" for name, value in settings.items()), encoding="utf-8")
        self._log_path = Path(self._own_dir.name, "stderr")
        command = [*wrapper, sys.executable, *launcher, "serve", "--config", str(config), "--log-level", "error"]
        command += ["--data-dir", str(data_dir), "--listen", "127.0.0.1:0"]
        with self._log_path.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, cwd=_ROOT)
        self._api: Api | None = None

    def __enter__(self) -> Self:
        try:
            line = line_of(self.process).decode()
            assert line.startswith("ready grpc="), self.error_lines()
        except BaseException:
            self.end()
            raise
        self.address = line.strip().removeprefix("ready grpc=")
        self._api = Api(self.address)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None and self.process.poll() is None:
                self.process.terminate()
                assert self.process.wait(TIMEOUT_SECONDS) == 0, self.error_lines()
                assert self.clean_stop_is_marked()
        finally:
            self.end()

    def end(self) -> None:
        """End the process, whatever it does."""
        if self._api is not None:
            self._api.channel.close()
        self.process.kill()
        self.process.communicate()
        self._own_dir.cleanup()

    @property
    def api(self) -> Api:
        assert self._api is not None
        return self._api

    def create_topic(self, **configs: str) -> None:
        self.api.create(TOPIC, 1, max_message_bytes=str(8 << 20), **configs)

    def produce(self, *values: bytes) -> bytes:
        """Append one batch; returns its first value once it is acknowledged, raises the broker's refusal otherwise."""
        batch = encode_batch([NewRecord(value) for value in values])
        result = self.api.produce(TOPIC, batch)
        if result.status.code:
            raise from_status(result.status.code, result.status.reason, result.status.message)
        return values[0]

    def produce_unknown(self, *values: bytes) -> None:
        """Append one batch that must not be acknowledged."""
        self.refusal(*values)

    def refusal(self, *values: bytes) -> Exception:
        """Append one batch that must not be acknowledged; return the error."""
        try:
            self.produce(*values)
        except (LogbrokerError, grpc.RpcError) as error:
            return error
        raise AssertionError("the write was acknowledged")

    def produce_until_refused(self, refusal: type[LogbrokerError], size_bytes: int) -> list[bytes]:
        """Append until the broker refuses; returns what was acknowledged."""
        acknowledged: list[bytes] = []
        try:
            while True:
                acknowledged.append(self.produce(b"%d." % len(acknowledged) + bytes(size_bytes)))
        except refusal:
            return acknowledged

    def produce_until_gone(self) -> list[bytes]:
        """Append until the broker fails; returns what was acknowledged before, and sees to it that nothing is after."""
        acknowledged: list[bytes] = []
        try:
            while True:
                acknowledged.append(self.produce(b"%d" % len(acknowledged)))
        except (LogbrokerError, grpc.RpcError):
            pass
        for _ in range(3):
            self.produce_unknown(b"too late")
        return acknowledged

    def values(self) -> list[bytes]:
        return [value for value in self.api.values(TOPIC) if value is not None]

    def exit_code(self) -> int:
        return self.process.wait(TIMEOUT_SECONDS)

    def error_lines(self) -> list[str]:
        """Return what it said on standard error, without its log."""
        text = self._log_path.read_text(encoding="utf-8", errors="replace")
        return [line for line in text.splitlines() if line.startswith("logbroker:") or "Traceback" in line]

    def clean_stop_is_marked(self) -> bool:
        reader = MetadataReader.open(self._data_dir / "meta")
        try:
            return reader.get("broker", b"clean-stop") is not None
        finally:
            reader.close()


def in_directory(path: Path) -> Path:
    """Return a data directory below `path` that exists."""
    os.makedirs(path / "data", exist_ok=True)
    return path / "data"
