"""The ends below which a redrive stays."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class RedriveEnds(msgspec.Struct, frozen=True):
    """The ends of a dead-letter topic at one moment. A redrive stays below them: records that fail again meanwhile
    become letters behind them."""

    topic_id: bytes
    offsets: Sequence[int]
    """End offset of each partition, from partition 0 on; nothing is looked for in the partitions behind the last
    one."""

    def of(self, partition: int) -> int:
        return self.offsets[partition] if partition < len(self.offsets) else 0
