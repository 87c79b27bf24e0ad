"""Codecs of whole messages, and what is known of an API before its module is loaded."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from logbroker.kafka_wire.primitives import Buffer, Parts, WireFormatError

M = TypeVar("M", bound=msgspec.Struct)
Reader: TypeAlias = Callable[[Buffer, int, int, int], tuple[list[M], int]]
"""Reads a count of structures, given the bytes, the position, the end and the count."""
Writer: TypeAlias = Callable[[Parts, Sequence[M]], None]

JOINED_BELOW_BYTES: Final = 4096
"""Parts that are not smaller stay parts of their own: a copy of them would cost more than another buffer to send."""


class MessageCodec(Generic[M]):
    """Reads and writes one message in all its versions.

    A message that was read refers to the buffer by its records, if it has any; it copies everything else.
    """

    def __init__(self, kind: type[M], layouts: Mapping[int, tuple[Reader[M], Writer[M]]]) -> None:
        self.kind = kind
        self.name = kind.__name__
        self._layouts = layouts

    @property
    def versions(self) -> range:
        return range(min(self._layouts), max(self._layouts) + 1)

    def read(self, data: Buffer, version: int, at: int = 0, *, may_be_longer: bool = False) -> M:
        """Read the message that takes all bytes from `at` to the end. With `may_be_longer`, bytes behind it are
        ignored.

        Raises WireFormatError.
        """
        message, stop = self.read_part(data, version, at)
        if stop != len(data) and not may_be_longer:
            raise WireFormatError(f"{self.name} version {version}: {len(data) - stop} bytes follow the message")
        return message

    def read_part(self, data: Buffer, version: int, at: int = 0) -> tuple[M, int]:
        """Read the message that begins at `at`, and return it with the position after it.

        Raises WireFormatError.
        """
        reader, _ = self._layout(version)
        try:
            items, stop = reader(data, at, len(data), 1)
        except WireFormatError as error:
            raise WireFormatError(f"{self.name} version {version}: {error.message}") from None
        return items[0], stop

    def write(self, message: M, version: int) -> bytes:
        """Write the message.

        Raises WireFormatError if a value does not fit, or if the version lacks a field that is set and matters.
        """
        return b"".join(self._written(message, version))

    def write_parts(self, message: M, version: int, *, head: bytes = b"") -> Parts:
        """Write the message as a list of buffers, the first of which begins with `head`. Large records are not copied.

        Raises WireFormatError.
        """
        parts: Parts = []
        small: Parts = [head]
        for part in self._written(message, version):
            if len(part) < JOINED_BELOW_BYTES:
                small.append(part)
            else:
                parts += (b"".join(small), part)
                small = []
        if small:
            parts.append(b"".join(small))
        return parts

    def _layout(self, version: int) -> tuple[Reader[M], Writer[M]]:
        layout = self._layouts.get(version)
        if layout is None:
            known = self.versions
            raise WireFormatError(f"{self.name} has versions {known[0]} to {known[-1]}, not {version}")
        return layout

    def _written(self, message: M, version: int) -> Parts:
        _, writer = self._layout(version)
        out: Parts = []
        try:
            writer(out, [message])
        except WireFormatError as error:
            raise WireFormatError(f"{self.name} version {version}: {error.message}") from None
        return out


@dataclass(frozen=True, kw_only=True)
class Api:
    """One API of the protocol. Its messages are loaded when they are first asked for."""

    key: int
    name: str
    module: str
    """Name of its module in `logbroker.kafka_wire.messages`."""
    first_version: int
    last_version: int
    last_stable_version: int
    """A later version may still change, and is not for servers to announce."""
    first_flexible_version: int | None
    """First version with compact types and tagged fields; None if there is none."""

    @property
    def versions(self) -> range:
        return range(self.first_version, self.last_version + 1)

    def request_header_version(self, version: int) -> int:
        return 2 if self._is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """The version of the header of the response to a request of some version.

        A client that asks for the versions does not know yet whether the server knows flexible headers: the answer to
        ApiVersions never has one.
        """
        return 1 if self._is_flexible(version) and self.name != "ApiVersions" else 0

    @cached_property
    def request(self) -> MessageCodec[Any]:
        codec: MessageCodec[Any] = self._messages.REQUEST
        return codec

    @cached_property
    def response(self) -> MessageCodec[Any]:
        codec: MessageCodec[Any] = self._messages.RESPONSE
        return codec

    @property
    def _messages(self) -> ModuleType:
        return importlib.import_module(f"logbroker.kafka_wire.messages.{self.module}")

    def _is_flexible(self, version: int) -> bool:
        return self.first_flexible_version is not None and version >= self.first_flexible_version
