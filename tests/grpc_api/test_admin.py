"""Topics over the API: rules, changes, and what survives a restart."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from logbroker.embedded_broker import embedded
from logbroker.errors import Code
from logbroker.storage.metadata.metadata_store import MetadataReader
from logbroker.v1 import admin_pb2 as pb
from tests.grpc_api.api import Api, batch_of

_numbers = itertools.count()


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


@pytest.mark.prove
def test_the_brokers_bound_on_partitions(api: Api) -> None:
    reasons = [create(api, f"many-{number}", 200) for number in range(11)]
    assert reasons[-1] == "OVERLOADED"
    [result] = api.admin.CreateTopics(
        pb.CreateTopicsRequest(topics=[pb.NewTopic(name="one-more", partitions=200)])
    ).results
    assert (result.status.code, "delete topics" in result.status.message) == (Code.RESOURCE_EXHAUSTED, True)
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


@pytest.mark.parametrize("value", ["0", "-1", "16777217", "16842752", "16842753"])
def test_a_refused_size_of_a_batch_is_told_the_limit_for_users(api: Api, topic: str, value: str) -> None:
    """Topics of the broker itself may have 64 KiB more."""
    alteration = pb.TopicAlteration(topic=pb.TopicRef(name=topic), set_configs={"max.message.bytes": value})
    [result] = api.admin.AlterTopics(pb.AlterTopicsRequest(topics=[alteration])).results
    assert f"a number from 1 to 16777216, not '{value}'" in result.status.message


def test_a_name_is_taken_once(api: Api, topic: str) -> None:
    assert create(api, topic) == "TOPIC_EXISTS"


def outcomes(api: Api, topics: list[pb.NewTopic], *, validate_only: bool) -> list[str]:
    request = pb.CreateTopicsRequest(topics=topics, validate_only=validate_only)
    return [result.status.reason for result in api.admin.CreateTopics(request).results]


@pytest.mark.prove
def test_what_is_validated_is_what_the_request_as_a_whole_would_do(api: Api) -> None:
    """Names and partitions that its items before would take are taken."""
    free = 2000 - api.admin.DescribeBroker(pb.DescribeBrokerRequest()).partitions
    topics = [pb.NewTopic(name=f"planned-{number}", partitions=200) for number in range(free // 200 + 2)]
    topics[1:1] = [
        topics[0],
        pb.NewTopic(name="a/b"),
        pb.NewTopic(name="planned-bad", configs={"retention.ms": "\u00b2"}),
    ]
    validated = outcomes(api, topics, validate_only=True)
    assert validated == outcomes(api, topics, validate_only=True)
    assert validated == outcomes(api, topics, validate_only=False)
    assert {"", "TOPIC_EXISTS", "INVALID_TOPIC_NAME", "INVALID_CONFIG", "OVERLOADED"} == set(validated)
    refs = [pb.TopicRef(name=topic.name) for topic in topics]
    api.admin.DeleteTopics(pb.DeleteTopicsRequest(topics=refs))


@pytest.mark.prove
def test_growth_is_validated_as_a_whole(api: Api) -> None:
    free = 2000 - api.admin.DescribeBroker(pb.DescribeBrokerRequest()).partitions
    names = [f"growing-{number}" for number in range(free // 199 + 2)]
    for name in names:
        api.create(name)
    alterations = [pb.TopicAlteration(topic=pb.TopicRef(name=name), partitions=200) for name in names]
    alterations.insert(1, alterations[0])
    validated, altered = (
        [
            result.status.reason
            for result in api.admin.AlterTopics(pb.AlterTopicsRequest(topics=alterations, validate_only=only)).results
        ]
        for only in (True, False)
    )
    assert validated == altered
    assert (validated[0], validated[1], validated[-1]) == ("", "INVALID_REQUEST", "OVERLOADED")
    api.admin.DeleteTopics(pb.DeleteTopicsRequest(topics=[pb.TopicRef(name=name) for name in names]))


def test_a_topic_is_altered_once_by_a_request(api: Api, topic: str) -> None:
    """Its name and its id refer to the same topic."""
    topic_id = describe(api, topic).topic.id
    refs = [pb.TopicRef(name=topic), pb.TopicRef(id=topic_id), pb.TopicRef(name=topic)]
    alterations = [pb.TopicAlteration(topic=ref, set_configs={"retention.ms": str(n)}) for n, ref in enumerate(refs)]
    results = api.admin.AlterTopics(pb.AlterTopicsRequest(topics=alterations)).results
    assert [result.status.code for result in results] == [0, Code.INVALID_ARGUMENT, Code.INVALID_ARGUMENT]
    assert "twice" in results[1].status.message
    assert {entry.name: entry.value for entry in describe(api, topic).configs}["retention.ms"] == "0"


NO_NUMBERS = ["\u00b2", "9" * 5_000, "+5", "1_000", "\u0665", "\uff15", "\n5", "5 ", " 5", "0x5", "5.0", "1e3"]
NO_NUMBERS += ["", "-", "--5", "5" * 21]


@pytest.mark.parametrize("name", ["max.message.bytes", "retention.ms"])
def test_a_number_is_digits_and_nothing_else(api: Api, topic: str, name: str) -> None:
    """A text that is no number fails alone: its neighbours in a list are carried out."""
    bad = [pb.NewTopic(name=f"bad-{next(_numbers)}", configs={name: text}) for text in NO_NUMBERS]
    good = pb.NewTopic(name=f"beside-{next(_numbers)}")
    assert outcomes(api, [*bad, good], validate_only=False) == ["INVALID_CONFIG"] * len(bad) + [""]
    for text in NO_NUMBERS[:3]:
        assert alter(api, topic, set_configs={name: text}) == "INVALID_CONFIG"
    api.admin.DeleteTopics(pb.DeleteTopicsRequest(topics=[pb.TopicRef(name=good.name)]))


ARABIC = "".join(chr(0x660 + int(digit)) for digit in "16842752")


@pytest.mark.parametrize("text", ["+16842752", "16_842_752", " 16842752", ARABIC, "16777217", "016777217"])
def test_no_way_to_write_a_number_leads_past_its_bound(api: Api, topic: str, text: str) -> None:
    assert create(api, "too-large", 1, **{"max.message.bytes": text}) == "INVALID_CONFIG"
    assert alter(api, topic, set_configs={"max.message.bytes": text}) == "INVALID_CONFIG"


@pytest.mark.parametrize("name", ["retention.ms", "durability", "priority.bands", "priority.routing", "no.such"])
@pytest.mark.parametrize("text", [" " * 60_000 + "5", "a=0-9:1," * 7_000, "," * 60_000])
def test_a_config_of_too_many_characters_is_refused_without_being_repeated(api: Api, name: str, text: str) -> None:
    topic = pb.NewTopic(name="long-config", configs={name: text})
    [result] = api.admin.CreateTopics(pb.CreateTopicsRequest(topics=[topic])).results
    assert result.status.reason == "INVALID_CONFIG"
    assert len(result.status.message) < 600


def test_configs_are_kept_as_the_broker_writes_them(tmp_path: Path) -> None:
    given = {"retention.ms": "0000007", "priority.bands": " hot=7-9:1 ,  cold=0-6:2"}
    with embedded(tmp_path / "data") as broker:
        api = Api(broker.address)
        request = pb.CreateTopicsRequest(topics=[pb.NewTopic(name="t", configs=given)])
        assert not api.admin.CreateTopics(request).results[0].status.code
        assert alter(api, "t", set_configs={"segment.ms": "-0008"}) == "INVALID_CONFIG"
        assert alter(api, "t", set_configs={"segment.ms": "0008"}) == ""
        api.channel.close()
    [(_, row)] = MetadataReader.open(tmp_path / "data" / "meta").scan("topics")
    assert msgspec.msgpack.decode(row)["overrides"] == {
        "retention.ms": "7",
        "priority.bands": "hot=7-9:1,cold=0-6:2",
        "segment.ms": "8",
    }


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


def test_deletion_of_records_is_told_item_by_item(api: Api, topic: str) -> None:
    for partition in range(4):
        api.produce_values(topic, [b"a", b"b", b"c"], partition)
    request = pb.DeleteRecordsRequest()
    wanted: list[tuple[str, int, int | None]] = [
        (topic, 0, 2),
        (topic, 1, None),
        (topic, 2, 4),
        (topic, 2, -1),
        (topic, 4, 0),
        ("nowhere", 0, 0),
        ("", 0, 0),
        ("__queue.g", 0, 0),
    ]
    for name, partition, offset in wanted:
        request.deletions.add(topic=pb.TopicRef(name=name), partition=partition, before_offset=offset)
    results = api.admin.DeleteRecords(request).results
    assert [(result.status.reason, result.log_start_offset) for result in results] == [
        ("", 2),
        ("", 3),
        ("OFFSET_OUT_OF_RANGE", 0),
        ("INVALID_REQUEST", 0),
        ("UNKNOWN_PARTITION", 0),
        ("UNKNOWN_TOPIC", 0),
        ("INVALID_REQUEST", 0),
        ("UNKNOWN_TOPIC", 0),
    ]
    described = api.admin.DescribeTopics(
        pb.DescribeTopicsRequest(topics=[pb.TopicRef(name=topic)], include_partitions=True)
    )
    assert [each.log_start_offset for each in described.results[0].partitions] == [2, 3, 0, 0]


@pytest.mark.prove(keep=1)
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


def test_health(api: Api) -> None:
    health: Any = health_pb2_grpc.HealthStub(api.channel)
    for service in ("", "logbroker.v1.Log", "logbroker.v1.Admin", "logbroker.v1.Groups", "logbroker.v1.Queues"):
        response = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=25)
        assert response.status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError):
        health.Check(health_pb2.HealthCheckRequest(service="nope"), timeout=25)


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection_lists_and_describes_all_services_by_its_new_and_its_old_name(api: Api, version: str) -> None:
    requests = reflection_pb2.ServerReflectionRequest
    ask: Any = api.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=requests.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    [listed] = ask(iter([requests(list_services="")]), timeout=25)
    names = [service.name for service in listed.list_services_response.service]
    assert {name.rpartition(".")[2] for name in names} == {
        *("Log", "Admin", "Groups", "Queues"),
        *("Health", "ServerReflection"),
    }
    assert {f"grpc.reflection.{each}.ServerReflection" for each in ("v1", "v1alpha")} <= set(names)
    for name, answer in zip(
        names, ask(iter([requests(file_containing_symbol=name) for name in names]), timeout=25), strict=True
    ):
        # As a tool does: the files that come are all that it has.
        pool = DescriptorPool()
        files = [FileDescriptorProto.FromString(f) for f in answer.file_descriptor_response.file_descriptor_proto]
        for file in sorted(files, key=lambda file: len(file.dependency)):
            pool.Add(file)
        service = pool.FindServiceByName(name)
        assert service.methods
        for method in service.methods:
            assert method.input_type.file.package == name.rpartition(".")[0]


@pytest.mark.parametrize(
    "method",
    [
        "grpc.health.v1.Health/Check",
        "grpc.health.v1.Health/Watch",
        "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ],
)
def test_the_standard_services_refuse_malformed_requests_as_ours_do(api: Api, method: str) -> None:
    call: Any = api.channel.stream_stream(f"/{method}", request_serializer=bytes, response_deserializer=bytes)
    with pytest.raises(grpc.RpcError) as caught:
        list(call(iter([b"\xff\xff"]), timeout=25))
    refused: Any = caught.value
    assert (refused.code(), "check the client's .proto files" in refused.details()) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        True,
    )
