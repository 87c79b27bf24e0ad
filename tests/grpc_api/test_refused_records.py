"""Plain records that a topic does not take: which of them are refused, and what becomes of the others."""

from __future__ import annotations

import time
from typing import Any

import pytest

from logbroker.record.codec import NewRecord, encode_batch
from logbroker.record.header import parse_header
from logbroker.v1 import log_pb2 as pb
from logbroker.v1.admin_pb2 import AlterTopicsRequest, DescribeTopicsRequest, TopicAlteration, TopicRef
from logbroker.v1.common_pb2 import Record
from tests.grpc_api.api import Api, values_in

YEAR_MS = 365 * 86_400_000
COUNTS = [20, 1000]
"""Records of an item that is worked on in the broker's loop, and on a thread."""


def a_year_ahead() -> int:
    return int(time.time() * 1000) + YEAR_MS


def produce(api: Api, topic: str, records: list[Record], **fields: Any) -> pb.ProduceResult:
    sequence = fields.pop("sequence", None)
    plain = pb.PlainRecords(records=records, sequence=sequence)
    [result] = api.log.Produce(pb.ProduceRequest(items=[pb.ProduceItem(topic=topic, records=plain, **fields)])).results
    found: pb.ProduceResult = result
    return found


def set_bound(api: Api, topic: str, max_message_bytes: int) -> None:
    alteration = TopicAlteration(topic=TopicRef(name=topic), set_configs={"max.message.bytes": str(max_message_bytes)})
    [altered] = api.admin.AlterTopics(AlterTopicsRequest(topics=[alteration])).results
    assert not altered.status.code


def all_values(api: Api, topic: str) -> set[bytes | None]:
    return {value for partition in range(4) for value in api.values(topic, partition)}


def numbered(count: int) -> list[Record]:
    return [Record(key=b"key-%d" % (number % 7), value=b"%d" % number) for number in range(count)]


@pytest.mark.prove
@pytest.mark.parametrize("count", COUNTS)
def test_of_records_that_the_broker_routes_only_those_at_fault_are_refused(api: Api, topic: str, count: int) -> None:
    set_bound(api, topic, 1000)
    records = numbered(count)
    late, large = {3, count - 1}, {0, 11}
    for number in late:
        records[number].timestamp_ms = a_year_ahead()
    for number in large:
        records[number].value = bytes(1000)
    result = produce(api, topic, records)
    assert result.status.reason == "RECORD_TOO_LARGE", "the first failure"
    reasons = {number: placed.status.reason for number, placed in enumerate(result.placements) if placed.status.code}
    assert reasons == dict.fromkeys(late, "INVALID_TIMESTAMP") | dict.fromkeys(large, "RECORD_TOO_LARGE")
    assert all((placed.offset == -1) is (number in reasons) for number, placed in enumerate(result.placements))
    for number, placed in enumerate(result.placements):
        if number not in reasons:
            assert api.values(topic, placed.partition, placed.offset)[0] == b"%d" % number
    assert all_values(api, topic) == {b"%d" % number for number in range(count) if number not in reasons}


def test_where_all_records_are_at_fault_nothing_is_appended(api: Api, topic: str) -> None:
    result = produce(api, topic, [Record(timestamp_ms=a_year_ahead())] * 3)
    assert [placed.status.reason for placed in result.placements] == ["INVALID_TIMESTAMP"] * 3
    assert all_values(api, topic) == set()


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("sequenced", [False, True])
def test_an_item_for_a_partition_is_refused_as_a_whole_by_the_first_record_at_fault(
    api: Api, topic: str, count: int, *, sequenced: bool
) -> None:
    records = numbered(count)
    for number in (5, 9):
        records[number].timestamp_ms = a_year_ahead()
    sequence = None
    if sequenced:
        producer_id = api.log.InitProducerId(pb.InitProducerIdRequest()).producer_id
        sequence = pb.ProducerSequence(producer_id=producer_id, producer_epoch=0, base_sequence=0)
    result = produce(api, topic, records, partition=1, sequence=sequence)
    assert result.status.reason == "INVALID_TIMESTAMP"
    assert result.status.message.startswith("record 5 of the item:")
    assert "1 others are at fault" in result.status.message
    assert not result.placements
    assert all_values(api, topic) == set()
    good = [record for number, record in enumerate(records) if number not in (5, 9)]
    assert produce(api, topic, good, partition=1, sequence=sequence).base_offset == 0


@pytest.mark.parametrize("partition", [None, 2])
def test_an_item_above_the_topics_bound_becomes_several_batches(api: Api, topic: str, partition: int | None) -> None:
    set_bound(api, topic, 500)
    result = produce(api, topic, [Record(key=b"k", value=b"%d" % number) for number in range(600)], partition=partition)
    assert not result.status.code, result.status
    if partition is None:
        partition = result.placements[0].partition
        assert [placed.offset for placed in result.placements] == list(range(600))
    else:
        assert result.base_offset == 0
    assert api.values(topic, partition) == [b"%d" % number for number in range(600)]
    assert parse_header(api.fetch(topic, partition).batches).size_bytes <= 500


def test_a_single_record_too_large_names_itself(api: Api, topic: str) -> None:
    set_bound(api, topic, 500)
    result = produce(api, topic, [*numbered(4), Record(value=bytes(600))], partition=0)
    assert result.status.reason == "RECORD_TOO_LARGE"
    assert result.status.message.startswith("record 4 of the item: the record makes a batch of ")
    assert all_values(api, topic) == set()


def test_records_with_a_sequence_are_one_batch_and_still_a_retry_when_the_bound_is_lower(api: Api, topic: str) -> None:
    producer_id = api.log.InitProducerId(pb.InitProducerIdRequest()).producer_id
    records = numbered(100)

    def send(base: int) -> pb.ProduceResult:
        sequence = pb.ProducerSequence(producer_id=producer_id, producer_epoch=0, base_sequence=base)
        return produce(api, topic, records, partition=0, sequence=sequence)

    assert send(0).base_offset == 0
    set_bound(api, topic, 200)
    again = send(0)
    assert (again.base_offset, again.duplicate) == (0, True)
    refused = send(100)
    assert (refused.status.reason, refused.max_message_bytes) == ("RECORD_TOO_LARGE", 200)
    assert api.fetch(topic).high_watermark == 100


def test_a_time_before_1970_makes_the_item_malformed(api: Api, topic: str) -> None:
    records = numbered(20)
    records[7].timestamp_ms = -2
    result = produce(api, topic, records)
    assert result.status.reason == "INVALID_TIMESTAMP"
    assert result.status.message.startswith("record 7 of the item:")
    assert all_values(api, topic) == set()


def test_what_is_in_the_log_is_still_a_retry_when_the_topic_takes_no_such_stamp_any_more(api: Api, topic: str) -> None:
    producer_id = api.log.InitProducerId(pb.InitProducerIdRequest()).producer_id
    record = NewRecord(value=b"x", timestamp_ms=int(time.time() * 1000) + 1_800_000)
    batch = encode_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=0)
    assert api.produce(topic, batch).base_offset == 0
    configs = {"message.timestamp.after.max.ms": "0"}
    alteration = TopicAlteration(topic=TopicRef(name=topic), set_configs=configs)
    api.admin.AlterTopics(AlterTopicsRequest(topics=[alteration]))
    assert api.produce(topic, batch).duplicate


def test_a_refusal_tells_what_the_topic_takes(api: Api, topic: str) -> None:
    """So that a client can part its batch; the bound of batches it knows from the topic, too."""
    set_bound(api, topic, 200)
    [described] = api.admin.DescribeTopics(DescribeTopicsRequest(topics=[TopicRef(name=topic)])).results
    assert described.topic.max_message_bytes == 200
    refused = api.produce(topic, encode_batch([NewRecord(value=bytes(100))] * 2))
    assert (refused.status.reason, refused.max_message_bytes) == ("RECORD_TOO_LARGE", 200)
    before_ms = int(time.time() * 1000)
    refused = api.produce(topic, encode_batch([NewRecord(value=b"", timestamp_ms=a_year_ahead())]))
    assert refused.status.reason == "INVALID_TIMESTAMP"
    assert before_ms <= refused.max_timestamp_ms - 3_600_000 <= int(time.time() * 1000)
    assert values_in(api.fetch(topic).batches) == []
