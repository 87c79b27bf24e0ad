"""Changes that a commit may make, and what stays of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.consumer_groups.offsets import (
    MAX_METADATA_BYTES,
    OFFSET_BYTES,
    Committed,
    Floors,
    OffsetBudget,
    OffsetTable,
    TopicCommit,
    stored_bytes,
)
from logbroker.errors import (
    CorruptLogError,
    InvalidRequestError,
    LogbrokerError,
    NotOwnerError,
    OffsetGoesBackError,
    OffsetMetadataTooLargeError,
    OffsetOutOfRangeError,
    OffsetsFullError,
    UnknownPartitionError,
)
from logbroker.types import PartitionKey, TopicId

TOPIC = TopicId(b"t" * 16)
OTHER = TopicId(b"u" * 16)
END = 100
PARTITIONS = 4
NOW_MS = 1_700_000_000_000


def end_offset(topic_id: TopicId, partition: int) -> int:
    if not 0 <= partition < PARTITIONS:
        raise UnknownPartitionError(f"no partition {partition}")
    return END


def commit_of(offsets: dict[int, int], topic_id: TopicId = TOPIC, metadata: str | None = None) -> TopicCommit:
    texts = [] if metadata is None else [metadata] * len(offsets)
    return TopicCommit(topic_id, list(offsets), list(offsets.values()), [], texts)


def refused(table: OffsetTable, commit: TopicCommit, floors: Floors | None) -> dict[int, type[LogbrokerError]]:
    return {number: type(error) for number, error in table.stage(commit, floors, end_offset, NOW_MS)}


def sync(table: OffsetTable) -> dict[bytes, bytes]:
    """Make what is staged durable; return its rows."""
    staged = table.take_staged()
    rows = {event.key: event.value for event in staged.events() if event.value is not None}
    table.apply(staged)
    return rows


def test_a_commit_is_seen_once_it_is_synced_and_again_after_a_restart() -> None:
    table = OffsetTable()
    assert refused(table, TopicCommit(TOPIC, [0, 3], [7, 0], [5, -1], ["a", ""]), {TOPIC: {0: -1, 3: -1}}) == {}
    assert table.get(TOPIC, 0) is None
    rows = sync(table)
    again = OffsetTable(rows | {b"g": b"another row"})
    for found in (table, again):
        assert found.get(TOPIC, 0) == Committed(7, 5, "a", NOW_MS)
        assert found.get(TOPIC, 3) == Committed(0, -1, "", NOW_MS)
        assert found.get(TOPIC, 1) is None
        assert len(found) == 2


def test_each_partition_is_refused_for_itself() -> None:
    table = OffsetTable()
    floors: Floors = {TOPIC: {0: -1, 1: 50, 2: -1, 3: -1, 9: -1}}
    commit = commit_of({0: END, 1: 49, 2: END + 1, 3: -1, 9: 5})
    expected = {
        1: OffsetGoesBackError,
        2: OffsetOutOfRangeError,
        3: OffsetOutOfRangeError,
        9: UnknownPartitionError,
    }
    assert refused(table, commit, floors) == expected
    sync(table)
    assert [key for key, _ in table] == [PartitionKey(TOPIC, 0)]


def test_a_member_commits_only_for_what_it_holds() -> None:
    table = OffsetTable()
    floors: Floors = {TOPIC: {0: -1}}
    assert refused(table, commit_of({0: 1, 1: 1}), floors) == {1: NotOwnerError}
    assert refused(table, commit_of({0: 1}, OTHER), floors) == {0: NotOwnerError}
    assert refused(table, commit_of({0: 1, 1: 1}), None) == {}


def test_an_offset_never_goes_back_under_one_holder_but_may_under_the_next() -> None:
    table = OffsetTable()
    key = PartitionKey(TOPIC, 0)
    floors = table.floors([key], {})
    assert refused(table, commit_of({0: 10}), floors) == {}
    assert refused(table, commit_of({0: 9}), floors) == {0: OffsetGoesBackError}, "not even before it is synced"
    sync(table)
    kept = table.floors([key, PartitionKey(TOPIC, 1)], floors)
    assert refused(table, commit_of({0: 9, 1: 0}), kept) == {0: OffsetGoesBackError}
    assert refused(table, commit_of({0: 10}), kept) == {}
    interrupted = table.floors([key], table.floors([], kept))
    assert refused(table, commit_of({0: 3}), interrupted) == {}
    sync(table)
    assert refused(table, commit_of({0: 2}), table.loaded_floors([key])) == {0: OffsetGoesBackError}
    assert refused(table, commit_of({0: 2}), None) == {}, "a reset goes anywhere"


@pytest.mark.parametrize(
    ("text", "fits"),
    [("x" * MAX_METADATA_BYTES, True), ("x" * (MAX_METADATA_BYTES + 1), False), ("ü" * MAX_METADATA_BYTES, False)],
)
def test_metadata_is_bounded_in_bytes(text: str, fits: bool) -> None:
    table = OffsetTable()
    expected = {} if fits else {0: OffsetMetadataTooLargeError}
    assert refused(table, commit_of({0: 1}, metadata=text), None) == expected


@pytest.mark.parametrize(
    "commit",
    [
        TopicCommit(TOPIC, [0, 1], [1], [], []),
        TopicCommit(TOPIC, [0, 1], [1, 2], [3], []),
        TopicCommit(TOPIC, [0, 1], [1, 2], [], ["a"]),
    ],
)
def test_columns_that_do_not_match_are_refused(commit: TopicCommit) -> None:
    with pytest.raises(InvalidRequestError):
        commit.check_columns()


def test_offsets_behind_a_cut_log_are_clamped_and_the_rows_say_so() -> None:
    table = OffsetTable()
    assert refused(table, TopicCommit(TOPIC, [0, 1], [80, 20], [4, 4], []), None) == {}
    rows = sync(table)

    def cut(topic_id: TopicId, partition: int) -> int:
        return 50

    events = table.clamped(cut)
    rows.update((event.key, event.value) for event in events if event.value is not None)
    assert len(events) == 1
    for found in (table, OffsetTable(rows)):
        assert found.get(TOPIC, 0) == Committed(50, -1, "", NOW_MS)
        assert found.get(TOPIC, 1) == Committed(20, 4, "", NOW_MS)


def test_the_offset_of_a_partition_whose_end_is_not_known_stays() -> None:
    table = OffsetTable()
    assert refused(table, commit_of({0: 80}), None) == {}
    sync(table)

    def unknown(topic_id: TopicId, partition: int) -> int:
        raise UnknownPartitionError("offline")

    assert table.clamped(unknown) == []
    assert table.get(TOPIC, 0) is not None


def test_offsets_of_a_topic_that_is_gone_are_dropped_the_staged_too() -> None:
    table = OffsetTable()
    for topic_id in (TOPIC, OTHER):
        assert refused(table, commit_of({0: 1, 1: 1}, topic_id), None) == {}
    rows = sync(table)
    assert refused(table, commit_of({2: 1}, OTHER), None) == {}
    events = table.drop_topics(lambda topic_id: topic_id == TOPIC)
    assert {event.key for event in events} == {key for key in rows if key[1:17] == OTHER}
    assert all(event.value is None for event in events)
    sync(table)
    assert {key.topic_id for key, _ in table} == {TOPIC}


def test_a_damaged_row_is_named() -> None:
    with pytest.raises(CorruptLogError, match="6f"):
        OffsetTable({b"o" + TOPIC + bytes(4): b"\x93nonsense"})


@given(
    st.lists(
        st.tuples(st.sampled_from(["commit", "sync", "restart"]), st.integers(0, PARTITIONS), st.integers(-2, END + 2))
    )
)
def test_what_was_synced_last_is_what_a_restart_finds(steps: list[tuple[str, int, int]]) -> None:
    table, rows = OffsetTable(), dict[bytes, bytes]()
    floors: Floors = {TOPIC: dict.fromkeys(range(PARTITIONS), -1)}
    expected: dict[int, int] = {}
    staged: dict[int, int] = {}
    for step, partition, offset in steps:
        if step == "commit":
            before = staged.get(partition, expected.get(partition, 0))
            accepted = partition < PARTITIONS and before <= offset <= END
            assert (not refused(table, commit_of({partition: offset}), floors)) == accepted
            if accepted:
                staged[partition] = offset
        elif step == "sync":
            rows |= sync(table)
            expected |= staged
            staged.clear()
        else:
            table = OffsetTable(rows)
            staged.clear()
            floors = table.loaded_floors(PartitionKey(TOPIC, number) for number in range(PARTITIONS))
        assert {key.partition: committed.offset for key, committed in table} == expected


def test_a_full_budget_refuses_what_needs_more_and_nothing_else() -> None:
    budget = OffsetBudget(max_bytes=3 * OFFSET_BYTES, max_group_bytes=2 * OFFSET_BYTES)
    one, other = OffsetTable(budget=budget), OffsetTable(budget=budget)
    assert refused(one, commit_of({0: 1, 1: 1, 2: 1}), None) == {2: OffsetsFullError}, "the group is full"
    assert refused(other, commit_of({0: 1, 1: 1}), None) == {1: OffsetsFullError}, "all groups together are full"
    sync(one)
    assert refused(one, commit_of({0: 2, 1: 3}), None) == {}, "who has offsets goes on"
    assert refused(one, commit_of({0: 2}, metadata="x"), None) == {0: OffsetsFullError}, "metadata counts"
    one.drop_topics(lambda _: False)
    assert refused(other, commit_of({1: 1}), None) == {}, "what was dropped is free again"


def test_offsets_above_the_budget_are_loaded_and_go_on() -> None:
    table = OffsetTable()
    assert refused(table, commit_of({0: 1, 1: 1}, metadata="long " * 100), None) == {}
    rows = sync(table)
    budget = OffsetBudget(max_bytes=1, max_group_bytes=1)
    again = OffsetTable(rows, budget)
    assert budget.used_bytes == table.used_bytes
    assert refused(again, commit_of({0: 2}, metadata="long " * 100), None) == {}
    assert refused(again, commit_of({1: 2}), None) == {}
    assert refused(again, commit_of({1: 2}, metadata="x"), None) == {1: OffsetsFullError}


_STEPS = st.one_of(
    st.tuples(st.just("commit"), st.sampled_from([TOPIC, OTHER]), st.integers(0, 3), st.text(max_size=30)),
    st.tuples(st.sampled_from(["take", "apply", "restart"]), st.none(), st.none(), st.none()),
    st.tuples(st.just("drop"), st.sampled_from([TOPIC, OTHER]), st.none(), st.none()),
)


@given(st.lists(_STEPS, max_size=30), st.integers(0, 6 * OFFSET_BYTES))
def test_the_bytes_counted_are_those_of_the_youngest_offsets(
    steps: list[tuple[str, TopicId | None, int | None, str | None]], max_bytes: int
) -> None:
    budget = OffsetBudget(max_group_bytes=max_bytes)
    table, rows = OffsetTable(budget=budget), dict[bytes, bytes]()
    youngest: dict[tuple[TopicId, int], str] = {}
    synced: dict[tuple[TopicId, int], str] = {}
    under_way = None
    for step, topic_id, partition, text in steps:
        if step == "commit":
            assert topic_id is not None
            assert partition is not None
            assert text is not None
            before = youngest.get((topic_id, partition))
            growth = stored_bytes(text) - (0 if before is None else stored_bytes(before))
            fits = growth <= 0 or table.used_bytes + growth <= max_bytes
            assert (not refused(table, commit_of({partition: 1}, topic_id, text), None)) == fits
            if fits:
                youngest[topic_id, partition] = text
        elif step == "take":
            if under_way is None:
                under_way = (table.take_staged(), dict(youngest))
        elif under_way is not None:  # A transaction ends before anything else happens.
            staged, synced = under_way
            under_way = None
            rows.update((event.key, event.value) for event in staged.events() if event.value is not None)
            table.apply(staged)
        if step == "restart":
            budget.used_bytes = 0
            table = OffsetTable(rows, budget)
            youngest = dict(synced)
        elif step == "drop":
            for event in table.drop_topics(lambda found, gone=topic_id: found != gone):  # type: ignore[misc]
                del rows[event.key]
            for texts in (youngest, synced):
                for key in [key for key in texts if key[0] == topic_id]:
                    del texts[key]
        assert table.used_bytes == budget.used_bytes == sum(map(stored_bytes, youngest.values()))
