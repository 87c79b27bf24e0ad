"""The table of the configuration file's settings in docs/SETTINGS.md is that of `logbroker/config.py`.

`python -m tests.house.test_settings` writes it anew.
"""

from __future__ import annotations

import ast
import inspect
import itertools
from pathlib import Path
from typing import Final

import msgspec

from logbroker import config
from logbroker.config import BROKER_BOUNDS, BrokerConfig

DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "SETTINGS.md"
HEAD: Final = "| setting | default | takes | what it is |\n|---|---|---|---|\n"


def _notes() -> dict[str, str]:
    """The docstrings of the settings."""
    [body] = [
        node.body
        for node in ast.parse(inspect.getsource(config)).body
        if isinstance(node, ast.ClassDef) and node.name == "BrokerConfig"
    ]
    notes: dict[str, str] = {}
    for node, after in itertools.pairwise(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            is_note = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            notes[node.target.id] = " ".join(str(ast.literal_eval(after.value)).split()) if is_note else ""  # type: ignore[attr-defined]
    return notes


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.6f}".rstrip("0").rstrip(".")


def table() -> str:
    notes = _notes()
    rows = []
    for field in msgspec.structs.fields(BrokerConfig):
        name = field.name
        default = getattr(BrokerConfig(), name)
        shown = _number(default) if isinstance(default, int | float) else f"`{default}`" if default else "none"
        takes = "a table" if isinstance(default, dict) else "a text"
        if name in BROKER_BOUNDS:
            takes = " to ".join(map(_number, BROKER_BOUNDS[name]))
        rows.append(f"| `{name}` | {shown} | {takes} | {notes[name]} |\n")
    return HEAD + "".join(rows)


def test_the_table_is_that_of_the_code() -> None:
    assert table() in DOCUMENT.read_text(encoding="utf-8"), "run python -m tests.house.test_settings"


def test_every_setting_says_what_it_is() -> None:
    assert [name for name, note in _notes().items() if not note] == []


if __name__ == "__main__":
    text = DOCUMENT.read_text(encoding="utf-8")
    before, _, after = text.partition(HEAD)
    rest = after.split("\n\n", 1)
    DOCUMENT.write_text(before + table() + ("\n" + rest[1] if len(rest) > 1 else ""), encoding="utf-8")
