"""The calls of two journeys: of a record from `send` to the disk and back, of an ack from a worker to LMDB and back.

    python -m tests.journeys [send|ack] [--list]

Broker and client run in this process, over a socket. Counted are the calls from one module of logbroker to another,
generated code left out, in all threads, from the moment at which the program calls until it has the answer. What goes
on beside that at intervals (looks at lags, alarms and disks) is told from it by doing the same without the call.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import msgspec

from logbroker.broker.serving import serve
from logbroker.client import Admin, Producer, QueueAdmin, QueueSettings, Worker, WorkerDelivery
from logbroker.config import BrokerConfig
from logbroker.grpc_api.server import GrpcListener

ROOT = Path(__file__).resolve().parents[1]
HOMES = tuple(str(ROOT / folder) + "/" for folder in ("logbroker", "storage", "consumer_groups", "tools"))
_CALM_SECONDS = 0.02
GENERATED = str(ROOT / "logbroker" / "v1")


class Call(msgspec.Struct, frozen=True):
    """One call across the border of a module."""

    caller: str
    callee: str
    function: str

    def __str__(self) -> str:
        return f"{self.caller} -> {self.callee}: {self.function}"


class Recorder:
    """Writes down calls of Python functions between modules, in this thread and those that begin later."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.is_on = False

    def install(self) -> None:
        threading.setprofile(self._look)
        sys.setprofile(self._look)

    def _look(self, frame: FrameType, event: str, _: Any) -> None:
        if not self.is_on or event != "call" or frame.f_back is None:
            return
        callee, caller = module_of(frame.f_code), module_of(frame.f_back.f_code)
        if callee and caller and callee != caller and begins(frame.f_code, frame.f_lasti):
            self.calls.append(Call(caller, callee, frame.f_code.co_qualname))


@functools.cache
def module_of(code: CodeType) -> str:
    """The module of logbroker that a function is of; "": of none, or it is generated, or no function with a name."""
    path = code.co_filename
    if not path.startswith(HOMES) or path.startswith(GENERATED) or code.co_name.startswith("<"):
        return ""
    relative = Path(path).relative_to(ROOT).with_suffix("")
    return ".".join(part for part in relative.parts if part != "logbroker")


@functools.cache
def begins(code: CodeType, at: int) -> bool:
    """Whether a function begins there; not: a generator or coroutine goes on, which was called before."""
    return code.co_code[at + 1] == 0


async def _journeys(directory: Path, which: str, times: int) -> list[list[Call]]:
    """Make a journey so many times; return the calls of each."""
    recorder, found = Recorder(), list[list[Call]]()
    recorder.install()
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    config = BrokerConfig(data_dir=str(directory), listen="127.0.0.1:0")
    serving = asyncio.create_task(
        serve(
            config,
            [GrpcListener(config, stop)],
            on_ready=lambda addresses: ready.set_result(addresses["grpc"]),
            stop=stop,
        )
    )
    try:
        address = await ready

        async def record(journey: Callable[[], Awaitable[object]]) -> None:
            # What was set off before is over.
            await asyncio.sleep(_CALM_SECONDS)
            recorder.calls = []
            recorder.is_on = True
            await journey()
            recorder.is_on = False
            found.append(recorder.calls)

        async with Admin(address) as admin, Producer(address) as producer, QueueAdmin(address) as queues:
            await admin.create_topic("t", 1)
            await queues.create_queue("q", "t", QueueSettings(ordering="key"))
            await producer.send_and_wait("t", b"first", b"key")
            if which == "send":
                for _ in range(times):
                    await record(lambda: producer.send_and_wait("t", b"value", b"key"))
            else:
                async with Worker(address, "q", prefetch=10) as worker:
                    taken = 0
                    async for delivery in worker:
                        if taken:  # The first one opens what is open afterwards.
                            await record(lambda delivery=delivery: _acked(delivery))  # type: ignore[misc]
                        else:
                            await delivery.ack()
                        taken += 1
                        if taken > times:
                            break
                        await producer.send_and_wait("t", b"value", b"key-%d" % taken)
    finally:
        stop.set()
        await serving
    return found


async def _acked(delivery: WorkerDelivery) -> None:
    await delivery.ack()


def journey(which: str, times: int = 15) -> list[Call]:
    """Return the calls of a journey: those of the shortest of so many, beside which nothing else went on."""
    with tempfile.TemporaryDirectory(prefix="logbroker-journey-") as directory:
        try:
            return min(asyncio.run(_journeys(Path(directory), which, times)), key=len)
        finally:
            threading.setprofile(None)
            sys.setprofile(None)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.journeys", description=__doc__.splitlines()[0])
    parser.add_argument("which", nargs="*", choices=["send", "ack", []], help="both, unless one is named")
    parser.add_argument("--list", action="store_true", help="list the calls, in their order")
    options = parser.parse_args()
    for which in options.which or ["send", "ack"]:
        calls = journey(which)
        sys.stdout.write(f"{which}: {len(calls)} calls between modules\n")
        if options.list:
            sys.stdout.writelines(f"  {call}\n" for call in calls)


if __name__ == "__main__":
    main()
