"""The storm of a queue group: its workers, each in a process of its own, are killed, frozen, sent away and replaced,
and so is the broker, while records are sent. `run` is one history; at its end every record must be finished, and the
checkers must find nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from time import monotonic
from typing import Final

from logbroker.client import Admin, Producer
from logbroker.client.transport.connection import Connection
from logbroker.client.transport.status import error_of_item
from logbroker.errors import BrokerUnavailableError, InvalidPartitionsError
from logbroker.v1 import queues_pb2 as pb
from tests.anomalies import BrokenPromisesError
from tests.crash.broker_process import BrokerProcess
from tests.member_life import Life
from tests.queue_storm import session_checker
from tests.queue_storm.outcome import DEAD, TOPIC, facts_of, figures_of
from tests.queue_storm.queue_checker import Facts, check
from tests.queue_storm.queue_history import OUTPUTS, PART, ResumeBegun, lane_name, read_histories
from tests.queue_storm.weather import Weather
from tests.queue_storm.worker_process import RECORDS, SESSIONS, WorkerSpec
from tests.queue_storm.worker_process import run as run_worker
from tests.storm import Storm

GROUP: Final = "storm"
_BEGIN_SECONDS: Final = 90.0
_LOOK_SECONDS: Final = 0.05
_MAX_FROZEN: Final = 3
_SEND_SECONDS: Final = 0.02
_SPLIT_KEYS: Final = 4
"""Number of keys whose lanes are split and joined."""
_SPLIT_SECONDS: Final = 0.02


def run(directory: Path, seed: int, weather: Weather) -> Counter[str]:
    """Return figures of one history; raises BrokenPromisesError, BrokerFailedError or MemberFailedError."""
    limit_seconds = 180 + 3 * weather.events + weather.records / 100
    return asyncio.run(QueueStorm(directory, seed, weather).run(limit_seconds))


def broker_of(directory: Path, seed: int, weather: Weather) -> BrokerProcess:
    return BrokerProcess(
        directory,
        seed=seed,
        child_module="tests.queue_storm.queue_plants",
        child_options=[weather.plant] if weather.plant else [],
        settings=weather.settings,
    )


class QueueStorm(Storm[Weather]):
    def __init__(self, directory: Path, seed: int, weather: Weather) -> None:
        broker = broker_of(directory, seed, weather)
        hold_seconds = weather.lease_seconds
        super().__init__(directory, seed, weather, broker, hold_seconds=hold_seconds, max_frozen=_MAX_FROZEN)
        self._healed = False

    async def _play(self) -> None:
        weather = self._weather
        # On a cluster, a growth waits for a takeover and for the leaders of partitions.
        async with Admin(self._broker.address, request_timeout_seconds=60) as admin:
            await admin.create_topic(TOPIC, weather.partitions)
            await admin.create_topic(OUTPUTS, weather.partitions)
            self._connection = Connection(self._broker.address, request_timeout_seconds=30)
            await self._create()
            for number in range(weather.workers + weather.session_workers):
                self._join(f"{'s' if number < weather.session_workers else 'w'}{number}")
            self._in_background(self._send(admin))
            if weather.parts:
                self._in_background(self._split_and_join())
            await self._begun()
            await self._rage()
            await self._calm_down()
            await self._become_quiet()
            facts = await facts_of(admin, self._broker.address, weather, ended=not self._troubles)
            self.figures["dead letters"] = sum(map(len, facts.dead.values()))
            await self._connection.close()
            await self._dismiss_all()
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
        async with asyncio.timeout(_BEGIN_SECONDS):
            while not (await self._describe()).counts.acked:
                await asyncio.sleep(_LOOK_SECONDS)
                self._check_background()

    # --- events ------------------------------------------------------------------------------------------------------

    def _life(self, place: str, name: str) -> Life:
        weather = self._weather
        spec = WorkerSpec(
            name=name,
            broker=self._broker.address,
            group=GROUP,
            history_path=str(self._histories / name),
            lease_seconds=weather.lease_seconds,
            mode=SESSIONS if place.startswith("s") else RECORDS,
            nacks=weather.nacks,
            late=weather.late,
            has_outputs=weather.has_outputs,
            poison=0.0 if self._healed else weather.poison,
        )
        return Life(spec, run_worker)

    def _anyone(self) -> str | None:
        """In every second draw, on average, one who holds sessions: there are few of them."""
        awake = [place for place, life in self._lives.items() if not life.frozen and place.startswith("s")]
        if awake and self._rng.random() < 0.5:
            return self._rng.choice(awake)
        return super()._anyone()

    def _on_thawed(self, life: Life) -> None:
        life.order("zombie")

    # --- what goes on meanwhile --------------------------------------------------------------------------------------

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
                    part = [(PART, b"p%d" % rng.randrange(weather.parts))] if weather.parts else []
                    await producer.send(TOPIC, b"%d" % sent, key=key, headers=part)
                    sent += 1
                if not grown and sent > weather.records // 2:
                    grown = True
                    await self._grow(admin)
                await asyncio.sleep(_SEND_SECONDS)
            await producer.flush()
        self.figures["records sent"] = sent

    async def _split_and_join(self) -> None:
        """Split lanes and join them, some of them again and again, while records are sent and some more seconds."""
        rng = random.Random(f"{self._seed} splits")
        begun = monotonic()
        while monotonic() - begun < self._weather.events * self._weather.pause_seconds:
            key = b"k%d" % rng.randrange(min(_SPLIT_KEYS, self._weather.keys))
            decision = pb.LaneDecision(key=key, join=True)
            if rng.random() < 0.6:
                decision = pb.LaneDecision(key=key, split=pb.LaneSplit(by=f"header:{PART}", into=rng.choice((2, 3, 8))))
            request = pb.DecideLanesRequest(group_id=GROUP, decisions=[decision])
            try:
                (result,) = (await self._connection.unary("DecideLanes", request, retry=False)).results
                done = error_of_item(result.status) is None
                self.figures[f"lanes {decision.WhichOneof('decision')}"] += done
            except BrokerUnavailableError:
                pass
            await asyncio.sleep(_SPLIT_SECONDS)

    async def _grow(self, admin: Admin) -> None:
        while True:
            try:
                return await self._grow_once(admin)
            except (BrokerUnavailableError, InvalidPartitionsError):
                # The second: it has grown already, and the gateway that was asked had not heard of it yet.
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
                key = lane.key.partition(b"#")[0]
                for part in range(max(1, self._weather.parts)):
                    self._file.write(ResumeBegun, key=lane_name(key, b"p%d" % part if self._weather.parts else None))
                decision.key = lane.key
            else:
                decision.place.partition, decision.place.offset = lane.partition, lane.offset
            decisions.append(decision)
        if decisions:
            self.figures["lanes resumed"] += len(decisions)
            await self._connection.unary("DecideLanes", pb.DecideLanesRequest(group_id=GROUP, decisions=decisions))

    # --- judgement ---------------------------------------------------------------------------------------------------

    def _judge(self, facts: Facts) -> None:
        events = read_histories(self._histories.iterdir())
        self.figures += figures_of(events)
        self.figures["lives of workers"] = self._names.total()
        found = [*check(events, facts), *session_checker.check(events)]
        in_log = sum(map(len, facts.lanes.values()))
        if in_log < self._weather.records:
            self._troubles.append(f"only {in_log} records are in the log")
        if found or self._troubles:
            raise BrokenPromisesError([*map(str, found), *self._troubles], {each.kind for each in found})
