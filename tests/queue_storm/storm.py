"""The storm: workers of a queue group, each in a process of its own, are killed, frozen, sent away and replaced, and so
is the broker, while records are sent. `run` is one history; at its end every record must be finished, and the checkers
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

from logbroker.client import Admin, Producer
from logbroker.client.connection import Connection
from logbroker.client.status import error_of_item
from logbroker.errors import BrokerUnavailableError
from logbroker.v1 import queues_pb2 as pb
from tests.crash.broker_process import BrokerProcess
from tests.groups.group_history import HistoryFile
from tests.groups.member_life import Life
from tests.queue_storm import session_checker
from tests.queue_storm.outcome import DEAD, TOPIC, facts_of, figures_of
from tests.queue_storm.queue_checker import Facts, StormError, check
from tests.queue_storm.queue_history import ResumeBegun, read_histories
from tests.queue_storm.weather import Weather
from tests.queue_storm.worker_process import RECORDS, SESSIONS, WorkerSpec
from tests.queue_storm.worker_process import run as run_worker

GROUP: Final = "storm"
_QUIET_SECONDS: Final = 90.0
_LOOK_SECONDS: Final = 0.05
_MAX_FROZEN: Final = 3
_SEND_SECONDS: Final = 0.02


def run(directory: Path, seed: int, weather: Weather) -> Counter[str]:
    """Return figures of one history; raises StormError, BrokerFailedError or MemberFailedError."""
    return asyncio.run(_Storm(directory, seed, weather).run())


class _Storm:
    def __init__(self, directory: Path, seed: int, weather: Weather) -> None:
        self._rng = random.Random(seed)
        self._seed = seed
        self._weather = weather
        self._broker = BrokerProcess(
            directory,
            seed=seed,
            child_module="tests.queue_storm.queue_plants",
            child_options=[weather.plant] if weather.plant else [],
        )
        self._histories = directory / "histories"
        self._histories.mkdir()
        self._file = HistoryFile(self._histories / "storm", "storm")
        self.figures: Counter[str] = Counter()
        self._troubles: list[str] = []
        self._lives: dict[str, Life] = {}
        """Those that work, by the name of the place that they fill."""
        self._gone: list[Life] = []
        self._names = Counter[str]()
        self._healed = False
        self._background: set[asyncio.Task[None]] = set()
        """Events that take their time."""

    async def run(self) -> Counter[str]:
        weather = self._weather
        try:
            async with asyncio.timeout(2 * _QUIET_SECONDS + 3 * weather.events + weather.records / 100):
                await self._run()
        finally:
            for task in self._background:
                task.cancel()
            await asyncio.gather(*self._background, return_exceptions=True)
            for life in [*self._lives.values(), *self._gone]:
                life.end()
            await self._broker.end()
        return self.figures

    async def _run(self) -> None:
        weather = self._weather
        await self._broker.spawn()
        await self._broker.wait_ready()
        async with Admin(self._broker.address) as admin:
            await admin.create_topic(TOPIC, weather.partitions)
            self._connection = Connection(self._broker.address, request_timeout_seconds=30)
            await self._create()
            for number in range(weather.workers + weather.session_workers):
                self._join(f"{'s' if number < weather.session_workers else 'w'}{number}")
            sending = asyncio.create_task(self._send(admin))
            self._background.add(sending)
            await self._begun()
            for _ in range(weather.events):
                await asyncio.sleep(self._rng.uniform(0, weather.pause_seconds))
                await self._event()
                self._check_tasks()
            async with asyncio.timeout(_QUIET_SECONDS):
                await asyncio.gather(*self._background)
            self._check_tasks()
            await self._become_quiet()
            facts = await facts_of(admin, self._broker.address, weather, ended=not self._troubles)
            self.figures["dead letters"] = sum(map(len, facts.dead.values()))
            await self._connection.close()
            await asyncio.gather(*(life.leave() for life in self._lives.values()))
        await self._broker.stop()
        self._judge(facts)

    async def _create(self) -> None:
        weather = self._weather
        settings = pb.QueueSettings(
            lease_seconds=weather.lease_seconds,
            grace_seconds=weather.grace_seconds,
            max_attempts=weather.max_attempts,
            backoff_initial_seconds=0.05,
            backoff_cap_seconds=0.3,
            on_exhausted=weather.on_exhausted,
            dead_letter_topic=DEAD if weather.on_exhausted == "dead-letter" else None,
        )
        await self._connection.unary(
            "CreateQueue", pb.CreateQueueRequest(group_id=GROUP, topic=TOPIC, settings=settings)
        )

    async def _begun(self) -> None:
        """Wait until workers work: what happens before that shows nothing."""
        async with asyncio.timeout(_QUIET_SECONDS):
            while not (await self._describe()).counts.acked:
                await asyncio.sleep(_LOOK_SECONDS)
                self._check_tasks()

    # --- events ------------------------------------------------------------------------------------------------------

    async def _event(self) -> None:
        doings: dict[str, Callable[[], Awaitable[None]]] = {
            "kill": self._kill_one,
            "freeze": self._freeze_one,
            "nap": self._nap_one,
            "leave": self._leave_one,
            "broker": self._kill_broker,
        }
        chances = self._weather.chances
        [name] = self._rng.choices(list(chances), list(chances.values()))
        self.figures[f"events {name}"] += 1
        await doings[name]()

    def _join(self, place: str) -> None:
        """Let a new process be the worker of this place."""
        weather = self._weather
        self._names[place] += 1
        name = f"{place}.{self._names[place]}"
        spec = WorkerSpec(
            name=name,
            broker=self._broker.address,
            group=GROUP,
            history_path=str(self._histories / name),
            lease_seconds=weather.lease_seconds,
            mode=SESSIONS if place.startswith("s") else RECORDS,
            nacks=weather.nacks,
            late=weather.late,
            poison=0.0 if self._healed else weather.poison,
        )
        self._lives[place] = Life(spec, run_worker)

    def _anyone(self) -> str | None:
        """Somebody awake; in every second draw, on average, one who holds sessions: there are few of them."""
        awake = [place for place, life in self._lives.items() if not life.frozen]
        if self._rng.random() < 0.5:
            awake = [place for place in awake if place.startswith("s")] or awake
        return self._rng.choice(awake) if awake else None

    async def _kill_one(self) -> None:
        """Frozen ones too: their last words were never heard."""
        place = self._rng.choice(list(self._lives))
        await self._take_out(place).kill()
        self._join(place)

    def _take_out(self, place: str) -> Life:
        life = self._lives.pop(place)
        self._gone.append(life)
        return life

    async def _leave_one(self) -> None:
        place = self._anyone()
        if place is not None:
            self._in_background(self._take_out(place).leave())
            self._join(place)

    async def _freeze_one(self) -> None:
        """For longer than its leases."""
        await self._freeze(self._weather.lease_seconds + self._rng.uniform(0.1, 1.0))

    async def _nap_one(self) -> None:
        """For less than its leases."""
        await self._freeze(self._rng.uniform(0.1, 0.9) * self._weather.lease_seconds)

    async def _freeze(self, seconds: float) -> None:
        place = self._anyone()
        if place is not None and sum(life.frozen for life in self._lives.values()) < _MAX_FROZEN:
            life = self._lives[place]
            await life.freeze()
            self._in_background(self._thaw_later(place, life, seconds))

    async def _thaw_later(self, place: str, life: Life, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self._lives.get(place) is life:
            life.thaw()
            life.order("zombie")

    async def _kill_broker(self) -> None:
        await self._broker.kill()
        await asyncio.sleep(self._rng.uniform(0, 0.3))
        await self._broker.spawn()
        await self._broker.wait_ready()

    # --- what goes on meanwhile --------------------------------------------------------------------------------------

    def _in_background(self, doing: Any) -> None:
        self._background.add(asyncio.create_task(doing))

    def _check_tasks(self) -> None:
        """Raise what any of them failed with."""
        for task in list(self._background):
            if task.done():
                self._background.discard(task)
                task.result()

    async def _send(self, admin: Admin) -> None:
        """As evenly over the events as can be told before; some records have no key."""
        weather = self._weather
        rng = random.Random(f"{self._seed} sender")
        seconds = weather.events * weather.pause_seconds / 2
        begun = monotonic()
        grown = not weather.grows
        async with Producer(
            self._broker.address, delivery_timeout_seconds=120, request_timeout_seconds=60, batch_bytes=4000
        ) as producer:
            sent = 0
            while sent < weather.records:
                due = (
                    weather.records
                    if monotonic() - begun > seconds
                    else (monotonic() - begun) / seconds * weather.records
                )
                while sent < due:
                    key = b"k%d" % rng.randrange(weather.keys) if rng.random() < 0.97 else None
                    await producer.send(TOPIC, b"%d" % sent, key=key)
                    sent += 1
                if not grown and sent > weather.records // 2:
                    grown = True
                    await self._grow(admin)
                await asyncio.sleep(_SEND_SECONDS)
            await producer.flush()
        self.figures["records sent"] = sent

    async def _grow(self, admin: Admin) -> None:
        while True:
            try:
                return await self._grow_once(admin)
            except BrokerUnavailableError:
                await asyncio.sleep(_LOOK_SECONDS)

    async def _grow_once(self, admin: Admin) -> None:
        if (await admin.describe_topic(TOPIC)).info.partitions == self._weather.partitions:
            await admin.alter_topic(TOPIC, partitions=self._weather.partitions + 1)

    # --- quiet -------------------------------------------------------------------------------------------------------

    async def _become_quiet(self) -> None:
        """Nothing fails any more, lanes that were set aside go on, and everything is finished."""
        self._healed = True
        for life in self._lives.values():
            life.order("heal")
        deadline = monotonic() + self._weather.quiet_seconds
        while (counts := (queue := await self._describe()).counts).open or counts.unscanned:
            if monotonic() > deadline:
                self._troubles.append(f"the queue group does not come to an end: {queue.counts} {queue.partitions}")
                return
            await self._resume_all()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _describe(self) -> pb.DescribedQueue:
        response = await self._connection.unary("DescribeQueues", pb.DescribeQueuesRequest(group_ids=[GROUP]))
        queue: pb.DescribedQueue = response.queues[0]
        if error := error_of_item(queue.status):
            raise error
        return queue

    async def _resume_all(self) -> None:
        request = pb.ListLanesRequest(group_id=GROUP, order=pb.LANE_ORDER_HELD, top=10_000)
        lanes = (await self._connection.unary("ListLanes", request)).lanes
        decisions = []
        for lane in lanes:
            decision = pb.LaneDecision(resume=True)
            if lane.HasField("key"):
                self._file.write(ResumeBegun, key=lane.key.decode())
                decision.key = lane.key
            else:
                decision.place.partition, decision.place.offset = lane.partition, lane.offset
            decisions.append(decision)
        if decisions:
            self.figures["lanes resumed"] += len(decisions)
            await self._connection.unary("DecideLanes", pb.DecideLanesRequest(group_id=GROUP, decisions=decisions))

    # --- judgement ---------------------------------------------------------------------------------------------------

    def _judge(self, facts: Facts) -> None:
        paths = [path for path in self._histories.iterdir() if path.suffix != ".log"]
        events = read_histories(paths)
        self.figures += figures_of(events)
        self.figures["lives of workers"] = self._names.total()
        found = [*check(events, facts), *session_checker.check(events)]
        in_log = sum(map(len, facts.lanes.values()))
        if in_log < self._weather.records:
            self._troubles.append(f"only {in_log} records are in the log")
        if found or self._troubles:
            raise StormError([*map(str, found), *self._troubles], {each.kind for each in found})


def be_quiet() -> None:
    """Every client says that it reconnects, after every kill; a failure would be hard to find in that."""
    logging.getLogger("logbroker.client").setLevel(logging.ERROR)
