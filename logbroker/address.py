"""Parses addresses, HOST:PORT, in the same way for clients, commands and listeners."""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

from logbroker.errors.base import quoted
from logbroker.texts import whole_number

EXAMPLE: Final = "127.0.0.1:9192"
_MAX_PORT: Final = 65_535
USUAL_PORT: Final = 9192
_LABEL: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}")
_MAX_NAME_CHARACTERS: Final = 253
_NUMBERS: Final = re.compile(r"[0-9.]+")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/+(.*)")


class Address(NamedTuple):
    """The address of a listener."""

    host: str
    """A name or an IP address, without brackets."""
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, *, any_port: bool = False) -> Address:
    """Read HOST:PORT. With `any_port` the port may be 0, which means any free port.

    Raises ValueError. Its message is the rest of a sentence that begins with the text: it says what is wrong, and what
    to write instead.
    """
    if not text.strip():
        raise ValueError(f"is empty: give HOST:PORT, such as {EXAMPLE}")
    if any(character.isspace() or not character.isprintable() for character in text):
        raise ValueError(f"has a space or a character that cannot be printed: give HOST:PORT, such as {EXAMPLE}")
    if "," in text:
        raise ValueError(f"is a list: give one HOST:PORT, such as {EXAMPLE}")
    if text.startswith("unix:"):
        raise ValueError(f"is a Unix socket, and only TCP is served: give HOST:PORT, such as {EXAMPLE}")
    if found := _SCHEME.fullmatch(text):
        raise ValueError(f"is a URL: give HOST:PORT without {found[1]}://{_suggested(found[2])}")
    if "/" in text:
        raise ValueError(f"has a path: give HOST:PORT alone{_suggested(text)}")
    if "@" in text:
        raise ValueError(f"names a user: give HOST:PORT alone{_suggested(text)}")
    host, port_text = _parted(text)
    if not host:
        raise ValueError(f"names no host: give HOST:PORT, such as {EXAMPLE}")
    if host == "*" and any_port:
        raise ValueError(f"has no address: for all addresses of this machine give 0.0.0.0:{port_text or USUAL_PORT}")
    _check_host(host)
    if not port_text:
        raise ValueError(f"names no port: give HOST:PORT, such as {Address(host, USUAL_PORT)}")
    port = whole_number(port_text)
    least = 0 if any_port else 1
    if port is None or not least <= port <= _MAX_PORT:
        raise ValueError(
            f"has a port that is not a number from {least} to {_MAX_PORT}: give HOST:PORT, such as {EXAMPLE}"
        )
    return Address(host, port)


def parse_addresses(text: str) -> list[Address]:
    """Read one HOST:PORT, or several with commas between them. An address that is there twice counts once.

    Raises ValueError with a message like that of `parse_address`. It names the wrong one of several.
    """
    parts = text.split(",")
    if len(parts) == 1:
        return [parse_address(text)]
    found: dict[Address, None] = {}
    for number, part in enumerate(parts, 1):
        try:
            found[parse_address(part.strip(" "))] = None
        except ValueError as error:
            raise ValueError(f"is wrong: address {number} of {len(parts)}, {quoted(part)}, {error}") from None
    return list(found)


def _parted(text: str) -> tuple[str, str]:
    """Return host and port, either of which may be empty. Raises ValueError about brackets."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")) or not _is_ipv6(host):
            raise ValueError(
                "has brackets, but is not an IPv6 address and a port: give [ADDRESS]:PORT, such as [::1]:9192"
            )
        return host, rest[1:]
    host, _, port = text.rpartition(":") if ":" in text else (text, "", "")
    if ":" in host or (not host and _is_ipv6(text)):
        if _is_ipv6(host) and whole_number(port) is not None:
            raise ValueError(f"is an IPv6 address without brackets: give [{host}]:{port}")
        if _is_ipv6(text):
            raise ValueError(f"is an IPv6 address without a port: give [{text}]:{USUAL_PORT}")
        raise ValueError(f"has several colons: give HOST:PORT, such as {EXAMPLE}, or [::1]:9192")
    return host, port


def _check_host(host: str) -> None:
    """Raise ValueError for a name that no machine can have."""
    if ":" in host:
        return
    if _NUMBERS.fullmatch(host):
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise ValueError(f"has a host that is not an IPv4 address: give HOST:PORT, such as {EXAMPLE}") from None
    elif len(host) > _MAX_NAME_CHARACTERS or not all(map(_LABEL.fullmatch, host.removesuffix(".").split("."))):
        raise ValueError(
            "has a host that is not a host name (letters, digits, hyphens, underscores and dots):"
            f" give HOST:PORT, such as {EXAMPLE}"
        )


def _suggested(text: str) -> str:
    """Return `, such as` and the address in the text, or an example if it has none."""
    found = text.split("/")[0].split("?")[0].rpartition("@")[2]
    for text in (found, f"{found}:{USUAL_PORT}"):
        try:
            return f", such as {parse_address(text)}"
        except ValueError:
            continue
    return f", such as {EXAMPLE}"


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
