"""A member of a group in a process of its own, that writes down each record with the moment at which it got it."""

from __future__ import annotations

import os
import random
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from logbroker.client.sync import Consumer


class GrowthMemberSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Start parameters of the process."""

    name: str
    broker: str
    topic: str
    history_path: str
    mode: str
    """auto, manual or none: how it commits."""
    seed: int
    seconds_per_record: float
    """How fast it works."""


class Delivery(msgspec.Struct, frozen=True, array_like=True):
    """A record that a member got."""

    at: float
    """Time of the clock that all processes share, before the member could say that it has the record."""
    partition: int
    offset: int
    key: str
    number: int


def run(spec: GrowthMemberSpec, orders: Connection) -> None:
    """Be the member until anything is ordered; what a process of multiprocessing runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    rng = random.Random(spec.seed)
    history = os.open(spec.history_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    encode = msgspec.json.Encoder().encode
    options = {"auto_commit": spec.mode == "auto", "buffer_bytes": rng.choice((2_000, 1_000_000))}
    with Consumer(spec.broker, group=spec.topic, session_timeout_seconds=2, **options) as consumer:  # type: ignore[arg-type]
        consumer.subscribe(spec.topic)
        while not orders.poll():
            records = consumer.poll(max_records=rng.choice((5, 50, 500)), timeout_seconds=0.1)
            now = time.monotonic()
            lines = [
                encode(Delivery(now, each.partition, each.offset, (each.key or b"").decode(), int(each.value or b"")))
                for each in records
            ]
            os.write(history, b"".join(line + b"\n" for line in lines))
            time.sleep(spec.seconds_per_record * len(records))
            if spec.mode == "manual" and records:
                consumer.commit()


def read_history(path: Path) -> list[Delivery]:
    """Return what a member got; of one that was killed, all that it has written whole."""
    decode = msgspec.json.Decoder(Delivery).decode
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    return [decode(line) for line in lines[:-1]]
