"""The interface of a peer: a server that it starts by hand, and a client library in a process of its own.

An adapter module offers one `Peer` for each client library. The server is driven by the comparing process, the client
only in child processes (`child.py`), so that no library's threads or imports disturb another's.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec

from compare.load import Job, Load, Published, Worked
from compare.tally import Tally
from logbroker.types import Durability

WORKLOADS: Final = {
    "start": "from exec to the first acknowledged record, on an empty data directory",
    "memory": "resident: idle, and after all workloads of a round",
    "publish": "records from one client, until the last one is acknowledged; 100 B and 1 KB values",
    "replay": "the same records read from the first to the last by one client",
    "latency": "from the send to the receipt by a consumer, at a steady rate",
    "work": "two worker processes take and acknowledge single records, in any order",
    "ordered": "the same, and records of one key are in order",
    "group": "two members of a consumer group read partitions, and commit their offsets after each batch",
    "restart": "from exec after a SIGKILL until every acknowledged record is there again",
}


class Server(Protocol):
    """One server process (and what it starts itself) on a data directory of its own, on free ports of 127.0.0.1."""

    @property
    def address(self) -> str:
        """HOST:PORT for the client."""

    def start(self) -> None:
        """Execute it, and return when its port accepts connections."""

    def stop(self) -> None:
        """Ask it to stop, and wait."""

    def kill(self) -> None:
        """SIGKILL, as a crash."""

    def resident_bytes(self) -> int:
        """Return the resident memory of all its processes."""


class Client(Protocol):
    """A client library at work; every call blocks, opens its own connection and closes it.

    What a peer cannot do is in `Peer.cannot`, and never called.
    """

    def create(self, topic: str, shards: int, durability: Durability) -> None:
        """Make an empty topic (stream, queue) of so many shards, which keys are spread over.

        `durability` is what the server was started for; it counts where each topic says its own.
        """

    def publish(self, load: Load) -> Published:
        """Send the load until its last record is acknowledged."""

    def count(self, topic: str, shards: int) -> int:
        """How many records the server has."""

    def replay(self, topic: str, records: int) -> float:
        """Seconds until so many records were handed to the program, from the first one on."""
        raise NotImplementedError

    def latencies(self, topic: str, records: int, per_second: float) -> list[float]:
        """Seconds from the send to the receipt, of each record."""
        raise NotImplementedError

    def prepare(self, job: Job) -> None:
        """Make what workers need beside the topic, such as a group."""

    def work(self, job: Job, tally: Tally) -> Worked:
        """Take and acknowledge records one by one until all workers have done all."""
        raise NotImplementedError


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """A server with one client library."""

    name: str
    title: str
    promises: Mapping[Durability, str]
    """The meaning of an acknowledgement by durability, with the settings that bring it about. Workloads that hardly
    depend on it are measured with the first one (written, where there is a choice), so that such rows are alike."""
    client_settings: str
    notes: Mapping[str, str] = {}
    """How the peer does a workload if not the plain way, by workload."""
    cannot: Mapping[str, str] = {}
    """Why a workload has no figure, by workload."""
    binaries: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    install: str = ""
    version: Callable[[], str]
    server: Callable[[Path, Durability], Server]
    client: Callable[[str], Client]
    lacks: Callable[[], str | None] = lambda: None
    """Return what else is missing, in words, or None."""
    refuses: Callable[[Durability], str | None] = lambda _: None
    """Why the installed version cannot keep one of the promises; None: it can."""

    def missing(self) -> str | None:
        """Return what is not installed and how to install it, or None."""
        names = [name for name in self.binaries if shutil.which(name) is None]
        names += [name for name in self.modules if importlib.util.find_spec(name) is None]
        if other := self.lacks():
            names.append(other)
        return f"{', '.join(names)} not found; {self.install}" if names else None
