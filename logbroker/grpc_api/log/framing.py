"""Serializes fetch responses so that their batches or records are copied only once.

Protobuf copies a large bytes field twice: into the message, and into its serialization. On the wire a message is its
fields one after the other, so the large field can be appended to the serialization of the other fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from logbroker.grpc_api.wire_format import bytes_tag, encode_varint
from logbroker.v1.log_pb2 import FetchResponse, FetchResult, FetchStreamResponse

_BATCHES_TAG: Final = bytes_tag(FetchResult.BATCHES_FIELD_NUMBER)
_RESULTS_TAG: Final = bytes_tag(FetchResponse.RESULTS_FIELD_NUMBER)
assert FetchStreamResponse.DESCRIPTOR.fields_by_name["results"].number == 1
assert FetchResponse.RESULTS_FIELD_NUMBER == 1


class FramedResponse:
    """A FetchResponse or FetchStreamResponse that is being built; `results` is the only field of both."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.size_bytes = 0
        """Size of the serialization so far."""

    def add(self, result: FetchResult, batches: Sequence[bytes] = (), records: Sequence[bytes] = ()) -> None:
        """Append a result. `batches` are its record batches; `records` is its serialized field `records`, as
        `plain_records` returns it. At most one of them is given."""
        parts = [result.SerializeToString()]
        batches_bytes = sum(map(len, batches))
        if batches_bytes:
            parts += (_BATCHES_TAG + encode_varint(batches_bytes), *batches)
        parts += records
        size_bytes = sum(map(len, parts))
        frame = _RESULTS_TAG + encode_varint(size_bytes)
        self._parts += (frame, *parts)
        self.size_bytes += len(frame) + size_bytes

    def serialized(self) -> bytes:
        """Return the serialized message, and drop its parts."""
        message = b"".join(self._parts)
        self._parts.clear()
        return message
