"""Reads Kafka's message definitions: JSON files with comments."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_NO_VERSION: Final = range(0)
_LAST: Final = 0x7FFF
_COMMENT: Final = re.compile(r"^\s*//.*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Field:
    name: str
    kind: str
    """A primitive type, or the name of a structure."""
    is_array: bool
    is_structure: bool
    versions: range
    nullable_versions: range
    tagged_versions: range
    flexible_versions: range | None
    """Versions in which a string is compact, where these are not those of the message."""
    tag: int
    default: str
    """Text of the default; "": that of the type."""
    is_ignorable: bool
    """Whether a value is dropped in a version that lacks the field; else it is an error there."""
    about: str


@dataclass(frozen=True, kw_only=True)
class Structure:
    name: str
    fields: tuple[Field, ...]
    about: str


@dataclass(frozen=True, kw_only=True)
class Message:
    name: str
    api_key: int | None
    versions: range
    flexible_versions: range
    is_latest_unstable: bool
    structures: dict[str, Structure]
    """All structures by name, the message itself first."""

    @property
    def top(self) -> Structure:
        return self.structures[self.name]


def read_message(path: Path) -> Message:
    """Read the definition of one message."""
    text: dict[str, Any] = json.loads(_COMMENT.sub("", path.read_text(encoding="utf-8")))
    valid = versions(text["validVersions"])
    structures: dict[str, Structure] = {}
    _add_structure(structures, text["name"], text["fields"], text.get("about", ""))
    for common in text.get("commonStructs", ()):
        _add_structure(structures, common["name"], common["fields"], common.get("about", ""))
    flexible = versions(text["flexibleVersions"])
    return Message(
        name=text["name"],
        api_key=text.get("apiKey"),
        versions=valid,
        flexible_versions=range(max(flexible.start, valid.start), min(flexible.stop, valid.stop)),
        is_latest_unstable=text.get("latestVersionUnstable", False),
        structures=structures,
    )


def versions(text: str) -> range:
    """Read a range of versions: "3", "0-4", "2+" or "none"."""
    if text == "none":
        return _NO_VERSION
    if text.endswith("+"):
        return range(int(text[:-1]), _LAST)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _add_structure(structures: dict[str, Structure], name: str, fields: list[dict[str, Any]], about: str) -> None:
    if name in structures:
        raise ValueError(f"two structures are named {name}")
    structures[name] = Structure(name=name, fields=tuple(map(_field, fields)), about=about)
    for field in fields:
        if "fields" in field:
            _add_structure(structures, field["type"].removeprefix("[]"), field["fields"], field.get("about", ""))


def _field(text: dict[str, Any]) -> Field:
    kind: str = text["type"].removeprefix("[]")
    default = text.get("default", "")
    return Field(
        name=re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", text["name"]).lower(),
        kind=kind,
        is_array=text["type"].startswith("[]"),
        is_structure=kind[0].isupper(),
        versions=versions(text["versions"]),
        nullable_versions=versions(text.get("nullableVersions", "none")),
        tagged_versions=versions(text.get("taggedVersions", "none")),
        flexible_versions=versions(text["flexibleVersions"]) if "flexibleVersions" in text else None,
        tag=text.get("tag", -1),
        default=str(default).lower() if isinstance(default, bool) else str(default),
        is_ignorable=text.get("ignorable", False),
        about=" ".join(text.get("about", "").split()),
    )
