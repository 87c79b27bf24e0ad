"""Brokers that come back at their address."""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Any

import logbroker
from logbroker.embedded_broker import EmbeddedBroker


def restartable(data_dir: Path | None = None, **settings: Any) -> EmbeddedBroker:
    """Return a broker with ports that the system gives to no connection. While a broker is away, any other port may
    be given to the very client that dials it: that connects to itself, and the broker cannot come back."""
    listen, kafka_listen = (f"127.0.0.1:{_free_port()}" for _ in range(2))
    return logbroker.embedded(data_dir, kafka=True, listen=listen, kafka_listen=kafka_listen, **settings)


def _free_port() -> int:
    while True:
        port = random.randrange(12_000, 32_000)
        with socket.socket() as server:
            if server.connect_ex(("127.0.0.1", port)):
                return port
