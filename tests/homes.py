"""The groups of a broker that has one home."""

from __future__ import annotations

from logbroker.broker.broker import Broker
from logbroker.broker.homes import Home


def home_of(broker: Broker) -> Home:
    """The only home of a broker."""
    [home] = broker.homes.all()
    return home
