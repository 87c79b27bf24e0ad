"""SaslHandshake, API key 17.

Generated from Apache Kafka's message definitions (proto/kafka) by `make kafka-wire`; do not edit.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from logbroker.kafka_wire.codec import MessageCodec
from logbroker.kafka_wire.primitives import (
    Buffer,
    Parts,
    cut_short,
    misfit,
    read_count,
    read_string,
    read_strings,
    write_count,
    write_string,
    write_strings,
)

_INT16: Final = struct.Struct(">h")


class SaslHandshakeRequest(msgspec.Struct, kw_only=True, gc=False):
    """SaslHandshakeRequest, versions 0 to 1."""

    mechanism: str = ""
    """The SASL mechanism chosen by the client. (string)"""


def _read_sasl_handshake_request_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[SaslHandshakeRequest], int]:
    items: list[SaslHandshakeRequest] = []
    for _ in range(count):
        mechanism, at = read_string(data, at, end, "SaslHandshakeRequest.mechanism")
        items.append(SaslHandshakeRequest(mechanism=mechanism))
    return items, at


def _write_sasl_handshake_request_v0(out: Parts, items: Sequence[SaslHandshakeRequest]) -> None:
    for item in items:
        write_string(out, item.mechanism, "SaslHandshakeRequest.mechanism")


REQUEST: Final = MessageCodec(
    SaslHandshakeRequest,
    {
        0: (_read_sasl_handshake_request_v0, _write_sasl_handshake_request_v0),
        1: (_read_sasl_handshake_request_v0, _write_sasl_handshake_request_v0),
    },
)


class SaslHandshakeResponse(msgspec.Struct, kw_only=True, gc=False):
    """SaslHandshakeResponse, versions 0 to 1."""

    error_code: int = 0
    """The error code, or 0 if there was no error. (int16)"""
    mechanisms: list[str] = []
    """The mechanisms enabled in the server. (string)"""


_SASL_HANDSHAKE_RESPONSE_CODES: Final = {"error_code": "h"}


def _read_sasl_handshake_response_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[SaslHandshakeResponse], int]:
    items: list[SaslHandshakeResponse] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("SaslHandshakeResponse.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        number, at = read_count(data, at, end, 2, "SaslHandshakeResponse.mechanisms")
        mechanisms, at = read_strings(data, at, end, number, "SaslHandshakeResponse.mechanisms")
        items.append(SaslHandshakeResponse(error_code=error_code, mechanisms=mechanisms))
    return items, at


def _write_sasl_handshake_response_v0(out: Parts, items: Sequence[SaslHandshakeResponse]) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            write_strings(
                out,
                write_count(out, item.mechanisms, "SaslHandshakeResponse.mechanisms"),
                "SaslHandshakeResponse.mechanisms",
            )
    except struct.error:
        raise misfit(items, _SASL_HANDSHAKE_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    SaslHandshakeResponse,
    {
        0: (_read_sasl_handshake_response_v0, _write_sasl_handshake_response_v0),
        1: (_read_sasl_handshake_response_v0, _write_sasl_handshake_response_v0),
    },
)
