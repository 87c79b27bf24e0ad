"""`make torture`: runs the long tests seed by seed, in shards, and goes on where it was left.

    make torture                                   everything that is not done yet
    make torture SHARD=2/8                         the second of eight parts; several may run at once
    make torture ARGS="--column crash-kill"        one column
    make torture ARGS="--column crash-kill --seed 7"   one seed, again: how a failure is repeated
    make torture ARGS="--summary"                  what is done, and its figures

Finished seeds are kept in .torture/done.jsonl; `--again` forgets them. What a seed that failed or hung leaves behind
lies in .torture/left.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.crash.columns import ROOT, Column, all_columns

_STATE_DIR: Final = ROOT / ".torture"
_FIGURES_PREFIX: Final = "figures "


class Shard:
    """`index` of `count`: every count-th seed. Written "2/8", counted from 1."""

    def __init__(self, text: str) -> None:
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        self.index, self.count = (int(match[1]), int(match[2])) if match else (0, 0)
        if not 1 <= self.index <= self.count:
            raise argparse.ArgumentTypeError(f"{text!r} is no part of a whole; give one such as 2/8")

    def has(self, position: int) -> bool:
        return position % self.count == self.index - 1


class Done:
    """The finished seeds: a line of JSON for each, appended at once, so that shards may share the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def entries(self) -> list[tuple[str, int, dict[str, int]]]:
        """(column, seed, figures) of every seed that passed."""
        if not self._path.exists():
            return []
        rows = [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]
        return [(row["column"], row["seed"], row["figures"]) for row in rows]

    def add(self, column: str, seed: int, figures: dict[str, int]) -> None:
        self._path.parent.mkdir(exist_ok=True)
        line = json.dumps({"column": column, "seed": seed, "figures": figures}) + "\n"
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line)

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)


def repeat_command(column: str, seed: int) -> str:
    """The one command that runs a seed again."""
    return f'make torture ARGS="--column {column} --seed {seed}"'


@contextmanager
def drawn_seed(column: str, variable: str) -> Iterator[int]:
    """A new seed, or that which the environment names; what fails with it says how to repeat it."""
    seed = int(os.environ.get(variable) or random.randrange(10**6))
    try:
        yield seed
    except BaseException as error:
        error.add_note(f"seed {seed} failed; repeat it: {repeat_command(column, seed)}")
        raise


def run_here(column: Column, seed: int) -> None:
    """Run one seed in this process and print its figures; what it leaves is removed where it passes."""
    directory = _STATE_DIR / "left" / f"{column.name}-{seed}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    figures = column.run(seed, directory)
    shutil.rmtree(directory)
    print(_FIGURES_PREFIX + json.dumps(figures), flush=True)  # noqa: T201


def run_seed(column: Column, seed: int) -> tuple[dict[str, int] | None, str]:
    """Run one seed in a process of its own; returns its figures, or None and what it said."""
    command = [sys.executable, "-m", "tests.crash.torture", "--column", column.name, "--seed", str(seed)]
    # A session of its own: what hangs is ended with all its children.
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=column.timeout_seconds)
        except BaseException as error:
            os.killpg(process.pid, 9)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            output = f"not done after {column.timeout_seconds:g} s\n{process.communicate()[0]}"
    *said, last = output.rstrip("\n").split("\n")
    if process.returncode == 0 and last.startswith(_FIGURES_PREFIX):
        return json.loads(last.removeprefix(_FIGURES_PREFIX)), ""
    return None, "\n".join([*said, last])


def run_all(columns: list[Column], shard: Shard, done: Done) -> int:
    """Run what is not done; returns how many seeds failed."""
    finished = {(name, seed) for name, seed, _figures in done.entries()}
    units = [(column, seed) for column in columns for seed in column.seeds]
    due = [unit for index, unit in enumerate(units) if shard.has(index) and (unit[0].name, unit[1]) not in finished]
    _say(f"{len(due)} of {len(units)} seeds to run, shard {shard.index}/{shard.count}")
    failures = 0
    for number, (column, seed) in enumerate(due, 1):
        started = time.monotonic()
        figures, said = run_seed(column, seed)
        seconds = time.monotonic() - started
        if figures is None:
            failures += 1
            _say(f"[{number}/{len(due)}] {column.name} seed {seed}: FAILED after {seconds:.1f} s\n{said}")
            _say(f"repeat it: {repeat_command(column.name, seed)}")
        else:
            done.add(column.name, seed, figures)
            _say(f"[{number}/{len(due)}] {column.name} seed {seed}: ok in {seconds:.1f} s, {_told(figures)}")
    return failures


def summarize(columns: list[Column], done: Done) -> None:
    """Say for each column how many seeds are done, and the sums of their figures."""
    for column in columns:
        passed = {seed: figures for name, seed, figures in done.entries() if name == column.name}
        total: Counter[str] = Counter()
        for figures in passed.values():
            total.update(figures)
        _say(f"{column.name} ({column.about}): {len(passed)} of {len(column.seeds)} seeds; {_told(total) or '-'}")


def _told(figures: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(figures.items()))


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def main() -> int:
    """Run from the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make torture", description="Run the long tests; finished seeds are skipped.")
    columns = all_columns()
    parser.add_argument("--shard", type=Shard, default=Shard("1/1"), metavar="K/N", help="the K-th of N parts")
    parser.add_argument("--column", choices=[column.name for column in columns], help="only this one")
    parser.add_argument("--seed", type=int, help="only this one, in this process, even if it is done")
    parser.add_argument("--again", action="store_true", help="forget what is done")
    parser.add_argument("--summary", action="store_true", help="only say what is done")
    options = parser.parse_args()
    chosen = [column for column in columns if options.column in (None, column.name)]
    done = Done(_STATE_DIR / "done.jsonl")
    if options.seed is not None:
        if options.column is None:
            parser.error("--seed needs --column")
        # Every client says that it reconnects, after every kill; a failure would be hard to find in that.
        logging.getLogger("logbroker.client").setLevel(logging.ERROR)
        run_here(chosen[0], options.seed)
        return 0
    if options.again:
        done.forget()
    failures = 0 if options.summary else run_all(chosen, options.shard, done)
    summarize(chosen, done)
    if failures:
        _say(f"{failures} seeds failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
