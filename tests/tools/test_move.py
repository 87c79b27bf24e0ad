"""The parts of `logbroker move` that need no cluster: the directory that it reads, and the rows of groups. The move
itself runs in tests/cluster/test_move.py."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from logbroker.client.sync import Admin, Producer
from logbroker.consumer_groups.classic.rows import classic_group_row
from logbroker.consumer_groups.offsets import Committed, offset_key
from logbroker.consumer_groups.rows import HEADER_ROW, MemberRow, decode_group, encode_row, group_row, member_key
from logbroker.embedded_broker import embedded
from logbroker.errors import CorruptLogError, DataDirError, LogbrokerError
from logbroker.queues.state import rows as queue
from logbroker.record.codec import decode_batch
from logbroker.record.header import parse_header
from logbroker.tools.move.move import MovePlan, plan_move
from logbroker.tools.move.rows import moved_rows
from logbroker.tools.move.source import open_source
from logbroker.types import TopicId, TopicPartition, new_topic_id
from tests.tools.segment_files import batch_positions, flip_bit, stored_batch

OLD, NEW = new_topic_id(), new_topic_id()
DEAD_OLD, DEAD_NEW = new_topic_id(), new_topic_id()
DELETED = new_topic_id()
IDS: dict[bytes, TopicId] = {OLD: NEW, DEAD_OLD: DEAD_NEW}


def nothing(_bytes: int) -> None:
    pass


# --- the directory ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose broker has stopped cleanly."""
    directory = tmp_path_factory.mktemp("made") / "data"
    with embedded(directory) as broker, Admin(broker.address) as admin, Producer(broker.address) as producer:
        admin.create_topic("t", 1)
        admin.create_topic("stamped", 1, configs={"message.timestamp.type": "LogAppendTime"})
        for number in range(5):
            for part in range(4):
                producer.send("t", b"%d %d" % (number, part))
            producer.flush()
        producer.send_and_wait("stamped", b"s", timestamp_ms=1000)
        admin.delete_records({TopicPartition("t", 0): 6})
    return directory


@pytest.fixture
def stopped(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "data")
    return tmp_path / "data"


def plan_of(directory: Path) -> MovePlan:
    with open_source(directory) as source:
        return plan_move(source, nothing)


def values(directory: Path, topic: str, offset: int = 0) -> Iterator[tuple[int, bytes | None, int]]:
    with open_source(directory) as source:
        plan_move(source, nothing)
        [topic_id] = [each.id for each in source.topics if each.name == topic]
        for header, batch in source.partitions[topic_id][0].batches(offset, nothing):
            assert not parse_header(batch).is_log_append_time  # No cluster takes such a batch.
            for index, record in enumerate(decode_batch(batch)):
                yield header.base_offset + index, record.value, record.timestamp_ms


def log_of(directory: Path) -> Path:
    [log] = directory.glob("t-0/*.log")
    return log


def test_the_batches_from_the_log_start_on_are_read(stopped: Path) -> None:
    every = [(4 * number + part, b"%d %d" % (number, part)) for number in range(5) for part in range(4)]
    found = [(offset, value) for offset, value, _ in values(stopped, "t")]
    assert 1 <= len(found) - len(every[6:]) < 4  # The log starts within a batch.
    assert found == every[-len(found) :]
    assert [offset for offset, *_ in values(stopped, "t", 18)][-1] == 19
    assert not list(values(stopped, "t", 20))
    plan = plan_of(stopped)
    assert [(topic.name, topic.partitions, topic.records) for topic in plan.topics] == [("stamped", 1, 1), ("t", 1, 14)]


def test_records_with_append_time_keep_the_time_that_readers_see(stopped: Path) -> None:
    [(_, value, timestamp_ms)] = values(stopped, "stamped")
    assert value == b"s"
    assert timestamp_ms > 1_000_000_000_000


def test_a_missing_directory_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(DataDirError, match="there is no data directory"):
        plan_of(tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.prove
def test_a_directory_in_use_or_not_stopped_cleanly_is_refused(stopped: Path) -> None:
    with embedded(stopped) as broker:
        with pytest.raises(DataDirError, match="in use by another broker"):
            plan_of(stopped)
        broker.kill()
    with pytest.raises(DataDirError, match="did not stop cleanly"):
        plan_of(stopped)


def cut(directory: Path) -> None:
    log = log_of(directory)
    log.write_bytes(log.read_bytes()[: batch_positions(log)[-1]])


def leave_a_gap(directory: Path) -> None:
    log = log_of(directory)
    content, positions = log.read_bytes(), batch_positions(log)
    log.write_bytes(content[: positions[-2]] + content[positions[-1] :])


def remove_the_log(directory: Path) -> None:
    shutil.rmtree(directory / "t-0")


def begin_a_transaction(directory: Path) -> None:
    log_of(directory).write_bytes(stored_batch(0, [b""] * 20, attributes=0x10))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut, "should end at offset 20"),
        (leave_a_gap, r"offsets \d+ to \d+ are missing"),
        (remove_the_log, "should end at offset 20"),
        (begin_a_transaction, "is of a transaction"),
    ],
)
def test_a_partition_that_is_not_whole_is_refused(stopped: Path, damage: object, words: str) -> None:
    assert callable(damage)
    damage(stopped)
    with pytest.raises(LogbrokerError, match=words):
        plan_of(stopped)


def test_a_damaged_record_ends_the_move(stopped: Path) -> None:
    flip_bit(log_of(stopped), 8 * (log_of(stopped).stat().st_size - 2))
    with pytest.raises(CorruptLogError, match="its CRC-32C does not match"):
        list(values(stopped, "t"))


# --- rows -------------------------------------------------------------------------------------------------------------


def test_the_rows_of_a_consumer_group_name_the_topics_of_the_cluster() -> None:
    committed = Committed(17, 4, "text", 1000)
    member = MemberRow(1, "", 3, ("t",), "", 1, 2, 3, "client", 5, 5, [(OLD, [0, 2]), (DELETED, [1])])
    header = encode_row(group_row(epoch=5, assignor="sticky", empty_since_ms=-1, growth_order="key"))
    rows = {
        HEADER_ROW: header,
        member_key("m"): encode_row(member),
        offset_key(OLD, 2): encode_row(committed),
        offset_key(DELETED, 0): encode_row(committed),
    }
    moved = moved_rows("g", "consumer", rows, IDS)
    assert moved.keys() == {HEADER_ROW, member_key("m"), offset_key(NEW, 2)}
    assert moved[HEADER_ROW] == header
    assert decode_group(moved)[1] == {"m": msgspec.structs.replace(member, held=[(NEW, [0, 2])])}
    # The cluster counts its own leader epochs.
    assert msgspec.msgpack.decode(moved[offset_key(NEW, 2)], type=Committed) == Committed(17, -1, "text", 1000)


def test_the_members_of_a_classic_group_stay_as_they_are() -> None:
    header = classic_group_row(
        generation=3, protocol_type="consumer", empty_since_ms=-1, protocol="range", leader_id="m", is_assigned=True
    )
    rows = {HEADER_ROW: encode_row(header), member_key("m"): b"anything", offset_key(OLD, 0): encode_row((1, 0, "", 0))}
    moved = moved_rows("g", "consumer", rows, IDS)
    assert moved.keys() == {HEADER_ROW, member_key("m"), offset_key(NEW, 0)}
    assert moved[member_key("m")] == b"anything"


def queue_rows() -> dict[bytes, bytes]:
    partition = (0).to_bytes(4, "big")
    return {
        queue.HEADER_ROW: queue.encode(queue.HeaderRow(1, "queue", OLD, 77)),
        queue.FLOOR_ROW + partition: queue.encode(12),
        queue.COPIES_TOPIC_ROW: DEAD_OLD,
        queue.PROGRESS_ROW + partition + DEAD_OLD: queue.encode((DEAD_OLD, 5, [6], [])),
        queue.PROGRESS_ROW + partition + DELETED: queue.encode((DELETED, 5, [], [])),
        queue.ROOM_ROW: queue.encode((DEAD_OLD, (100,))),
        queue.PRODUCER_ROW + partition: queue.encode((DEAD_OLD, 4711, 0, 3)),
        queue.SEQUENCE_ROW + partition: queue.encode(9),
    }


def test_the_rows_of_a_queue_group_name_the_topics_of_the_cluster_and_no_producer() -> None:
    rows, partition = queue_rows(), (0).to_bytes(4, "big")
    moved = moved_rows("g", "queue", rows, IDS)
    assert moved == {
        queue.HEADER_ROW: queue.encode(queue.HeaderRow(1, "queue", NEW, 77)),
        queue.FLOOR_ROW + partition: rows[queue.FLOOR_ROW + partition],
        queue.COPIES_TOPIC_ROW: DEAD_NEW,
        queue.PROGRESS_ROW + partition + DEAD_NEW: queue.encode((DEAD_NEW, 5, [6], [])),
        queue.ROOM_ROW: queue.encode((DEAD_NEW, (100,))),
        queue.SEQUENCE_ROW + partition: rows[queue.SEQUENCE_ROW + partition],
    }


def test_progress_of_an_older_broker_keeps_its_key() -> None:
    key = queue.PROGRESS_ROW + (3).to_bytes(4, "big")
    moved = moved_rows("g", "queue", {key: queue.encode((DEAD_OLD, 5, [], []))}, IDS)
    assert moved == {key: queue.encode((DEAD_NEW, 5, [], []))}


@pytest.mark.parametrize("kind", [queue.INTENT_ROW, queue.OUTPUT_ROW, queue.ROUND_ROW])
def test_a_queue_group_with_something_on_its_way_is_refused(kind: bytes) -> None:
    with pytest.raises(DataDirError, match="on their way"):
        moved_rows("g", "queue", queue_rows() | {kind + bytes(12): b""}, IDS)


@pytest.mark.parametrize("group_type", ["consumer", "queue"])
def test_an_unknown_row_is_refused(group_type: str) -> None:
    with pytest.raises(CorruptLogError, match="does not know"):
        moved_rows("g", group_type, {b"\xff": b""}, IDS)
