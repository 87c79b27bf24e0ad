"""Tables on narrow terminals: names of columns, and numbers, stay whole."""

from __future__ import annotations

import itertools
import subprocess
from typing import Any

import pytest

from logbroker.cli.common import terminal
from logbroker.cli.main import run
from logbroker.client.sync import Consumer, QueueAdmin
from tests.cli.command import ENVIRONMENT, LOGBROKER
from tests.cli.queues import Queue, exhaust

COMMANDS = (
    ("topic", "list"),
    ("topic", "describe", "TOPIC"),
    ("group", "list"),
    ("group", "describe", "TOPIC"),
    ("group", "members", "TOPIC"),
    ("group", "reset-offsets", "other", "--topic", "TOPIC", "--to", "earliest", "--dry-run"),
    ("queue", "list"),
    ("queue", "describe", "QUEUE"),
    ("queue", "lanes", "QUEUE"),
    ("queue", "parked", "QUEUE"),
    ("queue", "rewind", "QUEUE", "--to", "earliest", "--dry-run"),
    ("plan", "--rate", "400", "--work-ms", "20"),
    ("config",),
    ("config", "retention.ms"),
)


@pytest.mark.parametrize("size", ["²", "٣", "9" * 5_000, "0", "-5", "abc", ""])
def test_a_size_of_the_terminal_that_is_no_number_does_no_harm(size: str) -> None:
    environment = {**ENVIRONMENT, "COLUMNS": size, "LINES": size}
    command = [*LOGBROKER, "plan", "--rate", "4", "--work-ms", "2"]
    result = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"Take 1 partition" in result.stdout


@pytest.mark.prove
def test_headers_and_numbers_stay_whole(
    queue: Queue,
    topic: str,
    name: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exhaust(queue, topic, name, "park")
    made: list[terminal.Table] = []
    words: set[str] = set()

    def watched(*columns: str, numbers: tuple[str, ...] = (), **options: Any) -> terminal.Table:
        words.update(word for column in columns for word in column.split())
        made.append(terminal.Table(*columns, numbers=numbers, **options))
        return made[-1]

    with Consumer(queue.address, group=topic) as consumer, QueueAdmin(queue.address):
        consumer.subscribe(topic)
        consumer.poll(10)
        monkeypatch.setattr(terminal, "table", watched)
        monkeypatch.setattr(terminal, "shows_output", lambda: True)
        capsys.readouterr()
        for width, command in itertools.product((1, 20, 40, 60, 80, 200), COMMANDS):
            monkeypatch.setenv("COLUMNS", str(width))
            named = [{"TOPIC": topic, "QUEUE": name}.get(word, word) for word in command]
            broker = [] if command[0] in ("plan", "config") else ["--broker", queue.address]
            words.clear()
            assert run([*named, *broker]) == 0
            shown = capsys.readouterr().out
            if width >= 40:
                assert words <= set(shown.split()), (command, width, words - set(shown.split()), shown)
    assert made
