"""Sends outputs: appends the batches of the outbox to their topics, and then answers their settlements.

A settlement with outputs is stored first, with its outputs in the outbox (`state/outbox.py`), in one transaction. Then
its batches are appended and synced. Then it is answered. So an answered settlement has its outputs in the log, and a
settlement that was not stored has no outputs there.

Outputs go to each partition in the order of the settlements. A topic that refuses a batch (its partition is offline,
the disk is full) is tried again after a pause. Until then, further settlements with outputs for this topic are refused.
Outputs for other topics are sent.

The entries for a topic are *renewed* after a start, and when its streams cannot go on (the topic has grown, or a
partition has forgotten the producer): batches that the log has already are dropped from the outbox. The others are
routed anew if the topic has grown, and are sent under a new producer. The renewed rows are stored before anything is
appended, so that after another crash the start knows which batches to look for. If a topic is deleted, its outputs are
dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from logbroker.engine import Append, Appended, Topic
from logbroker.errors import (
    BatchExpandsTooFarError,
    BrokerUnavailableError,
    CorruptBatchError,
    LogbrokerError,
    OutOfOrderSequenceError,
    OverloadedError,
    PartitionOfflineError,
    RecordTooLargeError,
    StaleGenerationError,
    StorageFailedError,
    UnknownPartitionError,
    UnknownTopicError,
    UnsupportedCompressionError,
    UnsupportedFormatError,
)
from logbroker.queues.context import GroupContext
from logbroker.queues.model.messages import Output, Refusal
from logbroker.queues.outputs.routing import outputs_for, records_of, routed
from logbroker.queues.outputs.search import appended, stamp
from logbroker.queues.records.decoder import in_decoder
from logbroker.queues.state.outbox import OutboxEntry, StreamKey
from logbroker.types import Durability, TopicId

_log = logging.getLogger(__name__)

MAX_OUTBOX_BYTES: Final = 64 * 1024 * 1024
"""Size of the outbox of one group above which settlements with outputs are refused."""
ROUND_BYTES: Final = 4 * 1024 * 1024
ROUND_BATCHES: Final = 128
"""Approximate limits of one round of appends."""
TOLD_AT_SECONDS: Final = 0.2
"""A topic in trouble is logged once the pause between attempts is this long. After a momentary overload of the broker,
the pause is shorter."""
FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 5.0

_STALE: Final = (
    StaleGenerationError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    UnknownTopicError,
    UnknownPartitionError,
)
"""Errors after which the entries for a topic have to be renewed."""
_UNREADABLE: Final = (
    CorruptBatchError,
    BatchExpandsTooFarError,
    UnsupportedCompressionError,
    UnsupportedFormatError,
)


class _Trouble(msgspec.Struct):
    """The attempts at a topic that does not accept outputs now."""

    due: float
    """Time of the next attempt (the event loop's clock)."""
    pause_seconds: float = FIRST_PAUSE_SECONDS
    is_told: bool = False
    """Whether the trouble has been logged."""


class OutputSender:
    """Sends the outputs of one queue group."""

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._engine = context.engine
        self._outbox = context.queue.outbox
        self._loop = asyncio.get_running_loop()
        self._streams: dict[StreamKey, deque[tuple[OutboxEntry, Output]]] = {}
        """Outputs to append, in their order."""
        self._answers: dict[OutboxEntry, tuple[asyncio.Future[list[Refusal]], list[Refusal]]] = {}
        """The answers of settlements whose outputs are not appended yet."""
        self._stale: set[bytes] = {output.topic_id for entry in self._outbox.entries() for output in entry.outputs}
        """Ids of the topics whose entries have to be renewed."""
        self._troubles: dict[bytes, _Trouble] = {}
        self._arrived = asyncio.Event()
        """Set when there may be something to send."""
        self._sending: asyncio.Task[None] | None = None
        self._producer_lock = asyncio.Lock()
        """Held while the first producer id is asked for."""
        self._is_frozen = False
        self._error: LogbrokerError | None = None

    async def prepare(self) -> None:
        """Get the producer of the first outputs. Raises DiskFullError or another error of `init_producer_id`."""
        if self._outbox.producer is None:
            async with self._producer_lock:
                if self._outbox.producer is None:
                    self._outbox.producer = await self._engine.init_producer_id()

    def check(self, outputs: Iterable[Output]) -> None:
        """Raise the error with which a settlement is refused, because its outputs could not be appended soon."""
        if self._error is not None:
            raise self._error.anew()
        if self._outbox.size_bytes > MAX_OUTBOX_BYTES:
            raise OverloadedError(
                f"{self._outbox.size_bytes:,} bytes of outputs wait to be appended, over {MAX_OUTBOX_BYTES:,}; try"
                " again shortly"
            )
        for output in outputs:
            if output.topic_id in self._outbox.troubles:
                # Not the error itself: it is about the outputs of other settlements.
                raise OverloadedError(f"{self._outbox.troubles[output.topic_id]}; try again later")
            if output.topic_id in self._stale:
                raise OverloadedError("earlier outputs for this topic are being finished; try again shortly")

    def refused(self, topic_id: TopicId, error: LogbrokerError) -> None:
        """Note that a settlement with outputs for a topic was refused, for an alarm if its worker has to wait."""
        if error.retriable or isinstance(error, PartitionOfflineError):
            why = f"acks with outputs for topic {self._name(topic_id)} wait: {error.message}"
            self._outbox.refused(topic_id, why, self._context.moment().seconds)

    def expect(self, entry: OutboxEntry, refusals: list[Refusal]) -> asyncio.Future[list[Refusal]]:
        """Return a future that completes with the refusals when the outputs of an entry are appended and synced."""
        future: asyncio.Future[list[Refusal]] = self._loop.create_future()
        if self._error is not None:
            future.set_exception(self._error.anew())
        else:
            self._answers[entry] = future, refusals
        return future

    def start(self) -> None:
        """Begin to send the outputs that an earlier run of the broker has left."""
        if self._stale:
            self._wake()

    def send(self, entries: Sequence[OutboxEntry]) -> None:
        """Send the outputs of stored entries."""
        for entry in entries:
            self._queue(entry, entry.outputs)
        self._wake()

    def topics_changed(self) -> None:
        """Try all topics again."""
        for trouble in self._troubles.values():
            trouble.due = 0.0
        self._arrived.set()

    def freeze(self) -> None:
        """Answer the settlements that wait for a topic in trouble with an error, because the broker is stopping."""
        self._is_frozen = True
        for topic_id in self._troubles:
            self._give_up_answers(topic_id)

    def _give_up_answers(self, topic_id: bytes) -> None:
        error = BrokerUnavailableError(
            "the broker is stopping; the settlement is stored, and its outputs are appended after the next start"
        )
        for entry in [entry for entry in self._answers if any(each.topic_id == topic_id for each in entry.outputs)]:
            _refuse(self._answers.pop(entry)[0], error)

    async def stop(self, error: LogbrokerError) -> None:
        """Stop sending. The next start finds the remaining entries; their settlements are not answered."""
        self._end(error)
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])

    def _end(self, error: LogbrokerError) -> None:
        self._error = error
        answers, self._answers = self._answers, {}
        for future, _ in answers.values():
            _refuse(future, error)

    def _queue(self, entry: OutboxEntry, outputs: Iterable[Output]) -> None:
        for output in outputs:
            self._streams.setdefault((output.topic_id, output.partition), deque()).append((entry, output))

    def _wake(self) -> None:
        self._arrived.set()
        if self._sending is None and self._error is None:
            self._sending = self._loop.create_task(self._run(), name=f"outputs of queue group {self._context.group_id}")

    # --- rounds ------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while self._streams or self._stale:
                self._arrived.clear()
                for topic_id in [topic_id for topic_id in self._stale if self._is_due(topic_id)]:
                    await self._try_to_renew(topic_id)
                if not await self._append_some():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._pause_seconds()):
                            await self._arrived.wait()
        except StorageFailedError:
            pass  # This error stops the broker.
        except Exception as error:
            _log.exception("queue group %s cannot send outputs any more", self._context.group_id)
            self._end(LogbrokerError(f"outputs cannot be sent until the next start of the broker: {error}"))
        finally:
            self._sending = None

    def _is_due(self, topic_id: bytes) -> bool:
        trouble = self._troubles.get(topic_id)
        return trouble is None or trouble.due <= self._loop.time()

    def _pause_seconds(self) -> float | None:
        """Return the time until the next attempt is due; None: nothing is due until something happens."""
        moments = [trouble.due for trouble in self._troubles.values()]
        return max(0.0, min(moments) - self._loop.time()) if moments else None

    async def _append_some(self) -> bool:
        """Append the outputs that are due; return whether there were any."""
        chosen: list[tuple[StreamKey, OutboxEntry, Output]] = []
        size_bytes = 0
        for key, waiting in self._streams.items():
            if key[0] in self._stale or not self._is_due(key[0]):
                continue
            for entry, output in waiting:
                if size_bytes > ROUND_BYTES or len(chosen) >= ROUND_BATCHES:
                    break
                chosen.append((key, entry, output))
                size_bytes += len(output.batch)
        if not chosen:
            return False
        appends = [
            Append(TopicId(output.topic_id), output.partition, output.batch, output.generation)
            for _, _, output in chosen
        ]
        results = await self._engine.append(appends, Durability.SYNCED)
        refused: set[StreamKey] = set()
        for (key, entry, output), result in zip(chosen, results, strict=True):
            if key in refused:
                continue  # It may have been refused only because the previous batch was.
            if isinstance(result, Appended):
                self._streams[key].popleft()
                self._is_appended(entry, output)
                self._is_out_of_trouble(key[0])
                continue
            refused.add(key)
            self._is_refused(key[0], result)
        for key in [key for key, waiting in self._streams.items() if not waiting]:
            del self._streams[key]
        self._context.commits.request()
        return True

    def _is_appended(self, entry: OutboxEntry, output: Output) -> None:
        if self._outbox.appended(entry, output):
            self._answer(entry)

    def _answer(self, entry: OutboxEntry) -> None:
        future, refusals = self._answers.pop(entry, (None, []))
        if future is not None and not future.done():
            future.set_result(refusals)

    def _is_refused(self, topic_id: bytes, error: LogbrokerError) -> None:
        if isinstance(error, StorageFailedError):
            raise error
        if isinstance(error, _STALE):
            self._stale.add(topic_id)
        else:
            self._is_in_trouble(topic_id, error)

    def _is_in_trouble(self, topic_id: bytes, error: LogbrokerError) -> None:
        trouble = self._troubles.setdefault(topic_id, _Trouble(0.0))
        if trouble.pause_seconds >= TOLD_AT_SECONDS and not trouble.is_told:
            trouble.is_told = True
            _log.warning(
                "queue group %s: outputs wait for topic %s: %s",
                self._context.group_id,
                self._name(topic_id),
                error.message,
            )
        self._outbox.troubles[topic_id] = f"outputs wait for topic {self._name(topic_id)}: {error.message}"
        trouble.due = self._loop.time() + trouble.pause_seconds
        trouble.pause_seconds = min(2 * trouble.pause_seconds, LONGEST_PAUSE_SECONDS)
        if self._is_frozen:
            self._give_up_answers(topic_id)

    def _is_out_of_trouble(self, topic_id: bytes) -> None:
        if self._troubles.pop(topic_id, None) is not None:
            del self._outbox.troubles[topic_id]

    def _name(self, topic_id: bytes) -> str:
        try:
            return self._engine.topic_by_id(TopicId(topic_id)).name
        except UnknownTopicError:
            return topic_id.hex()

    # --- renewing ----------------------------------------------------------------------------------------------------

    async def _try_to_renew(self, topic_id: bytes) -> None:
        try:
            await self._renew(topic_id)
        except StorageFailedError:
            raise
        except LogbrokerError as error:
            self._is_in_trouble(topic_id, error)

    async def _renew(self, topic_id: bytes) -> None:
        """Renew the entries for a topic, and queue their outputs that are not appended yet. Raises the error that
        prevents this."""
        await self._context.stored(())  # After this, `send` knows all entries for the topic.
        concerned = [
            entry for entry in self._outbox.entries() if any(output.topic_id == topic_id for output in entry.outputs)
        ]
        left: dict[OutboxEntry, list[Output]] = {entry: [] for entry in concerned}
        try:
            topic = await self._engine.pin(TopicId(topic_id))
        except UnknownTopicError:
            pass  # The topic is deleted: drop its outputs.
        else:
            try:
                outputs = [output for entry in concerned for output in entry.outputs if output.topic_id == topic_id]
                there = await appended(self._engine, topic.id, outputs)
                for entry in concerned:
                    for output in entry.outputs:
                        if output.topic_id == topic_id and stamp(output) not in there:
                            left[entry] += await self._routed_anew(topic, output)
                self._outbox.producer = await self._engine.init_producer_id()
            finally:
                self._engine.unpin(topic.id)
        self._outbox.end_streams(topic_id)
        for key in [key for key in self._streams if key[0] == topic_id]:
            del self._streams[key]
        for entry in concerned:
            self._outbox.renew(entry, topic_id, left[entry])
        await self._context.stored(())
        self._stale.discard(topic_id)
        self._is_out_of_trouble(topic_id)
        for entry in concerned:
            self._queue(entry, [output for output in entry.outputs if output.topic_id == topic_id])
            if not entry.outputs:
                self._answer(entry)

    async def _routed_anew(self, topic: Topic, output: Output) -> list[Output]:
        """Return the outputs that replace an output, routed by the current generation and within the topic's size
        limit. Raises RecordTooLargeError."""
        partition: int | None = output.partition
        generation = topic.generation if output.generation else 0
        if output.generation and output.generation != topic.generation:
            partition = None
        if partition is None or len(output.batch) > topic.config.max_message_bytes:
            try:
                batches = await in_decoder(
                    lambda: routed(topic, records_of(output.batch), partition, output.ordering_key)
                )
            except _UNREADABLE as error:
                # Its keys cannot be read, so it stays in its partition. New settlements with such batches are refused.
                batches, generation = [(output.partition, self._unreadable(topic, output, error))], 0
        else:
            batches = [(partition, output.batch)]
        return outputs_for(self._engine, topic, batches, generation, output.ordering_key)

    def _unreadable(self, topic: Topic, output: Output, error: LogbrokerError) -> bytes:
        """Return a batch that cannot be decoded, to be appended as it is. Raises RecordTooLargeError."""
        size_bytes = len(output.batch)
        if size_bytes > topic.config.max_message_bytes:
            raise RecordTooLargeError(
                f"{error.message}; set max.message.bytes of the topic to {size_bytes} or more, and it is appended as it"
                " is"
            )
        _log.warning(
            "queue group %s: a batch goes to partition %d of topic %s as it is: %s",
            *(self._context.group_id, output.partition, topic.name, error.message),
        )
        return output.batch


def _refuse(future: asyncio.Future[list[Refusal]], error: LogbrokerError) -> None:
    if not future.done():
        future.set_exception(error.anew())
        future.exception()  # The waiter may be gone.
