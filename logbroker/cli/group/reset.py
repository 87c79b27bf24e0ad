"""Computes the new offsets for `logbroker group reset-offsets`."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from logbroker.cli.common.lines import counted
from logbroker.cli.common.options import Place
from logbroker.client.sync import Admin, TopicPartition
from logbroker.errors import (
    GroupNotEmptyError,
    InvalidRequestError,
    LogbrokerError,
    OffsetOutOfRangeError,
    UnknownGroupError,
    UnknownPartitionError,
)


class Move(NamedTuple):
    """The change in one partition: its committed offset (None if there is none) and the new one."""

    partition: TopicPartition
    old: int | None
    new: int


def plan(
    admin: Admin,
    group: str,
    topics: Sequence[str],
    numbers: Sequence[int],
    place: Place | None,
    shift_by: int | None,
) -> list[Move]:
    """Return the new offsets, sorted. Changes nothing. Either `place` or `shift_by` is given.

    Raises GroupNotEmptyError, or the error of the first partition that cannot be set.
    """
    committed = _committed(admin, group, must_exist=not topics)
    wanted = _partitions(admin, topics, numbers) if topics else sorted(committed)
    if not wanted:
        raise InvalidRequestError(f"group {group!r} has committed no offsets; name a topic with --topic")
    starts, ends = (_listed(admin, wanted, when) for when in ("earliest", "latest"))
    if shift_by is not None:
        new = {partition: _old(committed, partition, group) + shift_by for partition in wanted}
        new = {partition: min(max(offset, starts[partition]), ends[partition]) for partition, offset in new.items()}
    elif isinstance(place, int):
        for partition in wanted:
            if not starts[partition] <= place <= ends[partition]:
                advice = "" if numbers else "; name the partitions to be set with --topic and --partition"
                raise OffsetOutOfRangeError(
                    f"{partition} has the offsets {starts[partition]} to {ends[partition]}, not {place}{advice}"
                )
        new = dict.fromkeys(wanted, place)
    elif isinstance(place, datetime.datetime):
        found = _listed(admin, wanted, place)
        new = {partition: offset if offset >= 0 else ends[partition] for partition, offset in found.items()}
    else:
        new = starts if place == "earliest" else ends
    return [Move(partition, committed.get(partition), new[partition]) for partition in wanted]


def _committed(admin: Admin, group: str, *, must_exist: bool) -> dict[TopicPartition, int]:
    try:
        members = admin.describe_group(group).members
        offsets = admin.fetch_offsets(group)
    except UnknownGroupError:
        if must_exist:
            raise
        return {}
    active = sum(member.connected for member in members)
    if active:
        raise GroupNotEmptyError(
            f"group {group!r} has {counted(active, 'active member')}; stop them, then reset its offsets"
        )
    if members:
        raise GroupNotEmptyError(
            f"group {group!r} has {counted(len(members), 'member')} that may still come back; "
            "try again when the broker no longer expects them back"
        )
    return {partition: offset.offset for partition, offset in offsets.items()}


def _partitions(admin: Admin, topics: Sequence[str], numbers: Sequence[int]) -> list[TopicPartition]:
    partitions: list[TopicPartition] = []
    for topic in sorted(set(topics)):
        count = admin.describe_topic(topic).info.partitions
        for number in sorted(set(numbers)) or range(count):
            if number >= count:
                raise UnknownPartitionError(f"topic {topic!r} has no partition {number}; it has {count}")
            partitions.append(TopicPartition(topic, number))
    return partitions


def _listed(admin: Admin, partitions: Sequence[TopicPartition], when: Place) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for partition, outcome in zip(partitions, admin.list_offsets(partitions, when), strict=True):
        if isinstance(outcome, LogbrokerError):
            raise outcome
        offsets[partition] = outcome.offset
    return offsets


def _old(committed: Mapping[TopicPartition, int], partition: TopicPartition, group: str) -> int:
    if partition not in committed:
        raise InvalidRequestError(f"group {group!r} has no committed offset in {partition} to shift; use --to")
    return committed[partition]
