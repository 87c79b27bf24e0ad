"""Errors that are kept: their tracebacks would keep every frame that they went through, with all that it worked on.

An error that is caught into a list, an attribute or an answer loses its traceback there (`as_value`); one that is kept
is never raised itself, but another one that says the same (`anew`). The code is searched for what does otherwise.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import logbroker.errors
from logbroker.errors import LogbrokerError, RecordTooLargeError
from logbroker.storage.continuity import DamagedLogError
from tests.house.test_layout import ROOT, modules

KEEPING_CALLS: Final = ("append", "add", "appendleft", "setdefault", "set_exception", "set_result")
TESTS: Final = ROOT / "tests"


def _is_error(node: ast.expr | None) -> bool:
    """Whether an expression names error classes of ours, as `except` does."""
    if isinstance(node, ast.Tuple):
        return any(map(_is_error, node.elts))
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    kind = getattr(logbroker.errors, name, None)
    return isinstance(kind, type) and issubclass(kind, LogbrokerError)


def faults(text: str) -> Iterator[tuple[int, str]]:
    """Find the lines that keep an error with its traceback, or raise one that is kept."""
    tree = ast.parse(text)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    constants = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    } | {name.asname or name.name for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            raised = [node.exc, *(node.exc.values if isinstance(node.exc, ast.BoolOp) else ())]
            if any(
                isinstance(each, ast.Attribute | ast.Subscript)
                or (isinstance(each, ast.Name) and each.id in constants and not _is_class(each.id))
                for each in raised
            ):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.ExceptHandler) and node.name and _is_error(node.type):
            for used in ast.walk(node):
                if isinstance(used, ast.Name) and used.id == node.name and _keeps(used, parents[used]):
                    yield used.lineno, ast.unparse(parents[used])


def _is_class(name: str) -> bool:
    return name[:1].isupper() and not name.isupper()


def _keeps(used: ast.Name, user: ast.AST) -> bool:
    if isinstance(user, ast.List | ast.Tuple | ast.Dict | ast.Set | ast.IfExp | ast.BoolOp | ast.NamedExpr):
        return True
    if isinstance(user, ast.Assign | ast.AnnAssign | ast.Return):
        return True
    is_method = isinstance(user, ast.Call) and isinstance(user.func, ast.Attribute) and used in user.args
    return is_method and user.func.attr in KEEPING_CALLS  # type: ignore[attr-defined]


@pytest.mark.prove(keep=3)
@pytest.mark.parametrize(
    "path", [path for path in modules() if TESTS not in path.parents], ids=lambda path: str(path.relative_to(ROOT))
)
def test_no_error_is_kept_with_its_traceback_or_raised_again_and_again(path: Path) -> None:
    assert list(faults(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "text",
    [
        "FULL = OverloadedError('full')\ndef f():\n    raise FULL",
        "from logbroker.grpc_api.paging import FULL\ndef f():\n    raise FULL",
        "def f(self):\n    raise self._error",
        "def f(self):\n    raise self._error or OverloadedError('x')",
        "def f(self):\n    raise self._errors[3]",
        "try:\n    f()\nexcept LogbrokerError as error:\n    found.append(error)",
        "try:\n    f()\nexcept (OSError, OverloadedError) as error:\n    found[3] = error",
        "try:\n    f()\nexcept LogbrokerError as error:\n    found = (1, error)",
        "def f():\n    try:\n        f()\n    except errors.OverloadedError as error:\n        return [error] * 7",
    ],
)
def test_what_keeps_an_error_is_found(text: str) -> None:
    assert len(list(faults(text))) == 1


def test_an_error_made_anew_says_the_same_and_leaves_the_kept_one_alone() -> None:
    kept = RecordTooLargeError("too large").with_bound(7)
    for _ in range(2):
        with pytest.raises(RecordTooLargeError) as raised:
            raise kept.anew()
        assert (str(raised.value), raised.value.message, raised.value.max_message_bytes) == (
            "too large",
            "too large",
            7,
        )
    assert kept.__traceback__ is None


@pytest.mark.parametrize("error", [LogbrokerError("m"), DamagedLogError("/a", 3, 4, "is bad")])
def test_every_kind_of_error_can_be_made_anew(error: LogbrokerError) -> None:
    other = error.anew()
    assert type(other) is type(error)
    assert other is not error
    assert (other.args, vars(other)) == (error.args, vars(error))


def test_an_error_as_a_value_refers_to_nothing_that_was_worked_on() -> None:
    try:
        try:
            raise OSError("disk")
        except OSError as cause:
            raise LogbrokerError("m") from cause
    except LogbrokerError as error:
        value = error.as_value()
    assert (value.__traceback__, value.__cause__, value.__context__) == (None, None, None)
