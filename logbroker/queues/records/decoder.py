"""The one thread that decodes for all queue groups.

What a batch expands to, it may hold twice; more threads would hold more at a time and be no faster, as most of the work
keeps the interpreter's lock anyway.
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
"""So much is looked through on the event loop, in a millisecond; what has more, or is compressed, in the thread."""

T = TypeVar("T")

_decoder: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="queue decoder")


async def in_decoder(work: Callable[[], T]) -> T:
    """Do some work in that thread: decode or encode what is large or compressed."""
    return await asyncio.get_running_loop().run_in_executor(_decoder, work)


async def in_decoder_if(heavy: bool, work: Callable[[], T]) -> T:
    """Do some work on the event loop or, where it would hold that up, in that thread."""
    return await in_decoder(work) if heavy else work()


def is_heavy(batches: bytes) -> bool:
    """Whether to decode what was read is work for that thread."""
    if len(batches) > INLINE_BYTES:
        return True
    try:
        first = list(islice(stored_batches(batches), INLINE_BATCHES + 1))
    except LogbrokerError:
        return True
    return len(first) > INLINE_BATCHES or any(batch.header.codec for batch in first)
