"""State that outlives a crash of the simulation: the log, and what the model knows to be durable."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from logbroker.queues.model.messages import DeadLetter, LetterProducer
from logbroker.queues.model.record_id import record_id_of


@dataclass
class Durable:
    """State of the model that a crash leaves."""

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
    """An open session, as the model knows it."""

    token: int
    worker: str
    prefetch: int
    deadline: float
    receipts: list[int] = field(default_factory=list)
    """In flight."""


class DeadTopic:
    """A dead-letter topic: it knows the last five batches of each producer in each partition."""

    def __init__(self) -> None:
        self.batches: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        """Record ids and sequences of letters, by partition and producer id."""
        self.there: set[int] = set()
        """Records whose letters are there since they were last to be done."""
        self.rows: dict[int, LetterProducer] = {}
        """The producers of partitions that are stored."""
        self.producers = 0

    def append(self, letter: DeadLetter, producer: LetterProducer) -> bool:
        """Return whether the letter is there now, or was; else its sequence is none that is expected."""
        batches = self.batches[letter.partition, producer.producer_id]
        sequence = letter.sequence - producer.base
        if sequence == len(batches):
            assert letter.record_id not in self.there, "a letter is there twice"
            self.there.add(letter.record_id)
            batches.append((letter.record_id, letter.sequence))
            return True
        if 0 <= sequence < len(batches) and sequence >= len(batches) - 5:
            assert batches[sequence] == (letter.record_id, letter.sequence), (
                "another record under a sequence that is taken"
            )
            return True
        return False

    def new_producer(self, letter: DeadLetter) -> LetterProducer:
        self.producers += 1
        return LetterProducer(b"", self.producers, 0, letter.sequence)


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
        record_id = record_id_of(partition, self.ends[partition])
        self.ends[partition] += 1
        self.keys[record_id] = key
        number = len(self.order)
        self.ranks[record_id] = number * 7 % 10, number * 37 % 50
        self.order.append(record_id)
        if not_before_ms:
            self.not_before[record_id] = not_before_ms

    def grow(self) -> None:
        self.growths.append(tuple(self.ends))
        self.ends.append(0)
