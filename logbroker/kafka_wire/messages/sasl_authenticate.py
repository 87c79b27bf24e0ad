"""SaslAuthenticate, API key 36.

Generated from Apache Kafka's message definitions (proto/kafka) by `make kafka-wire`; do not edit.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from logbroker.kafka_wire.codec import MessageCodec
from logbroker.kafka_wire.primitives import (
    NO_TAGS,
    Buffer,
    Parts,
    cut_short,
    misfit,
    read_bytes,
    read_compact_bytes,
    read_compact_nullable_string,
    read_nullable_string,
    skip_tags,
    write_bytes,
    write_compact_bytes,
    write_compact_nullable_string,
    write_nullable_string,
)

_INT16: Final = struct.Struct(">h")
_INT64: Final = struct.Struct(">q")
_INT64_TAGS: Final = struct.Struct(">qB")


class SaslAuthenticateRequest(msgspec.Struct, kw_only=True, gc=False):
    """SaslAuthenticateRequest, versions 0 to 2."""

    auth_bytes: bytes = b""
    """The SASL authentication bytes from the client, as defined by the SASL mechanism. (bytes)"""


def _read_sasl_authenticate_request_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[SaslAuthenticateRequest], int]:
    items: list[SaslAuthenticateRequest] = []
    for _ in range(count):
        auth_bytes, at = read_bytes(data, at, end, "SaslAuthenticateRequest.auth_bytes")
        items.append(SaslAuthenticateRequest(auth_bytes=auth_bytes))
    return items, at


def _write_sasl_authenticate_request_v0(out: Parts, items: Sequence[SaslAuthenticateRequest]) -> None:
    for item in items:
        write_bytes(out, item.auth_bytes, "SaslAuthenticateRequest.auth_bytes")


def _read_sasl_authenticate_request_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[SaslAuthenticateRequest], int]:
    items: list[SaslAuthenticateRequest] = []
    for _ in range(count):
        auth_bytes, at = read_compact_bytes(data, at, end, "SaslAuthenticateRequest.auth_bytes")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "SaslAuthenticateRequest")
        items.append(SaslAuthenticateRequest(auth_bytes=auth_bytes))
    return items, at


def _write_sasl_authenticate_request_v2(out: Parts, items: Sequence[SaslAuthenticateRequest]) -> None:
    for item in items:
        write_compact_bytes(out, item.auth_bytes, "SaslAuthenticateRequest.auth_bytes")
        out.append(NO_TAGS)


REQUEST: Final = MessageCodec(
    SaslAuthenticateRequest,
    {
        0: (_read_sasl_authenticate_request_v0, _write_sasl_authenticate_request_v0),
        1: (_read_sasl_authenticate_request_v0, _write_sasl_authenticate_request_v0),
        2: (_read_sasl_authenticate_request_v2, _write_sasl_authenticate_request_v2),
    },
)


class SaslAuthenticateResponse(msgspec.Struct, kw_only=True, gc=False):
    """SaslAuthenticateResponse, versions 0 to 2."""

    error_code: int = 0
    """The error code, or 0 if there was no error. (int16)"""
    error_message: str | None = ""
    """The error message, or null if there was no error. (string)"""
    auth_bytes: bytes = b""
    """The SASL authentication bytes from the server, as defined by the SASL mechanism. (bytes)"""
    session_lifetime_ms: int = 0
    """Number of milliseconds after which only re-authentication over the existing connection to create a new session
    can occur. (int64, versions 1 to 2, ignorable)"""


_SASL_AUTHENTICATE_RESPONSE_CODES: Final = {"error_code": "h", "session_lifetime_ms": "q"}


def _read_sasl_authenticate_response_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[SaslAuthenticateResponse], int]:
    items: list[SaslAuthenticateResponse] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("SaslAuthenticateResponse.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_nullable_string(data, at, end, "SaslAuthenticateResponse.error_message")
        auth_bytes, at = read_bytes(data, at, end, "SaslAuthenticateResponse.auth_bytes")
        items.append(
            SaslAuthenticateResponse(error_code=error_code, error_message=error_message, auth_bytes=auth_bytes)
        )
    return items, at


def _write_sasl_authenticate_response_v0(out: Parts, items: Sequence[SaslAuthenticateResponse]) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            write_nullable_string(out, item.error_message, "SaslAuthenticateResponse.error_message")
            write_bytes(out, item.auth_bytes, "SaslAuthenticateResponse.auth_bytes")
    except struct.error:
        raise misfit(items, _SASL_AUTHENTICATE_RESPONSE_CODES) from None


def _read_sasl_authenticate_response_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[SaslAuthenticateResponse], int]:
    items: list[SaslAuthenticateResponse] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("SaslAuthenticateResponse.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_nullable_string(data, at, end, "SaslAuthenticateResponse.error_message")
        auth_bytes, at = read_bytes(data, at, end, "SaslAuthenticateResponse.auth_bytes")
        if end - at < 8:
            raise cut_short("SaslAuthenticateResponse.session_lifetime_ms", at, end, 8)
        (session_lifetime_ms,) = _INT64.unpack_from(data, at)
        at += 8
        items.append(
            SaslAuthenticateResponse(
                error_code=error_code,
                error_message=error_message,
                auth_bytes=auth_bytes,
                session_lifetime_ms=session_lifetime_ms,
            )
        )
    return items, at


def _write_sasl_authenticate_response_v1(out: Parts, items: Sequence[SaslAuthenticateResponse]) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            write_nullable_string(out, item.error_message, "SaslAuthenticateResponse.error_message")
            write_bytes(out, item.auth_bytes, "SaslAuthenticateResponse.auth_bytes")
            out.append(_INT64.pack(item.session_lifetime_ms))
    except struct.error:
        raise misfit(items, _SASL_AUTHENTICATE_RESPONSE_CODES) from None


def _read_sasl_authenticate_response_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[SaslAuthenticateResponse], int]:
    items: list[SaslAuthenticateResponse] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("SaslAuthenticateResponse.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        error_message, at = read_compact_nullable_string(data, at, end, "SaslAuthenticateResponse.error_message")
        auth_bytes, at = read_compact_bytes(data, at, end, "SaslAuthenticateResponse.auth_bytes")
        if end - at < 9:
            raise cut_short("SaslAuthenticateResponse.session_lifetime_ms", at, end, 9)
        session_lifetime_ms, tags = _INT64_TAGS.unpack_from(data, at)
        at += 9
        if tags:
            at = skip_tags(data, at - 1, end, "SaslAuthenticateResponse")
        items.append(
            SaslAuthenticateResponse(
                error_code=error_code,
                error_message=error_message,
                auth_bytes=auth_bytes,
                session_lifetime_ms=session_lifetime_ms,
            )
        )
    return items, at


def _write_sasl_authenticate_response_v2(out: Parts, items: Sequence[SaslAuthenticateResponse]) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            write_compact_nullable_string(out, item.error_message, "SaslAuthenticateResponse.error_message")
            write_compact_bytes(out, item.auth_bytes, "SaslAuthenticateResponse.auth_bytes")
            out.append(_INT64_TAGS.pack(item.session_lifetime_ms, 0))
    except struct.error:
        raise misfit(items, _SASL_AUTHENTICATE_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    SaslAuthenticateResponse,
    {
        0: (_read_sasl_authenticate_response_v0, _write_sasl_authenticate_response_v0),
        1: (_read_sasl_authenticate_response_v1, _write_sasl_authenticate_response_v1),
        2: (_read_sasl_authenticate_response_v2, _write_sasl_authenticate_response_v2),
    },
)
