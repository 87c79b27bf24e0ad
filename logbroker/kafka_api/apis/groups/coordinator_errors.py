"""Error codes of a coordinator that cannot store anything now. Clients repeat their requests for a while, as with a
Kafka broker in this case; they take a full disk or an overload for the end of the group."""

from __future__ import annotations

from typing import Final

from logbroker.consumer_groups.classic.errors import GroupFullError
from logbroker.errors import DiskFullError, LogbrokerError, OverloadedError
from logbroker.kafka_api.call import code_of

COORDINATOR_NOT_AVAILABLE: Final = 15


def coordinator_code(error: LogbrokerError) -> int:
    """Return the error code of the protocol for a request that changes a group."""
    if isinstance(error, DiskFullError | OverloadedError) and not isinstance(error, GroupFullError):
        return COORDINATOR_NOT_AVAILABLE
    return code_of(error)
