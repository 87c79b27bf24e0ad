"""Requests with any number of items in their lists."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import msgspec

NAME = "sample"
"""All strings."""


def sample(kind: type[msgspec.Struct], count: int = 1) -> Any:
    """Return a structure whose lists have so many items; those within these have one."""
    values: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        kinds = get_args(hint) or (hint,)
        inner = next((each for part in kinds for each in (get_args(part) or (part,)) if _is_structure(each)), None)
        if str in kinds and not str(hint).startswith("list"):
            values[name] = NAME
        elif "list[" in str(hint):
            one = sample(inner) if inner else None
            values[name] = [msgspec.structs.replace(one) for _ in range(count)] if one is not None else []
    return kind(**values)


def _is_structure(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
