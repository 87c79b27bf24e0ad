"""The help of every command: each option says what it is, and the examples are calls that parse."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator

import click
import pytest

from logbroker.cli.main import cli
from tests.cli.command import ENVIRONMENT, LOGBROKER
from tests.docs.command_lines import fault_of_call, in_script

WIDTH = 80
VAGUE = re.compile(r"(?:Of|That|What|Who|Whom|Whose|Which|By|With) |(?:How many|At most so many)\b")
"""How a text begins that names no noun; `With --option, ...` says when the option counts."""


def _commands(command: click.Command, parent: click.Context | None, name: str) -> Iterator[click.Context]:
    context = click.Context(command, parent=parent, info_name=name, terminal_width=WIDTH)
    yield context
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from _commands(found, context, below)


CONTEXTS = list(_commands(cli, None, "logbroker"))
of_each_command = pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: context.command_path)


@of_each_command
def test_the_help_has_examples_that_parse(context: click.Context) -> None:
    _, found, rest = context.get_help().partition("\n  Examples:\n")
    assert found
    examples = rest.partition("\n\n")[0]
    calls = list(in_script(examples))
    assert any(context.command_path in " ".join(("logbroker", *call)) for call in calls)
    assert [(call, fault) for call in calls if (fault := fault_of_call(call))] == []


@of_each_command
def test_each_option_says_what_it_is(context: click.Context) -> None:
    texts = {
        option.opts[0]: option.help or ""
        for option in context.command.params
        if isinstance(option, click.Option) and not option.hidden
    }
    assert {name: text for name, text in texts.items() if not text[:1].isupper()} == {}
    assert {
        name: text
        for name, text in texts.items()
        if VAGUE.match(text) and not re.match(r"With (?:--\w|ageing|weighted)", text)
    } == {}


@of_each_command
def test_values_are_named_by_their_unit(context: click.Context) -> None:
    """`N` or `SECONDS`, not the name of a type."""
    assert re.findall(r"(?:INTEGER|FLOAT) RANGE|\b(?:INTEGER|FLOAT|DIRECTORY)\b", context.get_help()) == []


@of_each_command
def test_a_list_of_commands_shows_whole_sentences(context: click.Context) -> None:
    commands = context.get_help().partition("\nCommands:\n")[2]
    assert re.findall(r"\S+\.\.\.$", commands, re.MULTILINE) == []


def test_the_shell_completes_commands() -> None:
    """The help and docs/PRODUCTION.md say how; click asks the shell's own script for no more than this."""
    variables = {"_LOGBROKER_COMPLETE": "zsh_complete", "COMP_WORDS": "logbroker queue expl", "COMP_CWORD": "2"}
    done = subprocess.run(
        LOGBROKER, capture_output=True, env={**os.environ, **ENVIRONMENT, **variables}, timeout=60, check=True
    )
    assert done.stdout.decode().split("\n")[:2] == ["plain", "explain"]
