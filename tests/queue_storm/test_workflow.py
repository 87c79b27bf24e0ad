"""The workflow of docs/QUEUES.md, while its workers and the broker are killed: each order is shipped once."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from logbroker.client import QueueSettings
from logbroker.client.sync import Admin, Consumer, Producer, QueueAdmin
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import LogbrokerError
from tests.docs.markdown import ROOT, read

STAGES = {"validate": "events", "pay": "checked", "ship": "paid"}
SHIPMENTS = "shipments"
ORDERS = 40
ITEMS = 8
PROCESSES = 2
"""Number of processes of each stage."""
DEADLINE_SECONDS = 120


def program() -> str:
    """Return the program of the page."""
    [block] = [block.text for block in read(ROOT / "docs" / "QUEUES.md").blocks if "cat > stage.py" in block.text]
    return block.split("<<'END'\n", 1)[1].split("\nEND\n", 1)[0]


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(3))
def test_each_order_is_shipped_once_whatever_is_killed(tmp_path: Path, seed: int) -> None:
    weather = random.Random(seed)
    with EmbeddedBroker(tmp_path / "data") as broker:
        script = tmp_path / "stage.py"
        script.write_text(program().replace("127.0.0.1:9192", broker.address))
        with Admin(broker.address) as admin, QueueAdmin(broker.address) as queues:
            for topic in (*STAGES.values(), SHIPMENTS):
                admin.create_topic(topic, 4)
            for stage, topic in STAGES.items():
                # A kill counts as a failed attempt.
                settings = QueueSettings(lease_seconds=2, grace_seconds=1, max_attempts=1000, backoff_initial_seconds=0)
                queues.create_queue(stage, topic, settings)
        wanted = send_orders(broker.address, weather)
        with (tmp_path / "log").open("wb") as log:

            def begin(stage: str) -> subprocess.Popen[bytes]:
                return subprocess.Popen([sys.executable, str(script), stage], stderr=log, cwd=ROOT)

            workers = [(stage, begin(stage)) for stage in STAGES for _ in range(PROCESSES)]
            try:
                storm(broker, weather, workers, begin)
            finally:
                for _, process in workers:
                    process.kill()
                    process.wait()
        shipped: dict[int, list[tuple[int, int]]] = {}
        with Consumer(broker.address) as consumer:
            consumer.assign(SHIPMENTS, start="earliest")
            for record in consumer.until_end():
                shipment = record.json()
                shipped.setdefault(shipment["shipped"], []).append((shipment["items"], shipment["cents"]))
    assert shipped == {order: [figures] for order, figures in wanted.items()}


def send_orders(address: str, weather: random.Random) -> dict[int, tuple[int, int]]:
    """Send the items of all orders, mixed; return how many items each order has that cost something, and their sum."""
    prices = {order: [weather.choice((0, 100, 2345)) for _ in range(ITEMS)] for order in range(ORDERS)}
    with Producer(address) as producer:
        for item in range(ITEMS + 1):
            for order, cents in prices.items():
                event = {"kind": "item", "cents": cents[item]} if item < ITEMS else {"kind": "checkout"}
                producer.send("events", json.dumps({"order": order, **event}).encode(), b"order-%d" % order)
    return {order: (sum(map(bool, cents)), sum(cents)) for order, cents in prices.items()}


def storm(
    broker: EmbeddedBroker,
    weather: random.Random,
    workers: list[tuple[str, subprocess.Popen[bytes]]],
    begin: Callable[[str], subprocess.Popen[bytes]],
) -> None:
    """Kill and begin again, and then wait for the end of all work."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    for _ in range(12):
        time.sleep(weather.uniform(0.2, 1.2))
        if weather.random() < 0.4:
            broker.kill()
            broker.start()
        else:
            number = weather.randrange(len(workers))
            stage, process = workers[number]
            process.kill()
            process.wait()
            workers[number] = stage, begin(stage)
    while not is_over(broker.address):
        assert time.monotonic() < deadline, "the work does not end"
        for number, (stage, process) in enumerate(workers):
            if process.poll() is not None:
                workers[number] = stage, begin(stage)
        time.sleep(0.2)


def is_over(address: str) -> bool:
    try:
        with QueueAdmin(address) as queues:
            described = [queues.describe_queue(stage) for stage in STAGES]
    except LogbrokerError:
        return False
    return not any(each.counts.open or each.counts.unscanned or each.counts.unsent_outputs for each in described)
