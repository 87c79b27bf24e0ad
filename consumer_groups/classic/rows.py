"""The rows that store a classic group, beside its committed offsets, in the scope `"group:" + group id`.

    row      key                        value: a msgpack array that begins with the version of its layout
    header   b"g"                       2, "classic", generation, protocol type, the time since which it has no members
                                        (wall clock, ms; -1: it has members), protocol, id of the leader, whether the
                                        assignments are those of the generation
    member   b"m" + member id (UTF-8)   2, instance id, client id, client host, session timeout ms, rebalance timeout
                                        ms, protocols with the member's data: [name, data] each, assignment

The layouts of version 1 belong to the groups of gRPC consumers, see `consumer_groups.rows`. While a group has no
members, the two kinds of groups differ only in the header, so such a group may change its type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from logbroker.consumer_groups.rows import HEADER_ROW, decode_rows
from logbroker.errors import CorruptLogError

CLASSIC_TYPE: Final = "classic"
_VERSION: Final = 2


class ClassicGroupRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The row of the group itself."""

    version: int
    type: str
    generation: int
    protocol_type: str
    empty_since_ms: int
    protocol: str
    leader_id: str
    is_assigned: bool


class ClassicMemberRow(msgspec.Struct, frozen=True, array_like=True):
    """The row of one member."""

    version: int
    instance_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


class _AnyGroupRow(msgspec.Struct, array_like=True):
    version: int
    type: str


def classic_group_row(
    *, generation: int, protocol_type: str, empty_since_ms: int, protocol: str, leader_id: str, is_assigned: bool
) -> ClassicGroupRow:
    return ClassicGroupRow(
        _VERSION, CLASSIC_TYPE, generation, protocol_type, empty_since_ms, protocol, leader_id, is_assigned
    )


def classic_member_row(
    *,
    instance_id: str,
    client_id: str,
    client_host: str,
    session_timeout_ms: int,
    rebalance_timeout_ms: int,
    protocols: tuple[tuple[str, bytes], ...],
    assignment: bytes,
) -> ClassicMemberRow:
    return ClassicMemberRow(
        _VERSION, instance_id, client_id, client_host, session_timeout_ms, rebalance_timeout_ms, protocols, assignment
    )


def is_classic(rows: Mapping[bytes, bytes]) -> bool:
    """Return whether the rows of a scope are those of a classic group. Raises CorruptLogError."""
    header = rows.get(HEADER_ROW)
    if header is None:
        return False
    try:
        return msgspec.msgpack.decode(header, type=_AnyGroupRow).type == CLASSIC_TYPE
    except msgspec.MsgspecError as error:
        raise CorruptLogError(f"the group row under key {HEADER_ROW!r} cannot be read: {error}") from None


def decode_classic(rows: Mapping[bytes, bytes]) -> tuple[ClassicGroupRow | None, dict[str, ClassicMemberRow]]:
    """Return the header and the members by id, from all rows of a scope. Raises CorruptLogError."""
    return decode_rows(rows, ClassicGroupRow, ClassicMemberRow, _VERSION)
