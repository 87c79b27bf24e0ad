"""The resequencer against a model that looks at everything at each step."""

from __future__ import annotations

import asyncio
import copy
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logbroker.client import Record, Resequencer
from logbroker.errors import InvalidRequestError
from logbroker.record.codec import Headers

WAIT = 10.0
SOURCES = "abcd"


class Item(msgspec.Struct, frozen=True):
    source: str
    number: int
    """How many records its source brought before."""
    sequence: int | None
    size_bytes: int = 1


def by_sequence(item: Item) -> int | None:
    return item.sequence


class Model:
    """The promises of the resequencer, with lists and without a heap."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[tuple[Item, float, float]]] = {}
        """For each record of each source: its place in the order, and when it arrived."""
        self.low: dict[str, float] = {}
        self.last: dict[str, float] = {}
        self.released: dict[str, float] = {}
        """The sequence of the last record of each source that was released."""
        self.since: dict[str, float] = {}
        self.has_more: set[str] = set()
        self.idle: set[str] = set()
        self.high = -math.inf

    def expect(self, source: str, now: float) -> None:
        if source not in self.waiting:
            self.waiting[source] = []
            self.low[source] = self.last[source] = self.since[source] = -math.inf
        self.since[source] = max(self.since[source], now)
        self.idle.discard(source)

    def add(self, item: Item, now: float, *, has_more: bool = False) -> None:
        if item.source not in self.waiting:
            self.expect(item.source, -math.inf)
        self.has_more.discard(item.source)
        self.has_more |= {item.source} if has_more else set()
        self.idle.discard(item.source)
        sequence = self.last[item.source] if item.sequence is None else item.sequence
        self.last[item.source] = sequence
        self.low[item.source] = max(self.low[item.source], sequence)
        self.waiting[item.source].append((item, sequence, now))

    def blockers(self) -> tuple[list[str], str | None]:
        """Return the sources that the next record waits for, and its own."""
        order = list(self.waiting)
        filled = [source for source in order if self.waiting[source]]
        if not filled:
            return [], None
        head = min(filled, key=lambda source: (self.waiting[source][0][1], order.index(source)))
        _, sequence, _ = self.waiting[head][0]
        if sequence < self.high:
            return [], head
        return [
            source
            for source in order
            if not self.waiting[source] and source not in self.idle
            if (self.low[source], order.index(source)) < (sequence, order.index(head))
        ], head

    def deadline(self) -> float | None:
        blockers, head = self.blockers()
        if head is None:
            return None
        oldest = min(waiting[0][2] for waiting in self.waiting.values() if waiting)
        return max((max(oldest, self.since[source]) + WAIT for source in blockers), default=-math.inf)

    def take(self, now: float, most: int) -> list[tuple[Item, bool]]:
        taken: list[tuple[Item, bool]] = []
        while len(taken) < most:
            deadline = self.deadline()
            if deadline is None or deadline > now:
                break
            _, head = self.blockers()
            assert head is not None
            item, sequence, _ = self.waiting[head].pop(0)
            taken.append((item, sequence < self.high))
            self.high = max(self.high, sequence)
            self.released[head] = sequence
            if not self.waiting[head] and head in self.has_more:
                self.since[head] = now
        return taken

    def forget(self, sources: set[str]) -> None:
        for source in sources:
            self.waiting[source], self.low[source] = [], -math.inf
            self.last[source] = self.released.get(source, -math.inf)
            self.has_more.discard(source)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(SOURCES), st.none() | st.integers(0, 7)),
        st.tuples(st.just("more"), st.sampled_from(SOURCES), st.integers(0, 7)),
        st.tuples(st.just("ascend"), st.sampled_from(SOURCES), st.integers(0, 2)),
        st.tuples(st.just("expect"), st.sampled_from(SOURCES), st.just(0)),
        st.tuples(st.just("idle"), st.sampled_from(SOURCES), st.just(0)),
        st.tuples(st.just("advance"), st.sampled_from(SOURCES), st.integers(0, 7)),
        st.tuples(st.just("take"), st.just(""), st.integers(1, 5)),
        st.tuples(st.just("restart"), st.just(""), st.integers(0, 4)),
        st.tuples(st.just("pass"), st.just(""), st.integers(1, 12)),
        st.tuples(st.just("deadline"), st.just(""), st.just(0)),
    ),
    max_size=60,
)


@pytest.mark.prove
@settings(max_examples=200)
@given(steps)
def test_it_does_what_the_model_does(done: list[tuple[str, str, Any]]) -> None:
    machine, model, now = Resequencer[Item](by_sequence, max_wait_seconds=WAIT), Model(), 0.0
    added: dict[str, list[Item]] = {source: [] for source in SOURCES}
    released: list[tuple[Item, bool]] = []

    def take(most: int) -> list[tuple[Item, bool]]:
        taken = machine.take(now, most)
        assert taken == model.take(now, most)
        released.extend(taken)
        return taken

    for what, source, number in done:
        if what in ("add", "more", "ascend"):
            sequence = number if what != "ascend" else int(max(0, model.last.get(source, 0))) + number
            item = Item(source, len(added[source]), sequence)
            added[source].append(item)
            machine.add_all(source, [item], now, has_more=what == "more")
            model.add(item, now, has_more=what == "more")
        elif what == "expect":
            machine.expect(source, now)
            model.expect(source, now)
        elif what == "idle":
            machine.idle(source)
            if source in model.waiting:
                model.idle.add(source)
        elif what == "advance":
            machine.advance(source, number)
            if source in model.low:
                model.low[source] = max(model.low[source], number)
        elif what == "take":
            take(number)
        elif what == "restart":
            before = copy.deepcopy(model)
            taken = model.take(now, 5)
            assert machine.take(now, 5) == taken
            kept = min(number, len(taken))
            machine.restart(kept)
            assert before.take(now, kept) == taken[:kept]
            model.high, model.released = before.high, before.released
            model.forget(
                {each for each in model.waiting if model.waiting[each]} | {it.source for it, _ in taken[kept:]}
            )
            released += taken[:kept]
            added = {each: [item for item, _ in released if item.source == each] for each in SOURCES}
        elif what == "pass":
            now += number
        elif (deadline := machine.deadline) is not None:
            if deadline > now:
                # Nothing before the deadline, and something at it, however often the clock is looked at.
                assert take(5) == []
                now = (now + deadline) / 2
                assert take(5) == []
                assert machine.deadline == deadline
                now = deadline
            assert take(1)
        assert len(machine) == sum(map(len, model.waiting.values()))
        assert (machine.deadline is None) == (not len(machine))

    # Nothing is held for longer than the wait once nothing comes any more.
    for _ in range(len(machine)):
        deadline = machine.deadline
        assert deadline is not None
        assert deadline <= now + WAIT
        now = max(now, deadline)
        assert take(1)
    assert machine.deadline is None
    # Nothing is lost or doubled, and no source is reordered.
    for source in SOURCES:
        assert [item for item, _ in released if item.source == source] == added[source]
    high, last = -math.inf, dict.fromkeys(SOURCES, -math.inf)
    for item, late in released:
        # Without a sequence, a record has that of the one before it.
        last[item.source] = sequence = last[item.source] if item.sequence is None else item.sequence
        assert late == (sequence < high)
        high = max(high, sequence)


@pytest.mark.prove
@given(st.lists(st.lists(st.integers(0, 50), max_size=8), min_size=1, max_size=4), st.randoms())
def test_ascending_sources_are_merged_in_order_whenever_each_record_comes(parts: list[list[int]], random: Any) -> None:
    """As long as none of them is silent for longer than the wait: no record is late, and equal ones come by source."""
    machine = Resequencer[Item](by_sequence, max_wait_seconds=WAIT)
    left = []
    for index, part in enumerate(parts):
        machine.expect(index, 0)
        left.append([Item(str(index), number, each) for number, each in enumerate(sorted(part))])
    expected = sorted((item for part in left for item in part), key=lambda item: (item.sequence, item.source))
    released: list[tuple[Item, bool]] = []
    now = 0.0
    while any(left):
        index = random.choice([index for index, part in enumerate(left) if part])
        machine.add(index, left[index].pop(0), now)
        now += WAIT / 100
        released += machine.take(now)
        if not left[index]:
            machine.idle(index)
    for index in range(len(parts)):
        machine.idle(index)
    released += machine.take(now)
    assert released == [(item, False) for item in expected]


def test_a_silent_source_holds_nothing_up_for_longer_than_the_wait() -> None:
    machine = Resequencer[Item](by_sequence, max_wait_seconds=WAIT)
    for source in "ab":
        machine.expect(source, 0)
    machine.add("a", Item("a", 0, 1), 3)
    assert (machine.take(12.9), machine.deadline) == ([], 13)
    assert [late for _, late in machine.take(13)] == [False]
    # Its next one waits anew, as what belongs before it may be on its way; but not longer because some came.
    machine.add("a", Item("a", 1, 5), 20)
    machine.add("b", Item("b", 0, 4), 29)
    assert [item.sequence for item, _ in machine.take(29)] == [4]
    assert (machine.take(29.9), machine.deadline) == ([], 30)
    assert [(item.sequence, late) for item, late in machine.take(30)] == [(5, False)]
    # A record that was known to be there long ago does not wait again.
    machine.add_all("a", [Item("a", 2, 6), Item("a", 3, 7)], 20)
    assert [item.sequence for item, _ in machine.take(30)] == [6, 7]
    # Nor does one that belongs before others that have waited for long enough.
    machine.add("a", Item("a", 4, 20), 50)
    machine.add("c", Item("c", 0, 19), 59)
    assert [item.sequence for item, _ in machine.take(60)] == [19, 20]


def test_a_restart_forgets_what_was_not_handed_on() -> None:
    machine = Resequencer[Item](by_sequence, max_wait_seconds=WAIT)
    items = [Item("a", number, sequence) for number, sequence in enumerate((5, 6, None, 8))]
    machine.add_all("a", items, 0.0)
    machine.advance("b", 3)
    assert len(machine.take(0.0, 3)) == 3
    for wrong in (4, -1):
        with pytest.raises(InvalidRequestError, match=f"{wrong} records cannot have been handed on: 3 were released"):
            machine.restart(wrong)
    machine.restart(2)
    assert len(machine) == 0
    # What follows goes on behind the two that were handed on: 4 is late, and a record without a sequence is not.
    machine.add_all("a", [Item("a", 2, None), Item("a", 3, 4), Item("a", 4, 6)], 0.0)
    assert [(item.sequence, late) for item, late in machine.take(0.0)] == [(None, False), (4, True), (6, False)]
    machine.restart(3)
    machine.restart(0)
    with pytest.raises(InvalidRequestError, match="0 were released last"):
        machine.restart(1)


def test_a_source_is_idle_until_it_brings_a_record() -> None:
    machine = Resequencer[Item](by_sequence, max_wait_seconds=WAIT)
    machine.add_all("a", [Item("a", 0, 1), Item("a", 1, 2)], 0.0)
    machine.idle("a")
    machine.add("a", Item("a", 2, 3), 0.0)
    machine.add("b", Item("b", 0, 10), 0.0)
    assert [item.sequence for item, _ in machine.take(0.0)] == [1, 2, 3]
    assert machine.deadline == WAIT


@pytest.mark.parametrize("error", [StopIteration, StopAsyncIteration, asyncio.CancelledError, ValueError])
def test_an_error_of_the_function_adds_nothing(error: type[BaseException]) -> None:
    """None of them may look like the end of the records, or of the caller's own loop."""

    def fails_at_three(item: Item) -> int | None:
        if item.sequence == 3:
            raise error("three")
        return item.sequence

    machine = Resequencer[Item](fails_at_three, max_wait_seconds=WAIT)
    expected = ValueError if error is ValueError else RuntimeError
    for numbers in ([3], [1, 3], [1, 2, 3, 4]):
        with pytest.raises(expected):
            machine.add_all("a", [Item("a", 0, number) for number in numbers], 0.0)
        assert len(machine) == 0
        assert machine.deadline is None


def test_a_function_that_somebody_would_have_to_await_is_refused() -> None:
    async def later(item: Item) -> int:
        return 1

    with pytest.raises(InvalidRequestError, match="coroutine function"):
        Resequencer[Item](later)  # type: ignore[arg-type]


def test_a_source_that_has_more_is_waited_for_when_it_has_brought_all() -> None:
    machine = Resequencer[Item](by_sequence, max_wait_seconds=WAIT)
    machine.add_all("a", [Item("a", 0, 1), Item("a", 1, 3)], 0)
    machine.add_all("b", [Item("b", 0, 2)], 0, has_more=True)
    assert [item.sequence for item, _ in machine.take(50)] == [1, 2]
    assert machine.deadline == 60
    # It brought something that is not wanted, and has no more.
    machine.add_all("b", [], 0)
    assert [item.sequence for item, _ in machine.take(50)] == [3]
    # A source that was paused is waited for when it goes on.
    machine.add("a", Item("a", 2, 4), 50)
    machine.expect("b", 59)
    assert (machine.take(68.9), machine.deadline) == ([], 69)


def test_what_comes_too_late_is_released_at_once_and_marked() -> None:
    machine = Resequencer[Item](by_sequence, max_wait_seconds=WAIT)
    for source in "abc":
        machine.expect(source, 0)
    machine.add("a", Item("a", 0, 5), 0)
    machine.take(WAIT)
    machine.add("b", Item("b", 0, 4), WAIT)
    machine.add("b", Item("b", 1, 5), WAIT)
    assert [(item.sequence, late) for item, late in machine.take(WAIT)] == [(4, True)]
    assert [(item.sequence, late) for item, late in machine.take(2 * WAIT)] == [(5, False)]


def test_a_source_that_goes_back_is_not_waited_for_again() -> None:
    machine = Resequencer[Item](by_sequence, max_wait_seconds=WAIT)
    for source in "ab":
        machine.expect(source, 0)
    machine.add_all("b", [Item("b", 0, 5), Item("b", 1, 3)], 0)
    assert [(item.sequence, late) for item, late in machine.take(WAIT)] == [(5, False), (3, True)]
    machine.add("a", Item("a", 0, 5), WAIT)
    assert [(item.sequence, late) for item, late in machine.take(WAIT)] == [(5, False)]


def test_its_bounds_tell_of_what_is_far_ahead_and_never_of_what_is_waited_for() -> None:
    machine = Resequencer[Item](by_sequence, max_wait_seconds=WAIT, max_records=10, max_bytes=100)
    for source in "abc":
        machine.expect(source, 0)
    for number in range(9):
        machine.add("a", Item("a", number, number), 0)
        assert not machine.is_full("a")
    machine.add("a", Item("a", 9, 9), 0)
    assert [machine.is_full(source) for source in "abc"] == [True, False, False]
    machine.add("b", Item("b", 0, 10), 0)
    assert [machine.is_full(source) for source in "abc"] == [True, False, False]
    assert len(machine.take(WAIT, 5)) == 5
    assert [machine.is_full(source) for source in "abc"] == [False, False, False]
    machine.add("b", Item("b", 1, 11, size_bytes=95), WAIT)
    assert [machine.is_full(source) for source in "abc"] == [False, True, False]
    assert machine.drop("b") == 2
    assert not machine.is_full("b")
    assert machine.held("a") == len(machine) == 5
    machine.add("b", Item("b", 2, 11, size_bytes=10), WAIT)
    machine.add("a", Item("a", 10, 12, size_bytes=90), WAIT)
    assert [machine.is_full(source) for source in "abc"] == [True, False, False]


@given(st.lists(st.tuples(st.sampled_from(SOURCES), st.integers(0, 9), st.booleans()), max_size=60))
def test_some_source_is_full_whenever_a_bound_is_reached(done: list[tuple[str, int, bool]]) -> None:
    machine, numbers = Resequencer[Item](by_sequence, max_records=8, max_bytes=1 << 40), dict.fromkeys(SOURCES, 0)
    for source, sequence, takes in done:
        if not machine.is_full(source):
            machine.add(source, Item(source, numbers[source], sequence), 0)
            numbers[source] += 1
        if takes:
            machine.take(0, 1)
        full = [machine.is_full(each) for each in SOURCES]
        assert any(full) == (len(machine) >= 8)
        assert not all(full) or len(machine) < 2 * 8
        assert len(machine) <= 2 * 8


def record(**of: Any) -> Record:
    headers: Headers = of.pop("headers", ())
    return Record("t", 0, 0, of.pop("timestamp_ms", 0), None, b"", headers)


@pytest.mark.parametrize(
    ("by", "records", "order"),
    [
        ("timestamp", [{"timestamp_ms": 7}, {"timestamp_ms": 3}], [1, 0]),
        ("n", [{"headers": [("n", b"7"), ("n", b"12")]}, {"headers": [("n", b"3")]}], [1, 0]),
        ("n", [{"headers": [("n", b"7.5")]}, {"headers": [("n", b"3")]}], [0, 1]),  # Without a number: the lowest.
        ("n", [{"headers": [("n", b"%020d" % 7)]}, {"headers": [("n", b"%030d" % 3)]}], [1, 0]),
        ("n", [{"headers": [("n", b"3")]}, {"headers": [("n", b"-7")]}], [1, 0]),
        ("n", [{"headers": [("n", b"7")]}, {"headers": [("n", None)]}], [1, 0]),
        (lambda record: 0.5 if record.timestamp_ms else 1, [{}, {"timestamp_ms": 3}], [1, 0]),
    ],
)
def test_what_gives_the_sequence(by: Any, records: list[dict[str, Any]], order: list[int]) -> None:
    machine = Resequencer[Record](by)
    made = [record(**each) for each in records]
    for source, each in enumerate(made):
        machine.add(source, each, 0)
    assert [made.index(each) for each, _ in (*machine.take(100), *machine.take(200))] == order


@pytest.mark.parametrize("sequence", ["7", b"7", True, math.nan])
def test_a_sequence_that_is_no_number_adds_nothing(sequence: Any) -> None:
    machine = Resequencer[Record](lambda record: sequence)
    with pytest.raises((TypeError, InvalidRequestError), match="must be a number or None, not"):
        machine.add("a", record(), 0)
    assert len(machine) == 0
    assert machine.take(100) == []
    machine.expect("a", 0)
    with pytest.raises((TypeError, InvalidRequestError), match="must be a number, not"):
        machine.advance("a", sequence)


@pytest.mark.parametrize("by", [lambda record: record.timestamp_ms, "timestamp"])
def test_records_are_added_from_anything_that_yields_them(by: Any) -> None:
    machine = Resequencer[Record](by)
    made = [record(timestamp_ms=number) for number in range(3)]
    machine.add_all("a", (each for each in made), 0)
    machine.add_all("a", iter(()), 0)
    assert [each for each, _ in machine.take(100)] == made


@pytest.mark.parametrize(
    "wrong", [{"by": 5}, {"max_wait_seconds": -1}, {"max_records": 0}, {"max_bytes": 0}, {"max_wait_seconds": math.nan}]
)
def test_settings_without_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((InvalidRequestError, TypeError)):
        Resequencer(**wrong)
