"""Topics with bands over the API: how they are made, what is fixed, and where records go."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest

from logbroker.embedded_broker import embedded
from logbroker.v1 import admin_pb2, log_pb2
from logbroker.v1.common_pb2 import Header, Record
from tests.grpc_api.api import Api

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python still uses importlib.resources.read_text
    from kafka.partitioner.default import murmur2

BANDS = "hot=7-9:1,warm=4-6:2,cold=0-3:8"
_numbers = count()


def create(
    api: Api, name: str, configs: dict[str, str], partitions: int | None = None, *, validate_only: bool = False
) -> admin_pb2.TopicResult:
    topic = admin_pb2.NewTopic(name=name, partitions=partitions, configs=configs)
    request = admin_pb2.CreateTopicsRequest(topics=[topic], validate_only=validate_only)
    results: list[admin_pb2.TopicResult] = api.admin.CreateTopics(request).results
    return results[0]


def banded(api: Api, routing: str = "priority") -> str:
    """A new topic with bands."""
    name = f"banded-{next(_numbers)}"
    result = create(api, name, {"priority.bands": BANDS, "priority.routing": routing})
    assert not result.status.code, result.status
    return name


def alter(api: Api, name: str, **fields: object) -> tuple[str, str]:
    """Return the reason and the message of the refusal; ("", "") for success."""
    alteration = admin_pb2.TopicAlteration(topic=admin_pb2.TopicRef(name=name), **fields)  # type: ignore[arg-type]
    [result] = api.admin.AlterTopics(admin_pb2.AlterTopicsRequest(topics=[alteration])).results
    return result.status.reason, result.status.message


def described(api: Api, name: str) -> admin_pb2.DescribeTopicsResult:
    request = admin_pb2.DescribeTopicsRequest(topics=[admin_pb2.TopicRef(name=name)], include_partitions=True)
    results: list[admin_pb2.DescribeTopicsResult] = api.admin.DescribeTopics(request).results
    return results[0]


def columns(topic: admin_pb2.Topic) -> list[tuple[str, int, int, int, int]]:
    return [
        (band.name, band.lowest_priority, band.highest_priority, band.first_partition, band.partitions)
        for band in topic.bands
    ]


def test_bands_are_told_when_a_topic_is_made_listed_and_described(api: Api) -> None:
    name = "told-of-bands"
    made = create(api, name, {"priority.bands": "cold=0-3:8,hot=7-9:1,warm=4-6:2"}).topic
    assert (made.partitions, made.routes_by_key) == (11, False)
    assert columns(made) == [("hot", 7, 9, 0, 1), ("warm", 4, 6, 1, 2), ("cold", 0, 3, 3, 8)]
    found = described(api, name)
    assert found.topic == made
    configs = {entry.name: entry.value for entry in found.configs}
    assert (configs["priority.bands"], configs["priority.routing"]) == (BANDS, "priority")
    assert made in api.admin.ListTopics(admin_pb2.ListTopicsRequest(page_size=10_000)).topics


def test_the_count_may_be_said_if_it_is_right(api: Api) -> None:
    assert create(api, "counted-bands", {"priority.bands": BANDS}, 11).topic.partitions == 11
    for wrong in (0, 1, 10, 12):
        result = create(api, "miscounted", {"priority.bands": BANDS}, wrong)
        assert result.status.reason == "INVALID_PARTITIONS"
        assert "11 partitions together" in result.status.message


def test_bands_are_within_the_bounds_of_every_topic(api: Api) -> None:
    assert create(api, "vast", {"priority.bands": "all=0-9:201"}).status.reason == "INVALID_PARTITIONS"


@pytest.mark.parametrize(
    ("configs", "why"),
    [
        ({"priority.bands": "hot=7-9:1,warm=4-7:2,cold=0-3:8"}, "overlap"),
        ({"priority.bands": "hot=7-9:1,cold=0-5:8"}, "gap"),
        ({"priority.bands": "hot=7-9:0,cold=0-6:8"}, "hot has none"),
        ({"priority.bands": "hot=7-10:1,cold=0-6:8"}, "name=priorities:partitions"),
        ({"priority.bands": "hot=high:1"}, "name=priorities:partitions"),
        ({"priority.bands": BANDS, "priority.routing": "band"}, "priority or key"),
        ({"priority.routing": "key"}, "set priority.bands as well"),
    ],
)
def test_bad_bands_are_refused(api: Api, configs: dict[str, str], why: str) -> None:
    for validate_only in (False, True):
        status = create(api, "bad-bands", configs, validate_only=validate_only).status
        assert (status.code, status.reason) == (3, "INVALID_CONFIG")
        assert why in status.message


def test_bands_and_routing_are_fixed_and_so_is_the_count(api: Api) -> None:
    name, plain = banded(api), f"plain-{next(_numbers)}"
    api.create(plain, 11)
    before = described(api, name), described(api, plain)
    for topic, fields in (
        (name, {"set_configs": {"priority.bands": "hot=5-9:1,cold=0-4:10"}}),
        (name, {"set_configs": {"priority.bands": ""}}),
        (name, {"unset_configs": ["priority.bands"]}),
        (name, {"set_configs": {"priority.routing": "key"}}),
        (name, {"partitions": 12}),
        (name, {"partitions": 11}),
        (plain, {"set_configs": {"priority.bands": BANDS}}),
    ):
        reason, message = alter(api, topic, **fields)
        assert reason == "FIXED_TOPIC", fields
        assert "create another topic" in message
    assert (described(api, name), described(api, plain)) == before
    assert alter(api, name, set_configs={"priority.bands": BANDS, "retention.ms": "1000"}) == ("", ""), (
        "no change of it"
    )


@pytest.mark.prove
def test_bands_outlive_the_broker(tmp_path: Path) -> None:
    with embedded(data_dir=tmp_path) as broker:
        api = Api(broker.address)
        before = create(api, "t", {"priority.bands": BANDS, "priority.routing": "key"}).topic
        api.channel.close()
    with embedded(data_dir=tmp_path) as broker:
        api = Api(broker.address)
        assert described(api, "t").topic == before
        assert before.routes_by_key
        api.channel.close()


# --- plain records ---

RANGES = {"hot": range(1), "warm": range(1, 3), "cold": range(3, 11)}


def band_of(priority: int) -> str:
    return "hot" if priority >= 7 else "warm" if priority >= 4 else "cold"


def partition_of(key: bytes, partitions: Sequence[int]) -> int:
    place: int = (murmur2(key) & 0x7FFF_FFFF) % len(partitions)
    return partitions[place]


def produce(api: Api, topic: str, records: list[Record], partition: int | None = None) -> log_pb2.ProduceResult:
    item = log_pb2.ProduceItem(topic=topic, partition=partition, records=log_pb2.PlainRecords(records=records))
    results: list[log_pb2.ProduceResult] = api.log.Produce(log_pb2.ProduceRequest(items=[item])).results
    return results[0]


def placements(result: log_pb2.ProduceResult) -> list[int]:
    assert not result.status.code, result.status
    return [placement.partition for placement in result.placements]


def test_plain_records_go_to_their_band_and_there_by_their_key(api: Api) -> None:
    topic = banded(api)
    keyed = [(f"key-{number}".encode(), number % 10) for number in range(200)]
    found = placements(produce(api, topic, [Record(key=key, priority=priority) for key, priority in keyed]))
    assert found == [partition_of(key, RANGES[band_of(priority)]) for key, priority in keyed]


def test_plain_records_without_key_stay_together_in_their_band(api: Api) -> None:
    topic = banded(api)
    found = placements(produce(api, topic, [Record(value=b"v", priority=number % 10) for number in range(100)]))
    for name, partitions in RANGES.items():
        of_band = {found[number] for number in range(100) if band_of(number % 10) == name}
        assert len(of_band) == 1
        assert of_band <= set(partitions)


def test_the_header_routes_as_the_field_does_and_no_priority_is_4(api: Api) -> None:
    topic = banded(api)

    def header(value: bytes) -> Header:
        return Header(key="logbroker-priority", value=value)

    records = [
        Record(key=b"k"),
        Record(key=b"k", headers=[header(b"9")]),
        Record(key=b"k", headers=[header(b"9"), header(b"0")]),
        Record(key=b"k", headers=[header(b"high")]),
        Record(key=b"k", headers=[header(b"0")], priority=8),
    ]
    warm, hot, cold = (partition_of(b"k", RANGES[name]) for name in ("warm", "hot", "cold"))
    assert placements(produce(api, topic, records)) == [warm, hot, cold, warm, hot]


def test_a_topic_that_routes_by_key_keeps_a_key_in_one_partition(api: Api) -> None:
    topic = banded(api, routing="key")
    records = [Record(key=key, priority=priority) for priority in range(10) for key in (b"a", b"b", b"c")]
    expected = [partition_of(key, range(11)) for key in (b"a", b"b", b"c")]
    assert placements(produce(api, topic, records)) == expected * 10


def test_the_partition_that_is_asked_for_wins_and_the_priority_is_a_header(api: Api) -> None:
    topic = banded(api)
    other = Header(key="h", value=b"x")
    headers = [Header(key="logbroker-priority", value=b"1"), other, Header(key="logbroker-priority", value=b"2")]
    produced = produce(api, topic, [Record(value=b"v", priority=9, headers=headers), Record(value=b"w")], partition=7)
    assert (produced.partition, produced.base_offset) == (7, 0)
    first, second = api.fetch(topic, 7, plain_records=True).records
    assert list(first.headers) == [other, Header(key="logbroker-priority", value=b"9")]
    assert not second.headers, "none was given"


@pytest.mark.parametrize("partition", [None, 7])
@pytest.mark.parametrize("priority", [-1, 10, 2**31 - 1])
def test_a_priority_out_of_range_is_refused_and_nothing_of_its_item_is_appended(
    api: Api, topic: str, priority: int, partition: int | None
) -> None:
    good = [Record(key=f"{number}".encode(), priority=number % 10) for number in range(20)]
    for name in (banded(api), topic):
        result = produce(api, name, [*good, Record(key=b"bad", priority=priority)], partition)
        assert (result.status.code, result.status.reason) == (3, "INVALID_REQUEST")
        assert f"record 20 of the item: {priority} is no priority: give 0 to 9" in result.status.message
        ends = {entry.log_end_offset for entry in described(api, name).partitions}
        assert ends == {0}


def test_a_record_that_cannot_be_encoded_keeps_its_item_out(api: Api, topic: str) -> None:
    """Its partition comes last; nothing was appended for the partitions before it."""
    keys = {partition_of(f"{number}".encode(), range(4)): f"{number}".encode() for number in range(50)}
    records = [Record(key=keys[0]), Record(key=keys[1]), Record(key=keys[2], timestamp_ms=-1)]
    assert produce(api, topic, records).status.reason == "INVALID_TIMESTAMP"
    assert [api.values(topic, partition) for partition in range(4)] == [[], [], [], []]
