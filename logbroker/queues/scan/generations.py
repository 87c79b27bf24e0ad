"""The generations of a topic, as a scan goes through them: where one ends, and when the next may begin.

All records of a generation come before the first of the next, so that a key whose partition another generation changed
keeps its order.
"""

from __future__ import annotations

from typing import Final

from logbroker.engine import LogGeneration, ReadableLog, Topic
from logbroker.errors import UnknownTopicError
from logbroker.queues.machine.queue import Queue
from logbroker.types import TopicId

_NO_END: Final = 1 << 63


class GenerationScan:
    """Of the topic of one queue."""

    def __init__(self, engine: ReadableLog, queue: Queue) -> None:
        self._engine = engine
        self._queue = queue
        self._topic_id = TopicId(queue.topic_id)
        self.topic: Topic | None = None
        """As it was when it was last looked at."""
        self.current = 0
        """The one that is scanned; 0: the first is not begun."""

    @property
    def were_left(self) -> bool:
        """Whether the queue's index was emptied: it is in no generation then, until the scan begins one."""
        return self._queue.admission.generation != self.current

    @property
    def have_news(self) -> bool:
        """Whether the topic, or the queue's index, is another than it was when it was last looked at."""
        if self.were_left:
            return True
        try:
            return self._engine.topic_by_id(self._topic_id) is not self.topic
        except UnknownTopicError:
            return True

    @property
    def are_all_begun(self) -> bool:
        """As far as it is known."""
        return self.topic is not None and self.current == self.topic.generation

    def look(self) -> None:
        """Take note of the topic as it is now, and open the partitions that it grew by. Raises UnknownTopicError."""
        topic = self._engine.topic_by_id(self._topic_id)
        if topic is not self.topic:
            self.topic = topic
            for partition in range(topic.partitions):
                self._queue.open_partition(partition, 0)

    def begin_anew(self) -> None:
        """Go back to where the queue is."""
        self.current = self._queue.admission.generation

    def begin_next(self) -> LogGeneration | None:
        """Begin the last generation before which all is scanned, and return it; None where it is begun already."""
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
        """The offset in a partition at which the next generation begins; 0 where it is not in this one, if only because
        the index is made anew and begins with the first. Raises UnknownTopicError."""
        spans = self._engine.topic_by_id(self._topic_id).generations
        if partition >= sum(span.partitions for span in spans if span.generation == self.current):
            return 0
        for span in spans:
            if span.generation > self.current and partition < len(span.start_offsets):
                return span.start_offsets[partition]
        return _NO_END
