"""Headers of requests and responses.

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
    read_nullable_string,
    skip_tags,
    write_nullable_string,
)

_INT16X2_INT32: Final = struct.Struct(">hhi")
_INT32: Final = struct.Struct(">i")
_INT32_TAGS: Final = struct.Struct(">iB")


class RequestHeader(msgspec.Struct, kw_only=True, gc=False):
    """RequestHeader, versions 1 to 2."""

    request_api_key: int = 0
    """The API key of this request. (int16)"""
    request_api_version: int = 0
    """The API version of this request. (int16)"""
    correlation_id: int = 0
    """The correlation ID of this request. (int32)"""
    client_id: str | None = ""
    """The client ID string. (string)"""


_REQUEST_HEADER_CODES: Final = {"request_api_key": "h", "request_api_version": "h", "correlation_id": "i"}


def _read_request_header_v1(data: Buffer, at: int, end: int, count: int) -> tuple[list[RequestHeader], int]:
    items: list[RequestHeader] = []
    for _ in range(count):
        if end - at < 8:
            raise cut_short("RequestHeader.request_api_key to correlation_id", at, end, 8)
        request_api_key, request_api_version, correlation_id = _INT16X2_INT32.unpack_from(data, at)
        at += 8
        client_id, at = read_nullable_string(data, at, end, "RequestHeader.client_id")
        items.append(
            RequestHeader(
                request_api_key=request_api_key,
                request_api_version=request_api_version,
                correlation_id=correlation_id,
                client_id=client_id,
            )
        )
    return items, at


def _write_request_header_v1(out: Parts, items: Sequence[RequestHeader]) -> None:
    try:
        for item in items:
            out.append(_INT16X2_INT32.pack(item.request_api_key, item.request_api_version, item.correlation_id))
            write_nullable_string(out, item.client_id, "RequestHeader.client_id")
    except struct.error:
        raise misfit(items, _REQUEST_HEADER_CODES) from None


def _read_request_header_v2(data: Buffer, at: int, end: int, count: int) -> tuple[list[RequestHeader], int]:
    items: list[RequestHeader] = []
    for _ in range(count):
        if end - at < 8:
            raise cut_short("RequestHeader.request_api_key to correlation_id", at, end, 8)
        request_api_key, request_api_version, correlation_id = _INT16X2_INT32.unpack_from(data, at)
        at += 8
        client_id, at = read_nullable_string(data, at, end, "RequestHeader.client_id")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "RequestHeader")
        items.append(
            RequestHeader(
                request_api_key=request_api_key,
                request_api_version=request_api_version,
                correlation_id=correlation_id,
                client_id=client_id,
            )
        )
    return items, at


def _write_request_header_v2(out: Parts, items: Sequence[RequestHeader]) -> None:
    try:
        for item in items:
            out.append(_INT16X2_INT32.pack(item.request_api_key, item.request_api_version, item.correlation_id))
            write_nullable_string(out, item.client_id, "RequestHeader.client_id")
            out.append(NO_TAGS)
    except struct.error:
        raise misfit(items, _REQUEST_HEADER_CODES) from None


REQUEST_HEADER: Final = MessageCodec(
    RequestHeader,
    {
        1: (_read_request_header_v1, _write_request_header_v1),
        2: (_read_request_header_v2, _write_request_header_v2),
    },
)


class ResponseHeader(msgspec.Struct, kw_only=True, gc=False):
    """ResponseHeader, versions 0 to 1."""

    correlation_id: int = 0
    """The correlation ID of this response. (int32)"""


_RESPONSE_HEADER_CODES: Final = {"correlation_id": "i"}


def _read_response_header_v0(data: Buffer, at: int, end: int, count: int) -> tuple[list[ResponseHeader], int]:
    items: list[ResponseHeader] = []
    for _ in range(count):
        if end - at < 4:
            raise cut_short("ResponseHeader.correlation_id", at, end, 4)
        (correlation_id,) = _INT32.unpack_from(data, at)
        at += 4
        items.append(ResponseHeader(correlation_id=correlation_id))
    return items, at


def _write_response_header_v0(out: Parts, items: Sequence[ResponseHeader]) -> None:
    try:
        for item in items:
            out.append(_INT32.pack(item.correlation_id))
    except struct.error:
        raise misfit(items, _RESPONSE_HEADER_CODES) from None


def _read_response_header_v1(data: Buffer, at: int, end: int, count: int) -> tuple[list[ResponseHeader], int]:
    items: list[ResponseHeader] = []
    for _ in range(count):
        if end - at < 5:
            raise cut_short("ResponseHeader.correlation_id", at, end, 5)
        correlation_id, tags = _INT32_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "ResponseHeader")
        items.append(ResponseHeader(correlation_id=correlation_id))
    return items, at


def _write_response_header_v1(out: Parts, items: Sequence[ResponseHeader]) -> None:
    try:
        for item in items:
            out.append(_INT32_TAGS.pack(item.correlation_id, 0))
    except struct.error:
        raise misfit(items, _RESPONSE_HEADER_CODES) from None


RESPONSE_HEADER: Final = MessageCodec(
    ResponseHeader,
    {
        0: (_read_response_header_v0, _write_response_header_v0),
        1: (_read_response_header_v1, _write_response_header_v1),
    },
)
