"""Texts written by users get to a terminal through two modules that escape them, and by no other way."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.house.test_layout import ROOT, modules

LINES = "logbroker/cli/common/lines.py"
TERMINAL = "logbroker/cli/common/terminal.py"
ALLOWED = {
    LINES: {"sys.stdout", "sys.stderr", "click.confirm"},
    TERMINAL: {"rich"},
    # Puts errors of its own under standard output, and writes bytes that another program reads.
    "logbroker/cli/common/standard_output.py": {"sys.stdout"},
    # Pictures made of its own signs.
    "logbroker/cli/experiment/view.py": {"rich"},
    # The last words of clients that nobody closed, when logging has ended; escaped, too.
    "logbroker/client/runtime/lifetime.py": {"sys.stderr"},
    # Processes that talk with the process that started them.
    "tools/bench/harness/baseline_server.py": {"sys.stdout"},
    "compare/child.py": {"sys.stdout"},
    "tools/bench/groups/group_child.py": {"sys.stdout"},
    "tools/bench/queues/queue_child.py": {"sys.stdout"},
}
WAYS_OUT = {
    *("sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__"),
    *(f"click.{name}" for name in ("echo", "secho", "confirm", "prompt", "echo_via_pager", "progressbar")),
    *("logging.basicConfig", "logging.StreamHandler"),
}
HARMLESS = {"flush", "fileno", "isatty"}


def ways_out(tree: ast.AST) -> set[str]:
    """Return what of a module could write to a terminal."""
    found: set[str] = set()
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {"rich" for name in node.names if name.name.split(".")[0] == "rich"}
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").split(".")[0]
            found |= {"rich"} if module == "rich" else set()
            found |= WAYS_OUT & {f"{module}.{name.name}" for name in node.names}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            found.add("print")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            parent = parents[node]
            if not (isinstance(parent, ast.Attribute) and parent.attr in HARMLESS):
                found |= WAYS_OUT & {f"{node.value.id}.{node.attr}"}
    return found


@pytest.mark.parametrize(
    "program",
    [
        "print('x')",
        "import sys\nsys.stderr.write('x')",
        "import sys\nsys.stdout.buffer.write(b'x')",
        "from sys import stdout",
        "import click\nclick.echo('x')",
        "from click import confirm",
        "from rich.table import Table",
        "import rich.console",
        "import logging\nlogging.basicConfig()",
    ],
)
def test_this_test_knows_the_ways_out(program: str) -> None:
    assert ways_out(ast.parse(program))


@pytest.mark.prove
def test_only_those_that_escape_write_to_a_terminal() -> None:
    found = {}
    for path in modules():
        name = str(path.relative_to(ROOT))
        if not name.startswith("tests/"):
            found[name] = ways_out(ast.parse(Path(path).read_text(encoding="utf-8")))
    others = {name: ways - ALLOWED.get(name, set()) for name, ways in found.items()}
    assert {name: ways for name, ways in others.items() if ways} == {}
    assert {name: ways - found[name] for name, ways in ALLOWED.items() if ways - found[name]} == {}
