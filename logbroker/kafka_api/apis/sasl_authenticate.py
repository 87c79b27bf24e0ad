"""SaslAuthenticate (key 36): there is no SASL yet, and SaslHandshake has refused it, so this comes out of order
(ILLEGAL_SASL_STATE).

v0: a token. v1: the lifetime of the session. v2: flexible.
"""

from __future__ import annotations

from logbroker.kafka_api.call import ILLEGAL_SASL_STATE, Call, served
from logbroker.kafka_wire.apis import SASL_AUTHENTICATE
from logbroker.kafka_wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


async def _handle(call: Call, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ILLEGAL_SASL_STATE, error_message="this broker has no SASL: connect with security.protocol=PLAINTEXT"
    )


SERVED = served(SASL_AUTHENTICATE, 0, 2, _handle)
