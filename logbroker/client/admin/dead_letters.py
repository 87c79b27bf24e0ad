"""Dead letters that can be sent back, read from the dead-letter topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from logbroker.client.consumer.cursor import Record
from logbroker.client.runtime.arguments import check_bounds
from logbroker.client.transport.connection import Connection
from logbroker.client.transport.status import error_of_item
from logbroker.errors import OffsetOutOfRangeError
from logbroker.record.codec import decode_batch, split_batches
from logbroker.types import TopicId
from logbroker.v1 import log_pb2, queues_pb2

MAX_LETTERS: Final = 1000
"""Maximum number of letters in a list. The broker lists no more."""


class LetterList(NamedTuple):
    """Dead letters that were not sent back, in the order in which `redrive` would send them."""

    letters: list[Record]
    """The records of the dead-letter topic, with the headers that tell where they come from and why they failed."""
    more: bool
    """Whether there are other letters that can be read."""
    held: int = 0
    """Number of letters that are left out because they, or an earlier letter of the same key, cannot be read. Letters
    in a partition that is offline are not counted."""
    why_held: str = ""
    """Reason why letters are left out or a part of the dead-letter topic cannot be read, and the remedy; "" if all of
    it can be read."""


async def list_letters(connection: Connection, group: str, key: bytes | None, max_records: int) -> LetterList:
    """Return up to `max_records` dead letters of a queue group that were not sent back."""
    check_bounds(1, MAX_LETTERS, max_records=max_records)
    request = queues_pb2.RedriveRequest(group_id=group, key=key, dry_run=True, max_records=max_records)
    answer: queues_pb2.RedriveResponse = await connection.unary("Redrive", request)
    places = [(place.partition, place.offset) for place in answer.letters]
    found: dict[tuple[int, int], Record] = {}
    for partition in sorted({partition for partition, _ in places}):
        offsets = [offset for each, offset in places if each == partition]
        for record in await _read(connection, TopicId(answer.until.topic_id), partition, offsets):
            found[partition, record.offset] = record
    letters = [found[place] for place in places if place in found]
    return LetterList(letters, answer.more, answer.held, answer.why_held)


async def _read(connection: Connection, topic_id: TopicId, partition: int, offsets: Sequence[int]) -> list[Record]:
    """Return the records at these offsets, without those that retention has removed meanwhile."""
    found: list[Record] = []
    left = set(offsets)
    while left:
        first = min(left)
        item = log_pb2.FetchItem(topic_id=topic_id, partition=partition, offset=first)
        # `max_bytes=1` requests one batch: the first batch of an answer is sent whole, however large it is.
        response = await connection.unary("Fetch", log_pb2.FetchRequest(items=[item], max_bytes=1))
        (result,) = response.results
        error = error_of_item(result.status)
        if error is not None and not isinstance(error, OffsetOutOfRangeError):
            raise error
        for _, batch in split_batches(result.batches):
            found += [
                Record(
                    result.topic,
                    partition,
                    each.offset,
                    each.timestamp_ms,
                    each.key,
                    each.value,
                    each.headers,
                    topic_id,
                )
                for each in decode_batch(batch)
                if each.offset in left
            ]
        left -= {record.offset for record in found} | {first}
    return found
