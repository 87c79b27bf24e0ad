"""Finds out whether a listener is reachable from other machines, and whether an address is free."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from typing import Any


async def reachable_from_outside(host: str) -> bool:
    """Return whether other machines may be able to connect to a listener on `host`, a name or an address without
    brackets.

    A name is resolved now. Raises OSError if it has no address.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return not all(is_loopback(str(address[0])) for *_, address in found)


async def error_of_listening(host: str, port: int) -> int:
    """Return the system's error number if no listener can bind the port now, or 0 if it can on at least one address of
    `host`, and no address has another listener: clients that use the name could reach the other one. Raises OSError if
    `host` has no address."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    errors = [_error_of_bind(family, address) for family, *_, address in found]
    if errno.EADDRINUSE in errors:
        return errno.EADDRINUSE
    return 0 if 0 in errors else errors[0]


def _error_of_bind(family: int, address: Any) -> int:
    """Bind the address for a moment, and return the system's error number, or 0."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error.errno or errno.EINVAL
    return 0


def is_loopback(address: str) -> bool:
    """Return whether only this machine can send to an address. False for the unspecified addresses (0.0.0.0, ::), which
    stand for all addresses of the machine."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback
