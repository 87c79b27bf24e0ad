"""Serialization of a producer's objects into bytes, and of bytes into a program's objects."""

from __future__ import annotations

import inspect
from asyncio import CancelledError
from collections.abc import Callable
from types import UnionType
from typing import Any, Final, Literal, TypeVar, overload

import msgspec

from logbroker.errors import DeserializationError, InvalidRequestError, SerializationError, quoted
from logbroker.record.codec import Headers
from logbroker.record.message_headers import key_parts
from logbroker.texts import words_of

T = TypeVar("T")

Serializer = Literal["str", "json", "msgpack"] | Callable[[Any], bytes]
"""A serializer's name, or a function of the program. None (Kafka's null) is not serialized and stays None."""


_BYTES: Final = (bytes, bytearray, memoryview)
_SEND_BYTES: Final = "send bytes unchanged with another producer, without a serializer, or decode them first"


def _encode_text(text: object) -> bytes:
    if not isinstance(text, str):
        advice = f": {_SEND_BYTES}" if isinstance(text, _BYTES) else ""
        raise TypeError(f"the serializer str takes text, not {type(text).__name__}{advice}")
    return text.encode()


def _encode_json(value: Any) -> bytes:
    if isinstance(value, _BYTES):  # msgspec would write them as Base64 text, and nobody would notice.
        raise TypeError(f"the serializer json takes objects, not {type(value).__name__}: {_SEND_BYTES}")
    return msgspec.json.encode(value)


_NAMED: Final[dict[str, Callable[[Any], bytes]]] = {
    "str": _encode_text,
    "json": _encode_json,
    "msgpack": msgspec.msgpack.encode,
}


def serializer(given: Serializer | None, name: str) -> Callable[[Any], bytes | None] | None:
    """Return the function that makes bytes, or None if `given` is None, because values are bytes then. Raises
    InvalidRequestError."""
    if given is None:
        return None
    found = _NAMED.get(given) if isinstance(given, str) else given
    if found is None or not callable(found):
        raise InvalidRequestError(f"{name} takes {', '.join(_NAMED)} or a function, not {quoted(given)}")
    encode: Callable[[Any], Any] = found
    if any(map(inspect.iscoroutinefunction, (found, inspect.getattr_static(type(found), "__call__", None)))):
        raise InvalidRequestError(
            f"{name} is a coroutine function, which is not awaited: give a function that is not async"
        )

    def serialize(value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            made = encode(value)
        except (Exception, CancelledError) as error:  # Not a cancellation of the caller.
            raise SerializationError(f"{name} failed for {quoted(value)}: {words_of(error)}") from error
        if not isinstance(made, bytes | bytearray | memoryview):
            if inspect.iscoroutine(made):
                made.close()
            raise SerializationError(f"{name} returned {type(made).__name__} for {quoted(value)}, not bytes")
        return bytes(made)

    return serialize


class Decoding:
    """Base of records: the size, headers by name, and the value decoded to objects. If the value cannot be decoded, the
    error names topic, partition and offset of the record."""

    __slots__ = ()

    @property
    def topic(self) -> str:
        """The topic of the record."""
        raise NotImplementedError

    @property
    def partition(self) -> int:
        """The partition of the record."""
        raise NotImplementedError

    @property
    def offset(self) -> int:
        """The offset of the record."""
        raise NotImplementedError

    @property
    def key(self) -> bytes | None:
        """The key of the record; None: it has none."""
        raise NotImplementedError

    @property
    def value(self) -> bytes | None:
        """The value of the record; None: it has none."""
        raise NotImplementedError

    @property
    def headers(self) -> Headers:
        """The headers of the record, in their order."""
        raise NotImplementedError

    @property
    def size_bytes(self) -> int:
        """The size of the key, the value and the headers, decoded."""
        size = len(self.key or b"") + len(self.value or b"")
        for name, value in self.headers:
            size += len(name) + len(value or b"")
        return size

    def header(self, name: str, default: bytes | None = None) -> bytes | None:
        """Return the value of the last header of this name, as Kafka's `lastHeader`; `default` if there is no such
        header."""
        for each, value in reversed(self.headers):
            if each == name:
                return value
        return default

    @property
    def main_key(self) -> bytes | None:
        """The key without the sub-key; the whole key if the record was sent without a sub-key."""
        return key_parts(self.key, self.headers)[0]

    @property
    def sub_key(self) -> bytes | None:
        """The sub-key that the record was sent with; None: it was sent without one."""
        return key_parts(self.key, self.headers)[1]

    def text(self) -> str:
        """Return the value decoded as UTF-8. Raises DeserializationError, also for None."""
        return self.decode(lambda value: str(value, "utf-8"))

    @overload
    def json(self) -> Any: ...

    @overload
    def json(self, kind: type[T]) -> T: ...

    @overload
    def json(self, kind: UnionType) -> Any: ...

    def json(self, kind: Any = Any) -> Any:
        """Return the value decoded as JSON: as dicts and lists, or as a type, which is checked (a dataclass, a
        msgspec.Struct, `dict[str, int]`, ...). Raises DeserializationError, also for None."""
        return self.decode(lambda value: msgspec.json.decode(value, type=kind))

    @overload
    def msgpack(self) -> Any: ...

    @overload
    def msgpack(self, kind: type[T]) -> T: ...

    @overload
    def msgpack(self, kind: UnionType) -> Any: ...

    def msgpack(self, kind: Any = Any) -> Any:
        """Return the value decoded as MessagePack; the rest is as in `json`."""
        return self.decode(lambda value: msgspec.msgpack.decode(value, type=kind))

    def decode(self, function: Callable[[bytes], T]) -> T:
        """Return `function(value)`. Errors of the function are raised as DeserializationError, with the record's topic,
        partition and offset. The record does not change, and reading can go on after it."""
        if self.value is None:
            raise DeserializationError(f"{self._place()} has no value (None)").of(
                self.topic, self.partition, self.offset
            )
        try:
            return function(self.value)
        except (Exception, CancelledError) as error:
            told = DeserializationError(f"the value of {self._place()} cannot be decoded: {words_of(error)}")
            raise told.of(self.topic, self.partition, self.offset) from error

    def _place(self) -> str:
        return f"{self.topic}-{self.partition}, offset {self.offset}"
