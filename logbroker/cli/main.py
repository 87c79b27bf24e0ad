"""The command `logbroker`: finds the subcommand, and turns every error into one line and an exit code."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

import click

from logbroker import __version__
from logbroker.cli.common.arguments import take_texts_as_utf8
from logbroker.cli.common.ctrl_c import let_ctrl_c_interrupt, let_ctrl_c_kill
from logbroker.cli.common.lines import NOTHING_DONE, escape_all_errors, show_wrong_call, shows_errors, warn
from logbroker.cli.common.missing_module import missing_module_text
from logbroker.cli.common.standard_output import (
    OutputClosedError,
    OutputFailedError,
    end_standard_output,
    stop_waiting_for_readers,
    take_standard_streams,
)
from logbroker.cli.common.stops import Interrupter, Stopped
from logbroker.errors import LogbrokerError, quoted
from logbroker.errors.system import system_error_text
from logbroker.platform_needs import check_broker_platform

_COMMANDS: Final = {
    "serve": "Run a broker.",
    "config": "Show all settings: their defaults, limits and effects.",
    "demo": "Send a month of flights through a broker and check what comes back.",
    "topic": "Create, list, describe, alter and delete topics.",
    "produce": "Send standard input to a topic.",
    "consume": "Write the records of a topic to standard output.",
    "group": "List, describe, reset and delete consumer groups.",
    "queue": "Create queue groups, explain why a key waits, process records.",
    "segment": "Inspect and repair the files of a log.",
    "meta": "Back up and restore the metadata store.",
    "move": "Move a data directory to a cluster.",
    "bench": "Measure the speed of a broker on this machine.",
    "experiment": "Measure what order costs and what partitions and consumers gain.",
    "plan": "Estimate how many partitions and consumers a load needs.",
}
"""The commands in the order of the help. The module logbroker.cli.<name>, or logbroker.cli.<name>.commands for a
family, defines a click command of that name."""
_FAMILIES: Final = ("group", "queue", "segment", "bench", "experiment")

_RUN_BROKERS: Final = ("serve", "demo", "move", "bench", "experiment")
_COMPLETION_VARIABLE: Final = "_LOGBROKER_COMPLETE"
_SIGNALLED: Final = 128
"""A shell reports this number plus the number of the signal as the exit code of a process that a signal ended."""
INTERRUPTED: Final = _SIGNALLED + signal.SIGINT


class _LazyGroup(click.Group):
    """Imports a subcommand when it is called, so that `serve` starts without the client and the tables."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        if cmd_name in _RUN_BROKERS:
            check_broker_platform()  # Otherwise the error would name a module that the system lacks.
        module = f"logbroker.cli.{cmd_name}.commands" if cmd_name in _FAMILIES else f"logbroker.cli.{cmd_name}"
        command = getattr(importlib.import_module(module), cmd_name)
        let_ctrl_c_interrupt()
        assert isinstance(command, click.Command)
        take_texts_as_utf8(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="logbroker %(version)s")
def cli() -> None:
    """A persistent, partitioned, log-structured message broker.

    \b
    Examples:
      logbroker demo
      logbroker serve --data-dir ./data
      logbroker topic create orders --partitions 8
      echo 'k1:hello' | logbroker produce orders --key-separator :
      logbroker consume orders --from earliest --until-end --format json

    \b
    Shell completion, for ~/.bashrc, ~/.zshrc and config.fish:
      eval "$(_LOGBROKER_COMPLETE=bash_source logbroker)"
      eval "$(_LOGBROKER_COMPLETE=zsh_source logbroker)"
      _LOGBROKER_COMPLETE=fish_source logbroker | source
    """


def main(command: click.Command = cli, name: str = "logbroker") -> None:
    """Run the command line, or another one of this project, and exit."""
    take_standard_streams()
    # Otherwise gRPC's core would print its errors to standard error, too. It also returns them to the caller, and the
    # command reports them in its own words.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    escape_all_errors()
    if not shows_errors():
        # Reconnects are logged for people who watch. A program that runs the command gets one line if it fails.
        logging.getLogger("logbroker").addHandler(logging.NullHandler())
    try:
        code = run(sys.argv[1:], command, name)
        let_ctrl_c_kill()
    except KeyboardInterrupt:  # A second one, just after `run` has handled the first.
        let_ctrl_c_kill()
        code = INTERRUPTED
    end_standard_output()
    sys.exit(code)


def run(arguments: Sequence[str], command: click.Command = cli, name: str = "logbroker") -> int:
    """Run one command line. Return its exit code: 0, 1 for a failure, 2 for a wrong call, 130 for Ctrl-C, and 128 plus
    the number of another signal that stopped the command."""
    try:
        with Interrupter().raising_again():
            code = command.main(list(arguments), prog_name=name, standalone_mode=False)
            sys.stdout.flush()
    except click.ClickException as error:
        show_wrong_call(error)
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        return _interrupted(interrupt)
    except click.Abort as abort:
        # A question got no answer: click raises Abort without a cause, at Ctrl-C and at the end of the input.
        if isinstance(abort.__context__, KeyboardInterrupt):
            return _interrupted(abort.__context__)
        warn(f"logbroker: {NOTHING_DONE}")
        return 1
    except OutputClosedError:
        return 0  # The reader has read enough (`| head`).
    except OutputFailedError as error:
        warn(f"logbroker: {error}")
        return 1
    except (LogbrokerError, OSError) as error:
        text = system_error_text(error) if isinstance(error, OSError) else str(error)
        warn(f"logbroker: {' '.join(text.split())}")
        return 1
    except ImportError as error:
        advice = missing_module_text(error)
        if advice is None:
            raise
        warn(f"logbroker: {advice}")
        return 1
    except (KeyError, ValueError, IndexError):
        # click reads the variables that the shell sets for a completion, without checks.
        if not os.environ.get(_COMPLETION_VARIABLE):
            raise
        warn(
            f"logbroker: {_COMPLETION_VARIABLE} asks for a completion, but COMP_WORDS and COMP_CWORD are not as a shell"
            " sets them: unset it; `logbroker --help` shows how to set up completion"
        )
        return 1
    except SystemExit as end:  # After a completion, click ends the process.
        if end.code:
            asked = quoted(os.environ.get(_COMPLETION_VARIABLE, ""))
            warn(
                f"logbroker: {_COMPLETION_VARIABLE} is {asked}, and no completion has this name: unset it; `logbroker"
                " --help` shows how to set up completion"
            )
        return 1 if end.code else 0
    return code if isinstance(code, int) else 0


def _interrupted(interrupt: BaseException) -> int:
    stop_waiting_for_readers()
    return _SIGNALLED + interrupt.number if isinstance(interrupt, Stopped) else INTERRUPTED
