"""The storm of priorities: several queue groups on one topic, whose workers are killed, frozen and sent away, and so is
the broker, while records of mixed priorities and timestamps are sent. At the end every record must be finished, and
the checkers must find nothing.

The seed fixes what is done and when, not how threads and processes interleave: a failure may take a few runs of its
seed to come again.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from time import monotonic
from typing import Any, Final

from logbroker.client import Admin
from logbroker.client.connection import Connection
from logbroker.client.status import error_of_item
from logbroker.v1 import queues_pb2 as pb
from tests.crash.broker_process import BrokerProcess
from tests.groups.group_history import HistoryFile
from tests.groups.member_life import Life
from tests.priority import priority_checker
from tests.priority.priority_history import (
    Appended,
    BrokerBack,
    BrokerKilled,
    Event,
    Kept,
    read_histories,
)
from tests.priority.priority_processes import ProducerSpec, WorkerSpec, run_producer, run_worker
from tests.priority.priority_weather import GroupPlan, Weather
from tests.queue_storm import queue_checker
from tests.queue_storm.queue_checker import Facts, StormError
from tests.queue_storm.queue_history import Place, SettleBegun, SettleEnded, Taken

TOPIC: Final = "work"
_LOOK_SECONDS: Final = 0.05
_MAX_FROZEN: Final = 3
_FREEZE_SECONDS: Final = (0.2, 1.5)


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
            child_module="tests.priority.priority_plants",
            child_options=[weather.plant] if weather.plant else [],
        )
        self._histories = directory / "histories"
        for name in ("", "producers", *(plan.name for plan in weather.groups)):
            (self._histories / name).mkdir()
        self._file = HistoryFile(self._histories / "producers" / "storm", "storm")
        self.figures: Counter[str] = Counter()
        self._troubles: list[str] = []
        self._plans = {plan.name: plan for plan in weather.groups}
        self._producers: list[Life] = []
        self._workers: dict[tuple[str, int], Life] = {}
        """Those that work, by group and number."""
        self._gone: list[Life] = []
        self._names = Counter[str]()
        self._background: set[asyncio.Task[None]] = set()

    async def run(self) -> Counter[str]:
        weather = self._weather
        try:
            async with asyncio.timeout(3 * weather.quiet_seconds + 5 * weather.events + weather.records / 50):
                await self._run()
        finally:
            for task in self._background:
                task.cancel()
            await asyncio.gather(*self._background, return_exceptions=True)
            for life in [*self._workers.values(), *self._producers, *self._gone]:
                life.end()
            await self._broker.end()
        return self.figures

    async def _run(self) -> None:
        weather = self._weather
        await self._broker.spawn()
        await self._broker.wait_ready()
        self._connection = Connection(self._broker.address, request_timeout_seconds=30)
        async with Admin(self._broker.address) as admin:
            await admin.create_topic(TOPIC, weather.partitions)
        for plan in weather.groups:
            request = pb.CreateQueueRequest(group_id=plan.name, topic=TOPIC, settings=plan.settings(weather))
            await self._connection.unary("CreateQueue", request)
        at_once = int(weather.records * weather.at_once)
        await self._start_producer("first", at_once, 0).finished(weather.quiet_seconds)
        producer = self._start_producer("second", weather.records - at_once, weather.events * weather.pause_seconds / 2)
        for plan in weather.groups:
            for number in range(plan.callers + plan.streams):
                self._join(plan.name, number)
        for _ in range(weather.events):
            await self._event()
            await asyncio.sleep(self._rng.uniform(0, weather.pause_seconds))
            self._check_tasks()
        await asyncio.gather(*self._background, producer.finished(weather.quiet_seconds))
        await self._become_quiet()
        await self._connection.close()
        await asyncio.gather(*(life.leave() for life in self._workers.values()))
        await self._broker.stop()
        self._judge()

    def _start_producer(self, name: str, records: int, seconds: float) -> Life:
        weather = self._weather
        name = f"{name} {self._seed}"
        spec = ProducerSpec(
            name=name,
            broker=self._broker.address,
            topic=TOPIC,
            history_path=str(self._histories / "producers" / name),
            partitions=weather.partitions,
            records=records,
            keys=weather.keys,
            seconds=seconds,
        )
        life = Life(spec, run_producer)
        self._producers.append(life)
        return life

    # --- events ------------------------------------------------------------------------------------------------------

    async def _event(self) -> None:
        doings: dict[str, Callable[[], Awaitable[None]]] = {
            "kill": self._kill_one,
            "freeze": self._freeze_one,
            "leave": self._leave_one,
            "broker": self._kill_broker,
        }
        chances = self._weather.chances
        [name] = self._rng.choices(list(chances), list(chances.values()))
        self.figures[f"events {name}"] += 1
        await doings[name]()

    def _join(self, group: str, number: int) -> None:
        """Let a new process be the worker with this number."""
        weather, plan = self._weather, self._plans[group]
        place = f"{group}-{number}"
        self._names[place] += 1
        name = f"{place}.{self._names[place]}"
        spec = WorkerSpec(
            name=name,
            broker=self._broker.address,
            group=group,
            history_path=str(self._histories / group / name),
            is_stream=number >= plan.callers,
            band=plan.bands[number % len(plan.bands)],
            handle_seconds=weather.handle_seconds,
            lease_seconds=weather.lease_seconds,
            nacks=weather.nacks,
            releases=weather.releases,
            late=weather.late,
        )
        self._workers[group, number] = Life(spec, run_worker)

    def _anyone(self) -> tuple[str, int] | None:
        awake = [place for place, life in self._workers.items() if not life.frozen]
        return self._rng.choice(awake) if awake else None

    async def _kill_one(self) -> None:
        """Frozen ones too: their last words were never heard."""
        place = self._rng.choice(list(self._workers))
        life = self._workers.pop(place)
        self._gone.append(life)
        await life.kill()
        self._join(*place)

    async def _leave_one(self) -> None:
        place = self._anyone()
        if place is not None:
            life = self._workers.pop(place)
            self._gone.append(life)
            self._in_background(life.leave())
            self._join(*place)

    async def _freeze_one(self) -> None:
        place = self._anyone()
        if place is not None and sum(life.frozen for life in self._workers.values()) < _MAX_FROZEN:
            life = self._workers[place]
            await life.freeze()
            self._in_background(self._thaw_later(place, life, self._rng.uniform(*_FREEZE_SECONDS)))

    async def _thaw_later(self, place: tuple[str, int], life: Life, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self._workers.get(place) is life:
            life.thaw()

    async def _kill_broker(self) -> None:
        self._file.write(BrokerKilled)
        await self._broker.kill()
        await self._broker.spawn()
        await self._broker.wait_ready()
        self._file.write(BrokerBack)

    def _in_background(self, doing: Coroutine[Any, Any, None]) -> None:
        self._background.add(asyncio.create_task(doing))

    def _check_tasks(self) -> None:
        """Raise what any of them failed with."""
        for task in list(self._background):
            if task.done():
                self._background.discard(task)
                task.result()

    # --- quiet -------------------------------------------------------------------------------------------------------

    async def _become_quiet(self) -> None:
        """Nothing fails any more, and everything is finished."""
        for life in self._workers.values():
            life.order("heal")
        deadline = monotonic() + self._weather.quiet_seconds
        request = pb.DescribeQueuesRequest(group_ids=list(self._plans))
        while True:
            queues = (await self._connection.unary("DescribeQueues", request)).queues
            for queue in queues:
                if error := error_of_item(queue.status):
                    raise error
            if not any(queue.counts.open or queue.counts.unscanned for queue in queues):
                return
            if monotonic() > deadline:
                self._troubles.append(f"not all queue groups come to an end: {[str(each.counts) for each in queues]}")
                return
            await asyncio.sleep(_LOOK_SECONDS)

    # --- judgement ---------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        found: list[str] = [*self._troubles]
        kinds: set[Any] = set()
        for plan in self._weather.groups:
            paths = itertools.chain(*((self._histories / name).iterdir() for name in ("producers", plan.name)))
            events = read_histories(path for path in paths if path.suffix != ".log")
            report = priority_checker.check(events, plan.rules(self._weather))
            anomalies: list[priority_checker.Anomaly | queue_checker.Anomaly] = list(report.anomalies)
            anomalies += self._check_promises(plan, events)
            found += (f"group {plan.name}: {each}" for each in anomalies)
            kinds |= {each.kind for each in anomalies}
            self.figures["records checked"] += report.checked
            self.figures["records excused"] += report.excused
            self.figures["records delivered"] += sum(len(each.deliveries) for each in events if isinstance(each, Taken))
        self.figures["lives of workers"] = self._names.total()
        if found:
            raise StormError(found, kinds)

    def _check_promises(self, plan: GroupPlan, events: Iterable[Event]) -> list[queue_checker.Anomaly]:
        """What any queue group promises: nothing lost, leases, order by key."""
        lanes: dict[str, list[Place]] = defaultdict(list)
        seen: list[Taken | SettleBegun | SettleEnded] = []
        for event in events:
            match event:
                case Appended():
                    for sent in event.records:
                        lanes[sent.key if plan.ordering == "key" else ""].append(sent.place)
                case Kept():
                    seen.append(Taken(process=event.process, at=event.at, deliveries=[event.delivery]))
                case Taken() | SettleBegun() | SettleEnded():
                    seen.append(event)
        for places in lanes.values():
            places.sort()
        return queue_checker.check(seen, Facts(lanes=lanes, max_attempts=1000, ended=not self._troubles))
