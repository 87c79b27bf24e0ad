"""InitProducerId, API key 22.

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
    read_compact_nullable_string,
    read_nullable_string,
    skip_tags,
    unknown_field,
    write_compact_nullable_string,
    write_nullable_string,
)

_INT32: Final = struct.Struct(">i")
_INT32_TAGS: Final = struct.Struct(">iB")
_INT32_INT16_INT64_INT16: Final = struct.Struct(">ihqh")
_INT32_INT16_INT64_INT16_TAGS: Final = struct.Struct(">ihqhB")
_INT32_INT16_INT64_INT16_INT64_INT16_TAGS: Final = struct.Struct(">ihqhqhB")
_INT32_INT64_INT16_BOOLX2_TAGS: Final = struct.Struct(">iqh??B")
_INT32_INT64_INT16_TAGS: Final = struct.Struct(">iqhB")
_INT32_INT64_INT16_INT8X2_TAGS: Final = struct.Struct(">iqhbbB")


class InitProducerIdRequest(msgspec.Struct, kw_only=True, gc=False):
    """InitProducerIdRequest, versions 0 to 6."""

    transactional_id: str | None = ""
    """The transactional id, or null if the producer is not transactional. (string)"""
    transaction_timeout_ms: int = 0
    """The time in ms to wait before aborting idle transactions sent by this producer. This is only relevant if a
    TransactionalId has been defined. (int32)"""
    producer_id: int = -1
    """The producer id. This is used to disambiguate requests if a transactional id is reused following its
    expiration. (int64, versions 3 to 6)"""
    producer_epoch: int = -1
    """The producer's current epoch. This will be checked against the producer epoch on the broker, and the request
    will return an error if they do not match. (int16, versions 3 to 6)"""
    enable2_pc: bool = False
    """True if the client wants to enable two-phase commit (2PC) protocol for transactions. (bool, version 6)"""
    keep_prepared_txn: bool = False
    """True if the client wants to keep the currently ongoing transaction instead of aborting it. (bool, version 6)"""


_INIT_PRODUCER_ID_REQUEST_CODES: Final = {
    "transaction_timeout_ms": "i",
    "producer_id": "q",
    "producer_epoch": "h",
    "enable2_pc": "b",
    "keep_prepared_txn": "b",
}


def _read_init_producer_id_request_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[InitProducerIdRequest], int]:
    items: list[InitProducerIdRequest] = []
    for _ in range(count):
        transactional_id, at = read_nullable_string(data, at, end, "InitProducerIdRequest.transactional_id")
        if end - at < 4:
            raise cut_short("InitProducerIdRequest.transaction_timeout_ms", at, end, 4)
        (transaction_timeout_ms,) = _INT32.unpack_from(data, at)
        at += 4
        items.append(
            InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=transaction_timeout_ms)
        )
    return items, at


def _write_init_producer_id_request_v0(out: Parts, items: Sequence[InitProducerIdRequest]) -> None:
    try:
        for item in items:
            if item.producer_id != -1:
                raise unknown_field("InitProducerIdRequest.producer_id", item.producer_id)
            if item.producer_epoch != -1:
                raise unknown_field("InitProducerIdRequest.producer_epoch", item.producer_epoch)
            if item.enable2_pc is not False:
                raise unknown_field("InitProducerIdRequest.enable2_pc", item.enable2_pc)
            if item.keep_prepared_txn is not False:
                raise unknown_field("InitProducerIdRequest.keep_prepared_txn", item.keep_prepared_txn)
            write_nullable_string(out, item.transactional_id, "InitProducerIdRequest.transactional_id")
            out.append(_INT32.pack(item.transaction_timeout_ms))
    except struct.error:
        raise misfit(items, _INIT_PRODUCER_ID_REQUEST_CODES) from None


def _read_init_producer_id_request_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[InitProducerIdRequest], int]:
    items: list[InitProducerIdRequest] = []
    for _ in range(count):
        transactional_id, at = read_compact_nullable_string(data, at, end, "InitProducerIdRequest.transactional_id")
        if end - at < 5:
            raise cut_short("InitProducerIdRequest.transaction_timeout_ms", at, end, 5)
        transaction_timeout_ms, tags = _INT32_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "InitProducerIdRequest")
        items.append(
            InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=transaction_timeout_ms)
        )
    return items, at


def _write_init_producer_id_request_v2(out: Parts, items: Sequence[InitProducerIdRequest]) -> None:
    try:
        for item in items:
            if item.producer_id != -1:
                raise unknown_field("InitProducerIdRequest.producer_id", item.producer_id)
            if item.producer_epoch != -1:
                raise unknown_field("InitProducerIdRequest.producer_epoch", item.producer_epoch)
            if item.enable2_pc is not False:
                raise unknown_field("InitProducerIdRequest.enable2_pc", item.enable2_pc)
            if item.keep_prepared_txn is not False:
                raise unknown_field("InitProducerIdRequest.keep_prepared_txn", item.keep_prepared_txn)
            write_compact_nullable_string(out, item.transactional_id, "InitProducerIdRequest.transactional_id")
            out.append(_INT32_TAGS.pack(item.transaction_timeout_ms, 0))
    except struct.error:
        raise misfit(items, _INIT_PRODUCER_ID_REQUEST_CODES) from None


def _read_init_producer_id_request_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[InitProducerIdRequest], int]:
    items: list[InitProducerIdRequest] = []
    for _ in range(count):
        transactional_id, at = read_compact_nullable_string(data, at, end, "InitProducerIdRequest.transactional_id")
        if end - at < 15:
            raise cut_short("InitProducerIdRequest.transaction_timeout_ms to producer_epoch", at, end, 15)
        transaction_timeout_ms, producer_id, producer_epoch, tags = _INT32_INT64_INT16_TAGS.unpack_from(data, at)
        at += 15
        if tags:
            at = skip_tags(data, at - 1, end, "InitProducerIdRequest")
        items.append(
            InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=transaction_timeout_ms,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
            )
        )
    return items, at


def _write_init_producer_id_request_v3(out: Parts, items: Sequence[InitProducerIdRequest]) -> None:
    try:
        for item in items:
            if item.enable2_pc is not False:
                raise unknown_field("InitProducerIdRequest.enable2_pc", item.enable2_pc)
            if item.keep_prepared_txn is not False:
                raise unknown_field("InitProducerIdRequest.keep_prepared_txn", item.keep_prepared_txn)
            write_compact_nullable_string(out, item.transactional_id, "InitProducerIdRequest.transactional_id")
            out.append(
                _INT32_INT64_INT16_TAGS.pack(item.transaction_timeout_ms, item.producer_id, item.producer_epoch, 0)
            )
    except struct.error:
        raise misfit(items, _INIT_PRODUCER_ID_REQUEST_CODES) from None


def _read_init_producer_id_request_v6(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[InitProducerIdRequest], int]:
    items: list[InitProducerIdRequest] = []
    for _ in range(count):
        transactional_id, at = read_compact_nullable_string(data, at, end, "InitProducerIdRequest.transactional_id")
        if end - at < 17:
            raise cut_short("InitProducerIdRequest.transaction_timeout_ms to keep_prepared_txn", at, end, 17)
        transaction_timeout_ms, producer_id, producer_epoch, enable2_pc, keep_prepared_txn, tags = (
            _INT32_INT64_INT16_BOOLX2_TAGS.unpack_from(data, at)
        )
        at += 17
        if tags:
            at = skip_tags(data, at - 1, end, "InitProducerIdRequest")
        items.append(
            InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=transaction_timeout_ms,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                enable2_pc=enable2_pc,
                keep_prepared_txn=keep_prepared_txn,
            )
        )
    return items, at


def _write_init_producer_id_request_v6(out: Parts, items: Sequence[InitProducerIdRequest]) -> None:
    try:
        for item in items:
            write_compact_nullable_string(out, item.transactional_id, "InitProducerIdRequest.transactional_id")
            out.append(
                _INT32_INT64_INT16_INT8X2_TAGS.pack(
                    item.transaction_timeout_ms,
                    item.producer_id,
                    item.producer_epoch,
                    item.enable2_pc,
                    item.keep_prepared_txn,
                    0,
                )
            )
    except struct.error:
        raise misfit(items, _INIT_PRODUCER_ID_REQUEST_CODES) from None


REQUEST: Final = MessageCodec(
    InitProducerIdRequest,
    {
        0: (_read_init_producer_id_request_v0, _write_init_producer_id_request_v0),
        1: (_read_init_producer_id_request_v0, _write_init_producer_id_request_v0),
        2: (_read_init_producer_id_request_v2, _write_init_producer_id_request_v2),
        3: (_read_init_producer_id_request_v3, _write_init_producer_id_request_v3),
        4: (_read_init_producer_id_request_v3, _write_init_producer_id_request_v3),
        5: (_read_init_producer_id_request_v3, _write_init_producer_id_request_v3),
        6: (_read_init_producer_id_request_v6, _write_init_producer_id_request_v6),
    },
)


class InitProducerIdResponse(msgspec.Struct, kw_only=True, gc=False):
    """InitProducerIdResponse, versions 0 to 6."""

    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32)"""
    error_code: int = 0
    """The error code, or 0 if there was no error. (int16)"""
    producer_id: int = -1
    """The current producer id. (int64)"""
    producer_epoch: int = 0
    """The current epoch associated with the producer id. (int16)"""
    ongoing_txn_producer_id: int = -1
    """The producer id for ongoing transaction when KeepPreparedTxn is used, -1 if there is no transaction ongoing.
    (int64, version 6)"""
    ongoing_txn_producer_epoch: int = -1
    """The epoch associated with the producer id for ongoing transaction when KeepPreparedTxn is used, -1 if there is
    no transaction ongoing. (int16, version 6)"""


_INIT_PRODUCER_ID_RESPONSE_CODES: Final = {
    "throttle_time_ms": "i",
    "error_code": "h",
    "producer_id": "q",
    "producer_epoch": "h",
    "ongoing_txn_producer_id": "q",
    "ongoing_txn_producer_epoch": "h",
}


def _read_init_producer_id_response_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[InitProducerIdResponse], int]:
    items: list[InitProducerIdResponse] = []
    for _ in range(count):
        if end - at < 16:
            raise cut_short("InitProducerIdResponse.throttle_time_ms to producer_epoch", at, end, 16)
        throttle_time_ms, error_code, producer_id, producer_epoch = _INT32_INT16_INT64_INT16.unpack_from(data, at)
        at += 16
        items.append(
            InitProducerIdResponse(
                throttle_time_ms=throttle_time_ms,
                error_code=error_code,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
            )
        )
    return items, at


def _write_init_producer_id_response_v0(out: Parts, items: Sequence[InitProducerIdResponse]) -> None:
    try:
        for item in items:
            if item.ongoing_txn_producer_id != -1:
                raise unknown_field("InitProducerIdResponse.ongoing_txn_producer_id", item.ongoing_txn_producer_id)
            if item.ongoing_txn_producer_epoch != -1:
                raise unknown_field(
                    "InitProducerIdResponse.ongoing_txn_producer_epoch", item.ongoing_txn_producer_epoch
                )
            out.append(
                _INT32_INT16_INT64_INT16.pack(
                    item.throttle_time_ms, item.error_code, item.producer_id, item.producer_epoch
                )
            )
    except struct.error:
        raise misfit(items, _INIT_PRODUCER_ID_RESPONSE_CODES) from None


def _read_init_producer_id_response_v2(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[InitProducerIdResponse], int]:
    items: list[InitProducerIdResponse] = []
    for _ in range(count):
        if end - at < 17:
            raise cut_short("InitProducerIdResponse.throttle_time_ms to producer_epoch", at, end, 17)
        throttle_time_ms, error_code, producer_id, producer_epoch, tags = _INT32_INT16_INT64_INT16_TAGS.unpack_from(
            data, at
        )
        at += 17
        if tags:
            at = skip_tags(data, at - 1, end, "InitProducerIdResponse")
        items.append(
            InitProducerIdResponse(
                throttle_time_ms=throttle_time_ms,
                error_code=error_code,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
            )
        )
    return items, at


def _write_init_producer_id_response_v2(out: Parts, items: Sequence[InitProducerIdResponse]) -> None:
    try:
        for item in items:
            if item.ongoing_txn_producer_id != -1:
                raise unknown_field("InitProducerIdResponse.ongoing_txn_producer_id", item.ongoing_txn_producer_id)
            if item.ongoing_txn_producer_epoch != -1:
                raise unknown_field(
                    "InitProducerIdResponse.ongoing_txn_producer_epoch", item.ongoing_txn_producer_epoch
                )
            out.append(
                _INT32_INT16_INT64_INT16_TAGS.pack(
                    item.throttle_time_ms, item.error_code, item.producer_id, item.producer_epoch, 0
                )
            )
    except struct.error:
        raise misfit(items, _INIT_PRODUCER_ID_RESPONSE_CODES) from None


def _read_init_producer_id_response_v6(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[InitProducerIdResponse], int]:
    items: list[InitProducerIdResponse] = []
    for _ in range(count):
        if end - at < 27:
            raise cut_short("InitProducerIdResponse.throttle_time_ms to ongoing_txn_producer_epoch", at, end, 27)
        (
            throttle_time_ms,
            error_code,
            producer_id,
            producer_epoch,
            ongoing_txn_producer_id,
            ongoing_txn_producer_epoch,
            tags,
        ) = _INT32_INT16_INT64_INT16_INT64_INT16_TAGS.unpack_from(data, at)
        at += 27
        if tags:
            at = skip_tags(data, at - 1, end, "InitProducerIdResponse")
        items.append(
            InitProducerIdResponse(
                throttle_time_ms=throttle_time_ms,
                error_code=error_code,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                ongoing_txn_producer_id=ongoing_txn_producer_id,
                ongoing_txn_producer_epoch=ongoing_txn_producer_epoch,
            )
        )
    return items, at


def _write_init_producer_id_response_v6(out: Parts, items: Sequence[InitProducerIdResponse]) -> None:
    try:
        for item in items:
            out.append(
                _INT32_INT16_INT64_INT16_INT64_INT16_TAGS.pack(
                    item.throttle_time_ms,
                    item.error_code,
                    item.producer_id,
                    item.producer_epoch,
                    item.ongoing_txn_producer_id,
                    item.ongoing_txn_producer_epoch,
                    0,
                )
            )
    except struct.error:
        raise misfit(items, _INIT_PRODUCER_ID_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    InitProducerIdResponse,
    {
        0: (_read_init_producer_id_response_v0, _write_init_producer_id_response_v0),
        1: (_read_init_producer_id_response_v0, _write_init_producer_id_response_v0),
        2: (_read_init_producer_id_response_v2, _write_init_producer_id_response_v2),
        3: (_read_init_producer_id_response_v2, _write_init_producer_id_response_v2),
        4: (_read_init_producer_id_response_v2, _write_init_producer_id_response_v2),
        5: (_read_init_producer_id_response_v2, _write_init_producer_id_response_v2),
        6: (_read_init_producer_id_response_v6, _write_init_producer_id_response_v6),
    },
)
