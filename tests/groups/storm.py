"""The storm: members of a group, each in a process of its own, are killed, frozen, sent away and replaced, and so is
the broker, while records are sent. `run` is one history; at its end everything must have been handled, and the checkers
must find nothing.

The seed fixes what is done and when, not how threads and processes interleave: a failure may take a few runs of its
seed to come again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic
from typing import Any, Final

import msgspec

from logbroker.client import Admin, Producer
from logbroker.types import TopicPartition
from tests.crash.broker_process import BrokerProcess
from tests.crash.checker import FinalRead
from tests.crash.checker import check as check_log
from tests.crash.load import History, Sender, read_all
from tests.groups.group_checker import StormError, check, polls
from tests.groups.group_history import (
    Assigned,
    BrokerBack,
    BrokerKilled,
    CommitBegun,
    CommitEnded,
    Delivered,
    Event,
    Frozen,
    HistoryFile,
    Lost,
    Outage,
    read_histories,
)
from tests.groups.group_plants import BROKER_PLANTS, CLIENT_PLANTS
from tests.groups.group_watch import GroupWatch
from tests.groups.member_life import Life
from tests.groups.member_process import MODES, MemberSpec
from tests.groups.member_process import run as run_member

GROUP: Final = "storm"
_QUIET_SECONDS: Final = 60.0
_MAX_FROZEN: Final = 4


class Weather(msgspec.Struct, frozen=True, kw_only=True):
    """What kind of storm it is. `chances` are the weights of the events, by name."""

    topics: dict[str, int] = msgspec.field(default_factory=lambda: {"few": 8, "many": 64})
    members: int = 16
    session_timeout_seconds: float = 1.0
    grace_seconds: float = 2.0
    chances: dict[str, float] = msgspec.field(
        default_factory=lambda: {"kill": 30, "freeze": 25, "nap": 8, "leave": 14, "join": 16, "broker": 7}
    )
    pause_seconds: float = 0.4
    """At most, between two events."""
    plant: str = ""
    """A bug in the broker, or in every member."""

    def with_plant(self, plant: str, grace_seconds: float) -> Weather:
        """Return the same weather with a bug and another grace."""
        return msgspec.structs.replace(self, plant=plant, grace_seconds=grace_seconds)


def run(directory: Path, seed: int, *, events: int, weather: Weather | None = None) -> Counter[str]:
    """Return figures of one history; raises StormError, BrokerFailedError or MemberFailedError."""
    return asyncio.run(_Storm(directory, seed, weather or Weather()).run(events))


class _Storm:
    def __init__(self, directory: Path, seed: int, weather: Weather) -> None:
        self._rng = random.Random(seed)
        self._seed = seed
        self._weather = weather
        self._broker = BrokerProcess(
            directory,
            seed=seed,
            child_module="tests.groups.group_plants",
            child_options=[weather.plant] if weather.plant in BROKER_PLANTS else [],
            settings=f"reconnect_grace_seconds = {weather.grace_seconds}\n",
        )
        self._histories = directory / "histories"
        self._histories.mkdir()
        self._file = HistoryFile(self._histories / "storm", "storm")
        self._log = History()
        self.figures = self._log.figures
        self._lives: dict[str, Life] = {}
        """Those that are members, by the name of the place that they fill."""
        self._gone: list[Life] = []
        self._names = Counter[str]()
        self._workers: list[asyncio.Task[None]] = []
        self._background: set[asyncio.Task[None]] = set()
        """Events that take their time."""
        self._sending = True

    async def run(self, events: int) -> Counter[str]:
        try:
            async with asyncio.timeout(120 + 3 * events):
                await self._run(events)
        finally:
            tasks = [*self._workers, *self._background]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for life in [*self._lives.values(), *self._gone]:
                life.end()
            await self._broker.end()
        return self.figures

    async def _run(self, events: int) -> None:
        await self._broker.spawn()
        await self._broker.wait_ready()
        async with Admin(self._broker.address) as admin:
            for name, partitions in self._weather.topics.items():
                await admin.create_topic(name, partitions)
            watch = GroupWatch(admin, GROUP, self._weather.topics)
            for place in range(self._weather.members):
                self._join(f"m{place}")
            sender = asyncio.create_task(self._send())
            looker = asyncio.create_task(watch.look_on_and_on(self._file))
            self._workers = [sender, looker]
            await watch.stable(len(self._lives))
            for _ in range(events):
                await self._event(watch)
                await asyncio.sleep(self._rng.uniform(0, self._weather.pause_seconds))
                self._check_tasks()
            await self._end_of_storm(sender)
            await watch.stable(len(self._lives))
            ends, behind = await watch.handled()
            if behind:
                self._log.troubles.append(f"the group stays {behind} records behind")
            self._workers.clear()
            looker.cancel()
            await asyncio.wait([looker])
            final = await self._final_read()
            await asyncio.gather(*(life.leave() for life in self._lives.values()))
        await self._broker.stop()
        self._judge(ends, final)

    # --- events ------------------------------------------------------------------------------------------------------

    async def _event(self, watch: GroupWatch) -> None:
        doings: dict[str, Callable[[GroupWatch], Awaitable[None]]] = {
            "kill": self._kill_one,
            "freeze": self._freeze_one,
            "nap": self._nap_one,
            "leave": self._leave_one,
            "join": self._join_one,
            "broker": self._kill_broker,
            "outage": self._calm_outage,
        }
        chances = self._weather.chances
        [name] = self._rng.choices(list(chances), list(chances.values()))
        self.figures[f"events {name}"] += 1
        await doings[name](watch)

    def _join(self, place: str) -> None:
        """Let a new process be the member of this place."""
        weather = self._weather
        self._names[place] += 1
        name = f"{place}.{self._names[place]}"
        rng = random.Random(f"{self._seed} {name}")
        spec = MemberSpec(
            name=name,
            broker=self._broker.address,
            group=GROUP,
            topics=list(weather.topics),
            history_path=str(self._histories / name),
            mode=rng.choice(MODES),
            session_timeout_seconds=weather.session_timeout_seconds,
            instance_id=place if place.endswith("5") else None,
            release_seconds=0.3 if rng.random() < 0.2 else 0.0,
            handle_seconds=0.01,
            plant=weather.plant if weather.plant in CLIENT_PLANTS else "",
        )
        self._lives[place] = Life(spec, run_member)

    def _anyone(self) -> str | None:
        awake = [place for place, life in self._lives.items() if not life.frozen]
        return self._rng.choice(awake) if awake else None

    async def _kill_one(self, watch: GroupWatch) -> None:
        """Frozen ones too: their last words were never heard."""
        if self._lives:
            place = self._rng.choice(list(self._lives))
            await self._take_out(place).kill()
            self._join(place)

    def _take_out(self, place: str) -> Life:
        life = self._lives.pop(place)
        self._gone.append(life)
        return life

    async def _freeze_one(self, watch: GroupWatch) -> None:
        """For longer than its session, and then some."""
        await self._freeze(self._weather.session_timeout_seconds + self._rng.uniform(0.2, 1.5))

    async def _nap_one(self, watch: GroupWatch) -> None:
        """For less than its session."""
        await self._freeze(self._rng.uniform(0.1, 0.9) * self._weather.session_timeout_seconds)

    async def _freeze(self, seconds: float) -> None:
        place = self._anyone()
        if place is not None and sum(life.frozen for life in self._lives.values()) < _MAX_FROZEN:
            life = self._lives[place]
            await life.freeze()
            self._file.write(Frozen, process=life.spec.name)
            self._in_background(self._thaw_later(place, life, seconds))

    async def _thaw_later(self, place: str, life: Life, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self._lives.get(place) is life:
            life.thaw()
            life.order("zombie")

    async def _leave_one(self, watch: GroupWatch) -> None:
        place = self._anyone()
        if place is not None and len(self._lives) > self._weather.members * 3 // 4:
            self._in_background(self._take_out(place).leave())

    async def _join_one(self, watch: GroupWatch) -> None:
        places = range(self._weather.members + 2)
        free = [place for place in (f"m{number}" for number in places) if place not in self._lives]
        if free:
            self._join(self._rng.choice(free))

    async def _kill_broker(self, watch: GroupWatch) -> None:
        self._file.write(BrokerKilled)
        await self._broker.kill()
        await asyncio.sleep(self._rng.uniform(0, 0.5))
        await self._broker.spawn()
        await self._broker.wait_ready()
        self._file.write(BrokerBack, at=monotonic() + self._weather.grace_seconds)

    async def _calm_outage(self, watch: GroupWatch) -> None:
        """The broker is killed while nothing else happens, and everybody comes back in time: nothing moves."""
        await watch.stable(len(self._lives))
        since = monotonic()
        await self._kill_broker(watch)
        await watch.stable(len(self._lives))
        self._file.write(Outage, since=since)

    # --- what goes on meanwhile --------------------------------------------------------------------------------------

    def _in_background(self, doing: Any) -> None:
        self._background.add(asyncio.create_task(doing))

    def _check_tasks(self) -> None:
        """Raise what any of them failed with."""
        for task in [*self._workers, *self._background]:
            if task.done():
                self._background.discard(task)
                task.result()
        if self._log.troubles:
            raise StormError(self._log.troubles)

    async def _send(self) -> None:
        rng = random.Random(f"{self._seed} sender")
        sender = Sender(self._log, "sender")
        topics = list(self._weather.topics)
        # On a busy machine a broker may live for moments only, and start for long, a hundred times.
        async with Producer(self._broker.address, delivery_timeout_seconds=300, batch_bytes=2000) as producer:
            while self._sending:
                for _ in range(rng.randint(1, 25)):
                    topic = rng.choice(topics)
                    partition = rng.randrange(self._weather.topics[topic])
                    await sender.send(producer, topic, sender.next_value(rng), partition=partition)
                await asyncio.sleep(rng.uniform(0, 0.04))
                sender.collect()
            await producer.flush()
            sender.collect()

    # --- quiet -------------------------------------------------------------------------------------------------------

    async def _end_of_storm(self, sender: asyncio.Task[None]) -> None:
        """Everybody who is to go goes, everybody who is frozen wakes up, and everything is sent."""
        self._sending = False
        async with asyncio.timeout(_QUIET_SECONDS):
            await asyncio.gather(sender, *self._background)
        self._check_tasks()

    async def _final_read(self) -> dict[Any, FinalRead]:
        found = await read_all(self._broker.address, [(name, "") for name in self._weather.topics])
        return {log: FinalRead(0, records) for log, records in found.items()}

    # --- judgement ---------------------------------------------------------------------------------------------------

    def _judge(self, ends: dict[TopicPartition, int], final: dict[Any, FinalRead]) -> None:
        paths = [path for path in self._histories.iterdir() if path.suffix != ".log"]
        events = read_histories(paths)
        self._count(events)
        group = check(events, ends)
        log = check_log([*self._log.events, *polls(events)], final)
        if group or log or self._log.troubles:
            what = [str(each) for each in (*group, *log)]
            raise StormError([*what, *self._log.troubles], {each.kind for each in group})

    def _count(self, events: list[Event]) -> None:
        figures = self.figures
        stale = {(each.process, each.number) for each in events if isinstance(each, CommitBegun) and each.stale}
        for event in events:
            match event:
                case Assigned():
                    figures["partitions assigned"] += len(event.positions)
                case Lost():
                    figures["partitions lost"] += len(event.partitions)
                case Delivered():
                    figures["records delivered"] += len(event.records)
                case CommitEnded():
                    figures["commits answered"] += event.answered
                    if (event.process, event.number) in stale:
                        figures["zombie commits refused"] += len(event.refused)
        figures["lives of members"] = self._names.total()


def be_quiet() -> None:
    """Every client says that it reconnects, after every kill; a failure would be hard to find in that."""
    logging.getLogger("logbroker.client").setLevel(logging.ERROR)
