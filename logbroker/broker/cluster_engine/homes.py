"""The homes of this gateway: taken over, served and given up, one task for each."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from time import monotonic
from typing import Final

from logbroker.broker.cluster_engine.connection.link import ClusterLink
from logbroker.broker.cluster_engine.ownership.membership import SHARED_PARTITION, GatewayMembership
from logbroker.broker.cluster_engine.state.state_partition import OPEN_SECONDS, StatePartition
from logbroker.broker.cluster_engine.state.state_store import STATE_TOPIC, HomeStore, home_of
from logbroker.broker.cluster_engine.topics.cluster_topics import ClusterTopics
from logbroker.broker.cluster_engine.topics.topic_rows import TopicRows
from logbroker.broker.homes import Home
from logbroker.engine import StateStore
from logbroker.errors import BrokerUnavailableError, LogbrokerError, StaleOwnerError
from logbroker.group_runtime.group_store import check_group_id

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.2
"""The time after which this gateway looks again which homes it is to have: others may have fallen silent."""
AGAIN_SECONDS: Final = 1.0
"""The time after which a home that could not be taken over is tried again."""
ENDS_SECONDS: Final = 15.0
"""The time for which a takeover waits for partitions without a leader."""
SETTLE_SECONDS: Final = 10.0
"""The longest time for which `settled` waits."""


class ClusterHomes:
    """The `logbroker.broker.homes.Homes` of a gateway."""

    def __init__(
        self,
        link: ClusterLink,
        membership: GatewayMembership,
        rows: TopicRows,
        topics: ClusterTopics,
        open_home: Callable[[int, StateStore], AbstractAsyncContextManager[Home]],
        advertise: str,
    ) -> None:
        """`open_home` opens the home of a number. `advertise` is HOST:PORT under which others reach this gateway; "":
        where it listens."""
        self._link = link
        self._membership = membership
        self._gateways = membership.gateways
        self._rows = rows
        self._topics = topics
        self._open_home = open_home
        self._homes: dict[int, Home] = {}
        self._partitions: dict[int, StatePartition] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._confirming: dict[int, asyncio.Task[None]] = {}
        self._moved = asyncio.Event()
        """Set when this gateway has got a home, or looked again which ones it is to have."""
        self._ends: dict[int, asyncio.Event] = {}
        """Set when a home has to be given up."""
        self._is_closing = False
        self._looking: asyncio.Task[None] | None = None
        self.address = advertise

    # --- lookup ------------------------------------------------------------------------------------------------------

    def of(self, group_id: str) -> Home:
        """Return the home of a group. Raises StaleOwnerError if another gateway has it, or InvalidGroupIdError."""
        check_group_id(group_id)
        number = self.number_of(group_id)
        found = self._homes.get(number)
        # After a freeze, or cut off, this gateway may have been replaced, and know nothing of it.
        if found is None or not self._membership.has_lease or self._gateways.is_anothers(number, monotonic()):
            raise self._not_here(number)
        return found

    def number_of(self, group_id: str) -> int:
        """Return the number of a group's home."""
        return home_of(group_id, self._gateways.homes)

    def _not_here(self, number: int) -> StaleOwnerError:
        owner = self._gateways.owner(number, monotonic())
        address = self._gateways.address(owner) or self.address
        verb = "takes over" if address == self.address else "has"
        return StaleOwnerError(
            f"the gateway at {address} {verb} the state of this group: go there, or try again shortly"
        ).owned_by(address)

    def all(self) -> Sequence[Home]:
        """Return the homes that are here now."""
        return list(self._homes.values())

    def others(self) -> list[str]:
        """Return HOST:PORT of all other gateways."""
        return self._gateways.addresses(monotonic())

    def numbers(self) -> list[int]:
        """Return the homes that this gateway has, or is taking over or giving up."""
        return list(self._tasks)

    # --- life --------------------------------------------------------------------------------------------------------

    async def join(self, address: str) -> None:
        """Let the others know this gateway, and take over what it is to have. Returns when it has that; in the mean
        time, it can be asked. Raises BrokerUnavailableError."""
        self.address = self.address or address
        try:
            await self._membership.join(self.address)
            self._looking = asyncio.create_task(self._look())
            await self._settle(OPEN_SECONDS)
        except TimeoutError:
            raise BrokerUnavailableError(
                f"this gateway could not take over its share of the groups within {OPEN_SECONDS:g} s; its log says why"
            ) from None

    async def settled(self) -> None:
        """Return when this gateway has all homes that it is to have now, or after some seconds."""
        with contextlib.suppress(TimeoutError):
            await self._settle(SETTLE_SECONDS)

    async def _settle(self, seconds: float) -> None:
        async with asyncio.timeout(seconds):
            while (wanted := self._gateways.wanted(monotonic())) is None or not wanted <= self._homes.keys():
                self._moved.clear()
                await self._moved.wait()

    async def _look(self) -> None:
        changed = asyncio.Event()
        self._membership.on_change = changed.set
        while True:
            self._take_over_and_give_up()
            self._moved.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await changed.wait()
            changed.clear()

    def _take_over_and_give_up(self) -> None:
        now = monotonic()
        wanted = self._gateways.wanted(now)
        if wanted is None:
            return
        for number in wanted - self._tasks.keys():
            if self._gateways.is_free(number, now):
                self._ends[number] = asyncio.Event()
                self._tasks[number] = asyncio.create_task(self._keep(number), name=f"home {number}")
        for number in self._tasks.keys() - wanted:
            self._ends[number].set()
        for number in self._homes.keys() & wanted:
            # This gateway was perhaps thought dead, and knows nothing of it.
            if self._gateways.is_anothers(number, now) and number not in self._confirming:
                self._confirming[number] = asyncio.create_task(self._confirm(number, self._partitions[number]))

    async def _confirm(self, number: int, partition: StatePartition) -> None:
        """Find out whether this gateway still has a home."""
        try:
            await partition.confirm()
        except LogbrokerError:
            pass  # The partition has told that it is lost.
        finally:
            del self._confirming[number]

    async def _keep(self, number: int) -> None:
        """Take over a home, and serve it until it has to be given up."""
        try:
            await self._serve(number)
        except (LogbrokerError, TimeoutError) as error:
            _log.warning("home %d cannot be served: %s", number, error)
            await asyncio.sleep(AGAIN_SECONDS)
        except Exception:
            _log.exception("home %d cannot be served", number)
            await asyncio.sleep(AGAIN_SECONDS)
        finally:
            self._homes.pop(number, None)
            self._partitions.pop(number, None)
            del self._tasks[number]
            if number == SHARED_PARTITION:
                self._rows.owned(None)
            self._membership.beat_soon()

    async def _serve(self, number: int) -> None:
        end = self._ends[number]
        partition = StatePartition(
            self._link, STATE_TOPIC, number, self.address, lambda error: end.set(), self._membership.check
        )
        await partition.open()
        self._partitions[number] = partition
        if number == SHARED_PARTITION:
            self._rows.owned(partition)
        try:
            # The groups of this home may be on topics that another gateway has created.
            await self._membership.read_to_end(seconds=OPEN_SECONDS)
            await self._topics.take_in_all()
            # What is stored about records at or above the ends of their logs is dropped as lost.
            await self._topics.offsets.learn(list(self._topics.partitions()), seconds=ENDS_SECONDS)
            async with self._open_home(number, await HomeStore.open(partition)) as home:
                self._homes[number] = home
                self._moved.set()
                await end.wait()
                del self._homes[number]
                if not self._is_closing:
                    home.move(self._not_here(number))
        finally:
            await partition.close()

    async def close(self) -> None:
        """Give up all homes, because this gateway stops."""
        self._is_closing = True
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        for end in self._ends.values():
            end.set()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))
