"""The check whether a broker answers at an address, made before a command begins, so that it need not wait to find out.

The clients ride out a broker that is away for a while, and so does a command that runs. One that is given the wrong
address, or whose broker does not run, is to hear that at once; `--wait` says that a broker is about to start.
"""

from __future__ import annotations

import os
import socket
import threading
from time import monotonic, sleep
from typing import Any, Final

from logbroker.address import Address, parse_address
from logbroker.errors import BrokerUnavailableError, quoted

ANSWER_SECONDS: Final = 5.0
"""The time that one attempt has to look up the name, to connect, and to get an answer, for each of the three."""
_FIRST_PAUSE_SECONDS: Final = 0.05
_LAST_PAUSE_SECONDS: Final = 0.5
_FRAME_HEADER_BYTES: Final = 9
_SETTINGS: Final = 4
_HELLO: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, _SETTINGS, 0, 0, 0, 0, 0])
"""How every HTTP/2 connection, and so every gRPC connection, begins: the preface and empty settings. The server answers
with settings of its own."""
_SHOWN_BYTES: Final = 40


def reach(broker: str, wait_seconds: float = 0) -> None:
    """Return when a gRPC server answers at `broker`. If none does, try again for this long.

    Raises BrokerUnavailableError that says what is there instead.
    """
    address = parse_address(broker)
    deadline = monotonic() + wait_seconds
    pause_seconds = _FIRST_PAUSE_SECONDS
    while (trouble := _attempt(address)) is not None:
        left_seconds = deadline - monotonic()
        if left_seconds <= 0:
            advice = f"waited {wait_seconds:g} s" if wait_seconds else "--wait SECONDS waits for one that is starting"
            raise BrokerUnavailableError(f"the broker at {broker} cannot be reached: {trouble} ({advice})")
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
    """Look the name up, or return why that fails. It runs in a thread, since nothing else bounds its time."""
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
    """Return what listens there, or None for a server that speaks HTTP/2."""
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
            return f"what listens there has said nothing for {ANSWER_SECONDS:g} s; is that the port of a broker?"
    except (ConnectionResetError, BrokenPipeError):
        pass
    if len(answer) >= _FRAME_HEADER_BYTES and answer[3] == _SETTINGS and answer[:2] == b"\0\0":
        return None
    if not answer:
        return "what listens there ends the connection without an answer, as one for TLS does; is the port right?"
    if answer.startswith((b"HTTP/", b"<")):
        return "a web server listens there, no broker; is the port right?"
    if answer.startswith((b"\x15\x03", b"\x16\x03")):
        return "what listens there wants TLS, which a broker does not speak; is the port right?"
    words = quoted(answer[:_SHOWN_BYTES].split(b"\n")[0].strip().decode("ascii", "backslashreplace"))
    return f"something else listens there, which says {words}; is the port right?"
