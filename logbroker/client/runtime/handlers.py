"""Calls of the program's functions: handlers of workers, callbacks of consumers and of deliveries.

A call of a coroutine function does nothing until somebody awaits the coroutine, and a call of a generator function does
nothing until somebody iterates. If the client took the return of such a call for the end of the work, it would ack a
record that nobody has processed. So both are refused unless the client awaits them.

A function may also raise an error that has a meaning to Python itself (`SIGNALS`): the CancelledError of something that
it awaited, although nobody cancels the function's caller, or the StopIteration of an iterator of its own. For the
client this is a failure like any other. It must neither end the caller silently nor look like a cancellation of an
outer task or like the end of a loop, and a future refuses a StopIteration. So all calls of the program's functions go
through this module.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from logbroker.client.runtime.tasks import end_tasks
from logbroker.errors import InvalidRequestError, quoted

_log = logging.getLogger(__name__)

CALLBACK: Final = "the callback"
SIGNALS: Final = (asyncio.CancelledError, StopIteration, StopAsyncIteration)
"""Errors that mean something to the caller of a function: its task is cancelled, or an iteration is over."""
_NOT_PLAIN: Final = (
    inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
)
_NEEDS_PLAIN: Final = (
    "which nobody awaits here: give a function that is not async, or use the asynchronous classes of logbroker.client"
)
_ASYNC: Final = "does nothing when it is called: give a function without yield"


def check_plain(what: str, function: Callable[..., object]) -> None:
    """Raise InvalidRequestError for a function that does its work only when its result is awaited or iterated over."""
    code = getattr(function, "__code__", None)
    if code is not None and not code.co_flags & _NOT_PLAIN:
        return  # A quick check: most functions pass it, and a program may add a callback to every delivery.
    if _is(inspect.iscoroutinefunction, function):
        raise InvalidRequestError(f"{what} is a coroutine function, {_NEEDS_PLAIN}")
    check_no_generator(what, function)


def check_no_generator(what: str, function: Callable[..., object]) -> None:
    """Raise InvalidRequestError for a function that contains `yield`, async or not."""
    if _is(inspect.isgeneratorfunction, function) or _is(inspect.isasyncgenfunction, function):
        raise InvalidRequestError(f"{what} is a generator function, and {_ASYNC}")


def _is(kind: Callable[[object], bool], function: Callable[..., object]) -> bool:
    return kind(function) or kind(inspect.getattr_static(type(function), "__call__", None))


def check_plain_outcome(what: str, outcome: object) -> None:
    """Raise InvalidRequestError for a result that would have to be awaited or iterated over."""
    if outcome is not None:
        if inspect.isawaitable(outcome):
            _drop(outcome)
            raise InvalidRequestError(f"{what} returned a {type(outcome).__name__}, {_NEEDS_PLAIN}")
        check_outcome(what, outcome)


def check_outcome(what: str, outcome: object) -> None:
    """Raise InvalidRequestError if a function's result, after any await, is a coroutine or a generator."""
    if inspect.iscoroutine(outcome):
        _drop(outcome)
        raise InvalidRequestError(f"{what} returned a coroutine that nobody awaits: await it in the function")
    if inspect.isgenerator(outcome) or inspect.isasyncgen(outcome):
        raise InvalidRequestError(f"{what} returned a {type(outcome).__name__}: iterate over it in the function")


def _drop(outcome: object) -> None:
    if inspect.iscoroutine(outcome):
        # Otherwise Python would warn about it at some later time.
        outcome.close()


def result_of(what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function and return its result. Raises the function's error, and RuntimeError in place of one of
    `SIGNALS`, which does not mean here that the caller was cancelled, or that its loop is over."""
    try:
        return function(*arguments)
    except SIGNALS as error:
        raise let_out(what, error) from error


def call_plain(what: str, function: Callable[..., object], *arguments: Any) -> None:
    """Call a function without awaiting anything. Raises as `result_of` does, and InvalidRequestError if the function
    returned a coroutine or a generator."""
    check_plain_outcome(what, result_of(what, function, *arguments))


def failure_of(what: str, function: Callable[..., object], *arguments: Any) -> Exception | None:
    """Call a function as `call_plain` does. Return its failure, or None. Raises what is no Exception."""
    try:
        call_plain(what, function, *arguments)
    except Exception as error:
        return error
    return None


async def call(what: str, function: Callable[..., Awaitable[object] | object], *arguments: Any) -> None:
    """Call a function, and await its result if it is awaitable. Raises as `call_plain` does, and CancelledError if the
    caller's task is cancelled."""
    try:
        outcome = function(*arguments)
        if inspect.isawaitable(outcome):
            outcome = await outcome
    except SIGNALS as error:
        if isinstance(error, asyncio.CancelledError) and not is_own(error):
            raise
        raise let_out(what, error) from error
    check_outcome(what, outcome)


def is_own(error: BaseException | None) -> bool:
    """Whether something that the task awaited was cancelled, and not the running task itself."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and not task.cancelling()


def let_out(what: str, error: BaseException) -> RuntimeError:
    """Return the failure of a function that raised one of `SIGNALS`. If that error were raised unchanged, the caller
    would look cancelled, and a task group, for example, would ignore it; or a loop of the caller would end."""
    why = (
        "something that it awaited was cancelled, and not its task"
        if isinstance(error, asyncio.CancelledError)
        else "catch what next() raises at the end of an iterator"
    )
    failure = RuntimeError(f"{what} let a {type(error).__name__} out: {why}")
    failure.__cause__ = error
    return failure


def forget_frames(error: BaseException) -> None:
    """Drop an error's references to the frames that it has passed, and so to all objects in them."""
    for name in ("__traceback__", "__cause__", "__context__"):
        # The class of the program may refuse to set attributes: a frozen dataclass does, in its own `__setattr__`.
        with suppress(Exception):
            BaseException.__setattr__(error, name, None)


class Slots:
    """The tasks of one call of `Worker.run` or `Worker.sessions`. They call a handler concurrently until all return,
    one raises, or the call is cancelled.

    A handler may affect the task that runs it. For example, it may cancel the task when a deadline of its own is over,
    and the cancellation may arrive late or never. Such a cancellation does not end the task: it ends only with the
    call.
    """

    def __init__(self) -> None:
        """Must be made in the task of the call."""
        owner = asyncio.current_task()
        assert owner is not None
        self._owner = owner
        self._cancelled_before = owner.cancelling()
        self.are_over = False
        """Whether the call is ending, so that no new work is started."""

    async def run(self, count: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run this many tasks. If one fails, raise the first error once the others have ended."""
        tasks = [asyncio.ensure_future(self._run_one(work)) for _ in range(count)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self.are_over = True
            outcomes = await end_tasks(*tasks)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
                raise outcome

    async def _run_one(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            try:
                await work()
                return
            except asyncio.CancelledError:
                # The handler that caused this cancellation has returned; the task is between two records.
                if self._is_cancelled():
                    raise
                _pass_over_cancellation()

    async def outlive_handler(self) -> None:
        """Absorb the cancellation that a handler caused before it returned. Otherwise it would hit the next handler."""
        task = asyncio.current_task()
        if task is None or not task.cancelling() or self._is_cancelled():
            return
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if self._is_cancelled():
                raise
        _pass_over_cancellation()

    async def attempt(
        self,
        what: str,
        function: Callable[..., Awaitable[object] | object],
        *arguments: Any,
        must_be_async: str = "",
    ) -> Exception | None:
        """Call a handler, and await its result if it is awaitable. Return its failure, or None. Raises only what ends
        the call of `run` or `sessions`, and TypeError for a handler that is not async if there is a reason why it
        `must_be_async`."""
        try:
            outcome = function(*arguments)
            is_async = False
            if inspect.isawaitable(outcome):
                is_async, outcome = True, await outcome
            if outcome is not None and (is_async or not must_be_async):
                check_outcome(what, outcome)
        except BaseException as error:
            failure = self._failure(what, error)
            if failure is None:
                raise
            try:
                return failure
            finally:
                del failure  # Its traceback refers to this frame.
        if must_be_async and not is_async:
            raise TypeError(f"{what} must be an async function, not {quoted(function)}: {must_be_async}")
        return None

    def _failure(self, what: str, error: BaseException) -> Exception | None:
        """Return the error of a handler, or None if the call itself ends."""
        if isinstance(error, SIGNALS):
            if isinstance(error, asyncio.CancelledError):
                if self._is_cancelled():
                    return None
                _forget_cancellation()
            return let_out(what, error)
        return error if isinstance(error, Exception) else None

    def _is_cancelled(self) -> bool:
        """Whether the tasks were cancelled because the call was cancelled. If other code cancels all tasks of a loop,
        these tasks may run before the call sets `are_over`. So the task of the call is checked, too."""
        return self.are_over or self._owner.cancelling() > self._cancelled_before


def _pass_over_cancellation() -> None:
    _forget_cancellation()
    _log.warning("a cancellation that a handler caused arrived after the end of the handler; its task goes on")


def _forget_cancellation() -> None:
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
