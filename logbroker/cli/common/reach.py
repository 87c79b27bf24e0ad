"""Checks whether a broker answers at its address, or at one of several, before a command begins.

Clients wait for a broker that is away, and so do commands that are already running. But if the address is wrong or no
broker runs there, the user should learn it at once. `--wait` says that a broker is about to start.
"""

from __future__ import annotations

import os
import socket
import threading
from time import monotonic, sleep
from typing import Any, Final

from logbroker.address import Address, parse_addresses
from logbroker.errors import BrokerUnavailableError, quoted

ANSWER_SECONDS: Final = 5.0
"""The time limit for each step of one attempt: to look up the name, to connect, and to get an answer."""
_FIRST_PAUSE_SECONDS: Final = 0.05
_LAST_PAUSE_SECONDS: Final = 0.5
_FRAME_HEADER_BYTES: Final = 9
_SETTINGS: Final = 4
_HELLO: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, _SETTINGS, 0, 0, 0, 0, 0])
"""The beginning of every HTTP/2 connection, and so of every gRPC connection: the preface and empty settings. The server
answers with its own settings."""
_SHOWN_BYTES: Final = 40


def reach(broker: str, wait_seconds: float = 0) -> str:
    """Return the first address of `broker` at which an HTTP/2 server, such as gRPC's, answers. If none does, keep
    trying for `wait_seconds`.

    Raises BrokerUnavailableError, which says what was found instead.
    """
    addresses = parse_addresses(broker)
    begun_at = monotonic()
    deadline = begun_at + wait_seconds
    pause_seconds = _FIRST_PAUSE_SECONDS
    while True:
        troubles = []
        for address in addresses:
            if (trouble := _attempt(address)) is None:
                return str(address)
            troubles.append(trouble)
        now = monotonic()
        left_seconds = deadline - now
        if left_seconds <= 0:
            # The last attempt may have ended after the deadline.
            waited = f"waited {round(now - begun_at, 1):g} s"
            advice = waited if wait_seconds else "--wait SECONDS waits for one that is starting"
            if len(addresses) == 1:
                raise BrokerUnavailableError(f"the broker at {broker} cannot be reached: {troubles[0]} ({advice})")
            found = "; ".join(f"{address}: {trouble}" for address, trouble in zip(addresses, troubles, strict=True))
            raise BrokerUnavailableError(f"no broker of {broker} can be reached: {found} ({advice})")
        sleep(min(pause_seconds, left_seconds))
        pause_seconds = min(_LAST_PAUSE_SECONDS, 2 * pause_seconds)


def _attempt(address: Address) -> str | None:
    """Return why no broker answers, or None if one does."""
    trouble = "its name has no address"
    found = _addresses_of(address)
    if isinstance(found, str):
        return found
    for family, kind, protocol, _, target in found:
        try:
            with socket.socket(family, kind, protocol) as connection:
                connection.settimeout(ANSWER_SECONDS)
                connection.connect(target)
                if (wrong := _ask(connection)) is None:
                    return None
                trouble = wrong
        except TimeoutError:
            trouble = (
                f"no connection within {ANSWER_SECONDS:g} s; is the address right, and does a firewall let it through?"
            )
        except ConnectionRefusedError:
            trouble = "connection refused; is it running?"
        except OSError as error:
            trouble = os.strerror(error.errno).lower() if error.errno else str(error)
    return trouble


def _addresses_of(address: Address) -> list[Any] | str:
    """Look up the addresses of the name, or return why that failed. It runs in a thread, because there is no other way
    to limit its time."""
    found: list[list[Any] | str] = []

    def look_up() -> None:
        try:
            found.append(socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            found.append(f"the name {address.host} cannot be looked up ({why}); is it spelled right?")

    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    return found[0] if found else f"the name {address.host} could not be looked up within {ANSWER_SECONDS:g} s"


def _ask(connection: socket.socket) -> str | None:
    """Return None if the server speaks HTTP/2. Otherwise return what is wrong."""
    answer = b""
    deadline = monotonic() + ANSWER_SECONDS
    try:
        connection.sendall(_HELLO)
        while len(answer) < _FRAME_HEADER_BYTES:
            connection.settimeout(max(0.001, deadline - monotonic()))
            part = connection.recv(4096)
            if not part:
                break
            answer += part
    except TimeoutError:
        if not answer:
            return f"the server there has sent nothing for {ANSWER_SECONDS:g} s; is that the port of a broker?"
    except (ConnectionResetError, BrokenPipeError):
        pass
    if len(answer) >= _FRAME_HEADER_BYTES and answer[3] == _SETTINGS and answer[:2] == b"\0\0":
        return None
    if not answer:
        return "the server there ends the connection without an answer, as a TLS server does; is the port right?"
    if answer.startswith((b"HTTP/", b"<")):
        return "a web server listens there, not a broker; is the port right?"
    if answer.startswith((b"\x15\x03", b"\x16\x03")):
        return "the server there requires TLS, which a broker does not speak; is the port right?"
    words = quoted(answer[:_SHOWN_BYTES].split(b"\n")[0].strip().decode("ascii", "backslashreplace"))
    return f"another kind of server listens there and answers {words}; is the port right?"
