"""The rows that store a group, in the scope `"group:" + group id` of the StateStore.

    row      key                        value: a msgpack array; in `header` and `member`, it begins with the version of
                                        the layout
    header   b"g"                       1, type, epoch, assignor, the time since which it has no members (wall clock,
                                        ms; -1: it has members),
                                        growth order (missing in older rows: key)
    member   b"m" + member id (UTF-8)   1, instance id, incarnation, topic names, topic pattern, session timeout ms,
                                        rebalance timeout ms, max poll interval ms, client name, epoch
                                        of the assignment that it has taken, epoch of the one that was assigned last,
                                        partitions it may hold: [topic id, [partition, ...]] per topic,
                                        names of bands (missing in older rows: all), host of a Kafka client,
                                        whether it has no stream but sends heartbeats, whether it has left for a
                                        while (the last three are missing in older rows: "", no, no)
    offset   b"o" + ...                 see `offsets`

All changes that the state machine of a group (`group`) makes between two calls of `take_outputs` are written in one
transaction, so the rows never show a partition with two holders.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol, TypeVar

import msgspec

from logbroker.errors import CorruptLogError
from logbroker.types import PartitionKey, TopicId

HEADER_ROW: Final = b"g"
MEMBER_ROW: Final = b"m"
GROUP_TYPE: Final = "consumer"

KEY_ORDER: Final = "key"
"""Records of a key stay in order when their topic grows: see `generations`."""

_VERSION: Final = 1


class GroupRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The row of the group itself."""

    version: int
    type: str
    epoch: int
    assignor: str
    empty_since_ms: int
    growth_order: str = KEY_ORDER


class MemberRow(msgspec.Struct, frozen=True, array_like=True):
    """The row of one member, with all partitions that it may hold."""

    version: int
    instance_id: str
    incarnation: int
    topics: tuple[str, ...]
    topic_pattern: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    max_poll_interval_ms: int
    client_name: str
    epoch: int
    assigned_epoch: int
    held: list[tuple[bytes, list[int]]]
    bands: tuple[str, ...] = ()
    client_host: str = ""
    by_heartbeats: bool = False
    left: bool = False

    def partitions(self) -> frozenset[PartitionKey]:
        return frozenset(
            PartitionKey(TopicId(topic_id), partition) for topic_id, partitions in self.held for partition in partitions
        )


class _Versioned(Protocol):
    @property
    def version(self) -> int: ...


_R = TypeVar("_R", bound=_Versioned)
_H = TypeVar("_H", bound=_Versioned)
_M = TypeVar("_M", bound=_Versioned)
encode_row: Final = msgspec.msgpack.Encoder().encode


def group_row(*, epoch: int, assignor: str, empty_since_ms: int, growth_order: str) -> GroupRow:
    return GroupRow(_VERSION, GROUP_TYPE, epoch, assignor, empty_since_ms, growth_order)


def member_key(member_id: str) -> bytes:
    return MEMBER_ROW + member_id.encode()


def by_topic(partitions: Iterable[PartitionKey]) -> list[tuple[bytes, list[int]]]:
    """Return partitions in the form of a row, sorted."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        topics.setdefault(topic_id, []).append(partition)
    return list(topics.items())


def decode_group(rows: Mapping[bytes, bytes]) -> tuple[GroupRow | None, dict[str, MemberRow]]:
    """Return the header and the members by id, from all rows of a scope. Raises CorruptLogError."""
    return decode_rows(rows, GroupRow, MemberRow, _VERSION)


def decode_rows(
    rows: Mapping[bytes, bytes], header_kind: type[_H], member_kind: type[_M], version: int
) -> tuple[_H | None, dict[str, _M]]:
    """Return the header and the members by id, from all rows of a scope, in one version of the layout. Raises
    CorruptLogError."""
    header = rows.get(HEADER_ROW)
    members = {
        key[len(MEMBER_ROW) :].decode(): _decode(key, value, member_kind, version)
        for key, value in rows.items()
        if key.startswith(MEMBER_ROW)
    }
    return (None if header is None else _decode(HEADER_ROW, header, header_kind, version)), members


def _decode(key: bytes, value: bytes, kind: type[_R], version: int) -> _R:
    try:
        row = msgspec.msgpack.decode(value, type=kind)
    except msgspec.MsgspecError as error:
        raise CorruptLogError(f"the group row under key {key!r} cannot be read: {error}") from None
    if row.version != version:
        raise CorruptLogError(
            f"the group row under key {key!r} has layout {row.version}, this broker knows {version}: use a newer one"
        )
    return row
