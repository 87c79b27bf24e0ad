"""A broker within the test, on a loop that counts what each of its rounds does: lines of Python, not time, so that a
busy machine changes nothing. Calls go through the method tables of the server, with what parses and serializes."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from logbroker.broker.broker import Broker, open_broker
from logbroker.broker.read_budget import ReadBudget
from logbroker.config import BrokerConfig
from logbroker.grpc_api.admin_service import AdminService
from logbroker.grpc_api.groups.service import GroupsService
from logbroker.grpc_api.log.service import LogService
from logbroker.grpc_api.methods import method_table
from logbroker.grpc_api.queues.service import QueuesService
from logbroker.v1 import admin_pb2, groups_pb2, log_pb2, queues_pb2
from tests.homes import home_of

SERVICES: Final = {
    name: module.DESCRIPTOR.services_by_name[name]
    for name, module in (("Log", log_pb2), ("Admin", admin_pb2), ("Groups", groups_pb2), ("Queues", queues_pb2))
}
PATIENCE_SECONDS: Final = 60.0


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts the lines that each round runs, while it `is_counting`."""

    def __init__(self) -> None:
        super().__init__()
        self.is_counting = False
        self.most = 0
        """Lines of the round with the most, without what scans of queue groups admitted in it."""
        self.where: dict[str, int] = {}
        """Lines by function, of that round."""
        self.most_of_scan = 0
        """Lines of the step with the most, of those in which the scan of a queue group admits a piece of the log."""
        self.total = 0
        """Lines of all rounds, with the scans."""
        self._steps: list[dict[str, int]] = []
        """Lines by function, of each callback of this round."""

    def start_counting(self) -> None:
        self.is_counting, self.most, self.most_of_scan, self.total, self.where = True, 0, 0, 0, {}
        self._steps = []

    def _run_once(self) -> None:
        if not self.is_counting:
            super()._run_once()  # type: ignore[misc]
            return
        self._steps = [{}]
        sys.settrace(self._trace)
        try:
            super()._run_once()  # type: ignore[misc]
        finally:
            sys.settrace(None)
        lines: Counter[str] = Counter()
        for step in self._steps:
            if any(name.startswith("LaneIndex.admit") for name in step):
                self.most_of_scan = max(self.most_of_scan, sum(step.values()))
                self.total += sum(step.values())
            else:
                lines.update(step)
        count = lines.total()
        self.total += count
        if count > self.most:
            self.most, self.where = count, dict(lines)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_qualname
        if name == "Handle._run":
            self._steps.append({})
        if not self._steps:
            return None  # The rounds that follow are counted.
        lines = self._steps[-1]

        def local(_: FrameType, event: str, __: Any) -> Any:
            if event == "line":
                lines[name] = lines.get(name, 0) + 1
            return local

        return local


class Caller:
    """The context of one call: what it sends, and what it is answered."""

    def __init__(self, requests: Iterable[Any], handler: Any) -> None:
        """`requests`: messages; in a stream also functions of this, which are awaited and may return a message."""
        self._requests = iter(requests)
        self._handler = handler
        self.answers: list[bytes] = []
        self.status: Any = None
        self.call: asyncio.Task[Any] | None = None
        self.has_hung_up = False
        self.wrote = asyncio.Event()
        self._callbacks: list[Callable[[Any], None]] = []

    async def read(self) -> Any:
        for request in self._requests:
            found = request if isinstance(request, Message) else await request(self)
            if found is not None:
                message = found.SerializeToString()
                parse = self._handler.request_deserializer
                return message if parse is None else parse(message)
        return grpc.aio.EOF

    async def write(self, answer: Any) -> None:
        await asyncio.sleep(0)
        self.answers.append(self._handler.response_serializer(answer))
        self.wrote.set()

    def time_remaining(self) -> float | None:
        """The call has no deadline."""
        return None

    async def until(self, is_true: Callable[[Sequence[bytes]], bool]) -> None:
        """Wait for answers."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not is_true(self.answers):
                self.wrote.clear()
                await self.wrote.wait()

    async def hang_up(self) -> None:
        """Be gone."""
        assert self.call is not None
        self.has_hung_up = True
        self.call.cancel()
        await asyncio.Event().wait()

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._callbacks.append(callback)

    async def abort_with_status(self, status: Any) -> None:
        self.status = status
        raise grpc.aio.AbortError

    def end(self) -> None:
        for callback in self._callbacks:
            callback(self)


class Served:
    """The methods of a broker."""

    def __init__(self, broker: Broker) -> None:
        budget = ReadBudget(broker.config.max_fetch_bytes_in_flight, broker.config.fetch_memory_wait_seconds)
        stopping = asyncio.Event()
        self.broker = broker
        self._tables = {
            "Log": method_table(
                SERVICES["Log"], LogService(broker, budget, stopping), raw=("Produce", "ProduceStream")
            ),
            "Admin": method_table(SERVICES["Admin"], AdminService(broker)),
            "Groups": method_table(SERVICES["Groups"], GroupsService(broker, stopping)),
            "Queues": method_table(SERVICES["Queues"], QueuesService(broker, budget, stopping), writing=("Receive",)),
        }

    async def call(self, method: MethodDescriptor, requests: Sequence[Any], *, aborts: bool = False) -> Caller:
        """Call a method; raise AssertionError where it is aborted, unless it is to be."""
        service = method.containing_service
        handler: Any = self._tables[service.name].service(_Details(f"/{service.full_name}/{method.name}"))
        assert handler is not None
        caller = Caller(requests, handler)
        try:
            if method.client_streaming:
                caller.call = asyncio.current_task()
                await handler.stream_stream(None, caller)
            else:
                (request,) = requests
                message = request.SerializeToString()
                parse = handler.request_deserializer
                message = message if parse is None else parse(message)
                if handler.unary_stream is not None:
                    await handler.unary_stream(message, caller)  # It writes its answer itself.
                else:
                    caller.answers.append(handler.response_serializer(await handler.unary_unary(message, caller)))
        except grpc.aio.AbortError:
            assert aborts, caller.status
        except asyncio.CancelledError:
            if not caller.has_hung_up:
                raise
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
        finally:
            caller.end()
        return caller


class _Details:
    def __init__(self, method: str) -> None:
        self.method = method
        self.invocation_metadata: tuple[tuple[str, str | bytes], ...] = ()


def all_methods() -> Iterator[MethodDescriptor]:
    for service in SERVICES.values():
        yield from service.methods


@contextmanager
def counting(loop: CountingLoop) -> Iterator[None]:
    loop.start_counting()
    try:
        yield
    finally:
        loop.is_counting = False


@asynccontextmanager
async def served(data_dir: Path, **settings: Any) -> AsyncIterator[Served]:
    failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with open_broker(BrokerConfig(data_dir=str(data_dir), **settings), failure) as broker:
        yield Served(broker)
        home_of(broker).groups.freeze()
        home_of(broker).queues.freeze()
