"""The queues of a convoy keep their promises in any order of events, and each planted bug is noticed."""

from __future__ import annotations

import random
from typing import Any, Final

import pytest

from logbroker.client.convoy import done_offsets
from logbroker.client.convoy.done_offsets import DoneOffsets, may_fit
from logbroker.client.convoy.lanes import Lanes, RetryPolicy
from logbroker.client.convoy.track import Entry, LooseTrack, RecordState, Track
from tests.anomalies import BrokenPromisesError
from tests.client.convoy.convoy_plants import PLANTS
from tests.client.convoy.lane_simulation import Kind, Simulation, limits
from tests.speeds import examples

FOUND_BY: Final = {
    "committed_while_it_runs": Kind.COMMIT_AHEAD,
    "text_cut_off": Kind.REPEATED,
    "started_too_far_ahead": Kind.TOO_LONG,
    "successor_before_its_turn": Kind.OUT_OF_ORDER,
}


def play(seed: int, monkeypatch: pytest.MonkeyPatch) -> Simulation:
    rng = random.Random(seed)
    for name, value in limits(rng.choice([2, 5, 30, 3000])).items():
        monkeypatch.setattr(done_offsets, name, value)
    simulation = Simulation(
        seed, records=rng.choice([30, 300]), keys=rng.choice([1, 5, 60]), crashes=rng.choice([0, 0.002, 0.02])
    )
    simulation.run()
    return simulation


@pytest.mark.prove
@pytest.mark.twice
def test_the_promises_hold_in_any_order_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    first = random.randrange(1 << 30)
    lives, widest = 0, 0
    for seed in range(first, first + examples(40, 400)):
        try:
            simulation = play(seed, monkeypatch)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        lives, widest = lives + simulation.lives, max(widest, simulation.widest)
    assert lives > 100
    assert widest > 100


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_is_noticed(plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTS[plant](monkeypatch.setattr)
    kinds = set[Any]()
    for seed in range(40):
        try:
            play(seed, monkeypatch)
        except BrokenPromisesError as error:
            kinds |= error.kinds
        except ValueError:  # The text did not fit.
            kinds.add(Kind.TOO_LONG)
    assert FOUND_BY[plant] in kinds


# --- single rules ----------------------------------------------------------------------------------------------------


def lanes_of(**limits: int) -> Lanes:
    policy = RetryPolicy(
        max_attempts=2, backoff_initial_seconds=1, backoff_factor=2, backoff_cap_seconds=4, backoff_jitter=0
    )
    return Lanes(policy, max_records=limits.get("max_records", 100), max_bytes=limits.get("max_bytes", 100))


def fill(lanes: Lanes, track: Track, keys: str, first: int = 0) -> list[Entry]:
    entries = [
        Entry(track, first + place, None if key == "-" else key, key, size_bytes=1) for place, key in enumerate(keys)
    ]
    for entry in entries:
        lanes.add(entry)
    return entries


def started(lanes: Lanes) -> list[int]:
    found = []
    while (entry := lanes.start()) is not None:
        found.append(entry.offset)
    return found


def test_keys_run_beside_each_other_and_records_without_a_key_each_alone() -> None:
    lanes, track = lanes_of(), Track("t", 0)
    entries = fill(lanes, track, "aab--a")
    assert started(lanes) == [0, 2, 3, 4]
    lanes.done(entries[2])
    lanes.done(entries[0])
    assert started(lanes) == [1]
    assert track.floor == 1
    assert track.done_from(1) == DoneOffsets(1, 0, ((2, 3),))


def test_a_failed_record_waits_and_its_key_with_it() -> None:
    lanes, track = lanes_of(), Track("t", 0)
    entries = fill(lanes, track, "aab")
    assert started(lanes) == [0, 2]
    assert not lanes.failed(entries[0], ValueError("no"), now=10.0)
    assert lanes.next_due == 11.0
    lanes.tick(10.9)
    assert started(lanes) == []
    lanes.tick(11.0)
    assert started(lanes) == [0]
    assert lanes.failed(entries[0], ValueError("no"), now=12.0)
    lanes.block(entries[0])
    assert started(lanes) == []
    assert list(lanes.blocked) == [entries[0]]
    assert lanes.skip(entries[0])
    assert not lanes.skip(entries[0])
    assert started(lanes) == []
    lanes.done(entries[0])
    assert started(lanes) == [1]
    assert track.floor == 1


def test_the_backoff_grows_up_to_its_cap() -> None:
    policy = RetryPolicy(
        max_attempts=9, backoff_initial_seconds=1, backoff_factor=3, backoff_cap_seconds=20, backoff_jitter=0
    )
    assert [policy.wait_seconds(attempts) for attempts in (1, 2, 3, 4, 5, 10_000)] == [1, 3, 9, 20, 20, 20]


def test_memory_is_bounded_in_records_and_in_bytes() -> None:
    lanes, track = lanes_of(max_records=4, max_bytes=3), LooseTrack(None)
    entries = fill(lanes, track, "ab")
    assert lanes.room == (2, 1)
    entries += fill(lanes, track, "c", 2)
    assert lanes.room == (0, 0)
    assert not lanes.has_much_room
    started(lanes)
    for entry in entries:
        lanes.done(entry)
    assert (lanes.records, lanes.bytes, lanes.room) == (0, 0, (4, 3))
    assert list(track.nodes()) == []


def test_what_cannot_be_written_down_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in limits(1).items():
        monkeypatch.setattr(done_offsets, name, value)
    lanes, partition = lanes_of(), Track("t", 0)
    entries = fill(lanes, partition, "abcdefghijklm")
    assert started(lanes) == list(range(8))
    for entry in entries[1:8]:
        lanes.done(entry)
    assert started(lanes) == []  # A ninth would be out of the bitmap's reach, and nine offsets take two bytes as runs.
    assert lanes.has_ready is False
    lanes.done(entries[0])
    assert started(lanes) == [8, 9, 10, 11, 12]


def test_one_record_that_stands_does_not_stop_a_partition_early() -> None:
    lanes, partition = lanes_of(max_records=10), Track("t", 0)
    [head] = fill(lanes, partition, "a")
    assert started(lanes) == [0]
    count = 3 * done_offsets.MAX_BITMAP_OFFSETS
    for offset in range(1, count):
        [entry] = fill(lanes, partition, "b", offset)
        assert started(lanes) == [offset]
        lanes.done(entry)
    assert partition.floor == 0
    assert decode_ranges(partition) == ((1, count),)
    lanes.done(head)
    assert partition.floor == count


def decode_ranges(track: Track) -> Any:
    done = done_offsets.decode(track.text(0), 0)
    return None if done is None else done.ranges


def test_records_after_a_cut_of_the_log_are_new() -> None:
    track = Track("t", 10, DoneOffsets(10, 4, ((12, 20),)))
    assert [track.is_done(offset, epoch=4) for offset in (10, 11, 12, 13)] == [False, False, True, True]
    # The log was cut at 14, and other records were appended there.
    assert [track.is_done(offset, epoch=5) for offset in (14, 15)] == [False, False]
    assert track.done_from(10) is None


def test_ranges_that_were_not_read_again_stay_in_the_next_commit() -> None:
    lanes, track = lanes_of(), Track("t", 10, DoneOffsets(10, 4, ((12, 20), (25, 30))))
    entries = fill(lanes, track, "ab", 10)
    for offset in (12, 13):
        assert track.is_done(offset, 4)
        track.skip(offset, 4)
    started(lanes)
    lanes.done(entries[0])
    assert track.done_from(11) == DoneOffsets(11, 4, ((12, 20), (25, 30)))
    lanes.done(entries[1])
    assert track.floor == 14
    assert track.done_from(14) == DoneOffsets(14, 4, ((14, 20), (25, 30)))


def test_what_runs_when_its_partition_goes_does_not_count() -> None:
    lanes, track = lanes_of(), Track("t", 0)
    entries = fill(lanes, track, "abac")
    assert started(lanes) == [0, 1, 3]
    lanes.done(entries[1])
    lanes.hold(track)
    assert [entry.state for entry in entries] == [
        RecordState.RUNNING,
        RecordState.DONE,
        RecordState.GONE,
        RecordState.RUNNING,
    ]
    lanes.done(entries[3])
    assert lanes.drop(track) == [entries[0]]
    lanes.done(entries[0])
    assert started(lanes) == []
    assert (lanes.records, lanes.running, lanes.bytes) == (0, 0, 0)
    assert track.floor == 0
    again = track.again()
    assert (again.floor, again.done_from(0)) == (0, DoneOffsets(0, 0, ((1, 2), (3, 4))))


def test_the_bound_of_a_text_grows_with_what_it_holds() -> None:
    rng = random.Random(3)
    for _ in range(2000):
        ranges, span = rng.randrange(1, 3000), rng.randrange(1, 10**9)
        if may_fit(ranges, span):
            assert may_fit(ranges - 1, span)
            assert may_fit(ranges, span - rng.randrange(span))


def test_every_plant_is_expected() -> None:
    assert FOUND_BY.keys() == PLANTS.keys()


def test_a_record_that_is_lost_leaves_its_lane_and_the_others_go_on_in_order() -> None:
    """In any order of events."""
    first = random.randrange(1 << 30)
    for seed in range(first, first + examples(200, 2_000)):
        try:
            _lose_records(random.Random(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def _lose_records(rng: random.Random) -> None:
    lanes, track = lanes_of(max_records=1000, max_bytes=1000), LooseTrack(None)
    left: list[Entry] = []
    running: list[Entry] = []
    handled: list[Entry] = []
    lost = offset = now = 0
    while offset < 60 or left:
        chance = rng.random()
        if chance < 0.3 and offset < 60:
            left += fill(lanes, track, rng.choice("aabbc-"), offset)
            offset += 1
        elif chance < 0.6:
            entry = lanes.start()
            if entry is not None:
                assert entry in left
                assert entry.key is None or entry.key not in [other.key for other in running]
                assert not [each for each in left if each.key == entry.key is not None and each.offset < entry.offset]
                running.append(entry)
        elif chance < 0.75 and running:
            entry = running.pop(rng.randrange(len(running)))
            if rng.random() < 0.5:
                if lanes.failed(entry, ValueError("no"), now):
                    lanes.block(entry)
            else:
                lanes.done(entry)
                handled.append(entry)
                left.remove(entry)
        elif chance < 0.85 and left:
            entry = rng.choice(left)
            lanes.lost(entry)
            left.remove(entry)
            running = [each for each in running if each is not entry]
            lost += 1
        else:
            now += 1
            lanes.tick(now)
            for entry in list(lanes.blocked):
                lanes.resume(entry)
        assert (lanes.records, lanes.bytes, lanes.running) == (len(left), len(left), len(running))
        assert list(track.nodes()) == left
        assert set(lanes.blocked) <= set(left)
    assert len(handled) + lost == 60
    assert lanes.start() is None
    assert track.lanes == {}
