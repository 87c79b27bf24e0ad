"""Members of a group in processes of their own, and what must hold of all that they have noted together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Self

from logbroker.client.sync import Admin, TopicPartition
from logbroker.errors import LogbrokerError
from tests.kafka_api.group_member import SESSION_MS, run
from tests.nursery import processes


@dataclass(frozen=True, order=True)
class Handled:
    """A record that a member has handled."""

    at: int
    partition: int
    offset: int
    value: bytes
    member: str = ""


class Member(ABC):
    """One member, and the file to which it writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def _lines(self, kind: str) -> list[list[str]]:
        lines = self.path.read_text().split("\n")[:-1]  # The last one may be cut short.
        return [line.split(" ") for line in lines if line.startswith(kind)]

    def handled(self) -> list[Handled]:
        return [
            Handled(int(at), int(partition), int(offset), value.encode(), self.path.name)
            for _, at, partition, offset, value in self._lines("R")
        ]

    def assignments(self) -> list[set[int]]:
        """Return the partitions that it was given, each time."""
        return [{int(number) for number in numbers.split(",") if number} for _, _, numbers in self._lines("A")]

    @abstractmethod
    def is_alive(self) -> bool: ...

    @abstractmethod
    def kill(self) -> None: ...

    @abstractmethod
    def leave(self) -> None:
        """Let it say goodbye."""


class MemberProcess(Member):
    """A member that is a client for Python."""

    def __init__(
        self,
        library: str,
        address: str,
        topic: str,
        group: str,
        path: Path,
        *,
        instance_id: str = "",
        assignor: str = "",
        session_ms: int = SESSION_MS,
    ) -> None:
        super().__init__(path)
        self._orders, theirs = processes.Pipe()
        self.process: BaseProcess = processes.Process(
            target=run,
            args=(library, address, topic, group, path, theirs, instance_id, assignor, session_ms),
            daemon=True,
        )
        self.process.start()

    def is_alive(self) -> bool:
        return self.process.is_alive()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def leave(self) -> None:
        self._orders.send("leave")
        self.process.join(30)
        assert self.process.exitcode == 0, f"{self.path.name} ended with {self.process.exitcode}"


class Members:
    """All members of a test; those that are left are killed at the end."""

    def __init__(
        self, library: Any, address: str, topic: str, group: str, directory: Path,
        make: Callable[..., Member] = MemberProcess, **settings: Any,
    ) -> None:  # fmt: skip
        self._all: list[Member] = []
        self._make = make
        self._start = (library, address, topic, group)
        self._directory = directory
        self._settings = settings

    def start(self, **settings: Any) -> Member:
        path = self._directory / f"member-{len(self._all)}"
        member = self._make(*self._start, path, **self._settings | settings)
        self._all.append(member)
        return member

    def handled(self) -> list[Handled]:
        """Return all that was handled, in the order of time."""
        return sorted(each for member in self._all for each in member.handled())

    def values(self) -> set[bytes]:
        return {each.value for each in self.handled()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._all:
            if member.is_alive():
                member.kill()


class CommitWatch:
    """The committed offsets of a group over time: they never go back, and are never lost."""

    def __init__(self, group: str) -> None:
        self._group = group
        self.seen: dict[TopicPartition, int] = {}

    def look(self, address: str) -> dict[TopicPartition, int]:
        """Compare with what was seen before. A broker that is away shows nothing."""
        with suppress(LogbrokerError), Admin(address) as admin:
            now = {partition: each.offset for partition, each in admin.fetch_offsets(self._group).items()}
            for partition, offset in self.seen.items():
                assert now.get(partition, -1) >= offset, f"{partition} went from {offset} to {now.get(partition)}"
            self.seen = now
        return self.seen


def check_handled(handled: list[Handled], sent: set[bytes]) -> None:
    """Each record was handled at least once, and for the first time in the order of its partition."""
    assert {each.value for each in handled} == sent
    nexts: dict[int, int] = {}
    for each in handled:
        expected = nexts.get(each.partition, 0)
        assert each.offset <= expected, f"{each} came before offset {expected}"
        nexts[each.partition] = max(expected, each.offset + 1)
