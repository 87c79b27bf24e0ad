"""Tens of thousands of damaged requests to a real broker, pipelined on many connections, beside a client that means
well.

Requests to all APIs in all versions are made whole, and most of them are damaged. What the broker owes for the bytes
of a connection is computed from them (`verdict`): whatever is a request is answered, in order; anything else ends the
connection. After each burst the other client has produced, fetched and been a group of one; the broker's memory is
bounded, and its log has no error. In the end all acknowledged batches are read back.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import uvloop

from logbroker.address import parse_address
from logbroker.kafka_wire.apis import CREATE_TOPICS, FETCH, PRODUCE
from logbroker.kafka_wire.messages import create_topics as ct
from logbroker.kafka_wire.messages import fetch as f
from logbroker.kafka_wire.primitives import WireFormatError
from logbroker.record.codec import check_crc, decode_batch, split_batches
from logbroker.record.header import PREFIX_BYTES
from tests.hostile.broker import MIB, LimitedBroker
from tests.kafka_api.raw_client import RawClient, batch_of, produce
from tests.kafka_api.test_groups import RawMember, assignment, committed
from tests.kafka_hostile.damage import damaged, framed, noise
from tests.kafka_hostile.requests import LEDGERS, PARTITIONS, VICTIMS, Known, Requests
from tests.kafka_hostile.verdict import Answered, Verdict, answers_in, verdict_on

MEMORY_BYTES: Final = 1024 * MIB
"""Memory that the kernel lets the broker allocate."""
PEAK_BYTES: Final = 256 * MIB
"""Limit on its memory at any moment. Its parts, in MiB: 60 for itself; 32 of requests and answers; 72 of a batch that a
lookup by time expands; the rest is what malloc keeps. Measured: 70 to 140."""
MAX_REQUEST_BYTES: Final = 4 * MIB
SETTINGS: Final[dict[str, Any]] = {
    "kafka_listen": '"127.0.0.1:0"',
    "max_request_bytes": MAX_REQUEST_BYTES,
    "max_produce_bytes_in_flight": 16 * MIB,
    "max_fetch_bytes_in_flight": 16 * MIB,
    "max_partitions": 200,
    "max_partitions_per_topic": 20,
    "group_initial_rebalance_delay_seconds": 0,
    "min_free_disk_bytes": 0,
}
BURST: Final = 1000
"""Requests between two looks at memory and log."""
AT_ONCE: Final = 24
"""Connections that are open at a time."""
MOST_ON_ONE: Final = 40
PATIENCE_SECONDS: Final = 0.15
"""Given to a connection with a request that may wait."""
ANSWER_SECONDS: Final = 30.0
STEADY: Final = "steady"
_DAMAGE: Final = (0.0, 0.05, 0.3, 1.0)
"""How many requests of a connection have damaged bytes. In all others, values alone may be wrong."""


def run(directory: Path, seed: int, requests: int, *, keys: Sequence[int] = (), plant: str = "none") -> dict[str, int]:
    """Send the requests of a seed to a broker below `directory`; return figures. Raises AssertionError with the bytes.

    `keys`: the APIs to ask; none: all. Afterwards the broker is stopped, and its data directory verified.
    """
    with LimitedBroker(directory, memory_bytes=MEMORY_BYTES, plant=plant, **SETTINGS) as broker:
        barrage = _Barrage(broker, seed, keys)
        uvloop.run(barrage.run(requests))
        peak_bytes = broker.peak_bytes()
        barrage.figures["peak MiB"] = peak_bytes // MIB
        assert peak_bytes <= PEAK_BYTES, f"seed {seed}: the broker took {peak_bytes / MIB:.0f} MiB"
    return {**barrage.figures}


class _Barrage:
    def __init__(self, broker: LimitedBroker, seed: int, keys: Sequence[int]) -> None:
        self.figures: Counter[str] = Counter()
        self._broker = broker
        self._address = parse_address(broker.kafka_address)
        self._seed = seed
        self._keys = keys
        self._known = Known()
        self._ledger = _Ledger()
        self._connections = 0

    async def run(self, requests: int) -> None:
        address = self._broker.kafka_address
        with RawClient(address) as client, SteadyClient(address) as steady:
            self._set_up(client)
            while self.figures["requests"] < requests:
                end = min(self.figures["requests"] + BURST, requests)
                await asyncio.gather(asyncio.to_thread(steady.round), *[self._work(end) for _ in range(AT_ONCE)])
                self._broker.check_log()
                self._known.round += 1
            await asyncio.to_thread(steady.round)
            self.figures["acknowledged"] = len(self._ledger)
            for topic in LEDGERS:
                for partition in range(PARTITIONS):
                    self._ledger.check(client, topic, partition)

    def _set_up(self, client: RawClient) -> None:
        kept = [ct.CreateTopicsRequestCreatableTopicConfig(name="retention.ms", value="-1")]
        small = [*kept, ct.CreateTopicsRequestCreatableTopicConfig(name="segment.bytes", value="100000")]
        wishes = {LEDGERS[0]: kept, LEDGERS[1]: small, STEADY: kept, **{name: [] for name in VICTIMS}}
        topics = [
            ct.CreateTopicsRequestCreatableTopic(
                name=name, num_partitions=PARTITIONS, replication_factor=1, configs=configs
            )
            for name, configs in wishes.items()
        ]
        for made in client.call(CREATE_TOPICS, 7, ct.CreateTopicsRequest(topics=topics)).topics:
            assert not made.error_code, made
            self._known.topic_ids[made.name] = made.topic_id

    async def _work(self, end: int) -> None:
        while self.figures["requests"] < end:
            self._connections += 1
            rng = random.Random(f"{self._seed}-{self._connections}")
            frames = self._frames(rng)
            self.figures["requests"] += len(frames)
            self.figures["connections"] += 1
            data = b"".join(frames)
            try:
                await self._talk(rng, data)
            except (AssertionError, WireFormatError) as error:
                error.add_note(f"seed {self._seed}, the bytes of the connection: {data.hex()[:100_000]}")
                raise

    def _frames(self, rng: random.Random) -> list[bytes]:
        requests, frames = Requests(rng, self._known, self._keys), []
        damage = rng.choice(_DAMAGE)
        # Most damage ends the connection, so there is little sense in many requests after it.
        for number in range(rng.randint(1, min(MOST_ON_ONE, round(2 / damage)) if damage else MOST_ON_ONE)):
            api, version, body = requests.make()
            frame = framed(rng, api, version, number, body)
            if rng.random() < damage:
                frame = damaged(rng, frame) if rng.random() < 0.98 else noise(rng, number)
            frames.append(frame)
        return frames

    async def _talk(self, rng: random.Random, data: bytes) -> None:
        """Send the bytes on a connection of their own, and check what comes back."""
        verdict = verdict_on(data, MAX_REQUEST_BYTES)
        reader, writer = await asyncio.open_connection(*self._address)
        received, is_cut = bytearray(), False
        try:
            with contextlib.suppress(OSError):
                if rng.random() < 0.1:
                    at = rng.randrange(len(data))
                    writer.write(data[:at])
                    await writer.drain()
                    await asyncio.sleep(0)
                    data = data[at:]
                writer.write(data)
                if rng.random() < 0.02:
                    writer.transport.abort()  # Gone without a word.
                    return
                writer.write_eof()
            async with asyncio.timeout(PATIENCE_SECONDS if verdict.waits else ANSWER_SECONDS):
                while piece := await reader.read(1 << 16):
                    received += piece
        except TimeoutError:
            assert verdict.waits, f"no end of the connection after {ANSWER_SECONDS:g} s"
            is_cut = True
        except OSError:
            # The broker closes a connection with bytes that it has not read: the kernel may drop the last answers.
            assert verdict.ends, "the broker has cut a connection on which all is right"
            is_cut = True
        finally:
            writer.transport.abort()
        self._check(verdict, bytes(received), is_cut=is_cut)

    def _check(self, verdict: Verdict, received: bytes, *, is_cut: bool) -> None:
        if is_cut and verdict.waits:
            self.figures["connections that waited"] += 1
        for each in answers_in(received, verdict, is_cut=is_cut):
            self.figures["answers"] += 1
            if each.due.request is None:
                self.figures["versions refused"] += 1
                continue
            self.figures[f"{each.due.api.name} answered"] += 1
            self._known.learn(each.due.api, each.due.request, each.answer)
            if each.due.api is PRODUCE:
                self._ledger.note(each, self._known)
            elif each.due.api is FETCH:
                _check_batches(each.answer)


class _Ledger:
    """The batches that were acknowledged in topics that nobody alters or deletes."""

    def __init__(self) -> None:
        self._batches: dict[tuple[str, int, int], bytes | None] = {}
        """Batches by topic, partition and offset; without the bytes that the broker replaces. None: any batch."""

    def __len__(self) -> int:
        return len(self._batches)

    def note(self, produced: Answered, known: Known) -> None:
        """Keep the batches that were acknowledged, and compare the answer with the request."""
        names = {known.topic_ids[name]: name for name in LEDGERS}
        wishes = [(topic, part) for topic in produced.due.request.topic_data for part in topic.partition_data]
        results = [part for topic in produced.answer.responses for part in topic.partition_responses]
        assert len(wishes) == len(results), "not one result per batch"
        for (topic, wish), result in zip(wishes, results, strict=True):
            assert result.index == wish.index, "the result of another partition"
            name = names.get(topic.topic_id, topic.name)
            if result.error_code or name not in LEDGERS:
                continue
            batch = bytes(wish.records)
            [(header, _)] = split_batches(batch)
            check_crc(header, batch)
            place = name, wish.index, result.base_offset
            if header.producer_id >= 0:
                # It may repeat the sequence of another batch, whose offset it then gets.
                self._batches.setdefault(place, None)
                continue
            assert self._batches.get(place) is None, f"{place} was given away twice"
            self._batches[place] = batch[PREFIX_BYTES:]

    def check(self, client: RawClient, topic: str, partition: int) -> None:
        """Compare the whole partition with what was acknowledged of it."""
        expected = {place[2]: batch for place, batch in self._batches.items() if place[:2] == (topic, partition)}
        offset = 0
        while records := fetched(client, topic, partition, offset):
            for header, batch in split_batches(records):
                assert header.base_offset == offset, f"{topic}-{partition}: {header.base_offset} follows, not {offset}"
                sent = expected.pop(offset, None)
                assert sent in (None, batch[PREFIX_BYTES:]), f"{topic}-{partition}: another batch at {offset}"
                offset = header.next_offset
        assert not expected, (
            f"{len(expected)} acknowledged batches are not there: {topic}-{partition} {[*expected][:5]}"
        )


def fetched(client: RawClient, topic: str, partition: int, offset: int) -> bytes:
    """Return the batches from an offset on; none at the end."""
    wish = f.FetchRequestPartition(partition=partition, fetch_offset=offset, partition_max_bytes=MIB)
    request = f.FetchRequest(topics=[f.FetchRequestTopic(topic=topic, partitions=[wish])], max_bytes=MIB)
    found = client.call(FETCH, 12, request).responses[0].partitions[0]
    assert not found.error_code, found
    return bytes(found.records or b"")


def _check_batches(answer: f.FetchResponse) -> None:
    for topic in answer.responses:
        for part in topic.partitions:
            for header, batch in split_batches(bytes(part.records or b"")):
                check_crc(header, batch)


class SteadyClient:
    """Appends a batch, reads it back and commits it as the only member of a group; nothing that others do may show."""

    def __init__(self, address: str) -> None:
        self._client = RawClient(address)
        self._address = address
        self._rounds = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._client.socket.close()

    def go_on(self) -> None:
        """Append a batch and read it back, over the connection that is there."""
        value = b"round %d" % self._rounds
        result = produce(self._client, STEADY, 0, batch_of(value))
        assert (result.error_code, result.base_offset) == (0, self._rounds), result
        records = fetched(self._client, STEADY, 0, self._rounds)
        assert [record.value for record in decode_batch(records)] == [value]
        self._rounds += 1

    def round(self) -> None:
        """Do that, and commit the offset over a new connection."""
        self.go_on()
        member = RawMember(self._address, STEADY, topic=STEADY)
        with member.client:
            assert not member.join().error_code
            synced = member.sync({member.member_id: assignment(STEADY, 0)})
            assert (synced.error_code, synced.assignment) == (0, assignment(STEADY, 0))
            assert not member.commit(STEADY, self._rounds)
            assert committed(member.client, STEADY, STEADY).committed_offset == self._rounds
            assert not member.heartbeat()
            assert not member.leave()
