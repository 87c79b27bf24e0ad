"""Waiting for tasks and futures, and ending them, even if the waiter is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from time import monotonic
from typing import Any


def waiter() -> tuple[asyncio.Future[None], Callable[[], None]]:
    """Return a future of this event loop, and a function that completes it from any thread."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not told.done():
            told.set_result(None)

    def tell() -> None:
        if asyncio._get_running_loop() is loop:
            end()
        else:
            # If the loop has ended, nothing waits in it any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(end)

    return told, tell


async def wait_until(future: asyncio.Future[Any], due: Callable[[], float]) -> bool:
    """Wait for a future until the time that `due` returns (monotonic seconds), which may change during the wait. Return
    whether the future is done."""
    await asyncio.sleep(0)  # If the program has blocked the loop, first handle the messages that have arrived.
    while not future.done() and (left_seconds := due() - monotonic()) > 0:
        await asyncio.wait([future], timeout=left_seconds)
    return future.done()


def let_go_of_error(task: asyncio.Task[Any]) -> None:
    """Fetch a task's outcome. Until then the task keeps its error and all objects to which the error refers."""
    with contextlib.suppress(BaseException):
        task.result()


async def end_tasks(*tasks: asyncio.Task[Any]) -> list[Any]:
    """Cancel tasks and wait for them. Return their results or errors.

    If the caller is cancelled, even repeatedly, the tasks are cancelled again, and the call still returns only when all
    of them have ended. It then raises the last CancelledError that it received, because libraries such as anyio
    recognise their own cancellation by the message of this error. `gather` would raise the error of a task instead. Put
    steps that must follow into a `finally`.

    A cancelled task keeps its error until its outcome is fetched. The error refers to the frames that it passed and to
    their streams. Without the fetch, gRPC would keep running in a program that has closed all its clients.
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
        # Any error is only returned here. Even an error that ends the event loop, such as a signal handler's
        # SystemExit, need not be raised again: it has ended the loop already.
        outcomes = [_outcome(task) for task in tasks]
        del cancelled
    return outcomes


def _outcome(task: asyncio.Task[Any]) -> Any:
    """Return the result or the error of an ended task. The error is not raised here: its traceback would then refer to
    this frame, and the frame to the error."""
    if task.cancelled():
        let_go_of_error(task)
        return asyncio.CancelledError()
    error = task.exception()
    return task.result() if error is None else error
