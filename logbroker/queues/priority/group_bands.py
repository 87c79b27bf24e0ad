"""The bands of a queue group: those of its topic, or else hot, warm and cold."""

from __future__ import annotations

import msgspec

from logbroker.engine import Topic
from logbroker.errors import InvalidRequestError, quoted
from logbroker.queues.model.settings import Priority, QueueGroupSettings
from logbroker.queues.priority.policy import default_weights
from logbroker.record.bands import DEFAULT_BANDS, Band


def bands_of(topic: Topic) -> tuple[Band, ...]:
    """Return the bands of a topic, the most urgent first."""
    return topic.config.priority_bands or DEFAULT_BANDS


def band_named(name: str, topic: Topic, settings: QueueGroupSettings) -> Band | None:
    """Return the band with this name, or None for "", which means all bands. Raises InvalidRequestError."""
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
    """Return the settings with the default weights of the bands, if weights are needed and none are set. Raises
    InvalidRequestError for a weight of an unknown band."""
    bands = bands_of(topic)
    if settings.priority is Priority.WEIGHTED and not settings.weights:
        return msgspec.structs.replace(settings, weights=default_weights(bands))
    names = [band.name for band in bands]
    for name in settings.weights:
        if name not in names:
            raise InvalidRequestError(f"there is no band {quoted(name)} to give a weight: name {' or '.join(names)}")
    return settings
