"""Kafka's own code reads the segments that the broker writes, and sees in them what our reader sees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from logbroker.client.sync import Producer
from logbroker.embedded_broker import EmbeddedBroker, embedded
from logbroker.record.codec import Headers, NewRecord, encode_batch
from logbroker.record.compression import Codec
from logbroker.v1 import common_pb2, log_pb2
from tests.grpc_api.api import Api
from tests.interop.kafka_reader import ReadFile, compare, read_with_kafka, read_with_ours, trouble

NOW_MS = 1_700_000_000_000
HEADERS: list[Headers] = [(), [("trace", b"1"), ("trace", b"2"), ("grün", None), ("", b"")]]


@pytest.fixture(scope="module", autouse=True)
def kafka() -> None:
    if reason := trouble():
        pytest.skip(reason)


def records(count: int) -> list[NewRecord]:
    """Records of all shapes: nulls, nothing, something to compress, something that cannot be, times that go back."""
    values = [None, b"", b"text " * 40, os.urandom(300)]
    keys = [None, b"", b"key", bytes(range(256))]
    return [
        NewRecord(
            values[number % 4],
            key=keys[number // 4 % 4],
            headers=HEADERS[number // 16 % 2],
            timestamp_ms=NOW_MS + (number * 7919) % 10_000 * (1 if number % 3 else 1000),
        )
        for number in range(count)
    ]


def send(broker: EmbeddedBroker, topic: str, codec: Codec) -> None:
    """Through idempotent producers and as batches without a producer, so that segments roll many times."""
    api = Api(broker.address)
    for idempotent in (True, False):
        with Producer(
            broker.address, compression=codec.name.lower(), batch_bytes=4000, idempotent=idempotent
        ) as producer:
            for record in records(300):
                producer.send(topic, record.value, record.key, headers=record.headers, timestamp_ms=record.timestamp_ms)
            producer.flush()
    for number in range(20):
        result = api.produce(topic, encode_batch(records(1 + 7 * number), codec=codec))
        assert not result.status.code, result.status
    api.channel.close()


def send_plain(broker: EmbeddedBroker, topic: str) -> None:
    api = Api(broker.address)
    for _ in range(10):
        plain = [
            common_pb2.Record(
                key=record.key,
                value=record.value,
                timestamp_ms=record.timestamp_ms,
                headers=[common_pb2.Header(key=name, value=value) for name, value in record.headers],
            )
            for record in records(64)
        ]
        item = log_pb2.ProduceItem(topic=topic, partition=0, records=log_pb2.PlainRecords(records=plain))
        [result] = api.log.Produce(log_pb2.ProduceRequest(items=[item])).results
        assert not result.status.code, result.status
    api.channel.close()


def create(broker: EmbeddedBroker, topic: str, **configs: str) -> None:
    api = Api(broker.address)
    configs = {"segment_bytes": "20000", "message_timestamp_after_max_ms": str(2**62), "retention_ms": "-1", **configs}
    api.create(topic, 1, **configs)
    api.channel.close()


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data directory of a broker that was killed and recovered, written to again, and stopped."""
    path = tmp_path_factory.mktemp("kafka") / "data"
    with embedded(path) as broker:
        for codec in Codec:
            create(broker, codec.name.lower())
            send(broker, codec.name.lower(), codec)
        create(broker, "append-time", message_timestamp_type="LogAppendTime", durability="written")
        send(broker, "append-time", Codec.ZSTD)
        create(broker, "plain")
        send_plain(broker, "plain")
        broker.kill()
        broker.start()
        send(broker, "none", Codec.NONE)
    return path


@pytest.fixture(scope="module")
def found(data_dir: Path) -> dict[Path, ReadFile]:
    paths = sorted(data_dir.rglob("*.log"))
    return dict(zip(paths, read_with_kafka(paths), strict=True))


def test_kafka_sees_in_every_segment_what_our_reader_sees(found: dict[Path, ReadFile]) -> None:
    assert len(found) > 50
    for path, theirs in found.items():
        assert theirs == read_with_ours(path), path
        assert not theirs.error
    assert sum(theirs.records for theirs in found.values()) > 10_000


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name.lower())
def test_kafka_finds_every_codec(found: dict[Path, ReadFile], codec: Codec) -> None:
    name = codec.name.lower()
    assert all(name in theirs.codecs for path, theirs in found.items() if path.parent.name == f"{name}-0")


def test_the_segments_of_a_partition_join(found: dict[Path, ReadFile]) -> None:
    paths = [path for path in found if path.parent.name == "none-0"]
    assert [found[path].next_offset for path in paths[:-1]] == [int(path.stem) for path in paths[1:]]


@pytest.mark.prove
def test_kafka_refuses_what_is_damaged(data_dir: Path, tmp_path: Path) -> None:
    good = (data_dir / "none-0" / f"{0:020d}.log").read_bytes()
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 1
    paths = [tmp_path / f"{number:020d}.log" for number in range(3)]
    for path, content in zip(paths, (bytes(flipped), good[:-1], good + bytes(100)), strict=True):
        path.write_bytes(content)
    assert all(found.error for found in read_with_kafka(paths))
    with pytest.raises(AssertionError, match="Kafka's reader says"):
        compare(paths)


def test_one_changed_byte_of_a_record_is_another_digest(tmp_path: Path) -> None:
    paths = [tmp_path / f"{0:020d}.log", tmp_path / f"{1:020d}.log"]
    for path, value in zip(paths, (b"a", b"b"), strict=True):
        path.write_bytes(encode_batch([NewRecord(value, timestamp_ms=NOW_MS)]))
    first, second = read_with_kafka(paths)
    assert first.digest != second.digest
