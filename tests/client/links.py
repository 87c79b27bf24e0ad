"""Ways to a broker that are slow, long, or broken on one side."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Pipe:
    """One connection through a `Link`: what came back on it, and whether it may."""

    def __init__(self) -> None:
        self.bytes_back = 0
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.goes_forth = asyncio.Event()
        self.goes_forth.set()


class Link:
    """A way to a broker. Each connection stands still once `limit_bytes` have come back on it; answers take
    `delay_seconds`, and come at `bytes_per_second`, however much the broker sends."""

    def __init__(
        self, *, limit_bytes: int | None = None, delay_seconds: float = 0.0, bytes_per_second: float = math.inf
    ) -> None:
        self.address = ""
        self.pipes: list[Pipe] = []
        self.limit_bytes = limit_bytes
        self._cut = asyncio.Event()
        self._far_ends: list[asyncio.StreamWriter] = []
        self._near_ends: list[asyncio.StreamWriter] = []
        self._delay_seconds = delay_seconds
        self._bytes_per_second = bytes_per_second

    @property
    def full(self) -> list[Pipe]:
        return [pipe for pipe in self.pipes if not pipe.goes_on.is_set()]

    @property
    def open(self) -> int:
        """How many connections there are."""
        return sum(not end.is_closing() for end in self._near_ends)

    def release(self) -> None:
        self.limit_bytes = None
        for pipe in self.pipes:
            pipe.goes_on.set()
            pipe.goes_forth.set()

    def freeze(self, *, answers_only: bool = False) -> None:
        """Pass nothing more on, on the connections that there are, and keep them open; new ones come through."""
        for pipe in self.pipes:
            pipe.goes_on.clear()
            if not answers_only:
                pipe.goes_forth.clear()

    def break_off(self) -> None:
        """Break the client's side of all connections that there are, with what is held back on them."""
        for end in self._near_ends:
            end.transport.abort()

    def cut_far_ends(self) -> None:
        """Break the broker's side of all connections for good; the near side does not show it."""
        self._cut.set()
        for end in self._far_ends:
            end.transport.abort()

    @asynccontextmanager
    async def to(self, broker: str) -> AsyncIterator[Link]:
        host, _, port = broker.rpartition(":")

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if self._cut.is_set():
                writer.transport.abort()
                return
            there_reader, there_writer = await asyncio.open_connection(host, int(port))
            self._near_ends.append(writer)
            self._far_ends.append(there_writer)
            self.pipes.append(pipe := Pipe())
            try:
                await asyncio.gather(_forth(reader, there_writer, pipe), self._back(there_reader, writer, pipe))
            except (OSError, asyncio.CancelledError):
                pass  # One of them is gone, or the test is over.
            finally:
                for end in (there_writer,) if self._cut.is_set() else (writer, there_writer):
                    end.transport.abort()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            self.address = ":".join(map(str, server.sockets[0].getsockname()))
            try:
                yield self
            finally:
                self.release()
                for end in self._near_ends:
                    end.transport.abort()

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pipe: Pipe) -> None:
        loop = asyncio.get_running_loop()
        free_at = loop.time()
        while data := await reader.read(16_384):
            pipe.bytes_back += len(data)
            if self.limit_bytes is not None and pipe.bytes_back >= self.limit_bytes:
                pipe.goes_on.clear()
            await pipe.goes_on.wait()
            if self._bytes_per_second < math.inf:
                free_at = max(free_at, loop.time()) + len(data) / self._bytes_per_second
                loop.call_at(free_at, writer.write, data)
            elif self._delay_seconds:
                loop.call_later(self._delay_seconds, writer.write, data)
            else:
                writer.write(data)
                await writer.drain()
        if not self._cut.is_set():
            writer.transport.abort()


async def _forth(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pipe: Pipe) -> None:
    while data := await reader.read(16_384):
        await pipe.goes_forth.wait()
        writer.write(data)
        await writer.drain()
    writer.transport.abort()
