"""The checker finds each anomaly in a small bad history, and nothing in good ones."""

from __future__ import annotations

import enum
from collections.abc import Callable

import pytest

from tests.crash.checker import Event, FinalRead, Kind, Log, LogRecordId, Outcome, Poll, Seek, Send, check

LOG = Log("orders", 0)
OTHER = Log("orders", 1)


def ok(value: bytes, offset: int, process: str = "p", log: Log = LOG) -> Send:
    return Send(process, value, outcome=Outcome.OK, log=log, offset=offset)


def failed(value: bytes, process: str = "p") -> Send:
    return Send(process, value, outcome=Outcome.FAILED)


def unknown(value: bytes, process: str = "p") -> Send:
    return Send(process, value)


def poll(*records: tuple[int, bytes], process: str = "c", log: Log = LOG) -> Poll:
    return Poll(process, [(LogRecordId(log, offset), value) for offset, value in records])


def log_of(*values: bytes, start: int = 0) -> FinalRead:
    return FinalRead(start, list(enumerate(values, start)))


def kinds(history: list[Event], *values: bytes, start: int = 0) -> list[enum.Enum]:
    return [anomaly.kind for anomaly in check(history, {LOG: log_of(*values, start=start)})]


GOOD: dict[str, Callable[[], tuple[list[Event], FinalRead]]] = {
    "nothing happens": lambda: ([], log_of()),
    "a value is sent, polled and kept": lambda: ([ok(b"a", 0), poll((0, b"a"))], log_of(b"a")),
    "two senders share a log": lambda: (
        [ok(b"a", 1), ok(b"b", 0, "q"), poll((0, b"b"), (1, b"a"))],
        log_of(b"b", b"a"),
    ),
    "an unknown send was appended": lambda: ([unknown(b"a"), ok(b"b", 1)], log_of(b"a", b"b")),
    "an unknown send was not appended": lambda: ([unknown(b"a"), ok(b"b", 0)], log_of(b"b")),
    "a failed send is nowhere": lambda: ([failed(b"a"), ok(b"b", 0)], log_of(b"b")),
    "a reader seeks back": lambda: (
        [ok(b"a", 0), ok(b"b", 1), poll((0, b"a"), (1, b"b")), Seek("c", LOG, 0), poll((0, b"a"))],
        log_of(b"a", b"b"),
    ),
    "a reader seeks forward": lambda: (
        [ok(b"a", 0), ok(b"b", 1), ok(b"c", 2), poll((0, b"a")), Seek("c", LOG, 2), poll((2, b"c"))],
        log_of(b"a", b"b", b"c"),
    ),
    "two readers are at different places": lambda: (
        [ok(b"a", 0), ok(b"b", 1), poll((0, b"a")), poll((1, b"b"), process="d"), poll((1, b"b"))],
        log_of(b"a", b"b"),
    ),
    "retention took what was sent": lambda: ([ok(b"a", 0), ok(b"b", 1), poll((0, b"a"))], log_of(b"b", start=1)),
    "retention overtook a reader": lambda: (
        [ok(b"a", 0), ok(b"b", 1), ok(b"c", 2), poll((0, b"a")), poll((2, b"c"))],
        log_of(b"c", start=2),
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_passes(name: str) -> None:
    history, end = GOOD[name]()
    assert check(history, {LOG: end}) == []


def test_an_acknowledged_value_below_the_last_read_one_is_lost() -> None:
    assert Kind.LOST in kinds([ok(b"a", 0), ok(b"b", 1)], b"x", b"b")
    assert kinds([ok(b"a", 0), ok(b"b", 1), poll((1, b"b"))]) == [Kind.LOST, Kind.LOST]


def test_a_value_that_was_read_and_is_gone_is_lost_even_if_nobody_learned_its_outcome() -> None:
    assert kinds([unknown(b"a"), poll((0, b"a"))]) == [Kind.LOST]


def test_an_acknowledged_value_that_no_reader_ever_reached_is_unseen() -> None:
    assert kinds([ok(b"a", 0), ok(b"b", 1)], b"a") == [Kind.UNSEEN]


def test_a_value_at_two_offsets_is_a_duplicate() -> None:
    assert kinds([ok(b"a", 0)], b"a", b"a") == [Kind.DUPLICATE]
    assert kinds([unknown(b"a")], b"a", b"a") == [Kind.DUPLICATE]


def test_a_value_in_two_logs_is_a_duplicate() -> None:
    end = {LOG: log_of(b"a"), OTHER: log_of(b"a")}
    assert [anomaly.kind for anomaly in check([ok(b"a", 0)], end)] == [Kind.DUPLICATE]


def test_an_offset_with_two_values_is_a_conflict() -> None:
    assert Kind.CONFLICT in kinds([ok(b"a", 0), ok(b"b", 0, "q")], b"a")
    assert Kind.CONFLICT in kinds([unknown(b"a"), unknown(b"b"), poll((0, b"a"))], b"b")


def test_a_refused_value_must_not_be_read() -> None:
    assert kinds([failed(b"a")], b"a") == [Kind.FAILED_READ]
    assert Kind.FAILED_READ in kinds([failed(b"a"), poll((0, b"a"))])


def test_a_value_that_nobody_sent_is_a_phantom() -> None:
    assert kinds([ok(b"a", 0)], b"a", b"z") == [Kind.PHANTOM]


def test_a_poll_that_leaves_out_a_record_is_a_skip() -> None:
    sent: list[Event] = [ok(b"a", 0), ok(b"b", 1), ok(b"c", 2)]
    assert kinds([*sent, poll((0, b"a"), (2, b"c"))], b"a", b"b", b"c") == [Kind.SKIP]
    assert kinds([*sent, poll((0, b"a")), poll((2, b"c"))], b"a", b"b", b"c") == [Kind.SKIP]
    assert kinds([*sent, Seek("c", LOG, 0), poll((1, b"b"))], b"a", b"b", b"c") == [Kind.SKIP]


def test_retention_excuses_no_skip_above_the_log_start() -> None:
    history: list[Event] = [*(ok(b"%d" % n, n) for n in range(4)), poll((0, b"0")), poll((3, b"3"))]
    assert kinds(history, b"2", b"3", start=2) == [Kind.SKIP]
    assert kinds(history, b"3", start=3) == []


def test_a_poll_that_goes_back_or_repeats_is_seen() -> None:
    sent: list[Event] = [ok(b"a", 0), ok(b"b", 1)]
    assert kinds([*sent, poll((0, b"a"), (1, b"b")), poll((0, b"a"))], b"a", b"b") == [Kind.BACK]
    assert kinds([*sent, poll((1, b"b"), (1, b"b"))], b"a", b"b") == [Kind.BACK]
    assert kinds([*sent, Seek("c", LOG, 1), poll((0, b"a"))], b"a", b"b") == [Kind.BACK]


def test_a_senders_values_keep_their_order_also_where_an_outcome_is_unknown() -> None:
    assert kinds([ok(b"a", 1), ok(b"b", 0)], b"b", b"a") == [Kind.REORDERED]
    assert kinds([unknown(b"a"), ok(b"b", 0)], b"b", b"a") == [Kind.REORDERED]


def test_values_of_different_order_may_overtake_each_other() -> None:
    first, second = Send("p", b"a", b"key-1"), Send("p", b"b", b"key-2")
    assert kinds([first, second], b"b", b"a") == []


def test_an_offset_without_a_record_is_a_gap() -> None:
    end = FinalRead(0, [(0, b"a"), (2, b"b")])
    assert [anomaly.kind for anomaly in check([ok(b"a", 0), ok(b"b", 2)], {LOG: end})] == [Kind.GAP]


def test_nothing_of_a_deleted_log_can_be_lost_but_its_reads_still_count() -> None:
    assert check([ok(b"a", 0), poll((0, b"a"))], {}) == []
    assert [anomaly.kind for anomaly in check([failed(b"a"), poll((0, b"a"))], {})] == [Kind.FAILED_READ]


def test_incarnations_of_a_topic_are_different_logs() -> None:
    first, second = Log("orders", 0, "one"), Log("orders", 0, "two")
    history: list[Event] = [ok(b"a", 0, log=first), ok(b"b", 0, "q", second)]
    assert check(history, {second: log_of(b"b")}) == []
    assert [anomaly.kind for anomaly in check([*history, poll((1, b"a"), log=second)], {second: log_of(b"b")})] == [
        Kind.DUPLICATE,
        Kind.LOST,
    ]


def test_every_anomaly_says_what_and_where() -> None:
    (anomaly,) = check([ok(b"p1-7 padding", 0)], {LOG: log_of()})
    assert str(anomaly) == "acknowledged, but no reader ever got so far: p1-7 was acknowledged at orders-0:0"
