"""Error codes of requests that change a group. If the change cannot be stored now, the code is
COORDINATOR_NOT_AVAILABLE, as with a Kafka broker in this case, and clients repeat their requests for a while. After the
codes of a full disk or an overload, they would give up the group."""

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
