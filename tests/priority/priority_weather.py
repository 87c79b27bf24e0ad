"""Settings of storms on queue groups with priorities."""

from __future__ import annotations

import msgspec

from logbroker.v1 import queues_pb2 as pb
from tests import storm
from tests.priority.priority_deliveries import Rules


class GroupPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One queue group of a storm."""

    name: str
    ordering: str = "none"
    priority: str = "strict"
    rank: str = "lane"
    age_seconds: float = 5.0
    callers: int = 2
    """Workers that ask for one record at a time, by calls."""
    streams: int = 1
    """Workers of the Python client, with one delivery in hand."""
    bands: tuple[str, ...] = ("",)
    """The bands that the workers serve, in turn; "": all."""

    def settings(self, weather: Weather) -> pb.QueueSettings:
        return pb.QueueSettings(
            ordering=self.ordering,
            priority=self.priority,
            priority_rank=self.rank,
            age_seconds=self.age_seconds if self.priority == "ageing" else None,
            lease_seconds=weather.lease_seconds,
            grace_seconds=weather.grace_seconds,
            max_attempts=1000,
            backoff_initial_seconds=0,
        )

    def rules(self, weather: Weather) -> Rules:
        return Rules(
            by_key=self.ordering == "key",
            rank_by_lane=self.rank == "lane",
            age_seconds=self.age_seconds if self.priority == "ageing" else 0.0,
            lease_seconds=weather.lease_seconds,
            grace_seconds=weather.grace_seconds,
        )


class Weather(storm.Weather, frozen=True, kw_only=True):
    """All that a storm is made of, but its seed. A plant is a bug in the broker, or `priority_plants`' delay."""

    groups: tuple[GroupPlan, ...]
    partitions: int = 1
    records: int = 1000
    keys: int = 60
    at_once: float = 0.4
    """The share of records that are sent before anything else happens."""
    handle_seconds: float = 0.002
    """How long a worker takes over a record, on average."""
    lease_seconds: float = 1.0
    grace_seconds: float = 0.3
    nacks: float = 0.05
    releases: float = 0.03
    late: float = 0.002
    """The shares of records that workers nack, give back, or ack when the lease is over."""
    events: int = 6
    pause_seconds: float = 0.8
    down_seconds: float = 0.0
    chances: dict[str, float] = msgspec.field(
        default_factory=lambda: {"kill": 30, "freeze": 20, "leave": 20, "broker": 30}
    )
    quiet_seconds: float = 90.0
    """How long no record may be finished, at most, when all is over and some are left."""
