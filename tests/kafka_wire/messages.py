"""All messages with their definitions and codecs, and values for them: as plain dictionaries, and as structures."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from hypothesis import Phase, settings
from hypothesis import strategies as st

from logbroker.kafka_wire.apis import APIS
from logbroker.kafka_wire.codec import MessageCodec
from logbroker.kafka_wire.messages import consumer_protocol, headers
from tests.kafka_wire.reference import Values, default_of
from tests.speeds import examples
from wiregen.definitions import Field, Message, Structure, read_message

DEFINITIONS: Final = Path(__file__).parents[2] / "proto" / "kafka" / "definitions"
RANGES: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def tries(few: int, many: int) -> settings:
    """Return settings that try so many examples, and do not shrink one: that of all versions would take minutes."""
    return settings(max_examples=examples(few, many), phases=(Phase.explicit, Phase.reuse, Phase.generate))


class Case:
    """One message."""

    def __init__(self, name: str, definition: Message, codec: MessageCodec[Any]) -> None:
        self.name = name
        self.definition = definition
        self.codec = codec

    @property
    def versions(self) -> range:
        return self.definition.versions

    @property
    def some_versions(self) -> list[int]:
        """The last version; all where more examples are wanted."""
        return list(self.versions)[examples(-1, 0) :]

    def __repr__(self) -> str:
        return self.name


def _cases() -> Iterator[Case]:
    codecs: dict[str, MessageCodec[Any]] = {
        "RequestHeader": headers.REQUEST_HEADER,
        "ResponseHeader": headers.RESPONSE_HEADER,
        "ConsumerProtocolSubscription": consumer_protocol.SUBSCRIPTION,
        "ConsumerProtocolAssignment": consumer_protocol.ASSIGNMENT,
    }
    for api in APIS.values():
        codecs |= {f"{api.name}Request": api.request, f"{api.name}Response": api.response}
    for path in sorted(DEFINITIONS.glob("*.json")):
        yield Case(path.stem, read_message(path), codecs.pop(path.stem))
    assert not codecs


CASES: Final = list(_cases())

# --- values --------------------------------------------------------------------------------------------------------

Leaf = Callable[[Field], "st.SearchStrategy[Any] | None"]
"""Returns other values for a field than usual; None: the usual ones."""


def _usual(_: Field) -> None:
    return None


_known: Final[dict[tuple[str, str, int, Leaf], st.SearchStrategy[Values]]] = {}


def values(
    message: Message, version: int, leaf: Leaf = _usual, structure: Structure | None = None
) -> st.SearchStrategy[Values]:
    """Return a strategy for the fields that a version has, as a dictionary."""
    structure = structure or message.top
    key = (message.name, structure.name, version, leaf)
    if key not in _known:
        _known[key] = _values(message, version, leaf, structure)
    return _known[key]


def _values(message: Message, version: int, leaf: Leaf, structure: Structure) -> st.SearchStrategy[Values]:
    return st.fixed_dictionaries({
        each.name: _field_values(message, version, leaf, each)
        for each in structure.fields
        if version in each.versions
    })  # fmt: skip


def _field_values(message: Message, version: int, leaf: Leaf, each: Field) -> st.SearchStrategy[Any]:
    special = leaf(each)
    element: st.SearchStrategy[Any] = _primitive(each.kind) if special is None else special
    if each.is_structure:
        element = values(message, version, leaf, message.structures[each.kind])
    usual: st.SearchStrategy[Any] = st.lists(element, max_size=3) if each.is_array else element
    if each.is_structure and not each.is_array and version in each.tagged_versions:
        structure = message.structures[each.kind]
        # One that has only defaults is not sent, and comes back as None.
        sent = element.filter(lambda found: found != defaults(message, version, structure))
        return st.none() | sent
    return st.none() | usual if version in each.nullable_versions else usual


@cache
def _primitive(kind: str) -> st.SearchStrategy[Any]:
    if kind[0].isupper():
        return st.nothing()
    if kind in RANGES:
        half = 1 << RANGES[kind] - 1
        return st.integers(-half, half - 1)
    return {
        "bool": st.booleans(),
        "string": st.text(max_size=6) | st.sampled_from(["a" * 126, "b" * 127, "c" * 32767]),
        "bytes": st.binary(max_size=6) | st.just(bytes(127)),
        "records": st.binary(max_size=6) | st.just(bytes(16384)),
        "uuid": st.binary(min_size=16, max_size=16),
    }[kind]


def defaults(message: Message, version: int, structure: Structure) -> Values:
    """Return the least that is valid: empty arrays, defaults, and null only where that is the default."""
    found: Values = {}
    for each in structure.fields:
        if version in each.versions:
            value = default_of(each)
            if each.is_structure and value is None and version not in (*each.nullable_versions, *each.tagged_versions):
                value = defaults(message, version, message.structures[each.kind])
            elif value is None and version not in (*each.nullable_versions, *each.tagged_versions):
                value = [] if each.is_array else b""
            found[each.name] = value
    return found


# --- structures ----------------------------------------------------------------------------------------------------


@cache
def _classes(kind: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct]]:
    """Return the classes of those fields of a structure that hold others."""
    found = {}
    for name, hint in typing.get_type_hints(kind).items():
        parts = [hint]
        for part in parts:
            parts += typing.get_args(part)
            if isinstance(part, type) and issubclass(part, msgspec.Struct):
                found[name] = part
    return found


def built(kind: type[msgspec.Struct], plain: Values) -> Any:
    """Make structures of dictionaries."""
    classes = _classes(kind)

    def inner(name: str, value: Any) -> Any:
        if isinstance(value, list):
            return [inner(name, each) for each in value]
        return built(classes[name], value) if isinstance(value, dict) else value

    return kind(**{name: inner(name, value) for name, value in plain.items()})


def plain(structure: Any, like: Values) -> Values:
    """Make dictionaries of structures, with the fields that others have."""

    def inner(value: Any, other: Any) -> Any:
        if isinstance(value, list) and isinstance(other, list) and len(value) == len(other):
            return [inner(each, one) for each, one in zip(value, other, strict=True)]
        if isinstance(value, msgspec.Struct) and isinstance(other, dict):
            return plain(value, other)
        return bytes(value) if isinstance(value, memoryview) else value

    return {name: inner(getattr(structure, name), like[name]) for name in like}
