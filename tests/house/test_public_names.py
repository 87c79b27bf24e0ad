"""Public names as an editor and a type checker see them: exactly those that are there, each with its own words."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import logbroker
from logbroker import client, embedded_broker, errors, pytest_plugin
from logbroker.client import sync

ROOT = Path(__file__).parents[2]
WRONG = """
import logbroker
from logbroker import Prodcer
from logbroker.errors import UnknownTopicEror

logbroker.Produser
logbroker.LogbrokerEror
logbroker.Producer("h:1").sned
"""
RIGHT = """
from typing import assert_type

import logbroker
from logbroker import Admin, Consumer, EmbeddedBroker, LogbrokerError, Producer, UnknownTopicError, Worker, embedded
from logbroker.client import sync

assert_type(logbroker.__version__, str)
assert_type(Producer("h:1"), logbroker.Producer)
caught: tuple[type[LogbrokerError], ...] = (LogbrokerError, UnknownTopicError, logbroker.ForkedProcessError)
with embedded() as broker, sync.Producer(broker.address) as producer:
    assert_type(broker, EmbeddedBroker)
    assert_type(producer.send_and_wait("t", b"").offset, int)

def decoded(record: sync.Record) -> int | None:
    listed: dict[str, int] | list[int] = record.msgpack(dict[str, int] | list[int])
    assert_type(record.json(list[int]), list[int])
    return record.json(int | None) or len(listed)
"""


def public_errors() -> set[str]:
    return {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.LogbrokerError) and not name.startswith("_")
    }


def test_every_name_is_there_and_listed() -> None:
    assert public_errors() < set(logbroker.__all__) <= set(dir(logbroker))
    for name in logbroker.__all__:
        assert getattr(logbroker, name) is not None
    for name in public_errors():
        assert getattr(logbroker, name) is getattr(errors, name)
    with pytest.raises(AttributeError, match="no attribute 'Produser'"):
        getattr(logbroker, "Produser")  # noqa: B009
    with pytest.raises(ImportError):
        exec("from logbroker import Prodcer")


def test_type_checkers_are_told_the_names_that_are_there() -> None:
    """The list for them is another one than that of the run time."""
    tree = ast.parse(Path(logbroker.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    told = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert told | {"__version__"} == set(logbroker.__all__)
    # Else each name there is would be one of theirs.
    assert not any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in tree.body)


@pytest.mark.prove
def test_mypy_finds_misspelt_names_and_nothing_else(tmp_path: Path) -> None:
    wrong, right = tmp_path / "wrong.py", tmp_path / "right.py"
    wrong.write_text(WRONG)
    right.write_text(RIGHT)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context"]
    done = subprocess.run(
        [*command, f"--cache-dir={tmp_path}", str(wrong), str(right)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    lines = [line for line in done.stdout.splitlines() if ": error: " in line and tmp_path.name in line]
    assert not [line for line in lines if "right.py" in line], done.stdout
    assert sorted(int(line.split(":")[1]) for line in lines) == [3, 4, 6, 7, 8], done.stdout + done.stderr


# --- docstrings -----------------------------------------------------------------------------------------------------

CLASSES = [
    *(getattr(client, name) for name in client.__all__),
    *(getattr(sync, name) for name in sync.__all__),
    embedded_broker.EmbeddedBroker,
]
TWINS = ["Admin", "Consumer", "Producer", "QueueAdmin", "Session", "Worker", "WorkerDelivery"]


def functions(cls: type) -> Iterator[tuple[type, str, FunctionType]]:
    """All public methods and properties, and what a call of the class takes, with the class of ours that defines it."""
    for owner in cls.__mro__:
        for name, value in vars(owner).items() if owner.__module__.startswith("logbroker.") else ():
            function: Any = value.fget if isinstance(value, property) else inspect.unwrap(value)
            if isinstance(function, FunctionType) and (name == "__init__" or not name.startswith("_")):
                yield owner, name, function


def literal_docstring(owner: type, name: str) -> str | None:
    """As it stands in the source: what an editor shows that does not run the program."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    (cls,) = tree.body
    assert isinstance(cls, ast.ClassDef)
    for node in cls.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name and ast.get_docstring(node):
            return ast.get_docstring(node)
    return None


@pytest.mark.prove(keep=3)
@pytest.mark.parametrize("cls", [each for each in dict.fromkeys(CLASSES) if inspect.isclass(each)])
def test_public_classes_and_methods_say_what_they_are(cls: type) -> None:
    assert cls.__dict__.get("__doc__"), cls
    silent = [
        f"{owner.__qualname__}.{name}"
        for owner, name, function in functions(cls)
        # The constructor of a public class; those of bases and of protocols are nobody's to call.
        if (name != "__init__" or (owner is cls and not getattr(cls, "_is_protocol", False)))
        and literal_docstring(owner, name) is None
    ]
    assert not silent


def public_names() -> dict[str, Any]:
    """Return the public modules and all that they offer, fixtures included, by the names that a program imports."""
    names: dict[str, Any] = {}
    for module in (logbroker, client, sync, errors, embedded_broker, pytest_plugin):
        names[module.__name__] = module
        for name in getattr(module, "__all__", None) or list(vars(module)):
            value = getattr(module, name)
            if not name.startswith("_") and getattr(value, "__module__", "").startswith("logbroker"):
                names[f"{module.__name__}.{name}"] = value
    return names


def test_every_public_name_has_a_docstring() -> None:
    names = public_names()
    expected = [f"{module.__name__}.{name}" for module in (logbroker, client, sync) for name in module.__all__]
    expected += [f"logbroker.errors.{name}" for name in public_errors()]
    fixtures = (
        *("logbroker_broker", "logbroker_session_broker"),
        *("logbroker_kafka_broker", "logbroker_session_kafka_broker"),
    )
    expected += [f"logbroker.pytest_plugin.{fixture}" for fixture in fixtures]
    assert {*expected} - {"logbroker.__version__"} <= names.keys()
    silent = [name for name, value in names.items() if not value.__doc__]
    for name, cls in names.items():
        for _, method, function in functions(cls) if inspect.isclass(cls) else ():
            if method != "__init__" and not function.__doc__:
                silent.append(f"{name}.{method}")
    assert not silent


def named_errors(text: str) -> set[str]:
    return set(re.findall(r"\b[A-Z]\w+Error\b", text))


@pytest.mark.parametrize("name", TWINS)
def test_synchronous_methods_name_the_errors_and_settings_that_their_twins_name(name: str) -> None:
    twin, own = ({n: f for _, n, f in reversed(list(functions(getattr(m, name))))} for m in (client, sync))
    for method in twin.keys() & own.keys():
        theirs, ours = (inspect.getdoc(each[method]) or "" for each in (twin, own))
        assert named_errors(theirs) <= named_errors(ours), (name, method)
        settings = set(re.findall(r"`(\w+)`", theirs)) & set(inspect.signature(own[method]).parameters)
        assert settings <= set(re.findall(r"`(\w+)`", ours)), (name, method)


@pytest.mark.parametrize("cls", [each for each in dict.fromkeys(CLASSES) if inspect.isclass(each)])
def test_times_and_sizes_have_a_unit(cls: type) -> None:
    """In the name of the parameter or, where that is one of the standard library's, in what is said of it."""
    for owner, name, function in functions(cls):
        for parameter in inspect.signature(function).parameters:
            if re.search(r"timeout|interval|delay|linger|wait|buffer|duration|period|age\b", parameter):
                said = re.search(r"_(seconds|ms|bytes)$", parameter) or "seconds" in (function.__doc__ or "")
                assert said, f"{owner.__qualname__}.{name}: {parameter}"
