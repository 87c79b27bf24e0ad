"""The configuration file: what is refused, and that it is said where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from logbroker.broker import topics
from logbroker.broker.local_engine.topic_rows import decode_topic, encode_topic
from logbroker.broker.topics import with_configs
from logbroker.config import BROKER_BOUNDS, BROKER_SETTINGS, BrokerConfig, TopicConfig, load_broker_config
from logbroker.engine import LogGeneration
from logbroker.errors import ConfigFileError
from logbroker.grpc_api.log import fetch_session
from logbroker.queues.model import record_id
from logbroker.types import TopicId


@pytest.mark.parametrize(
    "line",
    [
        "thread_switch_interval_seconds = 0.0",
        "checkpoint_seconds = nan",
        "checkpoint_seconds = 0.0",
        "retention_check_seconds = inf",
        "fetch_memory_wait_seconds = -1.0",
        "max_request_bytes = 99999999999",
        "max_response_bytes = 0",
        "max_open_segments = -1",
        "max_fetch_bytes_in_flight = -1",
        "max_groups = 0",
        "max_group_members = 0",
        "reconnect_grace_seconds = -0.1",
        "offsets_retention_seconds = 0.0",
        f"max_produce_bytes_in_flight = {2**64}",
        f"max_produce_bytes_in_flight = {2**63}",
        "sync_threads = 2147483647",
        "default_partitions = 10001",
        "default_partitions = 20\nmax_partitions = 10",
    ],
)
def test_a_value_out_of_bounds_is_refused_by_name(tmp_path: Path, line: str) -> None:
    path = tmp_path / "logbroker.toml"
    path.write_text(line + "\n")
    with pytest.raises(ConfigFileError, match=f"(?s){path}.*{line.split()[0]}"):
        load_broker_config(path)


def test_every_number_has_bounds_and_both_are_kept() -> None:
    numbers: dict[str, Any] = {each.name: each.type for each in BROKER_SETTINGS if each.type in (int, float)}
    assert set(BROKER_BOUNDS) == set(numbers)
    for name, (least, most) in BROKER_BOUNDS.items():
        kind = numbers[name]
        for value in (least - 1, most + 1, -1, 2**63, 2**64, float("nan") if kind is float else 10**30):
            with pytest.raises(ValueError, match=f"{name} must be from .* to {most}"):
                BrokerConfig(**dict[str, Any]({name: value}))
        if name != "default_partitions":
            assert getattr(BrokerConfig(**{name: kind(most)}), name) == most


def test_every_partition_of_the_largest_topic_can_be_used() -> None:
    bounds = [record_id.MAX_PARTITIONS, fetch_session.MAX_PARTITIONS, topics.MAX_ITEMS]  # Of queue groups and so on.
    assert BROKER_BOUNDS["max_partitions_per_topic"][1] <= min(bounds)


def test_settings_that_contradict_each_other_are_told_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "logbroker.toml"
    path.write_text("default_partitions = 20\nmax_partitions_per_topic = 10\n", encoding="utf-8-sig")
    with pytest.raises(ConfigFileError) as refused:
        load_broker_config(path)
    text = str(refused.value)
    assert "default_partitions is 20, above max_partitions_per_topic (10)" in text
    assert "\n" not in text


NO_NUMBERS = ("'+5'", "'1_0'", "' 5'", "'5\\n'", "'\u00b2'", "'\u0665'", "'5.0'", f"'{'9' * 5000}'", "true", "5.0")


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_a_default_of_topics_is_written_as_a_topic_takes_it(tmp_path: Path, value: str) -> None:
    path = tmp_path / "logbroker.toml"
    path.write_text(f'[topic_defaults]\n"retention.ms" = {value}\n', encoding="utf-8")
    with pytest.raises(ConfigFileError) as refused:
        load_broker_config(path)
    assert len(str(refused.value)) < len(str(path)) + 600


def test_a_number_of_thousands_of_digits_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "logbroker.toml"
    path.write_text(f"max_groups = {'9' * 5000}\n")
    with pytest.raises(ConfigFileError, match=r"logbroker\.toml: a line is longer than 4,096 bytes"):
        load_broker_config(path)


def test_configs_that_earlier_brokers_stored_as_they_were_given_are_read() -> None:
    """They took what Python reads as a number, and kept the text."""
    overrides = {
        "retention.ms": " " * 100_000 + "+7_000\n",
        "max.message.bytes": "\u0665\u0665",
        "priority.bands": " hot=7-9:1" + " " * 5_000 + ",cold=0-6:2\n",
        "durability": "written",
    }
    generations = [LogGeneration(1, 3, ())]
    row = {"name": "t", "partitions": 3, "overrides": overrides, "generations": generations, "created_at_ms": 5}
    topic, _ = decode_topic(TopicId(bytes(16)), msgspec.msgpack.encode(row), TopicConfig())
    assert (topic.config.retention_ms, topic.config.max_message_bytes, len(topic.config.priority_bands)) == (
        7000,
        55,
        2,
    )
    assert topic.overrides == {
        "retention.ms": "7000",
        "max.message.bytes": "55",
        "priority.bands": "hot=7-9:1,cold=0-6:2",
        "durability": "written",
    }
    changed = with_configs(topic, {"segment.ms": "9"}, ["durability"], TopicConfig())
    assert decode_topic(changed.id, encode_topic(changed), TopicConfig())[0] == changed


def test_the_defaults_are_within_their_bounds() -> None:
    BrokerConfig()


@pytest.mark.parametrize("line", ['"priority.bands" = "hot=5-9:1,cold=0-4:1"', '"priority.routing" = "key"'])
def test_bands_are_no_default_of_topics(tmp_path: Path, line: str) -> None:
    """Else another default would change topics whose records lie by the old one."""
    path = tmp_path / "logbroker.toml"
    path.write_text(f"[topic_defaults]\n{line}\n")
    with pytest.raises(ConfigFileError, match="cannot be a default: set it when you create a topic"):
        load_broker_config(path)
