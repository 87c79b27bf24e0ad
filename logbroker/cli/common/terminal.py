"""Output for people: tables, sentences, sizes, times and progress. All cells and titles are escaped plain text; rich's
markup is never interpreted."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn
from rich.table import Table as RichTable
from rich.text import Text

from logbroker.cli.common.lines import shows_errors, shows_output
from logbroker.cli.common.lines import write_json as write_json
from logbroker.texts import shown

_BETWEEN_COLUMNS: Final = 3
_FOLDED_WIDTH: Final = 8
"""A column of longer texts is made no narrower than this."""
_MAX_SIZE_DIGITS: Final = 5
_SPANS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


class Table:
    """A table whose cells are always plain text."""

    def __init__(
        self,
        *columns: str,
        numbers: tuple[str, ...] = (),
        names: tuple[str, ...] = (),
        title: str | None = None,
        header: bool = True,
    ) -> None:
        self.table: Final = RichTable(
            box=box.SIMPLE_HEAD,
            title=None if title is None else _text(title, "bold"),
            title_justify="left",
            pad_edge=False,
            show_header=header,
        )
        self._columns: Final = columns
        self._whole: Final = (*numbers, *names)
        self._rows: Final[list[tuple[tuple[str, ...], str | None]]] = []
        for name in columns:
            self.table.add_column(_text(name), justify="right" if name in numbers else "left", overflow="fold")

    def add_row(self, *cells: str, style: str | None = None, cell_styles: tuple[str, ...] = ()) -> None:
        """Add a row. `cell_styles` are the styles of its first cells."""
        styles = (*cell_styles, *("" for _ in cells[len(cell_styles) :]))
        self.table.add_row(*map(_text, cells, styles), style=style)
        self._rows.append((cells, style))

    def add_section(self) -> None:
        """Draw a line below the last row."""
        self.table.add_section()

    def __len__(self) -> int:
        return self.table.row_count

    def fitted(self, width: int) -> RichTable:
        """Return the table for a terminal of this width (in characters). If a word of the header, a number or a name
        would be broken, and the table has a header, each row becomes lines of column names and cells instead."""
        room = width + 1 - _BETWEEN_COLUMNS * len(self._columns)
        least = [self._least_width(number, name) for number, name in enumerate(self._columns)]
        if sum(least) > room and self.table.show_header:
            return self._stacked()
        widths = [min(room, self._whole_width(number, name)) for number, name in enumerate(self._columns)]
        if sum(widths) > room >= sum(least):
            # Shrink the widest column first. Rich itself would shrink columns until they cannot be read.
            while sum(widths) > room:
                widest = max(
                    (number for number in range(len(widths)) if widths[number] > least[number]), key=widths.__getitem__
                )
                widths[widest] -= 1
            for column, column_width in zip(self.table.columns, widths, strict=True):
                column.width = column_width
        return self.table

    def _cells(self, number: int) -> Iterator[str]:
        return (shown(cells[number]) for cells, _ in self._rows if number < len(cells))

    def _whole_width(self, number: int, name: str) -> int:
        return max(cell_len(shown(name)), max(map(cell_len, self._cells(number)), default=0))

    def _least_width(self, number: int, name: str) -> int:
        """Return the smallest readable width of a column. Numbers and names are never broken; texts may be broken
        anywhere."""
        longest = max(map(_word_width, self._cells(number)), default=0)
        return max(_word_width(shown(name)), longest if name in self._whole else min(longest, _FOLDED_WIDTH))

    def _stacked(self) -> RichTable:
        lines = RichTable(
            box=None, title=self.table.title, title_justify="left", pad_edge=False, show_header=False, padding=(0, 1)
        )
        lines.add_column(style="bold")
        lines.add_column(overflow="fold")
        for cells, style in self._rows:
            for name, cell in zip(self._columns, cells, strict=False):
                if name or cell:
                    lines.add_row(_text(name), _text(cell), style=style)
            lines.add_row()
        return lines


def _word_width(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)


def _text(text: str, style: str = "") -> Text:
    return Text(shown(text), style)


def table(
    *columns: str,
    numbers: tuple[str, ...] = (),
    names: tuple[str, ...] = (),
    title: str | None = None,
    header: bool = True,
) -> Table:
    """Return a table with these columns. Columns in `numbers` are aligned to the right. Cells in `numbers` and `names`
    are never broken within a word."""
    return Table(*columns, numbers=numbers, names=names, title=title, header=header)


def new_console(*, stderr: bool = False, width: int | None = None) -> Console:
    """Return a console. If no width is given, it is as wide as COLUMNS says or, if that is no number, as the
    terminal."""
    # Rich takes other digits than 0 to 9, and any number of them, and fails to convert them.
    environ = {
        name: value
        for name, value in os.environ.items()
        if name not in ("COLUMNS", "LINES") or (value.isascii() and len(value) <= _MAX_SIZE_DIGITS)
    }
    return Console(stderr=stderr, width=width, _environ=environ)


def show(made: Table) -> None:
    """Write a table to standard output. It is as wide as the terminal at most; without a terminal, 200
    characters."""
    console = new_console(width=None if shows_output() else 200)
    console.print(made.fitted(console.width))


def say(*sentences: str) -> None:
    """Write sentences to standard output, each on lines of its own. On a terminal, long ones are broken between
    words."""
    console = new_console(width=None if shows_output() else 10_000)
    for sentence in sentences:
        console.print(_text(sentence))


def local_time_text(timestamp_ms: int) -> str:
    """Write a time in local time, with the name that the time zone has at that time. A time that the calendar does not
    have, such as one in microseconds, is written as a number."""
    try:
        moment = datetime.datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"
    return f"{moment:%Y-%m-%d %H:%M:%S %Z}"


def age_text(age_ms: int) -> str:
    """Write a span of time as people do: 90,000 ms is 1.5 min."""
    for size_ms, unit in _SPANS:
        if age_ms >= size_ms:
            return f"{age_ms / size_ms:,.1f} {unit}"
    return f"{age_ms} ms"


class Counter(Protocol):
    """A function that receives the progress of the work."""

    def __call__(self, done: int) -> None: ...


@contextmanager
def progress(description: str, total: int | None, unit: str) -> Iterator[Counter]:
    """Show a progress bar on standard error if that is a terminal; without a total, show a running count."""
    columns = [SpinnerColumn(), TextColumn("{task.description}", markup=False)]
    if total is not None:
        bar = Progress(
            *columns, BarColumn(), TaskProgressColumn(), MofNCompleteColumn(), TextColumn(unit), console=_STDERR
        )
    else:
        bar = Progress(*columns, TextColumn(f"{{task.completed:,}} {unit}"), console=_STDERR)
    bar.disable = not shows_errors()  # With FORCE_COLOR, rich takes any file for a terminal.
    with bar:
        task = bar.add_task(shown(description), total=total)
        yield lambda done: bar.update(task, completed=done)


_STDERR: Final = new_console(stderr=True)
