"""The one thread that decodes for all queue groups.

What a batch expands to, it may hold twice; more threads would hold more at a time and be no faster, as most of the work
keeps the interpreter's lock anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

_decoder: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="queue decoder")


async def in_decoder(work: Callable[[], T]) -> T:
    """Do some work in that thread: decode or encode what is large or compressed."""
    return await asyncio.get_running_loop().run_in_executor(_decoder, work)


async def in_decoder_if(heavy: bool, work: Callable[[], T]) -> T:
    """Do some work on the event loop or, where it would hold that up, in that thread."""
    return await in_decoder(work) if heavy else work()
