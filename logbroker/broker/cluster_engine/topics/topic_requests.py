"""Requests to another gateway, the one that changes topics, by the same API that clients use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import grpc

from logbroker.broker.cluster_engine.connection.link import PassingError
from logbroker.config import TopicConfig
from logbroker.engine import LogGeneration, Topic
from logbroker.errors import BrokerUnavailableError, from_status
from logbroker.types import TopicId
from logbroker.v1 import admin_pb2

ASK_SECONDS: Final = 60.0
_SERVICE: Final = "/logbroker.v1.Admin/"
_NEVER_SENT: Final = "failed to connect to all addresses"
"""The beginning of gRPC's message for a call that found no connection."""


class TopicRequests:
    """Asks the gateway at an address. Each request has a connection of its own, because they are rare."""

    async def create(
        self, address: str, name: str, partitions: int | None, overrides: Mapping[str, str], *, validate_only: bool
    ) -> Topic:
        new = admin_pb2.NewTopic(name=name, partitions=partitions, configs=dict(overrides))
        request = admin_pb2.CreateTopicsRequest(topics=[new], validate_only=validate_only)
        return await _ask(address, "CreateTopics", request, admin_pb2.CreateTopicsResponse)

    async def delete(self, address: str, topic_id: TopicId) -> None:
        request = admin_pb2.DeleteTopicsRequest(topics=[admin_pb2.TopicRef(id=topic_id)])
        await _ask(address, "DeleteTopics", request, admin_pb2.DeleteTopicsResponse)

    async def alter(
        self,
        address: str,
        topic_id: TopicId,
        partitions: int | None,
        set_configs: Mapping[str, str],
        unset_configs: Sequence[str],
        *,
        validate_only: bool,
    ) -> Topic:
        alteration = admin_pb2.TopicAlteration(
            topic=admin_pb2.TopicRef(id=topic_id),
            partitions=partitions,
            set_configs=dict(set_configs),
            unset_configs=unset_configs,
        )
        request = admin_pb2.AlterTopicsRequest(topics=[alteration], validate_only=validate_only)
        return await _ask(address, "AlterTopics", request, admin_pb2.AlterTopicsResponse)


async def _ask(address: str, method: str, request: Any, response: Any) -> Topic:
    """Return the only topic of the answer. Raises its error, PassingError if the gateway cannot be reached, or
    BrokerUnavailableError if nobody knows what it has done."""
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(
            _SERVICE + method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        try:
            answer = await call(request, timeout=ASK_SECONDS)
        except grpc.aio.AioRpcError as error:
            if (error.details() or "").startswith(_NEVER_SENT):
                raise PassingError(f"the gateway at {address}, which changes topics, cannot be reached") from None
            raise BrokerUnavailableError(
                f"the gateway at {address}, which changes topics, does not answer: {error.details()}"
            ) from None
    [result] = answer.results
    if result.status.code:
        raise from_status(result.status.code, result.status.reason, result.status.message)
    found = result.topic
    return Topic(
        name=found.name,
        id=TopicId(found.id),
        partitions=found.partitions,
        config=TopicConfig(),
        overrides={},
        generations=(LogGeneration(found.generation, found.partitions, ()),),
        created_at_ms=0,
    )
