"""InitProducerId (key 22): a new id for an idempotent producer.

The id and epoch that a producer has are for transactions. As in Kafka, other producers get a new id whatever they name:
some clients name the id 0.

A transactional id is refused (TRANSACTIONAL_ID_AUTHORIZATION_FAILED). Clients report this error and stop; after other
errors they would try again for ever.

v0: the id and epoch. v1: as v0. v2: flexible. v3: the id and epoch that the producer has. v4 and v5: errors of
transactions.
"""

from __future__ import annotations

from logbroker.errors import LogbrokerError
from logbroker.kafka_api.call import INVALID_REQUEST, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Call, code_of, served
from logbroker.kafka_wire.apis import INIT_PRODUCER_ID
from logbroker.kafka_wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def _handle(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return _refused(TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _refused(INVALID_REQUEST)
    try:
        producer_id, epoch = await call.node.engine.init_producer_id()
    except LogbrokerError as error:
        return _refused(code_of(error))
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


def _refused(code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


SERVED = served(INIT_PRODUCER_ID, 0, 5, _handle)
