"""Processes that die at a chosen moment."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any


def killed_in(owner: type, name: str, *, call: int, after: bool) -> Callable[[], None]:
    """Let the process die in a call of a method, before or after what it does."""

    def plant() -> None:
        real = getattr(owner, name)
        calls = 0

        def die_if_due() -> None:
            if calls == call:
                os.kill(os.getpid(), signal.SIGKILL)

        if asyncio.iscoroutinefunction(real):

            async def method(*arguments: Any, **fields: Any) -> Any:
                nonlocal calls
                calls += 1
                if not after:
                    die_if_due()
                result = await real(*arguments, **fields)
                die_if_due()
                return result

            setattr(owner, name, method)
        else:

            def function(*arguments: Any, **fields: Any) -> Any:
                nonlocal calls
                calls += 1
                if not after:
                    die_if_due()
                result = real(*arguments, **fields)
                die_if_due()
                return result

            setattr(owner, name, function)

    return plant
