"""Columns of `make torture`: Kafka clients of other languages, with drawn settings, while brokers and members end."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.crash.columns import Column
from tests.interop.kafka.programs import CLIENTS, end_programs
from tests.interop.kafka.stories import ALL, group_through_stops, produce_through_stops
from tests.interop.kafka.toolchains import MissingToolError

_ROUNDS: Final = 10
_MEMBERS: Final = [client for client in CLIENTS if client.name != "@platformatic/kafka"]
"""Clients that commit only what they have handled of the partitions that they have. kcat may commit what it has not
written yet; @platformatic/kafka goes on with what it has buffered of partitions that it has lost, and commits that."""


def _is_missing(client: Any) -> bool:
    try:
        client.command  # noqa: B018
    except MissingToolError:
        return True
    return False


def _produce(seed: int, directory: Path) -> Mapping[str, int]:
    client, draw = ALL[seed % len(ALL)], random.Random(seed)
    if _is_missing(client):
        return {"skipped": 1}
    idempotent = draw.random() < 0.7
    try:
        return produce_through_stops(
            client, directory, draw.choices(["stop", "kill"], k=3), idempotent=idempotent,
            acks=-1 if idempotent else draw.choice([-1, 1]), codec=draw.choice(client.codecs),
            burst=draw.choice([10, 30, 100]),
        )  # fmt: skip
    finally:
        end_programs()


def _group(seed: int, directory: Path) -> Mapping[str, int]:
    client = _MEMBERS[seed % len(_MEMBERS)]
    if _is_missing(client):
        return {"skipped": 1}
    return group_through_stops(client, directory, seed, rounds=_ROUNDS)


COLUMNS: Final = [
    Column(
        name="kafka-clients-produce",
        about="a Kafka client of another language produces while its broker stops or is killed three times",
        seeds=range(60),
        run=_produce,
    ),
    Column(
        name="kafka-clients-group",
        about=f"members and a broker end {_ROUNDS} times in a group of Kafka clients of another language",
        seeds=range(48),
        run=_group,
    ),
]
