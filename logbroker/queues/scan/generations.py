"""The generations of a topic in a scan: where one ends, and when the next may begin.

The scan takes all records of a generation before the first of the next, so that keys whose partition changed stay in
order.
"""

from __future__ import annotations

from typing import Final

from logbroker.engine import LogGeneration, ReadableLog, Topic
from logbroker.errors import UnknownTopicError
from logbroker.queues.machine.queue import Queue
from logbroker.types import TopicId

_NO_END: Final = 1 << 63


class GenerationScan:
    """The progress of a scan through the generations of one queue's topic."""

    def __init__(self, engine: ReadableLog, queue: Queue) -> None:
        self._engine = engine
        self._queue = queue
        self._topic_id = TopicId(queue.topic_id)
        self.topic: Topic | None = None
        """Topic at the last `look`."""
        self.current = 0
        """Number of the generation that is scanned; 0: the first is not begun."""

    @property
    def were_left(self) -> bool:
        """Whether the queue's index was emptied. The queue is then in no generation until the scan begins one again."""
        return self._queue.admission.generation != self.current

    @property
    def have_news(self) -> bool:
        """Whether the topic or the queue's index has changed since the last `look`."""
        if self.were_left:
            return True
        try:
            return self._engine.topic_by_id(self._topic_id) is not self.topic
        except UnknownTopicError:
            return True

    @property
    def are_all_begun(self) -> bool:
        """Whether all generations known at the last `look` are begun."""
        return self.topic is not None and self.current == self.topic.generation

    def look(self) -> None:
        """Update `topic`, and open the partitions that it grew by. Raises UnknownTopicError."""
        topic = self._engine.topic_by_id(self._topic_id)
        if topic is not self.topic:
            self.topic = topic
            for partition in range(topic.partitions):
                self._queue.open_partition(partition, 0)

    def begin_anew(self) -> None:
        """Go back to the queue's generation."""
        self.current = self._queue.admission.generation

    def begin_next(self) -> LogGeneration | None:
        """Begin the last generation before which everything is scanned, and return it; None if it is already begun."""
        position = self._queue.position
        for span in reversed(self.topic.generations if self.topic else ()):
            if span.generation <= self.current:
                return None
            if all(position(partition) >= start for partition, start in enumerate(span.start_offsets)):
                self._queue.begin_generation(span.generation, span.start_offsets)
                self.current = span.generation
                return span
        return None

    def end(self, partition: int) -> int:
        """Return the offset in a partition at which the next generation begins; 0 if the partition is not in the
        current generation, for instance because the index is rebuilt from the first generation. Raises
        UnknownTopicError."""
        spans = self._engine.topic_by_id(self._topic_id).generations
        if partition >= sum(span.partitions for span in spans if span.generation == self.current):
            return 0
        for span in spans:
            if span.generation > self.current and partition < len(span.start_offsets):
                return span.start_offsets[partition]
        return _NO_END
