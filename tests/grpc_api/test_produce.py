"""Produce: what is taken, what is refused and how, and that a refusal loses nothing."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import google_crc32c
import grpc
import pytest

from logbroker.record.codec import NewRecord, encode_batch
from logbroker.record.header import CONTROL_FLAG, LOG_APPEND_TIME_FLAG, TRANSACTIONAL_FLAG, parse_header
from logbroker.record.partitioner import partition_for_key
from logbroker.v1 import log_pb2 as pb
from logbroker.v1.admin_pb2 import AlterTopicsRequest, DeleteTopicsRequest, TopicAlteration, TopicRef
from logbroker.v1.common_pb2 import Header, Record
from tests.grpc_api.api import Api, batch_of, values_in

INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION = 3, 5, 9


def damaged(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


def with_magic_1(batch: bytes) -> bytes:
    return batch[:16] + b"\x01" + batch[17:]


def with_count(batch: bytes, count: int) -> bytes:
    return batch[:57] + struct.pack(">i", count) + batch[61:]


def a_year_ahead(_: bytes) -> bytes:
    return encode_batch([NewRecord(value=b"x", timestamp_ms=int(time.time() * 1000) + 365 * 86_400_000)])


def with_flag(flag: int) -> Callable[[bytes], bytes]:
    """Sets a bit of the attributes, and the CRC anew."""

    def flagged(batch: bytes) -> bytes:
        changed = bytearray(batch)
        changed[22] |= flag
        changed[17:21] = google_crc32c.value(bytes(changed[21:])).to_bytes(4, "big")
        return bytes(changed)

    return flagged


def with_absurd_count(batch: bytes) -> bytes:
    """A whole batch, CRC and all, that claims 2^31-1 records: it would use up as many offsets."""
    changed = bytearray(batch)
    changed[23:27] = struct.pack(">i", 2**31 - 2)
    changed[57:61] = struct.pack(">i", 2**31 - 1)
    changed[17:21] = google_crc32c.value(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


REFUSALS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("CORRUPT_BATCH", damaged),
    ("CORRUPT_BATCH", lambda batch: batch[:-1]),
    ("CORRUPT_BATCH", lambda batch: batch[:40]),
    ("CORRUPT_BATCH", lambda batch: b"\x00"),
    ("CORRUPT_BATCH", lambda batch: batch + batch),
    ("CORRUPT_BATCH", lambda batch: with_count(batch, 3)),
    ("CORRUPT_BATCH", lambda batch: with_count(batch, -1)),
    ("CORRUPT_BATCH", with_absurd_count),
    ("UNSUPPORTED_FORMAT", with_magic_1),
    ("INVALID_TIMESTAMP", a_year_ahead),
    ("INVALID_RECORD", with_flag(TRANSACTIONAL_FLAG)),
    ("INVALID_RECORD", with_flag(CONTROL_FLAG)),
    ("INVALID_RECORD", with_flag(LOG_APPEND_TIME_FLAG)),
    ("UNSUPPORTED_COMPRESSION", with_flag(7)),
]


@pytest.mark.parametrize(("reason", "spoil"), REFUSALS)
def test_a_bad_batch_is_refused(api: Api, topic: str, reason: str, spoil: Callable[[bytes], bytes]) -> None:
    api.produce_values(topic, [b"before"])
    result = api.produce(topic, spoil(batch_of(b"one", b"two")))
    assert (result.status.code, result.status.reason) == (INVALID_ARGUMENT, reason)
    assert result.base_offset == -1
    assert api.produce_values(topic, [b"after"]).base_offset == 1
    assert api.values(topic) == [b"before", b"after"]


def test_max_message_bytes_is_exact(api: Api) -> None:
    batch = batch_of(bytes(500))
    api.create("exact", max_message_bytes=str(len(batch)))
    assert api.produce("exact", batch).base_offset == 0
    over = batch_of(bytes(501))
    assert len(over) == len(batch) + 1
    assert api.produce("exact", over).status.reason == "RECORD_TOO_LARGE"


def test_unknown_targets_are_refused(api: Api, topic: str) -> None:
    batch = batch_of(b"x")
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({"topic": "nowhere", "partition": 0}, NOT_FOUND, "UNKNOWN_TOPIC"),
        ({"topic_id": bytes(16), "partition": 0}, NOT_FOUND, "UNKNOWN_TOPIC"),
        ({"topic_id": b"short", "partition": 0}, NOT_FOUND, "UNKNOWN_TOPIC"),
        ({"topic": topic, "partition": 4}, NOT_FOUND, "UNKNOWN_PARTITION"),
        ({"topic": topic, "partition": -1}, NOT_FOUND, "UNKNOWN_PARTITION"),
        ({"partition": 0}, INVALID_ARGUMENT, "INVALID_REQUEST"),
        ({"topic": topic}, INVALID_ARGUMENT, "INVALID_REQUEST"),
    ]
    for fields, code, reason in cases:
        [result] = api.log.Produce(pb.ProduceRequest(items=[pb.ProduceItem(batch=batch, **fields)])).results
        assert (result.status.code, result.status.reason) == (code, reason), fields
        assert result.status.message


def test_one_bad_partition_among_a_hundred(api: Api) -> None:
    api.create("hundred", 100)
    items = [pb.ProduceItem(topic="hundred", partition=number, batch=batch_of(b"%d" % number)) for number in range(101)]
    results = api.log.Produce(pb.ProduceRequest(items=items)).results
    assert [result.status.reason for result in results] == [""] * 100 + ["UNKNOWN_PARTITION"]
    assert [api.values("hundred", number) for number in range(100)] == [[b"%d" % number] for number in range(100)]


def test_items_of_one_partition_keep_their_order(api: Api, topic: str) -> None:
    items = [pb.ProduceItem(topic=topic, partition=0, batch=batch_of(b"%d" % number)) for number in range(50)]
    results = api.log.Produce(pb.ProduceRequest(items=items)).results
    assert [result.base_offset for result in results] == list(range(50))


def test_a_topic_is_named_by_id_too(api: Api) -> None:
    created = api.create("by-id")
    item = pb.ProduceItem(topic_id=created.id, partition=0, batch=batch_of(b"x"))
    assert api.log.Produce(pb.ProduceRequest(items=[item])).results[0].base_offset == 0


def test_a_recreated_topic_shows_no_old_bytes(api: Api) -> None:
    old = api.create("again")
    api.produce_values("again", [b"old"])
    api.admin.DeleteTopics(DeleteTopicsRequest(topics=[TopicRef(name="again")]))
    new = api.create("again")
    assert new.id != old.id
    assert api.values("again") == []
    item = pb.ProduceItem(topic_id=old.id, partition=0, batch=batch_of(b"x"))
    assert api.log.Produce(pb.ProduceRequest(items=[item])).results[0].status.reason == "UNKNOWN_TOPIC"


def test_the_header_is_patched_and_nothing_else(api: Api, topic: str) -> None:
    batch = batch_of(b"one", b"two")
    api.produce(topic, batch)
    api.produce(topic, batch)
    stored = api.fetch(topic).batches[len(batch) :]
    assert parse_header(stored).base_offset == 2
    assert parse_header(stored).leader_epoch == 0
    assert stored[16:] == batch[16:]


def test_log_append_time(api: Api) -> None:
    api.create("stamped", message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    result = api.produce("stamped", batch_of(b"x"))
    assert before_ms <= result.log_append_time_ms <= int(time.time() * 1000)
    [record] = api.fetch("stamped", plain_records=True).records
    assert record.timestamp_ms == result.log_append_time_ms


# --- idempotent producers ---


def test_a_retry_gets_its_first_offsets(api: Api, topic: str) -> None:
    producer_id = api.log.InitProducerId(pb.InitProducerIdRequest()).producer_id
    batches = [
        batch_of(b"%d" % number, producer_id=producer_id, producer_epoch=0, base_sequence=number) for number in range(6)
    ]
    for number, batch in enumerate(batches):
        assert api.produce(topic, batch).base_offset == number
    for number in (5, 1):
        again = api.produce(topic, batches[number])
        assert (again.base_offset, again.duplicate) == (number, True)
    assert api.produce(topic, batches[0]).status.reason == "OUT_OF_ORDER_SEQUENCE", "only five are remembered"
    assert len(api.values(topic)) == 6


def test_sequences_and_epochs_are_checked(api: Api, topic: str) -> None:
    producer_id = api.log.InitProducerId(pb.InitProducerIdRequest()).producer_id

    def send(epoch: int, sequence: int) -> str:
        batch = batch_of(b"x", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        return api.produce(topic, batch).status.reason

    assert send(0, 3) == "UNKNOWN_PRODUCER_ID"
    assert send(0, 0) == ""
    assert send(0, 2) == "OUT_OF_ORDER_SEQUENCE"
    raised = api.log.InitProducerId(pb.InitProducerIdRequest(producer_id=producer_id, producer_epoch=0))
    assert (raised.producer_id, raised.producer_epoch) == (producer_id, 1)
    assert send(1, 0) == ""
    assert send(0, 1) == "PRODUCER_FENCED"


def test_transactions_are_refused(api: Api) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        api.log.InitProducerId(pb.InitProducerIdRequest(transactional_id="t"))
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


# --- plain records ---


def test_plain_records_follow_their_key(api: Api, topic: str) -> None:
    keys = [b"", b"a", "ключ".encode(), b"N14228", b"\x00\xff"]
    records = [Record(key=key, value=b"v" + key) for key in keys]
    item = pb.ProduceItem(topic=topic, records=pb.PlainRecords(records=records))
    [result] = api.log.Produce(pb.ProduceRequest(items=[item])).results
    assert [placement.partition for placement in result.placements] == [partition_for_key(key, 4) for key in keys]
    for key, placement in zip(keys, result.placements, strict=True):
        assert api.values(topic, placement.partition, placement.offset)[0] == b"v" + key


def test_plain_records_without_key_stay_together(api: Api, topic: str) -> None:
    item = pb.ProduceItem(topic=topic, records=pb.PlainRecords(records=[Record(value=b"x")] * 20))
    [result] = api.log.Produce(pb.ProduceRequest(items=[item])).results
    assert len({placement.partition for placement in result.placements}) == 1
    assert [placement.offset for placement in result.placements] == list(range(20))


def test_plain_records_keep_all_they_have(api: Api, topic: str) -> None:
    record = Record(key=b"", timestamp_ms=1_700_000_000_123, headers=[Header(key="h", value=b""), Header(key="h")])
    item = pb.ProduceItem(topic=topic, partition=2, records=pb.PlainRecords(records=[record, Record(value=b"v")]))
    [result] = api.log.Produce(pb.ProduceRequest(items=[item])).results
    assert (result.partition, result.base_offset) == (2, 0)
    first, second = api.fetch(topic, 2, plain_records=True).records
    assert (first.key, first.HasField("key"), first.HasField("value")) == (b"", True, False)
    assert first.timestamp_ms == 1_700_000_000_123
    assert [(header.key, header.HasField("value")) for header in first.headers] == [("h", True), ("h", False)]
    assert (second.HasField("key"), second.value) == (False, b"v")


def test_plain_records_can_be_idempotent(api: Api, topic: str) -> None:
    producer_id = api.log.InitProducerId(pb.InitProducerIdRequest()).producer_id
    sequence = pb.ProducerSequence(producer_id=producer_id, producer_epoch=0, base_sequence=0)
    records = pb.PlainRecords(records=[Record(value=b"x", timestamp_ms=1)], sequence=sequence)
    item = pb.ProduceItem(topic=topic, partition=0, records=records)
    results = [api.log.Produce(pb.ProduceRequest(items=[item])).results[0] for _ in range(2)]
    assert [(result.base_offset, result.duplicate) for result in results] == [(0, False), (0, True)]


# --- growth ---


def test_growth_fences_keyed_produce(api: Api, topic: str) -> None:
    producer_id = api.log.InitProducerId(pb.InitProducerIdRequest()).producer_id
    sent = batch_of(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=0)
    assert api.produce(topic, sent, generation=1).base_offset == 0
    alteration = TopicAlteration(topic=TopicRef(name=topic), partitions=6)
    [altered] = api.admin.AlterTopics(AlterTopicsRequest(topics=[alteration])).results
    assert (altered.topic.partitions, altered.topic.generation) == (6, 2)
    stale = api.produce(topic, batch_of(b"y"), generation=1)
    assert (stale.status.code, stale.status.reason) == (FAILED_PRECONDITION, "STALE_GENERATION")
    assert api.produce(topic, sent, generation=1).duplicate, "what was appended before the growth may be retried"
    assert api.produce(topic, batch_of(b"y"), partition=5, generation=2).base_offset == 0
    assert api.produce(topic, batch_of(b"by hand")).base_offset == 1, "a partition chosen by hand is not fenced"


# --- streams ---


def test_a_stream_appends_in_order_and_answers_each(api: Api, topic: str) -> None:
    requests = [
        pb.ProduceRequest(
            correlation_id=number + 100,
            items=[pb.ProduceItem(topic=topic, partition=0, batch=batch_of(b"%d" % number))],
        )
        for number in range(200)
    ]
    offsets = {
        response.correlation_id: response.results[0].base_offset for response in api.log.ProduceStream(iter(requests))
    }
    assert offsets == {number + 100: number for number in range(200)}


def test_an_items_error_does_not_end_the_stream(api: Api, topic: str) -> None:
    items = [
        pb.ProduceItem(topic="nowhere", partition=0, batch=batch_of(b"x")),
        pb.ProduceItem(topic=topic, partition=0, batch=damaged(batch_of(b"x"))),
        pb.ProduceItem(topic=topic, partition=0, batch=batch_of(b"good")),
    ]
    requests = [pb.ProduceRequest(correlation_id=number, items=[item]) for number, item in enumerate(items)]
    requests.append(pb.ProduceRequest(correlation_id=3, durability=7, items=[items[2]]))  # type: ignore[arg-type]
    reasons = {
        response.correlation_id: response.results[0].status.reason for response in api.log.ProduceStream(iter(requests))
    }
    assert reasons == {0: "UNKNOWN_TOPIC", 1: "CORRUPT_BATCH", 2: "", 3: "INVALID_REQUEST"}


def test_a_client_that_dies_mid_stream_harms_nobody(api: Api, topic: str) -> None:
    queue: SimpleQueue[pb.ProduceRequest | None] = SimpleQueue()

    def requests() -> Iterator[pb.ProduceRequest]:
        while (request := queue.get()) is not None:
            yield request

    dying = Api(api.channel._channel.target().decode().split("/")[-1])  # type: ignore[attr-defined]
    stream = dying.log.ProduceStream(requests())
    item = pb.ProduceItem(topic=topic, partition=0, batch=batch_of(b"acked"))
    queue.put(pb.ProduceRequest(items=[item]))
    assert next(stream).results[0].base_offset == 0
    queue.put(pb.ProduceRequest(items=[item] * 10))
    dying.channel.close()
    queue.put(None)
    assert api.produce_values(topic, [b"after"]).base_offset in (1, 11)
    assert values_in(api.fetch(topic).batches)[0] == b"acked"


# --- durability ---


@pytest.mark.parametrize("durability", ["synced", "written"])
@pytest.mark.parametrize("asked", [pb.DURABILITY_UNSPECIFIED, pb.DURABILITY_WRITTEN, pb.DURABILITY_SYNCED])
def test_every_durability_answers_and_is_readable(api: Api, durability: str, asked: pb.Durability) -> None:
    name = f"durable-{durability}-{asked}"
    api.create(name, durability=durability)
    for number in range(5):
        item = pb.ProduceItem(topic=name, partition=0, batch=batch_of(b"%d" % number))
        [result] = api.log.Produce(pb.ProduceRequest(items=[item], durability=asked)).results
        assert result.base_offset == number
    result = api.fetch(name, offset=4, max_wait_ms=10_000)
    assert values_in(result.batches) == [b"4"]
    assert result.high_watermark == 5


def test_a_retry_is_one_even_after_the_bound_was_lowered(api: Api, topic: str) -> None:
    producer_id = api.log.InitProducerId(pb.InitProducerIdRequest()).producer_id
    sent = batch_of(bytes(500), producer_id=producer_id, producer_epoch=0, base_sequence=0)
    assert api.produce(topic, sent).base_offset == 0
    alteration = TopicAlteration(topic=TopicRef(name=topic), set_configs={"max.message.bytes": "100"})
    api.admin.AlterTopics(AlterTopicsRequest(topics=[alteration]))
    assert api.produce(topic, sent).duplicate
    assert api.produce(topic, batch_of(bytes(500))).status.reason == "RECORD_TOO_LARGE"
