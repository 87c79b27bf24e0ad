"""A member, worker or producer process in the hands of a storm: started, frozen, thawed, sent away and killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any, Final, Protocol

from tests.nursery import processes

_END_SECONDS: Final = 20.0


class MemberFailedError(AssertionError):
    """A member's process ended by itself, or did not end as it was told to."""


class Spec(Protocol):
    """Start parameters of such a process."""

    @property
    def name(self) -> str: ...

    @property
    def history_path(self) -> str: ...


class Life:
    """One process that is, or was, a member or a worker. `run` is what it does."""

    def __init__(self, spec: Spec, run: Callable[[Any, Connection], None]) -> None:
        self.spec = spec
        receiver, self._orders = processes.Pipe(duplex=False)
        self._process = processes.Process(target=run, args=(spec, receiver), name=spec.name, daemon=True)
        self._process.start()
        receiver.close()
        self.frozen = False

    def order(self, order: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._orders.fileno(), order.encode() + b"\n")

    async def freeze(self) -> None:
        """Stop it; returns when it stands still. Raises MemberFailedError where it had ended by itself."""
        self.frozen = True
        self._signal(signal.SIGSTOP)
        stat = Path(f"/proc/{self._process.pid}/stat")
        while stat.read_text(encoding="ascii").rpartition(")")[2].split()[0] != "T":
            await asyncio.sleep(0.001)

    def thaw(self) -> None:
        self.frozen = False
        self._signal(signal.SIGCONT)

    async def kill(self) -> None:
        """Kill it. Raises MemberFailedError where it had ended by itself."""
        self._signal(signal.SIGKILL)
        await self._ended(_END_SECONDS)

    async def leave(self) -> None:
        """Let it close its consumer and end. Raises MemberFailedError where it failed, now or before."""
        self.order("leave")
        await self.finished(_END_SECONDS)

    async def finished(self, seconds: float) -> None:
        """Let it come to its end by itself. Raises MemberFailedError where it failed, or takes longer."""
        await self._ended(seconds)
        if self._process.exitcode != 0:
            raise self._failed()

    async def _ended(self, seconds: float) -> None:
        deadline = monotonic() + seconds
        while self._process.is_alive() and monotonic() < deadline:
            await asyncio.sleep(0.005)
        self._orders.close()

    def _signal(self, number: signal.Signals) -> None:
        # The id of a process that has ended may be another one's by now.
        if not self._process.is_alive() or self._process.pid is None:
            raise self._failed()
        os.kill(self._process.pid, number)

    def _failed(self) -> MemberFailedError:
        log = Path(f"{self.spec.history_path}.log")
        said = log.read_text(encoding="utf-8")[-2000:] if log.exists() else "nothing"
        return MemberFailedError(f"{self.spec.name} ended with {self._process.exitcode}, and said: {said}")

    def end(self) -> None:
        """Leave nothing running, whatever happened."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self._process.close()
