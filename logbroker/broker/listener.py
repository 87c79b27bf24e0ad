"""Common parts of the listeners: their interface, the check of an address, and the errors of listening.

A listener is a port with one protocol. Each has a package of its own, which is imported only if the listener is on.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import socket
from contextlib import ExitStack
from typing import Any, Final, Protocol

from logbroker.address import USUAL_PORT, Address, parse_address
from logbroker.broker.broker import Broker
from logbroker.errors import ListenError, quoted
from logbroker.errors.system import system_error_text

_log = logging.getLogger(__name__)

_FIRST_UNPRIVILEGED_PORT: Final = 1024
_PORT_ATTEMPTS: Final = 20
_BACKLOG: Final = 1024
"""Connections that may wait to be accepted."""
_GIVE_OWN: Final = "give 127.0.0.1, another address of this machine, or 0.0.0.0 for all of them"


class ProtocolListener(Protocol):
    """A port with one protocol."""

    @property
    def name(self) -> str:
        """Name of the protocol in the `ready` line."""
        ...

    async def check(self) -> None:
        """Check that the address can be used, before a data directory is made. Raises ListenError."""
        ...

    async def start(self, broker: Broker) -> Address:
        """Listen, and return the address with the bound port. Raises ListenError."""
        ...

    async def stop(self, *, failed: bool) -> None:
        """Refuse new requests, answer those in flight, and close. If storage has `failed`, answer nothing more."""
        ...


async def checked_address(listen: str, what: str = "the address to listen on") -> Address:
    """Parse HOST:PORT and check that it is free. Warn if other machines may reach it. `what` names it in errors. Raises
    ListenError."""
    try:
        address = parse_address(listen, any_port=True)
    except ValueError as error:
        raise ListenError(f"{what}, {quoted(listen)}, {error}") from None
    try:
        is_reachable = await reachable_from_outside(address.host)
    except OSError as error:
        raise ListenError(f"cannot listen on {address}: {system_error_text(error)}: {_GIVE_OWN}") from None
    if number := await error_of_listening(address.host, address.port):
        raise cannot_listen(address, number)
    if is_reachable:
        _log.warning(
            "listening on %s, which other machines may reach: whoever reaches it may read, write and delete "
            "everything; listen on 127.0.0.1, or let a firewall decide who may connect",
            listen,
        )
    return address


def cannot_listen(address: Address, number: int) -> ListenError:
    """Return the error for the system's error number."""
    if number == errno.EADDRINUSE:
        reason = "another program uses the port: end it, or give another port (0 picks a free one)"
    elif number == errno.EADDRNOTAVAIL:
        reason = f"the address is not this machine's: {_GIVE_OWN}"
    elif number in (errno.EACCES, errno.EPERM) and address.port < _FIRST_UNPRIVILEGED_PORT:
        reason = f"the system keeps this port for privileged programs: give a higher port, such as {USUAL_PORT}"
    else:
        reason = os.strerror(number)
    return ListenError(f"cannot listen on {address}: {reason}")


async def reachable_from_outside(host: str) -> bool:
    """Return whether other machines may be able to connect to a listener on `host`, a name or an address without
    brackets.

    A name is resolved now. Raises OSError if it has no address.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return not all(is_loopback(str(address[0])) for *_, address in found)


async def error_of_listening(host: str, port: int) -> int:
    """Return 0 if a listener can bind the port on at least one address of `host`, else the system's error number.

    If another program listens on any address of `host`, the result is EADDRINUSE, because clients that use the name
    could reach that program. Raises OSError if `host` has no address.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    errors = [_error_of_bind(family, address) for family, *_, address in found]
    if errno.EADDRINUSE in errors:
        return errno.EADDRINUSE
    return 0 if 0 in errors else errors[0]


async def listening_sockets(address: Address) -> list[socket.socket]:
    """Listen on all addresses of a host that this machine has, at one port. If the port is 0, a free one is chosen.

    Raises OSError if no address can be used, or if another program listens on one of them.
    """
    found = await asyncio.get_running_loop().getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    for attempts_left in reversed(range(_PORT_ATTEMPTS)):
        try:
            return _listen_on_all(found, address.port)
        except OSError as error:
            # The port that was free at one address may be in use at another.
            if address.port or error.errno != errno.EADDRINUSE or not attempts_left:
                raise
    raise AssertionError


def _listen_on_all(found: list[Any], port: int) -> list[socket.socket]:
    failure = OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    opened: list[socket.socket] = []
    with ExitStack() as stack:
        for family, *_, target in found:
            try:
                listening = _listening_socket(family, (target[0], port, *target[2:]))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise
                failure = error
            else:
                opened.append(stack.enter_context(listening))
                port = listening.getsockname()[1]
        if not opened:
            raise failure
        stack.pop_all()
    return opened


def _listening_socket(family: int, target: Any) -> socket.socket:
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(target)
        listening.listen(_BACKLOG)
        stack.pop_all()
    return listening


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
