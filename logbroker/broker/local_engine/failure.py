"""The failure of an engine's storage, which ends the engine."""

from __future__ import annotations

import logging
from collections.abc import Callable

from logbroker.errors import StorageFailedError

_log = logging.getLogger(__name__)


class StorageFailure:
    """Remembers the first failure of storage. After it nothing is acknowledged, by any partition."""

    def __init__(self, on_failure: Callable[[Exception], None]) -> None:
        self._on_failure = on_failure
        self.error: StorageFailedError | None = None
        """Error of all calls after the failure; None before."""

    def report(self, error: Exception) -> StorageFailedError:
        """Note a failure, on the event loop, and return the first one."""
        if self.error is None:
            _log.critical("storage failed, the broker stops: %s", error)
            self.error = StorageFailedError(f"the broker's storage failed and it stops: {error}")
            self._on_failure(error)
        return self.error
