"""One who creates, fills, grows and deletes topics while the broker is killed, and remembers what it was promised."""

from __future__ import annotations

import asyncio
import random

from logbroker.client import Admin, Producer
from logbroker.client.transport.metadata import TopicInfo
from logbroker.errors import (
    BrokerUnavailableError,
    LogbrokerError,
    RequestTimeoutError,
    TopicExistsError,
    UnknownTopicError,
)
from logbroker.types import TopicId, topic_id_text
from tests.crash.load import TOPICS, History, Sender

FLEETING = "fleeting"
GROWING = "growing"
_MAX_PARTITIONS = 6
_AWAY = (BrokerUnavailableError, RequestTimeoutError)


class TopicChanges:
    """Keeps one topic coming and going, and grows another. `check` compares what is there with what was promised."""

    def __init__(self, address: str, history: History, *, seed: int) -> None:
        self._address = address
        self._history = history
        self._rng = random.Random(f"{seed} topics")
        self._partitions = TOPICS[GROWING][0]
        """As many at least."""
        self._there: TopicId | None = None
        """The incarnation that must be there, unless its deletion was asked for."""
        self._deleting = False
        self._gone: set[TopicId] = set()
        self._lock = asyncio.Lock()
        """Held during a change, so that a check sees none half done."""
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Let the change under way end, with a broker that runs."""
        self._stopping = True
        if self._task is not None:
            await self._task

    async def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def check_alive(self) -> None:
        if self._task is not None and self._task.done():
            self._task.result()

    async def check(self, admin: Admin) -> None:
        """Note what is not as promised."""
        async with self._lock:
            found = {topic.name: topic for topic in await admin.list_topics()}
            self._compare(found)

    def _compare(self, found: dict[str, TopicInfo]) -> None:
        if missing := TOPICS.keys() - found.keys():
            self._history.troubles.append(f"topics are gone: {', '.join(sorted(missing))}")
        elif found[GROWING].partitions < self._partitions:
            self._history.troubles.append(
                f"{GROWING} had {self._partitions} partitions and has {found[GROWING].partitions}"
            )
        fleeting = found.get(FLEETING)
        if fleeting is not None and fleeting.id in self._gone:
            self._history.troubles.append(f"{FLEETING} {topic_id_text(fleeting.id)} was deleted and is back")
        if self._there is not None and not self._deleting and (fleeting is None or fleeting.id != self._there):
            self._history.troubles.append(f"{FLEETING} {topic_id_text(self._there)} was created and is gone")

    async def _run(self) -> None:
        async with Admin(self._address, request_timeout_seconds=3) as admin:
            while not self._stopping:
                await asyncio.sleep(self._rng.uniform(0.02, 0.4))
                try:
                    async with self._lock:
                        await (self._grow(admin) if self._rng.random() < 0.15 else self._change(admin))
                except _AWAY:
                    # Whether it was done shows when the broker is back.
                    self._history.figures["topic changes cut off"] += 1

    async def _grow(self, admin: Admin) -> None:
        wanted = self._partitions + 1
        if wanted > _MAX_PARTITIONS:
            return
        topics = {topic.name: topic for topic in await admin.list_topics()}
        if topics[GROWING].partitions < wanted:
            await admin.alter_topic(GROWING, partitions=wanted)
        self._partitions = wanted
        self._history.figures["topics grown"] += 1

    async def _change(self, admin: Admin) -> None:
        topics = {topic.name: topic for topic in await admin.list_topics()}
        fleeting = topics.get(FLEETING)
        if fleeting is None:
            if self._there is not None and self._deleting:
                self._gone.add(self._there)
            self._there = None
            try:
                created = await admin.create_topic(FLEETING, self._rng.randint(1, 3), {"segment.bytes": "2000"})
            except TopicExistsError:
                return  # an earlier creation was slower
            self._there, self._deleting = created.id, False
            self._history.figures["topics created"] += 1
            await self._fill(created)
        elif self._rng.random() < 0.6:
            self._there, self._deleting = fleeting.id, False
            await self._fill(fleeting)
        else:
            self._there, self._deleting = fleeting.id, True
            try:
                await admin.delete_topic(FLEETING)
            except UnknownTopicError:
                return
            self._gone.add(fleeting.id)
            self._there = None
            self._history.figures["topics deleted"] += 1

    async def _fill(self, topic: TopicInfo) -> None:
        """Send a few records to this incarnation."""
        process = f"filler{self._history.figures['fillings']}"
        self._history.figures["fillings"] += 1
        sender = Sender(self._history, process, topic_id_text(topic.id))
        async with Producer(self._address, delivery_timeout_seconds=3, request_timeout_seconds=3) as producer:
            for _ in range(self._rng.randint(1, 40)):
                await sender.send(producer, FLEETING, sender.next_value(self._rng), key=b"%d" % self._rng.randrange(9))
            try:
                await producer.flush()
            except LogbrokerError as error:
                if not isinstance(error, _AWAY):
                    raise
        sender.collect()
