"""The API as a program sees it that has the .proto files and nothing else of ours."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from logbroker.record.codec import NewRecord, decode_batch, encode_batch, split_batches
from logbroker.v1 import admin_pb2, log_pb2

DEADLINE_SECONDS = 20


class Service:
    """Blocking stubs of one service: `service.Produce(request)`; streams return grpc's call objects."""

    def __init__(self, channel: grpc.Channel, descriptor: Any) -> None:
        for method in descriptor.methods:
            make = {
                (False, False): channel.unary_unary,
                (True, True): channel.stream_stream,
            }[bool(method.client_streaming), bool(method.server_streaming)]
            stub = make(
                f"/{descriptor.full_name}/{method.name}",
                request_serializer=GetMessageClass(method.input_type).SerializeToString,
                response_deserializer=GetMessageClass(method.output_type).FromString,
            )
            setattr(self, method.name, self._with_deadline(stub))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    @staticmethod
    def _with_deadline(stub: Any) -> Any:
        return lambda request, deadline_seconds=DEADLINE_SECONDS: stub(request, timeout=deadline_seconds)


class Api:
    """Both services of a broker, and the calls that nearly every test makes."""

    def __init__(self, address: str, *options: tuple[str, int]) -> None:
        """`options`: further ones of the channel."""
        options += (("grpc.max_receive_message_length", 2**31 - 1), ("grpc.max_send_message_length", 2**31 - 1))
        self.channel = grpc.insecure_channel(address, options=options)
        self.log = Service(self.channel, log_pb2.DESCRIPTOR.services_by_name["Log"])
        self.admin = Service(self.channel, admin_pb2.DESCRIPTOR.services_by_name["Admin"])

    def create(self, name: str, partitions: int = 1, **configs: str) -> admin_pb2.Topic:
        """Create a topic; config names with underscores for dots. Raises AssertionError where it is refused."""
        request = admin_pb2.CreateTopicsRequest()
        topic = request.topics.add(name=name, partitions=partitions)
        topic.configs.update({key.replace("_", "."): value for key, value in configs.items()})
        results: list[admin_pb2.TopicResult] = self.admin.CreateTopics(request).results
        assert not results[0].status.code, results[0].status
        return results[0].topic

    def produce(self, topic: str, batch: bytes, partition: int = 0, **fields: Any) -> log_pb2.ProduceResult:
        item = log_pb2.ProduceItem(topic=topic, partition=partition, batch=batch, **fields)
        results: list[log_pb2.ProduceResult] = self.log.Produce(log_pb2.ProduceRequest(items=[item])).results
        return results[0]

    def produce_values(self, topic: str, values: list[bytes], partition: int = 0) -> log_pb2.ProduceResult:
        """One batch of these values; raises AssertionError where it is refused."""
        result = self.produce(topic, batch_of(*values), partition)
        assert not result.status.code, result.status
        return result

    def fetch(self, topic: str, partition: int = 0, offset: int = 0, **fields: Any) -> log_pb2.FetchResult:
        item = log_pb2.FetchItem(topic=topic, partition=partition, offset=offset)
        results: list[log_pb2.FetchResult] = self.log.Fetch(log_pb2.FetchRequest(items=[item], **fields)).results
        return results[0]

    def values(self, topic: str, partition: int = 0, offset: int = 0) -> list[bytes | None]:
        """All values of a partition from an offset on."""
        found: list[bytes | None] = []
        while True:
            result = self.fetch(topic, partition, offset)
            assert not result.status.code, result.status
            if not result.batches:
                return found
            found += values_in(result.batches, offset)
            offset = result.next_offset


def batch_of(*values: bytes | None, **fields: Any) -> bytes:
    return encode_batch([NewRecord(value=value, timestamp_ms=1_700_000_000_000) for value in values], **fields)


def values_in(batches: bytes, offset: int = 0) -> list[bytes | None]:
    """The values in whole batches, from an offset on."""
    return [
        record.value for _, batch in split_batches(batches) for record in decode_batch(batch) if record.offset >= offset
    ]
