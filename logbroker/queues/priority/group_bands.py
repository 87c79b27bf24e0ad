"""The bands that a queue group knows: those of its topic, else hot, warm and cold."""

from __future__ import annotations

import msgspec

from logbroker.engine import Topic
from logbroker.errors import InvalidRequestError, quoted
from logbroker.queues.model.settings import Priority, QueueGroupSettings
from logbroker.queues.priority.policy import default_weights
from logbroker.record.bands import DEFAULT_BANDS, Band


def bands_of(topic: Topic) -> tuple[Band, ...]:
    """The most urgent first."""
    return topic.config.priority_bands or DEFAULT_BANDS


def band_named(name: str, topic: Topic, settings: QueueGroupSettings) -> Band | None:
    """The band whose records alone somebody wants; "": None. Raises InvalidRequestError."""
    if not name:
        return None
    if not settings.has_priorities:
        raise InvalidRequestError(
            f"the queue group has no priorities, and no band {quoted(name)}: ask for no band, or alter its priority"
        )
    bands = {band.name: band for band in bands_of(topic)}
    if name not in bands:
        raise InvalidRequestError(f"there is no band {quoted(name)}: ask for {' or '.join(bands)}")
    return bands[name]


def with_weights(settings: QueueGroupSettings, topic: Topic) -> QueueGroupSettings:
    """Return settings with the weights that bands have where none are given. Raises InvalidRequestError for a weight of
    a band that there is not."""
    bands = bands_of(topic)
    if settings.priority is Priority.WEIGHTED and not settings.weights:
        return msgspec.structs.replace(settings, weights=default_weights(bands))
    names = [band.name for band in bands]
    for name in settings.weights:
        if name not in names:
            raise InvalidRequestError(f"there is no band {quoted(name)} to give a weight: name {' or '.join(names)}")
    return settings
