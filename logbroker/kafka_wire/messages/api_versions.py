"""ApiVersions, API key 18.

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
    check_tag_end,
    cut_short,
    misfit,
    read_compact_count,
    read_compact_nullable_string,
    read_compact_string,
    read_count,
    read_tag,
    read_uvarint,
    skip_tags,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
    write_count,
    write_tags,
)

_BOOL: Final = struct.Struct(">?")
_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_INT16X2_TAGS: Final = struct.Struct(">hhB")
_INT16X3: Final = struct.Struct(">hhh")
_INT16X3_TAGS: Final = struct.Struct(">hhhB")
_INT32: Final = struct.Struct(">i")
_INT32_TAGS: Final = struct.Struct(">iB")
_INT64: Final = struct.Struct(">q")


class ApiVersionsRequest(msgspec.Struct, kw_only=True, gc=False):
    """ApiVersionsRequest, versions 0 to 5."""

    client_software_name: str = ""
    """The name of the client. (string, versions 3 to 5, ignorable)"""
    client_software_version: str = ""
    """The version of the client. (string, versions 3 to 5, ignorable)"""
    cluster_id: str | None = None
    """The cluster ID the client intends to connect to. Provide both ClusterId and NodeId, if known. (string, version
    5, ignorable)"""
    node_id: int = -1
    """The node ID the client intends to connect to. Provide both ClusterId and NodeId, if known. (int32, version 5,
    ignorable)"""


_API_VERSIONS_REQUEST_CODES: Final = {"node_id": "i"}


def _read_api_versions_request_v0(data: Buffer, at: int, end: int, count: int) -> tuple[list[ApiVersionsRequest], int]:
    return [ApiVersionsRequest() for _ in range(count)], at


def _write_api_versions_request_v0(out: Parts, items: Sequence[ApiVersionsRequest]) -> None:
    """Write nothing: this version has no fields."""


def _read_api_versions_request_v3(data: Buffer, at: int, end: int, count: int) -> tuple[list[ApiVersionsRequest], int]:
    items: list[ApiVersionsRequest] = []
    for _ in range(count):
        client_software_name, at = read_compact_string(data, at, end, "ApiVersionsRequest.client_software_name")
        client_software_version, at = read_compact_string(data, at, end, "ApiVersionsRequest.client_software_version")
        at = at + 1 if at < end and not data[at] else skip_tags(data, at, end, "ApiVersionsRequest")
        items.append(
            ApiVersionsRequest(
                client_software_name=client_software_name, client_software_version=client_software_version
            )
        )
    return items, at


def _write_api_versions_request_v3(out: Parts, items: Sequence[ApiVersionsRequest]) -> None:
    for item in items:
        write_compact_string(out, item.client_software_name, "ApiVersionsRequest.client_software_name")
        write_compact_string(out, item.client_software_version, "ApiVersionsRequest.client_software_version")
        out.append(NO_TAGS)


def _read_api_versions_request_v5(data: Buffer, at: int, end: int, count: int) -> tuple[list[ApiVersionsRequest], int]:
    items: list[ApiVersionsRequest] = []
    for _ in range(count):
        client_software_name, at = read_compact_string(data, at, end, "ApiVersionsRequest.client_software_name")
        client_software_version, at = read_compact_string(data, at, end, "ApiVersionsRequest.client_software_version")
        cluster_id, at = read_compact_nullable_string(data, at, end, "ApiVersionsRequest.cluster_id")
        if end - at < 5:
            raise cut_short("ApiVersionsRequest.node_id", at, end, 5)
        node_id, tags = _INT32_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "ApiVersionsRequest")
        items.append(
            ApiVersionsRequest(
                client_software_name=client_software_name,
                client_software_version=client_software_version,
                cluster_id=cluster_id,
                node_id=node_id,
            )
        )
    return items, at


def _write_api_versions_request_v5(out: Parts, items: Sequence[ApiVersionsRequest]) -> None:
    try:
        for item in items:
            write_compact_string(out, item.client_software_name, "ApiVersionsRequest.client_software_name")
            write_compact_string(out, item.client_software_version, "ApiVersionsRequest.client_software_version")
            write_compact_nullable_string(out, item.cluster_id, "ApiVersionsRequest.cluster_id")
            out.append(_INT32_TAGS.pack(item.node_id, 0))
    except struct.error:
        raise misfit(items, _API_VERSIONS_REQUEST_CODES) from None


REQUEST: Final = MessageCodec(
    ApiVersionsRequest,
    {
        0: (_read_api_versions_request_v0, _write_api_versions_request_v0),
        1: (_read_api_versions_request_v0, _write_api_versions_request_v0),
        2: (_read_api_versions_request_v0, _write_api_versions_request_v0),
        3: (_read_api_versions_request_v3, _write_api_versions_request_v3),
        4: (_read_api_versions_request_v3, _write_api_versions_request_v3),
        5: (_read_api_versions_request_v5, _write_api_versions_request_v5),
    },
)


class ApiVersionsResponseFinalizedFeatureKey(msgspec.Struct, kw_only=True, gc=False):
    """List of cluster-wide finalized features. The information is valid only if FinalizedFeaturesEpoch >= 0."""

    name: str = ""
    """The name of the feature. (string, versions 3 to 5)"""
    max_version_level: int = 0
    """The cluster-wide finalized max version level for the feature. (int16, versions 3 to 5)"""
    min_version_level: int = 0
    """The cluster-wide finalized min version level for the feature. (int16, versions 3 to 5)"""


class ApiVersionsResponseSupportedFeatureKey(msgspec.Struct, kw_only=True, gc=False):
    """Features supported by the broker. Note: in v0-v3, features with MinSupportedVersion = 0 are omitted."""

    name: str = ""
    """The name of the feature. (string, versions 3 to 5)"""
    min_version: int = 0
    """The minimum supported version for the feature. (int16, versions 3 to 5)"""
    max_version: int = 0
    """The maximum supported version for the feature. (int16, versions 3 to 5)"""


class ApiVersionsResponseVersion(msgspec.Struct, kw_only=True, gc=False):
    """The APIs supported by the broker."""

    api_key: int = 0
    """The API index. (int16)"""
    min_version: int = 0
    """The minimum supported version, inclusive. (int16)"""
    max_version: int = 0
    """The maximum supported version, inclusive. (int16)"""


class ApiVersionsResponse(msgspec.Struct, kw_only=True, gc=False):
    """ApiVersionsResponse, versions 0 to 5."""

    error_code: int = 0
    """The top-level error code. (int16)"""
    api_keys: list[ApiVersionsResponseVersion] = []
    """The APIs supported by the broker."""
    throttle_time_ms: int = 0
    """The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
    request did not violate any quota. (int32, versions 1 to 5, ignorable)"""
    supported_features: list[ApiVersionsResponseSupportedFeatureKey] = []
    """Features supported by the broker. Note: in v0-v3, features with MinSupportedVersion = 0 are omitted. (versions
    3 to 5, ignorable)"""
    finalized_features_epoch: int = -1
    """The monotonically increasing epoch for the finalized features information. Valid values are >= 0. A value of
    -1 is special and represents unknown epoch. (int64, versions 3 to 5, ignorable)"""
    finalized_features: list[ApiVersionsResponseFinalizedFeatureKey] = []
    """List of cluster-wide finalized features. The information is valid only if FinalizedFeaturesEpoch >= 0.
    (versions 3 to 5, ignorable)"""
    zk_migration_ready: bool = False
    """Set by a KRaft controller if the required configurations for ZK migration are present. (bool, versions 3 to 5,
    ignorable)"""


_API_VERSIONS_RESPONSE_CODES: Final = {
    "error_code": "h",
    "throttle_time_ms": "i",
    "finalized_features_epoch": "q",
    "zk_migration_ready": "b",
}
_API_VERSIONS_RESPONSE_VERSION_CODES: Final = {"api_key": "h", "min_version": "h", "max_version": "h"}
_API_VERSIONS_RESPONSE_SUPPORTED_FEATURE_KEY_CODES: Final = {"min_version": "h", "max_version": "h"}
_API_VERSIONS_RESPONSE_FINALIZED_FEATURE_KEY_CODES: Final = {"max_version_level": "h", "min_version_level": "h"}


def _read_api_versions_response_version_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ApiVersionsResponseVersion], int]:
    items: list[ApiVersionsResponseVersion] = []
    for _ in range(count):
        if end - at < 6:
            raise cut_short("ApiVersionsResponseVersion.api_key to max_version", at, end, 6)
        api_key, min_version, max_version = _INT16X3.unpack_from(data, at)
        at += 6
        items.append(ApiVersionsResponseVersion(api_key=api_key, min_version=min_version, max_version=max_version))
    return items, at


def _write_api_versions_response_version_v0(out: Parts, items: Sequence[ApiVersionsResponseVersion]) -> None:
    try:
        for item in items:
            out.append(_INT16X3.pack(item.api_key, item.min_version, item.max_version))
    except struct.error:
        raise misfit(items, _API_VERSIONS_RESPONSE_VERSION_CODES) from None


def _read_api_versions_response_v0(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ApiVersionsResponse], int]:
    items: list[ApiVersionsResponse] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("ApiVersionsResponse.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        number, at = read_count(data, at, end, 6, "ApiVersionsResponse.api_keys")
        api_keys, at = _read_api_versions_response_version_v0(data, at, end, number)
        items.append(ApiVersionsResponse(error_code=error_code, api_keys=api_keys))
    return items, at


def _write_api_versions_response_v0(out: Parts, items: Sequence[ApiVersionsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            _write_api_versions_response_version_v0(
                out, write_count(out, item.api_keys, "ApiVersionsResponse.api_keys")
            )
    except struct.error:
        raise misfit(items, _API_VERSIONS_RESPONSE_CODES) from None


def _read_api_versions_response_v1(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ApiVersionsResponse], int]:
    items: list[ApiVersionsResponse] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("ApiVersionsResponse.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        number, at = read_count(data, at, end, 6, "ApiVersionsResponse.api_keys")
        api_keys, at = _read_api_versions_response_version_v0(data, at, end, number)
        if end - at < 4:
            raise cut_short("ApiVersionsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        items.append(ApiVersionsResponse(error_code=error_code, api_keys=api_keys, throttle_time_ms=throttle_time_ms))
    return items, at


def _write_api_versions_response_v1(out: Parts, items: Sequence[ApiVersionsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            _write_api_versions_response_version_v0(
                out, write_count(out, item.api_keys, "ApiVersionsResponse.api_keys")
            )
            out.append(_INT32.pack(item.throttle_time_ms))
    except struct.error:
        raise misfit(items, _API_VERSIONS_RESPONSE_CODES) from None


def _read_api_versions_response_version_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ApiVersionsResponseVersion], int]:
    items: list[ApiVersionsResponseVersion] = []
    for _ in range(count):
        if end - at < 7:
            raise cut_short("ApiVersionsResponseVersion.api_key to max_version", at, end, 7)
        api_key, min_version, max_version, tags = _INT16X3_TAGS.unpack_from(data, at)
        at += 7
        if tags:
            at = skip_tags(data, at - 1, end, "ApiVersionsResponseVersion")
        items.append(ApiVersionsResponseVersion(api_key=api_key, min_version=min_version, max_version=max_version))
    return items, at


def _write_api_versions_response_version_v3(out: Parts, items: Sequence[ApiVersionsResponseVersion]) -> None:
    try:
        for item in items:
            out.append(_INT16X3_TAGS.pack(item.api_key, item.min_version, item.max_version, 0))
    except struct.error:
        raise misfit(items, _API_VERSIONS_RESPONSE_VERSION_CODES) from None


def _read_api_versions_response_supported_feature_key_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ApiVersionsResponseSupportedFeatureKey], int]:
    items: list[ApiVersionsResponseSupportedFeatureKey] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "ApiVersionsResponseSupportedFeatureKey.name")
        if end - at < 5:
            raise cut_short("ApiVersionsResponseSupportedFeatureKey.min_version to max_version", at, end, 5)
        min_version, max_version, tags = _INT16X2_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "ApiVersionsResponseSupportedFeatureKey")
        items.append(
            ApiVersionsResponseSupportedFeatureKey(name=name, min_version=min_version, max_version=max_version)
        )
    return items, at


def _write_api_versions_response_supported_feature_key_v3(
    out: Parts, items: Sequence[ApiVersionsResponseSupportedFeatureKey]
) -> None:
    try:
        for item in items:
            write_compact_string(out, item.name, "ApiVersionsResponseSupportedFeatureKey.name")
            out.append(_INT16X2_TAGS.pack(item.min_version, item.max_version, 0))
    except struct.error:
        raise misfit(items, _API_VERSIONS_RESPONSE_SUPPORTED_FEATURE_KEY_CODES) from None


def _read_api_versions_response_finalized_feature_key_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ApiVersionsResponseFinalizedFeatureKey], int]:
    items: list[ApiVersionsResponseFinalizedFeatureKey] = []
    for _ in range(count):
        name, at = read_compact_string(data, at, end, "ApiVersionsResponseFinalizedFeatureKey.name")
        if end - at < 5:
            raise cut_short("ApiVersionsResponseFinalizedFeatureKey.max_version_level to min_version_level", at, end, 5)
        max_version_level, min_version_level, tags = _INT16X2_TAGS.unpack_from(data, at)
        at += 5
        if tags:
            at = skip_tags(data, at - 1, end, "ApiVersionsResponseFinalizedFeatureKey")
        items.append(
            ApiVersionsResponseFinalizedFeatureKey(
                name=name, max_version_level=max_version_level, min_version_level=min_version_level
            )
        )
    return items, at


def _write_api_versions_response_finalized_feature_key_v3(
    out: Parts, items: Sequence[ApiVersionsResponseFinalizedFeatureKey]
) -> None:
    try:
        for item in items:
            write_compact_string(out, item.name, "ApiVersionsResponseFinalizedFeatureKey.name")
            out.append(_INT16X2_TAGS.pack(item.max_version_level, item.min_version_level, 0))
    except struct.error:
        raise misfit(items, _API_VERSIONS_RESPONSE_FINALIZED_FEATURE_KEY_CODES) from None


def _read_api_versions_response_v3(
    data: Buffer, at: int, end: int, count: int
) -> tuple[list[ApiVersionsResponse], int]:
    items: list[ApiVersionsResponse] = []
    for _ in range(count):
        if end - at < 2:
            raise cut_short("ApiVersionsResponse.error_code", at, end, 2)
        (error_code,) = _INT16.unpack_from(data, at)
        at += 2
        number, at = read_compact_count(data, at, end, 7, "ApiVersionsResponse.api_keys")
        api_keys, at = _read_api_versions_response_version_v3(data, at, end, number)
        if end - at < 4:
            raise cut_short("ApiVersionsResponse.throttle_time_ms", at, end, 4)
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        at += 4
        supported_features: list[ApiVersionsResponseSupportedFeatureKey] = []
        finalized_features_epoch = -1
        finalized_features: list[ApiVersionsResponseFinalizedFeatureKey] = []
        zk_migration_ready = False
        tags, at = read_uvarint(data, at, end, "ApiVersionsResponse")
        last = -1
        for _ in range(tags):
            last, at, stop = read_tag(data, at, end, last, "ApiVersionsResponse")
            if last == 0:
                number, at = read_compact_count(data, at, stop, 6, "ApiVersionsResponse.supported_features")
                supported_features, at = _read_api_versions_response_supported_feature_key_v3(data, at, stop, number)
                check_tag_end(at, stop, "ApiVersionsResponse.supported_features")
            elif last == 1:
                if stop - at < 8:
                    raise cut_short("ApiVersionsResponse.finalized_features_epoch", at, stop, 8)
                (finalized_features_epoch,) = _INT64.unpack_from(data, at)
                at += 8
                check_tag_end(at, stop, "ApiVersionsResponse.finalized_features_epoch")
            elif last == 2:
                number, at = read_compact_count(data, at, stop, 6, "ApiVersionsResponse.finalized_features")
                finalized_features, at = _read_api_versions_response_finalized_feature_key_v3(data, at, stop, number)
                check_tag_end(at, stop, "ApiVersionsResponse.finalized_features")
            elif last == 3:
                if stop - at < 1:
                    raise cut_short("ApiVersionsResponse.zk_migration_ready", at, stop, 1)
                (zk_migration_ready,) = _BOOL.unpack_from(data, at)
                at += 1
                check_tag_end(at, stop, "ApiVersionsResponse.zk_migration_ready")
            at = stop
        items.append(
            ApiVersionsResponse(
                error_code=error_code,
                api_keys=api_keys,
                throttle_time_ms=throttle_time_ms,
                supported_features=supported_features,
                finalized_features_epoch=finalized_features_epoch,
                finalized_features=finalized_features,
                zk_migration_ready=zk_migration_ready,
            )
        )
    return items, at


def _write_api_versions_response_v3(out: Parts, items: Sequence[ApiVersionsResponse]) -> None:
    try:
        for item in items:
            out.append(_INT16.pack(item.error_code))
            _write_api_versions_response_version_v3(
                out, write_compact_count(out, item.api_keys, "ApiVersionsResponse.api_keys")
            )
            out.append(_INT32.pack(item.throttle_time_ms))
            tagged: list[tuple[int, Parts]] = []
            if item.supported_features != []:
                part: Parts = []
                _write_api_versions_response_supported_feature_key_v3(
                    part, write_compact_count(part, item.supported_features, "ApiVersionsResponse.supported_features")
                )
                tagged.append((0, part))
            if item.finalized_features_epoch != -1:
                part = []
                part.append(_INT64.pack(item.finalized_features_epoch))
                tagged.append((1, part))
            if item.finalized_features != []:
                part = []
                _write_api_versions_response_finalized_feature_key_v3(
                    part, write_compact_count(part, item.finalized_features, "ApiVersionsResponse.finalized_features")
                )
                tagged.append((2, part))
            if item.zk_migration_ready is not False:
                part = []
                part.append(_INT8.pack(item.zk_migration_ready))
                tagged.append((3, part))
            write_tags(out, tagged)
    except struct.error:
        raise misfit(items, _API_VERSIONS_RESPONSE_CODES) from None


RESPONSE: Final = MessageCodec(
    ApiVersionsResponse,
    {
        0: (_read_api_versions_response_v0, _write_api_versions_response_v0),
        1: (_read_api_versions_response_v1, _write_api_versions_response_v1),
        2: (_read_api_versions_response_v1, _write_api_versions_response_v1),
        3: (_read_api_versions_response_v3, _write_api_versions_response_v3),
        4: (_read_api_versions_response_v3, _write_api_versions_response_v3),
        5: (_read_api_versions_response_v3, _write_api_versions_response_v3),
    },
)
