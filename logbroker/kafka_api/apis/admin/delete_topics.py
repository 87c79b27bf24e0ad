"""DeleteTopics (key 20): deletes topics durably. The names are free at once.

v1: adds the throttle time. v4: flexible. v5: error messages. v6: topics by id.
"""

from __future__ import annotations

from logbroker.errors import InvalidRequestError, LogbrokerError
from logbroker.kafka_api.call import Call, check_changeable, code_of, served, topic_of
from logbroker.kafka_wire.apis import DELETE_TOPICS
from logbroker.kafka_wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicsResponseDeletableTopicResult,
)
from logbroker.kafka_wire.primitives import NO_UUID

TOPIC_STEPS = 50


async def _handle(call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    named: list[tuple[str | None, bytes]] = [(name, NO_UUID) for name in request.topic_names]
    named += [(each.name, each.topic_id) for each in request.topics]
    call.check_item_count(len(named))
    response = DeleteTopicsResponse(responses=[])
    for name, topic_id in dict.fromkeys(named):
        await call.step(TOPIC_STEPS)
        result = DeleteTopicsResponseDeletableTopicResult(name=name, topic_id=topic_id)
        response.responses.append(result)
        try:
            if name is not None and topic_id != NO_UUID:
                raise InvalidRequestError("name the topic by its name or by its id, not by both")
            topic = topic_of(call.node, name or "", topic_id, by_id=name is None)
            result.name, result.topic_id = topic.name, topic.id
            check_changeable(topic.name)
            await call.node.engine.delete_topic(topic.id)
        except LogbrokerError as error:
            result.error_code, result.error_message = code_of(error), error.message
    return response


SERVED = served(DELETE_TOPICS, 1, 6, _handle)
