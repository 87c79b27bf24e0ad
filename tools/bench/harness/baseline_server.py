"""The ceiling of measurements: a gRPC server that stores and returns bytes and does nothing else.

It has no checks, no offsets and no envelope, so its cost is that of gRPC and of the file. It runs as its own process:
`python -m logbroker.tools.bench.harness.baseline_server DIRECTORY` prints one line `ready grpc=HOST:PORT` and serves
until its standard input closes.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import grpc
import uvloop

Context = grpc.aio.ServicerContext[Any, Any]


class BaselineServer:
    """Appends to one file, and reads from it."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        self._size_bytes = 0

    async def append(self, payload: bytes, context: Context) -> bytes:
        os.pwrite(self._fd, payload, self._size_bytes)
        self._size_bytes += len(payload)
        return b""

    async def read(self, request: bytes, context: Context) -> bytes:
        """Return bytes of the file. `request` is the position and the size in ASCII."""
        position, size_bytes = map(int, request.split())
        return os.pread(self._fd, size_bytes, position)

    async def read_stream(self, request: bytes, context: Context) -> None:
        """Send bytes of the file in chunks. `request` is the chunk size and the number of bytes in ASCII."""
        chunk_bytes, total_bytes = map(int, request.split())
        for position in range(0, total_bytes, chunk_bytes):
            await context.write(os.pread(self._fd, chunk_bytes, position))

    async def clear(self, request: bytes, context: Context) -> bytes:
        os.ftruncate(self._fd, 0)
        self._size_bytes = 0
        return b""


async def _serve(directory: Path) -> None:
    bare = BaselineServer(directory / "bare.log")
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)])
    handlers: dict[str, Any] = {
        "Append": grpc.unary_unary_rpc_method_handler(bare.append),
        "Read": grpc.unary_unary_rpc_method_handler(bare.read),
        "ReadStream": grpc.unary_stream_rpc_method_handler(bare.read_stream),
        "Clear": grpc.unary_unary_rpc_method_handler(bare.clear),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare.Log", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"ready grpc=127.0.0.1:{port}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.buffer.read)
    await server.stop(0)


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1])))
