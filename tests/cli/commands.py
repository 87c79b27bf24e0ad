"""All commands with all their parameters, found by walking the command line itself, so that none is forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import click

from logbroker.cli.main import cli

_FILLED = {"group": "g", "name": "n", "topic": "t", "key": "k", "keys": "k"}


class Parameter(NamedTuple):
    path: tuple[str, ...]
    """Path of the command."""
    command: click.Command
    parameter: click.Parameter

    def __str__(self) -> str:
        return " ".join((*self.path, self.parameter.opts[0]))

    def called_with(self, value: str) -> list[str]:
        """Return a command line that gives this parameter a value, and others that it needs theirs."""
        options: list[str] = []
        places: list[str] = []
        for parameter in self.command.params:
            given = value if parameter is self.parameter else _FILLED.get(parameter.name or "", "x")
            if isinstance(parameter, click.Argument):
                places.append(given)
            elif parameter is self.parameter:
                options.append(f"{parameter.opts[0]}={given}")
        return [*self.path, *options, "--", *places]


def parameters(command: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[Parameter]:
    """Yield those of a command and all below it."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from parameters(below, (*path, name))
        return
    for parameter in command.params:
        yield Parameter(path, command, parameter)
