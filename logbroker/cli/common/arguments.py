"""Parsing of command-line arguments: texts, numbers and paths.

Every command parses its numbers, texts and paths with the types below; a test that walks all commands checks this. They
refuse text that is not UTF-8 (except where `BytesType` or `PathType` allows it), numbers that do not fit into a message
of the API, `nan` and an empty path. So no command has to check for these.
"""

from __future__ import annotations

import base64
import math
import re
from pathlib import Path
from typing import Any, Final

import click

from logbroker.config import MAX_INT32, MAX_INT64
from logbroker.errors import quoted
from logbroker.texts import whole_number

_REAL_NUMBER: Final = re.compile(r"-?([0-9]{1,20}(\.[0-9]{0,20})?|\.[0-9]{1,20})([eE][+-]?[0-9]{1,3})?")


def utf8(text: str) -> bytes | None:
    """Return a command-line text in UTF-8, or None if its bytes are not UTF-8."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return None


def real_number(text: str) -> float | None:
    """Return the number of a text, with or without a fraction, or None if it is not a finite number."""
    if not _REAL_NUMBER.fullmatch(text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def raw_bytes(text: str) -> bytes:
    """Return the bytes of a command-line text."""
    return text.encode("utf-8", "surrogateescape")


def key_of(text: str, *, in_base64: bool) -> bytes:
    """Return the bytes of a key, decoded if it was given in base64. Raises click.UsageError."""
    if not in_base64:
        return raw_bytes(text)
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise click.UsageError(f"{quoted(text)} is not base64") from None


class TextType(click.types.StringParamType):
    """A text. Bytes that are not UTF-8 are refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(super().convert(value, param, ctx))
        if utf8(text) is None:
            self.fail(f"{quoted(text)} is not UTF-8", param, ctx)
        return text


class NameType(TextType):
    """A text that is not empty. An empty one is most likely a variable that is not set."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = super().convert(value, param, ctx)
        if not text:
            self.fail("it is empty: give a value, or leave the option out", param, ctx)
        return text


class BytesType(click.types.StringParamType):
    """An argument of any bytes, such as a key or a shell command. Bytes that are not UTF-8 become lone surrogates."""


class PathType(click.Path):
    """A path of any bytes that the system accepts."""

    def __init__(
        self, *, exists: bool = False, file_okay: bool = True, path_type: type[Path] | type[str] = Path
    ) -> None:
        super().__init__(exists=exists, file_okay=file_okay, path_type=path_type)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail(f"it is empty: name a {'file or directory' if self.file_okay else 'directory'}", param, ctx)
        return super().convert(value, param, ctx)


class Whole(click.IntRange):
    """A whole number, written in digits. By default it must fit into an int32 field of the API."""

    def __init__(self, least: int = 0, most: int = MAX_INT32) -> None:
        # The help shows only limits that belong to the option, not those of a field in the API.
        super().__init__(least if least > -MAX_INT32 else None, most if most < MAX_INT32 else None)
        self._least: Final = least
        self._most: Final = most

    def _describe_range(self) -> str:
        return "" if self.min is None and self.max is None else super()._describe_range()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number = whole_number(value) if isinstance(value, str) else int(value)
        if number is None or not self._least <= number <= self._most:
            self.fail(f"{quoted(value)} is not a whole number from {self._least} to {self._most}", param, ctx)
        return number


class Real(click.FloatRange):
    """A number that may have a fraction. It is never `nan` and always within limits."""

    def __init__(self, least: float = 0, most: float = MAX_INT32, *, min_open: bool = False) -> None:
        super().__init__(least, most if most < MAX_INT32 else None, min_open=min_open)
        self._least: Final = least
        self._most: Final = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = real_number(value) if isinstance(value, str) else float(value)
        if number is None or not self._least <= number <= self._most or (self.min_open and number == self._least):
            least = f"above {self._least:.12g}, up to" if self.min_open else f"from {self._least:.12g} to"
            self.fail(f"{quoted(value)} is not a number {least} {self._most:.12g}", param, ctx)
        return number


OFFSET: Final = Whole(0, MAX_INT64)
COUNT: Final = Whole(1, MAX_INT64)
"""A number of records."""
PARTITION: Final = Whole()


def take_texts_as_utf8(command: click.Command) -> None:
    """Give TextType to all plain text arguments and options of a command and its subcommands."""
    for parameter in command.params:
        if type(parameter.type) is click.types.StringParamType:
            parameter.type = TextType()
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            take_texts_as_utf8(subcommand)
