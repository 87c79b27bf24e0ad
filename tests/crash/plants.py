"""Planted bugs: small faults put into a running broker, to prove that the crash loop finds such faults.

Each function replaces something in the modules of this process; `broker_child` calls it before the broker starts. None
of this is in the product. A name that no longer exists fails loudly, so that no plant silently does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    setattr(owner, name, make(getattr(owner, name)))


def ack_before_sync() -> None:
    """Answer a write as soon as it is written, though its topic is synced."""
    from logbroker.broker.local_engine.partition import Partition
    from logbroker.types import Durability

    def make(append: Any) -> Any:
        def answered_early(self: Any, batch: Any, header: Any, now_ms: Any, durability: Any, pending: Any) -> Any:
            return append(self, batch, header, now_ms, Durability.WRITTEN, pending)

        return answered_early

    _replace(Partition, "append", make)


def torn_tail_kept() -> None:
    """Take whatever follows the recovery point and looks like a batch, whole or not."""
    from logbroker.record.header import HEADER_BYTES, MAGIC, parse_header
    from logbroker.storage import tail_recovery

    def make(_good_batch: Any) -> Any:
        def looks_like_a_batch(window: bytes, position: int, end_offset: int, *, gaps_allowed: bool) -> Any:
            if len(window) - position < HEADER_BYTES:
                return None
            header = parse_header(window, position)
            plausible = header.magic == MAGIC and header.base_offset == end_offset and header.record_count > 0
            return header if plausible and position + header.size_bytes <= len(window) else None

        return looks_like_a_batch

    _replace(tail_recovery, "good_batch", make)


def producer_state_forgotten() -> None:
    """Open every partition without what it knew of idempotent producers."""
    from logbroker.storage import partition_log

    def make(recover: Any) -> Any:
        def without_producers(*arguments: Any, **fields: Any) -> Any:
            found = recover(*arguments, **fields)
            found.producers = []
            return found

        return without_producers

    _replace(partition_log, "recover_partition", make)


def retry_answered_early() -> None:
    """Answer a retry from memory, while the original is still on its way to the disk."""
    from logbroker.broker.local_engine.partition import Partition

    def make(append: Any) -> Any:
        def answered_early(self: Any, batch: Any, header: Any, now_ms: Any, durability: Any, pending: Any) -> Any:
            if self.log.is_retry(header):
                return self.log.stage(batch, header, now_ms)
            return append(self, batch, header, now_ms, durability, pending)

        return answered_early

    _replace(Partition, "append", make)


def high_watermark_early() -> None:
    """Let readers see a group as soon as it is written, though its topic is synced."""
    from logbroker.storage.partition_log import PartitionLog
    from logbroker.storage.progress import LogEnd

    def make(write: Any) -> Any:
        def shown_early(self: Any, group: Any) -> None:
            write(self, group)
            self._show(LogEnd(group.end_offset, group.runs[-1][0], group.end_position))

        return shown_early

    _replace(PartitionLog, "write", make)


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
