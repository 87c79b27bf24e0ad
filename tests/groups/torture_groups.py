"""The storm's columns of `make torture`: 3,000 events, and as many again where streams and sessions are kept for longer
or shorter than each other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.crash.columns import Column
from tests.groups.storm import CONVOYS, Weather, run

_EVENTS: Final = 100


def _storm(seed: int, directory: Path) -> Mapping[str, int]:
    return run(directory, seed, Weather(events=_EVENTS))


def _restarts(seed: int, directory: Path) -> Mapping[str, int]:
    """Members are frozen while the broker is killed and started again: their streams break, and they cannot notice."""
    weather = Weather(
        events=_EVENTS,
        session_timeout_seconds=3.0,
        grace_seconds=0.2 if seed % 2 else 1.0,
        chances={"kill": 10, "nap": 60, "freeze": 5, "broker": 20, "join": 5, "leave": 3},
    )
    return run(directory, seed, weather)


def _convoys(seed: int, directory: Path) -> Mapping[str, int]:
    return run(directory, seed, CONVOYS.with_plant("", {"events": _EVENTS}))


COLUMNS: Final = [
    Column(
        name="group-storm",
        about=f"{_EVENTS} events among 16 members: kills, freezes, zombies, leaves, joins, brokers that die",
        seeds=range(30),
        run=_storm,
    ),
    Column(
        name="group-restarts",
        about=f"{_EVENTS} events, most of them freezes and kills of the broker, with a grace shorter than the session",
        seeds=range(30),
        run=_restarts,
    ),
    Column(
        name="convoy-storm",
        about=f"{_EVENTS} events among 6 convoys, most of them kills and rebalances",
        seeds=range(30),
        run=_convoys,
    ),
]
