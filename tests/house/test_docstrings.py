"""Docstrings begin with their subject. `test_public_names` checks that public names have one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("logbroker", "storage", "consumer_groups", "tools", "compare", "tests")
MODULES: Final = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
WITHOUT_SUBJECT: Final = re.compile(r"\s*(Of|That|What|Who|Which|By)\b")


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of the docstrings of the module, its classes, functions and attributes."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, text


def without_subject(source: str) -> list[tuple[int, str]]:
    return [(line, text) for line, text in docstrings(ast.parse(source)) if WITHOUT_SUBJECT.match(text)]


def test_no_docstring_begins_without_its_subject() -> None:
    assert len(MODULES) > 300
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in MODULES
        for line, text in without_subject(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(["name the subject first:", *found])


@pytest.mark.parametrize(
    "source",
    [
        '"""What a module has."""',
        'class A:\n    """Who asks."""',
        'class A:\n    size: int\n    """Of a file."""',
        'def f() -> None:\n    """By its name."""',
        'async def f() -> None:\n    """That of the caller."""',
        'class A:\n    def __init__(self) -> None:\n        self.size = 0\n        """Which is small."""',
        'if True:\n    SIZE = 0\n    """\n    Of a file."""',
    ],
)
def test_all_kinds_of_docstrings_are_read(source: str) -> None:
    assert len(without_subject(source)) == 1


@pytest.mark.parametrize("source", ['"""Bytes of a file."""', '"""Offset of a record."""', 'NAME = "Of a value"'])
def test_docstrings_that_name_their_subject_and_other_texts_pass(source: str) -> None:
    assert not without_subject(source)
