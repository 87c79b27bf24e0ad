"""The comparing process's side of a child: calls go in, answers come out."""

from __future__ import annotations

import select
import subprocess
import sys
from typing import Any, Final, Self, TypeVar

import msgspec

from compare.child import Call
from logbroker.errors import LogbrokerError

Answer = TypeVar("Answer")

ANSWER_SECONDS: Final = 900.0


class ChildClient:
    """A peer's client library in a process of its own. Ends on leaving `with`."""

    def __init__(self, peer: str, address: str) -> None:
        """Return when the library is imported; raises LogbrokerError where it cannot be."""
        self._peer = peer
        command = [sys.executable, "-m", "compare.child", peer, address]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._line()

    def begin(self, call: Call) -> None:
        """Send a call; `result` has its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(call) + b"\n")
        self._process.stdin.flush()

    def result(self, kind: type[Answer]) -> Answer:
        """Wait for the answer; raises LogbrokerError with the client's own words where the call failed."""
        answer: dict[str, Any] = msgspec.json.decode(self._line())
        if "error" in answer:
            raise LogbrokerError(f"{self._peer}: {answer['error']}")
        return msgspec.convert(answer["result"], kind)

    def call(self, call: Call, kind: type[Answer]) -> Answer:
        """Send a call and wait for its answer."""
        self.begin(call)
        return self.result(kind)

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], ANSWER_SECONDS)
        if not readable:
            raise LogbrokerError(f"{self._peer}: no answer in {ANSWER_SECONDS:,.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise LogbrokerError(f"{self._peer}: the client's process ended without an answer")
        return line

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._process as process:  # closes its pipes, and waits
            if kind is not None:
                process.kill()
