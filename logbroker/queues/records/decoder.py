"""The thread that decodes batches for all queue groups.

Decoding may hold an expanded batch twice in memory. More threads would need more memory and be no faster, because most
of the work holds the interpreter's lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Final, TypeVar

from logbroker.errors import LogbrokerError
from logbroker.record.stored_batch import stored_batches

INLINE_BYTES: Final = 64 * 1024
INLINE_BATCHES: Final = 64
"""Maximum number of bytes and of batches that are decoded on the event loop, in about a millisecond. Larger work and
compressed batches go to the thread."""

T = TypeVar("T")

_decoder: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="queue decoder")


async def in_decoder(work: Callable[[], T]) -> T:
    """Run work in the decoder thread: decoding or encoding of large or compressed batches."""
    return await asyncio.get_running_loop().run_in_executor(_decoder, work)


async def in_decoder_if(heavy: bool, work: Callable[[], T]) -> T:
    """Run work in the decoder thread if it is heavy, else on the event loop."""
    return await in_decoder(work) if heavy else work()


def is_heavy(batches: bytes) -> bool:
    """Return whether decoding these batches belongs in the decoder thread."""
    if len(batches) > INLINE_BYTES:
        return True
    try:
        first = list(islice(stored_batches(batches), INLINE_BATCHES + 1))
    except LogbrokerError:
        return True
    return len(first) > INLINE_BATCHES or any(batch.header.codec for batch in first)
