"""Settings of storms on a queue group."""

from __future__ import annotations

import msgspec

from tests import storm


class Weather(storm.Weather, frozen=True, kw_only=True):
    """All that a storm is made of, but its seed. A plant is a bug in the broker."""

    records: int = 20_000
    keys: int = 1000
    partitions: int = 4
    workers: int = 6
    session_workers: int = 2
    lease_seconds: float = 1.0
    grace_seconds: float = 0.5
    max_attempts: int = 4
    on_exhausted: str = "dead-letter"
    parts: int = 0
    """Number of second keys, by which lanes are split and joined meanwhile; 0: they are not."""
    has_outputs: bool = False
    """Whether each ack sends an output."""
    poison: float = 0.002
    """The share of records that fail whenever they are tried."""
    nacks: float = 0.05
    late: float = 0.002
    grows: bool = True
    """Whether the topic gets another partition half way."""
    events: int = 70
    pause_seconds: float = 0.4
    chances: dict[str, float] = msgspec.field(
        default_factory=lambda: {"kill": 30, "freeze": 30, "nap": 15, "leave": 15, "broker": 10}
    )
    settings: str = ""
    """Further settings of the broker, as lines of TOML."""
    quiet_seconds: float = 90.0
    """How long it may take at most to finish everything when all is over."""
