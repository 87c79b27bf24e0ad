"""Runs `logbroker queue` in the test's process, which is faster than one each, and brings groups where they need it."""

from __future__ import annotations

import itertools
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from logbroker.cli.main import run
from logbroker.client.sync import Producer, Worker, WorkerDelivery


class Queue:
    """Runs `logbroker queue ...` in this process against one broker."""

    def __init__(self, address: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.address = address
        self._capsys = capsys

    def __call__(self, *arguments: str, exit_code: int = 0) -> str:
        """Return standard output or, where the command is to fail, standard error."""
        assert run(["queue", *arguments, "--broker", self.address]) == exit_code
        out, err = self._capsys.readouterr()
        return err if exit_code else out

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))


def send(address: str, topic: str, numbers: range) -> None:
    with Producer(address) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, b"c%d" % (number % 5))


def take(address: str, group: str, count: int) -> list[int]:
    """Ack so many."""
    with Worker(address, group) as worker:
        return [int(delivery.ack().value or b"") for delivery in itertools.islice(worker, count)]


def exhaust(queue: Queue, topic: str, group: str, policy: str, *options: str) -> None:
    """Let all of key c2 fail, and all others be done."""
    queue(
        "create",
        group,
        "--topic",
        topic,
        "--max-attempts",
        "2",
        "--backoff",
        "0,1,1",
        "--on-exhausted",
        policy,
        *options,
    )

    def handle(delivery: WorkerDelivery) -> None:
        if delivery.key == b"c2":
            delivery.nack(reason="no good")

    with Worker(queue.address, group) as worker, ThreadPoolExecutor(1) as pool:
        running = pool.submit(worker.run, handle)
        deadline = time.monotonic() + 30
        done = (16, 4) if policy == "dead-letter" else (16, 0)
        while True:
            counts = queue.json("describe", group)["counts"]
            stands = counts["blocked_lanes"] + counts["parked_lanes"]
            if (counts["acked"], counts["dead_lettered"]) == done and stands == (policy != "dead-letter"):
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)
        worker.stop()
        running.result()
