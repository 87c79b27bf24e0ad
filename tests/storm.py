"""The common part of all storms: processes that work for a broker are killed, frozen, sent away and replaced, and so is
the broker while they work. Each storm adds who they are, what else happens, and what must hold in the end.

The seed fixes what is done and when, not how threads and processes interleave: a failure may take a few runs of its
seed to come again.
"""

from __future__ import annotations

import asyncio
import enum
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar

import msgspec

from tests.anomalies import BrokenPromisesError
from tests.crash.broker_process import BrokerProcess
from tests.history import HistoryFile
from tests.member_life import Life

_QUIET_SECONDS: Final = 90.0


class Weather(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of every kind of storm. `chances` are the weights of the events, by name."""

    events: int
    pause_seconds: float
    """At most, after each event."""
    down_seconds: float = 0.4
    """At most, between a kill of the broker and its next start."""
    chances: dict[str, float]
    plant: str = ""
    """A bug, most often in the broker."""

    def with_plant(self, plant: str, fields: Mapping[str, object]) -> Self:
        """Return the same weather with a bug, and what shows it."""
        return msgspec.structs.replace(self, plant=plant, **fields)


W = TypeVar("W", bound=Weather)


class Storm(ABC, Generic[W]):
    """One history, which `run` plays. `hold_seconds` is how long who is frozen keeps what it has; no more than
    `max_frozen` are at once.
    """

    def __init__(
        self, directory: Path, seed: int, weather: W, broker: BrokerProcess, *, hold_seconds: float, max_frozen: int
    ) -> None:
        self.figures = Counter[str]()
        self._rng = random.Random(seed)
        self._seed = seed
        self._weather = weather
        self._broker = broker
        self._hold_seconds = hold_seconds
        self._max_frozen = max_frozen
        self._histories = directory / "histories"
        self._histories.mkdir()
        self._file = HistoryFile(self._histories / "storm", "storm")
        self._troubles: list[str] = []
        """Troubles beside the anomalies."""
        self._lives: dict[str, Life] = {}
        """Those that work, by the name of the place that they fill."""
        self._others: list[Life] = []
        """Those that have left their places, or never had one."""
        self._names = Counter[str]()
        self._background: set[asyncio.Task[None]] = set()
        """Tasks that take their time, and must not fail."""

    async def run(self, limit_seconds: float) -> Counter[str]:
        """Return figures; raises BrokenPromisesError, BrokerFailedError, MemberFailedError and, late, TimeoutError."""
        try:
            async with asyncio.timeout(limit_seconds):
                await self._start_broker()
                await self._play()
        finally:
            for task in self._background:
                task.cancel()
            await asyncio.gather(*self._background, return_exceptions=True)
            for life in [*self._lives.values(), *self._others]:
                life.end()
            await self._broker.end()
        return self.figures

    @abstractmethod
    async def _play(self) -> None:
        """All that happens, from a broker that has just started to the judgement."""

    @abstractmethod
    def _life(self, place: str, name: str) -> Life:
        """Start a process of this name for a place."""

    # --- events ------------------------------------------------------------------------------------------------------

    async def _rage(self) -> None:
        """Let all events happen, one after the other."""
        weather, doings = self._weather, self._doings()
        for _ in range(weather.events):
            [name] = self._rng.choices(list(weather.chances), list(weather.chances.values()))
            self.figures[f"events {name}"] += 1
            await doings[name]()
            await asyncio.sleep(self._rng.uniform(0, weather.pause_seconds))
            self._check_background()

    def _doings(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """The events by their names."""
        return {
            "kill": self._kill_one,
            "freeze": self._freeze_one,
            "nap": self._nap_one,
            "leave": self._leave_one,
            "broker": self._kill_broker,
        }

    def _join(self, place: str) -> None:
        """Let a new process fill this place."""
        self._names[place] += 1
        self._lives[place] = self._life(place, f"{place}.{self._names[place]}")

    def _anyone(self) -> str | None:
        """The place of somebody awake."""
        awake = [place for place, life in self._lives.items() if not life.frozen]
        return self._rng.choice(awake) if awake else None

    def _take_out(self, place: str) -> Life:
        life = self._lives.pop(place)
        self._others.append(life)
        return life

    async def _kill_one(self) -> None:
        """Frozen ones too: their last words were never heard."""
        place = self._rng.choice(list(self._lives))
        await self._take_out(place).kill()
        self._join(place)

    async def _leave_one(self) -> None:
        place = self._anyone()
        if place is not None:
            self._in_background(self._take_out(place).leave())
            self._join(place)

    async def _freeze_one(self) -> None:
        """For longer than it keeps what it has."""
        await self._freeze(self._hold_seconds + self._rng.uniform(0.2, 1.5))

    async def _nap_one(self) -> None:
        """For less than that."""
        await self._freeze(self._rng.uniform(0.1, 0.9) * self._hold_seconds)

    async def _freeze(self, seconds: float) -> None:
        place = self._anyone()
        if place is not None and sum(life.frozen for life in self._lives.values()) < self._max_frozen:
            life = self._lives[place]
            await life.freeze()
            self._on_frozen(life)
            self._in_background(self._thaw_later(place, life, seconds))

    async def _thaw_later(self, place: str, life: Life, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self._lives.get(place) is life:
            life.thaw()
            self._on_thawed(life)

    def _on_frozen(self, life: Life) -> None:
        """Called when it stands still."""

    def _on_thawed(self, life: Life) -> None:
        """Called when it goes on, though it may have lost everything."""

    async def _kill_broker(self) -> None:
        await self._broker.kill()
        await asyncio.sleep(self._rng.uniform(0, self._weather.down_seconds))
        await self._start_broker()

    async def _start_broker(self) -> None:
        await self._broker.spawn()
        await self._broker.wait_ready()

    # --- what goes on meanwhile --------------------------------------------------------------------------------------

    def _in_background(self, doing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(doing)
        self._background.add(task)
        return task

    def _check_background(self) -> None:
        """Raise what any of it failed with."""
        for task in [task for task in self._background if task.done()]:
            self._background.discard(task)
            task.result()
        if self._troubles:
            raise BrokenPromisesError(self._troubles)

    async def _calm_down(self, *on_and_on: asyncio.Task[None]) -> None:
        """Wait until all is over that began: who is to go has gone, who is frozen wakes up; but for what never ends."""
        async with asyncio.timeout(_QUIET_SECONDS):
            await asyncio.gather(*self._background.difference(on_and_on))
        self._check_background()

    async def _dismiss_all(self) -> None:
        await asyncio.gather(*(life.leave() for life in self._lives.values()))


def hunt(run: Callable[[Path, int], object], kind: enum.Enum, directory: Path, *, tries: int) -> None:
    """Run storms with a planted bug, one seed after the other, until one is found to be broken in this way."""
    others: set[enum.Enum] = set()
    for seed in range(tries):
        here = directory / str(seed)
        here.mkdir()
        try:
            run(here, seed)
        except BrokenPromisesError as error:
            if kind in error.kinds:
                return
            # What follows from the bug may be seen where it itself was not.
            others |= error.kinds
    raise AssertionError(f"{kind.name} was not found in {tries} storms, only {others or 'nothing'}")
