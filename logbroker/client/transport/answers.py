"""Calls that ask for several names and get an item for each. Names for which an answer had no room are asked for
again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from logbroker.client.transport.status import error_of_item
from logbroker.errors import LogbrokerError, OverloadedError
from logbroker.v1 import common_pb2


class Item(Protocol):
    """The part of an answer that concerns one name."""

    @property
    def status(self) -> common_pb2.Status: ...


ItemT = TypeVar("ItemT", bound=Item)


async def items(
    names: Iterable[str], ask: Callable[[list[str]], Awaitable[Sequence[ItemT]]]
) -> AsyncIterator[tuple[str, ItemT, LogbrokerError | None]]:
    """Yield each name once, with its item and that item's error. `ask` asks the broker about some names."""
    left = list(dict.fromkeys(names))
    while left:
        full: list[str] = []
        for number, (name, item) in enumerate(zip(left, await ask(left), strict=True)):
            error = error_of_item(item.status)
            if isinstance(error, OverloadedError) and number:
                full.append(name)  # The answer was full: ask for this name again.
            else:
                yield name, item, error
        left = full
