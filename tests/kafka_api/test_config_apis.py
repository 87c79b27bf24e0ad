"""The configs of topics and of the broker, and growth: every version, spoken by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import logbroker
from logbroker.client.sync import Admin, QueueAdmin, QueueSettings
from logbroker.config import BROKER_SETTINGS, TOPIC_CONFIGS
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import FixedTopicError
from logbroker.kafka_api.apis.table import TABLE
from logbroker.kafka_api.config_resources import KAFKA_DEFAULTS
from logbroker.kafka_wire.apis import ALTER_CONFIGS, CREATE_PARTITIONS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from logbroker.kafka_wire.codec import Api
from logbroker.kafka_wire.messages import alter_configs as ac
from logbroker.kafka_wire.messages import create_partitions as cp
from logbroker.kafka_wire.messages import describe_configs as dc
from logbroker.kafka_wire.messages import incremental_alter_configs as iac
from tests.kafka_api.raw_client import RawClient

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
OK, UNKNOWN_TOPIC, INVALID_TOPIC, INVALID_PARTITIONS, INVALID_ASSIGNMENT, INVALID_CONFIG = 0, 3, 17, 37, 39, 40
INVALID_REQUEST, POLICY_VIOLATION = 42, 44
FROM_TOPIC, FROM_FILE, FROM_DEFAULT = 1, 4, 5
BANDS = "hot=5-9:1,cold=0-4:2"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """One whose file has a default for topics."""
    with logbroker.embedded(kafka=True, topic_defaults={"segment.bytes": 1 << 20}, default_partitions=2) as broker:
        yield broker


@pytest.fixture
def banded(broker: EmbeddedBroker, topic: str) -> str:
    """A topic whose partitions cannot change."""
    with Admin(broker.address) as admin:
        admin.create_topic(f"{topic}-banded", configs={"priority.bands": BANDS})
    return f"{topic}-banded"


def versions(api: Api) -> list[int]:
    return list(TABLE[api.key].versions)


def described(
    broker: EmbeddedBroker, *resources: tuple[int, str, list[str] | None], version: int = 4, **more: Any
) -> list[dc.DescribeConfigsResponseResult]:
    wanted = [
        dc.DescribeConfigsRequestResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        for kind, name, keys in resources
    ]
    with RawClient(broker.kafka_address) as client:
        answer = client.call(DESCRIBE_CONFIGS, version, dc.DescribeConfigsRequest(resources=wanted, **more))
    found: list[dc.DescribeConfigsResponseResult] = answer.results
    return found


def overrides_of(broker: EmbeddedBroker, topic: str) -> dict[str, str | None]:
    [found] = described(broker, (TOPIC, topic, None))
    return {each.name: each.value for each in found.configs if each.config_source == FROM_TOPIC}


# --- descriptions ---


@pytest.mark.parametrize("version", versions(DESCRIBE_CONFIGS))
def test_configs_have_their_sources(broker: EmbeddedBroker, topic: str, version: int) -> None:
    with Admin(broker.address) as admin:
        admin.alter_topic(topic, set_configs={"retention.ms": "1000"})
    of_topic, of_broker = described(
        broker, (TOPIC, topic, None), (BROKER, "1", []), (TOPIC, topic, []), version=version, include_synonyms=True
    )
    assert (of_topic.error_code, of_topic.error_message, of_broker.error_code) == (OK, None, OK)
    found = {each.name: each for each in of_topic.configs}
    assert found.keys() == TOPIC_CONFIGS.keys()
    assert {name for name, each in found.items() if each.read_only} == {"priority.bands", "priority.routing"}
    assert {name: (each.value, each.config_source) for name, each in found.items() if each.config_source != 5} == {
        "retention.ms": ("1000", FROM_TOPIC),
        "segment.bytes": ("1048576", FROM_FILE),
    }
    assert [(each.value, each.source) for each in found["retention.ms"].synonyms] == [
        ("1000", FROM_TOPIC),
        ("604800000", FROM_DEFAULT),
    ]
    assert [(each.value, each.source) for each in found["segment.bytes"].synonyms] == [
        ("1048576", FROM_FILE),
        ("1073741824", FROM_DEFAULT),
    ]
    settings = {each.name: each for each in of_broker.configs}
    assert settings.keys() == {each.name for each in BROKER_SETTINGS}
    assert all(each.read_only and not each.is_sensitive for each in settings.values())
    default_partitions = settings["default_partitions"]
    assert (default_partitions.value, default_partitions.config_source) == ("2", FROM_FILE)
    assert settings["topic_defaults"].value == "segment.bytes=1048576"
    if version >= 3:
        kinds = {name: found[name].config_type for name in ("retention.ms", "segment.bytes", "durability")}
        assert kinds == {"retention.ms": 5, "segment.bytes": 3, "durability": 2}
        assert {each.documentation for each in of_topic.configs} == {None}


def test_only_what_is_wanted_is_described(broker: EmbeddedBroker, topic: str) -> None:
    [found] = described(broker, (TOPIC, topic, ["retention.ms", "missing"]), include_documentation=True)
    [config] = found.configs
    assert (config.name, config.synonyms) == ("retention.ms", [])
    assert config.documentation == TOPIC_CONFIGS["retention.ms"].documentation
    [of_broker] = described(broker, (BROKER, "1", ["data_dir"]))
    assert [each.value for each in of_broker.configs] == [str(broker.data_dir)]


def test_each_resource_has_its_own_error(broker: EmbeddedBroker, topic: str) -> None:
    found = described(
        broker,
        (TOPIC, "missing", None),
        (TOPIC, "no topic name!", None),
        (TOPIC, "", None),
        (BROKER, "2", None),
        (BROKER, "one", None),
        (BROKER, "", None),
        (GROUP, "g", None),
        (TOPIC, topic, ["retention.ms"]),
    )
    errors = [UNKNOWN_TOPIC, INVALID_TOPIC, INVALID_TOPIC, INVALID_REQUEST, INVALID_REQUEST, OK, INVALID_REQUEST, OK]
    assert [each.error_code for each in found] == errors
    assert [bool(each.error_message) for each in found] == [bool(each) for each in errors]


# --- alterations ---


def incremental(
    broker: EmbeddedBroker,
    *resources: tuple[int, str, Sequence[tuple[str, int, str | None]]],
    version: int = 1,
    validate_only: bool = False,
) -> list[int]:
    wanted = [
        iac.IncrementalAlterConfigsRequestAlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                iac.IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=operation, value=value)
                for key, operation, value in configs
            ],
        )
        for kind, name, configs in resources
    ]
    request = iac.IncrementalAlterConfigsRequest(resources=wanted, validate_only=validate_only)
    with RawClient(broker.kafka_address) as client:
        answer = client.call(INCREMENTAL_ALTER_CONFIGS, version, request)
    assert all(bool(each.error_code) == bool(each.error_message) for each in answer.responses)
    return [each.error_code for each in answer.responses]


def replace(
    broker: EmbeddedBroker,
    *resources: tuple[int, str, Sequence[tuple[str, str | None]]],
    version: int = 2,
    validate_only: bool = False,
) -> list[int]:
    wanted = [
        ac.AlterConfigsRequestResource(
            resource_type=kind,
            resource_name=name,
            configs=[ac.AlterConfigsRequestAlterableConfig(name=key, value=value) for key, value in configs],
        )
        for kind, name, configs in resources
    ]
    request = ac.AlterConfigsRequest(resources=wanted, validate_only=validate_only)
    with RawClient(broker.kafka_address) as client:
        answer = client.call(ALTER_CONFIGS, version, request)
    assert all(bool(each.error_code) == bool(each.error_message) for each in answer.responses)
    return [each.error_code for each in answer.responses]


@pytest.mark.parametrize("version", versions(INCREMENTAL_ALTER_CONFIGS))
def test_configs_are_set_and_reset_one_by_one(broker: EmbeddedBroker, topic: str, version: int) -> None:
    wanted = (TOPIC, topic, [("retention.ms", SET, "1000"), ("segment.bytes", SET, "2000")])
    assert incremental(broker, wanted, version=version, validate_only=True) == [OK]
    assert overrides_of(broker, topic) == {}
    assert incremental(broker, wanted, version=version) == [OK]
    assert overrides_of(broker, topic) == {"retention.ms": "1000", "segment.bytes": "2000"}
    later: list[tuple[str, int, str | None]] = [("retention.ms", DELETE, None), ("durability", SET, "written")]
    assert incremental(broker, (TOPIC, topic, later), version=version) == [OK]
    assert overrides_of(broker, topic) == {"segment.bytes": "2000", "durability": "written"}


@pytest.mark.parametrize("version", versions(ALTER_CONFIGS))
def test_all_configs_are_replaced(broker: EmbeddedBroker, topic: str, banded: str, version: int) -> None:
    assert replace(broker, (TOPIC, topic, [("retention.ms", "1000")]), version=version) == [OK]
    assert replace(broker, (TOPIC, topic, [("durability", "written")]), version=version, validate_only=True) == [OK]
    assert overrides_of(broker, topic) == {"retention.ms": "1000"}
    assert replace(broker, (TOPIC, topic, [("durability", "written")]), version=version) == [OK]
    assert overrides_of(broker, topic) == {"durability": "written"}
    assert replace(broker, (TOPIC, topic, []), version=version) == [OK]
    assert overrides_of(broker, topic) == {}
    assert replace(broker, (TOPIC, banded, []), version=version) == [OK]
    assert overrides_of(broker, banded) == {"priority.bands": BANDS}


def test_defaults_of_kafka_that_hold_for_each_topic_are_accepted(broker: EmbeddedBroker, topic: str) -> None:
    for name, value in KAFKA_DEFAULTS.items():
        assert incremental(broker, (TOPIC, topic, [(name, SET, value), ("retention.ms", SET, "1000")])) == [OK]
        assert incremental(broker, (TOPIC, topic, [(name, DELETE, None)])) == [OK]
        assert replace(broker, (TOPIC, topic, [(name, value), ("retention.ms", "1000")])) == [OK]
        assert incremental(broker, (TOPIC, topic, [(name, SET, "2")])) == [INVALID_CONFIG]
        assert replace(broker, (TOPIC, topic, [(name, "2")])) == [INVALID_CONFIG]
        assert overrides_of(broker, topic) == {"retention.ms": "1000"}


def test_a_refusal_says_what_is_accepted(broker: EmbeddedBroker, topic: str) -> None:
    [of_group] = described(broker, (GROUP, "g", None))
    assert of_group.error_message is not None
    assert "topics (2) have some, and so has the broker (4)" in of_group.error_message
    config = iac.IncrementalAlterConfigsRequestAlterableConfig
    with RawClient(broker.kafka_address) as client:
        for name, value in KAFKA_DEFAULTS.items():
            wanted = iac.IncrementalAlterConfigsRequestAlterConfigsResource(
                resource_type=TOPIC, resource_name=topic, configs=[config(name=name, value="compact")]
            )
            request = iac.IncrementalAlterConfigsRequest(resources=[wanted])
            [altered] = client.call(INCREMENTAL_ALTER_CONFIGS, 1, request).responses
            assert altered.error_message == f"{name} is {value} for each topic, not 'compact'; leave it out"


@pytest.mark.parametrize("validate_only", [False, True])
def test_alterations_are_refused_one_by_one(
    broker: EmbeddedBroker, topic: str, banded: str, validate_only: bool
) -> None:
    def one(kind: int, name: str, key: str = "retention.ms", operation: int = SET, value: str | None = "7") -> int:
        [code] = incremental(broker, (kind, name, [(key, operation, value)]), validate_only=validate_only)
        if operation == SET:
            assert replace(broker, (kind, name, [(key, value)]), validate_only=validate_only) == [code]
        return code

    assert one(TOPIC, "missing") == UNKNOWN_TOPIC
    assert one(TOPIC, "no topic name!") == INVALID_TOPIC
    assert one(TOPIC, "__queue.g") == INVALID_TOPIC
    assert one(TOPIC, topic, "cleanup.policy", value="compact") == INVALID_CONFIG
    assert one(TOPIC, topic, "preallocate", DELETE, None) == INVALID_CONFIG
    assert one(TOPIC, topic, value="soon") == INVALID_CONFIG
    assert one(TOPIC, topic, value="") == INVALID_CONFIG
    assert one(TOPIC, topic, "max.message.bytes", value=str(1 << 24 | 1)) == INVALID_CONFIG
    assert one(TOPIC, topic, operation=APPEND) == INVALID_CONFIG
    assert one(TOPIC, topic, operation=SUBTRACT) == INVALID_CONFIG
    assert one(TOPIC, topic, operation=4) == INVALID_REQUEST
    assert one(TOPIC, topic, value=None) == INVALID_REQUEST
    assert one(TOPIC, banded, "priority.bands", value="all=0-9:3") == POLICY_VIOLATION
    assert one(BROKER, "1", "default_partitions") == INVALID_REQUEST
    assert one(BROKER, "2", "default_partitions") == INVALID_REQUEST
    assert one(GROUP, "g") == INVALID_REQUEST
    assert overrides_of(broker, topic) == {}


@pytest.mark.parametrize(
    "alter",
    [
        lambda broker, *names: incremental(broker, *((TOPIC, name, [("retention.ms", SET, "7")]) for name in names)),
        lambda broker, *names: replace(broker, *((TOPIC, name, [("retention.ms", "7")]) for name in names)),
    ],
)
def test_an_error_of_one_resource_leaves_the_others_alone(
    broker: EmbeddedBroker, topic: str, alter: Callable[..., list[int]]
) -> None:
    assert alter(broker, "missing", topic) == [UNKNOWN_TOPIC, OK]
    assert alter(broker, "missing", topic, "missing") == [INVALID_REQUEST, OK], "named twice"
    assert overrides_of(broker, topic) == {"retention.ms": "7"}


def test_a_config_that_is_named_twice_is_refused(broker: EmbeddedBroker, topic: str) -> None:
    assert replace(broker, (TOPIC, topic, [("retention.ms", "7"), ("retention.ms", "8")])) == [INVALID_REQUEST]
    twice: list[tuple[str, int, str | None]] = [("retention.ms", SET, "7"), ("retention.ms", DELETE, None)]
    assert incremental(broker, (TOPIC, topic, twice)) == [INVALID_REQUEST]
    mixed: list[tuple[str, int, str | None]] = [("retention.ms", SET, "7"), ("segment.ms", SET, "x")]
    assert incremental(broker, (TOPIC, topic, mixed)) == [INVALID_CONFIG]
    assert overrides_of(broker, topic) == {}, "all or none"


# --- growth ---


def grow(
    broker: EmbeddedBroker, *topics: tuple[str, int, list[list[int]] | None], version: int = 3, **more: Any
) -> list[int]:
    wanted = [
        cp.CreatePartitionsRequestTopic(
            name=name,
            count=count,
            assignments=None
            if assigned is None
            else [cp.CreatePartitionsRequestAssignment(broker_ids=nodes) for nodes in assigned],
        )
        for name, count, assigned in topics
    ]
    with RawClient(broker.kafka_address) as client:
        answer = client.call(CREATE_PARTITIONS, version, cp.CreatePartitionsRequest(topics=wanted, **more))
    assert all(bool(each.error_code) == bool(each.error_message) for each in answer.results)
    return [each.error_code for each in answer.results]


def partitions_of(broker: EmbeddedBroker, topic: str) -> int:
    with Admin(broker.address) as admin:
        return admin.describe_topic(topic).info.partitions


@pytest.mark.parametrize("version", versions(CREATE_PARTITIONS))
def test_topics_grow(broker: EmbeddedBroker, topic: str, version: int) -> None:
    assert grow(broker, (topic, 5, None), version=version, validate_only=True) == [OK]
    assert partitions_of(broker, topic) == 3
    assert grow(broker, (topic, 5, None), version=version) == [OK]
    assert partitions_of(broker, topic) == 5
    assert grow(broker, (topic, 7, [[1], [1]]), version=version) == [OK]
    assert partitions_of(broker, topic) == 7


def test_configs_and_partitions_outlast_a_restart(broker: EmbeddedBroker, topic: str) -> None:
    assert incremental(broker, (TOPIC, topic, [("retention.ms", SET, "1000")])) == [OK]
    assert grow(broker, (topic, 7, None)) == [OK]
    broker.kill()
    broker.start()
    assert overrides_of(broker, topic) == {"retention.ms": "1000"}
    assert partitions_of(broker, topic) == 7


@pytest.mark.parametrize("validate_only", [False, True])
def test_growth_is_refused_topic_by_topic(broker: EmbeddedBroker, topic: str, banded: str, validate_only: bool) -> None:
    def one(name: str, count: int, assigned: list[list[int]] | None = None) -> int:
        [code] = grow(broker, (name, count, assigned), validate_only=validate_only)
        return code

    assert one("missing", 5) == UNKNOWN_TOPIC
    assert one("__queue.g", 5) == INVALID_TOPIC
    assert [one(topic, count) for count in (3, 2, 0, -1, -(2**31), 2**31 - 1)] == [INVALID_PARTITIONS] * 6
    assert one(topic, 4, [[2]]) == INVALID_ASSIGNMENT
    assert one(topic, 4, [[1, 2]]) == INVALID_ASSIGNMENT
    assert one(topic, 4, []) == INVALID_ASSIGNMENT
    assert one(topic, 4, [[1], [1]]) == INVALID_ASSIGNMENT
    assert one(banded, 5) == POLICY_VIOLATION
    with QueueAdmin(broker.address) as queues, Admin(broker.address) as admin:
        ordered = admin.create_topic(f"{topic}-ordered", partitions=1).name
        queues.create_queue(ordered, ordered, QueueSettings(ordering="single"))
        assert one(ordered, 2) == POLICY_VIOLATION
        with pytest.raises(FixedTopicError, match=f"queue group {ordered}"):
            admin.alter_topic(ordered, partitions=2)
    assert grow(broker, (topic, 4, None), (topic, 5, None), ("missing", 2, None), validate_only=validate_only) == [
        INVALID_REQUEST,
        UNKNOWN_TOPIC,
    ]
    assert partitions_of(broker, topic) == 3
