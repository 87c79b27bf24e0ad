"""What outlives a crash of the simulation: the log, and what the model knows to be durable."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from logbroker.queues.messages import DeadLetter
from logbroker.queues.places import place_of


@dataclass
class Durable:
    """What a crash leaves of the model."""

    done: set[int] = field(default_factory=set)
    failures: dict[int, int] = field(default_factory=dict)
    delays: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Delay and due time (wall clock), ms."""
    stands: dict[int, str] = field(default_factory=dict)
    """Records that are blocked, parked without a key, or on their way to the dead-letter topic."""
    parked: dict[bytes, int] = field(default_factory=dict)
    """The record that failed, by the key of its lane."""
    held: dict[bytes, int] = field(default_factory=dict)
    """Tokens of sessions, by key."""
    states: dict[bytes, bytes] = field(default_factory=dict)

    def copy(self) -> Durable:
        return Durable(
            set(self.done),
            dict(self.failures),
            dict(self.delays),
            dict(self.stands),
            dict(self.parked),
            dict(self.held),
            dict(self.states),
        )


@dataclass
class Hold:
    """What the model knows of an open session."""

    token: int
    worker: str
    prefetch: int
    deadline: float
    receipts: list[int] = field(default_factory=list)
    """In flight."""


class DeadTopic:
    """A dead-letter topic: it knows the last five batches of a producer in each partition."""

    def __init__(self) -> None:
        self.partitions: dict[int, list[int]] = defaultdict(list)

    def append(self, letters: list[DeadLetter]) -> None:
        for letter in letters:
            records = self.partitions[letter.partition]
            if letter.sequence < len(records):
                assert records[letter.sequence] == letter.place, "another record under a sequence that is taken"
                assert letter.sequence >= len(records) - 5, "the topic does not remember so old a batch"
            else:
                assert letter.sequence == len(records), "a sequence is left out"
                records.append(letter.place)


class Log:
    """A topic whose partitions may grow. A key has one partition in each generation."""

    def __init__(self, partitions: int) -> None:
        self.keys: dict[int, bytes | None] = {}
        self.not_before: dict[int, int] = {}
        self.ranks: dict[int, tuple[int, int]] = {}
        """Priority and timestamp (ms): of all kinds, and in no order."""
        self.order: list[int] = []
        """All records in the order of their appending."""
        self.ends = [0] * partitions
        self.growths: list[tuple[int, ...]] = [()]
        """The start offsets of each generation."""

    def partition_of(self, key: bytes) -> int:
        return sum(key) % len(self.ends)

    def append(self, key: bytes | None, gap: int, not_before_ms: int) -> None:
        partition = 0 if key is None else self.partition_of(key)
        self.ends[partition] += gap
        place = place_of(partition, self.ends[partition])
        self.ends[partition] += 1
        self.keys[place] = key
        number = len(self.order)
        self.ranks[place] = number * 7 % 10, number * 37 % 50
        self.order.append(place)
        if not_before_ms:
            self.not_before[place] = not_before_ms

    def grow(self) -> None:
        self.growths.append(tuple(self.ends))
        self.ends.append(0)
