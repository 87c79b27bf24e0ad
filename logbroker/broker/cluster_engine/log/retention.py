"""Retention as a gateway sees it: the cluster deletes records without asking, so they are copied before it may.

The cluster deletes a segment when its newest record is older than `retention.ms`, at checks of its own. So every record
that may go within some time, the margin, lies below the first record that is younger than `retention.ms` less the
margin. Each holder of a topic is asked in good time to release what lies below that record; a queue group copies those
records of stalled lanes. When records go because a partition is larger than `retention.bytes`, nobody tells.

Topics of copies are kept by the cluster for ever. What no group needs of them is deleted here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Final

from logbroker.broker.catalog import Catalog
from logbroker.broker.cluster_engine.connection.codes import NONE
from logbroker.broker.cluster_engine.connection.link import ClusterLink, PassingError
from logbroker.broker.cluster_engine.log.offsets import Offsets, delete_records, list_offsets
from logbroker.broker.cluster_engine.log.remote_partition import RemotePartition
from logbroker.clock import Clock
from logbroker.config import MAX_INT64
from logbroker.engine import Holder, Topic
from logbroker.errors import LogbrokerError, RecordsNeededError
from logbroker.types import INTERNAL_PREFIX, TopicId

_log = logging.getLogger(__name__)

MAX_MARGIN_MS: Final = 600_000
"""Longest time before their deletion for which records are copied: two checks of the cluster by its default."""
CLEAN_SECONDS: Final = 10.0
"""The time between the deletions of copies that are no longer needed."""
LOOK_SECONDS: Final = 1.0
"""The shortest time between two looks at a topic."""
_MAX_LOOK_SECONDS: Final = 60.0
_LOOKS: Final = 20
"""Looks at a topic within its `retention.ms`, if that is short."""
_MAX_TRIES: Final = 8
"""Attempts of the holders without any progress, before a deletion is refused."""


def margin_ms(retention_ms: int) -> int:
    """Return the time before their deletion for which records are copied."""
    return min(retention_ms // 4, MAX_MARGIN_MS)


def look_seconds(retention_ms: int) -> float:
    """Return the time between two looks at what may be deleted soon. Several of them fit into the margin."""
    return min(max(retention_ms / _LOOKS / 1000, LOOK_SECONDS), _MAX_LOOK_SECONDS)


class ClusterRetention:
    """Asks the holders to release what the cluster may delete soon."""

    def __init__(
        self,
        clock: Clock,
        link: ClusterLink,
        offsets: Offsets,
        catalog: Catalog,
        partitions: Callable[[TopicId], Sequence[RemotePartition]],
    ) -> None:
        """`partitions` returns the partitions of a topic."""
        self._clock = clock
        self._link = link
        self._holders = offsets.holders
        self._catalog = catalog
        self._partitions = partitions
        self._due: dict[tuple[TopicId, int], float] = {}
        """When to look at a topic again (monotonic seconds), as long as its `retention.ms` stays as it is."""

    def hold(self, topic_id: TopicId, holder: Holder) -> None:
        self._holders.setdefault(topic_id, set()).add(holder)
        self._due = {key: due for key, due in self._due.items() if key[0] != topic_id}

    def release(self, topic_id: TopicId, holder: Holder) -> None:
        holders = self._holders.get(topic_id, set())
        holders.discard(holder)
        if not holders:
            self._holders.pop(topic_id, None)

    async def run(self) -> None:
        """Look at all topics with holders, on and on."""
        await asyncio.gather(_repeat(self._look, LOOK_SECONDS), _repeat(self._clean, CLEAN_SECONDS))

    async def _look(self) -> None:
        now, now_ms = monotonic(), self._clock.wall_ms()
        self._due = {key: due for key, due in self._due.items() if key[0] in self._holders and due > now}
        times: dict[RemotePartition, int] = {}
        for topic in self._held():
            retention_ms = topic.config.retention_ms
            key = topic.id, retention_ms
            if retention_ms >= 0 and key not in self._due and not topic.name.startswith(INTERNAL_PREFIX):
                self._due[key] = now + look_seconds(retention_ms)
                oldest_ms = max(now_ms - retention_ms + margin_ms(retention_ms), 0)
                times.update(dict.fromkeys(self._partitions(topic.id), oldest_ms))
        for partition, found in (await list_offsets(self._link, times)).items():
            if found.error_code == NONE:
                self._ask(partition, found.offset if found.offset >= 0 else partition.high_watermark)
        # Those without an answer are asked for at the next look at their topic, within the margin.

    def _held(self) -> list[Topic]:
        return [self._catalog.by_id(topic_id) for topic_id in self._holders if self._catalog.has_id(topic_id)]

    def _ask(self, partition: RemotePartition, offset: int) -> list[Awaitable[None]]:
        """Ask the holders that need records below an offset to release them. Return the releases that were begun."""
        topic_id, number = partition.key
        needy = [holder for holder in self._holders.get(topic_id, ()) if holder.needed_from(number) < offset]
        attempts = [holder.let_go(number, offset) for holder in needy]
        return [attempt for attempt in attempts if attempt is not None]

    def _needed_from(self, partition: RemotePartition) -> int:
        topic_id, number = partition.key
        return min((holder.needed_from(number) for holder in self._holders.get(topic_id, ())), default=MAX_INT64)

    async def release_below(self, partition: RemotePartition, offset: int) -> None:
        """Let the holders of this gateway release the records below an offset. Raises RecordsNeededError."""
        tries = 0
        while (reached := self._needed_from(partition)) < offset:
            attempts = self._ask(partition, offset)
            if attempts:
                await asyncio.wait(list(map(asyncio.ensure_future, attempts)))
            tries = 0 if self._needed_from(partition) > reached else tries + 1
            if not attempts or tries == _MAX_TRIES:
                raise RecordsNeededError(
                    f"a queue group needs records of {partition.name} from offset {reached} on, and cannot copy those"
                    " of stalled lanes yet; the log of the gateway says why"
                )

    async def _clean(self) -> None:
        """Delete the copies that no group needs."""
        for topic in self._held():
            if topic.name.startswith(INTERNAL_PREFIX):
                for partition in self._partitions(topic.id):
                    try:
                        await self._clean_one(partition)
                    except LogbrokerError as error:
                        _log.debug("copies in %s cannot be deleted yet: %s", partition.name, error)

    async def _clean_one(self, partition: RemotePartition) -> None:
        topic_id, number = partition.key
        offset = min(self._needed_from(partition), partition.high_watermark)
        if offset <= partition.log_start_offset:
            return
        # What the group needs no more, as far as it knows, is stored after this: its owner alone can store it.
        for holder in list(self._holders.get(topic_id, ())):
            if (forgotten := holder.let_go(number, offset)) is not None:
                await forgotten
        partition.heard(await delete_records(self._link, partition, offset), -1)


async def _repeat(look: Callable[[], Awaitable[None]], seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            await look()
        except (PassingError, LogbrokerError) as error:
            _log.debug("the retention of the cluster cannot be watched: %s", error)
        except Exception:
            _log.exception("the retention of the cluster cannot be watched; it is tried again")
