"""Splits hot lanes, and joins their sub-lanes when these are calm, by the settings `split_*` of the queue group."""

from __future__ import annotations

from logbroker.errors import InvalidRequestError, OverloadedError
from logbroker.queues.machine.queue import Queue
from logbroker.queues.machine.stalled_lanes import HELD
from logbroker.queues.model.lane import BLOCKED, CHUNK_RECORDS, PARKED, Lane
from logbroker.queues.model.record_id import Moment
from logbroker.queues.model.second_key import SecondKey
from logbroker.queues.model.splits import Split
from logbroker.queues.state.splits import MAX_SPLITS


class HotLanes:
    """Watches the lanes of one queue group. `Splitter.watch` calls `look` every second or so."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._hot: dict[bytes, float] = {}
        """Time (monotonic, s) since which a lane is hot, by key."""
        self._calm: dict[bytes, float] = {}
        """Time (monotonic, s) since which the sub-lanes of an automatic split are calm, by key of the lane."""
        self._refusals: dict[bytes, str] = {}
        """Why hot lanes cannot be split, by key."""

    @property
    def has_work(self) -> bool:
        """Whether lanes may have to be split or joined."""
        return bool(self._queue.settings.split_by) or any(split.is_automatic for split in self._queue.splits)

    def look(self, now: Moment) -> tuple[list[Split], list[Split], list[tuple[bytes, str]]]:
        """Split the lanes that have been hot for long enough, and join those that have been calm. Return the splits
        that were made, those that are being undone, and the keys that cannot be split, with the reasons; each reason is
        returned once."""
        settings = self._queue.settings
        hot = [lane.key for lane in self._queue.lanes.successors.long_lanes() if self._is_hot(lane)]
        self._hot = {key: self._hot.get(key, now.seconds) for key in hot if key is not None}
        calm = [split for split in self._queue.splits if self._is_calm(split)]
        self._calm = {split.key: self._calm.get(split.key, now.seconds) for split in calm}
        made: list[Split] = []
        told, self._refusals = self._refusals, {}
        for key, since in self._hot.items():
            if now.seconds - since >= settings.split_age_seconds:
                split = self._split_of(key, now)
                try:
                    self._queue.splitting.split(split, now)
                except (InvalidRequestError, OverloadedError) as error:
                    self._refusals[key] = error.message
                    continue
                made.append(split)
        undone = [split for split in calm if now.seconds - self._calm[split.key] >= settings.split_age_seconds]
        for split in undone:
            self._queue.splitting.join(split.key, now)
        refused = [(key, why) for key, why in self._refusals.items() if told.get(key) != why]
        return made, undone, refused

    def _split_of(self, key: bytes, now: Moment) -> Split:
        """Return the split for a hot lane. A lane that is being joined is split as before, because its sub-lanes have
        records."""
        settings, known = self._queue.settings, self._queue.splits.by_key.get(key)
        if known is not None:
            return Split(key, known.second, known.into, now.wall_ms, is_automatic=True)
        return Split(key, SecondKey.parse(settings.split_by), settings.split_into, now.wall_ms, is_automatic=True)

    def _is_hot(self, lane: Lane) -> bool:
        queue = self._queue
        settings, splits = queue.settings, queue.splits
        if not settings.split_by or lane.key is None or len(splits) >= MAX_SPLITS:
            return False
        if lane.state in (BLOCKED, PARKED):
            return False  # An operator decides about it.
        known = splits.by_key.get(lane.key)
        if known is not None and (known.ends is None or not known.is_automatic):
            return False
        if splits.lane_of(lane.key) != lane.key:
            return False
        return len(lane) > max(CHUNK_RECORDS, settings.split_share * queue.open_records)

    def _is_calm(self, split: Split) -> bool:
        if not split.is_automatic or self._queue.splitting.state_of(split.key) != "split":
            return False
        lanes = [lane for lane in map(self._queue.lanes.get, split.sub_lanes()) if lane is not None]
        # If the lane were joined while one of its sub-lanes is stalled, the whole lane would wait for that sub-lane.
        return sum(map(len, lanes)) <= split.into and not any(lane.state in HELD for lane in lanes)
