"""Produce (key 0): appends one batch to each partition that is listed.

Batches go to the log as they are; the log checks header and CRC. A batch is answered when it is as durable as its topic
promises, whatever `acks` says; with acks=0 there is no answer, and an error closes the connection, as in Kafka, so that
the producer learns of it. Requests of one connection are appended in their order. A repeat of an idempotent producer
gets its first offset again. Transactions are refused (TRANSACTIONAL_ID_AUTHORIZATION_FAILED).

If the broker's memory for appends is full, the answer is NOT_ENOUGH_REPLICAS: nothing was appended, and every client
sends again. Other APIs answer with a quota error in this case, but librdkafka would give the records up after it.

v3: batches of version 2 (v0 to v2 are announced but refused, see ApiVersions). v5: adds the log start offset. v8: error
messages. v9: flexible. v10: the current leader of a partition that has moved, which never happens. v11 and v12: errors
and ways of transactions. v13: topics by id.
"""

from __future__ import annotations

from collections.abc import Sequence

from logbroker.engine import Append, Appended
from logbroker.errors import (
    InvalidRecordError,
    InvalidRequestError,
    LogbrokerError,
    OverloadedError,
    ProducerForgottenError,
    UnknownProducerIdError,
    UnsupportedFeatureError,
)
from logbroker.kafka_api.call import (
    INVALID_REQUIRED_ACKS,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Call,
    ConnectionEndError,
    check_changeable,
    code_of,
    served,
    topic_of,
)
from logbroker.kafka_api.produce_parser import FIRST_WITH_IDS, ProduceCall, TopicBatches, produce_steps
from logbroker.kafka_wire.apis import PRODUCE
from logbroker.kafka_wire.messages.produce import (
    ProduceResponse,
    ProduceResponsePartitionProduce,
    ProduceResponseTopicProduce,
)
from logbroker.pacing import in_turns

APPENDS_AT_ONCE = 64
"""Number of batches of one request that are appended at once: 20 us each, and more if a segment begins."""
APPEND_STEPS = 15
"""Steps of a `Pace` that an append takes."""
NOT_ENOUGH_REPLICAS = 19


class _InvalidAcksError(InvalidRequestError):
    """The request has a value of acks other than -1, 0 and 1.

    Use one of these.
    """

    kafka_code = INVALID_REQUIRED_ACKS


class _TransactionError(UnsupportedFeatureError):
    """Transactions are not supported.

    Leave `transactional.id` out of the producer's configuration.
    """

    kafka_code = TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def _handle(call: Call, _: None) -> ProduceResponse | None:
    request = await in_turns(produce_steps(call.data, call.version, call.body_at), call.pace)
    outcomes = await _outcomes(call, request)
    call.placed()
    if request.acks == 0:
        failed = next((each for each in outcomes if isinstance(each, LogbrokerError)), None)
        if failed is not None:
            raise ConnectionEndError(f"a batch that is not to be answered (acks=0) was refused: {failed}")
        return None
    response = ProduceResponse(responses=[])
    results = iter(outcomes)
    for topic in request.topics:
        answer = ProduceResponseTopicProduce(name=topic.name, topic_id=topic.topic_id, partition_responses=[])
        if call.version < FIRST_WITH_IDS:
            answer = ProduceResponseTopicProduce(name=topic.name, partition_responses=[])
        for partition, _batch in topic.batches:
            outcome = next(results)
            found = _result(partition, outcome)
            if isinstance(outcome, ProducerForgottenError | UnknownProducerIdError):
                found.log_start_offset = _log_start_offset(call, topic, partition)
            answer.partition_responses.append(found)
        await call.step(len(topic.batches))
        response.responses.append(answer)
    return response


def _log_start_offset(call: Call, topic: TopicBatches, partition: int) -> int:
    """Return the start of a log that does not know a producer, or -1 if it cannot be found now. Java's producer begins
    anew only if it is told; without it, it sends the same batch again until its time is over."""
    try:
        found = topic_of(call.node, topic.name, topic.topic_id, by_id=call.version >= FIRST_WITH_IDS)
        return call.node.engine.partition_facts(found.id, partition).log_start_offset
    except LogbrokerError:
        return -1


def _result(partition: int, outcome: Appended | LogbrokerError) -> ProduceResponsePartitionProduce:
    if isinstance(outcome, Appended):
        return ProduceResponsePartitionProduce(
            index=partition,
            base_offset=outcome.base_offset,
            log_append_time_ms=outcome.log_append_time_ms,
            log_start_offset=outcome.log_start_offset,
        )
    code = NOT_ENOUGH_REPLICAS if isinstance(outcome, OverloadedError) else code_of(outcome)
    return ProduceResponsePartitionProduce(
        index=partition, error_code=code, base_offset=-1, error_message=outcome.message
    )


async def _outcomes(call: Call, request: ProduceCall) -> Sequence[Appended | LogbrokerError]:
    """Append, and return the outcome of each batch in the order of the request."""
    results: list[Appended | LogbrokerError | None] = []
    appends: list[Append] = []
    fault = _fault(request)
    for topic in request.topics:
        await call.step(2 + len(topic.batches))
        results += _checked(call, topic, fault, appends)
    if not appends:
        return [each for each in results if each is not None]
    appended: list[Appended | LogbrokerError] = []
    while len(appends) - len(appended) > APPENDS_AT_ONCE:
        part = appends[len(appended) : len(appended) + APPENDS_AT_ONCE]
        appended += await call.node.engine.append(part)
        await call.step(APPEND_STEPS * len(part))
    # The append assigns the offsets in its first step, which runs before any request that waits for `placed`.
    call.placed()
    appended += await call.node.engine.append(appends[len(appended) :])
    in_order = iter(appended)
    return [next(in_order) if each is None else each for each in results]


def _checked(
    call: Call, topic: TopicBatches, fault: LogbrokerError | None, appends: list[Append]
) -> list[LogbrokerError | None]:
    """Add the appends of a topic, and return for each of its batches the error, or None if there is an append."""
    try:
        if fault is not None:
            raise fault.anew()
        found = topic_of(call.node, topic.name, topic.topic_id, by_id=call.version >= FIRST_WITH_IDS)
        check_changeable(found.name)
    except LogbrokerError as error:
        return [error.as_value()] * len(topic.batches)
    outcomes: list[LogbrokerError | None] = []
    for partition, batch in topic.batches:
        if batch is None:
            outcomes.append(InvalidRecordError("the partition has no batch"))
        else:
            appends.append(Append(found.id, partition, batch, may_repeat=True))
            outcomes.append(None)
    return outcomes


def _fault(request: ProduceCall) -> LogbrokerError | None:
    if request.transactional_id is not None:
        return _TransactionError("transactions are not supported; leave out transactional.id")
    if request.acks not in (-1, 0, 1):
        return _InvalidAcksError(f"acks is {request.acks}; use -1 (all), 0 or 1")
    return None


SERVED = served(PRODUCE, 3, 13, _handle, announced_from=0, is_appending=True)
