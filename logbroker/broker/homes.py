"""Homes: the parts of the state of groups. A home has the consumer groups and queue groups whose state lies in it, and
is opened and closed as a whole.

The state of a broker with a data directory is one home. The state of a cluster has many, and each gateway serves those
that it owns: it opens a home when it gets it, and closes it when it loses it. So everything that a process may have of
something only once is `Shared`, and is given back when a home closes.

A queue group knows of the groups of other homes in this process, but not of those that other processes serve:
- A topic may get more partitions although a queue group elsewhere reads it with ordering single.
- The size limit of a dead-letter topic that a queue group elsewhere uses, too, may be raised without its knowledge. It
  then takes the limit for an operator's, and leaves it as it is.
- A dead letter that came from the dead-letter topic of a group elsewhere counts as an ordinary record, unless that
  topic has its default name: when it fails once more, the headers of the earlier letter are dropped.
- The limits on the number of groups and on their memory are limits of each process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from logbroker.clock import Clock
from logbroker.config import BrokerConfig
from logbroker.consumer_groups.groups import Groups, SharedGroups, open_groups
from logbroker.engine import LogEngine, StateStore
from logbroker.errors import StaleOwnerError
from logbroker.queues.registry import QueueGroupRegistry, SharedQueues, open_queue_groups


class Shared:
    """The limits of a process, which all its homes share."""

    def __init__(self, config: BrokerConfig) -> None:
        self.groups = SharedGroups(config)
        self.queues = SharedQueues(config)


class Home:
    """The groups of one home. Made by `open_home`."""

    def __init__(self, groups: Groups, queues: QueueGroupRegistry) -> None:
        self.groups = groups
        self.queues = queues

    def freeze(self) -> None:
        """Stop the timeouts of all groups, and hand out nothing more, because the home is about to be closed. Members
        and workers are expected back when it is opened again."""
        self.groups.freeze()
        self.queues.freeze()

    def move(self, error: StaleOwnerError) -> None:
        """Freeze the home because another gateway has it now. Whoever still uses its groups gets the error. Close the
        home after that."""
        self.groups.moved = self.queues.moved = error
        self.freeze()


@asynccontextmanager
async def open_home(
    config: BrokerConfig,
    clock: Clock,
    engine: LogEngine,
    store: StateStore,
    directory: Path,
    shared: Shared,
    is_at_home: Callable[[str], bool] = lambda group_id: True,
) -> AsyncIterator[Home]:
    """Load the groups of a home from its store; at the end, stop them cleanly.

    `directory` is for what may be lost (index caches and temporary files of queue groups); several homes may use the
    same one. `is_at_home` returns whether a group id belongs to this home. Raises CorruptLogError, or the errors of the
    store and of the engine.
    """
    async with (
        open_groups(config, clock, engine, store, shared.groups) as groups,
        open_queue_groups(config, clock, engine, store, directory, shared.queues, is_at_home) as queues,
    ):
        groups.is_of_other_type = queues.has
        queues.is_of_other_type = groups.has
        yield Home(groups, queues)


class Homes(Protocol):
    """The homes that this process serves now."""

    @property
    def address(self) -> str:
        """HOST:PORT under which others know this process; "": there are no others."""
        ...

    def of(self, group_id: str) -> Home:
        """Return the home of a group id, which may be of no group. Raises StaleOwnerError if another process serves it,
        or InvalidGroupIdError."""
        ...

    def all(self) -> Sequence[Home]:
        """Return the homes that are here now."""
        ...

    async def join(self, address: str) -> None:
        """Get the homes that this process is to have. Called once it listens on HOST:PORT. Raises
        BrokerUnavailableError."""
        ...

    async def settled(self) -> None:
        """Return when this process has all homes that it is to have now, or after some seconds."""
        ...


class OneHome:
    """The `Homes` of a process whose state is one home."""

    address = ""

    def __init__(self, home: Home) -> None:
        self._home = home

    def of(self, group_id: str) -> Home:
        return self._home

    def all(self) -> Sequence[Home]:
        return (self._home,)

    async def join(self, address: str) -> None:
        """There are no others."""

    async def settled(self) -> None:
        """The home is here for ever."""
