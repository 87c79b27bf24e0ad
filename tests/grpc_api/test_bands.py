"""Topics with bands over the API: how they are made, what is fixed, and where records go."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from logbroker.embedded_broker import embedded
from logbroker.v1 import admin_pb2
from tests.grpc_api.api import Api

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
    request = admin_pb2.DescribeTopicsRequest(topics=[admin_pb2.TopicRef(name=name)])
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
        ({"priority.routing": "key"}, "give it priority.bands"),
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
