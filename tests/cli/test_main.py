"""The words of the command when its surroundings are wrong: packages, variables of a shell, a second Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.cli.command import ENVIRONMENT

RUN = """
import sys
{before}
sys.argv[0] = "logbroker"
from logbroker.__main__ import main
main()
"""


def ran(before: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in an interpreter that has run something before."""
    command = [sys.executable, "-c", RUN.format(before=before), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**ENVIRONMENT, **environment}, check=False
    )


@pytest.mark.parametrize("module", ["click", "rich", "grpc", "uvloop"])
def test_a_package_that_is_missing_is_named(module: str) -> None:
    before = f"sys.modules[{module!r}] = None"
    done = ran(before, "serve", "--help") if module == "uvloop" else ran(before, "topic", "list")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("logbroker: ")
    assert module in line
    assert line.endswith("missing or broken: pip install --force-reinstall logbroker")


def test_a_module_of_this_project_that_is_missing_is_a_bug() -> None:
    done = ran("sys.modules['logbroker.cli.topic'] = None", "topic", "list")
    assert done.returncode == 1
    assert "this is a bug in logbroker" in done.stderr


@pytest.mark.parametrize(
    "words", [{}, {"COMP_WORDS": "logbroker"}, {"COMP_WORDS": "logbroker", "COMP_CWORD": "x"}, {"COMP_CWORD": "1"}]
)
def test_a_completion_that_no_shell_asks_for_is_refused_in_one_line(words: dict[str, str]) -> None:
    done = ran("", _LOGBROKER_COMPLETE="bash_complete", **words)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "COMP_WORDS and COMP_CWORD are not as a shell sets them" in line


@pytest.mark.parametrize("name", ["bash", "bash_", "bash_nosuch", "csh_source", "nosuch", "1"])
def test_a_completion_that_does_not_exist_is_refused_in_one_line(name: str) -> None:
    done = ran("", "topic", "list", _LOGBROKER_COMPLETE=name)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"logbroker: _LOGBROKER_COMPLETE is '{name}', and no completion has this name: unset it")


def test_a_completion_is_answered() -> None:
    done = ran("", _LOGBROKER_COMPLETE="bash_complete", COMP_WORDS="logbroker pro", COMP_CWORD="1")
    assert done.stdout == "plain,produce\n"


def test_a_second_ctrl_c_after_the_first_was_handled_shows_no_traceback() -> None:
    before = """
import signal
import logbroker.cli.main

def run(*_):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)

logbroker.cli.main.run = run
"""
    done = ran(before)
    assert done.returncode == 128 + signal.SIGINT
    assert done.stderr == ""
