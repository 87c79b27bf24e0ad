"""A client that speaks the protocol by hand, over a blocking socket: any API, any version, any bytes."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any, Self

from logbroker.address import parse_address
from logbroker.kafka_wire.apis import PRODUCE
from logbroker.kafka_wire.codec import Api
from logbroker.kafka_wire.messages.headers import REQUEST_HEADER, RESPONSE_HEADER, RequestHeader
from logbroker.kafka_wire.messages.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
)
from logbroker.record.codec import BatchBuilder

SECONDS = 20.0


def frame(api: Api, version: int, message: Any, correlation_id: int = 1) -> bytes:
    """Return a request with its length."""
    header = RequestHeader(
        request_api_key=api.key, request_api_version=version, correlation_id=correlation_id, client_id="raw"
    )
    body = REQUEST_HEADER.write(header, api.request_header_version(version)) + api.request.write(message, version)
    return struct.pack(">i", len(body)) + body


class RawClient:
    """One connection."""

    def __init__(self, address: str) -> None:
        host, port = parse_address(address)
        self.socket = socket.create_connection((host, port), timeout=SECONDS)
        self._next = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, api: Api, version: int, message: Any) -> int:
        """Send a request, and return its correlation id."""
        self._next += 1
        self.socket.sendall(frame(api, version, message, self._next))
        return self._next

    def receive(self, api: Api, version: int) -> tuple[int, Any]:
        """Return the correlation id and the message of the next answer."""
        data = self.receive_bytes()
        header, at = RESPONSE_HEADER.read_part(data, api.response_header_version(version))
        return header.correlation_id, api.response.read(data, version, at)

    def receive_bytes(self) -> bytes:
        """Return the next answer, without its length. Raises EOFError at the end of the connection."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def call(self, api: Api, version: int, message: Any) -> Any:
        sent = self.send(api, version, message)
        correlation_id, answer = self.receive(api, version)
        assert correlation_id == sent
        return answer

    def is_closed(self) -> bool:
        """Wait for the end of the connection; False if something comes instead."""
        try:
            return not self.socket.recv(1)
        except ConnectionError:
            return True

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data


def batch_of(*values: bytes, **sequence: int) -> bytes:
    """Return one batch; `producer_id`, `producer_epoch` and `base_sequence` make it idempotent."""
    builder = BatchBuilder(1 << 20)
    for number, value in enumerate(values):
        builder.append(number, None, None, value, [])
    return builder.build(**sequence)


def produce_request(topic: str, batches: dict[int, bytes], acks: int = -1) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            ProduceRequestTopicProduceData(
                name=topic,
                partition_data=[
                    ProduceRequestPartitionProduceData(index=index, records=batch) for index, batch in batches.items()
                ],
            )
        ],
    )


def produce(client: RawClient, topic: str, partition: int, batch: bytes, version: int = 9) -> Any:
    """Append a batch, and return the answer for its partition."""
    answer = client.call(PRODUCE, version, produce_request(topic, {partition: batch}))
    [found] = answer.responses[0].partition_responses
    return found
