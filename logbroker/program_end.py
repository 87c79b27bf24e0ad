"""The order of what this package does when the program ends: clients flush before their broker goes away.

`atexit` calls functions in the reverse order of their registration, which here is the order in which a program happens
to import modules. So one function is registered for all of them.
"""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Callable
from typing import Final

_ends_of_clients: Final[list[Callable[[], None]]] = []
_ends_of_brokers: Final[list[Callable[[], None]]] = []


def end_clients_with(end: Callable[[], None]) -> None:
    """Call this function when the program ends."""
    _ends_of_clients.append(end)


def end_brokers_with(end: Callable[[], None]) -> None:
    """Call this function when the program ends and its clients are ended."""
    _ends_of_brokers.append(end)


def _at_exit() -> None:
    with contextlib.ExitStack() as stack:  # Whatever one raises, the others are called, the last one first.
        for end in (*_ends_of_brokers, *_ends_of_clients):
            stack.callback(end)


atexit.register(_at_exit)
