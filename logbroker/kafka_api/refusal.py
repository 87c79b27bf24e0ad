"""The answer UNSUPPORTED_VERSION, to a request of an API, or in a version, that is not served. Pure.

The request cannot be read, so the answer is made from its API and version alone. It is written in the version that was
asked for, or the nearest one that can be written. If the response has no error code of its own, it lists one failed
item with an empty name: an empty list would look like success.

Produce gets no such answer. A producer with acks=0 expects none, and would take it for the answer to another request.
"""

from __future__ import annotations

import functools
from typing import Any, Final, get_args, get_type_hints

import msgspec

from logbroker.kafka_api.call import UNSUPPORTED_VERSION
from logbroker.kafka_wire.apis import PRODUCE
from logbroker.kafka_wire.codec import Api
from logbroker.kafka_wire.primitives import WireFormatError

_FIELD: Final = "error_code"
_MAX_DEPTH: Final = 3


def can_be_refused(api: Api) -> bool:
    """Return whether an answer can tell that a version is not served."""
    return api is not PRODUCE


def refusal_version(api: Api, version: int) -> int:
    """Return the version in which a refusal is written."""
    return min(max(version, api.first_version), api.last_version)


@functools.cache
def refusal(api: Api, version: int) -> msgspec.Struct:
    """Return the response that refuses a request in a version that can be written."""
    codec = api.response
    for depth in range(_MAX_DEPTH):
        found = _failed(codec.kind, depth)
        if found is None:
            continue
        try:
            if has_refusal(codec.read(codec.write(found, version), version)):
                return found
        except WireFormatError:
            pass  # This version has the error code in another place.
    raise ValueError(f"{codec.name} version {version} has no place for an error code")


def has_refusal(response: Any) -> bool:
    """Return whether a response says UNSUPPORTED_VERSION, for the whole or for an item."""
    if getattr(response, _FIELD, 0) == UNSUPPORTED_VERSION:
        return True
    items = [getattr(response, name) for name in response.__struct_fields__]
    return any(
        has_refusal(each)
        for item in items
        if isinstance(item, list)
        for each in item
        if isinstance(each, msgspec.Struct)
    )


def _failed(kind: type[msgspec.Struct], depth: int) -> msgspec.Struct | None:
    """Return a structure with the error code in an item at some depth; None: it has none there."""
    hints = get_type_hints(kind)
    if not depth:
        return kind(**{_FIELD: UNSUPPORTED_VERSION}) if _FIELD in hints else None
    for name, hint in hints.items():
        item_kind = next((each for each in get_args(hint) if _is_structure(each)), None)
        item = None if item_kind is None else _failed(item_kind, depth - 1)
        if item is not None:
            return kind(**{name: [item]})
    return None


def _is_structure(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
