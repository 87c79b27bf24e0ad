"""Whatever a single record is like, its neighbours go on: through delivery, failure, a start, dead letters and back."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logbroker.config import MAX_INT64
from logbroker.engine import Append, Appended
from logbroker.queues.dead_letters.redrive import RedriveOutcome
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.settings import OnExhausted, OnUndecodable, Ordering, Priority
from logbroker.record import dead_letter
from logbroker.record.codec import Headers, NewRecord, encode_batch, with_producer
from logbroker.record.compression import Codec
from logbroker.record.header import HEADER_BYTES
from logbroker.record.message_headers import COPY_OF, NOT_BEFORE, PRIORITY
from tests.queues.shell import Shell, ack, hello, nack, shell, take, until

LETTERS = "g.dead-letters"
NEIGHBOURS = 12
_TIMESTAMPS_AT = 27
"""In a batch: the first and the largest timestamp."""
_NUMBERS = (b"", None, b"-1", b"0", b"9" * 20, b"9" * 5000, b"\xff", b"1e9", b" 1", "\u0663".encode())
_OWN = sorted({NOT_BEFORE, PRIORITY, COPY_OF, "lane", *dead_letter.HEADERS})


def stamped(batch: bytes, first_ms: int, most_ms: int) -> bytes:
    changed = bytearray(batch)
    struct.pack_into(">qq", changed, _TIMESTAMPS_AT, first_ms, most_ms)
    return with_producer(bytes(changed), -1, -1, -1)


def hostile_batches(*, late: bool) -> Iterator[bytes]:
    """Each with one record, or none that anybody could decode. `late`: one of them is not to be had for a long time."""

    def one(value: bytes | None = b"v", key: bytes | None = b"hostile", headers: Headers = ()) -> bytes:
        return encode_batch([NewRecord(value, key, headers)])

    yield one(random.Random(1).randbytes(3_000_000))
    yield one(key=random.Random(1).randbytes(5_000_000))
    yield encode_batch([NewRecord(bytes(20_000_000), b"expands")], codec=Codec.ZSTD)
    yield one(None)
    yield one(key=None)
    yield one(None, None)
    yield one(key=b"")
    yield one(headers=[("", b""), ("", None), ("\x00", b"\x00"), ("n" * 100_000, b"v"), ("lane", b"")])
    yield one(headers=[(f"h{number}", b"v") for number in range(10_000)])
    yield one(headers=[("lane", random.Random(1).randbytes(1_000_000))])
    for number, name in enumerate(_OWN):
        for value in _NUMBERS[number % 5 :: 5]:
            yield one(headers=[(name, value)])
    if late:
        yield one(key=b"of the year 33658", headers=[(NOT_BEFORE, b"9" * 15), ("lane", b"late")])
    for first_ms, most_ms in ((-1, -1), (0, 0), (-(2**63), -1), (-2, -2), (MAX_INT64, 0), (2**62, 0), (0, -(2**63))):
        yield stamped(one(), first_ms, most_ms)
    poison = bytearray(one(b"x" * 100))
    poison[HEADER_BYTES:] = b"\xff" * (len(poison) - HEADER_BYTES)
    yield with_producer(bytes(poison), -1, -1, -1)
    yield with_producer(one().replace(b"hostile", b"\xff" * 7).replace(b"v", b"\xff"), -1, -1, -1)


KINDS: dict[str, dict[str, Any]] = {
    "by key": {},
    "not ordered": {"ordering": Ordering.NONE},
    "in one lane": {"ordering": Ordering.SINGLE},
    "by key, strict": {"priority": Priority.STRICT},
    "by header, ageing": {"key_header": "lane", "priority": Priority.AGEING, "age_seconds": 0.001},
    "not ordered, weighted": {"ordering": Ordering.NONE, "priority": Priority.WEIGHTED},
}


async def produce(opened: Shell, *, late: bool) -> int:
    """Append hostile records with neighbours between them; return how many neighbours there are."""
    topic = opened.engine.topic("t")
    count = 0

    async def append(batch: bytes) -> None:
        [result] = await opened.engine.append([Append(topic.id, 0, batch)])
        assert isinstance(result, Appended), result

    for number, batch in enumerate(hostile_batches(late=late)):
        await append(batch)
        key = b"%d" % (number % NEIGHBOURS)
        await append(encode_batch([NewRecord(b"neighbour %d" % number, key, [("lane", key)])]))
        count += 1
    return count


def letters(opened: Shell) -> int:
    return opened.engine.partition_facts(opened.engine.topic(LETTERS).id, 0).high_watermark


async def work(group: QueueGroup, neighbours: int, worker: str = "w") -> None:
    """Have all neighbours fail once and be done then, and all others fail."""
    link = await group.connect(hello(worker))
    link.add_credit(500)
    met: set[bytes | None] = set()
    while neighbours:
        taken = await take(link, 1, credit=False)
        link.add_credit(len(taken))
        done = [
            receipt
            for receipt, record in taken
            if (record.value or b"").startswith(b"neighbour") and record.value in met
        ]
        met.update(record.value for _, record in taken)
        neighbours -= len(done)
        await ack(link, *done)
        await nack(link, *(receipt for receipt, _ in taken if receipt not in done))
    await link.goodbye()


@pytest.mark.prove
@pytest.mark.parametrize("kind", KINDS)
async def test_neighbours_of_hostile_records_go_on(tmp_path: Path, kind: str) -> None:
    settings = KINDS[kind]
    configs = {"max.message.bytes": "16000000", "message.timestamp.after.max.ms": str(MAX_INT64)}
    has_one_lane = settings.get("ordering") is Ordering.SINGLE
    async with shell(tmp_path, crash=True) as opened:
        await opened.engine.create_topic("t", 1, configs)
        neighbours = await produce(opened, late=not has_one_lane)
        hostile = neighbours - (not has_one_lane)
        """The one of the year 33658 waits."""
        group = await opened.group(
            on_exhausted=OnExhausted.DEAD_LETTER,
            on_undecodable=OnUndecodable.DEAD_LETTER,
            max_attempts=2,
            backoff_initial_seconds=0.0,
            **settings,
        )
        await work(group, neighbours)
        assert not group.scanner.stopped
    async with shell(tmp_path) as opened:
        group = opened.groups.group("g")
        link = await group.connect(hello("w"))
        link.add_credit(500)

        async def fail_all() -> None:
            while True:
                taken = await take(link, 1, credit=False)
                link.add_credit(len(taken))
                assert not any((record.value or b"").startswith(b"neighbour") for _, record in taken)
                await nack(link, *(receipt for receipt, _ in taken))

        failing = asyncio.create_task(fail_all())
        await until(lambda: failing.done() or letters(opened) == hostile)
        assert not failing.done()
        failing.cancel()
        await link.goodbye()
        sent = await group.redrive(None, 10_000)
        assert sent.held == 0, sent.why
        assert await group.redrive(None, 10_000) == RedriveOutcome(0, 0, False)
        assert sent.records >= hostile - 3, "all but what cannot be decoded"
        later = await produce(opened, late=False)
        await work(group, later, "another")
