"""Parses requests, and refuses those that would take far more memory than their bytes.

Protobuf makes an object of every element of a list before the elements can be counted: 16 MiB of empty items would
become 700 MiB, one-byte numbers take eight bytes each, and millions of fields take seconds. So the elements of a large
message are counted first, in turns (`pacing`). At the same time its texts are measured: any use of a text of 30 MB,
even a quotation of its beginning, would block the event loop. Malformed bytes are refused like any other invalid
request; the transport's own parser would answer with an error of the transport.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from logbroker.config import MAX_STORED_BATCH_BYTES
from logbroker.errors import InvalidRequestError
from logbroker.grpc_api.wire_format import (
    BYTES,
    FIXED32,
    FIXED64,
    GROUP_END,
    GROUP_START,
    VARINT,
    end_of,
    malformed,
    read_varint32,
    skip_value,
)
from logbroker.pacing import Pace, Steps, in_turns

UNCOUNTED_BYTES: Final = 64 * 1024
"""Elements of smaller messages are not counted: they cannot be many."""
MAX_TEXT_BYTES: Final = UNCOUNTED_BYTES
"""Maximum bytes of one name, id, setting or other text. Most texts have lower limits, which are checked where the texts
are used."""
MAX_LONG_TEXT_BYTES: Final = 1024 * 1024
"""Maximum bytes of a text that may be long. Such a text is cut or refused later."""
LONG_TEXTS: Final = frozenset(("logbroker.v1.Nack.reason", "logbroker.v1.TopicOffsets.metadata"))
MAX_DATA_BYTES: Final = MAX_STORED_BATCH_BYTES
"""Maximum bytes of a part of a record, such as its key, in a separate field."""
DATA: Final = frozenset(
    (
        *(
            f"logbroker.v1.{name}.key"
            for name in ("Record", "SessionRef", "SessionState", "OpenSession", "LaneDecision")
        ),
        "logbroker.v1.RedriveRequest.key",
        "logbroker.v1.ExplainLanesRequest.keys",
        "logbroker.v1.SessionState.state",
        "logbroker.v1.Output.batch",
    )
)
UNMEASURED: Final = frozenset(("logbroker.v1.Record.value", "logbroker.v1.Header.value"))
"""Fields without a limit here: they may fill a request, are never searched, and their size is checked where they are
stored."""
MAX_ELEMENTS: Final = 100_000
"""Maximum number of elements in all lists of one request together."""
MAX_FIELDS: Final = 500_000
"""Maximum number of fields of one request, unknown fields included."""
SLICE_FIELDS: Final = 256
"""Number of fields that are counted between two steps of a `Pace`."""
FIELD_STEPS: Final = 2
"""Steps of a `Pace` that counting a field takes."""
MAX_PACKED_BYTES: Final = 4 * 1024 * 1024
"""Maximum bytes of all packed lists of numbers in one request together."""


_PACKAGE: Final = "logbroker.v1."


def too_long(field_name: str, size_bytes: int, max_bytes: int) -> InvalidRequestError:
    """Return the error for a text that is too long. The message does not quote the text."""
    return InvalidRequestError(f"{field_name} has {size_bytes} bytes; at most {max_bytes} are taken")


def request_parser(descriptor: Descriptor) -> Callable[[bytes], Awaitable[Message]]:
    """Return a function that parses a serialized message of this type; it raises InvalidRequestError."""
    parse = GetMessageClass(descriptor).FromString
    count = element_counter(descriptor)

    async def parsed(message: bytes) -> Message:
        try:
            if len(message) > UNCOUNTED_BYTES:
                await in_turns(count(message, 0, len(message)), Pace())
            return parse(message)
        except DecodeError:
            refusal = malformed(descriptor.name)
        except InvalidRequestError as error:
            refusal = InvalidRequestError(error.message)
        # An aborted call keeps its exceptions, and so these frames, until the garbage collector runs.
        del message
        raise refusal

    return parsed


def element_counter(descriptor: Any, name: str = "") -> Callable[[bytes, int, int], Steps[int]]:
    """Return a function that counts the elements of all lists in a message of this type, between two positions.

    Its steps return the number of elements, and raise InvalidRequestError if the message is invalid or exceeds a limit.
    `name` is the name of the whole message in errors; `descriptor` is a Descriptor (the type stubs of generated code
    have two kinds).
    """
    shape = _shape_of(descriptor)
    return lambda message, start, end: _count_elements(message, start, end, shape, name or descriptor.name)


class _Shape(msgspec.Struct):
    """The fields of a message type that are lists or texts, or may contain such fields, by their tags."""

    lists: set[int]
    packed: set[int]
    nested: dict[int, _Shape]
    texts: dict[int, tuple[int, str]]
    """Maximum bytes and name of each text field."""
    holds_lists: bool
    """Whether the message has lists at any depth. If not, and it is no longer than MAX_TEXT_BYTES, it is skipped."""


def max_bytes_of(field: FieldDescriptor) -> int:
    """Return the maximum bytes of a text field in a request; 0: no limit here."""
    if field.full_name in UNMEASURED:
        return 0
    if field.full_name in DATA:
        return MAX_DATA_BYTES
    return MAX_LONG_TEXT_BYTES if field.full_name in LONG_TEXTS else MAX_TEXT_BYTES


def _shape_of(descriptor: Descriptor) -> _Shape:
    shape = _Shape(set(), set(), {}, {}, False)
    for field in descriptor.fields:
        if field.type not in (field.TYPE_MESSAGE, field.TYPE_STRING, field.TYPE_BYTES):
            if field.is_repeated:
                shape.packed.add(field.number << 3 | BYTES)
                # Packed numbers may also be written one by one.
                shape.lists.update(field.number << 3 | kind for kind in (VARINT, FIXED64, FIXED32))
            continue
        tag = field.number << 3 | BYTES
        if field.is_repeated:
            shape.lists.add(tag)
        if field.message_type is not None:
            nested = _shape_of(field.message_type)
            if nested.holds_lists or nested.nested or nested.texts:
                shape.nested[tag] = nested
                shape.holds_lists = shape.holds_lists or nested.holds_lists
        elif max_bytes := max_bytes_of(field):
            shape.texts[tag] = max_bytes, field.full_name.removeprefix(_PACKAGE)
    shape.holds_lists = bool(shape.holds_lists or shape.lists or shape.packed)
    return shape


def _count_elements(message: bytes, position: int, end: int, shape: _Shape, name: str) -> Steps[int]:
    elements = packed_bytes = fields = 0
    ends_and_shapes = [(end, shape)]
    try:
        while ends_and_shapes:
            end, shape = ends_and_shapes[-1]
            if position == end:
                ends_and_shapes.pop()
                continue
            fields += 1
            if not fields % SLICE_FIELDS:
                if fields > MAX_FIELDS:
                    raise InvalidRequestError(f"the request has more than {MAX_FIELDS:,} fields; split it")
                yield FIELD_STEPS * SLICE_FIELDS
            tag, position = read_varint32(message, position)
            if tag in shape.lists:
                elements += 1
                if elements > MAX_ELEMENTS:
                    raise InvalidRequestError(f"the request lists more than {MAX_ELEMENTS} elements; split it")
            if tag in shape.packed:
                size, position = read_varint32(message, position)
                packed_bytes += size
                if packed_bytes > MAX_PACKED_BYTES:
                    raise InvalidRequestError(
                        f"the request lists numbers of more than {MAX_PACKED_BYTES} bytes; split it"
                    )
                position = end_of(position, size, end)
            elif tag in shape.texts:
                size, position = read_varint32(message, position)
                max_bytes, field_name = shape.texts[tag]
                position = end_of(position, size, end)
                if size > max_bytes:
                    raise too_long(field_name, size, max_bytes)
            elif tag in shape.nested:
                size, position = read_varint32(message, position)
                nested = shape.nested[tag]
                if nested.holds_lists or size > MAX_TEXT_BYTES:
                    ends_and_shapes.append((end_of(position, size, end), nested))
                else:
                    position = end_of(position, size, end)
            elif tag & 7 in (GROUP_START, GROUP_END):
                # Fields of an old-style group, between its two tags, count like fields of this message.
                position = end_of(position, 0, end)
            else:
                position = skip_value(message, position, tag, end)
    except (IndexError, DecodeError):
        raise malformed(name) from None
    return elements
