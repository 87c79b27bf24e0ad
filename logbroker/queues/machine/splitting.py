"""Splits hot lanes while they run, and joins them again.

*Split*: from the split on, the lane is *gated*: no more of its records are handed out. When its deliveries in flight
are settled and its session has ended, the runtime of the group reads the waiting records of the lane and moves them, in
their order, to the sub-lanes (`next_records`, `move`). A sub-lane is ready as soon as it has a record. The scan still
puts new records of the key at the end of the lane. When the lane is empty, the scan puts new records into the
sub-lanes: this is the moment when `scan_keying` changes. So the records of a sub-lane are in the order of the log, and
none of them is handed out before the lane's deliveries are settled. The state of a record (attempts, a backoff, a
not-before time, being blocked or parked, an intent) goes with it, because all of that is kept by record.

*Join*: the split gets ends, which are the positions of the scan. Records below the ends stay in their sub-lanes. New
records go to the lane, which stays gated until all sub-lanes are empty. So no record overtakes another. If the index is
rebuilt meanwhile, the join waits until the scan has reached the ends again. It does not wait for partitions that cannot
be scanned: their records go to the lane when they can be read.

After a restart, a lane that was being split is not gated: the index is empty, and all its records are scanned into the
sub-lanes.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from itertools import groupby, islice
from typing import Final

import msgspec

from logbroker.errors import InvalidRequestError, LogbrokerError, quoted_key
from logbroker.queues.machine.parts import MachineParts
from logbroker.queues.machine.sessions import Sessions
from logbroker.queues.machine.stalled_lanes import HELD
from logbroker.queues.model.lane import GATED, NO_RECORD, READY, Lane
from logbroker.queues.model.lost_receipts import Loss
from logbroker.queues.model.record_id import Moment, offset_of, partition_of, record_id_of
from logbroker.queues.model.settings import Ordering, QueueGroupSettings
from logbroker.queues.model.splits import Keying, Split, already_split
from logbroker.queues.state.splits import Splits

KEYS_AT_ONCE: Final = 8
LAST_RECORDS: Final = 8_192
"""When a lane that is being split has only this many records left, the scan waits until they are moved. Otherwise the
lane of a key with very many new records would never be empty."""


class Moved(msgspec.Struct):
    """A record of a lane that is being split, for its sub-lane."""

    record_id: int
    sub_lane: bytes
    priority: int
    timestamp_ms: int


class Splitting:
    """The lanes of a queue group that are split, are being split, or are being joined."""

    def __init__(self, splits: Splits, parts: MachineParts, sessions: Sessions, settings: QueueGroupSettings) -> None:
        self._splits = splits
        self._lanes = parts.lanes
        self._stalled = parts.stalled
        self._admission = parts.admission
        self._done = parts.done
        self._sessions = sessions
        self._settings = settings
        self.is_changing = False
        """Whether lanes are being split or joined. If so, `step` is called at each tick and after each input."""
        self._unlooked = 0
        """Number of lanes that are being split or joined and that no `step` has examined since the last input."""
        self._opening: dict[bytes, None] = {}
        """Keys of lanes that may have records that are not moved to their sub-lanes yet."""
        self._joining: dict[bytes, int] = {}
        """Lanes that are being joined, by key, each with a number: the sub-lanes with lower numbers are known to stay
        empty."""
        self._behind: set[bytes] = set()
        """Lanes that are being joined although the scan has not reached the ends of their splits."""
        self.stopped: Container[int] = ()
        """Partitions that cannot be scanned now. The scan sets and changes it."""
        self.set_settings(settings)

    def load(self, ends: Mapping[int, int]) -> None:
        """Go on with the stored splits, on an empty index. `ends` are the ends of the partitions' logs: a join does not
        wait for records that were cut off."""
        for split in list(self._splits):
            if split.ends is not None and any(end > ends.get(partition, end) for partition, end in split.ends.items()):
                cut = {partition: min(end, ends.get(partition, end)) for partition, end in split.ends.items()}
                self._splits.put(msgspec.structs.replace(split, ends=cut))
        self._joining = {split.key: 0 for split in self._splits if split.ends is not None}
        self._lanes.gated.update(self._joining)
        self._set_keyings()

    # --- queries -----------------------------------------------------------------------------------------------------

    @property
    def is_finishing(self) -> bool:
        """Whether the scan has to wait for a lane that is nearly split, and whose records can be moved now."""
        return any(
            len(lane) <= LAST_RECORDS and self._stalled.read_failures.error_of(lane.head) is None
            for lane in map(self._movable, self._opening)
            if lane is not None
        )

    @property
    def lanes_under_way(self) -> int:
        """Number of lanes whose records are being moved to their sub-lanes, and can be read."""
        lanes = map(self._movable, self._opening)
        return sum(lane is not None and self._stalled.read_failures.error_of(lane.head) is None for lane in lanes)

    @property
    def awaited_records(self) -> int:
        """Number of records in lanes that go on only when the scan goes on."""
        return sum(len(lane) for lane in map(self._lanes.get, self._behind) if lane is not None)

    def state_of(self, key: bytes) -> str:
        """Return the state of a split lane, in one word."""
        return "splitting" if key in self._opening else "joining" if key in self._joining else "split"

    def waiting(self, split: Split) -> int:
        """Return the number of records in the sub-lanes of a split, without those that sessions have in flight."""
        return sum(len(lane) for lane in map(self._lanes.get, split.sub_lanes()) if lane is not None)

    # --- decisions ---------------------------------------------------------------------------------------------------

    def split(self, split: Split, now: Moment) -> None:
        """Split a lane from now on. If the lane is being joined, it is split again as it was.

        Raises InvalidRequestError if the lane is split already, or the split does not fit the queue group, and
        OverloadedError if there are too many splits.
        """
        split.check()
        split.second.check(self._settings.ordering.value, self._settings.key_header)
        if self._settings.ordering is Ordering.SINGLE and split.key:
            raise InvalidRequestError("the queue group has ordering single: its one lane has the empty key")
        known = self._splits.by_key.get(split.key)
        if known is not None and not (known.ends is not None and known.has_same_sub_lanes(split)):
            raise already_split(known)
        parked, lane = self._stalled.parked.get(split.key), self._lanes.get(split.key)
        if parked is not None and lane is not None and lane.head != parked.head:
            raise InvalidRequestError(
                f"key {quoted_key(split.key)} is parked, and a rewind has put earlier records in front of the one that"
                " failed: resume, skip or drop before you split it, since a split parks only that record's sub-lane"
            )
        if known is None:
            self._check_states(split)
        self._splits.check(split)
        self._splits.put(split)
        self._joining.pop(split.key, None)
        self._behind.discard(split.key)
        self._opening[split.key] = None
        self._gate(split.key, now)
        self._set_keyings()
        self.step(now)

    def _check_states(self, split: Split) -> None:
        """Raise InvalidRequestError if another key has the name of a sub-lane, and has a session or the state of one:
        sub-lanes begin without a state, and their states are deleted at the end of the split."""
        for sub_lane in split.sub_lanes():
            if self._sessions.get(sub_lane) is not None or self._sessions.state(sub_lane):
                raise InvalidRequestError(
                    f"key {quoted_key(sub_lane)} has a session, or the state of one, and a split of key"
                    f' {quoted_key(split.key)} would delete it: end the session and set its state to b"" first'
                )

    def join(self, key: bytes, now: Moment) -> None:
        """Undo the split of a lane: records in its sub-lanes stay there until they are done, and later records go to
        the lane. Does nothing if the sub-lanes are being joined already. Raises InvalidRequestError if the lane is not
        split."""
        split = self._splits.by_key.get(key)
        if split is None:
            raise InvalidRequestError(f"key {quoted_key(key)} is not split")
        if split.ends is not None:
            return
        ends = {partition: self._admission.position(partition) for partition in self._done.partitions()}
        self._splits.put(msgspec.structs.replace(split, ends=ends))
        self._opening.pop(key, None)
        self._joining[key] = 0
        self._gate(key, now)
        self._set_keyings()
        self.step(now)

    def _gate(self, key: bytes, now: Moment) -> None:
        """Gate a lane: none of its records is handed out any more."""
        lanes = self._lanes
        lanes.gated.add(key)
        lane = lanes.get(key)
        if lane is None:
            return
        if lane.state == READY:
            lanes.line.remove(lane)
            lane.state = GATED
        elif lane.state in HELD:
            self._stalled.suspend(lane, now)
            lane.state = GATED
            if lane.head == NO_RECORD:
                lanes.remove(lane)

    # --- moving records to sub-lanes ---------------------------------------------------------------------------------

    def _movable(self, key: bytes) -> Lane | None:
        """Return a lane that is being split if its records may be moved; None: it is empty, or has some in flight."""
        lane = self._lanes.get(key)
        return lane if lane is not None and lane.state == GATED and self._sessions.get(key) is None else None

    def next_key(self, now: Moment) -> bytes | None:
        """Return the key of a lane whose records are to be moved to its sub-lanes; None: there is none now."""
        for key in self._opening:
            lane = self._movable(key)
            if lane is not None and self._stalled.read_failures.due(lane.head) <= now.seconds:
                return key
        return None

    def next_try_in_seconds(self, now: Moment) -> float | None:
        """Return the time until the next record that could not be read is tried again; None: there is no such
        record."""
        failures, lanes = self._stalled.read_failures, map(self._movable, self._opening)
        dues = [due for lane in lanes if lane is not None and (due := failures.due(lane.head))]
        return max(0.0, min(dues) - now.seconds) if dues else None

    def next_records(self, key: bytes, count: int) -> list[int]:
        """Return about `count` first records of a lane that `next_key` returned."""
        lane = self._lanes.get(key)
        return [] if lane is None else self._lanes.first_records(lane, count)

    def move(self, split: Split, records: Sequence[Moved], now: Moment) -> None:
        """Move the first records of a lane to their sub-lanes. Does nothing if something has changed since
        `next_records`, for instance because the index was emptied."""
        lane = self._being_moved(split)
        if lane is None:
            return
        self._stalled.read_failures.forget_all((lane.head, *(record.record_id for record in records)))
        taken = self._lanes.take_out(lane, [record.record_id for record in records])
        for partition, group in groupby(records[: len(taken)], lambda record: partition_of(record.record_id)):
            run = list(group)
            self._admission.admit_to_lanes(
                self._settings,
                record_id_of(partition, 0),
                [offset_of(record.record_id) for record in run],
                [record.sub_lane for record in run],
                now,
                bytes(record.priority for record in run),
                [record.timestamp_ms for record in run],
            )
        self.step(now)

    def cannot_read(self, split: Split, error: LogbrokerError, now: Moment) -> bool:
        """Note that the first record of a lane cannot be read now; return whether this is new. Until it can be read or
        is gone, nothing knows its sub-lane. So the lane waits, since later records of this sub-lane must not overtake
        it."""
        lane = self._being_moved(split)
        if lane is None:
            return False
        is_new = self._stalled.read_failures.error_of(lane.head) is None
        self._stalled.note_unreadable(lane.head, error, now)
        return is_new

    def _being_moved(self, split: Split) -> Lane | None:
        """Return the lane of a split that is under way and has not changed, if its records may be moved."""
        is_current = split.key in self._opening and self._splits.by_key.get(split.key) is split
        return self._movable(split.key) if is_current else None

    # --- inputs ------------------------------------------------------------------------------------------------------

    def look_again(self) -> None:
        """Note an input to the queue, after which `step` has to examine each lane once more."""
        self._unlooked = len(self._opening) + len(self._joining)

    @property
    def has_unlooked(self) -> bool:
        """Whether `step` has to be called again, even if there is no further input."""
        return self.is_changing and self._unlooked > 0

    # --- steps -------------------------------------------------------------------------------------------------------

    def step(self, now: Moment) -> bool:
        """Finish splits whose lanes are empty, and joins whose sub-lanes are empty; return whether there were any. One
        call examines only a few lanes: call it again while `has_unlooked`."""
        has_changed = False
        self._unlooked -= min(len(self._opening), KEYS_AT_ONCE) + min(len(self._joining), KEYS_AT_ONCE)
        for key in list(islice(self._opening, KEYS_AT_ONCE)):
            del self._opening[key]
            if self._is_empty(key, now):
                self._lanes.gated.discard(key)
                has_changed = True
            else:
                self._opening[key] = None
        for key in list(islice(self._joining, KEYS_AT_ONCE)):
            number = self._joining.pop(key)
            split = self._splits.by_key[key]
            if not self._is_scanned(split):
                self._behind.add(key)
                self._joining[key] = 0
                continue
            self._behind.discard(key)
            number = self._first_left(split, number, now)
            if number < split.into:
                self._joining[key] = number
            else:
                self._joined(key, now)
                has_changed = True
        if has_changed:
            self._set_keyings()
        return has_changed

    def _joined(self, key: bytes, now: Moment) -> None:
        sub_lanes = self._splits.by_key[key].sub_lanes()
        for session in filter(None, map(self._sessions.get, sub_lanes)):
            self._sessions.end(session, Loss.REARRANGED, now)
        self._sessions.forget_states(sub_lanes)
        self._splits.remove(key)
        self._lanes.gated.discard(key)
        lane = self._lanes.get(key)
        if lane is not None and lane.state == GATED:
            self._stalled.enter(lane, now)

    def _is_empty(self, key: bytes, now: Moment) -> bool:
        """Return whether a lane has no records, waiting or in flight. End its session if that has none in flight."""
        session = self._sessions.get(key)
        if session is not None:
            if session.in_flight:
                return False
            self._sessions.end(session, Loss.REARRANGED, now)
        return self._lanes.get(key) is None

    def _is_scanned(self, split: Split) -> bool:
        """Return whether the scan has reached the ends of a split that is undone, as far as it can."""
        return all(
            partition in self.stopped or (self._done.is_open(partition) and self._admission.position(partition) >= end)
            for partition, end in (split.ends or {}).items()
        )

    def _first_left(self, split: Split, number: int, now: Moment) -> int:
        """Return the number of the first sub-lane, from `number` on, that has records; the number of sub-lanes if there
        is none."""
        while number < split.into:
            sub_lane = split.sub_lane(number)
            if self._lanes.get(sub_lane) is not None or not self._is_empty(sub_lane, now):
                break
            number += 1
        return number

    # --- changes of the index and the settings -----------------------------------------------------------------------

    def index_emptied(self) -> None:
        """Note that the index was emptied: the records of lanes that were being split will be scanned into the
        sub-lanes."""
        self._lanes.gated.difference_update(self._opening)
        self._opening.clear()
        self._joining = dict.fromkeys(self._joining, 0)
        self._set_keyings()

    def forget_all(self) -> None:
        """Forget all splits, because the lanes get other keys. The index must be empty."""
        for key, split in list(self._splits.by_key.items()):
            self._sessions.forget_states(split.sub_lanes())
            self._splits.remove(key)
        self._opening.clear()
        self._joining.clear()
        self._behind.clear()
        self._lanes.gated.clear()
        self._set_keyings()

    def set_settings(self, settings: QueueGroupSettings) -> None:
        self._settings = settings
        self._set_keyings()

    def _set_keyings(self) -> None:
        """Set `keying` (the lanes that the records of the log belong to) and `scan_keying` (the lanes that the scan
        puts them into). If nothing has changed, the objects stay the same."""
        self.is_changing = bool(self._opening or self._joining)
        splits = dict(self._splits.by_key)
        scanned = {key: split for key, split in splits.items() if key not in self._opening} if self._opening else splits
        self.keying = self._keying(getattr(self, "keying", None), splits)
        self.scan_keying = self._keying(getattr(self, "scan_keying", None), scanned)

    def _keying(self, known: Keying | None, splits: Mapping[bytes, Split]) -> Keying:
        ordering, key_header = self._settings.ordering, self._settings.key_header
        if known is not None and (known.ordering, known.key_header, known.splits) == (ordering, key_header, splits):
            return known
        return Keying(ordering, key_header, splits)
