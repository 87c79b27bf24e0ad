"""Below half of `min_free_disk_bytes` nothing is handed out, and everybody who asks, waits or produces is told why."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from logbroker.client import Worker, WorkerDelivery
from logbroker.client.sync import Producer, QueueAdmin, QueueSettings
from logbroker.errors import DiskFullError, RequestTimeoutError
from tests.cli.queues import Queue
from tests.faults.serving import TIMEOUT_SECONDS, TOPIC, Served, in_directory
from tests.queues.shell import hello, shell, take, until
from tests.waiting import until as holds

GROUP = "workers"


def test_a_waiting_worker_and_an_operator_are_told_of_a_full_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = in_directory(tmp_path)
    with Served(data_dir) as served, QueueAdmin(served.address) as queues, Producer(served.address) as producer:
        served.create_topic()
        queues.create_queue(GROUP, TOPIC, QueueSettings())
        producer.send_and_wait(TOPIC, b"value", b"key")
    too_much = 4 * shutil.disk_usage(data_dir).free
    said = tmp_path / "said"
    with Served(data_dir, min_free_disk_bytes=too_much) as served, said.open("wb") as errors:
        command = [sys.executable, "-m", "logbroker", "queue", "work", GROUP, "--exec", "true"]
        worker = subprocess.Popen([*command, "--broker", served.address], stderr=errors)
        try:
            holds(lambda: "min_free_disk_bytes" in said.read_text())
            assert said.read_text().count("min_free_disk_bytes") == 1
            queue = Queue(served.address, capsys)
            for shown in (queue("explain", GROUP, "key"), queue("describe", GROUP)):
                assert "nothing is handed out" in shown
                assert "min_free_disk_bytes" in shown.replace("\n", "")
        finally:
            worker.terminate()
            worker.wait(TIMEOUT_SECONDS)


def test_produce_tells_a_script_of_a_full_disk(tmp_path: Path) -> None:
    data_dir = in_directory(tmp_path)
    with Served(data_dir) as served:
        served.create_topic()
    too_much = 4 * shutil.disk_usage(data_dir).free
    said = tmp_path / "said"
    with Served(data_dir, min_free_disk_bytes=too_much) as served, said.open("wb") as errors:
        command = [sys.executable, "-m", "logbroker", "produce", TOPIC, "--broker", served.address]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors) as producer:
            try:
                assert producer.stdin is not None
                producer.stdin.write(b"value\n")
                producer.stdin.flush()
                holds(lambda: "min_free_disk_bytes" in said.read_text(), TIMEOUT_SECONDS)
            finally:
                producer.kill()
    [line] = said.read_text().splitlines()
    assert line.startswith(f"logbroker: producing to {served.address}: the disk of ")
    assert line.endswith("; trying again")


@pytest.mark.prove
async def test_a_worker_does_not_run_ahead_of_acks_that_cannot_be_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Above half of the mark, records are handed out, and acks with outputs wait."""
    data_dir = in_directory(tmp_path)
    with Served(data_dir) as served, QueueAdmin(served.address) as queues, Producer(served.address) as producer:
        served.create_topic()
        served.api.create("out", 1)
        queues.create_queue(GROUP, TOPIC, QueueSettings(ordering="none"))
        for _ in range(500):
            producer.send(TOPIC, b"value")
        producer.flush()
    too_much = shutil.disk_usage(data_dir).free * 3 // 2
    caplog.set_level("WARNING", "logbroker.client")
    with Served(data_dir, min_free_disk_bytes=too_much) as served:
        handled = 0

        def handle(delivery: WorkerDelivery) -> None:
            nonlocal handled
            handled += 1
            delivery.send("out", delivery.value)

        worker = Worker(served.address, GROUP, request_timeout_seconds=2)
        running = asyncio.create_task(worker.run(handle, concurrency=8))
        await until(lambda: "settled deliveries wait" in caplog.text)
        assert handled <= 16, "those that wait, and as many that run"
        worker.stop()
        await running
        with pytest.raises(
            RequestTimeoutError, match=r"has no room for settlements: .*min_free_disk_bytes.*stored comes again$"
        ):
            await worker.close()
        assert caplog.text.count("settled deliveries wait") == 1


async def test_workers_are_told_once_and_again_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await opened.group()
        is_full = True

        def check_room(*_: object) -> None:
            if is_full:
                raise DiskFullError("full")

        monkeypatch.setattr(group, "check_room", check_room)
        link = await group.connect(hello())
        told: list[str] = []
        link.on_obstacle = told.append
        await opened.append((b"a", b"a"))
        await group.scanner.catch_up(60)
        link.add_credit(1)
        waiting = asyncio.create_task(take(link, 1, credit=False))
        await until(lambda: told)
        late = await group.connect(hello("late"))
        late.on_obstacle = told.append
        group.tell_obstacle(late)
        is_full = False
        await waiting
        assert [bool(why) for why in told] == [True, True, False, False]
        assert not group.obstacle


async def test_a_worker_that_joins_is_told_of_the_present_state_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While no worker waits, nobody notices that the disk has room again."""
    async with shell(tmp_path) as opened:
        await opened.topic()
        group = await opened.group()
        refusals = ["4 bytes are left"]

        def check_room(*_: object) -> None:
            if refusals:
                raise DiskFullError(refusals[0])

        monkeypatch.setattr(group, "check_room", check_room)
        link = await group.connect(hello())
        told: list[str] = []
        link.on_obstacle = told.append
        await opened.append((b"a", b"a"))
        await group.scanner.catch_up(60)
        link.add_credit(1)
        waiting = asyncio.create_task(take(link, 1, credit=False))
        await until(lambda: told)
        waiting.cancel()
        await group.goodbye(link)

        refusals[:] = ["3 bytes are left"]
        told.clear()
        second = await group.connect(hello("second"))
        second.on_obstacle = told.append
        group.tell_obstacle(second)
        assert [why.partition(": ")[2] for why in told] == ["3 bytes are left"]

        refusals.clear()
        told.clear()
        third = await group.connect(hello("third"))
        third.on_obstacle = told.append
        group.tell_obstacle(third)
        assert told == []
