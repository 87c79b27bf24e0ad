"""Public classes and their instances show the names that docs/PYTHON.md lists, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from enum import Enum
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

import msgspec
import pytest

from logbroker import client
from logbroker.client import sync

PAGE: Final = Path(__file__).parents[2] / "docs" / "PYTHON.md"
ROW: Final = re.compile(r"\| `(?P<name>\w+)` \|(?P<both>[^|]*)\|(?P<only_sync>[^|]*)\|")
THOSE_OF: Final = {"Record": client.Record, "list": list}
"""The classes whose names another row includes as `those of` them."""
INTERNAL: Final = {
    "Delivery": {"batch", "place"},
    "WorkerDelivery": {"batch", "index", "settlement", "word", "outputs"},
}
"""Fields of handles that other modules of the client use. The class says that they are not the program's."""
MODULES: Final = [client, sync]
TOGETHER: Final = [(module, name) for module in MODULES for name in module.__all__]


def shown(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def words(text: str) -> Iterator[str]:
    for inherited, without, name in re.findall(r"those of a `?(\w+)`?(?: without `(\w+)`)?|`(\w+)`", text):
        yield from shown(THOSE_OF[inherited]) - {without} if inherited else {name}


def listed(module: ModuleType) -> dict[str, set[str]]:
    """Return the names of each class that the page lists."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition("\n## Names\n")
    return {
        row["name"]: {*words(row["both"]), *(words(row["only_sync"]) if module is sync else ())}
        for row in ROW.finditer(section.partition("\n## ")[0])
    }


def described(cls: type) -> set[str]:
    """Return the names of a plain value: its fields or words, its methods with a docstring, and what its tuple has."""
    if issubclass(cls, Enum):
        return set(cls.__members__)
    fields = getattr(cls, "__struct_fields__", ()) or getattr(cls, "_fields", ())
    methods = {
        name
        for name, value in vars(cls).items()
        if not name.startswith("_") and isinstance(value, property | FunctionType) and value.__doc__
    }
    return {*fields, *methods, *(shown(tuple) if issubclass(cls, tuple) else ())}


@pytest.mark.parametrize(("module", "name"), TOGETHER)
def test_a_public_class_shows_the_listed_names_only(module: ModuleType, name: str) -> None:
    cls = getattr(module, name)
    names = listed(module).get(name)
    expected = described(cls) if names is None else names | INTERNAL.get(name, set())
    assert shown(cls) == expected


@pytest.mark.parametrize(("name", "fields"), INTERNAL.items())
@pytest.mark.parametrize("module", MODULES)
def test_a_field_that_is_not_listed_is_said_to_be_internal(module: ModuleType, name: str, fields: set[str]) -> None:
    docs = [cls.__doc__ or "" for cls in getattr(module, name).__mro__]
    (said,) = (line for doc in docs for line in doc.splitlines() if line.endswith("are private to the client."))
    assert set(re.findall(r"`(\w+)`", said)) == fields


def clients(module: ModuleType) -> list[Any]:
    """Open one client of each kind. None of them is used, so no broker need be there."""
    broker = "127.0.0.1:1"
    worker = module.Worker(broker, "group")
    consumer = module.Consumer(broker)
    return [
        module.Producer(broker),
        consumer,
        module.Convoy(consumer),
        module.Consumer(broker, group="group"),
        module.Admin(broker),
        module.QueueAdmin(broker),
        worker,
        worker.session(b"key"),
    ]


def check_instances(opened: list[Any]) -> None:
    # A property of a session that is not open raises, so the names alone are looked at.
    assert {type(each): shown(each) for each in opened} == {type(each): shown(type(each)) for each in opened}


async def test_an_asynchronous_client_shows_no_more_than_its_class() -> None:
    async with AsyncExitStack() as stack:
        opened = clients(client)
        for each in opened:
            if not isinstance(each, client.Session | client.Convoy):
                stack.push_async_callback(each.close)
        check_instances(opened)


def test_a_synchronous_client_shows_no_more_than_its_class() -> None:
    with ExitStack() as stack:
        opened = clients(sync)
        for each in opened:
            if not isinstance(each, sync.Session | sync.Convoy):
                stack.callback(each.close)
        check_instances(opened)


def test_instances_of_the_other_classes_have_no_attributes_beside_their_fields() -> None:
    machine = sync.Resequencer[object]()
    check_instances([machine])
    opened = {type(each).__name__ for each in [*clients(sync), machine]}
    for module, name in TOGETHER:
        cls = getattr(module, name)
        if getattr(cls, "_is_protocol", False):
            continue  # Its instances are the program's own.
        assert name in opened or issubclass(cls, msgspec.Struct | tuple | list | Enum), name
        if name not in opened and not issubclass(cls, Enum):
            assert not any("__dict__" in vars(each) for each in cls.__mro__), name
