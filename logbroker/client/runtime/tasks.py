"""Waiting for tasks and futures, and ending them, whatever cancels the waiter."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any


def waiter() -> tuple[asyncio.Future[None], Callable[[], None]]:
    """Return an awaitable for this event loop, and a function that ends the wait from any thread."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not told.done():
            told.set_result(None)

    def tell() -> None:
        if asyncio._get_running_loop() is loop:
            end()
        else:
            # A loop that has ended waits for nothing.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(end)

    return told, tell


def let_go_of_error(task: asyncio.Task[Any]) -> None:
    """Fetch a task's outcome. Until somebody does, the task keeps its error with everything that this refers to."""
    with contextlib.suppress(BaseException):
        task.result()


async def end_tasks(*tasks: asyncio.Task[Any]) -> list[Any]:
    """Cancel tasks and wait for them. Return their results or errors.

    A caller that is cancelled, however often, hands that on to them and goes on when all of them have ended, too. What
    must be done after that belongs into a `finally`. It goes on with the last CancelledError that came to it, which
    `gather` would replace by one of a task: those who know their own ones by the message, as anyio does, need it.

    A cancelled task keeps its error until somebody asks, and that keeps the frames it went through, with their streams
    and so gRPC itself, which then goes on running in a program that has closed all its clients.
    """
    cancelled: asyncio.CancelledError | None = None
    for task in tasks:
        task.cancel()
    try:
        while under_way := [task for task in tasks if not task.done()]:
            try:
                await asyncio.wait(under_way)
            except asyncio.CancelledError as error:
                cancelled = error
                for task in under_way:
                    task.cancel()
        if cancelled is not None:
            raise cancelled
    finally:
        # Whatever it is: what ends the event loop, such as a signal handler's SystemExit, has done so by itself.
        outcomes = [_outcome(task) for task in tasks]
        del cancelled
    return outcomes


def _outcome(task: asyncio.Task[Any]) -> Any:
    """Return the result or the error of an ended task. The error gets no frames of the caller: they would hold it, and
    it them."""
    if task.cancelled():
        let_go_of_error(task)
        return asyncio.CancelledError()
    error = task.exception()
    return task.result() if error is None else error
