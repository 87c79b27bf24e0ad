"""Anomalies that checkers find, and the error that reports them."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

_MAX_TOLD: Final = 12


class Anomaly(NamedTuple):
    """One thing that must not be."""

    kind: enum.Enum
    text: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.text}"


class BrokenPromisesError(AssertionError):
    """Promises were broken. `kinds` are those of the anomalies; none where something else is wrong."""

    def __init__(self, what: Sequence[str], kinds: Iterable[enum.Enum] = ()) -> None:
        more = [f"... and {len(what) - _MAX_TOLD} more"] if len(what) > _MAX_TOLD else []
        super().__init__("\n".join([*what[:_MAX_TOLD], *more]))
        self.kinds = frozenset(kinds)
