"""The ends below which a redrive stays."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class RedriveEnds(msgspec.Struct, frozen=True):
    """The ends of a dead-letter topic when a redrive began. The redrive reads only below them, because a record that
    fails again during the redrive becomes a new letter behind them."""

    topic_id: bytes
    offsets: Sequence[int]
    """End offset of each partition, from partition 0 on. A partition that is not listed was added later, and is not
    read."""

    def of(self, partition: int) -> int:
        return self.offsets[partition] if partition < len(self.offsets) else 0
