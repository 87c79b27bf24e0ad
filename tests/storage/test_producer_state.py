"""A partition's decisions about the batches of idempotent producers."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.errors import (
    OutOfOrderSequenceError,
    ProducerFencedError,
    ProducerForgottenError,
    UnknownProducerIdError,
)
from logbroker.record.header import MAX_SEQUENCE, BatchHeader
from logbroker.storage.producer_state import (
    MAX_PRODUCERS,
    ProducerCount,
    ProducerSnapshot,
    ProducerStates,
    common_level,
)

PRODUCER = 1


def header(sequence: int, records: int = 1, epoch: int = 0, producer_id: int = PRODUCER) -> BatchHeader:
    return BatchHeader(0, 0, 0, 2, 0, 0, records - 1, 0, 0, producer_id, epoch, sequence, records)


class Log:
    """Producer states and the offsets of an imaginary log."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.end_offset = 0
        self.synced_offset = 0

    def append(self, batch: BatchHeader) -> None:
        assert self.states.check(batch) is None
        self.states.append(batch, self.end_offset, self.synced_offset, batch.max_timestamp_ms)
        self.end_offset += batch.record_count


def test_the_last_five_batches_are_recognized() -> None:
    log = Log()
    for number in range(7):
        log.append(header(number * 3, 3))
        log.synced_offset = log.end_offset
    for number in range(2, 7):
        original = log.states.check(header(number * 3, 3))
        assert original is not None
        assert (original.base_offset, original.next_offset) == (number * 3, number * 3 + 3)
    with pytest.raises(OutOfOrderSequenceError):
        log.states.check(header(3, 3))


def test_the_window_is_five_also_while_nothing_is_synced() -> None:
    log = Log()
    for number in range(20):
        log.append(header(number))
    assert log.states.check(header(15)) is not None
    with pytest.raises(OutOfOrderSequenceError):
        log.states.check(header(14))


@pytest.mark.parametrize(("sequence", "records"), [(1, 1), (5, 1), (0, 2), (MAX_SEQUENCE, 1)])
def test_another_sequence_is_out_of_order(sequence: int, records: int) -> None:
    log = Log()
    log.append(header(0, 3))
    with pytest.raises(OutOfOrderSequenceError):
        log.states.check(header(sequence, records))


def test_sequences_wrap_around() -> None:
    log = Log()
    log.append(header(0, MAX_SEQUENCE))
    log.append(header(MAX_SEQUENCE, 3))
    log.append(header(2))
    assert log.states.check(header(MAX_SEQUENCE, 3)) is not None


def test_an_unknown_producer_begins_at_zero() -> None:
    with pytest.raises(UnknownProducerIdError, match="raise the producer's epoch"):
        Log().states.check(header(1))


def test_epochs_fence_and_begin_at_zero() -> None:
    log = Log()
    log.append(header(0, epoch=1))
    with pytest.raises(ProducerFencedError):
        log.states.check(header(1, epoch=0))
    with pytest.raises(OutOfOrderSequenceError):
        log.states.check(header(1, epoch=2))
    log.append(header(0, epoch=2))
    log.append(header(1, epoch=2))
    original = log.states.check(header(0, epoch=2))
    assert original is not None
    assert original.base_offset == 1


def test_a_batch_of_an_old_epoch_is_no_original_for_a_new_one() -> None:
    log = Log()
    for sequence in range(3):
        log.append(header(sequence, epoch=0))
    log.append(header(0, epoch=1))
    with pytest.raises(OutOfOrderSequenceError):
        log.states.check(header(2, epoch=1))


def test_a_snapshot_is_exact_however_much_is_in_flight() -> None:
    log = Log()
    for number in range(6):
        log.append(header(number))
    log.synced_offset = 6
    before = log.states.snapshot(6)
    for number in range(6, 9):
        log.append(header(number))
    for number in range(4):
        log.append(header(number, epoch=1))
    assert [snapshot.batches for snapshot in log.states.snapshot(6)] == [snapshot.batches for snapshot in before]
    restored = ProducerStates(log.states.snapshot(6))
    assert restored.check(header(6)) is None
    assert restored.check(header(1)) is not None
    with pytest.raises(OutOfOrderSequenceError):
        restored.check(header(0))


def test_memory_is_bounded_while_batches_are_synced() -> None:
    log = Log()
    for number in range(100):
        log.append(header(number))
        log.synced_offset = log.end_offset
    (snapshot,) = log.states.snapshot(log.end_offset)
    assert len(snapshot.batches) == 5
    assert len(log.states._producers[PRODUCER]) <= 6


def test_the_most_idle_goes_when_there_are_too_many() -> None:
    log = Log()
    for producer_id in range(MAX_PRODUCERS):
        log.append(header(0, producer_id=producer_id))
    log.append(header(1, producer_id=0))
    log.append(header(0, producer_id=MAX_PRODUCERS))
    assert len(log.states) == MAX_PRODUCERS
    assert log.states.check(header(2, producer_id=0)) is None
    for sequence in (0, 1):
        with pytest.raises(ProducerForgottenError):
            log.states.check(header(sequence, producer_id=1))


@pytest.mark.parametrize("epoch", [0, 1, 9])
def test_a_kafka_client_that_was_forgotten_begins_again_in_any_epoch(epoch: int) -> None:
    """One epoch serves all partitions of the client, so others may have raised it further meanwhile."""
    states = ProducerStates(forgotten_below=PRODUCER + 1)
    for _ in range(2):
        for first, may_repeat in ((7, True), (7, False), (0, False)):
            with pytest.raises(ProducerForgottenError):
                states.check(header(first, epoch=epoch), may_repeat=may_repeat)
        assert states.check(header(0, epoch=epoch), may_repeat=True) is None
        states.append(header(0, epoch=epoch), 0, 0, -1)
        assert states.check(header(0, epoch=epoch), may_repeat=True) is not None
        assert states.check(header(1, epoch=epoch), may_repeat=True) is None
        states.forget(1)


@given(st.lists(st.integers(0, 20), max_size=8), st.integers(0, 60))
def test_the_common_level_is_the_largest_that_fits(counts: list[int], most: int) -> None:
    level = common_level(counts, most)

    def total(level: int) -> int:
        return sum(min(count, level) for count in counts)

    assert total(level) <= most
    assert total(level + 1) > most or level >= max(counts, default=0)


_STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 6), st.booleans()),
    st.tuples(st.sampled_from(["sync", "store", "forget", "restart"]), st.just(0), st.just(False)),
)


@given(st.lists(_STEPS, max_size=60))
def test_rows_of_what_changed_add_up_to_the_whole_state(steps: list[tuple[str, int, bool]]) -> None:
    """However appends, syncs, checkpoints and forgetting follow each other, rows and tail make the state again; and
    nothing that was ever appended is taken once more."""
    count = ProducerCount()
    states, rows = ProducerStates(count=count), dict[int, ProducerSnapshot]()
    log: list[tuple[BatchHeader, int]] = []
    next_sequences: dict[int, tuple[int, int]] = {}
    end_offset = synced_offset = stored_offset = stored_below = 0
    for step, producer_id, anew in steps:
        if step == "append":
            epoch, sequence = next_sequences.get(producer_id, (0, 0))
            batch = header(0, 1, epoch + 1, producer_id) if anew else header(sequence, 1, epoch, producer_id)
            if producer_id not in states._producers and producer_id < states.forgotten_below:
                with pytest.raises(ProducerForgottenError):
                    states.check(batch)
                continue
            assert states.check(batch) is None
            states.append(batch, end_offset, synced_offset, batch.max_timestamp_ms)
            next_sequences[producer_id] = (batch.producer_epoch, batch.base_sequence + 1)
            log.append((batch, end_offset))
            end_offset += 1
        elif step == "sync":
            synced_offset = end_offset
        elif step == "store":
            stored_offset, stored_below = synced_offset, states.forgotten_below
            forgotten = states.forgotten()
            for forgotten_id in forgotten:
                rows.pop(forgotten_id, None)
            rows.update((snapshot.producer_id, snapshot) for snapshot in states.snapshot(synced_offset))
            states.stored(synced_offset, forgotten)
        elif step == "forget" and len(states):
            oldest = next(iter(states._producers))
            states.forget(1)
            next_sequences.pop(oldest, None)
        elif step == "restart":
            states.close()
            states = ProducerStates(rows.values(), count, stored_below)
            states.stored(stored_offset, ())
            for batch, base_offset in log:
                if base_offset >= stored_offset:
                    states.append(batch, base_offset, end_offset, batch.max_timestamp_ms)
                    next_sequences[batch.producer_id] = (batch.producer_epoch, batch.base_sequence + 1)
            for snapshot in rows.values():
                last = states._producers[snapshot.producer_id][-1]
                next_sequences[snapshot.producer_id] = (last.epoch, last.last_sequence + 1)
            synced_offset = end_offset
        assert count.value == len(states)
        for batch, _ in log:
            with suppress(ProducerFencedError, OutOfOrderSequenceError):
                assert states.check(batch) is not None
    stored_offset = synced_offset = end_offset
    whole = {snapshot.producer_id: snapshot for snapshot in fully(states, end_offset)}
    for forgotten_id in states.forgotten():
        rows.pop(forgotten_id, None)
    rows.update((snapshot.producer_id, snapshot) for snapshot in states.snapshot(end_offset))
    assert rows == whole


def fully(states: ProducerStates, offset: int) -> list[ProducerSnapshot]:
    """The snapshot of all producers, whatever is stored."""
    whole = ProducerStates()
    whole._producers = states._producers
    return whole.snapshot(offset)
