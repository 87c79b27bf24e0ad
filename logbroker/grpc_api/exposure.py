"""Exposure of a listener: to this machine alone, or to others as well."""

from __future__ import annotations

import asyncio
import ipaddress
import socket


async def reachable_from_outside(host: str) -> bool:
    """Return whether other machines may be able to connect to a listener on `host`, a name or an address without
    brackets.

    A name counts by the addresses that it has now. Raises OSError where it has none.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return not all(is_loopback(str(address[0])) for *_, address in found)


def is_loopback(address: str) -> bool:
    """Return whether only this machine can send to an address. The unspecified ones (0.0.0.0, ::) stand for all its
    addresses."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback
