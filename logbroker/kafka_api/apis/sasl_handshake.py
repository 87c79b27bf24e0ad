"""SaslHandshake (key 17): there is no SASL yet, so every mechanism is refused (UNSUPPORTED_SASL_MECHANISM).

v0 and v1: they differ in what would follow.
"""

from __future__ import annotations

from logbroker.kafka_api.call import UNSUPPORTED_SASL_MECHANISM, Call, served
from logbroker.kafka_wire.apis import SASL_HANDSHAKE
from logbroker.kafka_wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


async def _handle(call: Call, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=UNSUPPORTED_SASL_MECHANISM)


SERVED = served(SASL_HANDSHAKE, 0, 1, _handle)
