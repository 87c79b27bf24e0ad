"""Commands in messages can be copied and run, whatever the names of users are."""

from __future__ import annotations

import ast
import enum
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest

from logbroker.cli.main import cli
from logbroker.cli.queue.options import creation_command
from logbroker.client.admin.queue_descriptions import QueueSettings
from logbroker.command_line import command_line
from logbroker.queues.model.settings import QUEUE_SETTINGS
from tests.house.test_layout import modules

NAMES = ["orders", "-x", "--help", "a b", "it's", "$HOME", "`id`", "; true", "*", "grün"]
_FILLED_IN = "\0"
_COMMAND = re.compile(rf"\blogbroker (?:[a-z-]+ )+{_FILLED_IN}")


def filled_in(source: str) -> list[str]:
    """Return the f-strings of a module that put a value behind the words of a command."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else _FILLED_IN for part in node.values)
            text = "".join(map(str, parts))
            if _COMMAND.search(text):
                found.append(text)
    return found


@pytest.mark.parametrize("program", ["f'run logbroker topic delete {x}'", "f'`logbroker queue alter' f' --key {x}`'"])
def test_a_command_that_is_filled_in_is_found(program: str) -> None:
    assert filled_in(program)


def test_no_message_fills_a_command_in_by_itself() -> None:
    """It leaves that to `command_line`, which quotes the value."""
    found = {str(path): filled_in(path.read_text(encoding="utf-8")) for path in modules() if "tests" not in path.parts}
    assert len(found) > 100
    assert {path: texts for path, texts in found.items() if texts} == {}


def parsed(line: str) -> dict[str, Any]:
    """Return the parameters of a command line, as click parses the words of a shell."""
    program, *words = shlex.split(line)
    assert program == "logbroker"
    command: click.Command | None = cli
    while isinstance(command, click.Group):
        command = command.get_command(click.Context(command), words.pop(0))
    assert command is not None
    return command.make_context(command.name, words).params


@pytest.mark.parametrize("name", NAMES)
def test_a_printed_command_means_what_it_says(name: str) -> None:
    params = parsed(command_line("topic alter", name, options=("--unset", "retention.ms")))
    assert (params["name"], params["unset"]) == (name, ("retention.ms",))
    assert parsed(command_line("queue parked", name))["group"] == name
    assert parsed(command_line("segment repair", name, options=["--accept-gaps"]))["path"] == Path(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_command_that_creates_a_group_again_means_what_it_says(name: str) -> None:
    defaults = {
        each.name: each.value.value if isinstance(each.value, enum.Enum) else each.value for each in QUEUE_SETTINGS
    }
    changed = {"max_attempts": 3, "on_exhausted": "dead-letter", "dead_letter_topic": name}
    settings = QueueSettings(**defaults | changed)
    params = parsed(creation_command(name, name, settings))
    assert (params["group"], params["topic"], params["dead_letter_topic"]) == (name, name, name)
    assert params["max_attempts"] == 3
