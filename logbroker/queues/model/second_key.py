"""The second key of the records of a split lane: its place in the record, and the notation for this place."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from logbroker.errors import InvalidRequestError, quoted
from logbroker.record.codec import Headers

MIN_SUB_LANES: Final = 2
MAX_SUB_LANES: Final = 1_000
MAX_NAME_BYTES: Final = 255


class SplitBy(enum.Enum):
    """Where the second key of a record is."""

    HEADER = "header"
    """In a header. If a record has several of this name, the last one is used."""
    KEY_SUFFIX = "key-suffix"
    """In the record's key, behind the last separator."""
    NONE = "none"
    """Nowhere: the records of the key need no order."""


class SecondKey(msgspec.Struct, frozen=True, array_like=True):
    """Where records have their second key. A record without one has an empty second key."""

    by: SplitBy
    name: str = ""
    """Name of the header, or the separator."""

    @classmethod
    def parse(cls, text: str) -> SecondKey:
        """Read `header:NAME`, `key-suffix:SEPARATOR` or `none`. Raises InvalidRequestError."""
        by, _, name = text.partition(":")
        if by not in [each.value for each in SplitBy]:
            raise InvalidRequestError(
                f"{quoted(text)} does not say where the second key is: give header:NAME, key-suffix:SEPARATOR or none"
            )
        return cls(SplitBy(by), name)

    def check(self, ordering: str, key_header: str) -> None:
        """Raise InvalidRequestError if a queue group with this ordering cannot split lanes by this second key."""
        if ordering == "none":
            raise InvalidRequestError("the queue group has ordering none, so it has no lanes to split")
        if (self.by is SplitBy.NONE) == bool(self.name):
            need = {SplitBy.HEADER: "the name of a header", SplitBy.KEY_SUFFIX: "the separator"}
            raise InvalidRequestError(f"a split by {self.by.value} needs {need.get(self.by, 'no name')}")
        if len(self.name.encode(errors="surrogatepass")) > MAX_NAME_BYTES:
            raise InvalidRequestError(f"a header or separator of a split has at most {MAX_NAME_BYTES} bytes")
        if self.by is SplitBy.KEY_SUFFIX and ordering == "key" and not key_header:
            raise InvalidRequestError(
                "the queue group orders by the record's key, so all records of a lane have the same suffix: split by a"
                " header"
            )
        if self.by is SplitBy.HEADER and self.name == key_header:
            raise InvalidRequestError(
                f"header {quoted(self.name)} holds the ordering key, which is the same for all records of a lane: split"
                " by another header"
            )

    def of(self, record_key: bytes | None, headers: Headers) -> bytes:
        """Return the second key of a record; empty: it has none."""
        if self.by is SplitBy.HEADER:
            return next((value for name, value in reversed(headers) if name == self.name), None) or b""
        _, separator, suffix = (record_key or b"").rpartition(self.name.encode(errors="surrogatepass"))
        return suffix if separator else b""

    def __str__(self) -> str:
        return f"{self.by.value}:{self.name}" if self.name else self.by.value
