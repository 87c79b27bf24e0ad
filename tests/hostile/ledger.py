"""Hostile requests that the broker acknowledged, compared with what it has in the end.

The request is read here by protobuf's own parser, the broker reads it with another: where they disagree, what was
acknowledged is not what is stored, or was never a request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from google.protobuf.message import DecodeError

from logbroker.record.codec import decode_batch, split_batches
from logbroker.record.header import PREFIX_BYTES
from logbroker.v1 import log_pb2 as log
from logbroker.v1.common_pb2 import Record

Place = tuple[str, int, int]
"""Topic, partition, offset."""
Pair = tuple[bytes | None, bytes | None]
"""Key and value."""


class Ledger:
    """Acknowledged batches and records of the topics that nobody alters or deletes."""

    def __init__(self, topics: Mapping[str, bytes]) -> None:
        self._names: Final = {topic_id: name for name, topic_id in topics.items()}
        self._topics = topics
        self._batches: dict[Place, bytes] = {}
        """Without the bytes that the broker replaces."""
        self._pairs: dict[Place, Pair] = {}

    @property
    def acknowledged(self) -> int:
        return len(self._batches) + len(self._pairs)

    def note(self, message: bytes, response: log.ProduceResponse) -> None:
        """Compare a response with its request, and keep what was acknowledged."""
        if not any(_is_taken(result) for result in response.results):
            return
        try:
            request = log.ProduceRequest.FromString(message)
        except DecodeError:
            raise AssertionError("the broker appended from bytes that protobuf refuses") from None
        assert len(request.items) == len(response.results), "not one result per item"
        for item, result in zip(request.items, response.results, strict=True):
            name = self._names.get(item.topic_id) if item.topic_id else item.topic
            if name is not None and name in self._topics:
                self._note_item(name, item, result)

    def _note_item(self, topic: str, item: log.ProduceItem, result: log.ProduceResult) -> None:
        if result.placements:
            assert len(result.placements) == len(item.records.records), "not one placement per record"
            for record, placement in zip(item.records.records, result.placements, strict=True):
                if not placement.status.code:
                    self._put((topic, placement.partition, placement.offset), _pair(record))
        elif not result.status.code and not result.duplicate:
            assert result.partition == item.partition, "appended to another partition"
            if item.WhichOneof("data") == "batch":
                place = topic, result.partition, result.base_offset
                assert place not in self._batches, f"{place} was given away twice"
                self._batches[place] = item.batch[PREFIX_BYTES:]
            else:
                for number, record in enumerate(item.records.records):
                    self._put((topic, result.partition, result.base_offset + number), _pair(record))

    def _put(self, place: Place, pair: Pair) -> None:
        assert place not in self._pairs, f"{place} was given away twice"
        self._pairs[place] = pair

    def check(self, topic: str, partition: int, batches: Iterable[bytes]) -> None:
        """Compare a partition's whole content, as it was fetched, with what was acknowledged of it."""
        next_offset = 0
        for chunk in batches:
            for header, batch in split_batches(chunk):
                base_offset = header.base_offset
                assert base_offset == next_offset, f"{topic}-{partition}: {base_offset} follows, not {next_offset}"
                next_offset = header.next_offset
                sent = self._batches.pop((topic, partition, base_offset), None)
                if sent is not None:
                    assert batch[PREFIX_BYTES:] == sent, f"{topic}-{partition}: another batch at {base_offset}"
                elif (topic, partition, base_offset) in self._pairs:
                    for record in decode_batch(batch):
                        pair = self._pairs.pop((topic, partition, record.offset), None)
                        assert pair in (None, (record.key, record.value)), f"{topic}-{partition}: at {record.offset}"

    def check_nothing_is_left(self) -> None:
        left = [*self._batches, *self._pairs]
        assert not left, f"{len(left)} acknowledged are not there: {left[:5]}"


def _is_taken(result: log.ProduceResult) -> bool:
    return not result.status.code or any(not placement.status.code for placement in result.placements)


def _pair(record: Record) -> Pair:
    return (record.key if record.HasField("key") else None, record.value if record.HasField("value") else None)
