"""Topics over the API: rules, changes, and what survives a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from logbroker.embedded_broker import embedded
from logbroker.v1 import admin_pb2 as pb
from tests.grpc_api.api import Api, batch_of


def create(api: Api, name: str, partitions: int = 1, **configs: str) -> str:
    """Return the reason of the refusal, or ''."""
    topic = pb.NewTopic(name=name, partitions=partitions, configs=configs)
    [result] = api.admin.CreateTopics(pb.CreateTopicsRequest(topics=[topic])).results
    assert bool(result.status.message) == bool(result.status.code)
    return str(result.status.reason)


def alter(api: Api, name: str, **fields: object) -> str:
    alteration = pb.TopicAlteration(topic=pb.TopicRef(name=name), **fields)  # type: ignore[arg-type]
    [result] = api.admin.AlterTopics(pb.AlterTopicsRequest(topics=[alteration])).results
    return str(result.status.reason)


def describe(api: Api, name: str) -> pb.DescribeTopicsResult:
    request = pb.DescribeTopicsRequest(topics=[pb.TopicRef(name=name)], include_partitions=True)
    results: list[pb.DescribeTopicsResult] = api.admin.DescribeTopics(request).results
    return results[0]


@pytest.mark.parametrize("name", ["", "x" * 250, ".", "..", "a/b", "a b", "ключ", "a\n", "a\x00"])
def test_illegal_names_are_refused(api: Api, name: str) -> None:
    assert create(api, name) == "INVALID_TOPIC_NAME"


def test_a_name_of_249_characters_is_taken(api: Api) -> None:
    name = "x" * 249
    assert create(api, name, 3) == ""
    assert api.produce_values(name, [b"v"], 2).base_offset == 0


@pytest.mark.parametrize("partitions", [0, -1, 201, 2**31 - 1])
def test_illegal_partition_counts_are_refused(api: Api, partitions: int) -> None:
    assert create(api, "counted", partitions) == "INVALID_PARTITIONS"


def test_the_brokers_bound_on_partitions(api: Api) -> None:
    reasons = [create(api, f"many-{number}", 200) for number in range(11)]
    assert reasons[-1] == "INVALID_PARTITIONS"
    request = pb.DeleteTopicsRequest(topics=[pb.TopicRef(name=f"many-{number}") for number in range(11)])
    api.admin.DeleteTopics(request)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.config", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("segment.bytes", "0"),
        ("durability", "maybe"),
        ("message.timestamp.type", "createtime"),
        ("max.message.bytes", str(2**31)),
    ],
)
def test_illegal_configs_are_refused(api: Api, name: str, value: str) -> None:
    assert create(api, "configured", 1, **{name: value}) == "INVALID_CONFIG"


def test_a_name_is_taken_once(api: Api, topic: str) -> None:
    assert create(api, topic) == "TOPIC_EXISTS"


def test_validate_only_creates_nothing(api: Api) -> None:
    request = pb.CreateTopicsRequest(topics=[pb.NewTopic(name="dry"), pb.NewTopic(name="a/b")], validate_only=True)
    assert [result.status.reason for result in api.admin.CreateTopics(request).results] == ["", "INVALID_TOPIC_NAME"]
    assert describe(api, "dry").status.reason == "UNKNOWN_TOPIC"


def test_configs_are_set_and_unset(api: Api, topic: str) -> None:
    assert alter(api, topic, set_configs={"retention.ms": "1000", "max.message.bytes": "100"}) == ""
    configs = {entry.name: entry for entry in describe(api, topic).configs}
    assert (configs["retention.ms"].value, configs["retention.ms"].is_default) == ("1000", False)
    assert (configs["segment.bytes"].value, configs["segment.bytes"].is_default) == (str(2**30), True)
    assert api.produce(topic, batch_of(bytes(100))).status.reason == "RECORD_TOO_LARGE", "a config acts at once"
    assert alter(api, topic, unset_configs=["max.message.bytes"]) == ""
    assert api.produce(topic, batch_of(bytes(100))).base_offset == 0


def test_bad_alterations_change_nothing(api: Api, topic: str) -> None:
    before = describe(api, topic)
    assert alter(api, topic) == "INVALID_REQUEST"
    assert alter(api, topic, partitions=4) == "INVALID_PARTITIONS"
    assert alter(api, topic, partitions=3) == "INVALID_PARTITIONS"
    assert alter(api, topic, partitions=201) == "INVALID_PARTITIONS"
    assert alter(api, topic, partitions=5, set_configs={"retention.ms": "x"}) == "INVALID_CONFIG"
    assert alter(api, topic, unset_configs=["nope"]) == "INVALID_CONFIG"
    assert alter(api, "nowhere", partitions=5) == "UNKNOWN_TOPIC"
    assert describe(api, topic) == before


def test_growth_is_described(api: Api, topic: str) -> None:
    for number, count in enumerate((3, 0, 1, 2)):
        for _ in range(count):
            api.produce_values(topic, [b"x"], number)
    assert alter(api, topic, partitions=6) == ""
    found = describe(api, topic)
    assert [(entry.generation, entry.partitions, list(entry.start_offsets)) for entry in found.generations] == [
        (1, 4, []),
        (2, 6, [3, 0, 1, 2]),
    ]
    assert [(entry.partition, entry.log_end_offset) for entry in found.partitions] == list(
        enumerate((3, 0, 1, 2, 0, 0))
    )
    assert found.partitions[0].size_bytes > 0


def test_topics_are_listed_page_by_page(api: Api) -> None:
    for number in range(5):
        api.create(f"paged-{number}")
    listed = [topic.name for topic in api.admin.ListTopics(pb.ListTopicsRequest()).topics]
    paged: list[str] = []
    token = ""
    while True:
        page = api.admin.ListTopics(pb.ListTopicsRequest(page_size=2, page_token=token))
        assert len(page.topics) <= 2
        paged += [topic.name for topic in page.topics]
        token = page.next_page_token
        if not token:
            break
    assert paged == listed == sorted(listed)
    with pytest.raises(grpc.RpcError) as caught:
        api.admin.ListTopics(pb.ListTopicsRequest(page_size=0))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_deletion_is_told_item_by_item(api: Api, topic: str) -> None:
    request = pb.DeleteTopicsRequest(topics=[pb.TopicRef(name=topic), pb.TopicRef(name="nowhere"), pb.TopicRef()])
    reasons = [result.status.reason for result in api.admin.DeleteTopics(request).results]
    assert reasons == ["", "UNKNOWN_TOPIC", "INVALID_REQUEST"]
    assert topic not in [entry.name for entry in api.admin.ListTopics(pb.ListTopicsRequest()).topics]


@pytest.mark.parametrize("crash", [False, True])
def test_everything_survives_a_restart(tmp_path: Path, crash: bool) -> None:
    with embedded(tmp_path / "data") as broker:
        api = Api(broker.address)
        created = api.create("kept", 3, retention_ms="123456")
        api.create("deleted", 2)
        api.produce_values("deleted", [b"x"])
        api.admin.DeleteTopics(pb.DeleteTopicsRequest(topics=[pb.TopicRef(name="deleted")]))
        for number in range(10):
            api.produce_values("kept", [b"%d" % number], number % 3)
        assert alter(api, "kept", partitions=5) == ""
        before = describe(api, "kept")
        if crash:
            broker.kill()
        else:
            broker.stop()
        api.channel.close()
        assert sorted(path.name for path in (tmp_path / "data").glob("*-[0-9]*")) == [f"kept-{n}" for n in range(5)]
        broker.start()
        api = Api(broker.address)
        assert describe(api, "kept") == before
        assert before.topic.id == created.id
        assert api.values("kept", 1) == [b"1", b"4", b"7"]
        assert describe(api, "deleted").status.reason == "UNKNOWN_TOPIC"
        api.channel.close()


def test_the_broker_describes_itself(api: Api) -> None:
    found = api.admin.DescribeBroker(pb.DescribeBrokerRequest())
    assert found.version
    assert found.max_response_bytes < 4 * 1024 * 1024 < found.max_request_bytes


def test_health_and_reflection(api: Api) -> None:
    health: Any = health_pb2_grpc.HealthStub(api.channel)
    for service in ("", "logbroker.v1.Log", "logbroker.v1.Admin", "logbroker.v1.Groups", "logbroker.v1.Queues"):
        response = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=25)
        assert response.status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError):
        health.Check(health_pb2.HealthCheckRequest(service="nope"), timeout=25)
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(api.channel)
    requests = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
    [response] = stub.ServerReflectionInfo(requests, timeout=25)
    names = {service.name for service in response.list_services_response.service}
    assert {"logbroker.v1.Log", "logbroker.v1.Admin", "logbroker.v1.Queues", "grpc.health.v1.Health"} <= names
