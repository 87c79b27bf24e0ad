"""The contents of segments, from their batch headers alone."""

from __future__ import annotations

from collections.abc import Iterator

from logbroker.tools.segments.findings import SegmentFacts
from logbroker.tools.segments.locate import Located, PartitionFiles
from logbroker.tools.segments.metadata import is_live
from logbroker.tools.segments.reading import Progress, SegmentReading


def list_segments(located: Located, progress: Progress) -> Iterator[tuple[PartitionFiles, SegmentFacts]]:
    """Yield the facts of each segment. Damage inside of batches is not noticed. Raises OSError."""
    for partition in located.partitions:
        live = is_live(partition)
        for segment in partition.listed():
            reading = SegmentReading(segment, progress, live=live, headers_only=True)
            facts = SegmentFacts(
                path=segment.path, base_offset=segment.base_offset, next_offset=segment.base_offset, size_bytes=0
            )
            for batch in reading.batches():
                facts.add(batch.header)
            facts.size_bytes = reading.size_bytes
            facts.damaged_at = reading.faults[0].position if reading.faults else None
            yield partition, facts
