"""The storm of a group: its members, each in a process of its own, come, go, are killed and frozen, and so is the
broker, while records are sent. `run` is one history; at its end everything must have been handled, and the checkers
must find nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, Final

import msgspec

from logbroker.client import Admin, Producer
from logbroker.types import TopicPartition
from tests import storm
from tests.anomalies import BrokenPromisesError
from tests.crash.broker_process import BrokerProcess
from tests.crash.checker import FinalRead
from tests.crash.checker import check as check_log
from tests.crash.load import History, Sender, read_all
from tests.groups.group_checker import check, polls
from tests.groups.group_history import (
    Assigned,
    BrokerBack,
    BrokerKilled,
    CommitBegun,
    CommitEnded,
    Delivered,
    Event,
    Frozen,
    Lost,
    Outage,
    read_histories,
)
from tests.groups.group_plants import BROKER_PLANTS, CLIENT_PLANTS, CONVOY_PLANTS
from tests.groups.group_watch import GroupWatch
from tests.groups.member_process import CONVOY, MODES, MemberSpec, key_of
from tests.groups.member_process import run as run_member
from tests.member_life import Life

GROUP: Final = "storm"
_MAX_FROZEN: Final = 4


class Weather(storm.Weather, frozen=True, kw_only=True):
    """Settings of a storm. A plant is a bug in the broker, or in every member."""

    modes: tuple[str, ...] = MODES
    """How the members read: as MODES says, or all as convoys."""
    topics: dict[str, int] = msgspec.field(default_factory=lambda: {"few": 8, "many": 64})
    members: int = 16
    session_timeout_seconds: float = 1.0
    grace_seconds: float = 2.0
    handle_seconds: float = 0.01
    """The longest time that a record is in hand."""
    events: int = 100
    pause_seconds: float = 0.4
    chances: dict[str, float] = msgspec.field(
        default_factory=lambda: {"kill": 30, "freeze": 25, "nap": 8, "leave": 14, "join": 16, "broker": 7}
    )


CONVOYS: Final = Weather(
    modes=(CONVOY,),
    topics={"few": 4, "many": 16},
    members=6,
    grace_seconds=0.5,
    chances={"kill": 40, "freeze": 8, "nap": 4, "leave": 25, "join": 20, "broker": 3},
)
"""A storm of convoys, most of it kills and rebalances."""


def run(directory: Path, seed: int, weather: Weather) -> Counter[str]:
    """Return figures of one history; raises BrokenPromisesError, BrokerFailedError or MemberFailedError."""
    return asyncio.run(_GroupStorm(directory, seed, weather).run(120 + 3 * weather.events))


class _GroupStorm(storm.Storm[Weather]):
    def __init__(self, directory: Path, seed: int, weather: Weather) -> None:
        broker = BrokerProcess(
            directory,
            seed=seed,
            child_module="tests.groups.group_plants",
            child_options=[weather.plant] if weather.plant in BROKER_PLANTS else [],
            settings=f"reconnect_grace_seconds = {weather.grace_seconds}\n",
        )
        hold_seconds = weather.session_timeout_seconds
        super().__init__(directory, seed, weather, broker, hold_seconds=hold_seconds, max_frozen=_MAX_FROZEN)
        self._log = History()
        self._log.figures, self._log.troubles = self.figures, self._troubles
        self._sending = True

    async def _play(self) -> None:
        async with Admin(self._broker.address) as admin:
            for name, partitions in self._weather.topics.items():
                await admin.create_topic(name, partitions)
            self._watch = GroupWatch(admin, GROUP, self._weather.topics)
            for place in range(self._weather.members):
                self._join(f"m{place}")
            self._in_background(self._send())
            looker = self._in_background(self._watch.look_on_and_on(self._file))
            await self._watch.stable(len(self._lives))
            await self._rage()
            self._sending = False
            await self._calm_down(looker)
            await self._watch.stable(len(self._lives))
            ends, behind = await self._watch.handled()
            if behind:
                self._troubles.append(f"the group stays {behind} records behind")
            looker.cancel()
            with suppress(asyncio.CancelledError):
                await looker
            final = await self._final_read()
            await self._dismiss_all()
        await self._broker.stop()
        self._judge(ends, final)

    # --- events ------------------------------------------------------------------------------------------------------

    def _doings(self) -> dict[str, Callable[[], Awaitable[None]]]:
        return {**super()._doings(), "join": self._join_one, "outage": self._calm_outage}

    def _life(self, place: str, name: str) -> Life:
        weather = self._weather
        rng = random.Random(f"{self._seed} {name}")
        spec = MemberSpec(
            name=name,
            broker=self._broker.address,
            group=GROUP,
            topics=list(weather.topics),
            history_path=str(self._histories / name),
            mode=rng.choice(weather.modes),
            session_timeout_seconds=weather.session_timeout_seconds,
            instance_id=place if place.endswith("5") else None,
            release_seconds=0.3 if rng.random() < 0.2 else 0.0,
            handle_seconds=weather.handle_seconds,
            plant=weather.plant if weather.plant in {**CLIENT_PLANTS, **CONVOY_PLANTS} else "",
        )
        return Life(spec, run_member)

    def _on_frozen(self, life: Life) -> None:
        self._file.write(Frozen, process=life.spec.name)

    def _on_thawed(self, life: Life) -> None:
        life.order("zombie")

    async def _leave_one(self) -> None:
        """Nobody takes its place at once."""
        place = self._anyone()
        if place is not None and len(self._lives) > self._weather.members * 3 // 4:
            self._in_background(self._take_out(place).leave())

    async def _join_one(self) -> None:
        places = range(self._weather.members + 2)
        free = [place for place in (f"m{number}" for number in places) if place not in self._lives]
        if free:
            self._join(self._rng.choice(free))

    async def _kill_broker(self) -> None:
        self._file.write(BrokerKilled)
        await super()._kill_broker()
        self._file.write(BrokerBack, at=monotonic() + self._weather.grace_seconds)

    async def _calm_outage(self) -> None:
        """The broker is killed while nothing else happens, and everybody comes back in time: nothing moves."""
        await self._watch.stable(len(self._lives))
        since = monotonic()
        await self._kill_broker()
        await self._watch.stable(len(self._lives))
        self._file.write(Outage, since=since)

    # --- what goes on meanwhile --------------------------------------------------------------------------------------

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

    # --- judgement ---------------------------------------------------------------------------------------------------

    async def _final_read(self) -> dict[Any, FinalRead]:
        found = await read_all(self._broker.address, [(name, "") for name in self._weather.topics])
        return {log: FinalRead(0, records) for log, records in found.items()}

    def _judge(self, ends: dict[TopicPartition, int], final: dict[Any, FinalRead]) -> None:
        events = read_histories(self._histories.iterdir())
        self._count(events)
        if CONVOY in self._weather.modes:
            keys = {
                (TopicPartition(log.topic, log.partition), offset): key_of(value)
                for log, found in final.items()
                for offset, value in found.records
            }
            group = check(events, ends, keys)
            log = check_log(self._log.events, final)
        else:
            group = check(events, ends)
            log = check_log([*self._log.events, *polls(events)], final)
        if group or log or self._troubles:
            raise BrokenPromisesError([*map(str, (*group, *log)), *self._troubles], {each.kind for each in group})

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
