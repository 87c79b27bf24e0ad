"""Finds offsets: the earliest, the latest, or the first at or after a time."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from logbroker.client.transport.connection import Connection
from logbroker.client.transport.status import error_of_item
from logbroker.errors import InvalidRequestError, LogbrokerError, PartitionOfflineError
from logbroker.types import TopicPartition
from logbroker.v1 import log_pb2

When = Literal["earliest", "latest"] | int | datetime.datetime
"""The log start offset, the high watermark, or a time: milliseconds since 1970, or a datetime (local time if naive)."""

Start = Literal["earliest", "latest"] | int | datetime.datetime
"""Where to start: the log start offset, the high watermark, an offset, or the first record at or after a time."""

_AT_ONCE: Final = 20_000
"""Maximum number of items in one request. The broker takes no more."""
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_SPECS: Final = {"earliest": log_pb2.OFFSET_SPEC_EARLIEST, "latest": log_pb2.OFFSET_SPEC_LATEST}


class ListedOffset(msgspec.Struct, frozen=True):
    """The offset that was found in one partition."""

    offset: int
    """-1 if there is no record at or after the requested time."""
    timestamp_ms: int
    """Timestamp of the record; -1 for earliest and latest, and if there is no record."""
    leader_epoch: int


def milliseconds(moment: int | datetime.datetime) -> int:
    """Return a time as milliseconds since 1970. Raises InvalidRequestError for a time near the ends of the calendar
    that UTC cannot express."""
    if isinstance(moment, int):
        return moment
    try:
        return (moment.astimezone(datetime.UTC) - _EPOCH) // datetime.timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        raise InvalidRequestError(
            f"the time {moment} is outside of the years 1 to 9999 in UTC; give earliest, latest or a time within them"
        ) from None


async def list_offsets(
    connection: Connection, wishes: Sequence[tuple[TopicPartition, When]]
) -> list[ListedOffset | LogbrokerError]:
    """Find an offset for each pair of a partition and a position. Return for each pair the offset or its error."""
    found: list[ListedOffset | LogbrokerError] = []
    for start in range(0, len(wishes), _AT_ONCE):
        items = [_item(partition, when) for partition, when in wishes[start : start + _AT_ONCE]]
        response = await connection.unary("ListOffsets", log_pb2.ListOffsetsRequest(items=items))
        found += [
            error_of_item(result.status) or ListedOffset(result.offset, result.timestamp_ms, result.leader_epoch)
            for result in response.results
        ]
    return found


async def find_offsets(
    connection: Connection, partitions: Sequence[TopicPartition], when: When, *, passes_offline: bool = False
) -> dict[TopicPartition, int]:
    """Find the same position in several partitions. If a partition has no record at or after the time, take its latest
    offset. Raises the first error. With `passes_offline`, offline partitions are left out instead."""
    found = dict(zip(partitions, await list_offsets(connection, [(p, when) for p in partitions]), strict=True))
    offsets = {}
    too_young = []
    for partition, outcome in found.items():
        if passes_offline and isinstance(outcome, PartitionOfflineError):
            continue
        if isinstance(outcome, LogbrokerError):
            raise outcome
        offsets[partition] = outcome.offset
        if outcome.offset < 0:
            too_young.append(partition)
    if too_young:
        offsets |= await find_offsets(connection, too_young, "latest")
    return offsets


async def find_starts(
    connection: Connection, partitions: Sequence[TopicPartition], start: Start
) -> dict[TopicPartition, int]:
    """Find the start positions in several partitions. Offline partitions are left out, unless `start` is an offset.
    Raises InvalidRequestError for an impossible start, or the first error of a partition that is not offline."""
    if not isinstance(start, int):
        return await find_offsets(connection, partitions, start, passes_offline=True)
    if start < 0:
        raise InvalidRequestError(f"{start} is not an offset; give 0 or more, earliest, latest or a datetime")
    return dict.fromkeys(partitions, start)


def _item(partition: TopicPartition, when: When) -> log_pb2.ListOffsetsItem:
    fields: dict[str, Any] = {"topic": partition.topic, "partition": partition.partition}
    if isinstance(when, str):
        if when not in _SPECS:
            raise InvalidRequestError(f"{when!r} is no offset of a partition; give earliest, latest or a time")
        return log_pb2.ListOffsetsItem(**fields, spec=_SPECS[when])
    return log_pb2.ListOffsetsItem(**fields, timestamp_ms=milliseconds(when))
