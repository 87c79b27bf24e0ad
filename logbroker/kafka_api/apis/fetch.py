"""Fetch (key 1): reads batches, and waits for more up to `min_bytes`.

Batches are passed on as they lie in the log; the first one may begin before the requested offset. At least one batch is
sent, however large, if there is one. Clients may have sessions (`fetch_sessions`), in which they list changes only and
get news only. There are no transactions: the last stable offset is the high watermark, and no aborted transactions are
listed.

v4: isolation, and batches of version 2. v5: log start offsets. v7: sessions, and an error for the whole.
v9: the client's idea of the leader epoch, which is checked (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH).
v11: racks, which are ignored.
v12: flexible; the leader epoch of the last record that was read, answered with the end of the common part of the log
(`diverging_epoch`). v13: topics by id. v15: the state of replicas, which are not served. v16: where a leader has moved.
v17: directory ids of replicas. v18: high watermarks of replicas.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from logbroker.engine import Read
from logbroker.errors import LogbrokerError, LogTruncatedError, OverloadedError
from logbroker.kafka_api.call import Call, code_of, epoch_fault, served, topic_of
from logbroker.kafka_api.fetch_sessions import Exchange, PartitionName, TopicKey
from logbroker.kafka_wire.apis import FETCH
from logbroker.kafka_wire.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchResponse,
    FetchResponseEpochEndOffset,
    FetchResponseFetchableTopic,
    FetchResponsePartitionData,
)
from logbroker.types import PartitionKey, TopicId

FIRST_WITH_IDS = 13
MAX_WAIT_MS = 5 * 60 * 1000
READ_STEPS = 15
"""Steps of a `Pace` that a read from the page cache takes."""
ITEM_STEPS = 4


class _Reading(msgspec.Struct):
    """The position in one partition."""

    key: PartitionKey
    offset: int
    last_epoch: int
    max_bytes: int
    answer: FetchResponsePartitionData
    chunks: list[bytes] = []
    is_over: bool = False
    """Whether nothing more is read: there was an error."""


async def _handle(call: Call, request: FetchRequest) -> FetchResponse:
    wishes, forgotten = _wishes(call, request), _forgotten(request)
    await call.step(ITEM_STEPS * (len(wishes) + len(forgotten)))
    exchange = call.node.fetch_sessions.begin(
        request.session_id,
        request.session_epoch,
        wishes,
        forgotten,
        asyncio.get_running_loop().time(),
        by_id=call.version >= FIRST_WITH_IDS,
    )
    if not isinstance(exchange, Exchange):
        return FetchResponse(error_code=exchange, responses=[])
    answers = await _Fetch(call, request, exchange.wishes).run()
    told = exchange.answered(answers, asyncio.get_running_loop().time())
    return FetchResponse(
        error_code=told.error_code, session_id=told.session_id, responses=await _by_topic(call, told.answers)
    )


def _wishes(call: Call, request: FetchRequest) -> dict[PartitionName, FetchRequestPartition]:
    """Return the partitions of a request, each once."""
    forgotten = sum(1 + len(topic.partitions) for topic in request.forgotten_topics_data)
    call.check_item_count(sum(1 + len(topic.partitions) for topic in request.topics) + forgotten)
    return {
        PartitionName(TopicKey(topic.topic, topic.topic_id), wish.partition): wish
        for topic in request.topics
        for wish in topic.partitions
    }


def _forgotten(request: FetchRequest) -> list[PartitionName]:
    return [
        PartitionName(TopicKey(topic.topic, topic.topic_id), number)
        for topic in request.forgotten_topics_data
        for number in topic.partitions
    ]


async def _by_topic(
    call: Call, answers: Mapping[PartitionName, FetchResponsePartitionData]
) -> list[FetchResponseFetchableTopic]:
    """Group answers by topic, in their order."""
    topics: dict[TopicKey, FetchResponseFetchableTopic] = {}
    for name, answer in answers.items():
        await call.step()
        topic = topics.get(name.topic)
        if topic is None:
            topic = FetchResponseFetchableTopic(topic=name.topic.name, topic_id=name.topic.topic_id, partitions=[])
            topics[name.topic] = topic
        topic.partitions.append(answer)
    return list(topics.values())


class _Fetch:
    """One request."""

    def __init__(
        self, call: Call, request: FetchRequest, wishes: Mapping[PartitionName, FetchRequestPartition]
    ) -> None:
        self._call = call
        self._wishes = wishes
        self._engine = call.node.engine
        self._budget = call.node.broker.read_budget
        self._max_bytes = max(request.max_bytes, 1)
        self._min_bytes = min(max(request.min_bytes, 0), self._max_bytes)
        self._max_wait_seconds = min(max(request.max_wait_ms, 0), MAX_WAIT_MS) / 1000
        self._readings: list[_Reading] = []
        self._is_full = False
        """Whether nothing more fits into the answer. It is then sent, even if it has fewer than `min_bytes`."""
        self._is_failed = False

    async def run(self) -> dict[PartitionName, FetchResponsePartitionData]:
        """Return the answer for each partition."""
        answers = await self._prepare()
        await self._read(self._readings)
        if not self._is_enough and self._max_wait_seconds and self._readings:
            await self._wait_for_more()
        for reading in self._readings:
            await self._call.step()
            chunks = reading.chunks
            reading.answer.records = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        return answers

    async def _prepare(self) -> dict[PartitionName, FetchResponsePartitionData]:
        """Make the answers, with the errors that are known already."""
        by_id = self._call.version >= FIRST_WITH_IDS
        answers = {}
        for name, wish in self._wishes.items():
            await self._call.step(ITEM_STEPS)
            answer = FetchResponsePartitionData(
                partition_index=name.partition, high_watermark=-1, records=b"", aborted_transactions=None
            )
            answers[name] = answer
            try:
                found = topic_of(self._call.node, name.topic.name, name.topic.topic_id, by_id=by_id)
                self._add(found.id, wish, answer)
            except LogbrokerError as error:
                answer.error_code = code_of(error)
                self._is_failed = True
        return answers

    def _add(self, topic_id: TopicId, wish: FetchRequestPartition, answer: FetchResponsePartitionData) -> None:
        """Add a partition to read, or its error. Raises LogbrokerError."""
        facts = self._engine.partition_facts(topic_id, wish.partition)
        if fault := epoch_fault(facts, wish.current_leader_epoch):
            answer.error_code = fault
            self._is_failed = True
            return
        answer.high_watermark = answer.last_stable_offset = facts.high_watermark
        answer.log_start_offset = facts.log_start_offset
        key = PartitionKey(topic_id, wish.partition)
        self._readings.append(
            _Reading(key, wish.fetch_offset, wish.last_fetched_epoch, max(wish.partition_max_bytes, 1), answer, [])
        )

    @property
    def _is_enough(self) -> bool:
        # A failure is answered at once: the client has to act on it.
        return self._is_failed or self._is_full or self._call.held_bytes >= self._min_bytes

    async def _wait_for_more(self) -> None:
        wake, node = asyncio.Event(), self._call.node
        watch = self._engine.watch(wake.set)
        node.waits(wake)
        self._call.wake = wake.set
        by_key = {reading.key: reading for reading in self._readings}
        try:
            for key in by_key:
                watch.add(key)
                await self._call.step(2)
            # Read again: records that came between the first read and the watch do not wake this call.
            await self._read(self._readings)
            async with asyncio.timeout(self._max_wait_seconds):
                while not (self._is_enough or node.is_stopping or self._call.is_hurried):
                    await wake.wait()
                    wake.clear()
                    await self._read([by_key[key] for key in watch.moved()])
        except TimeoutError:
            pass
        except LogbrokerError:
            pass  # The partition was deleted or went offline after the read; the next request reports it.
        finally:
            node.waits_no_more(wake)
            watch.close()

    async def _read(self, readings: Iterable[_Reading]) -> None:
        # Computed once: a share for each read would add up to most of the free bytes.
        bound = self._budget.allowance(self._max_bytes)
        for reading in readings:
            while not reading.is_over:
                await self._call.step(READ_STEPS)
                left = bound - self._call.held_bytes
                if left <= 0:
                    self._is_full = True
                    return
                if not await self._read_one(reading, left):
                    break

    async def _read_one(self, reading: _Reading, left: int) -> bool:
        """Read once; return whether to read again, because the log has a gap, or its segment ended."""
        room = min(reading.max_bytes, left)
        if room <= 0:
            return False
        read = Read(reading.key.topic_id, reading.key.partition, reading.offset, room, reading.last_epoch)
        [outcome] = await self._engine.read([read])
        answer = reading.answer
        if isinstance(outcome, LogbrokerError):
            reading.is_over = True
            if reading.chunks:
                self._is_full = True  # The records before the error are good; the next request reports the error.
            else:
                self._is_failed = True
                self._note(reading, outcome)
            return False
        answer.high_watermark = answer.last_stable_offset = outcome.high_watermark
        answer.log_start_offset = outcome.log_start_offset
        size_bytes = len(outcome.batches)
        if not size_bytes:
            is_gap = outcome.next_offset > reading.offset
            reading.offset = outcome.next_offset
            return is_gap
        if size_bytes > room:
            if self._call.held_bytes:
                self._is_full = self._is_full or size_bytes > left
                return False
            # A batch larger than the room is sent whole if it is the first of the answer and memory is free.
            if not self._budget.fits(size_bytes):
                del outcome
                try:
                    await self._budget.wait()
                except OverloadedError:
                    self._is_full = True  # The client asks again.
                    return False
                return True
        self._budget.hold(size_bytes)
        self._call.held_bytes += size_bytes
        reading.chunks.append(outcome.batches)
        reading.max_bytes -= size_bytes
        reading.offset, reading.last_epoch = outcome.next_offset, -1
        return reading.max_bytes > 0

    def _note(self, reading: _Reading, error: LogbrokerError) -> None:
        answer = reading.answer
        ends: Sequence[int] | None = None
        if isinstance(error, LogTruncatedError) and self._call.version >= 12:
            ends = self._engine.end_of_epoch(reading.key.topic_id, reading.key.partition, reading.last_epoch)
        if ends is None:
            answer.error_code = code_of(error)
        else:
            answer.diverging_epoch = FetchResponseEpochEndOffset(epoch=ends[0], end_offset=ends[1])


SERVED = served(FETCH, 4, 18, _handle, is_waiting=True, can_hurry=True)
