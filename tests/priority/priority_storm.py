"""The storm of priorities: several queue groups on one topic, whose workers are killed, frozen and sent away, and so is
the broker, while records of mixed priorities and timestamps are sent. At the end every record must be finished, and
the checkers must find nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable
from math import inf
from pathlib import Path
from time import monotonic
from typing import Final

from logbroker.client import Admin
from logbroker.client.transport.connection import Connection
from logbroker.client.transport.status import error_of_item
from logbroker.v1 import queues_pb2 as pb
from tests.anomalies import Anomaly, BrokenPromisesError
from tests.crash.broker_process import BrokerProcess
from tests.member_life import Life
from tests.priority import priority_checker
from tests.priority.priority_history import Appended, BrokerBack, BrokerKilled, Event, Kept, read_histories
from tests.priority.priority_processes import ProducerSpec, WorkerSpec, run_producer, run_worker
from tests.priority.priority_weather import GroupPlan, Weather
from tests.queue_storm import queue_checker
from tests.queue_storm.queue_checker import Facts
from tests.queue_storm.queue_history import RecordId, SettleBegun, SettleEnded, Taken
from tests.storm import Storm

TOPIC: Final = "work"
_BEGIN_SECONDS: Final = 90.0
_SEND_SECONDS: Final = 120.0
"""How long a producer may take at most when the last of its records is due, on a busy machine."""
_LOOK_SECONDS: Final = 0.05
_MAX_FROZEN: Final = 3
_FREEZE_SECONDS: Final = (0.2, 1.5)
"""Some leases last for longer, some do not."""


def run(directory: Path, seed: int, weather: Weather) -> Counter[str]:
    """Return figures of one history; raises BrokenPromisesError, BrokerFailedError or MemberFailedError."""
    limit_seconds = 3 * (_SEND_SECONDS + weather.quiet_seconds) + 5 * weather.events + weather.records / 10
    return asyncio.run(_PriorityStorm(directory, seed, weather).run(limit_seconds))


class _PriorityStorm(Storm[Weather]):
    """A place is a group's name and a number, as in `lanes-2`."""

    def __init__(self, directory: Path, seed: int, weather: Weather) -> None:
        broker = BrokerProcess(
            directory,
            seed=seed,
            child_module="tests.priority.priority_plants",
            child_options=[weather.plant] if weather.plant else [],
        )
        hold_seconds = weather.lease_seconds
        super().__init__(directory, seed, weather, broker, hold_seconds=hold_seconds, max_frozen=_MAX_FROZEN)
        self._plans = {plan.name: plan for plan in weather.groups}
        for name in ("producers", *self._plans):
            (self._histories / name).mkdir()

    async def _play(self) -> None:
        weather = self._weather
        self._connection = Connection(self._broker.address, request_timeout_seconds=30)
        async with Admin(self._broker.address) as admin:
            await admin.create_topic(TOPIC, weather.partitions)
        for plan in weather.groups:
            request = pb.CreateQueueRequest(group_id=plan.name, topic=TOPIC, settings=plan.settings(weather))
            await self._connection.unary("CreateQueue", request)
        at_once = int(weather.records * weather.at_once)
        await self._start_producer("first", at_once, 0).finished(_SEND_SECONDS)
        producer = self._start_producer("second", weather.records - at_once, weather.events * weather.pause_seconds / 2)
        for plan in weather.groups:
            for number in range(plan.callers + plan.streams):
                self._join(f"{plan.name}-{number}")
        await self._begun()
        await self._rage()
        await asyncio.gather(self._calm_down(), producer.finished(_SEND_SECONDS))
        await self._become_quiet()
        await self._connection.close()
        await self._dismiss_all()
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
        self._others.append(life)
        return life

    async def _begun(self) -> None:
        """Wait until all groups work: what happens before that shows nothing."""
        async with asyncio.timeout(_BEGIN_SECONDS):
            while not all(each.delivered for each in await self._counts()):
                await asyncio.sleep(_LOOK_SECONDS)
                self._check_background()

    # --- events ------------------------------------------------------------------------------------------------------

    def _life(self, place: str, name: str) -> Life:
        weather = self._weather
        group, _, text = place.rpartition("-")
        plan, number = self._plans[group], int(text)
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
        return Life(spec, run_worker)

    async def _freeze_one(self) -> None:
        await self._freeze(self._rng.uniform(*_FREEZE_SECONDS))

    async def _kill_broker(self) -> None:
        self._file.write(BrokerKilled)
        await super()._kill_broker()
        self._file.write(BrokerBack)

    # --- quiet -------------------------------------------------------------------------------------------------------

    async def _become_quiet(self) -> None:
        """Nothing fails any more, and everything is finished."""
        for life in self._lives.values():
            life.order("heal")
        least, deadline = inf, 0.0
        while True:
            counts = await self._counts()
            left = sum(each.open + each.unscanned for each in counts)
            if not left:
                return
            if left < least:
                least, deadline = left, monotonic() + self._weather.quiet_seconds
            if monotonic() > deadline:
                self._troubles.append(f"not all queue groups come to an end: {list(map(str, counts))}")
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def _counts(self) -> list[pb.QueueCounts]:
        """Return the counts of each group."""
        request = pb.DescribeQueuesRequest(group_ids=list(self._plans))
        queues = (await self._connection.unary("DescribeQueues", request)).queues
        for queue in queues:
            if error := error_of_item(queue.status):
                raise error
        return [queue.counts for queue in queues]

    # --- judgement ---------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        found: list[str] = [*self._troubles]
        kinds = set()
        for plan in self._weather.groups:
            folders = (self._histories / "producers", self._histories / plan.name)
            events = read_histories([self._histories / "storm", *(path for each in folders for path in each.iterdir())])
            report = priority_checker.check(events, plan.rules(self._weather))
            anomalies = [*report.anomalies, *self._check_promises(plan, events)]
            found += (f"group {plan.name}: {each}" for each in anomalies)
            kinds |= {each.kind for each in anomalies}
            self.figures["records checked"] += report.checked
            self.figures["records excused"] += report.excused
            self.figures["records delivered"] += sum(len(each.deliveries) for each in events if isinstance(each, Taken))
        self.figures["lives of workers"] = self._names.total()
        if found:
            raise BrokenPromisesError(found, kinds)

    def _check_promises(self, plan: GroupPlan, events: Iterable[Event]) -> list[Anomaly]:
        """Check the promises of any queue group: nothing lost, leases, order by key."""
        lanes: dict[str, list[RecordId]] = defaultdict(list)
        seen: list[Taken | SettleBegun | SettleEnded] = []
        for event in events:
            match event:
                case Appended():
                    for sent in event.records:
                        lanes[sent.key if plan.ordering == "key" else ""].append(sent.record_id)
                case Kept():
                    seen.append(Taken(process=event.process, at=event.at, deliveries=[event.delivery]))
                case Taken() | SettleBegun() | SettleEnded():
                    seen.append(event)
        for record_ids in lanes.values():
            record_ids.sort()
        return queue_checker.check(seen, Facts(lanes=lanes, max_attempts=1000, ended=not self._troubles))
