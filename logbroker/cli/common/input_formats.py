"""Standard input of `logbroker produce`: lines, JSON lines or CSV, read one record at a time.

All readers take the lines of a binary file. They raise InvalidRequestError, which names the faulty line.
"""

from __future__ import annotations

import base64
import codecs
import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Final, Literal

import msgspec

from logbroker.config import MAX_BATCH_BYTES, MAX_INT64
from logbroker.errors import InvalidRequestError, quoted
from logbroker.record.message_headers import MAX_PRIORITY, MIN_PRIORITY, check_priority
from logbroker.texts import whole_number

Encoding = Literal["base64"]
TimestampMs = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT64)]
PartitionNumber = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Priority = Annotated[int, msgspec.Meta(ge=MIN_PRIORITY, le=MAX_PRIORITY)]


_ESCAPE: Final = re.compile(rb"\\(?:ud[89ab]..\\ud[c-f]..|(ud[89a-f][0-9a-f]{2})|.)", re.IGNORECASE)
"""An escape in JSON. The group is a surrogate that is not part of a pair."""


class InputRecord(msgspec.Struct, gc=False):
    """A record from the input, not yet routed."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None
    priority: int | None = None


def read_lines(lines: Iterable[bytes], *, key_separator: bytes | None, raw: bool) -> Iterator[InputRecord]:
    """Yield one record per line, without its line feed. `key_separator` separates key and value at its first
    occurrence.

    A line that is not UTF-8 is refused unless `raw` is set.
    """
    for number, line in enumerate(lines if raw else _unmarked(lines), 1):
        if not raw and not line.isascii():
            _text(line, number)
        value = line.removesuffix(b"\n")
        if key_separator is None:
            yield InputRecord(value)
            continue
        key, separator, value = value.partition(key_separator)
        if not separator:
            parting = quoted(key_separator.decode("utf-8", "backslashreplace"))
            raise InvalidRequestError(f"line {number} has no key: {parting} does not occur in it")
        yield InputRecord(value, key)


class _JsonHeader(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    value: str | None = None
    value_encoding: Encoding | None = None


class _JsonRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A record as `consume --format json` prints it. Topic and offset say where the record was; they are ignored."""

    value: str | None
    value_encoding: Encoding | None = None
    key: str | None = None
    key_encoding: Encoding | None = None
    headers: tuple[_JsonHeader, ...] = ()
    timestamp: TimestampMs | None = None
    partition: PartitionNumber | None = None
    priority: Priority | None = None
    topic: str | None = None
    offset: int | None = None


def read_json(lines: Iterable[bytes]) -> Iterator[InputRecord]:
    """Yield one record per line, a JSON object as `consume --format json` prints it. Only `value` is required. Blank
    lines are skipped."""
    decode = msgspec.json.Decoder(_JsonRecord).decode
    for number, line in enumerate(_unmarked(lines), 1):
        if not line.isascii():
            _text(line, number)
        elif line.isspace():
            continue
        try:
            record = decode(line)
            read = InputRecord(
                value=_bytes(record.value, record.value_encoding),
                key=_bytes(record.key, record.key_encoding),
                headers=tuple((header.key, _bytes(header.value, header.value_encoding)) for header in record.headers),
                timestamp_ms=record.timestamp,
                partition=record.partition,
                priority=record.priority,
            )
        except ValueError as error:  # msgspec raises subclasses, base64 a plain ValueError.
            why = _lone_surrogate_text(line) or error
            raise InvalidRequestError(f"line {number} is not a record: {why}") from None
        yield read


def _lone_surrogate_text(line: bytes) -> str:
    """Return what is wrong if a JSON text has half of a surrogate pair, else "". msgspec reports it as an end of the
    input."""
    lone = next((found[1] for found in _ESCAPE.finditer(line) if found[1]), None)
    return "" if lone is None else f"\\{lone.decode()} is half of a surrogate pair, which is no text"


def read_csv(
    lines: Iterable[bytes], *, key_column: str | None = None, priority_column: str | None = None
) -> Iterator[InputRecord]:
    """Yield one record per row: a JSON object from column to text, in the order of the columns. The first row names the
    columns.

    An empty field in the priority column means no priority.
    """
    csv.field_size_limit(MAX_BATCH_BYTES)
    rows = csv.reader((_text(line, number) for number, line in enumerate(_unmarked(lines), 1)), strict=True)
    encode = msgspec.json.Encoder().encode
    try:
        columns = next(rows, [])
        if not columns:
            raise InvalidRequestError("the input is empty: its first line must name the columns")
        if len(set(columns)) < len(columns):
            raise InvalidRequestError("two columns have the same name")
        key_at, priority_at = _column(columns, key_column), _column(columns, priority_column)
        for row in rows:
            if len(row) != len(columns):
                if not row:
                    continue
                raise InvalidRequestError(
                    f"line {rows.line_num} has {len(row)} fields; there are {len(columns)} columns"
                )
            value = encode(dict(zip(columns, row, strict=True)))
            yield InputRecord(
                value,
                None if key_at is None else row[key_at].encode(),
                priority=None if priority_at is None else _priority(row[priority_at], rows.line_num),
            )
    except csv.Error as error:
        raise InvalidRequestError(f"line {rows.line_num} is not CSV: {error}") from None


def _unmarked(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines without the byte order mark that programs such as Excel put at the start of a file."""
    is_first = True
    for line in lines:
        yield line.removeprefix(codecs.BOM_UTF8) if is_first else line
        is_first = False


def _column(columns: Sequence[str], name: str | None) -> int | None:
    if name is not None and name not in columns:
        raise InvalidRequestError(f"there is no column {name!r}; there are: {', '.join(columns)}")
    return None if name is None else columns.index(name)


def _priority(text: str, number: int) -> int | None:
    if not text:
        return None
    try:
        priority = whole_number(text)
        check_priority(-1 if priority is None else priority)
    except InvalidRequestError:
        raise InvalidRequestError(
            f"line {number}: {quoted(text)} is no priority: give {MIN_PRIORITY} to {MAX_PRIORITY}"
        ) from None
    return priority


def _text(line: bytes, number: int) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"line {number} is not UTF-8: byte 0x{line[error.start]:02x} at column {error.start + 1}"
        ) from None


def _bytes(text: str | None, encoding: Encoding | None) -> bytes | None:
    if text is None:
        return None
    return text.encode() if encoding is None else base64.b64decode(text, validate=True)
