"""Splits of lanes in the machine: random runs beside a model, planted bugs, and single cases."""

from __future__ import annotations

from typing import Any

import pytest

from logbroker.errors import CorruptLogError, InvalidRequestError, StaleSessionError
from logbroker.queues.machine.inspect import Inspector
from logbroker.queues.machine.lane_index import LaneIndex
from logbroker.queues.machine.load import load_queue
from logbroker.queues.machine.queue import Queue
from logbroker.queues.machine.splitting import Moved, Splitting
from logbroker.queues.machine.stalled_lanes import StalledLanes
from logbroker.queues.model.messages import SessionWrite
from logbroker.queues.model.second_key import MAX_SUB_LANES, SecondKey, SplitBy
from logbroker.queues.model.settings import OnExhausted, Ordering
from logbroker.queues.model.splits import Keying, Split
from logbroker.queues.state.splits import Splits
from tests.queues.groups import ack, admit, at, commit, nack, new_queue, record_ids, restart
from tests.queues.split_simulation import PRIORITIES, run

BY_HEADER = SecondKey(SplitBy.HEADER, "part")


def split(key: bytes = b"k", into: int = 4) -> Split:
    return Split(key, BY_HEADER, into, 0)


def move_all(queue: Queue, lanes: dict[int, bytes]) -> None:
    """Move the records of all lanes that are being split, to the sub-lanes by record id."""
    while (key := queue.splitting.next_key(at(0))) is not None:
        moved = [Moved(each, lanes[each], 4, 0) for each in queue.splitting.next_records(key, 2)]
        queue.splitting.move(queue.splits.by_key[key], moved, at(0))


SEEDS = 60


@pytest.mark.prove
@pytest.mark.parametrize("settings", [{}, PRIORITIES], ids=["plain", "priorities"])
def test_random_runs_are_like_the_model(settings: dict[str, Any]) -> None:
    for seed in range(SEEDS):
        run(seed, **settings)


@pytest.mark.prove
@pytest.mark.parametrize("settings", [{}, PRIORITIES], ids=["plain", "priorities"])
def test_many_random_runs_are_like_the_model(settings: dict[str, Any]) -> None:
    for seed in range(10_000, 10_600):
        run(seed, **settings)


def fails_within(seeds: int) -> bool:
    for seed in range(seeds):
        for settings in (dict[str, Any](), PRIORITIES):
            try:
                run(seed, **settings)
            except (AssertionError, KeyError, ValueError, AttributeError):
                return True
    return False


def begins_early(patch: pytest.MonkeyPatch) -> None:
    """The sub-lanes begin while the lane is in flight: the scan goes to them from the split on."""
    set_keyings = Splitting._set_keyings

    def eager(self: Splitting) -> None:
        set_keyings(self)
        self.scan_keying = self.keying

    patch.setattr(Splitting, "_set_keyings", eager)


def has_no_gate(patch: pytest.MonkeyPatch) -> None:
    """The lane goes on while its records are moved."""
    make_ready = LaneIndex.make_ready

    def open_gate(self: LaneIndex, lane: Any) -> None:
        gated, self.gated = self.gated, set()
        make_ready(self, lane)
        self.gated = gated

    patch.setattr(LaneIndex, "make_ready", open_gate)


def forgets_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Splits, "load", lambda self, rows: None)


def joins_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Splitting, "_first_left", lambda self, split, number, now: split.into)


def forgets_the_ends(patch: pytest.MonkeyPatch) -> None:
    """After a restart, what the sub-lanes had before is in the joined lane, and its later records too."""
    patch.setattr(Split, "holds", lambda self, partition, offset: self.ends is None)


def forgets_what_holds_the_head(patch: pytest.MonkeyPatch) -> None:
    suspend = StalledLanes.suspend

    def careless(self: StalledLanes, lane: Any, now: Any) -> None:
        suspend(self, lane, now)
        self.attention.discard(lane.head)

    patch.setattr(StalledLanes, "suspend", careless)


def loses_what_came_meanwhile(patch: pytest.MonkeyPatch) -> None:
    """Records that were admitted while the lane was read are not moved."""
    patch.setattr(
        Splitting, "_is_empty", lambda self, key, now: (lane := self._lanes.get(key)) is None or len(lane) < 2
    )


PLANTS = [
    begins_early,
    has_no_gate,
    forgets_at_a_restart,
    joins_at_once,
    forgets_the_ends,
    forgets_what_holds_the_head,
    loses_what_came_meanwhile,
]


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_is_noticed(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert fails_within(40)


# --- single cases ----------------------------------------------------------------------------------------------------


def test_a_lane_goes_on_in_sub_lanes_when_its_flight_is_over() -> None:
    queue = new_queue()
    admit(queue, [b"k"] * 4)
    [flying] = queue.take("w", 10, at(0))
    queue.splitting.split(split(), at(0))
    lanes = {0: b"k#0", 1: b"k#0", 2: b"k#1", 3: b"k#1"}
    move_all(queue, lanes)
    assert queue.take("w", 10, at(0)) == []
    ack(queue, [flying])
    move_all(queue, lanes)
    assert record_ids(queue.take("w", 10, at(0))) == [1, 2]


def test_a_lane_is_moving_until_its_records_are_in_sub_lanes() -> None:
    """Otherwise a group whose only lane is being split would look as if it were worked off."""
    queue = new_queue()
    inspector = Inspector(queue)
    admit(queue, [b"k"] * 4)
    assert inspector.counts().moving_lanes == 0
    queue.splitting.split(split(), at(0))
    counts = inspector.counts()
    assert (counts.open, counts.ready, counts.in_flight, counts.held_lanes) == (4, 0, 0, 0)
    assert counts.moving_lanes == 1
    move_all(queue, dict.fromkeys(range(4), b"k#0"))
    assert (inspector.counts().ready, inspector.counts().moving_lanes) == (1, 0)


def test_a_lane_whose_record_cannot_be_read_is_not_moving() -> None:
    queue = new_queue()
    admit(queue, [b"k"] * 4)
    queue.splitting.split(split(), at(0))
    queue.splitting.cannot_read(queue.splits.by_key[b"k"], CorruptLogError("damaged"), at(0))
    assert Inspector(queue).counts().moving_lanes == 0


def test_a_failing_record_holds_back_its_sub_lane_only() -> None:
    queue = new_queue(max_attempts=1)
    admit(queue, [b"k"] * 4)
    nack(queue, queue.take("w", 1, at(0)))
    assert [lane.key for lane in Inspector(queue).held()] == [b"k"]
    queue.splitting.split(split(), at(0))
    move_all(queue, {0: b"k#0", 1: b"k#0", 2: b"k#1", 3: b"k#1"})
    assert [lane.key for lane in Inspector(queue).held()] == [b"k#0"]
    assert record_ids(queue.take("w", 10, at(0))) == [2]


def test_splits_outlive_the_broker() -> None:
    rows: dict[bytes, bytes] = {}
    queue = new_queue()
    admit(queue, [b"k"] * 2)
    queue.splitting.split(split(), at(0))
    queue.splitting.split(split(b"other", 7), at(0))
    queue.splitting.join(b"other", at(0))
    before = commit(queue, rows)
    queue = restart(before, 2)
    assert set(queue.splits.by_key) == {b"k"}
    assert queue.splitting.state_of(b"k") == "split"
    assert queue.splitting.scan_keying.splits == queue.splits.by_key


@pytest.mark.parametrize(
    ("wrong", "settings", "why"),
    [
        (split(into=1), {}, "give 2 to 1,000"),
        (split(into=MAX_SUB_LANES + 1), {}, "give 2 to 1,000"),
        (split(), {"ordering": Ordering.NONE}, "no lanes to split"),
        (Split(b"k", SecondKey(SplitBy.HEADER), 4, 0), {}, "needs the name of a header"),
        (Split(b"k", SecondKey(SplitBy.KEY_SUFFIX), 4, 0), {}, "needs the separator"),
        (Split(b"k", SecondKey(SplitBy.NONE, "x"), 4, 0), {}, "needs no name"),
        (Split(b"k", SecondKey(SplitBy.KEY_SUFFIX, "/"), 4, 0), {}, "the same suffix"),
        (Split(b"k", BY_HEADER, 4, 0), {"key_header": "part"}, "holds the ordering key"),
        (Split(b"k", SecondKey(SplitBy.HEADER, "x" * 257), 4, 0), {}, "at most 255 bytes"),
        (split(), {"ordering": Ordering.SINGLE}, "has the empty key"),
        (split(b"s"), {}, "is split by header:part into 4 sub-lanes already"),
        (split(b"s#0"), {}, "is a sub-lane of"),
        (split(b"t"), {}, "which would be a sub-lane"),
    ],
)
def test_a_wrong_split_changes_nothing(wrong: Split, settings: dict[str, Any], why: str) -> None:
    queue = new_queue(**settings)
    if not settings:
        queue.splitting.split(split(b"s"), at(0))
        queue.splitting.split(split(b"t#1"), at(0))
    if queue.settings.ordering is Ordering.KEY:
        admit(queue, [b"k", b"k"])
    before = commit(queue, {}), queue.splitting.keying, queue.lanes.ready_records
    with pytest.raises(InvalidRequestError, match=why):
        queue.splitting.split(wrong, at(0))
    assert queue.take_outputs().events == []
    assert (queue.splitting.keying, queue.lanes.ready_records) == before[1:]


def test_what_is_not_split_cannot_be_joined() -> None:
    with pytest.raises(InvalidRequestError, match="is not split"):
        new_queue().splitting.join(b"k", at(0))


def test_a_keying_stays_the_same_object_until_something_changes() -> None:
    queue = new_queue()
    before = queue.splitting.keying
    queue.splitting.set_settings(queue.settings)
    assert queue.splitting.keying is before
    queue.splitting.split(split(), at(0))
    assert queue.splitting.keying is not before
    assert queue.splitting.keying.fingerprint != before.fingerprint
    admit(queue, [b"k#1"])
    whole = queue.splitting.keying.fingerprint
    queue.splitting.join(b"k", at(0))
    assert queue.splitting.keying.fingerprint not in (whole, before.fingerprint)
    assert Keying(before.ordering, before.key_header).fingerprint == before.fingerprint


@pytest.mark.parametrize("size", [1, 249, 252, 256])
def test_the_name_of_a_sub_lane_is_a_lane_key(size: int) -> None:
    names = split(b"x" * size, 1000).sub_lanes()
    assert len(set(names)) == 1000
    assert max(map(len, names)) <= 256
    assert names[0].endswith(b"#0")


def rebuilt_while_joining(log_ends: dict[int, int], **settings: Any) -> Queue:
    """A queue of two partitions after a restart. Key k is being joined; its split ends at offsets 4 and 2."""
    queue = new_queue(2, **settings)
    queue.splitting.split(split(), at(0))
    admit(queue, [b"k#0"] * 4)
    admit(queue, [b"other"] * 2, partition=1)
    queue.splitting.join(b"k", at(0))
    assert queue.splitting.state_of(b"k") == "joining"
    rows = commit(queue, {})
    queue = load_queue(rows, log_ends, random=lambda: 0.0, route=lambda key: 0)
    for partition in log_ends:
        queue.open_partition(partition, 0)
    queue.begin_generation(1, ())
    return queue


def work_off(queue: Queue) -> list[int]:
    done: list[int] = []
    while granted := queue.take("w", 10, at(0)):
        done += record_ids(granted)
        ack(queue, granted)
        queue.tick(at(0))
    return done


def test_a_join_waits_for_the_scan_of_its_partitions() -> None:
    queue = rebuilt_while_joining({0: 6, 1: 2})
    admit(queue, [b"k#0"] * 4 + [b"k"] * 2)
    assert work_off(queue) == [0, 1, 2, 3]
    admit(queue, [b"other"] * 2, partition=1)
    assert {4, 5} < set(work_off(queue))
    assert not queue.splits.by_key


def test_a_join_does_not_wait_for_records_that_were_cut_off() -> None:
    queue = rebuilt_while_joining({0: 6, 1: 0})
    admit(queue, [b"k#0"] * 4 + [b"k"] * 2)
    assert work_off(queue) == [0, 1, 2, 3, 4, 5]
    assert not queue.splits.by_key


def test_a_join_does_not_wait_for_a_partition_that_cannot_be_scanned() -> None:
    queue = rebuilt_while_joining({0: 6, 1: 2})
    queue.splitting.stopped = {1}
    admit(queue, [b"k#0"] * 4 + [b"k"] * 2)
    assert work_off(queue) == [0, 1, 2, 3, 4, 5]
    queue.splitting.stopped = {}
    admit(queue, [b"k", b"other"], partition=1)
    assert len(work_off(queue)) == 2


def test_the_scan_does_not_pause_for_delayed_records_that_wait_for_it() -> None:
    queue = rebuilt_while_joining({0: 9, 1: 2}, max_delayed_records=2)
    later = [(offset, 3_600_000) for offset in range(4, 9)]
    queue.admit(0, 1, range(9), 9, [b"k#0"] * 4 + [b"k"] * 5, later, at(0))
    assert work_off(queue) == [0, 1, 2, 3]
    assert queue.wants_more
    admit(queue, [b"other"] * 2, partition=1)
    assert len(work_off(queue)) == 2
    assert not queue.splits.by_key
    assert queue.is_held_up


def test_the_scan_goes_on_while_a_session_has_the_last_records_of_a_lane_that_is_split() -> None:
    queue = new_queue()
    admit(queue, [b"k"] * 3)
    session = queue.sessions.open("w", b"k", 10, at(0))
    assert session is not None
    taken = queue.sessions.take(session, at(0))
    queue.splitting.split(split(), at(0))
    admit(queue, [b"k", b"other"], start=3)
    goes_on = [queue.wants_more]
    ack(queue, taken)
    queue.tick(at(0))
    goes_on.append(queue.wants_more)
    move_all(queue, {3: b"k#1"})
    goes_on.append(queue.wants_more)
    assert goes_on == [True, False, True], "it waits only while the last records are moved"


def test_the_state_of_a_sub_lane_ends_with_the_split() -> None:
    queue = new_queue()
    queue.splitting.split(split(), at(0))
    for _ in range(2):
        session = queue.sessions.open("w", b"k#1", 1, at(0))
        assert session is not None
        assert queue.sessions.state(b"k#1") == b""
        queue.sessions.write_state(SessionWrite(b"k#1", session.token, b"of this split"), at(0))
        queue.sessions.close("w", b"k#1", session.token, at(0))
        queue.splitting.join(b"k", at(0))
        queue.tick(at(0))
        assert not queue.splits.by_key
        queue.splitting.split(split(), at(0))


@pytest.mark.parametrize("is_open", [True, False], ids=["open session", "state"])
def test_a_split_does_not_take_the_session_state_of_a_key_that_is_named_as_a_sub_lane(is_open: bool) -> None:
    queue = new_queue()
    session = queue.sessions.open("w", b"k#3", 1, at(0))
    assert session is not None
    if not is_open:
        queue.sessions.write_state(SessionWrite(b"k#3", session.token, b"of another key"), at(0))
        queue.sessions.close("w", b"k#3", session.token, at(0))
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match="key 'k#3' has a session, or the state of one"):
            queue.splitting.split(split(), at(0))
    assert queue.sessions.state(b"k#3") == (b"" if is_open else b"of another key")
    assert not queue.splits.by_key
    queue.splitting.split(split(into=3), at(0))
    assert queue.splits.by_key


def test_a_session_of_a_sub_lane_ends_with_the_split() -> None:
    """A state that it wrote later would stay for ever."""
    queue = new_queue()
    admit(queue, [b"k", b"other"])
    queue.splitting.split(split(), at(0))
    move_all(queue, {0: b"k#1"})
    taken = queue.take("w", 2, at(0))
    queue.splitting.join(b"k", at(0))
    session = queue.sessions.open("w", b"k#0", 1, at(0))
    assert session is not None
    ack(queue, taken)
    queue.tick(at(0))
    assert not queue.splits.by_key
    with pytest.raises(StaleSessionError):
        queue.sessions.check_states("w", [SessionWrite(b"k#0", session.token, b"too late")])


def test_a_parked_key_with_earlier_records_in_front_is_not_split() -> None:
    """Only the sub-lane of the record that failed would be held."""
    rows: dict[bytes, bytes] = {}
    queue = new_queue(max_attempts=1, on_exhausted=OnExhausted.PARK)
    admit(queue, [b"k"] * 3)
    ack(queue, queue.take("w", 1, at(0)))
    nack(queue, queue.take("w", 1, at(0)))
    queue.rewind({0: 0}, at(0))
    queue = restart(commit(queue, rows), 3)
    admit(queue, [b"k"] * 3)
    assert queue.take("w", 10, at(0)) == []
    with pytest.raises(InvalidRequestError, match="a rewind has put earlier records in front"):
        queue.splitting.split(split(), at(0))
    assert not queue.splits.by_key
