"""Completes the settings of a queue group for its topic, and creates its dead-letter topic."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from logbroker.engine import LogEngine, Topic
from logbroker.errors import InvalidRequestError, TopicExistsError
from logbroker.queues.dead_letters.size_limits import LetterSizeLimit, configs_for, made_for
from logbroker.queues.model.settings import Ordering, Priority, QueueGroupSettings, dead_letter_topic_of
from logbroker.queues.priority.group_bands import with_weights
from logbroker.types import INTERNAL_PREFIX


def altered(settings: QueueGroupSettings, changes: Mapping[str, Any]) -> QueueGroupSettings:
    """Return settings with `changes` applied, by name. `weights` are reset if the other settings no longer use
    them."""
    settings = msgspec.structs.replace(settings, **changes)
    if settings.priority is not Priority.WEIGHTED and "weights" not in changes:
        settings = msgspec.structs.replace(settings, weights={})
    return settings


def completed(
    settings: QueueGroupSettings, group_id: str, topic: Topic, present: QueueGroupSettings | None
) -> QueueGroupSettings:
    """Return settings with the defaults that depend on the group and its topic filled in. `present` is the settings of
    the group, if it exists: what they have already is not refused, so that the other settings can change. Raises
    InvalidRequestError."""
    if not settings.dead_letter_topic:
        # The letters of a group stay in sight while it makes no more of them.
        kept = "" if present is None else present.dead_letter_topic
        name = dead_letter_topic_of(group_id) if settings.uses_dead_letters else kept
        settings = msgspec.structs.replace(settings, dead_letter_topic=name)
    settings.check()
    is_new_name = present is None or settings.dead_letter_topic != present.dead_letter_topic
    if settings.dead_letter_topic and is_new_name and not settings.uses_dead_letters:
        raise InvalidRequestError(
            f"a dead_letter_topic is of no use with on_exhausted {settings.on_exhausted.value} and on_undecodable"
            f" {settings.on_undecodable.value}: set dead-letter"
        )
    settings = with_weights(settings, topic)
    if settings.dead_letter_topic.startswith(INTERNAL_PREFIX):
        raise InvalidRequestError(f"topics named {INTERNAL_PREFIX}... belong to queue groups: name another")
    if settings.dead_letter_topic == topic.name:
        raise InvalidRequestError("the dead_letter_topic is the queue group's own topic: name another")
    check_ordering(settings, topic, present)
    return settings


def check_ordering(settings: QueueGroupSettings, topic: Topic, present: QueueGroupSettings | None) -> None:
    """Raise InvalidRequestError if the topic has too many partitions for the ordering, and the ordering is new."""
    is_new = present is None or settings.ordering is not present.ordering
    if settings.ordering is Ordering.SINGLE and is_new and topic.partitions > 1:
        raise InvalidRequestError(
            f"ordering single needs a topic with one partition; {topic.name} has {topic.partitions}: order by key"
        )


async def make_dead_letter_topic(
    settings: QueueGroupSettings, topic: Topic, engine: LogEngine
) -> LetterSizeLimit | None:
    """Create the dead-letter topic of a group on `topic` if the settings use one that does not exist. Return the
    topic's size limit if it looks like one that the broker set; else None.

    Raises InvalidRequestError if the dead-letter topic has bands with partitions of their own, or the error that
    prevents creating a topic.
    """
    if not settings.uses_dead_letters:
        return None
    name = settings.dead_letter_topic
    with suppress(TopicExistsError):
        await engine.create_topic(name, topic.partitions, configs_for(topic))
    dead_topic = engine.topic(name)
    if dead_topic.routing_bands:
        # Letters are routed by their keys alone, so that the letters of a key keep their order.
        raise InvalidRequestError(
            f"the dead-letter topic {name} has bands with partitions of their own, and dead letters are routed by their"
            " keys alone: name a topic without bands, or with priority.routing=key"
        )
    return made_for(dead_topic, topic)
