"""Exposure of a listener: to this machine alone, or to others as well."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Any


async def reachable_from_outside(host: str) -> bool:
    """Return whether other machines may be able to connect to a listener on `host`, a name or an address without
    brackets.

    A name counts by the addresses that it has now. Raises OSError where it has none.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return not all(is_loopback(str(address[0])) for *_, address in found)


async def can_listen(host: str, port: int) -> bool:
    """Return whether a port of `host` is free at this moment, on any of its addresses. Raises OSError where it has
    none."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return any(_can_bind(family, address) for family, *_, address in found)


def _can_bind(family: int, address: Any) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError:
        return False
    return True


def is_loopback(address: str) -> bool:
    """Return whether only this machine can send to an address. The unspecified ones (0.0.0.0, ::) stand for all its
    addresses."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback
