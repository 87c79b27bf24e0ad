"""A broker's engine does a little of everything, and what it was answered is noted where a kill leaves it."""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from logbroker.broker.local_engine.engine import LocalEngine
from logbroker.broker.local_engine.state_store import LocalStateStore
from logbroker.engine import Append, Appended, StateEvent, Topic
from logbroker.errors import (
    CorruptLogError,
    DiskFullError,
    LogbrokerError,
    OffsetOutOfRangeError,
    StorageFailedError,
    TooManyOpenFilesError,
)
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.types import TopicId

CONFIGS: Final = {
    "kept": {"segment.bytes": "400", "index.interval.bytes": "100"},
    "short": {"segment.bytes": "300", "index.interval.bytes": "100", "retention.bytes": "400"},
    "gone": {"segment.bytes": "300"},
    "written": {"segment.bytes": "400", "durability": "written"},
}
SCOPE: Final = "group"
OFFSET_KEY: Final = b"offset"
REFUSALS: Final = (DiskFullError, TooManyOpenFilesError, CorruptLogError, OffsetOutOfRangeError)
"""CorruptLogError where the files of a deleted topic could not be read: they stay, and nobody else gets the name."""


class Step(NamedTuple):
    """One thing to do."""

    kind: str
    """create, grow, delete, append, drop, commit, checkpoint or retain."""
    topic: str = ""
    number: int = 0
    """How many partitions, or which."""
    offset: int = -1
    """Where the log is to begin, for a drop; -1: at the high watermark."""


def _appends(topic: str, partition: int, count: int) -> list[Step]:
    return [Step("append", topic, partition)] * count


STEPS: Final = (
    Step("create", "kept", 2),
    *_appends("kept", 0, 4),
    *_appends("kept", 1, 2),
    Step("commit"),
    Step("checkpoint"),
    Step("create", "short", 1),
    *_appends("short", 0, 5),
    Step("retain"),
    Step("grow", "kept", 3),
    *_appends("kept", 2, 1),
    Step("create", "gone", 1),
    *_appends("gone", 0, 2),
    Step("delete", "gone"),
    Step("create", "gone", 1),
    *_appends("gone", 0, 1),
    Step("create", "written", 1),
    *_appends("written", 0, 4),
    Step("checkpoint"),
    *_appends("kept", 0, 3),
    Step("drop", "kept", 0, 4),
    Step("drop", "written", 0),
    *_appends("written", 0, 1),
    Step("checkpoint"),
    Step("drop", "kept", 1),
    *_appends("kept", 1, 1),
    Step("commit"),
)
"""Topics are made, rolled, shortened, grown, deleted and made again, and records are deleted."""


def random_steps(seed: int, count: int) -> list[Step]:
    """As many steps, all of which are possible where those before them were."""
    chance = random.Random(seed)
    partitions: dict[str, int] = {}
    steps: list[Step] = []
    while len(steps) < count:
        kind = chance.choices(_KINDS, _WEIGHTS)[0]
        topic = chance.choice(list(CONFIGS))
        step = Step(kind)
        if kind == "create" and topic not in partitions:
            partitions[topic] = chance.randint(1, 2)
            step = Step(kind, topic, partitions[topic])
        elif kind == "grow" and partitions.get(topic, 4) < 4:
            partitions[topic] += 1
            step = Step(kind, topic, partitions[topic])
        elif kind == "append" and topic in partitions:
            step = Step(kind, topic, chance.randrange(partitions[topic]))
        elif kind == "drop" and topic in partitions:
            step = Step(kind, topic, chance.randrange(partitions[topic]), chance.choice((-1, 0, 1, 3, 5)))
        elif kind == "delete" and topic == "gone" and partitions.pop(topic, 0):
            step = Step(kind, topic)
        elif kind in ("append", "create", "grow", "delete", "drop"):
            continue
        steps.append(step)
    return steps


_KINDS: Final = ("append", "create", "commit", "checkpoint", "retain", "grow", "delete", "drop")
_WEIGHTS: Final = (12, 4, 1, 2, 2, 1, 1, 2)


class Note(msgspec.Struct):
    """A request and its answer. Two lines of a file: when it begins, and when it has ended."""

    step: Step
    value: bytes = b""
    producer_id: int = -1
    sequence: int = -1
    outcome: str = "unknown"
    """ok, refused, or unknown: it had not ended."""
    topic_id: TopicId = TopicId(b"")
    offset: int = -1


def read_notes(path: Path) -> list[Note]:
    notes: list[Note] = []
    for line in path.read_bytes().splitlines():
        note = msgspec.json.decode(line, type=Note)
        if note.outcome == "unknown":
            notes.append(note)
        else:
            notes[-1] = note
    return notes


class Trace:
    """Does steps with an engine."""

    def __init__(self, engine: LocalEngine, state: LocalStateStore, notes: Path) -> None:
        self._engine = engine
        self._state = state
        self._notes_fd = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._topics: dict[str, Topic] = {}
        self._producer_id = -1
        self._sequences: dict[tuple[str, int], int] = {}
        self._values = 0

    async def run(self, steps: Sequence[Step]) -> None:
        """Do all steps. Raises StorageFailedError where the broker would end; then nothing more is acknowledged."""
        try:
            for step in steps:
                # A refusal may leave nothing to append to.
                if step.kind in ("append", "grow", "delete", "drop") and step.topic not in self._topics:
                    continue
                if step.kind in ("append", "drop") and step.number >= self._topics[step.topic].partitions:
                    continue
                if step.kind == "create" and step.topic in self._topics:
                    continue
                await self._do(step)
        finally:
            os.close(self._notes_fd)

    async def _do(self, step: Step) -> None:
        self._values += 1
        note = Note(step, value=b"%d" % self._values)
        if step.kind == "append":
            note.value += bytes(100)
            if step.topic == "kept":
                if self._producer_id < 0:
                    self._producer_id, _ = await self._engine.init_producer_id()
                note.producer_id = self._producer_id
                note.sequence = self._sequences.get((step.topic, step.number), 0)
        self._write(note)
        try:
            await getattr(self, f"_{step.kind}")(step, note)
        except StorageFailedError:
            raise
        except REFUSALS:
            note.outcome = "refused"
        else:
            note.outcome = "ok"
        self._write(note)

    def _write(self, note: Note) -> None:
        os.write(self._notes_fd, msgspec.json.encode(note) + b"\n")

    async def _create(self, step: Step, note: Note) -> None:
        topic = await self._engine.create_topic(step.topic, step.number, CONFIGS[step.topic])
        self._topics[step.topic] = topic
        note.topic_id = topic.id

    async def _grow(self, step: Step, _note: Note) -> None:
        self._topics[step.topic] = await self._engine.alter_topic(self._topics[step.topic].id, partitions=step.number)

    async def _delete(self, step: Step, _note: Note) -> None:
        topic = self._topics.pop(step.topic)
        await self._engine.delete_topic(topic.id)

    async def _append(self, step: Step, note: Note) -> None:
        note.offset = await append(self._engine, self._topics[step.topic].id, note)
        if note.producer_id >= 0:
            self._sequences[step.topic, step.number] = note.sequence + 1

    async def _drop(self, step: Step, note: Note) -> None:
        note.offset = await self._engine.delete_records(self._topics[step.topic].id, step.number, step.offset)

    async def _commit(self, _step: Step, note: Note) -> None:
        await self._state.commit(SCOPE, [StateEvent(OFFSET_KEY, note.value)])

    async def _checkpoint(self, _step: Step, _note: Note) -> None:
        await self._fatal_where_refused(self._engine._upkeep.checkpoint())

    async def _retain(self, _step: Step, _note: Note) -> None:
        await self._fatal_where_refused(self._engine._upkeep.apply_retention())

    async def _fatal_where_refused(self, upkeep: Awaitable[None]) -> None:
        """As the engine's own task of upkeep: nobody is there to be refused."""
        try:
            await upkeep
        except LogbrokerError as error:
            raise self._engine._failure.report(error) from error


async def append(engine: LocalEngine, topic_id: TopicId, note: Note) -> int:
    """Append the batch of a note; returns its offset, raises its error."""
    epoch = 0 if note.producer_id >= 0 else -1
    batch = encode_batch(
        [NewRecord(note.value)], producer_id=note.producer_id, producer_epoch=epoch, base_sequence=note.sequence
    )
    [outcome] = await engine.append([Append(topic_id, note.step.number, batch)])
    if isinstance(outcome, LogbrokerError):
        raise outcome
    assert isinstance(outcome, Appended)
    return outcome.base_offset
