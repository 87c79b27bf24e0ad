"""Describes settings where they are defined: unit, limits and effect beside the default.

Each field of a struct of settings is annotated with a `Setting`. The checks of limits, the command `logbroker config`
and the page docs/SETTINGS.md read these annotations, so all of them say the same.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import Any, Final, get_args, get_type_hints

import msgspec

_UNITS: Final = {
    "bytes": ((1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")),
    "ms": ((86_400_000, "days"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")),
    "seconds": ((86_400, "days"), (3_600, "h"), (60, "min"), (1, "s")),
}
"""Larger units for values that are hard to read, the largest first."""
_POWERS: Final = {2**31 - 1: "2^31 - 1", 2**40: "2^40", 2**50: "2^50", 2**63 - 1: "2^63 - 1"}
"""Limits that are shown as powers of two."""


class Setting(msgspec.Struct, frozen=True):
    """The description of one setting: the annotation of a field."""

    effect: str
    """One or two plain sentences for users."""
    unit: str = ""
    """Unit of a number, such as bytes or seconds, or the form of any other value, such as HOST:PORT."""
    least: float | None = None
    """Lowest value; None if the setting is not a number."""
    most: float | None = None
    """Highest value; None if the setting is not a number."""
    default: str = ""
    """The default in words, for a setting whose default depends on something else."""


class DescribedSetting(msgspec.Struct, frozen=True):
    """One setting of a struct, with everything that its field says."""

    name: str
    type: Any
    """The Python type of its values."""
    value: Any
    """The default."""
    setting: Setting

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of a setting that takes one of several words."""
        is_choice = isinstance(self.type, type) and issubclass(self.type, enum.Enum)
        return tuple(member.value for member in self.type) if is_choice else ()

    @property
    def is_number(self) -> bool:
        return self.setting.least is not None

    def default_text(self, *, with_unit: bool = False) -> str:
        """Write the default for people: 604,800,000 (7 days), or with the unit, 604,800,000 ms (7 days)."""
        if self.setting.default:
            return self.setting.default
        if isinstance(self.value, enum.Enum):
            return str(self.value.value)
        if isinstance(self.value, bool):
            return str(self.value).lower()
        if not self.is_number:
            return str(self.value) if self.value else "none"
        number = _number_text(self.value)
        if with_unit and self.setting.unit in _UNITS:
            number += f" {self.setting.unit}"
        words = _in_larger_unit(self.value, self.setting.unit)
        return f"{number} ({words})" if words else number

    def unit_text(self) -> str:
        """Write the unit of a number; empty for anything else."""
        return self.setting.unit if self.is_number else ""

    def takes_text(self) -> str:
        """Write what the setting takes: bounds, choices or the form of the value."""
        if self.is_number:
            return f"{_bound_text(self.setting.least)} to {_bound_text(self.setting.most)}"
        return ", ".join(self.choices) or self.setting.unit


def described(struct: type[msgspec.Struct]) -> Iterator[DescribedSetting]:
    """Yield the settings of a struct in the order of their definition. Raises TypeError for a field without a
    `Setting`."""
    hints = get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        kind, *notes = get_args(hints[field.name]) or (None,)
        setting = next((note for note in notes if isinstance(note, Setting)), None)
        if setting is None:
            raise TypeError(f"{struct.__name__}.{field.name} needs a Setting: Annotated[type, Setting(...)]")
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        yield DescribedSetting(field.name, kind, default, setting)


def bounds_of(settings: Iterable[DescribedSetting]) -> dict[str, tuple[float, float]]:
    """Return the lowest and the highest value of each number among some settings."""
    return {
        each.name: (each.setting.least, each.setting.most)
        for each in settings
        if each.setting.least is not None and each.setting.most is not None
    }


def _number_text(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6f}".rstrip("0").rstrip(".")


def _bound_text(bound: float | None) -> str:
    assert bound is not None
    return _POWERS.get(int(bound)) or _number_text(bound)


def _in_larger_unit(value: float, unit: str) -> str:
    """Return a value in the largest unit in which it is a whole number; empty if this is its own unit."""
    for size, name in _UNITS.get(unit, ()):
        if size > 1 and value >= size and value % size == 0:
            count = int(value // size)
            return f"{count:,} {name.removesuffix('s') if count == 1 and len(name) > 1 else name}"
    return ""
