"""What people see: tables, counts and rates."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

import msgspec
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn
from rich.table import Table

UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")
_SPANS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def table(*columns: str, numbers: tuple[str, ...] = (), title: str | None = None) -> Table:
    """Return a table with these columns; those in `numbers` are aligned to the right."""
    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for name in columns:
        made.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    return made


def show(made: Table) -> None:
    """Write a table to standard output, cut to no width where that is not a terminal."""
    Console(width=None if sys.stdout.isatty() else 200).print(made)


def say(*sentences: str) -> None:
    """Write sentences to standard output, each on lines of its own, broken between words where that is a terminal."""
    console = Console(width=None if sys.stdout.isatty() else 10_000, highlight=False)
    for sentence in sentences:
        console.print(sentence, markup=False)


def write_json(document: object) -> None:
    """Write one JSON document to standard output."""
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")


def size_text(size_bytes: float) -> str:
    """Write a size as people do: 1536 is 1.5 KiB."""
    unit = 0
    while size_bytes >= 1024 and unit < len(UNITS) - 1:
        size_bytes /= 1024
        unit += 1
    return f"{size_bytes:,.0f} {UNITS[unit]}" if unit == 0 else f"{size_bytes:,.1f} {UNITS[unit]}"


def age_text(age_ms: int) -> str:
    """Write a span of time as people do: 90,000 ms is 1.5 min."""
    for size_ms, unit in _SPANS:
        if age_ms >= size_ms:
            return f"{age_ms / size_ms:,.1f} {unit}"
    return f"{age_ms} ms"


class Counter(Protocol):
    """Is told how far the work has come."""

    def __call__(self, done: int) -> None: ...


@contextmanager
def progress(description: str, total: int | None, unit: str) -> Iterator[Counter]:
    """Show a progress bar on standard error where that is a terminal; with no total, a running count."""
    columns = [SpinnerColumn(), TextColumn("{task.description}")]
    if total is not None:
        bar = Progress(
            *columns, BarColumn(), TaskProgressColumn(), MofNCompleteColumn(), TextColumn(unit), console=_STDERR
        )
    else:
        bar = Progress(*columns, TextColumn(f"{{task.completed:,}} {unit}"), console=_STDERR)
    bar.disable = not _STDERR.is_terminal
    with bar:
        task = bar.add_task(description, total=total)
        yield lambda done: bar.update(task, completed=done)


_STDERR: Final = Console(stderr=True)
