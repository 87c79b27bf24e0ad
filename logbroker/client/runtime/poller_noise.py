"""Keeps messages of gRPC about its poller out of the log when nothing is wrong."""

from __future__ import annotations

import logging


def keep_out() -> None:
    """Filter it. May be called often."""
    logging.getLogger("asyncio").addFilter(_is_none)


def _is_none(record: logging.LogRecord) -> bool:
    """Return False for a message that gRPC logs although nothing is wrong: another event loop of the process took its
    wake-up, or has ended with calls that are answered only now, as at the end of a program or a thread."""
    error = record.exc_info[1] if record.exc_info else None
    is_late = isinstance(error, RuntimeError) and str(error) == "Event loop is closed"
    return not ((is_late or isinstance(error, BlockingIOError)) and "PollerCompletionQueue" in record.getMessage())
