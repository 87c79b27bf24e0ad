"""A consumer delivers nothing behind a place where what the broker sent does not go on."""

from __future__ import annotations

from typing import Final

import pytest

from logbroker.client.consumer.cursor import Cursor
from logbroker.client.consumer.fetcher import Assigned, Chunk
from logbroker.errors import CorruptLogError
from logbroker.record.codec import NewRecord, encode_batch
from logbroker.types import TopicId, TopicPartition

START: Final = 1 << 20


def batch_at(offset: int, records: int = 3) -> bytes:
    batch = encode_batch([NewRecord(b"%d" % (offset + number)) for number in range(records)])
    return (offset % (1 << 64)).to_bytes(8, "big") + batch[8:]


def chunk_of(*offsets: int, next_offset: int | None = None, position: int = START, gaps_below: int | None = 0) -> Chunk:
    """Batches of three records at these offsets, for a consumer at a position."""
    assigned = Assigned(TopicPartition("t", 0), TopicId(b""), position, position)
    end = offsets[-1] + 3 if next_offset is None else next_offset
    return Chunk(assigned, 0, b"".join(map(batch_at, offsets)), end, gaps_below=gaps_below)


def delivered(chunk: Chunk) -> list[int]:
    """The offsets that are delivered of a chunk. Raises what ends it; then the position is behind the last of them."""
    cursor = Cursor(1 << 20)
    cursor.take(chunk)
    found: list[int] = []
    try:
        while cursor.advance():
            found += (record.offset for record in cursor.records)
    except CorruptLogError:
        assert chunk.assigned.position == (found[-1] + 1 if found else START)
        raise
    return found


def test_what_goes_on_is_delivered() -> None:
    assert delivered(chunk_of(START, START + 3)) == [START + number for number in range(6)]
    # The batch that holds the position comes whole.
    assert delivered(chunk_of(START - 2, START + 1)) == [START + number for number in range(4)]


@pytest.mark.parametrize("batch", range(3))
def test_every_flipped_bit_of_an_offset_ends_the_delivery(batch: int) -> None:
    for bit in range(64):
        offsets = [START, START + 3, START + 6]
        offsets[batch] ^= 1 << bit
        if batch == 0 and START - 3 < offsets[0] <= START:
            continue  # It could be a batch in whose middle the consumer begins: no reader can tell, the broker can.
        with pytest.raises(CorruptLogError, match=f"where {START + 3 * batch} comes next"):
            delivered(chunk_of(*offsets, next_offset=START + 9))


@pytest.mark.parametrize("next_offset", [0, START + 2, START + 4, 1 << 40])
def test_an_end_that_is_not_that_of_the_last_batch_ends_the_delivery(next_offset: int) -> None:
    with pytest.raises(CorruptLogError, match=f"offset {next_offset} where {START + 3} comes next"):
        delivered(chunk_of(START, next_offset=next_offset))


def test_a_gap_is_passed_where_the_broker_says_that_there_are_some() -> None:
    with_gaps = (START + 10, START + 20)
    expected = [offset + number for offset in with_gaps for number in range(3)]
    assert delivered(chunk_of(*with_gaps, gaps_below=START + 21)) == expected
    with pytest.raises(CorruptLogError, match=f"offset {START + 20} where {START + 13} comes next"):
        delivered(chunk_of(*with_gaps, gaps_below=START + 20))
    with pytest.raises(CorruptLogError):
        delivered(chunk_of(START + 10, START + 9, gaps_below=1 << 40))


def test_a_position_that_the_consumer_moves_itself_is_followed() -> None:
    for offset in (0, START + 100):
        chunk = chunk_of(gaps_below=None, next_offset=offset)
        assert delivered(chunk) == []
        assert chunk.assigned.position == offset


def test_a_batch_that_was_open_at_a_move_is_not_delivered_again() -> None:
    """Where another generation is to be read, the reader is moved to its position, at the beginning of the open batch,
    which is delivered to its end all the same."""
    before = chunk_of(START, START + 3)
    assigned, cursor = before.assigned, Cursor(1 << 20)
    cursor.take(before)
    assert cursor.advance()
    assert next(cursor.records).offset == START
    assigned.version += 1
    assert [record.offset for record in cursor.records] == [START + 1, START + 2]
    assert not cursor.advance()  # The rest of that chunk is from before the move.
    again = [
        Chunk(assigned, assigned.version, batch_at(START), START + 3, gaps_below=0),
        Chunk(assigned, assigned.version, batch_at(START + 3), START + 6, gaps_below=0),
    ]
    found: list[int] = []
    for chunk in again:
        cursor.take(chunk)
        while cursor.advance():
            found += (record.offset for record in cursor.records)
    assert found == [START + 3, START + 4, START + 5]
    assert assigned.position == START + 6


def test_chunks_that_end_below_the_position_do_not_move_it_back() -> None:
    before = chunk_of(START, next_offset=START + 3)
    assigned, cursor = before.assigned, Cursor(1 << 20)
    cursor.take(before)
    assert cursor.advance()
    assigned.version += 1
    assert len(list(cursor.records)) == 3
    cursor.take(Chunk(assigned, assigned.version, b"", START + 1, gaps_below=0))
    assert not cursor.advance()
    assert assigned.position == START + 3
    cursor.take(Chunk(assigned, assigned.version, batch_at(START + 3), START + 6, gaps_below=0))
    assert cursor.advance()
    assert not list(cursor.records)[3:]
    # From here on nothing is from before the move: what begins below is the broker's fault.
    assert not cursor.advance()
    cursor.take(Chunk(assigned, assigned.version, batch_at(START + 3), START + 6, gaps_below=0))
    with pytest.raises(CorruptLogError):
        cursor.advance()
