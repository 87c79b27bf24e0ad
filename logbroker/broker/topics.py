"""Rules for topics: what a name may be, how many partitions, and how a topic changes. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from logbroker.config import TOPIC_CONFIGS, BrokerConfig, TopicConfig, topic_config
from logbroker.engine import Topic, TopicGeneration
from logbroker.errors import InvalidConfigError, InvalidPartitionsError, InvalidTopicNameError, quoted
from logbroker.types import TopicId

MAX_NAME_LENGTH = 249
"""As in Kafka: with a dash and a partition number it is still a file name."""

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raise InvalidTopicNameError unless the name is legal in Kafka."""
    if not name:
        raise InvalidTopicNameError("a topic name cannot be empty")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopicNameError(f"a topic name has at most {MAX_NAME_LENGTH} characters; this one has {len(name)}")
    if name in (".", "..") or not _LEGAL_NAME.fullmatch(name):
        raise InvalidTopicNameError(
            f"{quoted(name)} is not a topic name: use a-z, A-Z, 0-9, '.', '_' and '-', not '.' or '..'"
        )


def check_partition_count(partitions: int, total_elsewhere: int, config: BrokerConfig) -> None:
    """Raise InvalidPartitionsError for a count that the broker does not take beside its other partitions."""
    limit = config.max_partitions_per_topic
    if not 1 <= partitions <= limit:
        raise InvalidPartitionsError(
            f"a topic has 1 to {limit} partitions (max_partitions_per_topic), not {partitions}"
        )
    if total_elsewhere + partitions > config.max_partitions:
        raise InvalidPartitionsError(
            f"{partitions} partitions beside the present {total_elsewhere} are more than the broker takes"
            f" ({config.max_partitions}, max_partitions)"
        )


def new_topic(
    name: str,
    topic_id: TopicId,
    partitions: int,
    overrides: Mapping[str, str],
    defaults: TopicConfig,
    created_at_ms: int,
) -> Topic:
    """Return a topic in its first generation; raises InvalidConfigError."""
    return Topic(
        name=name,
        id=topic_id,
        partitions=partitions,
        config=topic_config(overrides, defaults),
        overrides=dict(overrides),
        generations=(TopicGeneration(1, partitions, ()),),
        created_at_ms=created_at_ms,
    )


def with_configs(topic: Topic, set_: Mapping[str, str], unset: Sequence[str], defaults: TopicConfig) -> Topic:
    """Return the topic with some configs set and some back at their default; raises InvalidConfigError."""
    for name in unset:
        if name not in TOPIC_CONFIGS:
            raise InvalidConfigError(f"there is no config {quoted(name)}; there are: {', '.join(TOPIC_CONFIGS)}")
        if name in set_:
            raise InvalidConfigError(f"{name} cannot be set and unset at once")
    overrides = {name: value for name, value in topic.overrides.items() if name not in unset} | dict(set_)
    return msgspec.structs.replace(topic, overrides=overrides, config=topic_config(overrides, defaults))


def check_growth(topic: Topic, partitions: int) -> None:
    """Raise InvalidPartitionsError unless the count is above the present one."""
    if partitions <= topic.partitions:
        raise InvalidPartitionsError(
            f"topic {topic.name} has {topic.partitions} partitions; the new count must be higher, not {partitions}"
        )


def grown(topic: Topic, partitions: int, end_offsets: Sequence[int]) -> Topic:
    """Return the topic in a new generation that began at these end offsets of its old partitions."""
    generation = TopicGeneration(topic.generation + 1, partitions, tuple(end_offsets))
    return msgspec.structs.replace(topic, partitions=partitions, generations=(*topic.generations, generation))
