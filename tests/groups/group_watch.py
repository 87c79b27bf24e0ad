"""A group as its administrator sees it: whether it has come to rest, and what it has committed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from time import monotonic
from typing import Final

from logbroker.client import Admin
from logbroker.errors import LogbrokerError
from logbroker.types import TopicPartition
from tests.anomalies import BrokenPromisesError
from tests.groups.group_checker import Kind
from tests.groups.group_history import LookBegun, LookEnded
from tests.history import HistoryFile

_STABLE_SECONDS: Final = 60.0
_STUCK_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 0.1


class GroupWatch:
    """Looks at one group. `topics` are those that it reads, with the numbers of their partitions."""

    def __init__(self, admin: Admin, group: str, topics: Mapping[str, int]) -> None:
        self._admin = admin
        self._group = group
        self._partitions = [TopicPartition(name, number) for name, count in topics.items() for number in range(count)]

    async def look_on_and_on(self, file: HistoryFile) -> None:
        """Write the committed offsets into a history, again and again."""
        while True:
            file.write(LookBegun)
            with contextlib.suppress(LogbrokerError):
                found = await self._admin.fetch_offsets(self._group)
                file.write(LookEnded, offsets=[(partition, each.offset) for partition, each in found.items()])
            await asyncio.sleep(_LOOK_SECONDS)

    async def stable(self, members: int) -> None:
        """Wait until so many members are there, and hold what they shall: every partition has one owner."""
        deadline = monotonic() + _STABLE_SECONDS
        while True:
            found = "the broker does not answer"
            with contextlib.suppress(LogbrokerError):
                [group] = await self._admin.describe_groups([self._group])
                if isinstance(group, LogbrokerError):
                    raise group
                owned = sorted(partition for member in group.members for partition in member.owned)
                if len(owned) != len(set(owned)):
                    raise BrokenPromisesError(
                        [f"a partition has two owners, says the broker: {owned}"], {Kind.TWO_OWNERS}
                    )
                connected = sum(member.connected for member in group.members)
                found = (
                    f"it is {group.info.state}, {connected} of {members} are connected, {len(owned)} partitions held"
                )
                if group.info.state == "stable" and connected == members and owned == sorted(self._partitions):
                    return
            if monotonic() > deadline:
                raise BrokenPromisesError([f"the group is not stable after {_STABLE_SECONDS:g} s: {found}"])
            await asyncio.sleep(0.05)

    async def handled(self) -> tuple[dict[TopicPartition, int], int]:
        """Wait until all is committed, or nothing more is; returns the ends of the partitions, and how far it is behind
        them all together.
        """
        ends: dict[TopicPartition, int] = {}
        listed = await self._admin.list_offsets(self._partitions, "latest")
        for partition, found in zip(self._partitions, listed, strict=True):
            if isinstance(found, LogbrokerError):
                raise found
            ends[partition] = found.offset
        least, stuck_at = sum(ends.values()) + 1, 0.0
        while True:
            committed = await self._admin.fetch_offsets(self._group)
            behind = sum(
                end - (committed[partition].offset if partition in committed else 0) for partition, end in ends.items()
            )
            if behind < least:
                least, stuck_at = behind, monotonic() + _STUCK_SECONDS
            if not behind or monotonic() > stuck_at:
                return ends, behind
            await asyncio.sleep(0.1)
