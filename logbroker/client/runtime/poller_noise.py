"""Keeps out of the log the messages that gRPC writes about its poller although nothing is wrong."""

from __future__ import annotations

import logging


def keep_out() -> None:
    """Install the filter. May be called repeatedly."""
    logging.getLogger("asyncio").addFilter(_is_none)


def _is_none(record: logging.LogRecord) -> bool:
    """Return False for a message that gRPC logs although nothing is wrong: another event loop of the process took its
    wake-up, or an event loop ended before its calls were answered, as at the end of a program or a thread."""
    error = record.exc_info[1] if record.exc_info else None
    is_late = isinstance(error, RuntimeError) and str(error) == "Event loop is closed"
    return not ((is_late or isinstance(error, BlockingIOError)) and "PollerCompletionQueue" in record.getMessage())
