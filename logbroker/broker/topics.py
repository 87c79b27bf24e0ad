"""Rules for topics: names, numbers of partitions, and changes. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from logbroker.config import (
    FIXED_CONFIGS,
    TOPIC_CONFIGS,
    BrokerConfig,
    TopicConfig,
    canonical_texts,
    config_text,
    topic_config,
)
from logbroker.engine import LogGeneration, Topic
from logbroker.errors import (
    FixedTopicError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidRequestError,
    InvalidTopicNameError,
    OverloadedError,
    quoted,
)
from logbroker.record.bands import bands_text, partitions_of
from logbroker.types import INTERNAL_PREFIX, MAX_TOPIC_CHARACTERS, TopicId, is_topic_name

MAX_ITEMS: Final = 20_000
"""Maximum number of items that one request may list."""
MAX_START_OFFSETS = 200_000
"""Maximum number of start offsets in all generations of a topic together, so that they fit into its row and into one
answer."""


def check_topic_name(name: str) -> None:
    """Raise InvalidTopicNameError unless the name is legal in Kafka."""
    if not name:
        raise InvalidTopicNameError("a topic name cannot be empty")
    if len(name) > MAX_TOPIC_CHARACTERS:
        raise InvalidTopicNameError(
            f"a topic name has at most {MAX_TOPIC_CHARACTERS} characters; this one has {len(name)}"
        )
    if not is_topic_name(name):
        raise InvalidTopicNameError(
            f"{quoted(name)} is not a topic name: use a-z, A-Z, 0-9, '.', '_' and '-', not '.' or '..'"
        )


def check_not_internal(name: str) -> None:
    """Raise InvalidRequestError for the name of an internal topic, which only the broker makes, changes and writes."""
    if name.startswith(INTERNAL_PREFIX):
        raise internal_topic_error()


def internal_topic_error() -> InvalidRequestError:
    """Return the error for a change of an internal topic."""
    return InvalidRequestError(
        f"topics named {INTERNAL_PREFIX}... hold records that queue groups keep after retention: the broker "
        f"creates and deletes them with the groups; only read them, or choose another name"
    )


def check_partition_count(partitions: int, total_elsewhere: int, config: BrokerConfig) -> None:
    """Raise InvalidPartitionsError for a count that no topic may have. Raise OverloadedError if the count and the
    broker's other partitions together exceed its limit."""
    limit = config.max_partitions_per_topic
    if not 1 <= partitions <= limit:
        takes = f"1 to {limit} partitions" if limit > 1 else "one partition"
        raise InvalidPartitionsError(f"a topic has {takes} (max_partitions_per_topic), not {partitions}")
    if total_elsewhere + partitions > config.max_partitions:
        raise OverloadedError(
            f"{partitions} partitions beside {total_elsewhere} others are more than the broker takes"
            f" ({config.max_partitions}, max_partitions): delete topics, or ask for fewer"
        )


def partition_count(asked: int | None, config: TopicConfig, default: int) -> int:
    """Return the number of partitions of a new topic. Raises InvalidPartitionsError if `asked` is not the number of
    partitions that its bands have together."""
    if not config.priority_bands:
        return default if asked is None else asked
    of_bands = partitions_of(config.priority_bands)
    if asked not in (None, of_bands):
        raise InvalidPartitionsError(
            f"the bands {bands_text(config.priority_bands)} have {of_bands} partitions together, not {asked}: leave the"
            " count out"
        )
    return of_bands


def new_topic(
    name: str,
    topic_id: TopicId,
    partitions: int,
    overrides: Mapping[str, str],
    config: TopicConfig,
    created_at_ms: int,
) -> Topic:
    """Return a topic in its first generation. `config` is the defaults with the overrides applied. The topic keeps the
    overrides in canonical spelling."""
    return Topic(
        name=name,
        id=topic_id,
        partitions=partitions,
        config=config,
        overrides=canonical_texts(config, overrides),
        generations=(LogGeneration(1, partitions, ()),),
        created_at_ms=created_at_ms,
    )


def with_configs(topic: Topic, set_: Mapping[str, str], unset: Sequence[str], defaults: TopicConfig) -> Topic:
    """Return the topic with some configs set and some reset to their defaults.

    Raises InvalidConfigError, or FixedTopicError for a config that cannot change.
    """
    if len(unset) > len(TOPIC_CONFIGS):
        raise InvalidConfigError(
            f"{len(unset)} configs are to be unset, but there are only {len(TOPIC_CONFIGS)}: name each once"
        )
    for name in unset:
        if name not in TOPIC_CONFIGS:
            raise InvalidConfigError(f"there is no config {quoted(name)}; use one of: {', '.join(TOPIC_CONFIGS)}")
        if name in set_:
            raise InvalidConfigError(f"{name} cannot be set and unset at once")
    overrides = {name: value for name, value in topic.overrides.items() if name not in unset} | dict(set_)
    config = topic_config(overrides, defaults)
    for name in FIXED_CONFIGS:
        if config_text(config, name) != (present := config_text(topic.config, name)):
            raise FixedTopicError(
                f"{name} of topic {topic.name} stays {present or 'empty'}: it decides in which partition a record"
                " lies; create another topic and move the records there"
            )
    return msgspec.structs.replace(topic, overrides=canonical_texts(config, overrides), config=config)


def check_growth(topic: Topic, partitions: int) -> None:
    """Raise InvalidPartitionsError if the count is not above the current one, or if the generations would then keep
    more than MAX_START_OFFSETS offsets. Raise FixedTopicError if the topic has bands."""
    if topic.config.priority_bands:
        raise FixedTopicError(
            f"topic {topic.name} has bands, {bands_text(topic.config.priority_bands)}, and keeps its"
            f" {topic.partitions} partitions: create another topic with more, and move the records there"
        )
    if partitions <= topic.partitions:
        noun = "partition" if topic.partitions == 1 else "partitions"
        raise InvalidPartitionsError(
            f"topic {topic.name} has {topic.partitions} {noun}; the new count must be higher, not {partitions}"
        )
    kept = sum(len(generation.start_offsets) for generation in topic.generations)
    if kept + topic.partitions > MAX_START_OFFSETS:
        raise InvalidPartitionsError(
            f"topic {topic.name} has grown {len(topic.generations) - 1} times; if it grew again, it would keep more"
            f" than {MAX_START_OFFSETS:,} offsets at which its generations began: create another topic with more"
            " partitions"
        )


def grown(topic: Topic, partitions: int, end_offsets: Sequence[int]) -> Topic:
    """Return the topic in a new generation that begins at these end offsets of its old partitions."""
    generation = LogGeneration(topic.generation + 1, partitions, tuple(end_offsets))
    return msgspec.structs.replace(topic, partitions=partitions, generations=(*topic.generations, generation))
