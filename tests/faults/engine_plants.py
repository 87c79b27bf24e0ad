"""One-line faults of the engine, each of which a kill at some call must bring to light."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final
from weakref import WeakSet

from logbroker.broker.local_engine import numbers
from logbroker.broker.local_engine.partition import Partition
from logbroker.broker.local_engine.partition_table import PartitionTable
from logbroker.broker.local_engine.producer_ids import ProducerIds
from logbroker.broker.local_engine.upkeep import Upkeep
from logbroker.storage import partition_log
from logbroker.storage.metadata.metadata_store import MetadataStore, Write
from logbroker.storage.partition_checkpoint import PartitionCheckpoint
from logbroker.storage.producer_state import ProducerStates
from logbroker.storage.recovery import partition as recovery
from logbroker.storage.recovery.tail import TailRecovery
from logbroker.storage.segment import Segment


def acknowledged_before_it_is_written() -> None:
    Partition.expect = lambda *_: None  # type: ignore[method-assign]


def commits_not_waited_for() -> None:
    real = MetadataStore.submit

    def submit(self: MetadataStore, writes: Sequence[Write]) -> Future[None]:
        real(self, writes)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    MetadataStore.submit = submit  # type: ignore[method-assign]


def files_removed_before_the_new_start_is_stored() -> None:
    real = Upkeep._remove_below

    async def remove_below(self: Upkeep, partition: Partition, start_offset: int) -> None:
        for segment in partition.log._view.segments[:-1]:
            if segment.base_offset < start_offset:
                segment.remove_files()
        await real(self, partition, start_offset)

    Upkeep._remove_below = remove_below  # type: ignore[method-assign]


def deletions_of_records_kept_in_memory() -> None:
    async def raise_start(
        self: Upkeep, partition: Partition, start_offset: int, checkpoint: PartitionCheckpoint
    ) -> list[Segment]:
        partition.log.advance_log_start(start_offset)
        return []

    Upkeep._raise_start = raise_start  # type: ignore[method-assign]


def deleted_files_forgotten_at_start() -> None:
    real = PartitionTable.remove_set_aside
    started: WeakSet[PartitionTable] = WeakSet()

    def not_the_first_time(self: PartitionTable) -> None:
        if self in started:
            real(self)
        started.add(self)

    PartitionTable.remove_set_aside = not_the_first_time  # type: ignore[method-assign]


def producers_forgotten() -> None:
    real = recovery.recover_partition

    def recover(*arguments: Any, **fields: Any) -> Any:
        found = real(*arguments, **fields)
        found.producers = ProducerStates()
        return found

    partition_log.recover_partition = recover  # type: ignore[attr-defined]


def torn_tail_kept() -> None:
    TailRecovery._cut = lambda *_: None  # type: ignore[method-assign]


def producer_ids_not_reserved() -> None:
    async def new(self: ProducerIds) -> tuple[int, int]:
        self.next += 1
        return self.next - 1, 0

    ProducerIds.new = new  # type: ignore[method-assign]
    # As where the clock steps back, and none of them has appended.
    numbers.number_of_time = lambda *_: 0
    PartitionTable.producer_ids_end = lambda self: 0  # type: ignore[method-assign]


PLANTS: Final[dict[str, Callable[[], None]]] = {
    plant.__name__: plant
    for plant in (
        acknowledged_before_it_is_written,
        commits_not_waited_for,
        files_removed_before_the_new_start_is_stored,
        deletions_of_records_kept_in_memory,
        deleted_files_forgotten_at_start,
        producers_forgotten,
        torn_tail_kept,
        producer_ids_not_reserved,
    )
}
