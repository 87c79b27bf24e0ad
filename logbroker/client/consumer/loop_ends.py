"""The ends of a loop over the records that are there when it begins."""

from __future__ import annotations

from collections.abc import Mapping

from logbroker.client.consumer.fetcher import Assigned
from logbroker.types import TopicPartition


class LoopEnds(dict[TopicPartition, int]):
    """The end offsets that a bounded loop still has to reach.

    The body of the loop may read, move, pause and assign partitions of the same consumer. So the loop looks at them
    anew before each batch (`ConsumerCore.open_next`).
    """

    def __init__(self, assignment: Mapping[TopicPartition, Assigned], moves: int) -> None:
        super().__init__()
        self.assignment = assignment
        """The assignment for which the ends were taken."""
        self.moves = moves
        """How many moves of the program the loop has taken into account."""
        self.known: dict[TopicPartition, int] = {}
        """The ends of all partitions, including those that were at their ends or paused when the loop began."""

    def look_anew(self, moves: int) -> None:
        """Take into account that the program has moved or resumed partitions: those whose positions are now before
        their ends have to reach them. A partition whose error was raised is put back only after it was moved itself."""
        if self.moves == moves:
            return
        self.moves = moves
        for partition, end in self.known.items():
            assigned = self.assignment.get(partition)
            if assigned is not None and assigned.position < end and not (assigned.paused or assigned.told):
                self.setdefault(partition, end)

    def renew(self, present: LoopEnds) -> None:
        """Continue with other ends."""
        self.clear()
        self.update(present)
        self.assignment, self.moves, self.known = present.assignment, present.moves, present.known
