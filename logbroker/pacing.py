"""Long work on the event loop is cut into turns, so that no request blocks the loop for long, however long its lists
are.

Code that goes through a list of a request, or a list that grows with the broker's data, makes a `Pace` and reports its
steps to it. After `FIRST_STEPS` steps, and then after every `TURN_STEPS`, the `Pace` makes the code wait for its next
turn. All long work of the loop waits in one line: in each round of the loop, one turn of one caller runs. Small work
never waits.

If the caller is gone, its task is cancelled, and the work ends while it waits for its next turn. So shared state must
be consistent whenever a step is reported.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator, MutableMapping, MutableSequence
from typing import Any, Final, TypeVar, cast
from weakref import WeakKeyDictionary

T = TypeVar("T")

TURN_STEPS: Final = 1_000
"""Number of steps in one turn. A step is the time of one small operation, a microsecond or two, so a turn takes one or
two milliseconds."""
FIRST_STEPS: Final = 300
"""Number of steps in the first turn, which begins without waiting in line: about the time of a small call."""
MOMENT_STEPS: Final = 4 * TURN_STEPS
"""Maximum number of steps without a pause in work that should report one moment."""
FREED_PER_STEP: Final = 4
"""Number of objects that are freed in the time of a step."""


class Pace:
    """The steps of one piece of work."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = FIRST_STEPS

    async def step(self, steps: int = 1) -> None:
        """Note that this many steps were done since the last call, and give way if the turn is over."""
        self._left -= steps
        if self._left <= 0:
            await self.give_way()

    def is_over(self, steps: int = 1) -> bool:
        """Note steps as `step` does. Return whether the turn is over, so that `give_way` must be awaited."""
        self._left -= steps
        return self._left <= 0

    async def give_way(self) -> None:
        """Wait for the next turn."""
        loop = asyncio.get_running_loop()
        line = _lines.get(loop)
        if line is None:
            line = _lines[loop] = _Line()
        await line.next_turn(loop)
        self._left = TURN_STEPS


Steps = Generator[int, None, T]
"""Work without I/O that yields the number of steps that it did since the last time, and returns its result."""


async def in_turns(work: Steps[T], pace: Pace) -> T:
    """Do work in turns, and return its result."""
    while True:
        try:
            steps = next(work)
        except StopIteration as end:
            return cast("T", end.value)
        await pace.step(steps)


def at_once(work: Steps[T]) -> T:
    """Do work without a pause, and return its result. For small work only."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return cast("T", end.value)


def in_large_steps(work: Steps[T]) -> Steps[T]:
    """Return the same work in larger steps: it pauses only after each `MOMENT_STEPS`, so that the result of small work
    shows one moment."""
    done = 0
    while True:
        try:
            done += next(work)
        except StopIteration as end:
            return cast("T", end.value)
        if done >= MOMENT_STEPS:
            yield done
            done = 0


async def let_go(containers: list[Any]) -> None:
    """Empty containers that nobody else refers to, in turns: to free a million objects takes a third of a second.

    The list is emptied, too. Containers are dicts, or have `pop` without an argument.
    """
    pace = Pace()
    while containers:
        container: Any = containers[-1]
        if not container:
            containers.pop()
            continue
        count = min(len(container), TURN_STEPS)
        if isinstance(container, MutableMapping):
            for _ in range(count):
                container.popitem()
        elif isinstance(container, MutableSequence) and not isinstance(container, deque):
            del container[-count:]
        else:
            for _ in range(count):
                container.pop()
        del container
        await pace.step(count // FREED_PER_STEP + 1)


class _Line:
    """The line of callers that wait for their next turn, on one event loop. In each round of the loop, one caller goes
    on."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_due = False

    def next_turn(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        future = loop.create_future()
        self._waiting.append(future)
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._go_on, loop)
        return future

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_due = False
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():  # If it is done, the caller is gone.
                future.set_result(None)
                break
        if self._waiting:
            self._is_due = True
            loop.call_soon(self._go_on, loop)


# A line must not refer to its loop, because it would keep the loop alive.
_lines: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Line]] = WeakKeyDictionary()
