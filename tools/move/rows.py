"""The rows of a group as they are on the cluster. Offsets stay what they are; ids of topics are the cluster's.

Rows that name producers of dead letters are left out: the group gets new producers, as after the restore of a backup.
A committed offset loses its leader epoch, because the cluster counts its own ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from logbroker.consumer_groups.classic.rows import is_classic
from logbroker.consumer_groups.offsets import OFFSET_ROW, Committed
from logbroker.consumer_groups.rows import HEADER_ROW as GROUP_ROW
from logbroker.consumer_groups.rows import MEMBER_ROW, decode_group, encode_row
from logbroker.errors import CorruptLogError, DataDirError
from logbroker.queues.model.settings import GROUP_TYPE
from logbroker.queues.state import rows as queue
from logbroker.types import TopicId

Ids = Mapping[bytes, TopicId]
"""The ids of the topics on the cluster, by their ids in the data directory."""

_ID_BYTES: Final = 16
_UNFINISHED: Final = {
    queue.INTENT_ROW: "dead letters on their way to their topic",
    queue.OUTPUT_ROW: "outputs on their way to other topics",
    queue.ROUND_ROW: "redriven letters on their way back",
}
_AS_THEY_ARE: Final = frozenset(
    (
        queue.SETTINGS_ROW,
        queue.HANDED_ROW,
        queue.FLOOR_ROW,
        queue.PAGE_ROW,
        queue.FAILURE_ROW,
        queue.PARKED_ROW,
        queue.COPIES_ROW,
        queue.SEQUENCE_ROW,
        queue.REPLACEMENT_ROW,
        queue.SESSION_ROW,
        queue.STATE_ROW,
        queue.ORIGIN_ROW,
        queue.SPLIT_ROW,
    )
)


def moved_rows(group_id: str, group_type: str, rows: Mapping[bytes, bytes], ids: Ids) -> dict[bytes, bytes]:
    """Return the rows of a group for a cluster. Raises DataDirError if the group cannot be moved now, or
    CorruptLogError."""
    try:
        if group_type == GROUP_TYPE:
            return _queue_rows(group_id, rows, ids)
        return _consumer_rows(group_id, rows, ids)
    except msgspec.MsgspecError as error:
        raise CorruptLogError(f"a row of group {group_id} cannot be read: {error}") from None


def _consumer_rows(group_id: str, rows: Mapping[bytes, bytes], ids: Ids) -> dict[bytes, bytes]:
    members = {} if is_classic(rows) else decode_group(rows)[1]
    moved: dict[bytes, bytes] = {}
    for key, value in rows.items():
        kind = key[:1]
        if kind == OFFSET_ROW:
            topic_id = ids.get(key[1 : 1 + _ID_BYTES])
            if topic_id is not None:  # Else the topic was deleted.
                committed = msgspec.msgpack.decode(value, type=Committed)
                moved[OFFSET_ROW + topic_id + key[1 + _ID_BYTES :]] = encode_row(
                    msgspec.structs.replace(committed, leader_epoch=-1)
                )
        elif kind == MEMBER_ROW and members:
            row = members[key[1:].decode()]
            held: list[tuple[bytes, list[int]]] = [(ids[each], parts) for each, parts in row.held if each in ids]
            moved[key] = encode_row(msgspec.structs.replace(row, held=held))
        elif kind in (GROUP_ROW, MEMBER_ROW):
            moved[key] = value
        else:
            raise _unknown(group_id, key)
    return moved


def _queue_rows(group_id: str, rows: Mapping[bytes, bytes], ids: Ids) -> dict[bytes, bytes]:
    moved: dict[bytes, bytes] = {}
    for key, value in rows.items():
        kind = key[:1]
        if kind in _UNFINISHED:
            raise DataDirError(
                f"queue group {group_id} has {_UNFINISHED[kind]}: start the broker, wait until they are there"
                " (logbroker queue describe), and stop it, then move the directory"
            )
        if kind in _AS_THEY_ARE:
            moved[key] = value
        elif kind == queue.HEADER_ROW:
            header = queue.decode_header(value)
            if header.topic_id not in ids:
                raise CorruptLogError(f"the topic of queue group {group_id} does not exist")
            moved[key] = queue.encode(msgspec.structs.replace(header, topic_id=ids[header.topic_id]))
        elif kind == queue.COPIES_TOPIC_ROW:
            if value in ids:
                moved[key] = ids[value]
        elif kind in (queue.PROGRESS_ROW, queue.ROOM_ROW):
            # The value is an array that begins with the id; the key of progress ends with it, but for older rows.
            old_id, *others = msgspec.msgpack.decode(value, type=list[Any])
            if old_id in ids:
                new_key = key[:-_ID_BYTES] + ids[old_id] if key.endswith(old_id) else key
                moved[new_key] = queue.encode([ids[old_id], *others])
        elif kind != queue.PRODUCER_ROW:
            raise _unknown(group_id, key)
    return moved


def _unknown(group_id: str, key: bytes) -> CorruptLogError:
    return CorruptLogError(f"group {group_id} has a row under key {key.hex()}, which this version does not know")
