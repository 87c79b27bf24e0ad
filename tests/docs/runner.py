"""Runs the blocks of a page in order, in one empty directory, like a reader who copies them one by one.

All `sh` blocks share one shell (`bash -e`), so variables, the current folder and background jobs carry over to the next
block. A `python` block is a program of its own; one with tests in it runs under pytest. A free port replaces the port
that pages name. After the last block, everything that still runs is stopped.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.docs.markdown import ROOT, Block, Page

PORT: Final = "9192"
"""The port that pages name."""
_OWN_VARIABLES: Final = re.compile(r"LOGBROKER_|PYTEST|PYTHON|COLUMNS$|LINES$")
_PROGRAMS: Final = {
    # Where a page names no address, the broker takes the free port, as the clients do by LOGBROKER_BROKER.
    "logbroker": """
case "$*" in
  *--listen*|*--config*) ;;
  serve*) shift; set -- serve --listen "$LOGBROKER_BROKER" "$@" ;;
esac
exec {python} -m logbroker "$@"
""",
    "python": """exec {python} "$@"\n""",
    "python3": """exec {python} "$@"\n""",
    "pytest": """exec {python} -m pytest -p no:cacheprovider "$@"\n""",
    # Where it is not installed.
    "grpcurl": """PYTHONPATH={root} exec {python} -m tests.docs.grpcurl "$@"\n""",
}
"""Shell scripts that stand for the programs on a newcomer's path."""
_STOP_SECONDS: Final = 15


class PageError(Exception):
    """A block failed, or a page shows output that no block writes."""


def run(page: Page, folder: Path, *, timeout_seconds: float) -> list[Block]:
    """Run the blocks of a page; return those that need a program which is not installed. Raises PageError.

    `folder` is an empty directory: the page runs in `work` within it.
    """
    work, scripts = folder / "work", folder / "scripts"
    work.mkdir()
    scripts.mkdir()
    port = str(_free_port())
    blocks = [(number, block) for number, block in enumerate(page.blocks, 1) if block.is_run]
    lacking = [block for _, block in blocks if any(shutil.which(tool) is None for tool in _tools(block))]
    blocks = [(number, block) for number, block in blocks if block not in lacking]
    if not blocks:
        return lacking
    script = scripts / "page.sh"
    script.write_text("".join(_steps(blocks, work, scripts, port)), encoding="utf-8")
    with (scripts / "stdout").open("wb") as output:
        process = subprocess.Popen(
            ["bash", "-e", str(script)],
            cwd=work,
            env=_environment(folder, port),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    code: int | None = None
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(timeout_seconds)
    finally:
        _stop_all(process)
    if code != 0:
        at = int((scripts / "at").read_text(encoding="utf-8"))
        raise PageError(_report(page, dict(blocks)[at], scripts / str(at), code))
    _check_outputs(page, scripts, port)
    return lacking


def _tools(block: Block) -> list[str]:
    return [tool for tool in block.needs if tool not in _PROGRAMS]


def _steps(blocks: list[tuple[int, Block]], work: Path, scripts: Path, port: str) -> Iterator[str]:
    """Yield the lines of the shell script that runs the blocks."""
    for number, block in blocks:
        text = block.text.replace(PORT, port)
        if block.language == "sh":
            file, program = scripts / f"{number}.sh", "bash -e"
        elif _has_tests(text):
            file, program = work / f"test_block_{number}.py", "pytest -q"
        else:
            file, program = work / f"block_{number}.py", "python -W error"
        file.write_text(text, encoding="utf-8")
        name, output = shlex.quote(str(file)), shlex.quote(str(scripts / str(number)))
        if block.stopped_after is not None:
            # Ctrl-C ends a program with 130, or with what it makes of a KeyboardInterrupt in the middle of an import.
            stop = f"timeout --preserve-status --signal INT --kill-after 20 {block.stopped_after}"
            command = f"{stop} {program} {name} || test $? = 130 || grep -q KeyboardInterrupt {output}.err"
        else:
            command = f". {name}" if block.language == "sh" else f"{program} {name}"
        yield f"echo {number} > {shlex.quote(str(scripts / 'at'))}\n{{ {command}; }} > {output}.out 2> {output}.err\n"


def _has_tests(text: str) -> bool:
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        for node in ast.parse(text).body
    )


def _environment(folder: Path, port: str) -> dict[str, str]:
    """Return the environment of a newcomer's shell, without the variables of this test run."""
    programs, home = folder / "bin", folder / "home"
    programs.mkdir()
    home.mkdir()
    for name, script in _PROGRAMS.items():
        if name == "grpcurl" and shutil.which(name):
            continue
        text = script.replace("{python}", shlex.quote(sys.executable)).replace("{root}", shlex.quote(str(ROOT)))
        (programs / name).write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
        (programs / name).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not _OWN_VARIABLES.match(name)}
    path = f"{programs}:{kept.get('PATH', os.defpath)}"
    return kept | {"PATH": path, "HOME": str(home), "LOGBROKER_BROKER": f"127.0.0.1:{port}"}


def _stop_all(process: subprocess.Popen[bytes]) -> None:
    """Stop the page's shell and all its background jobs."""
    deadline = time.monotonic() + _STOP_SECONDS
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
            while number == signal.SIGTERM and time.monotonic() < deadline:
                process.poll()
                os.killpg(process.pid, 0)
                time.sleep(0.05)
    process.wait()


def _report(page: Page, block: Block, output: Path, code: int | None) -> str:
    how = "did not end in time" if code is None else f"ended with exit code {code}"
    said = "".join(
        "\n".join((f"\n--- standard {name}", *_written(output.with_suffix(ending)).split("\n")[-40:]))
        for name, ending in (("output", ".out"), ("error", ".err"))
    )
    return f"{page.name}:{block.line}: this block {how}\n{block.text}{said}"


def _check_outputs(page: Page, scripts: Path, port: str) -> None:
    """Raise PageError where a page shows output that did not come out, or leaves out the end of a screen."""
    files = (scripts / f"{number}.{ending}" for number in range(1, len(page.blocks) + 1) for ending in ("out", "err"))
    written = "\n".join(_written(file) for file in files).replace(port, PORT)
    written_lines = written.split("\n")
    lines = {_bare(line) for line in written_lines}
    for block in page.blocks:
        if block.language == "text" and "output" in block.marks:
            shown = [line for line in block.text.split("\n") if line.strip() not in ("", "...") and line[:2] != "$ "]
            if missing := [line for line in shown if _bare(line) not in lines]:
                told = "\n".join(missing)
                raise PageError(f"{page.name}:{block.line}: no block of the page writes\n{told}\n--- but\n{written}")
            last = block.text.rstrip("\n").rpartition("\n")[2]
            if last.strip() != "..." and (more := _what_goes_on(last, written_lines)):
                raise PageError(f"{page.name}:{block.line}: the output ends in the midst of a screen, before\n{more}")


def _what_goes_on(last: str, lines: list[str]) -> str:
    """Return the line that follows the last one of a screen that a page shows, where it is indented like that; "":
    the screen ends there, or is written without that line somewhere."""
    following = [after for line, after in itertools.pairwise(lines) if _bare(line) == _bare(last)]
    indents = {_indent(after) if after.strip() else -1 for after in following}
    return following[0] if _indent(last) and indents == {_indent(last)} else ""


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _written(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _bare(line: str) -> str:
    """Return a line without the numbers and spaces, which differ from run to run."""
    return re.sub(r"[\d.,:-]*\d", "#", re.sub(r"\s+", " ", line.strip())).replace("# ms", "# s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
