"""The expected state of a broker's engine after a life of which only the notes are left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from logbroker.broker.local_engine.engine import LocalEngine
from logbroker.broker.local_engine.state_store import LocalStateStore
from logbroker.engine import Read, ReadResult
from logbroker.record.codec import decode_batch, split_batches
from logbroker.tools.segments.findings import Severity
from logbroker.tools.segments.locate import locate
from logbroker.tools.segments.verify import verify
from logbroker.types import TopicId
from tests.faults.engine_trace import OFFSET_KEY, SCOPE, Note, Step, append


class ExpectedTopic(msgspec.Struct):
    """A topic that was acknowledged, or that an unanswered step may have made."""

    topic_id: TopicId
    """Empty: not known."""
    counts: set[int]
    """How many partitions it may have."""
    sent: dict[int, list[Note]]
    """Notes of sends by partition, without those refused."""
    sure: bool = True
    """Whether it must be there."""
    dropped: dict[int, list[Note]] = {}
    """Notes of deletions of records by partition, without those refused."""


class Expected:
    """Promises made in the notes of a life."""

    def __init__(self, notes: Sequence[Note]) -> None:
        self.topics: dict[str, ExpectedTopic] = {}
        self.committed: set[bytes | None] = {None}
        for note in notes:
            # A deletion that was refused has begun nevertheless.
            if note.outcome != "refused" or note.step.kind == "delete":
                self._take(note, note.step, done=note.outcome == "ok")
        self._producer_ids = {note.producer_id for note in notes}

    def _take(self, note: Note, step: Step, *, done: bool) -> None:
        topic = self.topics.get(step.topic)
        if step.kind == "create":
            self.topics[step.topic] = ExpectedTopic(note.topic_id, {step.number}, {}, done)
        elif step.kind == "grow":
            assert topic is not None
            topic.counts = {step.number} if done else {*topic.counts, step.number}
        elif step.kind == "delete":
            assert topic is not None
            if done:
                del self.topics[step.topic]
            topic.sure = False
        elif step.kind == "append":
            assert topic is not None
            topic.sent.setdefault(step.number, []).append(note)
        elif step.kind == "drop":
            assert topic is not None
            topic.dropped.setdefault(step.number, []).append(note)
        elif step.kind == "commit":
            self.committed = {note.value} if done else {*self.committed, note.value}

    async def check(self, engine: LocalEngine, state: LocalStateStore) -> dict[str, list[list[bytes | None]]]:
        """Compare what a new life has with what was promised; appends to each partition; returns what is in there."""
        found = {topic.name: topic for topic in engine.topics()}
        assert found.keys() <= self.topics.keys(), f"{found.keys() - self.topics.keys()} was deleted"
        contents = {}
        for name, expected in self.topics.items():
            topic = found.get(name)
            if topic is None:
                assert not expected.sure, f"{name} is gone"
                continue
            assert expected.topic_id in (topic.id, b"")
            assert topic.partitions in expected.counts
            contents[name] = [
                await self._check_partition(
                    engine, topic.id, number, expected.sent.get(number, []), expected.dropped.get(number, [])
                )
                for number in range(topic.partitions)
            ]
        assert (await engine.init_producer_id())[0] not in self._producer_ids
        assert (await state.load(SCOPE)).get(OFFSET_KEY) in self.committed
        return contents

    async def _check_partition(
        self, engine: LocalEngine, topic_id: TopicId, number: int, sent: list[Note], dropped: list[Note]
    ) -> list[bytes | None]:
        facts = engine.partition_facts(topic_id, number)
        start, end = facts.log_start_offset, facts.log_end_offset
        acknowledged = sum(note.outcome == "ok" for note in sent)
        assert acknowledged <= end <= len(sent), f"{acknowledged} were acknowledged, {end} are there"
        values = await values_of(engine, topic_id, number)
        assert values == [note.value for note in sent[start:end]]
        assert [note.offset for note in sent[:acknowledged]] == list(range(acknowledged))
        least = max((note.offset for note in dropped if note.outcome == "ok"), default=0)
        asked = (note.step.offset for note in dropped if note.outcome == "unknown")
        most = max([least, *(end if offset == -1 else offset for offset in asked)])
        assert start >= least, f"records below {least} were deleted, and are there again from {start} on"
        assert start <= most or (sent[0].step.topic == "short" and start < end)
        for again in sent[-5:]:
            # A retry gets the offset it had; one that was not stored is stored now, and once.
            if again.producer_id >= 0:
                offset = await append(engine, topic_id, again)
                assert offset == sent.index(again)
                values += [again.value] * (offset >= end)
        after = Note(Step("append", "", number), value=b"after")
        offset = await append(engine, topic_id, after)
        assert offset == start + len(values)
        values.append(after.value)
        assert await values_of(engine, topic_id, number) == values
        return values


async def values_of(engine: LocalEngine, topic_id: TopicId, number: int) -> list[bytes | None]:
    """Everything readable in a partition; checks that it is all of the log."""
    facts = engine.partition_facts(topic_id, number)
    values: list[bytes | None] = []
    offset = facts.log_start_offset
    while offset < facts.log_end_offset:
        [result] = await engine.read([Read(topic_id, number, offset, 1 << 20)])
        assert isinstance(result, ReadResult), result
        if not result.batches:
            break
        records = [record for _, batch in split_batches(result.batches) for record in decode_batch(batch)]
        assert [record.offset for record in records] == list(range(offset, result.next_offset))
        values += [record.value for record in records]
        offset = result.next_offset
    assert offset == facts.high_watermark == facts.log_end_offset
    return values


def check_files(data_dir: Path, names: set[str]) -> None:
    """Let the segment tools look for damage; and that nothing is left of deleted topics. No broker runs."""
    reports = list(verify(locate([data_dir]), lambda _bytes: None))
    wrong = [str(found) for report in reports for found in report.findings if found.severity is not Severity.NOTE]
    assert not wrong, wrong
    assert not list(data_dir.glob("*-delete"))
    of_topics = {path.name.rpartition("-")[0] for path in data_dir.iterdir() if path.name not in ("lock", "meta")}
    assert names <= of_topics
