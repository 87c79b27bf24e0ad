"""Connections that do not behave: sockets without gRPC behind them. HTTP/2: RFC 9113; its headers: RFC 7541."""

from __future__ import annotations

import random
import socket
import struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _WINDOW_UPDATE = 0, 1, 4, 8
_END_HEADERS: Final = 4
_INITIAL_WINDOW_SIZE: Final = 4
_LARGEST_WINDOW: Final = 2**31 - 1


def connected(address: tuple[str, int], said: bytes = b"", *, receive_bytes: int = 0) -> socket.socket:
    """Connect, say something, and never read. Raises OSError where the broker does not take it."""
    connection = socket.socket()
    try:
        if receive_bytes:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.settimeout(25)
        connection.connect(address)
        connection.sendall(said)
    except BaseException:
        connection.close()
        raise
    return connection


def is_closed(connection: socket.socket) -> bool:
    """Whether the other end has closed it."""
    connection.setblocking(False)
    try:
        while chunk := connection.recv(65_536):
            del chunk
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def unfinished_words(rng: random.Random) -> bytes:
    """Return bytes that come to nothing: silence, half a greeting, rubbish, or a greeting and silence."""
    return rng.choice(
        (
            b"",
            PREFACE[: rng.randrange(len(PREFACE))],
            rng.randbytes(rng.randrange(1, 200)),
            b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
            PREFACE + _frame(_SETTINGS, 0, 0, b""),
            PREFACE + _frame(_SETTINGS, 0, 0, b"") + rng.randbytes(50),
            PREFACE + _frame(_SETTINGS, 0, 0, b"") + _frame(_DATA, 0, 1, b"data of no stream"),
        )
    )


def stalled_call(method: str, request: bytes, authority: str) -> bytes:
    """All that it takes to begin a call, with the largest windows: who sends it and never reads stops at TCP."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": authority,
        "content-type": "application/grpc",
        "te": "trailers",
    }
    block = b"".join(b"\0" + _string(name) + _string(value) for name, value in headers.items())
    return b"".join(
        (
            PREFACE,
            _frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW_SIZE, _LARGEST_WINDOW)),
            _frame(_WINDOW_UPDATE, 0, 0, struct.pack(">I", _LARGEST_WINDOW - 65_535)),
            _frame(_HEADERS, _END_HEADERS, 1, block),
            _frame(_DATA, 0, 1, b"\0" + struct.pack(">I", len(request)) + request),
        )
    )


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _string(text: str) -> bytes:
    """A string without Huffman coding; short ones only."""
    encoded = text.encode("ascii")
    assert len(encoded) < 127
    return bytes((len(encoded),)) + encoded
