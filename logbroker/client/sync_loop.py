"""The event loop behind the synchronous classes: one thread per process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import logging
import sys
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

_SIGNAL_CHECK_SECONDS: Final = 0.2
"""A signal that comes just before the wait, or to another thread, does not end it: Python sees to it afterwards."""


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the shared loop and wait for it; what a signal raises here, Ctrl-C for one, cancels it."""
    future = asyncio.run_coroutine_threadsafe(coroutine, shared_loop())
    try:
        # Not by the timeout of `result`: a TimeoutError may as well come of a signal, to end this.
        while not concurrent.futures.wait((future,), _SIGNAL_CHECK_SECONDS).done:
            pass
        return future.result()
    except BaseException:
        future.cancel()
        raise


@functools.cache
def shared_loop() -> asyncio.AbstractEventLoop:
    """Return the loop, starting its thread at first use. The thread ends with the process."""
    logging.getLogger("asyncio").addFilter(_is_no_poller_noise)
    loop = _new_loop()
    threading.Thread(target=loop.run_forever, name="logbroker-client", daemon=True).start()
    return loop


def _new_loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    # Late, because the asynchronous classes do without it.
    import uvloop

    return uvloop.new_event_loop()


def _is_no_poller_noise(record: logging.LogRecord) -> bool:
    """False for what gRPC logs where another event loop of the process took its wake-up: nothing is wrong."""
    error = record.exc_info[1] if record.exc_info else None
    return not (isinstance(error, BlockingIOError) and "PollerCompletionQueue" in record.getMessage())
