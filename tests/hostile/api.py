"""The API as a client sees it that has the .proto files; asynchronous."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from logbroker.v1 import admin_pb2 as admin
from logbroker.v1 import log_pb2 as log
from tests.hostile.inputs import path_of, request_class, response_class

DEADLINE_SECONDS: Final = 120.0


class Api:
    """The few calls that a client makes who means well."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def call(self, method: str, request: Message) -> Any:
        stub = self._channel.unary_unary(
            path_of(method),
            request_serializer=request_class(method).SerializeToString,
            response_deserializer=response_class(method).FromString,
        )
        return await stub(request, timeout=DEADLINE_SECONDS)

    async def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> bytes:
        topic = admin.NewTopic(name=name, partitions=partitions, configs=configs)
        [result] = (await self.call("CreateTopics", admin.CreateTopicsRequest(topics=[topic]))).results
        assert not result.status.code, result.status
        topic_id: bytes = result.topic.id
        return topic_id

    async def all_batches(self, topic: str, partition: int) -> AsyncIterator[bytes]:
        offset = 0
        while True:
            item = log.FetchItem(topic=topic, partition=partition, offset=offset)
            [result] = (await self.call("Fetch", log.FetchRequest(items=[item]))).results
            assert not result.status.code, result.status
            if not result.batches:
                assert offset == result.high_watermark
                return
            yield result.batches
            offset = result.next_offset

    async def append(self, topic: str, partition: int, batch: bytes) -> int:
        """Return the offset of the first record; raises AssertionError where the batch is refused."""
        item = log.ProduceItem(topic=topic, partition=partition, batch=batch)
        [result] = (await self.call("Produce", log.ProduceRequest(items=[item]))).results
        assert not result.status.code, f"a sound append was refused: {result.status}"
        base_offset: int = result.base_offset
        return base_offset
