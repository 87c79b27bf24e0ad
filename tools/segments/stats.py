"""Statistics about segments: records per key, sizes of batches, and the effect of compression."""

from __future__ import annotations

from logbroker.record.compression import Codec
from logbroker.tools.segments.key_counts import PERCENTILES, Distribution, KeyCounts
from logbroker.tools.segments.locate import Located
from logbroker.tools.segments.metadata import is_live
from logbroker.tools.segments.reading import UNREADABLE, Progress, SegmentBatch, SegmentReading, records_of


class CodecStats:
    """The batches of one compression codec."""

    def __init__(self) -> None:
        self.batches = 0
        self.stored_bytes = 0
        self.plain_bytes = 0

    @property
    def ratio(self) -> float:
        """The size without compression divided by the stored size."""
        return self.plain_bytes / self.stored_bytes if self.stored_bytes else 1.0


class Stats:
    """The statistics of all segments that were added."""

    def __init__(self) -> None:
        self.keys = KeyCounts()
        self.batch_bytes = Distribution()
        self.records_per_batch = Distribution()
        self.codecs: dict[str, CodecStats] = {}
        self.control_batches = 0
        self.undecodable_batches = 0
        self.damaged_bytes = 0

    def add(self, located: Located, progress: Progress) -> None:
        """Count everything in these segments. Raises OSError."""
        for partition in located.partitions:
            live = is_live(partition)
            for segment in partition.listed():
                reading = SegmentReading(segment, progress, live=live)
                for batch in reading.batches():
                    self._add_batch(batch)
                self.damaged_bytes += sum(fault.end - fault.position for fault in reading.faults)

    def _add_batch(self, batch: SegmentBatch) -> None:
        header = batch.header
        if header.is_control:
            self.control_batches += 1
            return
        self.batch_bytes.add(header.size_bytes)
        self.records_per_batch.add(header.record_count)
        try:
            plain = batch.plain()
            codec = self.codecs.setdefault(Codec(header.codec).name.lower(), CodecStats())
            codec.batches += 1
            codec.stored_bytes += header.size_bytes
            codec.plain_bytes += len(plain)
            add = self.keys.add
            for record in records_of(plain):
                add(record.key)
        except UNREADABLE:
            self.undecodable_batches += 1

    def document(self, top: int) -> dict[str, object]:
        """Return the statistics as a JSON document."""
        keys = self.keys
        return {
            "records": keys.records,
            "records_without_key": keys.without_key,
            "keys": keys.keys(),
            "keys_sampled": keys.sampled,
            "top_keys": keys.top(top),
            "top_keys_too_low_by_at_most": keys.top_error,
            "records_per_key": _figures(keys.records_per_key()),
            "batch_bytes": _figures(self.batch_bytes),
            "records_per_batch": _figures(self.records_per_batch),
            "codecs": {
                name: {
                    "batches": codec.batches,
                    "stored_bytes": codec.stored_bytes,
                    "plain_bytes": codec.plain_bytes,
                    "ratio": round(codec.ratio, 3),
                }
                for name, codec in sorted(self.codecs.items())
            },
            "control_batches": self.control_batches,
            "undecodable_batches": self.undecodable_batches,
            "damaged_bytes": self.damaged_bytes,
        }


def _figures(distribution: Distribution) -> dict[str, float]:
    percentiles = zip(PERCENTILES, distribution.percentiles(), strict=True)
    return {
        "count": distribution.count,
        "mean": round(distribution.mean, 2),
        **{f"p{percent}": value for percent, value in percentiles},
        "largest": distribution.largest,
    }
