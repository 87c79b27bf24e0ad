"""The stored splits of a queue group's lanes.

row      key    b"x" BLAKE2b of the lane key (16)
         value  msgpack array, the fields of `Split` in their order
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from logbroker.errors import InvalidRequestError, OverloadedError, quoted_key
from logbroker.queues.model.splits import Split
from logbroker.queues.state.change_set import ChangedRows, ChangeSet
from logbroker.queues.state.rows import SPLIT_ROW, decode, hashed_key

MAX_SPLITS: Final = 1_000
"""Maximum number of split lanes of a queue group."""
MAX_SUB_LANES_OF_GROUP: Final = 50_000
"""Maximum number of sub-lanes of all these lanes. A sub-lane takes about 200 bytes, empty or not."""


class Splits:
    """The splits of a queue group by lane key, and the sub-lanes that they have."""

    def __init__(self, changes: ChangeSet) -> None:
        self.by_key: dict[bytes, Split] = {}
        """Read-only for other classes."""
        self._keys: dict[bytes, bytes] = {}
        """Keys of split lanes by the keys of their sub-lanes."""
        self._rows = ChangedRows(changes, partial(hashed_key, SPLIT_ROW), self.by_key.get)

    def load(self, rows: Mapping[bytes, bytes]) -> None:
        """Load the stored splits. Raises CorruptLogError."""
        for key, value in rows.items():
            if key.startswith(SPLIT_ROW):
                split = decode(key, value, Split)
                self._rows.load(split.key)
                self._put(split)

    def __iter__(self) -> Iterator[Split]:
        return iter(self.by_key.values())

    def __len__(self) -> int:
        return len(self.by_key)

    def lane_of(self, key: bytes) -> bytes:
        """Return the key of the split lane to which a sub-lane belongs. Any other key is returned as it is."""
        return self._keys.get(key, key)

    def check(self, split: Split) -> None:
        """Raise OverloadedError if there are too many splits or sub-lanes, or InvalidRequestError if the lane is a
        sub-lane of another one, or one of its sub-lanes would be a split lane."""
        if len(self.by_key) >= MAX_SPLITS and split.key not in self.by_key:
            raise OverloadedError(f"{MAX_SPLITS:,} lanes of the queue group are split: undo some of these splits first")
        if len(self._keys) + split.into > MAX_SUB_LANES_OF_GROUP and split.key not in self.by_key:
            raise OverloadedError(
                f"the queue group has {len(self._keys):,} sub-lanes, and may have {MAX_SUB_LANES_OF_GROUP:,}: undo some"
                " splits first, or split into fewer"
            )
        if split.key in self._keys:
            raise InvalidRequestError(
                f"{quoted_key(split.key)} is a sub-lane of {quoted_key(self._keys[split.key])}: split that key into"
                " more sub-lanes"
            )
        for sub_lane in split.sub_lanes():
            if sub_lane in self.by_key or self._keys.get(sub_lane, split.key) != split.key:
                raise InvalidRequestError(
                    f"{quoted_key(sub_lane)}, which would be a sub-lane of {quoted_key(split.key)}, is a split lane or"
                    " belongs to one"
                )

    def put(self, split: Split) -> None:
        """Add a split, or replace the split of the same lane. The sub-lanes must stay the same."""
        self._put(split)
        self._rows.changed(split.key)

    def remove(self, key: bytes) -> None:
        for sub_lane in self.by_key.pop(key).sub_lanes():
            del self._keys[sub_lane]
        self._rows.changed(key)

    def _put(self, split: Split) -> None:
        self.by_key[split.key] = split
        self._keys.update(dict.fromkeys(split.sub_lanes(), split.key))
