"""The command `logbroker`: finds the subcommand, and turns every error into one line and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final

import click

from logbroker import __version__
from logbroker.errors import LogbrokerError

_COMMANDS: Final = {
    "serve": "logbroker.cli.serve",
    "demo": "logbroker.cli.demo",
    "topic": "logbroker.cli.topic",
    "produce": "logbroker.cli.produce",
    "consume": "logbroker.cli.consume",
}
"""Modules by command, each holding a click command of that name; in the order of the help."""

INTERRUPTED: Final = 130


class _LazyGroup(click.Group):
    """Imports a subcommand when it is called, so that `serve` starts without the client and the tables."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _COMMANDS.get(cmd_name)
        if module is None:
            return None
        command = getattr(importlib.import_module(module), cmd_name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="logbroker %(version)s")
def cli() -> None:
    """A persistent, partitioned, log-structured message broker.

    \b
    Try it:
      logbroker demo
    Run it:
      logbroker serve --data-dir ./data
      logbroker topic create orders --partitions 8
      echo 'k1:hello' | logbroker produce orders --key-separator :
      logbroker consume orders --from earliest --until-end --format json
    """


def main() -> None:
    """Run the command line and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; return its exit code: 0, 1 for what failed, 2 for a wrong call, 130 for Ctrl-C."""
    try:
        code = cli.main(list(arguments), prog_name="logbroker", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): nobody is there to be told.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (LogbrokerError, OSError) as error:
        click.echo(f"logbroker: {' '.join(str(error).split())}", err=True)
        return 1
    return code if isinstance(code, int) else 0
