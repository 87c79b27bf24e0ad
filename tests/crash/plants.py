"""Planted bugs: small faults put into a running broker, to prove that the crash loop finds such faults.

Each function replaces something in the modules of this process; `broker_child` calls it before the broker starts. None
of this is in the product. A name that no longer exists fails loudly, so that no plant silently does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from unittest import mock


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    setattr(owner, name, make(getattr(owner, name)))


def ack_before_sync() -> None:
    """Answer a write as soon as it is written, though its topic is synced."""
    from logbroker.broker.local_engine.partition import Partition
    from logbroker.types import Durability

    _replace(Partition, "commit", lambda commit: lambda self, _durability: commit(self, Durability.WRITTEN))
    _replace(
        Partition,
        "expect",
        lambda expect: lambda self, _durability, pending: expect(self, Durability.WRITTEN, pending),
    )


def torn_tail_kept() -> None:
    """Recover every batch whose length fits, whatever its bytes are."""
    from logbroker.storage.recovery import log_scan

    class AnyCrc:
        @staticmethod
        def value(_content: object) -> object:
            return mock.ANY

    _replace(log_scan, "google_crc32c", lambda _crc32c: AnyCrc)


def producer_state_forgotten() -> None:
    """Open every partition without what it knew of idempotent producers."""
    from logbroker.storage import partition_log
    from logbroker.storage.producer_state import ProducerStates

    def make(recover: Any) -> Any:
        def without_producers(*arguments: Any, **fields: Any) -> Any:
            found = recover(*arguments, **fields)
            found.producers = ProducerStates()
            return found

        return without_producers

    _replace(partition_log, "recover_partition", make)


def retry_answered_early() -> None:
    """Answer a retry from memory, while the original is still on its way to the disk."""
    from logbroker.broker.local_engine.partition import Partition
    from logbroker.storage.partition_log import PartitionLog

    retried: dict[PartitionLog, bool] = {}

    def remember(stage: Any) -> Any:
        def staged(self: PartitionLog, *rest: Any, **named: Any) -> Any:
            found = stage(self, *rest, **named)
            retried[self] = found.duplicate
            return found

        return staged

    _replace(PartitionLog, "stage", remember)
    _replace(Partition, "commit", lambda commit: lambda self, durability: commit(self, durability) or retried[self.log])


def high_watermark_early() -> None:
    """Let readers see a group as soon as it is written, though its topic is synced."""
    from logbroker.broker.local_engine.partition import Partition
    from logbroker.storage.partition_log import PartitionLog
    from logbroker.storage.progress import LogEnd

    def make(write: Any) -> Any:
        def shown_early(self: Any, group: Any) -> None:
            write(self, group)
            self._show(LogEnd(group.end_offset, group.runs[-1][0], group.end_position))

        return shown_early

    def tell_readers(hand_over: Any) -> Any:
        def as_if_asked_for_early_answers(self: Any, group: Any) -> None:
            self._answer_early = True
            hand_over(self, group)

        return as_if_asked_for_early_answers

    def settle_and_tell(settle: Any) -> Any:
        def told(self: Any, waiters: Any, offset: int) -> None:
            settle(self, waiters, offset)
            self.notify_listeners()

        return told

    _replace(PartitionLog, "write", make)
    _replace(Partition, "_hand_over", tell_readers)
    _replace(Partition, "_settle_waiters", settle_and_tell)


PLANTS: Final = {
    plant.__name__: plant
    for plant in (
        ack_before_sync,
        torn_tail_kept,
        producer_state_forgotten,
        retry_answered_early,
        high_watermark_early,
    )
}
