"""Fetch and offset lookup: what comes, in which bounds, and what is refused."""

from __future__ import annotations

import threading
import time
from typing import Any

import cramjam
import grpc
import pytest

from logbroker.record.codec import NewRecord, encode_batch
from logbroker.record.compression import Codec
from logbroker.record.header import CRC_START, HEADER, parse_header
from logbroker.v1 import log_pb2 as pb
from logbroker.v1.admin_pb2 import DeleteTopicsRequest, TopicRef
from tests.grpc_api.api import Api, values_in

INVALID_ARGUMENT, NOT_FOUND, OUT_OF_RANGE = 3, 5, 11


def bomb(size_bytes: int) -> bytes:
    """A small batch that says it is compressed with zstd, and expands to so many zeros."""
    import google_crc32c

    honest = bytearray(encode_batch([NewRecord(value=b"x")]))
    body = bytes(cramjam.zstd.compress(bytes(size_bytes)))
    batch = honest[: HEADER.size] + body
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[22] |= 4
    batch[17:21] = google_crc32c.value(bytes(batch[CRC_START:])).to_bytes(4, "big")
    return bytes(batch)


# --- unary ---


def test_reads_from_any_offset(api: Api, topic: str) -> None:
    for number in range(0, 30, 3):
        api.produce_values(topic, [b"%d" % (number + more) for more in range(3)])
    for offset in range(31):
        assert api.values(topic, offset=offset) == [b"%d" % number for number in range(offset, 30)]


def test_facts_come_with_every_answer(api: Api, topic: str) -> None:
    api.produce_values(topic, [b"a", b"b"])
    result = api.fetch(topic, offset=2)
    assert (result.high_watermark, result.last_stable_offset, result.log_start_offset) == (2, 2, 0)
    assert (result.next_offset, result.leader_epoch, result.batches) == (2, 0, b"")
    assert result.topic == topic
    assert len(result.topic_id) == 16


@pytest.mark.parametrize("offset", [3, 2**62])
def test_out_of_range_says_what_to_do(api: Api, topic: str, offset: int) -> None:
    api.produce_values(topic, [b"a", b"b"])
    status = api.fetch(topic, offset=offset).status
    assert (status.code, status.reason) == (OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE")
    assert "0 to 2" in status.message
    assert "earliest" in status.message


def test_unknown_targets_fail_alone(api: Api, topic: str) -> None:
    api.produce_values(topic, [b"good"])
    items = [
        pb.FetchItem(topic=topic, partition=0),
        pb.FetchItem(topic="nowhere"),
        pb.FetchItem(topic=topic, partition=99),
        pb.FetchItem(topic=topic, partition=0, offset=-5),
    ]
    results = api.log.Fetch(pb.FetchRequest(items=items, max_wait_ms=10_000)).results
    assert values_in(results[0].batches) == [b"good"]
    assert [result.status.reason for result in results[1:]] == [
        "UNKNOWN_TOPIC",
        "UNKNOWN_PARTITION",
        "INVALID_REQUEST",
    ]


def test_size_zero_is_refused_and_the_largest_is_cut(api: Api, topic: str) -> None:
    for _ in range(8):
        api.produce_values(topic, [bytes(900_000)])
    with pytest.raises(grpc.RpcError) as caught:
        api.fetch(topic, max_bytes=0)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    largest = api.fetch(topic, max_bytes=2**31 - 1)
    assert 3_500_000 < largest.ByteSize() < 4 * 1024 * 1024, "what clients in Go and Java accept"
    item = pb.FetchItem(topic=topic, partition=0, max_bytes=0)
    assert api.log.Fetch(pb.FetchRequest(items=[item])).results[0].status.code == INVALID_ARGUMENT


def test_one_batch_always_comes_however_small_the_bound(api: Api, topic: str) -> None:
    for _ in range(3):
        api.produce_values(topic, [bytes(1000)])
    result = api.fetch(topic, max_bytes=1)
    assert len(values_in(result.batches)) == 1
    assert result.next_offset == 1


def test_the_bound_holds_over_all_partitions(api: Api, topic: str) -> None:
    for number in range(4):
        for _ in range(3):
            api.produce_values(topic, [bytes(1000)], number)
    items = [pb.FetchItem(topic=topic, partition=number) for number in range(4)]
    results = api.log.Fetch(pb.FetchRequest(items=items, max_bytes=2500)).results
    assert [len(values_in(result.batches)) for result in results] == [2, 0, 0, 0]
    assert [result.next_offset for result in results] == [2, 0, 0, 0]


def test_small_segments_do_not_cut_an_answer_short(api: Api) -> None:
    api.create("rolling", segment_bytes="1000")
    for number in range(20):
        api.produce_values("rolling", [b"%0300d" % number])
    assert len(values_in(api.fetch("rolling").batches)) == 20


def test_a_long_poll_ends_with_the_first_record(api: Api, topic: str) -> None:
    timer = threading.Timer(0.2, api.produce_values, (topic, [b"late"], 3))
    timer.start()
    items = [pb.FetchItem(topic=topic, partition=number) for number in range(4)]
    start = time.monotonic()
    results = api.log.Fetch(pb.FetchRequest(items=items, max_wait_ms=300_000)).results
    assert values_in(results[3].batches) == [b"late"]
    assert time.monotonic() - start > 0.1, "and the call has its own deadline"
    timer.join()


def test_a_long_poll_gathers_min_bytes(api: Api, topic: str) -> None:
    timers = [threading.Timer(0.1 * number, api.produce_values, (topic, [bytes(1000)])) for number in range(1, 4)]
    for timer in timers:
        timer.start()
    result = api.fetch(topic, min_bytes=3000, max_wait_ms=15_000)
    assert len(values_in(result.batches)) == 3
    for timer in timers:
        timer.join()


def test_a_long_poll_ends_after_its_wait(api: Api, topic: str) -> None:
    start = time.monotonic()
    result = api.fetch(topic, min_bytes=10**6, max_wait_ms=200)
    assert result.batches == b""
    assert time.monotonic() - start > 0.15


def test_a_long_poll_on_a_deleted_topic_ends(api: Api) -> None:
    api.create("doomed")
    timer = threading.Timer(0.2, lambda: api.admin.DeleteTopics(DeleteTopicsRequest(topics=[TopicRef(name="doomed")])))
    timer.start()
    assert api.fetch("doomed", max_wait_ms=15_000).status.reason == "UNKNOWN_TOPIC"
    timer.join()


def test_a_bomb_fails_its_fetch_and_nothing_else(api: Api, topic: str) -> None:
    api.produce_values(topic, [b"before"])
    assert not api.produce(topic, bomb(80 * 1024 * 1024)).status.code, "the broker does not decode what it stores"
    api.produce_values(topic, [b"after"])
    first = api.fetch(topic, plain_records=True)
    assert ([record.value for record in first.records], first.next_offset) == ([b"before"], 1)
    status = api.fetch(topic, offset=1, plain_records=True).status
    assert (status.code, status.reason) == (INVALID_ARGUMENT, "BATCH_EXPANDS_TOO_FAR")
    assert [record.value for record in api.fetch(topic, offset=2, plain_records=True).records] == [b"after"]
    assert parse_header(api.fetch(topic, offset=1).batches).record_count == 1, "as bytes it is still there"


@pytest.mark.parametrize("codec", list(Codec))
def test_plain_fetch_decodes_every_codec_and_is_bounded(api: Api, topic: str, codec: Codec) -> None:
    batch = encode_batch([NewRecord(value=b"%01000d" % number) for number in range(500)], codec=codec)
    assert not api.produce(topic, batch).status.code
    values: list[bytes] = []
    offset = 7
    while offset < 500:
        result = api.fetch(topic, offset=offset, plain_records=True, max_bytes=100_000)
        assert result.ByteSize() < 110_000
        assert result.records[0].offset == offset
        values += [record.value for record in result.records]
        offset = result.next_offset
    assert values == [b"%01000d" % number for number in range(7, 500)]


# --- offsets ---


def test_list_offsets(api: Api, topic: str) -> None:
    batches = [encode_batch([NewRecord(value=b"x", timestamp_ms=stamp)]) for stamp in (1000, 3000, 2000, 5000)]
    for batch in batches:
        api.produce(topic, batch)

    def find(**at: Any) -> tuple[int, int]:
        items = [pb.ListOffsetsItem(topic=topic, partition=0, **at)]
        [result] = api.log.ListOffsets(pb.ListOffsetsRequest(items=items)).results
        assert not result.status.code, result.status
        return result.offset, result.timestamp_ms

    assert find(spec=pb.OFFSET_SPEC_EARLIEST) == (0, -1)
    assert find(spec=pb.OFFSET_SPEC_LATEST) == (4, -1)
    assert [find(timestamp_ms=stamp) for stamp in (0, 1001, 3000, 3001, 5000, 5001)] == [
        (0, 1000),
        (1, 3000),
        (1, 3000),
        (3, 5000),
        (3, 5000),
        (-1, -1),
    ]


def test_list_offsets_refuses_item_by_item(api: Api, topic: str) -> None:
    items = [
        pb.ListOffsetsItem(topic=topic, spec=pb.OFFSET_SPEC_LATEST),
        pb.ListOffsetsItem(topic=topic),
        pb.ListOffsetsItem(topic="nowhere", spec=pb.OFFSET_SPEC_LATEST),
    ]
    results = api.log.ListOffsets(pb.ListOffsetsRequest(items=items)).results
    assert [result.status.reason for result in results] == ["", "INVALID_REQUEST", "UNKNOWN_TOPIC"]
