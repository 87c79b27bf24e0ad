"""How a structure lies in the bytes of one version of its message. Versions with equal layouts share one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from wiregen.definitions import Field, Message, Structure

CODES: Final = {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uuid": "16s"}
"""Types of a fixed width, with their codes in Python's `struct`."""
WIDTHS: Final = {"bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uuid": 16}
_LENGTH_WIDTHS: Final = {"string": 2, "bytes": 4, "records": 4}
_ARRAY_KINDS: Final = {"int32", "string"}
"""Primitive types of which arrays are known."""


@dataclass(frozen=True)
class WireField:
    """A field as one version has it."""

    field: Field
    is_nullable: bool
    is_compact: bool
    layout: Layout | None
    """Layout of the structures that it holds."""

    @property
    def is_fixed(self) -> bool:
        return self.field.kind in CODES and not self.field.is_array

    @property
    def min_bytes(self) -> int:
        """The least that it takes where it is not tagged."""
        if self.field.is_array:
            return 1 if self.is_compact else 4
        if self.layout is not None:
            return 1 if self.is_nullable else self.layout.min_bytes
        if self.is_fixed:
            return WIDTHS[self.field.kind]
        return 1 if self.is_compact else _LENGTH_WIDTHS[self.field.kind]

    @property
    def element_bytes(self) -> int:
        """The least that an element of the array takes."""
        if self.layout is not None:
            return self.layout.min_bytes
        return WIDTHS.get(self.field.kind) or (1 if self.is_compact else _LENGTH_WIDTHS[self.field.kind])


@dataclass(frozen=True)
class Layout:
    structure: Structure
    first_version: int = field(compare=False)
    """The version for which it is named."""
    fields: tuple[WireField, ...]
    """Fields that lie one after the other."""
    tagged: tuple[WireField, ...]
    """Fields that may follow, by their tags."""
    unknown: tuple[Field, ...]
    """Fields that this version lacks, and that cannot be ignored."""
    is_flexible: bool

    @property
    def min_bytes(self) -> int:
        return sum(each.min_bytes for each in self.fields) + self.is_flexible


class Layouts:
    """The layouts of one message in all its versions."""

    def __init__(self, message: Message) -> None:
        self._message = message
        self._known: dict[Layout, Layout] = {}
        self.by_version = {version: self._layout(message.top, version) for version in message.versions}

    def all(self) -> Iterator[Layout]:
        """Return each layout once, those that another one holds before it."""
        return iter(self._known)

    def _layout(self, structure: Structure, version: int) -> Layout:
        is_flexible = version in self._message.flexible_versions
        present = [each for each in structure.fields if version in each.versions]
        tagged = [each for each in present if version in each.tagged_versions]
        tagged.sort(key=lambda each: each.tag)
        layout = Layout(
            structure=structure,
            first_version=version,
            fields=tuple(self._wire_field(each, version) for each in present if each not in tagged),
            tagged=tuple(self._wire_field(each, version) for each in tagged),
            unknown=tuple(each for each in structure.fields if each not in present and not each.is_ignorable),
            is_flexible=is_flexible,
        )
        return self._known.setdefault(layout, layout)

    def _wire_field(self, each: Field, version: int) -> WireField:
        if not each.is_structure and (each.kind not in CODES and each.kind not in _LENGTH_WIDTHS):
            raise ValueError(f"{each.name} has the type {each.kind}, which is not known here")
        if each.is_array and not each.is_structure and each.kind not in _ARRAY_KINDS:
            raise ValueError(f"{each.name} is an array of {each.kind}, which is not known here")
        flexible = self._message.flexible_versions if each.flexible_versions is None else each.flexible_versions
        wire_field = WireField(
            field=each,
            is_nullable=version in each.nullable_versions,
            is_compact=version in flexible,
            layout=self._layout(self._message.structures[each.kind], version) if each.is_structure else None,
        )
        if each.is_array and not wire_field.element_bytes:
            raise ValueError(f"{each.name} may take no bytes, so that its count could ask for any number of structures")
        return wire_field
