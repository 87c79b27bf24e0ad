"""Pages of docs/ whose tables are made from the code, each between `<!-- generated: NAME -->` and `<!-- end -->`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
_PLACE: Final = re.compile(r"(<!-- generated: ([\w.]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(columns: Sequence[str], *rows: Sequence[str]) -> str:
    """Return a table in Markdown."""
    return "".join(f"| {' | '.join(row)} |\n" for row in (columns, ["---"] * len(columns), *rows))


def names_in(text: str) -> list[str]:
    """Return the names of the generated tables of a page, in their order."""
    return [place[2] for place in _PLACE.finditer(text)]


def with_tables(text: str, make: Callable[[str], str]) -> str:
    """Return a page in which each generated table is what `make` returns for its name."""
    return _PLACE.sub(lambda place: f"{place[1]}\n{make(place[2])}\n{place[3]}", text)


def write_tables(page: Path, make: Callable[[str], str]) -> None:
    """Write the generated tables of a page anew."""
    page.write_text(with_tables(page.read_text(encoding="utf-8"), make), encoding="utf-8")
