"""The order and the sequence numbers of one partition's batches, against a broker that checks them as Kafka does.

The simulated connection loses requests and answers, the simulated broker refuses at random; whatever happens, the log
must hold every acknowledged batch once, in order, and nothing twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from random import Random

import pytest

from logbroker.client.producer.delivery import Batch
from logbroker.client.producer.partition_queue import ANONYMOUS, MAX_IN_FLIGHT, PartitionQueue, ProducerIdentity
from logbroker.errors import (
    BrokerUnavailableError,
    LogbrokerError,
    OutOfOrderSequenceError,
    OverloadedError,
    ProducerForgottenError,
    RecordTooLargeError,
    RequestTimeoutError,
    StaleGenerationError,
    StorageFailedError,
    UnknownProducerIdError,
)
from logbroker.record.codec import BatchBuilder, decode_batch
from logbroker.record.header import MAX_SEQUENCE, BatchHeader, check_new_batch, parse_header
from logbroker.types import TopicId

ME = ProducerIdentity(7, 0)
TOPIC_ID = TopicId(bytes(16))


def make_batch(number: int, contents: list[int]) -> Batch:
    builder = BatchBuilder(1 << 20)
    for index, content in enumerate(contents):
        builder.append(index, 1, None, b"%d" % content, [])
    batch = Batch(number=number, topic="t", partition=0, by_hand=False, builder=builder)
    batch.count = len(contents)
    batch.deadline = 1e12
    return batch


def contents_of(payload: bytes) -> list[int]:
    return [int(record.value or b"") for record in decode_batch(payload)]


class SequenceChecker:
    """A partition's treatment of the batches of one producer: Kafka's rules, and the log they lead to."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self._remembered: deque[BatchHeader] = deque(maxlen=5)
        self._forgotten_below = 0

    def receive(self, payload: bytes, refusal: LogbrokerError | None, *, after: bool) -> LogbrokerError | None:
        """Append or refuse; `after` says that the refusal comes once the batch is in the log."""
        # What the topic does not take (any more) is compared with what it has taken first.
        judged = isinstance(refusal, StaleGenerationError | RecordTooLargeError)
        if refusal is not None and not after and not judged:
            return refusal
        header = check_new_batch(payload)
        repeated = any(
            (old.producer_id, old.producer_epoch, old.base_sequence, old.last_sequence)
            == (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence)
            for old in self._remembered
        )
        if repeated:
            return None
        known = bool(self._remembered) and self._remembered[-1].producer_id == header.producer_id
        if not known and header.producer_id < self._forgotten_below:
            return ProducerForgottenError("forgotten")
        if judged:
            return refusal
        if not known:
            if header.base_sequence:
                return UnknownProducerIdError("unknown")
        else:
            last = self._remembered[-1]
            assert header.producer_epoch >= last.producer_epoch, "an old epoch after a newer one"
            expected = 0 if header.producer_epoch > last.producer_epoch else (last.last_sequence + 1) & MAX_SEQUENCE
            if header.base_sequence != expected:
                return OutOfOrderSequenceError("gap")
        self._remembered.append(header)
        self.log += contents_of(payload)
        return refusal

    def forget(self) -> None:
        """As if it had never known the producer."""
        self._remembered.clear()

    def forget_for_room(self) -> None:
        """As it does for want of room, however recent the batches are."""
        if self._remembered:
            self._forgotten_below = self._remembered[-1].producer_id + 1
            self._remembered.clear()


class World:
    """A queue, a connection and a partition."""

    def __init__(self) -> None:
        self.queue = PartitionQueue("t", TOPIC_ID, 0)
        self.broker = SequenceChecker()
        self.identity = ME
        self.now = 0.0
        self.numbers = 0
        self.contents = 0
        self.contents_of: dict[Batch, list[int]] = {}
        self.wire: deque[Batch] = deque()
        self.answers: list[tuple[Batch, LogbrokerError | None]] = []
        self.acknowledged: list[int] = []
        self.surely_not_written: list[int] = []
        self.not_known: list[int] = []
        self.stale = False

    def add(self, count: int) -> None:
        first = self.contents + 1
        self.contents += count
        self._wait(list(range(first, first + count)))

    def _wait(self, contents: list[int]) -> None:
        batch = make_batch(self.numbers, contents)
        self.numbers += 1
        self.contents_of[batch] = contents
        self.queue.waiting.append(batch)

    def _split(self, batch: Batch) -> None:
        """In two, as the producer does with a batch that is too large."""
        contents, parts = self.contents_of[batch], []
        middle = len(contents) // 2
        for index, some in ((0, contents[:middle]), (middle, contents[middle:])):
            part = make_batch(batch.number, some)
            part.part = (*batch.part, index)
            assert part.builder is not None
            part.base_sequence, part.payload, part.builder = batch.base_sequence, part.builder.build(7, 0, 0), None
            self.contents_of[part] = some
            parts.append(part)
        self.queue.put_parts(parts)

    def send(self) -> None:
        self.now += 10
        batch = self.queue.take(self.now, self.identity, new=not self.stale)
        assert len(self.queue.in_flight) <= MAX_IN_FLIGHT
        if batch is not None:
            self.wire.append(batch)
        elif self.queue.needs_epoch == self.identity:
            self.renew_identity(new_id=self.queue.needs_new_id)
        elif self.stale and not self.queue.has_unknown():
            self.stale = False
            for taken in self.queue.take_routed():
                self._wait(self.contents_of[taken])

    def renew_identity(self, *, new_id: bool) -> None:
        me = self.identity
        self.identity = ProducerIdentity(me.id + 1, 0) if new_id else ProducerIdentity(me.id, me.epoch + 1)

    def receive(self, refusal: LogbrokerError | None = None, *, after: bool = False) -> None:
        if self.wire:
            batch = self.wire.popleft()
            self.answers.append((batch, self.broker.receive(batch.payload, refusal, after=after)))

    def answer(self, index: int) -> None:
        if not self.answers:
            return
        batch, error = self.answers.pop(index % len(self.answers))
        self.stale = self.stale or isinstance(error, StaleGenerationError)
        unsure_before = batch.was_uncertain
        if self.queue.answered(batch, error, self.now):
            if error is None:
                self.acknowledged += self.contents_of[batch]
            elif isinstance(error, RecordTooLargeError) and batch.count > 1:
                self._split(batch)
            elif isinstance(error, ProducerForgottenError):
                assert unsure_before, "it was never sent before, and is certainly not in the log"
                self.not_known += self.contents_of[batch]
            elif isinstance(error, RecordTooLargeError) and not unsure_before:
                self.surely_not_written += self.contents_of[batch]

    def break_connection(self) -> None:
        self.wire.clear()
        self.answers.clear()
        self.queue.lost(BrokerUnavailableError("gone"))

    def expire(self) -> None:
        for batch in self.queue.retry[:1] or list(self.queue.waiting)[:1]:
            batch.deadline = self.now
        for batch in self.queue.expired(self.now):
            if not batch.was_uncertain:
                self.surely_not_written += self.contents_of[batch]

    def finish(self) -> None:
        for _ in range(20 * (self.contents + 5)):
            self.send()
            self.receive()
            self.answer(0)
            if self.queue.idle():
                return
        raise AssertionError("the queue does not come to an end")


REFUSALS: list[tuple[LogbrokerError, bool]] = [
    (OverloadedError("full"), False),
    (OverloadedError("full"), False),
    (RecordTooLargeError("large"), False),
    (StaleGenerationError("grown"), False),
    (RequestTimeoutError("slow"), True),
    (RequestTimeoutError("slow"), False),
    (StorageFailedError("broken"), True),
    (StorageFailedError("broken"), False),
]
STEPS = {"add": 18, "send": 30, "receive": 22, "refuse": 6, "answer": 22, "break": 2, "expire": 2}


def walk(seed: int, steps: Mapping[str, int]) -> World:
    """Take 150 random steps, by their weights; nothing is lost, doubled or reordered."""
    random = Random(seed)
    world = World()
    for step in random.choices(list(steps), list(steps.values()), k=150):
        match step:
            case "add":
                world.add(random.randint(1, 3))
            case "send":
                world.send()
            case "receive":
                world.receive()
            case "refuse":
                refusal, after = random.choice(REFUSALS)
                world.receive(refusal, after=after)
            case "answer":
                world.answer(random.randrange(5))
            case "break":
                world.break_connection()
            case "forget":
                world.broker.forget_for_room()
            case "renew":
                world.renew_identity(new_id=random.random() < 0.5)
            case "expire":
                world.expire()
    world.finish()
    log = world.broker.log
    assert log == sorted(set(log)), f"seed {seed}: doubled or out of order"
    assert set(world.acknowledged) <= set(log), f"seed {seed}: acknowledged and not there"
    assert not set(world.surely_not_written) & set(log), f"seed {seed}: failed for sure and yet there"
    return world


@pytest.mark.parametrize("first_seed", range(0, 1000, 100))
def test_nothing_is_lost_doubled_or_reordered(first_seed: int) -> None:
    """Plain random walks: they meet deep states far more often than generated lists of steps do."""
    for seed in range(first_seed, first_seed + 100):
        walk(seed, STEPS)


@pytest.mark.parametrize("seed", range(100))
def test_a_broker_that_forgot_the_producer_makes_it_raise_its_epoch(seed: int) -> None:
    """Retention took the producer's batches away, say, while nothing was in flight."""
    random = Random(seed)
    world = World()
    for step in random.choices(["add", "send", "receive", "answer", "forget", "break"], [5, 6, 6, 6, 1, 1], k=80):
        match step:
            case "add":
                world.add(1)
            case "forget" if not world.queue.has_unknown():
                world.broker.forget()
            case "send":
                world.send()
            case "receive":
                world.receive()
            case "answer":
                world.answer(0)
            case "break":
                world.break_connection()
    world.finish()
    assert world.broker.log == list(range(1, world.contents + 1))


@pytest.mark.parametrize("first_seed", range(0, 1000, 200))
def test_a_partition_that_forgets_at_any_time_stores_nothing_twice(first_seed: int) -> None:
    """Batches that may be there already fail; all others go on, in order. Other partitions change the identity, too."""
    not_known = 0
    for seed in range(first_seed, first_seed + 200):
        world = walk(seed, STEPS | {"break": 4, "expire": 1, "forget": 5, "renew": 1})
        not_known += len(world.not_known)
    assert not_known > 0


def test_after_a_forgotten_batch_those_never_sent_go_on_under_a_new_id() -> None:
    world = World()
    for _ in range(3):
        world.add(1)
        world.send()
    world.receive()
    world.receive()
    world.broker.forget_for_room()
    world.break_connection()
    world.add(1)
    world.finish()
    assert world.not_known == [1, 2, 3], "the third was lost on its way, which nobody can tell"
    assert world.broker.log == [1, 2, 4]
    assert world.acknowledged == [4]
    assert world.identity == ProducerIdentity(ME.id + 1, 0)


def test_a_partition_that_was_sent_to_before_is_not_begun_under_the_same_identity() -> None:
    world = World()
    world.add(1)
    world.finish()
    world.queue = PartitionQueue("t", TOPIC_ID, 0, world.identity)
    world.add(1)
    world.finish()
    assert (world.broker.log, world.identity) == ([1, 2], ProducerIdentity(ME.id, 1))


def test_those_behind_a_refused_batch_move_up_without_a_new_epoch() -> None:
    world = World()
    for _ in range(4):
        world.add(1)
        world.send()
    for refusal in (None, OverloadedError("full"), RecordTooLargeError("large"), None):
        world.receive(refusal)
    for _ in range(4):
        world.answer(0)
    assert not world.queue.in_flight
    world.finish()
    assert world.broker.log == [1, 2, 4]
    assert world.surely_not_written == [3]
    assert world.identity == ME


def test_the_parts_of_a_refused_batch_go_in_its_place_without_a_new_epoch() -> None:
    """Those that are refused in turn, too; all of it while batches behind it are in flight."""
    world = World()
    for count in (1, 7, 2, 1):
        world.add(count)
        world.send()
    for refusal in (None, RecordTooLargeError("large"), None, None):
        world.receive(refusal)
    for _ in range(4):
        world.answer(0)
    while world.queue.retry[0].count > 1:
        world.send()
        world.receive(RecordTooLargeError("large"))
        world.answer(0)
    world.send()
    world.receive(RecordTooLargeError("large"))
    world.answer(0)
    world.finish()
    assert world.surely_not_written == [2], "the record that is too large by itself"
    assert world.broker.log == [1, *range(3, 12)]
    assert world.identity == ME


def test_a_batch_that_expires_unsent_leaves_no_gap() -> None:
    world = World()
    world.add(1)
    world.send()
    world.receive(OverloadedError("full"))
    world.answer(0)
    world.expire()
    world.add(1)
    world.finish()
    assert (world.broker.log, world.identity) == ([2], ME)


def test_a_new_epoch_waits_until_nothing_of_the_old_one_is_unanswered() -> None:
    """Another partition may have raised it."""
    world = World()
    world.add(2)
    world.send()
    world.identity = ProducerIdentity(ME.id, 1)
    world.add(1)
    world.send()
    world.receive()
    world.answer(0)
    world.receive()
    world.answer(0)
    world.add(1)
    world.send()
    (batch,) = world.queue.in_flight
    assert (parse_header(batch.payload).producer_epoch, batch.base_sequence) == (1, 0)
    world.finish()
    assert world.broker.log == [1, 2, 3, 4]


def test_sequence_numbers_go_round_after_the_largest() -> None:
    world = World()
    world.add(2)
    world.send()
    world.queue._next_sequence = MAX_SEQUENCE - 1
    world.add(3)
    world.add(1)
    first = world.queue.take(0.0, ME)
    second = world.queue.take(0.0, ME)
    assert first is not None
    assert second is not None
    assert parse_header(first.payload).base_sequence == MAX_SEQUENCE - 1
    assert parse_header(first.payload).last_sequence == 0
    assert parse_header(second.payload).base_sequence == 1


def test_five_batches_at_most_are_unanswered() -> None:
    world = World()
    for _ in range(8):
        world.add(1)
        world.send()
    assert len(world.wire) == MAX_IN_FLIGHT


def test_without_idempotence_one_batch_is_unanswered_so_that_a_retry_keeps_the_order() -> None:
    queue = PartitionQueue("t", TOPIC_ID, 0)
    one, two = make_batch(0, [1]), make_batch(1, [2])
    queue.waiting += [one, two]
    assert queue.take(0.0, ANONYMOUS) is one
    assert queue.take(0.0, ANONYMOUS) is None
    assert not queue.answered(one, OverloadedError("full"), now=0.0)
    assert queue.take(0.0, ANONYMOUS) is None, "it backs off first"
    assert queue.take(1.0, ANONYMOUS) is one
    assert queue.answered(one, None, now=1.0)
    assert queue.take(1.0, ANONYMOUS) is two
    assert parse_header(two.payload).producer_id == -1


@pytest.mark.parametrize("attempts", [1, 4])
def test_failures_in_a_row_wait_longer(attempts: int) -> None:
    queue = PartitionQueue("t", TOPIC_ID, 0)
    batch = make_batch(0, [1])
    queue.waiting.append(batch)
    now = wait_seconds = 0.0
    for _ in range(attempts):
        taken = queue.take(now, ME)
        assert taken is batch
        queue.answered(batch, OverloadedError("full"), now)
        wait_seconds, now = queue.resume_at - now, queue.resume_at
    assert 0.04 * 2 ** (attempts - 1) <= wait_seconds <= 0.05 * 2 ** (attempts - 1)
