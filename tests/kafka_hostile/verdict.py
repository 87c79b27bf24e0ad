"""The answers that the broker owes for the bytes of a connection, and where that has to end.

The bytes are read as the broker reads them, by the same wire codec, but for Produce, which the broker parses by hand.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec

from logbroker.broker.topics import MAX_ITEMS
from logbroker.kafka_api.apis.table import TABLE
from logbroker.kafka_api.dispatch import MAX_OTHER_BYTES
from logbroker.kafka_api.produce_parser import MAX_TAGS_BYTES
from logbroker.kafka_api.refusal import can_be_refused, refusal_version
from logbroker.kafka_wire.apis import API_VERSIONS, APIS, FETCH, JOIN_GROUP, METADATA, PRODUCE, SYNC_GROUP
from logbroker.kafka_wire.codec import Api
from logbroker.kafka_wire.messages.headers import REQUEST_HEADER, RESPONSE_HEADER
from logbroker.kafka_wire.primitives import WireFormatError

_LEAST: Final = struct.Struct(">hhi")
_LONG_WAIT_MS: Final = 50


class Due(msgspec.Struct):
    """An answer that the broker owes."""

    correlation_id: int
    api: Api
    version: int
    """In which it is written."""
    request: Any
    """None: it was not read, since its version is refused."""
    is_certain: bool
    """False: the connection may have ended before, or the request may wait."""


class Verdict(msgspec.Struct):
    """All that is owed for the bytes of a connection."""

    due: list[Due]
    ends: bool
    """Whether something in it is no request."""
    waits: bool
    """Whether a request may wait for longer than anybody here has time."""


def verdict_on(data: bytes, max_request_bytes: int) -> Verdict:
    """Judge all bytes of a connection."""
    found = Verdict([], ends=False, waits=False)
    at = 0
    while at + 4 <= len(data):
        (size,) = struct.unpack_from(">i", data, at)
        at += 4
        if not 0 < size <= max_request_bytes or at + size > len(data):
            found.ends = True
            break
        frame = data[at : at + size]
        at += size
        try:
            due = _due(frame, is_certain=not (found.ends or found.waits))
        except WireFormatError:
            found.ends = True
            continue
        if due.request is not None:
            if _may_end(due, size):
                found.ends, due.is_certain = True, False
            if _may_wait(due):
                found.waits, due.is_certain = True, False
        found.due.append(due)
    return found


def _due(frame: bytes, *, is_certain: bool) -> Due:
    """Raises WireFormatError where the connection has to end."""
    if len(frame) < _LEAST.size:
        raise WireFormatError("shorter than its header")
    key, version, correlation_id = _LEAST.unpack_from(frame)
    api, served = APIS.get(key), TABLE.get(key)
    if api is None:
        raise WireFormatError("no such API")
    if served is None or version not in served.versions:
        if version < 0 or not can_be_refused(api):
            raise WireFormatError("not to be refused")
        written = 0 if api is API_VERSIONS else refusal_version(api, version)
        return Due(correlation_id, api, written, None, is_certain)
    if api is not PRODUCE and len(frame) > MAX_OTHER_BYTES:
        raise WireFormatError("too large")
    _, at = REQUEST_HEADER.read_part(frame, api.request_header_version(version))
    request = api.request.read(frame, version, at, may_be_longer=api is METADATA)
    return Due(correlation_id, api, version, request, is_certain)


def _may_end(due: Due, size: int) -> bool:
    """Return whether the broker may end the connection, or answer nothing, although the request is whole."""
    if due.api is PRODUCE and (due.request.acks == 0 or size > MAX_TAGS_BYTES):
        return True
    return size > 2 * MAX_ITEMS and _items(due.request) > MAX_ITEMS


def _items(value: Any) -> int:
    if isinstance(value, list):
        return len(value) + sum(map(_items, value))
    if isinstance(value, msgspec.Struct):
        return sum(_items(getattr(value, name)) for name in value.__struct_fields__)
    return 0


def _may_wait(due: Due) -> bool:
    if due.api is FETCH:
        return bool(due.request.max_wait_ms > _LONG_WAIT_MS)
    return due.api in (JOIN_GROUP, SYNC_GROUP)


class Answered(msgspec.Struct):
    """A request with its answer."""

    due: Due
    answer: Any


def answers_in(data: bytes, verdict: Verdict, *, is_cut: bool) -> list[Answered]:
    """Match the bytes that came back with what is owed, in its order.

    Raises AssertionError if an answer is missing that was certain, or is not due. `is_cut`: the end may be missing.
    """
    found: list[Answered] = []
    due = iter(verdict.due)
    at = 0
    while at + 4 <= len(data):
        (size,) = struct.unpack_from(">i", data, at)
        if at + 4 + size > len(data):
            break
        frame = data[at + 4 : at + 4 + size]
        at += 4 + size
        (correlation_id,) = struct.unpack_from(">i", frame)
        for one in due:
            if one.correlation_id == correlation_id:
                break
            assert not one.is_certain, f"no answer to {one.api.name} version {one.version}: {one.request}"
        else:
            raise AssertionError(f"an answer to nothing, or out of order: {frame[:200].hex()}")
        _, begin = RESPONSE_HEADER.read_part(frame, one.api.response_header_version(one.version))
        answer = one.api.response.read(frame, one.version, begin)
        assert not _has_unknown_error(answer), f"{one.api.name} version {one.version}: {one.request}: {answer}"
        found.append(Answered(one, answer))
    if not is_cut:
        assert at == len(data), "the last answer is cut short"
        for one in due:
            assert not one.is_certain, f"no answer to {one.api.name} version {one.version}: {one.request}"
    return found


def _has_unknown_error(answer: Any) -> bool:
    """Return whether an answer says UNKNOWN_SERVER_ERROR, which tells a client nothing."""
    if isinstance(answer, list):
        return any(map(_has_unknown_error, answer[:20]))
    if isinstance(answer, msgspec.Struct):
        return getattr(answer, "error_code", 0) == -1 or any(
            isinstance(value := getattr(answer, name), list) and _has_unknown_error(value)
            for name in answer.__struct_fields__
        )
    return False
