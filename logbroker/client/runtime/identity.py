"""The identity of a member or worker towards the broker."""

from __future__ import annotations

import functools
import os
import secrets
import socket
import uuid


class Identity:
    """Names one member or worker. Each part is chosen at its first use and then kept. So a client that was made before
    a fork has another identity in each process that uses it."""

    def __init__(self, own_id: str = "", client_name: str = "") -> None:
        """If `own_id` is empty, the id is random. If `client_name` is empty, it names the process: "HOST:PID"."""
        self._own_id = own_id
        self._client_name = client_name

    @functools.cached_property
    def id(self) -> str:
        """The id in the group."""
        return self._own_id or str(uuid.uuid4())

    @functools.cached_property
    def incarnation(self) -> int:
        """A random number, from 1 to 2**64 - 1, that tells two clients with one id apart."""
        return 1 + secrets.randbelow((1 << 64) - 1)

    @functools.cached_property
    def client_name(self) -> str:
        """The name that operators see."""
        return self._client_name or f"{socket.gethostname()}:{os.getpid()}"
